/** @file
 * The sampling thread. It alone calls the core: at every tick, and before it for all that has arrived.
 */
#ifndef FSJOULE_APP_SAMPLER_H
#define FSJOULE_APP_SAMPLER_H

#include <stdbool.h>

#include "fsjoule/meter.h"

/** Start the core and the thread. */
void sampler_start(const struct fsj_meter_config *config, const struct fsj_i2c *i2c, const struct fsj_output *output,
		   const struct fsj_storage *storage);

#endif
