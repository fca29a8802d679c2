#include <string.h>
#include <zephyr/ztest.h>

#include "fsjoule/meter.h"
#include "watching.h"

ZTEST(sampling, test_a_thousand_samples_a_second)
{
	watch(10000);
	/* Up to a frame is under way at either end. */
	zassert_within(watched.samples, 10000, FSJ_SAMPLES_MAX);
	zassert_equal(watched.missed, 0);
	zassert_equal(watched.flags, 0);
	for (size_t i = 0; i < watched.count; i++) {
		const struct parsed *frame = &watched.frame[i];

		for (uint8_t k = 0; frame->type == SAMPLES_FRAME && k < frame->samples.count; k++) {
			zassert_equal(frame->samples.sample[k].shunt, SHUNT_RAW);
			zassert_equal(frame->samples.sample[k].bus, BUS_RAW);
		}
	}
}

ZTEST(sampling, test_info_once_a_second)
{
	uint32_t infos = 0;

	watch(10000);
	for (size_t i = 0; i < watched.count; i++) {
		infos += watched.frame[i].type == FSJ_FRAME_INFO ? 1 : 0;
	}
	zassert_within(infos, 10, 1);
	zassert_equal(strcmp((const char *)follower.info.serial_number, "TEST"), 0);
	zassert_equal(follower.info.reset_cause, FSJ_RESET_POWER);
	zassert_true((follower.info.flags & FSJ_INFO_SIMULATED) != 0);
}

/* Every rate there is, with the bus's own time, and the slowest chip that the data sheet allows. */
ZTEST(sampling, test_every_rate_is_held)
{
	static const uint32_t rates_hz[] = {100, 125, 160, 200, 250, 320, 400, 500, 625, 800, 1000, 1250, 1600, 2000};

	made_chip_slow(&made_host.made, SLOWEST_PPM);
	for (size_t i = 0; i < ARRAY_SIZE(rates_hz); i++) {
		zassert_equal(command(FSJ_COMMAND_RATE, &rates_hz[i], sizeof(rates_hz[i])).status, FSJ_REPLY_DONE);
		watch(2000);
		zassert_within(watched.samples, 2 * rates_hz[i], FSJ_SAMPLES_MAX, "at %u Hz", rates_hz[i]);
		zassert_equal(watched.missed, 0, "%u missed at %u Hz", watched.missed, rates_hz[i]);
	}
	made_chip_slow(&made_host.made, 0);
}

ZTEST(sampling, test_what_the_supply_lost_is_missed)
{
	const uint64_t now_us = follower.newest_us;

	made_host.lost_until_us = now_us + 250000;
	watch(1000);
	zassert_within(watched.missed, 250, 50);
	zassert_equal(watched.flags, 0);
}

ZTEST_SUITE(sampling, NULL, begin, begin_test, NULL, NULL);
