/* plan_time.c - how long a step of a plan would take, by what is published of a
 * chip; with experts, in the form that aned makes and in the other. */
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

static double layer_bytes(const struct plan_input *in)
{
    return (double)plan_shard_bytes(in,
                                    (struct plan_range){.last = in->n_layers});
}

struct plan_time plan_predict(const struct plan_profile *p,
                              const struct plan_input *in,
                              const struct plan *plan, uint32_t rows)
{
    const struct form dense = {layer_bytes(in), plan->n_shards};
    return predict(p, in, plan, rows, dense);
}

struct plan_experts plan_experts(const struct plan_input *in,
                                 const struct plan *plan)
{
    struct plan_experts x = {.layers = 0};
    for (uint32_t l = 0; l < in->n_layers; l++) {
        const struct plan_layer *y = &in->layers[l];
        if (y->experts > 0) {
            x.layers++;
            x.bytes += y->expert_bytes;
            x.taken += y->expert_bytes / y->experts * y->top;
            x.runs += y->top;
        }
    }
    /* the router ends the program before it: one a layer at least */
    x.runs += x.layers > plan->n_shards ? x.layers : plan->n_shards;
    x.runs = x.layers > 0 ? x.runs : 0;
    return x;
}

struct plan_time plan_predict_sparse(const struct plan_profile *p,
                                     const struct plan_input *in,
                                     const struct plan *plan)
{
    struct plan_experts x = plan_experts(in, plan);
    const struct form sparse = {
        layer_bytes(in) - (double)x.bytes + (double)x.taken, x.runs};
    return predict(p, in, plan, 1, sparse);
}
