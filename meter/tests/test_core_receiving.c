/* What arrives as a command: whole, of any length, unknown, damaged, truncated. */

#include "bench.h"
#include "check.h"

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
	{FSJ_COMMAND_MARK, 1, 16},	  {FSJ_COMMAND_BUS_RANGE, 2, 2},
};

static void test_wrong_lengths(void)
{
	const uint8_t payload[243] = {1};
	struct bench_state before;

	bench_begin();
	before = bench_state();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (size_t length = 0; length <= sizeof(payload); length++) {
			if (length < lengths[i].least || length > lengths[i].most) {
				const struct fsj_reply reply = bench_command(lengths[i].type, payload, length);

				CHECK_EQUAL(reply.status, FSJ_REPLY_BAD_LENGTH);
				bench_check_values(&reply, 0, 0, 0);
			}
		}
	}
	bench_check_same(&before);
}

static void test_unknown_commands(void)
{
	struct bench_state before;

	bench_begin();
	before = bench_state();
	for (unsigned int type = 0; type < 256; type++) {
		if (type == 0 || (type > FSJ_FRAME_WIDE_SAMPLES && type < FSJ_COMMAND_INFO) || type > FSJ_COMMAND_BUS_RANGE) {
			CHECK_EQUAL(bench_command((uint8_t)type, "x", type % 2).status, FSJ_REPLY_UNKNOWN);
		}
	}
	bench_check_same(&before);
}

static void test_the_meters_own_frames_are_an_echo(void)
{
	const uint8_t payload[18] = {0};
	uint8_t encoded[300];

	bench_begin();
	for (uint8_t type = FSJ_FRAME_SAMPLES; type <= FSJ_FRAME_WIDE_SAMPLES; type++) {
		bench_bytes(encoded, encode_command(type, FSJ_PROTOCOL, 0, payload, sizeof(payload), encoded));
		bench_bytes(encoded, encode_command(type, 1, 0, payload, sizeof(payload), encoded));
	}
	bench_ticks(1);
	CHECK_EQUAL(bench.frames, 1);
}

static void test_another_protocol(void)
{
	uint8_t encoded[300];
	struct bench_state before;

	bench_begin();
	before = bench_state();
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
	bench_check_same(&before);
}

static void check_complaint(size_t frames_before)
{
	const struct fsj_reply *reply = &bench_last(0, FSJ_FRAME_REPLY)->reply;

	CHECK_EQUAL(bench.frames, frames_before + 1);
	CHECK_EQUAL(reply->status, FSJ_REPLY_DAMAGED);
	CHECK_EQUAL(reply->request, 0);
	CHECK_EQUAL(reply->command, 0);
	bench_check_values(reply, 0, 0, 0);
}

static void test_damaged_commands(void)
{
	uint8_t encoded[300];
	const size_t size = encode_command(FSJ_COMMAND_STOP, FSJ_PROTOCOL, 1, NULL, 0, encoded);
	struct bench_state before;

	for (size_t at = 0; at + 1 < size; at++) {
		size_t frames;

		bench_begin();
		before = bench_state();
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
		bench_check_same(&before);
		CHECK_EQUAL(bench_simple(FSJ_COMMAND_INFO).status, FSJ_REPLY_DONE);
	}
}

static void test_truncated_commands(void)
{
	uint8_t payload[BENCH_GAIN_BYTES];
	uint8_t encoded[300];
	size_t size;

	bench_gain_payload(payload, 1, 0, 5000000);
	size = encode_command(FSJ_COMMAND_GAIN, FSJ_PROTOCOL, 1, payload, sizeof(payload), encoded);
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
		CHECK_EQUAL(bench_simple(FSJ_COMMAND_INFO).status, FSJ_REPLY_DONE);
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
	return 0;
}
