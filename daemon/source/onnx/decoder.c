/* decoder.c - from the logits back to the embedding.
 *
 * A value has one maker, so reading backwards asks one question a step:
 *
 *   logits <- head <- norm <- stream
 *   stream = stream before + (post norm) (down <- act(gate) * up) <- norm
 *   stream = stream before + (post norm) (o <- attention)         <- norm
 *   ... <- (scale) embedding[ids]
 *
 * The norm of each block must read the very stream that the block is added to.
 * In the end every node must have been taken: what is left over is not
 * understood, and its name is the error.
 */
#include "source/onnx/decoder.h"

#include <string.h>

struct block {
    struct onnx_node *resid;   /* makes the stream before */
    struct onnx_value *branch; /* what is added */
};

static bool is_skip(const struct onnx_node *n)
{
    return onnx_is(n, "SkipSimplifiedLayerNormalization");
}

bool onnx_is_norm(const struct onnx_node *n)
{
    return onnx_is(n, "SimplifiedLayerNormalization") ||
           onnx_is(n, "RMSNormalization");
}

/* The node whose stream v is; NULL: v is another result of it. */
static struct onnx_node *stream_node(const struct onnx_value *v)
{
    if (v == NULL || v->node == NULL) {
        return NULL;
    }
    return v->out == (is_skip(v->node) ? 3u : 0u) ? v->node : NULL;
}

static bool adds_streams(const struct onnx_node *n)
{
    const struct onnx_value *a = n != NULL ? onnx_in(n, 0) : NULL;
    const struct onnx_value *b = n != NULL ? onnx_in(n, 1) : NULL;
    return is_skip(n) || (onnx_is(n, "Add") && a != NULL && b != NULL &&
                          a->init == NULL && b->init == NULL);
}

/* --- norms --- */

static int take_eps(struct onnx_decoder *d, const struct onnx_node *n,
                    struct err *e)
{
    float eps = onnx_attr_float(n, "epsilon", 1e-5f);
    if (!(eps > 0 && eps < 0.1f) || (d->eps != 0 && d->eps != eps)) {
        return onnx_not(n, e, "its epsilon is %g, others have %g", (double)eps,
                        (double)d->eps);
    }
    d->eps = eps;
    return 0;
}

/* h = rms(stream) * w */
static int take_norm(struct onnx_decoder *d, struct onnx_value *h,
                     struct onnx_rows *w, struct onnx_value **ret_of,
                     struct err *e)
{
    RETERR(onnx_unround(h, &h, e));
    struct onnx_node *n = h != NULL ? h->node : NULL;
    if (n == NULL || !onnx_is_norm(n) || h->out != 0) {
        return onnx_not(n, e, "a norm is needed here");
    }
    int64_t axis = onnx_attr_int(n, "axis", -1);
    if (axis != -1 || onnx_attr_int(n, "stash_type", 1) != 1) {
        return onnx_not(n, e, "it does not norm the last axis in fp32");
    }
    RETERR(onnx_take(n, "epsilon axis stash_type", 2, e));
    RETERR(take_eps(d, n, e));
    RETERR(onnx_unround(onnx_in(n, 0), ret_of, e));
    return *ret_of != NULL ? onnx_vector(onnx_in(n, 1), w, e)
                           : onnx_not(n, e, "it reads nothing");
}

/* The same, of a stream: the norm may be one with the sum. */
static int take_pre_norm(struct onnx_decoder *d, struct onnx_value *h,
                         struct onnx_rows *w, struct onnx_node **ret_stream,
                         struct err *e)
{
    struct onnx_value *of = NULL;
    RETERR(onnx_unround(h, &h, e));
    if (h != NULL && is_skip(h->node) && h->out == 0) {
        struct onnx_node *n = h->node;
        RETERR(onnx_take(n, "epsilon", 3, e));
        RETERR(take_eps(d, n, e));
        *ret_stream = n;
        return onnx_vector(onnx_in(n, 2), w, e);
    }
    RETERR(take_norm(d, h, w, &of, e));
    *ret_stream = stream_node(of);
    return *ret_stream != NULL
               ? 0
               : onnx_not(h->node, e, "what it reads is no stream of layers");
}

/* --- the feed-forward block --- */

static int take_gelu(struct onnx_decoder *d, struct onnx_node *n,
                     struct onnx_value **ret, struct err *e)
{
    bool tanh_form = onnx_is(n, "FastGelu") ||
                     onnx_attr_is(n, "approximate", "tanh", false);
    RETERR(onnx_take(n, "approximate", 1, e));
    if (!tanh_form) {
        return onnx_not(n, e, "the exact form of GELU is not converted");
    }
    d->act = ONNX_ACT_GELU_TANH;
    *ret = onnx_in(n, 0);
    return 0;
}

/* v = act(x): x * sigmoid(x), or a GELU. *ret NULL: v is no activation. */
static int take_act(struct onnx_decoder *d, struct onnx_value *v,
                    struct onnx_value **ret, struct err *e)
{
    enum onnx_act before = d->act;
    struct onnx_node *n = v != NULL ? v->node : NULL;
    *ret = NULL;
    if (onnx_is(n, "Mul")) {
        struct onnx_value *a = onnx_in(n, 0);
        struct onnx_value *b = onnx_in(n, 1);
        struct onnx_node *s = onnx_made_by(b, "Sigmoid");
        if (s == NULL) {
            s = onnx_made_by(a, "Sigmoid");
            a = b;
        }
        if (s == NULL || a == NULL || onnx_in(s, 0) != a) {
            return 0;
        }
        RETERR(onnx_take(n, "", 2, e));
        RETERR(onnx_take(s, "", 1, e));
        d->act = ONNX_ACT_SILU;
        *ret = a;
    } else if (onnx_is(n, "FastGelu") || onnx_is(n, "Gelu")) {
        RETERR(take_gelu(d, n, ret, e));
    } else {
        return 0;
    }
    return before == ONNX_ACT_NONE || before == d->act
               ? 0
               : onnx_not(n, e, "layers with different activations");
}

/* gate and up: products of their own, or the halves of one. */
static int take_halves(struct onnx_value *a, struct onnx_value *b,
                       struct onnx_linear *gate, struct onnx_linear *up,
                       struct err *e)
{
    struct onnx_node *n = onnx_made_by(a, "Split");
    int64_t to[2] = {0, 0};
    if (n == NULL) {
        RETERR(onnx_linear(a, gate, e));
        return onnx_linear(b, up, e);
    }
    int64_t axis = onnx_attr_int(n, "axis", 0);
    RETERR(onnx_take(n, "axis num_outputs", 2, e));
    RETERR(onnx_linear(onnx_in(n, 0), gate, e));
    bool even = onnx_in(n, 1) == NULL && onnx_attr_int(n, "num_outputs", 2) == 2;
    uint64_t half = gate->w.rows / 2;
    if (!even) {
        even = onnx_const_ints(onnx_in(n, 1), to, 2) == 2 && to[0] == to[1] &&
               to[0] == (int64_t)half;
    }
    if (!even || gate->w.rows % 2 != 0 || (axis != -1 && axis != 2) ||
        n->n_out != 2 || b == NULL || b->node != n || a->out != 0 ||
        b->out != 1) {
        return onnx_not(n, e, "its parts are not gate and up");
    }
    gate->w.rows = half;
    gate->w.bytes /= 2;
    *up = *gate;
    up->w.first = gate->w.first + half;
    return 0;
}

static int take_ffn(struct onnx_decoder *d, struct onnx_layer *l,
                    struct onnx_value *branch, struct onnx_value **ret_in,
                    struct err *e)
{
    struct onnx_linear down = {0};
    struct onnx_linear gate = {0};
    struct onnx_linear up = {0};
    struct onnx_value *act = NULL;
    RETERR(onnx_linear(branch, &down, e));
    struct onnx_node *mul = onnx_made_by(down.in, "Mul");
    if (mul == NULL) {
        return onnx_not(down.node, e, "what it reads is no gated activation");
    }
    RETERR(onnx_take(mul, "", 2, e));
    struct onnx_value *other = onnx_in(mul, 1);
    RETERR(take_act(d, onnx_in(mul, 0), &act, e));
    if (act == NULL) {
        other = onnx_in(mul, 0);
        RETERR(take_act(d, onnx_in(mul, 1), &act, e));
    }
    if (act == NULL) {
        return onnx_not(mul, e, "neither side is an activation aned knows");
    }
    RETERR(take_halves(act, other, &gate, &up, e));
    if (gate.in != up.in || gate.w.rows != up.w.rows ||
        gate.w.cols != up.w.cols || down.w.cols != gate.w.rows) {
        return onnx_not(mul, e, "gate, up and down do not fit together");
    }
    if (gate.bias.rows + up.bias.rows + down.bias.rows > 0) {
        return onnx_not(mul, e, "biases of a feed-forward block are not "
                                "converted");
    }
    l->slots[ONNX_S_GATE] = gate.w;
    l->slots[ONNX_S_UP] = up.w;
    l->slots[ONNX_S_DOWN] = down.w;
    *ret_in = gate.in;
    return 0;
}

/* --- blocks --- */

static bool is_branch(const struct onnx_value *v)
{
    return v != NULL && (onnx_is_linear(v) || onnx_is_experts(v) ||
                         (onnx_is_norm(v->node) && v->out == 0));
}

/* The stream of node `sum` is another stream and what is added to it. */
static int split(struct onnx_node *sum, struct block *ret, struct err *e)
{
    struct onnx_value *a = NULL;
    struct onnx_value *b = NULL;
    if (!is_skip(sum)) {
        RETERR(onnx_take(sum, "", 2, e));
    }
    RETERR(onnx_unround(onnx_in(sum, 0), &a, e));
    RETERR(onnx_unround(onnx_in(sum, 1), &b, e));
    if (is_branch(a) == is_branch(b)) {
        return onnx_not(sum, e, "aned cannot tell which side is the layer's");
    }
    ret->branch = is_branch(a) ? a : b;
    ret->resid = stream_node(is_branch(a) ? b : a);
    return ret->resid != NULL
               ? 0
               : onnx_not(sum, e, "what a layer is added to is no stream");
}

/* A norm between a block and its sum. */
static int take_post(struct onnx_decoder *d, struct onnx_value **branch,
                     struct onnx_rows *w, struct err *e)
{
    return (*branch)->node != NULL && onnx_is_norm((*branch)->node)
               ? take_norm(d, *branch, w, branch, e)
               : 0;
}

/* One block: the stream of `sum` is explained, *ret is the one before. */
static int take_block(struct onnx_decoder *d, struct onnx_layer *l, bool ffn,
                      struct onnx_node *sum, struct onnx_node **ret,
                      struct err *e)
{
    struct block b = {0};
    struct onnx_value *in = NULL;
    struct onnx_node *stream = NULL;
    RETERR(split(sum, &b, e));
    RETERR(take_post(d, &b.branch,
                     &l->slots[ffn ? ONNX_S_FFN_POST : ONNX_S_POST], e));
    bool experts = ffn && onnx_is_experts(b.branch);
    if (!experts &&
        (!onnx_is_linear(b.branch) || onnx_is_mixer(b.branch) == ffn)) {
        return onnx_not(b.branch->node, e, "%s is needed here",
                        ffn ? "a feed-forward block"
                            : "attention or a convolution");
    }
    RETERR(experts ? onnx_experts(d, l, b.branch, &in, e)
           : ffn   ? take_ffn(d, l, b.branch, &in, e)
                   : onnx_mixer(d, l, b.branch, &in, e));
    RETERR(take_pre_norm(d, in, &l->slots[ffn ? ONNX_S_FFN_PRE : ONNX_S_PRE],
                         &stream, e));
    if (stream != b.resid) {
        return onnx_not(in->node, e,
                        "it norms another stream than its block is added to");
    }
    *ret = b.resid;
    return 0;
}

/* --- both ends --- */

/* The first numbers of each row: blocks of the output matrix are padded. */
static int take_slice(struct onnx_node *n, uint64_t *ret_width,
                      struct onnx_node **ret, struct err *e)
{
    int64_t from = -1;
    int64_t to = 0;
    int64_t axis = 0;
    struct onnx_value *of = onnx_in(n, 0);
    RETERR(onnx_take(n, "", 4, e));
    if (onnx_const_ints(onnx_in(n, 1), &from, 1) != 1 || from != 0 ||
        onnx_const_ints(onnx_in(n, 2), &to, 1) != 1 || to < 1 ||
        to > MODEL_DIM_MAX || onnx_const_ints(onnx_in(n, 3), &axis, 1) != 1 ||
        (axis != -1 && axis != 2) || of == NULL || of->node == NULL) {
        return onnx_not(n, e, "it does not cut rows to their first numbers");
    }
    *ret_width = (uint64_t)to;
    *ret = of->node;
    return 0;
}

static int take_embedding(struct onnx_decoder *d, struct onnx_node *n,
                          struct err *e)
{
    struct onnx_value *ids = NULL;
    uint64_t width = 0;
    d->embed_scale = 1;
    if (onnx_is(n, "Mul")) {
        struct onnx_value *a = onnx_in(n, 0);
        struct onnx_value *b = onnx_in(n, 1);
        bool first = a != NULL && a->init != NULL;
        struct onnx_value *of = first ? b : a;
        RETERR(onnx_take(n, "", 2, e));
        if (!onnx_const_number(first ? a : b, &d->embed_scale) || of == NULL ||
            of->node == NULL) {
            return onnx_not(n, e, "no embedding times a constant");
        }
        n = of->node;
    }
    if (onnx_is(n, "Slice")) {
        RETERR(take_slice(n, &width, &n, e));
    }
    if (!onnx_is(n, "Gather") && !onnx_is(n, "GatherBlockQuantized")) {
        return onnx_not(n, e, "an embedding is needed here");
    }
    RETERR(onnx_table(n, &d->embd, &ids, e));
    if (width > d->embd.cols) {
        return onnx_not(n, e, "its rows are shorter than what is cut of them");
    }
    d->embd.cols = width > 0 ? width : d->embd.cols;
    RETERR(onnx_same_input(&d->ids, ids, n, e));
    d->vocab = (uint32_t)d->embd.rows;
    d->d_model = (uint32_t)d->embd.cols;
    return d->embd.rows <= MODEL_VOCAB_MAX && d->embd.cols <= MODEL_DIM_MAX
               ? 0
               : onnx_not(n, e, "an embedding of %llu tokens and %llu numbers",
                          (unsigned long long)d->embd.rows,
                          (unsigned long long)d->embd.cols);
}

/* cap * tanh(x / cap) */
static int take_cap(struct onnx_decoder *d, struct onnx_value **v,
                    struct err *e)
{
    struct onnx_node *mul = onnx_made_by(*v, "Mul");
    struct onnx_node *th = mul != NULL ? onnx_made_by(onnx_in(mul, 0), "Tanh")
                                       : NULL;
    struct onnx_node *div = th != NULL ? onnx_made_by(onnx_in(th, 0), "Div")
                                       : NULL;
    float cap = 0;
    if (div == NULL) {
        return 0;
    }
    if (!onnx_const_number(onnx_in(mul, 1), &d->logit_cap) ||
        !onnx_const_number(onnx_in(div, 1), &cap) || cap != d->logit_cap ||
        !(cap > 0)) {
        return onnx_not(mul, e, "no cap of logits");
    }
    RETERR(onnx_take(mul, "", 2, e));
    RETERR(onnx_take(th, "", 1, e));
    RETERR(onnx_take(div, "", 2, e));
    *v = onnx_in(div, 0);
    return 0;
}

/* The one output that is no state. */
static int find_logits(const struct onnx *m, struct onnx_value **ret,
                       struct err *e)
{
    const struct onnx_graph *g = &m->graph;
    *ret = NULL;
    for (size_t i = 0; i < g->n_outputs; i++) {
        struct onnx_value *v = g->outputs[i];
        if (v->node == NULL) {
            return err_set(e, ERR_ONNX_GRAPH,
                           "the output '%.100s' is not computed", v->name);
        }
        if (v->out > 0) {
            continue; /* taken with the node that makes it */
        }
        if (*ret != NULL) {
            return err_set(e, ERR_ONNX_GRAPH,
                           "two outputs may be the logits: '%.100s' and "
                           "'%.100s' (of %.60s); states come out of an "
                           "operation that computes with them, as "
                           "GroupQueryAttention does",
                           (*ret)->name, v->name, v->node->op);
        }
        *ret = v;
    }
    return *ret != NULL ? 0
                        : err_set(e, ERR_ONNX_GRAPH,
                                  "the graph has no output that is computed");
}

static int take_head(struct onnx_decoder *d, struct onnx_node **ret_stream,
                     struct err *e)
{
    struct onnx_value *v = NULL;
    struct onnx_linear head = {0};
    RETERR(find_logits(d->m, &v, e));
    RETERR(onnx_unround(v, &v, e));
    RETERR(take_cap(d, &v, e));
    RETERR(onnx_linear(v, &head, e));
    if (head.bias.rows > 0) {
        return onnx_not(head.node, e, "a bias of the logits is not converted");
    }
    d->head = head.w;
    return take_pre_norm(d, head.in, &d->out_norm, ret_stream, e);
}

/* --- the whole --- */

static int take_layers(struct onnx_decoder *d, struct onnx_node *stream,
                       struct err *e)
{
    uint32_t n = 0;
    while (adds_streams(stream)) {
        if (n == MODEL_LAYERS_MAX) {
            return err_set(e, ERR_TOO_BIG, "more than %u layers",
                           MODEL_LAYERS_MAX);
        }
        struct onnx_layer *l = &d->layers[n++];
        RETERR(take_block(d, l, true, stream, &stream, e));
        RETERR(take_block(d, l, false, stream, &stream, e));
    }
    for (uint32_t i = 0; i < n / 2; i++) { /* the last came first */
        struct onnx_layer t = d->layers[i];
        d->layers[i] = d->layers[n - 1 - i];
        d->layers[n - 1 - i] = t;
    }
    d->n_layers = n;
    RETERR(take_embedding(d, stream, e));
    return n > 0 ? 0 : err_set(e, ERR_ONNX_GRAPH, "the graph has no layers");
}

/* The mask reads the length of a state that is a layer's keys. */
static int check_mask_past(const struct onnx_decoder *d, struct err *e)
{
    for (uint32_t l = 0; d->mask_past != NULL && l < d->n_layers; l++) {
        if (d->layers[l].past[0] == d->mask_past) {
            return 0;
        }
    }
    return d->mask_past == NULL
               ? 0
               : err_set(e, ERR_ONNX_GRAPH,
                         "the mask reads '%.80s', which is no layer's state",
                         d->mask_past->name);
}

static int check_all_seen(const struct onnx *m, struct err *e)
{
    const struct onnx_graph *g = &m->graph;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (!g->nodes[i].seen) {
            return onnx_not(&g->nodes[i], e,
                            "it has no place in the decoder of %s",
                            "this graph");
        }
    }
    return 0;
}

/* The same bytes in the same form. */
static bool same_rows(const struct onnx_rows *a, const struct onnx_rows *b)
{
    return a->rows == b->rows && a->cols == b->cols && a->q.p == b->q.p &&
           a->first == b->first && a->q.type == b->q.type &&
           a->scale.p == b->scale.p &&
           a->zero.p == b->zero.p && a->zero_const == b->zero_const &&
           a->q.row_step == b->q.row_step && a->q.col_step == b->q.col_step &&
           a->col_block == b->col_block && a->made == b->made;
}

static int check_width(const struct onnx_rows *w, uint64_t cols,
                       const char *what, struct err *e)
{
    return w->rows == 0 || w->cols == cols
               ? 0
               : err_set(e, ERR_ONNX_GRAPH, "%s has %llu columns, not %llu",
                         what, (unsigned long long)w->cols,
                         (unsigned long long)cols);
}

static int check_shapes(const struct onnx_decoder *d, struct err *e)
{
    static const enum onnx_slot wide[] = {
        ONNX_S_PRE,     ONNX_S_QKV,  ONNX_S_Q,        ONNX_S_K,
        ONNX_S_V,       ONNX_S_POST, ONNX_S_CONV_IN,  ONNX_S_FFN_PRE,
        ONNX_S_GATE,    ONNX_S_UP,   ONNX_S_FFN_POST, ONNX_S_CONV_OUT,
        ONNX_S_ROUTER};
    RETERR(check_width(&d->head, d->d_model, "the output matrix", e));
    RETERR(check_width(&d->out_norm, d->d_model, "the last norm", e));
    if (d->head.rows != d->vocab) {
        return err_set(e, ERR_ONNX_GRAPH,
                       "%u tokens have embeddings, %llu have logits", d->vocab,
                       (unsigned long long)d->head.rows);
    }
    for (uint32_t l = 0; l < d->n_layers; l++) {
        const struct onnx_rows *s = d->layers[l].slots;
        for (size_t i = 0; i < countof(wide); i++) {
            RETERR(check_width(&s[wide[i]], d->d_model, "a matrix", e));
        }
        if (d->layers[l].n_experts == 0 &&
            s[ONNX_S_DOWN].rows != d->d_model) {
            return err_set(e, ERR_ONNX_GRAPH,
                           "layer %u: down gives %llu numbers, not %u", l,
                           (unsigned long long)s[ONNX_S_DOWN].rows, d->d_model);
        }
    }
    return 0;
}

/* The standard operations are those of the versions that are known here. */
static int check_opsets(const struct onnx *m, struct err *e)
{
    for (size_t i = 0; i < m->n_opsets; i++) {
        const struct onnx_opset *o = &m->opsets[i];
        bool own = o->domain[0] == '\0' || strcmp(o->domain, "ai.onnx") == 0;
        if (own && (o->version < 13 || o->version > 30)) {
            return err_set(e, ERR_UNSUPPORTED,
                           "operations of version %lld; aned knows 13 to 30: "
                           "export the model again with one of these (opset)",
                           (long long)o->version);
        }
    }
    return 0;
}

int onnx_recover(struct onnx *m, struct onnx_decoder *ret, struct err *e)
{
    struct onnx_node *stream = NULL;
    *ret = (struct onnx_decoder){.m = m};
    ret->layers =
        arena_array(&m->arena, MODEL_LAYERS_MAX, sizeof(*ret->layers));
    if (ret->layers == NULL) {
        return err_set(e, ERR_TOO_BIG, "the graph needs too much memory");
    }
    RETERR(check_opsets(m, e));
    RETERR(take_head(ret, &stream, e));
    RETERR(take_layers(ret, stream, e));
    RETERR(check_mask_past(ret, e));
    RETERR(check_all_seen(m, e));
    ret->tied = same_rows(&ret->head, &ret->embd);
    return check_shapes(ret, e);
}
