#include "fsjoule/meter.h"

#include "meter_parts.h"

/* After this many ticks an info frame for which there was no room is tried again. */
#define INFO_AGAIN_TICKS 20u
/* Up to this rate the chip is asked each second whether it is still as it was set up. */
#define CHECK_MAX_HZ 1000u

/* ------------------------------------------------------------------------------------------------------- info */

static void copy_name(uint8_t out[FSJ_NAME_BYTES], const char *name)
{
	for (size_t i = 0; i < FSJ_NAME_BYTES; i++) {
		out[i] = (uint8_t)*name;
		if (*name != '\0') {
			name++;
		}
	}
}

static uint8_t info_flags(const struct fsj_meter *m)
{
	const bool unsaved = !fsj_settings_equal(&m->settings, &m->store.saved);

	return (uint8_t)((m->config.simulated ? FSJ_INFO_SIMULATED : 0) | (m->sampling ? FSJ_INFO_SAMPLING : 0) |
			 (unsaved ? FSJ_INFO_UNSAVED : 0) | (m->store.damaged ? FSJ_INFO_DAMAGED : 0));
}

void fsj_meter_send_info(struct fsj_meter *m)
{
	struct fsj_info info = {
		.rate_hz = m->settings.rate_hz,
		.shunt_uohm = m->settings.shunt_uohm,
		.shunt_range_mv = fsj_ina219_range_mv(m->settings.range),
		.adc_config = m->chip.setup.config,
		.flags = info_flags(m),
		.reset_cause = (uint8_t)m->config.reset_cause,
		.stream_id = m->config.first_stream_id + m->streams - 1,
		.i2c_faults = m->chip.faults,
		.frames_dropped = m->queue.outbox.dropped,
		.calibration = m->settings.calibration,
	};

	copy_name(info.firmware, FSJ_VERSION);
	copy_name(info.serial_number, m->config.serial_number);
	m->ticks_to_info = fsj_outbox_info(&m->queue.outbox, &info) ? m->settings.rate_hz : INFO_AGAIN_TICKS;
}

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

/* ---------------------------------------------------------------------------------------------------- streams */

void fsj_meter_flush(struct fsj_meter *m)
{
	fsj_sampler_end(&m->sampler, &m->queue);
	fsj_queue_end_line(&m->queue);
}

void fsj_meter_begin_stream(struct fsj_meter *m)
{
	fsj_meter_flush(m);
	m->streams++;
	fsj_meter_send_info(m);
}

static enum fsj_status start_chip(struct fsj_meter *m)
{
	struct fsj_ina219_setup setup = m->chip.setup;

	/* Settings are valid, so that there always is a resolution. */
	(void)fsj_ina219_choose(m->settings.rate_hz, m->settings.range, &setup);
	return fsj_chip_start(&m->chip, &setup);
}

void fsj_meter_change(struct fsj_meter *m, const struct fsj_settings *settings)
{
	const bool is_same = settings->rate_hz == m->settings.rate_hz && settings->range == m->settings.range &&
			     settings->shunt_uohm == m->settings.shunt_uohm;

	m->has_low = m->has_low && is_same;
	m->settings = *settings;
	(void)start_chip(m);
	fsj_meter_begin_stream(m);
}

enum fsj_status fsj_meter_start(struct fsj_meter *m, const struct fsj_meter_config *config, const struct fsj_i2c *i2c,
				const struct fsj_output *output, const struct fsj_storage *storage)
{
	enum fsj_status status;

	*m = (struct fsj_meter){.config = *config, .sampling = true};
	m->chip.i2c = *i2c;
	m->queue.outbox.output = *output;
	fsj_store_load(&m->store, storage, &config->defaults);
	m->settings = m->store.saved;
	status = start_chip(m);
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

static void take_reading(struct fsj_meter *m, uint64_t end_us)
{
	const uint64_t begin_us = end_us - fsj_meter_period_us(m);
	struct fsj_ina219_reading reading;
	uint8_t flags = 0;
	enum fsj_status status;

	if (!m->sampling && m->task.kind == FSJ_TASK_NONE) {
		return;
	}
	status = fsj_chip_read(&m->chip, &reading, &flags);
	if (m->sampling && status == FSJ_OK) {
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

void fsj_meter_mark(struct fsj_meter *m, const struct fsj_mark *mark)
{
	/* What was sampled before the mark goes out before it. */
	fsj_sampler_close(&m->sampler, &m->queue);
	fsj_queue_mark(&m->queue, mark);
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
