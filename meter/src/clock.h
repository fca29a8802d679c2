/** @file
 * The meter's clock: microseconds since the start, and the ticks at whose ends samples are taken. Never wraps.
 */
#ifndef FSJOULE_APP_CLOCK_H
#define FSJOULE_APP_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/** Let it run.
 *
 * @return 0, or a negative errno
 */
int clock_start(void);

/** The present time, to a microsecond. From any context. */
uint64_t clock_us(void);

/** Let ticks begin now, each `period_us` long, without drift. Those before are forgotten.
 *
 * @return when the first one begins
 */
uint64_t clock_begin_ticks(uint32_t period_us);

/** Wait until a tick has ended. For one thread.
 *
 * @return how many have ended since the last call, at least 1
 */
uint32_t clock_wait_tick(void);

/** Told of each edge of the mark pin, from an interrupt.
 *
 * @param lost  edges just before it that came too fast to be told
 */
typedef void clock_edge_callback(uint64_t time_us, bool rising, uint32_t lost);

/** Watch the mark pin. Without one nothing is ever told.
 *
 * @return 0, or a negative errno
 */
int clock_watch_edges(clock_edge_callback *callback);

#endif
