/** @file
 * Where frames get their sequence numbers and leave the core.
 */
#ifndef FSJOULE_OUTBOX_H
#define FSJOULE_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsjoule/frame.h"

/** Takes an encoded frame, delimiter included.
 *
 * @retval true   it went out, or will
 * @retval false  there is no room for it, and none of it went out: its sequence number, its missed ticks and its
 *                cumulative energy will tell
 */
struct fsj_output {
	bool (*frame)(void *context, const uint8_t *bytes, size_t size);
	void *context;
};

struct fsj_outbox {
	struct fsj_output output;
	struct fsj_frame_id next; /**< of the next frame */
	uint32_t dropped; /**< frames for which there was no room; wraps */
};

/** Send a frame.
 *
 * @retval false  there was no room for it
 */
bool fsj_outbox_samples(struct fsj_outbox *outbox, const struct fsj_samples *samples);
/** @copydoc fsj_outbox_samples */
bool fsj_outbox_mark(struct fsj_outbox *outbox, const struct fsj_mark *mark);
/** @copydoc fsj_outbox_samples */
bool fsj_outbox_info(struct fsj_outbox *outbox, const struct fsj_info *info);
/** @copydoc fsj_outbox_samples */
bool fsj_outbox_reply(struct fsj_outbox *outbox, const struct fsj_reply *reply);

#endif
