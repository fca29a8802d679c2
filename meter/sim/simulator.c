#include "simulator.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "monotonic.h"

/* Ticks are done in bunches: frames hold 20 of them, and the machine has other things to do. Marks wake at once. */
#define WAKE_NS 5000000
/* After a stall, so many ticks are done before the ports are looked at again. */
#define TICKS_AT_ONCE 100

/* ---------------------------------------------------------------------------------------------------- running */

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

static void constant_mean(void *context, int64_t from_ns, int64_t to_ns, double *volts, double *amperes)
{
	const struct options *options = context;

	(void)from_ns;
	(void)to_ns;
	*volts = options->load_volts;
	*amperes = options->load_amperes;
}

typedef void (*deliver)(struct instrument *instrument, uint8_t byte, int64_t time_ns);

/* Bytes of all ports, in the order of their times, up to the end of the tick under way. A command may begin another. */
static void deliver_bytes(struct simulator *s, int64_t until_ns)
{
	struct {
		struct timed_bytes *input;
		deliver deliver;
	} ports[] = {
		{&s->marks.input, instrument_mark_byte},
		{&s->pin.input, instrument_pin_level},
		{&s->stream.input, instrument_command_byte},
	};
	uint8_t byte;
	int64_t time_ns;

	for (;;) {
		const int64_t end_ns = instrument_tick_end_ns(&s->instrument);
		const int64_t before_ns = end_ns <= until_ns ? end_ns : until_ns;
		size_t next = 0;

		for (size_t i = 1; i < sizeof(ports) / sizeof(ports[0]); i++) {
			if (timed_bytes_next_ns(ports[i].input) < timed_bytes_next_ns(ports[next].input)) {
				next = i;
			}
		}
		if (!timed_bytes_take(ports[next].input, before_ns, &byte, &time_ns)) {
			return;
		}
		ports[next].deliver(&s->instrument, byte, time_ns);
	}
}

/* @retval true  there are more ticks to do */
static bool run_ticks(struct simulator *s, int64_t until_ns)
{
	/* Ticks of which the feed has lost a part were not measured. */
	instrument_lose(&s->instrument, s->feed.lost_until_ns);
	for (int i = 0; i < TICKS_AT_ONCE; i++) {
		deliver_bytes(s, until_ns);
		if (instrument_tick_end_ns(&s->instrument) > until_ns) {
			return false;
		}
		instrument_tick(&s->instrument);
	}
	return true;
}

void simulator_run(struct simulator *s, const volatile sig_atomic_t *stop, const sigset_t *wait_mask)
{
	while (!*stop) {
		struct pollfd marks[] = {
			{.fd = s->marks.pty.master, .events = POLLIN},
			{.fd = s->options->pin_link == NULL ? -1 : s->pin.pty.master, .events = POLLIN},
		};
		struct timespec wait = {.tv_nsec = WAKE_NS};

		mark_port_read(&s->marks);
		if (s->options->pin_link != NULL) {
			mark_port_read(&s->pin);
		}
		stream_port_read(&s->stream);
		if (run_ticks(s, known_until_ns(s))) {
			wait.tv_nsec = 0;
		}
		ppoll(marks, 2, &wait, wait_mask);
	}
}

/* ----------------------------------------------------------------------------------------- opening and closing */

static bool complain(const char *what)
{
	fprintf(stderr, "fsjoule-meter-sim: %s: %s\n", what, strerror(errno));
	return false;
}

static bool open_ports(struct simulator *s)
{
	if (!stream_port_open(&s->stream, s->options->stream_link)) {
		return complain("opening a pseudo terminal");
	}
	if (!mark_port_open(&s->marks, s->options->marks_link)) {
		pty_close(&s->stream.pty);
		return complain("opening a pseudo terminal");
	}
	if (s->options->pin_link != NULL && !mark_port_open(&s->pin, s->options->pin_link)) {
		mark_port_close(&s->marks);
		pty_close(&s->stream.pty);
		return complain("opening a pseudo terminal");
	}
	return true;
}

static void start_instrument(struct simulator *s)
{
	const struct fsj_output output = {stream_port_frame, &s->stream};
	const struct fsj_storage storage = {storage_file_read, storage_file_write, &s->storage};
	const struct ina219_source constant = {constant_mean, (void *)s->options};
	const struct ina219_source fed = {feed_mean, &s->feed};

	instrument_start(&s->instrument, s->options, s->options->feed == NULL ? constant : fed, &output,
			 s->options->storage == NULL ? NULL : &storage, monotonic_ns());
}

bool simulator_open(struct simulator *s, const struct options *options)
{
	memset(s, 0, sizeof(*s));
	s->options = options;
	s->storage.fd = -1;
	feed_init(&s->feed, options->feed);
	if (options->storage != NULL && !storage_file_open(&s->storage, options->storage)) {
		return complain(options->storage);
	}
	if (!open_ports(s)) {
		storage_file_close(&s->storage);
		return false;
	}
	start_instrument(s);
	if (!pty_link(&s->stream.pty) || !pty_link(&s->marks.pty) ||
	    (options->pin_link != NULL && !pty_link(&s->pin.pty))) {
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
	const struct fsj_meter *meter = &s->instrument.meter;

	printf("streams %" PRIu32 ", in the last one: ticks %" PRIu64 " missed %" PRIu32 "; frames dropped %" PRIu32 "\n",
	       meter->streams, meter->sampler.next_tick, meter->sampler.missed_total, meter->queue.outbox.dropped);
	fsj_meter_flush(&s->instrument.meter);
	mark_port_close(&s->marks);
	if (s->options->pin_link != NULL) {
		mark_port_close(&s->pin);
	}
	pty_close(&s->stream.pty);
	storage_file_close(&s->storage);
	feed_close(&s->feed);
}
