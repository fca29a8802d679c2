#include "events.h"

#include <zephyr/kernel.h>

#include "clock.h"

K_MSGQ_DEFINE(queue, sizeof(struct event), CONFIG_FSJOULE_QUEUE_EVENTS, 8);

void events_put(enum event_kind kind, uint8_t value)
{
	/* No other interrupt between taking the time and queueing: the queue is in the order of the times. */
	const unsigned int key = irq_lock();
	const struct event event = {.time_us = clock_us(), .kind = (uint8_t)kind, .value = value};

	(void)k_msgq_put(&queue, &event, K_NO_WAIT);
	irq_unlock(key);
}

bool events_take(uint64_t before_us, struct event *event)
{
	struct event oldest;

	if (k_msgq_peek(&queue, &oldest) != 0 || oldest.time_us >= before_us) {
		return false;
	}
	return k_msgq_get(&queue, event, K_NO_WAIT) == 0;
}
