/** @file
 * How a program that stands for a meter runs on its host.
 */
#ifndef FSJOULE_EMULATED_PROCESS_H
#define FSJOULE_EMULATED_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/** End when `parent`, which started this program, ends.
 *
 * @retval false  it has ended already
 */
bool process_end_with(pid_t parent);

/** Ask for real-time priority: a real meter does not wait for a host's scheduler. Without the right to it, the program
 * says so and goes on as it is.
 */
void process_ask_for_priority(const char *program);

#endif
