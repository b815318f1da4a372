/* pressure.h - the system's word that memory is short.
 *
 * Linux: pressure stall information. A trigger where the kernel grants one,
 * else /proc/pressure/memory read every PRESSURE_MS: tasks that waited for
 * memory more than PRESSURE_SHARE of that time are a sign. macOS: the
 * memory-pressure source of libdispatch. Elsewhere nothing ever comes.
 * Thread: the loop thread.
 */
#pragma once

#include <uv.h>

#include "base/err.h"

#define PRESSURE_MS    2000 /* the window; unprivileged triggers take it */
#define PRESSURE_SHARE 0.15 /* of it waited for memory: a sign */

struct pressure;

/* path: a file like /proc/pressure/memory that is read instead ([limits]
 * pressure_file, for tests), every PRESSURE_TEST_MS; "": the system's own.
 * Does nothing before pressure_watch. */
#define PRESSURE_TEST_MS 50
struct pressure *pressure_new(uv_loop_t *loop, const char *path,
                              void (*fn)(void *ctx), void *ctx);
/* Off while there is nothing to give back: then it costs nothing. */
void pressure_watch(struct pressure *p, bool on);
void pressure_close(struct pressure *p); /* freed later; NULL is fine */

/* The microseconds of "some ... total=N". Errors: INVALID. */
CHECKED int pressure_total(const char *text, uint64_t *ret_us);
