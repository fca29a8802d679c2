#include "pty.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <termios.h>
#include <unistd.h>

int pty_open_slave(const struct pty *pty)
{
	return open(pty->slave_path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
}

/* The setting stays with the pseudo terminal, whoever opens and closes the slave. */
static bool make_raw(const struct pty *pty)
{
	struct termios settings;
	const int slave = pty_open_slave(pty);
	bool done;

	if (slave < 0) {
		return false;
	}
	done = tcgetattr(slave, &settings) == 0;
	if (done) {
		cfmakeraw(&settings);
		done = tcsetattr(slave, TCSANOW, &settings) == 0;
	}
	close(slave);
	return done;
}

bool pty_open(struct pty *pty, const char *link_path)
{
	pty->link_path = link_path;
	pty->master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (pty->master < 0) {
		return false;
	}
	if (grantpt(pty->master) == 0 && unlockpt(pty->master) == 0 &&
	    ptsname_r(pty->master, pty->slave_path, sizeof(pty->slave_path)) == 0 && make_raw(pty)) {
		return true;
	}
	close(pty->master);
	return false;
}

bool pty_link(const struct pty *pty)
{
	char beside[4096];

	/* Renamed into place, so that the path never is without a terminal while one replaces another. */
	if (snprintf(beside, sizeof(beside), "%s.%ld", pty->link_path, (long)getpid()) >= (int)sizeof(beside)) {
		return false;
	}
	unlink(beside);
	if (symlink(pty->slave_path, beside) != 0) {
		return false;
	}
	if (rename(beside, pty->link_path) != 0) {
		unlink(beside);
		return false;
	}
	return true;
}

void pty_close(struct pty *pty)
{
	char target[sizeof(pty->slave_path)];
	const ssize_t size = readlink(pty->link_path, target, sizeof(target));

	if (size > 0 && (size_t)size == strlen(pty->slave_path) && memcmp(target, pty->slave_path, (size_t)size) == 0) {
		unlink(pty->link_path);
	}
	close(pty->master);
}
