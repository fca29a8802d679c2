/* What is stored: whole or not at all, whatever tears it. */

#include "check.h"
#include "fsjoule/crc32.h"
#include "fsjoule/settings.h"

static struct {
	uint8_t slot[FSJ_RECORD_SLOTS][FSJ_RECORD_BYTES];
	size_t write_stops_at;
	bool write_lies; /* it says that it wrote */
	bool read_fails[FSJ_RECORD_SLOTS];
	unsigned int writes[FSJ_RECORD_SLOTS];
} memory;

static int read_slot(void *context, unsigned int slot, uint8_t *bytes, size_t size)
{
	(void)context;
	memcpy(bytes, memory.slot[slot], size);
	return memory.read_fails[slot] ? -5 : 0;
}

static int write_slot(void *context, unsigned int slot, const uint8_t *bytes, size_t size)
{
	const bool torn = memory.write_stops_at < size;

	(void)context;
	memory.writes[slot]++;
	memcpy(memory.slot[slot], bytes, torn ? memory.write_stops_at : size);
	return torn && !memory.write_lies ? -5 : 0;
}

static const struct fsj_storage storage = {read_slot, write_slot, NULL};

static const struct fsj_settings defaults = {.rate_hz = 1000, .shunt_uohm = 100000, .range = FSJ_INA219_RANGE_80MV};

/* Settings that differ in every field for every `number`. */
static struct fsj_settings numbered(uint32_t number)
{
	static const uint32_t rates[] = {100, 200, 500, 1250, 2000};

	return (struct fsj_settings){
		.rate_hz = rates[number % 5],
		.shunt_uohm = 1000 + number,
		.range = (enum fsj_ina219_range)(number % 4),
		.bus_32v = number % 2 == 0,
		.calibration = {
			.shunt_offset_nv = -100 - (int32_t)number,
			.current_gain_ppm = 200 + (int32_t)number,
			.bus_gain_ppm = -300 - (int32_t)number,
			.gain_uncertainty_ppm = 400 + number,
			.zero_date = 500 + number,
			.gain_date = 600 + number,
		},
	};
}

static struct fsj_store loaded(void)
{
	struct fsj_store store;

	memset(&store, 0x55, sizeof(store));
	fsj_store_load(&store, &storage, &defaults);
	return store;
}

static void clear(uint8_t byte)
{
	memset(&memory, 0, sizeof(memory));
	memset(memory.slot, byte, sizeof(memory.slot));
	memory.write_stops_at = FSJ_RECORD_BYTES;
}

static void test_empty_storage(void)
{
	for (int byte = 0; byte <= 0xFF; byte += 0xFF) {
		struct fsj_store store;

		clear((uint8_t)byte);
		store = loaded();
		CHECK(fsj_settings_equal(&store.saved, &defaults));
		CHECK_EQUAL(store.generation, 0);
		CHECK(!store.damaged);
		CHECK(fsj_store_works(&store));
	}
}

static void test_saved_settings_are_found(void)
{
	struct fsj_store store;

	clear(0xFF);
	store = loaded();
	for (uint32_t number = 0; number < 50; number++) {
		const struct fsj_settings settings = numbered(number);
		struct fsj_store again;

		CHECK(fsj_store_save(&store, &settings));
		CHECK_EQUAL(store.generation, number + 1);
		again = loaded();
		CHECK(fsj_settings_equal(&again.saved, &settings));
		CHECK(!fsj_settings_equal(&again.saved, &defaults));
		CHECK_EQUAL(again.generation, number + 1);
		CHECK(!again.damaged);
		/* A restart in between changes nothing. */
		store = number % 3 == 0 ? again : store;
	}
	CHECK_EQUAL(memory.writes[0], 25);
	CHECK_EQUAL(memory.writes[1], 25);
}

/* A write that stops after any number of bytes, on blank memory, on the record of before, or on noise. */
static void torn_write(size_t stops_at, int under, bool lies)
{
	const struct fsj_settings before = numbered(1);
	const struct fsj_settings after = numbered(2);
	const bool whole = stops_at == FSJ_RECORD_BYTES;
	struct fsj_store store;

	clear(0xFF);
	store = loaded();
	CHECK(fsj_store_save(&store, &(struct fsj_settings){.rate_hz = 500, .shunt_uohm = 7777}));
	CHECK(fsj_store_save(&store, &before));
	if (under != 0) {
		memset(memory.slot[0], under, FSJ_RECORD_BYTES);
	}
	memory.write_stops_at = stops_at;
	memory.write_lies = lies;
	CHECK_EQUAL(fsj_store_save(&store, &after), whole);
	CHECK(fsj_settings_equal(&store.saved, whole ? &after : &before));
	store = loaded();
	CHECK(fsj_settings_equal(&store.saved, whole ? &after : &before));
	CHECK_EQUAL(store.generation, whole ? 3 : 2);
	/* The next one is whole again, and goes to the torn place. */
	memory.write_stops_at = FSJ_RECORD_BYTES;
	CHECK(fsj_store_save(&store, &after));
	store = loaded();
	CHECK(fsj_settings_equal(&store.saved, &after));
	CHECK(!store.damaged);
}

static void test_torn_writes(void)
{
	for (size_t stops_at = 0; stops_at <= FSJ_RECORD_BYTES; stops_at++) {
		torn_write(stops_at, 0, false);
		torn_write(stops_at, 0, true);
		torn_write(stops_at, 0xFF, false);
		torn_write(stops_at, 0xA5, true);
	}
}

static void test_any_damaged_bit_is_seen(void)
{
	const struct fsj_settings first = numbered(1);
	const struct fsj_settings second = numbered(2);
	struct fsj_store store;

	clear(0xFF);
	store = loaded();
	CHECK(fsj_store_save(&store, &first));
	CHECK(fsj_store_save(&store, &second));
	for (size_t bit = 0; bit < 8 * FSJ_RECORD_BYTES; bit++) {
		const uint8_t mask = (uint8_t)(1u << (bit % 8));

		memory.slot[1][bit / 8] ^= mask;
		store = loaded();
		CHECK(fsj_settings_equal(&store.saved, &first));
		CHECK(store.damaged);
		memory.slot[0][bit / 8] ^= mask;
		store = loaded();
		CHECK(fsj_settings_equal(&store.saved, &defaults));
		CHECK(store.damaged);
		CHECK_EQUAL(store.generation, 0);
		memory.slot[0][bit / 8] ^= mask;
		memory.slot[1][bit / 8] ^= mask;
	}
}

static void test_generations_wrap(void)
{
	struct fsj_settings settings = numbered(1);
	struct fsj_store store;

	clear(0xFF);
	store = loaded();
	store.generation = 0xFFFFFFFDu;
	for (uint32_t number = 2; number < 8; number++) {
		settings = numbered(number);
		CHECK(fsj_store_save(&store, &settings));
		store = loaded();
		CHECK(fsj_settings_equal(&store.saved, &settings));
	}
	CHECK_EQUAL(store.generation, 4); /* 0 is left out */
}

static void test_storage_that_cannot_be_read(void)
{
	const struct fsj_settings settings = numbered(1);
	struct fsj_store store;

	clear(0xFF);
	store = loaded();
	CHECK(fsj_store_save(&store, &settings));
	memory.read_fails[1] = true;
	store = loaded();
	CHECK(fsj_settings_equal(&store.saved, &settings));
	CHECK(store.damaged);
	CHECK(!fsj_store_works(&store));
	memory.read_fails[0] = true;
	store = loaded();
	CHECK(fsj_settings_equal(&store.saved, &defaults));
	CHECK(!fsj_store_save(&store, &settings));
}

static void test_no_storage(void)
{
	const struct fsj_storage none = {NULL, NULL, NULL};
	const struct fsj_settings settings = numbered(1);
	struct fsj_store store;

	fsj_store_load(&store, &none, &defaults);
	CHECK(fsj_settings_equal(&store.saved, &defaults));
	CHECK(!store.damaged);
	CHECK(!fsj_store_save(&store, &settings));
	CHECK(fsj_settings_equal(&store.saved, &defaults));
	CHECK(!fsj_store_works(&store));
}

/* Another version of the core may have stored what this one cannot do. */
static void test_settings_that_are_not_allowed(void)
{
	const struct fsj_settings bad[] = {
		{99, 100000, FSJ_INA219_RANGE_80MV, false, {0}},
		{0, 100000, FSJ_INA219_RANGE_80MV, false, {0}},
		{300, 100000, FSJ_INA219_RANGE_80MV, false, {0}},
		{2500, 100000, FSJ_INA219_RANGE_80MV, false, {0}},
		{1000, 999, FSJ_INA219_RANGE_80MV, false, {0}},
		{1000, 1000001, FSJ_INA219_RANGE_80MV, false, {0}},
		{1000, 100000, FSJ_INA219_RANGE_80MV, false, {.shunt_offset_nv = 400001}},
		{1000, 100000, FSJ_INA219_RANGE_80MV, false, {.shunt_offset_nv = -400001}},
		{1000, 100000, FSJ_INA219_RANGE_80MV, false, {.current_gain_ppm = 50001}},
		{1000, 100000, FSJ_INA219_RANGE_80MV, false, {.current_gain_ppm = -50001}},
		{1000, 100000, FSJ_INA219_RANGE_80MV, false, {.bus_gain_ppm = 50001}},
		{1000, 100000, FSJ_INA219_RANGE_80MV, false, {.bus_gain_ppm = -50001}},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fsj_store store;

		CHECK(!fsj_settings_valid(&bad[i]));
		clear(0xFF);
		store = loaded();
		CHECK(!fsj_store_save(&store, &bad[i]));
		store = loaded();
		CHECK(store.damaged);
		CHECK(fsj_settings_equal(&store.saved, &defaults));
	}
}

static void test_a_record_of_another_version(void)
{
	const struct fsj_settings settings = numbered(1);
	struct fsj_store store;
	uint32_t crc;

	clear(0xFF);
	store = loaded();
	CHECK(fsj_store_save(&store, &settings));
	memory.slot[0][4]++;
	crc = fsj_crc32(memory.slot[0], FSJ_RECORD_BYTES - 4);
	for (size_t i = 0; i < 4; i++) {
		memory.slot[0][FSJ_RECORD_BYTES - 4 + i] = (uint8_t)(crc >> (8 * i));
	}
	store = loaded();
	CHECK(store.damaged);
	CHECK(fsj_settings_equal(&store.saved, &defaults));
}

static void test_settings_that_differ_in_one_field(void)
{
	struct fsj_settings other[9];

	for (size_t i = 0; i < 9; i++) {
		other[i] = numbered(1);
		CHECK(fsj_settings_equal(&other[i], &other[0]));
	}
	other[0].rate_hz++;
	other[1].shunt_uohm++;
	other[2].range = FSJ_INA219_RANGE_40MV;
	other[3].calibration.shunt_offset_nv++;
	other[4].calibration.current_gain_ppm++;
	other[5].calibration.bus_gain_ppm++;
	other[6].calibration.gain_uncertainty_ppm++;
	other[7].calibration.zero_date++;
	other[8].calibration.gain_date++;
	for (size_t i = 0; i < 9; i++) {
		const struct fsj_settings one = numbered(1);

		CHECK(!fsj_settings_equal(&other[i], &one));
		CHECK(!fsj_settings_equal(&one, &other[i]));
	}
}

int main(void)
{
	test_empty_storage();
	test_saved_settings_are_found();
	test_torn_writes();
	test_any_damaged_bit_is_seen();
	test_generations_wrap();
	test_storage_that_cannot_be_read();
	test_no_storage();
	test_settings_that_are_not_allowed();
	test_a_record_of_another_version();
	test_settings_that_differ_in_one_field();
	return 0;
}
