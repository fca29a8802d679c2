/* Calibrations as commands: done, refused, given up, and what else may be done meanwhile. */

#include "bench.h"
#include "check.h"

static void test_zero(void)
{
	struct fsj_reply reply;

	bench_begin();
	bench_ticks(7);
	bench.shunt = (uint16_t)-12;
	reply = bench_command_u32(FSJ_COMMAND_ZERO, BENCH_DATE);
	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	bench_check_values(&reply, -120000, 0, 1000);
	CHECK_EQUAL(bench.now_us, 1007000);
	/* A new stream with the offset, before the reply. */
	bench_last(1, FSJ_FRAME_INFO);
	CHECK_EQUAL(bench_info()->calibration.shunt_offset_nv, -120000);
	CHECK_EQUAL(bench_info()->calibration.zero_date, BENCH_DATE);
	CHECK_EQUAL(bench_info()->calibration.gain_date, 0);
	CHECK_EQUAL(bench_stream(), 78);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING | FSJ_INFO_UNSAVED);
	/* All samples of the second are in the stream. */
	CHECK_EQUAL(bench_last(2, FSJ_FRAME_SAMPLES)->samples.first_tick, 1007);
}

static void test_zero_while_stopped(void)
{
	struct fsj_reply reply;

	bench_begin();
	bench_simple(FSJ_COMMAND_STOP);
	bench.shunt = 3;
	reply = bench_command_u32(FSJ_COMMAND_ZERO, BENCH_DATE);
	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	bench_check_values(&reply, 30000, 0, 1000);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_UNSAVED);
	CHECK_EQUAL(bench_stream(), 78);
}

static void test_zero_with_something_connected(void)
{
	struct fsj_reply reply;
	struct bench_state before;

	bench_begin();
	before = bench_state();
	bench.shunt = 41;
	reply = bench_command_u32(FSJ_COMMAND_ZERO, BENCH_DATE);
	CHECK_EQUAL(reply.status, FSJ_REPLY_BAD_VALUE);
	bench_check_values(&reply, 410000, 0, 1000);
	bench_check_same(&before);
}

static void test_zero_with_missed_ticks(void)
{
	uint8_t encoded[300];
	uint8_t date[4] = {0};

	bench_begin();
	bench.shunt = 1;
	bench_bytes(encoded, encode_command(FSJ_COMMAND_ZERO, FSJ_PROTOCOL, 9, date, 4, encoded));
	for (int i = 0; i < 999; i++) {
		bench.chip = CHIP_NOT_READY;
		bench_ticks(1);
		bench.chip = CHIP_GOOD;
		bench_ticks(1);
	}
	CHECK(bench.meter.task.kind == FSJ_TASK_ZERO);
	bench_ticks(1);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_REPLY)->reply.status, FSJ_REPLY_DONE);
}

static void check_calibration_without_chip(uint8_t type, const void *payload, size_t length)
{
	struct fsj_reply reply;
	struct bench_state before;

	bench_begin();
	bench_ticks(10);
	bench.chip = CHIP_GONE;
	before = bench_state();
	reply = bench_command(type, payload, length);
	CHECK_EQUAL(reply.status, FSJ_REPLY_NO_CHIP);
	bench_check_values(&reply, 0, 0, 0);
	CHECK_EQUAL(bench.now_us, 2010000);
	bench_check_same(&before);
	/* Nothing is under way any more. */
	bench.chip = CHIP_GOOD;
	bench.shunt = 0;
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_ZERO, BENCH_DATE).status, FSJ_REPLY_DONE);
}

static void test_calibration_without_chip(void)
{
	uint8_t payload[BENCH_GAIN_BYTES];

	bench_gain_payload(payload, 1, 0, 5000000);
	check_calibration_without_chip(FSJ_COMMAND_ZERO, "\1\2\3\4", 4);
	check_calibration_without_chip(FSJ_COMMAND_GAIN, payload, sizeof(payload));
}

static void test_two_point_calibration(void)
{
	struct fsj_reply reply;
	const struct fsj_calibration *found;

	bench_begin();
	/* 10 mA and 510 mA at 0.1 Ohm are 1 mV and 51 mV; read as 1.05 mV and 50.05 mV. */
	bench.shunt = 105;
	bench.bus = 1250;
	reply = bench_gain(1, 10000, 5010000);
	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	bench_check_values(&reply, 1050000, 5000000, 1000);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 1);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING);
	bench.shunt = 5005;
	bench.bus = 1225;
	reply = bench_gain(2, 510000, 4900000);
	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	bench_check_values(&reply, 50050000, 4900000, 1000);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 2);
	bench_last(1, FSJ_FRAME_INFO);
	found = &bench_info()->calibration;
	CHECK_EQUAL(found->current_gain_ppm, 20408);
	CHECK_EQUAL(found->shunt_offset_nv, 70000);
	CHECK_EQUAL(found->bus_gain_ppm, 1010);
	CHECK_EQUAL(found->gain_uncertainty_ppm, 104);
	CHECK_EQUAL(found->zero_date, BENCH_DATE);
	CHECK_EQUAL(found->gain_date, BENCH_DATE);
	/* The low point is used up. */
	CHECK_EQUAL(bench_gain(2, 510000, 4900000).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_FORGET_CALIBRATION).status, FSJ_REPLY_DONE);
	CHECK(memcmp(&bench_info()->calibration, &(struct fsj_calibration){0}, sizeof(struct fsj_calibration)) == 0);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING);
}

static void test_gain_values_that_are_not_allowed(void)
{
	struct bench_state before;
	uint64_t now_us;

	bench_begin();
	before = bench_state();
	now_us = bench.now_us;
	CHECK_EQUAL(bench_gain(0, 0, 5000000).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(bench_gain(3, 0, 5000000).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(bench_gain(2, 0, 5000000).status, FSJ_REPLY_BAD_VALUE); /* no low point */
	CHECK_EQUAL(bench_gain(1, INT32_MIN, 5000000).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(bench_gain(1, INT32_MAX, 5000000).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(bench_gain(1, 0, 0).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(bench_gain(1, 0, UINT32_MAX).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(bench.now_us, now_us);
	bench_check_same(&before);
}

static void test_gain_measurements_that_contradict(void)
{
	struct bench_state before;

	bench_begin();
	before = bench_state();
	bench.shunt = 8000;
	CHECK_EQUAL(bench_gain(1, 800000, 5000000).status, FSJ_REPLY_BAD_VALUE); /* clipped */
	bench.shunt = 100;
	CHECK_EQUAL(bench_gain(2, 400000, 5000000).status, FSJ_REPLY_BAD_VALUE); /* so there is no low point */
	CHECK_EQUAL(bench_gain(1, 10000, 5000000).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench_gain(2, 10000, 5000000).status, FSJ_REPLY_BAD_VALUE); /* no difference */
	bench.shunt = 8000;
	CHECK_EQUAL(bench_gain(2, 800000, 5000000).status, FSJ_REPLY_BAD_VALUE); /* clipped */
	bench.shunt = 4000;
	CHECK_EQUAL(bench_gain(2, 380000, 5000000).status, FSJ_REPLY_BAD_VALUE); /* more than 5 % */
	bench_check_same(&before);
	/* The low point is still there. */
	CHECK_EQUAL(bench_gain(2, 400000, 5000000).status, FSJ_REPLY_DONE);
}

static void test_a_low_point_is_of_its_settings(void)
{
	const uint8_t payload[2] = {160, 0};

	for (int what = 0; what < 5; what++) {
		bench_begin();
		bench.shunt = 100;
		CHECK_EQUAL(bench_gain(1, 10000, 5000000).status, FSJ_REPLY_DONE);
		if (what == 1) {
			bench_command_u32(FSJ_COMMAND_RATE, 500);
		} else if (what == 2) {
			bench_command_u32(FSJ_COMMAND_SHUNT, 50000);
		} else if (what == 3) {
			bench_command(FSJ_COMMAND_RANGE, payload, 2);
		} else if (what == 4) {
			bench_command(FSJ_COMMAND_BUS_RANGE, "\x20\0", 2);
		}
		bench.shunt = 5000;
		CHECK_EQUAL(bench_gain(2, 500000, 5000000).status, what == 0 ? FSJ_REPLY_DONE : FSJ_REPLY_BAD_VALUE);
	}
}

static void calibrate(void)
{
	bench_begin();
	bench.shunt = 100;
	CHECK_EQUAL(bench_gain(1, 10000, 5000000).status, FSJ_REPLY_DONE);
	bench.shunt = 5000;
	CHECK_EQUAL(bench_gain(2, 501000, 5010000).status, FSJ_REPLY_DONE);
	bench.shunt = 5;
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_ZERO, BENCH_DATE + 1).status, FSJ_REPLY_DONE);
	CHECK(bench_info()->calibration.current_gain_ppm != 0);
}

static void test_what_another_range_or_shunt_forgets(void)
{
	const uint8_t same[2] = {80, 0};
	const uint8_t another[2] = {160, 0};
	const struct fsj_calibration none = {0};
	const struct fsj_calibration offset = {.shunt_offset_nv = 50000, .zero_date = BENCH_DATE + 1};

	calibrate();
	bench_command(FSJ_COMMAND_RANGE, same, 2);
	bench_command_u32(FSJ_COMMAND_SHUNT, 100000);
	bench_command_u32(FSJ_COMMAND_RATE, 500);
	bench_command(FSJ_COMMAND_BUS_RANGE, "\x10\0", 2);
	CHECK(bench_info()->calibration.current_gain_ppm != 0);
	bench_command_u32(FSJ_COMMAND_SHUNT, 100001);
	CHECK(memcmp(&bench_info()->calibration, &offset, sizeof(offset)) == 0);
	calibrate();
	bench_command(FSJ_COMMAND_BUS_RANGE, "\x20\0", 2);
	CHECK(memcmp(&bench_info()->calibration, &offset, sizeof(offset)) == 0);
	calibrate();
	bench_command(FSJ_COMMAND_RANGE, another, 2);
	CHECK(memcmp(&bench_info()->calibration, &none, sizeof(none)) == 0);
}

static void test_busy(void)
{
	uint8_t encoded[300];
	const uint8_t date[4] = {0};
	uint8_t point[BENCH_GAIN_BYTES];
	struct bench_state before;

	bench_gain_payload(point, 1, 0, 5000000);
	bench_begin();
	bench.shunt = 0;
	before = bench_state();
	bench_bytes(encoded, encode_command(FSJ_COMMAND_ZERO, FSJ_PROTOCOL, 9, date, 4, encoded));
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_START).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_STOP).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_RATE, 500).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_command(FSJ_COMMAND_RANGE, "\x28\0", 2).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_SHUNT, 50000).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_ZERO, 0).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_command(FSJ_COMMAND_GAIN, point, sizeof(point)).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_SAVE).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_RESET_ENERGY).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_SELF_TEST).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_FORGET_CALIBRATION).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench.now_us, 0);
	bench_check_same(&before);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_INFO).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench_command(FSJ_COMMAND_MARK, "m", 1).status, FSJ_REPLY_DONE);
	bench_ticks(1000);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_REPLY)->reply.request, 9);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_REPLY)->reply.status, FSJ_REPLY_DONE);
}

int main(void)
{
	test_zero();
	test_zero_while_stopped();
	test_zero_with_something_connected();
	test_zero_with_missed_ticks();
	test_calibration_without_chip();
	test_two_point_calibration();
	test_gain_values_that_are_not_allowed();
	test_gain_measurements_that_contradict();
	test_a_low_point_is_of_its_settings();
	test_what_another_range_or_shunt_forgets();
	test_busy();
	return 0;
}
