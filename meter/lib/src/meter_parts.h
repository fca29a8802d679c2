/** @file
 * What the parts of the meter do for each other.
 */
#ifndef FSJOULE_SRC_METER_PARTS_H
#define FSJOULE_SRC_METER_PARTS_H

#include <stdint.h>

#include "fsjoule/meter.h"

/** The command is not answered yet: its task will. Not sent. */
#define FSJ_REPLY_LATER 0xFFu

/* stream.c: what begins, ends and changes the stream. */

/** Set the chip up as the settings say. */
enum fsj_status fsj_meter_start_chip(struct fsj_meter *meter);

/** End the stream as fsj_meter_flush() does, and begin another one. */
void fsj_meter_begin_stream(struct fsj_meter *meter);

/** Set the chip up for these settings, which must be valid, and go on in a new stream. */
void fsj_meter_change(struct fsj_meter *meter, const struct fsj_settings *settings);

/** Take a mark that is not on the line. */
void fsj_meter_mark(struct fsj_meter *meter, const struct fsj_mark *mark);

/* control.c: commands. */

/** Do what a command says, and answer it. */
void fsj_meter_execute(struct fsj_meter *meter, const struct fsj_command *command, uint64_t time_us);

/** Answer what is no command, but no more than once in a tick. */
void fsj_meter_complain(struct fsj_meter *meter);

/* task.c: commands that take many ticks. */

/** Begin a task for a command. */
void fsj_task_begin(struct fsj_meter *meter, enum fsj_task_kind kind, const struct fsj_command *command,
		    uint32_t ticks);

/** Give the task, if there is one, what the chip said in this tick. */
void fsj_task_tick(struct fsj_meter *meter, enum fsj_status status, const struct fsj_ina219_reading *reading);

#endif
