/** @file
 * The INA219 current monitor: its registers, and one reading of shunt and bus voltage.
 *
 * Source: Texas Instruments, INA219 data sheet SBOS448G, section 8.6 (register maps).
 * Power is not taken from the chip: its 2 mW step at 100 uA would be 0.16 % of a small board's power. It is the
 * product of the raw readings, whose unit is 40 nW * Ohm (0.4 uW at 0.1 Ohm).
 */
#ifndef FSJOULE_INA219_H
#define FSJOULE_INA219_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsjoule/status.h"

/** Registers, 16 bits each, sent most significant byte first. */
enum fsj_ina219_register {
	FSJ_INA219_CONFIG = 0x00,
	FSJ_INA219_SHUNT = 0x01, /**< signed, 10 uV a unit at every gain */
	FSJ_INA219_BUS = 0x02, /**< bits 15..3: 4 mV a unit; bit 1: CNVR; bit 0: OVF */
	FSJ_INA219_POWER = 0x03, /**< reading it clears CNVR */
	FSJ_INA219_CURRENT = 0x04,
	FSJ_INA219_CALIBRATION = 0x05,
};

/** CONFIG: reset value, and the fields that are not shift and mask of one small number. */
#define FSJ_INA219_CONFIG_RESET_VALUE 0x399Fu
#define FSJ_INA219_CONFIG_RST 0x8000u
#define FSJ_INA219_CONFIG_BRNG_32V 0x2000u
#define FSJ_INA219_CONFIG_PG_SHIFT 11
#define FSJ_INA219_CONFIG_BADC_SHIFT 7
#define FSJ_INA219_CONFIG_SADC_SHIFT 3
#define FSJ_INA219_MODE_CONTINUOUS_BOTH 0x7u

/** Settings of an ADC, the BADC and SADC fields of CONFIG. */
enum fsj_ina219_adc {
	FSJ_INA219_ADC_10_BIT = 0x1,
	FSJ_INA219_ADC_11_BIT = 0x2,
	FSJ_INA219_ADC_12_BIT = 0x3,
	FSJ_INA219_ADC_2_SAMPLES = 0x9, /**< mean of two conversions with 12 bits */
	FSJ_INA219_ADC_4_SAMPLES = 0xA,
	FSJ_INA219_ADC_8_SAMPLES = 0xB,
};

#define FSJ_INA219_BUS_CNVR 0x0002u
#define FSJ_INA219_BUS_OVF 0x0001u
#define FSJ_INA219_BUS_VALUE_SHIFT 3

/** Full scale of the shunt voltage, as the PG field of CONFIG. */
enum fsj_ina219_range {
	FSJ_INA219_RANGE_40MV = 0,
	FSJ_INA219_RANGE_80MV = 1,
	FSJ_INA219_RANGE_160MV = 2,
	FSJ_INA219_RANGE_320MV = 3,
};

/** The way to one chip. The functions return 0 on success and anything else for what failed. */
struct fsj_i2c {
	int (*write_register)(void *context, uint8_t reg, uint16_t value);
	int (*read_register)(void *context, uint8_t reg, uint16_t *value);
	/** Free a bus that is held: nine clocks and a STOP. Called after a failed transfer, before the chip is started
	 * anew. NULL where there is nothing to do.
	 */
	int (*recover)(void *context);
	/** The bytes of a register that is longer than 16 bits, the most significant one first. NULL for a chip without. */
	int (*read_bytes)(void *context, uint8_t reg, uint8_t *bytes, size_t size);
	void *context;
};

/** What a chip's readings mean. */
struct fsj_scale {
	uint32_t shunt_unit_pv; /**< picovolts of one unit */
	uint32_t bus_unit_pv;
	uint16_t shunt_mv; /**< full scale of the shunt voltage */
	uint16_t bus_v; /**< and of the bus voltage */
};

#define FSJ_INA219_SHUNT_UNIT_PV 10000000u
#define FSJ_INA219_BUS_UNIT_PV 4000000000u

/** How the chip converts, and how it is read. */
struct fsj_ina219_setup {
	uint16_t config; /**< the CONFIG register; of an INA228, ADC_CONFIG */
	uint8_t looks; /**< reads of BUS that wait for a conversion */
	struct fsj_scale scale;
};

/** One conversion, in the chip's units. */
struct fsj_ina219_reading {
	int32_t shunt;
	uint32_t bus;
	bool overflow; /**< OVF: the chip's own arithmetic overflowed; shunt and bus are still good */
	bool clipped; /**< the shunt or the bus voltage is at the end of its range */
};

/** Full scale of a range in mV. */
uint16_t fsj_ina219_range_mv(enum fsj_ina219_range range);

/** Continuous conversion, with the finest resolution whose longest conversion takes no more than 95 %
 * of a tick: a new one is there at every tick, and none is read twice.
 *
 * @retval true   `setup` is filled
 * @retval false  no conversion is fast enough for this rate
 */
bool fsj_ina219_choose(uint32_t rate_hz, enum fsj_ina219_range range, bool bus_32v, struct fsj_ina219_setup *setup);

/** Reset the chip and start continuous conversion.
 *
 * @retval FSJ_OK         done
 * @retval FSJ_I2C_FAULT  a transfer failed
 */
enum fsj_status fsj_ina219_start(const struct fsj_i2c *i2c, const struct fsj_ina219_setup *setup);

/** Read the newest conversion, each conversion at most once.
 *
 * @retval FSJ_OK         `reading` is filled
 * @retval FSJ_NOT_READY  no conversion has ended since the last reading; `reading` is untouched
 * @retval FSJ_I2C_FAULT  a transfer failed; `reading` is untouched
 */
enum fsj_status fsj_ina219_read(const struct fsj_i2c *i2c, const struct fsj_ina219_setup *setup,
				struct fsj_ina219_reading *reading);

#endif
