#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsjoule/frame.h"

/* A conversion takes up to 890 us; a faster tick would find none. */
#define RATE_MAX_HZ 1100

static const char usage[] =
	"usage: fsjoule-meter-sim --stream-link PATH --marks-link PATH (--feed PATH | --load VOLTS,AMPERES) [options]\n"
	"\n"
	"The fsjoule meter's firmware core around an emulated INA219, on two pseudo terminals.\n"
	"\n"
	"  --stream-link PATH     link to be made to the terminal that carries the frames\n"
	"  --marks-link PATH      link to be made to the terminal that takes the board's marks\n"
	"  --feed PATH            ring file in which a virtual board says what it draws\n"
	"  --load VOLTS,AMPERES   a constant load instead of a feed\n"
	"  --shunt-uohm N         shunt resistor in microohm, 1000 to 1000000 (100000)\n"
	"  --rate-hz N            samples a second, 10 to 1100 (1000)\n"
	"  --serial-number TEXT   at most 16 printable characters (SIM0)\n";

static bool complain(const char *option, const char *value, const char *right)
{
	fprintf(stderr, "fsjoule-meter-sim: --%s %s: must be %s\n", option, value, right);
	return false;
}

static bool parse_number(const char *text, long low, long high, uint32_t *number)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || value < low || value > high) {
		return false;
	}
	*number = (uint32_t)value;
	return true;
}

static bool parse_load(const char *text, double *volts, double *amperes)
{
	char *end;

	*volts = strtod(text, &end);
	if (end == text || *end != ',' || !(*volts >= 0.0 && *volts <= 16.0)) {
		return false;
	}
	text = end + 1;
	*amperes = strtod(text, &end);
	return end != text && *end == '\0' && *amperes >= -1000.0 && *amperes <= 1000.0;
}

static bool printable(const char *text)
{
	for (; *text != '\0'; text++) {
		if (*text < 0x20 || *text > 0x7E) {
			return false;
		}
	}
	return true;
}

static bool take(struct options *options, int option, const char *value, bool *has_load)
{
	switch (option) {
	case 's':
		options->stream_link = value;
		return true;
	case 'm':
		options->marks_link = value;
		return true;
	case 'f':
		options->feed = value;
		return true;
	case 'l':
		*has_load = true;
		return parse_load(value, &options->load_volts, &options->load_amperes) ||
		       complain("load", value, "volts (0 to 16) and amperes, as in 5.0,0.25");
	case 'o':
		return parse_number(value, 1000, 1000000, &options->shunt_uohm) ||
		       complain("shunt-uohm", value, "a number from 1000 to 1000000");
	case 'r':
		return parse_number(value, 10, RATE_MAX_HZ, &options->rate_hz) ||
		       complain("rate-hz", value, "a number from 10 to 1100");
	case 'n':
		options->serial_number = value;
		return (strlen(value) > 0 && strlen(value) <= FSJ_NAME_BYTES && printable(value)) ||
		       complain("serial-number", value, "1 to 16 printable characters");
	default:
		fputs(usage, stderr);
		return false;
	}
}

bool options_parse(struct options *options, int argc, char **argv)
{
	static const struct option names[] = {
		{"stream-link", required_argument, NULL, 's'}, {"marks-link", required_argument, NULL, 'm'},
		{"feed", required_argument, NULL, 'f'},        {"load", required_argument, NULL, 'l'},
		{"shunt-uohm", required_argument, NULL, 'o'},  {"rate-hz", required_argument, NULL, 'r'},
		{"serial-number", required_argument, NULL, 'n'}, {"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	bool has_load = false;
	int option;

	*options = (struct options){.shunt_uohm = 100000, .rate_hz = 1000, .serial_number = "SIM0"};
	while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (option == 'h') {
			fputs(usage, stdout);
			options->help = true;
			return true;
		}
		if (!take(options, option, optarg, &has_load)) {
			return false;
		}
	}
	if (optind != argc || options->stream_link == NULL || options->marks_link == NULL ||
	    (options->feed != NULL) == has_load) {
		fputs(usage, stderr);
		return false;
	}
	return true;
}
