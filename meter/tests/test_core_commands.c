/* Every command: done, refused, damaged, truncated, and what it does to the stream. */

#include "bench.h"
#include "check.h"

#define DATE 1767225600u

struct gain_payload {
	uint8_t bytes[17];
};

static void put_u32(uint8_t *out, uint32_t value)
{
	for (size_t i = 0; i < 4; i++) {
		out[i] = (uint8_t)(value >> (8 * i));
	}
}

static struct gain_payload gain(uint8_t point, int32_t true_ua, uint32_t true_uv, uint32_t ppm)
{
	struct gain_payload payload = {.bytes = {point}};

	put_u32(payload.bytes + 1, (uint32_t)true_ua);
	put_u32(payload.bytes + 5, true_uv);
	put_u32(payload.bytes + 9, ppm);
	put_u32(payload.bytes + 13, DATE);
	return payload;
}

static struct fsj_reply send_gain(uint8_t point, int32_t true_ua, uint32_t true_uv)
{
	const struct gain_payload payload = gain(point, true_ua, true_uv, 100);

	return bench_command(FSJ_COMMAND_GAIN, payload.bytes, sizeof(payload.bytes));
}

static struct fsj_reply simple(uint8_t type)
{
	return bench_command(type, NULL, 0);
}

static void check_values(const struct fsj_reply *reply, int32_t first, int32_t second, int32_t third)
{
	CHECK_EQUAL(reply->values[0], first);
	CHECK_EQUAL(reply->values[1], second);
	CHECK_EQUAL(reply->values[2], third);
}

/* What a command that fails must leave alone. */
struct state {
	struct fsj_settings settings;
	uint32_t streams;
	bool sampling;
};

static struct state state(void)
{
	return (struct state){bench.meter.settings, bench.meter.streams, bench.meter.sampling};
}

static void check_same(const struct state *before)
{
	CHECK(fsj_settings_equal(&bench.meter.settings, &before->settings));
	CHECK_EQUAL(bench.meter.streams, before->streams);
	CHECK_EQUAL(bench.meter.sampling, before->sampling);
}

/* -------------------------------------------------------------------------------------------------- what arrives */

static const struct {
	uint8_t type;
	size_t least;
	size_t most;
} lengths[] = {
	{FSJ_COMMAND_INFO, 0, 0},	  {FSJ_COMMAND_START, 0, 0},
	{FSJ_COMMAND_STOP, 0, 0},	  {FSJ_COMMAND_RATE, 4, 4},
	{FSJ_COMMAND_RANGE, 2, 2},	  {FSJ_COMMAND_SHUNT, 4, 4},
	{FSJ_COMMAND_ZERO, 4, 4},	  {FSJ_COMMAND_GAIN, 17, 17},
	{FSJ_COMMAND_SAVE, 0, 0},	  {FSJ_COMMAND_RESET_ENERGY, 0, 0},
	{FSJ_COMMAND_SELF_TEST, 0, 0},	  {FSJ_COMMAND_FORGET_CALIBRATION, 0, 0},
	{FSJ_COMMAND_MARK, 1, 16},
};

static void test_wrong_lengths(void)
{
	const uint8_t payload[243] = {1};
	struct state before;

	bench_begin();
	before = state();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (size_t length = 0; length <= sizeof(payload); length++) {
			if (length < lengths[i].least || length > lengths[i].most) {
				const struct fsj_reply reply = bench_command(lengths[i].type, payload, length);

				CHECK_EQUAL(reply.status, FSJ_REPLY_BAD_LENGTH);
				check_values(&reply, 0, 0, 0);
			}
		}
	}
	check_same(&before);
}

static void test_unknown_commands(void)
{
	struct state before;

	bench_begin();
	before = state();
	for (unsigned int type = 0; type < 256; type++) {
		if (type == 0 || (type > 4 && type < FSJ_COMMAND_INFO) || type > FSJ_COMMAND_MARK) {
			CHECK_EQUAL(bench_command((uint8_t)type, "x", type % 2).status, FSJ_REPLY_UNKNOWN);
		}
	}
	check_same(&before);
}

static void test_the_meters_own_frames_are_an_echo(void)
{
	const uint8_t payload[18] = {0};
	uint8_t encoded[300];

	bench_begin();
	for (uint8_t type = FSJ_FRAME_SAMPLES; type <= FSJ_FRAME_REPLY; type++) {
		bench_bytes(encoded, encode_command(type, FSJ_PROTOCOL, 0, payload, sizeof(payload), encoded));
		bench_bytes(encoded, encode_command(type, 1, 0, payload, sizeof(payload), encoded));
	}
	bench_ticks(1);
	CHECK_EQUAL(bench.frames, 1);
}

static void test_another_protocol(void)
{
	uint8_t encoded[300];
	struct state before;

	bench_begin();
	before = state();
	for (unsigned int protocol = 0; protocol < 256; protocol++) {
		const size_t size = encode_command(FSJ_COMMAND_STOP, (uint8_t)protocol, 99, NULL, 0, encoded);
		const struct fsj_reply *reply;

		if (protocol != FSJ_PROTOCOL) {
			bench_bytes(encoded, size);
			reply = &bench_last(0, FSJ_FRAME_REPLY)->reply;
			CHECK_EQUAL(reply->status, FSJ_REPLY_OTHER_PROTOCOL);
			CHECK_EQUAL(reply->request, 99);
			CHECK_EQUAL(reply->command, FSJ_COMMAND_STOP);
		}
	}
	check_same(&before);
}

static void check_complaint(size_t frames_before)
{
	const struct fsj_reply *reply = &bench_last(0, FSJ_FRAME_REPLY)->reply;

	CHECK_EQUAL(bench.frames, frames_before + 1);
	CHECK_EQUAL(reply->status, FSJ_REPLY_DAMAGED);
	CHECK_EQUAL(reply->request, 0);
	CHECK_EQUAL(reply->command, 0);
	check_values(reply, 0, 0, 0);
}

static void test_damaged_commands(void)
{
	uint8_t encoded[300];
	const size_t size = encode_command(FSJ_COMMAND_STOP, FSJ_PROTOCOL, 1, NULL, 0, encoded);
	struct state before;

	for (size_t at = 0; at + 1 < size; at++) {
		size_t frames;

		bench_begin();
		before = state();
		frames = bench.frames;
		encoded[at] ^= 0x80;
		bench_bytes(encoded, size);
		check_complaint(frames);
		/* Noise is answered once a tick, not once a frame. */
		bench_bytes(encoded, size);
		bench_bytes(encoded, size);
		CHECK_EQUAL(bench.frames, frames + 1);
		bench_ticks(1);
		bench_bytes(encoded, size);
		check_complaint(frames + 1);
		encoded[at] ^= 0x80;
		check_same(&before);
		CHECK_EQUAL(simple(FSJ_COMMAND_INFO).status, FSJ_REPLY_DONE);
	}
}

static void test_truncated_commands(void)
{
	const struct gain_payload payload = gain(1, 0, 5000000, 100);
	uint8_t encoded[300];
	const size_t size = encode_command(FSJ_COMMAND_GAIN, FSJ_PROTOCOL, 1, payload.bytes, 17, encoded);

	for (size_t cut = 1; cut < size; cut++) {
		size_t frames;

		bench_begin();
		bench_ticks(1);
		frames = bench.frames;
		bench_bytes(encoded, cut);
		bench_jump(99);
		CHECK(bench.frame[bench.frames - 1].type != FSJ_FRAME_REPLY);
		frames = bench.frames;
		bench_jump(1);
		CHECK_EQUAL(bench.frame[frames].type, FSJ_FRAME_REPLY);
		CHECK_EQUAL(bench.frame[frames].reply.status, FSJ_REPLY_DAMAGED);
		CHECK_EQUAL(simple(FSJ_COMMAND_INFO).status, FSJ_REPLY_DONE);
	}
}

static void test_a_command_after_a_truncated_one_before_any_tick(void)
{
	uint8_t encoded[300];
	const size_t size = encode_command(FSJ_COMMAND_INFO, FSJ_PROTOCOL, 5, NULL, 0, encoded);

	bench_begin();
	bench_bytes(encoded, 3);
	bench.now_us += 100000;
	bench_bytes(encoded, size);
	CHECK_EQUAL(bench.frames, 1 + 3);
	CHECK_EQUAL(bench_last(2, FSJ_FRAME_REPLY)->reply.status, FSJ_REPLY_DAMAGED);
	bench_last(1, FSJ_FRAME_INFO);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_REPLY)->reply.request, 5);
}

static void test_commands_one_after_the_other(void)
{
	uint8_t encoded[300] = {0, 0};
	size_t size = 2;

	bench_begin();
	for (uint32_t seq = 0; seq < 10; seq++) {
		size += encode_command(FSJ_COMMAND_MARK, FSJ_PROTOCOL, seq, (const uint8_t *)"m", 1, encoded + size);
	}
	bench_bytes(encoded, size);
	CHECK_EQUAL(bench.frames, 1 + 20);
	for (size_t i = 0; i < 10; i++) {
		CHECK_EQUAL(bench_last(18 - 2 * i, FSJ_FRAME_REPLY)->reply.request, i);
	}
}

/* -------------------------------------------------------------------------------------------------- the stream */

static void test_info(void)
{
	struct state before;

	bench_begin();
	before = state();
	bench_ticks(5);
	CHECK_EQUAL(simple(FSJ_COMMAND_INFO).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench.frames, 3);
	bench_last(1, FSJ_FRAME_INFO);
	check_same(&before);
}

static void test_stop_and_start(void)
{
	struct fsj_reply reply;

	bench_begin();
	bench_ticks(5);
	reply = simple(FSJ_COMMAND_STOP);
	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	/* The samples, the closing frame with their energy, info, reply. */
	CHECK_EQUAL(bench.frames, 5);
	CHECK_EQUAL(bench_samples(1)->count, 5);
	CHECK_EQUAL(bench_samples(2)->count, 0);
	CHECK_EQUAL(bench_samples(2)->energy_raw, 5 * 2500 * 1250);
	CHECK_EQUAL(bench_info()->flags, 0);
	CHECK_EQUAL(bench_info()->stream_id, 77);
	/* Stopped: an info frame each second, and marks. */
	bench_ticks(2999);
	CHECK_EQUAL(bench.frames, 7);
	bench_line("S1\n");
	bench_check_mark(7, FSJ_MARK_LINE, "S1", 3004000);
	CHECK_EQUAL(simple(FSJ_COMMAND_STOP).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench.frames, 10);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 1);
	CHECK_EQUAL(simple(FSJ_COMMAND_START).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench.frames, 12);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 2);
	CHECK_EQUAL(bench_info()->stream_id, 78);
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
	CHECK_EQUAL(simple(FSJ_COMMAND_START).status, FSJ_REPLY_DONE);
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
	CHECK_EQUAL(simple(FSJ_COMMAND_RESET_ENERGY).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 2);
	bench_ticks(40);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_SAMPLES)->samples.energy_raw, 20 * 2500 * 1250);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_SAMPLES)->samples.missed_total, 0);
	/* A stream may end before its first tick. */
	CHECK_EQUAL(simple(FSJ_COMMAND_RESET_ENERGY).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(simple(FSJ_COMMAND_RESET_ENERGY).status, FSJ_REPLY_DONE);
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

/* ------------------------------------------------------------------------------------------------ the settings */

static void test_rates(void)
{
	static const uint16_t good[] = {100, 125, 160, 200, 250, 320, 400, 500, 625, 800, 1000, 1250, 1600, 2000};
	size_t held = 0;

	bench_begin();
	for (uint32_t rate_hz = 0; rate_hz <= 2600; rate_hz++) {
		const bool divides = rate_hz > 0 && 1000000 % rate_hz == 0;
		const struct state before = state();
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
			check_same(&before);
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

static void test_shunts(void)
{
	static const uint32_t bad[] = {0, 999, 1000001, UINT32_MAX};
	struct state before;

	bench_begin();
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_SHUNT, 1000).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_SHUNT, 1000000).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench_info()->shunt_uohm, 1000000);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING | FSJ_INFO_UNSAVED);
	before = state();
	for (size_t i = 0; i < 4; i++) {
		CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_SHUNT, bad[i]).status, FSJ_REPLY_BAD_VALUE);
	}
	check_same(&before);
}

/* ------------------------------------------------------------------------------------------------- calibration */

static void test_zero(void)
{
	struct fsj_reply reply;

	bench_begin();
	bench_ticks(7);
	bench.shunt = (uint16_t)-12;
	reply = bench_command_u32(FSJ_COMMAND_ZERO, DATE);
	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	check_values(&reply, -120000, 0, 1000);
	CHECK_EQUAL(bench.now_us, 1007000);
	/* A new stream with the offset, before the reply. */
	bench_last(1, FSJ_FRAME_INFO);
	CHECK_EQUAL(bench_info()->calibration.shunt_offset_nv, -120000);
	CHECK_EQUAL(bench_info()->calibration.zero_date, DATE);
	CHECK_EQUAL(bench_info()->calibration.gain_date, 0);
	CHECK_EQUAL(bench_info()->stream_id, 78);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING | FSJ_INFO_UNSAVED);
	/* All samples of the second are in the stream. */
	CHECK_EQUAL(bench_last(2, FSJ_FRAME_SAMPLES)->samples.first_tick, 1007);
}

static void test_zero_while_stopped(void)
{
	struct fsj_reply reply;

	bench_begin();
	simple(FSJ_COMMAND_STOP);
	bench.shunt = 3;
	reply = bench_command_u32(FSJ_COMMAND_ZERO, DATE);
	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	check_values(&reply, 30000, 0, 1000);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_UNSAVED);
	CHECK_EQUAL(bench_info()->stream_id, 78);
}

static void test_zero_with_something_connected(void)
{
	struct fsj_reply reply;
	struct state before;

	bench_begin();
	before = state();
	bench.shunt = 41;
	reply = bench_command_u32(FSJ_COMMAND_ZERO, DATE);
	CHECK_EQUAL(reply.status, FSJ_REPLY_BAD_VALUE);
	check_values(&reply, 410000, 0, 1000);
	check_same(&before);
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
	struct state before;

	bench_begin();
	bench_ticks(10);
	bench.chip = CHIP_GONE;
	before = state();
	reply = bench_command(type, payload, length);
	CHECK_EQUAL(reply.status, FSJ_REPLY_NO_CHIP);
	check_values(&reply, 0, 0, 0);
	CHECK_EQUAL(bench.now_us, 2010000);
	check_same(&before);
	/* Nothing is under way any more. */
	bench.chip = CHIP_GOOD;
	bench.shunt = 0;
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_ZERO, DATE).status, FSJ_REPLY_DONE);
}

static void test_calibration_without_chip(void)
{
	const struct gain_payload payload = gain(1, 0, 5000000, 100);

	check_calibration_without_chip(FSJ_COMMAND_ZERO, "\1\2\3\4", 4);
	check_calibration_without_chip(FSJ_COMMAND_GAIN, payload.bytes, sizeof(payload.bytes));
}

static void test_two_point_calibration(void)
{
	struct fsj_reply reply;
	const struct fsj_calibration *found;

	bench_begin();
	/* 10 mA and 510 mA at 0.1 Ohm are 1 mV and 51 mV; read as 1.05 mV and 50.05 mV. */
	bench.shunt = 105;
	bench.bus = 1250;
	reply = send_gain(1, 10000, 5010000);
	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	check_values(&reply, 1050000, 5000000, 1000);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 1);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING);
	bench.shunt = 5005;
	bench.bus = 1225;
	reply = send_gain(2, 510000, 4900000);
	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	check_values(&reply, 50050000, 4900000, 1000);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 2);
	bench_last(1, FSJ_FRAME_INFO);
	found = &bench_info()->calibration;
	CHECK_EQUAL(found->current_gain_ppm, 20408);
	CHECK_EQUAL(found->shunt_offset_nv, 70000);
	CHECK_EQUAL(found->bus_gain_ppm, 1010);
	CHECK_EQUAL(found->gain_uncertainty_ppm, 104);
	CHECK_EQUAL(found->zero_date, DATE);
	CHECK_EQUAL(found->gain_date, DATE);
	/* The low point is used up. */
	CHECK_EQUAL(send_gain(2, 510000, 4900000).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(simple(FSJ_COMMAND_FORGET_CALIBRATION).status, FSJ_REPLY_DONE);
	CHECK(memcmp(&bench_info()->calibration, &(struct fsj_calibration){0}, sizeof(struct fsj_calibration)) == 0);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING);
}

static void test_gain_values_that_are_not_allowed(void)
{
	struct state before;
	uint64_t now_us;

	bench_begin();
	before = state();
	now_us = bench.now_us;
	CHECK_EQUAL(send_gain(0, 0, 5000000).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(send_gain(3, 0, 5000000).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(send_gain(2, 0, 5000000).status, FSJ_REPLY_BAD_VALUE); /* no low point */
	CHECK_EQUAL(send_gain(1, INT32_MIN, 5000000).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(send_gain(1, INT32_MAX, 5000000).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(send_gain(1, 0, 0).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(send_gain(1, 0, UINT32_MAX).status, FSJ_REPLY_BAD_VALUE);
	CHECK_EQUAL(bench.now_us, now_us);
	check_same(&before);
}

static void test_gain_measurements_that_contradict(void)
{
	struct state before;

	bench_begin();
	before = state();
	bench.shunt = 8000;
	CHECK_EQUAL(send_gain(1, 800000, 5000000).status, FSJ_REPLY_BAD_VALUE); /* clipped */
	bench.shunt = 100;
	CHECK_EQUAL(send_gain(2, 400000, 5000000).status, FSJ_REPLY_BAD_VALUE); /* so there is no low point */
	CHECK_EQUAL(send_gain(1, 10000, 5000000).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(send_gain(2, 10000, 5000000).status, FSJ_REPLY_BAD_VALUE); /* no difference */
	bench.shunt = 8000;
	CHECK_EQUAL(send_gain(2, 800000, 5000000).status, FSJ_REPLY_BAD_VALUE); /* clipped */
	bench.shunt = 4000;
	CHECK_EQUAL(send_gain(2, 380000, 5000000).status, FSJ_REPLY_BAD_VALUE); /* more than 5 % */
	check_same(&before);
	/* The low point is still there. */
	CHECK_EQUAL(send_gain(2, 400000, 5000000).status, FSJ_REPLY_DONE);
}

static void test_a_low_point_is_of_its_settings(void)
{
	const uint8_t payload[2] = {160, 0};

	for (int what = 0; what < 4; what++) {
		bench_begin();
		bench.shunt = 100;
		CHECK_EQUAL(send_gain(1, 10000, 5000000).status, FSJ_REPLY_DONE);
		if (what == 1) {
			bench_command_u32(FSJ_COMMAND_RATE, 500);
		} else if (what == 2) {
			bench_command_u32(FSJ_COMMAND_SHUNT, 50000);
		} else if (what == 3) {
			bench_command(FSJ_COMMAND_RANGE, payload, 2);
		}
		bench.shunt = 5000;
		CHECK_EQUAL(send_gain(2, 500000, 5000000).status, what == 0 ? FSJ_REPLY_DONE : FSJ_REPLY_BAD_VALUE);
	}
}

static void calibrate(void)
{
	bench_begin();
	bench.shunt = 100;
	CHECK_EQUAL(send_gain(1, 10000, 5000000).status, FSJ_REPLY_DONE);
	bench.shunt = 5000;
	CHECK_EQUAL(send_gain(2, 501000, 5010000).status, FSJ_REPLY_DONE);
	bench.shunt = 5;
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_ZERO, DATE + 1).status, FSJ_REPLY_DONE);
	CHECK(bench_info()->calibration.current_gain_ppm != 0);
}

static void test_what_another_range_or_shunt_forgets(void)
{
	const uint8_t same[2] = {80, 0};
	const uint8_t another[2] = {160, 0};
	const struct fsj_calibration none = {0};
	const struct fsj_calibration offset = {.shunt_offset_nv = 50000, .zero_date = DATE + 1};

	calibrate();
	bench_command(FSJ_COMMAND_RANGE, same, 2);
	bench_command_u32(FSJ_COMMAND_SHUNT, 100000);
	bench_command_u32(FSJ_COMMAND_RATE, 500);
	CHECK(bench_info()->calibration.current_gain_ppm != 0);
	bench_command_u32(FSJ_COMMAND_SHUNT, 100001);
	CHECK(memcmp(&bench_info()->calibration, &offset, sizeof(offset)) == 0);
	calibrate();
	bench_command(FSJ_COMMAND_RANGE, another, 2);
	CHECK(memcmp(&bench_info()->calibration, &none, sizeof(none)) == 0);
}

static void test_busy(void)
{
	uint8_t encoded[300];
	const uint8_t date[4] = {0};
	const struct gain_payload point = gain(1, 0, 5000000, 100);
	struct state before;

	bench_begin();
	bench.shunt = 0;
	before = state();
	bench_bytes(encoded, encode_command(FSJ_COMMAND_ZERO, FSJ_PROTOCOL, 9, date, 4, encoded));
	CHECK_EQUAL(simple(FSJ_COMMAND_START).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(simple(FSJ_COMMAND_STOP).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_RATE, 500).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_command(FSJ_COMMAND_RANGE, "\x28\0", 2).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_SHUNT, 50000).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_ZERO, 0).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench_command(FSJ_COMMAND_GAIN, point.bytes, 17).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(simple(FSJ_COMMAND_SAVE).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(simple(FSJ_COMMAND_RESET_ENERGY).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(simple(FSJ_COMMAND_SELF_TEST).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(simple(FSJ_COMMAND_FORGET_CALIBRATION).status, FSJ_REPLY_BUSY);
	CHECK_EQUAL(bench.now_us, 0);
	check_same(&before);
	CHECK_EQUAL(simple(FSJ_COMMAND_INFO).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench_command(FSJ_COMMAND_MARK, "m", 1).status, FSJ_REPLY_DONE);
	bench_ticks(1000);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_REPLY)->reply.request, 9);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_REPLY)->reply.status, FSJ_REPLY_DONE);
}

/* ---------------------------------------------------------------------------------------- self-test and storage */

static void check_self_test(uint32_t failures, int32_t shunt, int32_t bus)
{
	const struct fsj_reply reply = simple(FSJ_COMMAND_SELF_TEST);

	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	check_values(&reply, (int32_t)failures, shunt, bus);
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
	simple(FSJ_COMMAND_STOP);
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
	bench_command_u32(FSJ_COMMAND_ZERO, DATE);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING | FSJ_INFO_UNSAVED);
	reply = simple(FSJ_COMMAND_SAVE);
	CHECK_EQUAL(reply.status, FSJ_REPLY_DONE);
	check_values(&reply, 1, 0, 0);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 4);
	reply = simple(FSJ_COMMAND_SAVE);
	check_values(&reply, 2, 0, 0);
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
	simple(FSJ_COMMAND_SAVE);
	bench_command_u32(FSJ_COMMAND_RATE, 200);
	bench.write_stops_at = 40;
	reply = simple(FSJ_COMMAND_SAVE);
	CHECK_EQUAL(reply.status, FSJ_REPLY_NOT_STORED);
	check_values(&reply, 0, 0, 0);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING | FSJ_INFO_UNSAVED | FSJ_INFO_DAMAGED);
	CHECK_EQUAL(bench_info()->rate_hz, 200);
	bench_start(&config);
	CHECK_EQUAL(bench_info()->rate_hz, 500);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING | FSJ_INFO_DAMAGED);
	bench.write_stops_at = FSJ_RECORD_BYTES;
	CHECK_EQUAL(simple(FSJ_COMMAND_SAVE).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench_info()->flags, FSJ_INFO_SAMPLING);
}

static void test_without_storage(void)
{
	bench_begin();
	bench.meter.store.storage = (struct fsj_storage){NULL, NULL, NULL};
	CHECK_EQUAL(simple(FSJ_COMMAND_SAVE).status, FSJ_REPLY_NOT_STORED);
	check_self_test(FSJ_FAIL_NO_STORAGE, 2500, 1250);
}

int main(void)
{
	test_wrong_lengths();
	test_unknown_commands();
	test_the_meters_own_frames_are_an_echo();
	test_another_protocol();
	test_damaged_commands();
	test_truncated_commands();
	test_a_command_after_a_truncated_one_before_any_tick();
	test_commands_one_after_the_other();
	test_info();
	test_stop_and_start();
	test_a_stream_that_begins_within_a_line();
	test_reset_energy();
	test_host_marks();
	test_rates();
	test_ranges();
	test_shunts();
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
	test_self_test();
	test_self_test_while_stopped();
	test_self_test_of_a_chip_that_goes_away();
	test_save();
	test_a_torn_save();
	test_without_storage();
	return 0;
}
