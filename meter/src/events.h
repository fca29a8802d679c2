/** @file
 * What arrives between two ticks: bytes and edges, in the order of their times.
 *
 * When the sampling thread is so late that there is no room, what arrives is lost and counted, in its place among the
 * others.
 */
#ifndef FSJOULE_APP_EVENTS_H
#define FSJOULE_APP_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

enum event_kind {
	EVENT_MARK_BYTE,
	EVENT_MARK_ERROR, /**< of the mark line's UART, before the byte that has it */
	EVENT_MARK_EDGE,
	EVENT_COMMAND_BYTE,
};

struct event {
	uint64_t time_us;
	uint32_t lost_before; /**< events between the one before and this one for which there was no room */
	uint8_t kind;
	uint8_t value; /**< the byte; of an error: FSJ_UART_...; of an edge: 1 rising, 0 falling */
};

/** Queue what arrives now. From any context. */
void events_put(enum event_kind kind, uint8_t value);

/** Queue what arrived a moment ago, when an interrupt could not come at once: it may stand behind what arrived later.
 *
 * @param lost_before  events of its kind that were lost just before it
 */
void events_put_at(uint64_t time_us, enum event_kind kind, uint8_t value, uint32_t lost_before);

/** Take the oldest event before `before_us`.
 *
 * @retval false  there is none; `event` is untouched
 */
bool events_take(uint64_t before_us, struct event *event);

/** How many were lost behind the newest event, once that was taken. They are told once. */
uint32_t events_take_lost(void);

#endif
