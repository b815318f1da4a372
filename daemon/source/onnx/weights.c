/* weights.c - which matrix a node multiplies with, in every form that
 * exporters write. Shapes are checked here, so that rows.c need not look.
 */
#include <string.h>

#include "base/num.h"
#include "source/onnx/match.h"

static const char block_attrs[] =
    "K N bits block_size accuracy_level weight_prepacked";

static bool is_float(enum onnx_type t)
{
    return t == ONNX_FLOAT || t == ONNX_FLOAT16 || t == ONNX_BFLOAT16;
}

static bool is_small_int(enum onnx_type t)
{
    return t == ONNX_INT8 || t == ONNX_UINT8 || t == ONNX_INT4 ||
           t == ONNX_UINT4;
}

/* --- plain matrices --- */

static int dense(const struct onnx_tensor *t, struct onnx_rows *ret,
                 struct err *e)
{
    if (t->n_dims != 2 || t->elems == 0) {
        return err_set(e, ERR_ONNX_GRAPH,
                       "tensor '%.120s' has %u dimensions where a matrix is "
                       "needed",
                       t->name, t->n_dims);
    }
    *ret = (struct onnx_rows){.rows = t->dims[0],
                              .cols = t->dims[1],
                              .bytes = t->bytes,
                              .q = {t->data, t->bytes, t->type, t->dims[1], 1},
                              .row_block = 1,
                              .col_block = t->dims[1],
                              .made = ONNX_FLOAT,
                              .form = onnx_type_name(t->type)};
    return 0;
}

int onnx_vector(const struct onnx_value *v, struct onnx_rows *ret,
                struct err *e)
{
    const struct onnx_tensor *t = v != NULL ? v->init : NULL;
    if (t == NULL || !is_float(t->type) || t->elems == 0 || t->n_dims == 0 ||
        t->dims[t->n_dims - 1] != t->elems) {
        return err_set(e, ERR_ONNX_GRAPH, "'%.120s' is no vector of constants",
                       v != NULL ? v->name : "");
    }
    *ret = (struct onnx_rows){.rows = 1,
                              .cols = t->elems,
                              .bytes = t->bytes,
                              .q = {t->data, t->bytes, t->type, t->elems, 1},
                              .row_block = 1,
                              .col_block = t->elems,
                              .made = ONNX_FLOAT,
                              .form = onnx_type_name(t->type)};
    return 0;
}

static void flip(struct onnx_grid *g)
{
    uint64_t step = g->row_step;
    g->row_step = g->col_step;
    g->col_step = step;
}

static void transpose(struct onnx_rows *m)
{
    uint64_t n = m->rows;
    m->rows = m->cols;
    m->cols = n;
    n = m->row_block;
    m->row_block = m->col_block;
    m->col_block = n;
    flip(&m->q);
    flip(&m->scale);
    flip(&m->zero);
}

/* --- DequantizeLinear --- */

/* The shape of scales (and zero points): one, one a row or column, or one a
 * run of them. */
static int scale_steps(const struct onnx_node *n, const struct onnx_tensor *x,
                       const struct onnx_tensor *s, struct onnx_rows *m,
                       struct err *e)
{
    int64_t axis = onnx_attr_int(n, "axis", 1);
    int64_t block = onnx_attr_int(n, "block_size", 0);
    axis += axis < 0 ? 2 : 0;
    if (axis < 0 || axis > 1 || block < 0) {
        return onnx_not(n, e, "its axis or block size is out of range");
    }
    uint64_t along = x->dims[axis];
    if (s->elems == 1 && block == 0) {
        m->row_block = x->dims[0];
        m->col_block = x->dims[1];
        return 0;
    }
    if (block == 0 && s->n_dims == 1 && s->dims[0] == along) {
        m->row_block = axis == 0 ? 1 : x->dims[0];
        m->col_block = axis == 0 ? x->dims[1] : 1;
        m->scale.row_step = axis == 0;
        m->scale.col_step = axis == 1;
        return 0;
    }
    uint64_t runs = block > 0 ? (along - 1) / (uint64_t)block + 1 : 0;
    if (block == 0 || s->n_dims != 2 || s->dims[axis] != runs ||
        s->dims[1 - axis] != x->dims[1 - axis]) {
        return onnx_not(n, e, "the shape of its scales does not fit");
    }
    m->row_block = axis == 0 ? (uint64_t)block : 1;
    m->col_block = axis == 1 ? (uint64_t)block : 1;
    m->scale.row_step = s->dims[1];
    m->scale.col_step = 1;
    return 0;
}

static bool same_shape(const struct onnx_tensor *a, const struct onnx_tensor *b)
{
    return a->n_dims == b->n_dims &&
           memcmp(a->dims, b->dims, a->n_dims * sizeof(a->dims[0])) == 0;
}

static int dequantise(struct onnx_node *n, struct onnx_rows *ret,
                      struct err *e)
{
    const struct onnx_value *in[3] = {onnx_in(n, 0), onnx_in(n, 1),
                                      onnx_in(n, 2)};
    const struct onnx_tensor *x = in[0] != NULL ? in[0]->init : NULL;
    const struct onnx_tensor *s = in[1] != NULL ? in[1]->init : NULL;
    const struct onnx_tensor *z = in[2] != NULL ? in[2]->init : NULL;
    RETERR(onnx_take(n, "axis block_size", 3, e));
    if (x == NULL || s == NULL || (in[2] != NULL && z == NULL)) {
        return onnx_not(n, e, "its inputs are not all constants");
    }
    if (!is_small_int(x->type) || !is_float(s->type) ||
        (z != NULL && (z->type != x->type || !same_shape(z, s)))) {
        return onnx_not(n, e,
                        "its numbers (%s), scales (%s) and zero points do not "
                        "fit together",
                        onnx_type_name(x->type), onnx_type_name(s->type));
    }
    RETERR(dense(x, ret, e));
    ret->scale = (struct onnx_grid){s->data, s->bytes, s->type, 0, 0};
    RETERR(scale_steps(n, x, s, ret, e));
    ret->bytes += s->bytes;
    ret->made = s->type;
    ret->form = "DequantizeLinear";
    if (z != NULL) {
        ret->zero = ret->scale;
        ret->zero.p = z->data;
        ret->zero.bytes = z->bytes;
        ret->zero.type = z->type;
        ret->bytes += z->bytes;
    }
    return 0;
}

int onnx_matrix(struct onnx_value *v, struct onnx_rows *ret, struct err *e)
{
    bool flipped = false;
    enum onnx_type cast = ONNX_FLOAT;
    struct onnx_node *n = NULL;
    for (unsigned i = 0; v != NULL && v->init == NULL && i < 4; i++) {
        int64_t to = 0;
        n = v->node;
        if (onnx_is(n, "DequantizeLinear")) {
            break;
        }
        if (onnx_is(n, "Transpose")) {
            const struct onnx_attr *perm = onnx_attr(n, "perm");
            if (perm != NULL && (perm->n != 2 || perm->ints == NULL ||
                                 perm->ints[0] != 1 || perm->ints[1] != 0)) {
                return onnx_not(n, e, "no plain transposition of a matrix");
            }
            RETERR(onnx_take(n, "perm", 1, e));
            flipped = !flipped;
        } else if (onnx_is(n, "Cast")) {
            to = onnx_attr_int(n, "to", 0);
            if (!is_float((enum onnx_type)to) || cast != ONNX_FLOAT) {
                return onnx_not(n, e, "a cast of weights that is not converted");
            }
            RETERR(onnx_take(n, "to saturate", 1, e));
            cast = (enum onnx_type)to;
        } else {
            return n == NULL ? err_set(e, ERR_ONNX_GRAPH,
                                       "'%.120s' is no constant matrix",
                                       v->name)
                             : onnx_not(n, e, "its result is used as a matrix "
                                              "of weights");
        }
        v = onnx_in(n, 0);
    }
    if (v == NULL) {
        return err_set(e, ERR_ONNX_GRAPH, "a matrix of weights is absent");
    }
    if (v->init != NULL) {
        if (!is_float(v->init->type)) {
            return err_set(e, ERR_ONNX_GRAPH, "'%.120s' has whole numbers (%s)",
                           v->name, onnx_type_name(v->init->type));
        }
        RETERR(dense(v->init, ret, e));
    } else if (onnx_is(v->node, "DequantizeLinear")) {
        RETERR(dequantise(v->node, ret, e));
    } else {
        return onnx_not(v->node, e, "a matrix behind too many steps");
    }
    ret->made = cast != ONNX_FLOAT ? cast : ret->made;
    if (flipped) {
        transpose(ret);
    }
    return 0;
}

/* --- blocks --- */

static int constant(const struct onnx_node *n, size_t i, const char *what,
                    const struct onnx_tensor **ret, struct err *e)
{
    const struct onnx_value *v = onnx_in(n, i);
    if (v == NULL || v->init == NULL) {
        return onnx_not(n, e, "its %s are no constants", what);
    }
    *ret = v->init;
    return 0;
}

/* Zero points: numbers like the scales, or packed like the weights, a row of
 * blocks at a time (4-bit types: one after another). */
static int block_zeros(const struct onnx_node *n, size_t input, uint64_t rows,
                       uint64_t blocks, unsigned bits, struct onnx_rows *m,
                       struct err *e)
{
    const struct onnx_value *v = onnx_in(n, input);
    const struct onnx_tensor *z = v != NULL ? v->init : NULL;
    if (v == NULL) {
        return 0;
    }
    if (z == NULL) {
        return onnx_not(n, e, "its zero points are no constants");
    }
    uint64_t stride = (blocks * bits + 7) / 8;
    bool packed = z->type == ONNX_UINT8 && z->elems == rows * stride;
    bool plain = (is_float(z->type) || z->type == ONNX_UINT4 ||
                  z->type == ONNX_INT4) &&
                 z->elems == rows * blocks;
    if (!packed && !plain) {
        return onnx_not(n, e, "the shape of its zero points does not fit");
    }
    m->zero = (struct onnx_grid){z->data, z->bytes, z->type, blocks, 1};
    if (packed && bits == 4) {
        m->zero.type = ONNX_UINT4;
        m->zero.row_step = stride * 2;
    }
    m->bytes += z->bytes;
    return 0;
}

static int check_block(const struct onnx_node *n, int64_t bits, int64_t block,
                       struct err *e)
{
    if (bits == 2 || bits == 3) {
        return err_set(e, ERR_UNSUPPORTED,
                       "node '%.100s' (%s): weights of %lld bits are not "
                       "converted (4 and 8 are)",
                       n->name, n->op, (long long)bits);
    }
    if ((bits != 4 && bits != 8) || block < 16 || block > 1 << 16 ||
        (block & (block - 1)) != 0) {
        return onnx_not(n, e, "blocks of %lld numbers of %lld bits",
                        (long long)block, (long long)bits);
    }
    return 0;
}

/* com.microsoft MatMulNBits: B is (N, blocks, bytes of a block). */
static int n_bits(struct onnx_node *n, struct onnx_rows *ret, struct err *e)
{
    const struct onnx_tensor *b = NULL;
    const struct onnx_tensor *s = NULL;
    int64_t bits = onnx_attr_int(n, "bits", 4);
    int64_t block = onnx_attr_int(n, "block_size", 0);
    int64_t k = onnx_attr_int(n, "K", 0);
    int64_t rows = onnx_attr_int(n, "N", 0);
    RETERR(onnx_take(n, block_attrs, 6, e));
    RETERR(check_block(n, bits, block, e));
    RETERR(constant(n, 1, "weights", &b, e));
    RETERR(constant(n, 2, "scales", &s, e));
    if (k <= 0 || rows <= 0 || k > INT32_MAX || rows > INT32_MAX ||
        onnx_attr_int(n, "weight_prepacked", 0) != 0 ||
        onnx_in(n, 4) != NULL) {
        return onnx_not(n, e, "its shape, or a form of its weights that is "
                              "not converted");
    }
    uint64_t blocks = ((uint64_t)k - 1) / (uint64_t)block + 1;
    uint64_t bytes = (uint64_t)block * (uint64_t)bits / 8;
    if (b->type != ONNX_UINT8 || b->n_dims != 3 ||
        b->dims[0] != (uint64_t)rows || b->dims[1] != blocks ||
        b->dims[2] != bytes || !is_float(s->type) ||
        s->elems != (uint64_t)rows * blocks) {
        return onnx_not(n, e, "its weights or scales do not have the shape "
                              "that K, N and the blocks say");
    }
    *ret = (struct onnx_rows){
        .rows = (uint64_t)rows,
        .cols = (uint64_t)k,
        .bytes = b->bytes + s->bytes,
        .q = {b->data, b->bytes, bits == 4 ? ONNX_UINT4 : ONNX_UINT8,
              blocks * (uint64_t)block, 1},
        .scale = {s->data, s->bytes, s->type, blocks, 1},
        .row_block = 1,
        .col_block = (uint64_t)block,
        .zero_const = bits == 4 ? 8 : 128,
        .made = ONNX_FLOAT,
        .form = bits == 4 ? "MatMulNBits 4 bits" : "MatMulNBits 8 bits"};
    return block_zeros(n, 3, ret->rows, blocks, (unsigned)bits, ret, e);
}

/* The table of a GatherBlockQuantized: an initialiser, or the weights of the
 * output matrix in another shape, (rows, bytes of a row). */
static int table_data(struct onnx_node *n, const struct onnx_tensor **ret,
                      uint64_t shape[2], struct err *e)
{
    struct onnx_value *v = onnx_in(n, 0);
    struct onnx_node *r = onnx_made_by(v, "Reshape");
    int64_t to[2] = {0, 0};
    if (r != NULL) {
        RETERR(onnx_take(r, "allowzero", 2, e));
        if (onnx_const_ints(onnx_in(r, 1), to, 2) != 2) {
            return onnx_not(r, e, "its shape is no constant of two numbers");
        }
        v = onnx_in(r, 0);
    }
    if (v == NULL || v->init == NULL) {
        return onnx_not(n, e, "its table is no constant");
    }
    const struct onnx_tensor *t = v->init;
    if (r == NULL && t->n_dims == 2) {
        shape[0] = t->dims[0];
        shape[1] = t->dims[1];
    } else if (r != NULL && to[0] > 0 && to[1] > 0 && to[0] < INT32_MAX &&
               to[1] < INT32_MAX && t->n_dims >= 2 &&
               t->dims[0] == (uint64_t)to[0] &&
               (uint64_t)to[0] * (uint64_t)to[1] == t->elems) {
        shape[0] = (uint64_t)to[0];
        shape[1] = (uint64_t)to[1];
    } else {
        return onnx_not(n, e, "the shape of its table does not fit");
    }
    *ret = t;
    return 0;
}

static int gather_blocks(struct onnx_node *n, struct onnx_rows *ret,
                         struct err *e)
{
    const struct onnx_tensor *t = NULL;
    const struct onnx_tensor *s = NULL;
    uint64_t shape[2] = {0, 0};
    int64_t block = onnx_attr_int(n, "block_size", 128);
    int64_t bits = onnx_attr_int(n, "bits", 4);
    int64_t axis = onnx_attr_int(n, "quantize_axis", 1);
    RETERR(onnx_take(n, "bits block_size gather_axis quantize_axis", 4, e));
    RETERR(check_block(n, bits, block, e));
    RETERR(table_data(n, &t, shape, e));
    RETERR(constant(n, 2, "scales", &s, e));
    bool bytes = t->type == ONNX_UINT8;
    bool small = t->type == ONNX_UINT4 || t->type == ONNX_INT4;
    if (onnx_attr_int(n, "gather_axis", 0) != 0 || (axis != 1 && axis != -1) ||
        (!bytes && !small) || (small && bits != 4) || !is_float(s->type)) {
        return onnx_not(n, e, "a form of table that is not converted");
    }
    uint64_t cols = bytes && bits == 4 ? shape[1] * 2 : shape[1];
    uint64_t blocks = cols > 0 ? (cols - 1) / (uint64_t)block + 1 : 0;
    if (blocks == 0 || s->elems != shape[0] * blocks) {
        return onnx_not(n, e, "its scales do not have the shape of its table");
    }
    *ret = (struct onnx_rows){
        .rows = shape[0],
        .cols = cols,
        .bytes = t->bytes + s->bytes,
        .q = {t->data, t->bytes, bytes && bits == 4 ? ONNX_UINT4 : t->type,
              cols, 1},
        .scale = {s->data, s->bytes, s->type, blocks, 1},
        .row_block = 1,
        .col_block = (uint64_t)block,
        .zero_const = !bytes ? 0 : bits == 4 ? 8 : 128,
        .made = ONNX_FLOAT,
        .form = "GatherBlockQuantized"};
    return block_zeros(n, 3, shape[0], blocks, (unsigned)bits, ret, e);
}

int onnx_table(struct onnx_node *n, struct onnx_rows *ret,
               struct onnx_value **ret_index, struct err *e)
{
    *ret_index = onnx_in(n, 1);
    if (onnx_is(n, "GatherBlockQuantized")) {
        return gather_blocks(n, ret, e);
    }
    RETERR(onnx_take(n, "axis", 2, e));
    if (onnx_attr_int(n, "axis", 0) != 0) {
        return onnx_not(n, e, "it gathers along another axis than the first");
    }
    return onnx_matrix(onnx_in(n, 0), ret, e);
}

/* --- products --- */

static struct onnx_node *product_of(const struct onnx_value *v)
{
    static const char *const ops[] = {"MatMulNBits", "MatMul", "Gemm"};
    for (size_t i = 0; i < countof(ops); i++) {
        struct onnx_node *n = onnx_made_by(v, ops[i]);
        if (n != NULL && v->out == 0) {
            return n;
        }
    }
    return NULL;
}

/* The input of an Add that is no constant; NULL when both or none are. */
static struct onnx_value *added_to(const struct onnx_node *add,
                                   struct onnx_value **ret_bias)
{
    struct onnx_value *a = onnx_in(add, 0);
    struct onnx_value *b = onnx_in(add, 1);
    if (a == NULL || b == NULL || (a->init != NULL) == (b->init != NULL)) {
        return NULL;
    }
    *ret_bias = a->init != NULL ? a : b;
    return a->init != NULL ? b : a;
}

bool onnx_is_linear(const struct onnx_value *v)
{
    struct onnx_node *add = onnx_made_by(v, "Add");
    struct onnx_value *bias = NULL;
    return product_of(v) != NULL ||
           (add != NULL && product_of(added_to(add, &bias)) != NULL);
}

static int gemm(struct onnx_node *n, struct onnx_rows *ret, struct err *e)
{
    int64_t flip_b = onnx_attr_int(n, "transB", 0);
    RETERR(onnx_take(n, "alpha beta transA transB", 3, e));
    if (onnx_attr_float(n, "alpha", 1) != 1 ||
        onnx_attr_float(n, "beta", 1) != 1 ||
        onnx_attr_int(n, "transA", 0) != 0 || flip_b < 0 || flip_b > 1) {
        return onnx_not(n, e, "a form of Gemm that is not converted");
    }
    RETERR(onnx_matrix(onnx_in(n, 1), ret, e));
    if (flip_b == 0) {
        transpose(ret);
    }
    return 0;
}

static int product(struct onnx_node *n, struct onnx_rows *ret, struct err *e)
{
    if (onnx_is(n, "MatMulNBits")) {
        return n_bits(n, ret, e);
    }
    if (onnx_is(n, "Gemm")) {
        return gemm(n, ret, e);
    }
    RETERR(onnx_take(n, "", 2, e));
    RETERR(onnx_matrix(onnx_in(n, 1), ret, e));
    transpose(ret); /* (inputs, outputs) */
    return 0;
}

int onnx_linear(struct onnx_value *v, struct onnx_linear *ret, struct err *e)
{
    struct onnx_node *add = onnx_made_by(v, "Add");
    struct onnx_value *bias = NULL;
    if (add != NULL) {
        RETERR(onnx_take(add, "", 2, e));
        v = added_to(add, &bias);
    }
    struct onnx_node *n = product_of(v);
    if (n == NULL) {
        return onnx_not(v != NULL ? v->node : add, e,
                        "a product with a matrix is needed here");
    }
    *ret = (struct onnx_linear){.node = n, .in = onnx_in(n, 0)};
    RETERR(product(n, &ret->w, e));
    struct onnx_value *own = onnx_in(n, onnx_is(n, "MatMulNBits") ? 5 : 2);
    if (own != NULL && bias != NULL) {
        return onnx_not(n, e, "two vectors are added to its result");
    }
    bias = own != NULL ? own : bias;
    if (bias != NULL) {
        RETERR(onnx_vector(bias, &ret->bias, e));
    }
    if (ret->in == NULL || (bias != NULL && ret->bias.cols != ret->w.rows)) {
        return onnx_not(n, e, "what is added to its result does not fit");
    }
    return 0;
}
