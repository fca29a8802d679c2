#include "fsjoule/ina228.h"

#include "fsjoule/chip.h"
#include "fsjoule/command.h"

/* As the INA219's. A transfer takes 120 us, and each of a sample's two registers 140 us. */
#define LOOKS 3u
#define LOOKS_ABOVE_1_KHZ 2u

#define WIDE_BYTES 3u
#define SHUNT_MAX 0x7FFFF
/* The chip is made for 85 V, and its register goes to 102 V. */
#define BUS_END_V 85
#define BUS_UNITS_PER_V 5120

/* 163.84 mV and 40.96 mV. */
#define RANGE_MV 163
#define FINE_RANGE_MV 40

/* The finest resolution for each rate: both conversions, 1 % longer than is typical, take no more than 95 % of a tick. */
static const struct {
	uint32_t rate_max_hz;
	enum fsj_ina228_time shunt;
	enum fsj_ina228_time bus;
	enum fsj_ina228_mean mean;
} resolutions[] = {
	{100, FSJ_INA228_1052_US, FSJ_INA228_1052_US, FSJ_INA228_MEAN_OF_4},
	{200, FSJ_INA228_540_US, FSJ_INA228_540_US, FSJ_INA228_MEAN_OF_4},
	{400, FSJ_INA228_280_US, FSJ_INA228_280_US, FSJ_INA228_MEAN_OF_4},
	{800, FSJ_INA228_540_US, FSJ_INA228_540_US, FSJ_INA228_MEAN_OF_1},
	{1000, FSJ_INA228_540_US, FSJ_INA228_280_US, FSJ_INA228_MEAN_OF_1},
	{1250, FSJ_INA228_540_US, FSJ_INA228_150_US, FSJ_INA228_MEAN_OF_1},
	{2000, FSJ_INA228_280_US, FSJ_INA228_150_US, FSJ_INA228_MEAN_OF_1},
};

/* The chip has two ranges: 40 mV is the fine one, and the other serves for all others, up to 163.84 mV. */
static struct fsj_scale scale_of(enum fsj_ina219_range range)
{
	const bool fine = range == FSJ_INA219_RANGE_40MV;

	return (struct fsj_scale){
		.shunt_unit_pv = fine ? FSJ_INA228_FINE_SHUNT_UNIT_PV : FSJ_INA228_SHUNT_UNIT_PV,
		.bus_unit_pv = FSJ_INA228_BUS_UNIT_PV,
		.shunt_mv = fine ? FINE_RANGE_MV : RANGE_MV,
		.bus_v = BUS_END_V,
	};
}

static bool choose(const struct fsj_settings *settings, struct fsj_ina219_setup *setup)
{
	for (size_t i = 0; i < sizeof(resolutions) / sizeof(resolutions[0]); i++) {
		if (settings->rate_hz <= resolutions[i].rate_max_hz) {
			setup->config = (uint16_t)((FSJ_INA228_MODE_CONTINUOUS_BOTH << FSJ_INA228_MODE_SHIFT) |
						   ((unsigned int)resolutions[i].bus << FSJ_INA228_VBUSCT_SHIFT) |
						   ((unsigned int)resolutions[i].shunt << FSJ_INA228_VSHCT_SHIFT) |
						   (unsigned int)resolutions[i].mean);
			setup->looks = settings->rate_hz <= 1000 ? LOOKS : LOOKS_ABOVE_1_KHZ;
			setup->scale = scale_of(settings->range);
			return true;
		}
	}
	return false;
}

static bool write(const struct fsj_i2c *i2c, uint8_t reg, uint16_t value)
{
	return i2c->write_register(i2c->context, reg, value) == 0;
}

/* No reset, which would take a while: all that matters is written. Writing ADC_CONFIG begins a conversion. */
static enum fsj_status start(const struct fsj_i2c *i2c, const struct fsj_ina219_setup *setup)
{
	const bool fine = setup->scale.shunt_unit_pv == FSJ_INA228_FINE_SHUNT_UNIT_PV;
	const bool done = write(i2c, FSJ_INA228_CONFIG, fine ? FSJ_INA228_CONFIG_ADCRANGE : 0) &&
			  write(i2c, FSJ_INA228_DIAG_ALRT, FSJ_INA228_ALATCH) &&
			  write(i2c, FSJ_INA228_ADC_CONFIG, setup->config);

	return done ? FSJ_OK : FSJ_I2C_FAULT;
}

/* ----------------------------------------------------------------------------------------------------- reading */

static enum fsj_status wait_until_ready(const struct fsj_i2c *i2c, uint8_t looks)
{
	for (uint8_t i = 0; i < looks; i++) {
		uint16_t flags;

		if (i2c->read_register(i2c->context, FSJ_INA228_DIAG_ALRT, &flags) != 0) {
			return FSJ_I2C_FAULT;
		}
		if ((flags & FSJ_INA228_CNVRF) != 0) {
			return FSJ_OK;
		}
	}
	return FSJ_NOT_READY;
}

/* The upper 20 of 24 bits, in two's complement. */
static bool read_wide(const struct fsj_i2c *i2c, uint8_t reg, int32_t *value)
{
	uint8_t bytes[WIDE_BYTES];
	int32_t bits;

	if (i2c->read_bytes(i2c->context, reg, bytes, sizeof(bytes)) != 0) {
		return false;
	}
	bits = ((int32_t)bytes[0] << 12) | ((int32_t)bytes[1] << 4) | ((int32_t)bytes[2] >> 4);
	*value = bits > SHUNT_MAX ? bits - 2 * (SHUNT_MAX + 1) : bits;
	return true;
}

static enum fsj_status read(const struct fsj_i2c *i2c, const struct fsj_ina219_setup *setup,
			    struct fsj_ina219_reading *reading)
{
	const enum fsj_status status = wait_until_ready(i2c, setup->looks);
	int32_t shunt;
	int32_t bus;

	if (status != FSJ_OK) {
		return status;
	}
	if (!read_wide(i2c, FSJ_INA228_VSHUNT, &shunt) || !read_wide(i2c, FSJ_INA228_VBUS, &bus)) {
		return FSJ_I2C_FAULT;
	}
	reading->shunt = shunt;
	reading->overflow = false;
	reading->clipped = shunt >= SHUNT_MAX || shunt <= -SHUNT_MAX || bus >= BUS_END_V * BUS_UNITS_PER_V;
	/* Around 0 V its offset makes it negative. */
	reading->bus = (uint32_t)(bus < 0 ? 0 : bus);
	return FSJ_OK;
}

/* -------------------------------------------------------------------------------------------------------- tests */

static enum fsj_status look(const struct fsj_i2c *i2c, const struct fsj_ina219_setup *setup, bool *as_set_up)
{
	uint16_t config;

	if (i2c->read_register(i2c->context, FSJ_INA228_ADC_CONFIG, &config) != 0) {
		return FSJ_I2C_FAULT;
	}
	*as_set_up = config == setup->config;
	return FSJ_OK;
}

static enum fsj_status test(const struct fsj_i2c *i2c, uint8_t *failures)
{
	static const uint16_t patterns[] = {0x2AAA, 0x5555, FSJ_INA228_SHUNT_CAL_RESET_VALUE};
	uint16_t value;
	const enum fsj_status status = fsj_chip_test_register(i2c, FSJ_INA228_SHUNT_CAL, patterns,
							      sizeof(patterns) / sizeof(patterns[0]), failures);

	if (status != FSJ_OK || i2c->read_register(i2c->context, FSJ_INA228_DEVICE_ID, &value) != 0) {
		return FSJ_I2C_FAULT;
	}
	/* Another chip that answers at this address */
	*failures |= value >> FSJ_INA228_DEVICE_SHIFT != FSJ_INA228_DEVICE ? FSJ_FAIL_REGISTER : 0;
	/* Clears CNVRF. */
	return i2c->read_register(i2c->context, FSJ_INA228_DIAG_ALRT, &value) == 0 ? FSJ_OK : FSJ_I2C_FAULT;
}

const struct fsj_chip_kind fsj_chip_ina228 = {
	.number = FSJ_CHIP_INA228,
	.wide = true,
	.choose = choose,
	.start = start,
	.read = read,
	.look = look,
	.test = test,
};
