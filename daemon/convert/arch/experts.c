/* experts.c - mixtures of experts: their numbers, and what a layer with them
 * needs.
 *
 * A source has one tensor for all experts of a layer, with three axes; as rows
 * and columns, expert e is rows [e * n, (e + 1) * n). ffn_gate_up_exps holds
 * [gate; up] of each expert in turn, so that the gate's rows are runs.
 */
#include "base/num.h"
#include "convert/arch/arch.h"

const char *const arch_expert_keys[] = {
    "expert_count", "expert_used_count", "expert_feed_forward_length", NULL};

#define BIT(slot) SLOT_BIT(SLOT_##slot)
#define EXPERTS   (BIT(EXPERT_GATE) | BIT(EXPERT_UP) | BIT(EXPERT_DOWN))
#define BIASES                                                   \
    (BIT(ROUTER_ADD) | BIT(EXPERT_GATE_BIAS) | BIT(EXPERT_UP_BIAS) | \
     BIT(EXPERT_DOWN_BIAS))
#define BRANCH                                                             \
    (BIT(ROUTER_SCALE) | BIT(EXPERT_SCALE) | BIT(EXPERT_NORM) |            \
     BIT(POST_DENSE) | BIT(POST_EXPERTS))
#define NETWORK                                                        \
    (BIT(ROUTER_DOWN) | BIT(ROUTER_1) | BIT(ROUTER_2) | BIT(ROUTER_VECTORS))
#define DENSE                                                   \
    (BIT(GATE) | BIT(UP) | BIT(DOWN) | BIT(GATE_BIAS) |         \
     BIT(UP_BIAS) | BIT(DOWN_BIAS))

int arch_read_experts(struct reading *r, uint32_t first,
                      enum layer_router router, bool branch, struct err *e)
{
    uint32_t n = 1; /* a dense model writes 0, or nothing */
    uint32_t top = 0;
    uint32_t width = 0;
    if (!arch_has_key(r, "expert_count")) {
        return 0;
    }
    RETERR(arch_u32(r, "expert_count", 0, MODEL_EXPERTS_MAX, &n, e));
    if (n == 0) {
        return 0;
    }
    RETERR(arch_u32(r, "expert_used_count", 1, n, &top, e));
    RETERR(arch_u32(r, "expert_feed_forward_length", 1, MODEL_DIM_MAX, &width,
                    e));
    for (uint32_t l = first; l < r->d->n_layers; l++) {
        struct layer *y = &r->d->layers[l];
        y->router = router;
        y->n_experts = n;
        y->n_top = top;
        y->d_expert = width;
        y->expert_branch = branch;
        y->d_ff = branch ? y->d_ff : 0;
    }
    return 0;
}

int arch_check_experts(const struct decoder *d, uint32_t l, struct err *e)
{
    const struct layer *y = &d->layers[l];
    if (y->n_experts == 0) {
        return 0;
    }
    if (y->n_experts < 2) {
        return err_set(e, ERR_UNSUPPORTED,
                       "layer %u: a mixture of one expert is not converted", l);
    }
    uint32_t group = layer_expert_group(y, d->d_model);
    uint32_t groups = (y->n_experts + group - 1) / group;
    return groups <= MODEL_EXPERT_GROUPS
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         "layer %u: %u experts of %u by %u take %u constants; "
                         "aned makes %u",
                         l, y->n_experts, d->d_model, y->d_expert, groups,
                         MODEL_EXPERT_GROUPS);
}

uint64_t arch_experts_need(const struct layer *y)
{
    if (y->n_experts == 0) {
        return 0;
    }
    return BIT(ROUTER) | EXPERTS | (y->expert_branch ? BRANCH : 0) |
           (y->router == ROUTER_NETWORK ? NETWORK | BIT(ROUTER_BIAS) : 0) |
           (y->router == ROUTER_SIGMOID_BIAS ? BIT(ROUTER_BIAS) : 0);
}

uint64_t arch_experts_unused(const struct layer *y)
{
    static const uint64_t all =
        BIT(ROUTER) | BIT(ROUTER_BIAS) | EXPERTS | BRANCH | NETWORK;
    uint64_t none = (all & ~arch_experts_need(y)) |
                    (y->n_experts > 0 ? 0 : (uint64_t)BIASES);
    return y->n_experts > 0 && y->d_ff == 0 ? none | DENSE : none;
}

struct part arch_expert(const struct decoder *d, uint32_t layer,
                        enum arch_slot slot, uint32_t index)
{
    const struct layer *y = &d->layers[layer];
    struct part p = *arch_part(d, layer, slot);
    uint64_t each = p.rows / y->n_experts;
    must(index < y->n_experts);
    p.first += index * (p.run > 0 ? p.step : each);
    p.rows = each;
    p.run = p.step = 0;
    return p;
}

bool arch_is_experts(enum arch_slot slot)
{
    return slot < SLOT_COUNT && (EXPERTS & SLOT_BIT(slot)) != 0;
}

uint64_t arch_rows_most(const struct decoder *d, uint32_t layer,
                        enum arch_slot slot)
{
    const struct layer *y = &d->layers[layer];
    const struct part *p = arch_part(d, layer, slot);
    return arch_is_experts(slot) ? p->rows / y->n_experts *
                         layer_expert_group(y, d->d_model)
                   : p->rows;
}

bool arch_has_row(const struct part *p, uint64_t at, uint64_t *ret)
{
    uint64_t from = at - p->first;
    if (at < p->first || (p->run > 0 && from % p->step >= p->run)) {
        return false;
    }
    *ret = p->run > 0 ? from / p->step * p->run + from % p->step : from;
    return *ret < p->rows;
}

int arch_rows_of(const struct part *p, uint64_t first, uint64_t n, float *out,
                 struct err *e)
{
    if (p->run == 0) {
        return gguf_rows(p->t, p->first + first, n, out, e);
    }
    while (n > 0) {
        uint64_t in_run = first % p->run;
        uint64_t some = num_min(n, p->run - in_run);
        RETERR(gguf_rows(p->t, p->first + first / p->run * p->step + in_run,
                         some, out, e));
        out += some * p->cols;
        first += some;
        n -= some;
    }
    return 0;
}
