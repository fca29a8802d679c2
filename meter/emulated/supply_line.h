/** @file
 * What a board draws and what it sends on its mark line, told in the board's own time through a FIFO.
 */
#ifndef FSJOULE_EMULATED_SUPPLY_LINE_H
#define FSJOULE_EMULATED_SUPPLY_LINE_H

#include <stddef.h>
#include <stdint.h>

enum supply_event_kind {
	SUPPLY_POWER_ON = 1, /**< the board's time begins here, or is told from here on */
	SUPPLY_POWER = 2,
	SUPPLY_MARK = 3,
};

/** As it stands in the FIFO, in the byte order of the machine. */
struct supply_event {
	int64_t time_ns; /**< of the board */
	uint32_t kind;
	uint32_t byte; /**< of a mark */
	double volts; /**< of power: since the event before that was no mark, up to `time_ns` */
	double amperes;
};

_Static_assert(sizeof(struct supply_event) == 32, "an event has 32 bytes");

struct supply_line {
	const char *path;
	int fd; /**< -1: the FIFO is not there yet */
	uint8_t cut[sizeof(struct supply_event)]; /**< the first `cut_size` bytes of an event */
	size_t cut_size;
};

/** Begin; the FIFO may appear later. `path` must outlive the line. */
void supply_line_init(struct supply_line *line, const char *path);

/** Take events that have been told, without waiting.
 *
 * @returns  how many of the `most` are filled; 0 if there is none now
 */
size_t supply_line_read(struct supply_line *line, struct supply_event *events, size_t most);

void supply_line_close(struct supply_line *line);

#endif
