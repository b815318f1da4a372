/* residency.h - which models stay in memory.
 *
 * Rules, which the tests name:
 *   (1) Weights, states and scratch of all engines stay within one budget of
 *       bytes ([limits] memory_mib). A model counts with what its engine
 *       promised to hold at most, while it loads with its size on disk. It is
 *       refused before anything is allocated when it cannot fit.
 *   (2) Room is made of idle models, the one used least recently first; pinned
 *       ones only when no other is left; one in use never. The load waits until
 *       their memory is free.
 *   (3) An idle model leaves after its keep-alive: the one its last request
 *       named, else [engine] keep_alive_s. A pinned one stays.
 *   (4) Each sign of memory pressure takes one step: all warm states go; when
 *       there are none, the idle model used least recently; pinned ones last.
 *
 * Thread: the loop thread.
 */
#pragma once

#include "serve/engines/models.h"

#define KEEP_FOREVER (-1)

/* "10m", "1h30m", "90", "-1": what Ollama takes as keep_alive, to milliseconds;
 * a plain number is seconds, a negative one KEEP_FOREVER. Longer than a year is
 * forever too. Errors: INVALID. */
CHECKED int keep_alive_text(const char *s, int64_t *ret_ms, struct err *e);
CHECKED int keep_alive_seconds(double s, int64_t *ret_ms, struct err *e);

/* What a loaded or loading model counts; 0 when it is down. */
uint64_t model_bytes(const struct model *m);
/* Of its process as the system tells it; 0 when it does not. */
uint64_t model_resident_bytes(const struct model *m);
uint64_t models_budget(const struct models *ms);
uint64_t models_bytes(const struct models *ms); /* all of them */

/* How long it stays when idle from now on; KEEP_FOREVER, or milliseconds. */
void model_keep(struct model *m, int64_t ms);
/* Milliseconds until it leaves; KEEP_FOREVER when it stays: pinned, in use, or
 * without a limit. */
int64_t model_leaves_ms(const struct model *m);
void model_pin(struct model *m, bool pinned);
