/* From the program's IR to nodes and slots.
 *
 * It notes which ops read a constant, and how; bind_const.c decides from that
 * how the constant is stored. */
#include "engine/cpu/graph/bind.h"

#include <string.h>

#include "engine/cpu/graph/bind_impl.h"

static const char *plain(const char *arg)
{
    return arg + strspn(arg, "?*%");
}

static const char *op_name(const struct mil_op *op)
{
    return op->n_outputs > 0 ? op->outputs[0]->name : "";
}

static int slot_of(const struct mil_value *v)
{
    return (int)v->id;
}

/* --- counting --- */

static size_t inline_constants(const struct mil_block *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n_ops; i++) {
        for (size_t k = 0; k < b->ops[i]->n_args; k++) {
            n += b->ops[i]->args[k].n;
        }
        n += b->ops[i]->n_attrs;
        for (size_t k = 0; k < b->ops[i]->n_blocks; k++) {
            n += inline_constants(b->ops[i]->blocks[k]);
        }
    }
    return n;
}

static int alloc_slots(struct binder *b, struct err *e)
{
    struct backend_model *m = b->m;
    size_t n = m->fn->n_values + inline_constants(m->fn->body);
    if (n > MIL_OPS_MAX * 8) {
        return err_set(e, ERR_TOO_BIG, "too many values");
    }
    m->n_slots = (int)n;
    b->next = (int)m->fn->n_values;
    m->consts = arena_array(&m->arena, n + 1, sizeof(*m->consts));
    m->slot_type = arena_array(&m->arena, n + 1, sizeof(struct mil_type *));
    b->raw = arena_array(&m->arena, n + 1, sizeof(*b->raw));
    m->nodes =
        arena_array(&m->arena, m->fn->body->n_ops + 1, sizeof(*m->nodes));
    if (m->consts == NULL || m->slot_type == NULL || b->raw == NULL ||
        m->nodes == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    return 0;
}

/* --- nodes --- */

static int bind_one(struct binder *b, const struct mil_binding *bi, bool place,
                    int *ret, struct err *e)
{
    int slot = 0;
    if (bi->value != NULL) {
        const struct mil_op *def = bi->value->def;
        slot = slot_of(bi->value);
        if (def != NULL && weight_is_op(def->type) && def->n_outputs != 1) {
            return err_set(e, ERR_MIL_OP,
                           "%s: a sparse constant is only for constexpr "
                           "operations",
                           bi->value->name);
        }
    } else {
        slot = b->next++;
        b->raw[slot].c = bi->imm;
    }
    if (!place) {
        b->raw[slot].dense = true;
    }
    *ret = slot;
    return 0;
}

/* Index of the operand called name in the table's row, or -1. */
static int arg_index(const struct op_def *d, const char *name)
{
    for (int i = 0; i < CPU_ARGS_MAX && d->args[i] != NULL; i++) {
        if (strcmp(plain(d->args[i]), name) == 0) {
            return i;
        }
    }
    return -1;
}

static int bind_arg(struct binder *b, struct node *n, const struct mil_op *op,
                    const struct mil_arg *a, struct err *e)
{
    int i = arg_index(n->def, a->name);
    if (i < 0) {
        return err_set(e, ERR_MIL_OP, "%s %s: aned does not know operand %s",
                       op->type, n->name, a->name);
    }
    if (strchr(n->def->args[i], '*') != NULL) {
        return 0; /* bind_tuples */
    }
    if (a->n != 1) {
        return err_set(e, ERR_MIL_INVALID, "%s %s: operand %s has %zu values",
                       op->type, n->name, a->name, a->n);
    }
    bool place = strchr(n->def->args[i], '%') != NULL;
    return bind_one(b, &a->b[0], place, &n->in[i], e);
}

/* All tuples of the operation as one list, in the order of the table's row. */
static int bind_tuples(struct binder *b, struct node *n,
                       const struct mil_op *op, struct err *e)
{
    size_t total = 0;
    for (int i = 0; i < CPU_ARGS_MAX && n->def->args[i] != NULL; i++) {
        const struct mil_arg *a = mil_op_arg(op, plain(n->def->args[i]));
        bool tuple = strchr(n->def->args[i], '*') != NULL;
        total += tuple && a != NULL ? a->n : 0;
    }
    if (total == 0) {
        return 0;
    }
    n->list = arena_array(&b->m->arena, total, sizeof(*n->list));
    if (n->list == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    for (int i = 0; i < CPU_ARGS_MAX && n->def->args[i] != NULL; i++) {
        const struct mil_arg *a = mil_op_arg(op, plain(n->def->args[i]));
        bool tuple = strchr(n->def->args[i], '*') != NULL;
        for (size_t k = 0; tuple && a != NULL && k < a->n; k++) {
            int rc = bind_one(b, &a->b[k], false, &n->list[n->n_list++], e);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return 0;
}

static int check_required(const struct node *n, struct err *e)
{
    for (int i = 0; i < CPU_ARGS_MAX && n->def->args[i] != NULL; i++) {
        const char *a = n->def->args[i];
        bool have = strchr(a, '*') != NULL ? n->n_list > 0 : n->in[i] >= 0;
        if (!have && strchr(a, '?') == NULL) {
            return err_set(e, ERR_MIL_INVALID, "%s %s: operand %s is missing",
                           n->def->type, n->name, plain(a));
        }
    }
    return 0;
}

struct node *node_new(struct backend_model *m, const struct op_def *d,
                      const char *name, int n_out)
{
    struct node *n = arena_alloc(&m->arena, sizeof(*n));
    int *in = arena_array(&m->arena, CPU_ARGS_MAX, sizeof(int));
    int *out = arena_array(&m->arena, (size_t)n_out + 1, sizeof(int));
    if (n == NULL || in == NULL || out == NULL) {
        return NULL;
    }
    for (int i = 0; i < CPU_ARGS_MAX; i++) {
        in[i] = -1;
    }
    *n = (struct node){.def = d,
                       .name = name,
                       .in = in,
                       .n_out = n_out,
                       .out = out,
                       .state = -1};
    return n;
}

/* read_state and write_state name their state by its function input. */
static int bind_state(struct binder *b, struct node *n, struct err *e)
{
    int i = arg_index(n->def, "input");
    if (i < 0 || (strcmp(n->def->type, "read_state") != 0 &&
                  strcmp(n->def->type, "write_state") != 0)) {
        return 0;
    }
    const struct val *v = &b->m->consts[n->in[i]];
    if (v->kind != VAL_STATE) {
        return err_set(e, ERR_MIL_INVALID, "%s %s: input is not a state",
                       n->def->type, n->name);
    }
    n->state = v->state;
    return 0;
}

static int bind_ops(struct binder *b, const struct mil_block *from,
                    struct node **nodes, int *n_nodes, struct err *e);

static int bind_block(struct binder *b, const struct mil_block *from,
                      struct sub_block *to, struct err *e)
{
    struct arena *a = &b->m->arena;
    to->nodes = arena_array(a, from->n_ops + 1, sizeof(struct node *));
    to->in = arena_array(a, from->n_inputs + 1, sizeof(int));
    to->out = arena_array(a, from->n_outputs + 1, sizeof(int));
    if (to->nodes == NULL || to->in == NULL || to->out == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    for (size_t i = 0; i < from->n_inputs; i++) {
        const struct mil_value *v = from->inputs[i];
        b->m->slot_type[slot_of(v)] = &v->type;
        to->in[to->n_in++] = slot_of(v);
    }
    RETERR(bind_ops(b, from, to->nodes, &to->n_nodes, e));
    for (size_t i = 0; i < from->n_outputs; i++) {
        const struct mil_binding out = {.value = from->outputs[i]};
        RETERR(bind_one(b, &out, false, &to->out[to->n_out++], e));
    }
    return 0;
}

static void add_read(int *list, size_t *n, int slot)
{
    if (slot >= 0) {
        if (list != NULL) {
            list[*n] = slot;
        }
        (*n)++;
    }
}

/* Slots that a block reads, into list unless it is NULL; their number. */
static size_t block_reads(const struct sub_block *s, int *list)
{
    size_t n = 0;
    for (int i = 0; i < s->n_out; i++) {
        add_read(list, &n, s->out[i]);
    }
    for (int i = 0; i < s->n_nodes; i++) {
        const struct node *node = s->nodes[i];
        for (int k = 0; k < CPU_ARGS_MAX; k++) {
            add_read(list, &n, node->in[k]);
        }
        for (int k = 0; k < node->n_list; k++) {
            add_read(list, &n, node->list[k]);
        }
    }
    return n;
}

/* Add what the blocks read to the list of the node that has them, after its
 * tuple: so a value that only a block reads does not count as dead. */
static int add_reads(struct binder *b, struct node *n, struct err *e)
{
    size_t total = (size_t)n->n_list;
    for (int k = 0; k < n->n_blocks; k++) {
        total += block_reads(&n->blocks[k], NULL);
    }
    int *list = arena_array(&b->m->arena, total + 1, sizeof(*list));
    if (list == NULL || total > MIL_OPS_MAX * 8) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    for (int i = 0; i < n->n_list; i++) {
        list[i] = n->list[i];
    }
    n->n_vars = n->n_list;
    n->list = list;
    for (int k = 0; k < n->n_blocks; k++) {
        const struct sub_block *s = &n->blocks[k];
        n->n_list += (int)block_reads(s, list + n->n_list);
        for (int i = 0; i < s->n_nodes; i++) {
            n->writes =
                n->writes || s->nodes[i]->writes || s->nodes[i]->n_out == 0;
        }
    }
    return 0;
}

static int bind_blocks(struct binder *b, struct node *n,
                       const struct mil_op *op, struct err *e)
{
    if (op->n_blocks == 0) {
        return 0;
    }
    n->blocks = arena_array(&b->m->arena, op->n_blocks, sizeof(*n->blocks));
    if (n->blocks == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    b->m->has_blocks = true;
    for (size_t k = 0; k < op->n_blocks; k++) {
        int rc = bind_block(b, op->blocks[k], &n->blocks[n->n_blocks++], e);
        if (rc < 0) {
            return rc;
        }
    }
    return add_reads(b, n, e);
}

static const struct op_def *definition(const struct mil_op *op)
{
    const struct op_def *d = op_of_ints(op->type);
    const struct mil_arg *x = mil_op_arg(op, "x");
    if (d != NULL && x != NULL && x->n == 1) {
        const struct mil_type *t =
            x->b[0].value != NULL ? &x->b[0].value->type : &x->b[0].imm->type;
        return t->dtype == MIL_INT32 ? d : op_find(op->type);
    }
    return op_find(op->type);
}

static int bind_op(struct binder *b, const struct mil_op *op,
                   struct node **nodes, int *n_nodes, struct err *e)
{
    struct backend_model *m = b->m;
    const struct op_def *d = definition(op);
    if (d == NULL) {
        return err_set(e, ERR_MIL_OP,
                       "aned does not run operation %s (%s in function %s)",
                       op->type, op_name(op), m->fn->name);
    }
    struct node *n = node_new(m, d, op_name(op), (int)op->n_outputs);
    if (n == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    for (size_t k = 0; k < op->n_args; k++) {
        RETERR(bind_arg(b, n, op, &op->args[k], e));
    }
    RETERR(bind_tuples(b, n, op, e));
    for (size_t k = 0; k < op->n_outputs; k++) {
        n->out[k] = slot_of(op->outputs[k]);
    }
    RETERR(check_required(n, e));
    RETERR(bind_state(b, n, e));
    RETERR(bind_blocks(b, n, op, e));
    nodes[(*n_nodes)++] = n;
    return 0;
}

static int bind_ops(struct binder *b, const struct mil_block *from,
                    struct node **nodes, int *n_nodes, struct err *e)
{
    for (size_t i = 0; i < from->n_ops; i++) {
        const struct mil_op *op = from->ops[i];
        for (size_t k = 0; k < op->n_outputs; k++) {
            b->m->slot_type[slot_of(op->outputs[k])] = &op->outputs[k]->type;
        }
        if (strcmp(op->type, "const") == 0 && op->n_outputs == 1) {
            b->raw[slot_of(op->outputs[0])].c = mil_value_const(op->outputs[0]);
            continue;
        }
        if (weight_is_op(op->type)) {
            if (op->n_outputs == 1) {
                b->raw[slot_of(op->outputs[0])].op = op;
            } /* else sparse: only other constexpr operations take it */
            continue;
        }
        int rc = bind_op(b, op, nodes, n_nodes, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* --- dead operations --- */

static void mark(bool *live, int slot)
{
    if (slot >= 0) {
        live[slot] = true;
    }
}

int bind_drop_dead(struct backend_model *m, struct err *e)
{
    bool *live = calloc((size_t)m->n_slots + 1, sizeof(*live));
    if (live == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    for (size_t k = 0; k < m->n_out; k++) {
        live[m->out_slot[k]] = true;
    }
    int kept = m->n_nodes; /* nodes[kept..] are the live ones */
    for (int i = m->n_nodes - 1; i >= 0; i--) {
        struct node *n = m->nodes[i];
        bool want = n->n_out == 0 || n->writes; /* a state */
        for (int k = 0; k < n->n_out; k++) {
            want = want || live[n->out[k]];
        }
        if (!want) {
            continue;
        }
        for (int k = 0; k < CPU_ARGS_MAX; k++) {
            mark(live, n->in[k]);
        }
        for (int k = 0; k < n->n_list; k++) {
            mark(live, n->list[k]);
        }
        m->nodes[--kept] = n;
    }
    memmove(m->nodes, m->nodes + kept,
            (size_t)(m->n_nodes - kept) * sizeof(struct node *));
    m->n_nodes -= kept;
    free(live);
    return 0;
}

int bind_run(struct backend_model *m, struct err *e)
{
    struct binder b = {.m = m};
    RETERR(alloc_slots(&b, e));
    int states = 0;
    for (size_t i = 0; i < m->fn->n_inputs; i++) {
        const struct mil_value *v = m->fn->inputs[i];
        m->slot_type[slot_of(v)] = &v->type;
        if (v->type.state) {
            m->consts[slot_of(v)] =
                (struct val){.kind = VAL_STATE, .state = states++};
        }
    }
    RETERR(bind_ops(&b, m->fn->body, m->nodes, &m->n_nodes, e));
    RETERR(bind_consts(&b, e));
    return bind_drop_dead(m, e);
}
