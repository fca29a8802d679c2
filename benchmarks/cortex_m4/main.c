/* What the core's path for a tick takes, in instructions and in I2C transfers, for every kind of tick that there is. */
#include <string.h>

#include "board.h"
#include "fsjoule/meter.h"

#define PERIOD_US 1000u
#define SHUNT 2500u
#define BUS ((1250u << FSJ_INA219_BUS_VALUE_SHIFT) | FSJ_INA219_BUS_CNVR)
#define MINUTE_TICKS 60000u

static struct fsj_meter meter;
static uint64_t now_us;
static uint32_t reads;
static uint32_t writes;
static uint8_t line[4096]; /* what goes out, as in the firmware's buffer */
static size_t line_size;
static uint16_t config;
static bool fails;

/* ------------------------------------------------------------------------------------------- a chip and a line */

static int write_register(void *context, uint8_t reg, uint16_t value)
{
	(void)context;
	writes++;
	if (reg == FSJ_INA219_CONFIG) {
		config = value;
	}
	return 0;
}

static int read_register(void *context, uint8_t reg, uint16_t *value)
{
	(void)context;
	reads++;
	if (fails) {
		fails = false;
		return -1;
	}
	*value = reg == FSJ_INA219_CONFIG ? config : reg == FSJ_INA219_BUS ? BUS : SHUNT;
	return 0;
}

static int recover(void *context)
{
	(void)context;
	return 0;
}

static bool frame(void *context, const uint8_t *bytes, size_t size)
{
	(void)context;
	line_size = line_size + size > sizeof(line) ? 0 : line_size;
	memcpy(line + line_size, bytes, size);
	line_size += size;
	return true;
}

static void start(void)
{
	const struct fsj_meter_config defaults = {
		.defaults = {.rate_hz = 1000, .shunt_uohm = 100000, .range = FSJ_INA219_RANGE_80MV},
		.mark_silence_us = FSJ_MARK_SILENCE_US,
		.serial_number = "0123456789ABCDEF",
	};
	const struct fsj_i2c i2c = {write_register, read_register, recover, NULL};
	const struct fsj_output output = {frame, NULL};
	const struct fsj_storage none = {NULL, NULL, NULL};

	now_us = 0;
	fsj_meter_start(&meter, &defaults, &i2c, &output, &none);
}

/* --------------------------------------------------------------------------------------------------- measuring */

struct cost {
	uint32_t instructions;
	uint32_t reads;
	uint32_t writes;
};

static struct cost tick(void)
{
	struct cost cost = {.reads = reads, .writes = writes};

	now_us += PERIOD_US;
	count_begin();
	fsj_meter_tick(&meter, 1, now_us);
	cost.instructions = count_end();
	cost.reads = reads - cost.reads;
	cost.writes = writes - cost.writes;
	return cost;
}

static void tell(const char *name, struct cost cost)
{
	say(name, cost.instructions);
	say("reads", cost.reads);
	say("writes", cost.writes);
}

/* A minute of ticks: the commonest, the one that closes a frame, and the one that is longest. */
static void measure_ticks(void)
{
	struct cost longest = {0};

	start();
	tell("first-of-a-frame", tick());
	tell("ordinary", tick());
	for (int i = 2; i < 19; i++) {
		tick();
	}
	tell("closes-a-frame", tick());
	for (uint32_t i = 20; i < MINUTE_TICKS; i++) {
		const struct cost cost = tick();

		longest = cost.instructions > longest.instructions ? cost : longest;
	}
	tell("longest-of-a-minute", longest);
}

/* As much as 115200 baud carry in a tick, and an edge of the pin. */
static void measure_mark(void)
{
	static const char text[] = "S1234567890\n";
	struct cost cost;

	start();
	tick();
	count_begin();
	for (size_t i = 0; i + 1 < sizeof(text); i++) {
		fsj_meter_mark_byte(&meter, (uint8_t)text[i], now_us + 87u * i);
	}
	fsj_meter_mark_edge(&meter, true, now_us + 999u);
	cost.instructions = count_end();
	cost.instructions += tick().instructions;
	tell("with-a-line-and-an-edge", (struct cost){cost.instructions, 3, 0});
}

/* A line that never ends holds frames, which go out all at once in one tick. */
static void measure_held(void)
{
	struct cost longest = {0};

	start();
	tick();
	fsj_meter_mark_byte(&meter, 'S', now_us + 1);
	for (uint32_t i = 0; i < 400; i++) {
		fsj_meter_mark_byte(&meter, 'x', now_us + 500);
		const struct cost cost = tick();

		longest = cost.instructions > longest.instructions ? cost : longest;
	}
	tell("releases-held-frames", longest);
}

static void measure_fault(void)
{
	start();
	for (int i = 0; i < 10; i++) {
		tick();
	}
	fails = true;
	tell("finds-a-fault", tick());
}

int main(void)
{
	count_begin();
	__asm__ volatile(".rept 1000\n nop\n .endr");
	say("thousand-nops", count_end());
	measure_ticks();
	measure_mark();
	measure_held();
	measure_fault();
	return 0;
}
