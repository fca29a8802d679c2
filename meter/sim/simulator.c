#include "simulator.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "monotonic.h"

/* Ticks are done in bunches: frames hold 20 of them, and the machine has other things to do. Marks wake at once. */
#define WAKE_NS 5000000
/* After a stall, so many ticks are done before the mark line is looked at again. */
#define TICKS_AT_ONCE 100
/* The wire is a terminal that a busy host may hold up between two bytes: a mark must not be torn by that. */
#define MARK_SILENCE_US 100000u

/* ------------------------------------------------------------------------------------------------------ time */

/* Start of a tick in the meter's time; exact for every rate, and without overflow for centuries. */
static int64_t tick_ns(const struct simulator *s, uint64_t tick)
{
	const uint64_t rate = s->options->rate_hz;

	return (int64_t)(tick / rate * 1000000000u + tick % rate * 1000000000u / rate);
}

static uint64_t tick_us(const struct simulator *s, uint64_t tick)
{
	const uint64_t rate = s->options->rate_hz;

	return tick / rate * 1000000u + tick % rate * 1000000u / rate;
}

/* Until when the supply is known, and so until when the meter can go. */
static int64_t known_until_ns(struct simulator *s)
{
	const int64_t now_ns = monotonic_ns();

	if (s->options->feed == NULL) {
		return now_ns;
	}
	feed_pull(&s->feed, now_ns);
	return feed_known_until_ns(&s->feed, now_ns);
}

/* ---------------------------------------------------------------------------------------------------- running */

static void constant_mean(void *context, int64_t from_ns, int64_t to_ns, double *volts, double *amperes)
{
	const struct options *options = context;

	(void)from_ns;
	(void)to_ns;
	*volts = options->load_volts;
	*amperes = options->load_amperes;
}

static void deliver_marks(struct simulator *s, int64_t before_ns)
{
	uint8_t byte;
	int64_t time_ns;

	while (mark_port_take(&s->marks, before_ns, &byte, &time_ns)) {
		fsj_meter_mark_byte(&s->meter, byte, (uint64_t)(time_ns - s->start_ns) / 1000u);
	}
}

/* Ticks of which the feed has lost a part were not measured. */
static void skip_lost_ticks(struct simulator *s)
{
	while (s->start_ns + tick_ns(s, s->next_tick) < s->feed.lost_until_ns) {
		s->next_tick++;
	}
}

/* @retval true  there are more ticks to do */
static bool run_ticks(struct simulator *s, int64_t until_ns)
{
	skip_lost_ticks(s);
	for (int i = 0; i < TICKS_AT_ONCE; i++) {
		const int64_t end_ns = s->start_ns + tick_ns(s, s->next_tick + 1);

		if (end_ns > until_ns) {
			return false;
		}
		deliver_marks(s, end_ns);
		ina219_emulated_advance(&s->chip, end_ns);
		fsj_meter_tick(&s->meter, s->next_tick, tick_us(s, s->next_tick));
		s->next_tick++;
	}
	return true;
}

void simulator_run(struct simulator *s, const volatile sig_atomic_t *stop, const sigset_t *wait_mask)
{
	while (!*stop) {
		struct pollfd marks = {.fd = s->marks.pty.master, .events = POLLIN};
		struct timespec wait = {.tv_nsec = WAKE_NS};

		mark_port_read(&s->marks);
		stream_port_discard_input(&s->stream);
		if (run_ticks(s, known_until_ns(s))) {
			wait.tv_nsec = 0;
		}
		ppoll(&marks, 1, &wait, wait_mask);
	}
}

/* ----------------------------------------------------------------------------------------- opening and closing */

static bool complain(const char *what)
{
	fprintf(stderr, "fsjoule-meter-sim: %s: %s\n", what, strerror(errno));
	return false;
}

static void start_meter(struct simulator *s)
{
	const struct fsj_i2c i2c = {ina219_emulated_write, ina219_emulated_read, &s->chip};
	const struct fsj_output output = {stream_port_frame, &s->stream};
	const struct ina219_source constant = {constant_mean, (void *)s->options};
	const struct ina219_source fed = {feed_mean, &s->feed};
	struct fsj_meter_config config = {
		.rate_hz = s->options->rate_hz,
		.shunt_uohm = s->options->shunt_uohm,
		.range = FSJ_INA219_RANGE_80MV,
		.mark_silence_us = MARK_SILENCE_US,
		.simulated = true,
		.serial_number = s->options->serial_number,
	};

	if (getrandom(&config.boot_id, sizeof(config.boot_id), 0) != sizeof(config.boot_id)) {
		config.boot_id = (uint32_t)monotonic_ns();
	}
	s->start_ns = monotonic_ns();
	ina219_emulated_init(&s->chip, s->options->shunt_uohm, s->options->feed == NULL ? constant : fed, s->start_ns);
	fsj_meter_start(&s->meter, &config, &i2c, &output);
}

bool simulator_open(struct simulator *s, const struct options *options)
{
	memset(s, 0, sizeof(*s));
	s->options = options;
	feed_init(&s->feed, options->feed);
	if (!stream_port_open(&s->stream, options->stream_link)) {
		return complain("opening a pseudo terminal");
	}
	if (!mark_port_open(&s->marks, options->marks_link)) {
		pty_close(&s->stream.pty);
		return complain("opening a pseudo terminal");
	}
	start_meter(s);
	if (!pty_link(&s->stream.pty) || !pty_link(&s->marks.pty)) {
		complain("making the links");
		simulator_close(s);
		return false;
	}
	printf("stream %s marks %s\n", s->stream.pty.slave_path, s->marks.pty.slave_path);
	fflush(stdout);
	return true;
}

void simulator_close(struct simulator *s)
{
	printf("ticks %" PRIu64 " missed %" PRIu32 " frames dropped %" PRIu64 "\n", s->next_tick, s->meter.missed_total,
	       s->stream.dropped);
	mark_port_close(&s->marks);
	pty_close(&s->stream.pty);
	feed_close(&s->feed);
}
