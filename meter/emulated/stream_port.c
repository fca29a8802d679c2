#include "stream_port.h"

#include <poll.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

bool stream_port_open(struct stream_port *port, const char *link_path)
{
	memset(port, 0, sizeof(*port));
	return pty_open(&port->pty, link_path);
}

/* The slave is deliberately not kept open here: then the kernel says whether anybody else has it open. */
static bool is_open_elsewhere(const struct stream_port *port)
{
	struct pollfd master = {.fd = port->pty.master, .events = POLLOUT};

	return poll(&master, 1, 0) >= 0 && (master.revents & POLLHUP) == 0;
}

/* The last reader is gone. What it did not read must not meet the next one, which would take it for new. */
static void discard_output(struct stream_port *port)
{
	const int slave = pty_open_slave(&port->pty);

	if (slave >= 0) {
		tcflush(slave, TCIOFLUSH);
		close(slave);
	}
	port->rest_size = 0;
}

static size_t write_some(const struct stream_port *port, const uint8_t *bytes, size_t size)
{
	const ssize_t written = write(port->pty.master, bytes, size);

	return written > 0 ? (size_t)written : 0;
}

static bool write_rest(struct stream_port *port)
{
	const size_t written = write_some(port, port->rest, port->rest_size);

	port->rest_size -= written;
	memmove(port->rest, port->rest + written, port->rest_size);
	return port->rest_size == 0;
}

bool stream_port_frame(void *context, const uint8_t *bytes, size_t size)
{
	struct stream_port *port = context;
	size_t written;

	if (!is_open_elsewhere(port)) {
		if (port->connected) {
			port->connected = false;
			discard_output(port);
		}
		return true;
	}
	port->connected = true;
	if (port->rest_size > 0 && !write_rest(port)) {
		return false;
	}
	written = write_some(port, bytes, size);
	if (written == 0) {
		return false;
	}
	port->rest_size = size - written;
	memcpy(port->rest, bytes + written, port->rest_size);
	return true;
}

void stream_port_read(struct stream_port *port)
{
	timed_bytes_read(&port->input, port->pty.master);
}
