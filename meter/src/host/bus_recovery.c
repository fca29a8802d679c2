#include "bus_recovery.h"

#include <errno.h>
#include <zephyr/sys/util.h>

#include "host.h"

int bus_recovery_run(const struct device *bus)
{
	ARG_UNUSED(bus);
	return host_chip_recover() == 0 ? 0 : -EBUSY;
}
