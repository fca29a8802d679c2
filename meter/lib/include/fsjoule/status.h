/** @file
 * What a function of the core has to say about its work.
 */
#ifndef FSJOULE_STATUS_H
#define FSJOULE_STATUS_H

enum fsj_status {
	FSJ_OK = 0,
	FSJ_NOT_READY, /**< the INA219 has no new conversion yet */
	FSJ_I2C_FAULT, /**< a transfer failed */
};

#endif
