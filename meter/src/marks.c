#include "marks.h"

#include <errno.h>
#include <zephyr/drivers/gpio.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>

#include "board.h"
#include "events.h"
#include "fsjoule/meter.h"

static const struct device *const uart = DEVICE_DT_GET(BOARD_MARK_UART);
static const struct gpio_dt_spec pin = GPIO_DT_SPEC_GET_OR(BOARD_METER, mark_gpios, {0});
static struct gpio_callback pin_callback;

/* A UART without a way to tell its errors has none. */
static uint8_t take_errors(const struct device *dev)
{
	const int errors = uart_err_check(dev);

	if (errors <= 0) {
		return 0;
	}
	return ((errors & (UART_ERROR_FRAMING | UART_ERROR_PARITY | UART_BREAK)) != 0 ? FSJ_UART_FRAMING : 0) |
	       ((errors & UART_ERROR_OVERRUN) != 0 ? FSJ_UART_OVERRUN : 0) |
	       ((errors & UART_ERROR_NOISE) != 0 ? FSJ_UART_NOISE : 0);
}

/* Errors come first, also where there is no byte: on an STM32F4 they would raise the interrupt for ever, and asking for
 * them takes the byte that has them.
 */
static void on_uart(const struct device *dev, void *context)
{
	uint8_t byte;

	ARG_UNUSED(context);
	while (uart_irq_update(dev)) {
		const uint8_t errors = take_errors(dev);

		if (errors != 0) {
			events_put(EVENT_MARK_ERROR, errors);
		}
		if (!uart_irq_rx_ready(dev) || uart_fifo_read(dev, &byte, 1) != 1) {
			return;
		}
		events_put(EVENT_MARK_BYTE, byte);
	}
}

static void on_edge(const struct device *port, struct gpio_callback *callback, gpio_port_pins_t pins)
{
	ARG_UNUSED(port);
	ARG_UNUSED(callback);
	ARG_UNUSED(pins);
	events_put(EVENT_MARK_EDGE, gpio_pin_get_dt(&pin) > 0 ? 1 : 0);
}

static int start_pin(void)
{
	int error;

	if (pin.port == NULL) {
		return 0;
	}
	if (!device_is_ready(pin.port)) {
		return -ENODEV;
	}
	error = gpio_pin_configure_dt(&pin, GPIO_INPUT);
	if (error != 0) {
		return error;
	}
	gpio_init_callback(&pin_callback, on_edge, BIT(pin.pin));
	error = gpio_add_callback(pin.port, &pin_callback);
	return error != 0 ? error : gpio_pin_interrupt_configure_dt(&pin, GPIO_INT_EDGE_BOTH);
}

int marks_start(void)
{
	if (!device_is_ready(uart)) {
		return -ENODEV;
	}
	uart_irq_callback_user_data_set(uart, on_uart, NULL);
	uart_irq_rx_enable(uart);
	return start_pin();
}
