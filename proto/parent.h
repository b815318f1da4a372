/* parent.h - what a child that converts, verifies or probes tells the daemon:
 * frames to CONTROL_FD, each with the number of the request that it answers. */
#pragma once

#include "proto/frame.h"
#include "proto/json.h"

#define CONTROL_FD 3

/* j is taken over. Errors: TOO_BIG, and those of frame_write_fd. */
CHECKED int parent_tell(uint32_t request, enum frame_type type, struct json *j,
                        struct err *e);
/* The request failed; returns the child's exit code. */
int parent_tell_error(uint32_t request, const struct err *why);
