#include "supply_line.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void supply_line_init(struct supply_line *line, const char *path)
{
	memset(line, 0, sizeof(*line));
	line->path = path;
	line->fd = -1;
}

/* Open for writing, too: then the end of a writer is not the end of the line. */
static void look_for_fifo(struct supply_line *line)
{
	struct stat status;

	line->fd = open(line->path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (line->fd >= 0 && (fstat(line->fd, &status) != 0 || !S_ISFIFO(status.st_mode))) {
		supply_line_close(line);
	}
}

size_t supply_line_read(struct supply_line *line, struct supply_event *events, size_t most)
{
	uint8_t *const bytes = (uint8_t *)events;
	size_t count;
	ssize_t got;

	if (line->fd < 0) {
		look_for_fifo(line);
	}
	if (line->fd < 0) {
		return 0;
	}
	got = read(line->fd, bytes + line->cut_size, most * sizeof(*events) - line->cut_size);
	if (got <= 0) {
		return 0;
	}
	memcpy(bytes, line->cut, line->cut_size);
	got += (ssize_t)line->cut_size;
	count = (size_t)got / sizeof(*events);
	line->cut_size = (size_t)got % sizeof(*events);
	memcpy(line->cut, bytes + count * sizeof(*events), line->cut_size);
	return count;
}

void supply_line_close(struct supply_line *line)
{
	if (line->fd >= 0) {
		close(line->fd);
		line->fd = -1;
	}
}
