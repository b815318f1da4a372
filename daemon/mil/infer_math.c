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
    int rc = broadcast(i, "x", &rank, dims);
    if (rc == 0) {
        rc = broadcast(i, "y", &rank, dims);
    }
    return rc < 0 ? rc : out_type(i, t, rank, dims);
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
    int rc = in_axis(i, "axis", -1, in_type(i, "x")->rank, &axis);
    if (rc == 0) {
        rc = in_bool(i, "exclusive", &flag);
    }
    if (rc == 0) {
        rc = in_bool(i, "reverse", &flag);
    }
    return rc < 0 ? rc : out_like(i, "x");
}

int infer_gelu(struct infer *i)
{
    const char *mode = "EXACT";
    int rc = in_str(i, "mode", &mode);
    if (rc == 0 && strcmp(mode, "EXACT") != 0 &&
        strcmp(mode, "TANH_APPROXIMATION") != 0 &&
        strcmp(mode, "SIGMOID_APPROXIMATION") != 0) {
        rc = in_fail(i, ERR_MIL_INVALID, "mode", "\"%s\"", mode);
    }
    return rc < 0 ? rc : out_like(i, "x");
}

/* A loader takes the shape from a and b alone (facts 3.9), so one of them must
 * have it. */
int infer_select(struct infer *i)
{
    int rank = 0;
    int64_t dims[MIL_RANK_MAX] = {0};
    int rc = broadcast(i, "a", &rank, dims);
    if (rc == 0) {
        rc = broadcast(i, "b", &rank, dims);
    }
    int values_rank = rank;
    int64_t values[MIL_RANK_MAX];
    memcpy(values, dims, sizeof(values));
    if (rc == 0) {
        rc = broadcast(i, "cond", &rank, dims);
    }
    for (int k = 0; k < rank && rc == 0; k++) {
        int64_t d = 0;
        if (values_rank != rank || !dim_unify(values[k], dims[k], &d)) {
            rc = in_fail(i, ERR_MIL_SHAPE, "cond",
                         "a or b must have the full output shape");
        }
    }
    return rc < 0 ? rc : out_type(i, in_type(i, "a")->dtype, rank, dims);
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
    int rc = in_axes(i, "axes", x->rank, set, &n);
    if (rc == 0 && n == 0) {
        rc = in_fail(i, ERR_MIL_SHAPE, "axes", "is empty");
    }
    return rc < 0 ? rc : reduced(i, set, x->dtype);
}

/* reduce_argmax, reduce_argmin, and argsort, which keeps the shape */
int infer_arg(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    bool set[MIL_RANK_MAX] = {false};
    const char *to = "int32";
    int axis = 0;
    int rc = in_axis(i, "axis", -1, x->rank, &axis);
    if (rc == 0) {
        rc = in_str(i, "output_dtype", &to);
    }
    enum mil_dtype t = mil_dtype_parse(to);
    if (rc == 0 && t != MIL_INT32 && t != MIL_UINT16) {
        rc = in_fail(i, ERR_MIL_INVALID, "output_dtype", "\"%s\"", to);
    }
    if (rc < 0) {
        return rc;
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
    int rc = in_axes(i, "axes", x->rank, set, &n);
    for (int k = 0; k < x->rank && rc == 0; k++) {
        if (set[k]) {
            dims[rank++] = x->dims[k];
        }
    }
    for (size_t k = 0; k < countof(params) && rc == 0; k++) {
        rc = in_has(i, params[k]) ? in_same_dims(i, params[k], rank, dims) : 0;
    }
    if (rc == 0) {
        rc = want_scalar(i, "epsilon");
    }
    return rc < 0 ? rc : out_like(i, "x");
}

/* batch_norm, instance_norm: parameters [C] of x [N, C, ...]. */
int infer_channel_norm(struct infer *i)
{
    static const char *const params[] = {"mean", "variance", "gamma", "beta"};
    const struct mil_type *x = in_type(i, "x");
    int rc = 0;
    if (x->rank < 3) {
        return in_fail(i, ERR_MIL_SHAPE, "x", "rank %d, must be 3 or more",
                       x->rank);
    }
    for (size_t k = 0; k < countof(params) && rc == 0; k++) {
        rc = in_has(i, params[k]) ? in_same_dims(i, params[k], 1, &x->dims[1])
                                  : 0;
    }
    if (rc == 0) {
        rc = want_scalar(i, "epsilon");
    }
    return rc < 0 ? rc : out_like(i, "x");
}

/* --- quantised activations, states --- */

static int quant_params(struct infer *i)
{
    const struct mil_type *x = in_type(i, "input");
    const struct mil_type *s = in_type(i, "scale");
    int axis = 0;
    int rc = 0;
    if (s->rank > 1) {
        return in_fail(i, ERR_MIL_SHAPE, "scale", "rank %d", s->rank);
    }
    if (s->rank == 1) {
        rc = in_axis(i, "axis", x->rank, x->rank, &axis);
        rc = rc == 0 ? in_same_dims(i, "scale", 1, &x->dims[axis]) : rc;
    }
    if (rc == 0 && in_has(i, "zero_point")) {
        rc = in_same_dims(i, "zero_point", s->rank, s->dims);
    }
    return rc;
}

int infer_quantize(struct infer *i)
{
    const char *to = "";
    int rc = quant_params(i);
    if (rc == 0) {
        rc = in_str(i, "output_dtype", &to);
    }
    enum mil_dtype t = mil_dtype_parse(to);
    if (rc == 0 && t != MIL_INT8 && t != MIL_UINT8) {
        rc = in_fail(i, ERR_MIL_INVALID, "output_dtype", "\"%s\"", to);
    }
    const struct mil_type *x = in_type(i, "input");
    return rc < 0 ? rc : out_type(i, t, x->rank, x->dims);
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
