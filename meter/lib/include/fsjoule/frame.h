/** @file
 * The frames that the meter sends, protocol 3. docs/meter-protocol.md describes them byte by byte.
 */
#ifndef FSJOULE_FRAME_H
#define FSJOULE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsjoule/cobs.h"
#include "fsjoule/settings.h"

#define FSJ_PROTOCOL 3u

/** Frame types of the meter; those of the host are in command.h. */
enum fsj_frame_type {
	FSJ_FRAME_SAMPLES = 1,
	FSJ_FRAME_MARK = 2,
	FSJ_FRAME_INFO = 3,
	FSJ_FRAME_REPLY = 4,
	FSJ_FRAME_WIDE_SAMPLES = 5,
};

#define FSJ_SAMPLES_MAX 20u
#define FSJ_MARK_MAX_BYTES 16u
#define FSJ_NAME_BYTES 16u
#define FSJ_REPLY_VALUES 3u

/** Conditions that hold for at least one sample of a frame, or for the missed ticks just before it. */
#define FSJ_FLAG_OVERFLOW 0x01u /**< the INA219's OVF bit */
#define FSJ_FLAG_CLIPPED 0x02u /**< the shunt or the bus voltage reached the end of its range */
#define FSJ_FLAG_I2C_FAULT 0x04u /**< ticks were missed because a transfer failed */
#define FSJ_FLAG_BUS_RESET 0x08u /**< the I2C bus was recovered */
#define FSJ_FLAG_EVENTS_LOST 0x10u /**< bytes or edges were lost */
#define FSJ_FLAG_MARK_ERROR 0x20u /**< the mark line's UART had an error */

/** The bus voltage has 13 bits, or 20 in a wide sample; the others say of this one sample what the flags say of a frame. */
#define FSJ_BUS_MASK 0x1FFFu
#define FSJ_BUS_OVERFLOW 0x4000u
#define FSJ_BUS_CLIPPED 0x8000u
#define FSJ_WIDE_BUS_MASK 0xFFFFFu
#define FSJ_WIDE_BUS_OVERFLOW 0x400000u
#define FSJ_WIDE_BUS_CLIPPED 0x800000u

/** In the units that the info frame tells. */
struct fsj_sample {
	int32_t shunt; /**< 16 bits, wide 20 */
	uint32_t bus; /**< FSJ_BUS_MASK and FSJ_BUS_..., or FSJ_WIDE_BUS_... */
};

/** Samples of consecutive ticks. With `count` 0: no sample was taken lately, or the stream ends here. */
struct fsj_samples {
	uint64_t first_tick;
	uint64_t first_time_us; /**< start of the first tick's interval, in the meter's clock */
	int64_t energy_raw; /**< shunt * bus, summed over all samples before the first one of this frame */
	uint64_t bus_total; /**< bus, summed over the same samples */
	uint32_t missed_total; /**< ticks without a sample since the stream began, all before `first_tick`; wraps */
	uint8_t flags;
	uint8_t count; /**< at most FSJ_SAMPLES_MAX */
	bool wide;
	struct fsj_sample sample[FSJ_SAMPLES_MAX];
};

enum fsj_mark_source {
	FSJ_MARK_LINE = 0, /**< a line that the board sent */
	FSJ_MARK_RISING = 1, /**< an edge of the mark pin */
	FSJ_MARK_FALLING = 2,
	FSJ_MARK_HOST = 3, /**< a command */
};

#define FSJ_MARK_CHECKED 0x01u /**< the line had a check, which was right and is not in the text */
#define FSJ_MARK_DAMAGED 0x02u /**< the text is what is left of a line */

struct fsj_mark {
	uint64_t time_us; /**< of a line's first byte, the edge, or a command's last byte, in the meter's clock */
	uint8_t source; /**< enum fsj_mark_source */
	uint8_t flags; /**< FSJ_MARK_... */
	uint8_t length; /**< at most FSJ_MARK_MAX_BYTES; 0 for an edge */
	uint8_t text[FSJ_MARK_MAX_BYTES];
};

#define FSJ_INFO_SIMULATED 0x01u /**< the chip is emulated */
#define FSJ_INFO_SAMPLING 0x02u
#define FSJ_INFO_UNSAVED 0x04u /**< a loss of power would change the settings */
#define FSJ_INFO_DAMAGED 0x08u /**< a stored record is damaged: the one before, or the defaults, are used */

/** What arrived badly at the meter's inputs since power-up. All wrap. */
struct fsj_input_counts {
	uint32_t events_lost; /**< bytes and edges for which the queue before the core had no room */
	uint32_t mark_framing; /**< UART errors on the mark line: no stop bit, or a break */
	uint32_t mark_overruns; /**< bytes of the mark line that came before the one before was read */
	uint32_t mark_noise; /**< bits of the mark line that were not clear */
	uint32_t marks_damaged; /**< lines with FSJ_MARK_DAMAGED */
};

/** What the meter says of itself. */
struct fsj_info {
	uint32_t rate_hz; /**< ticks a second */
	uint32_t shunt_uohm;
	uint16_t shunt_range_mv;
	uint16_t adc_config; /**< the INA219's CONFIG, or the INA228's ADC_CONFIG */
	uint8_t flags; /**< FSJ_INFO_... */
	uint8_t reset_cause; /**< enum fsj_reset_cause */
	uint8_t firmware[FSJ_NAME_BYTES]; /**< version, padded with NUL */
	uint8_t serial_number[FSJ_NAME_BYTES]; /**< padded with NUL */
	uint32_t i2c_faults; /**< transfers that failed since power-up; wraps */
	uint32_t frames_dropped; /**< frames for which the line had no room since power-up; wraps */
	struct fsj_calibration calibration;
	struct fsj_input_counts inputs;
	uint8_t chip; /**< enum fsj_chip_number */
	uint32_t shunt_unit_pv; /**< picovolts of a raw unit */
	uint32_t bus_unit_pv;
};

/** The answer to a command. */
struct fsj_reply {
	uint32_t request; /**< the command's sequence number; 0 when it could not be read */
	uint8_t command; /**< its type; 0 when it could not be read */
	uint8_t status; /**< enum fsj_reply_status */
	int32_t values[FSJ_REPLY_VALUES]; /**< by command */
};

/** What tells a frame from all others. */
struct fsj_frame_id {
	uint32_t seq; /**< one more than in the frame before, of any type; 0 in the first one since power-up */
	uint32_t stream_id; /**< another one for every stream */
};

/** Type, protocol and sequence number before the payload. */
#define FSJ_FRAME_HEAD_BYTES 6u
#define FSJ_FRAME_CRC_BYTES 4u
#define FSJ_FRAME_OVERHEAD_BYTES (FSJ_FRAME_HEAD_BYTES + FSJ_FRAME_CRC_BYTES)
/** The longest frame that the meter sends: a full frame of wide samples. */
#define FSJ_FRAME_MAX_BYTES (FSJ_FRAME_OVERHEAD_BYTES + 42u + 6u * FSJ_SAMPLES_MAX)
/** Room that the encoders need. */
#define FSJ_FRAME_ENCODED_MAX_BYTES FSJ_COBS_ENCODED_BYTES(FSJ_FRAME_MAX_BYTES)

/** Encode a frame, COBS and delimiter included, as it goes over the line.
 *
 * @param out  room for FSJ_FRAME_ENCODED_MAX_BYTES bytes
 * @retval n   bytes written
 */
size_t fsj_frame_samples(struct fsj_frame_id id, const struct fsj_samples *samples, uint8_t *out);
/** @copydoc fsj_frame_samples */
size_t fsj_frame_mark(struct fsj_frame_id id, const struct fsj_mark *mark, uint8_t *out);
/** @copydoc fsj_frame_samples */
size_t fsj_frame_info(struct fsj_frame_id id, const struct fsj_info *info, uint8_t *out);
/** @copydoc fsj_frame_samples */
size_t fsj_frame_reply(struct fsj_frame_id id, const struct fsj_reply *reply, uint8_t *out);

#endif
