#include "application.h"

#include "chip_bus.h"
#include "clock.h"
#include "identity.h"
#include "led.h"
#include "marks.h"
#include "sampler.h"
#include "storage.h"
#include "stream.h"
#include "usb.h"
#include "watchdog.h"

int application_start(void)
{
	const struct fsj_meter_config config = {
		.defaults = identity_settings(),
		.chip = chip_bus_kind(),
		.mark_silence_us = CONFIG_FSJOULE_MARK_SILENCE_US,
		.simulated = identity_simulated(),
		.serial_number = identity_serial_number(),
		.first_stream_id = identity_first_stream_id(),
		.reset_cause = identity_reset_cause(),
	};
	const struct fsj_output output = {.frame = stream_frame};
	const struct fsj_storage storage = storage_get();
	struct fsj_i2c i2c;
	int error = clock_start();

	if (error == 0) {
		error = chip_bus_start(&i2c);
	}
	if (error == 0) {
		error = usb_start();
	}
	if (error == 0) {
		error = stream_start();
	}
	if (error == 0) {
		error = marks_start();
	}
	if (error == 0) {
		error = led_start();
	}
	if (error == 0) {
		error = watchdog_start();
	}
	if (error == 0) {
		sampler_start(&config, &i2c, &output, &storage);
	}
	return error;
}
