/* The INA228 in the meter, against its emulation. */

#include "check.h"
#include "fsjoule/ina228.h"
#include "fsjoule/meter.h"
#include "ina228_emulated.h"
#include "parse.h"

#define SHUNT_UOHM 100000u
#define SLOWEST_PPM 10000

static const uint32_t rates_hz[] = {100, 125, 160, 200, 250, 320, 400, 500, 625, 800, 1000, 1250, 1600, 2000};

static struct {
	struct fsj_meter meter;
	struct ina228_emulated chip;
	struct follower follower;
	struct fsj_samples last;
	double volts;
	double amperes;
	uint64_t now_us;
	uint32_t samples;
	uint8_t flags;
	bool gone;
} bench;

static void mean(void *context, int64_t from_ns, int64_t to_ns, double *volts, double *amperes)
{
	(void)context;
	(void)from_ns;
	(void)to_ns;
	*volts = bench.volts;
	*amperes = bench.amperes;
}

static int write_register(void *context, uint8_t reg, uint16_t value)
{
	return bench.gone ? -5 : ina228_emulated_write(context, reg, value);
}

static int read_register(void *context, uint8_t reg, uint16_t *value)
{
	return bench.gone ? -5 : ina228_emulated_read(context, reg, value);
}

static int read_bytes(void *context, uint8_t reg, uint8_t *bytes, size_t size)
{
	return bench.gone ? -5 : ina228_emulated_read_bytes(context, reg, bytes, size);
}

static bool take_frame(void *context, const uint8_t *bytes, size_t size)
{
	const struct parsed frame = parse(bytes, size);

	(void)context;
	follow(&bench.follower, &frame);
	if (frame.type == FSJ_FRAME_SAMPLES) {
		bench.samples += frame.samples.count;
		bench.flags |= frame.samples.flags;
		bench.last = frame.samples;
	}
	return true;
}

static void start(uint32_t rate_hz, enum fsj_ina219_range range, double volts, double amperes)
{
	const struct fsj_meter_config config = {
		.defaults = {.rate_hz = rate_hz, .shunt_uohm = SHUNT_UOHM, .range = range, .bus_32v = true},
		.chip = &fsj_chip_ina228,
		.mark_silence_us = FSJ_MARK_SILENCE_US,
		.serial_number = "INA228",
	};
	const struct fsj_i2c i2c = {
		.write_register = write_register,
		.read_register = read_register,
		.read_bytes = read_bytes,
		.context = &bench.chip,
	};
	const struct fsj_output output = {take_frame, NULL};
	const struct fsj_storage storage = {0};

	memset(&bench, 0, sizeof(bench));
	bench.volts = volts;
	bench.amperes = amperes;
	ina228_emulated_init(&bench.chip, SHUNT_UOHM, (struct ina219_source){mean, NULL}, 0);
	CHECK_EQUAL(fsj_meter_start(&bench.meter, &config, &i2c, &output, &storage), FSJ_OK);
}

static void ticks(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		bench.now_us += fsj_meter_period_us(&bench.meter);
		ina228_emulated_advance(&bench.chip, (int64_t)bench.now_us * 1000);
		fsj_meter_tick(&bench.meter, 1, bench.now_us);
	}
}

/* Also with the slowest chip that the data sheet allows. */
static void test_every_rate_is_held(void)
{
	for (size_t i = 0; i < sizeof(rates_hz) / sizeof(rates_hz[0]); i++) {
		start(rates_hz[i], FSJ_INA219_RANGE_160MV, 5.0, 0.25);
		bench.chip.slow_ppm = SLOWEST_PPM;
		ticks(2000);
		CHECK_EQUAL(bench.samples, 2000);
		CHECK_EQUAL(bench.last.missed_total, 0);
		CHECK_EQUAL(bench.flags, 0);
		CHECK_EQUAL(bench.last.sample[19].shunt, 2500);
		CHECK_EQUAL(bench.last.sample[19].bus, 1250);
	}
}

/* At a load far below a frame's units: the sums lose nothing, where an INA219 would read 3 units or none. */
static void test_sums_are_finer_than_samples(void)
{
	static const enum fsj_ina219_range ranges[] = {FSJ_INA219_RANGE_40MV, FSJ_INA219_RANGE_160MV};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		/* 87 of the chip's steps at the shunt, 16904 at the bus. */
		const double shunt = 2.71875;
		const double bus = 825.390625;
		double sampled;

		start(1000, ranges[i], bus * 4e-3, shunt * 10e-6 / 0.1);
		ticks(100021);
		sampled = (double)bench.last.first_tick;
		CHECK_NEAR((double)bench.last.energy_raw / sampled, shunt * bus, shunt * bus * 2e-5);
		CHECK_NEAR((double)bench.last.bus_total / sampled, bus, bus * 1e-7);
		CHECK(bench.last.sample[0].shunt == 2 || bench.last.sample[0].shunt == 3);
	}
}

static void test_a_current_the_other_way(void)
{
	start(625, FSJ_INA219_RANGE_160MV, 5.0, -0.1000123);
	ticks(10021);
	CHECK_NEAR((double)bench.last.energy_raw / 10000.0, -1000.123 * 1250.0, 20.0);
}

static void test_the_ends_of_the_ranges(void)
{
	static const struct {
		enum fsj_ina219_range range;
		double volts;
		double amperes;
		bool clipped;
	} loads[] = {
		{FSJ_INA219_RANGE_40MV, 5.0, 0.409, false},   {FSJ_INA219_RANGE_40MV, 5.0, 0.41, true},
		{FSJ_INA219_RANGE_160MV, 5.0, 1.638, false},  {FSJ_INA219_RANGE_160MV, 5.0, 1.64, true},
		{FSJ_INA219_RANGE_160MV, 5.0, -1.638, false}, {FSJ_INA219_RANGE_160MV, 5.0, -1.64, true},
		{FSJ_INA219_RANGE_160MV, 31.9, 0.1, false},   {FSJ_INA219_RANGE_160MV, 32.1, 0.1, true},
		{FSJ_INA219_RANGE_160MV, 85.0, 0.1, true},
	};

	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
		start(625, loads[i].range, loads[i].volts, loads[i].amperes);
		ticks(100);
		CHECK_EQUAL((bench.flags & FSJ_FLAG_CLIPPED) != 0, loads[i].clipped);
	}
}

static void test_a_chip_that_lost_its_supply_is_set_up_anew(void)
{
	start(625, FSJ_INA219_RANGE_40MV, 5.0, 0.25);
	ticks(100);
	ina228_emulated_reset(&bench.chip);
	ticks(700);
	CHECK((bench.flags & FSJ_FLAG_I2C_FAULT) != 0);
	CHECK_EQUAL(bench.chip.config, FSJ_INA228_CONFIG_ADCRANGE);
	CHECK_EQUAL(bench.last.sample[0].shunt, 2500);
	CHECK(bench.last.missed_total <= 3);
	bench.gone = true;
	ticks(100);
	bench.gone = false;
	bench.samples = 0;
	ticks(100);
	CHECK(bench.samples >= 80);
}

static void test_the_self_test(void)
{
	start(625, FSJ_INA219_RANGE_160MV, 5.0, 0.25);
	CHECK_EQUAL(fsj_chip_test(&bench.meter.chip), 0);
	CHECK_EQUAL(bench.chip.shunt_cal, FSJ_INA228_SHUNT_CAL_RESET_VALUE);
	bench.chip.adc_config = 0;
	CHECK_EQUAL(fsj_chip_test(&bench.meter.chip), FSJ_FAIL_CONFIG);
	CHECK_EQUAL(fsj_chip_test(&bench.meter.chip), 0);
	/* An INA238, which has 16 bits */
	bench.chip.device_id = 0x2381;
	CHECK_EQUAL(fsj_chip_test(&bench.meter.chip), FSJ_FAIL_REGISTER);
	bench.gone = true;
	CHECK_EQUAL(fsj_chip_test(&bench.meter.chip), FSJ_FAIL_NO_ANSWER);
}

/* The host takes the conversions' time from the CONFIG of an INA219. */
static void test_it_converts_for_as_long_as_the_host_is_told(void)
{
	static const int64_t single_us[4] = {84, 148, 276, 532};

	for (size_t i = 0; i < sizeof(rates_hz) / sizeof(rates_hz[0]); i++) {
		int64_t told_us[2];
		uint16_t flags;
		int64_t took_us = 0;

		start(rates_hz[i], FSJ_INA219_RANGE_160MV, 5.0, 0.25);
		for (int k = 0; k < 2; k++) {
			const int shift = k == 0 ? FSJ_INA219_CONFIG_SADC_SHIFT : FSJ_INA219_CONFIG_BADC_SHIFT;
			const unsigned int adc = ((unsigned int)bench.follower.info.adc_config >> shift) & 0xFu;

			told_us[k] = (adc & 8u) != 0 ? 532ll << (adc & 7u) : single_us[adc & 3u];
		}
		do {
			took_us++;
			ina228_emulated_advance(&bench.chip, took_us * 1000);
			CHECK_EQUAL(ina228_emulated_read(&bench.chip, FSJ_INA228_DIAG_ALRT, &flags), 0);
		} while ((flags & FSJ_INA228_CNVRF) == 0);
		CHECK_NEAR((double)took_us, (double)(told_us[0] + told_us[1]), 0.06 * (double)took_us);
	}
}

int main(void)
{
	test_every_rate_is_held();
	test_sums_are_finer_than_samples();
	test_a_current_the_other_way();
	test_the_ends_of_the_ranges();
	test_a_chip_that_lost_its_supply_is_set_up_anew();
	test_the_self_test();
	test_it_converts_for_as_long_as_the_host_is_told();
	return 0;
}
