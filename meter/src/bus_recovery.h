/** @file
 * Frees an I2C bus by hand, where the driver of its controller cannot: nine clocks and a STOP (UM10204, section 3.1.16).
 */
#ifndef FSJOULE_APP_BUS_RECOVERY_H
#define FSJOULE_APP_BUS_RECOVERY_H

#include <zephyr/device.h>

/** Free the bus of this controller, and set the controller up anew.
 *
 * @retval 0        SDA is released
 * @retval -EBUSY   a chip still holds it
 * @retval -ENOSYS  the device tree does not say which pins the bus has
 */
int bus_recovery_run(const struct device *bus);

#endif
