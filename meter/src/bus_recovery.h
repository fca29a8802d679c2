/** @file
 * Frees an I2C bus that a chip holds: nine clocks and a STOP (UM10204, section 3.1.16).
 */
#ifndef FSJOULE_APP_BUS_RECOVERY_H
#define FSJOULE_APP_BUS_RECOVERY_H

#include <zephyr/device.h>

/** Free the bus of this controller, and set the controller up anew.
 *
 * @retval 0        SDA is released
 * @retval -EBUSY   a chip still holds it
 * @retval -ENOSYS  the controller's node has no scl-gpios and sda-gpios
 */
int bus_recovery_run(const struct device *bus);

#endif
