/** @file
 * An instrument, its ports and a clock, run together in real time.
 */
#ifndef FSJOULE_SIM_SIMULATOR_H
#define FSJOULE_SIM_SIMULATOR_H

#include <signal.h>
#include <stdbool.h>

#include "feed.h"
#include "instrument.h"
#include "mark_port.h"
#include "options.h"
#include "storage_file.h"
#include "stream_port.h"

struct simulator {
	const struct options *options;
	struct feed feed;
	struct instrument instrument;
	struct stream_port stream;
	struct mark_port marks;
	struct mark_port pin; /**< open if `options->pin_link` */
	struct storage_file storage;
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
