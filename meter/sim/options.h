/** @file
 * The command line.
 */
#ifndef FSJOULE_SIM_OPTIONS_H
#define FSJOULE_SIM_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct options {
	const char *stream_link;
	const char *marks_link;
	const char *feed; /**< NULL with a constant load */
	double load_volts;
	double load_amperes;
	uint32_t shunt_uohm;
	uint32_t rate_hz;
	const char *serial_number;
	bool help; /**< only the usage was asked for, and printed */
};

/** Read the command line; says on stderr what is wrong with it.
 *
 * @retval false  it cannot be followed
 */
bool options_parse(struct options *options, int argc, char **argv);

#endif
