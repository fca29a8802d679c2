#include "fsjoule/task.h"

#include "fsjoule/outbox.h"
#include "meter_parts.h"

void fsj_task_begin(struct fsj_meter *m, enum fsj_task_kind kind, const struct fsj_command *command, uint32_t ticks)
{
	m->task = (struct fsj_task){
		.kind = kind,
		.command = command->type,
		.request = command->seq,
		.ticks_left = ticks,
	};
}

static void answer(struct fsj_meter *m, enum fsj_reply_status status, int32_t first, int32_t second, int32_t third)
{
	const struct fsj_reply reply = {
		.request = m->task.request,
		.command = m->task.command,
		.status = (uint8_t)status,
		.values = {first, second, third},
	};

	m->task.kind = FSJ_TASK_NONE;
	fsj_outbox_reply(&m->queue.outbox, &reply);
}

/* ------------------------------------------------------------------------------------------------ calibrations */

static void end_zero(struct fsj_meter *m)
{
	const struct fsj_average *average = &m->task.average;
	const struct fsj_scale *scale = &m->chip.setup.scale;
	const bool good = fsj_calibrate_zero(average, scale, m->task.date, &m->settings.calibration);

	if (good) {
		fsj_meter_begin_stream(m);
	}
	answer(m, good ? FSJ_REPLY_DONE : FSJ_REPLY_BAD_VALUE, fsj_average_shunt_nv(average, scale),
	       fsj_average_spread_nv(average, scale), (int32_t)average->samples);
}

/* The low point is kept until a high point has made a calibration of it. */
static bool use_point(struct fsj_meter *m)
{
	const struct fsj_gain_point *point = &m->task.point;

	if (m->task.average.clipped) {
		return false;
	}
	if (m->task.kind == FSJ_TASK_LOW_POINT) {
		m->low = *point;
		m->has_low = true;
		return true;
	}
	if (!fsj_calibrate_gain(&m->low, point, m->task.date, m->settings.shunt_uohm, &m->chip.setup.scale,
				&m->settings.calibration)) {
		return false;
	}
	m->has_low = false;
	fsj_meter_begin_stream(m);
	return true;
}

static void end_point(struct fsj_meter *m)
{
	struct fsj_gain_point *point = &m->task.point;
	bool good;

	point->shunt_nv = fsj_average_shunt_nv(&m->task.average, &m->chip.setup.scale);
	point->bus_uv = fsj_average_bus_uv(&m->task.average, &m->chip.setup.scale);
	good = use_point(m);
	answer(m, good ? FSJ_REPLY_DONE : FSJ_REPLY_BAD_VALUE, point->shunt_nv, point->bus_uv,
	       (int32_t)m->task.average.samples);
}

static void calibration_tick(struct fsj_meter *m, enum fsj_status status, const struct fsj_ina219_reading *reading)
{
	struct fsj_task *task = &m->task;

	if (status == FSJ_OK) {
		fsj_average_add(&task->average, reading);
	}
	if (task->average.samples == m->settings.rate_hz) {
		if (task->kind == FSJ_TASK_ZERO) {
			end_zero(m);
		} else {
			end_point(m);
		}
	} else if (task->ticks_left == 0) {
		answer(m, FSJ_REPLY_NO_CHIP, 0, 0, 0);
	}
}

/* --------------------------------------------------------------------------------------------------- self-test */

static void self_test_tick(struct fsj_meter *m, enum fsj_status status, const struct fsj_ina219_reading *reading)
{
	struct fsj_task *task = &m->task;

	if (status == FSJ_OK) {
		task->failures |= reading->clipped ? FSJ_FAIL_CLIPPED : 0;
		answer(m, FSJ_REPLY_DONE, task->failures, reading->shunt, (int32_t)reading->bus);
	} else if (status == FSJ_I2C_FAULT) {
		answer(m, FSJ_REPLY_DONE, task->failures | (int32_t)FSJ_FAIL_NO_ANSWER, 0, 0);
	} else if (task->ticks_left == 0) {
		answer(m, FSJ_REPLY_DONE, task->failures | (int32_t)FSJ_FAIL_NO_CONVERSION, 0, 0);
	}
}

void fsj_task_tick(struct fsj_meter *m, enum fsj_status status, const struct fsj_ina219_reading *reading)
{
	if (m->task.kind == FSJ_TASK_NONE) {
		return;
	}
	m->task.ticks_left--;
	if (m->task.kind == FSJ_TASK_SELF_TEST) {
		self_test_tick(m, status, reading);
	} else {
		calibration_tick(m, status, reading);
	}
}
