#include "fsjoule/calibration.h"

#define PV_PER_NV 1000
#define PV_PER_UV 1000000
#define NV_PER_MV 1000000
#define PPM 1000000
/* A true voltage may be a gain's largest error above the bus range. */
#define TRUE_MAX_UV_PER_V 1050000u
#define UNCERTAINTY_MAX_PPM 1000000u

/* Rounded to the nearest; `b` is above 0. */
static int64_t divided(int64_t a, int64_t b)
{
	return (a >= 0 ? a + b / 2 : a - b / 2) / b;
}

static int64_t magnitude(int64_t value)
{
	return value < 0 ? -value : value;
}

/* ---------------------------------------------------------------------------------------------------- averages */

void fsj_average_add(struct fsj_average *average, const struct fsj_ina219_reading *reading)
{
	if (average->samples == 0 || reading->shunt < average->shunt_least) {
		average->shunt_least = reading->shunt;
	}
	if (average->samples == 0 || reading->shunt > average->shunt_largest) {
		average->shunt_largest = reading->shunt;
	}
	average->samples++;
	average->shunt_sum += reading->shunt;
	average->bus_sum += reading->bus;
	average->clipped |= reading->clipped;
}

int32_t fsj_average_shunt_nv(const struct fsj_average *average, const struct fsj_scale *scale)
{
	return (int32_t)divided((int64_t)average->shunt_sum * scale->shunt_unit_pv,
				(int64_t)average->samples * PV_PER_NV);
}

int32_t fsj_average_bus_uv(const struct fsj_average *average, const struct fsj_scale *scale)
{
	return (int32_t)divided((int64_t)average->bus_sum * scale->bus_unit_pv,
				(int64_t)average->samples * PV_PER_UV);
}

int32_t fsj_average_spread_nv(const struct fsj_average *average, const struct fsj_scale *scale)
{
	const int64_t spread = average->shunt_largest - average->shunt_least;

	return (int32_t)divided(spread * scale->shunt_unit_pv, PV_PER_NV);
}

/* -------------------------------------------------------------------------------------------------------- zero */

bool fsj_calibrate_zero(const struct fsj_average *average, const struct fsj_scale *scale, uint32_t date,
			struct fsj_calibration *calibration)
{
	const int32_t most = (int32_t)((int64_t)FSJ_OFFSET_MAX_NV * PV_PER_NV / scale->shunt_unit_pv);

	if (average->shunt_least < -most || average->shunt_largest > most) {
		return false;
	}
	calibration->shunt_offset_nv = fsj_average_shunt_nv(average, scale);
	calibration->zero_date = date;
	return true;
}

/* ------------------------------------------------------------------------------------------------------- gains */

/* uA times uOhm is pV. */
static int64_t true_shunt_nv(const struct fsj_gain_point *point, uint32_t shunt_uohm)
{
	return divided((int64_t)point->true_ua * shunt_uohm, PV_PER_NV);
}

static int64_t full_scale_nv(const struct fsj_scale *scale)
{
	return (int64_t)scale->shunt_mv * NV_PER_MV;
}

bool fsj_gain_point_possible(const struct fsj_gain_point *point, uint32_t shunt_uohm, const struct fsj_scale *scale)
{
	const int64_t most = full_scale_nv(scale) / 100 * 105;

	return magnitude(true_shunt_nv(point, shunt_uohm)) <= most && point->true_uv > 0 &&
	       point->true_uv <= scale->bus_v * TRUE_MAX_UV_PER_V && point->uncertainty_ppm <= UNCERTAINTY_MAX_PPM;
}

/* True over read, less one, in ppm. `read` is above 0. */
static bool gain(int64_t truth, int64_t read, int32_t *ppm)
{
	const int64_t value = divided((truth - read) * PPM, read);

	*ppm = (int32_t)value;
	return magnitude(value) <= FSJ_GAIN_MAX_PPM;
}

/* An upper bound of what the uncertainties of both points do to the slope between them. */
static uint32_t slope_uncertainty(const struct fsj_gain_point *low, int64_t low_nv, const struct fsj_gain_point *high,
				  int64_t high_nv)
{
	const int64_t sum = low->uncertainty_ppm * magnitude(low_nv) + high->uncertainty_ppm * magnitude(high_nv);
	const int64_t difference = magnitude(high_nv - low_nv);

	return (uint32_t)((sum + difference - 1) / difference);
}

bool fsj_calibrate_gain(const struct fsj_gain_point *low, const struct fsj_gain_point *high, uint32_t date,
			uint32_t shunt_uohm, const struct fsj_scale *scale, struct fsj_calibration *calibration)
{
	const int64_t low_nv = true_shunt_nv(low, shunt_uohm);
	const int64_t high_nv = true_shunt_nv(high, shunt_uohm);
	/* A shunt may be built in either way round. */
	const int64_t sign = high_nv >= low_nv ? 1 : -1;
	const int64_t truth = sign * (high_nv - low_nv);
	const int64_t read = sign * ((int64_t)high->shunt_nv - low->shunt_nv);
	const int64_t bus_read = (int64_t)low->bus_uv + high->bus_uv;
	struct fsj_calibration found = {.zero_date = date, .gain_date = date};
	int64_t offset;

	if (truth < full_scale_nv(scale) / 4 || read <= 0 || bus_read <= 0 ||
	    !gain(truth, read, &found.current_gain_ppm) ||
	    !gain((int64_t)low->true_uv + high->true_uv, bus_read, &found.bus_gain_ppm)) {
		return false;
	}
	offset = low->shunt_nv - divided(low_nv * PPM, PPM + found.current_gain_ppm);
	if (magnitude(offset) > FSJ_OFFSET_MAX_NV) {
		return false;
	}
	found.shunt_offset_nv = (int32_t)offset;
	found.gain_uncertainty_ppm = slope_uncertainty(low, low_nv, high, high_nv);
	*calibration = found;
	return true;
}
