#include "marks.h"

#include <errno.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>

#include "board.h"
#include "clock.h"
#include "events.h"
#include "fsjoule/meter.h"

static const struct device *const uart = DEVICE_DT_GET(BOARD_MARK_UART);

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

static void on_edge(uint64_t time_us, bool rising, uint32_t lost)
{
	events_put_at(time_us, EVENT_MARK_EDGE, rising ? 1 : 0, lost);
}

int marks_start(void)
{
	if (!device_is_ready(uart)) {
		return -ENODEV;
	}
	uart_irq_callback_user_data_set(uart, on_uart, NULL);
	uart_irq_rx_enable(uart);
	return clock_watch_edges(on_edge);
}
