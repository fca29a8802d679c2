#include <zephyr/ztest.h>

#include "watching.h"

ZTEST(faults, test_a_held_bus_is_freed_at_once)
{
	const uint32_t recoveries = made_host.recoveries;
	const uint32_t faults = follower.info.i2c_faults;

	made_host.bus_held = true;
	watch(2000);
	zassert_equal(made_host.recoveries, recoveries + 1);
	/* The tick that found it, and one while the first conversion goes on. */
	zassert_between_inclusive(watched.missed, 1, 2);
	zassert_equal(watched.flags, FSJ_FLAG_I2C_FAULT | FSJ_FLAG_BUS_RESET);
	zassert_true(follower.info.i2c_faults > faults);
}

ZTEST(faults, test_a_chip_that_is_gone_and_comes_back)
{
	made_host.unplugged = true;
	watch(500);
	zassert_true(watched.missed >= 460, "%u", watched.missed);
	zassert_equal(command(FSJ_COMMAND_SELF_TEST, NULL, 0).values[0] & FSJ_FAIL_NO_ANSWER, FSJ_FAIL_NO_ANSWER);
	made_host.unplugged = false;
	watch(100);
	watch(1000);
	zassert_within(watched.samples, 1000, FSJ_SAMPLES_MAX);
	zassert_equal(watched.missed, 0);
}

static struct parsed next_samples(void)
{
	uint8_t bytes[FSJ_FRAME_ENCODED_MAX_BYTES];
	struct parsed frame;

	do {
		const size_t size = made_host_frame(bytes, sizeof(bytes));

		zassert_true(size > 0);
		frame = parse(bytes, size);
	} while (frame.type != SAMPLES_FRAME);
	return frame;
}

/* What was before this frame of samples was not received. */
static void go_on_from(const struct parsed *frame)
{
	follower.frames = frame->seq;
	follower.next_tick = frame->samples.first_tick;
	follower.missed = frame->samples.missed_total;
	follower.energy = frame->samples.energy_raw;
	follower.bus_total = frame->samples.bus_total;
	follow(&follower, frame);
}

/* Frames are dropped whole, and the next one's sums say what was in them. */
ZTEST(faults, test_a_reader_that_holds_the_line_up)
{
	uint8_t bytes[FSJ_FRAME_ENCODED_MAX_BYTES];
	const uint32_t dropped = follower.info.frames_dropped;
	struct follower begin_of_gap;
	struct parsed frame;
	size_t size;

	made_host.reader_holds_up = true;
	k_msleep(3000);
	made_host.reader_holds_up = false;
	k_msleep(100);
	/* What had found room comes first. */
	for (;;) {
		size = made_host_frame(bytes, sizeof(bytes));
		zassert_true(size > 0, "nothing was dropped");
		frame = parse(bytes, size);
		if (frame.seq != follower.frames) {
			break;
		}
		follow(&follower, &frame);
	}
	begin_of_gap = follower;
	zassert_true(frame.seq > follower.frames);
	if (frame.type != SAMPLES_FRAME) {
		frame = next_samples();
	}
	zassert_equal(frame.samples.missed_total, begin_of_gap.missed);
	zassert_equal(frame.samples.energy_raw - begin_of_gap.energy,
		      (int64_t)(frame.samples.first_tick - begin_of_gap.next_tick) * SHUNT_RAW * BUS_RAW);
	go_on_from(&frame);
	watch(1500);
	zassert_equal(watched.missed, 0);
	zassert_true(follower.info.frames_dropped > dropped);
}

/* On USB. What was sent meanwhile is gone, and no frame was dropped for lack of room. */
ZTEST(faults, test_a_reader_that_is_away_gets_what_is_new)
{
	uint8_t bytes[FSJ_FRAME_ENCODED_MAX_BYTES];
	const uint32_t dropped = follower.info.frames_dropped;
	const uint64_t before_us = follower.newest_us;
	struct parsed frame;

	made_host.reader_is_away = true;
	k_msleep(3000);
	zassert_equal(made_host_frame(bytes, sizeof(bytes)), 0);
	made_host.reader_is_away = false;
	k_msleep(100);
	frame = next_samples();
	zassert_true(frame.samples.first_time_us > before_us + 2900000);
	zassert_equal(frame.samples.missed_total, follower.missed);
	go_on_from(&frame);
	watch(1500);
	zassert_equal(watched.missed, 0);
	zassert_equal(follower.info.frames_dropped, dropped);
}

ZTEST_SUITE(faults, NULL, begin, begin_test, NULL, NULL);
