#include "fsjoule/queue.h"

static void send_held(struct fsj_queue *queue)
{
	for (uint8_t i = 0; i < queue->count; i++) {
		if (queue->held[i].is_mark) {
			fsj_outbox_mark(&queue->outbox, &queue->held[i].mark);
		} else {
			fsj_outbox_samples(&queue->outbox, &queue->held[i].samples);
		}
	}
	queue->count = 0;
}

static void holds_one_more(struct fsj_queue *queue)
{
	queue->count++;
	if (queue->count == FSJ_HELD_FRAMES) {
		fsj_queue_end_line(queue);
	}
}

void fsj_queue_samples(struct fsj_queue *queue, const struct fsj_samples *samples)
{
	if (!fsj_mark_line_open(&queue->line)) {
		fsj_outbox_samples(&queue->outbox, samples);
		return;
	}
	queue->held[queue->count].is_mark = false;
	queue->held[queue->count].samples = *samples;
	holds_one_more(queue);
}

void fsj_queue_mark(struct fsj_queue *queue, const struct fsj_mark *mark)
{
	if (!fsj_mark_line_open(&queue->line)) {
		fsj_outbox_mark(&queue->outbox, mark);
		return;
	}
	queue->held[queue->count].is_mark = true;
	queue->held[queue->count].mark = *mark;
	holds_one_more(queue);
}

void fsj_queue_end_line(struct fsj_queue *queue)
{
	if (fsj_mark_line_open(&queue->line)) {
		fsj_mark_line_judge(&queue->line);
		queue->marks_damaged += (queue->line.mark.flags & FSJ_MARK_DAMAGED) != 0 ? 1u : 0u;
		fsj_outbox_mark(&queue->outbox, &queue->line.mark);
		fsj_mark_line_clear(&queue->line);
		send_held(queue);
	}
}
