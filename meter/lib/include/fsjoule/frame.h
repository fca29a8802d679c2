/** @file
 * The frames of the meter's stream, protocol 1. docs/meter-protocol.md describes them byte by byte.
 */
#ifndef FSJOULE_FRAME_H
#define FSJOULE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "fsjoule/cobs.h"

#define FSJ_PROTOCOL 1u

/** Frame types of the meter; those from 0x10 on are kept for commands of the host. */
enum fsj_frame_type {
	FSJ_FRAME_SAMPLES = 1,
	FSJ_FRAME_MARK = 2,
	FSJ_FRAME_INFO = 3,
};

#define FSJ_SAMPLES_MAX 20u
#define FSJ_MARK_MAX_BYTES 16u
#define FSJ_NAME_BYTES 16u

/** Conditions that hold for at least one sample of a frame, or for the missed ticks just before it. */
#define FSJ_FLAG_OVERFLOW 0x01u /**< the INA219's OVF bit */
#define FSJ_FLAG_CLIPPED 0x02u /**< the shunt voltage reached the end of the range */
#define FSJ_FLAG_I2C_FAULT 0x04u /**< ticks were missed because a transfer failed */

struct fsj_sample {
	int16_t shunt; /**< 10 uV a unit */
	uint16_t bus; /**< 4 mV a unit */
};

/** Samples of consecutive ticks. With `count` 0: no sample was taken lately, and `missed_total` says of how many. */
struct fsj_samples {
	uint64_t first_tick;
	uint64_t first_time_us; /**< start of the first tick's interval, in the meter's clock */
	int64_t energy_raw; /**< shunt * bus, summed over all samples before the first one of this frame */
	uint32_t missed_total; /**< ticks without a sample since start, all before `first_tick`; wraps */
	uint8_t flags;
	uint8_t count; /**< at most FSJ_SAMPLES_MAX */
	struct fsj_sample sample[FSJ_SAMPLES_MAX];
};

/** A line that the board sent. */
struct fsj_mark {
	uint64_t time_us; /**< arrival of its first byte, in the meter's clock */
	uint8_t length; /**< at most FSJ_MARK_MAX_BYTES */
	uint8_t text[FSJ_MARK_MAX_BYTES];
};

/** What the meter says of itself. */
struct fsj_info {
	uint32_t rate_hz; /**< ticks a second */
	uint32_t shunt_uohm;
	uint16_t shunt_range_mv;
	uint16_t adc_config; /**< the INA219's CONFIG register */
	uint8_t simulated; /**< 1: the chip is emulated */
	uint8_t firmware[FSJ_NAME_BYTES]; /**< version, padded with NUL */
	uint8_t serial_number[FSJ_NAME_BYTES]; /**< padded with NUL */
	uint32_t boot_id; /**< another one after every start of the meter */
};

/** Type, protocol and sequence number; then the payload; then the CRC. */
#define FSJ_FRAME_OVERHEAD_BYTES (6u + 4u)
/** The longest frame there is: a full frame of samples. */
#define FSJ_FRAME_MAX_BYTES (FSJ_FRAME_OVERHEAD_BYTES + 30u + 4u * FSJ_SAMPLES_MAX)
/** Room that the encoders need. */
#define FSJ_FRAME_ENCODED_MAX_BYTES FSJ_COBS_ENCODED_BYTES(FSJ_FRAME_MAX_BYTES)

/** Encode a frame, COBS and delimiter included, as it goes over the line.
 *
 * @param seq  the frame's sequence number; every frame of any type takes the next one
 * @param out  room for FSJ_FRAME_ENCODED_MAX_BYTES bytes
 * @retval n   bytes written
 */
size_t fsj_frame_samples(uint32_t seq, const struct fsj_samples *samples, uint8_t *out);
/** @copydoc fsj_frame_samples */
size_t fsj_frame_mark(uint32_t seq, const struct fsj_mark *mark, uint8_t *out);
/** @copydoc fsj_frame_samples */
size_t fsj_frame_info(uint32_t seq, const struct fsj_info *info, uint8_t *out);

#endif
