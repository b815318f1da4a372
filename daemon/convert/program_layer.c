/* program_layer.c - a layer: its blocks, and what joins them to the stream. */
#include "convert/program_impl.h"

struct mil_value *draw_enter(struct ctx *c, const char *what,
                             struct mil_value *x, enum arch_slot norm)
{
    const struct emit *m = c->m;
    return c->l->pre_norm ? draw_norm(c, what, x, 1, m->d->d_model, m->alpha,
                                      layer_vector(c->w, norm))
                          : draw_times(c, what, x, 1.0f / m->alpha);
}

/* (y + a) * b + (x + c) * d: x is scaled, the scale of y and what is added stand
 * in the constants. */
static struct mil_value *join(struct ctx *c, const char *what, bool last,
                              struct mil_value *x, struct mil_value *y,
                              bool ffn)
{
    const struct mil_const *const *k =
        &c->w->extra[ffn ? EXTRA_JOIN_FFN : EXTRA_JOIN_ATTN];
    const char *names[3] = {ffn ? "join_ffn_x" : "join_attn_x",
                            ffn ? "join_ffn_y" : "join_attn_y",
                            ffn ? "join_ffn_c" : "join_attn_c"};
    struct mil_value *by = draw_constant(c, names[0], k[0]);
    x = draw_binary(c, "mul", "joined_x", x, by);
    by = draw_constant(c, names[1], k[1]);
    y = draw_binary(c, "mul", "joined_y", y, by);
    y = draw_binary(c, "add", "joined", y, draw_constant(c, names[2], k[2]));
    return draw_last(c, last, "add", what, x, y);
}

/* LayerNorm of x, which is scaled: its weight and bias hold alpha. */
static struct mil_value *layer_norm(struct ctx *c, const char *what, bool last,
                                    struct mil_value *x, enum arch_slot slot,
                                    enum arch_slot bias)
{
    char text[TEXT_ROOM];
    (void)snprintf(text, sizeof(text), "%s_mean", what);
    struct mil_value *y = draw_reduce(c, "reduce_mean", text, x, 1);
    (void)snprintf(text, sizeof(text), "%s_centred", what);
    y = draw_binary(c, "sub", text, x, y);
    (void)snprintf(text, sizeof(text), "%s_scaled", what);
    y = draw_norm(c, text, y, 1, c->m->d->d_model, c->m->alpha,
                  layer_vector(c->w, slot));
    (void)snprintf(text, sizeof(text), "%s_bias", what);
    struct mil_value *b = draw_constant(c, text, layer_vector(c->w, bias));
    return draw_last(c, last, "add", what, y, b);
}

struct mil_value *draw_embedding(struct ctx *c, struct mil_value *x)
{
    const struct mil_const *type = layer_vector(c->w, SLOT_TYPES);
    if (type != NULL) {
        x = draw_binary(c, "add", "embed_typed", x,
                        draw_constant(c, "embed_type", type));
    }
    return layer_norm(c, "embed_norm", false, x, SLOT_EMBD_NORM,
                      SLOT_EMBD_NORM_BIAS);
}

/* LayerNorm of the sum of x and what the block made of it. */
static struct mil_value *join_norm(struct ctx *c, const char *what, bool last,
                                   struct mil_value *x, struct mil_value *y,
                                   bool ffn)
{
    y = draw_times(c, "rescaled", y, c->m->alpha * c->l->residual_scale);
    x = draw_binary(c, "add", ffn ? "sum_ffn" : "sum_attn", x, y);
    return layer_norm(c, what, last, x, ffn ? SLOT_POST_FFN : SLOT_POST_ATTN,
                      ffn ? SLOT_POST_FFN_BIAS : SLOT_POST_ATTN_BIAS);
}

/* x + what the block made of it, in the scaled stream. */
static struct mil_value *residual(struct ctx *c, const char *what, bool last,
                                  struct mil_value *x, struct mil_value *y,
                                  enum arch_slot post, const char *post_name)
{
    const struct mil_const *w = layer_vector(c->w, post);
    if (c->l->affine_join) {
        return join(c, what, last, x, y, post == SLOT_POST_FFN);
    }
    if (c->l->sum_norm) {
        return join_norm(c, what, last, x, y, post == SLOT_POST_FFN);
    }
    if (w != NULL) { /* alpha and the residual's scale stand in its weight */
        y = draw_norm(c, post_name, y, 1, c->m->d->d_model, 1, w);
    } else {
        y = draw_times(c, "rescaled", y, c->m->alpha * c->l->residual_scale);
    }
    return draw_last(c, last, "add", what, x, y);
}

struct mil_value *draw_activation(struct ctx *c, const char *what,
                                  struct mil_value *g)
{
    if (c->l->act == ACT_SILU) {
        return draw_unary(c, "silu", what, g);
    }
    const char *mode =
        c->l->act == ACT_GELU_ERF ? "EXACT" : "TANH_APPROXIMATION";
    return mil_op(c->p, c->f, "gelu", draw_named(c, what), "x", g, "mode",
                  mil_str(c->p, c->f, mode), NULL);
}

static struct mil_value *feed_forward(struct ctx *c, struct mil_value *h)
{
    struct mil_value *g = NULL;
    if (c->l->gated) {
        g = draw_project(c, "gate", h, SLOT_GATE, SLOT_GATE_BIAS);
    }
    struct mil_value *u = draw_project(c, "up", h, SLOT_UP, SLOT_UP_BIAS);
    struct mil_value *a = draw_activation(c, "act", g != NULL ? g : u);
    a = g != NULL ? draw_binary(c, "mul", "act_up", a, u) : a;
    return draw_project(c, "down", a, SLOT_DOWN, SLOT_DOWN_BIAS);
}

/* x + norm(W (act(W x) * e)); e is made of the embedding and of the token's own
 * row for this layer. */
static struct mil_value *per_layer(struct ctx *c, bool last,
                                   struct mil_value *x)
{
    const struct emit *m = c->m;
    int32_t p = (int32_t)c->l->d_ple;
    int32_t at = (int32_t)ctx_layer(c) * p;
    struct mil_value *e = draw_times(c, "ple_embed", c->x_embed,
                                     1.0f / sqrtf((float)m->d->d_model));
    e = draw_project(c, "ple_proj", e, SLOT_PLE_PROJ, SLOT_COUNT);
    e = draw_norm(c, "ple_proj_norm", e, 1, c->l->d_ple, m->alpha,
                  layer_vector(c->w, SLOT_PLE_NORM_IN));
    struct mil_value *token = draw_slice(c, "ple_token", c->ple, 1, at, at + p);
    e = draw_binary(c, "add", "ple_in", e, token);
    struct mil_value *g =
        draw_project(c, "ple_gate", x, SLOT_PLE_GATE, SLOT_COUNT);
    g = draw_times(c, "ple_unscaled", g, 1.0f / m->alpha);
    g = draw_activation(c, "ple_act", g);
    g = draw_binary(c, "mul", "ple_act_in", g, e);
    g = draw_project(c, "ple_out", g, SLOT_PLE_OUT, SLOT_COUNT);
    g = draw_norm(c, "ple_norm", g, 1, m->d->d_model, 1,
                  layer_vector(c->w, SLOT_PLE_NORM));
    return draw_last(c, last, "add", "residual_ple", x, g);
}

/* x after the layer, whose feed-forward or experts gave y. */
static struct mil_value *leave(struct ctx *c, bool last, struct mil_value *x,
                               struct mil_value *y)
{
    bool ple = c->l->d_ple > 0;
    bool scaled = c->l->out_scale != 1.0f;
    x = residual(c, "residual", last && !ple && !scaled, x, y, SLOT_POST_FFN,
                 "post_ffn_norm");
    if (ple) {
        x = per_layer(c, last && !scaled, x);
    }
    return scaled ? draw_last(c, last, "mul", "scaled", x,
                              draw_f16(c, c->l->out_scale))
                  : x;
}

struct mil_value *draw_join(struct ctx *c, bool last, struct mil_value *x,
                            struct mil_value *y)
{
    if (c->l->expert_branch) {
        struct mil_value *h = draw_enter(c, "ffn_norm", x, SLOT_FFN_NORM);
        y = draw_branches(c, y, feed_forward(c, h));
    }
    return leave(c, last, x, y);
}

struct mil_value *draw_layer(struct ctx *c, bool last, struct mil_value *x)
{
    struct mil_value *h = draw_enter(c, "attn_norm", x, SLOT_ATTN_NORM);
    struct mil_value *y = NULL;
    if (c->l->mixer == MIXER_CONV) {
        y = draw_conv(c, h);
        y = draw_project(c, "conv_out", y, SLOT_CONV_OUT, SLOT_COUNT);
    } else {
        y = draw_attention(c, h);
        y = draw_project(c, "o", y, SLOT_O, SLOT_O_BIAS);
    }
    x = residual(c, "residual_mid", c->l->sparse, x, y, SLOT_POST_ATTN,
                 "post_attn_norm");
    if (c->l->sparse) {
        must(last); /* the plan ends a program here */
        draw_router(c, x);
        return x;
    }
    h = draw_enter(c, "ffn_norm", x, SLOT_FFN_NORM);
    y = c->l->d_ff > 0 ? feed_forward(c, h) : NULL;
    if (c->l->n_experts > 0) {
        struct mil_value *dense = y;
        y = draw_experts(c, x, h);
        y = c->l->expert_branch ? draw_branches(c, y, dense) : y;
    }
    return leave(c, last, x, y);
}
