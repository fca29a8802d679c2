/** @file
 * An instrument whose clock is the board's own: it goes as far as the board has told what it draws, and stands still with
 * it.
 */
#ifndef FSJOULE_SIM_FOLLOWER_H
#define FSJOULE_SIM_FOLLOWER_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "instrument.h"
#include "options.h"
#include "power_records.h"
#include "storage_file.h"
#include "stream_port.h"
#include "supply_line.h"
#include "timed_bytes.h"

struct follower {
	const struct options *options;
	struct supply_line supply;
	struct power_records records;
	struct timed_bytes marks; /**< that are later than what is known of the supply */
	struct instrument instrument;
	struct stream_port stream;
	struct storage_file storage;
	int64_t newest_ns; /**< of the meter: until when the supply is known */
	int64_t power_on_ns; /**< of the meter, when the board's time was 0 */
	int64_t sent_ns; /**< CLOCK_MONOTONIC, when the last frame was sent */
};

/** Open the port, start the meter, then make the link: it says that it is ready. `options` must outlive it.
 *
 * @retval false  stderr says why not
 */
bool follower_open(struct follower *follower, const struct options *options);

/** Run until `*stop` is set by a signal that `wait_mask` lets through. */
void follower_run(struct follower *follower, const volatile sig_atomic_t *stop, const sigset_t *wait_mask);

/** Remove the link, say what was done, release everything. */
void follower_close(struct follower *follower);

#endif
