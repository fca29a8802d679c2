/* The emulated chip against the data sheet. */

#include "check.h"
#include "ina219_emulated.h"

#define US 1000ll

struct supply {
	double volts;
	double amperes;
	int64_t step_ns; /* from then on twice the amperes */
};

static void mean(void *context, int64_t from_ns, int64_t to_ns, double *volts, double *amperes)
{
	const struct supply *supply = context;
	const double after = to_ns <= supply->step_ns	? 0.0
			     : from_ns >= supply->step_ns ? 1.0
							  : (double)(to_ns - supply->step_ns) / (double)(to_ns - from_ns);

	*volts = supply->volts;
	*amperes = supply->amperes * (1.0 + after);
}

static struct ina219_emulated chip_on(struct supply *supply, uint16_t config)
{
	struct ina219_emulated chip;

	ina219_emulated_init(&chip, 100000, (struct ina219_source){mean, supply}, 0);
	CHECK_EQUAL(ina219_emulated_write(&chip, FSJ_INA219_CONFIG, config), 0);
	return chip;
}

static uint16_t get(struct ina219_emulated *chip, uint8_t reg)
{
	uint16_t value = 0;

	CHECK_EQUAL(ina219_emulated_read(chip, reg, &value), 0);
	return value;
}

static bool ready(struct ina219_emulated *chip)
{
	return (get(chip, FSJ_INA219_BUS) & FSJ_INA219_BUS_CNVR) != 0;
}

static void test_reset(void)
{
	struct supply supply = {5.0, 0.25, INT64_MAX};
	struct ina219_emulated chip = chip_on(&supply, 0x091F);
	uint16_t value;

	ina219_emulated_write(&chip, FSJ_INA219_CALIBRATION, 4097);
	CHECK_EQUAL(get(&chip, FSJ_INA219_CALIBRATION), 4096);
	ina219_emulated_write(&chip, FSJ_INA219_CONFIG, FSJ_INA219_CONFIG_RST);
	CHECK_EQUAL(get(&chip, FSJ_INA219_CONFIG), 0x399F);
	CHECK_EQUAL(get(&chip, FSJ_INA219_CALIBRATION), 0);
	CHECK(!ready(&chip));
	CHECK_EQUAL(ina219_emulated_read(&chip, 6, &value), -1);
	CHECK_EQUAL(ina219_emulated_write(&chip, FSJ_INA219_SHUNT, 0), -1);
}

static void test_a_conversion_takes_its_time(void)
{
	struct supply supply = {5.0, 0.25, INT64_MAX};
	struct ina219_emulated chip = chip_on(&supply, 0x091F);

	ina219_emulated_advance(&chip, 807 * US);
	CHECK(!ready(&chip));
	CHECK_EQUAL(get(&chip, FSJ_INA219_SHUNT), 2500);
	ina219_emulated_advance(&chip, 808 * US);
	CHECK(ready(&chip));
	CHECK_EQUAL(get(&chip, FSJ_INA219_BUS) >> 3, 1250);
	CHECK(ready(&chip));
	get(&chip, FSJ_INA219_POWER);
	CHECK(!ready(&chip));
	ina219_emulated_advance(&chip, 2 * 808 * US);
	CHECK(ready(&chip));
	/* The default, 12 bits for both, takes 1064 us; 128 averages take 136 ms. */
	chip = chip_on(&supply, 0x399F);
	ina219_emulated_advance(&chip, 1063 * US);
	CHECK(!ready(&chip));
	ina219_emulated_advance(&chip, 1064 * US);
	CHECK(ready(&chip));
	chip = chip_on(&supply, 0x3FFF);
	ina219_emulated_advance(&chip, 136191 * US);
	CHECK(!ready(&chip));
	ina219_emulated_advance(&chip, 136192 * US);
	CHECK(ready(&chip));
}

static void test_modes(void)
{
	struct supply supply = {5.0, 0.25, INT64_MAX};
	struct ina219_emulated chip = chip_on(&supply, 0x0918); /* power-down */

	ina219_emulated_advance(&chip, 1000000 * US);
	CHECK(!ready(&chip));
	chip = chip_on(&supply, 0x091B); /* both, triggered */
	ina219_emulated_advance(&chip, 1000 * US);
	CHECK(ready(&chip));
	get(&chip, FSJ_INA219_POWER);
	ina219_emulated_advance(&chip, 10000 * US);
	CHECK(!ready(&chip));
	chip = chip_on(&supply, 0x091D); /* shunt, continuous */
	ina219_emulated_advance(&chip, 532 * US);
	CHECK(ready(&chip));
	CHECK_EQUAL(get(&chip, FSJ_INA219_BUS) >> 3, 0);
	chip = chip_on(&supply, 0x091E); /* bus, continuous */
	ina219_emulated_advance(&chip, 276 * US);
	CHECK_EQUAL(get(&chip, FSJ_INA219_BUS) >> 3, 1250);
	CHECK_EQUAL(get(&chip, FSJ_INA219_SHUNT), 0);
}

static uint16_t shunt_at(double amperes, uint16_t config)
{
	struct supply supply = {5.0, amperes, INT64_MAX};
	struct ina219_emulated chip = chip_on(&supply, config);

	ina219_emulated_advance(&chip, 1000000 * US);
	return get(&chip, FSJ_INA219_SHUNT);
}

static uint16_t bus_at(double volts, uint16_t config)
{
	struct supply supply = {volts, 0.0, INT64_MAX};
	struct ina219_emulated chip = chip_on(&supply, config);

	ina219_emulated_advance(&chip, 1000000 * US);
	return (uint16_t)(get(&chip, FSJ_INA219_BUS) >> 3);
}

static void test_quantisation_and_limits(void)
{
	CHECK_EQUAL(shunt_at(0.25004, 0x091F), 2500);
	CHECK_EQUAL(shunt_at(0.25006, 0x091F), 2501);
	CHECK_EQUAL(shunt_at(-0.25, 0x091F), (uint16_t)-2500);
	CHECK_EQUAL(shunt_at(0.2503, 0x0907), 2504); /* 9 bits: steps of 80 uV */
	CHECK_EQUAL(shunt_at(5.0, 0x011F), 4000);
	CHECK_EQUAL(shunt_at(-5.0, 0x091F), (uint16_t)-8000);
	CHECK_EQUAL(shunt_at(5.0, 0x191F), 32000);
	CHECK_EQUAL(bus_at(5.003, 0x091F), 1250); /* 11 bits: steps of 8 mV */
	CHECK_EQUAL(bus_at(5.005, 0x091F), 1252);
	CHECK_EQUAL(bus_at(5.003, 0x099F), 1251); /* 12 bits: steps of 4 mV */
	CHECK_EQUAL(bus_at(20.0, 0x091F), 4000);
	CHECK_EQUAL(bus_at(20.0, 0x291F), 5000);
	CHECK_EQUAL(bus_at(-1.0, 0x091F), 0);
}

static void test_current_and_power_registers(void)
{
	struct supply supply = {5.0, 0.25, INT64_MAX};
	struct ina219_emulated chip = chip_on(&supply, 0x091F);

	/* 0.1 Ohm and 100 uA a unit: CAL = 4096 and 2 mW a unit of POWER. */
	ina219_emulated_write(&chip, FSJ_INA219_CALIBRATION, 4096);
	ina219_emulated_advance(&chip, 808 * US);
	CHECK_EQUAL(get(&chip, FSJ_INA219_CURRENT), 2500);
	CHECK_EQUAL(get(&chip, FSJ_INA219_BUS) & FSJ_INA219_BUS_OVF, 0);
	CHECK_EQUAL(get(&chip, FSJ_INA219_POWER), 625);
	ina219_emulated_write(&chip, FSJ_INA219_CALIBRATION, 0xFFFE);
	ina219_emulated_advance(&chip, 2 * 808 * US);
	CHECK_EQUAL(get(&chip, FSJ_INA219_BUS) & FSJ_INA219_BUS_OVF, FSJ_INA219_BUS_OVF);
	CHECK_EQUAL(get(&chip, FSJ_INA219_BUS) >> 3, 1250);
}

static void test_a_conversion_is_the_mean_over_its_time(void)
{
	/* The step comes a quarter before the end of the first shunt conversion. */
	struct supply supply = {5.0, 0.2, 399 * US};
	struct ina219_emulated chip = chip_on(&supply, 0x091F);

	ina219_emulated_advance(&chip, 532 * US);
	CHECK_EQUAL(get(&chip, FSJ_INA219_SHUNT), 2500);
}

/* ------------------------------------------------------------------------------------------- errors of a chip */

static void test_offset_and_gains(void)
{
	const struct ina219_errors errors = {.offset_uv = -100.0, .gain_ppm = 10000.0, .bus_gain_ppm = -2000.0};
	struct supply supply = {5.0, 0.25, INT64_MAX};
	struct ina219_emulated chip = chip_on(&supply, 0x099F);

	ina219_emulated_err(&chip, &errors);
	ina219_emulated_advance(&chip, 10000 * US);
	CHECK_EQUAL(get(&chip, FSJ_INA219_SHUNT), 2515); /* 25 mV, 1 % more, 100 uV less */
	CHECK_EQUAL(get(&chip, FSJ_INA219_BUS) >> 3, 1248); /* 4.99 V is 1247.5 units */
}

/* Mean and standard deviation of many conversions, in 10 uV. */
static void statistics(uint16_t config, uint64_t seed, double *mean_units, double *deviation)
{
	const struct ina219_errors errors = {.noise_uv = 200.0, .seed = seed};
	struct supply supply = {5.0, 0.25, INT64_MAX};
	struct ina219_emulated chip = chip_on(&supply, config);
	const int rounds = 20000;
	double sum = 0.0;
	double squares = 0.0;

	ina219_emulated_err(&chip, &errors);
	for (int i = 1; i <= rounds; i++) {
		double units;

		ina219_emulated_advance(&chip, i * 10000 * US);
		units = (double)get(&chip, FSJ_INA219_SHUNT);
		sum += units;
		squares += units * units;
	}
	*mean_units = sum / rounds;
	*deviation = sqrt(squares / rounds - *mean_units * *mean_units);
}

static void test_noise(void)
{
	double mean_units;
	double deviation;
	double again;

	statistics(0x099F, 1, &mean_units, &deviation);
	CHECK_NEAR(mean_units, 2500.0, 0.6); /* four standard errors */
	CHECK_NEAR(deviation, 20.0, 0.4);
	statistics(0x099F, 1, &again, &deviation);
	CHECK(mean_units == again);
	statistics(0x099F, 2, &again, &deviation);
	CHECK(mean_units != again);
	/* The mean of four conversions has half of it. */
	statistics(0x0D57, 1, &mean_units, &deviation);
	CHECK_NEAR(mean_units, 2500.0, 0.3);
	CHECK_NEAR(deviation, 10.0, 0.2);
}

static void test_slow_conversions_and_transfers(void)
{
	const struct ina219_errors errors = {.slow_ppm = 100000, .transfer_ns = 100 * US};
	struct supply supply = {5.0, 0.25, INT64_MAX};
	struct ina219_emulated chip;

	ina219_emulated_init(&chip, 100000, (struct ina219_source){mean, &supply}, 0);
	ina219_emulated_err(&chip, &errors);
	ina219_emulated_write(&chip, FSJ_INA219_CONFIG, 0x091F);
	CHECK_EQUAL(chip.now_ns, 100 * US);
	/* 1.1 times 808 us, after the end of the transfer. */
	ina219_emulated_advance(&chip, 850 * US);
	CHECK(!ready(&chip));
	CHECK(ready(&chip));
	CHECK_EQUAL(chip.now_ns, 1050 * US);
	ina219_emulated_advance(&chip, 0);
	CHECK_EQUAL(chip.now_ns, 1050 * US);
}

int main(void)
{
	test_reset();
	test_a_conversion_takes_its_time();
	test_modes();
	test_quantisation_and_limits();
	test_current_and_power_registers();
	test_a_conversion_is_the_mean_over_its_time();
	test_offset_and_gains();
	test_noise();
	test_slow_conversions_and_transfers();
	return 0;
}
