#include "watching.h"

#include <zephyr/ztest.h>

#include "application.h"
#include "clock.h"

/* The host keeps what it was sent only so long. */
#define SLICE_MS 500u

struct watched watched;
struct follower follower;

static void take(const struct parsed *frame)
{
	const uint32_t missed = follower.missed;
	const uint32_t stream = follower.stream_id;

	follow(&follower, frame);
	zassert_true(watched.count < FRAMES_MAX);
	watched.frame[watched.count++] = *frame;
	if (frame->type == SAMPLES_FRAME) {
		watched.samples += frame->samples.count;
		watched.missed += follower.stream_id == stream ? follower.missed - missed : follower.missed;
		watched.flags |= frame->samples.flags;
	}
}

static void take_all(void)
{
	uint8_t bytes[FSJ_FRAME_ENCODED_MAX_BYTES];
	size_t size;

	while ((size = made_host_frame(bytes, sizeof(bytes))) > 0) {
		const struct parsed frame = parse(bytes, size);

		take(&frame);
	}
}

void watch(uint32_t ms)
{
	watched = (struct watched){0};
	for (uint32_t left = ms; left > 0; left -= MIN(left, SLICE_MS)) {
		k_msleep((int32_t)MIN(left, SLICE_MS));
		take_all();
	}
}

struct fsj_reply command(uint8_t type, const void *payload, size_t length)
{
	static uint32_t seq;
	uint8_t bytes[64];
	const size_t size = encode_command(type, FSJ_PROTOCOL, ++seq, payload, length, bytes);

	made_host_arrive(HOST_STREAM, clock_us(), bytes, size);
	for (int i = 0; i < 30; i++) {
		watch(100);
		for (size_t k = 0; k < watched.count; k++) {
			if (watched.frame[k].type == FSJ_FRAME_REPLY && watched.frame[k].reply.request == seq) {
				return watched.frame[k].reply;
			}
		}
	}
	zassert_unreachable("no reply in three seconds");
	return (struct fsj_reply){0};
}

const struct parsed *first_of(uint8_t type)
{
	for (size_t i = 0; i < watched.count; i++) {
		if (watched.frame[i].type == type) {
			return &watched.frame[i];
		}
	}
	zassert_unreachable("no frame of this type");
	return NULL;
}

static void constant(void *context, int64_t from_ns, int64_t to_ns, double *volts, double *amperes)
{
	ARG_UNUSED(context);
	ARG_UNUSED(from_ns);
	ARG_UNUSED(to_ns);
	*volts = VOLTS;
	*amperes = AMPERES;
}

void *begin(void)
{
	static bool started;
	const struct ina219_source source = {constant, NULL};

	if (!started) {
		started = true;
		MADE_CHIP(init)(&made_host.made.chip, host_settings()->shunt_uohm, source,
				     (int64_t)clock_us() * 1000);
		zassert_equal(application_start(), 0);
	}
	return NULL;
}

void begin_test(void *fixture)
{
	const uint32_t rate_hz = 1000;

	ARG_UNUSED(fixture);
	zassert_equal(command(FSJ_COMMAND_RATE, &rate_hz, sizeof(rate_hz)).status, FSJ_REPLY_DONE);
	watch(100);
}
