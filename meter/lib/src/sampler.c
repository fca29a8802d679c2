#include "fsjoule/sampler.h"

static void open_batch(struct fsj_sampler *sampler, uint64_t time_us)
{
	struct fsj_samples *batch = &sampler->batch;

	batch->first_tick = sampler->next_tick;
	batch->first_time_us = time_us;
	batch->energy_raw = (int64_t)sampler->energy_raw;
	batch->bus_total = sampler->bus_total;
	batch->missed_total = sampler->missed_total;
	batch->flags = sampler->flags_unsaid;
	batch->count = 0;
	batch->wide = sampler->wide;
	sampler->missed_unsaid = 0;
	sampler->flags_unsaid = 0;
	sampler->batch_open = true;
}

void fsj_sampler_close(struct fsj_sampler *sampler, struct fsj_queue *queue)
{
	if (sampler->batch_open) {
		sampler->batch_open = false;
		fsj_queue_samples(queue, &sampler->batch);
	}
}

static void send_empty(struct fsj_sampler *sampler, struct fsj_queue *queue)
{
	open_batch(sampler, sampler->next_time_us);
	fsj_sampler_close(sampler, queue);
}

static uint32_t flag_bits(bool wide, const struct fsj_ina219_reading *reading)
{
	return (reading->overflow ? (wide ? FSJ_WIDE_BUS_OVERFLOW : FSJ_BUS_OVERFLOW) : 0u) |
	       (reading->clipped ? (wide ? FSJ_WIDE_BUS_CLIPPED : FSJ_BUS_CLIPPED) : 0u);
}

void fsj_sampler_add(struct fsj_sampler *sampler, struct fsj_queue *queue, uint64_t begin_us, uint64_t end_us,
		     const struct fsj_ina219_reading *reading)
{
	struct fsj_samples *batch = &sampler->batch;

	if (!sampler->batch_open) {
		open_batch(sampler, begin_us);
	}
	batch->sample[batch->count].shunt = reading->shunt;
	batch->sample[batch->count].bus = reading->bus | flag_bits(sampler->wide, reading);
	batch->count++;
	batch->flags |= (uint8_t)((reading->overflow ? FSJ_FLAG_OVERFLOW : 0) | (reading->clipped ? FSJ_FLAG_CLIPPED : 0));
	/* The sum is unsigned, so that its wrap is defined: of an INA219 after decades, of an INA228 after hours at best. */
	sampler->energy_raw += (uint64_t)((int64_t)reading->shunt * (int32_t)reading->bus);
	sampler->bus_total += reading->bus;
	sampler->next_tick++;
	sampler->next_time_us = end_us;
	if (batch->count == FSJ_SAMPLES_MAX) {
		fsj_sampler_close(sampler, queue);
	}
}

void fsj_sampler_flag(struct fsj_sampler *sampler, uint8_t flags)
{
	sampler->flags_unsaid |= flags;
}

void fsj_sampler_miss(struct fsj_sampler *sampler, struct fsj_queue *queue, uint32_t ticks, uint64_t end_us,
		      uint8_t flags)
{
	fsj_sampler_close(sampler, queue);
	sampler->missed_total += ticks;
	sampler->missed_unsaid += ticks;
	fsj_sampler_flag(sampler, flags);
	sampler->next_tick += ticks;
	sampler->next_time_us = end_us;
	/* A chip that stays away must not make the stream fall silent: an empty frame carries the count. */
	if (sampler->missed_unsaid >= FSJ_SAMPLES_MAX) {
		send_empty(sampler, queue);
	}
}

void fsj_sampler_end(struct fsj_sampler *sampler, struct fsj_queue *queue)
{
	fsj_sampler_close(sampler, queue);
	if (sampler->next_tick > 0) {
		send_empty(sampler, queue);
	}
	*sampler = (struct fsj_sampler){.wide = sampler->wide};
}
