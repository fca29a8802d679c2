#include <stddef.h>

#include "fsjoule/settings.h"
#include "record.h"

/* As erased flash and an empty file read. */
static bool is_blank(const uint8_t bytes[FSJ_RECORD_BYTES])
{
	for (size_t i = 1; i < FSJ_RECORD_BYTES; i++) {
		if (bytes[i] != bytes[0]) {
			return false;
		}
	}
	return bytes[0] == 0xFF || bytes[0] == 0;
}

/* Generations wrap; two records are never further apart than one. */
static bool is_newer(uint32_t generation, uint32_t than)
{
	return than == 0 || (generation != than && generation - than < 0x80000000u);
}

static void look_at_slot(struct fsj_store *store, unsigned int slot)
{
	uint8_t bytes[FSJ_RECORD_BYTES];
	struct fsj_record record;

	if (store->storage.read(store->storage.context, slot, bytes, sizeof(bytes)) != 0) {
		store->damaged = true;
	} else if (fsj_record_decode(bytes, &record)) {
		if (is_newer(record.generation, store->generation)) {
			store->generation = record.generation;
			store->slot = slot;
			store->saved = record.settings;
		}
	} else if (!is_blank(bytes)) {
		store->damaged = true;
	}
}

static void look_at_slots(struct fsj_store *store)
{
	store->generation = 0;
	store->damaged = false;
	for (unsigned int slot = 0; slot < FSJ_RECORD_SLOTS && store->storage.read != NULL; slot++) {
		look_at_slot(store, slot);
	}
}

void fsj_store_load(struct fsj_store *store, const struct fsj_storage *storage, const struct fsj_settings *defaults)
{
	store->storage = *storage;
	store->saved = *defaults;
	store->slot = 0;
	look_at_slots(store);
}

bool fsj_store_save(struct fsj_store *store, const struct fsj_settings *settings)
{
	const uint32_t next = store->generation + 1u;
	const struct fsj_record record = {.generation = next == 0 ? 1u : next, .settings = *settings};
	const unsigned int slot = store->generation == 0 ? 0u : 1u - store->slot;
	uint8_t bytes[FSJ_RECORD_BYTES];
	bool written;

	if (store->storage.read == NULL || store->storage.write == NULL) {
		return false;
	}
	fsj_record_encode(&record, bytes);
	written = store->storage.write(store->storage.context, slot, bytes, sizeof(bytes)) == 0;
	look_at_slots(store);
	return written && store->generation == record.generation;
}

bool fsj_store_works(const struct fsj_store *store)
{
	uint8_t bytes[FSJ_RECORD_BYTES];

	if (store->storage.read == NULL || store->storage.write == NULL) {
		return false;
	}
	for (unsigned int slot = 0; slot < FSJ_RECORD_SLOTS; slot++) {
		if (store->storage.read(store->storage.context, slot, bytes, sizeof(bytes)) != 0) {
			return false;
		}
	}
	return true;
}
