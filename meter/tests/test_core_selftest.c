/* The self-test, and what is saved. */

#include "bench.h"
#include "check.h"

static void check_self_test(uint32_t failures, int32_t shunt, int32_t bus)
{
	const struct fsj_reply reply = bench_simple(FSJ_COMMAND_SELF_TEST);

	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	bench_check_values(&reply, (int32_t)failures, shunt, bus);
}

static void test_self_test(void)
{
	bench_begin();
	check_self_test(0, 2500, 1250);
	CHECK_EQUAL(bench.now_us, 1000);
	CHECK_EQUAL(bench.calibration, 0);
	bench.shunt = (uint16_t)-8000;
	check_self_test(FSJ_FAIL_CLIPPED, -8000, 1250);
	bench.stuck = 0x0002;
	check_self_test(FSJ_FAIL_CLIPPED | FSJ_FAIL_REGISTER, -8000, 1250);
	bench.shunt = 0;
	bench.stuck = 0;
	bench.config = FSJ_INA219_CONFIG_RESET_VALUE;
	check_self_test(FSJ_FAIL_CONFIG, 0, 1250);
	CHECK_EQUAL(bench.config, 0x091F);
	bench.read_fails = true;
	check_self_test(FSJ_FAIL_NO_STORAGE, 0, 1250);
	bench.chip = CHIP_NOT_READY;
	bench.now_us = 0;
	check_self_test(FSJ_FAIL_NO_STORAGE | FSJ_FAIL_NO_CONVERSION, 0, 0);
	CHECK_EQUAL(bench.now_us, 2000);
	bench.chip = CHIP_GONE;
	check_self_test(FSJ_FAIL_NO_STORAGE | FSJ_FAIL_NO_ANSWER, 0, 0);
	CHECK_EQUAL(bench.now_us, 2000);
}

static void test_self_test_while_stopped(void)
{
	bench_begin();
	bench_simple(FSJ_COMMAND_STOP);
	bench.chip = CHIP_GONE;
	check_self_test(FSJ_FAIL_NO_ANSWER, 0, 0);
	bench.chip = CHIP_GOOD;
	check_self_test(0, 2500, 1250);
	bench.chip = CHIP_STALE;
	check_self_test(FSJ_FAIL_NO_CONVERSION, 0, 0);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 1);
}

/* The chip goes away between the registers and the conversion. */
static void test_self_test_of_a_chip_that_goes_away(void)
{
	uint8_t encoded[300];

	bench_begin();
	bench_bytes(encoded, encode_command(FSJ_COMMAND_SELF_TEST, FSJ_PROTOCOL, 9, NULL, 0, encoded));
	bench.chip = CHIP_GONE;
	bench_ticks(1);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_REPLY)->reply.values[0], FSJ_FAIL_NO_ANSWER);
}

static void test_save(void)
{
	const struct fsj_meter_config config = bench_config();
	struct fsj_reply reply;

	bench_begin();
	bench_ticks(3);
	bench_command_u32(FSJ_COMMAND_RATE, 500);
	bench.shunt = 4;
	bench_command_u32(FSJ_COMMAND_ZERO, BENCH_DATE);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING | FSJ_INFO_UNSAVED);
	reply = bench_simple(FSJ_COMMAND_SAVE);
	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	bench_check_values(&reply, 1, 0, 0);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 4);
	reply = bench_simple(FSJ_COMMAND_SAVE);
	bench_check_values(&reply, 2, 0, 0);
	bench_start(&config);
	CHECK_EQUAL(bench_info()->rate_hz, 500);
	CHECK_EQUAL(bench_info()->calibration.shunt_offset_nv, 40000);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING);
	CHECK_EQUAL(bench_info()->adc_config, 0x099F);
	/* What is not saved is gone. */
	bench_command_u32(FSJ_COMMAND_RATE, 100);
	bench_start(&config);
	CHECK_EQUAL(bench_info()->rate_hz, 500);
}

static void test_a_torn_save(void)
{
	const struct fsj_meter_config config = bench_config();
	struct fsj_reply reply;

	bench_begin();
	bench_command_u32(FSJ_COMMAND_RATE, 500);
	bench_simple(FSJ_COMMAND_SAVE);
	bench_command_u32(FSJ_COMMAND_RATE, 200);
	bench.write_stops_at = 40;
	reply = bench_simple(FSJ_COMMAND_SAVE);
	CHECK_EQUAL(reply.status, FSJ_REPLY_NOT_STORED);
	bench_check_values(&reply, 0, 0, 0);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING | FSJ_INFO_UNSAVED | FSJ_INFO_DAMAGED);
	CHECK_EQUAL(bench_info()->rate_hz, 200);
	bench_start(&config);
	CHECK_EQUAL(bench_info()->rate_hz, 500);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING | FSJ_INFO_DAMAGED);
	bench.write_stops_at = FSJ_RECORD_BYTES;
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_SAVE).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING);
}

static void test_without_storage(void)
{
	bench_begin();
	bench.meter.store.storage = (struct fsj_storage){NULL, NULL, NULL};
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_SAVE).status, FSJ_REPLY_NOT_STORED);
	check_self_test(FSJ_FAIL_NO_STORAGE, 2500, 1250);
}

int main(void)
{
	test_self_test();
	test_self_test_while_stopped();
	test_self_test_of_a_chip_that_goes_away();
	test_save();
	test_a_torn_save();
	test_without_storage();
	return 0;
}
