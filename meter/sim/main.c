#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "options.h"
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

/* A real meter does not wait for a host's scheduler. Without the right to it, it goes on as it is. */
static void ask_for_priority(void)
{
	const struct sched_param priority = {.sched_priority = 10};

	if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0 && setpriority(PRIO_PROCESS, 0, -10) != 0) {
		fputs("fsjoule-meter-sim: running without raised priority\n", stderr);
	}
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
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent) {
		return EXIT_FAILURE;
	}
	ask_for_priority();
	if (!simulator_open(&simulator, &options)) {
		return EXIT_FAILURE;
	}
	simulator_run(&simulator, &stop, &wait_mask);
	simulator_close(&simulator);
	return EXIT_SUCCESS;
}
