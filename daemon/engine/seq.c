/* seq.c - sequences: tokens, backend states, past keys and values.
 *
 * Length is the only truth about what a sequence holds. Positions after it
 * may keep what a rejected draft or a truncated tail left there: the mask hides
 * them until they are written again. Where the backend runs rows, its states
 * share what forks have in common and give back what is cut off.
 */
#include <string.h>

#include "engine/array.h"
#include "engine/impl.h"

static int past_array(struct engine_seq *s, size_t i, size_t k, struct err *e)
{
    const struct shard *sh = &s->g->shards[i];
    const struct past_port *p = &sh->past[k];
    const int64_t dims[4] = {1, p->heads, s->g->b->context, p->dim};
    return sh->be->array_new(sh->units[0].m, p->input, MIL_FP16, 4, dims,
                             &s->past[i][k], e);
}

static int past_new(struct engine_seq *s, size_t i, struct err *e)
{
    const struct shard *sh = &s->g->shards[i];
    s->past[i] = calloc(sh->n_past + 1, sizeof(struct backend_array *));
    if (s->past[i] == NULL) {
        return err_set(e, ERR_NOMEM, "past");
    }
    for (size_t k = 0; k < sh->n_past; k++) {
        RETERR(past_array(s, i, k, e));
    }
    return 0;
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
    list_push(&g->seqs, &s->link);
    /* pages that no token has reached cost nothing */
    s->tokens = calloc(g->b->context, sizeof(*s->tokens));
    s->states = calloc(g->n_shards, sizeof(struct backend_state *));
    s->past = calloc(g->n_shards, sizeof(struct backend_array **));
    s->tails = calloc(g->n_shards, sizeof(struct tails *));
    if (s->tokens == NULL || s->states == NULL || s->past == NULL ||
        s->tails == NULL) {
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

static int tails_open(struct engine_seq *s, size_t i, struct err *e)
{
    const struct shard *sh = &s->g->shards[i];
    return sh->n_tails == 0 || s->g->rows.max > 0
               ? 0
               : tails_new(sh->tail_ports, sh->n_tails, &s->tails[i], e);
}

static int state_open(struct engine_seq *s, size_t i, struct err *e)
{
    const struct shard *sh = &s->g->shards[i];
    const struct unit *u = shard_state_unit(sh);
    bool none = u->info.n_states == 0 &&
                !(s->g->rows.max > 0 && u->info.recurrent);
    RETERR(tails_open(s, i, e));
    return none ? 0 : sh->be->state_new(u->m, &s->states[i], e);
}

/* The tails of a fork, in place of empty ones. */
static int tails_take(struct engine_seq *s, size_t i,
                      const struct engine_seq *from, uint32_t n, struct err *e)
{
    if (from->tails[i] == NULL) {
        return 0;
    }
    tails_free(s->tails[i]);
    s->tails[i] = NULL;
    return tails_fork(from->tails[i], seq_reach(from, n), &s->tails[i], e);
}

static int state_fork(struct engine_seq *s, size_t i,
                      const struct engine_seq *from, uint32_t n, struct err *e)
{
    const struct backend *be = s->g->shards[i].be;
    if (s->g->rows.max > 0 && from->states[i] != NULL) {
        return be->rows->fork(from->states[i], n, &s->states[i], e);
    }
    int rc = state_open(s, i, e);
    rc = rc < 0 ? rc : tails_take(s, i, from, n, e);
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

int engine_seq_expect(struct engine_seq *s, uint32_t n, struct err *e)
{
    const struct bundle *b = s->g->b;
    bool long_list = n > bundle_short_max(b);
    if (n > b->context) {
        return err_set(e, ERR_CONTEXT, "%u tokens in a context of %u", n,
                       b->context);
    }
    if (s->n > 0 && s->long_list != long_list) {
        return err_set(e, ERR_CONFLICT,
                       "%u tokens were computed by the %s list", s->n,
                       s->long_list ? "long" : "short");
    }
    s->long_list = long_list;
    return 0;
}

uint32_t seq_room(const struct engine_seq *s)
{
    const struct bundle *b = s->g->b;
    return (s->long_list ? b->context : bundle_short_max(b)) - s->n;
}

void engine_seq_close(struct engine_seq *s)
{
    if (s == NULL) {
        return;
    }
    constrain_forget(s);
    pool_drop(s);
    for (size_t i = 0; s->states != NULL && i < s->g->n_shards; i++) {
        s->g->shards[i].be->state_free(s->states[i]);
    }
    for (size_t i = 0; s->past != NULL && i < s->g->n_shards; i++) {
        for (size_t k = 0; s->past[i] != NULL && k < s->g->shards[i].n_past;
             k++) {
            s->g->shards[i].be->array_free(s->past[i][k]);
        }
        free(s->past[i]);
    }
    for (size_t i = 0; s->tails != NULL && i < s->g->n_shards; i++) {
        tails_free(s->tails[i]);
    }
    list_del(&s->link);
    free(s->tails);
    free(s->states);
    free(s->past);
    free(s->tokens);
    free(s);
}

/* n rows of every head, from position `from` of one array [1, heads, positions,
 * dim] to position `to` of another. Both are accessible. */
static void move_rows(struct backend_array *a, uint32_t to,
                      const struct backend_array *b, uint32_t from, uint32_t n,
                      float *row)
{
    for (int64_t h = 0; h < a->dims[1]; h++) {
        for (uint32_t i = 0; i < n; i++) {
            const int64_t at[4] = {0, h, from + i, 0};
            const int64_t put[4] = {0, h, to + i, 0};
            size_t dim = (size_t)a->dims[3];
            array_get(b, (struct array_line){at, 3, dim}, row, 1);
            array_put(a, (struct array_line){put, 3, dim}, row, 1);
        }
    }
}

static int copy_rows(const struct engine *g, size_t shard,
                     struct backend_array *a, uint32_t to,
                     struct backend_array *b, uint32_t from, uint32_t n,
                     struct err *e)
{
    const struct backend *be = g->shards[shard].be;
    RETERR(array_begin(be, b, false, e));
    int rc = array_begin(be, a, true, e);
    if (rc == 0) {
        move_rows(a, to, b, from, n, g->columns.row);
        array_end(be, a, true);
    }
    array_end(be, b, false);
    return rc;
}

/* Positions below n of every past array. */
static int past_copy(struct engine_seq *to, const struct engine_seq *from,
                     uint32_t n, struct err *e)
{
    const struct engine *g = to->g;
    for (size_t i = 0; i < g->n_shards; i++) {
        for (size_t k = 0; k < g->shards[i].n_past; k++) {
            RETERR(
                copy_rows(g, i, to->past[i][k], 0, from->past[i][k], 0, n, e));
        }
    }
    return 0;
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
    CHECK(past_copy(s, from, n, e));
    memcpy(s->tokens, from->tokens, n * sizeof(*s->tokens));
    s->n = n;
    s->valid = from->g->rows.max == 0 ? seq_reach(from, n) : n;
    s->long_list = from->long_list;
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
    if (!seq_can_cut(s, n)) {
        return err_set(e, ERR_CONFLICT, "a recurrent state has no copy at %u",
                       n);
    }
    for (size_t i = 0; s->g->rows.max > 0 && i < s->g->n_shards; i++) {
        if (s->states[i] != NULL) {
            s->g->be->rows->truncate(s->states[i], n);
        }
    }
    if (s->g->rows.max == 0) {
        s->valid = seq_reach(s, n);
        for (size_t i = 0; i < s->g->n_shards; i++) {
            if (s->tails[i] != NULL) {
                tails_cut(s->tails[i], s->valid);
            }
        }
    }
    if (n < s->match.n) {
        constrain_forget(s);
    }
    pool_drop(s);
    s->n = n;
    return 0;
}

void seq_drop(struct engine_seq *s, size_t i)
{
    const struct shard *sh = &s->g->shards[i];
    sh->be->state_free(s->states[i]);
    s->states[i] = NULL;
    tails_free(s->tails[i]);
    s->tails[i] = NULL;
    for (size_t k = 0; k < sh->n_past; k++) {
        sh->be->array_free(s->past[i][k]);
        s->past[i][k] = NULL;
    }
    s->valid = 0;
}

int seq_renew(struct engine_seq *s, size_t i, struct err *e)
{
    const struct shard *sh = &s->g->shards[i];
    for (size_t k = 0; k < sh->n_past; k++) {
        RETERR(past_array(s, i, k, e));
    }
    return state_open(s, i, e);
}

uint32_t engine_seq_length(const struct engine_seq *s)
{
    return s->n;
}

const int32_t *engine_seq_tokens(const struct engine_seq *s)
{
    return s->tokens;
}

int seq_append(struct engine_seq *s, size_t shard, size_t i,
               struct backend_array *fresh, struct chunk c, struct err *e)
{
    return copy_rows(s->g, shard, s->past[shard][i], c.pos, fresh, 0, c.n, e);
}

void engine_trim(struct engine *g)
{
    for (size_t i = 0; i < g->n_shards && g->be->rows != NULL; i++) {
        g->be->rows->trim(shard_state_unit(&g->shards[i])->m);
    }
}
