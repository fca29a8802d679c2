#include "identity.h"

#include "host.h"

bool identity_simulated(void)
{
	return true;
}

struct fsj_settings identity_settings(void)
{
	return *host_settings();
}

const char *identity_serial_number(void)
{
	return host_serial_number();
}

enum fsj_reset_cause identity_reset_cause(void)
{
	return FSJ_RESET_POWER;
}

uint32_t identity_first_stream_id(void)
{
	return host_random();
}
