/* probe_rig.c - one function of one package on the probe's rows.
 *
 * It is an engine of one shard, or of one head, put together by hand: arrays,
 * masks and states are those that the engine uses, so what is measured is what
 * the engine will meet. Predictions are not the engine's: there, a failure may
 * be repaired, and here it is a result.
 */
#include <string.h>

#include "base/half.h"
#include "base/hash.h"
#include "engine/array.h"
#include "engine/probe/probe_impl.h"

const char *part_path(const struct probe_part *p)
{
    return p->shard != NULL ? p->shard->path : p->head->path;
}

/* --- open, close --- */

static struct shard *shard_of(struct rig *r)
{
    return r->head ? &r->g.heads[0] : &r->g.shards[0];
}

const struct unit *rig_unit(const struct rig *r)
{
    return &(r->head ? r->g.heads : r->g.shards)[0].units[0];
}

const struct backend_info *rig_info(const struct rig *r)
{
    return &rig_unit(r)->info;
}

/* The scratch row of copies between arrays: a row of x, of a past or a tail. */
static int make_scratch(struct rig *r, struct err *e)
{
    const struct shard *s = shard_of(r);
    size_t n = r->g.b->d_model;
    for (size_t i = 0; i < s->n_past; i++) {
        n = s->past[i].dim > n ? s->past[i].dim : n;
    }
    for (size_t i = 0; i < s->n_tails; i++) {
        n = s->tail_ports[i].width > n ? s->tail_ports[i].width : n;
    }
    r->g.columns.row = calloc(n, sizeof(float));
    return r->g.columns.row != NULL ? 0 : err_set(e, ERR_NOMEM, "a row");
}

static int open_shard(struct rig *r, const struct backend_conf *bc,
                      struct err *e)
{
    struct shard *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return err_set(e, ERR_NOMEM, "a shard");
    }
    if (r->head) {
        r->g.heads = s;
        r->g.n_heads = 1;
        return head_open(s, r->g.be, bc, r->g.b, &r->top, e);
    }
    r->g.shards = s;
    r->g.n_shards = 1;
    return shard_open(s, r->g.be, bc, r->g.b, &r->one, e);
}

int rig_open(struct rig *r, const struct probe_part *p, size_t function,
             const struct backend *be, const struct backend_conf *bc,
             struct err *e)
{
    int rc = 0;
    *r = (struct rig){.head = p->head != NULL, .open = true};
    r->g.be = be;
    list_init(&r->g.seqs);
    /* not changed: the engine's field is its own bundle's */
    r->g.b = (struct bundle *)(uintptr_t)p->b;
    r->g.tables = *p->tables; /* borrowed */
    if (p->shard != NULL) {
        r->one = *p->shard;
        r->function = p->shard->functions[function];
        r->function_t = p->shard->function_t[function];
        r->one.n_functions = 1;
        r->one.functions = &r->function;
        r->one.function_t = &r->function_t;
    } else {
        r->top = *p->head;
    }
    if (r->head && p->head->n_functions > 0) {
        r->function = p->head->functions[function];
        r->function_t = p->head->function_t[function];
        r->top.n_functions = 1;
        r->top.functions = &r->function;
        r->top.function_t = &r->function_t;
    }
    CHECK(open_shard(r, bc, e));
    CHECK(inputs_init(&r->g.in, p->b, shard_uses(shard_of(r)), e));
    CHECK(make_scratch(r, e));
    if (!r->head) {
        CHECK(engine_seq_open(&r->g, &r->base, e));
    }
out:
    if (rc < 0) {
        rig_close(r);
    }
    return rc;
}

void rig_close(struct rig *r)
{
    if (!r->open) {
        return;
    }
    for (size_t i = 0; i < SHEETS_MAX; i++) {
        if (r->sheets[i].t > 0) {
            sheet_fini(&r->sheets[i], &r->g, r->head);
        }
    }
    engine_seq_close(r->seq);
    engine_seq_close(r->base);
    if (r->g.shards != NULL || r->g.heads != NULL) {
        shard_close(shard_of(r));
    }
    inputs_fini(&r->g.in);
    free(r->g.columns.row);
    free(r->g.shards);
    free(r->g.heads);
    *r = (struct rig){0};
}

/* --- the past --- */

struct filling {
    uint64_t seed;
    uint32_t past;
};

/* Numbers at the positions of the past; the others stay zero. */
static int fill_past(void *ctx, struct backend_array *a, struct err *e)
{
    const struct filling *f = ctx;
    uint64_t k = 0;
    (void)e;
    for (int64_t h = 0; h < a->dims[1]; h++) {
        for (int64_t i = 0; i < f->past; i++) {
            for (int64_t c = 0; c < a->dims[3]; c++) {
                const int64_t at[4] = {0, h, i, c};
                array_set(a, (struct array_line){at, 3, 1},
                          probe_number(f->seed, k++));
            }
        }
    }
    return 0;
}

static uint64_t seed_of(const char *name)
{
    return hash_bytes(name, strlen(name));
}

/* Positions of the past for every tail. */
static int fill_tails(struct rig *r, uint32_t past, struct err *e)
{
    const struct shard *s = shard_of(r);
    struct tails *t = r->base->tails[0];
    if (s->n_tails == 0) {
        return 0;
    }
    tails_cut(t, 0);
    RETERR(tails_reserve(t, 0, past, e));
    for (uint32_t i = 0; i < past; i++) {
        for (size_t k = 0; k < s->n_tails; k++) {
            uint64_t seed = seed_of(s->tails[k].in);
            size_t width = s->tail_ports[k].width;
            for (size_t c = 0; c < width; c++) {
                r->g.columns.row[c] = probe_number(seed, i * width + c);
            }
            tails_put(t, k, i, r->g.columns.row);
        }
    }
    return 0;
}

static int fill_states(struct rig *r, uint32_t past, struct err *e)
{
    const struct backend_info *info = rig_info(r);
    const struct shard *s = shard_of(r);
    for (size_t i = 0; i < info->n_states; i++) {
        const char *name = info->states[i].name;
        struct filling f = {seed_of(name), past};
        RETERR(r->g.be->state_with(r->base->states[0], name, fill_past, &f, e));
    }
    for (size_t i = 0; i < s->n_past; i++) {
        struct backend_array *a = r->base->past[0][i];
        struct filling f = {seed_of(s->past[i].in), past};
        RETERR(array_begin(r->g.be, a, true, e));
        int rc = fill_past(&f, a, e);
        array_end(r->g.be, a, true);
        RETERR(rc);
    }
    return fill_tails(r, past, e);
}

int rig_rows(struct rig *r, const struct probe_in *in, struct err *e)
{
    r->in = in;
    if (r->head) {
        return 0;
    }
    RETERR(fill_states(r, in->past, e));
    r->base->n = r->base->valid = in->past;
    return rig_again(r, e);
}

int rig_again(struct rig *r, struct err *e)
{
    engine_seq_close(r->seq);
    r->seq = NULL;
    return r->head ? 0 : engine_seq_fork(r->base, r->base->n, &r->seq, e);
}

/* --- predictions --- */

static int sheet_for(struct rig *r, uint32_t t, struct sheet **ret,
                     struct err *e)
{
    size_t i = 0;
    while (i < SHEETS_MAX && r->sheets[i].t != 0 && r->sheets[i].t != t) {
        i++;
    }
    must(i < SHEETS_MAX); /* there are no more widths */
    *ret = &r->sheets[i];
    return r->sheets[i].t != 0 ? 0 : sheet_init(*ret, &r->g, r->head, t, e);
}

/* The chunk's rows, then copies of the last one. */
static int place_x(struct rig *r, struct backend_array *x, uint32_t first,
                   struct chunk c, struct err *e)
{
    RETERR(array_begin(r->g.be, x, true, e));
    for (uint32_t i = 0; i < c.t; i++) {
        const int64_t at[4] = {0, 0, i, 0};
        uint32_t row = first + (i < c.n ? i : c.n - 1);
        array_put(x, (struct array_line){at, 1, r->in->d},
                  r->in->x + row * r->in->d, 1);
    }
    array_end(r->g.be, x, true);
    return 0;
}

/* The keys and values of those rows, of a layer in an earlier shard. */
static int place_take(struct rig *r, struct backend_array *a, const char *name,
                      uint32_t first, struct chunk c, struct err *e)
{
    size_t dim = (size_t)a->dims[3];
    size_t width = (size_t)a->dims[1] * dim;
    uint64_t seed = seed_of(name);
    RETERR(array_begin(r->g.be, a, true, e));
    for (uint32_t i = 0; i < c.t; i++) {
        uint32_t row = first + (i < c.n ? i : c.n - 1);
        for (size_t k = 0; k < width; k++) {
            const int64_t at[4] = {0, (int64_t)(k / dim), i,
                                   (int64_t)(k % dim)};
            array_set(a, (struct array_line){at, 3, 1},
                      probe_number(seed, row * width + k));
        }
    }
    array_end(r->g.be, a, true);
    return 0;
}

int rig_place(struct rig *r, uint32_t t, uint32_t first, uint32_t n,
              struct err *e)
{
    struct sheet *s = NULL;
    struct chunk c = {.pos = r->in->past + first, .n = n, .t = t};
    const struct shard *sh = shard_of(r);
    const struct unit *u = rig_unit(r);
    RETERR(sheet_for(r, t, &s, e));
    RETERR(place_x(r, s->shards[0].x, first, c, e));
    if (r->head) {
        return 0;
    }
    for (size_t k = 0; sh->n_past > 0 && k < u->info.n_in; k++) {
        if (u->roles[k] == ROLE_PAST) {
            r->g.be->rebind(s->shards[0].io, k, r->seq->past[0][u->nth[k]]);
        }
    }
    for (size_t k = 0; k < sh->n_takes; k++) {
        RETERR(place_take(r, s->shards[0].takes[k], sh->takes[k].name, first, c,
                          e));
    }
    RETERR(tail_take(r->seq, 0, c, e));
    return sheet_place(s, &r->g, c, r->in->tokens + first, e);
}

int rig_predict(struct rig *r, uint32_t t, struct err *e)
{
    struct sheet *s = NULL;
    RETERR(sheet_for(r, t, &s, e));
    return r->g.be->predict(s->shards[0].io, r->head ? NULL : r->seq->states[0],
                            e);
}

/* --- results --- */

/* Numbers of a row that the shard gives to later ones by port i. */
static size_t give_width(const struct rig *r, size_t i)
{
    const struct bundle_port *p = &r->g.shards[0].gives[i];
    const struct layer *l = &r->g.b->layers[p->layer];
    return (size_t)layer_port_heads(l, p->role) * layer_port_dim(l, p->role);
}

size_t rig_out_width(const struct rig *r)
{
    const struct shard *s = r->head ? r->g.heads : r->g.shards;
    const struct backend_info *info = rig_info(r);
    size_t w = s->out_rows;
    for (size_t i = 0; i < info->n_states; i++) {
        const struct mil_type *t = &info->states[i].type;
        w += (size_t)t->dims[1] * (size_t)t->dims[3];
    }
    for (size_t i = 0; i < s->n_past; i++) {
        w += (size_t)s->past[i].heads * s->past[i].dim;
    }
    for (size_t i = 0; i < s->n_gives; i++) {
        w += give_width(r, i);
    }
    return w;
}

static void add_segment(struct probe_out *o, const char *name, size_t n)
{
    size_t from = 0;
    if (o->n_segments > 0) {
        const struct segment *last = &o->segments[o->n_segments - 1];
        from = last->from + last->n;
    }
    o->segments[o->n_segments++] = (struct segment){name, from, n};
}

int rig_out(const struct rig *r, uint32_t n, struct probe_out *ret,
            struct err *e)
{
    const struct shard *s = r->head ? r->g.heads : r->g.shards;
    const struct backend_info *info = rig_info(r);
    size_t most = 1 + info->n_states + s->n_past + s->n_gives;
    struct probe_out o = {.n = n, .w = rig_out_width(r)};
    o.segments = calloc(most, sizeof(*o.segments));
    o.v = calloc((size_t)n * o.w, sizeof(*o.v));
    if (o.segments == NULL || o.v == NULL) {
        probe_out_free(&o);
        return err_set(e, ERR_NOMEM, "results");
    }
    add_segment(&o, s->out, s->out_rows);
    for (size_t i = 0; i < info->n_states; i++) {
        const struct mil_type *t = &info->states[i].type;
        add_segment(&o, info->states[i].name,
                    (size_t)t->dims[1] * (size_t)t->dims[3]);
    }
    for (size_t i = 0; i < s->n_past; i++) {
        add_segment(&o, s->past[i].in,
                    (size_t)s->past[i].heads * s->past[i].dim);
    }
    for (size_t i = 0; i < s->n_gives; i++) {
        add_segment(&o, s->gives[i].name, give_width(r, i));
    }
    *ret = o;
    return 0;
}

void probe_out_free(struct probe_out *o)
{
    free(o->segments);
    free(o->v);
    *o = (struct probe_out){0};
}

static int append(struct rig *r, struct sheet *s, struct chunk c, struct err *e)
{
    const struct shard *sh = shard_of(r);
    const struct binding *b = &s->shards[0];
    for (size_t k = 0; k < sh->n_past; k++) {
        const struct past_port *p = &sh->past[k];
        const int64_t want[4] = {1, p->heads, c.t, p->dim};
        struct backend_array *a = sheet_fresh(b, p, k);
        RETERR(check_out(a, want, sh, p->out, e));
        RETERR(seq_append(r->seq, 0, k, a, c, e));
    }
    return r->head ? 0 : tail_give(r->seq, 0, b, c, e);
}

/* What the shard gives, [1, heads, T, dim], into the last segments. */
static int take_gives(struct rig *r, const struct binding *b, uint32_t t,
                      uint32_t first, uint32_t n, struct probe_out *o,
                      struct err *e)
{
    const struct shard *s = shard_of(r);
    for (size_t k = 0; k < s->n_gives; k++) {
        const struct bundle_port *p = &s->gives[k];
        const struct layer *l = &r->g.b->layers[p->layer];
        uint32_t heads = layer_port_heads(l, p->role);
        uint32_t dim = layer_port_dim(l, p->role);
        const struct segment *to = &o->segments[o->n_segments - s->n_gives + k];
        const int64_t want[4] = {1, heads, t, dim};
        struct backend_array *a = &b->io->out[b->gives[k]];
        RETERR(check_out(a, want, s, s->gives[k].name, e));
        RETERR(array_begin(r->g.be, a, false, e));
        for (uint32_t i = 0; i < n * heads; i++) {
            const int64_t at[4] = {0, i % heads, i / heads, 0};
            array_get(a, (struct array_line){at, 3, dim},
                      o->v + (first + i / heads) * o->w + to->from +
                          (size_t)(i % heads) * dim,
                      1);
        }
        array_end(r->g.be, a, false);
    }
    return 0;
}

int rig_take(struct rig *r, uint32_t t, uint32_t first, uint32_t n,
             struct probe_out *o, struct err *e)
{
    struct sheet *s = NULL;
    const struct shard *sh = shard_of(r);
    struct chunk c = {.pos = r->in->past + first, .n = n, .t = t};
    const int64_t want[4] = {1, sh->out_rows, t, 1};
    RETERR(sheet_for(r, t, &s, e));
    const struct binding *b = &s->shards[0];
    struct backend_array *y = &b->io->out[b->out];
    RETERR(check_out(y, want, sh, sh->out, e));
    RETERR(array_begin(r->g.be, y, false, e));
    for (uint32_t i = 0; i < n; i++) {
        const int64_t at[4] = {0, 0, i, 0};
        array_get(y, (struct array_line){at, 1, sh->out_rows},
                  o->v + (first + i) * o->w, 1);
    }
    array_end(r->g.be, y, false);
    RETERR(take_gives(r, b, t, first, n, o, e));
    return append(r, s, c, e);
}

struct reading {
    struct probe_out *o;
    const struct segment *to;
    uint32_t past;
};

/* [1, heads, positions, dim]: a row's numbers of all heads. */
static int read_state(void *ctx, struct backend_array *a, struct err *e)
{
    const struct reading *x = ctx;
    size_t dim = (size_t)a->dims[3];
    (void)e;
    for (uint32_t i = 0; i < x->o->n; i++) {
        for (int64_t h = 0; h < a->dims[1]; h++) {
            const int64_t at[4] = {0, h, x->past + i, 0};
            array_get(a, (struct array_line){at, 3, dim},
                      x->o->v + i * x->o->w + x->to->from + (size_t)h * dim, 1);
        }
    }
    return 0;
}

int rig_states(struct rig *r, struct probe_out *o, struct err *e)
{
    const struct backend_info *info = rig_info(r);
    const struct shard *s = shard_of(r);
    struct reading x = {.o = o, .past = r->in->past};
    for (size_t i = 0; i < info->n_states; i++) {
        x.to = &o->segments[1 + i];
        RETERR(r->g.be->state_with(r->seq->states[0], info->states[i].name,
                                   read_state, &x, e));
    }
    for (size_t i = 0; i < s->n_past; i++) {
        struct backend_array *a = r->seq->past[0][i];
        x.to = &o->segments[1 + info->n_states + i];
        RETERR(array_begin(r->g.be, a, false, e));
        int rc = read_state(&x, a, e);
        array_end(r->g.be, a, false);
        RETERR(rc);
    }
    return 0;
}
