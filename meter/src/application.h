/** @file
 * The meter as a whole.
 */
#ifndef FSJOULE_APP_APPLICATION_H
#define FSJOULE_APP_APPLICATION_H

/** Start everything. The meter then runs by itself.
 *
 * @return 0, or a negative errno if a device is missing
 */
int application_start(void);

#endif
