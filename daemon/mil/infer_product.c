/* infer_product.c - conv, linear, matmul, attention, einsum. */
#include <string.h>

#include "mil/sig.h"

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
    RETERR(in_ints(i, "strides", n, c->strides));
    RETERR(in_ints(i, "dilations", n, c->dilations));
    RETERR(in_ints(i, "pad", 2 * n, c->pad));
    RETERR(in_int(i, "groups", &c->groups));
    RETERR(in_str(i, "pad_type", &c->pad_type));
    for (size_t k = 0; k < n; k++) {
        if (c->strides[k] < 1 || c->strides[k] > INT32_MAX) {
            return in_fail(i, ERR_MIL_INVALID, "strides", "must be positive");
        } else if (c->dilations[k] < 1 || c->dilations[k] > INT32_MAX) {
            return in_fail(i, ERR_MIL_INVALID, "dilations", "must be positive");
        } else if (c->pad[2 * k] < 0 || c->pad[2 * k + 1] < 0) {
            return in_fail(i, ERR_MIL_INVALID, "pad", "must not be negative");
        }
    }
    return 0;
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
    RETERR(matrix(i, "x", "transpose_x", &x));
    RETERR(matrix(i, "y", "transpose_y", &y));
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
    RETERR(in_same_dims(i, "key", n, want.dims));
    want.dims[n - 2] = k->dims[n - 2];
    want.dims[n - 1] = MIL_UNKNOWN;
    RETERR(in_same_dims(i, "value", n, want.dims));
    if (in_has(i, "attn_mask")) {
        struct mil_type scores = *q;
        scores.dims[n - 1] = k->dims[n - 2];
        const struct mil_type *m = in_type(i, "attn_mask");
        if (!dims_broadcast(&scores.rank, scores.dims, m->rank, m->dims) ||
            scores.rank != n) {
            return in_fail(i, ERR_MIL_SHAPE, "attn_mask",
                           "does not broadcast to the scores");
        }
    }
    struct mil_type out = *q;
    out.dims[n - 1] = v->dims[n - 1];
    return out_type(i, out.dtype, n, out.dims);
}

/* Each label has one size; 1 broadcasts, as the loader lets it. */
int infer_einsum(struct infer *i)
{
    const char *eq = "";
    struct mil_einsum p;
    int64_t size[MIL_EINSUM_LABELS] = {0};
    int rc = in_str(i, "equation", &eq);
    if (rc < 0) {
        return rc;
    }
    if (in_count(i, "values") != 2) {
        return in_fail(i, ERR_MIL_INVALID, "values", "must be two");
    }
    if (!mil_einsum_parse(eq, &p)) {
        return in_fail(i, ERR_MIL_INVALID, "equation", "\"%s\"", eq);
    }
    for (int k = 0; k < p.n_labels; k++) {
        size[k] = 1;
    }
    for (size_t v = 0; v < 2; v++) {
        const struct mil_type *t = in_type_at(i, "values", v);
        if (t->rank != p.rank[v]) {
            return in_fail(i, ERR_MIL_SHAPE, "values",
                           "rank %d, the equation has %d", t->rank, p.rank[v]);
        }
        for (int k = 0; k < t->rank; k++) {
            int one = 1;
            if (!dims_broadcast(&one, &size[p.in[v][k]], 1, &t->dims[k])) {
                return in_fail(i, ERR_MIL_SHAPE, "values", "shapes do not fit");
            }
        }
    }
    int64_t dims[MIL_RANK_MAX];
    for (int k = 0; k < p.out_rank; k++) {
        dims[k] = size[p.out[k]];
    }
    return out_type(i, in_type_at(i, "values", 0)->dtype, p.out_rank, dims);
}
