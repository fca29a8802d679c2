/** @file
 * The meter's core, an emulated INA219, two ports and a clock, run together in real time.
 */
#ifndef FSJOULE_SIM_SIMULATOR_H
#define FSJOULE_SIM_SIMULATOR_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "feed.h"
#include "fsjoule/meter.h"
#include "ina219_emulated.h"
#include "mark_port.h"
#include "options.h"
#include "stream_port.h"

struct simulator {
	const struct options *options;
	struct feed feed;
	struct ina219_emulated chip;
	struct fsj_meter meter;
	struct stream_port stream;
	struct mark_port marks;
	int64_t start_ns; /**< CLOCK_MONOTONIC at the meter's time 0 */
	uint64_t next_tick;
};

/** Open the ports, start the meter, then make the links: they say that it is ready. `options` must outlive it.
 *
 * @retval false  stderr says why not
 */
bool simulator_open(struct simulator *simulator, const struct options *options);

/** Run until `*stop` is set by a signal that `wait_mask` lets through. */
void simulator_run(struct simulator *simulator, const volatile sig_atomic_t *stop, const sigset_t *wait_mask);

/** Remove the links, say what was done, release everything. */
void simulator_close(struct simulator *simulator);

#endif
