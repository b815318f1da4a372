/* encode.c - see encode.h.
 *
 *   tokens ── rows of the window ── x ──shard 0──► x ──► ... x ──head──► logits
 *
 * A window's T is the least width that has its rows: with a range any multiple
 * of the block, else a function's. What pads it is seen by nobody. Arrays of the
 * last T are kept: windows of a long text are alike. encode_inputs.c fills them;
 * encode_pool.c puts short texts side by side.
 *
 * Positions are those of the text and windows begin at whole blocks, so that a
 * row's products and sums are the same ones in any window that has its reach.
 */
#include "engine/encode_impl.h"

#include <string.h>

#include "base/crew.h"
#include "base/num.h"
#include "engine/array.h"

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
        g->packs = (i == 0 || g->packs) && s->units[0].info.wide_masks;
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
    g->rows = calloc(ENCODER_ROWS_MAX, sizeof(*g->rows));
    g->logits = calloc(most * bundle_outputs(b), sizeof(*g->logits));
    return g->row != NULL && g->rows != NULL && g->logits != NULL
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
                               .once = conf->once,
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
    free(g->rows);
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

/* A backend keeps a plan for each width, so they are few: steps of an eighth to a
 * quarter. */
uint32_t encode_width(const struct encoder *g, uint32_t n)
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

uint32_t encode_widest(const struct encoder *g)
{
    uint32_t t = ENCODER_ROWS_MAX;
    while (t > 0 && encode_width(g, t) != t) {
        t -= g->block;
    }
    return t;
}

struct encoder_plan encoder_plan(const struct encoder *g, uint32_t n)
{
    struct encoder_plan p = {.rows = encode_widest(g)};
    uint32_t side = (g->reach + g->block - 1) / g->block * g->block;
    uint32_t most = p.rows / 4 / g->block * g->block;
    p.side = 2 * side < p.rows ? side : most;
    p.exact = n <= p.rows || p.side >= g->reach;
    return p;
}

/* --- one window --- */

/* The masks of whole texts are declared with one row for all; `wide`: one each. */
static int bind_program(struct encoder *g, size_t i, uint32_t t, bool wide,
                        struct err *e)
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
        if (wide && r == ROLE_MASK) {
            dims[2] = t;
        }
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

static int bind_all(struct encoder *g, uint32_t t, bool wide, struct err *e)
{
    if (g->t == t && g->wide == wide) {
        return 0;
    }
    unbind(g);
    for (size_t i = 0; i < g->n; i++) {
        int rc = bind_program(g, i, t, wide, e);
        if (rc < 0) {
            unbind(g);
            return rc;
        }
    }
    g->t = t;
    g->wide = wide;
    return 0;
}

static int run_program(struct encoder *g, size_t i, const struct window *w,
                       struct err *e)
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
    RETERR(encode_inputs(g, i, w, e));
    int rc = g->be->predict(b->io, NULL, e);
    if (rc == ERR_BACKEND) { /* a device may fail once and not again */
        rc = g->be->predict(b->io, NULL, e);
    }
    if (rc < 0) {
        return err_prefix(e, rc, "%s", s->path);
    }
    return check_out(&b->io->out[b->out], want, s, s->out, e);
}

const float *encode_rows(struct encoder *g, uint32_t from, uint32_t n,
                         struct err *e)
{
    const struct bound *b = &g->bound[g->n - 1];
    struct backend_array *y = &b->io->out[b->out];
    uint32_t wide = bundle_outputs(g->b);
    float by = bundle_kind(g->b) == BUNDLE_EMBEDDER ? 1 / g->b->residual_scale
                                                    : 1;
    if (array_begin(g->be, y, false, e) != 0) {
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        const int64_t at[4] = {0, 0, from + i, 0};
        array_get(y, (struct array_line){at, 1, wide},
                  g->logits + (size_t)i * wide, 1);
    }
    array_end(g->be, y, false);
    for (size_t i = 0; by != 1 && i < (size_t)n * wide; i++) {
        g->logits[i] *= by;
    }
    return g->logits;
}

int encode_window(struct encoder *g, const struct window *w,
                  bool (*go)(void *ctx), void *ctx, struct err *e)
{
    RETERR(bind_all(g, w->t, w->wide, e));
    for (size_t i = 0; i < g->n; i++) {
        if (go != NULL && !go(ctx)) {
            return err_set(e, ERR_CANCELLED, "cancelled");
        }
        RETERR(run_program(g, i, w, e));
    }
    return 0;
}

/* --- a text --- */

int encode_check(const struct encoder *g, const int32_t *tokens, uint32_t n,
                 struct err *e)
{
    if (n == 0) {
        return err_set(e, ERR_INVALID, "no tokens");
    }
    if (g->b->rope.window == 0 && n > g->b->context) {
        return err_set(e, ERR_CONTEXT, "%u tokens, the model's context is %u",
                       n, g->b->context);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= g->b->vocab) {
            return err_set(e, ERR_INVALID, "token %d of %u", tokens[i],
                           g->b->vocab);
        }
    }
    return 0;
}

/* The text's rows [first, first + n), then what pads them: its last row again
 * where a norm comes first, since one of zeros may have no deviation that fp16
 * can hold. */
static void place_rows(struct encoder *g, const struct window *w)
{
    bool whole = g->b->rope.window == 0;
    for (uint32_t i = 0; i < w->t; i++) {
        uint32_t from = w->first + (i < w->n ? i : w->n - 1);
        g->rows[i] = (struct encode_row){
            .token = i < w->n || whole ? from : ENCODE_NO_TOKEN,
            .position = from,
            .hi = w->n};
    }
}

int encoder_run(struct encoder *g, const struct encoder_run *r, struct err *e)
{
    struct encoder_plan p = encoder_plan(g, r->n);
    RETERR(encode_check(g, r->tokens, r->n, e));
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
        const struct window w = {.tokens = r->tokens,
                                 .first = first,
                                 .n = n,
                                 .t = encode_width(g, n)};
        uint32_t end = first + (last ? n : n - p.side);
        place_rows(g, &w);
        RETERR(encode_window(g, &w, r->go, r->ctx, e));
        const float *rows = encode_rows(g, done - first, end - done, e);
        RETERR(rows != NULL ? r->fn(r->ctx, done, end - done, rows, e)
                            : e->code);
        done = end;
    }
    return 0;
}
