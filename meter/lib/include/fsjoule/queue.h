/** @file
 * Samples and marks in the order of their times.
 *
 * A mark's time is that of its line's first byte, but what it says is known only when the line ends. So while a line is
 * under way, everything that comes after it is held.
 */
#ifndef FSJOULE_QUEUE_H
#define FSJOULE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "fsjoule/frame.h"
#include "fsjoule/mark_line.h"
#include "fsjoule/outbox.h"

/** Frames that wait for the end of a line. A line that has not ended when they are full is ended as it stands. */
#define FSJ_HELD_FRAMES 8u

struct fsj_held {
	bool is_mark;
	union {
		struct fsj_samples samples;
		struct fsj_mark mark;
	};
};

struct fsj_queue {
	struct fsj_outbox outbox;
	struct fsj_mark_line line;
	struct fsj_held held[FSJ_HELD_FRAMES]; /**< oldest first; empty unless a line is under way */
	uint8_t count;
	uint32_t marks_damaged; /**< lines that ended damaged; wraps */
};

/** Send samples, or hold them behind the line under way. */
void fsj_queue_samples(struct fsj_queue *queue, const struct fsj_samples *samples);

/** Send a mark, or hold it behind the line under way. */
void fsj_queue_mark(struct fsj_queue *queue, const struct fsj_mark *mark);

/** End the line under way, if there is one: send its mark, and then all that was held. */
void fsj_queue_end_line(struct fsj_queue *queue);

#endif
