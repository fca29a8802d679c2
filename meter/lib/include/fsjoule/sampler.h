/** @file
 * Readings become frames of samples, with the ticks, the energy and the missed ticks of a stream.
 */
#ifndef FSJOULE_SAMPLER_H
#define FSJOULE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "fsjoule/frame.h"
#include "fsjoule/ina219.h"
#include "fsjoule/queue.h"

/** A stream's place. All zero but `wide` is its beginning. */
struct fsj_sampler {
	bool wide; /**< readings have up to 20 bits */
	uint64_t next_tick;
	uint64_t next_time_us; /**< start of that tick */
	uint64_t energy_raw; /**< two's complement */
	uint64_t bus_total;
	uint32_t missed_total;
	uint32_t missed_unsaid; /**< since a frame last carried `missed_total` */
	uint8_t flags_unsaid; /**< of missed ticks, for the next frame */
	bool batch_open;
	struct fsj_samples batch; /**< being filled */
};

/** Take the sample of the next tick, which lasted from `begin_us` to `end_us`. */
void fsj_sampler_add(struct fsj_sampler *sampler, struct fsj_queue *queue, uint64_t begin_us, uint64_t end_us,
		     const struct fsj_ina219_reading *reading);

/** The next `ticks` have no sample; the last of them ended at `end_us`. `flags` are FSJ_FLAG_... that say why. */
void fsj_sampler_miss(struct fsj_sampler *sampler, struct fsj_queue *queue, uint32_t ticks, uint64_t end_us,
		      uint8_t flags);

/** Let the next frame have these FSJ_FLAG_... */
void fsj_sampler_flag(struct fsj_sampler *sampler, uint8_t flags);

/** Send what has been sampled so far: something comes that is later. */
void fsj_sampler_close(struct fsj_sampler *sampler, struct fsj_queue *queue);

/** End the stream, and be at the beginning of the next: the last frame has no samples, but all energy and missed ticks. */
void fsj_sampler_end(struct fsj_sampler *sampler, struct fsj_queue *queue);

#endif
