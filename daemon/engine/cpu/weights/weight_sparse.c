/* Sparse constants: a mask of the dense shape, one bit an element, and the
 * values that are not zero, in order. Few packages have them, so they are
 * expanded when the package is opened.
 *
 * constexpr_lut_to_sparse and constexpr_sparse_blockwise_shift_scale give a
 * mask and values again, for each other or for constexpr_sparse_to_dense. */
#include <string.h>

#include "engine/cpu/weights/weight_impl.h"
#include "mil/mil.h"

#define SPARSE_NEST 4 /* such operations in a row */

struct sparse {
    struct mil_type type; /* shape of the mask */
    uint64_t count;       /* its elements */
    const uint8_t *mask;  /* bits, least significant first */
    const float *values;
    uint64_t n; /* values, and bits set */
};

static bool bit(const uint8_t *mask, uint64_t i)
{
    return ((mask[i / 8] >> (i % 8)) & 1) != 0;
}

static int bad(const struct mil_op *op, const char *what, struct err *e)
{
    return err_set(e, ERR_MIL_INVALID, "%s: %s", op->type, what);
}

/* The operation that makes an operand that is one of a sparse pair, else NULL.
 */
static const struct mil_op *pair_of(const struct mil_op *op, const char *name,
                                    int out)
{
    const struct mil_value *v = mil_op_value(op, name);
    return v != NULL && v->def != NULL && v->def->n_outputs == 2 &&
                   v->def_out == out && weight_is_op(v->def->type)
               ? v->def
               : NULL;
}

static int of_pair(struct arena *a, const struct mil_op *op, int depth,
                   struct sparse *ret, struct err *e);

/* The mask operand into *s: a constant, or one of a pair's. */
static int take_mask(const struct mil_op *op, const char *name,
                     const struct sparse *pair, struct sparse *s, struct err *e)
{
    const struct mil_const *shape = mil_op_const(op, "shape");
    if (pair != NULL) {
        s->type = pair->type;
        s->count = pair->count;
        s->mask = pair->mask;
        return 0;
    }
    const struct mil_const *c = weight_const(op, name, e);
    if (c == NULL) {
        return ERR_MIL_INVALID;
    }
    s->type = c->type;
    if (shape != NULL) { /* up to CoreML7: a bitmap and its shape */
        size_t n = 0;
        if (!mil_const_ints(shape, s->type.dims, MIL_RANK_MAX, &n)) {
            return bad(op, "shape", e);
        }
        s->type.rank = (int)n;
    } else if (c->type.dtype != MIL_UINT1) {
        return bad(op, "the mask is not uint1", e);
    }
    if (!mil_type_count(&s->type, &s->count) ||
        s->count > MIL_TENSOR_BYTES_MAX / sizeof(float) ||
        (s->count + 7) / 8 > c->bytes) {
        return bad(op, "the mask does not fit its shape", e);
    }
    s->mask = c->data;
    return 0;
}

static int count_bits(const struct mil_op *op, struct sparse *s, uint64_t n,
                      struct err *e)
{
    uint64_t set = 0;
    for (uint64_t i = 0; i < s->count; i++) {
        set += bit(s->mask, i);
    }
    s->n = n;
    return set == n ? 0
                    : bad(op,
                          "the mask has not as many ones as there are "
                          "values",
                          e);
}

/* Mask and values of two operands, as fp32. */
static int operands(struct arena *a, const struct mil_op *op, const char *mask,
                    const char *values, int depth, struct sparse *s,
                    struct err *e)
{
    const struct mil_op *m = pair_of(op, mask, 0);
    const struct mil_op *v = pair_of(op, values, 1);
    struct sparse ms;
    struct sparse vs;
    struct mil_type t = {0};
    uint64_t n = 0;
    if (m != NULL) {
        RETERR(of_pair(a, m, depth, &ms, e));
    }
    RETERR(take_mask(op, mask, m != NULL ? &ms : NULL, s, e));
    if (v != NULL && v != m) {
        RETERR(of_pair(a, v, depth, &vs, e));
    } else if (v != NULL) {
        vs = ms;
    }
    if (v != NULL) {
        s->values = vs.values;
        return count_bits(op, s, vs.n, e);
    }
    RETERR(weight_floats(a, op, values, depth, &s->values, &t, e));
    if (s->values == NULL || !mil_type_count(&t, &n)) {
        return bad(op, "values are missing", e);
    }
    return count_bits(op, s, n, e);
}

/* Where the cells of a grid lie in a shape: g divides it along each axis. */
static int check_grid(const struct mil_op *op, const struct mil_type *g,
                      const struct mil_type *shape, struct err *e)
{
    for (int i = 0; i < shape->rank; i++) {
        if (g->dims[i] <= 0 || shape->dims[i] % g->dims[i] != 0) {
            return bad(op, "blocks do not divide the data", e);
        }
    }
    return 0;
}

/* Cell of element `at` of a dense shape. */
static size_t cell_at(const struct mil_type *g, const struct mil_type *shape,
                      uint64_t at)
{
    int64_t idx[MIL_RANK_MAX];
    size_t cell = 0;
    for (int i = shape->rank - 1; i >= 0; i--) {
        idx[i] = (int64_t)(at % (uint64_t)shape->dims[i]);
        at /= (uint64_t)shape->dims[i];
    }
    for (int i = 0; i < shape->rank; i++) {
        int64_t block = shape->dims[i] / g->dims[i];
        cell = cell * (size_t)g->dims[i] + (size_t)(idx[i] / block);
    }
    return cell;
}

static int of_scaled(struct arena *a, const struct mil_op *op, int depth,
                     struct sparse *s, struct err *e)
{
    const float *scale = NULL;
    const float *offset = NULL;
    struct mil_type st = {0};
    struct mil_type ot = {0};
    RETERR(operands(a, op, "data_mask", "nonzero_data", depth, s, e));
    RETERR(weight_floats(a, op, "scale", depth, &scale, &st, e));
    RETERR(weight_floats(a, op, "offset", depth, &offset, &ot, e));
    if (scale == NULL || st.rank != s->type.rank ||
        (offset != NULL &&
         (ot.rank != st.rank ||
          memcmp(ot.dims, st.dims, (size_t)st.rank * sizeof(*st.dims)) != 0))) {
        return bad(op, "scale or offset does not fit the data", e);
    }
    RETERR(check_grid(op, &st, &s->type, e));
    float *out = arena_array(a, s->n + 1, sizeof(*out));
    if (out == NULL) {
        return err_set(e, ERR_NOMEM, "constants");
    }
    uint64_t k = 0;
    for (uint64_t i = 0; i < s->count; i++) {
        if (bit(s->mask, i)) {
            size_t c = cell_at(&st, &s->type, i);
            float zero = offset != NULL ? offset[c] : 0.0f;
            out[k] = (s->values[k] - zero) * scale[c];
            k++;
        }
    }
    s->values = out;
    return 0;
}

struct table {
    const float *lut;
    struct mil_type grid; /* of the tables over the mask */
    size_t entries, vector;
    int axis;
};

static int take_table(struct arena *a, const struct mil_op *op, int depth,
                      const struct sparse *s, struct table *t, struct err *e)
{
    struct mil_type lt = {0};
    int64_t axis = 0;
    size_t n = 0;
    const struct mil_const *ax = mil_op_const(op, "vector_axis");
    int rc = weight_floats(a, op, "lut", depth, &t->lut, &lt, e);
    if (rc < 0) {
        return rc;
    }
    if (t->lut == NULL || lt.rank != s->type.rank + 2) {
        return bad(op, "rank of lut", e);
    }
    t->entries = (size_t)lt.dims[lt.rank - 2];
    t->vector = (size_t)lt.dims[lt.rank - 1];
    t->grid = lt;
    t->grid.rank -= 2;
    if ((ax != NULL && (!mil_const_ints(ax, &axis, 1, &n) || n != 1)) ||
        (ax == NULL && t->vector > 1)) {
        return bad(op, "vector_axis", e);
    }
    axis = axis < 0 ? axis + s->type.rank : axis;
    if (axis < 0 || axis >= s->type.rank || t->vector < 1) {
        return bad(op, "vector_axis", e);
    }
    t->axis = (int)axis;
    return check_grid(op, &t->grid, &s->type, e);
}

/* The ordinal of each set bit among the set ones; bits not set get 0. */
static uint32_t *ordinals(struct arena *a, const struct sparse *s)
{
    uint32_t *r = arena_array(a, s->count + 1, sizeof(*r));
    uint32_t n = 0;
    for (uint64_t i = 0; r != NULL && i < s->count; i++) {
        r[i] = bit(s->mask, i) ? n++ : 0;
    }
    return r;
}

/* Every index becomes `vector` elements along the axis, in the mask and in the
 * values: walk the dense result in order. */
static int expand(struct arena *a, const struct table *t,
                  const struct sparse *from, struct sparse *to, struct err *e)
{
    size_t v = t->vector;
    *to = *from;
    if (from->count == 0 ||
        __builtin_mul_overflow(from->count, v, &to->count) ||
        __builtin_mul_overflow(from->n, v, &to->n) ||
        to->count > MIL_TENSOR_BYTES_MAX / sizeof(float)) {
        return err_set(e, ERR_TOO_BIG, "constants");
    }
    to->type.dims[t->axis] *= (int64_t)v;
    uint8_t *mask = arena_array(a, to->count / 8 + 1, 1);
    float *out = arena_array(a, to->n + 1, sizeof(*out));
    const uint32_t *ord = ordinals(a, from);
    if (mask == NULL || out == NULL || ord == NULL) {
        return err_set(e, ERR_NOMEM, "constants");
    }
    uint64_t inner = 1; /* elements of the result after the axis */
    for (int i = t->axis + 1; i < to->type.rank; i++) {
        inner *= (uint64_t)to->type.dims[i];
    }
    uint64_t k = 0;
    for (uint64_t i = 0; i < to->count; i++) {
        uint64_t row = i / inner; /* axes up to the vector's, as one */
        uint64_t at = row / v * inner + i % inner;
        if (bit(from->mask, at)) {
            size_t cell = cell_at(&t->grid, &from->type, at);
            size_t entry = (size_t)from->values[ord[at]];
            out[k++] = t->lut[(cell * t->entries + entry) * v + row % v];
            mask[i / 8] = (uint8_t)(mask[i / 8] | 1u << (i % 8));
        }
    }
    to->mask = mask;
    to->values = out;
    return 0;
}

static int of_lut(struct arena *a, const struct mil_op *op, int depth,
                  struct sparse *s, struct err *e)
{
    struct sparse idx = {0};
    struct table t = {0};
    RETERR(operands(a, op, "indices_mask", "indices_nonzero_data", depth, &idx,
                    e));
    RETERR(take_table(a, op, depth, &idx, &t, e));
    for (uint64_t i = 0; i < idx.n; i++) {
        if (!(idx.values[i] >= 0.0f && idx.values[i] < (float)t.entries)) {
            return bad(op, "an index outside the lut", e);
        }
    }
    return expand(a, &t, &idx, s, e);
}

static int of_pair(struct arena *a, const struct mil_op *op, int depth,
                   struct sparse *ret, struct err *e)
{
    struct sparse s = {0};
    int rc = 0;
    if (depth > SPARSE_NEST) {
        return bad(op, "nested too deep", e);
    }
    if (strcmp(op->type, "constexpr_lut_to_sparse") == 0) {
        rc = of_lut(a, op, depth + 1, &s, e);
    } else if (strcmp(op->type, "constexpr_sparse_blockwise_shift_scale") ==
               0) {
        rc = of_scaled(a, op, depth + 1, &s, e);
    } else {
        rc = err_set(e, ERR_MIL_OP, "aned does not run operation %s", op->type);
    }
    if (rc == 0) {
        *ret = s;
    }
    return rc;
}

int weight_of_sparse(struct arena *a, const struct mil_op *op, int depth,
                     struct weight *w, struct err *e)
{
    struct sparse s = {0};
    int rc = operands(a, op, "mask", "nonzero_data", depth, &s, e);
    if (rc < 0) {
        return rc;
    }
    float *f = arena_array(a, s.count, sizeof(*f));
    if (f == NULL) {
        return err_set(e, ERR_NOMEM, "constants");
    }
    uint64_t k = 0;
    for (uint64_t i = 0; i < s.count; i++) {
        if (bit(s.mask, i)) {
            f[i] = s.values[k++];
        }
    }
    w->type = s.type;
    w->type.dtype = MIL_FP32;
    w->kind = WEIGHT_F32;
    w->data = f;
    return 0;
}
