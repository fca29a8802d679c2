/* What arrives badly, from the mark line's UART and past a full queue, is counted. */

#include "bench.h"
#include "check.h"

static void test_errors_of_the_uart_are_counted_by_kind(void)
{
	bench_begin();
	fsj_meter_mark_error(&bench.meter, FSJ_UART_FRAMING, bench.now_us);
	fsj_meter_mark_error(&bench.meter, FSJ_UART_FRAMING | FSJ_UART_NOISE, bench.now_us);
	fsj_meter_mark_error(&bench.meter, FSJ_UART_OVERRUN, bench.now_us);
	CHECK_EQUAL(bench.meter.inputs.mark_framing, 2);
	CHECK_EQUAL(bench.meter.inputs.mark_overruns, 1);
	CHECK_EQUAL(bench.meter.inputs.mark_noise, 1);
	CHECK_EQUAL(bench.meter.inputs.events_lost, 0);
}

static void test_lost_events_are_counted(void)
{
	bench_begin();
	fsj_meter_events_lost(&bench.meter, 3, bench.now_us);
	fsj_meter_events_lost(&bench.meter, 4, bench.now_us);
	CHECK_EQUAL(bench.meter.inputs.events_lost, 7);
}

int main(void)
{
	test_errors_of_the_uart_are_counted_by_kind();
	test_lost_events_are_counted();
	return 0;
}
