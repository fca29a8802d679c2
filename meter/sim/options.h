/** @file
 * The command line.
 */
#ifndef FSJOULE_SIM_OPTIONS_H
#define FSJOULE_SIM_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "fsjoule/settings.h"
#include "ina219_emulated.h"

struct options {
	const char *stream_link;
	const char *marks_link;
	const char *pin_link; /**< NULL: nothing is wired to the mark pin */
	const char *feed; /**< this, `replay`, `follow`, or else a constant load */
	const char *replay;
	const char *follow;
	bool has_load;
	double load_volts;
	double load_amperes;
	struct fsj_settings settings; /**< unless others are stored */
	const char *storage; /**< NULL: none */
	bool is_ina228; /**< the chip is not an INA219 */
	struct ina219_errors errors;
	const char *serial_number;
	bool help; /**< only the usage was asked for, and printed */
};

/** Read the command line; says on stderr what is wrong with it.
 *
 * @retval false  it cannot be followed
 */
bool options_parse(struct options *options, int argc, char **argv);

#endif
