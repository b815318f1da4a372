/* deadline.h - one call of a function at a given time.
 *
 * Each deadline has its own timer, so nothing runs while there is no deadline.
 * Its memory is freed when the loop has closed the timer. Thread: the loop
 * thread.
 */
#pragma once

#include <uv.h>

#include "base/base.h"

struct deadline;

/* Call fn(ctx) when server_now_us() has reached at_us: from the loop, never
 * from inside this call. */
struct deadline *deadline_new(uv_loop_t *loop, uint64_t at_us,
                              void (*fn)(void *ctx), void *ctx);
/* After this fn is not called any more. NULL is fine; fn may call it too. */
void deadline_free(struct deadline *d);
