#include "instrument.h"

#include <string.h>
#include <sys/random.h>

#include "monotonic.h"

/* The wire is a terminal that a busy host may hold up between two bytes: a mark must not be torn by that. */
#define MARK_SILENCE_US 100000u

static int64_t period_ns(const struct instrument *in)
{
	return (int64_t)fsj_meter_period_us(&in->meter) * 1000;
}

static uint64_t meter_us(const struct instrument *in, int64_t time_ns)
{
	return (uint64_t)(time_ns - in->start_ns) / 1000u;
}

static uint32_t random_number(void)
{
	uint32_t number;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
		number = (uint32_t)monotonic_ns();
	}
	return number;
}

/* The resistor is what it is, whatever settings are stored. */
static struct fsj_i2c start_chip(struct instrument *in, const struct options *options, struct ina219_source source,
				 int64_t start_ns)
{
	const uint32_t shunt_uohm = options->settings.shunt_uohm;

	in->is_ina228 = options->is_ina228;
	if (in->is_ina228) {
		ina228_emulated_init(&in->ina228, shunt_uohm, source, start_ns);
		ina228_emulated_err(&in->ina228, &options->errors);
		return (struct fsj_i2c){
			.write_register = ina228_emulated_write,
			.read_register = ina228_emulated_read,
			.read_bytes = ina228_emulated_read_bytes,
			.context = &in->ina228,
		};
	}
	ina219_emulated_init(&in->ina219, shunt_uohm, source, start_ns);
	ina219_emulated_err(&in->ina219, &options->errors);
	return (struct fsj_i2c){
		.write_register = ina219_emulated_write,
		.read_register = ina219_emulated_read,
		.context = &in->ina219,
	};
}

static void advance_chip(struct instrument *in, int64_t now_ns)
{
	if (in->is_ina228) {
		ina228_emulated_advance(&in->ina228, now_ns);
	} else {
		ina219_emulated_advance(&in->ina219, now_ns);
	}
}

void instrument_start(struct instrument *in, const struct options *options, struct ina219_source source,
		      const struct fsj_output *output, const struct fsj_storage *storage, int64_t start_ns)
{
	const struct fsj_storage none = {0};
	const struct fsj_meter_config config = {
		.defaults = options->settings,
		.chip = options->is_ina228 ? &fsj_chip_ina228 : &fsj_chip_ina219,
		.mark_silence_us = MARK_SILENCE_US,
		.simulated = true,
		.serial_number = options->serial_number,
		.first_stream_id = random_number(),
		.reset_cause = FSJ_RESET_POWER,
	};

	struct fsj_i2c i2c;

	memset(in, 0, sizeof(*in));
	in->start_ns = start_ns;
	in->tick_ns = start_ns;
	i2c = start_chip(in, options, source, start_ns);
	fsj_meter_start(&in->meter, &config, &i2c, output, storage == NULL ? &none : storage);
	in->streams = fsj_meter_streams(&in->meter);
}

/* The first tick of a stream begins with it, on a whole microsecond of the meter's clock. */
static void follow_stream(struct instrument *in, int64_t time_ns)
{
	if (fsj_meter_streams(&in->meter) != in->streams) {
		in->streams = fsj_meter_streams(&in->meter);
		in->tick_ns = in->start_ns + (int64_t)meter_us(in, time_ns) * 1000;
		in->lost_ticks = 0;
	}
}

int64_t instrument_tick_end_ns(const struct instrument *in)
{
	return in->tick_ns + period_ns(in);
}

void instrument_tick(struct instrument *in)
{
	const int64_t end_ns = instrument_tick_end_ns(in);
	const uint32_t elapsed = in->lost_ticks + 1;

	advance_chip(in, end_ns);
	in->tick_ns = end_ns;
	in->lost_ticks = 0;
	fsj_meter_tick(&in->meter, elapsed, meter_us(in, end_ns));
	follow_stream(in, end_ns);
}

void instrument_lose(struct instrument *in, int64_t until_ns)
{
	while (in->tick_ns < until_ns) {
		in->tick_ns += period_ns(in);
		in->lost_ticks++;
	}
}

void instrument_mark_byte(struct instrument *in, uint8_t byte, int64_t time_ns)
{
	fsj_meter_mark_byte(&in->meter, byte, meter_us(in, time_ns));
}

void instrument_pin_level(struct instrument *in, uint8_t level, int64_t time_ns)
{
	const bool high = level == '1';

	if ((high || level == '0') && high != in->pin_high) {
		in->pin_high = high;
		fsj_meter_mark_edge(&in->meter, high, meter_us(in, time_ns));
	}
}

void instrument_command_byte(struct instrument *in, uint8_t byte, int64_t time_ns)
{
	advance_chip(in, time_ns);
	fsj_meter_command_byte(&in->meter, byte, meter_us(in, time_ns));
	follow_stream(in, time_ns);
}
