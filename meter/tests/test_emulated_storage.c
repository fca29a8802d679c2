/* The file that stands for flash, and a writer that is killed. */

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "fsjoule/settings.h"
#include "storage_file.h"

static char folder[] = "/tmp/fsjoule-storage-XXXXXX";
static char path[64];

static const struct fsj_settings defaults = {.rate_hz = 1000, .shunt_uohm = 100000, .range = FSJ_INA219_RANGE_80MV};

static void test_slots(void)
{
	struct storage_file file;
	uint8_t bytes[FSJ_RECORD_BYTES];
	uint8_t pattern[FSJ_RECORD_BYTES];

	memset(pattern, 0x5A, sizeof(pattern));
	CHECK(storage_file_open(&file, path));
	CHECK_EQUAL(storage_file_read(&file, 1, bytes, sizeof(bytes)), 0);
	CHECK_EQUAL(bytes[0], 0xFF);
	CHECK_EQUAL(storage_file_write(&file, 1, pattern, sizeof(pattern)), 0);
	CHECK_EQUAL(storage_file_read(&file, 1, bytes, sizeof(bytes)), 0);
	CHECK(memcmp(bytes, pattern, sizeof(bytes)) == 0);
	/* The place before it was never written. */
	CHECK_EQUAL(storage_file_read(&file, 0, bytes, sizeof(bytes)), 0);
	CHECK(bytes[0] == 0 && memcmp(bytes, bytes + 1, sizeof(bytes) - 1) == 0);
	storage_file_close(&file);
	CHECK(storage_file_open(&file, path));
	CHECK_EQUAL(storage_file_read(&file, 1, bytes, sizeof(bytes)), 0);
	CHECK(memcmp(bytes, pattern, sizeof(bytes)) == 0);
	storage_file_close(&file);
	CHECK_EQUAL(storage_file_read(&(struct storage_file){-1}, 0, bytes, sizeof(bytes)), -1);
	CHECK_EQUAL(storage_file_write(&(struct storage_file){-1}, 0, bytes, sizeof(bytes)), -1);
	CHECK(!storage_file_open(&file, folder));
	unlink(path);
}

static struct fsj_store load(struct storage_file *file)
{
	const struct fsj_storage storage = {storage_file_read, storage_file_write, file};
	struct fsj_store store;

	CHECK(storage_file_open(file, path));
	fsj_store_load(&store, &storage, &defaults);
	return store;
}

/* Saves 1000, 1001, ... as shunt values until it is killed. */
static void save_for_ever(uint32_t first)
{
	struct storage_file file;
	struct fsj_store store = load(&file);
	struct fsj_settings settings = defaults;

	for (settings.shunt_uohm = first;; settings.shunt_uohm++) {
		CHECK(fsj_store_save(&store, &settings));
	}
}

static void test_a_writer_that_is_killed(void)
{
	uint32_t newest = 1000;

	for (int round = 0; round < 20; round++) {
		struct storage_file file;
		struct fsj_store store;
		const pid_t child = fork();

		CHECK(child >= 0);
		if (child == 0) {
			save_for_ever(newest);
		}
		usleep(5000 + 1000 * (useconds_t)round);
		kill(child, SIGKILL);
		CHECK_EQUAL(waitpid(child, NULL, 0), child);
		store = load(&file);
		CHECK(!store.damaged);
		CHECK(store.generation == 0 || store.saved.shunt_uohm >= newest);
		newest = store.generation == 0 ? newest : store.saved.shunt_uohm;
		storage_file_close(&file);
	}
	CHECK(newest > 1020);
	unlink(path);
}

int main(void)
{
	CHECK(mkdtemp(folder) != NULL);
	snprintf(path, sizeof(path), "%s/storage", folder);
	test_slots();
	test_a_writer_that_is_killed();
	rmdir(folder);
	return 0;
}
