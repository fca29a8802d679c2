#include "clock.h"

#if defined(CONFIG_CPU_CORTEX_M_HAS_SYSTICK) && !defined(CONFIG_TICKLESS_KERNEL)

#include <cmsis_core.h>

/* Within a tick the time is what SysTick has counted down. Zephyr's own cycle counter would do, but in 3.2 it loses a
 * cycle in every tick when the kernel is not tickless.
 */
uint64_t clock_us(void)
{
	const uint32_t cycles_per_us = sys_clock_hw_cycles_per_sec() / 1000000u;
	const unsigned int key = irq_lock();
	uint64_t ticks = (uint64_t)k_uptime_ticks();
	uint32_t left = SysTick->VAL;
	/* It has begun anew, and the kernel does not know yet. */
	const bool is_pending = (SCB->ICSR & SCB_ICSR_PENDSTSET_Msk) != 0;

	if (is_pending) {
		ticks++;
		left = SysTick->VAL;
	}
	irq_unlock(key);
	/* One tick ends, and the next begins, where it reaches 0. */
	return ticks * CLOCK_US_PER_TICK +
	       (is_pending && left == 0 ? 0 : SysTick->LOAD + 1 - left) / cycles_per_us;
}

#else

uint64_t clock_us(void)
{
	return k_cycle_get_64() / (sys_clock_hw_cycles_per_sec() / 1000000u);
}

#endif
