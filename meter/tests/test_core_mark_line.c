/* Bytes become lines. */

#include "check.h"
#include "fsjoule/mark_line.h"

/* Puts a text, one byte each 100 us from `time_us`; true if its last byte ended a line. */
static bool put(struct fsj_mark_line *line, const char *text, uint64_t time_us)
{
	bool ended = false;

	for (; *text != '\0'; text++, time_us += 100) {
		CHECK(!ended);
		ended = fsj_mark_line_put(line, (uint8_t)*text, time_us);
	}
	return ended;
}

static void check_mark(struct fsj_mark_line *line, const char *text, uint64_t time_us)
{
	CHECK_EQUAL(line->mark.length, strlen(text));
	CHECK(memcmp(line->mark.text, text, strlen(text)) == 0);
	CHECK_EQUAL(line->mark.time_us, time_us);
	fsj_mark_line_clear(line);
	CHECK(!fsj_mark_line_open(line));
}

static void test_a_line_has_the_time_of_its_first_byte(void)
{
	struct fsj_mark_line line = {0};

	CHECK(put(&line, "S12\n", 5000));
	check_mark(&line, "S12", 5000);
	CHECK(put(&line, "E12\r\n", 9000));
	check_mark(&line, "E12", 9000);
}

static void test_noise_and_empty_lines_are_no_marks(void)
{
	struct fsj_mark_line line = {0};

	CHECK(!put(&line, "\n\r\n\x01\xFF\x7F\x80\n", 0));
	CHECK(!fsj_mark_line_put(&line, 0x00, 0));
	CHECK(!fsj_mark_line_open(&line));
	CHECK(put(&line, "\xFFS\x01" "1\n", 1000));
	check_mark(&line, "S1", 1100);
}

static void test_a_long_line_is_cut(void)
{
	struct fsj_mark_line line = {0};

	CHECK(put(&line, "0123456789abcdef\n", 0));
	check_mark(&line, "0123456789abcdef", 0);
	CHECK(put(&line, "0123456789abcdefgh\n", 0));
	check_mark(&line, "0123456789abcdef", 0);
}

static void test_silence(void)
{
	struct fsj_mark_line line = {0};

	CHECK(!fsj_mark_line_silent(&line, 1000000, 20000));
	CHECK(!put(&line, "S1", 1000));
	CHECK(!fsj_mark_line_silent(&line, 1100 + 19999, 20000));
	CHECK(fsj_mark_line_silent(&line, 1100 + 20000, 20000));
	CHECK(!fsj_mark_line_silent(&line, 0, 20000));
	check_mark(&line, "S1", 1000);
}

int main(void)
{
	test_a_line_has_the_time_of_its_first_byte();
	test_noise_and_empty_lines_are_no_marks();
	test_a_long_line_is_cut();
	test_silence();
	return 0;
}
