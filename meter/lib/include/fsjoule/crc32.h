/** @file
 * CRC-32 as in IEEE 802.3 and zlib: polynomial 0x04C11DB7 reflected, initial value and final XOR 0xFFFFFFFF.
 */
#ifndef FSJOULE_CRC32_H
#define FSJOULE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/** Checksum of `size` bytes at `data`.
 *
 * @retval 0xCBF43926 for the nine ASCII bytes "123456789", the check value of the algorithm
 */
uint32_t fsj_crc32(const uint8_t *data, size_t size);

#endif
