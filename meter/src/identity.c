#include "identity.h"

#include <zephyr/drivers/hwinfo.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/util.h>

#include "board.h"
#include "fsjoule/crc32.h"

#define ID_BYTES 16
#define SERIAL_BYTES (FSJ_NAME_BYTES / 2)

/* What is in memory after power-up is different every time in some bits; after a reset it is what was left there. */
static __noinit uint32_t leftover[256];

bool identity_simulated(void)
{
	return false;
}

/* As the device tree says. */
#define RATE_HZ DT_PROP(BOARD_METER, rate_hertz)
#define SHUNT_UOHM DT_PROP(BOARD_CURRENT_MONITOR, rshunt_micro_ohms)

BUILD_ASSERT(1000000 % RATE_HZ == 0 && RATE_HZ >= FSJ_RATE_MIN_HZ && RATE_HZ <= FSJ_RATE_MAX_HZ,
	     "rate-hertz: a divisor of a million, 100 to 2000");
BUILD_ASSERT(SHUNT_UOHM >= FSJ_SHUNT_MIN_UOHM && SHUNT_UOHM <= FSJ_SHUNT_MAX_UOHM,
	     "rshunt-micro-ohms: 1000 to 1000000");

struct fsj_settings identity_settings(void)
{
	return (struct fsj_settings){
		.rate_hz = RATE_HZ,
		.shunt_uohm = SHUNT_UOHM,
		/* 40, 80, 160, 320 are 0 to 3. */
		.range = (enum fsj_ina219_range)LOG2(DT_PROP(BOARD_CURRENT_MONITOR, shunt_range_millivolts) / 40),
		/* An INA228 has no other. */
		.bus_32v = DT_PROP_OR(BOARD_CURRENT_MONITOR, bus_range_volts, 32) == 32,
	};
}

const char *identity_serial_number(void)
{
	static char text[FSJ_NAME_BYTES + 1];
	uint8_t id[ID_BYTES] = {0};
	const ssize_t size = hwinfo_get_device_id(id, sizeof(id));

	if (size <= 0) {
		return "UNKNOWN";
	}
	/* Of a longer one the end: on an STM32 the place on the wafer, the wafer, and three letters of the lot. */
	if (size > SERIAL_BYTES) {
		bin2hex(&id[size - SERIAL_BYTES], SERIAL_BYTES, text, sizeof(text));
	} else {
		bin2hex(id, (size_t)size, text, sizeof(text));
	}
	return text;
}

enum fsj_reset_cause identity_reset_cause(void)
{
	/* A power-up sets the flags of the pin and of the brown-out, too. */
	static const struct {
		uint32_t flag;
		enum fsj_reset_cause cause;
	} order[] = {
		{RESET_WATCHDOG, FSJ_RESET_WATCHDOG}, {RESET_SOFTWARE, FSJ_RESET_SOFTWARE},
		{RESET_POR, FSJ_RESET_POWER},         {RESET_BROWNOUT, FSJ_RESET_BROWN_OUT},
		{RESET_PIN, FSJ_RESET_PIN},
	};
	uint32_t flags = 0;

	if (hwinfo_get_reset_cause(&flags) != 0) {
		return FSJ_RESET_UNKNOWN;
	}
	(void)hwinfo_clear_reset_cause();
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		if ((flags & order[i].flag) != 0) {
			return order[i].cause;
		}
	}
	return FSJ_RESET_UNKNOWN;
}

uint32_t identity_first_stream_id(void)
{
	leftover[0] = fsj_crc32((const uint8_t *)leftover, sizeof(leftover));
	return leftover[0];
}
