/** @file
 * The meter's clock: microseconds since the start, in step with the kernel's ticks. Never wraps.
 */
#ifndef FSJOULE_APP_CLOCK_H
#define FSJOULE_APP_CLOCK_H

#include <stdint.h>
#include <zephyr/kernel.h>

#define CLOCK_US_PER_TICK (1000000u / CONFIG_SYS_CLOCK_TICKS_PER_SEC)

BUILD_ASSERT(1000000u % CONFIG_SYS_CLOCK_TICKS_PER_SEC == 0, "a tick of the kernel is a whole number of microseconds");

/** The present time, to a microsecond. From any context. */
uint64_t clock_us(void);

#endif
