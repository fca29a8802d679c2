/** @file
 * The host's commands: bytes become frames. docs/meter-protocol.md says what each does.
 */
#ifndef FSJOULE_COMMAND_H
#define FSJOULE_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsjoule/cobs.h"

enum fsj_command_type {
	FSJ_COMMAND_INFO = 0x10,
	FSJ_COMMAND_START = 0x11,
	FSJ_COMMAND_STOP = 0x12,
	FSJ_COMMAND_RATE = 0x13,
	FSJ_COMMAND_RANGE = 0x14,
	FSJ_COMMAND_SHUNT = 0x15,
	FSJ_COMMAND_ZERO = 0x16,
	FSJ_COMMAND_GAIN = 0x17,
	FSJ_COMMAND_SAVE = 0x18,
	FSJ_COMMAND_RESET_ENERGY = 0x19,
	FSJ_COMMAND_SELF_TEST = 0x1A,
	FSJ_COMMAND_FORGET_CALIBRATION = 0x1B,
	FSJ_COMMAND_MARK = 0x1C,
	FSJ_COMMAND_BUS_RANGE = 0x1D,
};

enum fsj_reply_status {
	FSJ_REPLY_DONE = 0,
	FSJ_REPLY_UNKNOWN = 1,
	FSJ_REPLY_BAD_LENGTH = 2,
	FSJ_REPLY_BAD_VALUE = 3,
	FSJ_REPLY_RATE_NOT_HELD = 4,
	FSJ_REPLY_BUSY = 5,
	FSJ_REPLY_NO_CHIP = 6,
	FSJ_REPLY_NOT_STORED = 7,
	FSJ_REPLY_DAMAGED = 8,
	FSJ_REPLY_OTHER_PROTOCOL = 9,
};

/** Failures of the self-test, a bit each. */
#define FSJ_FAIL_NO_ANSWER 0x01u
#define FSJ_FAIL_REGISTER 0x02u /**< a register does not keep what is written */
#define FSJ_FAIL_CONFIG 0x04u /**< CONFIG is not what was set */
#define FSJ_FAIL_NO_CONVERSION 0x08u /**< none within its longest time */
#define FSJ_FAIL_CLIPPED 0x10u
#define FSJ_FAIL_NO_STORAGE 0x20u

/** Silence within a command that ends it. */
#define FSJ_COMMAND_SILENCE_US 100000u

/** A whole frame of the host. */
struct fsj_command {
	uint8_t type;
	uint8_t protocol;
	uint32_t seq;
	const uint8_t *payload; /**< valid until the next byte is taken */
	size_t length;
};

/** A frame that may be under way. All zero is the state at start. */
struct fsj_receiver {
	uint8_t bytes[FSJ_COBS_MAX_BYTES + 1u]; /**< encoded, without the delimiter */
	size_t count; /**< bytes that arrived; more than there is room for: the frame is too long */
	uint64_t last_byte_us;
};

enum fsj_received {
	FSJ_RECEIVED_NOTHING, /**< more is to come */
	FSJ_RECEIVED_COMMAND,
	FSJ_RECEIVED_DAMAGE,
};

/** Take one byte that arrived at `time_us`.
 *
 * @retval FSJ_RECEIVED_COMMAND  it ended a frame: `command` is filled
 * @retval FSJ_RECEIVED_DAMAGE   it ended what is no frame
 */
enum fsj_received fsj_receiver_put(struct fsj_receiver *receiver, uint8_t byte, uint64_t time_us,
				   struct fsj_command *command);

/** True if a frame was under way and nothing has arrived for FSJ_COMMAND_SILENCE_US up to `now_us`; it is given up. */
bool fsj_receiver_gives_up(struct fsj_receiver *receiver, uint64_t now_us);

#endif
