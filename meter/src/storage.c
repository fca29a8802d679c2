#include "storage.h"

#include <errno.h>
#include <string.h>
#include <zephyr/kernel.h>
#include <zephyr/storage/flash_map.h>

static const uint8_t partitions[FSJ_RECORD_SLOTS] = {FIXED_PARTITION_ID(storage0), FIXED_PARTITION_ID(storage1)};

static bool is_blank(const uint8_t *bytes, uint8_t erased)
{
	for (size_t i = 0; i < FSJ_RECORD_BYTES; i++) {
		if (bytes[i] != erased) {
			return false;
		}
	}
	return true;
}

/* Places in use, up to the last that is not blank: it may be torn, and so may be an erasure that left old ones behind.
 *
 * @return their number, or a negative errno
 */
static int count_places(const struct flash_area *area)
{
	uint8_t bytes[FSJ_RECORD_BYTES];
	int used;

	for (used = (int)(area->fa_size / FSJ_RECORD_BYTES); used > 0; used--) {
		const int error = flash_area_read(area, (used - 1) * (off_t)FSJ_RECORD_BYTES, bytes, sizeof(bytes));

		if (error != 0) {
			return error;
		}
		if (!is_blank(bytes, flash_area_erased_val(area))) {
			break;
		}
	}
	return used;
}

static int read_last(const struct flash_area *area, uint8_t *bytes)
{
	const int used = count_places(area);

	if (used < 0) {
		return used;
	}
	if (used == 0) {
		memset(bytes, flash_area_erased_val(area), FSJ_RECORD_BYTES);
		return 0;
	}
	return flash_area_read(area, (used - 1) * (off_t)FSJ_RECORD_BYTES, bytes, FSJ_RECORD_BYTES);
}

static int write_next(const struct flash_area *area, const uint8_t *bytes)
{
	int used = count_places(area);

	if (used < 0) {
		return used;
	}
	if ((used + 1) * FSJ_RECORD_BYTES > area->fa_size) {
		const int error = flash_area_erase(area, 0, area->fa_size);

		if (error != 0) {
			return error;
		}
		used = 0;
	}
	return flash_area_write(area, used * (off_t)FSJ_RECORD_BYTES, bytes, FSJ_RECORD_BYTES);
}

static int read_slot(void *context, unsigned int slot, uint8_t *bytes, size_t size)
{
	const struct flash_area *area;
	int error;

	ARG_UNUSED(context);
	if (slot >= FSJ_RECORD_SLOTS || size != FSJ_RECORD_BYTES) {
		return -EINVAL;
	}
	error = flash_area_open(partitions[slot], &area);
	if (error == 0) {
		error = read_last(area, bytes);
		flash_area_close(area);
	}
	return error;
}

static int write_slot(void *context, unsigned int slot, const uint8_t *bytes, size_t size)
{
	const struct flash_area *area;
	int error;

	ARG_UNUSED(context);
	if (slot >= FSJ_RECORD_SLOTS || size != FSJ_RECORD_BYTES) {
		return -EINVAL;
	}
	error = flash_area_open(partitions[slot], &area);
	if (error == 0) {
		error = write_next(area, bytes);
		flash_area_close(area);
	}
	return error;
}

struct fsj_storage storage_get(void)
{
	return (struct fsj_storage){.read = read_slot, .write = write_slot};
}
