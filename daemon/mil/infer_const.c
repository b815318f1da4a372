/* infer_const.c - compressed weights: the constexpr_* ops. All operands are
 * constants or other constexpr outputs, so every dimension is known. */
#include <string.h>

#include "mil/sig.h"

/* scale (and offset) divide S block-wise: same rank, each dimension a divisor.
 */
static int check_blocks(struct infer *i, const char *name,
                        const struct mil_type *s)
{
    const struct mil_type *t = in_type(i, name);
    if (t->rank != s->rank || s->rank == 0) {
        return in_fail(i, ERR_MIL_SHAPE, name, "rank %d, the data has %d",
                       t->rank, s->rank);
    }
    for (int k = 0; k < s->rank; k++) {
        if (t->dims[k] < 1 || s->dims[k] % t->dims[k] != 0) {
            return in_fail(i, ERR_MIL_SHAPE, name,
                           "dimension %d: %lld blocks of %lld", k,
                           (long long)t->dims[k], (long long)s->dims[k]);
        }
    }
    return 0;
}

/* Negative scales are refused when the model is compiled (facts 5.1). */
static int check_scale_sign(struct infer *i)
{
    const struct mil_const *c = in_const(i, "scale");
    uint64_t n = 0;
    if (c == NULL || c->data == NULL || !mil_type_count(&c->type, &n)) {
        return 0; /* not in memory: a constexpr, or a builder's blob */
    }
    const uint8_t *p = c->data;
    unsigned width = mil_dtype_bits(c->type.dtype) / 8;
    for (uint64_t k = 0; k < n; k++) {
        /* the sign is the top bit of the last byte; -0 is harmless */
        if ((p[k * width + width - 1] & 0x80) != 0) {
            bool zero = (p[k * width + width - 1] & 0x7f) == 0;
            for (unsigned b = 0; b + 1 < width; b++) {
                zero = zero && p[k * width + b] == 0;
            }
            if (!zero) {
                return in_fail(i, ERR_MIL_INVALID, "scale",
                               "element %llu is negative",
                               (unsigned long long)k);
            }
        }
    }
    return 0;
}

static int check_offset(struct infer *i, const char *data)
{
    if (!in_has(i, "offset")) {
        return 0;
    }
    const struct mil_type *o = in_type(i, "offset");
    const struct mil_type *s = in_type(i, "scale");
    if (o->dtype != in_type(i, data)->dtype && o->dtype != MIL_FP16 &&
        o->dtype != MIL_FP32) {
        return in_fail(i, ERR_MIL_INVALID, "offset", "dtype %s",
                       mil_dtype_name(o->dtype));
    }
    return in_same_dims(i, "offset", s->rank, s->dims);
}

int infer_blockwise(struct infer *i)
{
    const struct mil_type *data = in_type(i, "data");
    RETERR(check_blocks(i, "scale", data));
    RETERR(check_offset(i, "data"));
    RETERR(check_scale_sign(i));
    return out_type(i, in_type(i, "scale")->dtype, data->rank, data->dims);
}

int infer_affine(struct infer *i)
{
    static const char *const params[] = {"scale", "zero_point"};
    const struct mil_type *q = in_type(i, "quantized_data");
    const struct mil_type *z = in_type(i, "zero_point");
    int axis = 0;
    RETERR(in_axis(i, "axis", 0, q->rank, &axis));
    for (size_t k = 0; k < countof(params); k++) {
        if (in_type(i, params[k])->rank != 0) {
            RETERR(in_same_dims(i, params[k], 1, &q->dims[axis]));
        }
    }
    if (z->dtype != q->dtype && z->dtype != MIL_FP32) {
        return in_fail(i, ERR_MIL_INVALID, "zero_point", "dtype %s",
                       mil_dtype_name(z->dtype));
    }
    return out_type(i, in_type(i, "scale")->dtype, q->rank, q->dims);
}

/* --- lookup tables --- */

/* lut [G.., 2^bits, V] for indices of shape S; fills out with the dense shape.
 */
static int check_lut(struct infer *i, const char *indices,
                     const struct mil_type *s, struct mil_type *out)
{
    const struct mil_type *ix = in_type(i, indices);
    const struct mil_type *lut = in_type(i, "lut");
    if (s->rank < 1 || lut->rank != s->rank + 2) {
        return in_fail(i, ERR_MIL_SHAPE, "lut", "rank %d for indices of %d",
                       lut->rank, s->rank);
    }
    for (int k = 0; k < s->rank; k++) {
        if (lut->dims[k] < 1 || s->dims[k] % lut->dims[k] != 0) {
            return in_fail(i, ERR_MIL_SHAPE, "lut",
                           "dimension %d: %lld groups of %lld", k,
                           (long long)lut->dims[k], (long long)s->dims[k]);
        }
    }
    int64_t entries = (int64_t)1 << mil_dtype_bits(ix->dtype);
    int64_t vector = lut->dims[s->rank + 1];
    if (lut->dims[s->rank] != entries || vector < 1) {
        return in_fail(i, ERR_MIL_SHAPE, "lut", "%lld entries for %s",
                       (long long)lut->dims[s->rank],
                       mil_dtype_name(ix->dtype));
    }
    *out = *s;
    out->dtype = lut->dtype;
    if (vector > 1 && !in_has(i, "vector_axis")) {
        return in_fail(i, ERR_MIL_INVALID, "vector_axis", "is missing");
    }
    int axis = 0;
    RETERR(in_axis(i, "vector_axis", 0, s->rank, &axis));
    if (__builtin_mul_overflow(out->dims[axis], vector, &out->dims[axis])) {
        return in_fail(i, ERR_MIL_SHAPE, "lut", "too large");
    }
    return 0;
}

int infer_lut(struct infer *i)
{
    struct mil_type out = {0};
    int rc = check_lut(i, "indices", in_type(i, "indices"), &out);
    return rc < 0 ? rc : out_type(i, out.dtype, out.rank, out.dims);
}

/* The shape operand of the attribute forms; its element count. */
static int flat_shape(struct infer *i, struct mil_type *out, uint64_t *ret_n)
{
    int64_t n = 0;
    RETERR(in_length(i, "shape", &n));
    if (n < 1 || n > (int64_t)MIL_RANK_MAX) {
        return in_fail(i, ERR_MIL_SHAPE, "shape", "%lld elements",
                       (long long)n);
    }
    RETERR(in_ints(i, "shape", (size_t)n, out->dims));
    out->rank = (int)n;
    if (!mil_type_count(out, ret_n) || *ret_n > MIL_TENSOR_BYTES_MAX) {
        return in_fail(i, ERR_MIL_SHAPE, "shape", "too large");
    }
    return 0;
}

/* Indices as a bit stream of log2(lut) bits each (CoreML6 and 7). */
int infer_lut_flat(struct infer *i)
{
    const struct mil_type *lut = in_type(i, "lut");
    struct mil_type out = {.dtype = lut->dtype};
    uint64_t n = 0;
    unsigned bits = 0;
    int rc = flat_shape(i, &out, &n);
    if (rc < 0) {
        return rc;
    }
    while (bits < 8 && lut->rank == 1 && lut->dims[0] != (int64_t)1 << bits) {
        bits++;
    }
    if (lut->rank != 1 || lut->dims[0] != (int64_t)1 << bits || bits == 0 ||
        bits == 3 || bits == 5 || bits == 7) {
        return in_fail(i, ERR_MIL_SHAPE, "lut",
                       "must have 2, 4, 16, 64 or 256 entries");
    }
    int64_t bytes = (int64_t)((n * bits + 7) / 8);
    rc = in_same_dims(i, "indices", 1, &bytes);
    return rc < 0 ? rc : out_type(i, out.dtype, out.rank, out.dims);
}

/* --- sparse --- */

/* Set bits of a mask held as bytes (uint1 or the bitmap of the old form). */
static uint64_t set_bits(const struct mil_const *c)
{
    uint64_t n = 0;
    const uint8_t *p = c->data;
    for (uint64_t k = 0; k < c->bytes; k++) {
        n += (uint64_t)__builtin_popcount(p[k]);
    }
    return n;
}

/* nonzero values must be as many as the mask has bits, where both are known. */
static int check_nonzero(struct infer *i, const char *mask, const char *values)
{
    const struct mil_const *m = in_const(i, mask);
    int64_t n = 0;
    RETERR(in_length(i, values, &n));
    if (m != NULL && m->data != NULL && n >= 0 && set_bits(m) != (uint64_t)n) {
        return in_fail(i, ERR_MIL_SHAPE, values, "%lld values, %llu bits set",
                       (long long)n, (unsigned long long)set_bits(m));
    }
    return 0;
}

int infer_sparse(struct infer *i)
{
    const struct mil_type *m = in_type(i, "mask");
    int rc = check_nonzero(i, "mask", "nonzero_data");
    return rc < 0 ? rc
                  : out_type(i, in_type(i, "nonzero_data")->dtype, m->rank,
                             m->dims);
}

int infer_sparse_flat(struct infer *i)
{
    struct mil_type out = {.dtype = in_type(i, "nonzero_data")->dtype};
    uint64_t n = 0;
    RETERR(flat_shape(i, &out, &n));
    int64_t bytes = (int64_t)((n + 7) / 8);
    RETERR(in_same_dims(i, "mask", 1, &bytes));
    RETERR(check_nonzero(i, "mask", "nonzero_data"));
    return out_type(i, out.dtype, out.rank, out.dims);
}

/* mask and values, both V times as many along vector_axis */
int infer_lut_sparse(struct infer *i)
{
    const struct mil_type *m = in_type(i, "indices_mask");
    const struct mil_type *lut = in_type(i, "lut");
    struct mil_type out = {0};
    int64_t n = 0;
    RETERR(check_nonzero(i, "indices_mask", "indices_nonzero_data"));
    RETERR(check_lut(i, "indices_nonzero_data", m, &out));
    RETERR(in_length(i, "indices_nonzero_data", &n));
    if (n >= 0 && __builtin_mul_overflow(n, lut->dims[lut->rank - 1], &n)) {
        return in_fail(i, ERR_MIL_SHAPE, "lut", "too large");
    }
    RETERR(out_type(i, MIL_UINT1, out.rank, out.dims));
    return out_type(i, lut->dtype, 1, &n);
}

int infer_sparse_blockwise(struct infer *i)
{
    const struct mil_type *m = in_type(i, "data_mask");
    const struct mil_type *v = in_type(i, "nonzero_data");
    RETERR(check_nonzero(i, "data_mask", "nonzero_data"));
    RETERR(check_blocks(i, "scale", m));
    RETERR(check_offset(i, "nonzero_data"));
    RETERR(check_scale_sign(i));
    RETERR(out_type(i, MIL_UINT1, m->rank, m->dims));
    return out_type(i, in_type(i, "scale")->dtype, v->rank, v->dims);
}

int infer_constexpr_cast(struct infer *i)
{
    const char *to = "";
    RETERR(in_str(i, "output_dtype", &to));
    if (strcmp(to, "fp32") != 0) {
        return in_fail(i, ERR_MIL_INVALID, "output_dtype", "\"%s\"", to);
    }
    const struct mil_type *x = in_type(i, "source_val");
    return out_type(i, MIL_FP32, x->rank, x->dims);
}
