#include "pace.h"

#include <zephyr/kernel.h>

#include "clock.h"
#include "host.h"
#include "host_uart.h"

#define PACE_US 1000u

/* Zephyr does its work in no time; time passes only while it waits, and here it may pass only as far as the host says.
 * In the timer's interrupt everything stands while the host waits.
 */
static void go_on(struct k_timer *timer)
{
	ARG_UNUSED(timer);
	host_wait_until(clock_us() + PACE_US);
	host_uart_poll();
}

K_TIMER_DEFINE(pace, go_on, NULL);

void pace_start(void)
{
	k_timer_start(&pace, K_NO_WAIT, K_USEC(PACE_US));
}
