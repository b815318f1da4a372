/* experts.c - a layer's mixture of experts: router, choice, and the chosen
 * experts' feed-forwards.
 *
 * Every expert multiplies only the columns that chose it: they are gathered
 * into panels of their own, and what comes out is added where they came from,
 * experts in order. A column's bits do not depend on its neighbours.
 */
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "base/num.h"
#include "convert/gemm.h"
#include "convert/reference/impl.h"

/* --- the choice --- */

static double sigmoid(double x)
{
    return 1.0 / (1.0 + fmath_exp(-x));
}

/* Mark the `top` largest of n keys in `chosen`; of equal ones the first. */
static void choose(const double *keys, uint32_t n, uint32_t top, bool *chosen)
{
    memset(chosen, 0, n * sizeof(*chosen));
    for (uint32_t k = 0; k < top; k++) {
        uint32_t best = n;
        for (uint32_t i = 0; i < n; i++) {
            if (!chosen[i] && (best == n || keys[i] > keys[best])) {
                best = i;
            }
        }
        chosen[best] = true;
    }
}

void reference_gates(const struct layer *y, const float *scores,
                     const float *bias, const float *scale, float *gates)
{
    double keys[MODEL_EXPERTS_MAX + 1];
    double w[MODEL_EXPERTS_MAX + 1];
    bool chosen[MODEL_EXPERTS_MAX + 1];
    bool network = y->router == ROUTER_NETWORK;
    double peak = (double)scores[0];
    double sum = 0;
    uint32_t n = arch_classes(y);
    must(y->n_experts <= MODEL_EXPERTS_MAX && y->n_top <= n);
    for (uint32_t i = 0; i < n; i++) {
        peak = (double)scores[i] > peak ? (double)scores[i] : peak;
    }
    for (uint32_t i = 0; i < n; i++) {
        double s = (double)scores[i];
        if (y->router == ROUTER_SIGMOID_BIAS) {
            w[i] = sigmoid(s);
            keys[i] = w[i] + (double)bias[i];
        } else {
            w[i] = fmath_exp(s - peak);
            keys[i] = s;
        }
    }
    for (uint32_t i = 0; network && i < n; i++) {
        sum += w[i];
    }
    for (uint32_t i = 0; network && i < n; i++) {
        keys[i] = w[i] / sum + (double)bias[i];
    }
    choose(keys, n, y->n_top, chosen);
    for (uint32_t i = 0; !network && i < n; i++) {
        sum += chosen[i] ? w[i] : 0;
    }
    sum += y->router == ROUTER_SIGMOID_BIAS ? (double)ROUTER_SUM_MIN : 0;
    for (uint32_t i = 0; i < y->n_experts; i++) {
        double f = scale != NULL ? (double)scale[i] : 1;
        gates[i] = chosen[i] ? (float)(w[i] / sum * f) : 0;
    }
}

/* --- the router --- */

static int read_vector(const struct reference *r, uint32_t l,
                       enum arch_slot slot, float *buf, const float **ret,
                       struct err *e)
{
    const struct part *p = arch_part(r->d, l, slot);
    *ret = NULL;
    if (p->t == NULL) {
        return 0;
    }
    must(p->cols <= MODEL_EXPERTS_MAX + 1);
    *ret = buf;
    return arch_vector(p, buf, e);
}

/* r->gates from the scores that stand in r->route. */
static int set_gates(struct reference *r, uint32_t l, struct err *e)
{
    const struct layer *y = r->layer;
    float in[MODEL_EXPERTS_MAX + 1];
    float out[MODEL_EXPERTS_MAX];
    float of_bias[MODEL_EXPERTS_MAX + 1];
    float of_scale[MODEL_EXPERTS_MAX];
    const float *bias = NULL;
    const float *scale = NULL;
    RETERR(read_vector(r, l, SLOT_ROUTER_BIAS, of_bias, &bias, e));
    RETERR(read_vector(r, l, SLOT_EXPERT_SCALE, of_scale, &scale, e));
    for (uint32_t t = 0; t < r->n; t++) {
        for (uint32_t i = 0; i < arch_classes(y); i++) {
            in[i] = r->route[i * r->stride + t];
        }
        reference_gates(y, in, bias, scale, out);
        for (uint32_t i = 0; i < y->n_experts; i++) {
            r->gates[i * r->stride + t] = out[i];
        }
    }
    return 0;
}

/* The norm of what a branch reads of the stream, or of what it gives. */
static int norm_of(struct reference *r, uint32_t l, enum arch_slot slot,
                   enum range_kind kind, bool stream, const float *x, float *y,
                   struct err *e)
{
    static const struct part none;
    const struct norm n = {
        .weight = slot == SLOT_COUNT ? &none : arch_part(r->d, l, slot),
        .plus_one = slot != SLOT_COUNT && slot != SLOT_ROUTER_SCALE &&
                    r->layer->gain_plus_one,
        .d = r->d->d_model,
        .groups = 1,
        .stream = stream,
        .kind = kind,
        .layer = l};
    return reference_normalise(r, &n, x, y, e);
}

static double erf_of(double x)
{
    return (double)fmath_erff((float)(x * M_SQRT1_2));
}

/* x += a vector; gelu by erf afterwards, if it is wanted. */
static void network_bias(const struct reference *r, float *x,
                         const float *bias, bool gelu)
{
    for (size_t i = 0; i < r->layer->d_router; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            float *at = &x[i * r->stride + t];
            double v = (double)(*at + bias[i]);
            *at = (float)(gelu ? 0.5 * v * (1 + erf_of(v)) : v);
        }
    }
}

enum { OF_DOWN, OF_BEFORE, OF_NORM, OF_1, OF_2, VECTORS };

/* r->route of ROUTER_NETWORK, and the rows after the stream's that the next
 * layer's reads. */
static int run_network(struct reference *r, uint32_t l, const float *vectors,
                       struct err *e)
{
    size_t n = r->layer->d_router;
    float *state = r->x + r->d->d_model * r->stride;
    float *x = r->picked;
    float *y = r->mixed;
    const struct part weight =
        arch_table_row(r->d, l, SLOT_ROUTER_VECTORS, OF_NORM);
    const struct norm norm = {.weight = &weight, .d = n, .groups = 1,
                              .kind = RANGE_ROUTER_NET, .layer = l};
    RETERR(reference_project(r, l, SLOT_ROUTER_DOWN, SLOT_COUNT,
                             RANGE_ROUTER_STATE, r->h, x, e));
    network_bias(r, x, vectors + OF_DOWN * n, false);
    for (size_t i = 0; l > 0 && i < n; i++) {
        float by = vectors[OF_BEFORE * n + i];
        for (uint32_t t = 0; t < r->n; t++) {
            x[i * r->stride + t] += by * state[i * r->stride + t];
        }
    }
    memcpy(state, x, n * r->stride * sizeof(*x));
    reference_peak(r, RANGE_ROUTER_STATE, l, x, n);
    RETERR(reference_normalise(r, &norm, x, x, e));
    RETERR(reference_project(r, l, SLOT_ROUTER_1, SLOT_COUNT, RANGE_ROUTER_1, x,
                             y, e));
    network_bias(r, y, vectors + OF_1 * n, true);
    RETERR(reference_project(r, l, SLOT_ROUTER_2, SLOT_COUNT, RANGE_ROUTER_2, y,
                             x, e));
    network_bias(r, x, vectors + OF_2 * n, true);
    return reference_project(r, l, SLOT_ROUTER, SLOT_COUNT, RANGE_ROUTER, x,
                             r->route, e);
}

static int route_network(struct reference *r, uint32_t l, struct err *e)
{
    const struct part *p = arch_part(r->d, l, SLOT_ROUTER_VECTORS);
    float *vectors = malloc(p->rows * p->cols * sizeof(*vectors));
    if (vectors == NULL) {
        return err_set(e, ERR_NOMEM, "no memory");
    }
    must(p->rows == VECTORS);
    int rc = 0;
    CHECK(gguf_rows(p->t, p->first, p->rows, vectors, e));
    CHECK(reference_enter(r, l, REFERENCE_FFN, e));
    CHECK(run_network(r, l, vectors, e));
    CHECK(set_gates(r, l, e));
out:
    free(vectors);
    return rc;
}

/* Gates of all experts, and r->h, which they read. */
static int route(struct reference *r, uint32_t l, struct err *e)
{
    if (r->layer->router == ROUTER_NETWORK) {
        return route_network(r, l, e);
    }
    if (!r->layer->expert_branch) {
        RETERR(reference_enter(r, l, REFERENCE_FFN, e));
        RETERR(reference_project(r, l, SLOT_ROUTER, SLOT_ROUTER_ADD,
                                 RANGE_ROUTER, r->h, r->route, e));
        return set_gates(r, l, e);
    }
    float by = 1.0f / sqrtf((float)r->d->d_model);
    RETERR(norm_of(r, l, SLOT_ROUTER_SCALE, RANGE_ROUTER_NORM, true, r->x, r->h,
                   e));
    for (size_t i = 0; i < r->d->d_model * r->stride; i++) {
        r->h[i] *= by;
    }
    RETERR(reference_project(r, l, SLOT_ROUTER, SLOT_COUNT, RANGE_ROUTER, r->h,
                             r->route, e));
    RETERR(set_gates(r, l, e));
    return norm_of(r, l, SLOT_EXPERT_NORM, RANGE_EXPERT_NORM, true, r->x, r->h,
                   e);
}

/* --- the experts --- */

/* Columns that expert `index` has, gathered from r->h. */
static uint32_t gather(const struct reference *r, uint32_t index,
                       uint32_t *columns)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < r->n; t++) {
        if (r->gates[index * r->stride + t] != 0) {
            columns[n++] = t;
        }
    }
    return n;
}

/* y += the expert's bias, if there is one; by: what it is multiplied by, a
 * column; NULL: nothing. */
static int add_bias(const struct reference *r, uint32_t l, enum arch_slot slot,
                    uint32_t index, const float *by, float *y, struct err *e)
{
    const struct part *p = arch_part(r->d, l, slot);
    if (p->t == NULL) {
        return 0;
    }
    float *b = malloc(p->cols * sizeof(*b));
    if (b == NULL) {
        return err_set(e, ERR_NOMEM, "%s: no memory", p->t->name);
    }
    int rc = gguf_rows(p->t, index, 1, b, e);
    for (size_t i = 0; rc == 0 && i < p->cols; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            y[i * r->stride + t] += by != NULL ? b[i] * by[t] : b[i];
        }
    }
    free(b);
    return rc;
}

/* A matrix of an expert. */
struct expert_slot {
    enum arch_slot w, bias;
    enum range_kind kind;
};

static int multiply(struct reference *r, uint32_t l, struct expert_slot s,
                    uint32_t index, const float *by, const float *x, float *y,
                    struct err *e)
{
    static const struct part none;
    const struct part w = arch_expert(r->d, l, s.w, index);
    RETERR(reference_multiply(r, &w, &none, x, y, e));
    RETERR(add_bias(r, l, s.bias, index, by, y, e));
    reference_peak(r, s.kind, l, y, w.rows);
    return 0;
}

/* Each column times its gate. */
static void weigh(const struct reference *g, float *x, size_t rows,
                  const float *by)
{
    for (size_t i = 0; i < rows; i++) {
        for (uint32_t c = 0; c < g->n; c++) {
            x[i * g->stride + c] *= by[c];
        }
    }
}

/* r->gate: what the last product of an expert reads, of g's columns x. */
static int run_inner(const struct reference *r, struct reference *g, uint32_t l,
                     uint32_t index, const float *x, const float *by,
                     struct err *e)
{
    static const struct expert_slot gate = {
        SLOT_EXPERT_GATE, SLOT_EXPERT_GATE_BIAS, RANGE_EXPERT_GATE};
    static const struct expert_slot up = {SLOT_EXPERT_UP, SLOT_EXPERT_UP_BIAS,
                                          RANGE_EXPERT_UP};
    const struct layer *y = g->layer;
    RETERR(multiply(g, l, gate, index, NULL, x, r->gate, e));
    RETERR(multiply(g, l, up, index, NULL, x, r->up, e));
    /* as the program does it; ACT_CLAMPED bounds `up` before it meets the gate */
    bool clamped = y->act == ACT_CLAMPED;
    if (!clamped) {
        weigh(g, r->up, y->d_expert, by);
        reference_peak(g, RANGE_EXPERT_UP, l, r->up, y->d_expert);
    }
    reference_activate(g, r->gate, r->up, y->d_expert);
    if (clamped) {
        weigh(g, r->gate, y->d_expert, by);
    }
    reference_peak(g, RANGE_EXPERT_ACT, l, r->gate, y->d_expert);
    return 0;
}

/* One expert's feed-forward of the gathered columns; g: like r, but of them. */
static int run_expert(const struct reference *r, struct reference *g,
                      uint32_t l, uint32_t index, const uint32_t *columns,
                      struct err *e)
{
    static const struct expert_slot down = {
        SLOT_EXPERT_DOWN, SLOT_EXPERT_DOWN_BIAS, RANGE_EXPERT_OUT};
    size_t d = r->d->d_model;
    float by[TOKENS];
    for (uint32_t c = 0; c < g->n; c++) {
        by[c] = r->gates[index * r->stride + columns[c]];
    }
    memset(r->picked, 0, d * g->stride * sizeof(float));
    for (size_t i = 0; i < d; i++) {
        for (uint32_t c = 0; c < g->n; c++) {
            r->picked[i * g->stride + c] = r->h[i * r->stride + columns[c]];
        }
    }
    RETERR(run_inner(r, g, l, index, r->picked, by, e));
    RETERR(multiply(g, l, down, index, by, r->gate, r->picked, e));
    for (size_t i = 0; i < d; i++) {
        for (uint32_t c = 0; c < g->n; c++) {
            r->mixed[i * r->stride + columns[c]] +=
                r->picked[i * g->stride + c];
        }
    }
    return 0;
}

int reference_route(struct reference *r, uint32_t l,
                    struct reference_panel *ret, struct err *e)
{
    r->layer = &r->d->layers[l];
    RETERR(route(r, l, e));
    *ret = (struct reference_panel){r->gates, r->layer->n_experts, r->stride,
                                    r->n};
    return 0;
}

int reference_expert(struct reference *r, uint32_t l, uint32_t index,
                     const struct reference_panel *x, const float *by,
                     struct reference_panel *ret, struct err *e)
{
    struct reference g = *r;
    must(x->stride <= r->stride && x->tokens <= x->stride);
    g.layer = &r->d->layers[l];
    g.n = x->tokens;
    g.stride = x->stride;
    RETERR(run_inner(r, &g, l, index, x->x, by, e));
    *ret = (struct reference_panel){r->gate, g.layer->d_expert, g.stride, g.n};
    return 0;
}

/* The rows of an expert that nobody chose count as read. */
static int pass_by(const struct reference *r, uint32_t l, uint32_t index,
                   struct err *e)
{
    static const enum arch_slot slots[] = {SLOT_EXPERT_GATE, SLOT_EXPERT_UP,
                                           SLOT_EXPERT_DOWN};
    uint64_t bytes = 0;
    for (size_t i = 0; i < countof(slots); i++) {
        const struct part p = arch_expert(r->d, l, slots[i], index);
        bytes += p.rows * p.t->row_bytes;
    }
    return r->progress == NULL ? 0 : progress_add(r->progress, bytes, e);
}

int reference_experts(struct reference *r, uint32_t l, struct err *e)
{
    uint32_t columns[TOKENS];
    struct reference g = *r;
    RETERR(route(r, l, e));
    memset(r->mixed, 0, r->d->d_model * r->stride * sizeof(float));
    for (uint32_t i = 0; i < r->layer->n_experts; i++) {
        g.n = gather(r, i, columns);
        if (g.n == 0) {
            RETERR(pass_by(r, l, i, e));
            continue;
        }
        g.stride = (g.n + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES;
        g.layer = r->layer;
        RETERR(run_expert(r, &g, l, i, columns, e));
    }
    reference_peak(r, RANGE_EXPERTS, l, r->mixed, r->d->d_model);
    return 0;
}

int reference_join_experts(struct reference *r, uint32_t l, struct err *e)
{
    size_t n = r->d->d_model * r->stride;
    RETERR(reference_experts(r, l, e));
    if (!r->layer->expert_branch) {
        memcpy(r->y, r->mixed, n * sizeof(*r->y));
        return 0;
    }
    RETERR(norm_of(r, l, SLOT_POST_DENSE, RANGE_POST_DENSE, false, r->y, r->y,
                   e));
    RETERR(norm_of(r, l, SLOT_POST_EXPERTS, RANGE_POST_EXPERTS, false, r->mixed,
                   r->mixed, e));
    for (size_t i = 0; i < n; i++) {
        r->y[i] += r->mixed[i];
    }
    reference_peak(r, RANGE_BRANCHES, l, r->y, r->d->d_model);
    return 0;
}
