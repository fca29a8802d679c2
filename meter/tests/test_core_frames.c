/* CRC, COBS, the frame encoders and the receiver of commands, against the golden vectors that the Python tests use too. */

#include "check.h"
#include "fsjoule/cobs.h"
#include "fsjoule/command.h"
#include "fsjoule/crc32.h"
#include "fsjoule/frame.h"

#define VECTOR_HEAD                                                                                                    \
	const char *name;                                                                                              \
	uint32_t seq;                                                                                                  \
	uint32_t stream_id;                                                                                            \
	size_t size;                                                                                                   \
	uint8_t encoded[FSJ_FRAME_ENCODED_MAX_BYTES]

struct info_vector {
	VECTOR_HEAD;
	struct fsj_info info;
};

struct samples_vector {
	VECTOR_HEAD;
	struct fsj_samples samples;
};

struct mark_vector {
	VECTOR_HEAD;
	struct fsj_mark mark;
};

struct reply_vector {
	VECTOR_HEAD;
	struct fsj_reply reply;
};

struct command_vector {
	VECTOR_HEAD;
	uint8_t type;
	size_t length;
	uint8_t payload[17];
};

#include "frames.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void check_bytes(const char *name, const uint8_t *actual, size_t actual_size, const uint8_t *expected,
			size_t expected_size)
{
	if (actual_size != expected_size || memcmp(actual, expected, expected_size) != 0) {
		fprintf(stderr, "golden vector '%s': the bytes differ\n", name);
		exit(1);
	}
}

static void test_golden_frames(void)
{
	uint8_t out[FSJ_FRAME_ENCODED_MAX_BYTES];

	for (size_t i = 0; i < COUNT(info_vectors); i++) {
		const struct info_vector *v = &info_vectors[i];
		check_bytes(v->name, out, fsj_frame_info((struct fsj_frame_id){v->seq, v->stream_id}, &v->info, out), v->encoded, v->size);
	}
	for (size_t i = 0; i < COUNT(samples_vectors); i++) {
		const struct samples_vector *v = &samples_vectors[i];
		check_bytes(v->name, out, fsj_frame_samples((struct fsj_frame_id){v->seq, v->stream_id}, &v->samples, out), v->encoded, v->size);
	}
	for (size_t i = 0; i < COUNT(mark_vectors); i++) {
		const struct mark_vector *v = &mark_vectors[i];
		check_bytes(v->name, out, fsj_frame_mark((struct fsj_frame_id){v->seq, v->stream_id}, &v->mark, out), v->encoded, v->size);
	}
	for (size_t i = 0; i < COUNT(reply_vectors); i++) {
		const struct reply_vector *v = &reply_vectors[i];
		check_bytes(v->name, out, fsj_frame_reply((struct fsj_frame_id){v->seq, v->stream_id}, &v->reply, out), v->encoded, v->size);
	}
}

static enum fsj_received receive(struct fsj_receiver *receiver, const uint8_t *bytes, size_t size,
				 struct fsj_command *command)
{
	for (size_t i = 0; i + 1 < size; i++) {
		CHECK_EQUAL(fsj_receiver_put(receiver, bytes[i], i, command), FSJ_RECEIVED_NOTHING);
	}
	return fsj_receiver_put(receiver, bytes[size - 1], size, command);
}

static void test_golden_commands(void)
{
	struct fsj_receiver receiver = {0};
	struct fsj_command command;

	for (size_t i = 0; i < COUNT(command_vectors); i++) {
		const struct command_vector *v = &command_vectors[i];

		CHECK_EQUAL(receive(&receiver, v->encoded, v->size, &command), FSJ_RECEIVED_COMMAND);
		CHECK_EQUAL(command.protocol, 3);
		CHECK_EQUAL(command.type, v->type);
		CHECK_EQUAL(command.seq, v->seq);
		check_bytes(v->name, command.payload, command.length, v->payload, v->length);
	}
}

/* Every single byte of a command that is changed in any way, or left out, is seen. */
static void test_damage(void)
{
	const struct command_vector *v = &command_vectors[7];
	uint8_t bytes[FSJ_FRAME_ENCODED_MAX_BYTES];
	struct fsj_receiver receiver = {0};
	struct fsj_command command;

	for (size_t at = 0; at + 1 < v->size; at++) {
		for (unsigned int change = 1; change < 256; change++) {
			memcpy(bytes, v->encoded, v->size);
			bytes[at] = (uint8_t)(bytes[at] ^ change);
			if (bytes[at] != 0) {
				CHECK_EQUAL(receive(&receiver, bytes, v->size, &command), FSJ_RECEIVED_DAMAGE);
			}
		}
		memcpy(bytes, v->encoded, v->size);
		memmove(bytes + at, bytes + at + 1, v->size - at - 1);
		CHECK_EQUAL(receive(&receiver, bytes, v->size - 1, &command), FSJ_RECEIVED_DAMAGE);
	}
}

static void test_frames_of_any_length(void)
{
	struct fsj_receiver receiver = {0};
	struct fsj_command command;

	/* Delimiters alone are nothing. */
	CHECK_EQUAL(fsj_receiver_put(&receiver, 0, 0, &command), FSJ_RECEIVED_NOTHING);
	CHECK_EQUAL(fsj_receiver_put(&receiver, 0, 0, &command), FSJ_RECEIVED_NOTHING);
	for (size_t size = 1; size < 1000; size++) {
		for (size_t i = 0; i < size; i++) {
			CHECK_EQUAL(fsj_receiver_put(&receiver, 0x55, i, &command), FSJ_RECEIVED_NOTHING);
		}
		CHECK_EQUAL(fsj_receiver_put(&receiver, 0, size, &command), FSJ_RECEIVED_DAMAGE);
	}
}

/* The longest frame there can be is a command of a later protocol. */
static void test_the_longest_frame(void)
{
	uint8_t content[FSJ_COBS_MAX_BYTES];
	uint8_t encoded[FSJ_COBS_ENCODED_BYTES(FSJ_COBS_MAX_BYTES)];
	struct fsj_receiver receiver = {0};
	struct fsj_command command;
	uint32_t crc;

	memset(content, 0x7F, sizeof(content));
	crc = fsj_crc32(content, sizeof(content) - 4);
	for (size_t i = 0; i < 4; i++) {
		content[sizeof(content) - 4 + i] = (uint8_t)(crc >> (8 * i));
	}
	CHECK_EQUAL(fsj_cobs_encode(content, sizeof(content), encoded), sizeof(encoded));
	CHECK_EQUAL(receive(&receiver, encoded, sizeof(encoded), &command), FSJ_RECEIVED_COMMAND);
	CHECK_EQUAL(command.length, 243);
	CHECK_EQUAL(command.protocol, 0x7F);
}

/* Head and checksum are there, but for one byte. */
static void test_a_frame_that_is_too_short(void)
{
	for (size_t length = 0; length < 6; length++) {
		uint8_t content[10] = {FSJ_COMMAND_INFO, FSJ_PROTOCOL, 1, 1, 1, 1};
		uint8_t encoded[FSJ_COBS_ENCODED_BYTES(sizeof(content))];
		const uint32_t crc = fsj_crc32(content, length);
		struct fsj_receiver receiver = {0};
		struct fsj_command command;
		size_t size;

		for (size_t i = 0; i < 4; i++) {
			content[length + i] = (uint8_t)(crc >> (8 * i));
		}
		size = fsj_cobs_encode(content, length + 4, encoded);
		CHECK_EQUAL(receive(&receiver, encoded, size, &command), FSJ_RECEIVED_DAMAGE);
	}
}

static void test_silence_ends_a_command(void)
{
	struct fsj_receiver receiver = {0};
	struct fsj_command command;

	CHECK(!fsj_receiver_gives_up(&receiver, 1000000));
	CHECK_EQUAL(fsj_receiver_put(&receiver, 5, 1000000, &command), FSJ_RECEIVED_NOTHING);
	CHECK(!fsj_receiver_gives_up(&receiver, 999999));
	CHECK(!fsj_receiver_gives_up(&receiver, 1000000 + 99999));
	CHECK(fsj_receiver_gives_up(&receiver, 1000000 + 100000));
	CHECK(!fsj_receiver_gives_up(&receiver, 2000000));
	CHECK_EQUAL(fsj_receiver_put(&receiver, 0, 3000000, &command), FSJ_RECEIVED_NOTHING);
}

static void test_lengths_beyond_the_limits_are_cut(void)
{
	const struct fsj_samples samples = {.count = 255};
	const struct fsj_samples wide = {.count = 255, .wide = true};
	const struct fsj_mark mark = {.length = 255};
	const struct fsj_frame_id id = {0};
	uint8_t out[FSJ_FRAME_ENCODED_MAX_BYTES];

	CHECK_EQUAL(fsj_frame_samples(id, &samples, out), 10 + 42 + 4 * 20 + 2);
	CHECK_EQUAL(fsj_frame_samples(id, &wide, out), FSJ_FRAME_ENCODED_MAX_BYTES);
	CHECK_EQUAL(fsj_frame_mark(id, &mark, out), 10 + 15 + 16 + 2);
}

static void test_crc_check_value(void)
{
	CHECK_EQUAL(fsj_crc32((const uint8_t *)"123456789", 9), 0xCBF43926);
	CHECK_EQUAL(fsj_crc32(NULL, 0), 0);
}

static void test_cobs(void)
{
	/* The examples of the paper, as far as they have no run of 254 bytes. */
	const uint8_t zero[] = {0x00};
	const uint8_t mixed[] = {0x11, 0x22, 0x00, 0x33};
	uint8_t longest[FSJ_COBS_MAX_BYTES + 1];
	uint8_t out[FSJ_COBS_ENCODED_BYTES(FSJ_COBS_MAX_BYTES)];

	CHECK_EQUAL(fsj_cobs_encode(zero, 0, out), 2);
	CHECK(memcmp(out, "\x01\x00", 2) == 0);
	CHECK_EQUAL(fsj_cobs_encode(zero, 1, out), 3);
	CHECK(memcmp(out, "\x01\x01\x00", 3) == 0);
	CHECK_EQUAL(fsj_cobs_encode(mixed, 4, out), 6);
	CHECK(memcmp(out, "\x03\x11\x22\x02\x33\x00", 6) == 0);
	CHECK_EQUAL(fsj_cobs_decode(out, 5, out), 4);
	CHECK(memcmp(out, mixed, 4) == 0);
	memset(longest, 0x55, sizeof(longest));
	CHECK_EQUAL(fsj_cobs_encode(longest, FSJ_COBS_MAX_BYTES, out), sizeof(out));
	CHECK_EQUAL(out[0], 254);
	CHECK_EQUAL(fsj_cobs_decode(out, sizeof(out) - 1, out), FSJ_COBS_MAX_BYTES);
	CHECK(memcmp(out, longest, FSJ_COBS_MAX_BYTES) == 0);
	CHECK_EQUAL(fsj_cobs_encode(longest, FSJ_COBS_MAX_BYTES + 1, out), 0);
}

static void test_what_is_not_cobs(void)
{
	uint8_t out[300] = {0};

	CHECK_EQUAL(fsj_cobs_decode(out, 0, out), 0);
	CHECK_EQUAL(fsj_cobs_decode((const uint8_t *)"\x02", 1, out), 0);
	CHECK_EQUAL(fsj_cobs_decode((const uint8_t *)"\x01", 1, out), 0); /* of no bytes */
	CHECK_EQUAL(fsj_cobs_decode((const uint8_t *)"\x03\x11", 2, out), 0);
	CHECK_EQUAL(fsj_cobs_decode((const uint8_t *)"\x01\x05\x11", 3, out), 0);
	memset(out, 0xFF, sizeof(out));
	CHECK_EQUAL(fsj_cobs_decode(out, 255, out), 0);
	CHECK_EQUAL(fsj_cobs_decode(out, 300, out), 0);
}

int main(void)
{
	test_golden_frames();
	test_golden_commands();
	test_damage();
	test_frames_of_any_length();
	test_the_longest_frame();
	test_a_frame_that_is_too_short();
	test_silence_ends_a_command();
	test_lengths_beyond_the_limits_are_cut();
	test_crc_check_value();
	test_cobs();
	test_what_is_not_cobs();
	return 0;
}
