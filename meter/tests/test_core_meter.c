/* The whole core: ticks and mark bytes in, frames out. */

#include "check.h"
#include "fsjoule/meter.h"
#include "parse.h"

#define FRAMES_MAX 4096
#define TICK_US 1000u

enum chip_state { CHIP_GOOD, CHIP_NOT_READY, CHIP_GONE };

static struct {
	enum chip_state state;
	uint16_t shunt;
	uint16_t bus; /* 4 mV a unit */
	uint16_t bus_flags;
	unsigned int configured;
} chip;

static struct parsed frames[FRAMES_MAX];
static size_t frame_count;
static struct fsj_meter meter;

static int write_register(void *context, uint8_t reg, uint16_t value)
{
	(void)context;
	if (chip.state == CHIP_GONE) {
		return -5;
	}
	chip.configured += reg == FSJ_INA219_CONFIG && value == fsj_ina219_config(FSJ_INA219_RANGE_80MV) ? 1u : 0u;
	return 0;
}

static int read_register(void *context, uint8_t reg, uint16_t *value)
{
	(void)context;
	if (chip.state == CHIP_GONE) {
		return -5;
	}
	*value = 0;
	if (reg == FSJ_INA219_SHUNT) {
		*value = chip.shunt;
	} else if (reg == FSJ_INA219_BUS) {
		*value = (uint16_t)(chip.bus << 3 | chip.bus_flags);
		*value = (uint16_t)(*value | (chip.state == CHIP_GOOD ? FSJ_INA219_BUS_CNVR : 0u));
	}
	return 0;
}

static void take_frame(void *context, const uint8_t *bytes, size_t size)
{
	(void)context;
	CHECK(frame_count < FRAMES_MAX);
	frames[frame_count++] = parse(bytes, size);
}

static enum fsj_status start(enum chip_state state)
{
	const struct fsj_i2c i2c = {write_register, read_register, NULL};
	const struct fsj_output output = {take_frame, NULL};
	const struct fsj_meter_config config = {
		.rate_hz = 1000000 / TICK_US,
		.shunt_uohm = 100000,
		.range = FSJ_INA219_RANGE_80MV,
		.mark_silence_us = FSJ_MARK_SILENCE_US,
		.serial_number = "TEST",
		.boot_id = 1,
	};

	memset(&chip, 0, sizeof(chip));
	chip.state = state;
	chip.shunt = 2500;
	chip.bus = 1250;
	frame_count = 0;
	return fsj_meter_start(&meter, &config, &i2c, &output);
}

static void ticks(uint64_t first, uint64_t end)
{
	for (uint64_t tick = first; tick < end; tick++) {
		fsj_meter_tick(&meter, tick, tick * TICK_US);
	}
}

static void put(const char *text, uint64_t time_us)
{
	for (; *text != '\0'; text++) {
		fsj_meter_mark_byte(&meter, (uint8_t)*text, time_us);
	}
}

static const struct fsj_samples *samples_at(size_t index)
{
	CHECK(index < frame_count);
	CHECK_EQUAL(frames[index].type, FSJ_FRAME_SAMPLES);
	return &frames[index].samples;
}

static void check_mark_at(size_t index, const char *text, uint64_t time_us)
{
	CHECK(index < frame_count);
	CHECK_EQUAL(frames[index].type, FSJ_FRAME_MARK);
	CHECK_EQUAL(frames[index].mark.length, strlen(text));
	CHECK(memcmp(frames[index].mark.text, text, strlen(text)) == 0);
	CHECK_EQUAL(frames[index].mark.time_us, time_us);
}

/* What holds for every stream: no gap in seq, ticks ascending, and cumulative energy that equals the sum of samples. */
static void check_stream(void)
{
	uint64_t next_tick = 0;
	uint64_t newest_us = 0;
	uint32_t missed = 0;
	int64_t energy = 0;

	for (size_t i = 0; i < frame_count; i++) {
		const struct fsj_samples *samples = &frames[i].samples;

		CHECK_EQUAL(frames[i].seq, i);
		if (frames[i].type == FSJ_FRAME_MARK) {
			CHECK(frames[i].mark.time_us + TICK_US > newest_us);
			newest_us = frames[i].mark.time_us;
		}
		if (frames[i].type != FSJ_FRAME_SAMPLES) {
			continue;
		}
		CHECK_EQUAL(samples->first_time_us, samples->first_tick * TICK_US);
		CHECK_EQUAL(samples->first_tick - next_tick, samples->missed_total - missed);
		CHECK_EQUAL(samples->energy_raw, energy);
		CHECK(samples->first_time_us + TICK_US >= newest_us);
		for (uint8_t k = 0; k < samples->count; k++) {
			energy += samples->sample[k].shunt * samples->sample[k].bus;
		}
		next_tick = samples->first_tick + samples->count;
		missed = samples->missed_total;
		newest_us = next_tick * TICK_US;
	}
}

static void test_a_second_of_samples(void)
{
	CHECK_EQUAL(start(CHIP_GOOD), FSJ_OK);
	ticks(0, 1000);
	CHECK_EQUAL(frame_count, 1 + 50);
	CHECK_EQUAL(frames[0].type, FSJ_FRAME_INFO);
	for (size_t i = 1; i < frame_count; i++) {
		CHECK_EQUAL(samples_at(i)->count, 20);
	}
	CHECK_EQUAL(samples_at(50)->energy_raw, 980ll * 2500 * 1250);
	ticks(1000, 1001);
	CHECK_EQUAL(frames[51].type, FSJ_FRAME_INFO);
	check_stream();
}

static void test_negative_current_takes_energy_away(void)
{
	start(CHIP_GOOD);
	chip.shunt = (uint16_t)-2500;
	ticks(0, 40);
	CHECK_EQUAL(samples_at(2)->energy_raw, -20ll * 2500 * 1250);
	check_stream();
}

static void test_a_missed_tick_closes_the_frame(void)
{
	start(CHIP_GOOD);
	ticks(0, 5);
	ticks(8, 12);
	fsj_meter_tick(&meter, 11, 11 * TICK_US);
	fsj_meter_tick(&meter, 3, 3 * TICK_US);
	chip.state = CHIP_NOT_READY;
	ticks(12, 13);
	chip.state = CHIP_GOOD;
	ticks(13, 33);
	CHECK_EQUAL(frame_count, 4);
	CHECK_EQUAL(samples_at(1)->count, 5);
	CHECK_EQUAL(samples_at(2)->first_tick, 8);
	CHECK_EQUAL(samples_at(2)->missed_total, 3);
	CHECK_EQUAL(samples_at(2)->count, 4);
	CHECK_EQUAL(samples_at(3)->missed_total, 4);
	CHECK_EQUAL(samples_at(3)->flags, 0);
	check_stream();
}

static void test_flags(void)
{
	start(CHIP_GOOD);
	chip.shunt = 8000;
	ticks(0, 1);
	chip.shunt = 2500;
	chip.bus_flags = FSJ_INA219_BUS_OVF;
	ticks(1, 2);
	chip.bus_flags = 0;
	ticks(2, 40);
	CHECK_EQUAL(samples_at(1)->flags, FSJ_FLAG_CLIPPED | FSJ_FLAG_OVERFLOW);
	CHECK_EQUAL(samples_at(2)->flags, 0);
}

static void test_a_chip_that_goes_away_and_comes_back(void)
{
	start(CHIP_GOOD);
	ticks(0, 10);
	chip.state = CHIP_GONE;
	ticks(10, 65);
	/* It did not fall silent: after 20 missed ticks each, an empty frame. */
	CHECK_EQUAL(frame_count, 1 + 1 + 2);
	CHECK_EQUAL(samples_at(2)->count, 0);
	CHECK_EQUAL(samples_at(2)->first_tick, 30);
	CHECK_EQUAL(samples_at(2)->missed_total, 20);
	CHECK_EQUAL(samples_at(2)->flags, FSJ_FLAG_I2C_FAULT);
	CHECK_EQUAL(samples_at(3)->missed_total, 40);
	CHECK_EQUAL(chip.configured, 1);
	chip.state = CHIP_GOOD;
	ticks(65, 85);
	CHECK_EQUAL(chip.configured, 2);
	CHECK_EQUAL(samples_at(4)->first_tick, 65);
	CHECK_EQUAL(samples_at(4)->missed_total, 55);
	CHECK_EQUAL(samples_at(4)->flags, FSJ_FLAG_I2C_FAULT);
	check_stream();
}

static void test_a_chip_that_is_absent_at_start(void)
{
	CHECK_EQUAL(start(CHIP_GONE), FSJ_I2C_FAULT);
	ticks(0, 20);
	chip.state = CHIP_GOOD;
	ticks(20, 40);
	CHECK_EQUAL(frame_count, 3);
	CHECK_EQUAL(samples_at(2)->count, 20);
	check_stream();
}

static void test_a_mark_goes_between_the_samples_around_it(void)
{
	start(CHIP_GOOD);
	ticks(0, 7);
	put("S1", 7300);
	ticks(7, 9);
	put("\n", 9100);
	ticks(9, 27);
	CHECK_EQUAL(samples_at(1)->count, 7);
	check_mark_at(2, "S1", 7300);
	CHECK_EQUAL(samples_at(3)->first_tick, 7);
	CHECK_EQUAL(samples_at(3)->count, 20);
	check_stream();
}

static void test_silence_ends_a_mark(void)
{
	start(CHIP_GOOD);
	ticks(0, 7);
	put("S", 7300);
	ticks(7, 27);
	CHECK_EQUAL(frame_count, 2);
	ticks(27, 47);
	check_mark_at(2, "S", 7300);
	CHECK_EQUAL(samples_at(3)->first_tick, 7);
	CHECK_EQUAL(samples_at(4)->first_tick, 27);
	check_stream();
}

static void test_a_line_that_does_not_end_holds_up_a_bounded_number_of_frames(void)
{
	start(CHIP_GOOD);
	for (uint64_t tick = 0; tick < 1000; tick++) {
		put("x", tick * TICK_US);
		ticks(tick, tick + 1);
		if (tick == 158) {
			CHECK_EQUAL(frame_count, 1);
		}
	}
	check_mark_at(1, "xxxxxxxxxxxxxxxx", 0);
	CHECK_EQUAL(samples_at(2)->first_tick, 0);
	CHECK_EQUAL(samples_at(9)->first_tick, 140);
	check_mark_at(10, "xxxxxxxxxxxxxxxx", 160 * TICK_US);
	check_stream();
}

static void test_random_streams(void)
{
	uint64_t tick = 0;

	start(CHIP_GOOD);
	srand(1);
	for (int i = 0; i < 20000 && frame_count < FRAMES_MAX - 100; i++) {
		const int what = rand() % 100;

		chip.state = what < 2 ? CHIP_GONE : what < 4 ? CHIP_NOT_READY : CHIP_GOOD;
		chip.shunt = (uint16_t)(rand() % 65536);
		tick += what == 4 ? (uint64_t)(rand() % 50) : 0u;
		ticks(tick, tick + 1);
		tick++;
		if (what >= 95) {
			fsj_meter_mark_byte(&meter, (uint8_t)(rand() % 3 == 0 ? '\n' : rand() % 256), tick * TICK_US);
		}
	}
	CHECK(frame_count > 1000);
	check_stream();
}

int main(void)
{
	test_a_second_of_samples();
	test_negative_current_takes_energy_away();
	test_a_missed_tick_closes_the_frame();
	test_flags();
	test_a_chip_that_goes_away_and_comes_back();
	test_a_chip_that_is_absent_at_start();
	test_a_mark_goes_between_the_samples_around_it();
	test_silence_ends_a_mark();
	test_a_line_that_does_not_end_holds_up_a_bounded_number_of_frames();
	test_random_streams();
	return 0;
}
