#include "fsjoule/meter.h"

#include "meter_parts.h"

/* Up to this rate the chip is asked each second whether it is still as it was set up. */
#define CHECK_MAX_HZ 1000u

enum fsj_status fsj_meter_start(struct fsj_meter *m, const struct fsj_meter_config *config, const struct fsj_i2c *i2c,
				const struct fsj_output *output, const struct fsj_storage *storage)
{
	enum fsj_status status;

	*m = (struct fsj_meter){.config = *config, .sampling = true};
	m->chip.kind = config->chip != NULL ? config->chip : &fsj_chip_ina219;
	m->chip.i2c = *i2c;
	m->sampler.wide = m->chip.kind->wide;
	m->queue.outbox.output = *output;
	fsj_store_load(&m->store, storage, &config->defaults);
	m->settings = m->store.saved;
	status = fsj_meter_start_chip(m);
	fsj_meter_begin_stream(m);
	return status;
}

uint32_t fsj_meter_period_us(const struct fsj_meter *m)
{
	return 1000000u / m->settings.rate_hz;
}

uint32_t fsj_meter_streams(const struct fsj_meter *m)
{
	return m->streams;
}

/* ------------------------------------------------------------------------------------------------------ events */

/* @retval true  a second is over, and the info frame is sent */
static bool count_to_info(struct fsj_meter *m, uint32_t elapsed)
{
	if (elapsed < m->ticks_to_info) {
		m->ticks_to_info -= elapsed;
		return false;
	}
	fsj_meter_send_info(m);
	return true;
}

static void take_reading(struct fsj_meter *m, uint64_t end_us)
{
	const uint64_t begin_us = end_us - fsj_meter_period_us(m);
	struct fsj_ina219_reading reading;
	uint8_t flags = 0;
	enum fsj_status status;

	m->sampled = false;
	if (!m->sampling && m->task.kind == FSJ_TASK_NONE) {
		return;
	}
	status = fsj_chip_read(&m->chip, &reading, &flags);
	m->sampled = m->sampling && status == FSJ_OK;
	if (m->sampled) {
		fsj_sampler_add(&m->sampler, &m->queue, begin_us, end_us, &reading);
	} else if (m->sampling) {
		fsj_sampler_miss(&m->sampler, &m->queue, 1, end_us, flags);
	}
	fsj_task_tick(m, status, &reading);
}

/* At the faster rates there is no time for it, and a chip with its default configuration is late. */
static void check_chip(struct fsj_meter *m)
{
	uint8_t flags = 0;

	if (m->sampling && m->settings.rate_hz <= CHECK_MAX_HZ) {
		fsj_chip_check(&m->chip, &flags);
		fsj_sampler_flag(&m->sampler, flags);
	}
}

void fsj_meter_tick(struct fsj_meter *m, uint32_t elapsed, uint64_t end_us)
{
	bool is_second;

	if (elapsed == 0) {
		return;
	}
	m->complained = false;
	if (fsj_mark_line_silent(&m->queue.line, end_us, m->config.mark_silence_us)) {
		fsj_queue_end_line(&m->queue);
	}
	if (fsj_receiver_gives_up(&m->receiver, end_us)) {
		fsj_meter_complain(m);
	}
	if (m->sampling && elapsed > 1) {
		fsj_sampler_miss(&m->sampler, &m->queue, elapsed - 1, end_us - fsj_meter_period_us(m), 0);
	}
	is_second = count_to_info(m, elapsed);
	take_reading(m, end_us);
	if (is_second) {
		check_chip(m);
	}
}

bool fsj_meter_sampled(const struct fsj_meter *m)
{
	return m->sampled;
}

void fsj_meter_mark_edge(struct fsj_meter *m, bool rising, uint64_t time_us)
{
	const struct fsj_mark mark = {
		.time_us = time_us,
		.source = rising ? FSJ_MARK_RISING : FSJ_MARK_FALLING,
	};

	fsj_meter_mark(m, &mark);
}

void fsj_meter_mark_byte(struct fsj_meter *m, uint8_t byte, uint64_t time_us)
{
	if (!fsj_mark_line_open(&m->queue.line) && fsj_mark_line_is_text(byte)) {
		fsj_sampler_close(&m->sampler, &m->queue);
	}
	if (fsj_mark_line_put(&m->queue.line, byte, time_us)) {
		fsj_queue_end_line(&m->queue);
	}
}

void fsj_meter_mark_error(struct fsj_meter *m, uint8_t errors, uint64_t time_us)
{
	m->inputs.mark_framing += (errors & FSJ_UART_FRAMING) != 0 ? 1u : 0u;
	m->inputs.mark_overruns += (errors & FSJ_UART_OVERRUN) != 0 ? 1u : 0u;
	m->inputs.mark_noise += (errors & FSJ_UART_NOISE) != 0 ? 1u : 0u;
	fsj_mark_line_hit(&m->queue.line, time_us);
	fsj_sampler_flag(&m->sampler, FSJ_FLAG_MARK_ERROR);
}

void fsj_meter_events_lost(struct fsj_meter *m, uint32_t count, uint64_t time_us)
{
	m->inputs.events_lost += count;
	fsj_mark_line_hit(&m->queue.line, time_us);
	fsj_sampler_flag(&m->sampler, FSJ_FLAG_EVENTS_LOST);
}

void fsj_meter_command_byte(struct fsj_meter *m, uint8_t byte, uint64_t time_us)
{
	struct fsj_command command;

	if (fsj_receiver_gives_up(&m->receiver, time_us)) {
		fsj_meter_complain(m);
	}
	switch (fsj_receiver_put(&m->receiver, byte, time_us, &command)) {
	case FSJ_RECEIVED_COMMAND:
		fsj_meter_execute(m, &command, time_us);
		break;
	case FSJ_RECEIVED_DAMAGE:
		fsj_meter_complain(m);
		break;
	case FSJ_RECEIVED_NOTHING:
		break;
	}
}
