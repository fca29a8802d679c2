#include <zephyr/drivers/gpio.h>
#include <zephyr/kernel.h>

#include "application.h"
#include "board.h"

#define HEARTBEAT_MS 500

static const struct gpio_dt_spec heartbeat = GPIO_DT_SPEC_GET_OR(BOARD_METER, heartbeat_gpios, {0});

static void blink(void)
{
	if (heartbeat.port == NULL || gpio_pin_configure_dt(&heartbeat, GPIO_OUTPUT_INACTIVE) != 0) {
		return;
	}
	for (;;) {
		k_msleep(HEARTBEAT_MS);
		gpio_pin_toggle_dt(&heartbeat);
	}
}

/* A meter without one of its devices stays dark. */
int main(void)
{
	const int error = application_start();

	if (error == 0) {
		blink();
	}
	return error;
}
