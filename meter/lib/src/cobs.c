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
