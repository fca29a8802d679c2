/** @file
 * The meter: samples at every tick, marks in between, commands in, frames out.
 *
 * The core owns no clock and no thread. Whoever uses it calls the functions below in the order of their times, and never
 * two at once.
 */
#ifndef FSJOULE_METER_H
#define FSJOULE_METER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsjoule/chip.h"
#include "fsjoule/command.h"
#include "fsjoule/frame.h"
#include "fsjoule/ina219.h"
#include "fsjoule/outbox.h"
#include "fsjoule/queue.h"
#include "fsjoule/sampler.h"
#include "fsjoule/settings.h"
#include "fsjoule/task.h"

/** Version of the firmware that this core makes, at most FSJ_NAME_BYTES long. */
#define FSJ_VERSION "0.4.0"

/** Silence that ends a mark without LF, for a line with no scheduler on it. */
#define FSJ_MARK_SILENCE_US 20000u

/** Why the meter started, as the info frame says it. */
enum fsj_reset_cause {
	FSJ_RESET_UNKNOWN = 0,
	FSJ_RESET_POWER = 1,
	FSJ_RESET_WATCHDOG = 2,
	FSJ_RESET_SOFTWARE = 3,
	FSJ_RESET_PIN = 4,
	FSJ_RESET_BROWN_OUT = 5,
};

struct fsj_meter_config {
	struct fsj_settings defaults; /**< used where nothing whole is stored; must be valid */
	const struct fsj_chip_kind *chip; /**< NULL: an INA219 */
	uint32_t mark_silence_us;
	bool simulated;
	const char *serial_number; /**< NUL-terminated; its first FSJ_NAME_BYTES are sent; must outlive the meter */
	uint32_t first_stream_id; /**< another one at every start, at random */
	enum fsj_reset_cause reset_cause;
};

/** One meter. Its members are its own business. */
struct fsj_meter {
	struct fsj_meter_config config;
	struct fsj_settings settings;
	struct fsj_store store;
	struct fsj_chip chip;
	struct fsj_sampler sampler;
	struct fsj_queue queue;
	struct fsj_receiver receiver;
	struct fsj_task task;
	struct fsj_gain_point low; /**< of a gain calibration whose other point is still to come */
	bool has_low;
	bool sampling;
	bool sampled; /**< the last tick has a sample */
	bool complained; /**< a damaged command was answered in this tick */
	struct fsj_input_counts inputs;
	uint32_t streams;
	uint32_t ticks_to_info;
};

/** Load the settings, start the chip, begin the first stream.
 *
 * @retval FSJ_OK         the chip converts
 * @retval FSJ_I2C_FAULT  it does not answer; every tick will try again, and is missed until it does
 */
enum fsj_status fsj_meter_start(struct fsj_meter *meter, const struct fsj_meter_config *config,
				const struct fsj_i2c *i2c, const struct fsj_output *output,
				const struct fsj_storage *storage);

/** Microseconds from one call of fsj_meter_tick() to the next. */
uint32_t fsj_meter_period_us(const struct fsj_meter *meter);

/** How many streams have begun. A command changes it: in fsj_meter_command_byte(), or in the fsj_meter_tick() that ends a
 * calibration. Then the caller starts its timer anew: the first tick of a stream ends one period later, and what has
 * elapsed before is nobody's.
 */
uint32_t fsj_meter_streams(const struct fsj_meter *meter);

/** Take the sample of one tick, at the end of its interval. To be called also while the meter is stopped.
 *
 * The chip's conversion lies in the interval that has just passed, so the sample stands for
 * [end_us - period, end_us).
 *
 * @param elapsed  ticks since the last call, or since the stream began; all but the last are counted as missed
 * @param end_us   end of the last one in the meter's clock
 */
void fsj_meter_tick(struct fsj_meter *meter, uint32_t elapsed, uint64_t end_us);

/** True if the last fsj_meter_tick() took a sample. */
bool fsj_meter_sampled(const struct fsj_meter *meter);

/** Take one byte of the mark line, which arrived at `time_us` in the meter's clock. */
void fsj_meter_mark_byte(struct fsj_meter *meter, uint8_t byte, uint64_t time_us);

/** Errors of the mark line's UART, as its driver tells them for a byte or for several. A break counts as framing. */
#define FSJ_UART_FRAMING 0x01u
#define FSJ_UART_OVERRUN 0x02u
#define FSJ_UART_NOISE 0x04u

/** Take errors of the mark line's UART, before the byte that has them (a lost byte: before the next one).
 *
 * @param errors  FSJ_UART_..., each of them once
 */
void fsj_meter_mark_error(struct fsj_meter *meter, uint8_t errors, uint64_t time_us);

/** `count` events (bytes or edges) were lost before this moment, because the caller's queue was full. To be called in the
 * order of the times: after the last event that was queued before the loss, and before the first one after it.
 */
void fsj_meter_events_lost(struct fsj_meter *meter, uint32_t count, uint64_t time_us);

/** Take an edge of the mark pin. */
void fsj_meter_mark_edge(struct fsj_meter *meter, bool rising, uint64_t time_us);

/** Take one byte that the host sent. The reply may go out before this returns, or after a second of ticks. */
void fsj_meter_command_byte(struct fsj_meter *meter, uint8_t byte, uint64_t time_us);

/** Send an info frame, for a caller whose time may stand still. */
void fsj_meter_send_info(struct fsj_meter *meter);

/** Send what is still under way, samples and a mark, as at the end of a stream: for a meter that is about to end. */
void fsj_meter_flush(struct fsj_meter *meter);

#endif
