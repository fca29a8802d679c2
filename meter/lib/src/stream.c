#include "meter_parts.h"

/* After this many ticks an info frame for which there was no room is tried again. */
#define INFO_AGAIN_TICKS 20u

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
		.shunt_range_mv = m->chip.setup.scale.shunt_mv,
		.adc_config = m->chip.setup.config,
		.flags = info_flags(m),
		.reset_cause = (uint8_t)m->config.reset_cause,
		.i2c_faults = m->chip.faults,
		.frames_dropped = m->queue.outbox.dropped,
		.calibration = m->settings.calibration,
		.inputs = m->inputs,
		.chip = m->chip.kind->number,
		.shunt_unit_pv = m->chip.setup.scale.shunt_unit_pv,
		.bus_unit_pv = m->chip.setup.scale.bus_unit_pv,
	};

	info.inputs.marks_damaged = m->queue.marks_damaged;
	copy_name(info.firmware, FSJ_VERSION);
	copy_name(info.serial_number, m->config.serial_number);
	m->ticks_to_info = fsj_outbox_info(&m->queue.outbox, &info) ? m->settings.rate_hz : INFO_AGAIN_TICKS;
}

void fsj_meter_flush(struct fsj_meter *m)
{
	fsj_sampler_end(&m->sampler, &m->queue);
	fsj_queue_end_line(&m->queue);
}

void fsj_meter_begin_stream(struct fsj_meter *m)
{
	fsj_meter_flush(m);
	m->queue.outbox.next.stream_id = m->config.first_stream_id + m->streams;
	m->streams++;
	fsj_meter_send_info(m);
}

enum fsj_status fsj_meter_start_chip(struct fsj_meter *m)
{
	struct fsj_ina219_setup setup = m->chip.setup;

	/* Settings are valid, so that there always is a resolution. */
	(void)m->chip.kind->choose(&m->settings, &setup);
	return fsj_chip_start(&m->chip, &setup);
}

void fsj_meter_change(struct fsj_meter *m, const struct fsj_settings *settings)
{
	const bool is_same = settings->rate_hz == m->settings.rate_hz && settings->range == m->settings.range &&
			     settings->shunt_uohm == m->settings.shunt_uohm &&
			     settings->bus_32v == m->settings.bus_32v;

	m->has_low = m->has_low && is_same;
	m->settings = *settings;
	(void)fsj_meter_start_chip(m);
	fsj_meter_begin_stream(m);
}

void fsj_meter_mark(struct fsj_meter *m, const struct fsj_mark *mark)
{
	/* What was sampled before the mark goes out before it. */
	fsj_sampler_close(&m->sampler, &m->queue);
	fsj_queue_mark(&m->queue, mark);
}
