/** @file
 * A command that takes many ticks: a calibration or the self-test. There is at most one at a time.
 */
#ifndef FSJOULE_TASK_H
#define FSJOULE_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "fsjoule/calibration.h"
#include "fsjoule/ina219.h"

enum fsj_task_kind { FSJ_TASK_NONE = 0, FSJ_TASK_ZERO, FSJ_TASK_LOW_POINT, FSJ_TASK_HIGH_POINT, FSJ_TASK_SELF_TEST };

struct fsj_task {
	enum fsj_task_kind kind;
	uint8_t command; /**< for the reply */
	uint32_t request;
	uint32_t ticks_left; /**< then it is given up */
	uint32_t date;
	struct fsj_average average;
	struct fsj_gain_point point; /**< whose true values were given */
	uint8_t failures; /**< of the self-test so far */
};

#endif
