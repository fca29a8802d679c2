/** @file
 * What the glue tells the core of losses. The linker leads the core's functions through here.
 */
#ifndef FSJOULE_TESTS_CORE_CALLS_H
#define FSJOULE_TESTS_CORE_CALLS_H

#include <stdint.h>

/** Since a test cleared them. */
struct core_calls {
	uint32_t bytes; /**< of the mark line */
	uint32_t lost;
	uint32_t bytes_before_loss;
	uint64_t loss_time_us; /**< of the last one */
	uint8_t errors;
	uint32_t bytes_before_error;
	uint64_t error_time_us;
};

extern struct core_calls core_calls;

#endif
