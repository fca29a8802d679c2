/** @file
 * Bytes from the board's second UART, put together to marks.
 *
 * A mark is a line of printable ASCII, at most FSJ_MARK_MAX_BYTES long (the rest of a longer one is dropped). It ends
 * with LF or with silence on the line. Other bytes are dropped: a UART whose board is being powered sends noise.
 *
 * A line `~TEXT~CHECK` has a check of its text. A plain line was damaged if an error or a loss fell into it.
 */
#ifndef FSJOULE_MARK_LINE_H
#define FSJOULE_MARK_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "fsjoule/frame.h"

/** An error so shortly before a line's first byte may belong to the line: ten bytes at 115200 baud. */
#define FSJ_MARK_HIT_REACH_US 1000u

/** A line that may be under way. All zero is the state at start. */
struct fsj_mark_line {
	struct fsj_mark mark; /**< what has arrived; under way while `length` is above 0 */
	uint64_t last_byte_us;
	uint64_t hit_us; /**< when the line was hit last */
	bool hit_before; /**< it was, between two lines */
	bool hit; /**< the line under way was */
	bool cut; /**< the line under way is longer than its text */
};

/** True if a line has begun and has not ended. */
bool fsj_mark_line_open(const struct fsj_mark_line *line);

/** True if this byte begins a line or goes on with it: printable ASCII. */
bool fsj_mark_line_is_text(uint8_t byte);

/** Take one byte that arrived at `time_us`.
 *
 * @retval true   the byte ended a line: read `line->mark`, then call fsj_mark_line_clear()
 * @retval false  no line has ended
 */
bool fsj_mark_line_put(struct fsj_mark_line *line, uint8_t byte, uint64_t time_us);

/** True if a line is under way and nothing has arrived for `silence_us` up to `now_us`. */
bool fsj_mark_line_silent(const struct fsj_mark_line *line, uint64_t now_us, uint32_t silence_us);

/** An error or a loss fell into the line at `time_us`, before the byte that comes next. */
void fsj_mark_line_hit(struct fsj_mark_line *line, uint64_t time_us);

/** Say of a line that has ended whether it has a check, which is taken out of the text, and whether it is damaged. */
void fsj_mark_line_judge(struct fsj_mark_line *line);

/** Be ready for the next line. */
void fsj_mark_line_clear(struct fsj_mark_line *line);

#endif
