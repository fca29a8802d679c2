/** @file
 * The one clock of the simulator and of the power feed.
 */
#ifndef FSJOULE_EMULATED_MONOTONIC_H
#define FSJOULE_EMULATED_MONOTONIC_H

#include <stdint.h>
#include <time.h>

/** CLOCK_MONOTONIC in ns. */
static inline int64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
