/* cond and while_loop. What they do depends on data, so a program that has them
 * is always run in dynamic mode (plan.c): prep only says so, and run makes the
 * steps of the block that is wanted and computes each at once.
 *
 * A round of a loop works in an arena of its own. What it carries into the
 * next round is copied to another one, so memory does not grow with rounds. */
#include <string.h>

#include "engine/cpu/graph/plan.h"
#include "engine/cpu/ops/ops.h"

int control_prep(struct step *s, struct err *e)
{
    const struct node *n = s->node;
    const struct sub_block *b = n->blocks;
    int vars = n->n_vars;
    bool fits = n->n_blocks == 2 && b[1].n_out == n->n_out;
    if (fits && n->def->sub == CONTROL_COND) {
        fits = b[0].n_out == n->n_out && b[0].n_in == 0 && b[1].n_in == 0;
    } else if (fits) {
        fits = b[0].n_out == 1 && b[0].n_in == vars && b[1].n_in == vars &&
               n->n_out == vars;
    }
    if (!fits) {
        return err_set(e, ERR_MIL_INVALID, "its blocks do not fit");
    }
    return s->plan->dynamic ? 0 : CPU_UNKNOWN;
}

/* A scalar bool of any rank. */
static int truth(const struct val *v, bool *ret, struct err *e)
{
    if (v->kind != VAL_BOOL || v->n != 1) {
        return err_set(e, ERR_MIL_INVALID, "the condition is not one bool");
    }
    *ret = v->i[0] != 0;
    return 0;
}

/* A copy of v whose data lives in a. */
static int carry(struct arena *a, const struct val *v, struct val *ret,
                 struct err *e)
{
    if (!val_is_plain(v)) {
        return err_set(e, ERR_MIL_INVALID, "a block gives no tensor");
    }
    void *p = arena_array(a, v->n + 1, sizeof(int32_t));
    if (p == NULL) {
        return err_set(e, ERR_NOMEM, "values");
    }
    memcpy(p, v->p, v->n * sizeof(int32_t));
    *ret = *v;
    ret->p = p;
    ret->known = true;
    return 0;
}

static int carry_all(struct arena *a, const struct val *v, const int *slots,
                     int n, struct val *ret, struct err *e)
{
    for (int k = 0; k < n; k++) {
        RETERR(carry(a, &v[slots[k]], &ret[k], e));
    }
    return 0;
}

static void put_vars(struct plan *p, const struct sub_block *b,
                     const struct val *vars)
{
    for (int k = 0; k < b->n_in; k++) {
        p->v[b->in[k]] = vars[k];
    }
}

int cond_run(const struct step *s, const struct run *r, struct err *e)
{
    const struct node *n = s->node;
    struct plan *p = s->plan;
    bool yes = false;
    RETERR(truth(step_in(s, 0), &yes, e));
    const struct sub_block *b = &n->blocks[yes ? 0 : 1];
    RETERR(plan_block(p, b, r->st, e));
    for (int k = 0; k < n->n_out; k++) {
        RETERR(carry(&p->arena, &p->v[b->out[k]], step_out(s, k), e));
    }
    return 0;
}

/* One round in p's arena: *go tells whether the body ran. */
static int round_run(struct plan *p, const struct node *n, const struct run *r,
                     const struct val *vars, bool *go, struct err *e)
{
    const struct sub_block *test = &n->blocks[0];
    const struct sub_block *body = &n->blocks[1];
    put_vars(p, test, vars);
    RETERR(plan_block(p, test, r->st, e));
    RETERR(truth(&p->v[test->out[0]], go, e));
    if (!*go) {
        return 0;
    }
    put_vars(p, body, vars);
    return plan_block(p, body, r->st, e);
}

int while_run(const struct step *s, const struct run *r, struct err *e)
{
    const struct node *n = s->node;
    struct plan *p = s->plan;
    int vars = n->n_vars;
    struct val *v = plan_alloc(p, (size_t)(vars + 1) * sizeof(*v));
    bool go = true;
    if (v == NULL) {
        return err_set(e, ERR_NOMEM, "values");
    }
    struct arena whole = p->arena;
    struct arena now = {0}; /* what this round begins with */
    int rc = carry_all(&now, s->v, n->list, vars, v, e);
    for (unsigned rounds = 0; rc == 0 && go; rounds++) {
        struct arena next = {0};
        if (rounds == MIL_ROUNDS_MAX) {
            rc = err_set(e, ERR_TOO_BIG, "more than %u rounds", rounds);
            break;
        }
        p->arena = (struct arena){0};
        rc = round_run(p, n, r, v, &go, e);
        if (rc == 0 && go) {
            rc = carry_all(&next, p->v, n->blocks[1].out, vars, v, e);
        }
        arena_fini(&p->arena);
        if (rc == 0 && !go) {
            break; /* v still is in `now` */
        }
        arena_fini(&now);
        now = next;
    }
    p->arena = whole;
    for (int k = 0; k < vars && rc == 0; k++) {
        rc = carry(&p->arena, &v[k], step_out(s, k), e);
    }
    arena_fini(&now);
    return rc;
}
