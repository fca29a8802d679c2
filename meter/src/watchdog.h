/** @file
 * Resets the meter when the sampling thread stands still.
 */
#ifndef FSJOULE_APP_WATCHDOG_H
#define FSJOULE_APP_WATCHDOG_H

#if defined(CONFIG_WATCHDOG)

/** Start it; there is no way back.
 *
 * @return 0, or a negative errno
 */
int watchdog_start(void);

/** Put it off. Only the sampling thread does. */
void watchdog_feed(void);

#else

/* A host has none: its processes are stopped and go on. */
static inline int watchdog_start(void)
{
	return 0;
}

static inline void watchdog_feed(void)
{
}

#endif

#endif
