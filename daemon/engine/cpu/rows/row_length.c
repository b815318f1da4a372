/* row_length.c - finds the numbers of a program that depend on T.
 *
 * The plan of one row computes in advance all that follows from constants and
 * shapes, with T = 1. This file finds which of these numbers would be different
 * with more rows: they are *marked*, element by element. Marks begin at
 * `shape`, where a dimension is unknown. Operations that move elements, or
 * compute them one by one, pass marks on; the result of any other operation on
 * a marked operand is marked throughout. A value whose own shape may depend on
 * T is *long*: its elements cannot be marked one by one. An unmarked long value
 * is T rows that are all equal to the one that was computed; the result of an
 * operation that keeps rows apart is again such a value, any other result is
 * marked.
 *
 * An operation of the run must not read a marked number: the rows of a call may
 * belong to several sequences, so a row has no T. The one exception is a shape:
 * reshape, fill and tile may get T for exactly the dimension that is declared
 * unknown, because that is T's own axis. */
#include <string.h>

#include "engine/cpu/ops/ops.h"
#include "engine/cpu/rows/row_make.h"

struct marks {
    const struct row_program *p;
    struct arena arena;
    int32_t **of;  /* by slot: one an element, not 0 where marked; NULL: none */
    bool *is_long; /* by slot */
    struct val *v; /* the plan's values, or marks in the place of their data */
};

static int32_t *new_marks(struct marks *m, int slot, int32_t all)
{
    size_t n = row_val(m->p, slot)->n;
    int32_t *marks = arena_array(&m->arena, n + 1, sizeof(*marks));
    for (size_t i = 0; marks != NULL && all != 0 && i < n; i++) {
        marks[i] = all;
    }
    return marks;
}

static bool is_marked(const struct marks *m, int slot)
{
    return slot >= 0 && m->of[slot] != NULL;
}

/* Operand of the list of all: those by name, then the tuple's. -1 none. */
static int operand(const struct node *n, int i)
{
    return i < CPU_ARGS_MAX ? n->in[i] : n->list[i - CPU_ARGS_MAX];
}

static int operands(const struct node *n)
{
    return CPU_ARGS_MAX + n->n_list;
}

/* --- shapes that may hold T --- */

/* The operand that gives the result's shape; -1 none. */
static int shape_operand(const struct node *n)
{
    const char *type = n->def->type;
    if (strcmp(type, "fill") == 0) {
        return 0;
    }
    return strcmp(type, "reshape") == 0 || strcmp(type, "tile") == 0 ? 1 : -1;
}

/* Is T, and nothing else that is marked, in the place of T's axis? A tiled
 * value must not have T there already. */
static bool says_t(const struct marks *m, const struct node *n)
{
    int at = shape_operand(n);
    const struct backend_model *model = m->p->m;
    const struct mil_type *o = model->slot_type[n->out[0]];
    int t = row_t_axis(model, n->out[0]);
    const int32_t *marks = m->of[n->in[at]];
    if (o == NULL || t < 0 || row_val(m->p, n->in[at])->n != (size_t)o->rank ||
        (strcmp(n->def->type, "tile") == 0 &&
         row_t_axis(model, n->in[0]) != -1)) {
        return false;
    }
    for (int i = 0; i < o->rank; i++) {
        if ((marks[i] != 0) != (i == t)) {
            return false;
        }
    }
    return row_is_one(m->p, n->out[0]);
}

/* --- how marks are passed on --- */

static int mark_all(struct marks *m, const struct node *n, struct err *e)
{
    for (int k = 0; k < n->n_out; k++) {
        m->of[n->out[k]] = new_marks(m, n->out[k], 1);
        if (m->of[n->out[k]] == NULL) {
            return err_set(e, ERR_NOMEM, "the program");
        }
    }
    return 0;
}

static int mark_shape(struct marks *m, const struct node *n, struct err *e)
{
    const struct mil_type *t = m->p->m->slot_type[n->in[0]];
    if (is_marked(m, n->in[0])) {
        return mark_all(m, n, e);
    }
    bool fixed = row_val(m->p, n->in[0])->known && !m->is_long[n->in[0]];
    if (fixed || t == NULL || row_t_axis(m->p->m, n->in[0]) == -1) {
        return 0;
    }
    int32_t *marks = new_marks(m, n->out[0], 0);
    if (marks == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    for (int i = 0; i < t->rank; i++) {
        marks[i] = t->dims[i] == MIL_UNKNOWN;
    }
    m->of[n->out[0]] = marks;
    return 0;
}

static bool moves(const struct step *s)
{
    int (*const run[])(const struct step *, const struct run *, struct err *) =
        {concat_run, stack_run,       split_run,     transpose_run,
         gather_run, slice_index_run, slice_size_run};
    bool found = s->alias;
    for (size_t i = 0; i < countof(run); i++) {
        found = found || s->node->def->run == run[i];
    }
    return found && s->scratch == 0;
}

/* Operands of an operation that moves elements: x, or the tuple's. */
static bool is_data(const struct node *n, int i)
{
    return i >= CPU_ARGS_MAX || (i == 0 && n->n_list == 0);
}

/* Only what is moved is marked, and it can be moved. */
static bool can_move(const struct marks *m, const struct step *s)
{
    const struct node *n = s->node;
    bool ok = moves(s);
    for (int i = 0; ok && i < operands(n); i++) {
        int slot = operand(n, i);
        ok = slot < 0 || (is_data(n, i) ? val_is_plain(row_val(m->p, slot))
                                        : !is_marked(m, slot));
    }
    return ok;
}

/* Room for the marks of what s makes, then `over`, which is s over marks. */
static int run_marks(struct marks *m, const struct step *s,
                     const struct step *over, struct err *e)
{
    const struct node *n = s->node;
    RETERR(mark_all(m, n, e));
    for (int k = 0; k < n->n_out; k++) {
        m->v[n->out[k]].i = m->of[n->out[k]];
    }
    if (!s->alias) {
        return n->def->run(over, &(struct run){.threads = 1}, e);
    }
    memcpy(m->of[n->out[0]], m->v[n->in[0]].i + s->alias_at,
           row_val(m->p, n->out[0])->n * sizeof(int32_t));
    return 0;
}

/* The operation once more, over marks. */
static int move_marks(struct marks *m, const struct step *s, struct err *e)
{
    const struct node *n = s->node;
    struct step over = *s;
    over.v = m->v;
    for (int i = 0; i < operands(n); i++) {
        int slot = operand(n, i);
        if (slot < 0 || !is_data(n, i)) {
            continue;
        }
        int32_t *marks = m->of[slot];
        marks = marks != NULL ? marks : new_marks(m, slot, 0);
        if (marks == NULL) {
            return err_set(e, ERR_NOMEM, "the program");
        }
        m->v[slot].i = marks;
    }
    int rc = run_marks(m, s, &over, e);
    for (int i = 0; i < operands(n); i++) {
        int slot = operand(n, i);
        if (slot >= 0) {
            m->v[slot] = *row_val(m->p, slot);
        }
    }
    return rc;
}

/* Element by element: every marked operand is as long as the result. */
static bool is_one_by_one(const struct marks *m, const struct node *n)
{
    bool ok = row_is_elementwise(n);
    for (int i = 0; ok && i < operands(n); i++) {
        int slot = operand(n, i);
        ok = !is_marked(m, slot) ||
             row_val(m->p, slot)->n == row_val(m->p, n->out[0])->n;
    }
    return ok;
}

static int join_marks(struct marks *m, const struct node *n, struct err *e)
{
    int32_t *marks = new_marks(m, n->out[0], 0);
    if (marks == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    for (int i = 0; i < operands(n); i++) {
        int slot = operand(n, i);
        for (size_t k = 0; is_marked(m, slot) && k < row_val(m->p, slot)->n;
             k++) {
            marks[k] |= m->of[slot][k];
        }
    }
    m->of[n->out[0]] = marks;
    return 0;
}

/* Without a mark is NULL. */
static void drop_empty(struct marks *m, const struct node *n)
{
    for (int k = 0; k < n->n_out; k++) {
        const int32_t *marks = m->of[n->out[k]];
        bool any = false;
        for (size_t i = 0; marks != NULL && i < row_val(m->p, n->out[k])->n;
             i++) {
            any = any || marks[i] != 0;
        }
        m->of[n->out[k]] = any ? m->of[n->out[k]] : NULL;
    }
}

/* Is an operand marked, another one than `but`? */
static bool any_marked(const struct marks *m, const struct node *n, int but)
{
    bool any = false;
    for (int i = 0; i < operands(n); i++) {
        any = any || (i != but && is_marked(m, operand(n, i)));
    }
    return any;
}

static bool reads_long(const struct marks *m, const struct node *n)
{
    bool any = false;
    for (int i = 0; i < operands(n); i++) {
        any = any || (operand(n, i) >= 0 && m->is_long[operand(n, i)]);
    }
    return any;
}

static void set_long(struct marks *m, const struct node *n)
{
    for (int k = 0; k < n->n_out; k++) {
        m->is_long[n->out[k]] = true;
    }
}

/* A step that was computed while the plan was made. */
static int mark_step(struct marks *m, const struct step *s, struct err *e)
{
    const struct node *n = s->node;
    int shape = shape_operand(n);
    if (strcmp(n->def->type, "shape") == 0) {
        return mark_shape(m, n, e);
    }
    if (reads_long(m, n)) {
        set_long(m, n);
        return any_marked(m, n, -1) || !row_keeps_rows(m->p, n)
                   ? mark_all(m, n, e)
                   : 0;
    }
    if (!any_marked(m, n, -1)) {
        return 0;
    }
    if (shape >= 0 && !any_marked(m, n, shape)) {
        set_long(m, n);
        return says_t(m, n) ? 0 : mark_all(m, n, e);
    }
    bool moved = can_move(m, s);
    if (!moved && !row_is_elementwise(n)) {
        set_long(m, n);
    }
    int rc = moved                 ? move_marks(m, s, e)
             : is_one_by_one(m, n) ? join_marks(m, n, e)
                                   : mark_all(m, n, e);
    drop_empty(m, n);
    return rc;
}

int row_check_length(struct row_program *p, const char **why, struct err *e)
{
    size_t slots = (size_t)p->m->n_slots + 1;
    struct marks m = {.p = p};
    int rc = 0;
    if (!p->m->has_t) {
        return 0;
    }
    arena_init(&m.arena, 0);
    m.of = arena_array(&m.arena, slots, sizeof(int32_t *));
    m.is_long = arena_array(&m.arena, slots, sizeof(*m.is_long));
    m.v = arena_array(&m.arena, slots, sizeof(*m.v));
    if (m.of == NULL || m.is_long == NULL || m.v == NULL) {
        rc = err_set(e, ERR_NOMEM, "the program");
        goto out;
    }
    memcpy(m.v, p->plan->v, (slots - 1) * sizeof(*m.v));
    for (int i = 0; rc == 0 && *why == NULL && i < p->plan->n_steps; i++) {
        const struct step *s = &p->plan->steps[i];
        const struct node *n = s->node;
        int shape = shape_operand(n);
        if (s->done) {
            rc = mark_step(&m, s, e);
        } else if (any_marked(&m, n, shape) ||
                   (shape >= 0 && is_marked(&m, n->in[shape]) &&
                    !says_t(&m, n))) {
            *why = arena_printf(&p->arena,
                                "%s %s depends on how many rows there are",
                                n->def->type, n->name);
        }
    }
out:
    arena_fini(&m.arena);
    return rc;
}
