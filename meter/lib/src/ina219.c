#include "fsjoule/ina219.h"

#include <stddef.h>

#include "fsjoule/chip.h"

/* A conversion that ends just after the tick is worth a moment, but no more than the tick has. A transfer takes about
 * 120 us at 400 kHz, and a sample takes two more of them.
 */
#define LOOKS 3u
#define LOOKS_ABOVE_1_KHZ 2u

/* Where the readings of the bus voltage end, 4 mV a unit. */
#define BUS_END_16V 4000u
#define BUS_END_32V 8000u

/* The finest resolution for each rate; docs/meter-protocol.md has the conversion times. */
static const struct {
	uint32_t rate_max_hz;
	enum fsj_ina219_adc shunt;
	enum fsj_ina219_adc bus;
} resolutions[] = {
	{100, FSJ_INA219_ADC_8_SAMPLES, FSJ_INA219_ADC_8_SAMPLES},
	{200, FSJ_INA219_ADC_4_SAMPLES, FSJ_INA219_ADC_4_SAMPLES},
	{400, FSJ_INA219_ADC_2_SAMPLES, FSJ_INA219_ADC_2_SAMPLES},
	{800, FSJ_INA219_ADC_12_BIT, FSJ_INA219_ADC_12_BIT},
	{1000, FSJ_INA219_ADC_12_BIT, FSJ_INA219_ADC_11_BIT},
	{1250, FSJ_INA219_ADC_12_BIT, FSJ_INA219_ADC_10_BIT},
	{2000, FSJ_INA219_ADC_11_BIT, FSJ_INA219_ADC_10_BIT},
};

uint16_t fsj_ina219_range_mv(enum fsj_ina219_range range)
{
	return (uint16_t)(40u << (unsigned int)range);
}

bool fsj_ina219_choose(uint32_t rate_hz, enum fsj_ina219_range range, struct fsj_ina219_setup *setup)
{
	for (size_t i = 0; i < sizeof(resolutions) / sizeof(resolutions[0]); i++) {
		if (rate_hz <= resolutions[i].rate_max_hz) {
			setup->config = (uint16_t)(((unsigned int)range << FSJ_INA219_CONFIG_PG_SHIFT) |
						   ((unsigned int)resolutions[i].bus << FSJ_INA219_CONFIG_BADC_SHIFT) |
						   ((unsigned int)resolutions[i].shunt << FSJ_INA219_CONFIG_SADC_SHIFT) |
						   FSJ_INA219_MODE_CONTINUOUS_BOTH);
			/* 10 uV a unit, so 100 units a mV. */
			setup->full_scale = (int16_t)(fsj_ina219_range_mv(range) * 100);
			setup->looks = rate_hz <= 1000 ? LOOKS : LOOKS_ABOVE_1_KHZ;
			return true;
		}
	}
	return false;
}

enum fsj_status fsj_ina219_start(const struct fsj_i2c *i2c, const struct fsj_ina219_setup *setup)
{
	if (i2c->write_register(i2c->context, FSJ_INA219_CONFIG, FSJ_INA219_CONFIG_RST) != 0 ||
	    i2c->write_register(i2c->context, FSJ_INA219_CONFIG, setup->config) != 0) {
		return FSJ_I2C_FAULT;
	}
	return FSJ_OK;
}

/* Two's complement without the implementation-defined conversion of a value above INT16_MAX. */
static int16_t as_signed(uint16_t value)
{
	return (int16_t)((value & 0x8000u) != 0 ? (int32_t)value - 0x10000 : (int32_t)value);
}

static enum fsj_status read_ready_bus(const struct fsj_i2c *i2c, uint8_t looks, uint16_t *bus)
{
	for (uint8_t i = 0; i < looks; i++) {
		if (i2c->read_register(i2c->context, FSJ_INA219_BUS, bus) != 0) {
			return FSJ_I2C_FAULT;
		}
		if ((*bus & FSJ_INA219_BUS_CNVR) != 0) {
			return FSJ_OK;
		}
	}
	return FSJ_NOT_READY;
}

static uint16_t bus_full_scale(const struct fsj_ina219_setup *setup)
{
	return (setup->config & FSJ_INA219_CONFIG_BRNG_32V) != 0 ? BUS_END_32V : BUS_END_16V;
}

enum fsj_status fsj_ina219_read(const struct fsj_i2c *i2c, const struct fsj_ina219_setup *setup,
				struct fsj_ina219_reading *reading)
{
	uint16_t bus;
	uint16_t shunt;
	uint16_t power;
	enum fsj_status status = read_ready_bus(i2c, setup->looks, &bus);

	if (status != FSJ_OK) {
		return status;
	}
	/* POWER, which clears CNVR, comes at once: a conversion that ends between the two reads loses its CNVR. */
	if (i2c->read_register(i2c->context, FSJ_INA219_POWER, &power) != 0 ||
	    i2c->read_register(i2c->context, FSJ_INA219_SHUNT, &shunt) != 0) {
		return FSJ_I2C_FAULT;
	}
	reading->shunt = as_signed(shunt);
	reading->bus = (uint16_t)(bus >> FSJ_INA219_BUS_VALUE_SHIFT);
	reading->overflow = (bus & FSJ_INA219_BUS_OVF) != 0;
	reading->clipped = reading->shunt >= setup->full_scale || reading->shunt <= -setup->full_scale ||
			   reading->bus >= bus_full_scale(setup);
	return FSJ_OK;
}

/* ------------------------------------------------------------------------------------------ as a kind of chip */

static bool choose(const struct fsj_settings *settings, struct fsj_ina219_setup *setup)
{
	if (!fsj_ina219_choose(settings->rate_hz, settings->range, setup)) {
		return false;
	}
	if (settings->bus_32v) {
		setup->config |= FSJ_INA219_CONFIG_BRNG_32V;
	}
	return true;
}

static enum fsj_status read(const struct fsj_i2c *i2c, const struct fsj_ina219_setup *setup, struct fsj_rest *rest,
			    struct fsj_ina219_reading *reading)
{
	(void)rest;
	return fsj_ina219_read(i2c, setup, reading);
}

static enum fsj_status look(const struct fsj_i2c *i2c, const struct fsj_ina219_setup *setup, bool *as_set_up)
{
	uint16_t config;

	if (i2c->read_register(i2c->context, FSJ_INA219_CONFIG, &config) != 0) {
		return FSJ_I2C_FAULT;
	}
	*as_set_up = config == setup->config;
	return FSJ_OK;
}

/* CALIBRATION only scales the registers CURRENT and POWER, which nobody reads. The patterns are too small for OVF. */
static enum fsj_status test(const struct fsj_i2c *i2c, uint8_t *failures)
{
	static const uint16_t patterns[] = {0x0AAA, 0x0554, 0};
	uint16_t power;
	const enum fsj_status status = fsj_chip_test_register(i2c, FSJ_INA219_CALIBRATION, patterns,
							      sizeof(patterns) / sizeof(patterns[0]), failures);

	if (status != FSJ_OK) {
		return status;
	}
	/* Clears CNVR. */
	return i2c->read_register(i2c->context, FSJ_INA219_POWER, &power) == 0 ? FSJ_OK : FSJ_I2C_FAULT;
}

const struct fsj_chip_kind fsj_chip_ina219 = {
	.choose = choose,
	.start = fsj_ina219_start,
	.read = read,
	.look = look,
	.test = test,
};
