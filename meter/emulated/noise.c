#include "noise.h"

#include <math.h>

/* From 0 to below 1. SplitMix64: Steele, Lea, Flood, Fast splittable pseudorandom number generators, OOPSLA 2014. */
static double uniform(uint64_t *state)
{
	uint64_t value = *state += 0x9E3779B97F4A7C15u;

	value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
	value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
	return (double)((value ^ (value >> 31)) >> 11) * 0x1p-53;
}

/* Box and Muller, 1958. */
double noise_next(uint64_t *state)
{
	const double radius = sqrt(-2.0 * log(1.0 - uniform(state)));

	return radius * cos(2.0 * 3.14159265358979323846 * uniform(state));
}
