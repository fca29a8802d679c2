#include "feed.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "FSJFEED1"
#define CAPACITY_MAX (1u << 24)

/* The file's layout; records follow the header. */
struct feed_file {
	char magic[8];
	uint32_t capacity;
	uint32_t reserved;
	uint64_t head; /* records ever written */
	uint8_t rest[40];
	struct power_record record[];
};

_Static_assert(sizeof(struct feed_file) == 64, "the header has 64 bytes");

void feed_init(struct feed *feed, const char *path)
{
	memset(feed, 0, sizeof(*feed));
	feed->path = path;
	feed->newest_ns = INT64_MIN;
	feed->lost_until_ns = INT64_MIN;
}

static void unmap(struct feed *feed)
{
	if (feed->file != NULL) {
		munmap(feed->file, feed->file_bytes);
		feed->file = NULL;
	}
}

void feed_close(struct feed *feed)
{
	unmap(feed);
	power_records_free(&feed->queue);
}

/* ------------------------------------------------------------------------------------------------- the file */

static bool valid(const struct feed_file *file, size_t bytes)
{
	return memcmp(file->magic, MAGIC, sizeof(file->magic)) == 0 && file->capacity > 0 &&
	       file->capacity <= CAPACITY_MAX &&
	       bytes >= sizeof(struct feed_file) + file->capacity * sizeof(struct power_record);
}

static void map(struct feed *feed, int fd, const struct stat *status)
{
	const size_t bytes = (size_t)status->st_size;
	struct feed_file *file;

	if (bytes < sizeof(*file)) {
		return;
	}
	file = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (file == MAP_FAILED) {
		return;
	}
	if (!valid(file, bytes)) {
		munmap(file, bytes);
		return;
	}
	feed->file = file;
	feed->file_bytes = bytes;
	feed->file_id = (uint64_t)status->st_ino;
	feed->capacity = file->capacity;
	feed->taken = 0;
}

/* Map the file at the path if it is not the one that is mapped: a board program that starts anew makes a new one. */
static void look_for_file(struct feed *feed)
{
	struct stat status;
	const int fd = open(feed->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		return;
	}
	if (fstat(fd, &status) == 0 && (feed->file == NULL || (uint64_t)status.st_ino != feed->file_id)) {
		unmap(feed);
		map(feed, fd, &status);
	}
	close(fd);
}

/* ------------------------------------------------------------------------------------------------ the records */

static bool queue_add(struct feed *feed, const struct power_record *record)
{
	struct power_record added = *record;

	if (feed->taken == 0) {
		/* A writer's first record only says when it began: before that the supply was off. */
		added.volts = 0.0;
		added.amperes = 0.0;
	}
	if (!power_records_add(&feed->queue, &added, feed->newest_ns == INT64_MIN ? added.time_ns : feed->newest_ns)) {
		return false;
	}
	feed->newest_ns = record->time_ns;
	return true;
}

/* The count of records; false while it is being changed, for a writer may store it byte by byte. */
static bool read_head(const struct feed *feed, uint64_t *head)
{
	*head = __atomic_load_n(&feed->file->head, __ATOMIC_ACQUIRE);
	return __atomic_load_n(&feed->file->head, __ATOMIC_ACQUIRE) == *head;
}

/* Records from this many before the newest are safe from the writer while they are read. */
static uint64_t safe_records(const struct feed *feed)
{
	return feed->capacity - feed->capacity / 16;
}

/* The writer went past the reader: go on at the oldest record that is safe. Nothing is known of the time before it. */
static void skip_overwritten(struct feed *feed, uint64_t head)
{
	feed->taken = head - safe_records(feed);
	feed->lost_until_ns = feed->file->record[feed->taken % feed->capacity].time_ns;
	feed->newest_ns = feed->lost_until_ns;
	power_records_clear(&feed->queue);
	feed->taken++;
}

/* A record that is not newer than the one before is a slot not yet written, unless the feed is stale: then it is left
 * over from a writer before.
 */
static void take_records(struct feed *feed, uint64_t head, bool stale)
{
	while (feed->taken < head) {
		const struct power_record record = feed->file->record[feed->taken % feed->capacity];

		if (record.time_ns > feed->newest_ns) {
			if (!queue_add(feed, &record)) {
				return;
			}
		} else if (!stale) {
			return;
		}
		feed->taken++;
	}
}

void feed_pull(struct feed *feed, int64_t now_ns)
{
	const bool stale = feed->newest_ns < now_ns - FEED_STALE_NS;
	uint64_t head;

	if (feed->file == NULL || stale) {
		look_for_file(feed);
	}
	if (feed->file == NULL || !read_head(feed, &head)) {
		return;
	}
	if (head < feed->taken) {
		if (!stale) {
			return;
		}
		feed->taken = 0;
	}
	if (head - feed->taken > safe_records(feed)) {
		skip_overwritten(feed, head);
	}
	take_records(feed, head, stale);
}

int64_t feed_known_until_ns(const struct feed *feed, int64_t now_ns)
{
	const int64_t oldest_ns = now_ns - FEED_STALE_NS;

	if (feed->newest_ns < oldest_ns) {
		return oldest_ns;
	}
	return feed->newest_ns < now_ns ? feed->newest_ns : now_ns;
}

void feed_mean(void *context, int64_t from_ns, int64_t to_ns, double *volts, double *amperes)
{
	struct feed *feed = context;

	power_records_mean(&feed->queue, from_ns, to_ns, volts, amperes);
}
