# The host build's drivers; what is behind them is behind src/host/host.h.
target_sources(app PRIVATE
  ${METER_DIR}/src/host/bus_recovery.c
  ${METER_DIR}/src/host/chip_on_i2c.c
  ${METER_DIR}/src/host/clock.c
  ${METER_DIR}/src/host/host_uart.c
  ${METER_DIR}/src/host/identity.c
  ${METER_DIR}/src/host/pace.c
)
target_include_directories(app PRIVATE ${METER_DIR}/src/host)
