#include "application.h"

/* A meter without one of its devices stays dark and silent. */
int main(void)
{
	return application_start();
}
