# The host build: Zephyr drivers of ours, and what is behind them, which knows no Zephyr.
include(${CMAKE_CURRENT_LIST_DIR}/host_drivers.cmake)

set(host_sources
  ${METER_DIR}/emulated/feed.c
  ${METER_DIR}/emulated/ina219_emulated.c
  ${METER_DIR}/emulated/mark_port.c
  ${METER_DIR}/emulated/noise.c
  ${METER_DIR}/emulated/power_records.c
  ${METER_DIR}/emulated/process.c
  ${METER_DIR}/emulated/pty.c
  ${METER_DIR}/emulated/stream_port.c
  ${METER_DIR}/emulated/timed_bytes.c
  ${METER_DIR}/sim/options.c
  ${METER_DIR}/src/host/host.c
  ${METER_DIR}/src/host/host_main.c
)
set(host_directories ${METER_DIR}/emulated ${METER_DIR}/sim ${METER_DIR}/src/host ${METER_DIR}/lib/include)

# The tests of the firmware have both chips.
dt_comp_path(ina228 COMPATIBLE "fsjoule,ina228")
if(ina228)
  message(FATAL_ERROR "the host's program has an emulated INA219 only")
endif()

# The firmware is one object, and the host's side belongs to the program that runs it. The two share no symbols, so the
# one function of the core that the emulated chip uses is there once more.
list(TRANSFORM host_directories PREPEND -I)
target_sources(native_simulator INTERFACE ${host_sources} ${METER_DIR}/lib/src/ina219.c)
# Empty, as Zephyr's own sources define it: any other value would be a second definition.
target_compile_options(native_simulator INTERFACE -D_GNU_SOURCE= -O2 ${host_directories})
target_link_options(native_simulator INTERFACE -Wl,--wrap=main)
