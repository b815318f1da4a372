/* plain.h - one prediction on dense arrays, without keeping anything: what
 * dense.h does, for tests that know only a model. Results are valid until the
 * next call with the same model. */
#pragma once

#include "engine/cpu/backend_cpu.h"
#include "engine/dense.h"

#define PLAIN_MAX 8 /* models whose results are kept at one time */

/* Where the results of m stay: in place of its last ones, or of those of a
 * model at the same address before it, else of the oldest. */
static inline struct dense *plain_of(const struct backend_model *m)
{
    static struct dense all[PLAIN_MAX];
    static size_t used[PLAIN_MAX], calls;
    size_t at = 0;
    for (size_t i = 0; i < PLAIN_MAX && all[at].m != m; i++) {
        at = all[i].m == m || used[i] < used[at] ? i : at;
    }
    used[at] = ++calls;
    return &all[at];
}

/* d takes the place of the last call's, which may have been an input. */
static inline void plain_keep(const struct dense *d)
{
    struct dense *old = plain_of(d->m);
    if (old->be != NULL) {
        dense_fini(old);
    }
    *old = *d;
}

static inline int plain_predict(const struct backend *b,
                                struct backend_model *m,
                                struct backend_state *s,
                                const struct tensor *in, size_t n_in,
                                struct tensor *out, size_t n_out, struct err *e)
{
    struct dense d;
    RETERR(dense_init(&d, b, m, e));
    int rc = dense_predict(&d, s, in, n_in, out, n_out, e);
    plain_keep(&d);
    return rc;
}

static inline int plain_state(const struct backend *b, struct backend_model *m,
                              struct backend_state *s, const char *name,
                              struct tensor *ret, struct err *e)
{
    struct dense d;
    RETERR(dense_init(&d, b, m, e));
    int rc = dense_state(&d, s, name, ret, e);
    plain_keep(&d);
    return rc;
}
