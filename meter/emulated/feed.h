/** @file
 * The power feed: what the virtual board draws, through a ring in a memory-mapped file (docs/meter-protocol.md).
 *
 * The writer stores records and then their count; it makes the file whole before it renames it into place, and never
 * shortens it. A file that was replaced is found again once the old one is stale.
 */
#ifndef FSJOULE_EMULATED_FEED_H
#define FSJOULE_EMULATED_FEED_H

#include <stddef.h>
#include <stdint.h>

#include "power_records.h"

/** A feed older than this is stale: its writer is gone, and the supply reads 0 V and 0 A. */
#define FEED_STALE_NS 500000000ll

/** A feed with its reader's place in it. */
struct feed {
	const char *path;
	struct feed_file *file; /**< mapped, or NULL */
	size_t file_bytes;
	uint64_t file_id;
	uint32_t capacity;
	uint64_t taken; /**< records of the file that were read */
	int64_t newest_ns; /**< time of the newest record read; INT64_MIN before the first */
	int64_t lost_until_ns; /**< the ring went past the reader: nothing is known before this time */
	struct power_records queue; /**< read and not used up */
};

/** A feed at `path`, which need not exist yet and must outlive the feed. */
void feed_init(struct feed *feed, const char *path);

/** Release everything. */
void feed_close(struct feed *feed);

/** Read what the writer has added. Opens the file if it is new. `now_ns` is CLOCK_MONOTONIC. */
void feed_pull(struct feed *feed, int64_t now_ns);

/** Until when the supply is known: the newest record, but not after now nor more than FEED_STALE_NS ago. */
int64_t feed_known_until_ns(const struct feed *feed, int64_t now_ns);

/** See power_records_mean(). The signature is that of an ina219_source. */
void feed_mean(void *feed, int64_t from_ns, int64_t to_ns, double *volts, double *amperes);

#endif
