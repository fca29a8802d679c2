/** @file
 * The meter's stream, and the host's commands, on a pseudo terminal. As on a serial port, what is sent while nobody has it open is gone.
 */
#ifndef FSJOULE_EMULATED_STREAM_PORT_H
#define FSJOULE_EMULATED_STREAM_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsjoule/frame.h"
#include "pty.h"
#include "timed_bytes.h"

struct stream_port {
	struct pty pty;
	bool connected; /**< somebody had it open when the last frame was sent */
	uint8_t rest[FSJ_FRAME_ENCODED_MAX_BYTES]; /**< end of a frame whose beginning is already written */
	size_t rest_size;
	struct timed_bytes input; /**< what the host sent */
};

/** Open the port; the link is pty_link()'s business.
 *
 * @retval false  errno says why not
 */
bool stream_port_open(struct stream_port *port, const char *link_path);

/** Send one frame whole or not at all, without waiting. The signature is that of struct fsj_output.
 *
 * @retval false  the reader has no room for it
 */
bool stream_port_frame(void *port, const uint8_t *bytes, size_t size);

/** Queue in `port->input` what the host has sent. */
void stream_port_read(struct stream_port *port);

#endif
