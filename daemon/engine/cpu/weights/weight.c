/* weight.c - what a constant is made of.
 *
 * A compressed constant is described by a grid over its shape: all elements
 * of a grid cell share a scale and offset, or a table. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/num.h"
#include "engine/cpu/weights/weight_impl.h"

float const_float(const struct mil_const *c, uint64_t i)
{
    const char *p = c->data;
    uint16_t h = 0;
    if (c->type.dtype == MIL_FP16) {
        memcpy(&h, p + i * sizeof(h), sizeof(h));
        return half_to_float(h);
    }
    if (c->type.dtype == MIL_BF16) {
        memcpy(&h, p + i * sizeof(h), sizeof(h));
        return half_from_bf16(h);
    }
    if (c->type.dtype == MIL_FP32) {
        float f = 0;
        memcpy(&f, p + i * sizeof(f), sizeof(f));
        return f;
    }
    if (c->type.dtype == MIL_FP64) {
        double d = 0;
        memcpy(&d, p + i * sizeof(d), sizeof(d));
        return (float)d;
    }
    return (float)const_int(c, i);
}

int64_t const_int(const struct mil_const *c, uint64_t i)
{
    unsigned bits = mil_dtype_bits(c->type.dtype);
    bool sign = c->type.dtype >= MIL_INT8 && c->type.dtype <= MIL_INT4;
    const uint8_t *p = c->data;
    uint64_t u = 0;
    if (bits < 8) {
        uint64_t at = i * bits;
        u = p[at / 8];
        if (at % 8 + bits > 8) {
            u |= (uint64_t)p[at / 8 + 1] << 8;
        }
        u = (u >> (at % 8)) & ((1u << bits) - 1);
    } else {
        memcpy(&u, p + i * (bits / 8), bits / 8); /* little-endian */
    }
    if (sign && bits < 64 && (u >> (bits - 1)) != 0) {
        u |= ~(uint64_t)0 << bits;
    }
    return (int64_t)u;
}

static bool is_number(const struct mil_const *c)
{
    return c->data != NULL && mil_dtype_bits(c->type.dtype) > 0;
}

int const_floats(const struct mil_const *c, float *out, struct err *e)
{
    uint64_t n = 0;
    if (!is_number(c) || !mil_type_count(&c->type, &n)) {
        return err_set(e, ERR_MIL_INVALID, "a constant that is not numbers");
    }
    if (c->type.dtype == MIL_FP16) {
        half_to_floats(c->data, out, n);
        return 0;
    }
    for (uint64_t i = 0; i < n; i++) {
        out[i] = const_float(c, i);
    }
    return 0;
}

static int split_rows(struct weight *w, struct err *e)
{
    uint64_t n = 0;
    if (!mil_type_count(&w->type, &n) || n == 0) {
        return err_set(e, ERR_MIL_INVALID, "a constant without elements");
    }
    w->rows = w->type.rank > 0 ? (size_t)w->type.dims[0] : 1;
    w->cols = n / w->rows;
    return 0;
}

int weight_of_const(struct arena *a, const struct mil_const *c,
                    const struct weight **ret, struct err *e)
{
    struct weight *w = arena_alloc(a, sizeof(*w));
    if (w == NULL) {
        return err_set(e, ERR_NOMEM, "constants");
    }
    if (!is_number(c)) {
        return err_set(e, ERR_MIL_INVALID, "a constant that is not numbers");
    }
    w->type = c->type;
    int rc = split_rows(w, e);
    if (rc < 0) {
        return rc;
    }
    w->kind = c->type.dtype == MIL_FP16   ? WEIGHT_F16
              : c->type.dtype == MIL_FP32 ? WEIGHT_F32
                                          : WEIGHT_ROWS;
    w->data = c->data;
    w->raw = c;
    for (int i = 0; i < c->type.rank; i++) {
        w->block[i] = c->type.dims[i];
        w->grid[i] = 1;
    }
    *ret = w;
    return 0;
}

/* --- compressed forms --- */

const struct mil_const *weight_const(const struct mil_op *op, const char *name,
                                     struct err *e)
{
    const struct mil_const *c = mil_op_const(op, name);
    if (c == NULL || !is_number(c)) {
        (void)err_set(e, ERR_MIL_INVALID, "%s: operand %s is not a constant",
                      op->type, name);
        return NULL;
    }
    return c;
}

static int decode_all(struct arena *a, const struct weight *w,
                      const float **ret, struct err *e)
{
    float *f = arena_array(a, w->rows * w->cols, sizeof(float));
    if (f == NULL) {
        return err_set(e, ERR_NOMEM, "constants");
    }
    for (size_t r = 0; r < w->rows; r++) {
        weight_row(w, r, f + r * w->cols);
    }
    *ret = f;
    return 0;
}

int weight_set_grid(struct weight *w, const struct mil_type *g, int rank,
                    const char *what, struct err *e)
{
    for (int i = 0; i < rank; i++) {
        int64_t d = w->type.dims[i];
        if (g->dims[i] <= 0 || d % g->dims[i] != 0) {
            return err_set(e, ERR_MIL_INVALID,
                           "%s does not divide the data along axis %d", what,
                           i);
        }
        w->grid[i] = g->dims[i];
        w->block[i] = d / g->dims[i];
    }
    return 0;
}

static int of_blockwise(struct arena *a, const struct mil_op *op, int depth,
                        struct weight *w, struct err *e)
{
    const struct mil_const *data = weight_const(op, "data", e);
    if (data == NULL) {
        return ERR_MIL_INVALID;
    }
    struct mil_type st = {0};
    struct mil_type ot = {0};
    RETERR(weight_floats(a, op, "scale", depth, &w->scales, &st, e));
    RETERR(weight_floats(a, op, "offset", depth, &w->offsets, &ot, e));
    if (w->scales == NULL || st.rank != data->type.rank ||
        (w->offsets != NULL &&
         !(ot.rank == st.rank &&
           memcmp(ot.dims, st.dims, (size_t)st.rank * sizeof(*st.dims)) ==
               0))) {
        return err_set(e, ERR_MIL_INVALID,
                       "%s: scale or offset does not fit the data", op->type);
    }
    w->raw = data;
    w->type = data->type;
    w->type.dtype = st.dtype;
    return weight_set_grid(w, &st, st.rank, "scale", e);
}

static int of_affine(struct arena *a, const struct mil_op *op, int depth,
                     struct weight *w, struct err *e)
{
    const struct mil_const *data = weight_const(op, "quantized_data", e);
    if (data == NULL) {
        return ERR_MIL_INVALID;
    }
    int64_t axis = 0;
    size_t n = 0;
    const struct mil_const *ax = mil_op_const(op, "axis");
    if (ax != NULL && (!mil_const_ints(ax, &axis, 1, &n) || n != 1)) {
        return err_set(e, ERR_MIL_INVALID, "%s: axis", op->type);
    }
    axis = axis < 0 ? axis + data->type.rank : axis;
    if (axis < 0 || axis >= data->type.rank) {
        return err_set(e, ERR_MIL_INVALID, "%s: axis", op->type);
    }
    struct mil_type t[2] = {{0}};
    const float *v[2] = {NULL, NULL};
    static const char *const names[2] = {"scale", "zero_point"};
    w->raw = data;
    w->type = data->type;
    int64_t d = data->type.dims[axis];
    for (int k = 0; k < 2; k++) {
        int rc = weight_floats(a, op, names[k], depth, &v[k], &t[k], e);
        if (rc < 0) {
            return rc;
        }
        if (v[k] == NULL && k == 1) {
            continue;
        }
        uint64_t count = 0;
        if (v[k] == NULL || !mil_type_count(&t[k], &count) ||
            (count != 1 && count != (uint64_t)d)) {
            return err_set(e, ERR_MIL_INVALID, "%s: %s does not fit", op->type,
                           names[k]);
        }
        if (count == 1 && d != 1) { /* spread a scalar */
            float *f = arena_array(a, (size_t)d, sizeof(float));
            if (f == NULL) {
                return err_set(e, ERR_NOMEM, "constants");
            }
            for (int64_t i = 0; i < d; i++) {
                f[i] = v[k][0];
            }
            v[k] = f;
        }
    }
    w->type.dtype = t[0].dtype;
    w->scales = v[0];
    w->offsets = v[1];
    struct mil_type g = {.rank = data->type.rank};
    for (int i = 0; i < g.rank; i++) {
        g.dims[i] = i == axis ? d : 1;
    }
    return weight_set_grid(w, &g, g.rank, "scale", e);
}

bool weight_is_op(const char *type)
{
    return strncmp(type, "constexpr_", 10) == 0;
}

/* int8 or int4 with one scale a row and no offset have kernels of their own. */
static int prefer_int(struct arena *a, struct weight *w, struct err *e)
{
    if (w->kind != WEIGHT_ROWS || w->lut != NULL || w->round) {
        return 0;
    }
    bool i8 = w->raw->type.dtype == MIL_INT8;
    if (!i8 && (w->raw->type.dtype != MIL_INT4 || w->cols % 2 != 0)) {
        return 0;
    }
    for (int i = 1; i < w->type.rank; i++) {
        if (w->grid[i] != 1) {
            return 0;
        }
    }
    size_t cells = w->type.rank > 0 ? (size_t)w->grid[0] : 1;
    for (size_t i = 0; w->offsets != NULL && i < cells; i++) {
        if (w->offsets[i] != 0.0f) {
            return 0;
        }
    }
    float *s = arena_array(a, w->rows, sizeof(float));
    if (s == NULL) {
        return err_set(e, ERR_NOMEM, "constants");
    }
    for (size_t r = 0; r < w->rows; r++) {
        s[r] = w->scales[r / (w->rows / cells)];
    }
    w->scale = s;
    w->data = w->raw->data;
    w->kind = i8 ? WEIGHT_I8 : WEIGHT_I4;
    return 0;
}

static int of_op(struct arena *a, const struct mil_op *op, bool round,
                 int depth, const struct weight **ret, struct err *e)
{
    static const struct {
        const char *type;
        int (*make)(struct arena *, const struct mil_op *, int, struct weight *,
                    struct err *);
    } forms[] = {
        {"constexpr_blockwise_shift_scale", of_blockwise    },
        {"constexpr_affine_dequantize",     of_affine       },
        {"constexpr_lut_to_dense",          weight_of_lut   },
        {"constexpr_sparse_to_dense",       weight_of_sparse}
    };
    if (depth > WEIGHT_NEST) {
        return err_set(e, ERR_MIL_INVALID, "%s: nested too deep", op->type);
    }
    if (strcmp(op->type, "constexpr_cast") == 0) {
        const struct mil_const *c = weight_const(op, "source_val", e);
        return c == NULL ? ERR_MIL_INVALID : weight_of_const(a, c, ret, e);
    }
    struct weight *w = arena_alloc(a, sizeof(*w));
    if (w == NULL) {
        return err_set(e, ERR_NOMEM, "constants");
    }
    w->kind = WEIGHT_ROWS;
    for (size_t i = 0; i < countof(forms); i++) {
        if (strcmp(op->type, forms[i].type) == 0) {
            RETERR(forms[i].make(a, op, depth + 1, w, e));
            RETERR(split_rows(w, e));
            w->round = round && op->outputs[0]->type.dtype == MIL_FP16;
            RETERR(weight_prefer_table(a, w, e));
            RETERR(prefer_int(a, w, e));
            *ret = w;
            return 0;
        }
    }
    return err_set(e, ERR_MIL_OP, "aned does not run operation %s", op->type);
}

int weight_of_op(struct arena *a, const struct mil_op *op, bool round,
                 const struct weight **ret, struct err *e)
{
    return of_op(a, op, round, 0, ret, e);
}

int weight_floats(struct arena *a, const struct mil_op *op, const char *name,
                  int depth, const float **ret, struct mil_type *type,
                  struct err *e)
{
    const struct mil_const *c = mil_op_const(op, name);
    const struct weight *w = NULL;
    int rc = 0;
    if (c != NULL) {
        rc = weight_of_const(a, c, &w, e);
    } else {
        struct mil_value *v = mil_op_value(op, name);
        if (v == NULL) {
            return 0; /* absent */
        }
        if (v->def == NULL || !weight_is_op(v->def->type) ||
            v->def->n_outputs != 1) {
            return err_set(e, ERR_MIL_INVALID,
                           "%s: operand %s is not a constant", op->type, name);
        }
        rc = of_op(a, v->def, false, depth, &w, e);
    }
    if (rc < 0) {
        return rc;
    }
    *type = w->type;
    return decode_all(a, w, ret, e);
}
