#include "host_program.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "feed.h"
#include "host.h"
#include "ina219_emulated.h"
#include "mark_port.h"
#include "monotonic.h"
#include "stream_port.h"

/* How long to wait at once for a feed that is behind. */
#define WAKE_NS 1000000

#define MAX(a, b) ((a) > (b) ? (a) : (b))

static struct {
	const struct options *options;
	sigset_t wait_mask;
	struct feed feed;
	struct ina219_emulated chip;
	struct stream_port stream;
	struct mark_port marks;
	int64_t start_ns; /* CLOCK_MONOTONIC at the meter's time 0 */
	volatile sig_atomic_t bus_held;
	volatile sig_atomic_t unplugged;
} host;

/* -------------------------------------------------------------------------------------------------------- time */

static int64_t to_ns(uint64_t time_us)
{
	return host.start_ns + (int64_t)time_us * 1000;
}

static uint64_t to_us(int64_t time_ns)
{
	return time_ns > host.start_ns ? (uint64_t)(time_ns - host.start_ns) / 1000u : 0u;
}

/* Until when the supply is known. */
static int64_t known_until_ns(void)
{
	const int64_t now_ns = monotonic_ns();

	if (host.options->feed == NULL) {
		return now_ns;
	}
	feed_pull(&host.feed, now_ns);
	return feed_known_until_ns(&host.feed, now_ns);
}

/* A mark wakes at once: its time is when it is read. Signals arrive here, and nowhere else. */
static void wait_for_marks(int64_t wait_ns)
{
	struct pollfd marks = {.fd = host.marks.pty.master, .events = POLLIN};
	const struct timespec wait = {.tv_nsec = wait_ns < WAKE_NS ? wait_ns : WAKE_NS};

	ppoll(&marks, 1, &wait, &host.wait_mask);
}

void host_wait_until(uint64_t time_us)
{
	const int64_t until_ns = to_ns(time_us);
	int64_t missing_ns = until_ns - known_until_ns();

	/* Once also where there is nothing to wait for: a program that is behind ends when it is told. */
	do {
		wait_for_marks(MAX(missing_ns, 0));
		mark_port_read(&host.marks);
		stream_port_read(&host.stream);
		missing_ns = until_ns - known_until_ns();
	} while (missing_ns > 0);
}

uint64_t host_lost_until(void)
{
	return to_us(host.feed.lost_until_ns);
}

/* ------------------------------------------------------------------------------------------------------- ports */

static struct timed_bytes *input(enum host_port port)
{
	return port == HOST_STREAM ? &host.stream.input : &host.marks.input;
}

void host_port_ready(enum host_port port)
{
	const struct pty *pty = port == HOST_STREAM ? &host.stream.pty : &host.marks.pty;

	if (!pty_link(pty)) {
		fprintf(stderr, "%s: making the link %s: %s\n", PROGRAM, pty->link_path, strerror(errno));
		exit(EXIT_FAILURE);
	}
}

uint64_t host_port_next_us(enum host_port port)
{
	const int64_t next_ns = timed_bytes_next_ns(input(port));

	return next_ns == INT64_MAX ? UINT64_MAX : to_us(next_ns);
}

bool host_port_take(enum host_port port, uint64_t now_us, uint8_t *byte)
{
	int64_t time_ns;

	return timed_bytes_take(input(port), to_ns(now_us + 1), byte, &time_ns);
}

/* A pseudo terminal has none. */
int host_port_errors(enum host_port port, uint64_t now_us)
{
	(void)port;
	(void)now_us;
	return 0;
}

bool host_stream_write(const uint8_t *bytes, size_t size)
{
	return stream_port_frame(&host.stream, bytes, size);
}

/* -------------------------------------------------------------------------------------------------------- chip */

static bool answers(uint64_t now_us)
{
	ina219_emulated_advance(&host.chip, to_ns(now_us));
	return !host.bus_held && !host.unplugged;
}

int host_chip_write(uint64_t now_us, uint8_t reg, uint16_t value)
{
	return answers(now_us) ? ina219_emulated_write(&host.chip, reg, value) : -1;
}

int host_chip_read(uint64_t now_us, uint8_t reg, uint16_t *value)
{
	return answers(now_us) ? ina219_emulated_read(&host.chip, reg, value) : -1;
}

/* An INA219 has none. */
int host_chip_read_bytes(uint64_t now_us, uint8_t reg, uint8_t *bytes, size_t size)
{
	(void)now_us;
	(void)reg;
	(void)bytes;
	(void)size;
	return -1;
}

int host_chip_recover(void)
{
	host.bus_held = 0;
	return 0;
}

void host_hold_bus(int signal)
{
	(void)signal;
	host.bus_held = 1;
}

void host_plug(int signal)
{
	(void)signal;
	host.unplugged = !host.unplugged;
}

static void constant_mean(void *context, int64_t from_ns, int64_t to_ns, double *volts, double *amperes)
{
	const struct options *options = context;

	(void)from_ns;
	(void)to_ns;
	*volts = options->load_volts;
	*amperes = options->load_amperes;
}

/* ---------------------------------------------------------------------------------------------------- identity */

const char *host_serial_number(void)
{
	return host.options->serial_number;
}

const struct fsj_settings *host_settings(void)
{
	return &host.options->settings;
}

uint32_t host_random(void)
{
	uint32_t value;

	return getrandom(&value, sizeof(value), 0) == sizeof(value) ? value : (uint32_t)monotonic_ns();
}

/* ----------------------------------------------------------------------------------------- opening and closing */

bool host_open(const struct options *options, const sigset_t *wait_mask)
{
	const struct ina219_source constant = {constant_mean, (void *)options};
	const struct ina219_source fed = {feed_mean, &host.feed};

	host.options = options;
	host.wait_mask = *wait_mask;
	feed_init(&host.feed, options->feed);
	if (!stream_port_open(&host.stream, options->stream_link) || !mark_port_open(&host.marks, options->marks_link)) {
		fprintf(stderr, "%s: opening a pseudo terminal: %s\n", PROGRAM, strerror(errno));
		return false;
	}
	host.start_ns = monotonic_ns();
	ina219_emulated_init(&host.chip, options->settings.shunt_uohm, options->feed == NULL ? constant : fed,
			     host.start_ns);
	ina219_emulated_err(&host.chip, &options->errors);
	return true;
}

void host_close(void)
{
	mark_port_close(&host.marks);
	pty_close(&host.stream.pty);
	feed_close(&host.feed);
}
