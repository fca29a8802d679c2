/** @file
 * Consistent Overhead Byte Stuffing (S. Cheshire and M. Baker, IEEE/ACM Transactions on Networking 7(2), 1999).
 *
 * Only frames of at most 253 bytes are sent: then no run reaches 254 bytes, the code 0xFF never occurs, and a frame
 * grows by exactly one byte and its delimiter.
 */
#ifndef FSJOULE_COBS_H
#define FSJOULE_COBS_H

#include <stddef.h>
#include <stdint.h>

/** Most bytes that fsj_cobs_encode() takes. */
#define FSJ_COBS_MAX_BYTES 253u

/** Bytes that the encoding of `size` bytes takes, its delimiter included. */
#define FSJ_COBS_ENCODED_BYTES(size) ((size) + 2u)

/** Encode `size` bytes into `out` and end them with the delimiter 0x00.
 *
 * @param out  room for FSJ_COBS_ENCODED_BYTES(size) bytes; must not overlap `data`
 * @retval 0   `size` is above FSJ_COBS_MAX_BYTES; nothing was written
 * @retval n   bytes written, the delimiter included
 */
size_t fsj_cobs_encode(const uint8_t *data, size_t size, uint8_t *out);

/** Decode `size` bytes, which came before a delimiter and so have no zero.
 *
 * @param out  room for `size` bytes; may be `encoded` itself
 * @retval 0   they are not the encoding of 1 to FSJ_COBS_MAX_BYTES bytes; `out` is spoilt
 * @retval n   bytes written, one less than `size`
 */
size_t fsj_cobs_decode(const uint8_t *encoded, size_t size, uint8_t *out);

#endif
