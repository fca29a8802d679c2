#include "events.h"

#include <zephyr/kernel.h>

#include "clock.h"

K_MSGQ_DEFINE(queue, sizeof(struct event), CONFIG_FSJOULE_QUEUE_EVENTS, 8);

/* For which there was no room since the newest one in the queue. */
static uint32_t lost;

void events_put_at(uint64_t time_us, enum event_kind kind, uint8_t value, uint32_t lost_before)
{
	const unsigned int key = irq_lock();
	const struct event event = {
		.time_us = time_us,
		.lost_before = lost + lost_before,
		.kind = (uint8_t)kind,
		.value = value,
	};

	lost = k_msgq_put(&queue, &event, K_NO_WAIT) == 0 ? 0 : event.lost_before + 1;
	irq_unlock(key);
}

void events_put(enum event_kind kind, uint8_t value)
{
	/* No other interrupt between taking the time and queueing: the queue is in the order of the times. */
	const unsigned int key = irq_lock();

	events_put_at(clock_us(), kind, value, 0);
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

uint32_t events_take_lost(void)
{
	const unsigned int key = irq_lock();
	uint32_t count = 0;

	if (k_msgq_num_used_get(&queue) == 0) {
		count = lost;
		lost = 0;
	}
	irq_unlock(key);
	return count;
}
