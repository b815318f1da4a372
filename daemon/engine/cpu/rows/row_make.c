/* row_make.c - from a model's nodes to row ops.
 *
 * The plan at T = 1 gives every value's shape and computes what is constant;
 * each of its other steps becomes one op. Values are the model's slots, with
 * the same numbers; values that passes add follow them. When states have been
 * recognised and dead ops removed, every op that is still a plain step must
 * keep rows apart (row_check.c) and may use no mask and no state. */
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
    op->in[op->n_in++] = slot;
}

static int add_step(struct row_program *p, int i, struct err *e)
{
    const struct step *s = &p->plan->steps[i];
    const struct node *n = s->node;
    struct row_op *op = &p->ops[p->n_ops++];
    size_t room = (size_t)n->n_list + CPU_ARGS_MAX;
    *op = (struct row_op){.kind = ROW_STEP, .name = n->name, .step = i};
    op->in = arena_array(&p->arena, num_max(room, ROW_IN_MIN), sizeof(int));
    room = (size_t)n->n_out;
    op->out = arena_array(&p->arena, num_max(room, 1), sizeof(int));
    op->at = arena_array(&p->arena, num_max(room, 1), sizeof(*op->at));
    if (op->in == NULL || op->out == NULL || op->at == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    for (int k = 0; k < CPU_ARGS_MAX && n->def->args[k] != NULL; k++) {
        add_operand(p, op, n->in[k]);
    }
    for (int k = 0; k < n->n_list; k++) {
        add_operand(p, op, n->list[k]);
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
    return 0;
}

static int add_steps(struct row_program *p, struct err *e)
{
    for (int i = 0; i < p->plan->n_steps; i++) {
        if (!p->plan->steps[i].done) {
            RETERR(add_step(p, i, e));
        }
    }
    return 0;
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
    int rc = 0;
    if (t == NULL || in == NULL) {
        rc = err_set(e, ERR_NOMEM, "inputs");
        goto out;
    }
    for (size_t k = 0; k < m->n_in; k++) {
        const struct mil_type *type = &m->in[k].type;
        t[k] = (struct tensor){
            .name = m->in[k].name, .dtype = MIL_FP32, .rank = type->rank};
        for (int i = 0; i < type->rank; i++) {
            t[k].dims[i] = type->dims[i] == MIL_UNKNOWN ? 1 : type->dims[i];
        }
        in[k] = &t[k];
    }
    rc = plan_for(m, in, &p->plan, e);
out:
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
        if (v->n > UINT32_MAX) {
            return "an input is too large";
        }
        port->use = v->class == ROW_MASK    ? BACKEND_ROW_MASK
                    : v->class == ROW_WRITE ? BACKEND_ROW_WRITE
                    : v->class == ROW_PAST  ? BACKEND_ROW_PAST
                    : p->uses[m->in_slot[k]] == 0 ? BACKEND_ROW_UNREAD
                                                  : BACKEND_ROW_DATA;
        port->width = v->class == ROW_VALUE ? (uint32_t)v->n : 0;
        p->t_axis_in[k] = row_t_axis(m, m->in_slot[k]);
        if (m->has_t && p->t_axis_in[k] < 0 && v->class != ROW_PAST) {
            return "an input does not depend on T";
        }
    }
    for (size_t k = 0; k < m->n_out; k++) {
        if (p->v[m->out_slot[k]].n > UINT32_MAX) {
            return "an output is too large";
        }
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
    RETERR(row_states(p, why, e));
    if (*why != NULL) {
        return 0;
    }
    row_count(p);
    RETERR(row_tails(p, e));
    row_count(p);
    RETERR(row_pass_dead(p, e));
    row_count(p);
    *why = row_check_ops(p);
    if (*why == NULL) {
        *why = set_ports(p);
    }
    const char *done = ROW_STATES;
    for (const struct row_pass *s = row_passes; *why == NULL && s->name != NULL;
         s++) {
        if (p->m->after != NULL && strcmp(p->m->after, done) == 0) {
            break;
        }
        RETERR(s->run(p, e));
        row_count(p);
        done = s->name;
    }
    return 0;
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
    if (scratch > MIL_TENSOR_BYTES_MAX / sizeof(float)) {
        return err_set(e, ERR_TOO_BIG, "attention over very many numbers");
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

/* Bytes of a row that the widest product's input takes, in both forms, and what
 * experts take beside it. */
static size_t linear_row_bytes(const struct row_program *p)
{
    size_t k = 0;
    size_t more = 0;
    for (int i = 0; i < p->n_ops; i++) {
        if (p->ops[i].kind == ROW_LINEAR) {
            k = num_max(k, p->ops[i].linear.w[0]->cols);
        } else if (p->ops[i].kind == ROW_EXPERTS) {
            k = num_max(k, row_experts_inputs(&p->ops[i].experts));
            more = num_max(more, row_experts_floats(&p->ops[i].experts));
        }
    }
    return k * (2 * sizeof(int16_t) + sizeof(float)) + more * sizeof(float);
}

/* Products come one after the other: all use one memory for their input. */
static int open_linears(struct row_program *p, struct err *e)
{
    RETERR(linear_in_new(0, &p->lin, e));
    for (int i = 0; i < p->n_ops; i++) {
        struct row_linear *f = &p->ops[i].linear;
        if (p->ops[i].kind != ROW_LINEAR) {
            continue;
        }
        for (int w = 0; w < f->parts; w++) {
            bool integer = linear_wants_integer(f->w[w]);
            f->integer = f->integer || integer;
            f->real = f->real || !integer;
        }
        linear_in_length(p->lin, f->w[0]->cols);
        RETERR(linear_in_reserve(p->lin, p->kernels, p->rows_max, f->integer,
                                 f->real, p->m->threads, e));
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

/* The text of a program after the first passes, when it needs later passes to
 * run. */
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

/* *no: why the program does not run by rows, which is no error. */
static int compile(struct row_program *p, const char **no, struct err *e)
{
    struct backend_model *m = p->m;
    RETERR(alloc_program(p, e));
    set_values(p);
    RETERR(row_check_length(p, no, e));
    if (*no != NULL) {
        return 0;
    }
    RETERR(add_steps(p, e));
    RETERR(recognise(p, no, e));
    if (*no != NULL) {
        return 0;
    }
    *no = check_heads(p);
    if (*no != NULL) {
        if (m->after != NULL) {
            m->seen = text_of(p);
        }
        return 0;
    }
    RETERR(row_place(p, e));
    size_t row = num_max(p->floats, 1) * sizeof(float);
    row += linear_row_bytes(p);
    p->rows_max = num_min(ENGINE_STEP_ROWS_MAX,
                          num_max(ENGINE_ROWS_BYTES_MAX / row, 1));
    RETERR(open_linears(p, e));
    RETERR(row_experts_open(p, e));
    RETERR(open_memory(p, e));
    RETERR(row_tails_open(p, e));
    return open_states(p, e);
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
    CHECK(compile(p, &no, e));
    if (no == NULL) {
        *ret = p;
        p = NULL; /* given away */
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
    linear_in_free(p->lin);
    free(p->tables);
    free(p->before);
    free(p->tail_scratch);
    free(p->tail_each);
    kv_pool_free(p->pool);
    free(p->memory);
    free(p->scratch);
    free(p->mixing);
    free(p->picked);
    plan_free(p->plan);
    arena_fini(&p->arena);
    free(p);
}
