/* What each command does to the stream and to the settings. */

#include "bench.h"
#include "check.h"

static void test_info(void)
{
	struct bench_state before;

	bench_begin();
	before = bench_state();
	bench_ticks(5);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_INFO).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench.frames, 3);
	bench_last(1, FSJ_FRAME_INFO);
	bench_check_same(&before);
}

static void test_stop_and_start(void)
{
	struct fsj_reply reply;

	bench_begin();
	bench_ticks(5);
	reply = bench_simple(FSJ_COMMAND_STOP);
	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	/* The samples, the closing frame with their energy, info, reply. */
	CHECK_EQUAL(bench.frames, 5);
	CHECK_EQUAL(bench_samples(1)->count, 5);
	CHECK_EQUAL(bench_samples(2)->count, 0);
	CHECK_EQUAL(bench_samples(2)->energy_raw, 5 * 2500 * 1250);
	CHECK_EQUAL(bench_info()->flags, 0);
	CHECK_EQUAL(bench_stream(), 77);
	/* Stopped: an info frame each second, and marks. */
	bench_ticks(2999);
	CHECK_EQUAL(bench.frames, 7);
	bench_line("S1\n");
	bench_check_mark(7, FSJ_MARK_LINE, "S1", 3004000);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_STOP).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench.frames, 10);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 1);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_START).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench.frames, 12);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 2);
	CHECK_EQUAL(bench_stream(), 78);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING);
	bench_ticks(20);
	CHECK_EQUAL(bench_samples(12)->first_tick, 0);
	CHECK_EQUAL(bench_samples(12)->energy_raw, 0);
	CHECK_EQUAL(bench_samples(12)->first_time_us, 3004000);
}

static void test_a_stream_that_begins_within_a_line(void)
{
	bench_begin();
	bench_ticks(5);
	bench_line("S1");
	bench_ticks(5);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_START).status, FSJ_REPLY_DONE);
	bench_check_mark(2, FSJ_MARK_LINE, "S1", 5000);
	CHECK_EQUAL(bench_samples(3)->count, 5);
	CHECK_EQUAL(bench_samples(4)->count, 0);
	CHECK_EQUAL(bench.frame[5].type, FSJ_FRAME_INFO);
	bench_line("2\n");
	bench_check_mark(7, FSJ_MARK_LINE, "2", 10000);
}

static void test_reset_energy(void)
{
	bench_begin();
	bench_jump(7);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_RESET_ENERGY).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 2);
	bench_ticks(40);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_SAMPLES)->samples.energy_raw, 20 * 2500 * 1250);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_SAMPLES)->samples.missed_total, 0);
	/* A stream may end before its first tick. */
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_RESET_ENERGY).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_RESET_ENERGY).status, FSJ_REPLY_DONE);
	bench_last(2, FSJ_FRAME_REPLY);
}

static void test_host_marks(void)
{
	bench_begin();
	bench_ticks(3);
	bench.now_us += 123;
	CHECK_EQUAL(bench_command(FSJ_COMMAND_MARK, "0123456789 abcd~", 16).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench_samples(1)->count, 3);
	bench_check_mark(2, FSJ_MARK_HOST, "0123456789 abcd~", 3123);
	CHECK_EQUAL(bench_command(FSJ_COMMAND_MARK, "a\n", 2).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(bench_command(FSJ_COMMAND_MARK, "\x7F", 1).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(bench_command(FSJ_COMMAND_MARK, "\0", 1).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(bench.frames, 7);
}

static void test_rates(void)
{
	static const uint16_t good[] = {100, 125, 160, 200, 250, 320, 400, 500, 625, 800, 1000, 1250, 1600, 2000};
	size_t held = 0;

	bench_begin();
	for (uint32_t rate_hz = 0; rate_hz <= 2600; rate_hz++) {
		const bool divides = rate_hz > 0 && 1000000 % rate_hz == 0;
		const struct bench_state before = bench_state();
		const struct fsj_reply reply = bench_command_u32(FSJ_COMMAND_RATE, rate_hz);

		if (rate_hz >= 100 && rate_hz <= 2000 && divides) {
			CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
			CHECK_EQUAL(rate_hz, good[held++]);
			CHECK_EQUAL(bench_info()->rate_hz, rate_hz);
			CHECK_EQUAL(bench_info()->adc_config, bench.config);
			CHECK_EQUAL(fsj_meter_period_us(&bench.meter), 1000000 / rate_hz);
			CHECK_EQUAL(bench.meter.streams, before.streams + 1);
		} else {
			CHECK_EQUAL(reply.status, rate_hz < 100 ? FSJ_REPLY_BAD_VALUE : FSJ_REPLY_RATE_NOT_HELD);
			bench_check_same(&before);
		}
	}
	CHECK_EQUAL(held, sizeof(good) / sizeof(good[0]));
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_RATE, UINT32_MAX).status, FSJ_REPLY_RATE_NOT_HELD);
	bench_ticks(2000);
}

static void test_ranges(void)
{
	bench_begin();
	for (unsigned int range_mv = 0; range_mv < 0x10000; range_mv++) {
		const uint8_t payload[2] = {(uint8_t)range_mv, (uint8_t)(range_mv >> 8)};
		const bool good = range_mv == 40 || range_mv == 80 || range_mv == 160 || range_mv == 320;

		bench.frames = 0;
		CHECK_EQUAL(bench_command(FSJ_COMMAND_RANGE, payload, 2).status,
			    good ? FSJ_REPLY_DONE : FSJ_REPLY_BAD_VALUE);
		if (good) {
			CHECK_EQUAL(bench_info()->shunt_range_mv, range_mv);
			CHECK_EQUAL(40 << (bench.config >> 11 & 3), range_mv);
		}
	}
	bench.shunt = 32000;
	bench_ticks(20);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_SAMPLES)->samples.flags, FSJ_FLAG_CLIPPED);
}

static void test_bus_ranges(void)
{
	bench_begin();
	for (unsigned int range_v = 0; range_v < 0x10000; range_v++) {
		const uint8_t payload[2] = {(uint8_t)range_v, (uint8_t)(range_v >> 8)};
		const bool good = range_v == 16 || range_v == 32;

		bench.frames = 0;
		CHECK_EQUAL(bench_command(FSJ_COMMAND_BUS_RANGE, payload, 2).status,
			    good ? FSJ_REPLY_DONE : FSJ_REPLY_BAD_VALUE);
		if (good) {
			CHECK_EQUAL(bench_info()->adc_config, bench.config);
			CHECK_EQUAL((bench.config & FSJ_INA219_CONFIG_BRNG_32V) != 0, range_v == 32);
		}
	}
	/* Another rate or range of the shunt leaves it. */
	bench_command_u32(FSJ_COMMAND_RATE, 2000);
	bench_command(FSJ_COMMAND_RANGE, "\x28\0", 2);
	CHECK_EQUAL(bench_info()->adc_config, 0x2097);
}

static void test_shunts(void)
{
	static const uint32_t bad[] = {0, 999, 1000001, UINT32_MAX};
	struct bench_state before;

	bench_begin();
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_SHUNT, 1000).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_SHUNT, 1000000).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench_info()->shunt_uohm, 1000000);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING | FSJ_INFO_UNSAVED);
	before = bench_state();
	for (size_t i = 0; i < 4; i++) {
		CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_SHUNT, bad[i]).status, FSJ_REPLY_BAD_VALUE);
	}
	bench_check_same(&before);
}

int main(void)
{
	test_info();
	test_stop_and_start();
	test_a_stream_that_begins_within_a_line();
	test_reset_energy();
	test_host_marks();
	test_rates();
	test_ranges();
	test_bus_ranges();
	test_shunts();
	return 0;
}
