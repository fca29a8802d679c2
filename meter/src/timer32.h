/** @file
 * Times and ticks from a counter of 32 bits that runs freely: no hardware in here.
 */
#ifndef FSJOULE_APP_TIMER32_H
#define FSJOULE_APP_TIMER32_H

#include <stdint.h>

/** The time when the counter reads `counter`, if `before` is a time less than 2^32 ago. */
static inline uint64_t timer32_after(uint64_t before, uint32_t counter)
{
	return before + (uint32_t)(counter - (uint32_t)before);
}

/** The time when the counter read `captured`, if that is less than 2^32 before `now`. */
static inline uint64_t timer32_before(uint64_t now, uint32_t captured)
{
	return now - (uint32_t)((uint32_t)now - captured);
}

/** A compare channel. */
struct timer32_channel {
	uint32_t (*counter)(void);
	/** Match at this value next, and forget a match that was there before. */
	void (*set_compare)(uint32_t value);
};

struct timer32_ticks {
	uint32_t period;
	uint32_t compare; /**< where the next tick ends */
	uint32_t elapsed; /**< ticks that nobody has taken yet */
};

/** The first tick begins where the counter reads `begin`, and ends one period later. */
void timer32_begin(struct timer32_ticks *ticks, const struct timer32_channel *channel, uint32_t begin, uint32_t period);

/** The channel has matched: count this tick, and all that have ended since. None is counted twice, whenever this comes. */
void timer32_matched(struct timer32_ticks *ticks, const struct timer32_channel *channel);

#endif
