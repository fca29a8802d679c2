/** @file
 * What a board draws, as records in the order of time, and its mean over any interval.
 */
#ifndef FSJOULE_EMULATED_POWER_RECORDS_H
#define FSJOULE_EMULATED_POWER_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** As it stands in a feed and in a file to be replayed, in the byte order of the machine. */
struct power_record {
	int64_t time_ns;
	double volts; /**< since the record before, up to `time_ns` */
	double amperes;
};

_Static_assert(sizeof(struct power_record) == 24, "a record has 24 bytes");

/** Records that are still needed. All zero is none of them. */
struct power_records {
	struct power_record *record;
	size_t size; /**< there is room for */
	size_t first; /**< the oldest; it reaches past all that was asked for */
	size_t count;
	int64_t from_ns; /**< since when the oldest holds */
};

/** Add a record that is newer than all others.
 *
 * @param from_ns  since when it holds; used if it is the only one, otherwise it holds since the one before
 * @retval false   there is no memory
 */
bool power_records_add(struct power_records *records, const struct power_record *record, int64_t from_ns);

/** Forget all records. */
void power_records_clear(struct power_records *records);

/** Release the memory. */
void power_records_free(struct power_records *records);

/** Mean volts and amperes of [from_ns, to_ns); parts that no record covers count as 0 V and 0 A. Intervals must be
 * asked for in the order of time: records that end before `to_ns` are forgotten.
 */
void power_records_mean(struct power_records *records, int64_t from_ns, int64_t to_ns, double *volts, double *amperes);

#endif
