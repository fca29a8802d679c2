#include "watchdog.h"

#include <errno.h>
#include <zephyr/device.h>
#include <zephyr/drivers/watchdog.h>

static const struct device *const watchdog = DEVICE_DT_GET(DT_ALIAS(watchdog0));
static int channel;

int watchdog_start(void)
{
	const struct wdt_timeout_cfg timeout = {
		.window.max = CONFIG_FSJOULE_WATCHDOG_MS,
		.flags = WDT_FLAG_RESET_SOC,
	};

	if (!device_is_ready(watchdog)) {
		return -ENODEV;
	}
	channel = wdt_install_timeout(watchdog, &timeout);
	return channel < 0 ? channel : wdt_setup(watchdog, WDT_OPT_PAUSE_HALTED_BY_DBG);
}

void watchdog_feed(void)
{
	(void)wdt_feed(watchdog, channel);
}
