#include "fsjoule/ina219.h"

#include <stddef.h>

#include "fsjoule/chip.h"

/* A conversion that ends just after the tick is worth a moment, but no more than the tick has. A transfer takes about
 * 120 us at 400 kHz, and a sample takes two more of them.
 */
#define LOOKS 3u
#define LOOKS_ABOVE_1_KHZ 2u

/* Of 10 uV and of 4 mV. */
#define SHUNT_UNITS_PER_MV 100
#define BUS_UNITS_PER_V 250u

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

bool fsj_ina219_choose(uint32_t rate_hz, enum fsj_ina219_range range, bool bus_32v, struct fsj_ina219_setup *setup)
{
	for (size_t i = 0; i < sizeof(resolutions) / sizeof(resolutions[0]); i++) {
		if (rate_hz <= resolutions[i].rate_max_hz) {
			setup->config = (uint16_t)(((unsigned int)range << FSJ_INA219_CONFIG_PG_SHIFT) |
						   ((unsigned int)resolutions[i].bus << FSJ_INA219_CONFIG_BADC_SHIFT) |
						   ((unsigned int)resolutions[i].shunt << FSJ_INA219_CONFIG_SADC_SHIFT) |
						   (bus_32v ? FSJ_INA219_CONFIG_BRNG_32V : 0) |
						   FSJ_INA219_MODE_CONTINUOUS_BOTH);
			setup->looks = rate_hz <= 1000 ? LOOKS : LOOKS_ABOVE_1_KHZ;
			setup->scale = (struct fsj_scale){
				.shunt_unit_pv = FSJ_INA219_SHUNT_UNIT_PV,
				.bus_unit_pv = FSJ_INA219_BUS_UNIT_PV,
				.shunt_mv = fsj_ina219_range_mv(range),
				.bus_v = bus_32v ? 32 : 16,
			};
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

static bool is_clipped(const struct fsj_scale *scale, const struct fsj_ina219_reading *reading)
{
	const int32_t end = scale->shunt_mv * SHUNT_UNITS_PER_MV;

	return reading->shunt >= end || reading->shunt <= -end || reading->bus >= scale->bus_v * BUS_UNITS_PER_V;
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
	reading->bus = (uint32_t)bus >> FSJ_INA219_BUS_VALUE_SHIFT;
	reading->overflow = (bus & FSJ_INA219_BUS_OVF) != 0;
	reading->clipped = is_clipped(&setup->scale, reading);
	return FSJ_OK;
}

/* ------------------------------------------------------------------------------------------ as a kind of chip */

static bool choose(const struct fsj_settings *settings, struct fsj_ina219_setup *setup)
{
	return fsj_ina219_choose(settings->rate_hz, settings->range, settings->bus_32v, setup);
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
	.number = FSJ_CHIP_INA219,
	.choose = choose,
	.start = fsj_ina219_start,
	.read = fsj_ina219_read,
	.look = look,
	.test = test,
};
