/* experts.c - a mixture of experts behind com.microsoft QMoE, as onnxruntime-
 * genai's builder writes LFM2's: the graph chooses experts by sigmoid(router) +
 * bias and hands the operator log(sigmoid) of those, far less for the others,
 * so that its softmax over the best k is the share of each in the sum; what is
 * missing to a sum + 1e-6 is multiplied behind it.
 *
 *   scores = sigmoid(router x)         picked = TopK(scores + bias).indices
 *   chosen = GatherElements(scores, picked)
 *   shares = Scatter(log(Clip(chosen)) at picked, into a constant)
 *   QMoE(x, shares, weights) * (sum(chosen) / (sum(chosen) + 1e-6))
 */
#include <math.h>

#include "base/num.h"
#include "source/onnx/decoder.h"

static const char moe_attrs[] =
    "activation_alpha activation_beta activation_type expert_weight_bits k "
    "normalize_routing_weights swiglu_fusion use_sparse_mixer block_size "
    "quant_type";

#define LEAST_SUM 1e-6F /* ROUTER_SUM_MIN of convert/ */

struct mixture {
    struct onnx_node *moe;
    struct onnx_value *x;
    struct onnx_value *scores, *chosen, *picked;
    uint64_t n_experts;
};

bool onnx_is_experts(const struct onnx_value *branch)
{
    struct onnx_node *mul = onnx_made_by(branch, "Mul");
    return mul != NULL && (onnx_made_by(onnx_in(mul, 0), "QMoE") != NULL ||
                           onnx_made_by(onnx_in(mul, 1), "QMoE") != NULL);
}

/* The maker of v, which must be this operation; it is taken. */
static int take_maker(const struct onnx_value *v, const char *op,
                      const char *attrs, size_t n_in,
                      const struct onnx_node *by, struct onnx_node **ret,
                      struct err *e)
{
    *ret = onnx_made_by(v, op);
    return *ret != NULL
               ? onnx_take(*ret, attrs, n_in, e)
               : onnx_not(v != NULL && v->node != NULL ? v->node : by, e,
                          "%s is needed here, in a mixture of experts", op);
}

/* The other input where one is a constant number; its value. */
static struct onnx_value *beside(const struct onnx_node *n, float *ret)
{
    for (size_t i = 0; i < 2; i++) {
        if (onnx_const_number(onnx_in(n, i), ret)) {
            return onnx_in(n, 1 - i);
        }
    }
    return NULL;
}

/* --- the router --- */

/* scores = sigmoid(logits), as one operation or spelled out. */
static int take_sigmoid(struct onnx_value *scores, const struct onnx_node *by,
                        struct onnx_value **ret, struct err *e)
{
    struct onnx_node *n = onnx_made_by(scores, "Sigmoid");
    float one = 0;
    if (n != NULL) {
        *ret = onnx_in(n, 0);
        return onnx_take(n, "", 1, e);
    }
    RETERR(take_maker(scores, "Reciprocal", "", 1, by, &n, e));
    RETERR(take_maker(onnx_in(n, 0), "Add", "", 2, n, &n, e));
    const struct onnx_value *exp = beside(n, &one);
    if (exp == NULL || one != 1) {
        return onnx_not(n, e, "no 1 + exp(-x)");
    }
    RETERR(take_maker(exp, "Exp", "", 1, n, &n, e));
    RETERR(take_maker(onnx_in(n, 0), "Neg", "", 1, n, &n, e));
    *ret = onnx_in(n, 0);
    return 0;
}

static int take_router(struct mixture *m, struct onnx_layer *l, struct err *e)
{
    struct onnx_value *logits = NULL;
    struct onnx_node *r = NULL;
    struct onnx_linear w = {0};
    int64_t to[2] = {0, 0};
    RETERR(take_sigmoid(m->scores, m->moe, &logits, e));
    RETERR(onnx_unround(logits, &logits, e));
    RETERR(take_maker(logits, "Reshape", "allowzero", 2, m->moe, &r, e));
    RETERR(onnx_linear(onnx_in(r, 0), &w, e));
    m->n_experts = w.w.rows;
    if (onnx_const_ints(onnx_in(r, 1), to, 2) != 2 || to[0] != -1 ||
        m->n_experts > MODEL_EXPERTS_MAX || m->n_experts < 2 ||
        to[1] != (int64_t)m->n_experts) {
        return onnx_not(r, e, "rows of 2 to %u experts are needed here",
                        MODEL_EXPERTS_MAX);
    }
    if (w.in != m->x || w.bias.rows > 0) {
        return onnx_not(w.node, e, "the router reads something else than the "
                                   "experts, or has a bias");
    }
    l->slots[ONNX_S_ROUTER] = w.w;
    return 0;
}

/* The best k of scores + bias. */
static int take_choice(struct mixture *m, struct onnx_layer *l, struct err *e)
{
    struct onnx_node *top = NULL;
    struct onnx_node *add = NULL;
    int64_t k = 0;
    RETERR(take_maker(m->picked, "TopK", "axis largest sorted", 2, m->moe, &top,
                      e));
    RETERR(take_maker(onnx_in(top, 0), "Add", "", 2, top, &add, e));
    bool first = onnx_in(add, 0) == m->scores;
    RETERR(onnx_vector(onnx_in(add, first), &l->slots[ONNX_S_ROUTER_BIAS], e));
    if (onnx_in(add, !first) != m->scores ||
        l->slots[ONNX_S_ROUTER_BIAS].cols != m->n_experts) {
        return onnx_not(add, e, "no bias for each expert is added to its score");
    }
    if (m->picked->out != 1 || onnx_attr_int(top, "axis", -1) != -1 ||
        onnx_attr_int(top, "largest", 1) != 1 ||
        onnx_const_ints(onnx_in(top, 1), &k, 1) != 1 || k < 1 ||
        (uint64_t)k > m->n_experts ||
        k != onnx_attr_int(m->moe, "k", 1)) {
        return onnx_not(top, e, "it does not pick the experts that are used");
    }
    l->n_top = (uint32_t)k;
    return 0;
}

/* shares: log(chosen) at the picked places, a number far below elsewhere. */
static int take_shares(struct mixture *m, struct err *e)
{
    struct onnx_node *put = NULL;
    struct onnx_node *fill = NULL;
    struct onnx_node *n = NULL;
    float least = 0;
    float low = 0;
    RETERR(take_maker(onnx_in(m->moe, 1), "ScatterElements", "axis", 3, m->moe,
                      &put, e));
    RETERR(take_maker(onnx_in(put, 0), "ConstantOfShape", "value", 1, put, &fill,
                      e));
    RETERR(take_maker(onnx_in(fill, 0), "Shape", "", 1, fill, &n, e));
    m->scores = onnx_in(n, 0);
    m->picked = onnx_in(put, 1);
    RETERR(take_maker(onnx_in(put, 2), "Log", "", 1, put, &n, e));
    RETERR(take_maker(onnx_in(n, 0), "Clip", "", 2, n, &n, e));
    m->chosen = onnx_in(n, 0);
    const struct onnx_attr *a = onnx_attr(fill, "value");
    const struct onnx_value value = {.init = a != NULL ? a->t : NULL};
    if (!onnx_const_number(onnx_in(n, 1), &least) || !(least <= 1e-20F) ||
        !(least > 0) || !onnx_const_number(&value, &low) || !(low <= -1000)) {
        return onnx_not(put, e, "the experts that were not chosen count");
    }
    RETERR(take_maker(m->chosen, "GatherElements", "axis", 2, put, &n, e));
    int64_t axis = onnx_attr_int(put, "axis", 0);
    if (onnx_in(n, 0) != m->scores || onnx_in(n, 1) != m->picked ||
        onnx_attr_int(n, "axis", 0) != 1 || axis != 1 || m->scores == NULL ||
        m->picked == NULL) {
        return onnx_not(n, e, "it does not gather the chosen experts' scores");
    }
    return 0;
}

/* --- what is multiplied behind --- */

/* The shape of x, its last number 1. */
static int check_rows(const struct mixture *m, const struct onnx_value *shape,
                      const struct onnx_node *by, struct err *e)
{
    struct onnx_node *join = NULL;
    struct onnx_node *cut = NULL;
    struct onnx_node *of = NULL;
    int64_t from = -1;
    int64_t to = 0;
    int64_t one = 0;
    RETERR(take_maker(shape, "Concat", "axis", 2, by, &join, e));
    RETERR(take_maker(onnx_in(join, 0), "Slice", "", 3, join, &cut, e));
    RETERR(take_maker(onnx_in(cut, 0), "Shape", "", 1, cut, &of, e));
    return onnx_in(of, 0) == m->x && onnx_attr_int(join, "axis", 0) == 0 &&
                   onnx_const_ints(onnx_in(join, 1), &one, 1) == 1 &&
                   one == 1 &&
                   onnx_const_ints(onnx_in(cut, 1), &from, 1) == 1 &&
                   from == 0 &&
                   onnx_const_ints(onnx_in(cut, 2), &to, 1) == 1 && to == -1
               ? 0
               : onnx_not(join, e, "no shape of one number for each position");
}

static int take_scale(const struct mixture *m, struct onnx_value *scale,
                      struct err *e)
{
    struct onnx_node *r = NULL;
    struct onnx_node *div = NULL;
    struct onnx_node *add = NULL;
    struct onnx_node *sum = NULL;
    int64_t axis = 0;
    float least = 0;
    RETERR(onnx_unround(scale, &scale, e));
    RETERR(take_maker(scale, "Reshape", "allowzero", 2, m->moe, &r, e));
    RETERR(check_rows(m, onnx_in(r, 1), r, e));
    if (onnx_made_by(onnx_in(r, 0), "Mul") != NULL) {
        return onnx_not(onnx_in(r, 0)->node, e,
                        "routed_scaling_factor other than 1 is not converted");
    }
    RETERR(take_maker(onnx_in(r, 0), "Div", "", 2, r, &div, e));
    RETERR(take_maker(onnx_in(div, 1), "Add", "", 2, div, &add, e));
    RETERR(take_maker(onnx_in(div, 0), "ReduceSum",
                      "keepdims noop_with_empty_axes", 2, div, &sum, e));
    return beside(add, &least) == onnx_in(div, 0) &&
                   fabsf(least / LEAST_SUM - 1) < 1e-3F &&
                   onnx_in(sum, 0) == m->chosen &&
                   onnx_attr_int(sum, "keepdims", 1) == 1 &&
                   onnx_const_ints(onnx_in(sum, 1), &axis, 1) == 1 &&
                   (axis == -1 || axis == 1)
               ? 0
               : onnx_not(div, e, "no sum of the chosen experts' scores by "
                                  "itself and 1e-6");
}

/* --- weights --- */

static const struct onnx_tensor *constant(const struct onnx_node *n, size_t i)
{
    const struct onnx_value *v = onnx_in(n, i);
    return v != NULL ? v->init : NULL;
}

static bool all_zero(const struct onnx_tensor *t)
{
    const struct onnx_grid g = {t->data, t->bytes, t->type, 0, 1};
    for (uint64_t i = 0; i < t->elems; i++) {
        if (onnx_number(&g, i) != 0) {
            return false;
        }
    }
    return true;
}

static bool is_float(enum onnx_type t)
{
    return t == ONNX_FLOAT || t == ONNX_FLOAT16 || t == ONNX_BFLOAT16;
}

static bool has_shape(const struct onnx_tensor *t, uint64_t a, uint64_t b,
                      uint64_t c)
{
    return t->n_dims == 3 && t->dims[0] == a && t->dims[1] == b &&
           t->dims[2] == c;
}

/* Zero points of expert_rows, in input i: packed like the weights, a row of
 * blocks at a time. Where a row has one scale the operator packs those of
 * several rows into a byte, which is not converted at 4 bits. */
static int expert_zeros(const struct mixture *m, size_t i, struct onnx_rows *r,
                        struct err *e)
{
    const struct onnx_node *n = m->moe;
    const struct onnx_tensor *z = constant(n, i);
    bool small = r->q.type == ONNX_UINT4;
    uint64_t blocks = r->scale.row_step;
    uint64_t stride = small ? (blocks + 1) / 2 : blocks;
    if (onnx_in(n, i) == NULL) {
        return 0;
    }
    if (small && onnx_attr_int(n, "block_size", 0) == 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       "node '%.100s' (%s): zero points of 4 bits for whole "
                       "rows of experts are not converted (for blocks they "
                       "are)",
                       n->name, n->op);
    }
    if (z == NULL || z->type != ONNX_UINT8 || z->elems != r->rows * stride) {
        return onnx_not(n, e, "its zero points (input %zu) are no constant, or "
                              "do not have the shape of its scales",
                        i);
    }
    r->zero = (struct onnx_grid){z->data, z->bytes, r->q.type,
                                 small ? stride * 2 : stride, 1};
    r->bytes += z->bytes;
    return 0;
}

/* Weights of all experts, in inputs i (rows of `cols` numbers), i + 1 (scales)
 * and i + 2 (biases, which must be nothing); zero points in input `zeros`.
 * Errors: by name. */
static int expert_rows(const struct mixture *m, size_t i, size_t zeros,
                       uint64_t cols, struct onnx_rows *ret, struct err *e)
{
    const struct onnx_node *n = m->moe;
    const struct onnx_tensor *w = constant(n, i);
    const struct onnx_tensor *s = constant(n, i + 1);
    const struct onnx_tensor *bias = constant(n, i + 2);
    int64_t bits = onnx_attr_int(n, "expert_weight_bits", 4);
    int64_t block = onnx_attr_int(n, "block_size", 0);
    if (w == NULL || s == NULL || (onnx_in(n, i + 2) != NULL && bias == NULL)) {
        return onnx_not(n, e, "its weights, scales and biases are no constants");
    }
    if ((bits != 4 && bits != 8) || block < 0 || block > 1 << 16 ||
        (block & (block - 1)) != 0 || (block > 0 && block < 16)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "node '%.100s' (%s): experts of %lld bits in blocks of "
                       "%lld are not converted (4 and 8 bits are)",
                       n->name, n->op, (long long)bits, (long long)block);
    }
    uint64_t run = block > 0 ? (uint64_t)block : cols;
    uint64_t blocks = cols > 0 ? (cols - 1) / run + 1 : 0;
    uint64_t rows = w->n_dims == 3 ? w->dims[1] : 0;
    bool flat = s->n_dims == 2 && blocks == 1 && s->dims[0] == m->n_experts &&
                s->dims[1] == rows;
    if (w->type != ONNX_UINT8 || rows == 0 || blocks == 0 ||
        cols * (uint64_t)bits % 8 != 0 ||
        !has_shape(w, m->n_experts, rows, cols * (uint64_t)bits / 8) ||
        !is_float(s->type) ||
        !(flat || has_shape(s, m->n_experts, rows, blocks))) {
        return onnx_not(n, e, "the shapes of its weights or scales do not fit");
    }
    if (bias != NULL && !(is_float(bias->type) && all_zero(bias))) {
        return onnx_not(n, e, "biases of experts are not converted");
    }
    *ret = (struct onnx_rows){
        .rows = m->n_experts * rows,
        .cols = cols,
        .bytes = w->bytes + s->bytes,
        .q = {w->data, w->bytes, bits == 4 ? ONNX_UINT4 : ONNX_UINT8, cols, 1},
        .scale = {s->data, s->bytes, s->type, blocks, 1},
        .row_block = 1,
        .col_block = run,
        .zero_const = bits == 4 ? 8 : 128,
        .made = ONNX_FLOAT,
        .form = bits == 4 ? "QMoE 4 bits" : "QMoE 8 bits"};
    return expert_zeros(m, zeros, ret, e);
}

/* Every other row of g, from row `first` on. */
static void every_other(struct onnx_grid *g, uint64_t row_bytes, uint64_t first)
{
    g->p += row_bytes * first;
    g->bytes -= row_bytes * first;
    g->row_step *= 2;
}

/* gate and up: rows by turns. */
static void half_of(const struct onnx_rows *both, uint64_t first,
                    struct onnx_rows *ret)
{
    uint64_t number = both->scale.type == ONNX_FLOAT ? 4 : 2;
    bool small = both->q.type == ONNX_UINT4;
    *ret = *both;
    ret->rows /= 2;
    ret->bytes /= 2;
    every_other(&ret->q, small ? both->cols / 2 : both->cols, first);
    every_other(&ret->scale, both->scale.row_step * number, first);
    if (both->zero.p != NULL) {
        every_other(&ret->zero, both->zero.row_step / (small ? 2 : 1), first);
    }
}

static int take_weights(const struct mixture *m, const struct onnx_decoder *d,
                        struct onnx_layer *l, struct err *e)
{
    const struct onnx_node *n = m->moe;
    const struct onnx_rows *s = l->slots;
    struct onnx_rows both;
    RETERR(expert_rows(m, 2, 11, s[ONNX_S_ROUTER].cols, &both, e));
    if (both.rows / m->n_experts % 2 != 0) {
        return onnx_not(n, e, "rows of gate and up are not as many");
    }
    half_of(&both, 0, &l->slots[ONNX_S_EXPERT_GATE]);
    half_of(&both, 1, &l->slots[ONNX_S_EXPERT_UP]);
    uint64_t width = both.rows / m->n_experts / 2;
    RETERR(expert_rows(m, 5, 12, width, &l->slots[ONNX_S_EXPERT_DOWN], e));
    return width <= MODEL_DIM_MAX &&
                   s[ONNX_S_EXPERT_DOWN].rows ==
                       m->n_experts * s[ONNX_S_ROUTER].cols
               ? 0
               : onnx_not(n, e, "its two matrices do not fit together in layers "
                                "of %u numbers",
                          d->d_model);
}

/* act(gate) * up with SiLU, and weights that add up to 1. */
static int check_kind(struct onnx_decoder *d, struct onnx_node *n,
                      struct err *e)
{
    RETERR(onnx_take(n, moe_attrs, 13, e));
    for (size_t i = 8; i < 11; i++) {
        if (onnx_in(n, i) != NULL) {
            return onnx_not(n, e, "input %zu: a third matrix of experts is not "
                                  "converted",
                            i);
        }
    }
    if (!onnx_attr_is(n, "activation_type", "swiglu", false) ||
        onnx_attr_int(n, "swiglu_fusion", 0) != 1 ||
        onnx_attr_float(n, "activation_alpha", 1) != 1 ||
        onnx_attr_float(n, "activation_beta", 0) != 0 ||
        onnx_attr_int(n, "normalize_routing_weights", 0) != 1 ||
        onnx_attr_int(n, "use_sparse_mixer", 0) != 0 ||
        !onnx_attr_is(n, "quant_type", "int", true)) {
        return onnx_not(n, e, "a kind of mixture that is not converted: SiLU "
                              "with rows of gate and up by turns, and shares "
                              "that add up to 1, is");
    }
    if (d->act != ONNX_ACT_NONE && d->act != ONNX_ACT_SILU) {
        return onnx_not(n, e, "layers with different activations");
    }
    d->act = ONNX_ACT_SILU;
    return 0;
}

int onnx_experts(struct onnx_decoder *d, struct onnx_layer *l,
                 struct onnx_value *branch, struct onnx_value **ret_in,
                 struct err *e)
{
    struct onnx_node *mul = branch->node;
    bool first = onnx_made_by(onnx_in(mul, 0), "QMoE") != NULL;
    struct mixture m = {.moe = onnx_in(mul, !first)->node};
    m.x = onnx_in(m.moe, 0);
    RETERR(onnx_take(mul, "", 2, e));
    RETERR(check_kind(d, m.moe, e));
    if (m.x == NULL || onnx_in(mul, !first)->out != 0) {
        return onnx_not(m.moe, e, "it reads nothing");
    }
    RETERR(take_shares(&m, e));
    RETERR(take_router(&m, l, e));
    RETERR(take_choice(&m, l, e));
    RETERR(take_scale(&m, onnx_in(mul, first), e));
    RETERR(take_weights(&m, d, l, e));
    l->n_experts = (uint32_t)m.n_experts;
    *ret_in = m.x;
    return 0;
}
