#include "fsjoule/frame.h"

#include "fsjoule/crc32.h"
#include "little_endian.h"

_Static_assert(FSJ_FRAME_MAX_BYTES <= FSJ_COBS_MAX_BYTES, "the longest frame must fit one COBS run");

/* A frame under construction, before COBS. */
struct writer {
	uint8_t bytes[FSJ_FRAME_MAX_BYTES];
	size_t size;
};

static void put_u8(struct writer *w, uint8_t value)
{
	w->bytes[w->size++] = value;
}

static void put_u16(struct writer *w, uint16_t value)
{
	fsj_put_u16(w->bytes + w->size, value);
	w->size += 2;
}

/* Of a sample: 16 bits, or 24. */
static void put_value(struct writer *w, bool wide, uint32_t value)
{
	put_u16(w, (uint16_t)value);
	if (wide) {
		put_u8(w, (uint8_t)(value >> 16));
	}
}

static void put_u32(struct writer *w, uint32_t value)
{
	fsj_put_u32(w->bytes + w->size, value);
	w->size += 4;
}

static void put_u64(struct writer *w, uint64_t value)
{
	fsj_put_u64(w->bytes + w->size, value);
	w->size += 8;
}

static void put_bytes(struct writer *w, const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		put_u8(w, bytes[i]);
	}
}

static void begin(struct writer *w, enum fsj_frame_type type, struct fsj_frame_id id)
{
	w->size = 0;
	put_u8(w, (uint8_t)type);
	put_u8(w, FSJ_PROTOCOL);
	put_u32(w, id.seq);
	put_u32(w, id.stream_id);
}

static size_t end(struct writer *w, uint8_t *out)
{
	put_u32(w, fsj_crc32(w->bytes, w->size));
	return fsj_cobs_encode(w->bytes, w->size, out);
}

size_t fsj_frame_samples(struct fsj_frame_id id, const struct fsj_samples *samples, uint8_t *out)
{
	const uint8_t count = samples->count < FSJ_SAMPLES_MAX ? samples->count : FSJ_SAMPLES_MAX;
	struct writer w;

	begin(&w, samples->wide ? FSJ_FRAME_WIDE_SAMPLES : FSJ_FRAME_SAMPLES, id);
	put_u64(&w, samples->first_tick);
	put_u64(&w, samples->first_time_us);
	put_u64(&w, (uint64_t)samples->energy_raw);
	put_u64(&w, samples->bus_total);
	put_u32(&w, samples->missed_total);
	put_u8(&w, samples->flags);
	put_u8(&w, count);
	for (uint8_t i = 0; i < count; i++) {
		put_value(&w, samples->wide, (uint32_t)samples->sample[i].shunt);
		put_value(&w, samples->wide, samples->sample[i].bus);
	}
	return end(&w, out);
}

size_t fsj_frame_mark(struct fsj_frame_id id, const struct fsj_mark *mark, uint8_t *out)
{
	const uint8_t length = mark->length < FSJ_MARK_MAX_BYTES ? mark->length : FSJ_MARK_MAX_BYTES;
	struct writer w;

	begin(&w, FSJ_FRAME_MARK, id);
	put_u64(&w, mark->time_us);
	put_u8(&w, mark->source);
	put_u8(&w, mark->flags);
	put_u8(&w, length);
	put_bytes(&w, mark->text, length);
	return end(&w, out);
}

size_t fsj_frame_info(struct fsj_frame_id id, const struct fsj_info *info, uint8_t *out)
{
	struct writer w;

	begin(&w, FSJ_FRAME_INFO, id);
	put_u32(&w, info->rate_hz);
	put_u32(&w, info->shunt_uohm);
	put_u16(&w, info->shunt_range_mv);
	put_u16(&w, info->adc_config);
	put_u8(&w, info->flags);
	put_u8(&w, info->reset_cause);
	put_bytes(&w, info->firmware, FSJ_NAME_BYTES);
	put_bytes(&w, info->serial_number, FSJ_NAME_BYTES);
	put_u32(&w, info->i2c_faults);
	put_u32(&w, info->frames_dropped);
	put_u32(&w, (uint32_t)info->calibration.shunt_offset_nv);
	put_u32(&w, (uint32_t)info->calibration.current_gain_ppm);
	put_u32(&w, (uint32_t)info->calibration.bus_gain_ppm);
	put_u32(&w, info->calibration.gain_uncertainty_ppm);
	put_u32(&w, info->calibration.zero_date);
	put_u32(&w, info->calibration.gain_date);
	put_u32(&w, info->inputs.events_lost);
	put_u32(&w, info->inputs.mark_framing);
	put_u32(&w, info->inputs.mark_overruns);
	put_u32(&w, info->inputs.mark_noise);
	put_u32(&w, info->inputs.marks_damaged);
	put_u8(&w, info->chip);
	put_u32(&w, info->shunt_unit_pv);
	put_u32(&w, info->bus_unit_pv);
	return end(&w, out);
}

size_t fsj_frame_reply(struct fsj_frame_id id, const struct fsj_reply *reply, uint8_t *out)
{
	struct writer w;

	begin(&w, FSJ_FRAME_REPLY, id);
	put_u32(&w, reply->request);
	put_u8(&w, reply->command);
	put_u8(&w, reply->status);
	for (size_t i = 0; i < FSJ_REPLY_VALUES; i++) {
		put_u32(&w, (uint32_t)reply->values[i]);
	}
	return end(&w, out);
}
