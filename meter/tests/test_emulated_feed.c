/* The power feed's reader, with a writer that does as a virtual board does. */

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "feed.h"

#define CAPACITY 64u
#define MS 1000000ll

struct ring {
	char magic[8];
	uint32_t capacity;
	uint32_t zero;
	uint64_t head;
	uint8_t rest[40];
	struct power_record record[CAPACITY];
};

static char folder[] = "/tmp/fsjoule-feed-XXXXXX";
static char path[64];

/* A new file, renamed into place. */
static struct ring *create(void)
{
	char beside[64];
	struct ring *ring;
	int fd;

	snprintf(beside, sizeof(beside), "%s/beside", folder);
	fd = open(beside, O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0);
	CHECK_EQUAL(ftruncate(fd, sizeof(struct ring)), 0);
	ring = mmap(NULL, sizeof(struct ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(ring != MAP_FAILED);
	close(fd);
	memcpy(ring->magic, "FSJFEED1", 8);
	ring->capacity = CAPACITY;
	CHECK_EQUAL(rename(beside, path), 0);
	return ring;
}

static void add(struct ring *ring, int64_t time_ns, double volts, double amperes)
{
	ring->record[ring->head % CAPACITY] = (struct power_record){time_ns, volts, amperes};
	__atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
}

static void release(struct ring *ring, struct feed *feed)
{
	munmap(ring, sizeof(*ring));
	unlink(path);
	feed_close(feed);
}

static double amperes_of(struct feed *feed, int64_t from_ns, int64_t to_ns)
{
	double volts;
	double amperes;

	feed_mean(feed, from_ns, to_ns, &volts, &amperes);
	return amperes;
}

static void test_means_over_records(void)
{
	struct feed feed;
	struct ring *ring = create();

	feed_init(&feed, path);
	add(ring, 1000 * MS, 5.0, 9.0);
	add(ring, 1002 * MS, 5.0, 0.2);
	add(ring, 1004 * MS, 5.0, 0.4);
	feed_pull(&feed, 1004 * MS);
	CHECK_EQUAL(feed_known_until_ns(&feed, 1004 * MS), 1004 * MS);
	/* The first record only says when the writer began. */
	CHECK_NEAR(amperes_of(&feed, 998 * MS, 1000 * MS), 0.0, 1e-12);
	CHECK_NEAR(amperes_of(&feed, 1000 * MS, 1001 * MS), 0.2, 1e-12);
	CHECK_NEAR(amperes_of(&feed, 1001 * MS, 1003 * MS), 0.3, 1e-12);
	CHECK_NEAR(amperes_of(&feed, 1003 * MS, 1004 * MS), 0.4, 1e-12);
	CHECK_NEAR(amperes_of(&feed, 1004 * MS, 1005 * MS), 0.0, 1e-12);
	add(ring, 1010 * MS, 5.0, 0.6);
	feed_pull(&feed, 1010 * MS);
	CHECK_NEAR(amperes_of(&feed, 1005 * MS, 1010 * MS), 0.6, 1e-12);
	release(ring, &feed);
}

static void test_a_stale_feed(void)
{
	struct feed feed;
	struct ring *ring;

	feed_init(&feed, path);
	feed_pull(&feed, 1000 * MS);
	CHECK_EQUAL(feed_known_until_ns(&feed, 1000 * MS), 500 * MS);
	ring = create();
	add(ring, 1000 * MS, 5.0, 0.2);
	add(ring, 1001 * MS, 5.0, 0.2);
	feed_pull(&feed, 1001 * MS);
	CHECK_EQUAL(feed_known_until_ns(&feed, 1400 * MS), 1001 * MS);
	CHECK_EQUAL(feed_known_until_ns(&feed, 2000 * MS), 1500 * MS);
	CHECK_EQUAL(feed_known_until_ns(&feed, 900 * MS), 900 * MS);
	CHECK_NEAR(amperes_of(&feed, 1000 * MS, 1002 * MS), 0.1, 1e-12);
	CHECK_NEAR(amperes_of(&feed, 1002 * MS, 1500 * MS), 0.0, 1e-12);
	release(ring, &feed);
}

static void test_a_writer_that_starts_anew(void)
{
	struct feed feed;
	struct ring *first = create();
	struct ring *second;

	feed_init(&feed, path);
	add(first, 1000 * MS, 5.0, 0.2);
	add(first, 1001 * MS, 5.0, 0.2);
	feed_pull(&feed, 1001 * MS);
	second = create();
	add(second, 1600 * MS, 5.0, 0.4);
	add(second, 1601 * MS, 5.0, 0.4);
	feed_pull(&feed, 1602 * MS);
	CHECK_NEAR(amperes_of(&feed, 1001 * MS, 1600 * MS), 0.0, 1e-12);
	CHECK_NEAR(amperes_of(&feed, 1600 * MS, 1601 * MS), 0.4, 1e-12);
	munmap(first, sizeof(*first));
	release(second, &feed);
}

static void test_a_writer_that_starts_anew_in_the_same_file(void)
{
	struct feed feed;
	struct ring *ring = create();

	feed_init(&feed, path);
	for (int64_t i = 0; i < 10; i++) {
		add(ring, (1000 + i) * MS, 5.0, 0.2);
	}
	feed_pull(&feed, 1010 * MS);
	ring->head = 0;
	add(ring, 2000 * MS, 5.0, 0.4);
	add(ring, 2001 * MS, 5.0, 0.4);
	feed_pull(&feed, 2002 * MS);
	CHECK_EQUAL(feed_known_until_ns(&feed, 2002 * MS), 2001 * MS);
	CHECK_NEAR(amperes_of(&feed, 2000 * MS, 2001 * MS), 0.4, 1e-12);
	release(ring, &feed);
}

static void test_a_slot_that_is_not_written_yet_is_waited_for(void)
{
	struct feed feed;
	struct ring *ring = create();

	feed_init(&feed, path);
	add(ring, 1000 * MS, 5.0, 0.2);
	add(ring, 1001 * MS, 5.0, 0.2);
	feed_pull(&feed, 1001 * MS);
	ring->head = 40;
	feed_pull(&feed, 1001 * MS);
	CHECK_EQUAL(feed_known_until_ns(&feed, 1001 * MS), 1001 * MS);
	ring->head = 1;
	feed_pull(&feed, 1001 * MS);
	ring->head = 2;
	add(ring, 1002 * MS, 5.0, 0.4);
	feed_pull(&feed, 1002 * MS);
	CHECK_NEAR(amperes_of(&feed, 1001 * MS, 1002 * MS), 0.4, 1e-12);
	release(ring, &feed);
}

static void test_a_ring_that_went_past_the_reader(void)
{
	struct feed feed;
	struct ring *ring = create();

	feed_init(&feed, path);
	add(ring, 1000 * MS, 5.0, 0.2);
	feed_pull(&feed, 1000 * MS);
	CHECK(feed.lost_until_ns < 1000 * MS);
	for (int64_t i = 1; i <= 100; i++) {
		add(ring, (1000 + i) * MS, 5.0, 0.001 * (double)i);
	}
	feed_pull(&feed, 1100 * MS);
	/* 101 records written, 60 of the ring's 64 are safe: the first of them bounds what is known. */
	CHECK_EQUAL(feed.lost_until_ns, 1041 * MS);
	CHECK_NEAR(amperes_of(&feed, 1041 * MS, 1042 * MS), 0.042, 1e-12);
	CHECK_NEAR(amperes_of(&feed, 1099 * MS, 1100 * MS), 0.1, 1e-12);
	release(ring, &feed);
}

static void test_what_is_no_feed_is_not_read(void)
{
	struct feed feed;
	struct ring *ring = create();

	ring->magic[0] = 'X';
	add(ring, 1000 * MS, 5.0, 0.2);
	feed_init(&feed, path);
	feed_pull(&feed, 1000 * MS);
	CHECK(feed.file == NULL);
	ring->magic[0] = 'F';
	ring->capacity = CAPACITY + 1;
	feed_pull(&feed, 1000 * MS);
	CHECK(feed.file == NULL);
	ring->capacity = CAPACITY;
	feed_pull(&feed, 1000 * MS);
	CHECK(feed.file != NULL);
	release(ring, &feed);
}

int main(void)
{
	CHECK(mkdtemp(folder) != NULL);
	snprintf(path, sizeof(path), "%s/feed", folder);
	test_means_over_records();
	test_a_stale_feed();
	test_a_writer_that_starts_anew();
	test_a_writer_that_starts_anew_in_the_same_file();
	test_a_slot_that_is_not_written_yet_is_waited_for();
	test_a_ring_that_went_past_the_reader();
	test_what_is_no_feed_is_not_read();
	rmdir(folder);
	return 0;
}
