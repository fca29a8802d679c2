#include "fsjoule/mark_line.h"

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
	}
	if (mark->length < FSJ_MARK_MAX_BYTES) {
		mark->text[mark->length++] = byte;
	}
	line->last_byte_us = time_us;
	return false;
}

bool fsj_mark_line_silent(const struct fsj_mark_line *line, uint64_t now_us, uint32_t silence_us)
{
	return fsj_mark_line_open(line) && now_us >= line->last_byte_us && now_us - line->last_byte_us >= silence_us;
}

void fsj_mark_line_clear(struct fsj_mark_line *line)
{
	line->mark.length = 0;
}
