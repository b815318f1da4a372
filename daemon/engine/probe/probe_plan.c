/* probe_plan.c - a function's operations by kind, and where each kind runs: a
 * plan names thousands, a report a few dozen. */
#include <string.h>

#include "engine/probe/probe_impl.h"

#define DEVICES 3 /* of enum backend_device */
#define OTHERS  "others"

static struct plan_group *find(struct plan_groups *p, const char *type,
                               const struct backend_plan_op *op, bool any)
{
    for (size_t i = 0; i < p->n; i++) {
        struct plan_group *g = &p->of[i];
        if (g->preferred == op->preferred && strcmp(g->type, type) == 0 &&
            (any || g->supported == op->supported)) {
            return g;
        }
    }
    return NULL;
}

/* When there are too many kinds, the rest of a device's is one. */
static struct plan_group *group_of(struct plan_groups *p,
                                   const struct backend_plan_op *op)
{
    const char *type = op->type;
    struct plan_group *g = find(p, type, op, false);
    if (g == NULL && p->n >= PROBE_OPS_MAX - DEVICES) {
        type = OTHERS;
        g = find(p, type, op, true);
    }
    if (g == NULL) {
        g = &p->of[p->n++];
        *g = (struct plan_group){.preferred = op->preferred,
                                 .supported = op->supported};
        (void)snprintf(g->type, sizeof(g->type), "%s", type);
        (void)snprintf(g->example, sizeof(g->example), "%s", op->name);
    }
    return g;
}

static int by_weight(const void *a, const void *b)
{
    const struct plan_group *x = a;
    const struct plan_group *y = b;
    bool x_here = x->preferred == BACKEND_NEURAL_ENGINE;
    bool y_here = y->preferred == BACKEND_NEURAL_ENGINE;
    if (x_here != y_here) {
        return x_here ? 1 : -1;
    }
    if (x->cost < y->cost || x->cost > y->cost) {
        return x->cost < y->cost ? 1 : -1;
    }
    if (x->n != y->n) {
        return x->n < y->n ? 1 : -1;
    }
    return strcmp(x->type, y->type);
}

void plan_group(const struct backend_plan *plan, struct plan_groups *ret)
{
    *ret = (struct plan_groups){.n_ops = (uint32_t)plan->n_ops};
    for (size_t i = 0; i < plan->n_ops; i++) {
        const struct backend_plan_op *op = &plan->ops[i];
        struct plan_group *g = group_of(ret, op);
        bool here = op->preferred == BACKEND_NEURAL_ENGINE;
        double cost = op->cost > 0 ? op->cost : 0; /* also when not told */
        g->n++;
        g->cost += cost;
        ret->n_here += here;
        ret->cost += cost;
        ret->cost_here += here ? cost : 0;
    }
    qsort(ret->of, ret->n, sizeof(*ret->of), by_weight);
}
