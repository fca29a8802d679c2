/** @file
 * Which meter this is, and why it starts.
 */
#ifndef FSJOULE_APP_IDENTITY_H
#define FSJOULE_APP_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "fsjoule/meter.h"

/** True if the INA219 is emulated. */
bool identity_simulated(void);

/** How it samples until others are saved. */
struct fsj_settings identity_settings(void);

/** NUL-terminated; of the chip, and the same at every start. */
const char *identity_serial_number(void);

/** To be asked once: what is known of it is cleared, so that the next start has its own. */
enum fsj_reset_cause identity_reset_cause(void);

/** Another number at every start. To be asked once. */
uint32_t identity_first_stream_id(void);

#endif
