/* rows.c - evaluation on a backend that runs rows of any sequences: all rows
 * are multiplied with each matrix together (continuous batching).
 *
 *   evals --next_batch--> rows of a batch --shards--> hidden --pack--> wanted
 *   rows --heads, a slice at a time--> logits --> each eval's fn
 *
 * A batch takes rows in order; rows that do not fit wait for the next batch. A
 * backend cannot say which row made a batch fail, so each eval of a failed
 * batch runs again alone. This writes its positions a second time, with the
 * same values.
 */
#include <string.h>

#include "base/crew.h"
#include "base/num.h"
#include "engine/impl.h"

#define ROW_ALIGN 64 /* bytes: rows begin cache lines */
#define RESULTS   3  /* of a shard, beside what it gives: the stream, a router's */

/* --- open, close --- */

/* Rows that every shard and head takes; 0: not all run rows. */
static uint32_t rows_of(const struct engine *g)
{
    const struct backend *be = g->be;
    size_t max = ENGINE_STEP_ROWS_MAX;
    if (be->rows == NULL) {
        return 0;
    }
    for (size_t i = 0; i < g->n_shards + g->n_heads; i++) {
        const struct shard *s =
            i < g->n_shards ? &g->shards[i] : &g->heads[i - g->n_shards];
        max = s->rows != NULL ? num_min(max, s->rows->info.rows_max) : 0;
    }
    return (uint32_t)num_min(max, experts_rows_max(g));
}

/* (max, *ld) floats for rows of `width`. */
static float *array(uint32_t max, size_t width, size_t *ld)
{
    size_t unit = ROW_ALIGN / sizeof(float);
    *ld = (width + unit - 1) / unit * unit;
    return aligned_alloc(ROW_ALIGN, max * *ld * sizeof(float));
}

/* Rows of what shards give, and a result for each. */
static bool make_handed(struct rows *b, const struct engine *g)
{
    size_t most = 0;
    bool ok = true;
    for (size_t i = 0; i < g->n_shards; i++) {
        most = num_max(most, g->shards[i].n_gives);
    }
    for (size_t i = 0; i < g->n_handed; i++) {
        struct handed *h = &g->handed[i];
        h->rows = array(b->max, h->width, &h->ld);
        ok = ok && h->rows != NULL;
    }
    b->out = calloc(RESULTS + most, sizeof(*b->out));
    return ok && b->out != NULL;
}

static int make_batch(struct rows *b, const struct engine *g, size_t n_in,
                      unsigned uses, struct err *e)
{
    bool ok = make_handed(b, g);
    if ((uses & 1U << ROLE_EMBED) != 0) {
        b->x_embed = array(b->max, g->b->d_model, &b->ld);
        ok = ok && b->x_embed != NULL;
    }
    if ((uses & 1U << ROLE_PLE) != 0) {
        b->ple = array(b->max, g->tables.ple_width, &b->ld_ple);
        ok = ok && b->ple != NULL;
    }
    for (size_t i = 0; i < 2; i++) {
        size_t half = g->in.rope[i].half;
        b->x[i] = array(b->max, g->b->d_model, &b->ld);
        b->lo[i] = calloc(b->max, sizeof(*b->lo[i]));
        b->hi[i] = calloc(b->max, sizeof(*b->hi[i]));
        ok = ok && b->x[i] != NULL && b->lo[i] != NULL && b->hi[i] != NULL;
        if (half > 0) {
            b->cos[i] = array(b->max, half, &b->ld_rope[i]);
            b->sin[i] = array(b->max, half, &b->ld_rope[i]);
            ok = ok && b->cos[i] != NULL && b->sin[i] != NULL;
        }
    }
    b->write = calloc(b->max, sizeof(*b->write));
    b->state = calloc(b->max, sizeof(struct backend_state *));
    b->parts = calloc(b->max, sizeof(*b->parts));
    b->in = calloc(n_in, sizeof(*b->in));
    b->in_lo = calloc(n_in, sizeof(uint32_t *));
    b->in_hi = calloc(n_in, sizeof(uint32_t *));
    ok = ok && b->write != NULL && b->state != NULL && b->parts != NULL &&
         b->in != NULL && b->in_lo != NULL && b->in_hi != NULL;
    return ok ? 0 : err_set(e, ERR_NOMEM, "rows");
}

int rows_init(struct engine *g, struct err *e)
{
    static const unsigned ropes = 1U << ROLE_COS | 1U << ROLE_SIN |
                                  1U << ROLE_COS_LOCAL | 1U << ROLE_SIN_LOCAL;
    struct rows *b = &g->rows;
    uint32_t max = rows_of(g);
    unsigned uses = 0;
    size_t n_in = 1;
    for (size_t i = 0; i < g->n_shards; i++) {
        struct shard *s = &g->shards[i];
        s->rows = max > 0 ? s->rows : NULL;
        uses |= shard_uses(s);
        n_in = num_max(n_in, max > 0 ? s->rows->info.n_in : 0);
    }
    if (max == 0) {
        return 0;
    }
    b->max = max;
    size_t slice = LOGITS_BYTES_MAX / sizeof(float) / g->row_out;
    b->slice = (uint32_t)num_max(1, num_min(slice, max));
    RETERR(inputs_init(&g->in, g->b, uses & ropes, e));
    RETERR(logits_room(g, b->slice, e)); /* steps allocate nothing */
    if (g->b->argmax) {
        g->tops = calloc((size_t)b->slice * TOP_NUMBERS, sizeof(*g->tops));
        if (g->tops == NULL) {
            return err_set(e, ERR_NOMEM, "rows");
        }
    }
    RETERR(experts_room(g, max, e));
    return make_batch(b, g, n_in, uses, e);
}

void rows_fini(struct rows *b)
{
    for (size_t i = 0; i < 2; i++) {
        free(b->x[i]);
        free(b->cos[i]);
        free(b->sin[i]);
        free(b->lo[i]);
        free(b->hi[i]);
    }
    free(b->x_embed);
    free(b->ple);
    free(b->write);
    free(b->state);
    free(b->parts);
    free(b->in);
    free(b->out);
    free(b->in_lo);
    free(b->in_hi);
    *b = (struct rows){0};
}

/* --- a batch --- */

/* The next k rows of v. */
static void add_part(struct rows *b, struct eval *v, uint32_t k)
{
    uint32_t skip = v->n - v->want; /* rows of which nothing is wanted */
    uint32_t end = v->done + k;
    uint32_t wanted = end > skip ? (uint32_t)num_min(end - skip, k) : 0;
    b->parts[b->n_parts++] = (struct part){.v = v,
                                           .n = k,
                                           .wanted = v->hidden ? 0 : wanted,
                                           .hidden = v->hidden ? wanted : 0};
    b->n += k;
}

/* False: nothing is left to run. */
static bool next_batch(struct rows *b, struct eval *v, size_t n, uint32_t limit)
{
    b->n = 0;
    b->n_parts = 0;
    for (size_t i = 0; i < n; i++) {
        if (v[i].rc == 0 && v[i].alone) {
            v[i].alone = false;
            add_part(b, &v[i], (uint32_t)num_min(v[i].n - v[i].done, limit));
            return true;
        }
    }
    for (size_t i = 0; i < n && b->n < limit; i++) {
        uint32_t left = v[i].rc == 0 ? v[i].n - v[i].done : 0;
        if (left > 0) {
            add_part(b, &v[i], (uint32_t)num_min(left, limit - b->n));
        }
    }
    return b->n > 0;
}

static void fill_x(struct engine *g)
{
    struct rows *b = &g->rows;
    float *x = b->x[0];
    size_t r = 0;
    for (uint32_t p = 0; p < b->n_parts; p++) {
        const struct eval *v = b->parts[p].v;
        const int32_t *tokens = v->s->tokens + v->s->n + v->done;
        for (uint32_t i = 0; i < b->parts[p].n; i++, x += b->ld) {
            tables_embed(&g->tables, tokens[i], x);
            if (b->ple != NULL) {
                tables_ple(&g->tables, tokens[i], b->ple + r * b->ld_ple);
            }
            r++;
        }
    }
    if (b->x_embed != NULL) {
        memcpy(b->x_embed, b->x[0], b->n * b->ld * sizeof(*x));
    }
}

static void fill_places(struct engine *g)
{
    struct rows *b = &g->rows;
    uint32_t r = 0;
    for (uint32_t p = 0; p < b->n_parts; p++) {
        const struct eval *v = b->parts[p].v;
        uint32_t pos = v->s->n + v->done;
        for (uint32_t i = 0; i < b->parts[p].n; i++, pos++, r++) {
            b->write[r] = pos;
            for (size_t k = 0; k < 2; k++) {
                inputs_sight(&g->in, k, pos, &b->lo[k][r], &b->hi[k][r]);
                if (b->cos[k] != NULL) {
                    const float *row[2];
                    size_t at = r * b->ld_rope[k];
                    size_t bytes = g->in.rope[k].half * sizeof(float);
                    inputs_rope_row(&g->in, k, v->s->long_list, pos, &row[0],
                                    &row[1]);
                    memcpy(b->cos[k] + at, row[0], bytes);
                    memcpy(b->sin[k] + at, row[1], bytes);
                }
            }
        }
    }
}

/* --- layers --- */

/* Each input of a shard; x is at hand. */
static void bind_inputs(struct engine *g, const struct shard *sh,
                        const float *x)
{
    struct rows *b = &g->rows;
    const struct unit *u = sh->rows;
    const struct handed *h = NULL;
    for (size_t k = 0; k < u->info.n_in; k++) {
        b->in[k] = (struct backend_row_in){0};
        b->in_lo[k] = NULL;
        b->in_hi[k] = NULL;
        size_t local = u->roles[k] == ROLE_COS_LOCAL ||
                       u->roles[k] == ROLE_SIN_LOCAL ||
                       u->roles[k] == ROLE_MASK_LOCAL;
        switch (u->roles[k]) {
        case ROLE_X:
            b->in[k] = (struct backend_row_in){x, b->ld};
            break;
        case ROLE_EMBED:
            b->in[k] = (struct backend_row_in){b->x_embed, b->ld};
            break;
        case ROLE_PLE:
            b->in[k] = (struct backend_row_in){b->ple, b->ld_ple};
            break;
        case ROLE_EXPERTS:
            b->in[k] =
                (struct backend_row_in){g->experts.sum, g->experts.ld};
            break;
        case ROLE_COS:
        case ROLE_COS_LOCAL:
            b->in[k] =
                (struct backend_row_in){b->cos[local], b->ld_rope[local]};
            break;
        case ROLE_SIN:
        case ROLE_SIN_LOCAL:
            b->in[k] =
                (struct backend_row_in){b->sin[local], b->ld_rope[local]};
            break;
        case ROLE_MASK:
        case ROLE_MASK_LOCAL:
            b->in_lo[k] = b->lo[local];
            b->in_hi[k] = b->hi[local];
            break;
        case ROLE_WRITE:
            break;
        case ROLE_TAKE:
            h = &g->handed[sh->from[u->nth[k]]];
            b->in[k] = (struct backend_row_in){h->rows, h->ld};
            break;
        case ROLE_TAIL: /* the states have it */
            break;
        case ROLE_PAST:
            must(u->roles[k] != ROLE_PAST); /* unit.c leaves it out */
        }
    }
}

/* Whether the step is still wanted. */
static int still_wanted(const struct engine *g, bool last, struct err *e)
{
    return g->go == NULL || g->go(g->go_ctx, last)
               ? 0
               : err_set(e, ERR_CANCELLED, "the step was called off");
}

/* The same inside of a shard, for backends that ask. */
static bool wanted_yet(void *ctx)
{
    const struct engine *g = ctx;
    return g->go(g->go_ctx, false);
}

/* One shard or head on n rows of x. */
static int run_unit(struct engine *g, const struct shard *sh, const float *x,
                    uint32_t n, struct backend_state *const *state,
                    struct backend_row_out *out, size_t n_out, struct err *e)
{
    struct rows *b = &g->rows;
    const struct unit *u = sh->rows;
    bool may_stop = state != NULL; /* a layer */
    bind_inputs(g, sh, x);
    const struct backend_rows in = {
        .n = n,
        .in = b->in,
        .state =
            u->info.n_states > 0 || u->info.recurrent ? state : NULL,
        .write = b->write,
        .lo = b->in_lo,
        .hi = b->in_hi,
        .go = may_stop && g->go != NULL ? wanted_yet : NULL,
        .go_ctx = g,
    };
    int rc = g->be->rows->predict(u->m, &in, out, n_out, e);
    return rc < 0 ? err_prefix(e, rc, "%s", sh->path) : 0;
}

/* Shard i's results: the stream in `hidden`, then what it gives, then what its
 * router does. */
static size_t bind_outputs(struct engine *g, size_t i, float *hidden)
{
    struct rows *b = &g->rows;
    const struct shard *s = &g->shards[i];
    b->out[0] =
        (struct backend_row_out){.name = s->out, .p = hidden, .ld = b->ld};
    for (size_t k = 0; k < s->n_gives; k++) {
        const struct handed *h = &g->handed[s->hand + k];
        b->out[1 + k] = (struct backend_row_out){
            .name = s->gives[k].name, .p = h->rows, .ld = h->ld};
    }
    size_t n = 1 + s->n_gives;
    if (s->n_routed > 0) {
        const struct experts *x = &g->experts;
        b->out[n++] = (struct backend_row_out){
            .name = EXPERT_IN, .p = x->in, .ld = x->ld};
        b->out[n++] = (struct backend_row_out){
            .name = EXPERT_GATES, .p = x->gates, .ld = x->ld_gates};
    }
    return n;
}

/* The whole batch through every shard; *hidden: (n, ld). */
static int run_layers(struct engine *g, float **hidden,
                      struct engine_times *times, struct err *e)
{
    struct rows *b = &g->rows;
    uint64_t at = now_us();
    fill_x(g);
    spent(&at, &times->us_embed);
    fill_places(g);
    spent(&at, &times->us_masks);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < g->n_shards; i++) {
        uint32_t r = 0;
        for (uint32_t p = 0; p < b->n_parts; p++) {
            for (uint32_t k = 0; k < b->parts[p].n; k++) {
                b->state[r++] = b->parts[p].v->s->states[i];
            }
        }
        size_t n_out = bind_outputs(g, i, b->x[(i + 1) % 2]);
        rc = i > 0 ? still_wanted(g, false, e) : 0;
        rc = rc < 0 ? rc
                    : run_unit(g, &g->shards[i], b->x[i % 2], b->n, b->state,
                               b->out, n_out, e);
        if (rc == 0 && g->shards[i].n_routed > 0) {
            rc = experts_sum(g, i, b->n, e);
        }
    }
    spent(&at, &times->us_layers);
    rc = rc < 0 ? rc : still_wanted(g, true, e);
    spent(&at, &times->us_wait);
    *hidden = b->x[g->n_shards % 2];
    return rc;
}

/* Hidden states to those who want them, before pack() moves rows. */
static void give_hidden(const struct rows *b, float *hidden)
{
    uint32_t r = 0;
    for (uint32_t p = 0; p < b->n_parts; p++) {
        const struct part *part = &b->parts[p];
        struct eval *v = part->v;
        for (uint32_t i = part->n - part->hidden; i < part->n && v->rc == 0;
             i++) {
            v->rc = v->fn(v->ctx, v->done + i, 1, hidden + (r + i) * b->ld,
                          v->e);
        }
        r += part->n;
    }
}

/* --- heads --- */

/* Rows whose logits are wanted to the front, in order. Returns how many. */
static uint32_t pack(const struct rows *b, float *hidden)
{
    uint32_t n = 0;
    uint32_t r = 0;
    for (uint32_t p = 0; p < b->n_parts; p++) {
        const struct part *part = &b->parts[p];
        r += part->n - part->wanted;
        if (n < r) {
            memmove(hidden + n * b->ld, hidden + r * b->ld,
                    part->wanted * b->ld * sizeof(*hidden));
        }
        n += part->wanted;
        r += part->wanted;
    }
    return n;
}

/* A slice's likeliest tokens. */
static int run_top(struct engine *g, size_t h, const float *x, uint32_t n,
                   float *out, struct err *e)
{
    struct shard *sh = &g->heads[h];
    struct backend_row_out to[] = {
        {.name = sh->out,   .p = g->tops,             .ld = TOP_NUMBERS},
        {.name = sh->value, .p = g->tops + TOP_VALUE, .ld = TOP_NUMBERS},
    };
    RETERR(run_unit(g, sh, x, n, NULL, to, countof(to), e));
    for (size_t i = 0; i < n; i++) {
        const float *top = g->tops + i * TOP_NUMBERS;
        tops_merge(out + i * TOP_NUMBERS, h == 0, g->b->heads[h].vocab_first,
                   top[TOP_ID], top[TOP_VALUE]);
    }
    return 0;
}

static int run_heads(struct engine *g, const float *x, uint32_t n, float *out,
                     struct err *e)
{
    for (size_t h = 0; h < g->n_heads; h++) {
        struct backend_row_out to = {.name = g->heads[h].out,
                                     .p = out + g->b->heads[h].vocab_first,
                                     .ld = g->b->vocab};
        RETERR(g->b->argmax
                   ? run_top(g, h, x, n, out, e)
                   : run_unit(g, &g->heads[h], x, n, NULL, &to, 1, e));
    }
    return 0;
}

/* Logits of wanted rows [first, first + n) of the batch. */
struct logits {
    const struct engine *g;
    float *p;
    uint32_t first, n;
};

/* To whom they belong; items are parts. An eval that failed takes no more. */
static void hand_parts(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct logits *l = ctx;
    const struct rows *b = &l->g->rows;
    uint32_t at = 0; /* wanted row that a part begins with */
    for (uint32_t p = 0; p < end; at += b->parts[p++].wanted) {
        const struct part *part = &b->parts[p];
        struct eval *v = part->v;
        uint32_t from = (uint32_t)num_max(l->first, at);
        uint32_t to = (uint32_t)num_min(l->first + l->n, at + part->wanted);
        if (p >= begin && from < to && v->rc == 0 && v->fn != NULL) {
            uint32_t row = v->done + part->n - part->wanted + (from - at);
            v->worker = worker;
            v->rc = v->fn(v->ctx, row, to - from,
                          l->p + (size_t)(from - l->first) * l->g->row_out,
                          v->e);
        }
    }
}

/* Evals know nothing of each other, so their tokens are drawn side by side
 * where that is work enough. */
static void hand_out(struct engine *g, float *logits, uint32_t first,
                     uint32_t n)
{
    struct logits l = {.g = g, .p = logits, .first = first, .n = n};
    bool some = (size_t)n * g->row_out >= g->draw_min;
    crew_run(some ? g->threads : 1, g->rows.n_parts, 1, hand_parts, &l);
}

static void fail_wanted(const struct rows *b, uint32_t first, int rc,
                        const struct err *e)
{
    uint32_t at = 0;
    for (uint32_t p = 0; p < b->n_parts; p++) {
        struct eval *v = b->parts[p].v;
        at += b->parts[p].wanted;
        if (at > first && b->parts[p].wanted > 0 && v->rc == 0) {
            v->rc = rc;
            *v->e = *e;
        }
    }
}

static void run_wanted(struct engine *g, float *hidden,
                       struct engine_times *times)
{
    const struct rows *b = &g->rows;
    uint64_t at = now_us();
    uint32_t n = pack(b, hidden);
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i += k) {
        struct err e;
        const struct eval *v = b->parts[0].v;
        float *to = g->logits;
        k = (uint32_t)num_min(n - i, b->slice);
        if (v->fn == NULL) { /* all of its rows stand in g->logits */
            uint32_t row = v->done + b->parts[0].n - n + i;
            to += (size_t)(row - (v->n - v->want)) * g->row_out;
        }
        int rc = run_heads(g, hidden + i * b->ld, k, to, &e);
        spent(&at, &times->us_head);
        if (rc < 0) {
            fail_wanted(b, i, rc, &e);
            return;
        }
        hand_out(g, to, i, k);
        spent(&at, &times->us_sample);
    }
}

/* --- evaluation --- */

static int logits_ready(struct engine *g, const struct eval *v, size_t n,
                        struct err *e)
{
    uint32_t rows = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t need = v[i].fn != NULL ? g->rows.slice : v[i].want;
        bool wants = v[i].want > 0 && !v[i].hidden;
        rows = wants ? (uint32_t)num_max(rows, need) : rows;
        must(v[i].fn != NULL || n == 1);
    }
    return logits_room(g, rows, e);
}

static void run_batch(struct engine *g, struct engine_times *times)
{
    struct rows *b = &g->rows;
    struct err e;
    float *hidden = NULL;
    int rc = run_layers(g, &hidden, times, &e);
    if (rc == 0) {
        give_hidden(b, hidden);
        run_wanted(g, hidden, times);
    }
    for (uint32_t p = 0; p < b->n_parts; p++) {
        struct eval *v = b->parts[p].v;
        if (rc == 0) {
            v->done += b->parts[p].n;
        } else if (b->n_parts > 1 && rc != ERR_CANCELLED) {
            v->alone = true;
        } else {
            v->rc = rc;
            *v->e = e;
        }
    }
}

void rows_run(struct engine *g, struct eval *v, size_t n, uint32_t chunk,
              struct engine_times *times)
{
    uint32_t max = g->rows.max;
    struct err e;
    int rc = logits_ready(g, v, n, &e);
    for (size_t i = 0; rc < 0 && i < n; i++) {
        v[i].rc = rc;
        *v[i].e = e;
    }
    for (size_t i = 0; i < n; i++) { /* it may fail after many positions */
        if (v[i].rc == 0 && v[i].n > ENGINE_DRAFTS_MAX) {
            v[i].rc = seq_mark(v[i].s, v[i].s->n, true, v[i].e);
        }
    }
    chunk = chunk == 0 || chunk > max ? max : chunk;
    while (next_batch(&g->rows, v, n, chunk)) {
        run_batch(g, times);
    }
}
