#include "fsjoule/mark_line.h"

/* A prime, so that no single digit and no two neighbours that change places go unseen. The length shows what is missing. */
#define MODULUS 997u
#define PER_CHARACTER 1000u
#define CHECK_DIGITS 4u
#define NO_CHECK UINT32_MAX
#define UPPER_A 10u
#define LOWER_A 36u

bool fsj_mark_line_open(const struct fsj_mark_line *line)
{
	return line->mark.length > 0;
}

bool fsj_mark_line_is_text(uint8_t byte)
{
	return byte >= 0x20 && byte <= 0x7E;
}

bool fsj_mark_line_put(struct fsj_mark_line *line, uint8_t byte, uint64_t time_us)
{
	struct fsj_mark *mark = &line->mark;

	if (byte == '\n') {
		return fsj_mark_line_open(line);
	}
	if (!fsj_mark_line_is_text(byte)) {
		return false;
	}
	if (mark->length == 0) {
		mark->time_us = time_us;
		mark->source = FSJ_MARK_LINE;
		mark->flags = 0;
		line->hit = line->hit_before && time_us - line->hit_us <= FSJ_MARK_HIT_REACH_US;
		line->hit_before = false;
		line->cut = false;
	}
	if (mark->length < FSJ_MARK_MAX_BYTES) {
		mark->text[mark->length++] = byte;
	} else {
		line->cut = true;
	}
	line->last_byte_us = time_us;
	return false;
}

bool fsj_mark_line_silent(const struct fsj_mark_line *line, uint64_t now_us, uint32_t silence_us)
{
	return fsj_mark_line_open(line) && now_us >= line->last_byte_us && now_us - line->last_byte_us >= silence_us;
}

void fsj_mark_line_hit(struct fsj_mark_line *line, uint64_t time_us)
{
	if (fsj_mark_line_open(line)) {
		line->hit = true;
	} else {
		line->hit_before = true;
		line->hit_us = time_us;
	}
}

/* ------------------------------------------------------------------------------------------------------- checks */

static bool is_digit(uint8_t byte)
{
	return byte >= '0' && byte <= '9';
}

/* The text as one decimal number, modulo MODULUS: a digit is itself, a letter is two digits; and PER_CHARACTER for each.
 *
 * @retval NO_CHECK  the text is empty or has other characters
 */
static uint32_t check_of(const uint8_t *text, uint32_t length)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < length; i++) {
		const uint8_t byte = text[i];

		if (is_digit(byte)) {
			sum = (sum * 10 + byte - '0') % MODULUS;
		} else if (byte >= 'A' && byte <= 'Z') {
			sum = (sum * 100 + byte - 'A' + UPPER_A) % MODULUS;
		} else if (byte >= 'a' && byte <= 'z') {
			sum = (sum * 100 + byte - 'a' + LOWER_A) % MODULUS;
		} else {
			return NO_CHECK;
		}
	}
	return length > 0 ? PER_CHARACTER * length + sum : NO_CHECK;
}

/* The decimal number of up to CHECK_DIGITS digits that `text` ends with after a '~'.
 *
 * @param digits  how many; 0: it does not end so
 */
static uint32_t written_check(const uint8_t *text, uint32_t length, uint32_t *digits)
{
	uint32_t value = 0;
	uint32_t first = length;

	while (first > 0 && length - first < CHECK_DIGITS && is_digit(text[first - 1])) {
		first--;
	}
	*digits = first > 0 && text[first - 1] == '~' ? length - first : 0;
	for (uint32_t i = first; i < length; i++) {
		value = value * 10 + text[i] - '0';
	}
	return value;
}

/* What is left of a mark that had a check begins or ends as one, unless both its ends are hit. */
void fsj_mark_line_judge(struct fsj_mark_line *line)
{
	struct fsj_mark *mark = &line->mark;
	uint32_t digits;
	const uint32_t written = written_check(mark->text, mark->length, &digits);
	const bool opens = mark->text[0] == '~';
	const uint32_t length = opens && digits > 0 && mark->length >= digits + 2u ? mark->length - digits - 2u : 0;

	if (length > 0 && !line->cut && check_of(mark->text + 1, length) == written) {
		mark->flags = FSJ_MARK_CHECKED;
		mark->length = (uint8_t)length;
		for (uint32_t i = 0; i < length; i++) {
			mark->text[i] = mark->text[i + 1];
		}
	} else if (opens || digits > 0 || line->hit) {
		mark->flags = FSJ_MARK_DAMAGED;
	}
}

void fsj_mark_line_clear(struct fsj_mark_line *line)
{
	line->mark.length = 0;
}
