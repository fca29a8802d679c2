/** @file
 * An INA219 that converts what a source says of the supply. Register by register, and in time: a register changes when
 * a conversion ends, as in the chip. Source: TI SBOS448G, sections 8.3 (ADC) and 8.6 (registers).
 *
 * Ideal, and transfers take no time, unless it is told otherwise.
 */
#ifndef FSJOULE_EMULATED_INA219_EMULATED_H
#define FSJOULE_EMULATED_INA219_EMULATED_H

#include <stdbool.h>
#include <stdint.h>

#include "fsjoule/ina219.h"

/** The supply: mean volts on the bus and mean amperes through the shunt from `from_ns` to `to_ns`. Called with
 * intervals in the order of time.
 */
struct ina219_source {
	void (*mean)(void *context, int64_t from_ns, int64_t to_ns, double *volts, double *amperes);
	void *context;
};

/** How far a chip is from an ideal one. All zero: not at all. */
struct ina219_errors {
	double offset_uv; /**< what the shunt reads at 0 A */
	double gain_ppm; /**< the shunt reads (1 + gain) times its voltage */
	double bus_gain_ppm; /**< the same of the bus */
	double noise_uv; /**< standard deviation of one conversion of the shunt; an INA219's has 12 bits or less */
	uint64_t seed; /**< of the noise */
	int32_t slow_ppm; /**< conversions take longer than is typical; data sheets allow 102000, and an INA228 10000 */
	int64_t transfer_ns; /**< that a register's transfer takes; time goes on by it. Of an INA219 alone */
};

enum ina219_phase { INA219_IDLE, INA219_SHUNT_CONVERSION, INA219_BUS_CONVERSION };

struct ina219_emulated {
	struct ina219_source source;
	struct ina219_errors errors;
	uint64_t random; /**< state of the noise */
	double shunt_ohm;
	int64_t now_ns;
	enum ina219_phase phase;
	int64_t phase_began_ns;
	uint16_t config;
	uint16_t calibration;
	int16_t shunt;
	uint16_t bus;
	uint16_t power;
	int16_t current;
	bool conversion_ready;
	bool overflow;
};

/** The chip as its supply comes up at `now_ns`: reset values, converting. */
void ina219_emulated_init(struct ina219_emulated *chip, uint32_t shunt_uohm, struct ina219_source source,
			  int64_t now_ns);

/** Make the chip err, from now on. */
void ina219_emulated_err(struct ina219_emulated *chip, const struct ina219_errors *errors);

/** Let time pass: every conversion that ends up to `now_ns` is done. A time that has passed changes nothing. */
void ina219_emulated_advance(struct ina219_emulated *chip, int64_t now_ns);

/** The chip's side of the core's I2C interface.
 *
 * @retval 0   done
 * @retval -1  there is no such register, or it cannot be written
 */
int ina219_emulated_write(void *chip, uint8_t reg, uint16_t value);
/** @copydoc ina219_emulated_write */
int ina219_emulated_read(void *chip, uint8_t reg, uint16_t *value);

#endif
