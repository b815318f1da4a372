/* infer_math.c - elementwise ops, reductions, norms, products, states. */
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

/* --- products --- */

struct conv {
    int spatial; /* dimensions */
    int64_t strides[MIL_RANK_MAX];
    int64_t dilations[MIL_RANK_MAX];
    int64_t pad[2 * MIL_RANK_MAX];
    int64_t groups;
    const char *pad_type;
};

static int conv_params(struct infer *i, struct conv *c)
{
    size_t n = (size_t)c->spatial;
    for (size_t k = 0; k < n; k++) {
        c->strides[k] = 1;
        c->dilations[k] = 1;
    }
    int rc = in_ints(i, "strides", n, c->strides);
    if (rc == 0) {
        rc = in_ints(i, "dilations", n, c->dilations);
    }
    if (rc == 0) {
        rc = in_ints(i, "pad", 2 * n, c->pad);
    }
    if (rc == 0) {
        rc = in_int(i, "groups", &c->groups);
    }
    if (rc == 0) {
        rc = in_str(i, "pad_type", &c->pad_type);
    }
    for (size_t k = 0; k < n && rc == 0; k++) {
        if (c->strides[k] < 1 || c->strides[k] > INT32_MAX) {
            rc = in_fail(i, ERR_MIL_INVALID, "strides", "must be positive");
        } else if (c->dilations[k] < 1 || c->dilations[k] > INT32_MAX) {
            rc = in_fail(i, ERR_MIL_INVALID, "dilations", "must be positive");
        } else if (c->pad[2 * k] < 0 || c->pad[2 * k + 1] < 0) {
            rc = in_fail(i, ERR_MIL_INVALID, "pad", "must not be negative");
        }
    }
    return rc;
}

static int conv_spatial(struct infer *i, const struct conv *c, int k,
                        int64_t in, int64_t kernel, int64_t *ret)
{
    int64_t pad = 0;
    if (strcmp(c->pad_type, "same") == 0 ||
        (strcmp(c->pad_type, "same_lower") == 0 && i->spec >= 7)) {
        *ret = in < 0 ? MIL_UNKNOWN : (in - 1) / c->strides[k] + 1;
        return 0;
    }
    if (strcmp(c->pad_type, "custom") == 0) {
        pad = c->pad[2 * k] + c->pad[2 * k + 1];
    } else if (strcmp(c->pad_type, "valid") != 0) {
        return in_fail(i, ERR_MIL_INVALID, "pad_type", "\"%s\"", c->pad_type);
    }
    if (in < 0) {
        *ret = MIL_UNKNOWN;
        return 0;
    }
    int64_t reach = 0;
    if (__builtin_mul_overflow(kernel - 1, c->dilations[k], &reach) ||
        __builtin_add_overflow(in, pad, &pad) || pad - 1 < reach) {
        return in_fail(i, ERR_MIL_SHAPE, "weight",
                       "the kernel is larger than dimension %d of x", k + 2);
    }
    *ret = (pad - 1 - reach) / c->strides[k] + 1;
    return 0;
}

int infer_conv(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    const struct mil_type *w = in_type(i, "weight");
    struct conv c = {.groups = 1, .pad_type = "valid"};
    int64_t channels = 0;
    if (x->rank < 3 || x->rank > 5) {
        return in_fail(i, ERR_MIL_SHAPE, "x", "rank %d, must be 3 to 5",
                       x->rank);
    }
    if (w->rank != x->rank) {
        return in_fail(i, ERR_MIL_SHAPE, "weight", "rank %d, x has %d", w->rank,
                       x->rank);
    }
    c.spatial = x->rank - 2;
    int rc = conv_params(i, &c);
    if (rc < 0) {
        return rc;
    }
    for (int k = 0; k < w->rank; k++) {
        if (w->dims[k] < 1) {
            return in_fail(i, ERR_MIL_SHAPE, "weight", "dimension %d", k);
        }
    }
    if (c.groups < 1 || w->dims[0] % c.groups != 0 ||
        __builtin_mul_overflow(w->dims[1], c.groups, &channels) ||
        (x->dims[1] >= 0 && x->dims[1] != channels)) {
        return in_fail(i, ERR_MIL_SHAPE, "weight",
                       "[%lld,%lld] in %lld groups does not take %lld channels",
                       (long long)w->dims[0], (long long)w->dims[1],
                       (long long)c.groups, (long long)x->dims[1]);
    }
    if (in_has(i, "bias")) {
        rc = in_same_dims(i, "bias", 1, &w->dims[0]);
        if (rc < 0) {
            return rc;
        }
    }
    int64_t dims[MIL_RANK_MAX] = {x->dims[0], w->dims[0]};
    for (int k = 0; k < c.spatial; k++) {
        rc = conv_spatial(i, &c, k, x->dims[k + 2], w->dims[k + 2],
                          &dims[k + 2]);
        if (rc < 0) {
            return rc;
        }
    }
    return out_type(i, x->dtype, x->rank, dims);
}

int infer_linear(struct infer *i)
{
    const struct mil_type *x = in_type(i, "x");
    const struct mil_type *w = in_type(i, "weight");
    int64_t d = 0;
    if (x->rank < 1 || x->rank > 3) {
        return in_fail(i, ERR_MIL_SHAPE, "x", "rank %d, must be 1 to 3",
                       x->rank);
    }
    if (w->rank != 2 || !dim_unify(x->dims[x->rank - 1], w->dims[1], &d)) {
        return in_fail(i, ERR_MIL_SHAPE, "weight",
                       "must be [out, in] with x's last dimension");
    }
    if (in_has(i, "bias")) {
        int rc = in_same_dims(i, "bias", 1, &w->dims[0]);
        if (rc < 0) {
            return rc;
        }
    }
    struct mil_type out = *x;
    out.dims[out.rank - 1] = w->dims[0];
    return out_type(i, out.dtype, out.rank, out.dims);
}

static int matrix(struct infer *i, const char *name, const char *flag,
                  struct mil_type *ret)
{
    bool swap = false;
    int rc = in_bool(i, flag, &swap);
    if (rc < 0) {
        return rc;
    }
    *ret = *in_type(i, name);
    if (ret->rank == 0 || (ret->rank == 1 && swap)) {
        return in_fail(i, ERR_MIL_SHAPE, name, "rank %d%s", ret->rank,
                       swap ? " cannot be transposed" : "");
    }
    if (swap) {
        int64_t d = ret->dims[ret->rank - 1];
        ret->dims[ret->rank - 1] = ret->dims[ret->rank - 2];
        ret->dims[ret->rank - 2] = d;
    }
    return 0;
}

/* A vector x is a row whose dimension goes again. Only beside a plain matrix:
 * on batches the loader's inference and numpy's differ, so they are refused. */
int infer_matmul(struct infer *i)
{
    struct mil_type x = {0};
    struct mil_type y = {0};
    int rc = matrix(i, "x", "transpose_x", &x);
    if (rc == 0) {
        rc = matrix(i, "y", "transpose_y", &y);
    }
    if (rc < 0) {
        return rc;
    }
    if (y.rank < 2 || (x.rank == 1 && y.rank != 2)) {
        return in_fail(i, ERR_MIL_SHAPE, "y", "rank %d beside x's %d", y.rank,
                       x.rank);
    }
    int64_t k = 0;
    int64_t inner = y.dims[y.rank - 2];
    if (!dim_unify(x.dims[x.rank - 1], inner, &k)) {
        return in_fail(i, ERR_MIL_SHAPE, "y", "%lld rows, x has %lld columns",
                       (long long)inner, (long long)x.dims[x.rank - 1]);
    }
    int rank = x.rank > 2 ? x.rank - 2 : 0;
    int64_t dims[MIL_RANK_MAX];
    memcpy(dims, x.dims, sizeof(dims));
    if (!dims_broadcast(&rank, dims, y.rank - 2, y.dims)) {
        return in_fail(i, ERR_MIL_SHAPE, "y", "batch dimensions differ");
    }
    if (x.rank > 1) {
        dims[rank++] = x.dims[x.rank - 2];
    }
    dims[rank++] = y.dims[y.rank - 1];
    return out_type(i, x.dtype, rank, dims);
}

/* query [B.., L, E], key [B.., S, E], value [B.., S, V] -> [B.., L, V] */
int infer_attention(struct infer *i)
{
    const struct mil_type *q = in_type(i, "query");
    const struct mil_type *k = in_type(i, "key");
    const struct mil_type *v = in_type(i, "value");
    int n = q->rank;
    if (n < 3) {
        return in_fail(i, ERR_MIL_SHAPE, "query", "rank %d, must be 3 or more",
                       n);
    }
    struct mil_type want = *q; /* batch dimensions must be the same */
    want.dims[n - 2] = MIL_UNKNOWN;
    int rc = in_same_dims(i, "key", n, want.dims);
    if (rc == 0) {
        want.dims[n - 2] = k->dims[n - 2];
        want.dims[n - 1] = MIL_UNKNOWN;
        rc = in_same_dims(i, "value", n, want.dims);
    }
    if (rc == 0 && in_has(i, "attn_mask")) {
        struct mil_type scores = *q;
        scores.dims[n - 1] = k->dims[n - 2];
        const struct mil_type *m = in_type(i, "attn_mask");
        if (!dims_broadcast(&scores.rank, scores.dims, m->rank, m->dims) ||
            scores.rank != n) {
            rc = in_fail(i, ERR_MIL_SHAPE, "attn_mask",
                         "does not broadcast to the scores");
        }
    }
    if (rc < 0) {
        return rc;
    }
    struct mil_type out = *q;
    out.dims[n - 1] = v->dims[n - 1];
    return out_type(i, out.dtype, n, out.dims);
}

/* The two equations the loader takes: bnhv-style products over dimension -1 of
 * the first and -3 of the second value. */
int infer_einsum(struct infer *i)
{
    const char *eq = "";
    int rc = in_str(i, "equation", &eq);
    if (rc < 0) {
        return rc;
    }
    if (in_count(i, "values") != 2) {
        return in_fail(i, ERR_MIL_INVALID, "values", "must be two");
    }
    const struct mil_type *x = in_type_at(i, "values", 0);
    const struct mil_type *y = in_type_at(i, "values", 1);
    int n = x->rank;
    /* abcd,adce->abce and abc,cbd->abd, with any letters */
    static const char *const forms[] = {"012,213->013", "0123,0324->0124"};
    char norm[16] = "";
    char seen[8] = "";
    size_t len = strlen(eq);
    for (size_t k = 0; k < len && len < sizeof(norm); k++) {
        char *at = strchr(seen, eq[k]);
        if (eq[k] < 'a' || eq[k] > 'z') {
            norm[k] = eq[k];
        } else if (at != NULL) {
            norm[k] = (char)('0' + (at - seen));
        } else if (strlen(seen) < sizeof(seen) - 1) {
            norm[k] = (char)('0' + strlen(seen));
            seen[strlen(seen)] = eq[k];
        }
    }
    if ((n != 3 && n != 4) || y->rank != n || strcmp(norm, forms[n - 3]) != 0) {
        return in_fail(i, ERR_MIL_INVALID, "equation", "\"%s\"", eq);
    }
    struct mil_type out = *x;
    int64_t d = 0;
    int one = 1;
    out.dims[n - 1] = y->dims[n - 1];
    bool fits = dim_unify(x->dims[n - 1], y->dims[n - 3], &d) &&
                dims_broadcast(&one, &out.dims[n - 2], 1, &y->dims[n - 2]) &&
                (n == 3 || dims_broadcast(&one, &out.dims[0], 1, &y->dims[0]));
    if (!fits) {
        return in_fail(i, ERR_MIL_SHAPE, "values", "shapes do not fit");
    }
    return out_type(i, out.dtype, n, out.dims);
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
