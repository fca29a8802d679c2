/** @file
 * The kernel's tick on a host, of which the meter's times are multiples.
 */
#ifndef FSJOULE_APP_KERNEL_TICK_H
#define FSJOULE_APP_KERNEL_TICK_H

#include <zephyr/kernel.h>

#define KERNEL_TICK_US (1000000u / CONFIG_SYS_CLOCK_TICKS_PER_SEC)

BUILD_ASSERT(1000000u % CONFIG_SYS_CLOCK_TICKS_PER_SEC == 0, "a tick of the kernel is a whole number of microseconds");

#endif
