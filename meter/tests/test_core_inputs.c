/* What arrives badly, from the mark line and past a full queue, is counted and told; and of which stream a frame is. */

#include "bench.h"
#include "check.h"

static void check_told(uint32_t lost, uint32_t framing, uint32_t overruns, uint32_t noise, uint32_t damaged)
{
	const struct fsj_input_counts *inputs;

	CHECK_EQUAL(bench_simple(FSJ_COMMAND_INFO).status, FSJ_REPLY_DONE);
	inputs = &bench_info()->inputs;
	CHECK_EQUAL(inputs->events_lost, lost);
	CHECK_EQUAL(inputs->mark_framing, framing);
	CHECK_EQUAL(inputs->mark_overruns, overruns);
	CHECK_EQUAL(inputs->mark_noise, noise);
	CHECK_EQUAL(inputs->marks_damaged, damaged);
}

static void test_errors_of_the_uart_are_counted_by_kind(void)
{
	bench_begin();
	check_told(0, 0, 0, 0, 0);
	fsj_meter_mark_error(&bench.meter, FSJ_UART_FRAMING, bench.now_us);
	fsj_meter_mark_error(&bench.meter, FSJ_UART_FRAMING | FSJ_UART_NOISE, bench.now_us);
	fsj_meter_mark_error(&bench.meter, FSJ_UART_OVERRUN, bench.now_us);
	check_told(0, 2, 1, 1, 0);
}

static void test_lost_events_are_counted(void)
{
	bench_begin();
	fsj_meter_events_lost(&bench.meter, 3, bench.now_us);
	fsj_meter_events_lost(&bench.meter, 4, bench.now_us);
	check_told(7, 0, 0, 0, 0);
}

static void test_the_next_frame_of_samples_tells(void)
{
	bench_begin();
	bench_ticks(10);
	fsj_meter_events_lost(&bench.meter, 1, bench.now_us);
	bench_ticks(10);
	fsj_meter_mark_error(&bench.meter, FSJ_UART_NOISE, bench.now_us);
	bench_ticks(40);
	CHECK_EQUAL(bench_samples(1)->flags, 0);
	CHECK_EQUAL(bench_samples(2)->flags, FSJ_FLAG_EVENTS_LOST | FSJ_FLAG_MARK_ERROR);
	CHECK_EQUAL(bench_samples(3)->flags, 0);
	/* The last frame of a stream, too. */
	fsj_meter_events_lost(&bench.meter, 1, bench.now_us);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_RESET_ENERGY).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench_samples(4)->flags, FSJ_FLAG_EVENTS_LOST);
}

/* What a mark frame says, and how often a line was damaged so far. */
static void check_line(const char *line, uint8_t flags, const char *text, uint32_t damaged)
{
	const struct fsj_mark *mark;

	bench.frames = 0;
	bench_line(line);
	mark = &bench_last(0, FSJ_FRAME_MARK)->mark;
	CHECK_EQUAL(mark->flags, flags);
	CHECK_EQUAL(mark->length, strlen(text));
	CHECK(memcmp(mark->text, text, strlen(text)) == 0);
	CHECK_EQUAL(bench_simple(FSJ_COMMAND_INFO).status, FSJ_REPLY_DONE);
	CHECK_EQUAL(bench_info()->inputs.marks_damaged, damaged);
}

static void test_marks_with_and_without_a_check(void)
{
	bench_begin();
	check_line("~S7~2287\n", FSJ_MARK_CHECKED, "S7", 0);
	check_line("S7\n", 0, "S7", 0);
	check_line("~S7~2288\n", FSJ_MARK_DAMAGED, "~S7~2288", 1);
	/* A line that never ends keeps no mark. */
	bench_line("~S8~2");
	bench.frames = 0;
	bench_ticks(20);
	CHECK_EQUAL(bench.frame[0].type, FSJ_FRAME_MARK);
	CHECK_EQUAL(bench.frame[0].mark.flags, FSJ_MARK_DAMAGED);
	check_told(0, 0, 0, 0, 2);
	/* The host's own marks have the frame's checksum. */
	CHECK_EQUAL(bench_command(FSJ_COMMAND_MARK, "~S7~2288", 8).status, FSJ_REPLY_DONE);
	bench_check_mark(bench.frames - 2, FSJ_MARK_HOST, "~S7~2288", bench.now_us);
}

static void test_a_byte_that_was_lost_damages_a_plain_mark(void)
{
	bench_begin();
	bench_line("S1");
	fsj_meter_events_lost(&bench.meter, 1, bench.now_us);
	check_line("\n", FSJ_MARK_DAMAGED, "S1", 1);
	check_line("S2\n", 0, "S2", 1);
}

static void test_each_sample_says_that_it_is_clipped(void)
{
	bench_begin();
	bench.shunt = 8000;
	bench_ticks(1);
	bench.shunt = 2500;
	bench.bus_flags = FSJ_INA219_BUS_OVF;
	bench_ticks(1);
	bench.bus_flags = 0;
	bench.bus = 4000;
	bench_ticks(1);
	bench.bus = 1250;
	bench_ticks(37);
	CHECK_EQUAL(bench_samples(1)->sample[0].bus, FSJ_BUS_CLIPPED | 1250);
	CHECK_EQUAL(bench_samples(1)->sample[1].bus, FSJ_BUS_OVERFLOW | 1250);
	CHECK_EQUAL(bench_samples(1)->sample[2].bus, FSJ_BUS_CLIPPED | 4000);
	CHECK_EQUAL(bench_samples(1)->sample[3].bus, 1250);
	/* The sums have none of these bits. */
	CHECK_EQUAL(bench_samples(2)->bus_total, 19 * 1250 + 4000);
}

static void test_every_frame_names_its_stream(void)
{
	bench_begin();
	bench_ticks(20);
	bench_line("S1\n");
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_MARK)->stream_id, 77);
	CHECK_EQUAL(bench_last(1, FSJ_FRAME_SAMPLES)->stream_id, 77);
	bench_line("open");
	bench_ticks(5);
	CHECK_EQUAL(bench_command_u32(FSJ_COMMAND_RATE, 500).status, FSJ_REPLY_DONE);
	/* What was held goes out with the old one; the reply has the stream that the command began. */
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_REPLY)->stream_id, 78);
	CHECK_EQUAL(bench_last(1, FSJ_FRAME_INFO)->stream_id, 78);
	CHECK_EQUAL(bench_last(2, FSJ_FRAME_SAMPLES)->stream_id, 77);
	bench_ticks(20);
	CHECK_EQUAL(bench_last(0, FSJ_FRAME_SAMPLES)->stream_id, 78);
}

int main(void)
{
	test_errors_of_the_uart_are_counted_by_kind();
	test_lost_events_are_counted();
	test_the_next_frame_of_samples_tells();
	test_marks_with_and_without_a_check();
	test_a_byte_that_was_lost_damages_a_plain_mark();
	test_each_sample_says_that_it_is_clipped();
	test_every_frame_names_its_stream();
	return 0;
}
