/* seq.c - sequences: tokens, backend states, past keys and values.
 *
 * Length is the only truth about what a sequence holds. Positions after it
 * may keep what a rejected draft or a truncated tail left there: the mask hides
 * them until they are written again. Where the backend runs rows, its states
 * share what forks have in common and give back what is cut off.
 */
#include <string.h>

#include "base/half.h"
#include "engine/impl.h"

static size_t past_count(const struct engine *g, const struct past_port *p)
{
    return (size_t)p->heads * g->b->context * p->dim;
}

static int past_new(struct engine_seq *s, size_t i, struct err *e)
{
    const struct shard *sh = &s->g->shards[i];
    s->past[i] = calloc(sh->n_past + 1, sizeof(*s->past[i]));
    for (size_t k = 0; s->past[i] != NULL && k < sh->n_past; k++) {
        s->past[i][k] = calloc(past_count(s->g, &sh->past[k]), 2);
        if (s->past[i][k] == NULL) {
            return err_set(e, ERR_NOMEM, "past of %s", sh->path);
        }
    }
    return s->past[i] != NULL ? 0 : err_set(e, ERR_NOMEM, "past");
}

/* A sequence without states. */
static int seq_new(struct engine *g, struct engine_seq **ret, struct err *e)
{
    int rc = 0;
    struct engine_seq *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return err_set(e, ERR_NOMEM, "sequence");
    }
    s->g = g;
    /* pages that no token has reached cost nothing */
    s->tokens = calloc(g->b->context, sizeof(*s->tokens));
    s->states = calloc(g->n_shards, sizeof(*s->states));
    s->past = calloc(g->n_shards, sizeof(*s->past));
    if (s->tokens == NULL || s->states == NULL || s->past == NULL) {
        rc = err_set(e, ERR_NOMEM, "sequence");
        goto out;
    }
    for (size_t i = 0; i < g->n_shards; i++) {
        rc = past_new(s, i, e);
        if (rc < 0) {
            goto out;
        }
    }
    *ret = s;
    s = NULL;
out:
    engine_seq_close(s);
    return rc;
}

static int state_open(struct engine_seq *s, size_t i, struct err *e)
{
    const struct unit *u = shard_state_unit(&s->g->shards[i]);
    return u->info.n_states == 0 ? 0
                                 : s->g->be->state_new(u->m, &s->states[i], e);
}

static int state_fork(struct engine_seq *s, size_t i,
                      const struct engine_seq *from, uint32_t n, struct err *e)
{
    const struct backend *be = s->g->be;
    if (s->g->rows.max > 0 && from->states[i] != NULL) {
        return be->state_fork(from->states[i], n, &s->states[i], e);
    }
    int rc = state_open(s, i, e);
    return rc < 0 || n == 0 || s->states[i] == NULL
               ? rc
               : be->state_copy(s->states[i], from->states[i], e);
}

int engine_seq_open(struct engine *g, struct engine_seq **ret, struct err *e)
{
    struct engine_seq *s = NULL;
    int rc = 0;
    CHECK(seq_new(g, &s, e));
    for (size_t i = 0; i < g->n_shards; i++) {
        CHECK(state_open(s, i, e));
    }
    *ret = s;
    s = NULL; /* given away */
out:
    engine_seq_close(s);
    return rc;
}

void engine_seq_close(struct engine_seq *s)
{
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; s->states != NULL && i < s->g->n_shards; i++) {
        s->g->be->state_free(s->states[i]);
    }
    for (size_t i = 0; s->past != NULL && i < s->g->n_shards; i++) {
        for (size_t k = 0; s->past[i] != NULL && k < s->g->shards[i].n_past;
             k++) {
            free(s->past[i][k]);
        }
        free(s->past[i]);
    }
    free(s->states);
    free(s->past);
    free(s->tokens);
    free(s);
}

/* Positions below n of every past array. */
static void past_copy(struct engine_seq *to, const struct engine_seq *from,
                      uint32_t n)
{
    const struct engine *g = to->g;
    for (size_t i = 0; i < g->n_shards; i++) {
        for (size_t k = 0; k < g->shards[i].n_past; k++) {
            const struct past_port *p = &g->shards[i].past[k];
            size_t head = (size_t)g->b->context * p->dim;
            for (size_t h = 0; h < p->heads; h++) {
                memcpy(to->past[i][k] + h * head, from->past[i][k] + h * head,
                       (size_t)n * p->dim * 2);
            }
        }
    }
}

int engine_seq_fork(const struct engine_seq *from, uint32_t n,
                    struct engine_seq **ret, struct err *e)
{
    struct engine_seq *s = NULL;
    if (n > from->n) {
        return err_set(e, ERR_INVALID, "fork %u of %u tokens", n, from->n);
    }
    int rc = 0;
    CHECK(seq_new(from->g, &s, e));
    for (size_t i = 0; i < from->g->n_shards; i++) {
        CHECK(state_fork(s, i, from, n, e));
    }
    past_copy(s, from, n);
    memcpy(s->tokens, from->tokens, n * sizeof(*s->tokens));
    s->n = n;
    *ret = s;
    s = NULL; /* given away */
out:
    engine_seq_close(s);
    return rc;
}

int engine_seq_truncate(struct engine_seq *s, uint32_t n, struct err *e)
{
    if (n > s->n) {
        return err_set(e, ERR_INVALID, "truncate %u tokens to %u", s->n, n);
    }
    for (size_t i = 0; s->g->rows.max > 0 && i < s->g->n_shards; i++) {
        if (s->states[i] != NULL) {
            s->g->be->state_truncate(s->states[i], n);
        }
    }
    s->n = n;
    return 0;
}

uint32_t engine_seq_length(const struct engine_seq *s)
{
    return s->n;
}

const int32_t *engine_seq_tokens(const struct engine_seq *s)
{
    return s->tokens;
}

void seq_append(struct engine_seq *s, size_t shard, size_t i,
                const float *fresh, uint32_t t, uint32_t pos, uint32_t n)
{
    const struct past_port *p = &s->g->shards[shard].past[i];
    size_t head = (size_t)s->g->b->context * p->dim;
    for (size_t h = 0; h < p->heads; h++) {
        half_from_floats(fresh + h * t * p->dim,
                         s->past[shard][i] + h * head + (size_t)pos * p->dim,
                         (size_t)n * p->dim);
    }
}

void engine_trim(struct engine *g)
{
    for (size_t i = 0; i < g->n_shards && g->be->trim != NULL; i++) {
        g->be->trim(shard_state_unit(&g->shards[i])->m);
    }
}
