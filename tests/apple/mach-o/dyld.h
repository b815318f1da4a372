/* dyld(3): what serve/child.c calls. */
#pragma once

#include <stdint.h>

int _NSGetExecutablePath(char *buf, uint32_t *bufsize);
