/** @file
 * The host's side of a frame, as far as the tests of the core need it.
 */
#ifndef FSJOULE_TESTS_PARSE_H
#define FSJOULE_TESTS_PARSE_H

#include "check.h"
#include "fsjoule/crc32.h"
#include "fsjoule/frame.h"

struct parsed {
	uint8_t type;
	uint32_t seq;
	struct fsj_samples samples;
	struct fsj_mark mark;
};

static inline uint64_t little_endian(const uint8_t *bytes, size_t size)
{
	uint64_t value = 0;

	for (size_t i = size; i > 0; i--) {
		value = value << 8 | bytes[i - 1];
	}
	return value;
}

/* The content of an encoded frame; its length is returned. */
static inline size_t unstuff(const uint8_t *encoded, size_t size, uint8_t *content)
{
	size_t next = encoded[0];

	CHECK_EQUAL(encoded[size - 1], 0);
	for (size_t i = 1; i + 1 < size; i++) {
		content[i - 1] = i == next ? 0 : encoded[i];
		next += i == next ? encoded[i] : 0u;
	}
	CHECK_EQUAL(next, size - 1);
	return size - 2;
}

static inline struct parsed parse(const uint8_t *encoded, size_t size)
{
	uint8_t content[FSJ_FRAME_ENCODED_MAX_BYTES];
	const size_t length = unstuff(encoded, size, content);
	const uint8_t *payload = content + 6;
	struct parsed frame = {.type = content[0], .seq = (uint32_t)little_endian(content + 2, 4)};

	CHECK_EQUAL(content[1], FSJ_PROTOCOL);
	CHECK_EQUAL(little_endian(content + length - 4, 4), fsj_crc32(content, length - 4));
	if (frame.type == FSJ_FRAME_SAMPLES) {
		frame.samples.first_tick = little_endian(payload, 8);
		frame.samples.first_time_us = little_endian(payload + 8, 8);
		frame.samples.energy_raw = (int64_t)little_endian(payload + 16, 8);
		frame.samples.missed_total = (uint32_t)little_endian(payload + 24, 4);
		frame.samples.flags = payload[28];
		frame.samples.count = payload[29];
		for (uint8_t i = 0; i < payload[29]; i++) {
			frame.samples.sample[i].shunt = (int16_t)little_endian(payload + 30 + 4 * i, 2);
			frame.samples.sample[i].bus = (uint16_t)little_endian(payload + 32 + 4 * i, 2);
		}
	} else if (frame.type == FSJ_FRAME_MARK) {
		frame.mark.time_us = little_endian(payload, 8);
		frame.mark.length = payload[8];
		memcpy(frame.mark.text, payload + 9, payload[8]);
	}
	return frame;
}

#endif
