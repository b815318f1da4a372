/* trial.c - does the imported bundle run? What can be seen without its source:
 * it opens, its logits are finite, and their bits do not depend on the chunk.
 */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/num.h"
#include "convert/gates.h"
#include "convert/import/impl.h"
#include "engine/engine.h"

#define TOKENS 12u /* three predictions of a package of four rows */

struct trial {
    struct progress *progress;
    uint32_t n, vocab;
    int32_t tokens[TOKENS];
    uint64_t bits[TOKENS]; /* of each row's logits */
    uint32_t differ;
    bool compare, finite;
};

static int on_rows(void *ctx, uint32_t first, uint32_t n, float *logits,
                   struct err *e)
{
    struct trial *t = ctx;
    for (uint32_t i = 0; i < n; i++) {
        const float *row = logits + (size_t)i * t->vocab;
        uint64_t h = hash_bulk(row, t->vocab * sizeof(*row));
        for (uint32_t k = 0; k < t->vocab && t->finite; k++) {
            t->finite = isfinite(row[k]);
        }
        t->differ += t->compare && t->bits[first + i] != h ? 1 : 0;
        t->bits[first + i] = h;
    }
    return progress_add(t->progress, n, e);
}

static int run(struct trial *t, struct engine *g, struct err *e)
{
    struct engine_seq *s = NULL;
    int rc = 0;
    CHECK(engine_seq_open(g, &s, e));
    CHECK(engine_eval_rows(s, t->tokens, t->n, 0, on_rows, t, NULL, e));
    t->compare = true;
    CHECK(engine_seq_truncate(s, 0, e));
    CHECK(engine_eval_rows(s, t->tokens, t->n, 1, on_rows, t, NULL, e));
out:
    engine_seq_close(s);
    return rc;
}

static void judge(const struct trial *t, struct convert_result *r)
{
    if (t->finite) {
        gate_set(r, "quality", "not run",
                 "an import has no source to compare with; %u positions ran, "
                 "their logits are finite",
                 t->n);
    } else {
        gate_set(r, "quality", "failed", "logits are not finite");
    }
    if (t->differ > 0) {
        gate_set(r, "exactness", "failed",
                 "rows one by one: %u of %u positions have other bits",
                 t->differ, t->n);
    } else {
        gate_set(r, "exactness", "passed",
                 "%u positions: the same bits at once and one by one", t->n);
    }
}

int import_trial(const char *dir, const struct import_manifest *m,
                 unsigned threads, struct progress *progress,
                 struct convert_result *r, struct err *e)
{
    const struct engine_conf conf = {.backend = "cpu", .threads = threads};
    struct engine *g = NULL;
    struct trial t = {
        .progress = progress,
        .n = (uint32_t)num_min(TOKENS, m->context),
        .vocab = m->vocab,
        .finite = true,
    };
    int rc = 0;
    for (uint32_t i = 0; i < t.n; i++) { /* ids from all of the vocabulary */
        t.tokens[i] = (int32_t)((uint64_t)i * m->vocab / t.n);
    }
    if (m->bos != UINT32_MAX) {
        t.tokens[0] = (int32_t)m->bos;
    }
    CHECK(progress_stage(progress, "gating", (uint64_t)2 * t.n, e));
    CHECK(engine_open(dir, &conf, &g, e));
    CHECK(run(&t, g, e));
    judge(&t, r);
out:
    engine_close(g);
    if (rc == ERR_NOMEM) { /* a gate that could not run says so */
        gate_set(r, "quality", "not run", "%.300s", e->msg);
        gate_set(r, "exactness", "not run", "%.300s", e->msg);
        return 0;
    }
    return rc;
}
