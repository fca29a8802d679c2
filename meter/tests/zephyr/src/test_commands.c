#include <zephyr/ztest.h>

#include "clock.h"
#include "watching.h"

ZTEST(commands, test_self_test_finds_nothing)
{
	const struct fsj_reply reply = command(FSJ_COMMAND_SELF_TEST, NULL, 0);

	zassert_equal(reply.status, FSJ_REPLY_DONE);
	zassert_equal(reply.values[0], 0, "failures 0x%x", reply.values[0]);
	zassert_equal(reply.values[1], SHUNT_RAW);
	zassert_equal(reply.values[2], BUS_RAW);
}

ZTEST(commands, test_a_rate_that_cannot_be_held_is_refused)
{
	const uint32_t rate_hz = 3000;
	const uint32_t stream = follower.stream_id;

	zassert_not_equal(command(FSJ_COMMAND_RATE, &rate_hz, sizeof(rate_hz)).status, FSJ_REPLY_DONE);
	zassert_equal(follower.stream_id, stream);
	zassert_equal(watched.missed, 0);
}

ZTEST(commands, test_nonsense_is_answered)
{
	const uint8_t nonsense[] = {0x55, 0xAA, 0x10, 0x20, 0x00};

	zassert_equal(command(0x77, NULL, 0).status, FSJ_REPLY_UNKNOWN);
	made_host_arrive(HOST_STREAM, clock_us(), nonsense, sizeof(nonsense));
	watch(100);
	zassert_equal(first_of(FSJ_FRAME_REPLY)->reply.status, FSJ_REPLY_DAMAGED);
	/* One that stops in the middle. */
	made_host_arrive(HOST_STREAM, clock_us(), nonsense, 2);
	watch(500);
	zassert_equal(first_of(FSJ_FRAME_REPLY)->reply.status, FSJ_REPLY_DAMAGED);
	zassert_equal(watched.missed, 0);
}

ZTEST(commands, test_stop_and_start)
{
	uint32_t samples;

	zassert_equal(command(FSJ_COMMAND_STOP, NULL, 0).status, FSJ_REPLY_DONE);
	watch(2500);
	zassert_equal(watched.samples, 0);
	/* It says so every second. */
	zassert_true((first_of(FSJ_FRAME_INFO)->info.flags & FSJ_INFO_SAMPLING) == 0);
	zassert_equal(command(FSJ_COMMAND_START, NULL, 0).status, FSJ_REPLY_DONE);
	watch(1000);
	samples = watched.samples;
	zassert_within(samples, 1000, FSJ_SAMPLES_MAX);
	zassert_equal(watched.missed, 0);
}

ZTEST(commands, test_a_mark_of_the_host)
{
	const uint64_t before_us = clock_us();

	zassert_equal(command(FSJ_COMMAND_MARK, "begin", 5).status, FSJ_REPLY_DONE);
	zassert_equal(first_of(FSJ_FRAME_MARK)->mark.source, FSJ_MARK_HOST);
	zassert_within(first_of(FSJ_FRAME_MARK)->mark.time_us, before_us, 2000);
}

ZTEST_SUITE(commands, NULL, begin, begin_test, NULL, NULL);
