/* program_attention.c - queries, keys, values, and where keys and values are
 * kept. */
#include "convert/program_impl.h"

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
        mil_split(c->p, c->f, draw_named(c, "rope_half"), x, 2, 3, part);
    } else {
        part[0] = draw_slice(c, "rope_low", x, 3, 0, half);
        part[1] = draw_slice(c, "rope_high", x, 3, half, 2 * half);
        part[2] =
            draw_slice(c, "rope_rest", x, 3, 2 * half, (int32_t)c->l->d_head);
        n = 3;
    }
    struct mil_value *a =
        draw_binary(c, "mul", "rope_low_cos", part[0], k->cos);
    struct mil_value *b =
        draw_binary(c, "mul", "rope_high_sin", part[1], k->sin);
    struct mil_value *low = draw_binary(c, "sub", "rope_new_low", a, b);
    a = draw_binary(c, "mul", "rope_high_cos", part[1], k->cos);
    b = draw_binary(c, "mul", "rope_low_sin", part[0], k->sin);
    struct mil_value *high = draw_binary(c, "add", "rope_new_high", a, b);
    struct mil_value *all[3] = {low, high, part[2]};
    return mil_concat(c->p, c->f, draw_named(c, what), n, all, 3);
}

/* [1, n * d_head, T, 1] -> [1, n, T, d_head] */
static struct mil_value *heads(struct ctx *c, const char *what,
                               struct mil_value *x, uint32_t n)
{
    struct mil_value *h =
        draw_reshape(c, "heads", x, (int32_t)n, (int32_t)c->l->d_head, -1);
    return draw_swap(c, what, h);
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
    if (c->m->host && c->t == MIL_UNKNOWN) {
        old = mil_add_fixed(c->p, c->f, draw_named(c, text), MIL_FP16, 4, dims);
    } else if (c->m->host) {
        old = mil_add_input(c->p, c->f, draw_named(c, text), MIL_FP16, 4, dims,
                            0, 0);
    } else {
        state = mil_add_state(c->p, c->f, draw_named(c, text), 4, dims);
        (void)snprintf(text, sizeof(text), "%c_old", which);
        old = mil_state_read(c->p, c->f, draw_named(c, text), state);
    }
    struct mil_value *put = draw_matmul(c, "put", c->write_mask, fresh, false);
    struct mil_value *kept = draw_binary(c, "mul", "kept", old, c->keep);
    (void)snprintf(text, sizeof(text), "%c_blend", which);
    struct mil_value *blend = draw_binary(c, "add", text, kept, put);
    if (c->m->host) {
        return blend;
    }
    (void)snprintf(text, sizeof(text), "%c_all", which);
    return mil_state_write(c->p, c->f, draw_named(c, text), state, old, blend);
}

/* cap * tanh(scores / cap): the division stands in the queries' scale. */
static struct mil_value *cap_scores(struct ctx *c, struct mil_value *w)
{
    if (c->l->score_cap > 0) {
        w = draw_unary(c, "tanh", "scores_tanh", w);
        w = draw_binary(c, "mul", "scores_capped", w,
                        draw_f16(c, c->l->score_cap));
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
        q = draw_reshape(c, "q_grouped", q, kv, -1, dh);
    }
    struct mil_value *w = draw_matmul(c, "scores", q, k, true);
    if (grouped) {
        w = draw_reshape(c, "scores_heads", w, nh, -1, s);
    }
    w = cap_scores(c, w);
    w = draw_binary(c, "add", "scores_masked", w, c->kinds[c->l->kind].mask);
    w = mil_op(c->p, c->f, "softmax", draw_named(c, "probs"), "x", w, "axis",
               mil_i32(c->p, c->f, -1), NULL);
    if (grouped) {
        w = draw_reshape(c, "probs_grouped", w, kv, -1, s);
    }
    struct mil_value *a = draw_matmul(c, "values", w, v, false);
    if (grouped) {
        a = draw_reshape(c, "values_heads", a, nh, -1, dh);
    }
    a = draw_swap(c, "values_t", a);
    return draw_reshape(c, "attn", a, nh * dh, -1, 1);
}

/* A projection (q or k) as heads, normed and rotated as the layer says; its
 * last op is `final`. */
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
        x = draw_norm(c, norm_name, x, 1, n * l->d_head, 1, w);
    }
    x = heads(c, head || l->rotates ? heads_name : final, x, n);
    if (before) {
        x = draw_norm(c, l->rotates ? norm_name : final, x, 3, l->d_head, 1, w);
    }
    if (l->rotates) {
        x = rope(c, after ? rope_name : final, x);
    }
    return after ? draw_norm(c, final, x, 3, l->d_head, 1, w) : x;
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
        v = draw_norm(c, "v_new", v, 3, l->d_head, 1, NULL);
    }
    k = queries(c, 'k', "k_new", k, SLOT_K_NORM, l->n_kv);
    c->news[c->layer][0] = k;
    c->news[c->layer][1] = v;
    c->all[c->layer][0] = keep_cache(c, 'k', k);
    c->all[c->layer][1] = keep_cache(c, 'v', v);
}

struct mil_value *draw_attention(struct ctx *c, struct mil_value *h)
{
    const struct layer *l = c->l;
    uint32_t from = l->kv_from - c->first;
    struct mil_value *q = draw_project(c, "q", h, SLOT_Q, SLOT_Q_BIAS);
    if (from == c->layer) {
        struct mil_value *k = draw_project(c, "k", h, SLOT_K, SLOT_K_BIAS);
        struct mil_value *v =
            l->v_is_k ? k : draw_project(c, "v", h, SLOT_V, SLOT_V_BIAS);
        make_keys(c, k, v);
    }
    q = queries(c, 'q', "q_rope", q, SLOT_Q_NORM, l->n_heads);
    if (l->qk_norm == QK_NORM_NONE) {
        q = draw_times(c, "q_scaled", q, program_query_scale(l));
    }
    return attend(c, q, c->all[from][0], c->all[from][1]);
}
