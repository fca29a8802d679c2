/** @file
 * What a meter keeps over a loss of power: how it samples, and its calibration.
 *
 * Two records, of which the newer whole one counts. Saving writes the other one, so that a write that is torn by a loss
 * of power leaves the settings of before.
 */
#ifndef FSJOULE_SETTINGS_H
#define FSJOULE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsjoule/ina219.h"

/** Limits of the settings. */
#define FSJ_RATE_MIN_HZ 100u
#define FSJ_RATE_MAX_HZ 2000u
#define FSJ_SHUNT_MIN_UOHM 1000u
#define FSJ_SHUNT_MAX_UOHM 1000000u
#define FSJ_OFFSET_MAX_NV 400000
#define FSJ_GAIN_MAX_PPM 50000

/** What the chip and the resistor do to a current and a voltage; docs/meter-protocol.md gives the formula. */
struct fsj_calibration {
	int32_t shunt_offset_nv;
	int32_t current_gain_ppm;
	int32_t bus_gain_ppm;
	uint32_t gain_uncertainty_ppm; /**< of the power of the reference that the gains came from, k=1 */
	uint32_t zero_date; /**< seconds since 1970 UTC; 0: never */
	uint32_t gain_date;
};

struct fsj_settings {
	uint32_t rate_hz;
	uint32_t shunt_uohm;
	enum fsj_ina219_range range;
	bool bus_32v; /**< the range of the bus voltage is 32 V instead of 16 V */
	struct fsj_calibration calibration;
};

/** A meter's settings until others are saved. docs/adr/0026-625-samples-a-second.md says why it has this rate. */
#define FSJ_SETTINGS_DEFAULT {.rate_hz = 625, .shunt_uohm = 100000, .range = FSJ_INA219_RANGE_80MV}

/** Bytes of a record as it is stored. */
#define FSJ_RECORD_BYTES 64u
#define FSJ_RECORD_SLOTS 2u

/** Two places that survive a loss of power. Both functions return 0 on success; both are NULL where there is no storage.
 * A place that was never written reads as bytes that are all 0xFF, or all 0. `write` may take seconds: no tick is taken
 * meanwhile.
 */
struct fsj_storage {
	int (*read)(void *context, unsigned int slot, uint8_t *bytes, size_t size);
	int (*write)(void *context, unsigned int slot, const uint8_t *bytes, size_t size);
	void *context;
};

/** The storage, and what is known to be in it. */
struct fsj_store {
	struct fsj_storage storage;
	struct fsj_settings saved; /**< what the next power-up will find: the newest record, or the defaults */
	uint32_t generation; /**< of that record; 0: there is none */
	unsigned int slot; /**< of that record */
	bool damaged; /**< a slot holds neither a record nor nothing */
};

/** True if a meter can run with these. */
bool fsj_settings_valid(const struct fsj_settings *settings);

/** True if both say the same. */
bool fsj_settings_equal(const struct fsj_settings *a, const struct fsj_settings *b);

/** Find the newest whole record: afterwards `store->saved` is its content, or `defaults` if there is none. */
void fsj_store_load(struct fsj_store *store, const struct fsj_storage *storage, const struct fsj_settings *defaults);

/** Write a new record in place of the older one, and read it back.
 *
 * @retval false  there is no storage, or it does not keep what is written
 */
bool fsj_store_save(struct fsj_store *store, const struct fsj_settings *settings);

/** True if there is a storage, and both its slots can be read. */
bool fsj_store_works(const struct fsj_store *store);

#endif
