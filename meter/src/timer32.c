#include "timer32.h"

void timer32_begin(struct timer32_ticks *ticks, const struct timer32_channel *channel, uint32_t begin, uint32_t period)
{
	ticks->period = period;
	ticks->compare = begin + period;
	ticks->elapsed = 0;
	channel->set_compare(ticks->compare);
}

void timer32_matched(struct timer32_ticks *ticks, const struct timer32_channel *channel)
{
	/* A value that the counter has gone past already would match only after a wrap. One that it reaches between these
	 * two lines matches as well: it is counted here, and forgotten when the next value is set.
	 */
	do {
		ticks->elapsed++;
		ticks->compare += ticks->period;
		channel->set_compare(ticks->compare);
	} while ((int32_t)(channel->counter() - ticks->compare) >= 0);
}
