/** @file
 * Offset and gains from measurements, in integers. docs/meter-protocol.md says what they mean.
 */
#ifndef FSJOULE_CALIBRATION_H
#define FSJOULE_CALIBRATION_H

#include <stdbool.h>
#include <stdint.h>

#include "fsjoule/ina219.h"
#include "fsjoule/settings.h"

/** A second of samples: the sums of 20 bits fit 32 up to 4095 of them. */
struct fsj_average {
	uint32_t samples;
	int32_t shunt_sum;
	uint32_t bus_sum;
	int32_t shunt_least;
	int32_t shunt_largest;
	bool clipped;
};

/** A point of the gain calibration: what was read, and what is true. */
struct fsj_gain_point {
	int32_t shunt_nv;
	int32_t bus_uv;
	int32_t true_ua;
	uint32_t true_uv;
	uint32_t uncertainty_ppm; /**< of the true power, k=1 */
};

/** Add a sample. All zero is the average of none. */
void fsj_average_add(struct fsj_average *average, const struct fsj_ina219_reading *reading);

/** Mean of the shunt voltage in nV, of at least one sample. */
int32_t fsj_average_shunt_nv(const struct fsj_average *average, const struct fsj_scale *scale);

/** Mean of the bus voltage in uV, of at least one sample. */
int32_t fsj_average_bus_uv(const struct fsj_average *average, const struct fsj_scale *scale);

/** Largest less smallest shunt voltage in nV. */
int32_t fsj_average_spread_nv(const struct fsj_average *average, const struct fsj_scale *scale);

/** Take the average, at no load, for the offset.
 *
 * @retval false  a sample is beyond FSJ_OFFSET_MAX_NV: something is connected; `calibration` is untouched
 */
bool fsj_calibrate_zero(const struct fsj_average *average, const struct fsj_scale *scale, uint32_t date,
			struct fsj_calibration *calibration);

/** True if a point with these true values can be measured at all. */
bool fsj_gain_point_possible(const struct fsj_gain_point *point, uint32_t shunt_uohm, const struct fsj_scale *scale);

/** Compute offset and gains from two points that are possible.
 *
 * @retval false  they contradict what a meter can be; `calibration` is untouched
 */
bool fsj_calibrate_gain(const struct fsj_gain_point *low, const struct fsj_gain_point *high, uint32_t date,
			uint32_t shunt_uohm, const struct fsj_scale *scale, struct fsj_calibration *calibration);

#endif
