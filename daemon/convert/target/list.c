/* list.c - the matrices of a model, what they may become, and where they are.
 */
#include <string.h>

#include "convert/target/impl.h"

/* No group is larger than what was measured to be worth its bits (quant.h). */
static const struct quant_spec forms[TARGET_FORMS] = {
    {QUANT_LUT4, 1 },
    {QUANT_LUT6, 16},
    {QUANT_INT8, 1 },
    {QUANT_FP16, 1 },
};

static int64_t find(const struct target *t, const char *tensor)
{
    for (uint32_t i = 0; i < t->n_matrices; i++) {
        if (strcmp(t->matrices[i].tensor, tensor) == 0) {
            return i;
        }
    }
    return -1;
}

static void add_cost(struct target_matrix *m, struct quant_spec spec)
{
    m->costs[m->n_costs++] = (struct target_cost){.spec = spec};
}

/* A tensor may have parts in several layers: one form for all of them. */
static void add_part(struct target *t, const struct quant_choice *choice,
                     const struct part *p, bool head)
{
    struct err ignored = {0};
    int64_t at = find(t, p->t->name);
    if (at < 0) {
        at = t->n_matrices++;
        struct target_matrix *m = &t->matrices[at];
        struct quant_spec spec;
        m->tensor = p->t->name;
        m->kept = quant_choice_rule(choice, p->t->name, &spec) || head;
        if (m->kept) {
            add_cost(m, quant_choice_for(choice, p->t->name));
        }
        for (unsigned f = 0; !m->kept && f < TARGET_FORMS; f++) {
            if (quant_check(forms[f], p->cols, &ignored) == 0) {
                add_cost(m, forms[f]);
            }
        }
    }
    struct target_matrix *m = &t->matrices[at];
    m->weights += p->rows * p->cols;
    for (unsigned f = 0; f < m->n_costs; f++) {
        m->costs[f].bytes +=
            plan_matrix_bytes(m->costs[f].spec, p->rows, p->cols);
    }
}

static size_t count_parts(const struct decoder *d)
{
    size_t n = 1; /* the head */
    for (uint32_t l = 0; l < d->n_layers; l++) {
        for (unsigned s = SLOT_LAYER; s < SLOT_COUNT; s++) {
            n += arch_matrix(d, l, (enum arch_slot)s) != NULL ? 1 : 0;
        }
    }
    return n;
}

int target_list(const struct decoder *d, const struct quant_choice *choice,
                struct target *ret, struct err *e)
{
    size_t most = count_parts(d);
    struct target t = {0};
    t.matrices = calloc(most, sizeof(*t.matrices));
    t.picks = calloc(most, sizeof(*t.picks));
    if (t.matrices == NULL || t.picks == NULL) {
        target_fini(&t);
        return err_set(e, ERR_NOMEM, "the list of %zu matrices", most);
    }
    for (uint32_t l = 0; l < d->n_layers; l++) {
        for (unsigned s = SLOT_LAYER; s < SLOT_COUNT; s++) {
            const struct part *p = arch_matrix(d, l, (enum arch_slot)s);
            if (p != NULL) {
                add_part(&t, choice, p, false);
            }
        }
    }
    add_part(&t, choice, arch_head(d), true);
    (void)target_by_bytes(&t, 0, false);
    target_pick(&t);
    *ret = t;
    return 0;
}

void target_pick(struct target *t)
{
    t->n_picks = 0;
    for (uint32_t i = 0; i < t->n_matrices; i++) {
        const struct target_matrix *m = &t->matrices[i];
        if (!m->kept) {
            t->picks[t->n_picks++] =
                (struct quant_pick){m->tensor, m->costs[m->chosen].spec};
        }
    }
}

void target_fini(struct target *t)
{
    free(t->matrices);
    free(t->picks);
    *t = (struct target){0};
}

/* --- where their rows are --- */

static bool place_part(struct target_place *p, const struct part *part,
                       const struct head_rows *perm)
{
    size_t n = p->n_parts + 1;
    struct target_part *more = realloc(p->parts, n * sizeof(*more));
    if (more == NULL) {
        return false;
    }
    p->parts = more;
    struct target_part *to = &more[p->n_parts];
    *to = (struct target_part){.p = part};
    p->n_parts = n;
    if (perm == NULL) {
        return true;
    }
    to->perm = *perm;
    to->emitted = calloc(perm->d_head, sizeof(*to->emitted));
    for (uint32_t i = 0; to->emitted != NULL && i < perm->d_head; i++) {
        to->emitted[head_row(perm, i)] = i;
    }
    return to->emitted != NULL;
}

static bool place_layer(const struct decoder *d, const struct target *t,
                        uint32_t l, struct target_place *places)
{
    struct head_rows perm;
    bool permutes = arch_permutes(d, l, &perm);
    for (unsigned s = SLOT_LAYER; s < SLOT_COUNT; s++) {
        const struct part *p = arch_matrix(d, l, (enum arch_slot)s);
        if (p == NULL) {
            continue;
        }
        struct target_place *to = &places[find(t, p->t->name)];
        bool heads = permutes && (s == SLOT_Q || s == SLOT_K);
        if (to->t == NULL) {
            to->t = p->t;
            to->first = l;
        }
        if (!place_part(to, p, heads ? &perm : NULL)) {
            return false;
        }
    }
    return true;
}

int target_places(const struct decoder *d, const struct target *t,
                  struct target_place **ret, struct err *e)
{
    struct target_place *p = calloc(t->n_matrices, sizeof(*p));
    bool ok = p != NULL;
    for (uint32_t i = 0; ok && i < t->n_matrices; i++) {
        p[i].now = -1;
    }
    for (uint32_t l = 0; ok && l < d->n_layers; l++) {
        ok = place_layer(d, t, l, p);
    }
    if (ok) {
        struct target_place *head = &p[find(t, arch_head(d)->t->name)];
        head->t = arch_head(d)->t;
        head->first = d->n_layers;
        ok = place_part(head, arch_head(d), NULL);
    }
    if (!ok) {
        target_places_free(p, t->n_matrices);
        return err_set(e, ERR_NOMEM, "the places of %u matrices",
                       t->n_matrices);
    }
    *ret = p;
    return 0;
}

void target_places_free(struct target_place *p, uint32_t n)
{
    for (uint32_t i = 0; p != NULL && i < n; i++) {
        for (size_t k = 0; k < p[i].n_parts; k++) {
            free(p[i].parts[k].emitted);
        }
        for (unsigned f = 0; f < TARGET_FORMS; f++) {
            free(p[i].params[f]);
        }
        free(p[i].parts);
    }
    free(p);
}
