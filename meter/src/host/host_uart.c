#define DT_DRV_COMPAT fsjoule_host_uart

#include "host_uart.h"

#include <errno.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>

#include "clock.h"
#include "host.h"
#include "kernel_tick.h"
#include "pace.h"

struct config {
	enum host_port port;
	uint32_t bytes_per_ms;
};

struct data {
	const struct device *dev;
	uart_irq_callback_user_data_t callback;
	void *context;
	bool rx_enabled;
	bool tx_enabled;
	uint32_t tx_room; /* bytes that the line still carries in this millisecond */
	struct k_timer arrival;
};

/* ------------------------------------------------------------------------------------------- Zephyr's interface */

static int rx_ready(const struct device *dev)
{
	const struct config *config = dev->config;
	const struct data *data = dev->data;

	return data->rx_enabled && host_port_next_us(config->port) <= clock_us();
}

static int tx_ready(const struct device *dev)
{
	const struct data *data = dev->data;

	return data->tx_enabled && data->tx_room > 0;
}

static int is_pending(const struct device *dev)
{
	return rx_ready(dev) || tx_ready(dev);
}

static int update(const struct device *dev)
{
	ARG_UNUSED(dev);
	return 1;
}

static int fifo_read(const struct device *dev, uint8_t *bytes, const int size)
{
	const struct config *config = dev->config;
	int count = 0;

	while (count < size && host_port_take(config->port, clock_us(), &bytes[count])) {
		count++;
	}
	return count;
}

static int fifo_fill(const struct device *dev, const uint8_t *bytes, int size)
{
	struct data *data = dev->data;
	const uint32_t count = MIN((uint32_t)size, data->tx_room);

	if (!host_stream_write(bytes, count)) {
		/* As a line whose reader holds it up: later. */
		data->tx_room = 0;
		return 0;
	}
	data->tx_room -= count;
	return (int)count;
}

static int err_check(const struct device *dev)
{
	return host_port_errors(((const struct config *)dev->config)->port, clock_us());
}

static void rx_enable(const struct device *dev)
{
	const struct config *config = dev->config;
	struct data *data = dev->data;

	data->rx_enabled = true;
	host_port_ready(config->port);
}

static void rx_disable(const struct device *dev)
{
	((struct data *)dev->data)->rx_enabled = false;
}

static void tx_enable(const struct device *dev)
{
	((struct data *)dev->data)->tx_enabled = true;
}

static void tx_disable(const struct device *dev)
{
	((struct data *)dev->data)->tx_enabled = false;
}

static void callback_set(const struct device *dev, uart_irq_callback_user_data_t callback, void *context)
{
	struct data *data = dev->data;

	data->callback = callback;
	data->context = context;
}

#if defined(CONFIG_UART_LINE_CTRL)

/* As USB's: the tests of the transport. */
static int line_ctrl_get(const struct device *dev, uint32_t control, uint32_t *value)
{
	ARG_UNUSED(dev);
	if (control != UART_LINE_CTRL_DTR) {
		return -ENOTSUP;
	}
	*value = host_stream_is_open() ? 1 : 0;
	return 0;
}

#endif

static const struct uart_driver_api api = {
#if defined(CONFIG_UART_LINE_CTRL)
	.line_ctrl_get = line_ctrl_get,
#endif
	.err_check = err_check,
	.fifo_fill = fifo_fill,
	.fifo_read = fifo_read,
	.irq_tx_enable = tx_enable,
	.irq_tx_disable = tx_disable,
	.irq_tx_ready = tx_ready,
	.irq_rx_enable = rx_enable,
	.irq_rx_disable = rx_disable,
	.irq_rx_ready = rx_ready,
	.irq_is_pending = is_pending,
	.irq_update = update,
	.irq_callback_set = callback_set,
};

/* --------------------------------------------------------------------------------------------------- interrupts */

static void interrupt(const struct device *dev)
{
	struct data *data = dev->data;

	while (data->callback != NULL && is_pending(dev)) {
		data->callback(dev, data->context);
	}
}

/* What has arrived is known before it is due: the host waits ahead of the simulated time. */
static void await_arrival(const struct device *dev)
{
	const struct config *config = dev->config;
	struct data *data = dev->data;
	const uint64_t next_us = host_port_next_us(config->port);

	if (data->rx_enabled && next_us != UINT64_MAX) {
		const uint64_t tick = (next_us + KERNEL_TICK_US - 1) / KERNEL_TICK_US;

		k_timer_start(&data->arrival, K_TIMEOUT_ABS_TICKS((k_ticks_t)tick), K_NO_WAIT);
	}
}

static void on_arrival(struct k_timer *timer)
{
	const struct device *dev = CONTAINER_OF(timer, struct data, arrival)->dev;

	interrupt(dev);
	await_arrival(dev);
}

static void poll(const struct device *dev)
{
	const struct config *config = dev->config;
	struct data *data = dev->data;

	data->tx_room = MIN(config->bytes_per_ms, HOST_WRITE_MAX);
	interrupt(dev);
	await_arrival(dev);
}

#define POLL(n) poll(DEVICE_DT_INST_GET(n));

static int init(const struct device *dev)
{
	struct data *data = dev->data;
	const struct config *config = dev->config;

	data->dev = dev;
	k_timer_init(&data->arrival, on_arrival, NULL);
	if (config->port == HOST_STREAM) {
		pace_start();
	}
	return 0;
}

/* A byte is ten bits long on the line. */
#define DEFINE(n)                                                                                                      \
	static const struct config config_##n = {                                                                      \
		.port = (enum host_port)DT_INST_ENUM_IDX(n, port),                                                     \
		.bytes_per_ms = DT_INST_PROP(n, current_speed) / 10000,                                                \
	};                                                                                                             \
	static struct data data_##n;                                                                                   \
	DEVICE_DT_INST_DEFINE(n, init, NULL, &data_##n, &config_##n, POST_KERNEL, CONFIG_SERIAL_INIT_PRIORITY, &api);

DT_INST_FOREACH_STATUS_OKAY(DEFINE)

void host_uart_poll(void)
{
	DT_INST_FOREACH_STATUS_OKAY(POLL)
}
