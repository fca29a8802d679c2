/** @file
 * Checks for the tests: they say what failed, and where, and end the program.
 */
#ifndef FSJOULE_TESTS_CHECK_H
#define FSJOULE_TESTS_CHECK_H

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#define CHECK_EQUAL(actual, expected)                                                                                  \
	do {                                                                                                           \
		const int64_t actual_ = (int64_t)(actual);                                                             \
		const int64_t expected_ = (int64_t)(expected);                                                         \
		if (actual_ != expected_) {                                                                            \
			fprintf(stderr, "%s:%d: %s is %" PRId64 ", not %" PRId64 "\n", __FILE__, __LINE__, #actual,    \
				actual_, expected_);                                                                   \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#define CHECK_NEAR(actual, expected, tolerance)                                                                        \
	do {                                                                                                           \
		const double actual_ = (actual);                                                                       \
		const double expected_ = (expected);                                                                   \
		if (!(fabs(actual_ - expected_) <= (tolerance))) {                                                     \
			fprintf(stderr, "%s:%d: %s is %.9g, not %.9g\n", __FILE__, __LINE__, #actual, actual_,         \
				expected_);                                                                            \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#endif
