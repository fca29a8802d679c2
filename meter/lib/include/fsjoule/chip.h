/** @file
 * The current monitor as the meter uses it, whichever it is: set up, read at every tick, and brought back when it failed.
 */
#ifndef FSJOULE_CHIP_H
#define FSJOULE_CHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "fsjoule/ina219.h"
#include "fsjoule/settings.h"

/** How an info frame names the chip. */
enum fsj_chip_number {
	FSJ_CHIP_INA219 = 0,
	FSJ_CHIP_INA228 = 1,
};

/** A kind of chip. Its readings are in units of its own, which the setup's scale tells. */
struct fsj_chip_kind {
	uint8_t number; /**< enum fsj_chip_number */
	bool wide; /**< readings have up to 20 bits */
	/** Continuous conversion with the finest resolution that gives each tick a new one.
	 *
	 * @retval false  no conversion is fast enough for this rate
	 */
	bool (*choose)(const struct fsj_settings *settings, struct fsj_ina219_setup *setup);
	/** Start converting, from any state. */
	enum fsj_status (*start)(const struct fsj_i2c *i2c, const struct fsj_ina219_setup *setup);
	/** As fsj_ina219_read(). */
	enum fsj_status (*read)(const struct fsj_i2c *i2c, const struct fsj_ina219_setup *setup,
				struct fsj_ina219_reading *reading);
	/** Look whether it is still as it was set up. */
	enum fsj_status (*look)(const struct fsj_i2c *i2c, const struct fsj_ina219_setup *setup, bool *as_set_up);
	/** Write and read a register, and forget the newest conversion. FSJ_FAIL_... are added to `failures`. */
	enum fsj_status (*test)(const struct fsj_i2c *i2c, uint8_t *failures);
};

extern const struct fsj_chip_kind fsj_chip_ina219;
extern const struct fsj_chip_kind fsj_chip_ina228;

struct fsj_chip {
	const struct fsj_chip_kind *kind;
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

/** Test the registers: write and read one, compare the configuration, and forget the newest conversion.
 *
 * @return FSJ_FAIL_... of the chip, or 0
 */
uint8_t fsj_chip_test(struct fsj_chip *chip);

/** The test of a register of 16 bits: it must keep these values, and has the last one afterwards.
 *
 * @param failures  FSJ_FAIL_REGISTER is added
 */
enum fsj_status fsj_chip_test_register(const struct fsj_i2c *i2c, uint8_t reg, const uint16_t *values, size_t count,
				       uint8_t *failures);

#endif
