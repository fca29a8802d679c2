/* libFuzzer: whatever arrives at the meter, from the host, the board, the chip and the storage, it answers every command,
 * and what it sends is whole and adds up. The input is a list of events; see event().
 */

#include "check.h"
#include "fsjoule/meter.h"
#include "parse.h"

/* What may be sent in one run, so that an input cannot take for ever. */
#define TICKS_MAX 4096u

static struct {
	const uint8_t *input;
	size_t size;
	struct fsj_meter meter;
	uint64_t tick_us; /* begin of the tick under way */
	uint64_t now_us;
	uint32_t streams;
	uint32_t ticks;
	/* The chip, and the storage. */
	uint16_t registers[6];
	uint8_t failing; /* bit i: the transfer after i more fails */
	bool ready;
	uint8_t slot[FSJ_RECORD_SLOTS][FSJ_RECORD_BYTES];
	uint8_t write_stops_at;
	/* The line. */
	uint32_t frames;
	uint8_t no_room; /* bit i: the frame after i more is refused */
	bool refused;
	struct follower follower;
	uint32_t asked; /* commands that must be answered */
	uint32_t answered;
	uint32_t complaints; /* in this tick */
} fuzz;

static uint8_t take(void)
{
	if (fuzz.size == 0) {
		return 0;
	}
	fuzz.size--;
	return *fuzz.input++;
}

/* ------------------------------------------------------------------------------------------- what the core uses */

static bool next_bit(uint8_t *bits)
{
	const bool bit = (*bits & 1u) != 0;

	*bits >>= 1;
	return bit;
}

static int write_register(void *context, uint8_t reg, uint16_t value)
{
	(void)context;
	CHECK(reg == FSJ_INA219_CONFIG || reg == FSJ_INA219_CALIBRATION);
	if (next_bit(&fuzz.failing)) {
		return -1;
	}
	fuzz.registers[reg] = value;
	return 0;
}

static int read_register(void *context, uint8_t reg, uint16_t *value)
{
	(void)context;
	CHECK(reg < 6);
	if (next_bit(&fuzz.failing)) {
		return -1;
	}
	*value = fuzz.registers[reg];
	if (reg == FSJ_INA219_BUS) {
		*value = (uint16_t)((*value & ~FSJ_INA219_BUS_CNVR) | (fuzz.ready ? FSJ_INA219_BUS_CNVR : 0u));
	}
	return 0;
}

static int recover(void *context)
{
	(void)context;
	return next_bit(&fuzz.failing) ? -1 : 0;
}

static int read_slot(void *context, unsigned int slot, uint8_t *bytes, size_t size)
{
	(void)context;
	CHECK(slot < FSJ_RECORD_SLOTS && size == FSJ_RECORD_BYTES);
	memcpy(bytes, fuzz.slot[slot], size);
	return next_bit(&fuzz.failing) ? -1 : 0;
}

static int write_slot(void *context, unsigned int slot, const uint8_t *bytes, size_t size)
{
	(void)context;
	CHECK(slot < FSJ_RECORD_SLOTS && size == FSJ_RECORD_BYTES);
	memcpy(fuzz.slot[slot], bytes, fuzz.write_stops_at < size ? fuzz.write_stops_at : size);
	return next_bit(&fuzz.failing) ? -1 : 0;
}

static bool take_frame(void *context, const uint8_t *bytes, size_t size)
{
	const struct parsed frame = parse(bytes, size);

	(void)context;
	CHECK_EQUAL(frame.seq, fuzz.frames);
	fuzz.frames++;
	if (frame.type == FSJ_FRAME_REPLY) {
		const bool complaint = frame.reply.status == FSJ_REPLY_DAMAGED;

		CHECK(frame.reply.status <= FSJ_REPLY_OTHER_PROTOCOL);
		fuzz.complaints += complaint ? 1u : 0u;
		fuzz.answered += complaint ? 0u : 1u;
		CHECK(fuzz.complaints <= 1);
	}
	fuzz.refused |= next_bit(&fuzz.no_room);
	if (!fuzz.refused) {
		follow(&fuzz.follower, &frame);
	}
	return !fuzz.refused;
}

/* ---------------------------------------------------------------------------------------------------------- time */

static void follow_stream(void)
{
	if (fsj_meter_streams(&fuzz.meter) != fuzz.streams) {
		fuzz.streams = fsj_meter_streams(&fuzz.meter);
		fuzz.tick_us = fuzz.now_us;
	}
}

static void tick(uint32_t elapsed)
{
	if (fuzz.ticks >= TICKS_MAX) {
		return;
	}
	fuzz.ticks++;
	fuzz.complaints = 0;
	fuzz.tick_us += (uint64_t)elapsed * fsj_meter_period_us(&fuzz.meter);
	fuzz.now_us = fuzz.tick_us;
	fsj_meter_tick(&fuzz.meter, elapsed, fuzz.tick_us);
	follow_stream();
}

/* A little later, but within the tick. */
static void later(uint8_t by_us)
{
	if (fuzz.now_us + by_us < fuzz.tick_us + fsj_meter_period_us(&fuzz.meter)) {
		fuzz.now_us += by_us;
	}
}

/* -------------------------------------------------------------------------------------------------------- events */

static void command_byte(uint8_t byte)
{
	fsj_meter_command_byte(&fuzz.meter, byte, fuzz.now_us);
	follow_stream();
}

static void put_u32(uint8_t *out, uint32_t value)
{
	for (size_t i = 0; i < 4; i++) {
		out[i] = (uint8_t)(value >> (8 * i));
	}
}

#define PAYLOAD_MAX 32u

static void send(uint8_t type, uint8_t protocol, const uint8_t *payload, size_t length)
{
	uint8_t encoded[PAYLOAD_MAX + 12];
	const size_t size = encode_command(type, protocol, fuzz.asked, payload, length, encoded);

	command_byte(0);
	fuzz.asked += type >= 1 && type <= 5 ? 0u : 1u;
	for (size_t i = 0; i < size; i++) {
		command_byte(encoded[i]);
	}
}

/* Any command, with a payload that is taken from the input. */
static void command(void)
{
	uint8_t payload[PAYLOAD_MAX];
	const uint8_t type = take();
	const uint8_t protocol = take() == 255 ? take() : FSJ_PROTOCOL;
	const size_t length = take() % (PAYLOAD_MAX + 1);

	for (size_t i = 0; i < length; i++) {
		payload[i] = take();
	}
	send(type, protocol, payload, length);
}

/* A command whose payload is often right. */
static void right_command(void)
{
	static const uint32_t values[] = {100, 125, 1000, 2000, 2001, 1000000, 40, 320, 16, 32};
	const uint8_t type = (uint8_t)(FSJ_COMMAND_INFO + take() % 14);
	uint8_t payload[PAYLOAD_MAX] = {0};

	put_u32(payload, values[take() % 10]);
	switch (type) {
	case FSJ_COMMAND_RANGE:
	case FSJ_COMMAND_BUS_RANGE:
		send(type, FSJ_PROTOCOL, payload, 2);
		break;
	case FSJ_COMMAND_RATE:
	case FSJ_COMMAND_SHUNT:
	case FSJ_COMMAND_ZERO:
		send(type, FSJ_PROTOCOL, payload, 4);
		break;
	case FSJ_COMMAND_MARK:
		send(type, FSJ_PROTOCOL, (const uint8_t *)"0123456789abcdefghi\x7F", take() % 21u);
		break;
	default:
		send(type, FSJ_PROTOCOL, payload, 0);
	}
}

static uint16_t number(void)
{
	const uint8_t high = take();

	return (uint16_t)((unsigned int)high << 8 | take());
}

/* A point of a calibration that makes sense, measured to its end: bytes at random would hardly ever come to one. What is
 * read differs from what is true by some units of the chip.
 */
static void calibrate(uint8_t what)
{
	uint8_t payload[17] = {(uint8_t)(1 + what / 16 % 2)};
	const uint16_t shunt = number();
	const int32_t true_nv = (shunt < 0x8000u ? shunt : shunt - 0x10000) * 10000;

	put_u32(payload + 1, (uint32_t)(int32_t)((int64_t)true_nv * 1000 / fuzz.meter.settings.shunt_uohm));
	fuzz.registers[FSJ_INA219_SHUNT] = (uint16_t)(shunt + take() - 128);
	fuzz.registers[FSJ_INA219_BUS] = number();
	put_u32(payload + 5, fuzz.registers[FSJ_INA219_BUS] / 8u * 4000u + take() * 1024u);
	put_u32(payload + 9, number());
	send(what < 64 ? FSJ_COMMAND_ZERO : FSJ_COMMAND_GAIN, FSJ_PROTOCOL, payload, what < 64 ? 4 : sizeof(payload));
	for (uint32_t i = 2 * fuzz.meter.settings.rate_hz; i > 0 && fuzz.meter.task.kind != FSJ_TASK_NONE; i--) {
		tick(1);
	}
}

static void event(uint8_t what)
{
	switch (what % 16) {
	case 0:
		if (what < 128) {
			right_command();
		} else {
			command();
		}
		break;
	case 1:
		for (int count = take(); count > 0; count--) {
			command_byte((uint8_t)(take() | 1u));
		}
		break;
	case 2:
		command_byte(0);
		break;
	case 3:
		if (what < 192) {
			fsj_meter_mark_byte(&fuzz.meter, take(), fuzz.now_us);
		} else if (what < 224) {
			fsj_meter_mark_error(&fuzz.meter, take(), fuzz.now_us);
		} else {
			fsj_meter_events_lost(&fuzz.meter, take(), fuzz.now_us);
		}
		break;
	case 4:
		fuzz.registers[FSJ_INA219_CONFIG] = number();
		break;
	case 5:
		fsj_meter_mark_edge(&fuzz.meter, what < 128, fuzz.now_us);
		break;
	case 6:
		later(take());
		break;
	case 7:
		for (uint32_t count = take(); count > 0; count--) {
			tick(1);
		}
		break;
	case 8:
		tick((uint32_t)take() * take());
		break;
	case 9:
		fuzz.failing = take();
		break;
	case 10:
		fuzz.ready = what < 128;
		break;
	case 11:
		fuzz.registers[FSJ_INA219_SHUNT] = number();
		break;
	case 12:
		fuzz.registers[FSJ_INA219_BUS] = number();
		break;
	case 13:
		calibrate(what);
		break;
	case 14:
		fuzz.write_stops_at = take();
		break;
	default:
		fuzz.no_room = what < 240 ? 0 : take();
		break;
	}
	CHECK(fsj_settings_valid(&fuzz.meter.settings));
}

static void start(void)
{
	const struct fsj_i2c i2c = {
		.write_register = write_register,
		.read_register = read_register,
		.recover = recover,
	};
	const struct fsj_output output = {take_frame, NULL};
	const struct fsj_storage storage = {read_slot, write_slot, NULL};
	const struct fsj_meter_config config = {
		.defaults = {.rate_hz = 1000, .shunt_uohm = 100000, .range = FSJ_INA219_RANGE_80MV},
		.mark_silence_us = FSJ_MARK_SILENCE_US,
		.serial_number = "FUZZ",
	};
	const uint8_t stored = take();

	/* A storage that was never written, or holds the input. */
	memset(fuzz.slot, 0xFF, sizeof(fuzz.slot));
	for (size_t i = 0; stored == 1 && i < sizeof(fuzz.slot); i++) {
		fuzz.slot[i / FSJ_RECORD_BYTES][i % FSJ_RECORD_BYTES] = take();
	}
	fuzz.ready = true;
	fuzz.write_stops_at = FSJ_RECORD_BYTES;
	(void)fsj_meter_start(&fuzz.meter, &config, &i2c, &output, &storage);
	fuzz.streams = fsj_meter_streams(&fuzz.meter);
}

/* With time and a good chip, nothing is left unanswered. */
static void end(void)
{
	fuzz.ticks = 0;
	fuzz.failing = 0;
	for (uint32_t count = 2 * fuzz.meter.settings.rate_hz; count > 0 && fuzz.answered < fuzz.asked; count--) {
		tick(1);
	}
	CHECK_EQUAL(fuzz.answered, fuzz.asked);
	CHECK(fuzz.meter.task.kind == FSJ_TASK_NONE);
	fsj_meter_flush(&fuzz.meter);
	CHECK_EQUAL(fuzz.meter.queue.count, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	memset(&fuzz, 0, sizeof(fuzz));
	fuzz.input = data;
	fuzz.size = size;
	start();
	while (fuzz.size > 0) {
		event(take());
	}
	end();
	return 0;
}
