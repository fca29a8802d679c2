/** @file
 * A meter that is fed from a file, as fast as it can.
 */
#ifndef FSJOULE_SIM_REPLAY_H
#define FSJOULE_SIM_REPLAY_H

#include <stdbool.h>

#include "options.h"

/** Write to stdout what a meter sends that is on the line from the time of the file's first record to that of its last.
 *
 * @retval false  stderr says why it was not done, or not to the end
 */
bool replay_run(const struct options *options);

#endif
