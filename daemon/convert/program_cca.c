/* program_cca.c - queries and keys that are mixed along positions, and values of
 * two positions (model/layer.h, MIXER_CCA).
 *
 *   q0, k0 ── concat ──► output ..._cca_new
 *   input ..._cca_tail ── concat ── depthwise conv ── conv, a group a head ── +
 *   q0 and k0 of the same heads, halved
 *   half of v ──► output ..._value_new; input ..._value_tail ── the position
 *   before: a depthwise conv with the taps 1, 0, which is exact
 */
#include "convert/program_impl.h"

#define HEADS_MAX 256u /* of a layer; split and joined one by one */

/* The heads of x, channels [1, n * d_head, T, 1]. */
static void split_heads(struct ctx *c, const char *what, struct mil_value *x,
                        uint32_t n, struct mil_value **ret)
{
    if (n == 1) {
        ret[0] = x;
        return;
    }
    mil_split(c->p, c->f, draw_named(c, what), x, n, 1, ret);
}

static struct mil_value *join_heads(struct ctx *c, const char *what,
                                    struct mil_value *const *x, uint32_t n)
{
    return n == 1 ? x[0]
                  : mil_concat(c->p, c->f, draw_named(c, what), n, x, 1);
}

/* Half of q0 and of the keys of its group; half of k0 and of its queries' mean. */
static void shares(struct ctx *c, struct mil_value *q0, struct mil_value *k0,
                   struct mil_value **q, struct mil_value **k)
{
    uint32_t n = c->l->n_heads;
    uint32_t kv = c->l->n_kv;
    uint32_t group = n / kv;
    struct mil_value *of_q[HEADS_MAX];
    struct mil_value *of_k[HEADS_MAX];
    struct mil_value *spread[HEADS_MAX];
    struct mil_value *mean[HEADS_MAX];
    must(n <= HEADS_MAX);
    split_heads(c, "cca_q_heads", q0, n, of_q);
    split_heads(c, "cca_k_heads", k0, kv, of_k);
    for (uint32_t i = 0; i < n; i++) {
        spread[i] = of_k[i / group];
        mean[i / group] =
            i % group == 0
                ? of_q[i]
                : draw_binary(c, "add", "cca_sum", mean[i / group], of_q[i]);
    }
    struct mil_value *half = draw_f16(c, 0.5f);
    struct mil_value *keys = join_heads(c, "cca_k_spread", spread, n);
    *q = draw_binary(c, "add", "cca_q_both", q0, keys);
    *q = draw_binary(c, "mul", "cca_q_half", *q, half);
    struct mil_value *queries = join_heads(c, "cca_q_sums", mean, kv);
    queries = draw_times(c, "cca_q_mean", queries, 1.0f / (float)group);
    *k = draw_binary(c, "add", "cca_k_both", k0, queries);
    *k = draw_binary(c, "mul", "cca_k_half", *k, half);
}

static struct mil_value *extra(struct ctx *c, const char *what,
                               enum layer_extra which)
{
    return draw_constant(c, what, c->w->extra[which]);
}

/* u through both convolutions. */
static struct mil_value *mix(struct ctx *c, struct mil_value *u)
{
    uint32_t heads = c->l->n_heads + c->l->n_kv;
    uint32_t channels = heads * c->l->d_head;
    struct mil_value *x =
        draw_with_tail(c, "cca", layer_tail_len(c->l), channels, u);
    struct mil_value *taps =
        draw_constant(c, "conv_taps", layer_vector(c->w, SLOT_CONV));
    struct mil_value *bias = extra(c, "conv_bias", EXTRA_CONV_BIAS);
    x = draw_taps(c, "cca_each", x, taps, bias, channels);
    struct mil_value *mixed =
        draw_constant(c, "mix_taps", layer_vector(c->w, SLOT_MIX));
    bias = extra(c, "mix_bias", EXTRA_MIX_BIAS);
    return draw_taps(c, "cca_mixed", x, mixed, bias, heads);
}

/* Taps 1, 0 for each of n channels. */
static struct mil_value *delay(struct ctx *c, uint32_t n)
{
    const struct mil_type type = {
        .dtype = MIL_FP16, .rank = 4, .dims = {n, 1, 2, 1}
    };
    uint16_t *data = calloc((size_t)2 * n, sizeof(*data));
    must(data != NULL);
    for (uint32_t i = 0; i < n; i++) {
        data[(size_t)2 * i] = half_from_float(1.0f);
    }
    struct mil_value *v = mil_const_op(c->p, c->f, "delay_taps",
                                       mil_imm(c->p, &type, data));
    free(data);
    return v;
}

static struct mil_value *values(struct ctx *c, struct mil_value *h)
{
    uint32_t half = c->l->n_kv * c->l->d_head / 2;
    struct mil_value *now = draw_project(c, "v", h, SLOT_V, SLOT_COUNT);
    struct mil_value *next =
        draw_project(c, "value_new", h, SLOT_V_BEFORE, SLOT_COUNT);
    struct mil_value *x = draw_with_tail(c, "value", 1, half, next);
    struct mil_value *taps = delay(c, half);
    struct mil_value *both[2] = {
        now, draw_taps(c, "value_before", x, taps, NULL, half)};
    return mil_concat(c->p, c->f, draw_named(c, "values_both"), 2, both, 1);
}

void draw_cca(struct ctx *c, struct mil_value *h, struct mil_value **q,
              struct mil_value **k, struct mil_value **v)
{
    int32_t n = (int32_t)(c->l->n_heads * c->l->d_head);
    int32_t all = n + (int32_t)(c->l->n_kv * c->l->d_head);
    struct mil_value *both[2] = {draw_project(c, "q", h, SLOT_Q, SLOT_COUNT),
                                 NULL};
    struct mil_value *of_q = NULL;
    struct mil_value *of_k = NULL;
    both[1] = draw_project(c, "k", h, SLOT_K, SLOT_COUNT);
    shares(c, both[0], both[1], &of_q, &of_k);
    struct mil_value *u =
        mil_concat(c->p, c->f, draw_named(c, "cca_new"), 2, both, 1);
    struct mil_value *x = mix(c, u);
    struct mil_value *part = draw_slice(c, "cca_q_part", x, 1, 0, n);
    *q = draw_binary(c, "add", "cca_q", part, of_q);
    part = draw_slice(c, "cca_k_part", x, 1, n, all);
    *k = draw_binary(c, "add", "cca_k", part, of_k);
    *v = values(c, h);
}
