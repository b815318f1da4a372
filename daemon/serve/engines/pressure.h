/* pressure.h - signs from the system that memory is short.
 *
 * Linux: pressure stall information. A trigger where the kernel allows one,
 * else /proc/pressure/memory is read every PRESSURE_MS; when tasks waited for
 * memory more than PRESSURE_SHARE of that time, it is a sign. macOS: the
 * memory-pressure source of libdispatch, a sign every PRESSURE_MS until it says
 * that memory is normal again. Other systems give no signs.
 *
 * Thread: the loop thread.
 */
#pragma once

#include <uv.h>

#include "base/err.h"

#define PRESSURE_MS    2000 /* the window; unprivileged triggers take it */
#define PRESSURE_SHARE 0.15 /* share of it that is a sign */

struct pressure;

/* fn is called for each sign, after pressure_watch. path is for tests ([limits]
 * pressure_file): a file like /proc/pressure/memory, which is read every
 * PRESSURE_TEST_MS instead; "": ask the system. */
#define PRESSURE_TEST_MS 50
struct pressure *pressure_new(uv_loop_t *loop, const char *path,
                              void (*fn)(void *ctx), void *ctx);
/* Turn it on or off; off while there is nothing to free: then it costs nothing.
 */
void pressure_watch(struct pressure *p, bool on);
void pressure_close(struct pressure *p); /* freed later; NULL is fine */

/* The microseconds of "some ... total=N". Errors: INVALID. */
CHECKED int pressure_total(const char *text, uint64_t *ret_us);
