/** @file
 * The simulated time follows the host's clock and never runs ahead of it.
 */
#ifndef FSJOULE_APP_PACE_H
#define FSJOULE_APP_PACE_H

/** Keep step from now on. */
void pace_start(void);

#endif
