/** @file
 * Bytes from a terminal, each with the time at which it arrived.
 */
#ifndef FSJOULE_EMULATED_TIMED_BYTES_H
#define FSJOULE_EMULATED_TIMED_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TIMED_BYTES_MAX 4096u

/** A queue. All zero is the empty one. */
struct timed_bytes {
	uint8_t byte[TIMED_BYTES_MAX];
	int64_t time_ns[TIMED_BYTES_MAX];
	size_t first; /**< the oldest */
	size_t count;
};

/** Queue what `fd`, which must be non-blocking, has to give, stamped with the present time. What finds no room stays
 * there.
 */
void timed_bytes_read(struct timed_bytes *bytes, int fd);

/** Queue one byte that is not older than the newest. Without room it is lost. */
void timed_bytes_put(struct timed_bytes *bytes, uint8_t byte, int64_t time_ns);

/** Take the oldest byte if it arrived before `before_ns`.
 *
 * @retval true   `byte` and `time_ns` (CLOCK_MONOTONIC) are filled
 * @retval false  there is none
 */
bool timed_bytes_take(struct timed_bytes *bytes, int64_t before_ns, uint8_t *byte, int64_t *time_ns);

/** When the oldest byte arrived; INT64_MAX if there is none. */
int64_t timed_bytes_next_ns(const struct timed_bytes *bytes);

#endif
