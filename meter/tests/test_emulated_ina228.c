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
	struct fsj_reply reply;
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
	if (frame.type == FSJ_FRAME_WIDE_SAMPLES) {
		bench.samples += frame.samples.count;
		bench.flags |= frame.samples.flags;
		bench.last = frame.samples;
	}
	if (frame.type == FSJ_FRAME_REPLY) {
		bench.reply = frame.reply;
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
		bench.chip.errors.slow_ppm = SLOWEST_PPM;
		ticks(2000);
		CHECK_EQUAL(bench.samples, 2000);
		CHECK_EQUAL(bench.last.missed_total, 0);
		CHECK_EQUAL(bench.flags, 0);
		CHECK_EQUAL(bench.last.sample[19].shunt, 80000);
		CHECK_EQUAL(bench.last.sample[19].bus, 25600);
	}
}

/* A load of 27 uV, of which an INA219 sees three units: samples and sums are the chip's own, to the last bit. */
static void test_samples_lose_nothing(void)
{
	static const enum fsj_ina219_range ranges[] = {FSJ_INA219_RANGE_40MV, FSJ_INA219_RANGE_160MV};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		const bool fine = ranges[i] == FSJ_INA219_RANGE_40MV;
		const int64_t shunt = fine ? 348 : 87;
		const int64_t bus = 16904;
		int64_t sampled;

		start(1000, ranges[i], 16904 * 195.3125e-6, 87 * 312.5e-9 / 0.1);
		ticks(100021);
		sampled = (int64_t)bench.last.first_tick;
		CHECK_EQUAL(bench.last.energy_raw, sampled * shunt * bus);
		CHECK_EQUAL(bench.last.bus_total, (uint64_t)(sampled * bus));
		CHECK_EQUAL(bench.last.sample[0].shunt, shunt);
		CHECK_EQUAL(bench.last.sample[0].bus, bus);
		CHECK_EQUAL(bench.follower.info.chip, FSJ_CHIP_INA228);
		CHECK_EQUAL(bench.follower.info.shunt_unit_pv, fine ? 78125 : 312500);
		CHECK_EQUAL(bench.follower.info.bus_unit_pv, 195312500);
		CHECK_EQUAL(bench.follower.info.shunt_range_mv, fine ? 40 : 163);
	}
}

static void test_a_current_the_other_way(void)
{
	start(625, FSJ_INA219_RANGE_160MV, 5.0, -0.1000123);
	ticks(10021);
	/* 10.00123 mV, rounded. */
	CHECK_EQUAL(bench.last.sample[0].shunt, -32004);
	CHECK_EQUAL(bench.last.energy_raw, -32004ll * 25600 * (int64_t)bench.last.first_tick);
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
		{FSJ_INA219_RANGE_160MV, 84.9, 0.1, false},   {FSJ_INA219_RANGE_160MV, 85.0, 0.1, true},
	};

	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
		start(625, loads[i].range, loads[i].volts, loads[i].amperes);
		ticks(100);
		CHECK_EQUAL((bench.flags & FSJ_FLAG_CLIPPED) != 0, loads[i].clipped);
		CHECK_EQUAL((bench.last.sample[0].bus & FSJ_WIDE_BUS_CLIPPED) != 0, loads[i].clipped);
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
	CHECK_EQUAL(bench.last.sample[0].shunt, 320000);
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

/* As docs/meter-protocol.md has them. */
static void test_resolutions(void)
{
	static const uint16_t configs[] = {0xBB41, 0xB901, 0xB901, 0xB901, 0xB6C1, 0xB6C1, 0xB6C1,
					   0xB900, 0xB900, 0xB900, 0xB700, 0xB500, 0xB4C0, 0xB4C0};

	for (size_t i = 0; i < sizeof(rates_hz) / sizeof(rates_hz[0]); i++) {
		start(rates_hz[i], FSJ_INA219_RANGE_160MV, 5.0, 0.25);
		CHECK_EQUAL(bench.follower.info.adc_config, configs[i]);
	}
}

/* Told by the ADC_CONFIG in the info frame, typical times; docs/meter-protocol.md has them. */
static void test_it_converts_for_as_long_as_the_host_is_told(void)
{
	static const uint16_t single_us[8] = {50, 84, 150, 280, 540, 1052, 2074, 4120};

	for (size_t i = 0; i < sizeof(rates_hz) / sizeof(rates_hz[0]); i++) {
		uint16_t config;
		uint16_t flags;
		int64_t took_us = 0;

		start(rates_hz[i], FSJ_INA219_RANGE_160MV, 5.0, 0.25);
		config = bench.follower.info.adc_config;
		do {
			took_us++;
			ina228_emulated_advance(&bench.chip, took_us * 1000);
			CHECK_EQUAL(ina228_emulated_read(&bench.chip, FSJ_INA228_DIAG_ALRT, &flags), 0);
		} while ((flags & FSJ_INA228_CNVRF) == 0);
		CHECK_EQUAL(took_us, (single_us[config >> 9 & 7] + single_us[config >> 6 & 7]) *
					     ((config & 7) == FSJ_INA228_MEAN_OF_4 ? 4 : 1));
	}
}

/* A load that steps: without a mean the shunt's register changes when its own conversion ends, with one when all end. */
static void test_when_the_registers_change(void)
{
	uint8_t bytes[3];

	start(625, FSJ_INA219_RANGE_160MV, 5.0, 0.25);
	ina228_emulated_advance(&bench.chip, 539999);
	CHECK_EQUAL(ina228_emulated_read_bytes(&bench.chip, FSJ_INA228_VSHUNT, bytes, 3), 0);
	CHECK_EQUAL(bytes[0], 0);
	ina228_emulated_advance(&bench.chip, 540000);
	CHECK_EQUAL(ina228_emulated_read_bytes(&bench.chip, FSJ_INA228_VSHUNT, bytes, 3), 0);
	CHECK_EQUAL(bytes[0], 80000 >> 12);
	start(100, FSJ_INA219_RANGE_160MV, 5.0, 0.25);
	ina228_emulated_advance(&bench.chip, 8 * 1052000 - 1);
	CHECK_EQUAL(ina228_emulated_read_bytes(&bench.chip, FSJ_INA228_VSHUNT, bytes, 3), 0);
	CHECK_EQUAL(bytes[0], 0);
	ina228_emulated_advance(&bench.chip, 8 * 1052000);
	CHECK_EQUAL(ina228_emulated_read_bytes(&bench.chip, FSJ_INA228_VSHUNT, bytes, 3), 0);
	CHECK_EQUAL(bytes[0], 80000 >> 12);
}

/* As of an INA219 with the options of the same name. */
static void test_a_chip_that_errs(void)
{
	const struct ina219_errors errors = {.offset_uv = 1.0, .gain_ppm = 500, .bus_gain_ppm = 1000};
	const struct ina219_errors noisy = {.noise_uv = 2.0, .seed = 7};
	double mean = 0.0;
	double square = 0.0;

	start(625, FSJ_INA219_RANGE_40MV, 5.0, 0.25);
	ina228_emulated_err(&bench.chip, &errors);
	ticks(100);
	CHECK_EQUAL(bench.last.sample[0].shunt, 320173); /* (25000 x 1.0005 + 1) / 0.078125 */
	CHECK_EQUAL(bench.last.sample[0].bus, 25626);
	start(625, FSJ_INA219_RANGE_40MV, 5.0, 0.25);
	ina228_emulated_err(&bench.chip, &noisy);
	for (int i = 0; i < 10000; i++) {
		ticks(20);
		mean += (double)(bench.last.sample[3].shunt - 320000) / 10000;
		square += pow((double)(bench.last.sample[3].shunt - 320000), 2) / 10000;
	}
	CHECK_NEAR(mean, 0.0, 1.0);
	CHECK_NEAR(sqrt(square), 2.0 / 0.078125, 1.0);
}

/* Its bus has one range. */
static void test_the_bus_range_is_refused(void)
{
	const uint8_t volts[2] = {32, 0};
	uint8_t encoded[16];
	const size_t size = encode_command(FSJ_COMMAND_BUS_RANGE, 3, 9, volts, 2, encoded);

	start(625, FSJ_INA219_RANGE_40MV, 5.0, 0.25);
	for (size_t i = 0; i < size; i++) {
		fsj_meter_command_byte(&bench.meter, encoded[i], 10);
	}
	CHECK_EQUAL(bench.reply.request, 9);
	CHECK_EQUAL(bench.reply.status, FSJ_REPLY_BAD_VALUE);
}

int main(void)
{
	test_every_rate_is_held();
	test_resolutions();
	test_samples_lose_nothing();
	test_a_current_the_other_way();
	test_the_ends_of_the_ranges();
	test_a_chip_that_lost_its_supply_is_set_up_anew();
	test_the_self_test();
	test_it_converts_for_as_long_as_the_host_is_told();
	test_when_the_registers_change();
	test_a_chip_that_errs();
	test_the_bus_range_is_refused();
	return 0;
}
