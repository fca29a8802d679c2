#include "ina228_emulated.h"

#include <math.h>
#include <string.h>

#include "fsjoule/ina228.h"
#include "noise.h"

#define BITS_MAX 524287.0

static int64_t mean_of(const struct ina228_emulated *chip)
{
	static const int64_t means[8] = {1, 4, 16, 64, 128, 256, 512, 1024};

	return means[chip->adc_config & 7u];
}

/* The fields of ADC_CONFIG, each of three bits. */
static int64_t conversion_ns(const struct ina228_emulated *chip, int shift)
{
	static const int64_t single_ns[8] = {50000, 84000, 150000, 280000, 540000, 1052000, 2074000, 4120000};
	const int64_t typical_ns = single_ns[((unsigned int)chip->adc_config >> shift) & 7u];

	return typical_ns + typical_ns * chip->errors.slow_ppm / 1000000;
}

static bool converts(const struct ina228_emulated *chip)
{
	return (unsigned int)chip->adc_config >> FSJ_INA228_MODE_SHIFT == FSJ_INA228_MODE_CONTINUOUS_BOTH;
}

static int32_t quantise(double value, double unit, double least)
{
	return (int32_t)fmin(fmax(nearbyint(value / unit), least), BITS_MAX);
}

static double shunt_v(struct ina228_emulated *chip, double amperes)
{
	const struct ina219_errors *errors = &chip->errors;
	const double deviation_uv = errors->noise_uv / sqrt((double)mean_of(chip));
	const double noise_uv = errors->noise_uv > 0.0 ? deviation_uv * noise_next(&chip->random) : 0.0;

	return amperes * chip->shunt_ohm * (1.0 + errors->gain_ppm * 1e-6) + (errors->offset_uv + noise_uv) * 1e-6;
}

static void convert_shunt(struct ina228_emulated *chip, double amperes)
{
	const bool fine = (chip->config & FSJ_INA228_CONFIG_ADCRANGE) != 0;

	chip->shunt = quantise(shunt_v(chip, amperes), fine ? 78.125e-9 : 312.5e-9, -BITS_MAX - 1.0);
}

static void convert_bus(struct ina228_emulated *chip, double volts)
{
	chip->bus = quantise(volts * (1.0 + chip->errors.bus_gain_ppm * 1e-6), 195.3125e-6, 0.0);
}

static void begin_turn(struct ina228_emulated *chip, int64_t now_ns)
{
	chip->phase_began_ns = now_ns;
	chip->converts_bus = false;
	chip->turns = 0;
	chip->amperes_sum = 0.0;
	chip->volts_sum = 0.0;
}

/* Shunt and bus take turns. A register changes when its own conversion ends; with a mean, both when the last one ends. */
static void end_phase(struct ina228_emulated *chip, int64_t end_ns)
{
	const int64_t count = mean_of(chip);
	double volts;
	double amperes;

	chip->source.mean(chip->source.context, chip->phase_began_ns, end_ns, &volts, &amperes);
	chip->phase_began_ns = end_ns;
	if (!chip->converts_bus) {
		chip->amperes_sum += amperes;
		chip->converts_bus = true;
		if (count == 1) {
			convert_shunt(chip, amperes);
		}
		return;
	}
	chip->volts_sum += volts;
	chip->converts_bus = false;
	chip->turns++;
	if (chip->turns == count) {
		if (count > 1) {
			convert_shunt(chip, chip->amperes_sum / (double)count);
		}
		convert_bus(chip, chip->volts_sum / (double)count);
		chip->conversion_ready = true;
		begin_turn(chip, end_ns);
	}
}

void ina228_emulated_reset(struct ina228_emulated *chip)
{
	chip->config = 0;
	chip->adc_config = FSJ_INA228_ADC_CONFIG_RESET_VALUE;
	chip->shunt_cal = FSJ_INA228_SHUNT_CAL_RESET_VALUE;
	chip->latched = false;
	chip->conversion_ready = false;
	begin_turn(chip, chip->now_ns);
}

void ina228_emulated_init(struct ina228_emulated *chip, uint32_t shunt_uohm, struct ina219_source source,
			  int64_t now_ns)
{
	memset(chip, 0, sizeof(*chip));
	chip->source = source;
	chip->shunt_ohm = (double)shunt_uohm * 1e-6;
	chip->device_id = FSJ_INA228_DEVICE << FSJ_INA228_DEVICE_SHIFT | 1u;
	chip->now_ns = now_ns;
	ina228_emulated_reset(chip);
}

void ina228_emulated_err(struct ina228_emulated *chip, const struct ina219_errors *errors)
{
	chip->errors = *errors;
	chip->random = errors->seed;
}

void ina228_emulated_advance(struct ina228_emulated *chip, int64_t now_ns)
{
	while (converts(chip)) {
		const int shift = chip->converts_bus ? FSJ_INA228_VBUSCT_SHIFT : FSJ_INA228_VSHCT_SHIFT;
		const int64_t end_ns = chip->phase_began_ns + conversion_ns(chip, shift);

		if (end_ns > now_ns) {
			break;
		}
		end_phase(chip, end_ns);
	}
	chip->now_ns = now_ns > chip->now_ns ? now_ns : chip->now_ns;
}

int ina228_emulated_write(void *context, uint8_t reg, uint16_t value)
{
	struct ina228_emulated *chip = context;

	switch (reg) {
	case FSJ_INA228_CONFIG:
		if ((value & FSJ_INA228_CONFIG_RST) != 0) {
			ina228_emulated_reset(chip);
		} else {
			chip->config = value;
		}
		return 0;
	case FSJ_INA228_ADC_CONFIG:
		chip->adc_config = value;
		chip->conversion_ready = false;
		begin_turn(chip, chip->now_ns);
		return 0;
	case FSJ_INA228_SHUNT_CAL:
		chip->shunt_cal = value & 0x7FFFu;
		return 0;
	case FSJ_INA228_DIAG_ALRT:
		chip->latched = (value & FSJ_INA228_ALATCH) != 0;
		return 0;
	default:
		return -1;
	}
}

int ina228_emulated_read(void *context, uint8_t reg, uint16_t *value)
{
	struct ina228_emulated *chip = context;

	switch (reg) {
	case FSJ_INA228_CONFIG:
		*value = chip->config;
		return 0;
	case FSJ_INA228_ADC_CONFIG:
		*value = chip->adc_config;
		return 0;
	case FSJ_INA228_SHUNT_CAL:
		*value = chip->shunt_cal;
		return 0;
	case FSJ_INA228_DIAG_ALRT:
		*value = (uint16_t)((chip->latched ? FSJ_INA228_ALATCH : 0u) |
				    (chip->conversion_ready ? FSJ_INA228_CNVRF : 0u));
		chip->conversion_ready = chip->conversion_ready && !chip->latched;
		return 0;
	case FSJ_INA228_DEVICE_ID:
		*value = chip->device_id;
		return 0;
	default:
		return -1;
	}
}

int ina228_emulated_read_bytes(void *context, uint8_t reg, uint8_t *bytes, size_t size)
{
	const struct ina228_emulated *chip = context;
	uint32_t bits;

	if (size != 3 || (reg != FSJ_INA228_VSHUNT && reg != FSJ_INA228_VBUS)) {
		return -1;
	}
	bits = (uint32_t)(reg == FSJ_INA228_VSHUNT ? chip->shunt : chip->bus) << 4;
	for (size_t i = 0; i < size; i++) {
		bytes[i] = (uint8_t)(bits >> (16 - 8 * i));
	}
	return 0;
}
