/** @file
 * The host's side, written a second time for the tests of the core: frames are taken apart, and what holds for every
 * stream is checked.
 */
#ifndef FSJOULE_TESTS_PARSE_H
#define FSJOULE_TESTS_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsjoule/frame.h"

struct parsed {
	uint8_t type;
	uint32_t seq;
	uint32_t stream_id;
	union {
		struct fsj_samples samples;
		struct fsj_mark mark;
		struct fsj_info info;
		struct fsj_reply reply;
	};
};

/** Take an encoded frame apart; ends the program if it is not a whole one of a known type. */
struct parsed parse(const uint8_t *encoded, size_t size);

/** Encode a command; returns its size, delimiter included. `out` has room for length + 12 bytes. */
size_t encode_command(uint8_t type, uint8_t protocol, uint32_t seq, const uint8_t *payload, size_t length, uint8_t *out);

/** What is known of the stream so far. All zero is nothing. */
struct follower {
	uint32_t frames;
	bool has_info;
	uint32_t stream_id;
	struct fsj_info info;
	uint64_t next_tick;
	bool has_begin;
	uint64_t begin_us; /**< of the stream */
	uint64_t newest_us;
	uint32_t missed;
	int64_t energy;
	uint64_t bus_total;
};

/** Check that the frame follows: no gap in seq, of the stream that its info began, ticks ascending and all accounted for, times in order, and cumulative
 * sums that equal the sums of the samples.
 */
void follow(struct follower *follower, const struct parsed *frame);

#endif
