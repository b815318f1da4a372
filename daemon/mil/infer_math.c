/* infer_math.c - elementwise ops, reductions, norms, states. */
#include <string.h>

#include "mil/sig.h"

int infer_same(struct infer *i)
{
    return out_like(i, "x");
}

/* A parameter that must be a scalar. */
static int want_scalar(struct infer *i, const char *name)
{
    if (in_has(i, name) && in_type(i, name)->rank != 0) {
        return in_fail(i, ERR_MIL_SHAPE, name, "must be a scalar");
    }
    return 0;
}

int infer_epsilon(struct infer *i)
{
    int rc = want_scalar(i, "epsilon");
    return rc < 0 ? rc : out_like(i, "x");
}

static int broadcast(struct infer *i, const char *name, int *rank,
                     int64_t *dims)
{
    const struct mil_type *t = in_type(i, name);
    if (dims_broadcast(rank, dims, t->rank, t->dims)) {
        return 0;
    }
    char text[160];
    mil_type_print(t, text, sizeof(text));
    return in_fail(i, ERR_MIL_SHAPE, name, "%s does not broadcast", text);
}

/* Operands a and b broadcast; out gets `t`. */
static int two(struct infer *i, enum mil_dtype t)
{
    int rank = 0;
    int64_t dims[MIL_RANK_MAX] = {0};
    RETERR(broadcast(i, "x", &rank, dims));
    RETERR(broadcast(i, "y", &rank, dims));
    return out_type(i, t, rank, dims);
}

int infer_binary(struct infer *i)
{
    return two(i, in_type(i, "x")->dtype);
}

int infer_compare(struct infer *i)
{
    return two(i, MIL_BOOL);
}

int infer_clip(struct infer *i)
{
    float lo = 0;
    float hi = 0;
    size_t n = 0;
    if (!mil_const_floats(in_const(i, "alpha"), &lo, 1, &n) || n != 1) {
        return in_fail(i, ERR_MIL_INVALID, "alpha", "must be one constant");
    }
    if (!mil_const_floats(in_const(i, "beta"), &hi, 1, &n) || n != 1) {
        return in_fail(i, ERR_MIL_INVALID, "beta", "must be one constant");
    }
    if (i->spec >= 8 && !(lo < hi)) {
        return in_fail(i, ERR_MIL_INVALID, "beta", "must be above alpha");
    }
    return out_like(i, "x");
}

int infer_axis(struct infer *i)
{
    int axis = 0;
    bool flag = false;
    RETERR(in_axis(i, "axis", -1, in_type(i, "x")->rank, &axis));
    RETERR(in_bool(i, "exclusive", &flag));
    RETERR(in_bool(i, "reverse", &flag));
    return out_like(i, "x");
}

int infer_gelu(struct infer *i)
{
    const char *mode = "EXACT";
    RETERR(in_str(i, "mode", &mode));
    if (strcmp(mode, "EXACT") != 0 && strcmp(mode, "TANH_APPROXIMATION") != 0 &&
        strcmp(mode, "SIGMOID_APPROXIMATION") != 0) {
        return in_fail(i, ERR_MIL_INVALID, "mode", "\"%s\"", mode);
    }
    return out_like(i, "x");
}

/* A loader takes the shape from a and b alone (facts 3.9), so one of them must
 * have it. */
int infer_select(struct infer *i)
{
    int rank = 0;
    int64_t dims[MIL_RANK_MAX] = {0};
    RETERR(broadcast(i, "a", &rank, dims));
    RETERR(broadcast(i, "b", &rank, dims));
    int values_rank = rank;
    int64_t values[MIL_RANK_MAX];
    memcpy(values, dims, sizeof(values));
    RETERR(broadcast(i, "cond", &rank, dims));
    for (int k = 0; k < rank; k++) {
        int64_t d = 0;
        if (values_rank != rank || !dim_unify(values[k], dims[k], &d)) {
            return in_fail(i, ERR_MIL_SHAPE, "cond",
                           "a or b must have the full output shape");
        }
    }
    return out_type(i, in_type(i, "a")->dtype, rank, dims);
}

int infer_cast(struct infer *i)
{
    static const struct {
        enum mil_dtype t;
        int since;
    } to[] = {
        {MIL_FP16,   6},
        {MIL_FP32,   6},
        {MIL_INT32,  6},
        {MIL_BOOL,   6},
        {MIL_INT8,   8},
        {MIL_UINT8,  8},
        {MIL_INT16,  8},
        {MIL_UINT16, 8},
    };
    const char *name = "";
    int rc = in_str(i, "dtype", &name);
    if (rc < 0) {
        return rc;
    }
    const struct mil_type *x = in_type(i, "x");
    for (size_t k = 0; k < countof(to); k++) {
        if (to[k].since <= i->spec && to[k].t == mil_dtype_parse(name)) {
            return out_type(i, to[k].t, x->rank, x->dims);
        }
    }
    return in_fail(i, ERR_MIL_INVALID, "dtype", "\"%s\"", name);
}

/* --- reductions and norms --- */

static int reduced(struct infer *i, const bool set[MIL_RANK_MAX],
                   enum mil_dtype t)
{
    bool keep = false;
    int rc = in_bool(i, "keep_dims", &keep);
    if (rc < 0) {
        return rc;
    }
    const struct mil_type *x = in_type(i, "x");
    int64_t dims[MIL_RANK_MAX];
    int rank = 0;
    for (int k = 0; k < x->rank; k++) {
        if (!set[k]) {
            dims[rank++] = x->dims[k];
        } else if (keep) {
            dims[rank++] = 1;
        }
    }
    return out_type(i, t, rank, dims);
}

int infer_reduce(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    bool set[MIL_RANK_MAX];
    size_t n = 0;
    if (x->rank == 0) {
        return in_fail(i, ERR_MIL_SHAPE, "x", "a scalar cannot be reduced");
    }
    RETERR(in_axes(i, "axes", x->rank, set, &n));
    if (n == 0) {
        return in_fail(i, ERR_MIL_SHAPE, "axes", "is empty");
    }
    return reduced(i, set, x->dtype);
}

/* reduce_argmax, reduce_argmin, and argsort, which keeps the shape */
int infer_arg(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    bool set[MIL_RANK_MAX] = {false};
    const char *to = "int32";
    int axis = 0;
    RETERR(in_axis(i, "axis", -1, x->rank, &axis));
    RETERR(in_str(i, "output_dtype", &to));
    enum mil_dtype t = mil_dtype_parse(to);
    if (t != MIL_INT32 && t != MIL_UINT16) {
        return in_fail(i, ERR_MIL_INVALID, "output_dtype", "\"%s\"", to);
    }
    if (strcmp(i->op->type, "argsort") == 0) {
        return out_type(i, t, x->rank, x->dims);
    }
    set[axis] = true;
    return reduced(i, set, t);
}

/* gamma and beta have the shape of the normalised axes, in order. */
int infer_layer_norm(struct infer *i)
{
    static const char *const params[] = {"gamma", "beta"};
    const struct mil_type *x = in_type(i, "x");
    bool set[MIL_RANK_MAX];
    int64_t dims[MIL_RANK_MAX];
    size_t n = 0;
    int rank = 0;
    RETERR(in_axes(i, "axes", x->rank, set, &n));
    for (int k = 0; k < x->rank; k++) {
        if (set[k]) {
            dims[rank++] = x->dims[k];
        }
    }
    for (size_t k = 0; k < countof(params); k++) {
        if (in_has(i, params[k])) {
            RETERR(in_same_dims(i, params[k], rank, dims));
        }
    }
    RETERR(want_scalar(i, "epsilon"));
    return out_like(i, "x");
}

/* batch_norm, instance_norm: parameters [C] of x [N, C, ...]. */
int infer_channel_norm(struct infer *i)
{
    static const char *const params[] = {"mean", "variance", "gamma", "beta"};
    const struct mil_type *x = in_type(i, "x");
    if (x->rank < 3) {
        return in_fail(i, ERR_MIL_SHAPE, "x", "rank %d, must be 3 or more",
                       x->rank);
    }
    for (size_t k = 0; k < countof(params); k++) {
        if (in_has(i, params[k])) {
            RETERR(in_same_dims(i, params[k], 1, &x->dims[1]));
        }
    }
    RETERR(want_scalar(i, "epsilon"));
    return out_like(i, "x");
}

/* --- quantised activations, states --- */

static int quant_params(struct infer *i)
{
    const struct mil_type *x = in_type(i, "input");
    const struct mil_type *s = in_type(i, "scale");
    int axis = 0;
    if (s->rank > 1) {
        return in_fail(i, ERR_MIL_SHAPE, "scale", "rank %d", s->rank);
    }
    if (s->rank == 1) {
        RETERR(in_axis(i, "axis", x->rank, x->rank, &axis));
        RETERR(in_same_dims(i, "scale", 1, &x->dims[axis]));
    }
    if (in_has(i, "zero_point")) {
        RETERR(in_same_dims(i, "zero_point", s->rank, s->dims));
    }
    return 0;
}

int infer_quantize(struct infer *i)
{
    const char *to = "";
    RETERR(quant_params(i));
    RETERR(in_str(i, "output_dtype", &to));
    enum mil_dtype t = mil_dtype_parse(to);
    if (t != MIL_INT8 && t != MIL_UINT8) {
        return in_fail(i, ERR_MIL_INVALID, "output_dtype", "\"%s\"", to);
    }
    const struct mil_type *x = in_type(i, "input");
    return out_type(i, t, x->rank, x->dims);
}

int infer_dequantize(struct infer *i)
{
    int rc = quant_params(i);
    const struct mil_type *x = in_type(i, "input");
    return rc < 0 ? rc
                  : out_type(i, in_type(i, "scale")->dtype, x->rank, x->dims);
}

int infer_read_state(struct infer *i)
{
    return out_like(i, "input"); /* the wrapped tensor */
}

int infer_write_state(struct infer *i)
{
    const struct mil_type *s = in_type(i, "input");
    if (in_type(i, "data")->dtype != s->dtype) {
        return in_fail(i, ERR_MIL_INVALID, "data",
                       "dtype %s, the state's is %s",
                       mil_dtype_name(in_type(i, "data")->dtype),
                       mil_dtype_name(s->dtype));
    }
    return in_same_dims(i, "data", s->rank, s->dims);
}
