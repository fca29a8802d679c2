#include "mark_port.h"

#include <string.h>
#include <unistd.h>

#include "monotonic.h"

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
	uint8_t bytes[64];
	ssize_t size;
	const int64_t now_ns = monotonic_ns();

	while (port->count + sizeof(bytes) <= MARK_PORT_QUEUE_BYTES &&
	       (size = read(port->pty.master, bytes, sizeof(bytes))) > 0) {
		for (ssize_t i = 0; i < size; i++) {
			const size_t at = (port->first + port->count++) % MARK_PORT_QUEUE_BYTES;

			port->byte[at] = bytes[i];
			port->time_ns[at] = now_ns;
		}
	}
}

bool mark_port_take(struct mark_port *port, int64_t before_ns, uint8_t *byte, int64_t *time_ns)
{
	if (port->count == 0 || port->time_ns[port->first] >= before_ns) {
		return false;
	}
	*byte = port->byte[port->first];
	*time_ns = port->time_ns[port->first];
	port->first = (port->first + 1) % MARK_PORT_QUEUE_BYTES;
	port->count--;
	return true;
}
