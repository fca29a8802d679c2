#include "parse.h"

#include "check.h"
#include "fsjoule/chip.h"

static uint64_t little_endian(const uint8_t *bytes, size_t size)
{
	uint64_t value = 0;

	for (size_t i = size; i > 0; i--) {
		value = value << 8 | bytes[i - 1];
	}
	return value;
}

/* By its definition, bit by bit. */
static uint32_t crc(const uint8_t *bytes, size_t size)
{
	uint32_t value = 0xFFFFFFFFu;

	for (size_t i = 0; i < 8 * size; i++) {
		const uint32_t bit = ((uint32_t)bytes[i / 8] >> (i % 8)) & 1u;

		value = (value >> 1) ^ (((value ^ bit) & 1u) != 0 ? 0xEDB88320u : 0u);
	}
	return ~value;
}

/* ----------------------------------------------------------------------------------------------------- parsing */

/* The content of an encoded frame; its length is returned. */
static size_t unstuff(const uint8_t *encoded, size_t size, uint8_t *content)
{
	size_t next;

	CHECK(size >= 2 && size <= FSJ_FRAME_ENCODED_MAX_BYTES);
	next = encoded[0];
	CHECK(next > 0);
	for (size_t i = 1; i + 1 < size; i++) {
		CHECK(encoded[i] != 0);
		content[i - 1] = i == next ? 0 : encoded[i];
		next += i == next ? encoded[i] : 0u;
	}
	CHECK_EQUAL(encoded[size - 1], 0);
	CHECK_EQUAL(next, size - 1);
	return size - 2;
}

static void parse_samples(const uint8_t *payload, size_t length, bool wide, struct fsj_samples *samples)
{
	const size_t bytes = wide ? 3 : 2; /* of a value */

	CHECK(length >= 42);
	samples->first_tick = little_endian(payload + 4, 8);
	samples->first_time_us = little_endian(payload + 12, 8);
	samples->energy_raw = (int64_t)little_endian(payload + 20, 8);
	samples->bus_total = little_endian(payload + 28, 8);
	samples->missed_total = (uint32_t)little_endian(payload + 36, 4);
	samples->flags = payload[40];
	samples->count = payload[41];
	CHECK(samples->count <= FSJ_SAMPLES_MAX);
	samples->wide = wide;
	CHECK_EQUAL(length, 42u + 2u * bytes * samples->count);
	for (uint8_t i = 0; i < samples->count; i++) {
		const uint8_t *at = payload + 42 + 2 * bytes * i;
		const int32_t shunt = (int32_t)little_endian(at, bytes);
		const uint32_t bus = (uint32_t)little_endian(at + bytes, bytes);
		const uint32_t own = bus >> (8 * bytes - 3);

		samples->sample[i].shunt = shunt < 1 << (8 * bytes - 1) ? shunt : shunt - (1 << 8 * bytes);
		samples->sample[i].bus = bus;
		CHECK((own & 1) == 0 && (!wide || (bus & 0x100000) == 0));
		/* What a sample's own bits say, its frame's flags say too. */
		CHECK((own & 2) == 0 || (samples->flags & 0x01) != 0);
		CHECK((own & 4) == 0 || (samples->flags & 0x02) != 0);
	}
}

static void parse_mark(const uint8_t *payload, size_t length, struct fsj_mark *mark)
{
	CHECK(length >= 15);
	mark->time_us = little_endian(payload + 4, 8);
	mark->source = payload[12];
	mark->flags = payload[13];
	mark->length = payload[14];
	CHECK(mark->source <= FSJ_MARK_HOST);
	CHECK(mark->flags <= 2 && (mark->flags == 0 || mark->source == FSJ_MARK_LINE));
	CHECK(mark->length <= FSJ_MARK_MAX_BYTES);
	CHECK_EQUAL(length, 15u + mark->length);
	for (uint8_t i = 0; i < mark->length; i++) {
		mark->text[i] = payload[15 + i];
		CHECK(mark->text[i] >= 0x20 && mark->text[i] <= 0x7E);
	}
}

static void parse_info(const uint8_t *payload, size_t length, struct fsj_info *info)
{
	CHECK_EQUAL(length, 111);
	info->rate_hz = (uint32_t)little_endian(payload + 4, 4);
	info->shunt_uohm = (uint32_t)little_endian(payload + 8, 4);
	info->shunt_range_mv = (uint16_t)little_endian(payload + 12, 2);
	info->adc_config = (uint16_t)little_endian(payload + 14, 2);
	info->flags = payload[16];
	info->reset_cause = payload[17];
	memcpy(info->firmware, payload + 18, 16);
	memcpy(info->serial_number, payload + 34, 16);
	info->i2c_faults = (uint32_t)little_endian(payload + 50, 4);
	info->frames_dropped = (uint32_t)little_endian(payload + 54, 4);
	info->calibration.shunt_offset_nv = (int32_t)little_endian(payload + 58, 4);
	info->calibration.current_gain_ppm = (int32_t)little_endian(payload + 62, 4);
	info->calibration.bus_gain_ppm = (int32_t)little_endian(payload + 66, 4);
	info->calibration.gain_uncertainty_ppm = (uint32_t)little_endian(payload + 70, 4);
	info->calibration.zero_date = (uint32_t)little_endian(payload + 74, 4);
	info->calibration.gain_date = (uint32_t)little_endian(payload + 78, 4);
	info->inputs.events_lost = (uint32_t)little_endian(payload + 82, 4);
	info->inputs.mark_framing = (uint32_t)little_endian(payload + 86, 4);
	info->inputs.mark_overruns = (uint32_t)little_endian(payload + 90, 4);
	info->inputs.mark_noise = (uint32_t)little_endian(payload + 94, 4);
	info->inputs.marks_damaged = (uint32_t)little_endian(payload + 98, 4);
	info->chip = payload[102];
	info->shunt_unit_pv = (uint32_t)little_endian(payload + 103, 4);
	info->bus_unit_pv = (uint32_t)little_endian(payload + 107, 4);
}

static void parse_reply(const uint8_t *payload, size_t length, struct fsj_reply *reply)
{
	CHECK_EQUAL(length, 22);
	reply->request = (uint32_t)little_endian(payload + 4, 4);
	reply->command = payload[8];
	reply->status = payload[9];
	for (size_t i = 0; i < FSJ_REPLY_VALUES; i++) {
		reply->values[i] = (int32_t)little_endian(payload + 10 + 4 * i, 4);
	}
}

struct parsed parse(const uint8_t *encoded, size_t size)
{
	uint8_t content[FSJ_FRAME_ENCODED_MAX_BYTES];
	const size_t length = unstuff(encoded, size, content);
	const uint8_t *payload = content + 6;
	struct parsed frame = {0};

	CHECK(length >= 14);
	CHECK_EQUAL(content[1], 3);
	CHECK_EQUAL(little_endian(content + length - 4, 4), crc(content, length - 4));
	frame.type = content[0];
	frame.seq = (uint32_t)little_endian(content + 2, 4);
	frame.stream_id = (uint32_t)little_endian(payload, 4);
	switch (frame.type) {
	case 1:
		parse_samples(payload, length - 10, false, &frame.samples);
		break;
	case 5:
		parse_samples(payload, length - 10, true, &frame.samples);
		break;
	case 2:
		parse_mark(payload, length - 10, &frame.mark);
		break;
	case 3:
		parse_info(payload, length - 10, &frame.info);
		break;
	default:
		CHECK_EQUAL(frame.type, 4);
		parse_reply(payload, length - 10, &frame.reply);
	}
	return frame;
}

/* ---------------------------------------------------------------------------------------------------- commands */

/* Each zero, and the end, is told by the distance to it. */
static size_t stuff(const uint8_t *content, size_t length, uint8_t *out)
{
	uint8_t distance = 1;

	out[length + 1] = 0;
	for (size_t i = length; i > 0; i--) {
		out[i] = content[i - 1] == 0 ? distance : content[i - 1];
		distance = content[i - 1] == 0 ? 1 : (uint8_t)(distance + 1);
	}
	out[0] = distance;
	return length + 2;
}

size_t encode_command(uint8_t type, uint8_t protocol, uint32_t seq, const uint8_t *payload, size_t length, uint8_t *out)
{
	uint8_t content[253] = {type, protocol};
	uint32_t sum;

	CHECK(length + 10 <= sizeof(content));
	for (size_t i = 0; i < 4; i++) {
		content[2 + i] = (uint8_t)(seq >> (8 * i));
	}
	if (length > 0) {
		memcpy(content + 6, payload, length);
	}
	sum = crc(content, length + 6);
	for (size_t i = 0; i < 4; i++) {
		content[6 + length + i] = (uint8_t)(sum >> (8 * i));
	}
	return stuff(content, length + 10, out);
}

/* --------------------------------------------------------------------------------------------------- following */

static uint64_t period_us(const struct follower *f)
{
	return 1000000u / f->info.rate_hz;
}

static void follow_info(struct follower *f, uint32_t stream_id, const struct fsj_info *info)
{
	const bool is_new = !f->has_info || stream_id != f->stream_id;

	CHECK(info->rate_hz >= 100 && info->rate_hz <= 2000 && 1000000 % info->rate_hz == 0);
	if (is_new) {
		f->has_begin = false;
		f->next_tick = 0;
		f->missed = 0;
		f->energy = 0;
		f->bus_total = 0;
	} else {
		/* Nothing that a sample's meaning hangs on changes within a stream. */
		CHECK_EQUAL(info->rate_hz, f->info.rate_hz);
		CHECK_EQUAL(info->shunt_uohm, f->info.shunt_uohm);
		CHECK_EQUAL(info->adc_config, f->info.adc_config);
		CHECK_EQUAL(info->shunt_unit_pv, f->info.shunt_unit_pv);
		CHECK_EQUAL(info->bus_unit_pv, f->info.bus_unit_pv);
		CHECK(memcmp(&info->calibration, &f->info.calibration, sizeof(info->calibration)) == 0);
	}
	f->has_info = true;
	f->stream_id = stream_id;
	f->info = *info;
}

static void follow_time(struct follower *f, const struct fsj_samples *samples)
{
	const uint64_t begin_us = samples->first_time_us - samples->first_tick * period_us(f);

	if (f->has_begin) {
		CHECK_EQUAL(begin_us, f->begin_us);
	}
	f->has_begin = true;
	f->begin_us = begin_us;
	CHECK(samples->first_time_us + period_us(f) >= f->newest_us);
	f->newest_us = samples->first_time_us + samples->count * period_us(f);
}

static void follow_samples(struct follower *f, const struct fsj_samples *samples)
{
	CHECK(samples->first_tick < 1ull << 63 && samples->first_time_us < 1ull << 63);
	CHECK(samples->first_tick >= f->next_tick);
	CHECK_EQUAL((uint32_t)(samples->first_tick - f->next_tick), samples->missed_total - f->missed);
	CHECK_EQUAL(samples->energy_raw, f->energy);
	CHECK_EQUAL(samples->bus_total, f->bus_total);
	CHECK((f->info.flags & FSJ_INFO_SAMPLING) != 0);
	/* A stream has samples of one type. */
	CHECK_EQUAL(samples->wide, f->info.chip == FSJ_CHIP_INA228);
	for (uint8_t i = 0; i < samples->count; i++) {
		const uint32_t bus = samples->sample[i].bus & (samples->wide ? 0xFFFFFu : 0x1FFFu);

		f->energy += (int64_t)samples->sample[i].shunt * bus;
		f->bus_total += bus;
	}
	f->next_tick = samples->first_tick + samples->count;
	f->missed = samples->missed_total;
	follow_time(f, samples);
}

void follow(struct follower *f, const struct parsed *frame)
{
	CHECK_EQUAL(frame->seq, f->frames);
	f->frames++;
	CHECK(frame->type == FSJ_FRAME_INFO || (f->has_info && frame->stream_id == f->stream_id));
	if (frame->type == FSJ_FRAME_INFO) {
		follow_info(f, frame->stream_id, &frame->info);
	} else if (frame->type == FSJ_FRAME_SAMPLES || frame->type == FSJ_FRAME_WIDE_SAMPLES) {
		follow_samples(f, &frame->samples);
	} else if (frame->type == FSJ_FRAME_MARK) {
		CHECK(frame->mark.time_us + period_us(f) >= f->newest_us);
		f->newest_us = frame->mark.time_us;
	}
}
