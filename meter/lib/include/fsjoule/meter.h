/** @file
 * The meter: samples at every tick, marks in between, frames out.
 *
 * The core owns no clock and no thread. Whoever uses it calls fsj_meter_tick() once a tick and fsj_meter_mark_byte()
 * for every byte on the mark line, in the order of their times and never two at once.
 */
#ifndef FSJOULE_METER_H
#define FSJOULE_METER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsjoule/frame.h"
#include "fsjoule/ina219.h"
#include "fsjoule/mark_line.h"

/** Version of the firmware that this core makes, at most FSJ_NAME_BYTES long. */
#define FSJ_VERSION "0.1.0"

/** Silence that ends a mark without LF, for a line with no scheduler on it. */
#define FSJ_MARK_SILENCE_US 20000u

/** Frames of samples that wait while a mark is under way, so that the mark goes out before them. A line that has not
 * ended when they are full is ended as it stands.
 */
#define FSJ_HELD_FRAMES 8u

/** Takes an encoded frame, delimiter included. One that has no room for it drops it whole: its sequence number, its
 * missed ticks and its cumulative energy tell.
 */
struct fsj_output {
	void (*frame)(void *context, const uint8_t *bytes, size_t size);
	void *context;
};

struct fsj_meter_config {
	uint32_t rate_hz;
	uint32_t shunt_uohm;
	enum fsj_ina219_range range;
	uint32_t mark_silence_us;
	bool simulated;
	const char *serial_number; /**< NUL-terminated; its first FSJ_NAME_BYTES are sent; must outlive the meter */
	uint32_t boot_id; /**< another one at every start */
};

/** One meter. Its members are its own business. */
struct fsj_meter {
	struct fsj_meter_config config;
	struct fsj_i2c i2c;
	struct fsj_output output;
	bool chip_started;
	uint32_t seq;
	uint64_t next_tick;
	uint64_t next_info_tick;
	uint64_t energy_raw; /**< two's complement */
	uint32_t missed_total;
	uint32_t missed_unsaid; /**< since a frame last carried `missed_total` */
	uint8_t flags_unsaid; /**< of missed ticks, for the next frame */
	struct fsj_mark_line line;
	struct fsj_samples held[FSJ_HELD_FRAMES];
	uint8_t held_count; /**< closed frames, oldest first */
	bool batch_open; /**< held[held_count] is being filled */
};

/** Start the chip and send the first info frame. Tick 0 begins now.
 *
 * @retval FSJ_OK         the chip converts
 * @retval FSJ_I2C_FAULT  it does not answer; every tick will try again, and is missed until it does
 */
enum fsj_status fsj_meter_start(struct fsj_meter *meter, const struct fsj_meter_config *config,
				const struct fsj_i2c *i2c, const struct fsj_output *output);

/** Take the sample of one tick, at the end of its interval.
 *
 * The chip's conversion lies in the interval that has just passed, so the sample stands for
 * [time_us, time_us + 1/rate). Ticks left out since the last call are counted as missed.
 *
 * @param tick     number of the tick, from 0, greater than in the last call (a smaller one is ignored)
 * @param time_us  start of the tick's interval in the meter's clock
 */
void fsj_meter_tick(struct fsj_meter *meter, uint64_t tick, uint64_t time_us);

/** Take one byte of the mark line, which arrived at `time_us` in the meter's clock. */
void fsj_meter_mark_byte(struct fsj_meter *meter, uint8_t byte, uint64_t time_us);

#endif
