/** @file
 * What the host has for the firmware: a clock, two pseudo terminals and an emulated INA219.
 *
 * Neither Zephyr nor the host's C library show in it, so that both can include it: the drivers of this folder are built
 * for Zephyr, what is behind these functions for the host. All times are the meter's, in microseconds.
 */
#ifndef FSJOULE_APP_HOST_H
#define FSJOULE_APP_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsjoule/settings.h"

enum host_port { HOST_STREAM, HOST_MARKS };

/** Wait until the host's clock has reached `time_us`, and it is known what the board has drawn up to then. Meanwhile
 * take what arrives at the terminals.
 */
void host_wait_until(uint64_t time_us);

/** What the board drew before this time was lost; 0 if nothing was. */
uint64_t host_lost_until(void);

/** The firmware listens: let others find the terminal. */
void host_port_ready(enum host_port port);

/** When the oldest byte that was not read has arrived; UINT64_MAX if there is none. */
uint64_t host_port_next_us(enum host_port port);

/** Take the oldest byte if it has arrived by `now_us`. */
bool host_port_take(enum host_port port, uint64_t now_us, uint8_t *byte);

/** Errors of the line that had occurred by `now_us`, as enum uart_rx_stop_reason; each is told once. */
int host_port_errors(enum host_port port, uint64_t now_us);

/** Send to whoever has the stream's terminal open.
 *
 * @param size  at most HOST_WRITE_MAX
 * @retval false  the reader has no room for these bytes, and none were sent
 */
bool host_stream_write(const uint8_t *bytes, size_t size);

#define HOST_WRITE_MAX 100u

/** With CONFIG_UART_LINE_CTRL: whether anybody has the stream's terminal open. */
bool host_stream_is_open(void);

/** Write or read a register of the INA219 at a time that has not gone past what is known.
 *
 * @return 0, or something else if it does not answer
 */
int host_chip_write(uint64_t now_us, uint8_t reg, uint16_t value);
/** @copydoc host_chip_write */
int host_chip_read(uint64_t now_us, uint8_t reg, uint16_t *value);
/** The bytes of a register that has not 16 bits. @copydoc host_chip_write */
int host_chip_read_bytes(uint64_t now_us, uint8_t reg, uint8_t *bytes, size_t size);

/** Nine clocks and a STOP on its bus.
 *
 * @return 0, or something else if the bus is still held
 */
int host_chip_recover(void);

/** From the command line. */
const char *host_serial_number(void);
/** @copydoc host_serial_number */
const struct fsj_settings *host_settings(void);

uint32_t host_random(void);

#endif
