#include "mark_port.h"

#include <string.h>
#include <unistd.h>

bool mark_port_open(struct mark_port *port, const char *link_path)
{
	memset(port, 0, sizeof(*port));
	if (!pty_open(&port->pty, link_path)) {
		return false;
	}
	port->slave = pty_open_slave(&port->pty);
	if (port->slave < 0) {
		pty_close(&port->pty);
		return false;
	}
	return true;
}

void mark_port_close(struct mark_port *port)
{
	close(port->slave);
	pty_close(&port->pty);
}

void mark_port_read(struct mark_port *port)
{
	timed_bytes_read(&port->input, port->pty.master);
}
