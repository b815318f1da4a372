/* attention.c - grouped attention, and the convolution in its place.
 *
 * com.microsoft GroupQueryAttention, with the rotation inside it or before it,
 * q, k and v from one product (packed, or split after it) or from three, norms
 * of q and k on either side of the rotation. com.microsoft CausalConvWithState
 * between its two gates (LFM2).
 */
#include "source/onnx/decoder.h"

/* One of q, k, v on its way from the product. */
struct lane {
    struct onnx_value *v;    /* where the walk stands */
    struct onnx_rows norm;   /* rows 0: none */
    bool turned;             /* a rotation was met */
    bool norm_last;          /* the norm came after it */
    uint32_t rotation;
    struct onnx_node *split; /* of a packed product; NULL: its own */
    size_t part;             /* which of its results */
    struct onnx_linear own;
};

int onnx_same_input(const struct onnx_value **at, const struct onnx_value *v,
                    const struct onnx_node *n, struct err *e)
{
    if (v == NULL || !v->input || (*at != NULL && *at != v)) {
        return onnx_not(n, e, "'%.80s' is not the input that is needed here",
                        v != NULL ? v->name : "");
    }
    *at = v;
    return 0;
}

int onnx_uncast(struct onnx_value *v, struct onnx_value **ret, struct err *e)
{
    for (unsigned i = 0; i < 4 && onnx_made_by(v, "Cast") != NULL; i++) {
        int64_t to = onnx_attr_int(v->node, "to", 0);
        if (to != ONNX_INT32 && to != ONNX_INT64) {
            return onnx_not(v->node, e, "a cast of lengths to another type");
        }
        RETERR(onnx_take(v->node, "to saturate", 1, e));
        v = onnx_in(v->node, 0);
    }
    *ret = v;
    return 0;
}

/* --- lanes --- */

/* Reshape to (.., heads, d) or (.., width): the last number is `last`. */
static int take_reshape(struct onnx_node *n, uint64_t last, struct err *e)
{
    int64_t to[4] = {0, 0, 0, 0};
    size_t k = onnx_const_ints(onnx_in(n, 1), to, 4);
    RETERR(onnx_take(n, "allowzero", 2, e));
    bool fits = k >= 3 && to[k - 1] == (int64_t)last &&
                onnx_attr_int(n, "allowzero", 0) == 0;
    for (size_t i = 0; fits && i + 1 < k; i++) {
        fits = to[i] == 0 || to[i] == -1;
    }
    return fits ? 0 : onnx_not(n, e, "not a split into heads, or back");
}

/* Reshape <- norm <- Reshape */
static int take_head_norm(struct onnx_decoder *d, struct lane *a,
                          struct onnx_node *back, uint64_t heads,
                          struct err *e)
{
    struct onnx_value *v = NULL;
    RETERR(onnx_unround(onnx_in(back, 0), &v, e));
    struct onnx_node *n =
        v != NULL && v->out == 0 && onnx_is_norm(v->node) ? v->node : NULL;
    if (n != NULL) {
        RETERR(onnx_unround(onnx_in(n, 0), &v, e));
    }
    struct onnx_node *to = n != NULL ? onnx_made_by(v, "Reshape") : NULL;
    if (to == NULL || a->norm.rows > 0) {
        return onnx_not(back, e, "no norm of heads");
    }
    float eps = onnx_attr_float(n, "epsilon", 1e-5f);
    if (onnx_attr_int(n, "axis", -1) != -1 ||
        onnx_attr_int(n, "stash_type", 1) != 1 ||
        (d->eps != 0 && d->eps != eps)) {
        return onnx_not(n, e, "its epsilon or axis is not that of the others");
    }
    RETERR(onnx_take(n, "epsilon axis stash_type", 2, e));
    RETERR(onnx_vector(onnx_in(n, 1), &a->norm, e));
    RETERR(take_reshape(to, a->norm.cols, e));
    RETERR(take_reshape(back, a->norm.cols * heads, e));
    a->norm_last = !a->turned; /* reading backwards: it was met first */
    a->v = onnx_in(to, 0);
    return 0;
}

static int take_rotary(struct onnx_decoder *d, struct lane *a,
                       struct onnx_node *n, uint64_t heads, struct err *e)
{
    int64_t n_heads = onnx_attr_int(n, "num_heads", 0);
    if (a->turned || onnx_attr_int(n, "interleaved", 0) != 0 ||
        onnx_attr_int(n, "is_packed_batching", 0) != 0 ||
        onnx_attr_float(n, "scale", 1) != 1 ||
        (n_heads != 0 && n_heads != (int64_t)heads)) {
        return onnx_not(n, e, "a form of rotation that is not converted");
    }
    RETERR(onnx_take(n,
                     "interleaved num_heads rotary_embedding_dim "
                     "is_packed_batching scale",
                     4, e));
    RETERR(onnx_same_input(&d->positions, onnx_in(n, 1), n, e));
    RETERR(onnx_rotation_of(d, onnx_in(n, 2), onnx_in(n, 3), &a->rotation, e));
    uint64_t turns = 2 * d->rotations[a->rotation].cos->dims[1];
    int64_t dim = onnx_attr_int(n, "rotary_embedding_dim", 0);
    if (dim != 0 && (uint64_t)dim != turns) {
        return onnx_not(n, e, "it turns %lld numbers, its tables are of %llu",
                        (long long)dim, (unsigned long long)turns);
    }
    a->turned = true;
    a->v = onnx_in(n, 0);
    return 0;
}

/* Back from attention's input to the product. */
static int walk_lane(struct onnx_decoder *d, struct lane *a, uint64_t heads,
                     struct err *e)
{
    for (unsigned i = 0; i < 3; i++) {
        struct onnx_node *back = onnx_made_by(a->v, "Reshape");
        struct onnx_node *turn = onnx_made_by(a->v, "RotaryEmbedding");
        if (back != NULL) {
            RETERR(take_head_norm(d, a, back, heads, e));
        } else if (turn != NULL) {
            RETERR(take_rotary(d, a, turn, heads, e));
        }
    }
    a->split = onnx_made_by(a->v, "Split");
    a->part = a->v != NULL ? a->v->out : 0;
    return a->split == NULL ? onnx_linear(a->v, &a->own, e) : 0;
}

/* --- the three together --- */

/* Split of one product into q, k, v. */
static int take_split(struct onnx_layer *l, const struct lane lanes[3],
                      const uint64_t rows[3], struct onnx_linear *ret,
                      struct err *e)
{
    struct onnx_node *n = lanes[0].split;
    int64_t to[3] = {0, 0, 0};
    for (size_t i = 0; i < 3; i++) {
        if (lanes[i].split != n || lanes[i].part != i) {
            return onnx_not(n, e, "q, k and v are not its results in order");
        }
    }
    int64_t axis = onnx_attr_int(n, "axis", 0);
    bool fits = onnx_const_ints(onnx_in(n, 1), to, 3) == 3 && n->n_out == 3 &&
                (axis == -1 || axis == 2);
    for (size_t i = 0; fits && i < 3; i++) {
        fits = to[i] > 0 && (uint64_t)to[i] == rows[i];
    }
    if (!fits) {
        return onnx_not(n, e, "its parts are not those of q, k and v");
    }
    RETERR(onnx_take(n, "axis num_outputs", 2, e));
    RETERR(onnx_linear(onnx_in(n, 0), ret, e));
    l->slots[ONNX_S_QKV] = ret->w;
    l->slots[ONNX_S_QKV_BIAS] = ret->bias;
    return 0;
}

static int take_three(struct onnx_layer *l, const struct lane lanes[3],
                      const uint64_t rows[3], struct err *e)
{
    for (size_t i = 0; i < 3; i++) {
        if (lanes[i].split != NULL || lanes[i].own.in != lanes[0].own.in ||
            lanes[i].own.w.rows != rows[i]) {
            return onnx_not(lanes[i].own.node, e,
                            "q, k and v do not fit together");
        }
        l->slots[ONNX_S_Q + i] = lanes[i].own.w;
        l->slots[ONNX_S_Q_BIAS + i] = lanes[i].own.bias;
    }
    return 0;
}

static int check_lanes(const struct onnx_node *n, struct onnx_layer *l,
                       const struct lane lanes[3], struct err *e)
{
    const struct lane *q = &lanes[0];
    const struct lane *k = &lanes[1];
    if (lanes[2].turned || lanes[2].norm.rows > 0) {
        return onnx_not(n, e, "values that are turned or normed");
    }
    if (q->turned != k->turned || q->norm.rows != k->norm.rows ||
        q->norm_last != k->norm_last || q->rotation != k->rotation ||
        (q->norm.rows > 0 &&
         (q->norm.cols != l->d_head || k->norm.cols != l->d_head))) {
        return onnx_not(n, e, "q and k do not come the same way");
    }
    if (q->norm.rows > 0 && l->slots[ONNX_S_Q_NORM].rows > 0) {
        return onnx_not(n, e, "q and k are normed twice");
    }
    if (q->norm.rows > 0) {
        l->slots[ONNX_S_Q_NORM] = q->norm;
        l->slots[ONNX_S_K_NORM] = k->norm;
    }
    return 0;
}

/* q, k and v from attention's inputs 0 to 2. */
static int take_qkv(struct onnx_decoder *d, struct onnx_layer *l,
                    struct onnx_node *n, struct onnx_value **ret_in,
                    struct err *e)
{
    struct lane lanes[3];
    struct onnx_linear packed = {0};
    const uint64_t rows[3] = {(uint64_t)l->n_heads * l->d_head,
                              (uint64_t)l->n_kv * l->d_head,
                              (uint64_t)l->n_kv * l->d_head};
    bool turns = l->rotation != UINT32_MAX;
    for (size_t i = 0; i < 3; i++) {
        lanes[i] = (struct lane){.v = onnx_in(n, i), .rotation = UINT32_MAX};
        RETERR(walk_lane(d, &lanes[i], i == 0 ? l->n_heads : l->n_kv, e));
    }
    RETERR(check_lanes(n, l, lanes, e));
    if (turns && lanes[0].turned) {
        return onnx_not(n, e, "q and k are turned twice");
    }
    l->norm_last = lanes[0].norm.rows > 0 && lanes[0].norm_last && !turns;
    l->rotation = turns ? l->rotation : lanes[0].rotation;
    if (lanes[0].split != NULL) {
        RETERR(take_split(l, lanes, rows, &packed, e));
    } else {
        RETERR(take_three(l, lanes, rows, e));
    }
    *ret_in = lanes[0].split != NULL ? packed.in : lanes[0].own.in;
    return 0;
}

/* --- GroupQueryAttention --- */

static bool is_output(const struct onnx *m, const struct onnx_value *v)
{
    for (size_t i = 0; i < m->graph.n_outputs; i++) {
        if (m->graph.outputs[i] == v) {
            return true;
        }
    }
    return false;
}

/* States come in and go out of the graph, each layer its own. */
static int take_states(struct onnx_decoder *d, struct onnx_layer *l,
                       const struct onnx_node *n, size_t first, size_t count,
                       struct err *e)
{
    for (size_t i = 0; i < count; i++) {
        const struct onnx_value *in = onnx_in(n, first + i);
        const struct onnx_value *out = 1 + i < n->n_out ? n->out[1 + i] : NULL;
        if (in == NULL || !in->input || out == NULL || !is_output(d->m, out)) {
            return onnx_not(n, e, "its states are no inputs and outputs of "
                                  "the graph");
        }
        l->past[i] = in;
        for (const struct onnx_layer *x = d->layers; x < l; x++) {
            if (x->past[0] == in || x->past[1] == in) {
                return onnx_not(n, e, "two layers share the state '%.80s'",
                                in->name);
            }
        }
    }
    return l->past[0] != l->past[1]
               ? 0
               : onnx_not(n, e, "keys and values share a state");
}

static int read_numbers(const struct onnx_node *n, struct onnx_layer *l,
                        struct err *e)
{
    int64_t heads = onnx_attr_int(n, "num_heads", 0);
    int64_t kv = onnx_attr_int(n, "kv_num_heads", 0);
    int64_t window = onnx_attr_int(n, "local_window_size", -1);
    l->score_cap = onnx_attr_float(n, "softcap", 0);
    l->score_scale = onnx_attr_float(n, "scale", 0);
    if (heads < 1 || heads > MODEL_DIM_MAX || kv < 1 || kv > heads ||
        heads % kv != 0 || window < -1 || window == 0 || window > INT32_MAX ||
        !(l->score_cap >= 0 && l->score_cap < 1e4f) ||
        !(l->score_scale >= 0 && l->score_scale < 1e4f)) {
        return onnx_not(n, e, "its heads, scale or window are out of range");
    }
    if (onnx_attr_int(n, "rotary_interleaved", 0) != 0 ||
        onnx_attr_int(n, "smooth_softmax", 0) > 0 ||
        onnx_attr_int(n, "qk_output", 0) != 0) {
        return onnx_not(n, e, "a form of attention that is not converted");
    }
    l->n_heads = (uint32_t)heads;
    l->n_kv = (uint32_t)kv;
    l->window = window > 0 ? (uint32_t)window : 0;
    return 0;
}

/* Columns of the output matrix are all heads. */
static int read_head(const struct onnx_node *n, uint64_t width,
                     struct onnx_layer *l, struct err *e)
{
    if (width % l->n_heads != 0 || width > MODEL_DIM_MAX) {
        return onnx_not(n, e, "%u heads in a width of %llu", l->n_heads,
                        (unsigned long long)width);
    }
    l->d_head = (uint32_t)(width / l->n_heads);
    return 0;
}

/* Inputs that change what is computed, and are not converted. */
static int refuse_inputs(const struct onnx_node *n, struct err *e)
{
    for (size_t i = 9; i < 14; i++) {
        if (onnx_in(n, i) != NULL) {
            return onnx_not(n, e, "input %zu '%.80s' is not understood", i,
                            onnx_in(n, i)->name);
        }
    }
    return 0;
}

/* Norms of q and k inside attention, before its rotation. */
static int take_inner_norms(const struct onnx_decoder *d, struct onnx_layer *l,
                            const struct onnx_node *n, struct err *e)
{
    if (onnx_in(n, 14) == NULL && onnx_in(n, 15) == NULL) {
        return 0;
    }
    RETERR(onnx_vector(onnx_in(n, 14), &l->slots[ONNX_S_Q_NORM], e));
    RETERR(onnx_vector(onnx_in(n, 15), &l->slots[ONNX_S_K_NORM], e));
    return l->slots[ONNX_S_Q_NORM].cols == l->d_head &&
                   l->slots[ONNX_S_K_NORM].cols == l->d_head &&
                   onnx_attr_float(n, "qk_norm_epsilon", 1e-6f) == d->eps &&
                   onnx_attr_int(n, "do_rotary", 0) == 1
               ? 0
               : onnx_not(n, e, "its norms of q and k are not converted");
}

static int take_gqa(struct onnx_decoder *d, struct onnx_layer *l,
                    struct onnx_node *n, uint64_t width,
                    struct onnx_value **ret_in, struct err *e)
{
    int64_t rotary = onnx_attr_int(n, "do_rotary", 0);
    RETERR(onnx_take(n,
                     "num_heads kv_num_heads scale local_window_size softcap "
                     "do_rotary rotary_interleaved smooth_softmax qk_output "
                     "sliding_window_cache qk_norm_epsilon",
                     16, e));
    RETERR(refuse_inputs(n, e));
    RETERR(read_numbers(n, l, e));
    RETERR(read_head(n, width, l, e));
    RETERR(take_inner_norms(d, l, n, e));
    RETERR(take_states(d, l, n, 3, 2, e));
    RETERR(onnx_match_lengths(d, onnx_in(n, 5), onnx_in(n, 6), e));
    l->rotation = UINT32_MAX;
    if (rotary == 1) {
        RETERR(onnx_rotation_of(d, onnx_in(n, 7), onnx_in(n, 8), &l->rotation,
                                e));
    } else if (rotary != 0 || onnx_in(n, 7) != NULL || onnx_in(n, 8) != NULL) {
        return onnx_not(n, e, "tables of rotations without a rotation");
    }
    if (onnx_in(n, 1) != NULL || onnx_in(n, 2) != NULL) {
        return take_qkv(d, l, n, ret_in, e);
    }
    struct onnx_linear packed = {0};
    RETERR(onnx_linear(onnx_in(n, 0), &packed, e));
    if (packed.w.rows !=
        (uint64_t)(l->n_heads + 2 * l->n_kv) * l->d_head) {
        return onnx_not(n, e, "its packed input is not q, k and v");
    }
    l->slots[ONNX_S_QKV] = packed.w;
    l->slots[ONNX_S_QKV_BIAS] = packed.bias;
    *ret_in = packed.in;
    return 0;
}

/* --- MultiHeadAttention --- */

/* As many heads of keys as of queries, the rotation before it, the mask as a
 * tensor. */
static int take_mha(struct onnx_decoder *d, struct onnx_layer *l,
                    struct onnx_node *n, uint64_t width,
                    struct onnx_value **ret_in, struct err *e)
{
    int64_t heads = onnx_attr_int(n, "num_heads", 0);
    RETERR(onnx_take(n, "num_heads scale", 8, e));
    if (heads < 1 || heads > MODEL_DIM_MAX || onnx_in(n, 3) != NULL ||
        onnx_in(n, 4) != NULL || onnx_in(n, 5) == NULL) {
        return onnx_not(n, e, "a form of attention that is not converted");
    }
    l->n_heads = l->n_kv = (uint32_t)heads;
    l->score_scale = onnx_attr_float(n, "scale", 0);
    l->rotation = UINT32_MAX;
    RETERR(read_head(n, width, l, e));
    RETERR(take_states(d, l, n, 6, 2, e));
    if (d->mask_tensor != NULL && d->mask_tensor != onnx_in(n, 5)) {
        return onnx_not(n, e, "layers with different masks");
    }
    RETERR(onnx_match_mask(d, onnx_in(n, 5), e));
    return take_qkv(d, l, n, ret_in, e);
}

/* --- the convolution --- */

static int take_swap(struct onnx_value *v, struct onnx_value **ret,
                     struct err *e)
{
    struct onnx_node *n = onnx_made_by(v, "Transpose");
    const struct onnx_attr *p = n != NULL ? onnx_attr(n, "perm") : NULL;
    if (p == NULL || p->ints == NULL || p->n != 3 || p->ints[0] != 0 ||
        p->ints[1] != 2 || p->ints[2] != 1) {
        return onnx_not(v != NULL ? v->node : n, e,
                        "channels and positions must change places here");
    }
    *ret = onnx_in(n, 0);
    return onnx_take(n, "perm", 1, e);
}

/* A product of two results of one Split, in this order. */
static int take_gate(struct onnx_value *v, struct onnx_value **a,
                     struct onnx_value **b, struct err *e)
{
    struct onnx_node *n = onnx_made_by(v, "Mul");
    if (n == NULL) {
        return onnx_not(v != NULL ? v->node : NULL, e,
                        "a gate of the convolution is needed here");
    }
    *a = onnx_in(n, 0);
    *b = onnx_in(n, 1);
    return onnx_take(n, "", 2, e);
}

static bool part_of(const struct onnx_value *v, const struct onnx_node *split,
                    size_t i)
{
    return v != NULL && split != NULL && v->node == split && v->out == i;
}

static int take_conv(struct onnx_layer *l, const struct onnx_value *w,
                     struct onnx_node *n, uint64_t width, struct err *e)
{
    const struct onnx_tensor *t = w != NULL ? w->init : NULL;
    RETERR(onnx_take(n, "ndim activation state_window", 4, e));
    if (t == NULL || t->n_dims != 3 || t->dims[0] != width ||
        t->dims[1] != 1 || t->dims[2] == 0 || t->dims[2] > 64 ||
        (t->type != ONNX_FLOAT && t->type != ONNX_FLOAT16 &&
         t->type != ONNX_BFLOAT16) ||
        onnx_attr_int(n, "ndim", 1) != 1 ||
        onnx_attr_int(n, "state_window", 0) != 0 || onnx_in(n, 2) != NULL ||
        !onnx_attr_is(n, "activation", "none", true)) {
        return onnx_not(n, e, "a form of convolution that is not converted");
    }
    l->slots[ONNX_S_CONV] =
        (struct onnx_rows){.rows = t->dims[0],
                           .cols = t->dims[2],
                           .bytes = t->bytes,
                           .q = {t->data, t->bytes, t->type, t->dims[2], 1},
                           .row_block = 1,
                           .col_block = t->dims[2],
                           .made = ONNX_FLOAT,
                           .form = onnx_type_name(t->type)};
    return 0;
}

static int take_short_conv(struct onnx_decoder *d, struct onnx_layer *l,
                           const struct onnx_linear *out,
                           struct onnx_value **ret_in, struct err *e)
{
    struct onnx_value *v = NULL;
    struct onnx_value *gates[4] = {NULL, NULL, NULL, NULL};
    struct onnx_linear in = {0};
    int64_t to[3] = {0, 0, 0};
    uint64_t width = out->w.cols;
    RETERR(take_swap(out->in, &v, e));
    RETERR(take_gate(v, &gates[0], &gates[1], e));
    struct onnx_node *conv = onnx_made_by(gates[1], "CausalConvWithState");
    if (conv == NULL || gates[1]->out != 0) {
        return onnx_not(v->node, e, "a convolution is needed here");
    }
    RETERR(take_conv(l, onnx_in(conv, 1), conv, width, e));
    RETERR(take_states(d, l, conv, 3, 1, e));
    RETERR(take_gate(onnx_in(conv, 0), &gates[2], &gates[3], e));
    struct onnx_node *split = onnx_made_by(gates[0], "Split");
    if (!part_of(gates[0], split, 1) || !part_of(gates[2], split, 0) ||
        !part_of(gates[3], split, 2) || onnx_attr_int(split, "axis", 0) != 1 ||
        onnx_const_ints(onnx_in(split, 1), to, 3) != 3 ||
        to[0] != (int64_t)width || to[1] != to[0] || to[2] != to[0]) {
        return onnx_not(conv, e, "its gates are not three equal parts of one "
                                 "product");
    }
    RETERR(onnx_take(split, "axis num_outputs", 2, e));
    RETERR(take_swap(onnx_in(split, 0), &v, e));
    RETERR(onnx_linear(v, &in, e));
    if (in.w.rows != 3 * width || in.bias.rows > 0 || out->bias.rows > 0) {
        return onnx_not(in.node, e, "its shape does not fit the convolution");
    }
    l->conv = true;
    l->slots[ONNX_S_CONV_IN] = in.w;
    l->slots[ONNX_S_CONV_OUT] = out->w;
    *ret_in = in.in;
    return 0;
}

/* --- either --- */

static struct onnx_value *read_by(const struct onnx_value *branch)
{
    struct onnx_node *n = branch->node;
    if (onnx_is(n, "Add")) {
        struct onnx_value *a = onnx_in(n, 0);
        struct onnx_value *b = onnx_in(n, 1);
        struct onnx_value *v = a != NULL && a->init != NULL ? b : a;
        n = v != NULL ? v->node : NULL;
    }
    return n != NULL ? onnx_in(n, 0) : NULL;
}

bool onnx_is_mixer(const struct onnx_value *branch)
{
    const struct onnx_value *v = read_by(branch);
    return onnx_made_by(v, "GroupQueryAttention") != NULL ||
           onnx_made_by(v, "MultiHeadAttention") != NULL ||
           onnx_made_by(v, "Transpose") != NULL;
}

int onnx_mixer(struct onnx_decoder *d, struct onnx_layer *l,
               struct onnx_value *branch, struct onnx_value **ret_in,
               struct err *e)
{
    struct onnx_linear out = {0};
    RETERR(onnx_linear(branch, &out, e));
    if (onnx_made_by(out.in, "Transpose") != NULL) {
        return take_short_conv(d, l, &out, ret_in, e);
    }
    struct onnx_node *n = onnx_made_by(out.in, "GroupQueryAttention");
    struct onnx_node *plain = onnx_made_by(out.in, "MultiHeadAttention");
    if ((n == NULL && plain == NULL) || out.in->out != 0) {
        return onnx_not(out.node, e, "what it reads is no attention");
    }
    l->slots[ONNX_S_O] = out.w;
    l->slots[ONNX_S_O_BIAS] = out.bias;
    return n != NULL ? take_gqa(d, l, n, out.w.cols, ret_in, e)
                     : take_mha(d, l, plain, out.w.cols, ret_in, e);
}
