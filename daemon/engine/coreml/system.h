/* system.h - this machine, as it matters for the bits of a result, in words:
 * "Apple M4 Max", "24A335". They live forever. Thread: any. */
#pragma once

#include "base/base.h"

const char *system_chip(void);
const char *system_build(void); /* of the operating system */
