#include "fsjoule/chip.h"

#include <stddef.h>

#include "fsjoule/command.h"
#include "fsjoule/frame.h"

static enum fsj_status noted(struct fsj_chip *chip, enum fsj_status status)
{
	if (status == FSJ_I2C_FAULT) {
		chip->faults++;
		chip->started = false;
	}
	return status;
}

enum fsj_status fsj_chip_start(struct fsj_chip *chip, const struct fsj_ina219_setup *setup)
{
	chip->setup = *setup;
	chip->started = true;
	return noted(chip, fsj_ina219_start(&chip->i2c, setup));
}

static enum fsj_status bring_back(struct fsj_chip *chip, uint8_t *flags)
{
	const struct fsj_ina219_setup setup = chip->setup;

	*flags |= FSJ_FLAG_I2C_FAULT;
	if (chip->i2c.recover != NULL && chip->i2c.recover(chip->i2c.context) == 0) {
		*flags |= FSJ_FLAG_BUS_RESET;
	}
	return fsj_chip_start(chip, &setup);
}

static enum fsj_status read_register(struct fsj_chip *chip, uint8_t reg, uint16_t *value)
{
	return noted(chip, chip->i2c.read_register(chip->i2c.context, reg, value) == 0 ? FSJ_OK : FSJ_I2C_FAULT);
}

static enum fsj_status write_register(struct fsj_chip *chip, uint8_t reg, uint16_t value)
{
	return noted(chip, chip->i2c.write_register(chip->i2c.context, reg, value) == 0 ? FSJ_OK : FSJ_I2C_FAULT);
}

/* A chip that lost its supply for a moment has lost its configuration too. */
static bool is_configured(struct fsj_chip *chip)
{
	uint16_t config;

	return read_register(chip, FSJ_INA219_CONFIG, &config) == FSJ_OK && config == chip->setup.config;
}

enum fsj_status fsj_chip_read(struct fsj_chip *chip, struct fsj_ina219_reading *reading, uint8_t *flags)
{
	enum fsj_status status = FSJ_I2C_FAULT;

	if (chip->started) {
		status = noted(chip, fsj_ina219_read(&chip->i2c, &chip->setup, reading));
	}
	if (status == FSJ_NOT_READY && !is_configured(chip)) {
		status = FSJ_I2C_FAULT;
	}
	if (status == FSJ_I2C_FAULT) {
		bring_back(chip, flags);
	}
	return status;
}

void fsj_chip_check(struct fsj_chip *chip, uint8_t *flags)
{
	if (chip->started && !is_configured(chip)) {
		bring_back(chip, flags);
	}
}

/* CALIBRATION only scales the registers CURRENT and POWER, which nobody reads. The patterns are too small for OVF. */
static enum fsj_status test_calibration_register(struct fsj_chip *chip, uint8_t *failures)
{
	static const uint16_t patterns[] = {0x0AAA, 0x0554, 0};
	uint16_t value;

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		if (write_register(chip, FSJ_INA219_CALIBRATION, patterns[i]) != FSJ_OK ||
		    read_register(chip, FSJ_INA219_CALIBRATION, &value) != FSJ_OK) {
			return FSJ_I2C_FAULT;
		}
		*failures |= value != patterns[i] ? FSJ_FAIL_REGISTER : 0;
	}
	return FSJ_OK;
}

uint8_t fsj_chip_test(struct fsj_chip *chip)
{
	const struct fsj_ina219_setup setup = chip->setup;
	uint8_t failures = 0;
	uint8_t flags = 0;
	uint16_t config;
	uint16_t power;

	if ((!chip->started && bring_back(chip, &flags) != FSJ_OK) ||
	    test_calibration_register(chip, &failures) != FSJ_OK ||
	    read_register(chip, FSJ_INA219_CONFIG, &config) != FSJ_OK) {
		return FSJ_FAIL_NO_ANSWER;
	}
	if (config != setup.config) {
		failures |= FSJ_FAIL_CONFIG;
		(void)fsj_chip_start(chip, &setup);
	}
	/* Clears CNVR. */
	(void)read_register(chip, FSJ_INA219_POWER, &power);
	return failures;
}
