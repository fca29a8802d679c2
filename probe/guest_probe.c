/* A library loaded into QEMU (LD_PRELOAD) that reports the emulated board's power in the guest's time.
 *
 * With -icount the guest's clock counts instructions, and no program outside QEMU can read it at a given moment. Inside
 * QEMU it is exact: every millisecond a timer on that clock counts the executed instructions, the card's bytes are counted
 * at QEMU's reads and writes of the image, and a byte of the mark line is timestamped where it is sent. Everything goes
 * into a FIFO that an emulated meter reads (--follow). A full FIFO stops the guest and its time. docs/virtual-board.md
 * describes the format.
 *
 * It needs functions that QEMU exports for its own modules. Without them it reports that, and QEMU ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "guest_mailbox.h"
#include "guest_profile.h"

/* ------------------------------------------------------------------------------------------- QEMU's exports */

#define QEMU_CLOCK_VIRTUAL 1
#define SCALE_NS 1

int64_t qemu_clock_get_ns(int clock) __attribute__((weak));
int64_t icount_get_raw(void) __attribute__((weak));
int64_t icount_to_ns(int64_t icount) __attribute__((weak));
void timer_init_full(void *timer, void *group, int clock, int scale, int attributes, void (*callback)(void *),
		     void *context) __attribute__((weak));
void timer_mod_ns(void *timer, int64_t time_ns) __attribute__((weak));
bool qemu_in_vcpu_thread(void) __attribute__((weak));
void *qemu_get_cpu(int index) __attribute__((weak));
void async_run_on_cpu(void *cpu, void (*work)(void *cpu, uint64_t data), uint64_t data) __attribute__((weak));

/* QEMU's struct QEMUTimer has 48 bytes in all known versions. */
static _Alignas(16) unsigned char timer[512];

/* ------------------------------------------------------------------------------------------------- the events */

enum event_kind { EVENT_POWER_ON = 1, EVENT_POWER = 2, EVENT_MARK = 3 };

struct event {
	int64_t time_ns; /* of the guest, since power-on */
	uint32_t kind;
	uint32_t byte; /* of the mark line */
	double volts; /* since the event before, up to time_ns */
	double amperes;
};

_Static_assert(sizeof(struct event) == 32, "an event has 32 bytes");

/* The board's present state, in a mapped file. */
struct state {
	char magic[8];
	int64_t time_ns;
	int64_t busy_ns;
	uint64_t read_bytes;
	uint64_t written_bytes;
	double watts;
	uint64_t events;
	uint64_t dropped;
};

static struct state *state;
static struct state nowhere;

static _Atomic uint64_t read_bytes;
static _Atomic uint64_t written_bytes;

/* --------------------------------------------------------------------------------------------------- the config */

#define PERIOD_NS 1000000
#define MIB 1048576.0
/* A meter that reads nothing for this time hangs; the board goes on without it. */
#define PATIENCE_MS 30000

static const char *supply_path;
static int supply_fd = -1;
static int mark_fd = -1;
static int console_fd = -1;
static struct stat card;
static const char *mailbox_path; /* of a mailbox on the card itself, from mailbox_at on */
static off64_t mailbox_at;
static double volts, idle_w, cpu_w, read_mj_per_mib, write_mj_per_mib, card_peak_w;

static void give_up(const char *what)
{
	fprintf(stderr, "fsjoule guest probe: %s\n", what);
	_exit(70);
}

static const char *setting(const char *name)
{
	const char *value = getenv(name);

	if (value == NULL) {
		give_up("a setting is missing (FSJOULE_PROBE_...)");
	}
	return value;
}

static void read_config(void)
{
	const char *model = setting("FSJOULE_PROBE_MODEL");
	int file;

	supply_path = setting("FSJOULE_PROBE_SUPPLY");
	mark_fd = atoi(setting("FSJOULE_PROBE_MARK_FD"));
	console_fd = atoi(setting("FSJOULE_PROBE_CONSOLE_FD"));
	mailbox_path = getenv("FSJOULE_PROBE_MAILBOX");
	if (mailbox_path != NULL) {
		mailbox_at = atoll(setting("FSJOULE_PROBE_MAILBOX_AT"));
	}
	if (stat(setting("FSJOULE_PROBE_CARD"), &card) != 0) {
		give_up("there is no card image");
	}
	if (sscanf(model, "%lf %lf %lf %lf %lf %lf", &volts, &idle_w, &cpu_w, &read_mj_per_mib, &write_mj_per_mib,
		   &card_peak_w) != 6) {
		give_up("FSJOULE_PROBE_MODEL wants six numbers");
	}
	state = &nowhere;
	file = open(setting("FSJOULE_PROBE_STATE"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file >= 0 && ftruncate(file, sizeof(*state)) == 0) {
		void *mapped = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

		state = mapped == MAP_FAILED ? &nowhere : mapped;
	}
	*state = (struct state){.magic = "FSJPROB"};
}

/* ------------------------------------------------------------------------------------------------ the FIFO's end */

static bool tell_once(const struct event *event)
{
	for (int waited_ms = 0; waited_ms < PATIENCE_MS; waited_ms += 100) {
		struct pollfd room = {.fd = supply_fd, .events = POLLOUT};

		/* Such a short write to a pipe is atomic. */
		if (write(supply_fd, event, sizeof(*event)) == (ssize_t)sizeof(*event)) {
			return true;
		}
		if (errno != EAGAIN && errno != EINTR) {
			return false;
		}
		poll(&room, 1, 100);
	}
	return false;
}

static void tell(const struct event *event)
{
	static const struct event power_on = {.kind = EVENT_POWER_ON};

	state->events++;
	if (supply_fd < 0) {
		struct event begin = power_on;

		/* This fails while no meter has it open. */
		supply_fd = open(supply_path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
		begin.time_ns = event->time_ns;
		if (supply_fd < 0 || !tell_once(&begin)) {
			state->dropped++;
			return;
		}
	}
	if (!tell_once(event)) {
		state->dropped++;
		close(supply_fd);
		supply_fd = -1;
	}
}

/* ------------------------------------------------------------------------------------------------ the power model */

static int64_t told_ns;
static int64_t told_busy_ns;
static uint64_t told_read, told_written;
static double owed_mj;

/* P = idle + cpu * busy + card. The energy of a burst is drawn at the card's peak power until it is paid. */
static double watts(int64_t interval_ns, int64_t busy_ns)
{
	const uint64_t read = atomic_load(&read_bytes);
	const uint64_t written = atomic_load(&written_bytes);
	const double most_mj = card_peak_w * (double)interval_ns * 1e-6;
	double card_mj;

	owed_mj += read_mj_per_mib * (double)(read - told_read) / MIB +
		   write_mj_per_mib * (double)(written - told_written) / MIB;
	told_read = read;
	told_written = written;
	card_mj = owed_mj < most_mj ? owed_mj : most_mj;
	owed_mj -= card_mj;
	return idle_w + cpu_w * (double)busy_ns / (double)interval_ns + card_mj * 1e6 / (double)interval_ns;
}

static void on_timer(void *context)
{
	struct event event = {.kind = EVENT_POWER, .time_ns = qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL), .volts = volts};
	const int64_t busy_ns = icount_to_ns(icount_get_raw());

	(void)context;
	if (event.time_ns > told_ns) {
		state->watts = watts(event.time_ns - told_ns, busy_ns - told_busy_ns);
		event.amperes = state->watts / volts;
		told_ns = event.time_ns;
		told_busy_ns = busy_ns;
		tell(&event);
	}
	state->time_ns = event.time_ns;
	state->busy_ns = busy_ns;
	state->read_bytes = told_read;
	state->written_bytes = told_written;
	timer_mod_ns(timer, (event.time_ns / PERIOD_NS + 1) * PERIOD_NS);
}

static void start(void)
{
	if (!qemu_clock_get_ns || !icount_get_raw || !icount_to_ns || !timer_init_full || !timer_mod_ns ||
	    !qemu_in_vcpu_thread || !qemu_get_cpu || !async_run_on_cpu) {
		give_up("this QEMU does not export its clock (it was built without modules)");
	}
	read_config();
	timer_init_full(timer, NULL, QEMU_CLOCK_VIRTUAL, SCALE_NS, 0, on_timer, NULL);
	timer_mod_ns(timer, PERIOD_NS);
}

/* ------------------------------------------------------------------------------- QEMU's calls of the C library */

#define REAL(name) \
	static __typeof__(&name) real; \
	if (real == NULL) { \
		real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
	}

static bool started;

/* The main loop first waits here when all clocks exist and, with -S, no instruction has run. */
int ppoll(struct pollfd *files, nfds_t count, const struct timespec *limit, const sigset_t *mask)
{
	REAL(ppoll)
	if (!started && getpid() == gettid()) {
		started = true;
		start();
	}
	return real(files, count, limit, mask);
}

/* An idle guest's clock is moved to its next timer by QEMU's main loop, which finds the guest idle as soon as its last
 * instruction has run. Only then the CPU's thread adds these instructions to the clock: if the main loop was faster, the
 * guest is late by them. So it shall find nobody idle before the CPU's thread waits, and that thread wakes it when it does.
 */
static bool cpu_waits; /* protected by QEMU's big lock, which both threads have where they use it */

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
	REAL(pthread_cond_wait)
	const bool cpu = qemu_in_vcpu_thread && qemu_in_vcpu_thread();
	int error;

	if (cpu) {
		cpu_waits = true;
	}
	error = real(condition, lock);
	if (cpu) {
		cpu_waits = false;
	}
	return error;
}

static void nothing(void *cpu, uint64_t data)
{
	(void)cpu;
	(void)data;
}

/* The last call of the C library before the main loop looks who is idle. */
void g_main_context_release(void *context)
{
	static void (*real)(void *);

	if (real == NULL) {
		real = (void (*)(void *))dlsym(RTLD_NEXT, "g_main_context_release");
	}
	real(context);
	if (started && getpid() == gettid() && !cpu_waits) {
		/* A CPU with work is not idle. */
		async_run_on_cpu(qemu_get_cpu(0), nothing, 0);
	}
}

static void tell_mark(const struct msghdr *message, size_t size)
{
	struct event event = {.kind = EVENT_MARK, .time_ns = qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL)};

	for (size_t i = 0; i < message->msg_iovlen; i++) {
		const struct iovec *part = &message->msg_iov[i];

		for (size_t k = 0; k < part->iov_len && size > 0; k++, size--) {
			event.byte = ((const unsigned char *)part->iov_base)[k];
			profile_mark_byte((unsigned char)event.byte, event.time_ns);
			tell(&event);
		}
	}
}

/* What a UART says, for the lab: each line begins with its time in ns, and has no carriage return. */
struct told_lines {
	const char *name;
	int fd;
	bool opened;
	bool begun;
};

static struct told_lines told_console = {.name = "console"};
static struct told_lines told_marks = {.name = "marks"};

static void tell_lines(struct told_lines *lines, const struct msghdr *message, size_t size)
{
	char text[1024];
	size_t length = 0;

	if (!lines->opened) {
		char path[1024];

		snprintf(path, sizeof(path), "%s/%s", setting("FSJOULE_PROBE_PROFILES"), lines->name);
		lines->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
		lines->opened = true;
	}
	for (size_t i = 0; i < message->msg_iovlen; i++) {
		const struct iovec *part = &message->msg_iov[i];

		for (size_t k = 0; k < part->iov_len && size > 0; k++, size--) {
			const char byte = ((const char *)part->iov_base)[k];

			if (length + 32 > sizeof(text)) {
				(void)!write(lines->fd, text, length);
				length = 0;
			}
			if (!lines->begun) {
				length += (size_t)snprintf(text + length, 32, "%" PRId64 " ",
							   qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL));
			}
			lines->begun = byte != '\n';
			if (byte != '\r') {
				text[length++] = byte;
			}
		}
	}
	(void)!write(lines->fd, text, length);
}

/* A byte that the guest writes to a UART is sent during the instruction that writes it. Some UARTs of QEMU would try again
 * later, at any moment, if the other end is slow to read: the guest waits instead.
 */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	REAL(sendmsg)
	const bool serial = fd == mark_fd || fd == console_fd;
	ssize_t sent = real(fd, message, flags);

	for (int waited_ms = 0; serial && sent < 0 && errno == EAGAIN && waited_ms < PATIENCE_MS; waited_ms += 100) {
		struct pollfd room = {.fd = fd, .events = POLLOUT};

		poll(&room, 1, 100);
		sent = real(fd, message, flags);
	}
	if (fd == mark_fd && sent > 0) {
		tell_mark(message, (size_t)sent);
		tell_lines(&told_marks, message, (size_t)sent);
	}
	if (fd == console_fd && sent > 0) {
		tell_lines(&told_console, message, (size_t)sent);
	}
	return sent;
}

static bool is_card(int fd)
{
	struct stat file;

	return card.st_ino != 0 && fstat(fd, &file) == 0 && file.st_ino == card.st_ino && file.st_dev == card.st_dev;
}

/* An emulated boot ROM reads the card before the guest's first instruction, in a thread of its own: that is sometimes before
 * `start` knows the card, and sometimes after it. So nothing counts until the guest's clock runs.
 */
static ssize_t counted(int fd, ssize_t size, _Atomic uint64_t *total)
{
	const int error = errno;

	if (size > 0 && is_card(fd) && qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL) > 0) {
		atomic_fetch_add(total, (uint64_t)size);
	}
	errno = error;
	return size;
}

/* QEMU's card reads a sector at a time, and so in this way. */
ssize_t pread64(int fd, void *buffer, size_t size, off64_t offset)
{
	REAL(pread64)
	if (mailbox_path != NULL && offset >= mailbox_at && offset < mailbox_at + MAILBOX_BYTES && is_card(fd)) {
		return mailbox_read(mailbox_path, buffer, size, offset - mailbox_at);
	}
	return counted(fd, real(fd, buffer, size, offset), &read_bytes);
}

ssize_t pwrite64(int fd, const void *buffer, size_t size, off64_t offset)
{
	REAL(pwrite64)
	return counted(fd, real(fd, buffer, size, offset), &written_bytes);
}

#define COUNTED_VECTOR(name, total) \
	ssize_t name(int fd, const struct iovec *vector, int count, off64_t offset) \
	{ \
		REAL(name) \
		return counted(fd, real(fd, vector, count, offset), total); \
	}

COUNTED_VECTOR(preadv64, &read_bytes)
COUNTED_VECTOR(pwritev64, &written_bytes)
