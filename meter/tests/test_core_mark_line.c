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

/* The flags of a line, and its text without a check. */
static void check_judged(const char *sent, uint8_t flags, const char *text)
{
	struct fsj_mark_line line = {0};

	CHECK(!put(&line, sent, 0));
	CHECK(fsj_mark_line_put(&line, '\n', 10000));
	fsj_mark_line_judge(&line);
	CHECK_EQUAL(line.mark.flags, flags);
	CHECK_EQUAL(line.mark.length, strlen(text));
	CHECK(memcmp(line.mark.text, text, strlen(text)) == 0);
}

static void test_checks(void)
{
	/* 2812, 14999, 2837505055, 0, 360 and 12345678 modulo 997, and 1000 for each character. */
	check_judged("~S12~3818", FSJ_MARK_CHECKED, "S12");
	check_judged("~E999~4044", FSJ_MARK_CHECKED, "E999");
	check_judged("~Sboot~5184", FSJ_MARK_CHECKED, "Sboot");
	check_judged("~0~1000", FSJ_MARK_CHECKED, "0");
	check_judged("~a0~2360", FSJ_MARK_CHECKED, "a0");
	check_judged("~012345678~9824", FSJ_MARK_CHECKED, "012345678");
	/* What is no check, and what is only its beginning or its end. */
	check_judged("~S12~3817", FSJ_MARK_DAMAGED, "~S12~3817");
	check_judged("~S12~2818", FSJ_MARK_DAMAGED, "~S12~2818");
	check_judged("~S12~03818", FSJ_MARK_DAMAGED, "~S12~03818");
	check_judged("~S12~38181", FSJ_MARK_DAMAGED, "~S12~38181");
	check_judged("~0~0", FSJ_MARK_DAMAGED, "~0~0");
	/* Two digits that are missing change nothing modulo 997. */
	check_judged("~S1~4281", FSJ_MARK_DAMAGED, "~S1~4281");
	check_judged("~S197~4281", FSJ_MARK_CHECKED, "S197");
	check_judged("~S12~", FSJ_MARK_DAMAGED, "~S12~");
	check_judged("~S12", FSJ_MARK_DAMAGED, "~S12");
	check_judged("S12~3818", FSJ_MARK_DAMAGED, "S12~3818");
	check_judged("~~0", FSJ_MARK_DAMAGED, "~~0");
	check_judged("~0", FSJ_MARK_DAMAGED, "~0");
	check_judged("~", FSJ_MARK_DAMAGED, "~");
	check_judged("~S1 2~4818", FSJ_MARK_DAMAGED, "~S1 2~4818");
	check_judged("~S12~3818~E12~34", FSJ_MARK_DAMAGED, "~S12~3818~E12~34");
	/* A longer line of which the first 16 bytes would be right. */
	check_judged("~0123456789~2730~", FSJ_MARK_DAMAGED, "~0123456789~2730");
	check_judged("~0123456789~1027", FSJ_MARK_DAMAGED, "~0123456789~1027");
	/* Other lines. */
	check_judged("S12", 0, "S12");
	check_judged("root@board:~# ", 0, "root@board:~# ");
	check_judged("a ~ 12", 0, "a ~ 12");
	check_judged("12", 0, "12");
}

/* Whatever becomes of one byte, or of some neighbours: it is seen. */
static void test_one_hit_makes_no_other_mark(void)
{
	const char *whole = "~S12~3818";
	const size_t size = strlen(whole);

	for (size_t at = 0; at < size; at++) {
		for (int byte = 0x20; byte <= 0x7E; byte++) {
			struct fsj_mark_line line = {0};
			char sent[16];

			strcpy(sent, whole);
			sent[at] = (char)byte;
			CHECK(!put(&line, sent, 0));
			fsj_mark_line_judge(&line);
			CHECK_EQUAL(line.mark.flags, byte == whole[at] ? FSJ_MARK_CHECKED : FSJ_MARK_DAMAGED);
		}
		for (size_t count = 1; at + count <= size; count++) {
			struct fsj_mark_line line = {0};
			char sent[16];

			strcpy(sent, whole);
			memmove(sent + at, sent + at + count, size - at - count + 1);
			CHECK(!put(&line, sent, 0));
			fsj_mark_line_judge(&line);
			/* Without its beginning it may be plain, but not the text of a mark: those begin with a letter. */
			CHECK(line.mark.flags == FSJ_MARK_DAMAGED || (at == 0 && sent[0] >= '0' && sent[0] <= '9') ||
			      (at == 0 && count == size));
		}
	}
}

static void test_a_hit_damages_a_plain_line(void)
{
	struct fsj_mark_line line = {0};

	CHECK(!put(&line, "S1", 1000));
	fsj_mark_line_hit(&line, 1200);
	CHECK(put(&line, "2\n", 1300));
	fsj_mark_line_judge(&line);
	CHECK_EQUAL(line.mark.flags, FSJ_MARK_DAMAGED);
	fsj_mark_line_clear(&line);
	/* Just before its first byte, but not the line after that, and not long before. */
	fsj_mark_line_hit(&line, 2000);
	CHECK(put(&line, "S2\n", 2100));
	fsj_mark_line_judge(&line);
	CHECK_EQUAL(line.mark.flags, FSJ_MARK_DAMAGED);
	fsj_mark_line_clear(&line);
	CHECK(put(&line, "S3\n", 2500));
	fsj_mark_line_judge(&line);
	CHECK_EQUAL(line.mark.flags, 0);
	fsj_mark_line_clear(&line);
	fsj_mark_line_hit(&line, 3000);
	CHECK(put(&line, "S4\n", 4001));
	fsj_mark_line_judge(&line);
	CHECK_EQUAL(line.mark.flags, 0);
	fsj_mark_line_clear(&line);
	/* A check says more than a hit. */
	CHECK(!put(&line, "~S1", 5000));
	fsj_mark_line_hit(&line, 5200);
	CHECK(put(&line, "2~3818\n", 5300));
	fsj_mark_line_judge(&line);
	CHECK_EQUAL(line.mark.flags, FSJ_MARK_CHECKED);
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
	test_checks();
	test_one_hit_makes_no_other_mark();
	test_a_hit_damages_a_plain_line();
	return 0;
}
