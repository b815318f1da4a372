/* random.h - random bytes without a system call for each. */
#pragma once

#include "base/base.h"

/* n bytes (<= 256) of the kernel's generator, never given before. Any thread;
 * not across a fork that does not exec. */
void random_bytes(void *p, size_t n);
