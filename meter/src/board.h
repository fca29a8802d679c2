/** @file
 * The devices that the device tree gives the meter.
 */
#ifndef FSJOULE_APP_BOARD_H
#define FSJOULE_APP_BOARD_H

#include <zephyr/devicetree.h>

#define BOARD_METER DT_INST(0, fsjoule_meter)
#define BOARD_STREAM_UART DT_PHANDLE(BOARD_METER, stream_uart)
#define BOARD_MARK_UART DT_PHANDLE(BOARD_METER, mark_uart)
#define BOARD_CURRENT_MONITOR DT_PHANDLE(BOARD_METER, current_monitor)

#endif
