/* infer_shape.c - ops that move data without computing. */
#include <string.h>

#include "mil/sig.h"

/* Product of all dims; false when one is unknown or the product overflows. */
static bool volume(const int64_t *dims, int rank, int64_t *ret)
{
    int64_t n = 1;
    for (int k = 0; k < rank; k++) {
        if (dims[k] < 0 || __builtin_mul_overflow(n, dims[k], &n)) {
            return false;
        }
    }
    *ret = n;
    return true;
}

/* dims[] as the shape operand gives them: 0 copies, one -1 is left. */
static int reshape_dims(struct infer *i, int rank, int64_t *dims, int *free_dim)
{
    const struct mil_type *x = in_type(i, "x");
    *free_dim = -1;
    for (int k = 0; k < rank; k++) {
        if (dims[k] == 0) {
            if (rank != x->rank) {
                return in_fail(i, ERR_MIL_SHAPE, "shape",
                               "0 needs x's rank %d, not %d", x->rank, rank);
            }
            dims[k] = x->dims[k];
        } else if (dims[k] == -1) {
            if (*free_dim >= 0) {
                return in_fail(i, ERR_MIL_SHAPE, "shape", "-1 twice");
            }
            *free_dim = k;
        } else if (dims[k] < -1) {
            return in_fail(i, ERR_MIL_SHAPE, "shape", "dimension %d is %lld", k,
                           (long long)dims[k]);
        }
    }
    return 0;
}

/* The operand `shape`; without *given its values are known only when the
 * program runs, and *dims unknown. */
static int in_shape(struct infer *i, int64_t dims[MIL_RANK_MAX], int *rank,
                    bool *given)
{
    int64_t n = 0;
    int rc = in_length(i, "shape", &n);
    if (rc < 0) {
        return rc;
    }
    if (n < 0 || n > (int64_t)MIL_RANK_MAX) {
        return in_fail(i, ERR_MIL_SHAPE, "shape", "%lld elements",
                       (long long)n);
    }
    for (int64_t k = 0; k < n; k++) {
        dims[k] = MIL_UNKNOWN;
    }
    *rank = (int)n;
    *given = in_const(i, "shape") != NULL;
    return *given ? in_ints(i, "shape", (size_t)n, dims) : 0;
}

int infer_reshape(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    int64_t dims[MIL_RANK_MAX];
    int n = 0;
    bool given = false;
    RETERR(in_shape(i, dims, &n, &given));
    if (!given) {
        return out_type(i, x->dtype, n, dims);
    }
    int free_dim = -1;
    RETERR(reshape_dims(i, n, dims, &free_dim));
    int64_t have = 0;
    int64_t want = 0;
    if (free_dim >= 0) {
        dims[free_dim] = 1;
    }
    bool known = volume(x->dims, x->rank, &have) && volume(dims, n, &want);
    if (known &&
        (free_dim >= 0 ? want == 0 || have % want != 0 : have != want)) {
        return in_fail(i, ERR_MIL_SHAPE, "shape",
                       "%lld elements do not fit x's %lld", (long long)want,
                       (long long)have);
    }
    if (free_dim >= 0) {
        dims[free_dim] = known ? have / want : MIL_UNKNOWN;
    }
    return out_type(i, x->dtype, n, dims);
}

int infer_transpose(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    int64_t perm[MIL_RANK_MAX];
    int64_t dims[MIL_RANK_MAX];
    bool used[MIL_RANK_MAX] = {false};
    RETERR(in_ints(i, "perm", (size_t)x->rank, perm));
    for (int k = 0; k < x->rank; k++) {
        int64_t from = perm[k] < 0 ? perm[k] + x->rank : perm[k];
        if (from < 0 || from >= x->rank || used[from]) {
            return in_fail(i, ERR_MIL_SHAPE, "perm",
                           "is no permutation of %d axes", x->rank);
        }
        used[from] = true;
        dims[k] = x->dims[from];
    }
    return out_type(i, x->dtype, x->rank, dims);
}

int infer_expand_dims(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    bool set[MIL_RANK_MAX];
    int64_t dims[MIL_RANK_MAX];
    int64_t added = 0;
    size_t n = 0;
    int rc = in_length(i, "axes", &added);
    if (rc < 0) {
        return rc;
    }
    if (added < 1 || added + x->rank > (int64_t)MIL_RANK_MAX) {
        return in_fail(i, ERR_MIL_SHAPE, "axes", "%lld axes more",
                       (long long)added);
    }
    int rank = x->rank + (int)added;
    rc = in_axes(i, "axes", rank, set, &n);
    if (rc < 0) {
        return rc;
    }
    for (int k = 0, from = 0; k < rank; k++) {
        dims[k] = set[k] ? 1 : x->dims[from++];
    }
    return out_type(i, x->dtype, rank, dims);
}

/* Axes that are not 1 stay (torch's way). An unknown dimension that is named is
 * taken to be 1, and the run holds it to that; without axes it stays. */
int infer_squeeze(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    bool set[MIL_RANK_MAX];
    int64_t dims[MIL_RANK_MAX];
    bool named = in_has(i, "axes");
    size_t n = 0;
    int rank = 0;
    int rc = in_axes(i, "axes", x->rank, set, &n);
    if (rc < 0) {
        return rc;
    }
    for (int k = 0; k < x->rank; k++) {
        bool one = x->dims[k] == 1 || (named && x->dims[k] < 0);
        if (!set[k] || !one) {
            dims[rank++] = x->dims[k];
        }
    }
    return out_type(i, x->dtype, rank, dims);
}

int infer_concat(struct infer *i)
{
    size_t n = in_count(i, "values");
    const struct mil_type *first = in_type_at(i, "values", 0);
    struct mil_type out = *first;
    bool interleave = false;
    int axis = 0;
    if (first->rank == 0) { /* scalars make a vector (facts 6.2) */
        out.rank = 1;
        out.dims[0] = 1;
    }
    RETERR(in_axis(i, "axis", 0, out.rank, &axis));
    RETERR(in_bool(i, "interleave", &interleave));
    for (size_t k = 1; k < n; k++) {
        const struct mil_type *t = in_type_at(i, "values", k);
        if (t->rank != first->rank) {
            return in_fail(i, ERR_MIL_SHAPE, "values", "ranks %d and %d",
                           first->rank, t->rank);
        }
        for (int d = 0; d < out.rank; d++) {
            int64_t size = t->rank == 0 ? 1 : t->dims[d];
            bool fits = dim_unify(out.dims[d], size, &out.dims[d]);
            if (d != axis || interleave) {
                if (!fits) {
                    return in_fail(i, ERR_MIL_SHAPE, "values",
                                   "dimension %d differs", d);
                }
            }
        }
    }
    int64_t sum = 0;
    for (size_t k = 0; k < n && sum >= 0; k++) {
        const struct mil_type *t = in_type_at(i, "values", k);
        int64_t size = t->rank == 0 ? 1 : t->dims[axis];
        if (size < 0) {
            sum = MIL_UNKNOWN;
        } else if (__builtin_add_overflow(sum, size, &sum)) {
            return in_fail(i, ERR_MIL_SHAPE, "values", "too large");
        }
    }
    out.dims[axis] = sum;
    return out_type(i, out.dtype, out.rank, out.dims);
}

int infer_stack(struct infer *i)
{
    size_t n = in_count(i, "values");
    struct mil_type t = *in_type_at(i, "values", 0);
    int64_t dims[MIL_RANK_MAX];
    int axis = 0;
    if (t.rank == (int)MIL_RANK_MAX) {
        return in_fail(i, ERR_MIL_SHAPE, "values", "rank %d", t.rank);
    }
    RETERR(in_axis(i, "axis", 0, t.rank + 1, &axis));
    for (size_t k = 1; k < n; k++) {
        const struct mil_type *o = in_type_at(i, "values", k);
        if (!mil_type_agrees(&t, o)) {
            return in_fail(i, ERR_MIL_SHAPE, "values", "shapes differ");
        }
    }
    for (int k = 0, from = 0; k <= t.rank; k++) {
        dims[k] = k == axis ? (int64_t)n : t.dims[from++];
    }
    return out_type(i, t.dtype, t.rank + 1, dims);
}

static int split_even(struct infer *i, struct mil_type x, int axis)
{
    int64_t n = 0;
    int64_t total = x.dims[axis];
    RETERR(in_int(i, "num_splits", &n));
    if (n < 1 || n > (int64_t)MIL_FEATURES_MAX ||
        (total >= 0 && total % n != 0)) {
        return in_fail(i, ERR_MIL_SHAPE, "num_splits", "%lld parts of %lld",
                       (long long)n, (long long)total);
    }
    x.dims[axis] = total < 0 ? MIL_UNKNOWN : total / n;
    for (int64_t k = 0; k < n; k++) {
        RETERR(out_type(i, x.dtype, x.rank, x.dims));
    }
    return 0;
}

static int split_sizes(struct infer *i, struct mil_type x, int axis)
{
    int64_t *sizes = calloc(MIL_FEATURES_MAX, sizeof(*sizes));
    must(sizes != NULL);
    int64_t total = x.dims[axis];
    int64_t sum = 0;
    size_t n = 0;
    int rc = 0;
    if (!mil_const_ints(in_const(i, "split_sizes"), sizes, MIL_FEATURES_MAX,
                        &n) ||
        n == 0) {
        rc = in_fail(i, ERR_MIL_INVALID, "split_sizes",
                     "must be constant integers");
        goto out;
    }
    for (size_t k = 0; k < n; k++) {
        if (sizes[k] < 0 || __builtin_add_overflow(sum, sizes[k], &sum)) {
            rc = in_fail(i, ERR_MIL_SHAPE, "split_sizes", "part %zu", k);
            goto out;
        }
        x.dims[axis] = sizes[k];
        CHECK(out_type(i, x.dtype, x.rank, x.dims));
    }
    if (total >= 0 && sum != total) {
        rc = in_fail(i, ERR_MIL_SHAPE, "split_sizes", "sum to %lld of %lld",
                     (long long)sum, (long long)total);
    }
out:
    free(sizes);
    return rc;
}

int infer_split(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    int axis = 0;
    int rc = in_axis(i, "axis", 0, x->rank, &axis);
    if (rc < 0) {
        return rc;
    }
    if (in_has(i, "num_splits") == in_has(i, "split_sizes")) {
        return in_fail(i, ERR_MIL_INVALID, "num_splits",
                       "exactly one of it and split_sizes must be given");
    }
    return in_has(i, "num_splits") ? split_even(i, *x, axis)
                                   : split_sizes(i, *x, axis);
}

/* --- making and repeating --- */

int infer_tile(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    int64_t reps[MIL_RANK_MAX];
    int64_t dims[MIL_RANK_MAX];
    bool known = false;
    RETERR(in_vector(i, "reps", x->rank, reps, &known));
    for (int k = 0; k < x->rank; k++) {
        dims[k] = MIL_UNKNOWN;
        if (known && reps[k] < 1) {
            return in_fail(i, ERR_MIL_SHAPE, "reps", "%lld",
                           (long long)reps[k]);
        }
        if (known && x->dims[k] >= 0 &&
            __builtin_mul_overflow(x->dims[k], reps[k], &dims[k])) {
            return in_fail(i, ERR_MIL_SHAPE, "reps", "too large");
        }
    }
    return out_type(i, x->dtype, x->rank, dims);
}

int infer_pad(struct infer *i)
{
    struct mil_type x = *in_type(i, "x");
    int64_t pad[2 * MIL_RANK_MAX];
    int64_t n = 0;
    const char *mode = "constant";
    RETERR(in_length(i, "pad", &n));
    RETERR(in_str(i, "mode", &mode));
    if (strcmp(mode, "constant") != 0 && strcmp(mode, "reflect") != 0 &&
        strcmp(mode, "replicate") != 0) {
        return in_fail(i, ERR_MIL_INVALID, "mode", "\"%s\"", mode);
    }
    bool known = in_const(i, "pad") != NULL;
    if (n % 2 != 0 || n < 0 || n / 2 > x.rank || (!known && n / 2 != x.rank)) {
        return in_fail(i, ERR_MIL_SHAPE, "pad", "%lld elements for rank %d",
                       (long long)n, x.rank);
    }
    if (known) {
        RETERR(in_ints(i, "pad", (size_t)n, pad));
    }
    for (int64_t k = 0; k < n / 2; k++) {
        int64_t *d = &x.dims[x.rank - n / 2 + k];
        if (!known) {
            *d = MIL_UNKNOWN;
        } else if (pad[2 * k] < 0 || pad[2 * k + 1] < 0 ||
                   pad[2 * k] > INT32_MAX || pad[2 * k + 1] > INT32_MAX ||
                   (*d >= 0 && __builtin_add_overflow(
                                   *d, pad[2 * k] + pad[2 * k + 1], d))) {
            return in_fail(i, ERR_MIL_SHAPE, "pad", "pair %lld", (long long)k);
        }
    }
    return out_type(i, x.dtype, x.rank, x.dims);
}

int infer_fill(struct infer *i)
{
    int64_t dims[MIL_RANK_MAX];
    int rank = 0;
    bool given = false;
    RETERR(in_shape(i, dims, &rank, &given));
    for (int k = 0; k < rank && given; k++) {
        if (dims[k] < 0) {
            return in_fail(i, ERR_MIL_SHAPE, "shape", "dimension %d is %lld", k,
                           (long long)dims[k]);
        }
    }
    enum mil_dtype t =
        in_has(i, "value") ? in_type(i, "value")->dtype : MIL_FP32;
    return out_type(i, t, rank, dims);
}

int infer_fill_like(struct infer *i)
{
    const struct mil_type *x = in_type(i, "ref_tensor");
    enum mil_dtype t =
        in_has(i, "value") ? in_type(i, "value")->dtype : MIL_FP32;
    return out_type(i, t, x->rank, x->dims);
}

/* A constant scalar, exact for every int32; false when it is not known. */
static bool number(struct infer *i, const char *name, double *ret)
{
    int64_t n = 0;
    float f = 0;
    size_t count = 0;
    if (mil_const_ints(in_const(i, name), &n, 1, &count)) {
        *ret = (double)n;
        return true;
    }
    if (mil_const_floats(in_const(i, name), &f, 1, &count)) {
        *ret = (double)f;
        return true;
    }
    return false;
}

int infer_range(struct infer *i)
{
    static const char *const names[] = {"start", "end", "step"};
    double v[3] = {0};
    bool known = true;
    int64_t n = MIL_UNKNOWN;
    for (size_t k = 0; k < 3; k++) {
        if (in_type(i, names[k])->rank != 0) {
            return in_fail(i, ERR_MIL_SHAPE, names[k], "must be a scalar");
        }
        known = number(i, names[k], &v[k]) && known;
    }
    if (known) {
        double span = (v[1] - v[0]) / v[2];
        if (!(span >= 0 && span < (double)INT32_MAX)) {
            return in_fail(i, ERR_MIL_SHAPE, "step",
                           "does not lead from start to end");
        }
        n = (int64_t)span;
        n += (double)n < span;
    }
    return out_type(i, in_type(i, "start")->dtype, 1, &n);
}

int infer_shape(struct infer *i)
{
    int64_t rank = in_type(i, "x")->rank;
    return out_type(i, MIL_INT32, 1, &rank);
}

int infer_band_part(struct infer *i)
{
    int64_t n = 0;
    RETERR(in_int(i, "lower", &n));
    RETERR(in_int(i, "upper", &n));
    if (in_type(i, "x")->rank < 2) {
        return in_fail(i, ERR_MIL_SHAPE, "x", "must have rank 2 or more");
    }
    return out_like(i, "x");
}

int infer_reverse(struct infer *i)
{
    bool set[MIL_RANK_MAX];
    size_t n = 0;
    int rc = in_axes(i, "axes", in_type(i, "x")->rank, set, &n);
    return rc < 0 ? rc : out_like(i, "x");
}

/* The shapes of ref_tensors, each from begins to ends, one after the other. */
int infer_reshape_like(struct infer *i)
{
    static const char *const names[] = {"begins", "ends", "end_masks"};
    size_t n = in_count(i, "ref_tensors");
    int64_t dims[MIL_RANK_MAX];
    int rank = 0;
    for (size_t k = 0; k < countof(names); k++) {
        if (in_count(i, names[k]) != n) {
            return in_fail(i, ERR_MIL_SHAPE, names[k],
                           "%zu values for %zu tensors", in_count(i, names[k]),
                           n);
        }
    }
    for (size_t k = 0; k < n; k++) {
        const struct mil_type *t = in_type_at(i, "ref_tensors", k);
        int64_t from = 0;
        int64_t to = 0;
        bool end = false;
        size_t got = 0;
        if (!mil_const_ints(in_const_at(i, "begins", k), &from, 1, &got) ||
            !mil_const_ints(in_const_at(i, "ends", k), &to, 1, &got) ||
            !mil_const_bools(in_const_at(i, "end_masks", k), &end, 1, &got)) {
            return in_fail(i, ERR_MIL_INVALID, "begins",
                           "begins, ends and end_masks must be constant");
        }
        from = from < 0 ? from + t->rank : from;
        to = end ? t->rank : to < 0 ? to + t->rank : to;
        if (from < 0 || to > t->rank || to - from > (int)MIL_RANK_MAX - rank) {
            return in_fail(i, ERR_MIL_SHAPE, "ref_tensors",
                           "dimensions %lld to %lld of rank %d",
                           (long long)from, (long long)to, t->rank);
        }
        for (; from < to; from++) {
            dims[rank++] = t->dims[from];
        }
    }
    int64_t have = 0;
    int64_t want = 0;
    const struct mil_type *x = in_type(i, "x");
    if (volume(x->dims, x->rank, &have) && volume(dims, rank, &want) &&
        have != want) {
        return in_fail(i, ERR_MIL_SHAPE, "ref_tensors",
                       "%lld elements do not fit x's %lld", (long long)want,
                       (long long)have);
    }
    return out_type(i, x->dtype, rank, dims);
}

int infer_sliding_windows(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    int64_t dims[MIL_RANK_MAX];
    int64_t size = 0;
    int64_t stride = 1;
    int axis = 0;
    RETERR(in_axis(i, "axis", 0, x->rank, &axis));
    RETERR(in_int(i, "size", &size));
    RETERR(in_int(i, "stride", &stride));
    int64_t d = x->dims[axis];
    if (x->rank == MIL_RANK_MAX || size < 1 || stride < 1 ||
        (d >= 0 && size > d)) {
        return in_fail(i, ERR_MIL_SHAPE, "size", "%lld by %lld of %lld",
                       (long long)size, (long long)stride, (long long)d);
    }
    for (int k = 0; k < x->rank; k++) {
        dims[k < axis ? k : k + 1] = x->dims[k];
    }
    dims[axis] = d < 0 ? MIL_UNKNOWN : (d - size) / stride + 1;
    dims[axis + 1] = size;
    return out_type(i, x->dtype, x->rank + 1, dims);
}

int infer_non_zero(struct infer *i)
{
    int64_t dims[2] = {MIL_UNKNOWN, in_type(i, "x")->rank};
    return out_type(i, MIL_INT32, 2, dims);
}
