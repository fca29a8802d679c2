/* The emulated chip behind Zephyr's emulated I2C. A transfer takes as long as its bits take on the line, in simulated
 * time, so that the firmware meets the real bus.
 */
#include <errno.h>
#include <zephyr/device.h>
#include <zephyr/drivers/emul.h>
#include <zephyr/drivers/i2c.h>
#include <zephyr/drivers/i2c_emul.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/byteorder.h>

#include "board.h"
#include "clock.h"
#include "host.h"

#define REGISTER_BYTES 2u

static uint8_t pointer;

/* START or repeated START, the address, the bytes, each with its acknowledgement; at the end STOP. */
static uint32_t duration_us(const struct i2c_msg *msgs, int count)
{
	uint32_t bits = 1;

	for (int i = 0; i < count; i++) {
		bits += 1 + 9 * (1 + msgs[i].len);
	}
	return (uint32_t)((uint64_t)bits * 1000000u / DT_PROP(DT_BUS(BOARD_CURRENT_MONITOR), clock_frequency));
}

static int take(const struct i2c_msg *msg)
{
	if (msg->len >= 1) {
		pointer = msg->buf[0];
	}
	if (msg->len == 1 + REGISTER_BYTES) {
		return host_chip_write(clock_us(), pointer, sys_get_be16(&msg->buf[1]));
	}
	return msg->len == 1 ? 0 : -EIO;
}

static int give(const struct i2c_msg *msg)
{
	uint16_t value;
	int error;

	if (msg->len != REGISTER_BYTES) {
		return host_chip_read_bytes(clock_us(), pointer, msg->buf, msg->len);
	}
	error = host_chip_read(clock_us(), pointer, &value);
	if (error == 0) {
		sys_put_be16(value, msg->buf);
	}
	return error;
}

/* What the board drew was lost for a time: the chip holds the clock until it knows again, and those ticks are missed. */
static void wait_for_supply(void)
{
	const uint64_t now_us = clock_us();
	const uint64_t until_us = host_lost_until();

	if (until_us > now_us) {
		k_busy_wait((uint32_t)(until_us - now_us));
	}
}

static int transfer(const struct emul *target, struct i2c_msg *msgs, int count, int address)
{
	int error = 0;

	ARG_UNUSED(target);
	ARG_UNUSED(address);
	wait_for_supply();
	for (int i = 0; i < count && error == 0; i++) {
		error = (msgs[i].flags & I2C_MSG_READ) != 0 ? give(&msgs[i]) : take(&msgs[i]);
	}
	k_busy_wait(duration_us(msgs, count));
	return error == 0 ? 0 : -EIO;
}

static const struct i2c_emul_api bus_api = {.transfer = transfer};

static int init_emulator(const struct emul *emulator, const struct device *bus)
{
	ARG_UNUSED(emulator);
	ARG_UNUSED(bus);
	return 0;
}

static int init_device(const struct device *dev)
{
	ARG_UNUSED(dev);
	return 0;
}

DEVICE_DT_DEFINE(BOARD_CURRENT_MONITOR, init_device, NULL, NULL, NULL, POST_KERNEL, CONFIG_KERNEL_INIT_PRIORITY_DEVICE,
		 NULL);
EMUL_DT_DEFINE(BOARD_CURRENT_MONITOR, init_emulator, NULL, NULL, &bus_api, NULL)
