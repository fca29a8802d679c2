#include "process.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

bool process_end_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	return getppid() == parent;
}

void process_ask_for_priority(const char *program)
{
	const struct sched_param priority = {.sched_priority = 10};

	if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0 && setpriority(PRIO_PROCESS, 0, -10) != 0) {
		fprintf(stderr, "%s: running without raised priority\n", program);
	}
}
