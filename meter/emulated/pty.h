/** @file
 * A pseudo terminal in raw mode, with a link to its slave at a path of the caller's choice.
 */
#ifndef FSJOULE_EMULATED_PTY_H
#define FSJOULE_EMULATED_PTY_H

#include <stdbool.h>

struct pty {
	int master; /**< non-blocking */
	char slave_path[64];
	const char *link_path;
};

/** Open a pseudo terminal. `link_path` must outlive it.
 *
 * @retval true   done; no link yet
 * @retval false  errno says why not
 */
bool pty_open(struct pty *pty, const char *link_path);

/** Make the link, in place of one that may be there.
 *
 * @retval false  errno says why not
 */
bool pty_link(const struct pty *pty);

/** Open the slave, for this program alone.
 *
 * @retval fd  to be closed by the caller; -1 with errno on failure
 */
int pty_open_slave(const struct pty *pty);

/** Close it, and remove the link if it is still this one's. */
void pty_close(struct pty *pty);

#endif
