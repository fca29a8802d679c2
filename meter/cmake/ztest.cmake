# Up to 3.6 ztest's present interface has to be asked for; later nothing else is there, nor the option. Before Zephyr.
if(NOT DEFINED ENV{ZEPHYR_BASE})
  message(FATAL_ERROR "set ZEPHYR_BASE, or use west")
endif()
file(STRINGS $ENV{ZEPHYR_BASE}/subsys/testsuite/ztest/Kconfig asked_for REGEX "^config ZTEST_NEW_API")
if(asked_for)
  list(APPEND CONF_FILE ${CMAKE_CURRENT_LIST_DIR}/ztest_new_api.conf)
endif()
