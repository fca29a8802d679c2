#include <zephyr/drivers/gpio.h>
#include <zephyr/kernel.h>

#include "board.h"
#include "chip_bus.h"
#include "identity.h"
#include "marks.h"
#include "sampler.h"
#include "storage.h"
#include "stream.h"
#include "watchdog.h"
#include "zephyr_version.h"

#define HEARTBEAT_MS 500

static const struct gpio_dt_spec heartbeat = GPIO_DT_SPEC_GET_OR(BOARD_METER, heartbeat_gpios, {0});

static int start(void)
{
	const struct fsj_meter_config config = {
		.defaults = identity_settings(),
		.mark_silence_us = CONFIG_FSJOULE_MARK_SILENCE_US,
		.simulated = identity_simulated(),
		.serial_number = identity_serial_number(),
		.first_stream_id = identity_first_stream_id(),
		.reset_cause = identity_reset_cause(),
	};
	const struct fsj_output output = {.frame = stream_frame};
	const struct fsj_storage storage = storage_get();
	struct fsj_i2c i2c;
	int error = chip_bus_start(&i2c);

	if (error == 0) {
		error = stream_start();
	}
	if (error == 0) {
		error = marks_start();
	}
	if (error == 0) {
		error = watchdog_start();
	}
	if (error == 0) {
		sampler_start(&config, &i2c, &output, &storage);
	}
	return error;
}

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
#if ZEPHYR_AT_LEAST(3, 4)
int main(void)
{
	const int error = start();

	if (error == 0) {
		blink();
	}
	return error;
}
#else
void main(void)
{
	if (start() == 0) {
		blink();
	}
}
#endif
