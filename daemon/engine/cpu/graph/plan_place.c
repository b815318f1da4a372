/* plan_place.c - where a plan's values lie: a value lives from its step to the
 * last step that reads it or a view of it, and places in one buffer are given
 * first-fit. */
#include <string.h>

#include "base/num.h"
#include "engine/cpu/graph/plan.h"

#define PLACE_ALIGN 64 /* a cache line */

struct place {
    size_t at, size;    /* in the buffer */
    int last;           /* step */
    struct place *next; /* by `at` */
};

struct layout {
    int *root; /* slot whose memory a slot is in; -1 none of ours */
    int *last; /* step that reads a root last */
    struct place *places, *live;
    size_t total;
};

static void note_use(struct layout *l, int slot, int step)
{
    if (slot >= 0 && l->root[slot] >= 0) {
        l->last[l->root[slot]] = step;
    }
}

static void find_lives(struct plan *p, struct layout *l)
{
    const struct backend_model *m = p->m;
    for (int i = 0; i < m->n_slots; i++) {
        l->root[i] = -1;
    }
    for (size_t k = 0; k < m->n_in; k++) {
        l->root[m->in_slot[k]] = m->in_slot[k];
    }
    for (int i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        const struct node *n = s->node;
        for (int k = 0; n->def->args[k] != NULL; k++) {
            note_use(l, n->in[k], i);
        }
        for (int k = 0; k < n->n_list; k++) {
            note_use(l, n->list[k], i);
        }
        for (int k = 0; k < n->n_out; k++) {
            const struct val *o = &p->v[n->out[k]];
            if (s->alias) {
                l->root[n->out[k]] = l->root[n->in[0]];
            } else if (!s->done && o->kind != VAL_F16 && o->kind != VAL_NONE) {
                l->root[n->out[k]] = n->out[k];
                l->last[n->out[k]] = i;
            }
        }
    }
    for (size_t k = 0; k < m->n_out; k++) {
        note_use(l, m->out_slot[k], p->n_steps);
    }
}

/* A place for the slot's value from step `now` on. */
static void give_place(struct plan *p, struct layout *l, int slot, int now)
{
    struct place *n = &l->places[slot];
    n->size = (p->v[slot].n * sizeof(float) + PLACE_ALIGN) &
              ~(size_t)(PLACE_ALIGN - 1);
    n->last = l->last[slot];
    struct place **at = &l->live;
    while (*at != NULL) {
        if ((*at)->last < now) {
            *at = (*at)->next; /* over: its memory is free again */
            continue;
        }
        if ((*at)->at - n->at >= n->size) {
            break;
        }
        n->at = (*at)->at + (*at)->size;
        at = &(*at)->next;
    }
    n->next = *at;
    *at = n;
    l->total = num_max(l->total, n->at + n->size);
}

int plan_place(struct plan *p, struct err *e)
{
    const struct backend_model *m = p->m;
    size_t slots = (size_t)m->n_slots;
    struct arena tmp;
    arena_init(&tmp, 0);
    struct layout l = {.root = arena_array(&tmp, slots, sizeof(int)),
                       .last = arena_array(&tmp, slots, sizeof(int)),
                       .places = arena_array(&tmp, slots, sizeof(*l.places))};
    int rc = 0;
    if (l.root == NULL || l.last == NULL || l.places == NULL) {
        rc = err_set(e, ERR_NOMEM, "values");
        goto out;
    }
    find_lives(p, &l);
    for (size_t k = 0; k < m->n_in; k++) {
        give_place(p, &l, m->in_slot[k], 0);
    }
    for (int i = 0; i < p->n_steps; i++) {
        const struct node *n = p->steps[i].node;
        for (int k = 0; k < n->n_out; k++) {
            if (l.root[n->out[k]] == n->out[k]) {
                give_place(p, &l, n->out[k], i);
            }
        }
    }
    if (l.total > 0) {
        p->buffer = aligned_alloc(PLACE_ALIGN, l.total);
        if (p->buffer == NULL) {
            rc = err_set(e, ERR_NOMEM, "values of %zu bytes", l.total);
            goto out;
        }
        p->buffer_bytes = l.total;
        memset(p->buffer, 0, l.total);
    }
    for (int i = 0; i < m->n_slots; i++) {
        if (l.root[i] == i) {
            p->v[i].p = p->buffer + l.places[i].at;
        }
    }
out:
    arena_fini(&tmp);
    return rc;
}
