/* row_plan.c - where a row's values live.
 *
 * A value lives from the op that makes it to the last op that reads it or a
 * view of it. Places are counted in floats of one row; with n rows a value
 * lies at n * place, so that one plan serves any number of rows. Inputs are
 * read where the caller has them, and outputs written there (row_run.c). */
#include "base/num.h"
#include "engine/cpu/rows/row_make.h"

struct live {
    size_t at, size;
    int last;
    int next; /* root after it in memory; -1 */
};

static void give_place(struct row_program *p, struct live *l, int *head,
                       int root, int now)
{
    size_t at = 0;
    int *link = head;
    while (*link >= 0) {
        struct live *k = &l[*link];
        if (k->last < now) {
            *link = k->next;
            continue;
        }
        if (k->at - at >= l[root].size) {
            break;
        }
        at = k->at + k->size;
        link = &k->next;
    }
    l[root].at = at;
    l[root].next = *link;
    *link = root;
    p->v[root].place = at;
    p->floats = num_max(p->floats, at + l[root].size);
}

static void set_roots(struct row_program *p)
{
    for (int i = 0; i < p->n_values; i++) {
        struct row_value *v = &p->v[i];
        v->root = row_root(p, i, &v->at);
    }
    for (int i = 0; i < p->n_values; i++) {
        struct row_value *v = &p->v[i];
        v->ld = (p->v[v->root].n + ROW_ALIGN - 1) & ~(size_t)(ROW_ALIGN - 1);
    }
}

int row_place(struct row_program *p, struct err *e)
{
    struct live *l = calloc((size_t)p->n_values + 1, sizeof(*l));
    int head = -1;
    if (l == NULL) {
        return err_set(e, ERR_NOMEM, "values");
    }
    set_roots(p);
    for (int i = 0; i < p->n_ops; i++) {
        const struct row_op *op = &p->ops[i];
        for (int k = 0; op->kind != ROW_DEAD && op->kind != ROW_VIEW &&
                        k < op->n_in;
             k++) {
            l[p->v[op->in[k]].root].last = i;
        }
    }
    for (size_t k = 0; k < p->m->n_out; k++) {
        l[p->v[p->m->out_slot[k]].root].last = p->n_ops;
    }
    for (int i = 0; i < p->n_ops; i++) {
        const struct row_op *op = &p->ops[i];
        for (int k = 0; op->kind != ROW_DEAD && op->kind != ROW_VIEW &&
                        k < op->n_out;
             k++) {
            int root = op->out[k];
            l[root].size = p->v[root].ld;
            l[root].last = l[root].last < i ? i : l[root].last;
            give_place(p, l, &head, root, i);
        }
    }
    free(l);
    return 0;
}
