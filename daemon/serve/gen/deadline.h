/* deadline.h - a call at a time, once.
 *
 * A timer each, so that nothing ticks while nobody waits; its memory is the
 * loop's until it has closed. Thread: the loop thread.
 */
#pragma once

#include <uv.h>

#include "base/base.h"

struct deadline;

/* fn(ctx) when server_now_us() has reached at_us; from the loop, never from
 * inside this call. */
struct deadline *deadline_new(uv_loop_t *loop, uint64_t at_us,
                              void (*fn)(void *ctx), void *ctx);
/* fn is not called any more. NULL is fine; from inside fn too. */
void deadline_free(struct deadline *d);
