#include "bus_recovery.h"

#include <zephyr/drivers/i2c.h>

int bus_recovery_run(const struct device *bus)
{
	const int error = i2c_recover_bus(bus);

	/* The controller saw the held bus as its own transfer, and goes on with it. */
	(void)i2c_configure(bus, I2C_MODE_CONTROLLER | I2C_SPEED_SET(I2C_SPEED_FAST));
	return error;
}
