# The core, and the glue between it and Zephyr: the same in the firmware and in its tests.
set(METER_DIR ${CMAKE_CURRENT_LIST_DIR}/..)

add_subdirectory(${METER_DIR}/lib ${CMAKE_BINARY_DIR}/fsjoule_meter)
target_link_libraries(fsjoule_meter PRIVATE zephyr_interface)

target_include_directories(app PRIVATE ${METER_DIR}/src)
# Without those that Zephyr's own headers raise.
target_compile_options(app PRIVATE -Wextra -Wshadow -Wno-sign-compare -Wno-type-limits -Wno-unused-parameter)
target_link_libraries(app PRIVATE fsjoule_meter)
target_sources(app PRIVATE
  ${METER_DIR}/src/application.c
  ${METER_DIR}/src/chip_bus.c
  ${METER_DIR}/src/events.c
  ${METER_DIR}/src/led.c
  ${METER_DIR}/src/marks.c
  ${METER_DIR}/src/sampler.c
  ${METER_DIR}/src/storage.c
  ${METER_DIR}/src/stream.c
)
target_sources_ifdef(CONFIG_USB_DEVICE_STACK_NEXT app PRIVATE ${METER_DIR}/src/usb.c)
target_sources_ifdef(CONFIG_WATCHDOG app PRIVATE ${METER_DIR}/src/watchdog.c)
