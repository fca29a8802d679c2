#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "follower.h"
#include "options.h"
#include "process.h"
#include "replay.h"
#include "simulator.h"

#define EXIT_USAGE 2

static volatile sig_atomic_t stop;

static void request_stop(int number)
{
	(void)number;
	stop = 1;
}

/* The signals arrive only while the simulator waits, so that none is lost between looking at the flag and waiting. */
static void catch_signals(sigset_t *wait_mask)
{
	const struct sigaction action = {.sa_handler = request_stop};
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGTERM);
	sigaddset(&blocked, SIGINT);
	sigprocmask(SIG_BLOCK, &blocked, wait_mask);
	sigdelset(wait_mask, SIGTERM);
	sigdelset(wait_mask, SIGINT);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
}

static int follow(const struct options *options, const sigset_t *wait_mask)
{
	static struct follower follower;

	if (!follower_open(&follower, options)) {
		return EXIT_FAILURE;
	}
	follower_run(&follower, &stop, wait_mask);
	follower_close(&follower);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	static struct simulator simulator;
	struct options options;
	sigset_t wait_mask;
	const pid_t parent = getppid();

	if (!options_parse(&options, argc, argv)) {
		return EXIT_USAGE;
	}
	if (options.help) {
		return EXIT_SUCCESS;
	}
	if (options.replay != NULL) {
		return replay_run(&options) ? EXIT_SUCCESS : EXIT_FAILURE;
	}
	catch_signals(&wait_mask);
	if (!process_end_with(parent)) {
		return EXIT_FAILURE;
	}
	if (options.follow != NULL) {
		return follow(&options, &wait_mask);
	}
	process_ask_for_priority("fsjoule-meter-sim");
	if (!simulator_open(&simulator, &options)) {
		return EXIT_FAILURE;
	}
	simulator_run(&simulator, &stop, &wait_mask);
	simulator_close(&simulator);
	return EXIT_SUCCESS;
}
