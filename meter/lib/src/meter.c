#include "fsjoule/meter.h"

static void send(struct fsj_meter *m, const uint8_t *bytes, size_t size)
{
	m->output.frame(m->output.context, bytes, size);
	m->seq++;
}

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

static void send_info(struct fsj_meter *m)
{
	uint8_t frame[FSJ_FRAME_ENCODED_MAX_BYTES];
	struct fsj_info info = {
		.rate_hz = m->config.rate_hz,
		.shunt_uohm = m->config.shunt_uohm,
		.shunt_range_mv = fsj_ina219_range_mv(m->config.range),
		.adc_config = fsj_ina219_config(m->config.range),
		.simulated = m->config.simulated ? 1 : 0,
		.boot_id = m->config.boot_id,
	};

	copy_name(info.firmware, FSJ_VERSION);
	copy_name(info.serial_number, m->config.serial_number);
	send(m, frame, fsj_frame_info(m->seq, &info, frame));
}

/* ---------------------------------------------------------------------------------------------------- samples */

static void send_held(struct fsj_meter *m)
{
	uint8_t frame[FSJ_FRAME_ENCODED_MAX_BYTES];

	for (uint8_t i = 0; i < m->held_count; i++) {
		send(m, frame, fsj_frame_samples(m->seq, &m->held[i], frame));
	}
	if (m->batch_open) {
		m->held[0] = m->held[m->held_count];
	}
	m->held_count = 0;
}

static void send_mark(struct fsj_meter *m)
{
	uint8_t frame[FSJ_FRAME_ENCODED_MAX_BYTES];

	send(m, frame, fsj_frame_mark(m->seq, &m->line.mark, frame));
	fsj_mark_line_clear(&m->line);
	send_held(m);
}

static void open_batch(struct fsj_meter *m, uint64_t tick, uint64_t time_us)
{
	struct fsj_samples *batch = &m->held[m->held_count];

	batch->first_tick = tick;
	batch->first_time_us = time_us;
	batch->energy_raw = (int64_t)m->energy_raw;
	batch->missed_total = m->missed_total;
	batch->flags = m->flags_unsaid;
	batch->count = 0;
	m->missed_unsaid = 0;
	m->flags_unsaid = 0;
	m->batch_open = true;
}

static void close_batch(struct fsj_meter *m)
{
	if (!m->batch_open) {
		return;
	}
	m->batch_open = false;
	m->held_count++;
	if (!fsj_mark_line_open(&m->line)) {
		send_held(m);
	} else if (m->held_count == FSJ_HELD_FRAMES) {
		send_mark(m);
	}
}

static void add_sample(struct fsj_meter *m, uint64_t tick, uint64_t time_us, const struct fsj_ina219_reading *reading)
{
	struct fsj_samples *batch;

	if (!m->batch_open) {
		open_batch(m, tick, time_us);
	}
	batch = &m->held[m->held_count];
	batch->sample[batch->count].shunt = reading->shunt;
	batch->sample[batch->count].bus = reading->bus;
	batch->count++;
	batch->flags |= (uint8_t)((reading->overflow ? FSJ_FLAG_OVERFLOW : 0) | (reading->clipped ? FSJ_FLAG_CLIPPED : 0));
	/* Unsigned, so that the wrap after decades is defined; the product of both signs fits 32 bits. */
	m->energy_raw += (uint64_t)((int64_t)reading->shunt * (int64_t)reading->bus);
	if (batch->count == FSJ_SAMPLES_MAX) {
		close_batch(m);
	}
}

static void miss(struct fsj_meter *m, uint64_t ticks)
{
	close_batch(m);
	m->missed_total += (uint32_t)ticks;
	m->missed_unsaid += (uint32_t)ticks;
}

/* A chip that stays away must not make the stream fall silent: an empty frame carries the count. */
static void report_long_miss(struct fsj_meter *m, uint64_t next_tick, uint64_t next_time_us)
{
	if (m->missed_unsaid >= FSJ_SAMPLES_MAX) {
		open_batch(m, next_tick, next_time_us);
		close_batch(m);
	}
}

/* A chip that failed may have lost its supply, and with it its configuration. */
static enum fsj_status read_chip(struct fsj_meter *m, struct fsj_ina219_reading *reading)
{
	enum fsj_status status = FSJ_OK;

	if (!m->chip_started) {
		status = fsj_ina219_start(&m->i2c, m->config.range);
	}
	if (status == FSJ_OK) {
		status = fsj_ina219_read(&m->i2c, m->config.range, reading);
	}
	m->chip_started = status != FSJ_I2C_FAULT;
	return status;
}

/* ----------------------------------------------------------------------------------------------- the interface */

enum fsj_status fsj_meter_start(struct fsj_meter *meter, const struct fsj_meter_config *config,
				const struct fsj_i2c *i2c, const struct fsj_output *output)
{
	*meter = (struct fsj_meter){.config = *config, .i2c = *i2c, .output = *output};
	send_info(meter);
	meter->next_info_tick = config->rate_hz;
	meter->chip_started = fsj_ina219_start(i2c, config->range) == FSJ_OK;
	return meter->chip_started ? FSJ_OK : FSJ_I2C_FAULT;
}

void fsj_meter_tick(struct fsj_meter *m, uint64_t tick, uint64_t time_us)
{
	const uint64_t end_us = time_us + 1000000u / m->config.rate_hz;
	struct fsj_ina219_reading reading;
	enum fsj_status status;

	if (tick < m->next_tick) {
		return;
	}
	if (fsj_mark_line_silent(&m->line, end_us, m->config.mark_silence_us)) {
		send_mark(m);
	}
	if (tick >= m->next_info_tick) {
		send_info(m);
		m->next_info_tick = tick + m->config.rate_hz;
	}
	if (tick > m->next_tick) {
		miss(m, tick - m->next_tick);
	}
	m->next_tick = tick + 1;
	status = read_chip(m, &reading);
	if (status == FSJ_OK) {
		add_sample(m, tick, time_us, &reading);
		return;
	}
	miss(m, 1);
	m->flags_unsaid |= status == FSJ_I2C_FAULT ? FSJ_FLAG_I2C_FAULT : 0;
	report_long_miss(m, tick + 1, end_us);
}

void fsj_meter_mark_byte(struct fsj_meter *m, uint8_t byte, uint64_t time_us)
{
	if (!fsj_mark_line_open(&m->line) && fsj_mark_line_is_text(byte)) {
		/* What was sampled before the mark goes out before it. */
		close_batch(m);
	}
	if (fsj_mark_line_put(&m->line, byte, time_us)) {
		send_mark(m);
	}
}
