/* What the probe asks of the part of it that fetches typed lines from the board's mailbox. */
#ifndef GUEST_MAILBOX_H
#define GUEST_MAILBOX_H

#include <stdint.h>
#include <sys/types.h>

#define MAILBOX_BYTES (1 << 20)

/* Read from the mailbox behind the socket `path`, as from a disk. Returns like pread, which may take for ever. */
ssize_t mailbox_read(const char *path, void *buffer, size_t size, off64_t offset);

#endif
