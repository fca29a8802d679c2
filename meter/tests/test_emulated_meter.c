/* The core on the emulated chip, with transfers that take their time and conversions as long as the data sheet allows:
 * every rate that is not refused is held.
 */

#include "check.h"
#include "fsjoule/meter.h"
#include "ina219_emulated.h"
#include "parse.h"

#define TRANSFER_NS 120000 /* a register at 400 kHz */
#define SLOWEST_PPM 102000 /* 586 us instead of 532 us */
#define SECONDS 5u

static struct ina219_emulated chip;
static struct fsj_meter meter;
static struct follower follower;

static void constant(void *context, int64_t from_ns, int64_t to_ns, double *volts, double *amperes)
{
	(void)context;
	CHECK(to_ns > from_ns);
	*volts = 4.8; /* a whole step of 10 bits */
	*amperes = 0.25;
}

static bool take_frame(void *context, const uint8_t *bytes, size_t size)
{
	struct parsed frame = parse(bytes, size);

	(void)context;
	follow(&follower, &frame);
	return true;
}

static void start(uint32_t rate_hz, const struct ina219_errors *errors)
{
	const struct ina219_source source = {constant, NULL};
	const struct fsj_i2c i2c = {
		.write_register = ina219_emulated_write,
		.read_register = ina219_emulated_read,
		.context = &chip,
	};
	const struct fsj_output output = {take_frame, NULL};
	const struct fsj_storage none = {NULL, NULL, NULL};
	const struct fsj_meter_config config = {
		.defaults = {.rate_hz = rate_hz, .shunt_uohm = 100000, .range = FSJ_INA219_RANGE_80MV},
		.serial_number = "TEST",
	};

	follower = (struct follower){0};
	ina219_emulated_init(&chip, 100000, source, 0);
	ina219_emulated_err(&chip, errors);
	CHECK_EQUAL(fsj_meter_start(&meter, &config, &i2c, &output, &none), FSJ_OK);
}

/* Ticks without a sample in SECONDS. */
static uint32_t missed(uint32_t rate_hz, const struct ina219_errors *errors)
{
	const int64_t period_ns = 1000000000 / (int64_t)rate_hz;
	int64_t longest_ns = 0;

	start(rate_hz, errors);
	for (int64_t tick = 1; tick <= (int64_t)(SECONDS * rate_hz); tick++) {
		ina219_emulated_advance(&chip, tick * period_ns);
		fsj_meter_tick(&meter, 1, (uint64_t)(tick * period_ns) / 1000u);
		longest_ns = chip.now_ns - tick * period_ns > longest_ns ? chip.now_ns - tick * period_ns : longest_ns;
	}
	fsj_meter_flush(&meter);
	/* A sample is taken before the next tick is due. */
	CHECK(longest_ns < period_ns);
	CHECK_EQUAL(follower.next_tick, SECONDS * rate_hz);
	CHECK_EQUAL(follower.energy, ((int64_t)SECONDS * rate_hz - follower.missed) * 2500 * 1200);
	return follower.missed;
}

static void test_every_rate_is_held(void)
{
	static const uint32_t rates[] = {100, 125, 160, 200, 250, 320, 400, 500, 625, 800, 1000, 1250, 1600, 2000};

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		for (int32_t slow_ppm = 0; slow_ppm <= SLOWEST_PPM; slow_ppm += SLOWEST_PPM / 3) {
			const struct ina219_errors errors = {.slow_ppm = slow_ppm, .transfer_ns = TRANSFER_NS};
			const struct ina219_errors instant = {.slow_ppm = slow_ppm};

			CHECK_EQUAL(missed(rates[i], &errors), 0);
			CHECK_EQUAL(missed(rates[i], &instant), 0);
		}
	}
}

/* Conversions that are longer than a tick: the test above does not pass by itself. */
static void test_a_chip_that_is_too_slow_is_seen(void)
{
	const struct ina219_errors errors = {.slow_ppm = 250000};

	CHECK(missed(1000, &errors) > SECONDS * 5);
}

int main(void)
{
	test_every_rate_is_held();
	test_a_chip_that_is_too_slow_is_seen();
	return 0;
}
