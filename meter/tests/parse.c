#include "parse.h"

#include "check.h"

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

static void parse_samples(const uint8_t *payload, size_t length, struct fsj_samples *samples)
{
	CHECK(length >= 38);
	samples->first_tick = little_endian(payload, 8);
	samples->first_time_us = little_endian(payload + 8, 8);
	samples->energy_raw = (int64_t)little_endian(payload + 16, 8);
	samples->bus_total = little_endian(payload + 24, 8);
	samples->missed_total = (uint32_t)little_endian(payload + 32, 4);
	samples->flags = payload[36];
	samples->count = payload[37];
	CHECK(samples->count <= FSJ_SAMPLES_MAX);
	CHECK_EQUAL(length, 38u + 4u * samples->count);
	for (uint8_t i = 0; i < samples->count; i++) {
		samples->sample[i].shunt = (int16_t)little_endian(payload + 38 + 4 * i, 2);
		samples->sample[i].bus = (uint16_t)little_endian(payload + 40 + 4 * i, 2);
	}
}

static void parse_mark(const uint8_t *payload, size_t length, struct fsj_mark *mark)
{
	CHECK(length >= 10);
	mark->time_us = little_endian(payload, 8);
	mark->source = payload[8];
	mark->length = payload[9];
	CHECK(mark->source <= FSJ_MARK_HOST);
	CHECK(mark->length <= FSJ_MARK_MAX_BYTES);
	CHECK_EQUAL(length, 10u + mark->length);
	for (uint8_t i = 0; i < mark->length; i++) {
		mark->text[i] = payload[10 + i];
		CHECK(mark->text[i] >= 0x20 && mark->text[i] <= 0x7E);
	}
}

static void parse_info(const uint8_t *payload, size_t length, struct fsj_info *info)
{
	CHECK_EQUAL(length, 82);
	info->rate_hz = (uint32_t)little_endian(payload, 4);
	info->shunt_uohm = (uint32_t)little_endian(payload + 4, 4);
	info->shunt_range_mv = (uint16_t)little_endian(payload + 8, 2);
	info->adc_config = (uint16_t)little_endian(payload + 10, 2);
	info->flags = payload[12];
	info->reset_cause = payload[13];
	memcpy(info->firmware, payload + 14, 16);
	memcpy(info->serial_number, payload + 30, 16);
	info->stream_id = (uint32_t)little_endian(payload + 46, 4);
	info->i2c_faults = (uint32_t)little_endian(payload + 50, 4);
	info->frames_dropped = (uint32_t)little_endian(payload + 54, 4);
	info->calibration.shunt_offset_nv = (int32_t)little_endian(payload + 58, 4);
	info->calibration.current_gain_ppm = (int32_t)little_endian(payload + 62, 4);
	info->calibration.bus_gain_ppm = (int32_t)little_endian(payload + 66, 4);
	info->calibration.gain_uncertainty_ppm = (uint32_t)little_endian(payload + 70, 4);
	info->calibration.zero_date = (uint32_t)little_endian(payload + 74, 4);
	info->calibration.gain_date = (uint32_t)little_endian(payload + 78, 4);
}

static void parse_reply(const uint8_t *payload, size_t length, struct fsj_reply *reply)
{
	CHECK_EQUAL(length, 18);
	reply->request = (uint32_t)little_endian(payload, 4);
	reply->command = payload[4];
	reply->status = payload[5];
	for (size_t i = 0; i < FSJ_REPLY_VALUES; i++) {
		reply->values[i] = (int32_t)little_endian(payload + 6 + 4 * i, 4);
	}
}

struct parsed parse(const uint8_t *encoded, size_t size)
{
	uint8_t content[FSJ_FRAME_ENCODED_MAX_BYTES];
	const size_t length = unstuff(encoded, size, content);
	const uint8_t *payload = content + 6;
	struct parsed frame = {0};

	CHECK(length >= 10);
	CHECK_EQUAL(content[1], 2);
	CHECK_EQUAL(little_endian(content + length - 4, 4), crc(content, length - 4));
	frame.type = content[0];
	frame.seq = (uint32_t)little_endian(content + 2, 4);
	switch (frame.type) {
	case 1:
		parse_samples(payload, length - 10, &frame.samples);
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

static void follow_info(struct follower *f, const struct fsj_info *info)
{
	const bool is_new = !f->has_info || info->stream_id != f->info.stream_id;

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
		CHECK(memcmp(&info->calibration, &f->info.calibration, sizeof(info->calibration)) == 0);
	}
	f->has_info = true;
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
	for (uint8_t i = 0; i < samples->count; i++) {
		f->energy += (int64_t)samples->sample[i].shunt * samples->sample[i].bus;
		f->bus_total += samples->sample[i].bus;
	}
	f->next_tick = samples->first_tick + samples->count;
	f->missed = samples->missed_total;
	follow_time(f, samples);
}

void follow(struct follower *f, const struct parsed *frame)
{
	CHECK_EQUAL(frame->seq, f->frames);
	f->frames++;
	CHECK(f->has_info || frame->type == FSJ_FRAME_INFO);
	if (frame->type == FSJ_FRAME_INFO) {
		follow_info(f, &frame->info);
	} else if (frame->type == FSJ_FRAME_SAMPLES) {
		follow_samples(f, &frame->samples);
	} else if (frame->type == FSJ_FRAME_MARK) {
		CHECK(frame->mark.time_us + period_us(f) >= f->newest_us);
		f->newest_us = frame->mark.time_us;
	}
}
