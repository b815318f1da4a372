/* state.c - the states of one sequence: blocks, or flat arrays. */
#include <assert.h>
#include <string.h>

#include "engine/array.h"
#include "engine/cpu/rows/row.h"

void cpu_state_free(struct backend_state *s)
{
    if (s == NULL) {
        return;
    }
    kv_table_free(s->kv);
    tails_free(s->tails);
    for (size_t i = 0; s->data != NULL && i < s->n; i++) {
        free(s->data[i]);
    }
    free(s->data);
    free(s);
}

/* Flat arrays that are not there yet. calloc: pages that are never written
 * cost no memory. */
static int make_flat(struct backend_state *s, struct err *e)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->data[i] == NULL) {
            s->data[i] = calloc(s->m->state[i].n, sizeof(uint16_t));
        }
        if (s->data[i] == NULL) {
            return err_set(e, ERR_NOMEM, "state %s", s->m->state[i].name);
        }
    }
    return 0;
}

static int state_alloc(const struct backend_model *m,
                       struct backend_state **ret, struct err *e)
{
    struct backend_state *s = calloc(1, sizeof(*s));
    if (s != NULL) {
        s->data = calloc(m->n_states + 1, sizeof(uint16_t *));
    }
    if (s == NULL || s->data == NULL) {
        free(s);
        return err_set(e, ERR_NOMEM, "a state");
    }
    s->m = m;
    s->model_id = m->id;
    s->n = m->n_states;
    *ret = s;
    return 0;
}

int cpu_state_new(struct backend_model *m, struct backend_state **ret,
                  struct err *e)
{
    struct backend_state *s = NULL;
    int rc = 0;
    CHECK(state_alloc(m, &s, e));
    if (m->rows != NULL && m->rows->pool != NULL) {
        CHECK(kv_table_new(m->rows->pool, &s->kv, e));
    } else {
        CHECK(make_flat(s, e));
    }
    if (m->rows != NULL && m->rows->n_tails > 0) {
        CHECK(tails_new(m->rows->tails, m->rows->n_tails, &s->tails, e));
    }
    *ret = s;
    s = NULL; /* given away */
out:
    cpu_state_free(s);
    return rc;
}

int cpu_state_fork(const struct backend_state *from, uint32_t n,
                   struct backend_state **ret, struct err *e)
{
    struct backend_state *s = NULL;
    int rc = 0;
    CHECK(state_alloc(from->m, &s, e));
    if (from->kv != NULL) {
        CHECK(kv_fork(from->kv, n, &s->kv, e));
    } else {
        CHECK(make_flat(s, e));
        CHECK(cpu_state_copy(s, from, e));
    }
    if (from->tails != NULL) {
        CHECK(tails_fork(from->tails, n, &s->tails, e));
    }
    *ret = s;
    s = NULL; /* given away */
out:
    cpu_state_free(s);
    return rc;
}

void cpu_state_truncate(struct backend_state *s, uint32_t n)
{
    if (s->kv != NULL) {
        kv_truncate(s->kv, n);
    }
    if (s->tails != NULL) {
        tails_cut(s->tails, n);
    }
}

bool cpu_state_can_cut(const struct backend_state *s, uint32_t n)
{
    return s->tails == NULL || tails_can(s->tails, n);
}

int cpu_state_mark(struct backend_state *s, uint32_t n, bool hold,
                   struct err *e)
{
    return s->tails != NULL ? tails_mark(s->tails, n, hold, e) : 0;
}

void cpu_state_trim(struct backend_model *m)
{
    if (m->rows != NULL && m->rows->pool != NULL) {
        kv_pool_trim(m->rows->pool, true);
    }
}

int cpu_state_copy(struct backend_state *to, const struct backend_state *from,
                   struct err *e)
{
    if (to->model_id != from->model_id) {
        return err_set(e, ERR_INVALID, "states of two models");
    }
    if (from->kv != NULL) {
        struct kv_table *t = NULL; /* tails are empty: rows alone fill them,
                                      and their states are forked */
        RETERR(kv_fork(from->kv, UINT32_MAX, &t, e));
        kv_table_free(to->kv);
        to->kv = t;
        return 0;
    }
    for (size_t i = 0; i < to->n; i++) {
        memcpy(to->data[i], from->data[i],
               to->m->state[i].n * sizeof(uint16_t));
    }
    return 0;
}

int cpu_state_flatten(struct backend_state *s, struct err *e)
{
    RETERR(make_flat(s, e));
    for (size_t i = 0; s->kv != NULL && i < s->n; i++) {
        kv_flatten(s->kv, i, s->data[i]);
    }
    return 0;
}

int cpu_state_unflatten(struct backend_state *s, struct err *e)
{
    for (size_t i = 0; s->kv != NULL && i < s->n; i++) {
        RETERR(kv_unflatten(s->kv, i, s->data[i], e));
    }
    return 0;
}

/* A flat state as an array. */
static struct backend_array flat_array(const struct backend_state *s, size_t i)
{
    const struct mil_type *t = s->m->state[i].type;
    struct backend_array a = {
        .dtype = MIL_FP16, .rank = t->rank, .data = s->data[i]};
    memcpy(a.dims, t->dims, sizeof(a.dims));
    array_lay(&a);
    return a;
}

int cpu_state_with(struct backend_state *s, const char *name,
                   backend_state_fn *fn, void *ctx, struct err *e)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->m->state[i].name, name) != 0) {
            continue;
        }
        RETERR(make_flat(s, e));
        if (s->kv != NULL) {
            kv_flatten(s->kv, i, s->data[i]);
        }
        struct backend_array a = flat_array(s, i);
        RETERR(fn(ctx, &a, e));
        return s->kv != NULL /* fn may have written */
                   ? kv_unflatten(s->kv, i, s->data[i], e)
                   : 0;
    }
    return err_set(e, ERR_NOT_FOUND, "no state %s", name);
}

/* --- blocks of positions, for files --- */

static_assert(KV_BLOCK == STATE_BLOCK, "a file's blocks are ours");

/* Beside LAYOUT_FLAT; in files: new orders, new numbers. */
#define LAYOUT_KV   2u
#define LAYOUT_TAIL 3u

static size_t n_tails(const struct backend_state *s)
{
    return s->tails != NULL ? s->m->rows->n_tails : 0;
}

size_t cpu_block_arrays(const struct backend_state *s, struct state_array *ret)
{
    if (s->n + n_tails(s) > STATE_ARRAYS_MAX) {
        return 0;
    }
    for (size_t i = 0; i < s->n; i++) {
        size_t bytes = s->kv != NULL
                           ? kv_block_bytes(s->kv, i)
                           : array_block_bytes(s->m->state[i].type);
        if (bytes == 0 || bytes > STATE_BLOCK_MAX) {
            return 0;
        }
        ret[i].layout = s->kv != NULL ? LAYOUT_KV : LAYOUT_FLAT;
        ret[i].bytes = (uint32_t)bytes;
    }
    for (size_t i = 0; i < n_tails(s); i++) {
        size_t bytes = tails_block_bytes(&s->m->rows->tails[i]);
        ret[s->n + i] = (struct state_array){LAYOUT_TAIL, (uint32_t)bytes};
    }
    return s->n + n_tails(s);
}

/* Copy block b between a flat state and `bytes`, whichever way. */
static int flat_block(const struct backend_state *s, size_t i, uint32_t b,
                      char *bytes, bool save, struct err *e)
{
    struct backend_array a = flat_array(s, i);
    return array_block(&a, b, bytes, save)
               ? 0
               : err_set(e, ERR_CONTEXT, "block %u of state %s", b,
                         s->m->state[i].name);
}

int cpu_block_save(const struct backend_state *s, uint32_t b, void *out,
                   struct err *e)
{
    char *at = out;
    for (size_t i = 0; i < s->n; i++) {
        if (s->kv != NULL) {
            kv_block_get(s->kv, i, b, at);
            at += kv_block_bytes(s->kv, i);
        } else {
            RETERR(flat_block(s, i, b, at, true, e));
            at += array_block_bytes(s->m->state[i].type);
        }
    }
    for (size_t i = 0; i < n_tails(s); i++) {
        tails_block_get(s->tails, i, b, at);
        at += tails_block_bytes(&s->m->rows->tails[i]);
    }
    return 0;
}

int cpu_block_load(struct backend_state *s, uint32_t b, const void *in,
                   struct err *e)
{
    char *at = (char *)(uintptr_t)in; /* only read */
    if (s->kv != NULL) {
        RETERR(kv_reserve(s->kv, b * KV_BLOCK, KV_BLOCK, e));
    }
    for (size_t i = 0; i < s->n; i++) {
        if (s->kv != NULL) {
            kv_block_put(s->kv, i, b, at);
            at += kv_block_bytes(s->kv, i);
        } else {
            RETERR(flat_block(s, i, b, at, false, e));
            at += array_block_bytes(s->m->state[i].type);
        }
    }
    for (size_t i = 0; i < n_tails(s); i++) {
        RETERR(tails_block_put(s->tails, i, b, at, e));
        at += tails_block_bytes(&s->m->rows->tails[i]);
    }
    return 0;
}

/* The functions of one package share their states: same names and sizes. */
bool cpu_state_fits(const struct backend_state *s,
                    const struct backend_model *m, bool rows)
{
    bool fits = s->n == m->n_states && (!rows || s->n == 0 || s->kv != NULL) &&
                (!rows || m->rows->n_tails == 0 ||
                 (s->tails != NULL && s->model_id == m->id));
    for (size_t i = 0; fits && s->model_id != m->id && i < s->n; i++) {
        fits = s->m->state[i].n == m->state[i].n &&
               strcmp(s->m->state[i].name, m->state[i].name) == 0;
        if (fits && rows) {
            const struct kv_shape *have = kv_table_shape(s->kv, i);
            const struct kv_shape *want = &m->rows->shapes[i];
            fits = have->key == want->key && have->heads == want->heads &&
                   have->dim == want->dim;
        }
    }
    return fits;
}
