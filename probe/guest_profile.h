/* What the probe tells of the mark line to that part of it that counts instructions. */
#ifndef GUEST_PROFILE_H
#define GUEST_PROFILE_H

#include <stdint.h>

/* A byte of the mark line, sent at this time of the guest's. */
void profile_mark_byte(unsigned char byte, int64_t time_ns);

#endif
