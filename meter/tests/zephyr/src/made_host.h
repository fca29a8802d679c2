/** @file
 * A host that the tests make: what its terminals and its chip do is up to them. Time passes as fast as it can.
 */
#ifndef FSJOULE_TESTS_MADE_HOST_H
#define FSJOULE_TESTS_MADE_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host.h"
#include "made_chip.h"

/** The supply. */
#define VOLTS 5.0
#define AMPERES 0.25

struct made_host {
	struct made_chip made;
	bool bus_held; /**< until it is recovered */
	bool unplugged;
	bool reader_holds_up; /**< the stream has no room */
	bool reader_is_away;
	int mark_errors; /**< of the mark line's UART, told with the next byte */
	uint32_t recoveries;
	uint64_t lost_until_us;
};

extern struct made_host made_host;

/** Bytes arrive at a port, all at this time, which must not be before that of what arrived last. */
void made_host_arrive(enum host_port port, uint64_t time_us, const void *bytes, size_t size);

/** The next whole frame that the meter has sent, delimiter included; its size is returned, or 0 if there is none. */
size_t made_host_frame(uint8_t *frame, size_t size);

#endif
