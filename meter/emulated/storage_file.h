/** @file
 * A file that stands for the meter's flash.
 */
#ifndef FSJOULE_EMULATED_STORAGE_FILE_H
#define FSJOULE_EMULATED_STORAGE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The slots are as far apart as the largest block that a disk writes at once: what tears one leaves the other whole. */
#define STORAGE_FILE_SLOT_BYTES 4096

struct storage_file {
	int fd;
};

/** Open the file, or make it, empty.
 *
 * @retval false  errno says why not
 */
bool storage_file_open(struct storage_file *file, const char *path);

void storage_file_close(struct storage_file *file);

/** Read a slot; what was never written reads as 0xFF. The signature is that of struct fsj_storage.
 *
 * @retval 0   done
 * @retval -1  errno says why not
 */
int storage_file_read(void *file, unsigned int slot, uint8_t *bytes, size_t size);
/** Write a slot; returns when it is on the disk, as storage_file_read() does. */
int storage_file_write(void *file, unsigned int slot, const uint8_t *bytes, size_t size);

#endif
