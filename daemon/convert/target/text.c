/* text.c - pieces of a text, each continued by the model.
 *
 * A fixed text is not what a small model says: one bundle of gemma-3-270m had
 * KL 0.067 on the gate's and 0.031 on this one. Calibration, which runs over the
 * model's own text, helps it less. People draw cooler than at temperature 1;
 * other temperatures, lengths and numbers of pieces were not compared.
 */
#include <assert.h>

#include "base/num.h"
#include "convert/calibrate/writer.h"
#include "convert/target/impl.h"
#include "model/tokenizer.h"

/* Pieces at equal distances, BOS before each if there is one. */
static void give(const struct target_text_conf *conf, struct target_text *t)
{
    bool bos = conf->bos != TOKEN_NONE;
    uint32_t skip = bos && conf->n > 1 && conf->ids[0] == conf->bos ? 1 : 0;
    uint32_t own = t->given - (bos && t->given > 1 ? 1 : 0);
    uint32_t n = conf->n - skip;
    uint32_t last = n > own ? n - own : 0;
    for (uint32_t s = 0; s < t->sequences; s++) {
        int32_t *to = t->tokens + (size_t)s * t->columns;
        if (own < t->given) {
            *to++ = conf->bos;
        }
        uint32_t from = skip + s * last / (t->sequences - 1);
        for (uint32_t i = 0; i < own; i++) {
            to[i] = conf->ids[num_min(from + i, conf->n - 1)];
        }
    }
}

int target_text_make(const struct decoder *d,
                     const struct target_text_conf *conf,
                     struct target_text *ret, struct err *e)
{
    uint32_t columns = (uint32_t)num_min(TARGET_COLUMNS, conf->context);
    must(conf->n > 0 && columns > 0);
    static_assert(TARGET_SEQUENCES * TARGET_COLUMNS <= REFERENCE_TOKENS_MAX,
                  "one panel holds all");
    struct target_text t = {
        .sequences = TARGET_SEQUENCES,
        .columns = columns,
        .given = (uint32_t)num_min(TARGET_GIVEN, num_max(columns / 4, 1)),
    };
    t.tokens = calloc((size_t)t.sequences * columns, sizeof(*t.tokens));
    if (t.tokens == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for a text");
    }
    give(conf, &t);
    const struct writer_conf w = {
        .threads = conf->threads,
        .progress = conf->progress,
        .position = 1,
        .temperature = TARGET_TEMPERATURE,
        .seed = TARGET_SEED,
        .tokens = columns,
        .given = t.given,
    };
    int rc = conf->progress == NULL
                 ? 0
                 : progress_stage(conf->progress, "choosing", columns, e);
    rc = rc < 0 ? rc : writer_run(d, &w, t.sequences, t.tokens, e);
    if (rc < 0) {
        target_text_fini(&t);
        return rc;
    }
    *ret = t;
    return 0;
}

void target_text_fini(struct target_text *t)
{
    free(t->tokens);
    *t = (struct target_text){0};
}
