#include <stddef.h>

#include "fsjoule/command.h"
#include "fsjoule/outbox.h"
#include "little_endian.h"
#include "meter_parts.h"

/* A command with a second of samples may take twice as long, for ticks that are missed. */
#define CALIBRATION_SECONDS 2u
/* The tick under way may end before a conversion does; the one after it may not. */
#define SELF_TEST_TICKS 2u

/* What is being carried out. */
struct order {
	const struct fsj_command *command;
	uint64_t time_us;
	int32_t *values; /* of the reply; 0 at first */
};

typedef uint8_t action(struct fsj_meter *m, const struct order *order);

/* ------------------------------------------------------------------------------------------------- the stream */

static uint8_t say_info(struct fsj_meter *m, const struct order *order)
{
	(void)order;
	fsj_meter_send_info(m);
	return FSJ_REPLY_DONE;
}

/* The chip is set up anew: while the meter was stopped nobody looked at it. */
static uint8_t start(struct fsj_meter *m, const struct order *order)
{
	const struct fsj_settings settings = m->settings;

	(void)order;
	m->sampling = true;
	fsj_meter_change(m, &settings);
	return FSJ_REPLY_DONE;
}

static uint8_t stop(struct fsj_meter *m, const struct order *order)
{
	(void)order;
	fsj_meter_flush(m);
	m->sampling = false;
	fsj_meter_send_info(m);
	return FSJ_REPLY_DONE;
}

static uint8_t reset_energy(struct fsj_meter *m, const struct order *order)
{
	(void)order;
	fsj_meter_begin_stream(m);
	return FSJ_REPLY_DONE;
}

static uint8_t host_mark(struct fsj_meter *m, const struct order *order)
{
	const struct fsj_command *command = order->command;
	struct fsj_mark mark = {
		.time_us = order->time_us,
		.source = FSJ_MARK_HOST,
		.length = (uint8_t)command->length,
	};

	for (size_t i = 0; i < command->length; i++) {
		if (!fsj_mark_line_is_text(command->payload[i])) {
			return FSJ_REPLY_BAD_VALUE;
		}
		mark.text[i] = command->payload[i];
	}
	fsj_meter_mark(m, &mark);
	return FSJ_REPLY_DONE;
}

/* ----------------------------------------------------------------------------------------------- the settings */

static uint8_t set_rate(struct fsj_meter *m, const struct order *order)
{
	struct fsj_settings settings = m->settings;

	settings.rate_hz = fsj_get_u32(order->command->payload);
	if (settings.rate_hz < FSJ_RATE_MIN_HZ) {
		return FSJ_REPLY_BAD_VALUE;
	}
	if (!fsj_settings_valid(&settings)) {
		return FSJ_REPLY_RATE_NOT_HELD;
	}
	fsj_meter_change(m, &settings);
	return FSJ_REPLY_DONE;
}

/* Offset and gain are those of the amplifier at its setting. */
static uint8_t set_range(struct fsj_meter *m, const struct order *order)
{
	const uint16_t range_mv = fsj_get_u16(order->command->payload);

	for (int range = FSJ_INA219_RANGE_40MV; range <= FSJ_INA219_RANGE_320MV; range++) {
		if (fsj_ina219_range_mv((enum fsj_ina219_range)range) == range_mv) {
			struct fsj_settings settings = m->settings;

			if (settings.range != (enum fsj_ina219_range)range) {
				settings.calibration = (struct fsj_calibration){0};
			}
			settings.range = (enum fsj_ina219_range)range;
			fsj_meter_change(m, &settings);
			return FSJ_REPLY_DONE;
		}
	}
	return FSJ_REPLY_BAD_VALUE;
}

/* The offset is a voltage at the shunt, and stays where only the gains belong to a setting. */
static void forget_gains(struct fsj_calibration *calibration)
{
	*calibration = (struct fsj_calibration){
		.shunt_offset_nv = calibration->shunt_offset_nv,
		.zero_date = calibration->zero_date,
	};
}

/* The gain of the bus voltage is that of its range. */
static uint8_t set_bus_range(struct fsj_meter *m, const struct order *order)
{
	const uint16_t range_v = fsj_get_u16(order->command->payload);
	struct fsj_settings settings = m->settings;

	/* An INA228 has one range. */
	if (m->chip.kind->number != FSJ_CHIP_INA219 || (range_v != 16 && range_v != 32)) {
		return FSJ_REPLY_BAD_VALUE;
	}
	settings.bus_32v = range_v == 32;
	if (settings.bus_32v != m->settings.bus_32v) {
		forget_gains(&settings.calibration);
	}
	fsj_meter_change(m, &settings);
	return FSJ_REPLY_DONE;
}

/* The resistor's error is in the gains. */
static uint8_t set_shunt(struct fsj_meter *m, const struct order *order)
{
	struct fsj_settings settings = m->settings;

	settings.shunt_uohm = fsj_get_u32(order->command->payload);
	if (settings.shunt_uohm != m->settings.shunt_uohm) {
		forget_gains(&settings.calibration);
	}
	if (!fsj_settings_valid(&settings)) {
		return FSJ_REPLY_BAD_VALUE;
	}
	fsj_meter_change(m, &settings);
	return FSJ_REPLY_DONE;
}

static uint8_t forget_calibration(struct fsj_meter *m, const struct order *order)
{
	struct fsj_settings settings = m->settings;

	(void)order;
	settings.calibration = (struct fsj_calibration){0};
	fsj_meter_change(m, &settings);
	return FSJ_REPLY_DONE;
}

/* Erasing flash takes so long that the stream could not go on. */
static uint8_t save(struct fsj_meter *m, const struct order *order)
{
	const bool saved = fsj_store_save(&m->store, &m->settings);

	fsj_meter_begin_stream(m);
	order->values[0] = saved ? (int32_t)m->store.generation : 0;
	return saved ? FSJ_REPLY_DONE : FSJ_REPLY_NOT_STORED;
}

/* ------------------------------------------------------------------------------------- what takes many ticks */

static uint8_t zero(struct fsj_meter *m, const struct order *order)
{
	fsj_task_begin(m, FSJ_TASK_ZERO, order->command, CALIBRATION_SECONDS * m->settings.rate_hz);
	m->task.date = fsj_get_u32(order->command->payload);
	return FSJ_REPLY_LATER;
}

static uint8_t gain(struct fsj_meter *m, const struct order *order)
{
	const uint8_t *payload = order->command->payload;
	const bool is_low = payload[0] == 1;
	const struct fsj_gain_point point = {
		.true_ua = fsj_get_i32(payload + 1),
		.true_uv = fsj_get_u32(payload + 5),
		.uncertainty_ppm = fsj_get_u32(payload + 9),
	};

	if ((!is_low && (payload[0] != 2 || !m->has_low)) || !fsj_gain_point_possible(&point, m->settings.shunt_uohm, &m->chip.setup.scale)) {
		return FSJ_REPLY_BAD_VALUE;
	}
	fsj_task_begin(m, is_low ? FSJ_TASK_LOW_POINT : FSJ_TASK_HIGH_POINT, order->command,
		       CALIBRATION_SECONDS * m->settings.rate_hz);
	m->task.date = fsj_get_u32(payload + 13);
	m->task.point = point;
	return FSJ_REPLY_LATER;
}

static uint8_t self_test(struct fsj_meter *m, const struct order *order)
{
	const uint8_t storage = fsj_store_works(&m->store) ? 0 : FSJ_FAIL_NO_STORAGE;
	const uint8_t failures = (uint8_t)(fsj_chip_test(&m->chip) | storage);

	if ((failures & FSJ_FAIL_NO_ANSWER) != 0) {
		order->values[0] = failures;
		return FSJ_REPLY_DONE;
	}
	fsj_task_begin(m, FSJ_TASK_SELF_TEST, order->command, SELF_TEST_TICKS);
	m->task.failures = failures;
	return FSJ_REPLY_LATER;
}

/* --------------------------------------------------------------------------------------------- which is which */

static const struct entry {
	uint8_t type;
	uint8_t least; /* bytes of payload */
	uint8_t most;
	bool waits; /* not while a task goes on */
	action *act;
} entries[] = {
	{FSJ_COMMAND_INFO, 0, 0, false, say_info},
	{FSJ_COMMAND_START, 0, 0, true, start},
	{FSJ_COMMAND_STOP, 0, 0, true, stop},
	{FSJ_COMMAND_RATE, 4, 4, true, set_rate},
	{FSJ_COMMAND_RANGE, 2, 2, true, set_range},
	{FSJ_COMMAND_SHUNT, 4, 4, true, set_shunt},
	{FSJ_COMMAND_ZERO, 4, 4, true, zero},
	{FSJ_COMMAND_GAIN, 17, 17, true, gain},
	{FSJ_COMMAND_SAVE, 0, 0, true, save},
	{FSJ_COMMAND_RESET_ENERGY, 0, 0, true, reset_energy},
	{FSJ_COMMAND_SELF_TEST, 0, 0, true, self_test},
	{FSJ_COMMAND_FORGET_CALIBRATION, 0, 0, true, forget_calibration},
	{FSJ_COMMAND_MARK, 1, FSJ_MARK_MAX_BYTES, false, host_mark},
	{FSJ_COMMAND_BUS_RANGE, 2, 2, true, set_bus_range},
};

static const struct entry *find(uint8_t type)
{
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		if (entries[i].type == type) {
			return &entries[i];
		}
	}
	return NULL;
}

static uint8_t carry_out(struct fsj_meter *m, const struct order *order)
{
	const struct fsj_command *command = order->command;
	const struct entry *entry = find(command->type);

	if (command->protocol != FSJ_PROTOCOL) {
		return FSJ_REPLY_OTHER_PROTOCOL;
	}
	if (entry == NULL) {
		return FSJ_REPLY_UNKNOWN;
	}
	if (command->length < entry->least || command->length > entry->most) {
		return FSJ_REPLY_BAD_LENGTH;
	}
	if (entry->waits && m->task.kind != FSJ_TASK_NONE) {
		return FSJ_REPLY_BUSY;
	}
	return entry->act(m, order);
}

/* Frames of a meter come back where a line echoes; an answer would come back too. */
static bool is_echo(const struct fsj_command *command)
{
	return command->type >= FSJ_FRAME_SAMPLES && command->type <= FSJ_FRAME_WIDE_SAMPLES;
}

void fsj_meter_execute(struct fsj_meter *m, const struct fsj_command *command, uint64_t time_us)
{
	struct fsj_reply reply = {.request = command->seq, .command = command->type};
	const struct order order = {.command = command, .time_us = time_us, .values = reply.values};

	if (is_echo(command)) {
		return;
	}
	reply.status = carry_out(m, &order);
	if (reply.status != FSJ_REPLY_LATER) {
		fsj_outbox_reply(&m->queue.outbox, &reply);
	}
}

void fsj_meter_complain(struct fsj_meter *m)
{
	const struct fsj_reply reply = {.status = FSJ_REPLY_DAMAGED};

	if (!m->complained) {
		m->complained = true;
		fsj_outbox_reply(&m->queue.outbox, &reply);
	}
}
