/* random.h - random bytes without a system call for each. */
#pragma once

#include "base/base.h"

/* Fill p with n (<= 256) bytes of the kernel's generator; no byte is given
 * twice. Any thread. Not for a child that was forked without exec. */
void random_bytes(void *p, size_t n);
