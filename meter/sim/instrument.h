/** @file
 * The meter's core around an emulated chip, in whatever time its user lets pass.
 */
#ifndef FSJOULE_SIM_INSTRUMENT_H
#define FSJOULE_SIM_INSTRUMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "fsjoule/meter.h"
#include "ina219_emulated.h"
#include "ina228_emulated.h"
#include "options.h"

struct instrument {
	bool is_ina228;
	union {
		struct ina219_emulated ina219;
		struct ina228_emulated ina228;
	};
	struct fsj_meter meter;
	int64_t start_ns; /**< at the meter's time 0 */
	int64_t tick_ns; /**< begin of the tick under way */
	uint32_t lost_ticks; /**< before it, of which nothing is known */
	uint32_t streams;
	bool pin_high;
};

/** Switch it on at `start_ns`. `options` must outlive it.
 *
 * @param storage  NULL: none
 */
void instrument_start(struct instrument *instrument, const struct options *options, struct ina219_source source,
		      const struct fsj_output *output, const struct fsj_storage *storage, int64_t start_ns);

/** End of the tick under way. */
int64_t instrument_tick_end_ns(const struct instrument *instrument);

/** Let the tick under way end. */
void instrument_tick(struct instrument *instrument);

/** Leave out all ticks that begin before `until_ns`: they are missed. */
void instrument_lose(struct instrument *instrument, int64_t until_ns);

/** Take a byte of the mark line, within the tick under way. */
void instrument_mark_byte(struct instrument *instrument, uint8_t byte, int64_t time_ns);

/** Take a level of the mark pin, within the tick under way: '0' or '1'. Another one than before is an edge. */
void instrument_pin_level(struct instrument *instrument, uint8_t level, int64_t time_ns);

/** Take a byte of the host, within the tick under way; it may begin another tick. */
void instrument_command_byte(struct instrument *instrument, uint8_t byte, int64_t time_ns);

#endif
