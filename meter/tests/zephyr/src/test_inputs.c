#include <zephyr/drivers/uart.h>
#include <zephyr/ztest.h>

#include "clock.h"
#include "core_calls.h"
#include "fsjoule/meter.h"
#include "kernel_tick.h"
#include "watching.h"

#define MORE 100

/* Longer than the queue has room for, while the chip holds the bus and the sampling thread waits. */
static void flood(uint64_t time_us)
{
	for (int i = 0; i < CONFIG_FSJOULE_QUEUE_EVENTS + MORE; i++) {
		made_host_arrive(HOST_MARKS, time_us, "a", 1);
	}
}

ZTEST(inputs, test_what_has_no_room_is_counted_before_the_next_event)
{
	const uint64_t now_us = clock_us();
	const uint32_t lost = follower.info.inputs.events_lost;

	core_calls = (struct core_calls){0};
	made_host.lost_until_us = now_us + 100000;
	flood(now_us + 20000);
	/* The queue has room again only when the thread goes on. */
	made_host_arrive(HOST_MARKS, now_us + 200000, "b", 1);
	watch(150);
	zassert_equal(core_calls.bytes, CONFIG_FSJOULE_QUEUE_EVENTS);
	/* Told at the next tick, although nothing has come since. */
	zassert_equal(core_calls.lost, MORE);
	zassert_equal(core_calls.bytes_before_loss, CONFIG_FSJOULE_QUEUE_EVENTS);
	watch(150);
	zassert_equal(core_calls.bytes, CONFIG_FSJOULE_QUEUE_EVENTS + 1);
	zassert_equal(core_calls.lost, MORE);
	/* And the host knows within a second. */
	watch(1100);
	zassert_equal(follower.info.inputs.events_lost, lost + MORE);
}

ZTEST(inputs, test_nothing_is_lost_while_there_is_room)
{
	core_calls = (struct core_calls){0};
	for (int i = 0; i < CONFIG_FSJOULE_QUEUE_EVENTS / 2; i++) {
		made_host_arrive(HOST_MARKS, clock_us(), "a", 1);
	}
	watch(50);
	zassert_equal(core_calls.bytes, CONFIG_FSJOULE_QUEUE_EVENTS / 2);
	zassert_equal(core_calls.lost, 0);
}

ZTEST(inputs, test_errors_of_the_uart_come_before_their_byte)
{
	static const struct {
		int uart;
		uint8_t core;
	} errors[] = {
		{UART_ERROR_FRAMING, FSJ_UART_FRAMING},
		{UART_BREAK, FSJ_UART_FRAMING},
		{UART_ERROR_OVERRUN, FSJ_UART_OVERRUN},
		{UART_ERROR_NOISE, FSJ_UART_NOISE},
		{UART_ERROR_OVERRUN | UART_ERROR_NOISE, FSJ_UART_OVERRUN | FSJ_UART_NOISE},
	};

	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		const uint64_t time_us = clock_us() + 5000;

		core_calls = (struct core_calls){0};
		made_host_arrive(HOST_MARKS, clock_us(), "S1", 2);
		watch(2);
		made_host.mark_errors = errors[i].uart;
		made_host_arrive(HOST_MARKS, time_us, "2\n", 2);
		watch(200);
		zassert_equal(core_calls.errors, errors[i].core, "%d", errors[i].uart);
		zassert_equal(core_calls.bytes_before_error, 2);
		zassert_equal(core_calls.bytes, 4);
		zassert_within(core_calls.error_time_us, time_us, KERNEL_TICK_US);
	}
}

ZTEST_SUITE(inputs, NULL, begin, begin_test, NULL, NULL);
