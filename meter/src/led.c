#include "led.h"

#include <errno.h>
#include <zephyr/drivers/gpio.h>

#include "board.h"

#define HALF_PERIOD_US 500000u

static const struct gpio_dt_spec led = GPIO_DT_SPEC_GET_OR(BOARD_METER, heartbeat_gpios, {0});

int led_start(void)
{
	if (led.port == NULL) {
		return 0;
	}
	return gpio_is_ready_dt(&led) ? gpio_pin_configure_dt(&led, GPIO_OUTPUT_INACTIVE) : -ENODEV;
}

void led_show(bool sampled, uint64_t end_us)
{
	if (led.port != NULL) {
		(void)gpio_pin_set_dt(&led, sampled && end_us / HALF_PERIOD_US % 2 == 1);
	}
}
