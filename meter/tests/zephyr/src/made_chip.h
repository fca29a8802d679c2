/** @file
 * The emulated chip that the device tree has.
 */
#ifndef FSJOULE_TESTS_MADE_CHIP_H
#define FSJOULE_TESTS_MADE_CHIP_H

#include <zephyr/devicetree.h>

#include "ina219_emulated.h"
#include "ina228_emulated.h"

#if DT_HAS_COMPAT_STATUS_OKAY(fsjoule_ina228)

#define MADE_CHIP(function) ina228_emulated_##function
/** Of conversions over what is typical, as the data sheet has it */
#define SLOWEST_PPM 10000
#define BUS_FULL_SCALE_32V true
/** 25 mV and 5 V */
#define SHUNT_RAW 80000
#define BUS_RAW 25600
#define SAMPLES_FRAME FSJ_FRAME_WIDE_SAMPLES

struct made_chip {
	struct ina228_emulated chip;
};

static inline void made_chip_slow(struct made_chip *made, int32_t ppm)
{
	made->chip.errors.slow_ppm = ppm;
}

static inline int made_chip_read_bytes(struct made_chip *made, uint8_t reg, uint8_t *bytes, size_t size)
{
	return ina228_emulated_read_bytes(&made->chip, reg, bytes, size);
}

#else

#define MADE_CHIP(function) ina219_emulated_##function
/** Of conversions over what is typical, as the data sheet has it */
#define SLOWEST_PPM 102000
#define BUS_FULL_SCALE_32V false
/** 25 mV and 5 V */
#define SHUNT_RAW 2500
#define BUS_RAW 1250
#define SAMPLES_FRAME FSJ_FRAME_SAMPLES

struct made_chip {
	struct ina219_emulated chip;
};

static inline void made_chip_slow(struct made_chip *made, int32_t ppm)
{
	made->chip.errors.slow_ppm = ppm;
}

static inline int made_chip_read_bytes(struct made_chip *made, uint8_t reg, uint8_t *bytes, size_t size)
{
	(void)made;
	(void)reg;
	(void)bytes;
	(void)size;
	return -1;
}

#endif

#endif
