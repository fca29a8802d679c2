/** @file
 * The settings' two slots, each in a flash partition of its own.
 *
 * A slot's records stand one behind the other in its partition, and the last one counts: the partition is erased only
 * when it is full, for erasing a sector of an STM32F4 stops the processor for seconds and wears it out.
 */
#ifndef FSJOULE_APP_STORAGE_H
#define FSJOULE_APP_STORAGE_H

#include "fsjoule/settings.h"

/** The storage for the core. */
struct fsj_storage storage_get(void);

#endif
