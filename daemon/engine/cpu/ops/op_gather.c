/* gather and scatter in their three forms. Indices come from data, so they
 * are checked when the operation runs: MIL_INPUT when one lies outside. */
#include <string.h>

#include "engine/cpu/ops/ops.h"

static int bad_index(int64_t i, size_t n, struct err *e)
{
    return err_set(e, ERR_MIL_INPUT, "index %lld of an axis of %zu",
                   (long long)i, n);
}

static int need_index(const struct val *v, struct err *e)
{
    return v->kind == VAL_I32
               ? 0
               : err_set(e, ERR_MIL_INVALID, "indices are not integers");
}

/* Position of index i on an axis of n, negative ones from its end. */
static bool index_at(int32_t i, size_t n, size_t *ret)
{
    int64_t at = i < 0 ? i + (int64_t)n : i;
    if (at < 0 || (size_t)at >= n) {
        return false;
    }
    *ret = (size_t)at;
    return true;
}

/* --- gather(x, indices, axis, batch_dims) --- */

struct gather_params {
    const float *dense;        /* x when it is not plain */
    const struct weight *rows; /* x when its rows are decoded one by one */
    size_t batch, outer, n, inner, count;
};

int gather_prep(struct step *s, struct err *e)
{
    struct val *x = step_in(s, 0);
    const struct val *idx = step_in(s, 1);
    struct gather_params *u = step_alloc(s, sizeof(*u));
    int64_t axis = 0;
    int64_t batch = 0;
    int64_t dims[2 * MIL_RANK_MAX];
    int rank = 0;
    s->u = u;
    RETERR(step_axis(s, 2, x->rank, &axis, e));
    RETERR(step_int(s, 3, &batch, e));
    RETERR(need_index(idx, e));
    if (batch < 0 || batch > idx->rank || batch > axis) {
        return err_set(e, ERR_MIL_SHAPE, "batch_dims does not fit");
    }
    u->batch = u->outer = u->inner = u->count = 1;
    for (int i = 0; i < axis; i++) {
        dims[rank++] = x->dims[i];
        *(i < batch ? &u->batch : &u->outer) *= (size_t)x->dims[i];
        if (i < batch && x->dims[i] != idx->dims[i]) {
            return err_set(e, ERR_MIL_SHAPE, "batch axes differ");
        }
    }
    for (int i = (int)batch; i < idx->rank; i++) {
        dims[rank++] = idx->dims[i];
        u->count *= (size_t)idx->dims[i];
    }
    for (int i = (int)axis + 1; i < x->rank; i++) {
        dims[rank++] = x->dims[i];
        u->inner *= (size_t)x->dims[i];
    }
    u->n = (size_t)x->dims[axis];
    if (x->w != NULL && axis == 0 && !val_is_plain(x)) {
        u->rows = x->w;
    } else if (!val_is_plain(x)) {
        RETERR(step_dense(s, 0, &u->dense, e));
    }
    enum val_kind kind = val_is_plain(x) ? x->kind : VAL_F32;
    return val_set(step_out(s, 0), kind, rank, dims, e);
}

int gather_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    const struct gather_params *u = s->u;
    const struct val *x = step_in(s, 0);
    const int32_t *idx = step_in(s, 1)->i;
    struct val *o = step_out(s, 0);
    const void *from = u->dense != NULL ? (const void *)u->dense : x->p;
    char *to = o->p;
    size_t size = u->inner * sizeof(float);
    for (size_t b = 0; b < u->batch; b++) {
        for (size_t k = 0; k < u->outer; k++) {
            size_t base = (b * u->outer + k) * u->n;
            for (size_t c = 0; c < u->count; c++) {
                size_t i = 0;
                if (!index_at(idx[b * u->count + c], u->n, &i)) {
                    return bad_index(idx[b * u->count + c], u->n, e);
                }
                if (u->rows != NULL) {
                    weight_row(u->rows, i, (float *)(void *)to);
                } else {
                    memcpy(to, (const char *)from + (base + i) * size, size);
                }
                to += size;
            }
        }
    }
    return 0;
}

/* --- gather_along_axis(x, indices, axis), scatter_along_axis --- */

static int along_prep(struct step *s, int idx_arg, int axis_arg,
                      struct axis3 *u, struct err *e)
{
    const struct val *x = step_in(s, 0);
    const struct val *idx = step_in(s, idx_arg);
    int64_t axis = 0;
    RETERR(step_axis(s, axis_arg, x->rank, &axis, e));
    RETERR(need_index(idx, e));
    for (int i = 0; i < x->rank; i++) {
        if (idx->rank != x->rank || (i != axis && idx->dims[i] != x->dims[i])) {
            return err_set(e, ERR_MIL_SHAPE, "indices do not fit x");
        }
    }
    *u = val_axis3(x, axis);
    return 0;
}

/* Element of x that element k of the indices means, or -1. */
static int64_t along_at(const struct axis3 *u, const struct val *idx, size_t k)
{
    size_t m = idx->n / (u->outer * u->inner);
    size_t i = 0;
    if (!index_at(idx->i[k], u->n, &i)) {
        return -1;
    }
    size_t outer = k / (m * u->inner);
    return (int64_t)((outer * u->n + i) * u->inner + k % u->inner);
}

int gather_along_prep(struct step *s, struct err *e)
{
    struct axis3 *u = step_alloc(s, sizeof(*u));
    s->u = u;
    int rc = along_prep(s, 1, 2, u, e);
    return rc < 0 ? rc
                  : val_like(step_out(s, 0), step_in(s, 0)->kind, step_in(s, 1),
                             e);
}

int gather_along_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    const struct axis3 *u = s->u;
    const struct val *x = step_in(s, 0);
    const struct val *idx = step_in(s, 1);
    struct val *o = step_out(s, 0);
    for (size_t k = 0; k < o->n; k++) {
        int64_t at = along_at(u, idx, k);
        if (at < 0) {
            return bad_index(idx->i[k], u->n, e);
        }
        o->i[k] = x->i[at];
    }
    return 0;
}

/* --- scatter --- */

static int mode_of(const struct step *s, int arg, int *ret, struct err *e)
{
    static const char *const names[] = {"update", "add", "sub", "mul",
                                        "div",    "max", "min"};
    const char *name = step_str(s, arg);
    if (name[0] == '\0') {
        *ret = SCATTER_ADD; /* the code's default, whatever its text says */
        return 0;
    }
    for (size_t i = 0; i < countof(names); i++) {
        if (strcmp(names[i], name) == 0) {
            *ret = (int)i;
            return 0;
        }
    }
    return err_set(e, ERR_MIL_OP, "mode %s", name);
}

static float put_float(int mode, float a, float b)
{
    switch (mode) {
    case SCATTER_ADD:
        return a + b;
    case SCATTER_SUB:
        return a - b;
    case SCATTER_MUL:
        return a * b;
    case SCATTER_DIV:
        return a / b;
    case SCATTER_MAX:
        return a > b ? a : b;
    case SCATTER_MIN:
        return a < b ? a : b;
    default:
        return b;
    }
}

static int32_t put_int(int mode, int32_t a, int32_t b)
{
    uint32_t x = (uint32_t)a;
    uint32_t y = (uint32_t)b;
    switch (mode) {
    case SCATTER_ADD:
        return (int32_t)(x + y);
    case SCATTER_SUB:
        return (int32_t)(x - y);
    case SCATTER_MUL:
        return (int32_t)(x * y);
    case SCATTER_DIV:
        return b == 0 ? 0 : b == -1 ? (int32_t)(0u - x) : a / b;
    case SCATTER_MAX:
        return a > b ? a : b;
    case SCATTER_MIN:
        return a < b ? a : b;
    default:
        return b;
    }
}

static void put(struct val *o, size_t at, const struct val *up, size_t k,
                int mode)
{
    if (o->kind == VAL_F32) {
        o->f[at] = put_float(mode, o->f[at], up->f[k]);
    } else {
        o->i[at] = put_int(mode, o->i[at], up->i[k]);
    }
}

struct scatter_params {
    struct axis3 a;
    int mode;
    size_t depth; /* scatter_nd: indices of one position */
};

/* Where block k of the updates goes. */
struct spot {
    int64_t at;    /* element of the data, -1 outside */
    int32_t index; /* the index that says so, and its axis */
    size_t n;
};

typedef struct spot spot_fn(const struct step *s, size_t k);

/* The result is like the data; there must be n updates of its kind. */
static int scatter_out(struct step *s, size_t n, struct err *e)
{
    const struct val *x = step_in(s, 0);
    const struct val *up = step_in(s, 2);
    if (up->kind != x->kind || !val_is_plain(x) || up->n != n) {
        return err_set(e, ERR_MIL_SHAPE, "updates do not fit");
    }
    return val_like(step_out(s, 0), x->kind, x, e);
}

/* A copy of the data with every block of `inner` updates put in its place, in
 * order. */
static int scatter_blocks(const struct step *s, size_t inner, spot_fn *where,
                          struct err *e)
{
    const struct scatter_params *u = s->u;
    const struct val *x = step_in(s, 0);
    const struct val *up = step_in(s, 2);
    struct val *o = step_out(s, 0);
    memcpy(o->i, x->i, o->n * sizeof(*o->i));
    for (size_t k = 0; inner > 0 && k < up->n / inner; k++) {
        struct spot p = where(s, k);
        if (p.at < 0) {
            return bad_index(p.index, p.n, e);
        }
        for (size_t j = 0; j < inner; j++) {
            put(o, (size_t)p.at + j, up, k * inner + j, u->mode);
        }
    }
    return 0;
}

/* scatter(data, indices, updates, axis, mode) */
int scatter_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    const struct val *idx = step_in(s, 1);
    struct scatter_params *u = step_alloc(s, sizeof(*u));
    int64_t axis = 0;
    s->u = u;
    RETERR(step_axis(s, 3, x->rank, &axis, e));
    RETERR(mode_of(s, 4, &u->mode, e));
    RETERR(need_index(idx, e));
    u->a = val_axis3(x, axis);
    return scatter_out(s, u->a.outer * idx->n * u->a.inner, e);
}

static struct spot scatter_spot(const struct step *s, size_t k)
{
    const struct scatter_params *u = s->u;
    const struct val *idx = step_in(s, 1);
    struct spot p = {-1, idx->i[k % idx->n], u->a.n};
    size_t i = 0;
    if (index_at(p.index, u->a.n, &i)) {
        p.at = (int64_t)((k / idx->n * u->a.n + i) * u->a.inner);
    }
    return p;
}

int scatter_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    const struct scatter_params *u = s->u;
    return scatter_blocks(s, u->a.inner, scatter_spot, e);
}

/* scatter_along_axis(data, indices, updates, axis, mode) */
int scatter_along_prep(struct step *s, struct err *e)
{
    struct scatter_params *u = step_alloc(s, sizeof(*u));
    s->u = u;
    RETERR(along_prep(s, 1, 3, &u->a, e));
    RETERR(mode_of(s, 4, &u->mode, e));
    return scatter_out(s, step_in(s, 1)->n, e);
}

static struct spot along_spot(const struct step *s, size_t k)
{
    const struct scatter_params *u = s->u;
    const struct val *idx = step_in(s, 1);
    return (struct spot){along_at(&u->a, idx, k), idx->i[k], u->a.n};
}

int scatter_along_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    return scatter_blocks(s, 1, along_spot, e);
}

/* --- gather_nd(x, indices, batch_dims), scatter_nd --- */

/* Offset of the block that `depth` indices at ix name, or -1. */
static int64_t nd_at(const struct val *x, int from, size_t depth,
                     const int32_t *ix, size_t block)
{
    int64_t at = 0;
    for (size_t i = 0; i < depth; i++) {
        int64_t d = x->dims[from + (int)i];
        int64_t v = ix[i] < 0 ? ix[i] + d : ix[i];
        if (v < 0 || v >= d) {
            return -1;
        }
        at = at * d + v;
    }
    return at * (int64_t)block;
}

struct nd_params {
    size_t batch, per_batch, depth, block, x_batch;
    int from;
};

int gather_nd_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    const struct val *idx = step_in(s, 1);
    struct nd_params *u = step_alloc(s, sizeof(*u));
    int64_t batch = 0;
    int64_t dims[2 * MIL_RANK_MAX];
    int rank = 0;
    s->u = u;
    RETERR(step_int(s, 2, &batch, e));
    RETERR(need_index(idx, e));
    int64_t depth = idx->rank > 0 ? idx->dims[idx->rank - 1] : 0;
    if (depth < 1 || batch < 0 || batch >= idx->rank ||
        batch + depth > x->rank || !val_is_plain(x)) {
        return err_set(e, ERR_MIL_SHAPE, "indices do not fit x");
    }
    u->from = (int)batch;
    u->depth = (size_t)depth;
    u->batch = u->block = u->x_batch = 1;
    for (int i = 0; i < idx->rank - 1; i++) {
        dims[rank++] = idx->dims[i];
        u->batch *= i < batch ? (size_t)idx->dims[i] : 1;
        if (i < batch && idx->dims[i] != x->dims[i]) {
            return err_set(e, ERR_MIL_SHAPE, "batch axes differ");
        }
    }
    for (int i = (int)batch; i < x->rank; i++) {
        u->x_batch *= (size_t)x->dims[i];
        if (i >= batch + depth) {
            dims[rank++] = x->dims[i];
            u->block *= (size_t)x->dims[i];
        }
    }
    u->per_batch = u->batch > 0 ? idx->n / u->depth / u->batch : 0;
    return val_set(step_out(s, 0), x->kind, rank, dims, e);
}

int gather_nd_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    const struct nd_params *u = s->u;
    const struct val *x = step_in(s, 0);
    const int32_t *ix = step_in(s, 1)->i;
    int32_t *o = step_out(s, 0)->i;
    for (size_t k = 0; k < u->batch * u->per_batch; k++) {
        int64_t at = nd_at(x, u->from, u->depth, ix, u->block);
        if (at < 0) {
            return bad_index(ix[0], (size_t)x->dims[u->from], e);
        }
        memcpy(o, x->i + k / u->per_batch * u->x_batch + (size_t)at,
               u->block * sizeof(*o));
        o += u->block;
        ix += u->depth;
    }
    return 0;
}

/* scatter_nd(data, indices, updates, mode) */
int scatter_nd_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    const struct val *idx = step_in(s, 1);
    struct scatter_params *u = step_alloc(s, sizeof(*u));
    s->u = u;
    RETERR(mode_of(s, 3, &u->mode, e));
    RETERR(need_index(idx, e));
    int64_t depth = idx->rank > 0 ? idx->dims[idx->rank - 1] : 0;
    if (depth < 1 || depth > x->rank || !val_is_plain(x)) {
        return err_set(e, ERR_MIL_SHAPE, "indices do not fit data");
    }
    u->depth = (size_t)depth;
    u->a.inner = 1;
    for (int i = (int)depth; i < x->rank; i++) {
        u->a.inner *= (size_t)x->dims[i];
    }
    return scatter_out(s, idx->n / u->depth * u->a.inner, e);
}

static struct spot nd_spot(const struct step *s, size_t k)
{
    const struct scatter_params *u = s->u;
    const struct val *x = step_in(s, 0);
    const int32_t *ix = step_in(s, 1)->i + k * u->depth;
    return (struct spot){nd_at(x, 0, u->depth, ix, u->a.inner), ix[0],
                         (size_t)x->dims[0]};
}

int scatter_nd_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    const struct scatter_params *u = s->u;
    return scatter_blocks(s, u->a.inner, nd_spot, e);
}
