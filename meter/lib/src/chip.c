#include "fsjoule/chip.h"

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
	return noted(chip, chip->kind->start(&chip->i2c, setup));
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

/* A chip that lost its supply for a moment has lost its configuration too. */
static bool is_configured(struct fsj_chip *chip)
{
	bool as_set_up = false;

	return noted(chip, chip->kind->look(&chip->i2c, &chip->setup, &as_set_up)) == FSJ_OK && as_set_up;
}

enum fsj_status fsj_chip_read(struct fsj_chip *chip, struct fsj_ina219_reading *reading, uint8_t *flags)
{
	enum fsj_status status = FSJ_I2C_FAULT;

	if (chip->started) {
		status = noted(chip, chip->kind->read(&chip->i2c, &chip->setup, reading));
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

enum fsj_status fsj_chip_test_register(const struct fsj_i2c *i2c, uint8_t reg, const uint16_t *values, size_t count,
				       uint8_t *failures)
{
	for (size_t i = 0; i < count; i++) {
		uint16_t value;

		if (i2c->write_register(i2c->context, reg, values[i]) != 0 ||
		    i2c->read_register(i2c->context, reg, &value) != 0) {
			return FSJ_I2C_FAULT;
		}
		*failures |= value != values[i] ? FSJ_FAIL_REGISTER : 0;
	}
	return FSJ_OK;
}

uint8_t fsj_chip_test(struct fsj_chip *chip)
{
	const struct fsj_ina219_setup setup = chip->setup;
	uint8_t failures = 0;
	uint8_t flags = 0;
	bool as_set_up = false;

	if ((!chip->started && bring_back(chip, &flags) != FSJ_OK) ||
	    noted(chip, chip->kind->look(&chip->i2c, &setup, &as_set_up)) != FSJ_OK ||
	    noted(chip, chip->kind->test(&chip->i2c, &failures)) != FSJ_OK) {
		return FSJ_FAIL_NO_ANSWER;
	}
	if (!as_set_up) {
		failures |= FSJ_FAIL_CONFIG;
		(void)fsj_chip_start(chip, &setup);
	}
	return failures;
}
