/* The whole core: ticks and marks in, frames out. What holds for every stream is checked frame by frame (parse.h). */

#include "bench.h"
#include "check.h"

static void test_a_second_of_samples(void)
{
	bench_begin();
	bench_ticks(999);
	CHECK_EQUAL(bench.frames, 1 + 49);
	CHECK_EQUAL(bench.frame[0].type, FSJ_FRAME_INFO);
	for (size_t i = 1; i < bench.frames; i++) {
		CHECK_EQUAL(bench_samples(i)->count, 20);
	}
	CHECK_EQUAL(bench_samples(49)->energy_raw, 960ll * 2500 * 1250);
	CHECK_EQUAL(bench_samples(49)->bus_total, 960ll * 1250);
	CHECK_EQUAL(bench_samples(49)->first_time_us, 960000);
	bench_ticks(1);
	bench_last(1, FSJ_FRAME_INFO);
	bench_last(0, FSJ_FRAME_SAMPLES);
	bench_ticks(1000);
	CHECK_EQUAL(bench.frames, 2 * 51 + 1);
}

static void test_what_the_meter_says_of_itself(void)
{
	struct fsj_meter_config config = bench_config();
	const struct fsj_info *info;

	bench_clear();
	config.simulated = true;
	config.serial_number = "ABCDEFGHIJKLMNOPQ";
	bench_start(&config);
	info = bench_info();
	CHECK_EQUAL(info->rate_hz, 1000);
	CHECK_EQUAL(info->shunt_uohm, 100000);
	CHECK_EQUAL(info->shunt_range_mv, 80);
	CHECK_EQUAL(info->adc_config, 0x091F);
	CHECK_EQUAL(info->flags, FSJ_INFO_SIMULATED | FSJ_INFO_SAMPLING);
	CHECK_EQUAL(info->reset_cause, FSJ_RESET_WATCHDOG);
	CHECK_EQUAL(bench_stream(), 77);
	CHECK(memcmp(info->firmware, FSJ_VERSION "\0\0\0\0\0\0\0\0\0\0\0", FSJ_NAME_BYTES) == 0);
	CHECK(memcmp(info->serial_number, "ABCDEFGHIJKLMNOP", FSJ_NAME_BYTES) == 0);
	CHECK_EQUAL(fsj_meter_period_us(&bench.meter), 1000);
	CHECK_EQUAL(fsj_meter_streams(&bench.meter), 1);
}

static void test_negative_current_takes_energy_away(void)
{
	bench_begin();
	bench.shunt = (uint16_t)-2500;
	bench_ticks(40);
	CHECK_EQUAL(bench_samples(2)->energy_raw, -20ll * 2500 * 1250);
	CHECK_EQUAL(bench_samples(2)->bus_total, 20 * 1250);
}

static void test_a_missed_tick_closes_the_frame(void)
{
	bench_begin();
	bench_ticks(5);
	bench_jump(4);
	bench_ticks(3);
	bench_jump(0);
	bench.chip = CHIP_NOT_READY;
	bench_ticks(1);
	bench.chip = CHIP_GOOD;
	bench_ticks(20);
	CHECK_EQUAL(bench.frames, 4);
	CHECK_EQUAL(bench_samples(1)->count, 5);
	CHECK_EQUAL(bench_samples(2)->first_tick, 8);
	CHECK_EQUAL(bench_samples(2)->missed_total, 3);
	CHECK_EQUAL(bench_samples(2)->count, 4);
	CHECK_EQUAL(bench_samples(3)->missed_total, 4);
	CHECK_EQUAL(bench_samples(3)->first_tick, 13);
	CHECK_EQUAL(bench_samples(3)->flags, 0);
	CHECK_EQUAL(bench.recovered, 0);
	CHECK_EQUAL(bench.configured, 1);
}

static void test_a_long_gap_is_said_at_once(void)
{
	bench_begin();
	bench_ticks(1);
	bench_jump(100000);
	CHECK_EQUAL(bench_samples(1)->count, 1);
	bench_ticks(20);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_SAMPLES)->samples.first_tick, 100000);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_SAMPLES)->samples.missed_total, 99999);
	bench_ticks(1000);
}

static void test_flags(void)
{
	bench_begin();
	bench.shunt = 8000;
	bench_ticks(1);
	bench.shunt = 2500;
	bench.bus_flags = FSJ_INA219_BUS_OVF;
	bench_ticks(1);
	bench.bus_flags = 0;
	bench_ticks(38);
	CHECK_EQUAL(bench_samples(1)->flags, FSJ_FLAG_CLIPPED | FSJ_FLAG_OVERFLOW);
	CHECK_EQUAL(bench_samples(2)->flags, 0);
}

static void test_a_chip_that_goes_away_and_comes_back(void)
{
	bench_begin();
	bench_ticks(10);
	bench.chip = CHIP_GONE;
	bench_ticks(55);
	/* It did not fall silent: after 20 missed ticks each, an empty frame. */
	CHECK_EQUAL(bench.frames, 1 + 1 + 2);
	CHECK_EQUAL(bench_samples(2)->count, 0);
	CHECK_EQUAL(bench_samples(2)->first_tick, 30);
	CHECK_EQUAL(bench_samples(2)->missed_total, 20);
	CHECK_EQUAL(bench_samples(2)->flags, FSJ_FLAG_I2C_FAULT | FSJ_FLAG_BUS_RESET);
	CHECK_EQUAL(bench_samples(3)->missed_total, 40);
	CHECK_EQUAL(bench.configured, 1);
	CHECK_EQUAL(bench.recovered, 55);
	bench.chip = CHIP_GOOD;
	bench_ticks(21);
	/* One tick starts it, the next one has a conversion. */
	CHECK_EQUAL(bench.configured, 2);
	CHECK_EQUAL(bench.recovered, 56);
	CHECK_EQUAL(bench_samples(4)->first_tick, 66);
	CHECK_EQUAL(bench_samples(4)->missed_total, 56);
	CHECK_EQUAL(bench_samples(4)->flags, FSJ_FLAG_I2C_FAULT | FSJ_FLAG_BUS_RESET);
	bench_ticks(20);
	CHECK_EQUAL(bench_samples(5)->flags, 0);
	bench_ticks(1000);
	/* The read that failed, and the start after it; then a start each tick. */
	CHECK_EQUAL(bench_info()->i2c_faults, 2 + 54);
}

static void test_one_failed_transfer_costs_one_tick(void)
{
	bench_begin();
	bench_ticks(5);
	bench.chip = CHIP_GONE;
	bench.recover_fails = true;
	bench_ticks(1);
	bench.chip = CHIP_GOOD;
	bench_ticks(21);
	CHECK_EQUAL(bench_samples(2)->first_tick, 7);
	CHECK_EQUAL(bench_samples(2)->flags, FSJ_FLAG_I2C_FAULT);
	CHECK_EQUAL(bench.recovered, 2);
}

static void test_a_chip_that_lost_its_supply_for_a_moment(void)
{
	bench_begin();
	bench_ticks(20);
	bench.config = FSJ_INA219_CONFIG_RESET_VALUE;
	bench.chip = CHIP_NOT_READY; /* its conversions are longer now */
	bench_ticks(1);
	CHECK_EQUAL(bench.config, 0x091F);
	CHECK_EQUAL(bench.configured, 2);
	bench.chip = CHIP_GOOD;
	bench_ticks(20);
	CHECK_EQUAL(bench_samples(2)->first_tick, 21);
	CHECK_EQUAL(bench_samples(2)->flags, FSJ_FLAG_I2C_FAULT | FSJ_FLAG_BUS_RESET);
	/* Where it is not late, it is asked once a second. */
	bench.config = FSJ_INA219_CONFIG_RESET_VALUE;
	bench_ticks(958);
	CHECK_EQUAL(bench.configured, 2);
	bench_ticks(1);
	CHECK_EQUAL(bench.configured, 3);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_INFO)->info.i2c_faults, 0);
	bench_ticks(22);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_SAMPLES)->samples.flags, FSJ_FLAG_I2C_FAULT | FSJ_FLAG_BUS_RESET);
}

static void test_a_chip_that_is_absent_at_start(void)
{
	const struct fsj_meter_config config = bench_config();

	bench_clear();
	bench.chip = CHIP_GONE;
	CHECK_EQUAL(bench_start(&config), FSJ_I2C_FAULT);
	bench_ticks(20);
	bench.chip = CHIP_GOOD;
	bench_ticks(21);
	CHECK_EQUAL(bench.frames, 3);
	CHECK_EQUAL(bench_samples(2)->first_tick, 21);
	CHECK_EQUAL(bench_samples(2)->count, 20);
}

static void test_no_recovery_where_there_is_none(void)
{
	bench_begin();
	bench.meter.chip.i2c.recover = NULL;
	bench.chip = CHIP_GONE;
	bench_ticks(1);
	bench.chip = CHIP_GOOD;
	bench_ticks(21);
	CHECK_EQUAL(bench.recovered, 0);
	CHECK_EQUAL(bench_samples(1)->flags, FSJ_FLAG_I2C_FAULT);
}

static void test_frames_without_room_are_counted(void)
{
	bench_begin();
	bench_ticks(20);
	bench.no_room = true;
	bench_ticks(40);
	bench.no_room = false;
	bench.follower = (struct follower){
		.frames = 4, .has_info = true, .stream_id = 77, .info = bench.follower.info, .next_tick = 60,
		.energy = 60 * 2500 * 1250, .bus_total = 60 * 1250,
	};
	bench_ticks(960);
	CHECK_EQUAL(bench_info()->frames_dropped, 2);
	/* An info frame is tried again soon. */
	bench.no_room = true;
	bench_ticks(980);
	bench.frames = 0;
	bench_ticks(20);
	CHECK_EQUAL(bench.frame[0].type, FSJ_FRAME_INFO);
	bench_ticks(20);
	CHECK_EQUAL(bench.frame[2].type, FSJ_FRAME_INFO);
}

/* ------------------------------------------------------------------------------------------------------- marks */

static void test_a_mark_goes_between_the_samples_around_it(void)
{
	bench_begin();
	bench_ticks(7);
	bench_line("S1");
	bench_ticks(2);
	bench_line("\n");
	bench_ticks(18);
	CHECK_EQUAL(bench_samples(1)->count, 7);
	bench_check_mark(2, FSJ_MARK_LINE, "S1", 7000);
	CHECK_EQUAL(bench_samples(3)->first_tick, 7);
	CHECK_EQUAL(bench_samples(3)->count, 20);
}

static void test_edges(void)
{
	bench_begin();
	bench_ticks(7);
	fsj_meter_mark_edge(&bench.meter, true, 7100);
	fsj_meter_mark_edge(&bench.meter, false, 7200);
	bench_ticks(20);
	CHECK_EQUAL(bench_samples(1)->count, 7);
	bench_check_mark(2, FSJ_MARK_RISING, "", 7100);
	bench_check_mark(3, FSJ_MARK_FALLING, "", 7200);
	CHECK_EQUAL(bench_samples(4)->first_tick, 7);
}

static void test_edges_and_host_marks_wait_for_the_line_under_way(void)
{
	bench_begin();
	bench_ticks(3);
	bench_line("S");
	fsj_meter_mark_edge(&bench.meter, true, 3100);
	bench_ticks(2);
	CHECK_EQUAL(bench_command(FSJ_COMMAND_MARK, "host", 4).status, FSJ_REPLY_DONE);
	bench_ticks(1);
	fsj_meter_mark_edge(&bench.meter, false, 6000);
	CHECK_EQUAL(bench.frames, 3); /* info, 3 samples, the reply */
	bench_line("7\n");
	CHECK_EQUAL(bench.frames, 9);
	bench_check_mark(3, FSJ_MARK_LINE, "S7", 3000);
	bench_check_mark(4, FSJ_MARK_RISING, "", 3100);
	CHECK_EQUAL(bench_samples(5)->count, 2);
	bench_check_mark(6, FSJ_MARK_HOST, "host", 5000);
	CHECK_EQUAL(bench_samples(7)->count, 1);
	bench_check_mark(8, FSJ_MARK_FALLING, "", 6000);
}

static void test_silence_ends_a_mark(void)
{
	bench_begin();
	bench_ticks(7);
	bench_line("S");
	bench_ticks(19);
	CHECK_EQUAL(bench.frames, 2);
	bench_ticks(21);
	bench_check_mark(2, FSJ_MARK_LINE, "S", 7000);
	CHECK_EQUAL(bench_samples(3)->first_tick, 7);
	CHECK_EQUAL(bench_samples(4)->first_tick, 27);
}

static void test_a_line_that_does_not_end_holds_up_a_bounded_number_of_frames(void)
{
	bench_begin();
	for (uint32_t tick = 0; tick < 1000; tick++) {
		bench_line("x");
		bench_ticks(1);
		if (tick == 158) {
			CHECK_EQUAL(bench.frames, 1);
		}
	}
	bench_check_mark(1, FSJ_MARK_LINE, "xxxxxxxxxxxxxxxx", 0);
	CHECK_EQUAL(bench_samples(2)->first_tick, 0);
	CHECK_EQUAL(bench_samples(9)->first_tick, 140);
	bench_check_mark(10, FSJ_MARK_LINE, "xxxxxxxxxxxxxxxx", 160000);
}

static void test_edges_fill_the_queue_too(void)
{
	bench_begin();
	bench_line("x");
	for (uint64_t i = 0; i < 7; i++) {
		fsj_meter_mark_edge(&bench.meter, i % 2 == 0, i);
	}
	CHECK_EQUAL(bench.frames, 1);
	fsj_meter_mark_edge(&bench.meter, false, 7);
	CHECK_EQUAL(bench.frames, 10);
	bench_check_mark(1, FSJ_MARK_LINE, "x", 0);
	bench_check_mark(9, FSJ_MARK_FALLING, "", 7);
	fsj_meter_mark_edge(&bench.meter, true, 8);
	CHECK_EQUAL(bench.frames, 11);
}

static void test_flush_sends_what_is_under_way(void)
{
	bench_begin();
	bench_ticks(5);
	bench_line("S1");
	bench_ticks(3);
	fsj_meter_flush(&bench.meter);
	CHECK_EQUAL(bench.frames, 5);
	bench_check_mark(2, FSJ_MARK_LINE, "S1", 5000);
	CHECK_EQUAL(bench_samples(3)->count, 3);
	CHECK_EQUAL(bench_samples(4)->count, 0);
	CHECK_EQUAL(bench_samples(4)->energy_raw, 8ll * 2500 * 1250);
	CHECK_EQUAL(bench_samples(4)->first_tick, 8);
}

/* --------------------------------------------------------------------------------------------------- anything */

static void random_event(void)
{
	const int what = rand() % 100;

	bench.chip = what < 2 ? CHIP_GONE : what < 4 ? CHIP_NOT_READY : CHIP_GOOD;
	bench.shunt = (uint16_t)(rand() % 65536);
	bench.bus = (uint16_t)(rand() % 8192);
	bench_jump(what == 4 ? (uint32_t)(rand() % 50) : 1);
	if (what >= 95) {
		fsj_meter_mark_byte(&bench.meter, (uint8_t)(rand() % 3 == 0 ? '\n' : rand() % 256), bench.now_us);
	} else if (what == 94) {
		fsj_meter_mark_edge(&bench.meter, rand() % 2 == 0, bench.now_us);
	} else if (what == 93 && rand() % 10 == 0) {
		const uint8_t types[] = {FSJ_COMMAND_START, FSJ_COMMAND_STOP, FSJ_COMMAND_START, FSJ_COMMAND_SAVE};

		bench_command(types[rand() % 4], NULL, 0);
	} else if (what == 92 && rand() % 10 == 0) {
		const uint32_t rates[] = {100, 250, 1000, 2000, 300};

		bench_command_u32(FSJ_COMMAND_RATE, rates[rand() % 5]);
	}
}

static void test_random_streams(void)
{
	size_t frames = 0;
	uint32_t streams = 0;

	srand(1);
	for (int round = 0; round < 20; round++) {
		bench_begin();
		for (int i = 0; i < 20000 && bench.frames < BENCH_FRAMES_MAX - 100; i++) {
			random_event();
		}
		frames += bench.frames;
		streams += bench.meter.streams;
	}
	CHECK(frames > 20000 && streams > 300);
}

int main(void)
{
	test_a_second_of_samples();
	test_what_the_meter_says_of_itself();
	test_negative_current_takes_energy_away();
	test_a_missed_tick_closes_the_frame();
	test_a_long_gap_is_said_at_once();
	test_flags();
	test_a_chip_that_goes_away_and_comes_back();
	test_one_failed_transfer_costs_one_tick();
	test_a_chip_that_lost_its_supply_for_a_moment();
	test_a_chip_that_is_absent_at_start();
	test_no_recovery_where_there_is_none();
	test_frames_without_room_are_counted();
	test_a_mark_goes_between_the_samples_around_it();
	test_edges();
	test_edges_and_host_marks_wait_for_the_line_under_way();
	test_silence_ends_a_mark();
	test_a_line_that_does_not_end_holds_up_a_bounded_number_of_frames();
	test_edges_fill_the_queue_too();
	test_flush_sends_what_is_under_way();
	test_random_streams();
	return 0;
}
