/* The clock of the host's Zephyr: the kernel's, which its simulated hardware follows exactly. */
#include "clock.h"

#include <errno.h>
#include <zephyr/drivers/gpio.h>
#include <zephyr/kernel.h>

#include "board.h"
#include "kernel_tick.h"

K_TIMER_DEFINE(timer, NULL, NULL);

static const struct gpio_dt_spec pin = GPIO_DT_SPEC_GET_OR(BOARD_METER, mark_gpios, {0});
static struct gpio_callback pin_callback;
static clock_edge_callback *on_edge;

int clock_start(void)
{
	return 0;
}

uint64_t clock_us(void)
{
	return k_cycle_get_64() / (sys_clock_hw_cycles_per_sec() / 1000000u);
}

/* -------------------------------------------------------------------------------------------------------- ticks */

/* The period is a whole number of the kernel's ticks, and the kernel adds it up from the first expiry. */
uint64_t clock_begin_ticks(uint32_t period_us)
{
	const k_ticks_t now = k_uptime_ticks();
	const k_ticks_t period = (k_ticks_t)(period_us / KERNEL_TICK_US);

	k_timer_start(&timer, K_TIMEOUT_ABS_TICKS(now + period), K_TICKS(period));
	return (uint64_t)now * KERNEL_TICK_US;
}

uint32_t clock_wait_tick(void)
{
	return k_timer_status_sync(&timer);
}

/* -------------------------------------------------------------------------------------------------------- edges */

static void on_pin(const struct device *port, struct gpio_callback *callback, gpio_port_pins_t pins)
{
	ARG_UNUSED(port);
	ARG_UNUSED(callback);
	ARG_UNUSED(pins);
	on_edge(clock_us(), gpio_pin_get_dt(&pin) > 0, 0);
}

int clock_watch_edges(clock_edge_callback *callback)
{
	int error;

	if (pin.port == NULL) {
		return 0;
	}
	if (!gpio_is_ready_dt(&pin)) {
		return -ENODEV;
	}
	error = gpio_pin_configure_dt(&pin, GPIO_INPUT);
	if (error != 0) {
		return error;
	}
	on_edge = callback;
	gpio_init_callback(&pin_callback, on_pin, BIT(pin.pin));
	error = gpio_add_callback(pin.port, &pin_callback);
	return error != 0 ? error : gpio_pin_interrupt_configure_dt(&pin, GPIO_INT_EDGE_BOTH);
}
