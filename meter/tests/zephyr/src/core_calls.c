#include "core_calls.h"

#include "fsjoule/meter.h"

struct core_calls core_calls;

void __real_fsj_meter_mark_byte(struct fsj_meter *meter, uint8_t byte, uint64_t time_us);
void __real_fsj_meter_mark_error(struct fsj_meter *meter, uint8_t errors, uint64_t time_us);
void __real_fsj_meter_events_lost(struct fsj_meter *meter, uint32_t count, uint64_t time_us);

void __wrap_fsj_meter_mark_byte(struct fsj_meter *meter, uint8_t byte, uint64_t time_us);
void __wrap_fsj_meter_mark_error(struct fsj_meter *meter, uint8_t errors, uint64_t time_us);
void __wrap_fsj_meter_events_lost(struct fsj_meter *meter, uint32_t count, uint64_t time_us);

void __wrap_fsj_meter_mark_byte(struct fsj_meter *meter, uint8_t byte, uint64_t time_us)
{
	core_calls.bytes++;
	__real_fsj_meter_mark_byte(meter, byte, time_us);
}

void __wrap_fsj_meter_mark_error(struct fsj_meter *meter, uint8_t errors, uint64_t time_us)
{
	core_calls.errors |= errors;
	core_calls.bytes_before_error = core_calls.bytes;
	core_calls.error_time_us = time_us;
	__real_fsj_meter_mark_error(meter, errors, time_us);
}

void __wrap_fsj_meter_events_lost(struct fsj_meter *meter, uint32_t count, uint64_t time_us)
{
	core_calls.lost += count;
	core_calls.bytes_before_loss = core_calls.bytes;
	core_calls.loss_time_us = time_us;
	__real_fsj_meter_events_lost(meter, count, time_us);
}
