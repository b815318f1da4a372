/* row_make.c - from a model's nodes to row ops.
 *
 * The plan at T = 1 gives every value's shape and computes what is constant;
 * each of its steps that is left becomes one op. Values are the model's slots,
 * by the same numbers, and what passes add behind them. After the states have
 * been recognised and dead ops are gone, every op that is still a plain step
 * must keep rows apart (row_check.c) and may touch no mask and no state. */
#include "engine/cpu/rows/row_make.h"

#include <string.h>

#include "base/num.h"
#include "engine/cpu/ops/ops.h"

/* --- questions that passes ask --- */

const struct step *row_step(const struct row_program *p,
                            const struct row_op *op)
{
    return op->step >= 0 ? &p->plan->steps[op->step] : NULL;
}

const struct node *row_node(const struct row_program *p,
                            const struct row_op *op)
{
    return op->step >= 0 ? p->plan->steps[op->step].node : NULL;
}

bool row_is(const struct row_program *p, const struct row_op *op,
            const char *type)
{
    return op != NULL && op->kind == ROW_STEP && op->step >= 0 &&
           strcmp(row_node(p, op)->def->type, type) == 0;
}

bool row_is_elementwise(const struct node *n)
{
    return n->def->run == unary_run || n->def->run == binary_run ||
           n->def->run == select_run || n->def->run == cast_run;
}

int row_root(const struct row_program *p, int value, size_t *at)
{
    *at = 0;
    for (;;) {
        const struct row_op *op = row_def(p, value);
        if (op == NULL || op->kind != ROW_VIEW) {
            return value;
        }
        for (int k = 0; k < op->n_out; k++) {
            *at += op->out[k] == value ? op->at[k] : 0;
        }
        value = op->in[0];
    }
}

struct row_op *row_def(const struct row_program *p, int value)
{
    return value >= 0 && p->def[value] >= 0 ? &p->ops[p->def[value]] : NULL;
}

const float *row_fixed(const struct row_program *p, int value, size_t *n)
{
    if (value < 0 || value >= p->m->n_slots || p->v[value].class != ROW_FIXED) {
        return NULL;
    }
    const struct val *v = &p->plan->v[value];
    *n = v->n;
    return v->kind == VAL_F32 ? v->f : NULL;
}

bool row_fixed1(const struct row_program *p, int value, float *ret)
{
    size_t n = 0;
    const float *f = row_fixed(p, value, &n);
    if (f == NULL || n != 1) {
        return false;
    }
    *ret = f[0];
    return true;
}

int row_arg(const struct node *n, const char *name)
{
    for (int i = 0; i < CPU_ARGS_MAX && n->def->args[i] != NULL; i++) {
        const char *a = n->def->args[i];
        if (strcmp(a + strspn(a, "?*%"), name) == 0) {
            return i;
        }
    }
    return -1;
}

const struct val *row_val(const struct row_program *p, int value)
{
    return &p->plan->v[value];
}

struct row_op *row_maker(const struct row_program *p, int value,
                         const char *type)
{
    size_t at = 0;
    int root = row_root(p, value, &at);
    struct row_op *op = row_def(p, root);
    return at == 0 && p->v[root].n == p->v[value].n && row_is(p, op, type)
               ? op
               : NULL;
}

bool row_same(const struct row_program *p, int a, int b)
{
    size_t at_a = 0;
    size_t at_b = 0;
    return row_root(p, a, &at_a) == row_root(p, b, &at_b) && at_a == at_b &&
           p->v[a].n == p->v[b].n;
}

bool row_repeats(const struct val *small, const struct val *big)
{
    size_t n = 1;
    int i = small->rank - 1;
    int j = big->rank - 1;
    for (; i >= 0 && j >= 0 && n < small->n; i--, j--) {
        if (small->dims[i] != big->dims[j]) {
            return false;
        }
        n *= (size_t)small->dims[i];
    }
    return n == small->n;
}

/* --- values --- */

int row_value_new(struct row_program *p, const char *name, size_t n)
{
    if (p->n_values == p->cap_values) {
        return -1;
    }
    int id = p->n_values++;
    p->v[id] = (struct row_value){
        .class = ROW_VALUE, .name = name, .n = n, .root = id, .input = -1};
    return id;
}

void row_count(struct row_program *p)
{
    for (int i = 0; i < p->n_values; i++) {
        p->def[i] = -1;
        p->uses[i] = 0;
    }
    for (int i = 0; i < p->n_ops; i++) {
        const struct row_op *op = &p->ops[i];
        if (op->kind == ROW_DEAD) {
            continue;
        }
        for (int k = 0; k < op->n_in; k++) {
            p->uses[op->in[k]]++;
        }
        for (int k = 0; k < op->n_out; k++) {
            p->def[op->out[k]] = i;
        }
    }
    for (size_t k = 0; k < p->m->n_out; k++) {
        p->uses[p->m->out_slot[k]]++;
    }
}

static void set_values(struct row_program *p)
{
    const struct backend_model *m = p->m;
    for (int i = 0; i < m->n_slots; i++) {
        const struct val *v = &p->plan->v[i];
        bool data = v->kind == VAL_F32 || v->kind == VAL_I32 ||
                    v->kind == VAL_BOOL || v->kind == VAL_F16;
        p->v[i] = (struct row_value){.class = v->known || v->kind == VAL_WEIGHT
                                                  ? ROW_FIXED
                                              : data ? ROW_VALUE
                                                     : ROW_ABSENT,
                                     .n = v->n,
                                     .root = i,
                                     .input = -1};
    }
    for (size_t k = 0; k < m->n_in; k++) {
        struct row_value *v = &p->v[m->in_slot[k]];
        v->name = m->in[k].name;
        v->input = (int)k;
    }
    p->n_values = m->n_slots;
}

/* --- ops --- */

static void add_operand(struct row_program *p, struct row_op *op, int slot)
{
    if (slot < 0 || p->v[slot].class == ROW_FIXED ||
        p->v[slot].class == ROW_ABSENT) {
        return;
    }
    if (op->n_in < ROW_IN_MAX) {
        op->in[op->n_in] = slot;
    }
    op->n_in++;
}

/* False: more operands or results than an op has room for. */
static bool add_step(struct row_program *p, int i)
{
    const struct step *s = &p->plan->steps[i];
    const struct node *n = s->node;
    struct row_op *op = &p->ops[p->n_ops++];
    *op = (struct row_op){.kind = ROW_STEP, .name = n->name, .step = i};
    for (int k = 0; k < CPU_ARGS_MAX && n->def->args[k] != NULL; k++) {
        add_operand(p, op, n->in[k]);
    }
    for (int k = 0; k < n->n_list; k++) {
        add_operand(p, op, n->list[k]);
    }
    if (op->n_in > ROW_IN_MAX || n->n_out > ROW_OUT_MAX) {
        return false;
    }
    for (int k = 0; k < n->n_out; k++) {
        op->out[op->n_out++] = n->out[k];
        p->v[n->out[k]].name = n->name;
    }
    if (s->alias) {
        op->kind = ROW_VIEW;
        op->at[0] = s->alias_at;
        op->n_in = 1;
        op->in[0] = n->in[0];
    }
    return true;
}

static bool add_steps(struct row_program *p)
{
    for (int i = 0; i < p->plan->n_steps; i++) {
        if (!p->plan->steps[i].done && !add_step(p, i)) {
            return false;
        }
    }
    return true;
}

static int alloc_program(struct row_program *p, struct err *e)
{
    const struct backend_model *m = p->m;
    size_t values = (size_t)m->n_slots + (size_t)m->n_nodes + 1;
    p->cap_values = (int)values;
    p->cap_ops = m->n_nodes + 1;
    struct arena *a = &p->arena;
    p->v = arena_array(a, values, sizeof(*p->v));
    p->def = arena_array(a, values, sizeof(int));
    p->uses = arena_array(a, values, sizeof(int));
    p->ops = arena_array(a, (size_t)p->cap_ops, sizeof(*p->ops));
    p->in_port = arena_array(a, m->n_in + 1, sizeof(*p->in_port));
    p->out_port = arena_array(a, m->n_out + 1, sizeof(*p->out_port));
    p->base = arena_array(a, values, sizeof(*p->base));
    p->t_axis_in = arena_array(a, m->n_in + 1, sizeof(int));
    p->t_axis_out = arena_array(a, m->n_out + 1, sizeof(int));
    p->shapes = arena_array(a, m->n_states + 1, sizeof(*p->shapes));
    return p->v != NULL && p->def != NULL && p->uses != NULL &&
                   p->ops != NULL && p->base != NULL && p->in_port != NULL &&
                   p->out_port != NULL && p->t_axis_in != NULL &&
                   p->t_axis_out != NULL && p->shapes != NULL
               ? 0
               : err_set(e, ERR_NOMEM, "the program");
}

/* The plan of one row: unknown dimensions are 1. CPU_UNKNOWN as plan_for. */
static int plan_one(struct row_program *p, struct err *e)
{
    struct backend_model *m = p->m;
    struct tensor *t = calloc(m->n_in + 1, sizeof(*t));
    const struct tensor **in = calloc(m->n_in + 1, sizeof(*in));
    int rc = t != NULL && in != NULL ? 0 : err_set(e, ERR_NOMEM, "inputs");
    for (size_t k = 0; rc == 0 && k < m->n_in; k++) {
        const struct mil_type *type = &m->in[k].type;
        t[k] = (struct tensor){
            .name = m->in[k].name, .dtype = MIL_FP32, .rank = type->rank};
        for (int i = 0; i < type->rank; i++) {
            t[k].dims[i] = type->dims[i] == MIL_UNKNOWN ? 1 : type->dims[i];
        }
        in[k] = &t[k];
    }
    if (rc == 0) {
        rc = plan_for(m, in, &p->plan, e);
    }
    free(t);
    free(in);
    return rc;
}

/* --- ports --- */

static const char *set_ports(struct row_program *p)
{
    const struct backend_model *m = p->m;
    bool write = false;
    for (size_t k = 0; k < m->n_in; k++) {
        const struct row_value *v = &p->v[m->in_slot[k]];
        struct backend_row_port *port = &p->in_port[k];
        if (v->class == ROW_WRITE && write) {
            return "there are several write masks";
        }
        write = write || v->class == ROW_WRITE;
        port->use = v->class == ROW_MASK    ? BACKEND_ROW_MASK
                    : v->class == ROW_WRITE ? BACKEND_ROW_WRITE
                                            : BACKEND_ROW_DATA;
        port->width = v->class == ROW_VALUE ? (uint32_t)v->n : 0;
        p->t_axis_in[k] = row_t_axis(m, m->in_slot[k]);
        if (m->has_t && p->t_axis_in[k] < 0) {
            return "an input does not depend on T";
        }
        if (v->n > UINT32_MAX) {
            return "an input is too large";
        }
    }
    for (size_t k = 0; k < m->n_out; k++) {
        p->out_port[k].use = BACKEND_ROW_DATA;
        p->out_port[k].width = (uint32_t)p->v[m->out_slot[k]].n;
        p->t_axis_out[k] = row_t_axis(m, m->out_slot[k]);
    }
    return NULL;
}

/* --- make --- */

static int recognise(struct row_program *p, const char **why, struct err *e)
{
    row_count(p);
    int rc = row_states(p, why, e);
    if (rc < 0 || *why != NULL) {
        return rc;
    }
    row_count(p);
    rc = row_pass_dead(p, e);
    if (rc < 0) {
        return rc;
    }
    row_count(p);
    *why = row_check_ops(p);
    if (*why == NULL) {
        *why = set_ports(p);
    }
    const char *done = ROW_STATES;
    for (const struct row_pass *s = row_passes;
         rc == 0 && *why == NULL && s->name != NULL; s++) {
        if (p->m->after != NULL && strcmp(p->m->after, done) == 0) {
            break;
        }
        rc = s->run(p, e);
        row_count(p);
        done = s->name;
    }
    return rc;
}

/* The states' pool, and what attention needs beside the values. */
static int open_states(struct row_program *p, struct err *e)
{
    const struct backend_model *m = p->m;
    size_t scratch = 0;
    for (int i = 0; i < p->n_ops; i++) {
        const struct row_attend *a = &p->ops[i].attend;
        if (p->ops[i].kind == ROW_ATTEND) {
            scratch =
                num_max(scratch, attend_scratch(p->shapes[a->k_state].positions,
                                                a->heads, a->kv_heads, a->dim,
                                                a->vdim, m->threads));
        }
    }
    if (scratch > 0) {
        p->scratch =
            aligned_alloc(64, (scratch * sizeof(float) + 63) & ~(size_t)63);
        if (p->scratch == NULL) {
            return err_set(e, ERR_NOMEM, "scratch memory");
        }
    }
    return m->n_states > 0 ? kv_pool_new(m->n_states, p->shapes, &p->pool, e)
                           : 0;
}

/* Products that read inputs of one length share the memory for them. */
static int open_linears(struct row_program *p, struct err *e)
{
    for (int i = 0; i < p->n_ops; i++) {
        struct row_linear *f = &p->ops[i].linear;
        if (p->ops[i].kind != ROW_LINEAR) {
            continue;
        }
        int j = 0;
        size_t k = f->w[0]->cols;
        while (j < p->n_lins && p->lins[j].k != k) {
            j++;
        }
        if (j == ROW_LINS_MAX) {
            return err_set(e, ERR_TOO_BIG, "products of many lengths");
        }
        if (j == p->n_lins) {
            int rc = linear_in_new(k, &p->lins[j].in, e);
            if (rc < 0) {
                return rc;
            }
            p->lins[p->n_lins++].k = k;
        }
        f->in = p->lins[j].in;
        for (int w = 0; w < f->parts; w++) {
            bool integer = linear_wants_integer(f->w[w]);
            f->integer = f->integer || integer;
            f->real = f->real || !integer;
        }
        int rc = linear_in_reserve(f->in, p->kernels, p->rows_max, f->integer,
                                   f->real, p->m->threads, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* All that any run needs, so that none allocates: addresses, of which a run of
 * n rows touches the first n / rows_max. */
static int open_memory(struct row_program *p, struct err *e)
{
    size_t n = p->rows_max * p->floats + ROW_ALIGN;
    p->memory = aligned_alloc(64, n * sizeof(*p->memory));
    p->tables = calloc(p->rows_max, sizeof(const struct kv_table *));
    if (p->memory == NULL || p->tables == NULL) {
        return err_set(e, ERR_NOMEM, "values of %zu rows", p->rows_max);
    }
    return 0;
}

/* Attention that passes did not join over all heads of its states. */
static const char *check_heads(const struct row_program *p)
{
    for (int i = 0; i < p->n_ops; i++) {
        const struct row_attend *a = &p->ops[i].attend;
        if (p->ops[i].kind == ROW_ATTEND &&
            a->kv_heads != p->shapes[a->k_state].heads) {
            return "an attention reads some heads of a state";
        }
    }
    return NULL;
}

/* What passes up to one of them made of a program that needs the others too. */
static const char *text_of(const struct row_program *p)
{
    const char *text = NULL;
    struct buf b;
    buf_init(&b, MIL_SPEC_BYTES_MAX);
    row_dump(p, &b);
    if (buf_ok(&b)) {
        text = arena_str(&p->m->arena, b.p);
    }
    buf_fini(&b);
    return text;
}

int row_make(struct backend_model *m, struct row_program **ret,
             const char **why, struct err *e)
{
    static const char *ignored;
    const char *no = row_check_ports(m);
    struct row_program *p = calloc(1, sizeof(*p));
    int rc = p != NULL ? 0 : err_set(e, ERR_NOMEM, "the program");
    why = why != NULL ? why : &ignored;
    if (rc < 0 || no != NULL) {
        goto out;
    }
    p->m = m;
    p->kernels = m->kernels;
    arena_init(&p->arena, 0);
    rc = plan_one(p, e);
    if (rc < 0) {
        /* what cannot be planned for one row still runs as a whole */
        no = "it does not run with one row";
        rc = rc == ERR_NOMEM ? rc : 0;
        goto out;
    }
    rc = alloc_program(p, e);
    if (rc == 0) {
        set_values(p);
        no = add_steps(p) ? NULL : "an operation has very many operands";
    }
    if (rc == 0 && no == NULL) {
        rc = recognise(p, &no, e);
    }
    if (rc == 0 && no == NULL) {
        no = check_heads(p);
        if (no != NULL && m->after != NULL) {
            m->seen = text_of(p);
        }
    }
    if (rc == 0 && no == NULL) {
        rc = row_place(p, e);
    }
    if (rc == 0 && no == NULL) {
        size_t row = num_max(p->floats, 1) * sizeof(float);
        p->rows_max = num_min(ENGINE_STEP_ROWS_MAX,
                              num_max(ENGINE_ROWS_BYTES_MAX / row, 1));
        rc = open_linears(p, e);
    }
    if (rc == 0 && no == NULL) {
        rc = open_memory(p, e);
    }
    if (rc == 0 && no == NULL) {
        rc = open_states(p, e);
    }
    if (rc == 0 && no == NULL) {
        *ret = p;
        p = NULL;
    }
out:
    if (no != NULL) {
        *why = arena_str(&m->arena, no);
    }
    row_free(p);
    return rc;
}

void row_free(struct row_program *p)
{
    if (p == NULL) {
        return;
    }
    for (int i = 0; i < p->n_lins; i++) {
        linear_in_free(p->lins[i].in);
    }
    free(p->tables);
    kv_pool_free(p->pool);
    free(p->memory);
    free(p->scratch);
    plan_free(p->plan);
    arena_fini(&p->arena);
    free(p);
}
