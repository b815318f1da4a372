/* progress.h - reports the progress of a conversion; the caller may cancel. */
#pragma once

#include "base/err.h"

struct progress {
    bool (*fn)(void *ctx, const char *stage, double fraction); /* may be NULL */
    void *ctx;
    const char *stage;
    double base, span;    /* the stage's part of the whole, 0..1 */
    uint64_t done, total; /* of the stage, in bytes of source weights */
    uint64_t told_ms;
};

/* A stage begins; it takes [base, base + span] of the whole. */
CHECKED int progress_stage(struct progress *p, const char *stage, double base,
                           double span, uint64_t total, struct err *e);
/* n more bytes are done; calls fn at most 20 times a second. Errors: CANCELLED.
 */
CHECKED int progress_add(struct progress *p, uint64_t n, struct err *e);
