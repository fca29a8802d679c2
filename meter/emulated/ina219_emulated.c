#include "ina219_emulated.h"

#include <math.h>
#include <string.h>

#include "noise.h"

#define MODE_SHUNT 0x1u
#define MODE_BUS 0x2u
#define MODE_CONTINUOUS 0x4u

/* ADC settings (BADC, SADC): bit 3 averages 2^n conversions of 12 bits, otherwise the low two bits give the resolution. */
static bool averages(unsigned int adc)
{
	return (adc & 0x8u) != 0;
}

/* Typical conversion times, data sheet table 5. */
static int64_t conversion_ns(unsigned int adc, int32_t slow_ppm)
{
	static const int64_t single_ns[4] = {84000, 148000, 276000, 532000};
	const int64_t typical_ns = averages(adc) ? 532000ll << (adc & 0x7u) : single_ns[adc & 0x3u];

	return typical_ns + typical_ns * slow_ppm / 1000000;
}

/* A register's unit is one step of 12 bits; with fewer bits the steps are wider. */
static double step_units(unsigned int adc)
{
	return averages(adc) ? 1.0 : (double)(8u >> (adc & 0x3u));
}

static double quantise(double units, double step, double limit)
{
	const double value = nearbyint(units / step) * step;

	return fmin(fmax(value, -limit), limit);
}

static unsigned int field(const struct ina219_emulated *chip, int shift, unsigned int mask)
{
	return ((unsigned int)chip->config >> shift) & mask;
}

static unsigned int shunt_adc(const struct ina219_emulated *chip)
{
	return field(chip, FSJ_INA219_CONFIG_SADC_SHIFT, 0xFu);
}

static unsigned int bus_adc(const struct ina219_emulated *chip)
{
	return field(chip, FSJ_INA219_CONFIG_BADC_SHIFT, 0xFu);
}

static unsigned int mode(const struct ina219_emulated *chip)
{
	return field(chip, 0, 0x7u);
}

/* The first phase of a round of conversions in this mode; idle where the mode converts nothing. */
static enum ina219_phase first_phase(const struct ina219_emulated *chip)
{
	if ((mode(chip) & MODE_SHUNT) != 0) {
		return INA219_SHUNT_CONVERSION;
	}
	return (mode(chip) & MODE_BUS) != 0 ? INA219_BUS_CONVERSION : INA219_IDLE;
}

static int64_t phase_end_ns(const struct ina219_emulated *chip)
{
	const unsigned int adc = chip->phase == INA219_SHUNT_CONVERSION ? shunt_adc(chip) : bus_adc(chip);

	return chip->phase_began_ns + conversion_ns(adc, chip->errors.slow_ppm);
}

/* A mean of 2^n conversions has 2^n times less variance. */
static double noise_uv(struct ina219_emulated *chip, unsigned int adc)
{
	const double of_one = chip->errors.noise_uv;
	const double deviation = averages(adc) ? of_one / sqrt((double)(1u << (adc & 0x7u))) : of_one;

	return of_one > 0.0 ? deviation * noise_next(&chip->random) : 0.0;
}

static double shunt_units(struct ina219_emulated *chip, double amperes)
{
	const double true_uv = amperes * chip->shunt_ohm * 1e6;
	const double read_uv = true_uv * (1.0 + chip->errors.gain_ppm * 1e-6) + chip->errors.offset_uv;

	return (read_uv + noise_uv(chip, shunt_adc(chip))) / 10.0;
}

static double bus_units(const struct ina219_emulated *chip, double volts)
{
	return volts * (1.0 + chip->errors.bus_gain_ppm * 1e-6) / 4e-3;
}

static void multiply(struct ina219_emulated *chip)
{
	const int32_t current = (int32_t)chip->shunt * (int32_t)chip->calibration / 4096;
	const int32_t magnitude = current < 0 ? -current : current;
	const int64_t power = (int64_t)magnitude * chip->bus / 5000;

	chip->overflow = magnitude > INT16_MAX || power > UINT16_MAX;
	if (!chip->overflow) {
		chip->current = (int16_t)current;
		chip->power = (uint16_t)power;
	}
}

static void convert(struct ina219_emulated *chip, int64_t end_ns)
{
	const enum fsj_ina219_range range = (enum fsj_ina219_range)field(chip, FSJ_INA219_CONFIG_PG_SHIFT, 0x3u);
	double volts = 0.0;
	double amperes = 0.0;

	chip->source.mean(chip->source.context, chip->phase_began_ns, end_ns, &volts, &amperes);
	if (chip->phase == INA219_SHUNT_CONVERSION) {
		const double full_scale = 100.0 * fsj_ina219_range_mv(range);

		chip->shunt = (int16_t)quantise(shunt_units(chip, amperes), step_units(shunt_adc(chip)), full_scale);
	} else {
		const double full_scale = (chip->config & FSJ_INA219_CONFIG_BRNG_32V) != 0 ? 8000.0 : 4000.0;

		chip->bus = (uint16_t)fmax(quantise(bus_units(chip, volts), step_units(bus_adc(chip)), full_scale), 0.0);
	}
}

static void end_phase(struct ina219_emulated *chip)
{
	const int64_t end_ns = phase_end_ns(chip);

	convert(chip, end_ns);
	chip->phase_began_ns = end_ns;
	if (chip->phase == INA219_SHUNT_CONVERSION && (mode(chip) & MODE_BUS) != 0) {
		chip->phase = INA219_BUS_CONVERSION;
		return;
	}
	multiply(chip);
	chip->conversion_ready = true;
	chip->phase = (mode(chip) & MODE_CONTINUOUS) != 0 ? first_phase(chip) : INA219_IDLE;
}

static void reset(struct ina219_emulated *chip)
{
	chip->config = FSJ_INA219_CONFIG_RESET_VALUE;
	chip->calibration = 0;
	chip->shunt = 0;
	chip->bus = 0;
	chip->power = 0;
	chip->current = 0;
	chip->overflow = false;
}

/* Writing CONFIG ends the conversion under way and begins anew; it also clears CNVR. */
static void restart(struct ina219_emulated *chip)
{
	chip->conversion_ready = false;
	chip->phase = first_phase(chip);
	chip->phase_began_ns = chip->now_ns;
}

void ina219_emulated_init(struct ina219_emulated *chip, uint32_t shunt_uohm, struct ina219_source source,
			  int64_t now_ns)
{
	memset(chip, 0, sizeof(*chip));
	chip->source = source;
	chip->shunt_ohm = (double)shunt_uohm * 1e-6;
	chip->now_ns = now_ns;
	reset(chip);
	restart(chip);
}

void ina219_emulated_err(struct ina219_emulated *chip, const struct ina219_errors *errors)
{
	chip->errors = *errors;
	chip->random = errors->seed;
}

void ina219_emulated_advance(struct ina219_emulated *chip, int64_t now_ns)
{
	if (now_ns < chip->now_ns) {
		return;
	}
	while (chip->phase != INA219_IDLE && phase_end_ns(chip) <= now_ns) {
		end_phase(chip);
	}
	chip->now_ns = now_ns;
}

int ina219_emulated_write(void *context, uint8_t reg, uint16_t value)
{
	struct ina219_emulated *chip = context;

	ina219_emulated_advance(chip, chip->now_ns + chip->errors.transfer_ns);
	switch (reg) {
	case FSJ_INA219_CONFIG:
		if ((value & FSJ_INA219_CONFIG_RST) != 0) {
			reset(chip);
		} else {
			chip->config = value;
		}
		restart(chip);
		return 0;
	case FSJ_INA219_CALIBRATION:
		/* Bit 0 is not a register bit and reads 0. */
		chip->calibration = (uint16_t)(value & 0xFFFEu);
		return 0;
	default:
		return -1;
	}
}

int ina219_emulated_read(void *context, uint8_t reg, uint16_t *value)
{
	struct ina219_emulated *chip = context;

	ina219_emulated_advance(chip, chip->now_ns + chip->errors.transfer_ns);
	switch (reg) {
	case FSJ_INA219_CONFIG:
		*value = chip->config;
		return 0;
	case FSJ_INA219_SHUNT:
		*value = (uint16_t)chip->shunt;
		return 0;
	case FSJ_INA219_BUS:
		*value = (uint16_t)(((unsigned int)chip->bus << FSJ_INA219_BUS_VALUE_SHIFT) |
				    (chip->conversion_ready ? FSJ_INA219_BUS_CNVR : 0) |
				    (chip->overflow ? FSJ_INA219_BUS_OVF : 0));
		return 0;
	case FSJ_INA219_POWER:
		*value = chip->power;
		chip->conversion_ready = false;
		return 0;
	case FSJ_INA219_CURRENT:
		*value = (uint16_t)chip->current;
		return 0;
	case FSJ_INA219_CALIBRATION:
		*value = chip->calibration;
		return 0;
	default:
		return -1;
	}
}
