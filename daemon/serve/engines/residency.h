/* residency.h - which models stay in memory.
 *
 * Rules, which the tests name:
 *   (1) Weights, states and scratch of all engines stay within one budget of
 *       bytes ([limits] memory_mib). A loaded model counts as the most that its
 *       engine said it may hold, a loading one as its size on disk. A model
 *       that cannot fit is refused before anything is allocated.
 *   (2) To make room, idle models are unloaded, the one used least recently
 *       first; pinned ones only when no other is left; a model in use never.
 *       The load waits until their memory is free.
 *   (3) An idle model is unloaded after its keep-alive: the one that its last
 *       request named, else [engine] keep_alive_s. A pinned one stays.
 *   (4) Each sign of memory pressure frees one thing: all warm states; when
 *       there are none, the idle model used least recently; pinned ones last.
 *
 * Thread: the loop thread.
 */
#pragma once

#include "serve/engines/models.h"

#define KEEP_FOREVER (-1)

/* Read a keep_alive as Ollama takes it ("10m", "1h30m", "90", "-1") into
 * milliseconds. A plain number is seconds; a negative one, or more than a year,
 * is KEEP_FOREVER. Errors: INVALID. */
CHECKED int keep_alive_text(const char *s, int64_t *ret_ms, struct err *e);
CHECKED int keep_alive_seconds(double s, int64_t *ret_ms, struct err *e);

/* The bytes that a loaded or loading model counts by rule 1; 0 when it is down.
 */
uint64_t model_bytes(const struct model *m);
/* The resident bytes of its process; 0 when the system does not say. */
uint64_t model_resident_bytes(const struct model *m);
uint64_t models_budget(const struct models *ms);
uint64_t models_bytes(const struct models *ms); /* all of them */

/* Set how long m stays loaded when idle: milliseconds, or KEEP_FOREVER. */
void model_keep(struct model *m, int64_t ms);
/* Milliseconds until m is unloaded; KEEP_FOREVER when it stays: pinned, in use,
 * or without a limit. */
int64_t model_leaves_ms(const struct model *m);
void model_pin(struct model *m, bool pinned);
