#include "stream.h"

#include <errno.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/ring_buffer.h>

#include "board.h"
#include "events.h"

static const struct device *const uart = DEVICE_DT_GET(BOARD_STREAM_UART);

/* Filled by the sampling thread alone, emptied by the interrupt alone. */
RING_BUF_DECLARE(waiting, CONFIG_FSJOULE_STREAM_BYTES);

static void receive(const struct device *dev)
{
	uint8_t byte;

	while (uart_irq_rx_ready(dev) && uart_fifo_read(dev, &byte, 1) == 1) {
		events_put(EVENT_COMMAND_BYTE, byte);
	}
}

static void transmit(const struct device *dev)
{
	uint8_t *bytes;
	const uint32_t size = ring_buf_get_claim(&waiting, &bytes, CONFIG_FSJOULE_STREAM_BYTES);
	const int sent = size > 0 ? uart_fifo_fill(dev, bytes, (int)size) : 0;

	ring_buf_get_finish(&waiting, sent > 0 ? (uint32_t)sent : 0u);
	if (size == 0) {
		uart_irq_tx_disable(dev);
	}
}

static void on_uart(const struct device *dev, void *context)
{
	ARG_UNUSED(context);
	if (!uart_irq_update(dev)) {
		return;
	}
	/* Or they would raise the interrupt for ever. What they damage is a command, whose checksum tells. */
	(void)uart_err_check(dev);
	receive(dev);
	if (uart_irq_tx_ready(dev)) {
		transmit(dev);
	}
}

int stream_start(void)
{
	if (!device_is_ready(uart)) {
		return -ENODEV;
	}
	uart_irq_callback_user_data_set(uart, on_uart, NULL);
	uart_irq_rx_enable(uart);
	return 0;
}

/* On USB. A serial port sends whether somebody listens or not. */
static bool has_reader(void)
{
	uint32_t is_open = 1;

	(void)uart_line_ctrl_get(uart, UART_LINE_CTRL_DTR, &is_open);
	return is_open != 0;
}

bool stream_frame(void *context, const uint8_t *bytes, size_t size)
{
	ARG_UNUSED(context);
	if (!has_reader()) {
		return true;
	}
	if (ring_buf_space_get(&waiting) < size) {
		return false;
	}
	ring_buf_put(&waiting, bytes, (uint32_t)size);
	uart_irq_tx_enable(uart);
	return true;
}
