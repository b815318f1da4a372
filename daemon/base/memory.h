/* memory.h - how much memory this machine has. */
#pragma once

#include "base/err.h"

/* Bytes of memory that this process could have at most: the machine's, or less
 * where its container has a limit. 0: not known. Reads files: not for a process
 * that is in a sandbox. */
uint64_t machine_memory(void);
