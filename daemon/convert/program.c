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

/* What a layer reads beside x, one set for global and one for local layers. */
struct kind {
    struct mil_value *cos, *sin, *mask;
};

/* One function under construction. */
struct ctx {
    const struct emit *m;
    struct mil_program *p;
    struct mil_function *f;
    int64_t t;      /* rows, or MIL_UNKNOWN */
    uint32_t layer; /* from 0 in the shard, for names */
    char name[NAME_ROOM];
    struct kind global, local;
    struct mil_value *write_mask; /* [1, 1, S, T] */
    struct mil_value *keep;       /* [1, 1, S, 1] */
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

/* x[..., from:to] */
static struct mil_value *slice_last(struct ctx *c, const char *what,
                                    struct mil_value *x, int32_t from,
                                    int32_t to)
{
    const int32_t begin[4] = {0, 0, 0, from};
    const int32_t end[4] = {0, 0, 0, to};
    const int32_t stride[4] = {1, 1, 1, 1};
    const bool whole[4] = {true, true, true, false};
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

static struct mil_value *project(struct ctx *c, const char *what,
                                 struct mil_value *x, const struct weight *w,
                                 const struct mil_const *bias)
{
    char text[TEXT_ROOM];
    (void)snprintf(text, sizeof(text), "%s_weight", what);
    struct mil_value *weight = weights_value(c->p, c->f, named(c, text), w);
    struct mil_value *b = NULL;
    if (bias != NULL) {
        (void)snprintf(text, sizeof(text), "%s_bias", what);
        b = constant(c, text, bias);
    }
    return mil_conv1x1(c->p, c->f, named(c, what), x, weight, b);
}

/* --- norms --- */

/* RMSNorm over `axis` of d elements. The weight holds the gain. */
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
    (void)snprintf(text, sizeof(text), "%s_weight", what);
    return binary(c, "mul", what, y, constant(c, text, weight));
}

/* --- attention --- */

/* Rotate-half over the first rope_dim elements of x [1, n, T, d_head]. */
static struct mil_value *rope(struct ctx *c, const char *what,
                              const struct kind *k, struct mil_value *x)
{
    const struct decoder *d = c->m->d;
    int32_t half = (int32_t)d->rope_dim / 2;
    struct mil_value *part[3] = {NULL, NULL, NULL};
    size_t n = 2;
    if (d->rope_dim == d->d_head) {
        mil_split(c->p, c->f, named(c, "rope_half"), x, 2, 3, part);
    } else {
        part[0] = slice_last(c, "rope_low", x, 0, half);
        part[1] = slice_last(c, "rope_high", x, half, 2 * half);
        part[2] = slice_last(c, "rope_rest", x, 2 * half, (int32_t)d->d_head);
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
        reshape(c, "heads", x, (int32_t)n, (int32_t)c->m->d->d_head, -1);
    return swap_last(c, what, h);
}

/* Write `fresh` [1, n_kv, T, d_head] and give all positions back. */
static struct mil_value *keep_cache(struct ctx *c, char which,
                                    struct mil_value *fresh)
{
    const struct decoder *d = c->m->d;
    int64_t dims[4] = {1, d->n_kv, c->m->context, d->d_head};
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

/* q [1, n_heads, T, d_head], k and v [1, n_kv, S, d_head] ->
 * [1, n_heads * d_head, T, 1] */
static struct mil_value *attend(struct ctx *c, const struct kind *kind,
                                struct mil_value *q, struct mil_value *k,
                                struct mil_value *v)
{
    const struct decoder *d = c->m->d;
    int32_t nh = (int32_t)d->n_heads;
    int32_t kv = (int32_t)d->n_kv;
    int32_t dh = (int32_t)d->d_head;
    int32_t s = (int32_t)c->m->context;
    bool grouped = nh != kv;
    if (grouped) {
        q = reshape(c, "q_grouped", q, kv, -1, dh);
    }
    struct mil_value *w = matmul(c, "scores", q, k, true);
    if (grouped) {
        w = reshape(c, "scores_heads", w, nh, -1, s);
    }
    w = binary(c, "add", "scores_masked", w, kind->mask);
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

static struct mil_value *attention(struct ctx *c, const struct layer_weights *w,
                                   const struct kind *kind, struct mil_value *h,
                                   struct mil_value *news[2])
{
    const struct decoder *d = c->m->d;
    struct mil_value *q = project(c, "q", h, &w->q, w->q_bias);
    struct mil_value *k = project(c, "k", h, &w->k, w->k_bias);
    struct mil_value *v = project(c, "v", h, &w->v, w->v_bias);
    q = heads(c, "q_heads", q, d->n_heads);
    k = heads(c, "k_heads", k, d->n_kv);
    v = heads(c, "v_new", v, d->n_kv);
    if (w->q_norm != NULL) { /* its weight holds score_scale too */
        q = rms_norm(c, "q_norm", q, 3, d->d_head, 1, w->q_norm);
    }
    if (w->k_norm != NULL) {
        k = rms_norm(c, "k_norm", k, 3, d->d_head, 1, w->k_norm);
    }
    q = rope(c, "q_rope", kind, q);
    k = rope(c, "k_new", kind, k);
    if (w->q_norm == NULL) {
        q = binary(c, "mul", "q_scaled", q, f16(c, d->score_scale));
    }
    news[0] = k;
    news[1] = v;
    struct mil_value *keys = keep_cache(c, 'k', k);
    struct mil_value *values = keep_cache(c, 'v', v);
    return attend(c, kind, q, keys, values);
}

/* --- a layer --- */

/* x + what the block made of it, in the scaled stream. */
static struct mil_value *residual(struct ctx *c, const char *what,
                                  struct mil_value *x, struct mil_value *y,
                                  const struct mil_const *post,
                                  const char *post_name)
{
    if (post != NULL) { /* alpha stands in its weight */
        y = rms_norm(c, post_name, y, 1, c->m->d->d_model, 1, post);
    } else if (c->m->alpha != 1.0f) {
        y = binary(c, "mul", "rescaled", y, f16(c, c->m->alpha));
    }
    return binary(c, "add", what, x, y);
}

static struct mil_value *layer(struct ctx *c, const struct layer_weights *w,
                               bool local, bool last, struct mil_value *x,
                               struct mil_value *news[2])
{
    const struct emit *m = c->m;
    const struct decoder *d = m->d;
    struct mil_value *h =
        rms_norm(c, "attn_norm", x, 1, d->d_model, m->alpha, w->attn_norm);
    struct mil_value *a =
        attention(c, w, local ? &c->local : &c->global, h, news);
    a = project(c, "o", a, &w->o, w->o_bias);
    x = residual(c, "residual_mid", x, a, w->post_attn, "post_attn_norm");
    h = rms_norm(c, "ffn_norm", x, 1, d->d_model, m->alpha, w->ffn_norm);
    struct mil_value *g = project(c, "gate", h, &w->gate, NULL);
    struct mil_value *u = project(c, "up", h, &w->up, NULL);
    if (d->arch->act == ARCH_SILU) {
        g = unary(c, "silu", "act", g);
    } else {
        g = mil_op(c->p, c->f, "gelu", named(c, "act"), "x", g, "mode",
                   mil_str(c->p, c->f, "TANH_APPROXIMATION"), NULL);
    }
    struct mil_value *y =
        project(c, "down", binary(c, "mul", "act_up", g, u), &w->down, NULL);
    if (!last) {
        return residual(c, "residual", x, y, w->post_ffn, "post_ffn_norm");
    }
    /* The output's name is the contract's. */
    if (w->post_ffn != NULL) {
        y = rms_norm(c, "post_ffn_norm", y, 1, d->d_model, 1, w->post_ffn);
    } else if (m->alpha != 1.0f) {
        y = binary(c, "mul", "rescaled", y, f16(c, m->alpha));
    }
    return mil_op(c->p, c->f, "add", "hidden", "x", x, "y", y, NULL);
}

/* --- functions --- */

static struct mil_value *input(struct ctx *c, const char *name, int rank,
                               const int64_t *dims)
{
    return mil_add_input(c->p, c->f, name, MIL_FP16, rank, dims, 1, EMIT_T_MAX);
}

static struct kind kind_inputs(struct ctx *c, const char *tail)
{
    int64_t table[2] = {c->t, c->m->d->rope_dim / 2};
    int64_t mask[4] = {1, 1, c->t, c->m->context};
    char name[TEXT_ROOM];
    struct kind k = {0};
    (void)snprintf(name, sizeof(name), "rope_cos%s", tail);
    k.cos = input(c, name, 2, table);
    (void)snprintf(name, sizeof(name), "rope_sin%s", tail);
    k.sin = input(c, name, 2, table);
    (void)snprintf(name, sizeof(name), "attn_mask%s", tail);
    k.mask = input(c, name, 4, mask);
    return k;
}

void program_layers(const struct emit *m, struct mil_program *p,
                    const char *name, int64_t t, uint32_t first, uint32_t last,
                    const struct layer_weights *w)
{
    const struct decoder *d = m->d;
    struct ctx c = {.m = m, .p = p, .f = mil_add_function(p, name), .t = t};
    int64_t x_dims[4] = {1, d->d_model, t, 1};
    int64_t w_dims[4] = {1, 1, m->context, t};
    bool any_local = false;
    bool any_global = false;
    for (uint32_t l = first; l < last; l++) {
        any_local = any_local || arch_local(d, l);
        any_global = any_global || !arch_local(d, l);
    }
    struct mil_value *x = input(&c, "x", 4, x_dims);
    if (any_global) {
        c.global = kind_inputs(&c, "");
    }
    if (any_local) {
        c.local = kind_inputs(&c, "_local");
    }
    c.write_mask = input(&c, "kv_write_mask", 4, w_dims);
    const int32_t axis = -1;
    struct mil_value *axes = mil_i32s(p, c.f, 1, &axis);
    struct mil_value *yes = mil_bool(p, c.f, true);
    struct mil_value *taken =
        mil_op(p, c.f, "reduce_sum", "kv_taken", "x", c.write_mask, "axes",
               axes, "keep_dims", yes, NULL);
    c.keep =
        mil_op(p, c.f, "sub", "kv_keep", "x", f16(&c, 1), "y", taken, NULL);
    struct mil_value *(*news)[2] = calloc(last - first, sizeof(*news));
    must(news != NULL);
    for (uint32_t l = first; l < last; l++) {
        c.layer = l - first;
        x = layer(&c, &w[c.layer], arch_local(d, l), l + 1 == last, x,
                  news[c.layer]);
    }
    mil_add_output(p, c.f, x);
    for (uint32_t i = 0; m->host && i < last - first; i++) {
        mil_add_output(p, c.f, news[i][0]);
        mil_add_output(p, c.f, news[i][1]);
    }
    free(news);
}

void program_head(const struct emit *m, struct mil_program *p,
                  const struct weight *head, const struct mil_const *norm)
{
    const struct decoder *d = m->d;
    struct ctx c = {
        .m = m, .p = p, .f = mil_add_function(p, "main"), .t = MIL_UNKNOWN};
    int64_t dims[4] = {1, d->d_model, MIL_UNKNOWN, 1};
    struct mil_value *x = input(&c, "x", 4, dims);
    x = rms_norm(&c, "out_norm", x, 1, d->d_model, m->alpha, norm);
    struct mil_value *weight = weights_value(p, c.f, "head_weight", head);
    mil_add_output(p, c.f, mil_conv1x1(p, c.f, "logits", x, weight, NULL));
}
