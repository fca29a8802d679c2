#include <zephyr/ztest.h>

#include "clock.h"

#define SECOND_US 1000000u
/* Between two readings, where an interrupt comes in between. */
#define LONGEST_US 10u

/* Through thousands of ticks' ends, with the interrupts locked for a part of a tick at a time: many ticks end while the
 * kernel cannot know it yet.
 */
ZTEST(clock, test_it_never_goes_back_and_leaves_nothing_out)
{
	const uint64_t begin_us = clock_us();
	uint64_t last_us = begin_us;

	while (last_us < begin_us + SECOND_US) {
		const unsigned int key = irq_lock();

		for (int i = 0; i < 3; i++) {
			const uint64_t now_us = clock_us();

			zassert_true(now_us >= last_us, "back by %u us", (uint32_t)(last_us - now_us));
			zassert_true(now_us - last_us <= LONGEST_US, "on by %u us",
				     (uint32_t)(now_us - last_us));
			last_us = now_us;
		}
		irq_unlock(key);
	}
}

/* A timer of the kernel expires where the clock says that its tick begins. */
ZTEST(clock, test_it_is_in_step_with_the_kernel)
{
	for (int i = 0; i < 200; i++) {
		const k_ticks_t tick = k_uptime_ticks() + 40;
		uint64_t now_us;

		k_sleep(K_TIMEOUT_ABS_TICKS(tick));
		now_us = clock_us();
		zassert_true(now_us >= (uint64_t)tick * CLOCK_US_PER_TICK);
		zassert_true(now_us < (uint64_t)(tick + 4) * CLOCK_US_PER_TICK, "%u us late",
			     (uint32_t)(now_us - (uint64_t)tick * CLOCK_US_PER_TICK));
	}
}

/* What the processor itself counts: its speed times the time. */
ZTEST(clock, test_it_runs_as_fast_as_the_processor)
{
	const uint64_t begin_us = clock_us();
	uint64_t took_us;

	k_busy_wait(SECOND_US);
	took_us = clock_us() - begin_us;
	zassert_within(took_us, SECOND_US, SECOND_US / 100, "%u us", (uint32_t)took_us);
}

ZTEST_SUITE(clock, NULL, NULL, NULL, NULL, NULL);
