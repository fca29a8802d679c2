/** @file
 * The LED that shows whether samples are taken: it blinks while the chip gives them, and is dark otherwise.
 */
#ifndef FSJOULE_APP_LED_H
#define FSJOULE_APP_LED_H

#include <stdbool.h>
#include <stdint.h>

/** Make it dark. A board without one has nothing to show.
 *
 * @return 0, or a negative errno
 */
int led_start(void);

/** Show a tick that ended at `end_us`, and whether it had a sample. */
void led_show(bool sampled, uint64_t end_us);

#endif
