/** @file
 * The mark line on a pseudo terminal: each byte with the time at which it arrived.
 */
#ifndef FSJOULE_EMULATED_MARK_PORT_H
#define FSJOULE_EMULATED_MARK_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pty.h"

#define MARK_PORT_QUEUE_BYTES 4096u

struct mark_port {
	struct pty pty;
	int slave; /**< kept open, so that a board that closes its end is not a hang-up */
	uint8_t byte[MARK_PORT_QUEUE_BYTES];
	int64_t time_ns[MARK_PORT_QUEUE_BYTES];
	size_t first; /**< oldest byte of the queue */
	size_t count;
};

/** Open the port; the link is pty_link()'s business.
 *
 * @retval false  errno says why not
 */
bool mark_port_open(struct mark_port *port, const char *link_path);

/** Close it, and remove the link. */
void mark_port_close(struct mark_port *port);

/** Queue what has arrived, stamped with the present time. What finds no room waits in the terminal. */
void mark_port_read(struct mark_port *port);

/** Take the oldest byte that arrived before `before_ns`.
 *
 * @retval true   `byte` and `time_ns` (CLOCK_MONOTONIC) are filled
 * @retval false  there is none
 */
bool mark_port_take(struct mark_port *port, int64_t before_ns, uint8_t *byte, int64_t *time_ns);

#endif
