/** @file
 * A meter for the tests of the whole core: around a chip and a storage that do as the test says, every frame it sends
 * checked and kept.
 */
#ifndef FSJOULE_TESTS_BENCH_H
#define FSJOULE_TESTS_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsjoule/meter.h"
#include "parse.h"

#define BENCH_FRAMES_MAX 8192

/** CHIP_STALE has a conversion that was not read yet, and makes no more. */
enum bench_chip { CHIP_GOOD, CHIP_STALE, CHIP_NOT_READY, CHIP_GONE };

/** The one there is. What a test may set is marked. */
struct bench {
	enum bench_chip chip; /**< set */
	uint16_t shunt; /**< set; as the register */
	uint16_t bus; /**< set; 4 mV a unit */
	uint16_t bus_flags; /**< set; OVF */
	uint16_t config; /**< set: the chip lost its supply */
	uint16_t calibration;
	uint16_t stuck; /**< set: bits of CALIBRATION that read 1 */
	unsigned int configured; /**< how often */
	unsigned int recovered;
	bool recover_fails; /**< set */
	bool no_room; /**< set: frames are refused */
	uint8_t slot[FSJ_RECORD_SLOTS][FSJ_RECORD_BYTES]; /**< set */
	bool read_fails; /**< set */
	size_t write_stops_at; /**< set: so many bytes of a record are written */
	struct fsj_meter meter;
	uint64_t now_us;
	uint32_t commands; /**< seq of the last one */
	struct follower follower;
	struct parsed frame[BENCH_FRAMES_MAX];
	size_t frames;
};

extern struct bench bench;

/** A config with 1 kHz, 80 mV and 0.1 Ohm. */
struct fsj_meter_config bench_config(void);

/** A chip that reads 2500 and 1250, an empty storage, no meter yet. */
void bench_clear(void);

/** Switch the meter on, with what the bench is now. Frames of before are forgotten. */
enum fsj_status bench_start(const struct fsj_meter_config *config);

/** bench_clear() and bench_start() with bench_config(). */
void bench_begin(void);

/** Let `count` ticks pass. */
void bench_ticks(uint32_t count);

/** Let `count` ticks pass at once. */
void bench_jump(uint32_t count);

/** Let bytes arrive at the mark line, now. */
void bench_line(const char *text);

/** Let bytes of the host arrive, now. */
void bench_bytes(const uint8_t *bytes, size_t size);

/** Send a command and go on until it is answered. @return the reply, whose request and command are right */
struct fsj_reply bench_command(uint8_t type, const void *payload, size_t length);

/** A command whose payload is a number of 4 bytes. */
struct fsj_reply bench_command_u32(uint8_t type, uint32_t value);

/** A command without a payload. */
struct fsj_reply bench_simple(uint8_t type);

#define BENCH_DATE 1767225600u
#define BENCH_GAIN_BYTES 17u

/** The payload of FSJ_COMMAND_GAIN, with an uncertainty of 100 ppm and BENCH_DATE. */
void bench_gain_payload(uint8_t out[BENCH_GAIN_BYTES], uint8_t point, int32_t true_ua, uint32_t true_uv);

/** A point of the gain calibration. */
struct fsj_reply bench_gain(uint8_t point, int32_t true_ua, uint32_t true_uv);

/** Check the values of a reply. */
void bench_check_values(const struct fsj_reply *reply, int32_t first, int32_t second, int32_t third);

/** What a command that fails must leave alone. */
struct bench_state {
	struct fsj_settings settings;
	uint32_t streams;
	bool sampling;
};

struct bench_state bench_state(void);

/** Check that nothing has changed. */
void bench_check_same(const struct bench_state *before);

/** The frame that was sent last, but for `back` ones; it must be of this type. */
const struct parsed *bench_last(size_t back, uint8_t type);

/** The frame with this number, which must be samples. */
const struct fsj_samples *bench_samples(size_t index);

/** The newest info frame. */
const struct fsj_info *bench_info(void);

/** The newest stream's number. */
uint32_t bench_stream(void);

/** Check a plain mark. */
void bench_check_mark(size_t index, uint8_t source, const char *text, uint64_t time_us);

#endif
