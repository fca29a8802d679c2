/** @file
 * Numbers as they stand in frames and records: little endian, whatever the processor's own order is.
 */
#ifndef FSJOULE_SRC_LITTLE_ENDIAN_H
#define FSJOULE_SRC_LITTLE_ENDIAN_H

#include <stdint.h>

static inline void fsj_put_u16(uint8_t *out, uint16_t value)
{
	out[0] = (uint8_t)value;
	out[1] = (uint8_t)(value >> 8);
}

static inline void fsj_put_u32(uint8_t *out, uint32_t value)
{
	fsj_put_u16(out, (uint16_t)value);
	fsj_put_u16(out + 2, (uint16_t)(value >> 16));
}

static inline void fsj_put_u64(uint8_t *out, uint64_t value)
{
	fsj_put_u32(out, (uint32_t)value);
	fsj_put_u32(out + 4, (uint32_t)(value >> 32));
}

static inline uint16_t fsj_get_u16(const uint8_t *bytes)
{
	return (uint16_t)(bytes[0] | (unsigned int)bytes[1] << 8);
}

static inline uint32_t fsj_get_u32(const uint8_t *bytes)
{
	return fsj_get_u16(bytes) | (uint32_t)fsj_get_u16(bytes + 2) << 16;
}

/* Two's complement without the implementation-defined conversion of a number above INT32_MAX. */
static inline int32_t fsj_get_i32(const uint8_t *bytes)
{
	const uint32_t value = fsj_get_u32(bytes);

	return value <= INT32_MAX ? (int32_t)value : -(int32_t)(UINT32_MAX - value) - 1;
}

#endif
