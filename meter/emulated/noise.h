/** @file
 * Noise that is the same for the same seed.
 */
#ifndef FSJOULE_EMULATED_NOISE_H
#define FSJOULE_EMULATED_NOISE_H

#include <stdint.h>

/** The next number, normally distributed with a standard deviation of 1. `state` begins as the seed. */
double noise_next(uint64_t *state);

#endif
