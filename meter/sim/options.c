#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsjoule/frame.h"

static const char usage[] =
	"usage: fsjoule-meter-sim --stream-link PATH --marks-link PATH (--feed PATH | --load VOLTS,AMPERES) [options]\n"
	"       fsjoule-meter-sim --replay PATH [options] > STREAM\n"
	"       fsjoule-meter-sim --stream-link PATH --follow PATH [options]\n"
	"\n"
	"The fsjoule meter's firmware core around an emulated INA219 or INA228: on two pseudo terminals in real time, with what a\n"
	"board drew in a file as fast as it can, or on one terminal in the time of a board that says how late it is.\n"
	"\n"
	"  --stream-link PATH      link to be made to the terminal that carries frames and commands\n"
	"  --marks-link PATH       link to be made to the terminal that takes the board's marks\n"
	"  --pin-link PATH         link to be made to the terminal that takes the mark pin's levels, 0 and 1\n"
	"  --feed PATH             ring file in which a virtual board says what it draws\n"
	"  --load VOLTS,AMPERES    a constant load instead of a feed\n"
	"  --replay PATH           records as in a feed, one after the other; the stream goes to stdout\n"
	"  --follow PATH           FIFO in which a board says, in its own time, what it draws and what it marks\n"
	"  --rate-hz N             samples a second, 100 to 2000, a divisor of a million (625)\n"
	"  --range-mv N            full scale of the shunt voltage: 40, 80, 160 or 320 (80)\n"
	"  --shunt-uohm N          shunt resistor in microohm, 1000 to 1000000 (100000)\n"
	"  --storage PATH          file that keeps saved settings, which go before these options\n"
	"  --chip NAME             ina219 or ina228 (ina219)\n"
	"  --chip-offset-uv X      what the chip reads of the shunt at no load (0)\n"
	"  --chip-gain-ppm X       it reads the shunt's voltage too large by this (0)\n"
	"  --chip-bus-gain-ppm X   the same of the bus voltage (0)\n"
	"  --chip-noise-uv X       standard deviation of one conversion of the shunt's voltage (0)\n"
	"  --chip-seed N           seed of the noise (0)\n"
	"  --serial-number TEXT    at most 16 printable characters (SIM0)\n";

enum {
	STREAM_LINK = 1,
	MARKS_LINK,
	PIN_LINK,
	FEED,
	LOAD,
	REPLAY,
	FOLLOW,
	RATE,
	RANGE,
	SHUNT,
	STORAGE,
	CHIP,
	CHIP_OFFSET,
	CHIP_GAIN,
	CHIP_BUS_GAIN,
	CHIP_NOISE,
	CHIP_SEED,
	SERIAL_NUMBER,
	HELP,
};

static const struct option names[] = {
	{"stream-link", required_argument, NULL, STREAM_LINK},
	{"marks-link", required_argument, NULL, MARKS_LINK},
	{"pin-link", required_argument, NULL, PIN_LINK},
	{"feed", required_argument, NULL, FEED},
	{"load", required_argument, NULL, LOAD},
	{"replay", required_argument, NULL, REPLAY},
	{"follow", required_argument, NULL, FOLLOW},
	{"rate-hz", required_argument, NULL, RATE},
	{"range-mv", required_argument, NULL, RANGE},
	{"shunt-uohm", required_argument, NULL, SHUNT},
	{"storage", required_argument, NULL, STORAGE},
	{"chip", required_argument, NULL, CHIP},
	{"chip-offset-uv", required_argument, NULL, CHIP_OFFSET},
	{"chip-gain-ppm", required_argument, NULL, CHIP_GAIN},
	{"chip-bus-gain-ppm", required_argument, NULL, CHIP_BUS_GAIN},
	{"chip-noise-uv", required_argument, NULL, CHIP_NOISE},
	{"chip-seed", required_argument, NULL, CHIP_SEED},
	{"serial-number", required_argument, NULL, SERIAL_NUMBER},
	{"help", no_argument, NULL, HELP},
	{NULL, 0, NULL, 0},
};

/* ------------------------------------------------------------------------------------------------------ values */

static bool parse_number(const char *text, uint32_t low, uint32_t high, uint32_t *number)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || value < (long long)low || value > (long long)high) {
		return false;
	}
	*number = (uint32_t)value;
	return true;
}

static bool parse_real(const char *text, double low, double high, double *number)
{
	char *end;

	*number = strtod(text, &end);
	return end != text && *end == '\0' && *number >= low && *number <= high;
}

static bool parse_load(const char *text, double *volts, double *amperes)
{
	char *end;

	*volts = strtod(text, &end);
	return end != text && *end == ',' && *volts >= 0.0 && *volts <= 26.0 &&
	       parse_real(end + 1, -1000.0, 1000.0, amperes);
}

static bool parse_range(const char *text, enum fsj_ina219_range *range)
{
	uint32_t range_mv;

	if (!parse_number(text, 40, 320, &range_mv)) {
		return false;
	}
	for (int i = FSJ_INA219_RANGE_40MV; i <= FSJ_INA219_RANGE_320MV; i++) {
		if (fsj_ina219_range_mv((enum fsj_ina219_range)i) == range_mv) {
			*range = (enum fsj_ina219_range)i;
			return true;
		}
	}
	return false;
}

static bool parse_rate(const char *text, uint32_t *rate_hz)
{
	return parse_number(text, FSJ_RATE_MIN_HZ, FSJ_RATE_MAX_HZ, rate_hz) && 1000000 % *rate_hz == 0;
}

static bool is_name(const char *text)
{
	const size_t length = strlen(text);

	for (size_t i = 0; i < length; i++) {
		if (text[i] < 0x20 || text[i] > 0x7E) {
			return false;
		}
	}
	return length > 0 && length <= FSJ_NAME_BYTES;
}

/* ----------------------------------------------------------------------------------------------------- options */

/* What the option's value must be; NULL if it is. */
static const char *take_number(struct options *options, int option, const char *value)
{
	struct ina219_errors *errors = &options->errors;
	uint32_t seed = 0;

	switch (option) {
	case LOAD:
		options->has_load = true;
		return parse_load(value, &options->load_volts, &options->load_amperes)
			       ? NULL
			       : "volts (0 to 26) and amperes, as in 5.0,0.25";
	case RATE:
		return parse_rate(value, &options->settings.rate_hz) ? NULL
								     : "a divisor of a million from 100 to 2000";
	case RANGE:
		return parse_range(value, &options->settings.range) ? NULL : "40, 80, 160 or 320";
	case SHUNT:
		return parse_number(value, FSJ_SHUNT_MIN_UOHM, FSJ_SHUNT_MAX_UOHM, &options->settings.shunt_uohm)
			       ? NULL
			       : "a number from 1000 to 1000000";
	case CHIP_OFFSET:
		return parse_real(value, -10000, 10000, &errors->offset_uv) ? NULL : "a number from -10000 to 10000";
	case CHIP_GAIN:
		return parse_real(value, -1e5, 1e5, &errors->gain_ppm) ? NULL : "a number from -100000 to 100000";
	case CHIP_BUS_GAIN:
		return parse_real(value, -1e5, 1e5, &errors->bus_gain_ppm) ? NULL : "a number from -100000 to 100000";
	case CHIP_NOISE:
		return parse_real(value, 0, 10000, &errors->noise_uv) ? NULL : "a number from 0 to 10000";
	case CHIP_SEED:
		if (!parse_number(value, 0, UINT32_MAX, &seed)) {
			return "a number from 0 to 4294967295";
		}
		errors->seed = seed;
		return NULL;
	default:
		return "known";
	}
}

static const char *take(struct options *options, int option, const char *value)
{
	switch (option) {
	case STREAM_LINK:
		options->stream_link = value;
		return NULL;
	case MARKS_LINK:
		options->marks_link = value;
		return NULL;
	case PIN_LINK:
		options->pin_link = value;
		return NULL;
	case FEED:
		options->feed = value;
		return NULL;
	case REPLAY:
		options->replay = value;
		return NULL;
	case FOLLOW:
		options->follow = value;
		return NULL;
	case STORAGE:
		options->storage = value;
		return NULL;
	case CHIP:
		options->is_ina228 = strcmp(value, "ina228") == 0;
		return options->is_ina228 || strcmp(value, "ina219") == 0 ? NULL : "ina219 or ina228";
	case SERIAL_NUMBER:
		options->serial_number = value;
		return is_name(value) ? NULL : "1 to 16 printable characters";
	default:
		return take_number(options, option, value);
	}
}

/* There is one source of power. A file that is replayed needs no terminals; a board that is followed tells its marks, too.
 */
static bool make_sense(const struct options *options)
{
	const int sources = (options->feed != NULL) + (options->replay != NULL) + (options->follow != NULL) +
			    options->has_load;
	const bool wants_stream = options->replay == NULL;
	const bool wants_marks = wants_stream && options->follow == NULL;

	return sources == 1 && (options->stream_link != NULL) == wants_stream &&
	       (options->marks_link != NULL) == wants_marks && (options->pin_link == NULL || wants_marks);
}

bool options_parse(struct options *options, int argc, char **argv)
{
	int option;
	int index = 0;

	*options = (struct options){
		.settings = FSJ_SETTINGS_DEFAULT,
		.serial_number = "SIM0",
	};
	while ((option = getopt_long(argc, argv, "", names, &index)) != -1) {
		const char *right;

		if (option == HELP) {
			fputs(usage, stdout);
			options->help = true;
			return true;
		}
		if (option == '?') {
			fputs(usage, stderr);
			return false;
		}
		right = take(options, option, optarg);
		if (right != NULL) {
			fprintf(stderr, "fsjoule-meter-sim: --%s %s: must be %s\n", names[index].name, optarg, right);
			return false;
		}
	}
	if (optind != argc || !make_sense(options)) {
		fputs(usage, stderr);
		return false;
	}
	return true;
}
