#include "fsjoule/cobs.h"

size_t fsj_cobs_encode(const uint8_t *data, size_t size, uint8_t *out)
{
	size_t code_at = 0;

	if (size > FSJ_COBS_MAX_BYTES) {
		return 0;
	}
	/* Byte i goes to place i + 1; each zero becomes, like the first byte, the distance to the next one. */
	for (size_t i = 0; i < size; i++) {
		if (data[i] == 0) {
			out[code_at] = (uint8_t)(i + 1 - code_at);
			code_at = i + 1;
		} else {
			out[i + 1] = data[i];
		}
	}
	out[code_at] = (uint8_t)(size + 1 - code_at);
	out[size + 1] = 0;
	return FSJ_COBS_ENCODED_BYTES(size);
}

size_t fsj_cobs_decode(const uint8_t *encoded, size_t size, uint8_t *out)
{
	size_t next_zero;

	if (size == 0 || size > FSJ_COBS_MAX_BYTES + 1u) {
		return 0;
	}
	/* In runs this short every code is the distance to the next zero, and the last one that to the end. */
	next_zero = encoded[0];
	for (size_t i = 1; i < size; i++) {
		const uint8_t byte = encoded[i];

		out[i - 1] = i == next_zero ? 0 : byte;
		next_zero += i == next_zero ? byte : 0u;
	}
	return next_zero == size ? size - 1 : 0;
}
