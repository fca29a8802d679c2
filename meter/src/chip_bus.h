/** @file
 * The way to the current monitor: its registers over I2C, and a bus that is freed when a chip holds it.
 */
#ifndef FSJOULE_APP_CHIP_BUS_H
#define FSJOULE_APP_CHIP_BUS_H

#include "fsjoule/chip.h"

/** Which chip the device tree has. */
const struct fsj_chip_kind *chip_bus_kind(void);

/** Look for the bus.
 *
 * @param i2c  is filled
 * @return 0, or a negative errno
 */
int chip_bus_start(struct fsj_i2c *i2c);

#endif
