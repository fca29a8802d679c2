#include <string.h>
#include <zephyr/drivers/gpio/gpio_emul.h>
#include <zephyr/ztest.h>

#include "board.h"
#include "clock.h"
#include "kernel_tick.h"
#include "watching.h"

#define PERIOD_US 1000u

static const struct gpio_dt_spec pin = GPIO_DT_SPEC_GET(BOARD_METER, mark_gpios);

/* Samples before the mark end no later than a tick after it, samples behind it begin no earlier than a tick before. */
static void check_order(uint64_t mark_us)
{
	bool behind = false;

	for (size_t i = 0; i < watched.count; i++) {
		const struct parsed *frame = &watched.frame[i];

		if (frame->type == FSJ_FRAME_MARK && frame->mark.time_us == mark_us) {
			behind = true;
		} else if (frame->type == SAMPLES_FRAME && behind) {
			zassert_true(frame->samples.first_time_us + PERIOD_US >= mark_us);
		} else if (frame->type == SAMPLES_FRAME) {
			zassert_true(frame->samples.first_time_us + frame->samples.count * PERIOD_US <=
				     mark_us + PERIOD_US);
		}
	}
	zassert_true(behind);
}

ZTEST(marks, test_a_line_has_the_time_of_its_first_byte)
{
	const uint64_t time_us = clock_us() + 7777;
	const struct fsj_mark *mark;

	made_host_arrive(HOST_MARKS, time_us, "S", 1);
	made_host_arrive(HOST_MARKS, time_us + 87, "1", 1);
	made_host_arrive(HOST_MARKS, time_us + 174, "\n", 1);
	watch(200);
	mark = &first_of(FSJ_FRAME_MARK)->mark;
	zassert_equal(mark->source, FSJ_MARK_LINE);
	zassert_equal(mark->length, 2);
	zassert_equal(memcmp(mark->text, "S1", 2), 0);
	zassert_within(mark->time_us, time_us, KERNEL_TICK_US);
	check_order(mark->time_us);
}

ZTEST(marks, test_a_line_without_an_end_ends_by_silence)
{
	made_host_arrive(HOST_MARKS, clock_us(), "E1", 2);
	watch(500);
	zassert_equal(first_of(FSJ_FRAME_MARK)->mark.length, 2);
	zassert_equal(watched.missed, 0);
}

ZTEST(marks, test_edges_of_the_pin)
{
	const uint64_t rising_us = clock_us();
	uint64_t falling_us;

	zassert_equal(gpio_emul_input_set(pin.port, pin.pin, 1), 0);
	k_msleep(50);
	falling_us = clock_us();
	zassert_equal(gpio_emul_input_set(pin.port, pin.pin, 0), 0);
	watch(200);
	zassert_equal(first_of(FSJ_FRAME_MARK)->mark.source, FSJ_MARK_RISING);
	zassert_equal(first_of(FSJ_FRAME_MARK)->mark.time_us, rising_us);
	check_order(rising_us);
	check_order(falling_us);
}

ZTEST(marks, test_a_flood_takes_no_sample)
{
	static const char flood[] = "aaaaaaaaaaaaaaaaaaaaaaaa\nbbbbbbbbbbbbbbbb\nc\nd\ne\nf\ng\nh\ni\n";

	for (int i = 0; i < 20; i++) {
		made_host_arrive(HOST_MARKS, clock_us(), flood, sizeof(flood) - 1);
		watch(20);
		zassert_equal(watched.missed, 0);
	}
}

ZTEST_SUITE(marks, NULL, begin, begin_test, NULL, NULL);
