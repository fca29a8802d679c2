/** @file
 * Settings as they are stored: a record of FSJ_RECORD_BYTES.
 */
#ifndef FSJOULE_SRC_RECORD_H
#define FSJOULE_SRC_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "fsjoule/settings.h"

struct fsj_record {
	uint32_t generation; /**< one more than in the record before; never 0 */
	struct fsj_settings settings;
};

void fsj_record_encode(const struct fsj_record *record, uint8_t bytes[FSJ_RECORD_BYTES]);

/** @retval false  the bytes are no whole record of settings that a meter can run with */
bool fsj_record_decode(const uint8_t bytes[FSJ_RECORD_BYTES], struct fsj_record *record);

#endif
