/** @file
 * What arrives between two ticks: bytes and edges, in the order of their times.
 */
#ifndef FSJOULE_APP_EVENTS_H
#define FSJOULE_APP_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

enum event_kind { EVENT_MARK_BYTE, EVENT_MARK_EDGE, EVENT_COMMAND_BYTE };

struct event {
	uint64_t time_us;
	uint8_t kind;
	uint8_t value; /**< the byte; of an edge: 1 rising, 0 falling */
};

/** Queue what arrives now. From an interrupt. When the sampling thread is so late that the queue is full it is lost. */
void events_put(enum event_kind kind, uint8_t value);

/** Take the oldest event before `before_us`.
 *
 * @retval false  there is none; `event` is untouched
 */
bool events_take(uint64_t before_us, struct event *event);

#endif
