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

/* What is kept so far: the state "STEM_k_state", or the input "STEM_k_past". */
static struct mil_value *open_cache(struct ctx *c, const char *stem, char which,
                                    struct mil_value **state)
{
    int64_t dims[4] = {1, c->l->n_kv, c->m->context, c->l->d_head};
    char name[NAME_ROOM];
    char text[TEXT_ROOM];
    (void)snprintf(name, sizeof(name), "%s_%c_%s", stem, which,
                   c->m->host ? "past" : "state");
    if (c->m->host) {
        return c->t == MIL_UNKNOWN
                   ? mil_add_fixed(c->p, c->f, name, MIL_FP16, 4, dims)
                   : mil_add_input(c->p, c->f, name, MIL_FP16, 4, dims, 0, 0);
    }
    *state = mil_add_state(c->p, c->f, name, 4, dims);
    (void)snprintf(text, sizeof(text), "%c_old", which);
    return mil_state_read(c->p, c->f, draw_named(c, text), *state);
}

/* Write `fresh` [1, n_kv, T, d_head] and give all positions back. */
static struct mil_value *keep_cache(struct ctx *c, const char *stem, char which,
                                    struct mil_value *fresh)
{
    char text[TEXT_ROOM];
    struct mil_value *state = NULL;
    struct mil_value *old = open_cache(c, stem, which, &state);
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

float program_query_scale(const struct layer *l)
{
    return l->score_cap > 0 ? l->score_scale / l->score_cap : l->score_scale;
}

/* The factor of alpha with which epsilon is the least number of fp16: the model
 * has none here, but a row of zeros must stay one. */
static float bare(const struct ctx *c)
{
    return sqrtf(0x1p-24f / c->m->d->norm_eps);
}

/* MIXER_CCA's queries or keys as heads: divided by their root mean square, times
 * a factor, rotated. */
static struct mil_value *cca_heads(struct ctx *c, char which,
                                   struct mil_value *x, uint32_t n)
{
    bool q = which == 'q';
    x = heads(c, q ? "q_heads" : "k_heads", x, n);
    x = draw_norm(c, q ? "q_norm" : "k_norm", x, 3, c->l->d_head, bare(c),
                  NULL);
    struct mil_value *by =
        q ? draw_f16(c, program_query_scale(c->l))
          : draw_constant(c, "k_scale", layer_vector(c->w, SLOT_K_SCALE));
    x = draw_binary(c, "mul", q ? "q_scaled" : "k_scaled", x, by);
    return rope(c, q ? "q_rope" : "k_new", x);
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

/* This layer's keys and values at all positions, into c->all. */
static void make_keys(struct ctx *c, struct mil_value *k, struct mil_value *v)
{
    const struct layer *l = c->l;
    char stem[TEXT_ROOM];
    v = heads(c, l->v_norm ? "v_heads" : "v_new", v, l->n_kv);
    if (l->v_norm) {
        v = draw_norm(c, "v_new", v, 3, l->d_head, 1, NULL);
    }
    k = l->mixer == MIXER_CCA
            ? cca_heads(c, 'k', k, l->n_kv)
            : queries(c, 'k', "k_new", k, SLOT_K_NORM, l->n_kv);
    c->news[l->kv_from][0] = k;
    c->news[l->kv_from][1] = v;
    (void)snprintf(stem, sizeof(stem), "layers_%u", c->layer);
    c->all[l->kv_from][0] = keep_cache(c, stem, 'k', k);
    c->all[l->kv_from][1] = keep_cache(c, stem, 'v', v);
}

static const char *const port_names[LAYER_PORTS] = {
    [PORT_KEYS] = "k", [PORT_VALUES] = "v", [PORT_ROUTER] = "router"};

void program_gives_name(uint32_t first, uint32_t l, enum layer_port what,
                        char out[PROGRAM_PORT_MAX])
{
    (void)snprintf(out, PROGRAM_PORT_MAX, "layers_%u_%s_new", l - first,
                   port_names[what]);
}

void program_takes_name(uint32_t l, enum layer_port what,
                        char out[PROGRAM_PORT_MAX])
{
    (void)snprintf(out, PROGRAM_PORT_MAX, "shared_%u_%s_new", l,
                   port_names[what]);
}

bool program_gives(const struct decoder *d, enum layer_port what, uint32_t l,
                   uint32_t last)
{
    return layer_port_read_by(d->layers, what, l, last, d->n_layers);
}

/* Keys and values of a layer in an earlier program, into c->all: kept by this
 * program too. */
static void take_keys(struct ctx *c)
{
    const struct layer *l = c->l;
    int64_t dims[4] = {1, l->n_kv, c->t, l->d_head};
    char stem[TEXT_ROOM];
    (void)snprintf(stem, sizeof(stem), "shared_%u", l->kv_from);
    for (size_t i = 0; i < 2; i++) {
        char name[PROGRAM_PORT_MAX];
        program_takes_name(l->kv_from, i == 1 ? PORT_VALUES : PORT_KEYS, name);
        struct mil_value *fresh = draw_input(c, name, 4, dims);
        c->all[l->kv_from][i] = keep_cache(c, stem, "kv"[i], fresh);
    }
}

/* Queries, keys and values of an encoder's layer, which keeps none. */
static struct mil_value *both_sides(struct ctx *c, struct mil_value *h)
{
    const struct layer *l = c->l;
    struct mil_value *q = draw_project(c, "q", h, SLOT_Q, SLOT_Q_BIAS);
    struct mil_value *k = draw_project(c, "k", h, SLOT_K, SLOT_K_BIAS);
    struct mil_value *v = draw_project(c, "v", h, SLOT_V, SLOT_V_BIAS);
    v = heads(c, "v_new", v, l->n_kv);
    k = queries(c, 'k', "k_new", k, SLOT_K_NORM, l->n_kv);
    q = queries(c, 'q', "q_rope", q, SLOT_Q_NORM, l->n_heads);
    if (l->qk_norm == QK_NORM_NONE) {
        q = draw_times(c, "q_scaled", q, program_query_scale(l));
    }
    return c->m->d->kinds[l->kind].window > 0 ? draw_band(c, q, k, v)
                                              : draw_whole(c, q, k, v);
}

struct mil_value *draw_attention(struct ctx *c, struct mil_value *h)
{
    const struct layer *l = c->l;
    if (l->both_sides) {
        return both_sides(c, h);
    }
    struct mil_value *const *all = c->all[l->kv_from];
    if (l->mixer == MIXER_CCA) {
        struct mil_value *x[3];
        draw_cca(c, h, &x[0], &x[1], &x[2]);
        make_keys(c, x[1], x[2]);
        x[0] = cca_heads(c, 'q', x[0], l->n_heads);
        return attend(c, x[0], all[0], all[1]);
    }
    struct mil_value *q = draw_project(c, "q", h, SLOT_Q, SLOT_Q_BIAS);
    if (l->kv_from == c->first + c->layer) {
        struct mil_value *k = draw_project(c, "k", h, SLOT_K, SLOT_K_BIAS);
        struct mil_value *v =
            l->v_is_k ? k : draw_project(c, "v", h, SLOT_V, SLOT_V_BIAS);
        make_keys(c, k, v);
    } else if (all[0] == NULL) {
        take_keys(c);
    }
    q = queries(c, 'q', "q_rope", q, SLOT_Q_NORM, l->n_heads);
    if (l->qk_norm == QK_NORM_NONE) {
        q = draw_times(c, "q_scaled", q, program_query_scale(l));
    }
    return attend(c, q, all[0], all[1]);
}
