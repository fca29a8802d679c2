/** @file
 * What the tests see of the meter: its frames, each checked against all before it.
 */
#ifndef FSJOULE_TESTS_WATCHING_H
#define FSJOULE_TESTS_WATCHING_H

#include <stdint.h>

#include "fsjoule/command.h"
#include "made_host.h"
#include "parse.h"

#define FRAMES_MAX 1024

/** What came since watch() was last called. */
struct watched {
	struct parsed frame[FRAMES_MAX];
	size_t count;
	uint32_t samples;
	uint32_t missed;
	uint8_t flags; /**< of all frames */
};

extern struct watched watched;

/** All frames since the meter's start. */
extern struct follower follower;

/** Start the meter unless it runs, bring it to its first state, and forget what it has sent. */
void *begin(void);
/** @copydoc begin */
void begin_test(void *fixture);

/** Let so much time pass, and take what the meter sends meanwhile. */
void watch(uint32_t ms);

/** Send a command and wait for its reply; the frames until then are in `watched`. */
struct fsj_reply command(uint8_t type, const void *payload, size_t length);

/** The frame of this type that came first; fails without one. */
const struct parsed *first_of(uint8_t type);

#endif
