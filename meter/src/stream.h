/** @file
 * The line to the host: frames out, commands in.
 */
#ifndef FSJOULE_APP_STREAM_H
#define FSJOULE_APP_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Be ready to send, and listen to commands.
 *
 * @return 0, or a negative errno
 */
int stream_start(void);

/** Send a frame whole, or not at all where there is no room for it. While nobody has the other end open it goes nowhere.
 * The signature is that of struct fsj_output.
 */
bool stream_frame(void *context, const uint8_t *bytes, size_t size);

#endif
