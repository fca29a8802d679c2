/** @file
 * The meter's stream on a pseudo terminal. As on a serial port, what is sent while nobody has it open is gone.
 */
#ifndef FSJOULE_EMULATED_STREAM_PORT_H
#define FSJOULE_EMULATED_STREAM_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsjoule/frame.h"
#include "pty.h"

struct stream_port {
	struct pty pty;
	bool connected; /**< somebody had it open when the last frame was sent */
	uint8_t rest[FSJ_FRAME_ENCODED_MAX_BYTES]; /**< end of a frame whose beginning is already written */
	size_t rest_size;
	uint64_t dropped; /**< frames for which a reader had no room */
};

/** Open the port; the link is pty_link()'s business.
 *
 * @retval false  errno says why not
 */
bool stream_port_open(struct stream_port *port, const char *link_path);

/** Send one frame whole or not at all, without waiting. The signature is that of struct fsj_output. */
void stream_port_frame(void *port, const uint8_t *bytes, size_t size);

/** Throw away what the host sent: protocol 1 has no commands. */
void stream_port_discard_input(struct stream_port *port);

#endif
