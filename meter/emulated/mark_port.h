/** @file
 * The mark line on a pseudo terminal.
 */
#ifndef FSJOULE_EMULATED_MARK_PORT_H
#define FSJOULE_EMULATED_MARK_PORT_H

#include <stdbool.h>

#include "pty.h"
#include "timed_bytes.h"

struct mark_port {
	struct pty pty;
	int slave; /**< kept open, so that a board that closes its end is not a hang-up */
	struct timed_bytes input;
};

/** Open the port; the link is pty_link()'s business.
 *
 * @retval false  errno says why not
 */
bool mark_port_open(struct mark_port *port, const char *link_path);

/** Close it, and remove the link. */
void mark_port_close(struct mark_port *port);

/** Queue in `port->input` what has arrived. */
void mark_port_read(struct mark_port *port);

#endif
