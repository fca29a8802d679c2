/* The program's main(), before Zephyr's: the simulator's command line instead of Zephyr's own. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host_program.h"
#include "process.h"

#define EXIT_USAGE 2

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

/* Zephyr's threads never run at once, but hand over to each other ten thousand times a second: between processors that
 * takes a third of one, within one a twentieth.
 */
static void stay_on_one_processor(void)
{
	cpu_set_t one;
	const int cpu = sched_getcpu();

	if (cpu >= 0) {
		CPU_ZERO(&one);
		CPU_SET((unsigned int)cpu, &one);
		(void)sched_setaffinity(0, sizeof(one), &one);
	}
}

/* Zephyr's flash simulator wants a file, and goes on without one that it cannot open. Without storage it gets one that
 * nobody else sees.
 */
static bool flash_option(const struct options *options, char *text, size_t size)
{
	const int fd = options->storage != NULL ? open(options->storage, O_RDWR | O_CREAT | O_CLOEXEC, 0666)
						: memfd_create("flash", MFD_CLOEXEC);

	return fd >= 0 && snprintf(text, size, "--flash=/proc/self/fd/%d", fd) < (int)size;
}

/* Signals arrive only while the program waits for the host's clock: up to 4.2 Zephyr's own waiting for a thread ends when
 * a signal interrupts it, and two threads run at once.
 */
static void hold_back_signals(sigset_t *wait_mask)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
	sigset_t blocked;

	sigemptyset(&blocked);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		sigaddset(&blocked, signals[i]);
	}
	sigprocmask(SIG_BLOCK, &blocked, wait_mask);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		sigdelset(wait_mask, signals[i]);
	}
}

int __wrap_main(int argc, char **argv)
{
	static struct options options;
	static char flash[64];
	char *zephyr_argv[] = {argv[0], flash, NULL};
	sigset_t wait_mask;
	const pid_t parent = getppid();

	if (!options_parse(&options, argc, argv)) {
		return EXIT_USAGE;
	}
	if (options.help) {
		return EXIT_SUCCESS;
	}
	if (options.replay != NULL) {
		fputs(PROGRAM ": --replay: only the simulator replays\n", stderr);
		return EXIT_USAGE;
	}
	if (options.pin_link != NULL) {
		fputs(PROGRAM ": --pin-link: only the simulator has the mark pin\n", stderr);
		return EXIT_USAGE;
	}
	if (options.is_ina228) {
		fputs(PROGRAM ": --chip ina228: only the simulator has it\n", stderr);
		return EXIT_USAGE;
	}
	if (!process_end_with(parent)) {
		return EXIT_FAILURE;
	}
	process_ask_for_priority(PROGRAM);
	stay_on_one_processor();
	if (!flash_option(&options, flash, sizeof(flash))) {
		fprintf(stderr, PROGRAM ": --storage %s: %s\n", options.storage == NULL ? "" : options.storage,
			strerror(errno));
		return EXIT_FAILURE;
	}
	signal(SIGUSR1, host_hold_bus);
	signal(SIGUSR2, host_plug);
	hold_back_signals(&wait_mask);
	if (!host_open(&options, &wait_mask)) {
		return EXIT_FAILURE;
	}
	atexit(host_close);
	return __real_main(2, zephyr_argv);
}
