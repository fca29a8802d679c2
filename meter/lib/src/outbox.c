#include "fsjoule/outbox.h"

static bool sent(struct fsj_outbox *outbox, const uint8_t *bytes, size_t size)
{
	outbox->next.seq++;
	if (outbox->output.frame(outbox->output.context, bytes, size)) {
		return true;
	}
	outbox->dropped++;
	return false;
}

bool fsj_outbox_samples(struct fsj_outbox *outbox, const struct fsj_samples *samples)
{
	uint8_t frame[FSJ_FRAME_ENCODED_MAX_BYTES];

	return sent(outbox, frame, fsj_frame_samples(outbox->next, samples, frame));
}

bool fsj_outbox_mark(struct fsj_outbox *outbox, const struct fsj_mark *mark)
{
	uint8_t frame[FSJ_FRAME_ENCODED_MAX_BYTES];

	return sent(outbox, frame, fsj_frame_mark(outbox->next, mark, frame));
}

bool fsj_outbox_info(struct fsj_outbox *outbox, const struct fsj_info *info)
{
	uint8_t frame[FSJ_FRAME_ENCODED_MAX_BYTES];

	return sent(outbox, frame, fsj_frame_info(outbox->next, info, frame));
}

bool fsj_outbox_reply(struct fsj_outbox *outbox, const struct fsj_reply *reply)
{
	uint8_t frame[FSJ_FRAME_ENCODED_MAX_BYTES];

	return sent(outbox, frame, fsj_frame_reply(outbox->next, reply, frame));
}
