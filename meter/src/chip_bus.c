#include "chip_bus.h"

#include <errno.h>
#include <zephyr/drivers/i2c.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/byteorder.h>

#include "board.h"
#include "bus_recovery.h"

static const struct i2c_dt_spec chip = I2C_DT_SPEC_GET(BOARD_CURRENT_MONITOR);

static int write_register(void *context, uint8_t reg, uint16_t value)
{
	uint8_t bytes[3] = {reg};

	ARG_UNUSED(context);
	sys_put_be16(value, &bytes[1]);
	return i2c_write_dt(&chip, bytes, sizeof(bytes));
}

static int read_register(void *context, uint8_t reg, uint16_t *value)
{
	uint8_t bytes[2];
	const int error = i2c_write_read_dt(&chip, &reg, sizeof(reg), bytes, sizeof(bytes));

	ARG_UNUSED(context);
	if (error == 0) {
		*value = sys_get_be16(bytes);
	}
	return error;
}

static int read_bytes(void *context, uint8_t reg, uint8_t *bytes, size_t size)
{
	ARG_UNUSED(context);
	return i2c_write_read_dt(&chip, &reg, sizeof(reg), bytes, size);
}

static int recover(void *context)
{
	ARG_UNUSED(context);
	return bus_recovery_run(chip.bus);
}

const struct fsj_chip_kind *chip_bus_kind(void)
{
	return DT_NODE_HAS_COMPAT(BOARD_CURRENT_MONITOR, fsjoule_ina228) ? &fsj_chip_ina228 : &fsj_chip_ina219;
}

int chip_bus_start(struct fsj_i2c *i2c)
{
	*i2c = (struct fsj_i2c){
		.write_register = write_register,
		.read_register = read_register,
		.read_bytes = read_bytes,
		.recover = recover,
	};
	return device_is_ready(chip.bus) ? 0 : -ENODEV;
}
