/* infer_gather.c - ops that index: gather, scatter, topk, one_hot. */
#include <string.h>

#include "mil/sig.h"

/* Append dims[from..to) to out; false when the rank gets too large. */
static bool append(struct mil_type *out, const int64_t *dims, int from, int to)
{
    for (int k = from; k < to; k++) {
        if (out->rank == (int)MIL_RANK_MAX) {
            return false;
        }
        out->dims[out->rank++] = dims[k];
    }
    return true;
}

static int too_deep(struct infer *i, const char *name)
{
    return in_fail(i, ERR_MIL_SHAPE, name,
                   "the result has too many dimensions");
}

static int validate_flag(struct infer *i)
{
    bool flag = false;
    return in_bool(i, "validate_indices", &flag);
}

/* From spec 8 on a negative index is not counted from the end (facts 5.5). */
static int check_indices(struct infer *i, int64_t dim)
{
    int64_t at[MIL_RANK_MAX];
    size_t n = 0;
    const struct mil_const *c = in_const(i, "indices");
    if (c == NULL || !mil_const_ints(c, at, MIL_RANK_MAX, &n)) {
        return 0; /* not known, or a long table */
    }
    for (size_t k = 0; k < n; k++) {
        int64_t low = i->spec >= 8 ? 0 : -dim;
        if ((dim >= 0 && at[k] >= dim) || (dim >= 0 && at[k] < low) ||
            (i->spec >= 8 && at[k] < 0)) {
            return in_fail(i, ERR_MIL_SHAPE, "indices",
                           "%lld is outside dimension %lld", (long long)at[k],
                           (long long)dim);
        }
    }
    return 0;
}

static int batch_dims(struct infer *i, const struct mil_type *x,
                      const struct mil_type *indices, int limit, int *ret)
{
    int64_t n = 0;
    int64_t d = 0;
    int rc = in_int(i, "batch_dims", &n);
    if (rc < 0) {
        return rc;
    }
    if (n < 0 || n > limit || n > indices->rank) {
        return in_fail(i, ERR_MIL_SHAPE, "batch_dims", "%lld", (long long)n);
    }
    for (int64_t k = 0; k < n; k++) {
        if (!dim_unify(x->dims[k], indices->dims[k], &d)) {
            return in_fail(i, ERR_MIL_SHAPE, "indices",
                           "batch dimension %lld differs", (long long)k);
        }
    }
    *ret = (int)n;
    return 0;
}

/* x[:axis] + indices[batch_dims:] + x[axis + 1:] */
int infer_gather(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    const struct mil_type *ix = in_type(i, "indices");
    int axis = 0;
    int batch = 0;
    RETERR(in_axis(i, "axis", 0, x->rank, &axis));
    RETERR(batch_dims(i, x, ix, axis, &batch));
    RETERR(validate_flag(i));
    RETERR(check_indices(i, x->dims[axis]));
    struct mil_type out = {.dtype = x->dtype};
    if (!append(&out, x->dims, 0, axis) ||
        !append(&out, ix->dims, batch, ix->rank) ||
        !append(&out, x->dims, axis + 1, x->rank)) {
        return too_deep(i, "indices");
    }
    return out_type(i, out.dtype, out.rank, out.dims);
}

/* t must have x's dimensions except along axis. */
static int same_but_axis(struct infer *i, const char *name,
                         const struct mil_type *x, int axis)
{
    struct mil_type want = *x;
    want.dims[axis] = MIL_UNKNOWN;
    return in_same_dims(i, name, want.rank, want.dims);
}

int infer_gather_along(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    const struct mil_type *ix = in_type(i, "indices");
    int axis = 0;
    RETERR(in_axis(i, "axis", 0, x->rank, &axis));
    RETERR(same_but_axis(i, "indices", x, axis));
    RETERR(validate_flag(i));
    return out_type(i, x->dtype, ix->rank, ix->dims);
}

/* indices [B.., I.., K] of x [B.., X..] -> [B.., I.., X[K:]] */
static int nd_shape(struct infer *i, const char *x_name, int batch,
                    struct mil_type *out)
{
    const struct mil_type *x = in_type(i, x_name);
    const struct mil_type *ix = in_type(i, "indices");
    if (ix->rank < 1 || ix->rank <= batch) {
        return in_fail(i, ERR_MIL_SHAPE, "indices", "rank %d", ix->rank);
    }
    int64_t depth = ix->dims[ix->rank - 1];
    if (depth < 1 || depth > x->rank - batch) {
        return in_fail(i, ERR_MIL_SHAPE, "indices",
                       "last dimension %lld of rank %d", (long long)depth,
                       x->rank);
    }
    *out = (struct mil_type){.dtype = x->dtype};
    if (!append(out, ix->dims, 0, ix->rank - 1) ||
        !append(out, x->dims, batch + (int)depth, x->rank)) {
        return too_deep(i, "indices");
    }
    return 0;
}

int infer_gather_nd(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    struct mil_type out = {0};
    int batch = 0;
    RETERR(batch_dims(i, x, in_type(i, "indices"), x->rank, &batch));
    RETERR(validate_flag(i));
    RETERR(nd_shape(i, "x", batch, &out));
    return out_type(i, out.dtype, out.rank, out.dims);
}

static int scatter_mode(struct infer *i)
{
    static const char *const modes[] = {"update", "add", "sub", "mul",
                                        "div",    "max", "min"};
    const char *mode = "add";
    RETERR(in_str(i, "mode", &mode));
    for (size_t k = 0; k < countof(modes); k++) {
        if (strcmp(mode, modes[k]) == 0) {
            return validate_flag(i);
        }
    }
    return in_fail(i, ERR_MIL_INVALID, "mode", "\"%s\"", mode);
}

/* updates are data[:axis] + indices + data[axis + 1:] */
int infer_scatter(struct infer *i)
{
    const struct mil_type *data = in_type(i, "data");
    const struct mil_type *ix = in_type(i, "indices");
    struct mil_type want = {.dtype = data->dtype};
    int axis = 0;
    RETERR(in_axis(i, "axis", 0, data->rank, &axis));
    RETERR(scatter_mode(i));
    if (!append(&want, data->dims, 0, axis) ||
        !append(&want, ix->dims, 0, ix->rank) ||
        !append(&want, data->dims, axis + 1, data->rank)) {
        return too_deep(i, "indices");
    }
    RETERR(in_same_dims(i, "updates", want.rank, want.dims));
    return out_like(i, "data");
}

int infer_scatter_along(struct infer *i)
{
    const struct mil_type *data = in_type(i, "data");
    const struct mil_type *ix = in_type(i, "indices");
    int axis = 0;
    RETERR(in_axis(i, "axis", 0, data->rank, &axis));
    RETERR(scatter_mode(i));
    RETERR(same_but_axis(i, "indices", data, axis));
    RETERR(in_same_dims(i, "updates", ix->rank, ix->dims));
    return out_like(i, "data");
}

int infer_scatter_nd(struct infer *i)
{
    struct mil_type want = {0};
    RETERR(scatter_mode(i));
    RETERR(nd_shape(i, "data", 0, &want));
    RETERR(in_same_dims(i, "updates", want.rank, want.dims));
    return out_like(i, "data");
}

int infer_topk(struct infer *i)
{
    struct mil_type x = *in_type(i, "x");
    const char *to = "int32";
    bool flag = false;
    bool indices = true;
    int64_t k = 1;
    int axis = 0;
    RETERR(in_axis(i, "axis", -1, x.rank, &axis));
    if (in_has(i, "k") && in_const(i, "k") == NULL) {
        k = MIL_UNKNOWN; /* a run-time number */
    } else {
        RETERR(in_int(i, "k", &k));
    }
    RETERR(in_bool(i, "ascending", &flag));
    RETERR(in_bool(i, "sort", &flag));
    RETERR(in_bool(i, "return_indices", &indices));
    RETERR(in_str(i, "output_indices_dtype", &to));
    enum mil_dtype t = mil_dtype_parse(to);
    if (t != MIL_INT32 && t != MIL_UINT16) {
        return in_fail(i, ERR_MIL_INVALID, "output_indices_dtype", "\"%s\"",
                       to);
    }
    if (k < MIL_UNKNOWN || (k >= 0 && x.dims[axis] >= 0 && k > x.dims[axis])) {
        return in_fail(i, ERR_MIL_SHAPE, "k", "%lld of %lld", (long long)k,
                       (long long)x.dims[axis]);
    }
    x.dims[axis] = k == -1 ? x.dims[axis] : k; /* -1 is all of them */
    if (in_has(i, "k") && in_const(i, "k") == NULL) {
        x.dims[axis] = MIL_UNKNOWN;
    }
    RETERR(out_type(i, x.dtype, x.rank, x.dims));
    return indices ? out_type(i, t, x.rank, x.dims) : 0;
}

int infer_one_hot(struct infer *i)
{
    const struct mil_type *ix = in_type(i, "indices");
    int64_t dims[MIL_RANK_MAX];
    int64_t size = MIL_UNKNOWN;
    int axis = 0;
    if (ix->rank == (int)MIL_RANK_MAX) {
        return too_deep(i, "indices");
    }
    if (in_const(i, "one_hot_vector_size") != NULL) {
        RETERR(in_int(i, "one_hot_vector_size", &size));
    }
    RETERR(in_axis(i, "axis", -1, ix->rank + 1, &axis));
    if (size < 0 && in_const(i, "one_hot_vector_size") != NULL) {
        return in_fail(i, ERR_MIL_SHAPE, "one_hot_vector_size", "%lld",
                       (long long)size);
    }
    for (int k = 0, from = 0; k <= ix->rank; k++) {
        dims[k] = k == axis ? size : ix->dims[from++];
    }
    enum mil_dtype t = MIL_INT32;
    if (in_has(i, "on_value")) {
        t = in_type(i, "on_value")->dtype;
    } else if (in_has(i, "off_value")) {
        t = in_type(i, "off_value")->dtype;
    }
    return out_type(i, t, ix->rank + 1, dims);
}
