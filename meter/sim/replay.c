#include "replay.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "instrument.h"
#include "power_records.h"
#include "storage_file.h"

struct recording {
	const char *path;
	FILE *file;
	struct power_records records;
	uint64_t count;
	int64_t newest_ns;
	bool ended;
	bool bad;
};

static bool complain(const char *path, const char *what)
{
	fprintf(stderr, "fsjoule-meter-sim: %s: %s\n", path, what);
	return false;
}

static void give_up(struct recording *r, const char *what)
{
	fprintf(stderr, "fsjoule-meter-sim: %s: record %llu %s\n", r->path, (unsigned long long)r->count, what);
	r->bad = true;
	r->ended = true;
}

static void read_record(struct recording *r)
{
	struct power_record record;
	const size_t size = fread(&record, 1, sizeof(record), r->file);

	if (size == 0) {
		r->ended = true;
	} else if (size < sizeof(record)) {
		give_up(r, "is cut off");
	} else if (r->count > 0 && record.time_ns <= r->newest_ns) {
		give_up(r, "is not later than the one before");
	} else if (!isfinite(record.volts) || !isfinite(record.amperes)) {
		give_up(r, "holds what is no number");
	} else {
		/* The first one only says when the recording began. */
		if (r->count > 0 && !power_records_add(&r->records, &record, r->newest_ns)) {
			give_up(r, "finds no memory");
		}
		r->newest_ns = record.time_ns;
		r->count++;
	}
}

static void mean(void *context, int64_t from_ns, int64_t to_ns, double *volts, double *amperes)
{
	struct recording *r = context;

	power_records_mean(&r->records, from_ns, to_ns, volts, amperes);
}

static bool frame_to_stdout(void *context, const uint8_t *bytes, size_t size)
{
	(void)context;
	return fwrite(bytes, 1, size, stdout) == size;
}

static bool run(struct recording *r, const struct options *options, const struct fsj_storage *storage)
{
	static struct instrument instrument;
	const struct fsj_output output = {frame_to_stdout, NULL};
	const struct ina219_source source = {mean, r};

	read_record(r);
	if (r->count == 0 && !r->bad) {
		give_up(r, "is missing");
	}
	instrument_start(&instrument, options, source, &output, storage, r->newest_ns);
	while (!r->ended) {
		if (r->newest_ns < instrument_tick_end_ns(&instrument)) {
			read_record(r);
		} else {
			instrument_tick(&instrument);
		}
	}
	fsj_meter_flush(&instrument.meter);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		return complain("stdout", "it takes no more");
	}
	return !r->bad;
}

bool replay_run(const struct options *options)
{
	struct recording recording = {.path = options->replay, .file = fopen(options->replay, "rb")};
	struct storage_file file;
	const struct fsj_storage storage = {storage_file_read, storage_file_write, &file};
	bool done;

	if (recording.file == NULL) {
		return complain(options->replay, strerror(errno));
	}
	if (options->storage != NULL && !storage_file_open(&file, options->storage)) {
		fclose(recording.file);
		return complain(options->storage, strerror(errno));
	}
	done = run(&recording, options, options->storage != NULL ? &storage : NULL);
	if (options->storage != NULL) {
		storage_file_close(&file);
	}
	power_records_free(&recording.records);
	fclose(recording.file);
	return done;
}
