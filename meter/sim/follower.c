#include "follower.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "monotonic.h"

#define WAKE_NS 5000000
/* All that a full FIFO holds is taken before a command is carried out: the board told it before the command was sent. */
#define FIFO_EVENTS (65536u / sizeof(struct supply_event))
/* While the board's time stands still, the host still hears that the meter is there. */
#define INFO_NS 100000000
/* A reader that takes nothing for so long hangs: what it does not take is dropped. */
#define PATIENCE_MS 10000

/* -------------------------------------------------------------------------------------------------- the stream */

/* The board's time can wait for a slow reader, so that nothing is ever lost on the line. */
static bool send_frame(void *context, const uint8_t *bytes, size_t size)
{
	struct follower *f = context;

	f->sent_ns = monotonic_ns();
	for (int waited_ms = 0; waited_ms < PATIENCE_MS; waited_ms += 10) {
		struct pollfd room = {.fd = f->stream.pty.master, .events = POLLOUT};

		if (stream_port_frame(&f->stream, bytes, size)) {
			return true;
		}
		poll(&room, 1, 10);
	}
	return false;
}

/* ----------------------------------------------------------------------------------------------------- the time */

static void mean(void *context, int64_t from_ns, int64_t to_ns, double *volts, double *amperes)
{
	struct follower *f = context;

	power_records_mean(&f->records, from_ns, to_ns, volts, amperes);
}

static void deliver_marks(struct follower *f)
{
	uint8_t byte;
	int64_t time_ns;

	while (timed_bytes_take(&f->marks, instrument_tick_end_ns(&f->instrument), &byte, &time_ns)) {
		instrument_mark_byte(&f->instrument, byte, time_ns);
	}
}

static void run_ticks(struct follower *f)
{
	for (;;) {
		deliver_marks(f);
		if (instrument_tick_end_ns(&f->instrument) > f->newest_ns) {
			return;
		}
		instrument_tick(&f->instrument);
	}
}

static void take_event(struct follower *f, const struct supply_event *event)
{
	const int64_t time_ns = f->power_on_ns + event->time_ns;
	const struct power_record record = {.time_ns = time_ns, .volts = event->volts, .amperes = event->amperes};

	switch (event->kind) {
	case SUPPLY_POWER_ON:
		/* Between two power-ons no time passes. */
		f->power_on_ns = f->newest_ns - event->time_ns;
		break;
	case SUPPLY_POWER:
		if (time_ns > f->newest_ns && power_records_add(&f->records, &record, f->newest_ns)) {
			f->newest_ns = time_ns;
			run_ticks(f);
		}
		break;
	case SUPPLY_MARK:
		timed_bytes_put(&f->marks, (uint8_t)event->byte, time_ns);
		break;
	default:
		break;
	}
}

static void take_events(struct follower *f)
{
	struct supply_event events[128];
	size_t taken = 0;
	size_t count;

	while (taken < FIFO_EVENTS && (count = supply_line_read(&f->supply, events, 128)) > 0) {
		for (size_t i = 0; i < count; i++) {
			take_event(f, &events[i]);
		}
		taken += count;
	}
}

/* --------------------------------------------------------------------------------------------------- commands */

static void carry_out_commands(struct follower *f)
{
	uint8_t byte;
	int64_t arrived_ns;

	stream_port_read(&f->stream);
	if (timed_bytes_next_ns(&f->stream.input) == INT64_MAX) {
		return;
	}
	take_events(f);
	while (timed_bytes_take(&f->stream.input, INT64_MAX, &byte, &arrived_ns)) {
		instrument_command_byte(&f->instrument, byte, f->newest_ns);
	}
}

void follower_run(struct follower *f, const volatile sig_atomic_t *stop, const sigset_t *wait_mask)
{
	while (!*stop) {
		const struct timespec wait = {.tv_nsec = WAKE_NS};
		struct pollfd supply = {.fd = f->supply.fd, .events = POLLIN};

		take_events(f);
		carry_out_commands(f);
		if (monotonic_ns() - f->sent_ns > INFO_NS) {
			fsj_meter_send_info(&f->instrument.meter);
		}
		ppoll(&supply, 1, &wait, wait_mask);
	}
}

/* ----------------------------------------------------------------------------------------- opening and closing */

static bool complain(const char *what)
{
	fprintf(stderr, "fsjoule-meter-sim: %s: %s\n", what, strerror(errno));
	return false;
}

static void start_instrument(struct follower *f)
{
	const struct fsj_output output = {send_frame, f};
	const struct fsj_storage storage = {storage_file_read, storage_file_write, &f->storage};
	const struct ina219_source source = {mean, f};

	instrument_start(&f->instrument, f->options, source, &output, f->options->storage == NULL ? NULL : &storage, 0);
}

bool follower_open(struct follower *f, const struct options *options)
{
	memset(f, 0, sizeof(*f));
	f->options = options;
	f->storage.fd = -1;
	supply_line_init(&f->supply, options->follow);
	if (options->storage != NULL && !storage_file_open(&f->storage, options->storage)) {
		return complain(options->storage);
	}
	if (!stream_port_open(&f->stream, options->stream_link)) {
		storage_file_close(&f->storage);
		return complain("opening a pseudo terminal");
	}
	start_instrument(f);
	if (!pty_link(&f->stream.pty)) {
		complain("making the link");
		follower_close(f);
		return false;
	}
	printf("stream %s\n", f->stream.pty.slave_path);
	fflush(stdout);
	return true;
}

void follower_close(struct follower *f)
{
	printf("board's time %" PRId64 " us; frames dropped %" PRIu32 "\n", f->newest_ns / 1000,
	       f->instrument.meter.queue.outbox.dropped);
	fsj_meter_flush(&f->instrument.meter);
	pty_close(&f->stream.pty);
	storage_file_close(&f->storage);
	power_records_free(&f->records);
	supply_line_close(&f->supply);
}
