#include "fsjoule/command.h"
#include "fsjoule/crc32.h"
#include "fsjoule/frame.h"
#include "little_endian.h"

static enum fsj_received decode(struct fsj_receiver *receiver, size_t size, struct fsj_command *command)
{
	uint8_t *content = receiver->bytes;
	const size_t length = fsj_cobs_decode(receiver->bytes, size, content);

	if (length < FSJ_FRAME_OVERHEAD_BYTES ||
	    fsj_get_u32(content + length - FSJ_FRAME_CRC_BYTES) != fsj_crc32(content, length - FSJ_FRAME_CRC_BYTES)) {
		return FSJ_RECEIVED_DAMAGE;
	}
	command->type = content[0];
	command->protocol = content[1];
	command->seq = fsj_get_u32(content + 2);
	command->payload = content + FSJ_FRAME_HEAD_BYTES;
	command->length = length - FSJ_FRAME_OVERHEAD_BYTES;
	return FSJ_RECEIVED_COMMAND;
}

enum fsj_received fsj_receiver_put(struct fsj_receiver *receiver, uint8_t byte, uint64_t time_us,
				   struct fsj_command *command)
{
	const size_t size = receiver->count;

	receiver->last_byte_us = time_us;
	if (byte != 0) {
		if (size < sizeof(receiver->bytes)) {
			receiver->bytes[size] = byte;
		}
		receiver->count += size <= sizeof(receiver->bytes) ? 1u : 0u;
		return FSJ_RECEIVED_NOTHING;
	}
	receiver->count = 0;
	if (size == 0) {
		return FSJ_RECEIVED_NOTHING;
	}
	return size > sizeof(receiver->bytes) ? FSJ_RECEIVED_DAMAGE : decode(receiver, size, command);
}

bool fsj_receiver_gives_up(struct fsj_receiver *receiver, uint64_t now_us)
{
	if (receiver->count == 0 || now_us < receiver->last_byte_us ||
	    now_us - receiver->last_byte_us < FSJ_COMMAND_SILENCE_US) {
		return false;
	}
	receiver->count = 0;
	return true;
}
