/** @file
 * The INA219 as the meter uses it: set up, read at every tick, and brought back when it failed.
 */
#ifndef FSJOULE_CHIP_H
#define FSJOULE_CHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "fsjoule/ina219.h"

struct fsj_chip {
	struct fsj_i2c i2c;
	struct fsj_ina219_setup setup;
	bool started; /**< as far as is known: it may have lost its supply */
	uint32_t faults; /**< transfers that failed; wraps */
};

/** Reset the chip and let it convert as `setup` says.
 *
 * @retval FSJ_I2C_FAULT  it does not answer; every fsj_chip_read() will try again
 */
enum fsj_status fsj_chip_start(struct fsj_chip *chip, const struct fsj_ina219_setup *setup);

/** Read the newest conversion. After a failed transfer the bus is recovered and the chip started anew, so that the next
 * tick has one.
 *
 * @param flags   FSJ_FLAG_... of a tick that is missed are added
 * @retval FSJ_OK `reading` is filled
 */
enum fsj_status fsj_chip_read(struct fsj_chip *chip, struct fsj_ina219_reading *reading, uint8_t *flags);

/** Start the chip anew if it is not as it was set up. FSJ_FLAG_... are added to `flags` if so. */
void fsj_chip_check(struct fsj_chip *chip, uint8_t *flags);

/** Test the registers: write and read one, compare CONFIG, and forget the newest conversion.
 *
 * @return FSJ_FAIL_... of the chip, or 0
 */
uint8_t fsj_chip_test(struct fsj_chip *chip);

#endif
