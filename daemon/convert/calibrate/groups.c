/* groups.c - the matrices of a layer by what they read, and what calibrating
 * them takes.
 *
 * Costs are to each other and to those of job_plan.c as on two cores of Zen 3
 * with the 0.5B shape (tests/bench/eta.py). Of a group with K columns and N
 * tokens: N * K^2 for the shift and half of that for the Hessian, or less where
 * the shift is of rows; K^3 for the factor; rows * K^2 for codes and targets;
 * for each weight N products on both sides and its palette.
 */
#include "base/num.h"
#include "convert/calibrate/impl.h"
#include "convert/quant/strips.h"

#define NS_SUM    0.022 /* fp32 product of an input and another, or of a row */
#define NS_FACTOR 0.012 /* of K^3 */
#define NS_CODE   0.10  /* of rows * K^2 */
#define NS_MAC    0.016 /* fp32 product of a weight and a token */
#define NS_ROW    8.0   /* a row's number of a token: stored, and what follows */
#define NS_WEIGHT 0.3   /* to make it from the source's bytes */
#define NS_DRAW   8.0   /* one token of the vocabulary, for one draw */
#define NS_LAYER  1.2e4 /* norms, rotation, attention: a layer, one token */

const struct group groups[] = {
    {REFERENCE_ATTENTION, false, {SLOT_Q, SLOT_K, SLOT_V}               },
    {REFERENCE_ATTENTION, true,  {SLOT_O, SLOT_COUNT, SLOT_COUNT}       },
    {REFERENCE_ATTENTION, false, {SLOT_CONV_IN, SLOT_COUNT, SLOT_COUNT} },
    {REFERENCE_ATTENTION, true,  {SLOT_CONV_OUT, SLOT_COUNT, SLOT_COUNT}},
    {REFERENCE_FFN,       false, {SLOT_GATE, SLOT_UP, SLOT_COUNT}       },
    {REFERENCE_FFN,       true,  {SLOT_DOWN, SLOT_COUNT, SLOT_COUNT}    },
    {REFERENCE_PLE,       false, {SLOT_PLE_PROJ, SLOT_COUNT, SLOT_COUNT}},
    {REFERENCE_PLE,       false, {SLOT_PLE_GATE, SLOT_COUNT, SLOT_COUNT}},
    {REFERENCE_PLE,       true,  {SLOT_PLE_OUT, SLOT_COUNT, SLOT_COUNT} },
};
const size_t n_groups = countof(groups);

bool group_takes(const struct decoder *d, const struct quant_choice *forms,
                 const struct part *p)
{
    (void)d;
    return p->t != NULL &&
           quant_choice_for(forms, p->t->name).kind != QUANT_FP16;
}

bool group_is(const struct decoder *d, uint32_t l, const struct group *g)
{
    bool any = false;
    for (size_t i = 0; i < countof(g->slots); i++) {
        any = any || (g->slots[i] != SLOT_COUNT && arch_has(d, l, g->slots[i]));
    }
    /* a feed-forward of experts alone ends as others do */
    any = any || (g->block == REFERENCE_FFN && g->last &&
                  d->layers[l].n_experts > 0);
    return any && reference_has(d, l, g->block);
}

bool group_has_experts(const struct decoder *d,
                       const struct quant_choice *forms, uint32_t l)
{
    return group_takes(d, forms, arch_part(d, l, SLOT_EXPERT_GATE)) ||
           group_takes(d, forms, arch_part(d, l, SLOT_EXPERT_UP)) ||
           group_takes(d, forms, arch_part(d, l, SLOT_EXPERT_DOWN));
}

size_t group_cols(const struct decoder *d, const struct quant_choice *forms,
                  uint32_t l, const struct group *g)
{
    for (size_t i = 0; i < countof(g->slots); i++) {
        if (g->slots[i] != SLOT_COUNT) {
            const struct part *p = arch_part(d, l, g->slots[i]);
            if (group_takes(d, forms, p)) {
                return (size_t)p->cols;
            }
        }
    }
    return 0;
}

const struct part *group_one(const struct decoder *d,
                             const struct quant_choice *forms, uint32_t l,
                             const struct group *g)
{
    const struct part *p = arch_part(d, l, g->slots[0]);
    bool alone = g->slots[1] == SLOT_COUNT;
    /* Of N tokens: 2 * rows * cols * N products against cols^2 * N. */
    return alone && group_takes(d, forms, p) && 2 * p->rows <= p->cols ? p
                                                                       : NULL;
}

/* --- time --- */

static double tokens_of(void)
{
    return (double)CALIBRATE_SEQUENCES * CALIBRATE_TOKENS;
}

/* Sums, factor and codes. one: the shift is of rows. */
static double feedback_ns(double cols, double rows, bool one, enum quant k)
{
    double square = cols * cols;
    double sums = square / 2 + (one ? 2 * rows * cols : square);
    return sums * tokens_of() * NS_SUM +
           square * (cols * NS_FACTOR + rows * NS_CODE) +
           rows * cols * quant_encode_ns(k);
}

static double rows_of(const struct decoder *d, uint32_t l,
                      const struct group *g)
{
    double rows = 0;
    for (size_t i = 0; i < countof(g->slots); i++) {
        if (g->slots[i] != SLOT_COUNT && arch_has(d, l, g->slots[i])) {
            rows += (double)arch_part(d, l, g->slots[i])->rows;
        }
    }
    return rows;
}

static size_t any_cols(const struct decoder *d, uint32_t l,
                       const struct group *g)
{
    for (size_t i = 0; i < countof(g->slots); i++) {
        if (g->slots[i] != SLOT_COUNT && arch_has(d, l, g->slots[i])) {
            return (size_t)arch_part(d, l, g->slots[i])->cols;
        }
    }
    return 0;
}

double cost_group(const struct decoder *d, const struct quant_choice *forms,
                  uint32_t l, const struct group *g)
{
    if (!group_is(d, l, g)) {
        return 0;
    }
    double rows = rows_of(d, l, g);
    double cols = (double)any_cols(d, l, g);
    /* by both streams, the source's and what is coded already */
    double run = 2 * rows *
                 (cols * NS_WEIGHT + tokens_of() * (cols * NS_MAC + NS_ROW));
    if (group_cols(d, forms, l, g) == 0) {
        return run;
    }
    const struct part *p = arch_part(d, l, g->slots[0]);
    return run +
           feedback_ns(cols, rows, group_one(d, forms, l, g) != NULL,
                       quant_choice_for(forms, p->t->name).kind);
}

double cost_experts(const struct decoder *d, const struct quant_choice *forms,
                    uint32_t l)
{
    const struct layer *y = &d->layers[l];
    if (!group_has_experts(d, forms, l)) {
        return 0;
    }
    const struct part *p = arch_part(d, l, SLOT_EXPERT_DOWN);
    double wide = (double)d->d_model;
    double narrow = (double)y->d_expert;
    double tokens = tokens_of() * y->n_top / y->n_experts; /* of each */
    double palette = quant_encode_ns(quant_choice_for(forms, p->t->name).kind);
    double sums = 1.5 * tokens * (wide * wide + narrow * narrow);
    double factors = wide * wide * wide + narrow * narrow * narrow;
    double codes = 2 * narrow * wide * wide + wide * narrow * narrow;
    double run = wide * narrow * (NS_WEIGHT + 4 * tokens * NS_MAC + palette);
    return y->n_experts * (sums * NS_SUM + factors * NS_FACTOR +
                           codes * NS_CODE + 3 * run) +
           tokens_of() * wide * wide / 2 * NS_SUM;
}

double cost_head(const struct decoder *d, const struct quant_choice *forms)
{
    const struct part *p = arch_head(d);
    return group_takes(d, forms, p)
               ? feedback_ns((double)p->cols, (double)p->rows, false,
                             quant_choice_for(forms, p->t->name).kind)
               : 0;
}

double cost_sample(const struct decoder *d)
{
    double weights = (double)arch_head(d)->rows * d->d_model;
    for (uint32_t l = 0; l < d->n_layers; l++) {
        weights += (double)arch_layer_weights(d, l);
    }
    return weights * (NS_WEIGHT + NS_MAC * CALIBRATE_SEQUENCES) +
           (double)d->vocab * CALIBRATE_SEQUENCES * NS_DRAW +
           (double)d->n_layers * CALIBRATE_SEQUENCES * NS_LAYER;
}

double calibrate_cost(const struct decoder *d, const struct quant_choice *forms,
                      bool own)
{
    double ns = cost_head(d, forms);
    for (uint32_t l = 0; l < d->n_layers; l++) {
        for (size_t i = 0; i < n_groups; i++) {
            ns += cost_group(d, forms, l, &groups[i]);
        }
        ns += cost_experts(d, forms, l);
    }
    return ns + (own ? cost_sample(d) * (CALIBRATE_TOKENS - 1) : 0);
}

/* --- memory --- */

/* The widest matrix that gets feedback. */
static uint64_t widest(const struct decoder *d,
                       const struct quant_choice *forms)
{
    const struct part *head = arch_head(d);
    uint64_t most = group_takes(d, forms, head) ? head->cols : 0;
    for (uint32_t l = 0; l < d->n_layers; l++) {
        for (size_t i = 0; i < n_groups; i++) {
            uint64_t cols = group_is(d, l, &groups[i])
                                ? group_cols(d, forms, l, &groups[i])
                                : 0;
            most = cols > most ? cols : most;
        }
        if (group_has_experts(d, forms, l)) {
            most = num_max(most, num_max(d->d_model, d->layers[l].d_expert));
        }
    }
    return most;
}

/* The mean of what experts read. */
static uint64_t mean_bytes(const struct decoder *d,
                           const struct quant_choice *forms)
{
    uint32_t l = 0;
    while (l < d->n_layers && !group_has_experts(d, forms, l)) {
        l++;
    }
    return l < d->n_layers ? 4 * (uint64_t)d->d_model * d->d_model : 0;
}

uint64_t calibrate_bytes(const struct decoder *d,
                         const struct quant_choice *forms, uint32_t sequences)
{
    uint64_t k = widest(d, forms);
    /* the sums, the factor, the shift; panels on their way into sums; and a
     * margin for blocks of rows */
    return 3 * 4 * k * k + mean_bytes(d, forms) +
           4 * k * (2 * REFERENCE_TOKENS_MAX + 2 * STRIPS_TOKENS) +
           streams_bytes(d, sequences) + ((uint64_t)64 << 20);
}

int calibrate_fit(const struct decoder *d, const struct quant_choice *forms,
                  uint32_t *ret_sequences, struct err *e)
{
    uint32_t n = CALIBRATE_SEQUENCES;
    while (n > CALIBRATE_SEQUENCES_MIN &&
           calibrate_bytes(d, forms, n) > CALIBRATE_BYTES_MAX) {
        n /= 2;
    }
    uint64_t need = calibrate_bytes(d, forms, n);
    if (need > CALIBRATE_BYTES_MAX || widest(d, forms) > QUANT_HESSIAN_MAX) {
        return err_set(e, ERR_UNSUPPORTED,
                       "calibration of rows of %llu weights takes %.1f GB of "
                       "memory, and %.1f are allowed; convert with --calibrate "
                       "off",
                       (unsigned long long)widest(d, forms), (double)need / 1e9,
                       (double)CALIBRATE_BYTES_MAX / 1e9);
    }
    *ret_sequences = n;
    return 0;
}

uint64_t calibrate_file_bytes(const struct decoder *d,
                              const struct quant_choice *forms)
{
    uint64_t n = 0;
    for (uint32_t l = 0; l <= d->n_layers; l++) {
        for (unsigned s = SLOT_LAYER; s < SLOT_COUNT; s++) {
            bool head = l == d->n_layers;
            const struct part *p =
                head ? arch_head(d) : arch_matrix(d, l, (enum arch_slot)s);
            if (p != NULL && group_takes(d, forms, p)) {
                n += quant_bytes(quant_choice_for(forms, p->t->name), p->rows,
                                 p->cols);
            }
            if (head) {
                break;
            }
        }
    }
    return n;
}
