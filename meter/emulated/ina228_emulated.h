/** @file
 * An INA228 that converts what a source says of the supply, in time, as its data sheet has it (TI SBOSA20). Ideal, but for
 * its steps and ends, unless it is told otherwise.
 */
#ifndef FSJOULE_EMULATED_INA228_EMULATED_H
#define FSJOULE_EMULATED_INA228_EMULATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ina219_emulated.h"

struct ina228_emulated {
	struct ina219_source source;
	struct ina219_errors errors;
	uint64_t random; /**< state of the noise */
	double shunt_ohm;
	int64_t now_ns;
	int64_t phase_began_ns; /**< of the conversion under way */
	bool converts_bus; /**< it is the bus voltage's */
	int64_t turns; /**< of shunt and bus that have ended, of those of a mean */
	double amperes_sum; /**< of these */
	double volts_sum;
	int32_t shunt; /**< 20 bits */
	int32_t bus;
	uint16_t config;
	uint16_t adc_config;
	uint16_t shunt_cal;
	uint16_t device_id;
	bool latched; /**< ALATCH */
	bool conversion_ready;
};

/** The chip as its supply comes up at `now_ns`. */
void ina228_emulated_init(struct ina228_emulated *chip, uint32_t shunt_uohm, struct ina219_source source,
			  int64_t now_ns);

/** Make the chip err, from now on. */
void ina228_emulated_err(struct ina228_emulated *chip, const struct ina219_errors *errors);

/** Its supply fails for a moment: reset values. */
void ina228_emulated_reset(struct ina228_emulated *chip);

/** Let time pass. */
void ina228_emulated_advance(struct ina228_emulated *chip, int64_t now_ns);

/** The chip's side of the core's I2C interface.
 *
 * @retval 0   done
 * @retval -1  there is no such register, or it has another size
 */
int ina228_emulated_write(void *chip, uint8_t reg, uint16_t value);
/** @copydoc ina228_emulated_write */
int ina228_emulated_read(void *chip, uint8_t reg, uint16_t *value);
/** @copydoc ina228_emulated_write */
int ina228_emulated_read_bytes(void *chip, uint8_t reg, uint8_t *bytes, size_t size);

#endif
