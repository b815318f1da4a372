/* program.c - one decoder layer over the builder.
 *
 *   x ── norm ── q,k,v (1x1 conv) ── heads [1,n,T,d_head] ── q/k norm ── rope
 *   k,v ── masked write ── state [1,n_kv,S,d_head] ── scores, softmax, values
 *     ── o (1x1 conv) ── (post norm) ── + x ── norm ── gate,up,act,down
 *     ── (post norm) ── + x ── hidden
 *
 * The masked write: upd = matmul(kv_write_mask, new) puts row t where column t
 * has its 1; keep = 1 - sum of the mask's columns, once per program; state =
 * state * keep + upd, written whole. No slice depends on T, no tensor has more
 * than four axes, and keys are not repeated for grouped heads: the queries of
 * a group become rows of one matmul.
 *
 * Weights are written to the package first, then the program: functions share
 * them. C does not define the order in which arguments of a call are evaluated,
 * so at most one argument of any call here makes an op: every compiler's aned
 * makes the same program.
 */
#include "convert/program.h"

#define TEXT_ROOM 64
#define NAME_ROOM (TEXT_ROOM + 32)

/* What layers of one kind read beside x; NULL: none of the program does. */
struct kind {
    struct mil_value *cos, *sin, *mask;
};

/* One function under construction. */
struct ctx {
    const struct emit *m;
    struct mil_program *p;
    struct mil_function *f;
    int64_t t;      /* rows, or MIL_UNKNOWN */
    uint32_t first; /* layer of the model that is the program's first */
    uint32_t layer; /* from 0 in the program, for names */
    char name[NAME_ROOM];
    const struct layer *l;
    const struct layer_weights *w;
    struct kind kinds[LAYER_KINDS];
    struct mil_value *write_mask;      /* [1, 1, S, T] */
    struct mil_value *keep;            /* [1, 1, S, 1] */
    struct mil_value *x_embed, *ple;   /* of per-layer embeddings; or NULL */
    struct mil_value *(*all)[2];       /* a layer: keys and values */
    struct mil_value *(*news)[2];      /* a layer: what it wrote; or NULL */
};

/* --- small words --- */

/* "layers_3_what"; valid until the next call. */
static const char *named(struct ctx *c, const char *what)
{
    (void)snprintf(c->name, sizeof(c->name), "layers_%u_%s", c->layer, what);
    return c->name;
}

static struct mil_value *binary(struct ctx *c, const char *op, const char *what,
                                struct mil_value *x, struct mil_value *y)
{
    return mil_op(c->p, c->f, op, named(c, what), "x", x, "y", y, NULL);
}

static struct mil_value *unary(struct ctx *c, const char *op, const char *what,
                               struct mil_value *x)
{
    return mil_op(c->p, c->f, op, named(c, what), "x", x, NULL);
}

static struct mil_value *f16(struct ctx *c, float v)
{
    return mil_f16(c->p, c->f, v);
}

static struct mil_value *reduce(struct ctx *c, const char *op, const char *what,
                                struct mil_value *x, int32_t axis)
{
    struct mil_value *axes = mil_i32s(c->p, c->f, 1, &axis);
    struct mil_value *keep = mil_bool(c->p, c->f, true);
    return mil_op(c->p, c->f, op, named(c, what), "x", x, "axes", axes,
                  "keep_dims", keep, NULL);
}

static struct mil_value *reshape(struct ctx *c, const char *what,
                                 struct mil_value *x, int32_t a, int32_t b,
                                 int32_t d)
{
    int32_t shape[4] = {1, a, b, d};
    return mil_op(c->p, c->f, "reshape", named(c, what), "x", x, "shape",
                  mil_i32s(c->p, c->f, 4, shape), NULL);
}

/* The two last axes change places. */
static struct mil_value *swap_last(struct ctx *c, const char *what,
                                   struct mil_value *x)
{
    static const int32_t perm[4] = {0, 1, 3, 2};
    return mil_op(c->p, c->f, "transpose", named(c, what), "x", x, "perm",
                  mil_i32s(c->p, c->f, 4, perm), NULL);
}

static struct mil_value *matmul(struct ctx *c, const char *what,
                                struct mil_value *x, struct mil_value *y,
                                bool transpose_y)
{
    struct mil_value *tx = mil_bool(c->p, c->f, false);
    struct mil_value *ty = mil_bool(c->p, c->f, transpose_y);
    return mil_op(c->p, c->f, "matmul", named(c, what), "x", x, "y", y,
                  "transpose_x", tx, "transpose_y", ty, NULL);
}

/* Elements [from, to) of an axis of x, all of the others. */
static struct mil_value *slice(struct ctx *c, const char *what,
                               struct mil_value *x, size_t axis, int32_t from,
                               int32_t to)
{
    int32_t begin[4] = {0, 0, 0, 0};
    int32_t end[4] = {0, 0, 0, 0};
    const int32_t stride[4] = {1, 1, 1, 1};
    bool whole[4] = {true, true, true, true};
    begin[axis] = from;
    end[axis] = to;
    whole[axis] = false;
    const bool none[4] = {false, false, false, false};
    struct mil_value *b = mil_i32s(c->p, c->f, 4, begin);
    struct mil_value *z = mil_i32s(c->p, c->f, 4, end);
    struct mil_value *by = mil_i32s(c->p, c->f, 4, stride);
    struct mil_value *all = mil_bools(c->p, c->f, 4, whole);
    struct mil_value *no = mil_bools(c->p, c->f, 4, none);
    return mil_op(c->p, c->f, "slice_by_index", named(c, what), "x", x, "begin",
                  b, "end", z, "stride", by, "begin_mask", all, "end_mask", all,
                  "squeeze_mask", no, NULL);
}

static struct mil_value *constant(struct ctx *c, const char *what,
                                  const struct mil_const *k)
{
    return mil_const_op(c->p, c->f, named(c, what), k);
}

/* A matrix of this layer times x, and its bias if there is one. */
static struct mil_value *project(struct ctx *c, const char *what,
                                 struct mil_value *x, enum arch_slot slot,
                                 enum arch_slot bias)
{
    char text[TEXT_ROOM];
    const struct weight *w = layer_matrix(c->w, slot);
    const struct mil_const *k =
        bias == SLOT_COUNT ? NULL : layer_vector(c->w, bias);
    (void)snprintf(text, sizeof(text), "%s_weight", what);
    struct mil_value *weight = weights_value(c->p, c->f, named(c, text), w);
    struct mil_value *b = NULL;
    if (k != NULL) {
        (void)snprintf(text, sizeof(text), "%s_bias", what);
        b = constant(c, text, k);
    }
    return mil_conv1x1(c->p, c->f, named(c, what), x, weight, b);
}

/* x times a constant, left out when it is 1. */
static struct mil_value *times(struct ctx *c, const char *what,
                               struct mil_value *x, float by)
{
    return by == 1.0f ? x : binary(c, "mul", what, x, f16(c, by));
}

/* The last op of a program's last layer has the contract's name. */
static struct mil_value *last_op(struct ctx *c, bool last, const char *op,
                                 const char *what, struct mil_value *x,
                                 struct mil_value *y)
{
    return mil_op(c->p, c->f, op, last ? "hidden" : named(c, what), "x", x, "y",
                  y, NULL);
}

/* --- norms --- */

/* RMSNorm over `axis` of d elements of x * alpha. The weight holds the gain;
 * NULL: there is none. */
static struct mil_value *rms_norm(struct ctx *c, const char *what,
                                  struct mil_value *x, int32_t axis, uint32_t d,
                                  float alpha, const struct mil_const *weight)
{
    char text[TEXT_ROOM];
    float eps = norm_epsilon(c->m->norm, c->m->d->norm_eps, alpha);
    struct mil_value *y = NULL;
    struct mil_value *s = NULL;
    if (c->m->norm == NORM_SCALE) {
        y = binary(c, "mul", "norm_x", x, f16(c, 1.0f / sqrtf((float)d)));
        s = reduce(c, "reduce_sum", "norm_sum",
                   binary(c, "mul", "norm_square", y, y), axis);
        if (eps > 0) {
            s = binary(c, "add", "norm_eps", s, f16(c, eps));
        }
    } else {
        struct mil_value *m = reduce(c, "reduce_max", "norm_max",
                                     unary(c, "abs", "norm_abs", x), axis);
        m = binary(c, "maximum", "norm_floor", m, f16(c, NORM_FLOOR));
        y = binary(c, "real_div", "norm_x", x, m);
        s = reduce(c, "reduce_mean", "norm_mean",
                   binary(c, "mul", "norm_square", y, y), axis);
        if (eps > 0) {
            struct mil_value *r =
                binary(c, "real_div", "norm_root_eps", f16(c, eps), m);
            s = binary(c, "add", "norm_eps", s,
                       binary(c, "mul", "norm_eps_square", r, r));
        }
    }
    s = mil_op(c->p, c->f, "rsqrt", named(c, "norm_rsqrt"), "x", s, "epsilon",
               f16(c, 0), NULL);
    y = binary(c, "mul", "norm_y", y, s);
    if (weight == NULL) {
        return times(c, what, y, norm_gain(c->m->norm, d));
    }
    (void)snprintf(text, sizeof(text), "%s_weight", what);
    return binary(c, "mul", what, y, constant(c, text, weight));
}

/* --- attention --- */

/* Rotate-half over the first rope_dim elements of x [1, n, T, d_head]. */
static struct mil_value *rope(struct ctx *c, const char *what,
                              struct mil_value *x)
{
    const struct kind *k = &c->kinds[c->l->kind];
    uint32_t dim = c->m->d->kinds[c->l->kind].rope_dim;
    int32_t half = (int32_t)dim / 2;
    struct mil_value *part[3] = {NULL, NULL, NULL};
    size_t n = 2;
    if (dim == c->l->d_head) {
        mil_split(c->p, c->f, named(c, "rope_half"), x, 2, 3, part);
    } else {
        part[0] = slice(c, "rope_low", x, 3, 0, half);
        part[1] = slice(c, "rope_high", x, 3, half, 2 * half);
        part[2] = slice(c, "rope_rest", x, 3, 2 * half, (int32_t)c->l->d_head);
        n = 3;
    }
    struct mil_value *a = binary(c, "mul", "rope_low_cos", part[0], k->cos);
    struct mil_value *b = binary(c, "mul", "rope_high_sin", part[1], k->sin);
    struct mil_value *low = binary(c, "sub", "rope_new_low", a, b);
    a = binary(c, "mul", "rope_high_cos", part[1], k->cos);
    b = binary(c, "mul", "rope_low_sin", part[0], k->sin);
    struct mil_value *high = binary(c, "add", "rope_new_high", a, b);
    struct mil_value *all[3] = {low, high, part[2]};
    return mil_concat(c->p, c->f, named(c, what), n, all, 3);
}

/* [1, n * d_head, T, 1] -> [1, n, T, d_head] */
static struct mil_value *heads(struct ctx *c, const char *what,
                               struct mil_value *x, uint32_t n)
{
    struct mil_value *h =
        reshape(c, "heads", x, (int32_t)n, (int32_t)c->l->d_head, -1);
    return swap_last(c, what, h);
}

/* Write `fresh` [1, n_kv, T, d_head] and give all positions back. */
static struct mil_value *keep_cache(struct ctx *c, char which,
                                    struct mil_value *fresh)
{
    int64_t dims[4] = {1, c->l->n_kv, c->m->context, c->l->d_head};
    char text[TEXT_ROOM];
    (void)snprintf(text, sizeof(text), "%c_%s", which,
                   c->m->host ? "past" : "state");
    struct mil_value *state = NULL;
    struct mil_value *old = NULL;
    if (c->m->host) {
        old =
            mil_add_input(c->p, c->f, named(c, text), MIL_FP16, 4, dims, 0, 0);
    } else {
        state = mil_add_state(c->p, c->f, named(c, text), 4, dims);
        (void)snprintf(text, sizeof(text), "%c_old", which);
        old = mil_state_read(c->p, c->f, named(c, text), state);
    }
    struct mil_value *put = matmul(c, "put", c->write_mask, fresh, false);
    struct mil_value *kept = binary(c, "mul", "kept", old, c->keep);
    (void)snprintf(text, sizeof(text), "%c_blend", which);
    struct mil_value *blend = binary(c, "add", text, kept, put);
    if (c->m->host) {
        return blend;
    }
    (void)snprintf(text, sizeof(text), "%c_all", which);
    return mil_state_write(c->p, c->f, named(c, text), state, old, blend);
}

/* cap * tanh(scores / cap): the division stands in the queries' scale. */
static struct mil_value *cap_scores(struct ctx *c, struct mil_value *w)
{
    if (c->l->score_cap > 0) {
        w = unary(c, "tanh", "scores_tanh", w);
        w = binary(c, "mul", "scores_capped", w, f16(c, c->l->score_cap));
    }
    return w;
}

/* q [1, n_heads, T, d_head], k and v [1, n_kv, S, d_head] ->
 * [1, n_heads * d_head, T, 1] */
static struct mil_value *attend(struct ctx *c, struct mil_value *q,
                                struct mil_value *k, struct mil_value *v)
{
    int32_t nh = (int32_t)c->l->n_heads;
    int32_t kv = (int32_t)c->l->n_kv;
    int32_t dh = (int32_t)c->l->d_head;
    int32_t s = (int32_t)c->m->context;
    bool grouped = nh != kv;
    if (grouped) {
        q = reshape(c, "q_grouped", q, kv, -1, dh);
    }
    struct mil_value *w = matmul(c, "scores", q, k, true);
    if (grouped) {
        w = reshape(c, "scores_heads", w, nh, -1, s);
    }
    w = cap_scores(c, w);
    w = binary(c, "add", "scores_masked", w, c->kinds[c->l->kind].mask);
    w = mil_op(c->p, c->f, "softmax", named(c, "probs"), "x", w, "axis",
               mil_i32(c->p, c->f, -1), NULL);
    if (grouped) {
        w = reshape(c, "probs_grouped", w, kv, -1, s);
    }
    struct mil_value *a = matmul(c, "values", w, v, false);
    if (grouped) {
        a = reshape(c, "values_heads", a, nh, -1, dh);
    }
    a = swap_last(c, "values_t", a);
    return reshape(c, "attn", a, nh * dh, -1, 1);
}

/* A projection (q or k) as heads, normed and rotated as the layer says; its last
 * op is `final`. */
static struct mil_value *queries(struct ctx *c, char which, const char *final,
                                 struct mil_value *x, enum arch_slot norm,
                                 uint32_t n)
{
    const struct layer *l = c->l;
    const struct mil_const *w = layer_vector(c->w, norm);
    bool head = l->qk_norm == QK_NORM_HEAD;
    bool after = head && l->qk_norm_last;
    bool before = head && !after;
    const char *heads_name = which == 'q' ? "q_heads" : "k_heads";
    const char *norm_name = which == 'q' ? "q_norm" : "k_norm";
    const char *rope_name = which == 'q' ? "q_turned" : "k_turned";
    if (l->qk_norm == QK_NORM_FULL) {
        x = rms_norm(c, norm_name, x, 1, n * l->d_head, 1, w);
    }
    x = heads(c, head || l->rotates ? heads_name : final, x, n);
    if (before) {
        x = rms_norm(c, l->rotates ? norm_name : final, x, 3, l->d_head, 1, w);
    }
    if (l->rotates) {
        x = rope(c, after ? rope_name : final, x);
    }
    return after ? rms_norm(c, final, x, 3, l->d_head, 1, w) : x;
}

float program_query_scale(const struct layer *l)
{
    return l->score_cap > 0 ? l->score_scale / l->score_cap : l->score_scale;
}

/* This layer's keys and values at all positions, into c->all. */
static void make_keys(struct ctx *c, struct mil_value *k, struct mil_value *v)
{
    const struct layer *l = c->l;
    v = heads(c, l->v_norm ? "v_heads" : "v_new", v, l->n_kv);
    if (l->v_norm) {
        v = rms_norm(c, "v_new", v, 3, l->d_head, 1, NULL);
    }
    k = queries(c, 'k', "k_new", k, SLOT_K_NORM, l->n_kv);
    c->news[c->layer][0] = k;
    c->news[c->layer][1] = v;
    c->all[c->layer][0] = keep_cache(c, 'k', k);
    c->all[c->layer][1] = keep_cache(c, 'v', v);
}

static struct mil_value *attention(struct ctx *c, struct mil_value *h)
{
    const struct layer *l = c->l;
    uint32_t from = l->kv_from - c->first;
    struct mil_value *q = project(c, "q", h, SLOT_Q, SLOT_Q_BIAS);
    if (from == c->layer) {
        struct mil_value *k = project(c, "k", h, SLOT_K, SLOT_K_BIAS);
        struct mil_value *v =
            l->v_is_k ? k : project(c, "v", h, SLOT_V, SLOT_V_BIAS);
        make_keys(c, k, v);
    }
    q = queries(c, 'q', "q_rope", q, SLOT_Q_NORM, l->n_heads);
    if (l->qk_norm == QK_NORM_NONE) {
        q = times(c, "q_scaled", q, program_query_scale(l));
    }
    return attend(c, q, c->all[from][0], c->all[from][1]);
}

/* --- a layer --- */

/* What a block reads of the scaled stream. */
static struct mil_value *enter(struct ctx *c, const char *what,
                               struct mil_value *x, enum arch_slot norm)
{
    const struct emit *m = c->m;
    return c->l->pre_norm ? rms_norm(c, what, x, 1, m->d->d_model, m->alpha,
                                     layer_vector(c->w, norm))
                          : times(c, what, x, 1.0f / m->alpha);
}

/* x + what the block made of it, in the scaled stream. */
static struct mil_value *residual(struct ctx *c, const char *what, bool last,
                                  struct mil_value *x, struct mil_value *y,
                                  enum arch_slot post, const char *post_name)
{
    const struct mil_const *w = layer_vector(c->w, post);
    if (w != NULL) { /* alpha and the residual's scale stand in its weight */
        y = rms_norm(c, post_name, y, 1, c->m->d->d_model, 1, w);
    } else {
        y = times(c, "rescaled", y, c->m->alpha * c->l->residual_scale);
    }
    return last_op(c, last, "add", what, x, y);
}

static struct mil_value *activate(struct ctx *c, const char *what,
                                  struct mil_value *g)
{
    return c->l->act == ACT_SILU
               ? unary(c, "silu", what, g)
               : mil_op(c->p, c->f, "gelu", named(c, what), "x", g, "mode",
                        mil_str(c->p, c->f, "TANH_APPROXIMATION"), NULL);
}

static struct mil_value *feed_forward(struct ctx *c, struct mil_value *h)
{
    struct mil_value *g = NULL;
    if (c->l->gated) {
        g = project(c, "gate", h, SLOT_GATE, SLOT_GATE_BIAS);
    }
    struct mil_value *u = project(c, "up", h, SLOT_UP, SLOT_UP_BIAS);
    struct mil_value *a = activate(c, "act", g != NULL ? g : u);
    a = g != NULL ? binary(c, "mul", "act_up", a, u) : a;
    return project(c, "down", a, SLOT_DOWN, SLOT_DOWN_BIAS);
}

/* x + norm(W (act(W x) * e)); e is made of the embedding and of the token's own
 * row for this layer. */
static struct mil_value *per_layer(struct ctx *c, bool last,
                                   struct mil_value *x)
{
    const struct emit *m = c->m;
    int32_t p = (int32_t)c->l->d_ple;
    int32_t at = (int32_t)(c->first + c->layer) * p;
    struct mil_value *e = times(c, "ple_embed", c->x_embed,
                                1.0f / sqrtf((float)m->d->d_model));
    e = project(c, "ple_proj", e, SLOT_PLE_PROJ, SLOT_COUNT);
    e = rms_norm(c, "ple_proj_norm", e, 1, c->l->d_ple, m->alpha,
                 layer_vector(c->w, SLOT_PLE_NORM_IN));
    struct mil_value *token = slice(c, "ple_token", c->ple, 1, at, at + p);
    e = binary(c, "add", "ple_in", e, token);
    struct mil_value *g = project(c, "ple_gate", x, SLOT_PLE_GATE, SLOT_COUNT);
    g = times(c, "ple_unscaled", g, 1.0f / m->alpha);
    g = activate(c, "ple_act", g);
    g = binary(c, "mul", "ple_act_in", g, e);
    g = project(c, "ple_out", g, SLOT_PLE_OUT, SLOT_COUNT);
    g = rms_norm(c, "ple_norm", g, 1, m->d->d_model, 1,
                 layer_vector(c->w, SLOT_PLE_NORM));
    return last_op(c, last, "add", "residual_ple", x, g);
}

static struct mil_value *layer(struct ctx *c, bool last, struct mil_value *x)
{
    bool ple = c->l->d_ple > 0;
    bool scaled = c->l->out_scale != 1.0f;
    struct mil_value *h = enter(c, "attn_norm", x, SLOT_ATTN_NORM);
    struct mil_value *a = attention(c, h);
    a = project(c, "o", a, SLOT_O, SLOT_O_BIAS);
    x = residual(c, "residual_mid", false, x, a, SLOT_POST_ATTN,
                 "post_attn_norm");
    h = enter(c, "ffn_norm", x, SLOT_FFN_NORM);
    x = residual(c, "residual", last && !ple && !scaled, x, feed_forward(c, h),
                 SLOT_POST_FFN, "post_ffn_norm");
    if (ple) {
        x = per_layer(c, last && !scaled, x);
    }
    return scaled ? last_op(c, last, "mul", "scaled", x,
                            f16(c, c->l->out_scale))
                  : x;
}

/* --- functions --- */

static struct mil_value *input(struct ctx *c, const char *name, int rank,
                               const int64_t *dims)
{
    return mil_add_input(c->p, c->f, name, MIL_FP16, rank, dims, 1, EMIT_T_MAX);
}

/* The inputs of the layers [first, last) of one kind. */
static void kind_inputs(struct ctx *c, uint32_t kind, uint32_t last)
{
    const struct decoder *d = c->m->d;
    const char *tail = kind == LAYER_LOCAL ? "_local" : "";
    int64_t table[2] = {c->t, d->kinds[kind].rope_dim / 2};
    int64_t mask[4] = {1, 1, c->t, c->m->context};
    char name[TEXT_ROOM];
    bool any = false;
    bool rotates = false;
    for (uint32_t l = c->first; l < last; l++) {
        bool here = d->layers[l].kind == kind;
        any = any || here;
        rotates = rotates || (here && d->layers[l].rotates);
    }
    if (rotates) {
        (void)snprintf(name, sizeof(name), "rope_cos%s", tail);
        c->kinds[kind].cos = input(c, name, 2, table);
        (void)snprintf(name, sizeof(name), "rope_sin%s", tail);
        c->kinds[kind].sin = input(c, name, 2, table);
    }
    if (any) {
        (void)snprintf(name, sizeof(name), "attn_mask%s", tail);
        c->kinds[kind].mask = input(c, name, 4, mask);
    }
}

/* The write mask, and what it leaves of a state. */
static void write_inputs(struct ctx *c)
{
    int64_t dims[4] = {1, 1, c->m->context, c->t};
    c->write_mask = input(c, "kv_write_mask", 4, dims);
    const int32_t axis = -1;
    struct mil_value *axes = mil_i32s(c->p, c->f, 1, &axis);
    struct mil_value *yes = mil_bool(c->p, c->f, true);
    struct mil_value *taken =
        mil_op(c->p, c->f, "reduce_sum", "kv_taken", "x", c->write_mask, "axes",
               axes, "keep_dims", yes, NULL);
    c->keep =
        mil_op(c->p, c->f, "sub", "kv_keep", "x", f16(c, 1), "y", taken, NULL);
}

static void ple_inputs(struct ctx *c)
{
    const struct decoder *d = c->m->d;
    int64_t embed[4] = {1, d->d_model, c->t, 1};
    int64_t rows[4] = {1, (int64_t)d->n_layers * d->d_ple, c->t, 1};
    c->x_embed = input(c, "x_embed", 4, embed);
    c->ple = input(c, "ple", 4, rows);
}

void program_layers(const struct emit *m, struct mil_program *p,
                    const char *name, int64_t t, uint32_t first, uint32_t last,
                    const struct layer_weights *w)
{
    const struct decoder *d = m->d;
    struct ctx c = {.m = m,
                    .p = p,
                    .f = mil_add_function(p, name),
                    .t = t,
                    .first = first};
    int64_t x_dims[4] = {1, d->d_model, t, 1};
    struct mil_value *x = input(&c, "x", 4, x_dims);
    for (uint32_t kind = 0; kind < LAYER_KINDS; kind++) {
        kind_inputs(&c, kind, last);
    }
    write_inputs(&c);
    if (d->d_ple > 0) {
        ple_inputs(&c);
    }
    c.all = calloc(last - first, sizeof(*c.all));
    c.news = calloc(last - first, sizeof(*c.news));
    must(c.all != NULL && c.news != NULL);
    for (uint32_t l = first; l < last; l++) {
        c.layer = l - first;
        c.l = &d->layers[l];
        c.w = &w[c.layer];
        x = layer(&c, l + 1 == last, x);
    }
    mil_add_output(p, c.f, x);
    for (uint32_t i = 0; m->host && i < last - first; i++) {
        for (size_t k = 0; k < 2 && c.news[i][k] != NULL; k++) {
            mil_add_output(p, c.f, c.news[i][k]);
        }
    }
    free(c.all);
    free(c.news);
}

/* The logits' scale, and the division of a cap, stand in the norm's weight. */
float program_head_gain(const struct decoder *d)
{
    return d->logit_cap > 0 ? d->logit_scale / d->logit_cap : d->logit_scale;
}

void program_head(const struct emit *m, struct mil_program *p,
                  const struct weight *head, const struct mil_const *norm)
{
    const struct decoder *d = m->d;
    struct ctx c = {
        .m = m, .p = p, .f = mil_add_function(p, "main"), .t = MIL_UNKNOWN};
    int64_t dims[4] = {1, d->d_model, MIL_UNKNOWN, 1};
    bool cap = d->logit_cap > 0;
    struct mil_value *x = input(&c, "x", 4, dims);
    x = rms_norm(&c, "out_norm", x, 1, d->d_model, m->alpha, norm);
    struct mil_value *weight = weights_value(p, c.f, "head_weight", head);
    struct mil_value *y = mil_conv1x1(p, c.f, cap ? "logits_raw" : "logits", x,
                                      weight, NULL);
    if (cap) {
        y = mil_op(p, c.f, "tanh", "logits_tanh", "x", y, NULL);
        y = mil_op(p, c.f, "mul", "logits", "x", y, "y", f16(&c, d->logit_cap),
                   NULL);
    }
    mil_add_output(p, c.f, y);
}
