/** @file
 * UARTs whose other end is a terminal of the host, with the interrupt-driven part of Zephyr's UART interface.
 */
#ifndef FSJOULE_APP_HOST_UART_H
#define FSJOULE_APP_HOST_UART_H

/** A millisecond has begun: send for a millisecond, and look when what has arrived is due. */
void host_uart_poll(void);

#endif
