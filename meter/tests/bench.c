#include "bench.h"

#include "check.h"

struct bench bench;

/* ------------------------------------------------------------------------------------------------- the chip */

static int write_register(void *context, uint8_t reg, uint16_t value)
{
	(void)context;
	if (bench.chip == CHIP_GONE) {
		return -5;
	}
	if (reg == FSJ_INA219_CALIBRATION) {
		bench.calibration = value;
		return 0;
	}
	CHECK_EQUAL(reg, FSJ_INA219_CONFIG);
	bench.config = (value & FSJ_INA219_CONFIG_RST) != 0 ? FSJ_INA219_CONFIG_RESET_VALUE : value;
	bench.configured += (value & FSJ_INA219_CONFIG_RST) == 0 ? 1u : 0u;
	return 0;
}

static uint16_t bus_register(void)
{
	const unsigned int ready = bench.chip <= CHIP_STALE ? FSJ_INA219_BUS_CNVR : 0u;

	return (uint16_t)(((unsigned int)bench.bus << FSJ_INA219_BUS_VALUE_SHIFT) | bench.bus_flags | ready);
}

static int read_register(void *context, uint8_t reg, uint16_t *value)
{
	(void)context;
	if (bench.chip == CHIP_GONE) {
		return -5;
	}
	if (reg == FSJ_INA219_POWER && bench.chip == CHIP_STALE) {
		bench.chip = CHIP_NOT_READY;
	}
	*value = reg == FSJ_INA219_SHUNT	 ? bench.shunt
		 : reg == FSJ_INA219_BUS	 ? bus_register()
		 : reg == FSJ_INA219_CONFIG	 ? bench.config
		 : reg == FSJ_INA219_CALIBRATION ? (uint16_t)(bench.calibration | bench.stuck)
						 : 0;
	return 0;
}

static int recover(void *context)
{
	(void)context;
	bench.recovered++;
	return bench.recover_fails ? -5 : 0;
}

/* ------------------------------------------------------------------------------------------ storage and stream */

static int read_slot(void *context, unsigned int slot, uint8_t *bytes, size_t size)
{
	(void)context;
	CHECK(slot < FSJ_RECORD_SLOTS);
	CHECK_EQUAL(size, FSJ_RECORD_BYTES);
	memcpy(bytes, bench.slot[slot], size);
	return bench.read_fails ? -5 : 0;
}

static int write_slot(void *context, unsigned int slot, const uint8_t *bytes, size_t size)
{
	(void)context;
	CHECK(slot < FSJ_RECORD_SLOTS);
	CHECK_EQUAL(size, FSJ_RECORD_BYTES);
	/* As flash: it is erased first. */
	memset(bench.slot[slot], 0xFF, size);
	memcpy(bench.slot[slot], bytes, bench.write_stops_at < size ? bench.write_stops_at : size);
	return bench.write_stops_at < size ? -5 : 0;
}

/* A save is answered after the storage holds the record: a loss of power just after the answer costs nothing. */
static void check_saved(const struct fsj_reply *reply)
{
	struct fsj_storage storage = {read_slot, write_slot, NULL};
	struct fsj_settings defaults = bench_config().defaults;
	struct fsj_store store;

	if (reply->command == FSJ_COMMAND_SAVE && reply->status == FSJ_REPLY_DONE) {
		fsj_store_load(&store, &storage, &defaults);
		CHECK_EQUAL(store.generation, (uint32_t)reply->values[0]);
		CHECK(fsj_settings_equal(&store.saved, &bench.meter.settings));
	}
}

static bool take_frame(void *context, const uint8_t *bytes, size_t size)
{
	struct parsed frame = parse(bytes, size);

	(void)context;
	if (frame.type == FSJ_FRAME_REPLY) {
		check_saved(&frame.reply);
	}
	CHECK(bench.frames < BENCH_FRAMES_MAX);
	bench.frame[bench.frames++] = frame;
	if (bench.no_room) {
		return false;
	}
	follow(&bench.follower, &frame);
	return true;
}

/* -------------------------------------------------------------------------------------------------- the meter */

struct fsj_meter_config bench_config(void)
{
	return (struct fsj_meter_config){
		.defaults = {.rate_hz = 1000, .shunt_uohm = 100000, .range = FSJ_INA219_RANGE_80MV},
		.mark_silence_us = FSJ_MARK_SILENCE_US,
		.serial_number = "TEST",
		.first_stream_id = 77,
		.reset_cause = FSJ_RESET_WATCHDOG,
	};
}

void bench_clear(void)
{
	memset(&bench, 0, sizeof(bench));
	bench.shunt = 2500;
	bench.bus = 1250;
	bench.write_stops_at = FSJ_RECORD_BYTES;
	memset(bench.slot, 0xFF, sizeof(bench.slot));
}

enum fsj_status bench_start(const struct fsj_meter_config *config)
{
	const struct fsj_i2c i2c = {
		.write_register = write_register,
		.read_register = read_register,
		.recover = recover,
	};
	const struct fsj_output output = {take_frame, NULL};
	const struct fsj_storage storage = {read_slot, write_slot, NULL};

	bench.now_us = 0;
	bench.frames = 0;
	bench.follower = (struct follower){0};
	return fsj_meter_start(&bench.meter, config, &i2c, &output, &storage);
}

void bench_begin(void)
{
	const struct fsj_meter_config config = bench_config();

	bench_clear();
	CHECK_EQUAL(bench_start(&config), FSJ_OK);
}

void bench_jump(uint32_t count)
{
	bench.now_us += (uint64_t)count * fsj_meter_period_us(&bench.meter);
	fsj_meter_tick(&bench.meter, count, bench.now_us);
}

void bench_ticks(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		bench_jump(1);
	}
}

void bench_line(const char *text)
{
	for (; *text != '\0'; text++) {
		fsj_meter_mark_byte(&bench.meter, (uint8_t)*text, bench.now_us);
	}
}

void bench_bytes(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		fsj_meter_command_byte(&bench.meter, bytes[i], bench.now_us);
	}
}

/* The reply to a command that was sent when there were `before` frames, or NULL. */
static const struct fsj_reply *reply_since(size_t before)
{
	const struct fsj_reply *found = NULL;

	for (size_t i = before; i < bench.frames; i++) {
		if (bench.frame[i].type == FSJ_FRAME_REPLY) {
			CHECK(found == NULL);
			found = &bench.frame[i].reply;
		}
	}
	return found;
}

struct fsj_reply bench_command(uint8_t type, const void *payload, size_t length)
{
	uint8_t encoded[300];
	const size_t before = bench.frames;
	const struct fsj_reply *reply;
	const uint32_t seq = 0xA5000000u + ++bench.commands;

	bench_bytes(encoded, encode_command(type, FSJ_PROTOCOL, seq, payload, length, encoded));
	for (int i = 0; i < 5000 && reply_since(before) == NULL; i++) {
		bench_ticks(1);
	}
	reply = reply_since(before);
	CHECK(reply != NULL);
	CHECK_EQUAL(reply->request, seq);
	CHECK_EQUAL(reply->command, type);
	return *reply;
}

static void put_u32(uint8_t *out, uint32_t value)
{
	for (size_t i = 0; i < 4; i++) {
		out[i] = (uint8_t)(value >> (8 * i));
	}
}

struct fsj_reply bench_command_u32(uint8_t type, uint32_t value)
{
	uint8_t payload[4];

	put_u32(payload, value);
	return bench_command(type, payload, sizeof(payload));
}

struct fsj_reply bench_simple(uint8_t type)
{
	return bench_command(type, NULL, 0);
}

void bench_gain_payload(uint8_t out[BENCH_GAIN_BYTES], uint8_t point, int32_t true_ua, uint32_t true_uv)
{
	out[0] = point;
	put_u32(out + 1, (uint32_t)true_ua);
	put_u32(out + 5, true_uv);
	put_u32(out + 9, 100);
	put_u32(out + 13, BENCH_DATE);
}

struct fsj_reply bench_gain(uint8_t point, int32_t true_ua, uint32_t true_uv)
{
	uint8_t payload[BENCH_GAIN_BYTES];

	bench_gain_payload(payload, point, true_ua, true_uv);
	return bench_command(FSJ_COMMAND_GAIN, payload, sizeof(payload));
}

void bench_check_values(const struct fsj_reply *reply, int32_t first, int32_t second, int32_t third)
{
	CHECK_EQUAL(reply->values[0], first);
	CHECK_EQUAL(reply->values[1], second);
	CHECK_EQUAL(reply->values[2], third);
}

struct bench_state bench_state(void)
{
	return (struct bench_state){bench.meter.settings, bench.meter.streams, bench.meter.sampling};
}

void bench_check_same(const struct bench_state *before)
{
	CHECK(fsj_settings_equal(&bench.meter.settings, &before->settings));
	CHECK_EQUAL(bench.meter.streams, before->streams);
	CHECK_EQUAL(bench.meter.sampling, before->sampling);
}

/* ------------------------------------------------------------------------------------------------- the frames */

const struct parsed *bench_last(size_t back, uint8_t type)
{
	CHECK(back < bench.frames);
	CHECK_EQUAL(bench.frame[bench.frames - 1 - back].type, type);
	return &bench.frame[bench.frames - 1 - back];
}

const struct fsj_samples *bench_samples(size_t index)
{
	CHECK(index < bench.frames);
	CHECK_EQUAL(bench.frame[index].type, FSJ_FRAME_SAMPLES);
	return &bench.frame[index].samples;
}

const struct fsj_info *bench_info(void)
{
	CHECK(bench.follower.has_info);
	return &bench.follower.info;
}

uint32_t bench_stream(void)
{
	CHECK(bench.follower.has_info);
	return bench.follower.stream_id;
}

void bench_check_mark(size_t index, uint8_t source, const char *text, uint64_t time_us)
{
	const struct fsj_mark *mark = &bench.frame[index].mark;

	CHECK(index < bench.frames);
	CHECK_EQUAL(bench.frame[index].type, FSJ_FRAME_MARK);
	CHECK_EQUAL(mark->source, source);
	CHECK_EQUAL(mark->flags, 0);
	CHECK_EQUAL(mark->length, strlen(text));
	CHECK(memcmp(mark->text, text, strlen(text)) == 0);
	CHECK_EQUAL(mark->time_us, time_us);
}
