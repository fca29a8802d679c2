/* Configuration and reading, against a chip whose registers the test sets. */

#include "check.h"
#include "fsjoule/ina219.h"

struct chip {
	uint16_t value[6];
	uint16_t config_writes[4];
	size_t writes;
	unsigned int reads[6];
	unsigned int ready_after; /* reads of BUS before CNVR is seen */
	int fails_at; /* register whose transfers fail; -1: none */
};

static int write_register(void *context, uint8_t reg, uint16_t value)
{
	struct chip *chip = context;

	if (chip->fails_at == reg) {
		return -5;
	}
	CHECK_EQUAL(reg, FSJ_INA219_CONFIG);
	CHECK(chip->writes < 4);
	chip->config_writes[chip->writes++] = value;
	return 0;
}

static int read_register(void *context, uint8_t reg, uint16_t *value)
{
	struct chip *chip = context;

	if (chip->fails_at == reg) {
		return -5;
	}
	CHECK(reg < 6);
	*value = chip->value[reg];
	if (reg == FSJ_INA219_BUS && chip->reads[reg] < chip->ready_after) {
		*value = (uint16_t)(*value & ~FSJ_INA219_BUS_CNVR);
	}
	chip->reads[reg]++;
	return 0;
}

static struct chip chip_with(uint16_t shunt, uint16_t bus)
{
	return (struct chip){.value = {[FSJ_INA219_SHUNT] = shunt, [FSJ_INA219_BUS] = bus}, .fails_at = -1};
}

static enum fsj_status read(struct chip *chip, enum fsj_ina219_range range, struct fsj_ina219_reading *reading)
{
	const struct fsj_i2c i2c = {write_register, read_register, chip};

	return fsj_ina219_read(&i2c, range, reading);
}

static void test_configuration(void)
{
	struct chip chip = chip_with(0, 0);
	const struct fsj_i2c i2c = {write_register, read_register, &chip};

	/* BRNG 0, PG /2, BADC 0010 (11 bit), SADC 0011 (12 bit), MODE 111. */
	CHECK_EQUAL(fsj_ina219_config(FSJ_INA219_RANGE_80MV), 0x091F);
	CHECK_EQUAL(fsj_ina219_config(FSJ_INA219_RANGE_320MV), 0x191F);
	CHECK_EQUAL(fsj_ina219_range_mv(FSJ_INA219_RANGE_40MV), 40);
	CHECK_EQUAL(fsj_ina219_range_mv(FSJ_INA219_RANGE_320MV), 320);
	CHECK_EQUAL(fsj_ina219_start(&i2c, FSJ_INA219_RANGE_80MV), FSJ_OK);
	CHECK_EQUAL(chip.writes, 2);
	CHECK_EQUAL(chip.config_writes[0], FSJ_INA219_CONFIG_RST);
	CHECK_EQUAL(chip.config_writes[1], 0x091F);
	chip.fails_at = FSJ_INA219_CONFIG;
	CHECK_EQUAL(fsj_ina219_start(&i2c, FSJ_INA219_RANGE_80MV), FSJ_I2C_FAULT);
}

static void test_reading(void)
{
	struct chip chip = chip_with(2500, 1250 << 3 | FSJ_INA219_BUS_CNVR);
	struct fsj_ina219_reading reading;

	CHECK_EQUAL(read(&chip, FSJ_INA219_RANGE_80MV, &reading), FSJ_OK);
	CHECK_EQUAL(reading.shunt, 2500);
	CHECK_EQUAL(reading.bus, 1250);
	CHECK(!reading.overflow && !reading.clipped);
	/* Reading POWER clears CNVR for the next one. */
	CHECK_EQUAL(chip.reads[FSJ_INA219_POWER], 1);
	chip = chip_with((uint16_t)-8000, 8191 << 3 | FSJ_INA219_BUS_CNVR | FSJ_INA219_BUS_OVF);
	CHECK_EQUAL(read(&chip, FSJ_INA219_RANGE_80MV, &reading), FSJ_OK);
	CHECK_EQUAL(reading.shunt, -8000);
	CHECK_EQUAL(reading.bus, 8191);
	CHECK(reading.overflow && reading.clipped);
}

static void test_clipping_at_each_range(void)
{
	for (int range = FSJ_INA219_RANGE_40MV; range <= FSJ_INA219_RANGE_320MV; range++) {
		const uint16_t full_scale = (uint16_t)(4000u << range);
		struct chip below = chip_with((uint16_t)(full_scale - 1), FSJ_INA219_BUS_CNVR);
		struct chip at = chip_with(full_scale, FSJ_INA219_BUS_CNVR);
		struct fsj_ina219_reading reading;

		CHECK_EQUAL(read(&below, (enum fsj_ina219_range)range, &reading), FSJ_OK);
		CHECK(!reading.clipped);
		CHECK_EQUAL(read(&at, (enum fsj_ina219_range)range, &reading), FSJ_OK);
		CHECK(reading.clipped);
	}
}

static void test_waits_a_moment_for_a_conversion(void)
{
	struct chip chip = chip_with(1, FSJ_INA219_BUS_CNVR);
	struct fsj_ina219_reading reading = {.shunt = 77};

	chip.ready_after = 2;
	CHECK_EQUAL(read(&chip, FSJ_INA219_RANGE_80MV, &reading), FSJ_OK);
	chip = chip_with(1, FSJ_INA219_BUS_CNVR);
	chip.ready_after = 100;
	reading.shunt = 77;
	CHECK_EQUAL(read(&chip, FSJ_INA219_RANGE_80MV, &reading), FSJ_NOT_READY);
	CHECK_EQUAL(reading.shunt, 77);
	CHECK_EQUAL(chip.reads[FSJ_INA219_SHUNT], 0);
}

static void test_faults(void)
{
	const int registers[] = {FSJ_INA219_BUS, FSJ_INA219_SHUNT, FSJ_INA219_POWER};

	for (size_t i = 0; i < sizeof(registers) / sizeof(registers[0]); i++) {
		struct chip chip = chip_with(1, FSJ_INA219_BUS_CNVR);
		struct fsj_ina219_reading reading = {.shunt = 77};

		chip.fails_at = registers[i];
		CHECK_EQUAL(read(&chip, FSJ_INA219_RANGE_80MV, &reading), FSJ_I2C_FAULT);
		CHECK_EQUAL(reading.shunt, 77);
	}
}

int main(void)
{
	test_configuration();
	test_reading();
	test_clipping_at_each_range();
	test_waits_a_moment_for_a_conversion();
	test_faults();
	return 0;
}
