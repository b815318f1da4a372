/* Operations that move elements and do not look at them: all of them work on
 * 4-byte elements, whatever these hold. Views take no time and no memory. */
#include <string.h>

#include "engine/cpu/ops/ops.h"

bool val_is_plain(const struct val *v)
{
    return v->kind == VAL_F32 || v->kind == VAL_I32 || v->kind == VAL_BOOL;
}

void step_view(struct step *s, size_t at)
{
    s->alias = true;
    s->alias_at = at;
}

static int need_plain(const struct val *v, struct err *e)
{
    return val_is_plain(v) ? 0 : err_set(e, ERR_MIL_INVALID, "not a tensor");
}

/* --- views --- */

/* What may be viewed under another shape: plain data and fp16 in place. */
static int view_as(struct step *s, int rank, const int64_t *dims, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct val *o = step_out(s, 0);
    if (!val_is_plain(x) && x->kind != VAL_F16) {
        return err_set(e, ERR_MIL_INVALID, "not a tensor");
    }
    int rc = val_set(o, x->kind, rank, dims, e);
    if (rc < 0) {
        return rc;
    }
    if (o->n != x->n) {
        char a[96];
        char b[96];
        return err_set(e, ERR_MIL_SHAPE, "%s does not become %s",
                       val_shape_print(x, a, sizeof(a)),
                       val_shape_print(o, b, sizeof(b)));
    }
    step_view(s, 0);
    return 0;
}

int identity_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    return view_as(s, x->rank, x->dims, e);
}

int reshape_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    int64_t dims[MIL_RANK_MAX];
    size_t n = 0;
    RETERR(step_ints(s, 1, MIL_RANK_MAX, dims, &n, e));
    int infer = -1;
    int64_t rest = 1;
    for (size_t i = 0; i < n; i++) {
        if (dims[i] == 0 && n == (size_t)x->rank) {
            dims[i] = x->dims[i];
        }
        if (dims[i] < -1 || (dims[i] == -1 && infer >= 0)) {
            return err_set(e, ERR_MIL_SHAPE, "shape is not acceptable");
        }
        if (dims[i] == -1) {
            infer = (int)i;
        } else if (__builtin_mul_overflow(rest, dims[i], &rest)) {
            return err_set(e, ERR_MIL_SHAPE, "shape is not acceptable");
        }
    }
    if (infer >= 0) {
        dims[infer] = rest > 0 ? (int64_t)x->n / rest : 0;
    }
    return view_as(s, (int)n, dims, e);
}

/* An integer of the tuples that follow ref_tensors. */
static int known_int(const struct val *v, int64_t *ret, struct err *e)
{
    if (!v->known) {
        return CPU_UNKNOWN;
    }
    if ((v->kind != VAL_I32 && v->kind != VAL_BOOL) || v->n != 1) {
        return err_set(e, ERR_MIL_INVALID, "begins, ends or end_masks");
    }
    *ret = v->i[0];
    return 0;
}

/* reshape_like(x, ref_tensors, begins, ends, end_masks): four tuples of the
 * same length; the shape is pieces of the references' shapes. */
int reshape_like_prep(struct step *s, struct err *e)
{
    int n = s->node->n_list / 4;
    int64_t dims[MIL_RANK_MAX];
    int rank = 0;
    if (s->node->n_list % 4 != 0) {
        return err_set(e, ERR_MIL_SHAPE, "tuples of several lengths");
    }
    for (int k = 0; k < n; k++) {
        const struct val *like = step_list(s, k);
        int64_t from = 0;
        int64_t to = 0;
        int64_t end = 0;
        RETERR(known_int(step_list(s, n + k), &from, e));
        RETERR(known_int(step_list(s, 2 * n + k), &to, e));
        RETERR(known_int(step_list(s, 3 * n + k), &end, e));
        from = from < 0 ? from + like->rank : from;
        to = end != 0 ? like->rank : to < 0 ? to + like->rank : to;
        if (from < 0 || to > like->rank ||
            to - from > (int)MIL_RANK_MAX - rank) {
            return err_set(e, ERR_MIL_SHAPE, "a range outside rank %d",
                           like->rank);
        }
        for (; from < to; from++) {
            dims[rank++] = like->dims[from];
        }
    }
    return view_as(s, rank, dims, e);
}

int expand_dims_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    int64_t axes[MIL_RANK_MAX];
    int64_t dims[MIL_RANK_MAX] = {0};
    size_t n = 0;
    RETERR(step_ints(s, 1, MIL_RANK_MAX, axes, &n, e));
    int rank = x->rank + (int)n;
    if (rank > (int)MIL_RANK_MAX) {
        return err_set(e, ERR_MIL_SHAPE, "rank %d", rank);
    }
    for (size_t i = 0; i < n; i++) {
        int64_t a = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (a < 0 || a >= rank || dims[a] != 0) {
            return err_set(e, ERR_MIL_SHAPE,
                           "an axis outside rank %d or given twice", rank);
        }
        dims[a] = 1;
    }
    int from = 0;
    for (int i = 0; i < rank; i++) {
        if (dims[i] == 0) {
            dims[i] = x->dims[from++];
        }
    }
    return view_as(s, rank, dims, e);
}

int squeeze_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    bool set[MIL_RANK_MAX];
    int64_t dims[MIL_RANK_MAX];
    int rank = 0;
    int rc = step_axes(s, 1, x->rank, set, e);
    if (rc < 0) {
        return rc;
    }
    bool all = step_opt(s, 1) == NULL;
    for (int i = 0; i < x->rank; i++) {
        if (set[i] && x->dims[i] == 1) {
            continue;
        }
        if (set[i] && !all) {
            return err_set(e, ERR_MIL_SHAPE, "axis %d is not 1", i);
        }
        dims[rank++] = x->dims[i];
    }
    return view_as(s, rank, dims, e);
}

/* Known as soon as the shape is. */
int shape_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct val *o = step_out(s, 0);
    int64_t rank = x->rank;
    int rc = val_set(o, VAL_I32, 1, &rank, e);
    if (rc < 0) {
        return rc;
    }
    o->p = step_alloc(s, (o->n + 1) * sizeof(int32_t));
    for (int i = 0; i < x->rank; i++) {
        o->i[i] = x->dims[i] > INT32_MAX ? INT32_MAX : (int32_t)x->dims[i];
    }
    o->known = true;
    return 0;
}

/* --- transpose --- */

int transpose_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct axes *u = step_alloc(s, sizeof(*u)); /* the result's axes */
    int64_t perm[MIL_RANK_MAX];
    int64_t dims[MIL_RANK_MAX];
    int64_t strides[MIL_RANK_MAX];
    bool seen[MIL_RANK_MAX] = {false};
    size_t n = 0;
    s->u = u;
    RETERR(step_ints(s, 1, MIL_RANK_MAX, perm, &n, e));
    RETERR(need_plain(x, e));
    val_strides(x, strides);
    bool view = true; /* only axes of size 1 change their order */
    int64_t last = -1;
    for (size_t i = 0; i < n; i++) {
        int64_t p = perm[i] < 0 ? perm[i] + x->rank : perm[i];
        if (n != (size_t)x->rank || p < 0 || p >= x->rank || seen[p]) {
            return err_set(e, ERR_MIL_SHAPE, "perm is not a permutation");
        }
        seen[p] = true;
        size_t d = (size_t)x->dims[p];
        dims[i] = x->dims[p];
        if (d == 1) {
            continue;
        }
        view = view && p > last;
        last = p;
        axes_add(u, d, (size_t)strides[p]);
    }
    if (view) {
        step_view(s, 0);
    }
    return val_set(step_out(s, 0), x->kind, (int)n, dims, e);
}

int transpose_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct axes *u = s->u;
    const int32_t *x = step_in(s, 0)->i;
    struct val *o = step_out(s, 0);
    size_t idx[MIL_RANK_MAX] = {0};
    size_t at = 0;
    size_t n = u->dims[u->n - 1];
    size_t st = u->strides[u->n - 1];
    for (size_t k = 0; k < o->n; k += n) {
        if (st == 1) {
            memcpy(o->i + k, x + at, n * sizeof(*x));
        } else {
            for (size_t i = 0; i < n; i++) {
                o->i[k + i] = x[at + i * st];
            }
        }
        at = axes_next(u, u->n - 1, idx, at);
    }
    return 0;
}

/* --- concat(values, axis, interleave), stack(values, axis) --- */

struct concat_params {
    size_t outer, inner;
    bool interleave;
};

int concat_prep(struct step *s, struct err *e)
{
    struct concat_params *u = step_alloc(s, sizeof(*u));
    const struct val *first = step_list(s, 0);
    int64_t axis = 0;
    int64_t dims[MIL_RANK_MAX];
    s->u = u;
    /* coremltools also concatenates scalars: they count as [1] */
    int rank = first->rank > 0 ? first->rank : 1;
    RETERR(step_axis(s, 1, rank, &axis, e));
    RETERR(step_bool(s, 2, &u->interleave, e));
    dims[0] = 1;
    memcpy(dims, first->dims, (size_t)first->rank * sizeof(*dims));
    dims[axis] = 0;
    for (int k = 0; k < s->node->n_list; k++) {
        const struct val *v = step_list(s, k);
        RETERR(need_plain(v, e));
        bool fits = v->kind == first->kind && v->rank == first->rank;
        for (int i = 0; fits && i < v->rank; i++) {
            fits = i == axis ? !u->interleave || v->dims[i] == first->dims[i]
                             : v->dims[i] == dims[i];
        }
        if (!fits) {
            return err_set(e, ERR_MIL_SHAPE, "values[%d] does not fit", k);
        }
        dims[axis] += v->rank > 0 ? v->dims[axis] : 1;
    }
    RETERR(val_set(step_out(s, 0), first->kind, rank, dims, e));
    struct axis3 a = val_axis3(step_out(s, 0), axis);
    u->outer = a.outer;
    u->inner = a.inner;
    return 0;
}

int concat_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct concat_params *u = s->u;
    int32_t *o = step_out(s, 0)->i;
    size_t n = (size_t)s->node->n_list;
    if (u->interleave && step_out(s, 0)->n > 0) { /* slices in turn */
        size_t slices = step_list(s, 0)->n / (u->outer * u->inner);
        for (size_t k = 0; k < u->outer * slices; k++) {
            for (size_t j = 0; j < n; j++) {
                memcpy(o, step_list(s, (int)j)->i + k * u->inner,
                       u->inner * sizeof(*o));
                o += u->inner;
            }
        }
        return 0;
    }
    for (size_t k = 0; k < u->outer; k++) {
        for (size_t j = 0; j < n; j++) {
            const struct val *v = step_list(s, (int)j);
            size_t part = v->n / u->outer;
            memcpy(o, v->i + k * part, part * sizeof(*o));
            o += part;
        }
    }
    return 0;
}

int stack_prep(struct step *s, struct err *e)
{
    struct concat_params *u = step_alloc(s, sizeof(*u));
    const struct val *first = step_list(s, 0);
    int64_t axis = 0;
    int64_t dims[MIL_RANK_MAX];
    s->u = u;
    int rc = first->rank < (int)MIL_RANK_MAX
                 ? step_axis(s, 1, first->rank + 1, &axis, e)
                 : err_set(e, ERR_MIL_SHAPE, "rank");
    if (rc < 0) {
        return rc;
    }
    for (int k = 0; k < s->node->n_list; k++) {
        const struct val *v = step_list(s, k);
        if (!val_is_plain(v) || v->kind != first->kind ||
            v->rank != first->rank ||
            memcmp(v->dims, first->dims, (size_t)v->rank * sizeof(*v->dims)) !=
                0) {
            return err_set(e, ERR_MIL_SHAPE, "values[%d] does not fit", k);
        }
    }
    u->outer = 1;
    for (int i = 0, from = 0; i <= first->rank; i++) {
        dims[i] = i == axis ? s->node->n_list : first->dims[from++];
        u->outer *= i < axis ? (size_t)dims[i] : 1;
    }
    u->inner = u->outer > 0 ? first->n / u->outer : 0;
    return val_set(step_out(s, 0), first->kind, first->rank + 1, dims, e);
}

int stack_run(const struct step *s, const struct run *r, struct err *e)
{
    return concat_run(s, r, e);
}

/* --- split(x, axis, num_splits | split_sizes) --- */

int split_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    int n = s->node->n_out;
    struct axis3 *u = step_alloc(s, sizeof(*u));
    int64_t *sizes = step_data(s, (size_t)(n + 1) * sizeof(*sizes));
    int64_t axis = 0;
    int64_t parts = n;
    size_t got = 0;
    s->u = u;
    if (sizes == NULL) {
        return err_set(e, ERR_NOMEM, "a plan");
    }
    RETERR(step_axis(s, 1, x->rank, &axis, e));
    RETERR(step_int(s, 2, &parts, e));
    RETERR(step_ints(s, 3, (size_t)n, sizes, &got, e));
    RETERR(need_plain(x, e));
    if (parts != n || (got != 0 && got != (size_t)n) ||
        (got == 0 && x->dims[axis] % n != 0)) {
        return err_set(e, ERR_MIL_SHAPE, "the parts do not fit");
    }
    int64_t total = 0;
    for (int k = 0; k < n; k++) {
        int64_t dims[MIL_RANK_MAX];
        memcpy(dims, x->dims, sizeof(dims));
        dims[axis] = got == 0 ? x->dims[axis] / n : sizes[k];
        RETERR(val_set(step_out(s, k), x->kind, x->rank, dims, e));
        total += dims[axis];
    }
    if (total != x->dims[axis]) {
        return err_set(e, ERR_MIL_SHAPE, "the parts do not fit");
    }
    *u = val_axis3(x, axis);
    return 0;
}

int split_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct axis3 *u = s->u;
    const int32_t *x = step_in(s, 0)->i;
    for (size_t k = 0; k < u->outer; k++) {
        for (int j = 0; j < s->node->n_out; j++) {
            struct val *o = step_out(s, j);
            size_t part = o->n / u->outer;
            memcpy(o->i + k * part, x, part * sizeof(*x));
            x += part;
        }
    }
    return 0;
}

/* --- sliding_windows(x, axis, size, stride) --- */

struct windows_params {
    struct axis3 a;
    size_t size, stride;
};

int sliding_windows_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct windows_params *u = step_alloc(s, sizeof(*u));
    int64_t axis = 0;
    int64_t size = 0;
    int64_t stride = 1;
    int64_t dims[MIL_RANK_MAX];
    s->u = u;
    RETERR(step_axis(s, 1, x->rank, &axis, e));
    RETERR(step_int(s, 2, &size, e));
    RETERR(step_int(s, 3, &stride, e));
    RETERR(need_plain(x, e));
    if (x->rank >= (int)MIL_RANK_MAX || size < 1 || stride < 1 ||
        size > x->dims[axis]) {
        return err_set(e, ERR_MIL_SHAPE, "windows of %lld by %lld of %lld",
                       (long long)size, (long long)stride,
                       (long long)x->dims[axis]);
    }
    for (int i = 0; i < x->rank; i++) {
        dims[i <= axis ? i : i + 1] = x->dims[i];
    }
    dims[axis] = (x->dims[axis] - size) / stride + 1;
    dims[axis + 1] = size;
    *u = (struct windows_params){val_axis3(x, axis), (size_t)size,
                                 (size_t)stride};
    return val_set(step_out(s, 0), x->kind, x->rank + 1, dims, e);
}

int sliding_windows_run(const struct step *s, const struct run *r,
                        struct err *e)
{
    (void)r;
    (void)e;
    const struct windows_params *u = s->u;
    const int32_t *x = step_in(s, 0)->i;
    int32_t *o = step_out(s, 0)->i;
    size_t n = (u->a.n - u->size) / u->stride + 1;
    size_t part = u->size * u->a.inner;
    for (size_t k = 0; k < u->a.outer * n; k++) {
        size_t at = k / n * u->a.n + k % n * u->stride;
        memcpy(o + k * part, x + at * u->a.inner, part * sizeof(*o));
    }
    return 0;
}
