/* Making a plan walks the nodes in program order. Each operation's prep sees
 * its operands' shapes, and the data of those that are *known*: constants and
 * what follows from constants and shapes alone, which is computed on the spot
 * and never again (so shape arithmetic and constant folding need no pass of
 * their own).
 *
 * When a shape depends on data that is not known, prep returns CPU_UNKNOWN and
 * the plan is made again in dynamic mode: inputs first, then every operation is
 * run as soon as it is prepared, without fused forms (plan_cache.c). That is
 * slow but correct; the converter's programs do not need it.
 *
 * All other values get a place in one buffer (plan_place.c). */
#include "engine/cpu/graph/plan.h"

#include <string.h>

#include "base/half.h"
#include "base/num.h"

void *plan_alloc(struct plan *p, size_t n)
{
    void *r = arena_alloc(&p->arena, n > 0 ? n : 1);
    if (r == NULL) {
        p->failed = true;
    }
    return r;
}

void plan_free(struct plan *p)
{
    if (p == NULL) {
        return;
    }
    arena_fini(&p->arena);
    free(p->touched);
    free(p->buffer);
    free(p);
}

/* --- inputs --- */

static enum val_kind kind_of(enum mil_dtype t)
{
    if (t == MIL_FP16 || t == MIL_FP32 || t == MIL_FP64 || t == MIL_BF16) {
        return VAL_F32;
    }
    return t == MIL_BOOL ? VAL_BOOL : VAL_I32;
}

void plan_floats(const struct tensor *t, size_t n, float *out)
{
    if (t->dtype == MIL_FP16) {
        half_to_floats(t->data, out, n);
    } else if (t->dtype == MIL_FP32) {
        memcpy(out, t->data, n * sizeof(float));
    } else if (t->dtype == MIL_BOOL) {
        for (size_t i = 0; i < n; i++) {
            out[i] = ((const uint8_t *)t->data)[i] != 0 ? 1.0f : 0.0f;
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            out[i] = (float)((const int32_t *)t->data)[i];
        }
    }
}

static void load_floats(struct val *v, const struct tensor *t, bool round)
{
    plan_floats(t, v->n, v->f);
    if (round) {
        half_round_floats(v->f, v->n);
    }
}

/* Saturating; NaN gives 0. */
static int32_t to_int(float f)
{
    if (f >= 2147483648.0f) {
        return INT32_MAX;
    }
    if (f < -2147483648.0f) {
        return INT32_MIN;
    }
    return f == f ? (int32_t)f : 0;
}

static void load_ints(struct val *v, const struct tensor *t)
{
    for (size_t i = 0; i < v->n; i++) {
        if (t->dtype == MIL_INT32) {
            v->i[i] = ((const int32_t *)t->data)[i];
        } else if (t->dtype == MIL_BOOL) {
            v->i[i] = ((const uint8_t *)t->data)[i] != 0;
        } else if (t->dtype == MIL_FP32) {
            v->i[i] = to_int(((const float *)t->data)[i]);
        } else {
            v->i[i] = to_int(half_to_float(((const uint16_t *)t->data)[i]));
        }
        if (v->kind == VAL_BOOL) {
            v->i[i] = v->i[i] != 0;
        }
    }
}

static void load_inputs(struct plan *p, const struct tensor *const *in)
{
    const struct backend_model *m = p->m;
    for (size_t k = 0; k < m->n_in; k++) {
        struct val *v = &p->v[m->in_slot[k]];
        if (v->kind == VAL_F32) {
            load_floats(v, in[k], m->round && slot_is_fp16(m, m->in_slot[k]));
        } else {
            load_ints(v, in[k]);
        }
    }
}

/* --- running --- */

static void round_outputs(const struct step *s, const struct run *r)
{
    if (!r->round) {
        return;
    }
    const struct backend_model *m = s->plan->m;
    for (int k = 0; k < s->node->n_out; k++) {
        struct val *o = step_out(s, k);
        if (o->kind == VAL_F32 && slot_is_fp16(m, s->node->out[k])) {
            half_round_floats(o->f, o->n);
        }
    }
}

static int step_run(struct step *s, const struct run *r, struct err *e)
{
    if (s->alias) {
        struct val *o = step_out(s, 0);
        size_t size = o->kind == VAL_F16 ? sizeof(uint16_t) : sizeof(float);
        o->p = (char *)step_in(s, 0)->p + s->alias_at * size;
        return 0;
    }
    int rc = s->node->def->run(s, r, e);
    if (rc < 0) {
        return err_prefix(e, rc, "%s %s", s->node->def->type, s->node->name);
    }
    round_outputs(s, r);
    return 0;
}

/* cpu_conf.tap */
static void show(const struct backend_model *m, const struct step *s)
{
    if (m->tap != NULL && s->node->n_out == 1 &&
        step_out(s, 0)->kind == VAL_F32) {
        m->tap(m->tap_ctx, s->node->name, step_out(s, 0)->f,
               step_out(s, 0)->n);
    }
}

static int grow_scratch(struct backend_model *m, size_t n, struct err *e)
{
    if (n <= m->scratch_bytes) {
        return 0;
    }
    uint64_t size = 0;
    void *p = NULL;
    if (num_align(n, 64, &size)) {
        p = aligned_alloc(64, (size_t)size);
    }
    if (p == NULL) {
        return err_set(e, ERR_NOMEM, "scratch memory");
    }
    free(m->scratch);
    m->scratch = p;
    m->scratch_bytes = n;
    return 0;
}

static struct run run_of(struct backend_model *m, struct backend_state *st)
{
    return (struct run){.threads = m->threads,
                        .round = m->round,
                        .scratch = m->scratch,
                        .st = st,
                        .serial = m->serial};
}

/* --- making --- */

/* Memory of the plan's own for the step's outputs, then compute them. */
static int compute_now(struct plan *p, struct step *s, struct backend_state *st,
                       struct err *e)
{
    for (int k = 0; k < s->node->n_out && !s->alias; k++) {
        struct val *o = step_out(s, k);
        if (o->kind == VAL_F32 || o->kind == VAL_I32 || o->kind == VAL_BOOL) {
            o->p = plan_alloc(p, o->n * sizeof(float));
        }
    }
    if (p->failed) {
        return err_set(e, ERR_NOMEM, "values");
    }
    int rc = grow_scratch(p->m, s->scratch, e);
    if (rc < 0) {
        return rc;
    }
    struct run r = run_of(p->m, st);
    rc = step_run(s, &r, e);
    for (int k = 0; k < s->node->n_out; k++) {
        step_out(s, k)->known = true;
    }
    s->done = true;
    return rc;
}

static bool inputs_known(const struct step *s)
{
    const struct node *n = s->node;
    if (n->state >= 0 || n->n_out == 0) {
        return false;
    }
    for (int i = 0; i < CPU_ARGS_MAX && n->def->args[i] != NULL; i++) {
        const struct val *v = step_opt(s, i);
        if (v != NULL && !v->known) {
            return false;
        }
    }
    for (int i = 0; i < n->n_list; i++) {
        if (!step_list(s, i)->known) {
            return false;
        }
    }
    return true;
}

static int make_step(struct plan *p, struct step *s, const struct node *node,
                     struct backend_state *st, struct err *e)
{
    s->node = node;
    s->plan = p;
    s->v = p->v;
    s->plan_threads = p->m->threads;
    int rc = s->node->def->prep(s, e);
    if (rc == CPU_UNKNOWN) {
        return rc;
    }
    if (rc < 0) {
        return err_prefix(e, rc, "%s %s", s->node->def->type, s->node->name);
    }
    if (p->failed) {
        return err_set(e, ERR_NOMEM, "values");
    }
    if (s->node->n_out > 0 && step_out(s, 0)->known) {
        s->done = true; /* by prep itself: the shape operation */
        return 0;
    }
    if (p->dynamic || inputs_known(s)) {
        return compute_now(p, s, st, e);
    }
    p->scratch = num_max(p->scratch, s->scratch);
    return 0;
}

int plan_block(struct plan *p, const struct sub_block *b,
               struct backend_state *st, struct err *e)
{
    must(p->dynamic);
    for (int i = 0; i < b->n_nodes; i++) {
        const struct node *n = b->nodes[i];
        for (int k = 0; k < n->n_out; k++) { /* nothing of the last round */
            p->v[n->out[k]] = p->m->consts[n->out[k]];
        }
        struct step *s = plan_alloc(p, sizeof(*s));
        if (s == NULL) {
            return err_set(e, ERR_NOMEM, "values");
        }
        int rc = make_step(p, s, n, st, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int start_inputs(struct plan *p, const struct tensor *const *in,
                        struct err *e)
{
    const struct backend_model *m = p->m;
    for (size_t k = 0; k < m->n_in; k++) {
        struct val *v = &p->v[m->in_slot[k]];
        int rc = val_set(v, kind_of(m->in[k].type.dtype), in[k]->rank,
                         in[k]->dims, e);
        if (rc < 0) {
            return rc;
        }
        if (p->dynamic) {
            v->p = plan_alloc(p, v->n * sizeof(float));
            if (p->failed) {
                return err_set(e, ERR_NOMEM, "inputs");
            }
            v->known = true;
        }
    }
    if (p->dynamic) {
        load_inputs(p, in);
    }
    return 0;
}

size_t plan_key_size(const struct backend_model *m)
{
    return (m->n_in + 1) * MIL_RANK_MAX * sizeof(int64_t);
}

void plan_key(const struct backend_model *m, const struct tensor *const *in,
              int64_t *key)
{
    memset(key, 0, plan_key_size(m));
    for (size_t k = 0; k < m->n_in; k++) {
        memcpy(key + k * MIL_RANK_MAX, in[k]->dims,
               (size_t)in[k]->rank * sizeof(*key));
    }
}

int plan_new(struct backend_model *m, bool plain, struct backend_state *st,
             const struct tensor *const *in, struct plan **ret, struct err *e)
{
    int rc = 0;
    struct node **nodes = plain ? m->plain : m->nodes;
    int n_nodes = plain ? m->n_plain : m->n_nodes;
    struct plan *p = calloc(1, sizeof(*p));
    must(p != NULL);
    arena_init(&p->arena, 0);
    p->m = m;
    p->dynamic = m->dynamic;
    p->n_steps = n_nodes;
    p->key = arena_alloc(&p->arena, plan_key_size(m));
    p->v = arena_array(&p->arena, (size_t)m->n_slots, sizeof(*p->v));
    p->steps = arena_array(&p->arena, (size_t)n_nodes + 1, sizeof(*p->steps));
    if (p->key == NULL || p->v == NULL || p->steps == NULL) {
        rc = err_set(e, ERR_NOMEM, "a plan");
        goto out;
    }
    plan_key(m, in, p->key);
    memcpy(p->v, m->consts, (size_t)m->n_slots * sizeof(*p->v));
    CHECK(start_inputs(p, in, e));
    for (int i = 0; i < p->n_steps; i++) {
        CHECK(make_step(p, &p->steps[i], nodes[i], st, e));
    }
    if (!p->dynamic) {
        CHECK(plan_place(p, e));
    }
    *ret = p;
    p = NULL;
out:
    plan_free(p);
    return rc;
}

int plan_for(struct backend_model *m, const struct tensor *const *in,
             struct plan **ret, struct err *e)
{
    struct plan *p = NULL;
    int rc = 0;
    CHECK(plan_new(m, false, NULL, in, &p, e));
    CHECK(grow_scratch(m, p->scratch, e));
    *ret = p;
    p = NULL;
out:
    plan_free(p);
    return rc;
}

int plan_step(struct plan *p, int i, struct err *e)
{
    struct run r = run_of(p->m, NULL);
    return step_run(&p->steps[i], &r, e);
}

/* --- run --- */

int plan_run(struct backend_model *m, struct backend_state *st,
             const struct tensor *const *in, const struct val **ret_v,
             struct err *e)
{
    struct plan *p = NULL;
    m->serial++;
    RETERR(plan_find(m, st, in, &p, e));
    RETERR(grow_scratch(m, p->scratch, e));
    if (!p->dynamic) {
        load_inputs(p, in);
        struct run r = run_of(m, st);
        for (int i = 0; i < p->n_steps; i++) {
            if (!p->steps[i].done) {
                RETERR(step_run(&p->steps[i], &r, e));
                show(m, &p->steps[i]);
            }
        }
    }
    plan_trim(m);
    *ret_v = p->v;
    return 0;
}
