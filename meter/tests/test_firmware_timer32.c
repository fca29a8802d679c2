/* The firmware's times and ticks, on a made timer whose counter goes on between any two of its accesses. */
#include "timer32.h"

#include <stdbool.h>
#include <stdint.h>

#include "check.h"

static struct {
	uint64_t now; /* without a wrap */
	uint32_t compare;
	bool matched;
	uint32_t step_most;
	uint64_t random;
} timer;

static uint32_t random_up_to(uint32_t most)
{
	timer.random = timer.random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(timer.random >> 33) % (most + 1);
}

/* The hardware matches when the counter reaches the value, and only then. */
static void go_on(uint32_t steps)
{
	const uint32_t ahead = timer.compare - (uint32_t)timer.now;

	timer.matched |= ahead != 0 && ahead <= steps;
	timer.now += steps;
}

static uint32_t counter(void)
{
	go_on(random_up_to(timer.step_most));
	return (uint32_t)timer.now;
}

static void set_compare(uint32_t value)
{
	go_on(random_up_to(timer.step_most));
	timer.compare = value;
	go_on(random_up_to(timer.step_most));
	timer.matched = false;
}

static const struct timer32_channel channel = {.counter = counter, .set_compare = set_compare};

/* All ticks that have ended are counted, once each, whatever the interrupt's delay and the time of its accesses. */
static void check_ticks(uint64_t begin, uint32_t period, uint32_t step_most, uint32_t delay_most)
{
	struct timer32_ticks ticks;
	uint64_t counted = 0;

	timer.now = begin;
	timer.matched = false;
	timer.step_most = step_most;
	timer32_begin(&ticks, &channel, (uint32_t)begin, period);
	for (int i = 0; i < 200000; i++) {
		const uint64_t end = begin + (counted + 1) * period;

		/* To the match, and the time until the interrupt comes. */
		CHECK(end > timer.now);
		go_on((uint32_t)(end - timer.now) - 1);
		CHECK(!timer.matched);
		go_on(1 + random_up_to(delay_most));
		CHECK(timer.matched);
		timer32_matched(&ticks, &channel);
		counted += ticks.elapsed;
		ticks.elapsed = 0;
		/* Those that ended before the last look at the counter, and not one more. */
		CHECK(counted * period <= timer.now - begin);
		CHECK((counted + 1) * period + 2 * step_most >= timer.now - begin);
		if (timer.now - begin >= (counted + 1) * period) {
			/* It ended between the last look and now: its match is waiting. */
			CHECK(timer.matched);
			timer32_matched(&ticks, &channel);
			counted += ticks.elapsed;
			ticks.elapsed = 0;
		}
	}
}

static void test_ticks(void)
{
	check_ticks(0, 1000, 3, 50);
	check_ticks(0xFFFFFFFFu - 500000, 500, 3, 400);
	/* An interrupt that comes several ticks late, as after erasing flash. */
	check_ticks(0xFFFFFF00u, 1600, 10, 20000);
	/* Accesses so slow that ticks end between them. */
	check_ticks(12345, 100, 60, 300);
}

static void test_the_time_goes_on_over_the_wrap(void)
{
	uint64_t time = 0;

	timer.now = 0;
	timer.step_most = 1u << 31;
	for (int i = 0; i < 1000; i++) {
		const uint32_t read = counter();

		time = timer32_after(time, read);
		CHECK(time == timer.now);
	}
	CHECK(timer32_after(7, 7) == 7);
	CHECK(timer32_after(0xFFFFFFFFu, 0) == 1ull << 32);
}

static void test_a_captured_time_is_before_now(void)
{
	const uint64_t now = (5ull << 32) + 3;

	CHECK(timer32_before(now, 3) == now);
	CHECK(timer32_before(now, 2) == now - 1);
	CHECK(timer32_before(now, 0xFFFFFFFEu) == now - 5);
	CHECK(timer32_before(1000, 900) == 900);
}

int main(void)
{
	test_ticks();
	test_the_time_goes_on_over_the_wrap();
	test_a_captured_time_is_before_now();
	return 0;
}
