/** @file
 * What differs between the versions of Zephyr that the firmware is built with.
 */
#ifndef FSJOULE_APP_ZEPHYR_VERSION_H
#define FSJOULE_APP_ZEPHYR_VERSION_H

#if __has_include(<zephyr/version.h>)
#include <zephyr/version.h>
#else
#include <version.h>
#endif

/** True in preprocessor conditions from this version on. */
#define ZEPHYR_AT_LEAST(major, minor) (KERNEL_VERSION_NUMBER >= ((major) << 16 | (minor) << 8))

#endif
