/** @file
 * A bare Cortex-M4 in QEMU: how many instructions something takes, and a way to say it.
 */
#ifndef FSJOULE_CYCLES_BOARD_H
#define FSJOULE_CYCLES_BOARD_H

#include <stdint.h>

/** Instructions from one call to the other, with -icount shift=10; at most 600,000. */
void count_begin(void);
/** @copydoc count_begin */
uint32_t count_end(void);

/** Say "name value" and a line's end on the host's terminal. */
void say(const char *name, uint32_t value);

#endif
