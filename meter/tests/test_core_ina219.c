/* Configuration and reading, against a chip whose registers the test sets. */

#include "check.h"
#include "fsjoule/ina219.h"

struct chip {
	uint16_t value[6];
	uint16_t config_writes[4];
	size_t writes;
	uint8_t read_order[16];
	size_t reads;
	unsigned int bus_reads;
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
	CHECK(reg < 6 && chip->reads < sizeof(chip->read_order));
	chip->read_order[chip->reads++] = reg;
	*value = chip->value[reg];
	if (reg == FSJ_INA219_BUS && chip->bus_reads++ < chip->ready_after) {
		*value = (uint16_t)(*value & ~FSJ_INA219_BUS_CNVR);
	}
	return 0;
}

static struct chip chip_with(uint16_t shunt, uint16_t bus)
{
	return (struct chip){.value = {[FSJ_INA219_SHUNT] = shunt, [FSJ_INA219_BUS] = bus}, .fails_at = -1};
}

static struct fsj_ina219_setup setup_of(uint32_t rate_hz, enum fsj_ina219_range range)
{
	struct fsj_ina219_setup setup;

	CHECK(fsj_ina219_choose(rate_hz, range, false, &setup));
	return setup;
}

static enum fsj_status read_with(struct chip *chip, const struct fsj_ina219_setup *setup,
				 struct fsj_ina219_reading *reading)
{
	const struct fsj_i2c i2c = {.write_register = write_register, .read_register = read_register, .context = chip};

	return fsj_ina219_read(&i2c, setup, reading);
}

static enum fsj_status read_at(struct chip *chip, uint32_t rate_hz, enum fsj_ina219_range range,
			       struct fsj_ina219_reading *reading)
{
	const struct fsj_ina219_setup setup = setup_of(rate_hz, range);

	return read_with(chip, &setup, reading);
}

/* Longest conversions of the data sheet in us, by the value of BADC or SADC. */
static uint32_t longest_us(unsigned int adc)
{
	static const uint32_t single_us[] = {93, 163, 304, 586};
	static const uint32_t averaged_us[] = {586, 1172, 2340, 4680};

	return (adc & 8u) != 0 ? averaged_us[adc & 7u] : single_us[adc & 3u];
}

static uint32_t round_us(uint16_t config)
{
	return longest_us((config >> FSJ_INA219_CONFIG_SADC_SHIFT) & 0xFu) +
	       longest_us((config >> FSJ_INA219_CONFIG_BADC_SHIFT) & 0xFu);
}

static void test_configuration(void)
{
	struct chip chip = chip_with(0, 0);
	const struct fsj_i2c i2c = {.write_register = write_register, .read_register = read_register, .context = &chip};
	const struct fsj_ina219_setup setup = setup_of(1000, FSJ_INA219_RANGE_80MV);

	CHECK_EQUAL(fsj_ina219_range_mv(FSJ_INA219_RANGE_40MV), 40);
	CHECK_EQUAL(fsj_ina219_range_mv(FSJ_INA219_RANGE_320MV), 320);
	CHECK_EQUAL(fsj_ina219_start(&i2c, &setup), FSJ_OK);
	CHECK_EQUAL(chip.writes, 2);
	CHECK_EQUAL(chip.config_writes[0], FSJ_INA219_CONFIG_RST);
	CHECK_EQUAL(chip.config_writes[1], 0x091F);
	chip.fails_at = FSJ_INA219_CONFIG;
	CHECK_EQUAL(fsj_ina219_start(&i2c, &setup), FSJ_I2C_FAULT);
}

static void test_resolutions(void)
{
	/* PG /2 (80 mV), BADC, SADC, MODE 111. */
	CHECK_EQUAL(setup_of(100, FSJ_INA219_RANGE_80MV).config, 0x0DDF);
	CHECK_EQUAL(setup_of(125, FSJ_INA219_RANGE_80MV).config, 0x0D57);
	CHECK_EQUAL(setup_of(200, FSJ_INA219_RANGE_80MV).config, 0x0D57);
	CHECK_EQUAL(setup_of(250, FSJ_INA219_RANGE_80MV).config, 0x0CCF);
	CHECK_EQUAL(setup_of(400, FSJ_INA219_RANGE_80MV).config, 0x0CCF);
	CHECK_EQUAL(setup_of(500, FSJ_INA219_RANGE_80MV).config, 0x099F);
	CHECK_EQUAL(setup_of(800, FSJ_INA219_RANGE_80MV).config, 0x099F);
	CHECK_EQUAL(setup_of(1000, FSJ_INA219_RANGE_80MV).config, 0x091F);
	CHECK_EQUAL(setup_of(1250, FSJ_INA219_RANGE_80MV).config, 0x089F);
	CHECK_EQUAL(setup_of(1600, FSJ_INA219_RANGE_80MV).config, 0x0897);
	CHECK_EQUAL(setup_of(2000, FSJ_INA219_RANGE_320MV).config, 0x1897);
	CHECK_EQUAL(setup_of(1000, FSJ_INA219_RANGE_320MV).scale.shunt_mv, 320);
}

static void test_every_rate_leaves_time(void)
{
	struct fsj_ina219_setup setup;

	for (uint32_t rate_hz = 1; rate_hz <= 2000; rate_hz++) {
		const uint32_t tick_us = 1000000 / rate_hz;
		uint32_t transfers_us;

		CHECK(fsj_ina219_choose(rate_hz, FSJ_INA219_RANGE_40MV, false, &setup));
		CHECK(round_us(setup.config) * 100 <= tick_us * 95);
		/* Looks, POWER and SHUNT, at 400 kHz. */
		transfers_us = (setup.looks + 2u) * 120u;
		CHECK(transfers_us <= tick_us);
	}
	CHECK(!fsj_ina219_choose(2001, FSJ_INA219_RANGE_40MV, false, &setup));
	CHECK(!fsj_ina219_choose(UINT32_MAX, FSJ_INA219_RANGE_40MV, false, &setup));
}

static void test_reading(void)
{
	struct chip chip = chip_with(2500, 1250 << 3 | FSJ_INA219_BUS_CNVR);
	struct fsj_ina219_reading reading;

	CHECK_EQUAL(read_at(&chip, 1000, FSJ_INA219_RANGE_80MV, &reading), FSJ_OK);
	CHECK_EQUAL(reading.shunt, 2500);
	CHECK_EQUAL(reading.bus, 1250);
	CHECK(!reading.overflow && !reading.clipped);
	/* Reading POWER clears CNVR: at once, so that a fresh round is not cleared away. */
	CHECK_EQUAL(chip.reads, 3);
	CHECK_EQUAL(chip.read_order[0], FSJ_INA219_BUS);
	CHECK_EQUAL(chip.read_order[1], FSJ_INA219_POWER);
	CHECK_EQUAL(chip.read_order[2], FSJ_INA219_SHUNT);
	chip = chip_with((uint16_t)-8000, 8191 << 3 | FSJ_INA219_BUS_CNVR | FSJ_INA219_BUS_OVF);
	CHECK_EQUAL(read_at(&chip, 1000, FSJ_INA219_RANGE_80MV, &reading), FSJ_OK);
	CHECK_EQUAL(reading.shunt, -8000);
	CHECK_EQUAL(reading.bus, 8191);
	CHECK(reading.overflow && reading.clipped);
	chip = chip_with(0x8000, FSJ_INA219_BUS_CNVR);
	CHECK_EQUAL(read_at(&chip, 1000, FSJ_INA219_RANGE_320MV, &reading), FSJ_OK);
	CHECK_EQUAL(reading.shunt, -32768);
}

static void test_clipping_of_the_bus(void)
{
	struct chip below = chip_with(2500, 3999 << 3 | FSJ_INA219_BUS_CNVR);
	struct chip at = chip_with(2500, 4000 << 3 | FSJ_INA219_BUS_CNVR);
	struct fsj_ina219_setup setup;
	struct fsj_ina219_reading reading;

	CHECK_EQUAL(read_at(&below, 1000, FSJ_INA219_RANGE_80MV, &reading), FSJ_OK);
	CHECK(!reading.clipped);
	CHECK_EQUAL(read_at(&at, 1000, FSJ_INA219_RANGE_80MV, &reading), FSJ_OK);
	CHECK(reading.clipped);
	/* With 32 V it ends twice as high. */
	CHECK(fsj_ina219_choose(1000, FSJ_INA219_RANGE_80MV, true, &setup));
	CHECK_EQUAL(setup.config, 0x291F);
	at = chip_with(2500, 4000 << 3 | FSJ_INA219_BUS_CNVR);
	CHECK_EQUAL(read_with(&at, &setup, &reading), FSJ_OK);
	CHECK(!reading.clipped);
	at = chip_with(2500, 8000 << 3 | FSJ_INA219_BUS_CNVR);
	CHECK_EQUAL(read_with(&at, &setup, &reading), FSJ_OK);
	CHECK(reading.clipped);
}

static void test_clipping_at_each_range(void)
{
	for (int range = FSJ_INA219_RANGE_40MV; range <= FSJ_INA219_RANGE_320MV; range++) {
		const uint16_t full_scale = (uint16_t)(4000u << range);
		struct chip below = chip_with((uint16_t)(full_scale - 1), FSJ_INA219_BUS_CNVR);
		struct chip at = chip_with(full_scale, FSJ_INA219_BUS_CNVR);
		struct fsj_ina219_reading reading;

		CHECK_EQUAL(read_at(&below, 1000, (enum fsj_ina219_range)range, &reading), FSJ_OK);
		CHECK(!reading.clipped);
		CHECK_EQUAL(read_at(&at, 1000, (enum fsj_ina219_range)range, &reading), FSJ_OK);
		CHECK(reading.clipped);
	}
}

static void test_waits_a_moment_for_a_conversion(void)
{
	static const struct {
		uint32_t rate_hz;
		unsigned int looks;
	} cases[] = {{100, 3}, {1000, 3}, {1250, 2}, {2000, 2}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fsj_ina219_reading reading = {.shunt = 77};
		struct chip chip = chip_with(1, FSJ_INA219_BUS_CNVR);

		chip.ready_after = cases[i].looks - 1;
		CHECK_EQUAL(read_at(&chip, cases[i].rate_hz, FSJ_INA219_RANGE_80MV, &reading), FSJ_OK);
		CHECK_EQUAL(reading.shunt, 1);
		chip = chip_with(1, FSJ_INA219_BUS_CNVR);
		chip.ready_after = cases[i].looks;
		reading.shunt = 77;
		CHECK_EQUAL(read_at(&chip, cases[i].rate_hz, FSJ_INA219_RANGE_80MV, &reading), FSJ_NOT_READY);
		CHECK_EQUAL(reading.shunt, 77);
		CHECK_EQUAL(chip.reads, cases[i].looks);
	}
}

static void test_faults(void)
{
	const int registers[] = {FSJ_INA219_BUS, FSJ_INA219_SHUNT, FSJ_INA219_POWER};

	for (size_t i = 0; i < sizeof(registers) / sizeof(registers[0]); i++) {
		struct chip chip = chip_with(1, FSJ_INA219_BUS_CNVR);
		struct fsj_ina219_reading reading = {.shunt = 77};

		chip.fails_at = registers[i];
		CHECK_EQUAL(read_at(&chip, 1000, FSJ_INA219_RANGE_80MV, &reading), FSJ_I2C_FAULT);
		CHECK_EQUAL(reading.shunt, 77);
	}
}

int main(void)
{
	test_configuration();
	test_resolutions();
	test_every_rate_leaves_time();
	test_reading();
	test_clipping_of_the_bus();
	test_clipping_at_each_range();
	test_waits_a_moment_for_a_conversion();
	test_faults();
	return 0;
}
