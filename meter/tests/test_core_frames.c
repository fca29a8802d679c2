/* CRC, COBS and the frame encoders against the golden vectors that the Python tests use too. */

#include "check.h"
#include "fsjoule/cobs.h"
#include "fsjoule/crc32.h"
#include "fsjoule/frame.h"

#define VECTOR_HEAD                                                                                                    \
	const char *name;                                                                                              \
	uint32_t seq;                                                                                                  \
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

static void test_golden_vectors(void)
{
	uint8_t out[FSJ_FRAME_ENCODED_MAX_BYTES];

	for (size_t i = 0; i < COUNT(info_vectors); i++) {
		const struct info_vector *v = &info_vectors[i];
		check_bytes(v->name, out, fsj_frame_info(v->seq, &v->info, out), v->encoded, v->size);
	}
	for (size_t i = 0; i < COUNT(samples_vectors); i++) {
		const struct samples_vector *v = &samples_vectors[i];
		check_bytes(v->name, out, fsj_frame_samples(v->seq, &v->samples, out), v->encoded, v->size);
	}
	for (size_t i = 0; i < COUNT(mark_vectors); i++) {
		const struct mark_vector *v = &mark_vectors[i];
		check_bytes(v->name, out, fsj_frame_mark(v->seq, &v->mark, out), v->encoded, v->size);
	}
}

static void test_lengths_beyond_the_limits_are_cut(void)
{
	const struct fsj_samples samples = {.count = 255};
	const struct fsj_mark mark = {.length = 255};
	uint8_t out[FSJ_FRAME_ENCODED_MAX_BYTES];

	CHECK_EQUAL(fsj_frame_samples(0, &samples, out), FSJ_FRAME_ENCODED_MAX_BYTES);
	CHECK_EQUAL(fsj_frame_mark(0, &mark, out), 10 + 8 + 1 + 16 + 2);
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
	memset(longest, 0x55, sizeof(longest));
	CHECK_EQUAL(fsj_cobs_encode(longest, FSJ_COBS_MAX_BYTES, out), sizeof(out));
	CHECK_EQUAL(out[0], 254);
	CHECK_EQUAL(fsj_cobs_encode(longest, FSJ_COBS_MAX_BYTES + 1, out), 0);
}

int main(void)
{
	test_golden_vectors();
	test_lengths_beyond_the_limits_are_cut();
	test_crc_check_value();
	test_cobs();
	return 0;
}
