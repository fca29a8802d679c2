/** @file
 * The host's side of the program: what main() needs of it.
 */
#ifndef FSJOULE_APP_HOST_PROGRAM_H
#define FSJOULE_APP_HOST_PROGRAM_H

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "options.h"

#define PROGRAM "fsjoule-meter-zephyr"

/** Open the terminals and let the chip's supply come up: the meter's time begins. `options` must outlive it.
 *
 * @param wait_mask  signals that are blocked while the program waits for the host's clock
 * @retval false  stderr says why not
 */
bool host_open(const struct options *options, const sigset_t *wait_mask);

/** Remove the links, release everything. */
void host_close(void);

/** Signal handler: the INA219 holds the bus until somebody recovers it. */
void host_hold_bus(int signal);

/** Signal handler: the INA219 is unplugged, or plugged in again. */
void host_plug(int signal);

#endif
