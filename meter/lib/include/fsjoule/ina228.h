/** @file
 * The INA228 power monitor: 20 bits, and 85 V on the bus.
 *
 * Source: Texas Instruments, INA228 data sheet SBOSA20, section 7.6 (registers) and electrical characteristics.
 */
#ifndef FSJOULE_INA228_H
#define FSJOULE_INA228_H

/** Registers, sent most significant byte first. */
enum fsj_ina228_register {
	FSJ_INA228_CONFIG = 0x00, /**< 16 bits */
	FSJ_INA228_ADC_CONFIG = 0x01, /**< 16 bits */
	FSJ_INA228_SHUNT_CAL = 0x02, /**< 16 bits; scales CURRENT, which nobody reads */
	FSJ_INA228_VSHUNT = 0x04, /**< 24 bits; bits 23..4: signed, 312.5 nV a unit, or 78.125 nV */
	FSJ_INA228_VBUS = 0x05, /**< 24 bits; bits 23..4: 195.3125 uV a unit */
	FSJ_INA228_DIAG_ALRT = 0x0B, /**< 16 bits */
	FSJ_INA228_DEVICE_ID = 0x3F, /**< 16 bits; 0x228 and the revision */
};

/** CONFIG: the shunt's range is 40.96 mV instead of 163.84 mV. */
#define FSJ_INA228_CONFIG_ADCRANGE 0x0010u
#define FSJ_INA228_CONFIG_RST 0x8000u

/** ADC_CONFIG */
#define FSJ_INA228_ADC_CONFIG_RESET_VALUE 0xFB68u
#define FSJ_INA228_MODE_SHIFT 12
#define FSJ_INA228_MODE_CONTINUOUS_BOTH 0xBu
#define FSJ_INA228_VBUSCT_SHIFT 9
#define FSJ_INA228_VSHCT_SHIFT 6

/** Conversion times, the VBUSCT and VSHCT fields. */
enum fsj_ina228_time {
	FSJ_INA228_50_US = 0,
	FSJ_INA228_84_US = 1,
	FSJ_INA228_150_US = 2,
	FSJ_INA228_280_US = 3,
	FSJ_INA228_540_US = 4,
	FSJ_INA228_1052_US = 5,
	FSJ_INA228_2074_US = 6,
	FSJ_INA228_4120_US = 7,
};

/** The AVG field: means of so many conversions of each. */
enum fsj_ina228_mean {
	FSJ_INA228_MEAN_OF_1 = 0,
	FSJ_INA228_MEAN_OF_4 = 1,
};

/** DIAG_ALRT. With ALATCH, reading it clears CNVRF. */
#define FSJ_INA228_ALATCH 0x8000u
#define FSJ_INA228_CNVRF 0x0002u

#define FSJ_INA228_SHUNT_CAL_RESET_VALUE 0x1000u
#define FSJ_INA228_DEVICE 0x228u /**< DEVICE_ID without its revision */
#define FSJ_INA228_DEVICE_SHIFT 4

/** Picovolts of a unit; the fine one with ADCRANGE. */
#define FSJ_INA228_SHUNT_UNIT_PV 312500u
#define FSJ_INA228_FINE_SHUNT_UNIT_PV 78125u
#define FSJ_INA228_BUS_UNIT_PV 195312500u

#endif
