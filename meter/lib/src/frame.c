#include "fsjoule/frame.h"

#include "fsjoule/crc32.h"

_Static_assert(FSJ_FRAME_MAX_BYTES <= FSJ_COBS_MAX_BYTES, "the longest frame must fit one COBS run");

/* A frame under construction, before COBS. */
struct writer {
	uint8_t bytes[FSJ_FRAME_MAX_BYTES];
	size_t size;
};

/* Little endian, whatever the processor's own order is. */
static void put(struct writer *w, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		w->bytes[w->size++] = (uint8_t)(value >> (8 * i));
	}
}

static void put_bytes(struct writer *w, const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		w->bytes[w->size++] = bytes[i];
	}
}

static void begin(struct writer *w, enum fsj_frame_type type, uint32_t seq)
{
	w->size = 0;
	put(w, (uint64_t)type, 1);
	put(w, FSJ_PROTOCOL, 1);
	put(w, seq, 4);
}

static size_t end(struct writer *w, uint8_t *out)
{
	put(w, fsj_crc32(w->bytes, w->size), 4);
	return fsj_cobs_encode(w->bytes, w->size, out);
}

size_t fsj_frame_samples(uint32_t seq, const struct fsj_samples *samples, uint8_t *out)
{
	const uint8_t count = samples->count < FSJ_SAMPLES_MAX ? samples->count : FSJ_SAMPLES_MAX;
	struct writer w;

	begin(&w, FSJ_FRAME_SAMPLES, seq);
	put(&w, samples->first_tick, 8);
	put(&w, samples->first_time_us, 8);
	put(&w, (uint64_t)samples->energy_raw, 8);
	put(&w, samples->missed_total, 4);
	put(&w, samples->flags, 1);
	put(&w, count, 1);
	for (uint8_t i = 0; i < count; i++) {
		put(&w, (uint16_t)samples->sample[i].shunt, 2);
		put(&w, samples->sample[i].bus, 2);
	}
	return end(&w, out);
}

size_t fsj_frame_mark(uint32_t seq, const struct fsj_mark *mark, uint8_t *out)
{
	const uint8_t length = mark->length < FSJ_MARK_MAX_BYTES ? mark->length : FSJ_MARK_MAX_BYTES;
	struct writer w;

	begin(&w, FSJ_FRAME_MARK, seq);
	put(&w, mark->time_us, 8);
	put(&w, length, 1);
	put_bytes(&w, mark->text, length);
	return end(&w, out);
}

size_t fsj_frame_info(uint32_t seq, const struct fsj_info *info, uint8_t *out)
{
	struct writer w;

	begin(&w, FSJ_FRAME_INFO, seq);
	put(&w, info->rate_hz, 4);
	put(&w, info->shunt_uohm, 4);
	put(&w, info->shunt_range_mv, 2);
	put(&w, info->adc_config, 2);
	put(&w, info->simulated, 1);
	put_bytes(&w, info->firmware, FSJ_NAME_BYTES);
	put_bytes(&w, info->serial_number, FSJ_NAME_BYTES);
	put(&w, info->boot_id, 4);
	return end(&w, out);
}
