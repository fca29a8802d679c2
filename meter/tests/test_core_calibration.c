/* Averages, offset and gains against exact values, and at the ends of what there can be. */

#include "check.h"
#include "fsjoule/calibration.h"
#include "fsjoule/ina228.h"

#define DATE 1767225600u

#define SHUNT_UOHM 100000u

static const struct fsj_scale scale = {FSJ_INA219_SHUNT_UNIT_PV, FSJ_INA219_BUS_UNIT_PV, 80, 16};
static const struct fsj_scale coarse = {FSJ_INA219_SHUNT_UNIT_PV, FSJ_INA219_BUS_UNIT_PV, 320, 16};
/* Of an INA228 */
static const struct fsj_scale fine = {FSJ_INA228_FINE_SHUNT_UNIT_PV, FSJ_INA228_BUS_UNIT_PV, 40, 85};

static struct fsj_average average_of(uint32_t samples, int32_t shunt, uint32_t bus)
{
	const struct fsj_ina219_reading reading = {.shunt = shunt, .bus = bus};
	struct fsj_average average = {0};

	for (uint32_t i = 0; i < samples; i++) {
		fsj_average_add(&average, &reading);
	}
	return average;
}

static void test_averages(void)
{
	struct fsj_average average = average_of(3, 10, 1250);
	const struct fsj_ina219_reading odd = {.shunt = -11, .bus = 1251, .clipped = true};

	CHECK_EQUAL(fsj_average_shunt_nv(&average, &scale), 100000);
	CHECK_EQUAL(fsj_average_bus_uv(&average, &scale), 5000000);
	CHECK_EQUAL(fsj_average_spread_nv(&average, &scale), 0);
	CHECK(!average.clipped);
	fsj_average_add(&average, &odd);
	/* (3 * 10 - 11) / 4 = 4.75 units of 10 uV, 1250.25 units of 4 mV. */
	CHECK_EQUAL(fsj_average_shunt_nv(&average, &scale), 47500);
	CHECK_EQUAL(fsj_average_bus_uv(&average, &scale), 5001000);
	CHECK_EQUAL(fsj_average_spread_nv(&average, &scale), 210000);
	CHECK(average.clipped);
	/* Thirds are rounded to the nearest, on both sides of 0. */
	average = average_of(2, 1, 0);
	fsj_average_add(&average, &(struct fsj_ina219_reading){.shunt = 0});
	CHECK_EQUAL(fsj_average_shunt_nv(&average, &scale), 6667);
	average = average_of(2, -1, 0);
	fsj_average_add(&average, &(struct fsj_ina219_reading){.shunt = 0});
	CHECK_EQUAL(fsj_average_shunt_nv(&average, &scale), -6667);
}

static void test_averages_of_extremes(void)
{
	struct fsj_average average = average_of(2000, INT16_MIN, 8191);
	const struct fsj_ina219_reading highest = {.shunt = INT16_MAX, .bus = 8191};

	CHECK_EQUAL(fsj_average_shunt_nv(&average, &scale), -327680000);
	CHECK_EQUAL(fsj_average_bus_uv(&average, &scale), 32764000);
	fsj_average_add(&average, &highest);
	CHECK_EQUAL(fsj_average_spread_nv(&average, &scale), 655350000);
	average = average_of(4095, INT16_MIN, UINT16_MAX);
	CHECK_EQUAL(fsj_average_shunt_nv(&average, &scale), -327680000);
	CHECK_EQUAL(fsj_average_bus_uv(&average, &scale), 262140000);
}

/* 87 units of 78.125 nV are 6796.875 nV, and 25601 of 195.3125 uV 5000195.3 uV. */
static void test_averages_of_an_ina228(void)
{
	struct fsj_average average = average_of(2000, 87, 25601);

	CHECK_EQUAL(fsj_average_shunt_nv(&average, &fine), 6797);
	CHECK_EQUAL(fsj_average_bus_uv(&average, &fine), 5000195);
	average = average_of(4095, -524288, 524287);
	CHECK_EQUAL(fsj_average_shunt_nv(&average, &fine), -40960000);
	CHECK_EQUAL(fsj_average_bus_uv(&average, &fine), 102399805);
	fsj_average_add(&average, &(struct fsj_ina219_reading){.shunt = 524287});
	CHECK_EQUAL(fsj_average_spread_nv(&average, &fine), 81919922);
}

static void test_zero_of_an_ina228(void)
{
	const int32_t least[] = {-5120, 5120, -5121, 5121};

	for (size_t i = 0; i < sizeof(least) / sizeof(least[0]); i++) {
		struct fsj_calibration calibration = {0};
		struct fsj_average average = average_of(1, least[i], 25600);

		CHECK_EQUAL(fsj_calibrate_zero(&average, &fine, DATE, &calibration), i < 2);
	}
}

static void test_points_of_an_ina228(void)
{
	struct fsj_gain_point p = {.true_ua = 420000, .true_uv = 89250000};

	CHECK(fsj_gain_point_possible(&p, SHUNT_UOHM, &fine));
	p.true_uv++;
	CHECK(!fsj_gain_point_possible(&p, SHUNT_UOHM, &fine));
	p = (struct fsj_gain_point){.true_ua = 420001, .true_uv = 5000000};
	CHECK(!fsj_gain_point_possible(&p, SHUNT_UOHM, &fine));
}

static void test_zero(void)
{
	struct fsj_calibration calibration = {.current_gain_ppm = 7, .gain_date = 5};
	struct fsj_average average = average_of(1000, -3, 1250);

	CHECK(fsj_calibrate_zero(&average, &scale, DATE, &calibration));
	CHECK_EQUAL(calibration.shunt_offset_nv, -30000);
	CHECK_EQUAL(calibration.zero_date, DATE);
	CHECK_EQUAL(calibration.current_gain_ppm, 7);
	CHECK_EQUAL(calibration.gain_date, 5);
}

static void test_zero_with_something_connected(void)
{
	const int16_t least[] = {-40, 40, -41, 41, INT16_MIN, INT16_MAX};

	for (size_t i = 0; i < sizeof(least) / sizeof(least[0]); i++) {
		struct fsj_calibration calibration = {.shunt_offset_nv = 1};
		struct fsj_average average = average_of(999, 0, 1250);
		const struct fsj_ina219_reading outlier = {.shunt = least[i]};

		fsj_average_add(&average, &outlier);
		CHECK_EQUAL(fsj_calibrate_zero(&average, &scale, DATE, &calibration), i < 2);
		CHECK_EQUAL(calibration.zero_date, i < 2 ? DATE : 0);
		CHECK_EQUAL(calibration.shunt_offset_nv, i >= 2 ? 1 : i == 0 ? -400 : 400);
	}
}

/* A point as a meter with these errors would measure it. */
static struct fsj_gain_point point(int32_t true_ua, uint32_t true_uv, double offset_nv, double gain, double bus_gain)
{
	const double true_nv = (double)true_ua * SHUNT_UOHM / 1000.0;

	return (struct fsj_gain_point){
		.shunt_nv = (int32_t)lround(true_nv / (1.0 + gain) + offset_nv),
		.bus_uv = (int32_t)lround(true_uv / (1.0 + bus_gain)),
		.true_ua = true_ua,
		.true_uv = true_uv,
		.uncertainty_ppm = 200,
	};
}

static void test_gains_are_found_again(void)
{
	for (int i = 0; i < 2000; i++) {
		const double offset_nv = (i * 7919) % 800000 - 400000;
		const double gain = ((i * 104729) % 100000 - 50000) * 0.999e-6;
		const double bus_gain = ((i * 7907) % 100000 - 50000) * 0.999e-6;
		const int32_t sign = i % 2 == 0 ? 1 : -1;
		const struct fsj_gain_point low = point(sign * (10000 + i), 5100000, offset_nv, gain, bus_gain);
		const struct fsj_gain_point high = point(sign * (300000 + 200 * i), 4900000, offset_nv, gain, bus_gain);
		struct fsj_calibration calibration;

		CHECK(fsj_gain_point_possible(&low, SHUNT_UOHM, &scale) && fsj_gain_point_possible(&high, SHUNT_UOHM, &scale));
		CHECK(fsj_calibrate_gain(&low, &high, DATE, SHUNT_UOHM, &scale, &calibration));
		/* A nanovolt in 30 million, and the rounding of the result. */
		CHECK_NEAR(calibration.current_gain_ppm, gain * 1e6, 0.6);
		CHECK_NEAR(calibration.shunt_offset_nv, offset_nv, 3.0);
		CHECK_NEAR(calibration.bus_gain_ppm, bus_gain * 1e6, 0.8);
		CHECK_EQUAL(calibration.zero_date, DATE);
		CHECK_EQUAL(calibration.gain_date, DATE);
	}
}

static void test_exact_gains(void)
{
	/* 10 mA and 510 mA at 0.1 Ohm are 1 mV and 51 mV; read 1.05 mV and 50.05 mV: slope 50 / 49. */
	const struct fsj_gain_point low = {1050000, 5000000, 10000, 5010000, 1000};
	const struct fsj_gain_point high = {50050000, 4900000, 510000, 4900000, 100};
	struct fsj_calibration calibration;

	CHECK(fsj_calibrate_gain(&low, &high, DATE, SHUNT_UOHM, &scale, &calibration));
	CHECK_EQUAL(calibration.current_gain_ppm, 20408); /* 1 / 49 = 0.0204082 */
	CHECK_EQUAL(calibration.shunt_offset_nv, 70000); /* 1050000 - 1000000 / 1.020408 = 70000.2 */
	CHECK_EQUAL(calibration.bus_gain_ppm, 1010); /* 10000 / 9900000 */
	CHECK_EQUAL(calibration.gain_uncertainty_ppm, 122); /* (1000 * 1 + 100 * 51) / 50 */
}

static bool gain_works(struct fsj_gain_point low, struct fsj_gain_point high)
{
	struct fsj_calibration calibration = {.zero_date = 1};
	const bool done = fsj_calibrate_gain(&low, &high, DATE, SHUNT_UOHM, &scale, &calibration);

	CHECK_EQUAL(calibration.zero_date, done ? DATE : 1);
	return done;
}

static void test_gains_that_cannot_be(void)
{
	const struct fsj_gain_point low = point(0, 5000000, 0, 0, 0);

	CHECK(gain_works(low, point(200000, 5000000, 0, 0, 0)));
	CHECK(gain_works(low, point(-200000, 5000000, 0, 0, 0)));
	/* A quarter of 80 mV is 200 mA at 0.1 Ohm. */
	CHECK(!gain_works(low, point(199999, 5000000, 0, 0, 0)));
	CHECK(!gain_works(low, low));
	CHECK(gain_works(low, point(500000, 5000000, 0, 0.05, 0)));
	CHECK(gain_works(low, point(500000, 5000000, 0, -0.05, 0)));
	CHECK(!gain_works(low, point(500000, 5000000, 0, 0.0502, 0)));
	CHECK(!gain_works(low, point(500000, 5000000, 0, -0.0502, 0)));
	CHECK(!gain_works(low, point(500000, 5000000, 0, 0, 0.12)));
	CHECK(!gain_works(low, point(500000, 5000000, 0, 0, -0.12)));
	CHECK(gain_works(point(0, 5000000, 400000, 0, 0), point(500000, 5000000, 400000, 0, 0)));
	CHECK(!gain_works(point(0, 5000000, 400001, 0, 0), point(500000, 5000000, 400001, 0, 0)));
	CHECK(!gain_works(point(0, 5000000, -400001, 0, 0), point(500000, 5000000, -400001, 0, 0)));
	/* Built in the wrong way round, and a bus that reads nothing. */
	CHECK(!gain_works(point(0, 5000000, 0, -2.0, 0), point(500000, 5000000, 0, -2.0, 0)));
	CHECK(!gain_works((struct fsj_gain_point){0, 0, 0, 5000000, 0}, (struct fsj_gain_point){50000000, 0, 500000, 5000000, 0}));
}

static void test_points_that_cannot_be(void)
{
	const struct fsj_scale wide = {FSJ_INA219_SHUNT_UNIT_PV, FSJ_INA219_BUS_UNIT_PV, 80, 32};
	struct fsj_gain_point p = point(840000, 16800000, 0, 0, 0);

	p.uncertainty_ppm = 1000000;
	CHECK(fsj_gain_point_possible(&p, SHUNT_UOHM, &scale));
	p.uncertainty_ppm = 1000001;
	CHECK(!fsj_gain_point_possible(&p, SHUNT_UOHM, &scale));
	p = point(840001, 5000000, 0, 0, 0);
	CHECK(!fsj_gain_point_possible(&p, SHUNT_UOHM, &scale));
	p = point(-840001, 5000000, 0, 0, 0);
	CHECK(!fsj_gain_point_possible(&p, SHUNT_UOHM, &scale));
	p = point(0, 0, 0, 0, 0);
	CHECK(!fsj_gain_point_possible(&p, SHUNT_UOHM, &scale));
	p = point(0, 16800001, 0, 0, 0);
	CHECK(!fsj_gain_point_possible(&p, SHUNT_UOHM, &scale));
	CHECK(fsj_gain_point_possible(&p, SHUNT_UOHM, &wide));
	p = point(0, 33600001, 0, 0, 0);
	CHECK(!fsj_gain_point_possible(&p, SHUNT_UOHM, &wide));
	p = (struct fsj_gain_point){.true_ua = INT32_MIN, .true_uv = UINT32_MAX, .uncertainty_ppm = UINT32_MAX};
	CHECK(!fsj_gain_point_possible(&p, 1000000, &coarse));
	p = (struct fsj_gain_point){.true_ua = INT32_MAX, .true_uv = 1};
	CHECK(!fsj_gain_point_possible(&p, 1000000, &coarse));
}

/* The largest numbers that are possible: the sanitizer looks for overflow. */
static void test_gains_of_extremes(void)
{
	const int32_t readings[] = {-327680000, -320000000, 0, 1, 320000000, 327670000};
	const int32_t truths[] = {-336000, -1, 0, 336000};

	for (size_t i = 0; i < 6u * 6u * 4u * 4u; i++) {
		const struct fsj_gain_point low = {readings[i % 6], 262140000, truths[i / 36 % 4], 16800000, 1000000};
		const struct fsj_gain_point high = {readings[i / 6 % 6], 0, truths[i / 144], 1, 1000000};
		struct fsj_calibration calibration;

		CHECK(fsj_gain_point_possible(&low, 1000000, &coarse) && fsj_gain_point_possible(&high, 1000000, &coarse));
		CHECK(!fsj_calibrate_gain(&low, &high, DATE, 1000000, &coarse, &calibration));
	}
	/* A whole range between the ends, and the largest uncertainty. */
	struct fsj_gain_point low = {-320000000, 16000000, -336000, 16800000, 1000000};
	struct fsj_gain_point high = {320000000, 16000000, 336000, 16800000, 1000000};
	struct fsj_calibration calibration;

	CHECK(fsj_calibrate_gain(&low, &high, DATE, 1000000, &coarse, &calibration));
	CHECK_EQUAL(calibration.current_gain_ppm, 50000);
	CHECK_EQUAL(calibration.bus_gain_ppm, 50000);
	CHECK_EQUAL(calibration.shunt_offset_nv, 0);
	CHECK_EQUAL(calibration.gain_uncertainty_ppm, 1000000);
}

int main(void)
{
	test_averages();
	test_averages_of_extremes();
	test_averages_of_an_ina228();
	test_zero_of_an_ina228();
	test_points_of_an_ina228();
	test_zero();
	test_zero_with_something_connected();
	test_gains_are_found_again();
	test_exact_gains();
	test_gains_that_cannot_be();
	test_points_that_cannot_be();
	test_gains_of_extremes();
	return 0;
}
