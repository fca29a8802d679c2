#include "sampler.h"

#include <zephyr/kernel.h>

#include "clock.h"
#include "events.h"
#include "led.h"
#include "watchdog.h"

#define STACK_BYTES 3072

K_THREAD_STACK_DEFINE(stack, STACK_BYTES);

static struct k_thread thread;
static struct fsj_meter meter;
static uint32_t streams; /* when the ticks last began */
static uint64_t end_us; /* of the newest tick */

static void begin_ticks(void)
{
	streams = fsj_meter_streams(&meter);
	end_us = clock_begin_ticks(fsj_meter_period_us(&meter));
}

static void take_event(const struct event *event)
{
	if (event->lost_before > 0) {
		fsj_meter_events_lost(&meter, event->lost_before, event->time_us);
	}
	switch (event->kind) {
	case EVENT_MARK_BYTE:
		fsj_meter_mark_byte(&meter, event->value, event->time_us);
		break;
	case EVENT_MARK_ERROR:
		fsj_meter_mark_error(&meter, event->value, event->time_us);
		break;
	case EVENT_MARK_EDGE:
		fsj_meter_mark_edge(&meter, event->value != 0, event->time_us);
		break;
	default:
		fsj_meter_command_byte(&meter, event->value, event->time_us);
		break;
	}
}

/* Take what arrived before the end of the tick.
 *
 * @retval false  a new stream has begun meanwhile, and the tick is nobody's
 */
static bool take_events(void)
{
	struct event event;
	uint32_t lost;

	while (events_take(end_us, &event)) {
		take_event(&event);
		if (fsj_meter_streams(&meter) != streams) {
			return false;
		}
	}
	lost = events_take_lost();
	if (lost > 0) {
		fsj_meter_events_lost(&meter, lost, end_us);
	}
	return true;
}

static void run(void *a, void *b, void *c)
{
	ARG_UNUSED(a);
	ARG_UNUSED(b);
	ARG_UNUSED(c);
	begin_ticks();
	for (;;) {
		const uint32_t elapsed = clock_wait_tick();

		end_us += (uint64_t)elapsed * fsj_meter_period_us(&meter);
		watchdog_feed();
		if (take_events()) {
			fsj_meter_tick(&meter, elapsed, end_us);
			led_show(fsj_meter_sampled(&meter), end_us);
		}
		if (fsj_meter_streams(&meter) != streams) {
			begin_ticks();
		}
	}
}

void sampler_start(const struct fsj_meter_config *config, const struct fsj_i2c *i2c, const struct fsj_output *output,
		   const struct fsj_storage *storage)
{
	/* A chip that does not answer is tried again at every tick. */
	(void)fsj_meter_start(&meter, config, i2c, output, storage);
	k_thread_create(&thread, stack, K_THREAD_STACK_SIZEOF(stack), run, NULL, NULL, NULL, K_PRIO_COOP(0), 0,
			K_NO_WAIT);
	k_thread_name_set(&thread, "sampler");
}
