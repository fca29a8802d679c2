#include <string.h>
#include <zephyr/storage/flash_map.h>
#include <zephyr/ztest.h>

#include "storage.h"
#include "watching.h"

static const struct fsj_settings defaults = {.rate_hz = 1000, .shunt_uohm = 100000, .range = FSJ_INA219_RANGE_80MV};

/* What a meter that starts now would find. */
static struct fsj_store load(void)
{
	const struct fsj_storage storage = storage_get();
	struct fsj_store store = {0};

	fsj_store_load(&store, &storage, &defaults);
	return store;
}

static struct fsj_settings with_shunt(uint32_t shunt_uohm)
{
	struct fsj_settings settings = defaults;

	settings.shunt_uohm = shunt_uohm;
	return settings;
}

static void erase(int id)
{
	const struct flash_area *area;

	zassert_equal(flash_area_open((uint8_t)id, &area), 0);
	zassert_equal(flash_area_erase(area, 0, area->fa_size), 0);
	flash_area_close(area);
}

static void erase_all(void *fixture)
{
	ARG_UNUSED(fixture);
	erase(FIXED_PARTITION_ID(storage0));
	erase(FIXED_PARTITION_ID(storage1));
}

/* Clear some bits of the newest record of a slot. */
static void tear(unsigned int slot)
{
	const int ids[] = {FIXED_PARTITION_ID(storage0), FIXED_PARTITION_ID(storage1)};
	const uint8_t zeros[8] = {0};
	uint8_t bytes[FSJ_RECORD_BYTES];
	const struct flash_area *area;
	off_t last = 0;

	zassert_equal(flash_area_open((uint8_t)ids[slot], &area), 0);
	for (off_t at = 0; at < (off_t)area->fa_size; at += FSJ_RECORD_BYTES) {
		zassert_equal(flash_area_read(area, at, bytes, sizeof(bytes)), 0);
		last = bytes[0] != 0xFF ? at : last;
	}
	zassert_equal(flash_area_write(area, last + 16, zeros, sizeof(zeros)), 0);
	flash_area_close(area);
}

ZTEST(storage, test_nothing_stored_is_the_defaults)
{
	const struct fsj_store store = load();

	zassert_true(fsj_settings_equal(&store.saved, &defaults));
	zassert_equal(store.generation, 0);
	zassert_false(store.damaged);
	zassert_true(fsj_store_works(&store));
}

/* So many that both partitions are erased more than once. */
ZTEST(storage, test_the_newest_of_many_counts)
{
	for (uint32_t i = 1; i <= 500; i++) {
		struct fsj_store store = load();
		const struct fsj_settings settings = with_shunt(1000 + i);

		zassert_true(fsj_store_save(&store, &settings), "save %u", i);
		store = load();
		zassert_equal(store.saved.shunt_uohm, 1000 + i, "save %u", i);
		zassert_equal(store.generation, i);
		zassert_false(store.damaged);
	}
}

ZTEST(storage, test_a_torn_write_leaves_what_was_before)
{
	struct fsj_store store = load();
	struct fsj_settings settings = with_shunt(50000);

	zassert_true(fsj_store_save(&store, &settings));
	settings = with_shunt(20000);
	zassert_true(fsj_store_save(&store, &settings));
	tear(store.slot);
	store = load();
	zassert_true(store.damaged);
	zassert_equal(store.saved.shunt_uohm, 50000);
	/* And the next one goes behind the torn one. */
	zassert_true(fsj_store_save(&store, &settings));
	store = load();
	zassert_false(store.damaged);
	zassert_equal(store.saved.shunt_uohm, 20000);
}

ZTEST(storage, test_the_command_saves)
{
	const uint32_t shunt_uohm = 70000;

	begin();
	begin_test(NULL);
	zassert_equal(command(FSJ_COMMAND_SHUNT, &shunt_uohm, sizeof(shunt_uohm)).status, FSJ_REPLY_DONE);
	zassert_true((follower.info.flags & FSJ_INFO_UNSAVED) != 0);
	zassert_equal(command(FSJ_COMMAND_SAVE, NULL, 0).status, FSJ_REPLY_DONE);
	zassert_true((follower.info.flags & FSJ_INFO_UNSAVED) == 0);
	zassert_equal(load().saved.shunt_uohm, shunt_uohm);
}

ZTEST_SUITE(storage, NULL, NULL, erase_all, NULL, NULL);
