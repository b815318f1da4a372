/* mil_time.h - `aned mil time`: how long predictions of a package take, and
 * where its results come to lie. */
#pragma once

#include "engine/backend.h"

struct mil_timing {
    const char *pkg, *function; /* function NULL: the default one */
    const struct backend *backend;
    const struct backend_conf *conf;
    uint32_t width; /* 0: the least that the package has */
    uint32_t count; /* predictions, at least 1 */
    bool json;
};

/* Run the package on zeros and print the times. Errors: those of the backend,
 * MIL_INPUT (no such width). */
CHECKED int mil_time(const struct mil_timing *t, struct err *e);
