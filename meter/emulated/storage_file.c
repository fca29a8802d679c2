#include "storage_file.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool storage_file_open(struct storage_file *file, const char *path)
{
	file->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	return file->fd >= 0;
}

void storage_file_close(struct storage_file *file)
{
	close(file->fd);
}

static off_t place(unsigned int slot)
{
	return (off_t)slot * STORAGE_FILE_SLOT_BYTES;
}

int storage_file_read(void *context, unsigned int slot, uint8_t *bytes, size_t size)
{
	const struct storage_file *file = context;

	/* As erased flash reads. */
	memset(bytes, 0xFF, size);
	return pread(file->fd, bytes, size, place(slot)) < 0 ? -1 : 0;
}

int storage_file_write(void *context, unsigned int slot, const uint8_t *bytes, size_t size)
{
	const struct storage_file *file = context;

	if (pwrite(file->fd, bytes, size, place(slot)) != (ssize_t)size) {
		return -1;
	}
	return fdatasync(file->fd);
}
