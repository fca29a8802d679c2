/* A library that is loaded into QEMU before the probe, for a test: what happens once in thousands of boots happens always.
 *
 * QEMU's main loop never rests. The CPU's thread is slow between a guest's last instruction before it idles and the moment
 * when its instructions are added to the clock.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

bool all_cpu_threads_idle(void) __attribute__((weak));

static bool is_main_thread(void)
{
	return getpid() == gettid();
}

int ppoll(struct pollfd *files, nfds_t count, const struct timespec *limit, const sigset_t *mask)
{
	static const struct timespec soon = {.tv_nsec = 20000};
	static __typeof__(&ppoll) real;

	if (real == NULL) {
		real = (__typeof__(&ppoll))dlsym(RTLD_NEXT, "ppoll");
	}
	return real(files, count, is_main_thread() ? &soon : limit, mask);
}

/* QEMU leaves an instruction that makes its CPU idle by a jump. */
void __longjmp_chk(struct __jmp_buf_tag place[1], int value) __attribute__((noreturn));

void __longjmp_chk(struct __jmp_buf_tag place[1], int value)
{
	static __typeof__(&__longjmp_chk) real;

	if (real == NULL) {
		real = (__typeof__(&__longjmp_chk))dlsym(RTLD_NEXT, "__longjmp_chk");
	}
	if (!is_main_thread() && all_cpu_threads_idle != NULL && all_cpu_threads_idle()) {
		usleep(100);
	}
	real(place, value);
	__builtin_unreachable();
}
