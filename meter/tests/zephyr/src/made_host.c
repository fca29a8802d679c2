#include "made_host.h"

#include <string.h>
#include <zephyr/ztest.h>

#define ARRIVALS_MAX 4096
#define SENT_MAX 65536

struct made_host made_host;

static struct arrivals {
	uint8_t byte[ARRIVALS_MAX];
	uint64_t time_us[ARRIVALS_MAX];
	size_t first;
	size_t end;
} arrivals[2];

static uint8_t sent[SENT_MAX];
static size_t sent_size;

/* ------------------------------------------------------------------------------------------------ for the tests */

void made_host_arrive(enum host_port port, uint64_t time_us, const void *bytes, size_t size)
{
	struct arrivals *a = &arrivals[port];

	if (a->first == a->end) {
		a->first = 0;
		a->end = 0;
	}
	zassert_true(a->end + size <= ARRIVALS_MAX);
	for (size_t i = 0; i < size; i++) {
		a->byte[a->end] = ((const uint8_t *)bytes)[i];
		a->time_us[a->end++] = time_us;
	}
}

size_t made_host_frame(uint8_t *frame, size_t size)
{
	const uint8_t *delimiter = memchr(sent, 0, sent_size);
	const size_t length = delimiter == NULL ? 0 : (size_t)(delimiter - sent) + 1;

	zassert_true(length <= size);
	memcpy(frame, sent, length);
	sent_size -= length;
	memmove(sent, sent + length, sent_size);
	return length;
}

/* --------------------------------------------------------------------------------------------- for the firmware */

void host_wait_until(uint64_t time_us)
{
	ARG_UNUSED(time_us);
}

uint64_t host_lost_until(void)
{
	return made_host.lost_until_us;
}

void host_port_ready(enum host_port port)
{
	ARG_UNUSED(port);
}

uint64_t host_port_next_us(enum host_port port)
{
	const struct arrivals *a = &arrivals[port];

	return a->first == a->end ? UINT64_MAX : a->time_us[a->first];
}

bool host_port_take(enum host_port port, uint64_t now_us, uint8_t *byte)
{
	struct arrivals *a = &arrivals[port];

	if (host_port_next_us(port) > now_us) {
		return false;
	}
	*byte = a->byte[a->first++];
	return true;
}

int host_port_errors(enum host_port port, uint64_t now_us)
{
	int errors = 0;

	if (port == HOST_MARKS && host_port_next_us(port) <= now_us) {
		errors = made_host.mark_errors;
		made_host.mark_errors = 0;
	}
	return errors;
}

bool host_stream_write(const uint8_t *bytes, size_t size)
{
	if (made_host.reader_holds_up || sent_size + size > SENT_MAX) {
		return false;
	}
	memcpy(sent + sent_size, bytes, size);
	sent_size += size;
	return true;
}

bool host_stream_is_open(void)
{
	return !made_host.reader_is_away;
}

static bool answers(uint64_t now_us)
{
	MADE_CHIP(advance)(&made_host.made.chip, (int64_t)now_us * 1000);
	return !made_host.bus_held && !made_host.unplugged;
}

int host_chip_write(uint64_t now_us, uint8_t reg, uint16_t value)
{
	return answers(now_us) ? MADE_CHIP(write)(&made_host.made.chip, reg, value) : -1;
}

int host_chip_read(uint64_t now_us, uint8_t reg, uint16_t *value)
{
	return answers(now_us) ? MADE_CHIP(read)(&made_host.made.chip, reg, value) : -1;
}

int host_chip_read_bytes(uint64_t now_us, uint8_t reg, uint8_t *bytes, size_t size)
{
	return answers(now_us) ? made_chip_read_bytes(&made_host.made, reg, bytes, size) : -1;
}

int host_chip_recover(void)
{
	made_host.recoveries++;
	made_host.bus_held = false;
	return 0;
}

const char *host_serial_number(void)
{
	return "TEST";
}

const struct fsj_settings *host_settings(void)
{
	static const struct fsj_settings settings = {
		.rate_hz = 1000,
		.shunt_uohm = 100000,
		.range = FSJ_INA219_RANGE_80MV,
		.bus_32v = BUS_FULL_SCALE_32V,
	};

	return &settings;
}

uint32_t host_random(void)
{
	return 1000;
}
