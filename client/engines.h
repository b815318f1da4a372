/* engines.h - what is in memory, as `ps` and `top` show it. */
#pragma once

#include "client/client.h"
#include "proto/json.h"

/* Print a head and a line for each model that is loaded or loading, from the
 * answer of /aned/v1/status; one sentence when there is none. */
void engines_show(const struct client *c, const struct json *status);
/* "50 MB of 19.0 GB" */
void engines_memory(const struct json *status, char out[48]);
