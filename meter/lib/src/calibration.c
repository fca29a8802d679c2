#include "fsjoule/calibration.h"

#define NV_PER_SHUNT 10000
#define UV_PER_BUS 4000u
#define NV_PER_MV 1000000
#define PPM 1000000
/* 16 V and 32 V; a true voltage may be a gain's largest error above the bus range. */
#define TRUE_MAX_UV 16800000u
#define TRUE_MAX_32V_UV 33600000u
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

int32_t fsj_average_shunt_nv(const struct fsj_average *average)
{
	return (int32_t)divided((int64_t)average->shunt_sum * NV_PER_SHUNT, average->samples);
}

int32_t fsj_average_bus_uv(const struct fsj_average *average)
{
	return (int32_t)divided((int64_t)average->bus_sum * UV_PER_BUS, average->samples);
}

int32_t fsj_average_spread_nv(const struct fsj_average *average)
{
	return ((int32_t)average->shunt_largest - average->shunt_least) * NV_PER_SHUNT;
}

/* -------------------------------------------------------------------------------------------------------- zero */

bool fsj_calibrate_zero(const struct fsj_average *average, uint32_t date, struct fsj_calibration *calibration)
{
	const int32_t most = FSJ_OFFSET_MAX_NV / NV_PER_SHUNT;

	if (average->shunt_least < -most || average->shunt_largest > most) {
		return false;
	}
	calibration->shunt_offset_nv = fsj_average_shunt_nv(average);
	calibration->zero_date = date;
	return true;
}

/* ------------------------------------------------------------------------------------------------------- gains */

/* uA times uOhm is pV. */
static int64_t true_shunt_nv(const struct fsj_gain_point *point, const struct fsj_settings *settings)
{
	return divided((int64_t)point->true_ua * settings->shunt_uohm, 1000);
}

static int64_t full_scale_nv(const struct fsj_settings *settings)
{
	return (int64_t)fsj_ina219_range_mv(settings->range) * NV_PER_MV;
}

bool fsj_gain_point_possible(const struct fsj_gain_point *point, const struct fsj_settings *settings)
{
	const int64_t most = full_scale_nv(settings) / 100 * 105;
	const uint32_t most_uv = settings->bus_32v ? TRUE_MAX_32V_UV : TRUE_MAX_UV;

	return magnitude(true_shunt_nv(point, settings)) <= most && point->true_uv > 0 &&
	       point->true_uv <= most_uv && point->uncertainty_ppm <= UNCERTAINTY_MAX_PPM;
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
			const struct fsj_settings *settings, struct fsj_calibration *calibration)
{
	const int64_t low_nv = true_shunt_nv(low, settings);
	const int64_t high_nv = true_shunt_nv(high, settings);
	/* A shunt may be built in either way round. */
	const int64_t sign = high_nv >= low_nv ? 1 : -1;
	const int64_t truth = sign * (high_nv - low_nv);
	const int64_t read = sign * ((int64_t)high->shunt_nv - low->shunt_nv);
	const int64_t bus_read = (int64_t)low->bus_uv + high->bus_uv;
	struct fsj_calibration found = {.zero_date = date, .gain_date = date};
	int64_t offset;

	if (truth < full_scale_nv(settings) / 4 || read <= 0 || bus_read <= 0 ||
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
