/** @file
 * The mark line and the mark pin: what arrives goes into the queue of events with its time.
 */
#ifndef FSJOULE_APP_MARKS_H
#define FSJOULE_APP_MARKS_H

/** Listen.
 *
 * @return 0, or a negative errno
 */
int marks_start(void);

#endif
