#include "fsjoule/settings.h"

bool fsj_settings_valid(const struct fsj_settings *settings)
{
	const struct fsj_calibration *c = &settings->calibration;
	struct fsj_ina219_setup setup;

	return settings->rate_hz >= FSJ_RATE_MIN_HZ && 1000000u % settings->rate_hz == 0 &&
	       (unsigned int)settings->range <= FSJ_INA219_RANGE_320MV &&
	       fsj_ina219_choose(settings->rate_hz, settings->range, settings->bus_32v, &setup) &&
	       settings->shunt_uohm >= FSJ_SHUNT_MIN_UOHM && settings->shunt_uohm <= FSJ_SHUNT_MAX_UOHM &&
	       c->shunt_offset_nv >= -FSJ_OFFSET_MAX_NV && c->shunt_offset_nv <= FSJ_OFFSET_MAX_NV &&
	       c->current_gain_ppm >= -FSJ_GAIN_MAX_PPM && c->current_gain_ppm <= FSJ_GAIN_MAX_PPM &&
	       c->bus_gain_ppm >= -FSJ_GAIN_MAX_PPM && c->bus_gain_ppm <= FSJ_GAIN_MAX_PPM;
}

bool fsj_settings_equal(const struct fsj_settings *a, const struct fsj_settings *b)
{
	const struct fsj_calibration *x = &a->calibration;
	const struct fsj_calibration *y = &b->calibration;

	return a->rate_hz == b->rate_hz && a->shunt_uohm == b->shunt_uohm && a->range == b->range &&
	       a->bus_32v == b->bus_32v &&
	       x->shunt_offset_nv == y->shunt_offset_nv && x->current_gain_ppm == y->current_gain_ppm &&
	       x->bus_gain_ppm == y->bus_gain_ppm && x->gain_uncertainty_ppm == y->gain_uncertainty_ppm &&
	       x->zero_date == y->zero_date && x->gain_date == y->gain_date;
}
