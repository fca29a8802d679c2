#include "board.h"

#define SYSTICK_CTRL (*(volatile uint32_t *)0xE000E010)
#define SYSTICK_LOAD (*(volatile uint32_t *)0xE000E014)
#define SYSTICK_VAL (*(volatile uint32_t *)0xE000E018)
#define SYSTICK_RUN 0x5u
#define SYSTICK_MAX 0xFFFFFFu

/* QEMU lets 2^10 ns pass at every instruction, and SysTick counts at 25 MHz: 25.6 an instruction. */
#define COUNTS_IN_FIVE 128u

#define SEMIHOSTING_WRITE0 0x04u
#define SEMIHOSTING_EXIT 0x18u
#define SEMIHOSTING_DONE 0x20026u

extern uint32_t stack_end;
int main(void);

static uint32_t overhead;
static uint32_t began;

static void semihosting(uint32_t operation, uint32_t argument)
{
	register uint32_t r0 __asm__("r0") = operation;
	register uint32_t r1 __asm__("r1") = argument;

	__asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

void count_begin(void)
{
	began = SYSTICK_VAL;
}

uint32_t count_end(void)
{
	/* It counts down, and through 0. */
	const uint32_t counts = (began - SYSTICK_VAL) & SYSTICK_MAX;

	return (counts * 5u + COUNTS_IN_FIVE / 2u) / COUNTS_IN_FIVE - overhead;
}

void say(const char *name, uint32_t value)
{
	char digits[12];
	char *at = &digits[sizeof(digits) - 1];

	*at = '\0';
	*--at = '\n';
	do {
		*--at = (char)('0' + value % 10u);
		value /= 10u;
	} while (value > 0);
	semihosting(SEMIHOSTING_WRITE0, (uint32_t)name);
	semihosting(SEMIHOSTING_WRITE0, (uint32_t) " ");
	semihosting(SEMIHOSTING_WRITE0, (uint32_t)at);
}

void start(void)
{
	SYSTICK_LOAD = SYSTICK_MAX;
	SYSTICK_VAL = 0;
	SYSTICK_CTRL = SYSTICK_RUN;
	count_begin();
	overhead = count_end();
	main();
	semihosting(SEMIHOSTING_EXIT, SEMIHOSTING_DONE);
	for (;;) {
	}
}

static void fault(void)
{
	say("fault", 1);
	semihosting(SEMIHOSTING_EXIT, 1);
	for (;;) {
	}
}

__attribute__((section(".vectors"), used)) static void *const vectors[] = {
	&stack_end, (void *)start, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
};
