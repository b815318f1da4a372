/* encode.c - see encode.h.
 *
 *   tokens ── rows of the window ── x ──shard 0──► x ──► ... x ──head──► logits
 *
 * A window's T is the least width that has its rows: with a range any multiple
 * of the block, else a function's. What pads it sees itself alone and is seen by
 * nobody. Arrays of the last T are kept: windows of a long text are alike.
 *
 * Positions are those of the text and windows begin at whole blocks, so that a
 * row's products and sums are the same ones in any window that has its reach.
 */
#include "engine/encode.h"

#include <string.h>

#include "base/crew.h"
#include "base/fmath.h"
#include "base/num.h"
#include "engine/array.h"
#include "engine/impl.h"

/* One program for a T: its inputs by role, and where its result is. */
struct bound {
    struct backend_array *in[ROLE_PAST]; /* owned; NULL: not read */
    struct backend_io *io;               /* owned */
    size_t out;
};

struct encoder {
    const struct backend *be;
    struct bundle *b;
    struct tables tables;
    struct inputs in;
    struct cpu_conf cpu;
    struct backend_conf conf;
    size_t n; /* shards, then the head */
    struct shard *shards;
    uint32_t t; /* of `bound`; 0: nothing is bound */
    struct bound *bound;
    uint32_t block, reach;
    float *row;    /* scratch: d_model, or a row of the mask or of a table */
    float *logits; /* (most rows of a run, bundle_outputs) */
};

const struct bundle *encoder_bundle(const struct encoder *g)
{
    return g->b;
}

const char *encoder_arith(const struct encoder *g)
{
    return g->shards[0].units[0].info.arith;
}

/* --- open, close --- */

static int open_shards(struct encoder *g, const struct engine_conf *conf,
                       struct err *e)
{
    const struct bundle *b = g->b;
    uint32_t total = (uint32_t)(b->n_shards + b->n_heads_shards);
    g->shards = calloc(total, sizeof(*g->shards));
    g->bound = calloc(total, sizeof(*g->bound));
    if (g->shards == NULL || g->bound == NULL) {
        return err_set(e, ERR_NOMEM, "shards");
    }
    for (uint32_t i = 0; i < total; i++) {
        struct shard *s = &g->shards[g->n++];
        RETERR(i < b->n_shards
                   ? shard_open(s, g->be, &g->conf, b, &b->shards[i], e)
                   : head_open(s, g->be, &g->conf, b,
                               &b->heads[i - b->n_shards], e));
        if (s->n_past > 0 || s->n_tails > 0 || s->units[0].info.n_states > 0) {
            return err_set(e, ERR_BUNDLE, "%s: an encoder keeps nothing",
                           s->path);
        }
        if (conf->progress != NULL) {
            conf->progress(conf->ctx, ENGINE_LOADS, i + 1, total);
        }
    }
    return 0;
}

static int make_scratch(struct encoder *g, struct err *e)
{
    const struct bundle *b = g->b;
    unsigned uses = 0;
    /* of x, a turn or the mask: a band, or all keys of a text */
    size_t mask = num_max((size_t)3 * g->block, ENCODER_ROWS_MAX);
    size_t row = num_max(b->d_model, mask);
    size_t most = bundle_kind(b) == BUNDLE_EMBEDDER ? b->context
                                                    : ENCODER_ROWS_MAX;
    for (size_t i = 0; i < g->n; i++) {
        uses |= shard_uses(&g->shards[i]);
    }
    RETERR(inputs_init(&g->in, b, uses, e));
    g->row = calloc(num_max(row, b->rope.dim), sizeof(*g->row));
    g->logits = calloc(most * bundle_outputs(b), sizeof(*g->logits));
    return g->row != NULL && g->logits != NULL
               ? 0
               : err_set(e, ERR_NOMEM, "encoder");
}

static int open_all(struct encoder *g, const char *dir,
                    const struct engine_conf *conf, struct err *e)
{
    RETERR(bundle_open(dir, &g->b, e));
    if (!g->b->encoder) {
        return bundle_want_kind(g->b, BUNDLE_TAGGER, e);
    }
    g->block = layer_block(g->b->rope.window);
    g->reach = (uint32_t)num_min((uint64_t)g->b->n_layers * g->b->rope.window,
                                 ENCODER_ROWS_MAX);
    RETERR(tables_open(&g->tables, g->b, e));
    g->cpu = (struct cpu_conf){.round_fp16 = conf->round_fp16,
                               .isa = conf->isa,
                               .chosen_experts = conf->chosen_experts,
                               .tap = conf->tap,
                               .tap_ctx = conf->tap_ctx};
    g->conf = (struct backend_conf){.threads = conf->threads,
                                    .watch = conf->watch,
                                    .cache = conf->cache,
                                    .cpu = &g->cpu};
    RETERR(open_shards(g, conf, e));
    return make_scratch(g, e);
}

int encoder_open(const char *bundle_dir, const struct engine_conf *conf,
                 struct encoder **ret, struct err *e)
{
    const char *name = conf->backend != NULL ? conf->backend : "cpu";
    const struct backend *be = backend_find(name);
    if (be == NULL) {
        return err_set(e, ERR_UNSUPPORTED, "no backend '%s' in this build",
                       name);
    }
    struct encoder *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        return err_set(e, ERR_NOMEM, "encoder");
    }
    g->be = be;
    crew_ref();
    int rc = open_all(g, bundle_dir, conf, e);
    if (rc < 0) {
        encoder_close(g);
        return rc;
    }
    *ret = g;
    return 0;
}

static void unbind(struct encoder *g)
{
    for (size_t i = 0; g->bound != NULL && i < g->n; i++) {
        g->be->unbind(g->bound[i].io);
        for (size_t k = 0; k < ROLE_PAST; k++) {
            g->be->array_free(g->bound[i].in[k]);
        }
        g->bound[i] = (struct bound){0};
    }
    g->t = 0;
}

void encoder_close(struct encoder *g)
{
    if (g == NULL) {
        return;
    }
    unbind(g);
    for (size_t i = 0; i < g->n; i++) {
        shard_close(&g->shards[i]);
    }
    inputs_fini(&g->in);
    tables_close(&g->tables);
    bundle_close(g->b);
    free(g->shards);
    free(g->bound);
    free(g->row);
    free(g->logits);
    free(g);
    crew_unref();
}

/* --- widths --- */

static bool takes(const struct encoder *g, uint32_t t)
{
    size_t i = 0;
    while (i < g->n && shard_unit(&g->shards[i], t) != NULL) {
        i++;
    }
    return i == g->n;
}

/* A T that all programs take for n rows, not much more; 0: none is that wide. A
 * backend keeps a plan for each, so they are few: steps of an eighth to a
 * quarter. */
static uint32_t width_for(const struct encoder *g, uint32_t n)
{
    uint32_t step = g->block;
    uint32_t t = (n + g->block - 1) / g->block * g->block;
    while (n > 8 * step) {
        step *= 2;
    }
    uint32_t wide = (n + step - 1) / step * step;
    if (wide <= ENCODER_ROWS_MAX && takes(g, t) && takes(g, wide)) {
        return wide;
    }
    while (t <= ENCODER_ROWS_MAX && !takes(g, t)) {
        t += g->block;
    }
    return t <= ENCODER_ROWS_MAX ? t : 0;
}

static uint32_t widest(const struct encoder *g)
{
    uint32_t t = ENCODER_ROWS_MAX;
    while (t > 0 && width_for(g, t) != t) {
        t -= g->block;
    }
    return t;
}

struct encoder_plan encoder_plan(const struct encoder *g, uint32_t n)
{
    struct encoder_plan p = {.rows = widest(g)};
    uint32_t side = (g->reach + g->block - 1) / g->block * g->block;
    uint32_t most = p.rows / 4 / g->block * g->block;
    p.side = 2 * side < p.rows ? side : most;
    p.exact = n <= p.rows || p.side >= g->reach;
    return p;
}

/* --- one window --- */

/* Rows [first, first + n) of a text, of T columns. */
struct window {
    uint32_t first, n, t;
};

static int bind_program(struct encoder *g, size_t i, uint32_t t, struct err *e)
{
    struct unit *u = shard_unit(&g->shards[i], t);
    struct bound *b = &g->bound[i];
    struct backend_array *in[ROLE_PAST] = {NULL};
    must(u != NULL && u->info.n_in <= ROLE_PAST);
    for (size_t k = 0; k < u->info.n_in; k++) {
        const struct mil_type *type = &u->info.in[k].type;
        int64_t dims[MIL_RANK_MAX];
        for (int a = 0; a < type->rank; a++) {
            dims[a] = type->dims[a] == MIL_UNKNOWN ? t : type->dims[a];
        }
        enum role r = u->roles[k];
        must(r < ROLE_PAST && b->in[r] == NULL);
        RETERR(g->be->array_new(u->m, k, MIL_FP32, type->rank, dims, &b->in[r],
                                e));
        in[k] = b->in[r];
    }
    RETERR(g->be->bind(u->m, in, &b->io, e));
    while (strcmp(u->info.out[b->out].name, g->shards[i].out) != 0) {
        b->out++; /* unit.c has found it */
    }
    return 0;
}

static int bind_all(struct encoder *g, uint32_t t, struct err *e)
{
    if (g->t == t) {
        return 0;
    }
    unbind(g);
    for (size_t i = 0; i < g->n; i++) {
        int rc = bind_program(g, i, t, e);
        if (rc < 0) {
            unbind(g);
            return rc;
        }
    }
    g->t = t;
    return 0;
}

/* x of the first program: embeddings. Behind the text are zeros; or its last row
 * again, where a norm comes first: one of zeros may have no deviation that fp16
 * can hold. */
static void put_tokens(struct encoder *g, struct backend_array *x,
                       const int32_t *tokens, const struct window *w)
{
    for (uint32_t i = 0; i < w->t; i++) {
        const int64_t at[4] = {0, 0, i, 0};
        if (i < w->n) {
            tables_embed(&g->tables, tokens[w->first + i], g->row);
            tables_position(&g->tables, w->first + i, g->row);
        } else if (g->b->rope.window > 0) {
            memset(g->row, 0, g->b->d_model * sizeof(*g->row));
        }
        array_put(x, (struct array_line){at, 1, g->b->d_model}, g->row, 1);
    }
}

/* Row i of cosines or sines is that of position first + i. */
static void put_turns(struct encoder *g, struct backend_array *a, bool sines,
                      const struct window *w)
{
    const struct rope *r = &g->in.rope[0];
    for (uint32_t i = 0; i < w->t; i++) {
        const int64_t at[2] = {i, 0};
        for (uint32_t k = 0; k < r->half; k++) {
            double sine = 0;
            double cosine = 0;
            fmath_sincos((double)(w->first + i) * r->of[0].freq[k], &sine,
                         &cosine);
            g->row[k] = (float)((sines ? sine : cosine) * r->magnitude);
        }
        array_put(a, (struct array_line){at, 1, r->half}, g->row, 1);
    }
}

/* Which keys are the text's; the same for all rows. */
static void put_keys(struct encoder *g, struct backend_array *a,
                     const struct window *w)
{
    const int64_t at[4] = {0, 0, 0, 0};
    for (uint32_t j = 0; j < w->t; j++) {
        g->row[j] = j < w->n ? 0 : MASK_OFF;
    }
    array_put(a, (struct array_line){at, 3, w->t}, g->row, 1);
}

/* Column c of row i is key block * (i / block - 1) + c. */
static void put_mask(struct encoder *g, struct backend_array *a,
                     const struct window *w)
{
    int64_t reach = g->b->rope.window;
    for (uint32_t i = 0; i < w->t; i++) {
        const int64_t at[4] = {0, 0, i, 0};
        int64_t first = (int64_t)(i - i % g->block) - g->block;
        for (int64_t c = 0; c < 3 * (int64_t)g->block; c++) {
            int64_t j = first + c;
            int64_t far = j > i ? j - i : i - j;
            bool seen = j == i || (i < w->n && j >= 0 && j < w->n &&
                                   far <= reach);
            g->row[c] = seen ? 0 : MASK_OFF;
        }
        array_put(a, (struct array_line){at, 3, (size_t)3 * g->block}, g->row,
                  1);
    }
}

static int fill_inputs(struct encoder *g, size_t i, const int32_t *tokens,
                       const struct window *w, struct err *e)
{
    for (unsigned r = 0; r < ROLE_PAST; r++) {
        struct backend_array *a = g->bound[i].in[r];
        if (a == NULL || (r == ROLE_X && i > 0)) {
            continue;
        }
        RETERR(array_begin(g->be, a, true, e));
        switch (r) {
        case ROLE_X:
            put_tokens(g, a, tokens, w);
            break;
        case ROLE_COS:
        case ROLE_SIN:
            put_turns(g, a, r == ROLE_SIN, w);
            break;
        default: /* unit.c takes no other */
            (g->b->rope.window > 0 ? put_mask : put_keys)(g, a, w);
            break;
        }
        array_end(g->be, a, true);
    }
    return 0;
}

static int run_program(struct encoder *g, size_t i, const int32_t *tokens,
                       const struct window *w, struct err *e)
{
    struct shard *s = &g->shards[i];
    struct bound *b = &g->bound[i];
    const int64_t want[4] = {1, s->out_rows, w->t, 1};
    if (i > 0) {
        struct bound *before = &g->bound[i - 1];
        RETERR(place_copy((struct place){g->be, b->in[ROLE_X]},
                          (struct place){g->be, &before->io->out[before->out]},
                          e));
    }
    RETERR(fill_inputs(g, i, tokens, w, e));
    int rc = g->be->predict(b->io, NULL, e);
    if (rc == ERR_BACKEND) { /* a device may fail once and not again */
        rc = g->be->predict(b->io, NULL, e);
    }
    if (rc < 0) {
        return err_prefix(e, rc, "%s", s->path);
    }
    return check_out(&b->io->out[b->out], want, s, s->out, e);
}

/* Rows [from, to) of the window to fn: logits, or the stream, which is scaled. */
static int give(struct encoder *g, const struct encoder_run *r,
                const struct window *w, uint32_t from, uint32_t to,
                struct err *e)
{
    const struct bound *b = &g->bound[g->n - 1];
    struct backend_array *y = &b->io->out[b->out];
    uint32_t wide = bundle_outputs(g->b);
    size_t n = (size_t)(to - from) * wide;
    float by = bundle_kind(g->b) == BUNDLE_EMBEDDER ? 1 / g->b->residual_scale
                                                    : 1;
    RETERR(array_begin(g->be, y, false, e));
    for (uint32_t i = from; i < to; i++) {
        const int64_t at[4] = {0, 0, i, 0};
        array_get(y, (struct array_line){at, 1, wide},
                  g->logits + (size_t)(i - from) * wide, 1);
    }
    array_end(g->be, y, false);
    for (size_t i = 0; by != 1 && i < n; i++) {
        g->logits[i] *= by;
    }
    return r->fn(r->ctx, w->first + from, to - from, g->logits, e);
}

static int run_window(struct encoder *g, const struct encoder_run *r,
                      const struct window *w, struct err *e)
{
    RETERR(bind_all(g, w->t, e));
    for (size_t i = 0; i < g->n; i++) {
        if (r->go != NULL && !r->go(r->ctx)) {
            return err_set(e, ERR_CANCELLED, "cancelled");
        }
        RETERR(run_program(g, i, r->tokens, w, e));
    }
    return 0;
}

/* --- a text --- */

static int check_run(const struct encoder *g, const struct encoder_run *r,
                     struct err *e)
{
    if (r->n == 0) {
        return err_set(e, ERR_INVALID, "no tokens");
    }
    if (g->b->rope.window == 0 && r->n > g->b->context) {
        return err_set(e, ERR_CONTEXT, "%u tokens, the model's context is %u",
                       r->n, g->b->context);
    }
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->tokens[i] < 0 || (uint32_t)r->tokens[i] >= g->b->vocab) {
            return err_set(e, ERR_INVALID, "token %d of %u", r->tokens[i],
                           g->b->vocab);
        }
    }
    return 0;
}

int encoder_run(struct encoder *g, const struct encoder_run *r, struct err *e)
{
    struct encoder_plan p = encoder_plan(g, r->n);
    RETERR(check_run(g, r, e));
    if (r->rows > 0 && r->rows < p.rows && g->b->rope.window > 0) {
        p.rows = r->rows / g->block * g->block;
        p.side = (g->reach + g->block - 1) / g->block * g->block;
        if (p.rows <= 2 * p.side) {
            return err_set(e, ERR_INVALID, "windows of %u rows for a reach of "
                                           "%u on each side",
                           r->rows, g->reach);
        }
    }
    for (uint32_t done = 0; done < r->n;) {
        uint32_t first = done > p.side ? done - p.side : 0;
        uint32_t n = (uint32_t)num_min(r->n - first, p.rows);
        bool last = first + n == r->n;
        const struct window w = {.first = first,
                                 .n = n,
                                 .t = width_for(g, n)};
        uint32_t end = last ? n : n - p.side;
        RETERR(run_window(g, r, &w, e));
        RETERR(give(g, r, &w, done - first, end, e));
        done = first + end;
    }
    return 0;
}
