/* model_call.h - one request about one model, for show, load, unload, rm. */
#pragma once

#include "client/show.h"

/* METHOD /aned/v1/models/NAME + suffix; *ret on success. Returns 0 or the
 * exit code after having told the error; with --json the answer is printed. */
int model_call(struct client *c, const char *method, const char *name,
               const char *suffix, struct json **ret);
