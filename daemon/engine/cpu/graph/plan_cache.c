/* plan_cache.c - which plans a model keeps.
 *
 * A plan is made when its input shapes are first seen. The plans used last are
 * kept, up to ENGINE_PLANS_MAX in ENGINE_PLANS_BYTES_MAX, and always the plan
 * of the last prediction, because its values are the outputs. Plans beyond
 * these limits are freed after a prediction, not before it: its inputs may be
 * outputs of the prediction before. A dynamic plan serves one prediction.
 */
#include <string.h>

#include "engine/cpu/graph/plan.h"

size_t plan_bytes(const struct plan *p)
{
    return sizeof(*p) + p->arena.used + p->buffer_bytes +
           p->touched_cap * sizeof(*p->touched);
}

static struct plan *cached(struct backend_model *m, const int64_t *key)
{
    for (size_t i = 0; i < m->n_plans; i++) {
        struct plan *p = m->plans[i];
        if (memcmp(p->key, key, plan_key_size(m)) == 0) {
            memmove(m->plans + 1, m->plans, i * sizeof(struct plan *));
            m->plans[0] = p;
            return p;
        }
    }
    return NULL;
}

static void keep(struct backend_model *m, struct plan *p)
{
    if (p->dynamic) {
        plan_free(m->last);
        m->last = p;
        return;
    }
    if (m->n_plans == ENGINE_PLANS_MAX) {
        plan_free(m->plans[--m->n_plans]);
    }
    memmove(m->plans + 1, m->plans, m->n_plans * sizeof(struct plan *));
    m->plans[0] = p;
    m->n_plans++;
}

void plan_trim(struct backend_model *m)
{
    size_t bytes = 0;
    size_t n = 0;
    while (n < m->n_plans) {
        bytes += plan_bytes(m->plans[n]);
        if (n > 0 && bytes > ENGINE_PLANS_BYTES_MAX) {
            break;
        }
        n++;
    }
    while (m->n_plans > n) {
        plan_free(m->plans[--m->n_plans]);
    }
}

void plan_drop_all(struct backend_model *m)
{
    while (m->n_plans > 0) {
        plan_free(m->plans[--m->n_plans]);
    }
    plan_free(m->last);
    m->last = NULL;
}

/* Of the fused nodes, or of the plain ones where the fused forms refuse. A
 * dynamic plan, which writes states while it is made and so cannot be made
 * twice, is of plain nodes. */
static int make(struct backend_model *m, struct backend_state *st,
                const struct tensor *const *in, struct plan **ret,
                struct err *e)
{
    bool has_plain = m->plain != NULL;
    int rc = m->dynamic ? CPU_UNKNOWN : plan_new(m, false, st, in, ret, e);
    if (rc < 0 && rc != CPU_UNKNOWN && rc != ERR_NOMEM && has_plain) {
        rc = plan_new(m, true, st, in, ret, e);
    }
    if (rc == CPU_UNKNOWN) {
        m->dynamic = true;
        rc = plan_new(m, has_plain, st, in, ret, e);
    }
    return rc == CPU_UNKNOWN
               ? err_set(e, ERR_MIL_SHAPE,
                         "an operand that must be constant is not")
               : rc;
}

int plan_find(struct backend_model *m, struct backend_state *st,
              const struct tensor *const *in, struct plan **ret, struct err *e)
{
    struct plan *p = NULL;
    plan_key(m, in, m->key);
    *ret = cached(m, m->key);
    if (*ret != NULL) {
        return 0;
    }
    RETERR(make(m, st, in, &p, e));
    keep(m, p);
    *ret = p;
    return 0;
}
