#include "fsjoule/ina219.h"

/* A conversion that ends just after the tick is worth a moment: a read of BUS takes about 120 us at 400 kHz. */
#define READY_TRIES 3

uint16_t fsj_ina219_range_mv(enum fsj_ina219_range range)
{
	return (uint16_t)(40u << (unsigned int)range);
}

uint16_t fsj_ina219_config(enum fsj_ina219_range range)
{
	return (uint16_t)(((unsigned int)range << FSJ_INA219_CONFIG_PG_SHIFT) |
			  (FSJ_INA219_ADC_11_BIT << FSJ_INA219_CONFIG_BADC_SHIFT) |
			  (FSJ_INA219_ADC_12_BIT << FSJ_INA219_CONFIG_SADC_SHIFT) | FSJ_INA219_MODE_CONTINUOUS_BOTH);
}

enum fsj_status fsj_ina219_start(const struct fsj_i2c *i2c, enum fsj_ina219_range range)
{
	if (i2c->write_register(i2c->context, FSJ_INA219_CONFIG, FSJ_INA219_CONFIG_RST) != 0 ||
	    i2c->write_register(i2c->context, FSJ_INA219_CONFIG, fsj_ina219_config(range)) != 0) {
		return FSJ_I2C_FAULT;
	}
	return FSJ_OK;
}

/* Two's complement without the implementation-defined conversion of a value above INT16_MAX. */
static int16_t as_signed(uint16_t value)
{
	return (int16_t)((value & 0x8000u) != 0 ? (int32_t)value - 0x10000 : (int32_t)value);
}

static enum fsj_status read_ready_bus(const struct fsj_i2c *i2c, uint16_t *bus)
{
	for (int i = 0; i < READY_TRIES; i++) {
		if (i2c->read_register(i2c->context, FSJ_INA219_BUS, bus) != 0) {
			return FSJ_I2C_FAULT;
		}
		if ((*bus & FSJ_INA219_BUS_CNVR) != 0) {
			return FSJ_OK;
		}
	}
	return FSJ_NOT_READY;
}

enum fsj_status fsj_ina219_read(const struct fsj_i2c *i2c, enum fsj_ina219_range range,
				struct fsj_ina219_reading *reading)
{
	/* 10 uV a unit, so 100 units a mV. */
	const int32_t full_scale = fsj_ina219_range_mv(range) * 100;
	uint16_t bus;
	uint16_t shunt;
	uint16_t power;
	enum fsj_status status = read_ready_bus(i2c, &bus);

	if (status != FSJ_OK) {
		return status;
	}
	if (i2c->read_register(i2c->context, FSJ_INA219_SHUNT, &shunt) != 0 ||
	    i2c->read_register(i2c->context, FSJ_INA219_POWER, &power) != 0) {
		return FSJ_I2C_FAULT;
	}
	reading->shunt = as_signed(shunt);
	reading->bus = (uint16_t)(bus >> FSJ_INA219_BUS_VALUE_SHIFT);
	reading->overflow = (bus & FSJ_INA219_BUS_OVF) != 0;
	reading->clipped = reading->shunt >= full_scale || reading->shunt <= -full_scale;
	return FSJ_OK;
}
