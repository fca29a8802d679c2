#include "power_records.h"

#include <stdlib.h>
#include <string.h>

/* Room at the end for one more: first by taking that of records forgotten, if they are half of it, then by memory. */
static bool make_room(struct power_records *records)
{
	const size_t size = records->size == 0 ? 1024 : 2 * records->size;
	struct power_record *record;

	if (records->first + records->count < records->size) {
		return true;
	}
	if (records->first > 0 && records->first >= records->count) {
		memmove(records->record, records->record + records->first, records->count * sizeof(*records->record));
		records->first = 0;
		return true;
	}
	record = realloc(records->record, size * sizeof(*record));
	if (record == NULL) {
		return false;
	}
	records->record = record;
	records->size = size;
	return true;
}

bool power_records_add(struct power_records *records, const struct power_record *record, int64_t from_ns)
{
	if (!make_room(records)) {
		return false;
	}
	if (records->count == 0) {
		records->from_ns = from_ns;
	}
	records->record[records->first + records->count++] = *record;
	return true;
}

void power_records_clear(struct power_records *records)
{
	records->first = 0;
	records->count = 0;
}

void power_records_free(struct power_records *records)
{
	free(records->record);
	*records = (struct power_records){0};
}

void power_records_mean(struct power_records *records, int64_t from_ns, int64_t to_ns, double *volts, double *amperes)
{
	const double duration = (double)(to_ns - from_ns);
	const size_t end = records->first + records->count;

	*volts = 0.0;
	*amperes = 0.0;
	for (size_t i = records->first; i < end && records->from_ns < to_ns; i++) {
		const struct power_record *record = &records->record[i];
		const int64_t low = records->from_ns > from_ns ? records->from_ns : from_ns;
		const int64_t high = record->time_ns < to_ns ? record->time_ns : to_ns;

		if (high > low) {
			*volts += record->volts * (double)(high - low) / duration;
			*amperes += record->amperes * (double)(high - low) / duration;
		}
		if (record->time_ns > to_ns) {
			break;
		}
		records->from_ns = record->time_ns;
		records->first++;
		records->count--;
	}
}
