#include "bus_recovery.h"

#include <errno.h>
#include <zephyr/drivers/gpio.h>
#include <zephyr/drivers/i2c.h>
#include <zephyr/kernel.h>

#include "board.h"

#if DT_NODE_HAS_PROP(BOARD_METER, scl_gpios)

#include <zephyr/drivers/pinctrl.h>

/* Half a clock at 100 kHz, which every chip can follow. */
#define HALF_CLOCK_US 5
#define CLOCKS 9

#define BUS DT_BUS(BOARD_CURRENT_MONITOR)

PINCTRL_DT_DEFINE(BUS);

static const struct gpio_dt_spec scl = GPIO_DT_SPEC_GET(BOARD_METER, scl_gpios);
static const struct gpio_dt_spec sda = GPIO_DT_SPEC_GET(BOARD_METER, sda_gpios);

static void set(const struct gpio_dt_spec *line, int level)
{
	gpio_pin_set_dt(line, level);
	k_busy_wait(HALF_CLOCK_US);
}

static int take_pins(void)
{
	const int error = gpio_pin_configure_dt(&scl, GPIO_OUTPUT_HIGH | GPIO_INPUT);

	return error != 0 ? error : gpio_pin_configure_dt(&sda, GPIO_OUTPUT_HIGH | GPIO_INPUT);
}

static void clock_out(void)
{
	for (int i = 0; i < CLOCKS; i++) {
		set(&scl, 0);
		set(&scl, 1);
	}
	set(&scl, 0);
	set(&sda, 0);
	set(&scl, 1);
	set(&sda, 1);
}

int bus_recovery_run(const struct device *bus)
{
	int error = take_pins();

	if (error == 0) {
		clock_out();
		error = gpio_pin_get_dt(&sda) == 1 ? 0 : -EBUSY;
	}
	(void)pinctrl_apply_state(PINCTRL_DT_DEV_CONFIG_GET(BUS), PINCTRL_STATE_DEFAULT);
	(void)i2c_configure(bus, I2C_MODE_CONTROLLER | I2C_SPEED_SET(I2C_SPEED_FAST));
	return error;
}

#else

int bus_recovery_run(const struct device *bus)
{
	ARG_UNUSED(bus);
	return -ENOSYS;
}

#endif
