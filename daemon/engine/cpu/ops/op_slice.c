/* slice_by_index, slice_by_size and slice_update. A slice that is one stretch
 * of memory, as every cut along the channels of [1, C, T, 1] is, is a view. */
#include <string.h>

#include "base/half.h"
#include "engine/cpu/ops/ops.h"

/* A slice of a shape: rank axes, and which of them are dropped. */
struct cut {
    int rank;
    int64_t begin[MIL_RANK_MAX], step[MIL_RANK_MAX], count[MIL_RANK_MAX];
    bool drop[MIL_RANK_MAX];
};

/* Where the operands stand in the table's row. */
struct cut_args {
    int begin, end, stride, begin_mask, end_mask, squeeze_mask;
};

struct cut_ints {
    int64_t begin[MIL_RANK_MAX], end[MIL_RANK_MAX], stride[MIL_RANK_MAX];
    int64_t bm[MIL_RANK_MAX], em[MIL_RANK_MAX], sm[MIL_RANK_MAX];
};

/* One of the vector operands: rank values, or absent. */
static int vector(struct step *s, int arg, int rank, int64_t *v, struct err *e)
{
    size_t n = (size_t)rank;
    RETERR(step_ints(s, arg, MIL_RANK_MAX, v, &n, e));
    if (n != (size_t)rank) {
        return err_set(e, ERR_MIL_SHAPE,
                       "a slice operand has %zu values, not %d", n, rank);
    }
    return 0;
}

static int64_t clamp(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* numpy's basic slicing along one axis of size d. */
static int cut_axis(struct cut *c, const struct cut_ints *v, int i, int64_t d,
                    struct err *e)
{
    int64_t st = v->stride[i];
    int64_t b = v->begin[i] < 0 ? v->begin[i] + d : v->begin[i];
    int64_t en = v->end[i] < 0 ? v->end[i] + d : v->end[i];
    c->drop[i] = v->sm[i] != 0;
    if (c->drop[i]) {
        if (b < 0 || b >= d) {
            return err_set(e, ERR_MIL_SHAPE, "index %lld of %lld",
                           (long long)v->begin[i], (long long)d);
        }
        c->begin[i] = b;
        c->step[i] = 1;
        c->count[i] = 1;
        return 0;
    }
    if (st == 0 || st < -INT32_MAX) {
        return err_set(e, ERR_MIL_SHAPE, "stride %lld", (long long)st);
    }
    if (st > 0) {
        b = v->bm[i] != 0 ? 0 : clamp(b, 0, d);
        en = v->em[i] != 0 ? d : clamp(en, 0, d);
        c->count[i] = en > b ? (en - b + st - 1) / st : 0;
    } else {
        b = v->bm[i] != 0 ? d - 1 : clamp(b, -1, d - 1);
        en = v->em[i] != 0 ? -1 : clamp(en, -1, d - 1);
        c->count[i] = b > en ? (b - en - st - 1) / -st : 0;
    }
    c->begin[i] = b;
    c->step[i] = st;
    return 0;
}

static int cut_make(struct step *s, const struct val *x,
                    const struct cut_args *a, struct cut *c, struct err *e)
{
    struct cut_ints v = {{0}, {0}, {0}, {0}, {0}, {0}};
    for (int i = 0; i < x->rank; i++) {
        v.stride[i] = 1;
    }
    const struct {
        int arg;
        int64_t *to;
    } want[] = {
        {a->begin,        v.begin },
        {a->end,          v.end   },
        {a->stride,       v.stride},
        {a->begin_mask,   v.bm    },
        {a->end_mask,     v.em    },
        {a->squeeze_mask, v.sm    }
    };
    for (size_t k = 0; k < countof(want); k++) {
        int rc = vector(s, want[k].arg, x->rank, want[k].to, e);
        if (rc < 0) {
            return rc;
        }
    }
    c->rank = x->rank;
    for (int i = 0; i < x->rank; i++) {
        int rc = cut_axis(c, &v, i, x->dims[i], e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static size_t cut_count(const struct cut *c)
{
    size_t n = 1;
    for (int i = 0; i < c->rank; i++) {
        n *= (size_t)c->count[i];
    }
    return n;
}

/* First element, and true when the slice is one stretch of memory. */
static bool cut_flat(const struct cut *c, const struct val *x, size_t *at)
{
    int64_t strides[MIL_RANK_MAX];
    bool partial = false; /* an axis further in is not taken whole */
    bool flat = true;
    *at = 0;
    val_strides(x, strides);
    for (int i = c->rank - 1; i >= 0; i--) {
        *at += (size_t)(c->begin[i] * strides[i]);
        if (c->count[i] > 1) {
            flat = flat && c->step[i] == 1 && !partial;
        }
        partial = partial || c->count[i] != x->dims[i];
    }
    return flat;
}

/* Copy between dense `part` and the slice of `whole`. */
static void cut_copy(const struct cut *c, const struct val *whole,
                     int32_t *data, int32_t *part, bool into)
{
    int64_t strides[MIL_RANK_MAX];
    int64_t idx[MIL_RANK_MAX] = {0};
    int64_t at = 0;
    val_strides(whole, strides);
    for (int i = 0; i < c->rank; i++) {
        at += c->begin[i] * strides[i];
    }
    int last = c->rank - 1;
    int64_t n = c->rank > 0 ? c->count[last] : 1;
    int64_t st = c->rank > 0 ? c->step[last] : 1;
    size_t total = cut_count(c);
    for (size_t k = 0; k < total; k += (size_t)n) {
        for (int64_t i = 0; i < n; i++) {
            if (into) {
                data[at + i * st] = part[k + (size_t)i];
            } else {
                part[k + (size_t)i] = data[at + i * st];
            }
        }
        for (int i = last - 1; i >= 0; i--) {
            at += c->step[i] * strides[i];
            if (++idx[i] < c->count[i]) {
                break;
            }
            at -= c->step[i] * strides[i] * c->count[i];
            idx[i] = 0;
        }
    }
}

static int slice_finish(struct step *s, struct cut *c, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct val *o = step_out(s, 0);
    int64_t dims[MIL_RANK_MAX];
    int rank = 0;
    for (int i = 0; i < c->rank; i++) {
        if (!c->drop[i]) {
            dims[rank++] = c->count[i];
        }
    }
    RETERR(val_set(o, x->kind, rank, dims, e));
    size_t at = 0;
    if (o->n > 0 && cut_flat(c, x, &at)) {
        step_view(s, at);
    } else if (!val_is_plain(x)) {
        return err_set(e, ERR_MIL_INVALID, "not a tensor that can be cut");
    }
    return 0;
}

int slice_index_prep(struct step *s, struct err *e)
{
    static const struct cut_args args = {1, 2, 3, 4, 5, 6};
    struct cut *c = step_alloc(s, sizeof(*c));
    s->u = c;
    int rc = cut_make(s, step_in(s, 0), &args, c, e);
    return rc < 0 ? rc : slice_finish(s, c, e);
}

int slice_index_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct val *x = step_in(s, 0);
    cut_copy(s->u, x, x->i, step_out(s, 0)->i, false);
    return 0;
}

int slice_size_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct cut *c = step_alloc(s, sizeof(*c));
    int64_t begin[MIL_RANK_MAX] = {0};
    int64_t size[MIL_RANK_MAX] = {0};
    s->u = c;
    c->rank = x->rank;
    RETERR(vector(s, 1, x->rank, begin, e));
    RETERR(vector(s, 2, x->rank, size, e));
    for (int i = 0; i < x->rank; i++) {
        int64_t d = x->dims[i];
        c->begin[i] = begin[i] < 0 ? begin[i] + d : begin[i];
        c->count[i] = size[i] == -1 ? d - c->begin[i] : size[i];
        c->step[i] = 1;
        if (c->begin[i] < 0 || c->count[i] < 0 ||
            c->begin[i] > d - c->count[i]) {
            return err_set(e, ERR_MIL_SHAPE, "a slice outside axis %d", i);
        }
    }
    return slice_finish(s, c, e);
}

int slice_size_run(const struct step *s, const struct run *r, struct err *e)
{
    return slice_index_run(s, r, e);
}

/* --- slice_update(x, update, begin, end, ...) --- */

static const struct cut_args update_args = {2, 3, 4, 5, 6, 7};

/* The slice may be given by values that only running programs know. */
int slice_update_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    const struct val *up = step_in(s, 1);
    if (!val_is_plain(x) || up->kind != x->kind) {
        return err_set(e, ERR_MIL_INVALID, "the operands' types do not fit");
    }
    struct cut c;
    memset(&c, 0, sizeof(c));
    int rc = cut_make(s, x, &update_args, &c, e);
    if (rc < 0 && rc != CPU_UNKNOWN) {
        return rc;
    }
    /* All of x is replaced, the usual form of a state's write: a view. */
    size_t at = 0;
    s->u = NULL;
    if (rc == 0 && cut_count(&c) == x->n && up->n == x->n &&
        cut_flat(&c, x, &at)) {
        s->u = step_alloc(s, 1);
    }
    return val_like(step_out(s, 0), x->kind, x, e);
}

int slice_update_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    const struct val *x = step_in(s, 0);
    const struct val *up = step_in(s, 1);
    struct val *o = step_out(s, 0);
    if (s->u != NULL) {
        memcpy(o->i, up->i, o->n * sizeof(*o->i));
        return 0;
    }
    struct step now = *s; /* every value has its data now */
    struct val *v = NULL;
    struct cut c;
    memset(&c, 0, sizeof(c));
    bool was[8];
    for (int i = 0; i < 8; i++) {
        v = step_opt(s, i);
        was[i] = v != NULL && v->known;
        if (v != NULL) {
            v->known = true;
        }
    }
    int rc = cut_make(&now, x, &update_args, &c, e);
    for (int i = 0; i < 8; i++) {
        v = step_opt(s, i);
        if (v != NULL) {
            v->known = was[i];
        }
    }
    if (rc < 0) {
        return rc;
    }
    if (cut_count(&c) != up->n) {
        return err_set(e, ERR_MIL_SHAPE, "update does not fit the slice");
    }
    memcpy(o->i, x->i, o->n * sizeof(*o->i));
    cut_copy(&c, o, o->i, up->i, true);
    return 0;
}
