/* memory.h - how much memory this machine has, and how much of it a core. */
#pragma once

#include "base/err.h"

/* Bytes of memory that this process could have at most: the machine's, or less
 * where its container has a limit. 0: not known. Reads files: not for a process
 * that is in a sandbox. */
uint64_t machine_memory(void);

/* Bytes of a core's first data cache; the least that processors have had for
 * long where the system does not tell. Looked up once. Any thread. */
size_t machine_first_cache(void);
