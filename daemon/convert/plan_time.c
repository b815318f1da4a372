/* plan_time.c - how long a step of a plan would take, by what is published of a
 * chip; with experts, in the form that the plan has and in the other. */
#include <stdlib.h>

#include "convert/plan.h"

/* Milliseconds to read n bytes at `share` of so many GB/s. */
static double read_ms(double n, double gbytes_per_s, double share)
{
    return n / (gbytes_per_s * share * 1e6);
}

/* Factor of the time for so many rows. */
static struct plan_span rows_factor(const struct plan_profile *p, uint32_t rows)
{
    if (rows == 1) {
        return (struct plan_span){true, 1, 1};
    }
    return p->rows_factor.known && rows <= p->rows ? p->rows_factor
                                                   : (struct plan_span){0};
}

/* What a form of the layers reads and runs. */
struct form {
    double bytes;  /* of layers */
    double shards; /* predictions of layer programs */
};

static struct plan_time predict(const struct plan_profile *p,
                                const struct plan_input *in,
                                const struct plan *plan, uint32_t rows,
                                struct form form)
{
    struct plan_time t = {.rows = rows};
    struct plan_span f = rows_factor(p, rows);
    const struct plan_span *bw = &p->gbytes_per_s;
    if (!f.known || !bw->known || !p->efficiency.known ||
        !p->boundary_ms.known || !p->program_ms.known ||
        plan_fit(p, in, plan) == PLAN_TOO_BIG) {
        return t;
    }
    double fold =
        p->fold_bits > in->bits ? (double)p->fold_bits / (double)in->bits : 1;
    double layers = fold * form.bytes;
    double heads = 0;
    for (uint32_t i = 0; i < plan->n_heads; i++) {
        heads += fold * (double)plan_head_bytes(in, plan->heads[i]);
    }
    double n = form.shards + (double)plan->n_heads;
    double kv = (double)in->n_layers * (double)in->context / 1024;
    t.least_ms = read_ms(layers, bw->most, p->efficiency.most) +
                 read_ms(heads, bw->most, 1) + n * p->boundary_ms.least +
                 kv * p->kv_ms.least;
    t.most_ms = read_ms(layers, bw->least, p->efficiency.least) +
                read_ms(heads, bw->least, 1) + n * p->boundary_ms.most +
                form.shards * p->program_ms.most + kv * p->kv_ms.most;
    t.least_ms *= f.least;
    t.most_ms *= f.most;
    t.known = true;
    return t;
}


/* A row's form; what of the experts several rows take together is not known. */
static struct form form_of(const struct plan_profile *p,
                           const struct plan_input *in,
                           const struct plan *plan)
{
    struct form f = {(double)plan_layers_bytes(in), plan->n_shards};
    if (in->sparse) {
        struct plan_experts x = plan_experts(p, in, plan);
        f.bytes += (double)x.taken - (double)x.bytes;
        f.shards = x.runs;
    }
    return f;
}

struct plan_time plan_predict(const struct plan_profile *p,
                              const struct plan_input *in,
                              const struct plan *plan, uint32_t rows)
{
    struct plan_time t = {.rows = rows};
    return in->sparse && rows > 1
               ? t
               : predict(p, in, plan, rows, form_of(p, in, plan));
}

struct plan_experts plan_experts(const struct plan_profile *p,
                                 const struct plan_input *in,
                                 const struct plan *plan)
{
    struct plan_experts x = {.layers = 0};
    uint64_t one = 0;
    for (uint32_t l = 0; l < in->n_layers; l++) {
        const struct plan_layer *y = &in->layers[l];
        if (y->experts > 0) {
            uint64_t bytes =
                in->sparse ? y->experts * y->one_bytes : y->expert_bytes;
            x.layers++;
            x.bytes += bytes;
            x.taken += bytes / y->experts * y->top;
            x.runs += y->top;
            one += y->experts;
        }
    }
    if (x.layers == 0) {
        return x;
    }
    /* the router ends its program: one more than there are such layers */
    uint32_t cut = x.layers + 1 > plan->n_shards ? x.layers + 1 : plan->n_shards;
    uint32_t shards = in->sparse ? plan->n_shards : cut;
    x.runs += shards;
    x.functions = one * in->n_widths;
    x.loads = x.functions + (uint64_t)shards * in->n_widths +
                  (uint64_t)plan->n_heads * in->n_head_widths <=
              p->programs;
    return x;
}

static uint32_t runs_of(const struct plan_profile *p,
                        const struct plan_input *in, const struct plan *plan)
{
    return in->sparse ? plan_experts(p, in, plan).runs : plan->n_shards;
}

/* A step in the form that the plan does not have. */
static struct plan_time predict_other(const struct plan_profile *p,
                                      const struct plan_input *in,
                                      uint32_t *runs)
{
    struct plan_input q = *in; /* borrows the layers */
    struct plan *plan = calloc(1, sizeof(*plan));
    struct plan_time t = {.rows = 1};
    struct err ignored = {0};
    must(plan != NULL);
    q.sparse = !in->sparse;
    if (plan_grouping(p, 0, &q, &ignored) == 0 &&
        plan_make(p, &q, plan, &ignored) == 0) {
        t = plan_predict(p, &q, plan, 1);
        *runs = runs_of(p, &q, plan);
    }
    free(plan);
    return t;
}

struct plan_forms plan_forms(const struct plan_profile *p,
                             const struct plan_input *in,
                             const struct plan *plan)
{
    struct plan_time own = plan_predict(p, in, plan, 1);
    uint32_t own_runs = runs_of(p, in, plan);
    uint32_t runs = 0;
    struct plan_time other = predict_other(p, in, &runs);
    return (struct plan_forms){.dense = in->sparse ? other : own,
                               .sparse = in->sparse ? own : other,
                               .dense_runs = in->sparse ? runs : own_runs,
                               .sparse_runs = in->sparse ? own_runs : runs};
}

bool plan_wants_sparse(const struct plan_profile *p,
                       const struct plan_input *in, const struct plan *plan)
{
    struct plan_experts x = plan_experts(p, in, plan);
    if (x.layers == 0 || !p->chip || !x.loads) {
        return false;
    }
    struct plan_forms f = plan_forms(p, in, plan);
    return f.dense.known && f.sparse.known &&
           f.sparse.most_ms < f.dense.least_ms;
}
