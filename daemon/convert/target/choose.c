/* choose.c - what the next byte buys.
 *
 * Each matrix's forms are points (bytes, KL). Their lower convex hull gives
 * steps, each from a form to a larger one, by falling KL a byte. The steps of
 * all matrices in one order, best first, are the choice: up to a sum of KL, or
 * as many as fit in the bytes. A step that does not fit closes its matrix, and
 * those behind it are tried; so more bytes never give a larger sum. */
#include <math.h>

#include "convert/target/impl.h"

struct step {
    uint32_t matrix;
    unsigned from, to; /* of costs */
    uint64_t bytes;    /* more */
    double kl;         /* less */
};

/* gemma-3-270m: one form in all layers leaves 0.37 to 0.45, what was chosen for
 * KL 0.05 leaves 0.43 (README.md). A matrix gets few bits where the plain form
 * happens to do little, and feedback has less to take off there; so it is some
 * more. */
double target_feedback(enum quant kind)
{
    return kind == QUANT_FP16 ? 1 : 0.5;
}

static double kl_of(const struct target_cost *c, bool feedback)
{
    return feedback ? c->kl * target_feedback(c->spec.kind) : c->kl;
}

double target_sum(const struct target *t, bool feedback)
{
    double sum = 0;
    for (uint32_t i = 0; i < t->n_matrices; i++) {
        const struct target_matrix *m = &t->matrices[i];
        sum += kl_of(&m->costs[m->chosen], feedback);
    }
    return sum;
}

static void sum_up(struct target *t)
{
    t->bytes = 0;
    for (uint32_t i = 0; i < t->n_matrices; i++) {
        const struct target_matrix *m = &t->matrices[i];
        t->bytes += m->costs[m->chosen].bytes;
    }
    t->sum = target_sum(t, false);
}

static unsigned smallest(const struct target_matrix *m)
{
    unsigned best = 0;
    for (unsigned f = 1; f < m->n_costs; f++) {
        best = m->costs[f].bytes < m->costs[best].bytes ? f : best;
    }
    return best;
}

/* The step from `from` that lowers KL most a byte; of equal ones the longest.
 * False: nothing larger is better. */
static bool next_step(const struct target_matrix *m, unsigned from,
                      bool feedback, struct step *ret)
{
    double best = 0;
    bool found = false;
    for (unsigned f = 0; f < m->n_costs; f++) {
        uint64_t bytes = m->costs[f].bytes - m->costs[from].bytes;
        double kl =
            kl_of(&m->costs[from], feedback) - kl_of(&m->costs[f], feedback);
        if (m->costs[f].bytes <= m->costs[from].bytes || !(kl > 0) ||
            kl / (double)bytes < best) {
            continue;
        }
        best = kl / (double)bytes;
        found = true;
        *ret = (struct step){.from = from, .to = f, .bytes = bytes, .kl = kl};
    }
    return found;
}

/* Best first; equal ones in the order of matrices. */
static int by_worth(const void *a, const void *b)
{
    const struct step *x = a;
    const struct step *y = b;
    double vx = x->kl / (double)x->bytes;
    double vy = y->kl / (double)y->bytes;
    if (vx > vy || vx < vy) {
        return vx > vy ? -1 : 1;
    }
    if (x->matrix != y->matrix) {
        return x->matrix < y->matrix ? -1 : 1;
    }
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes ? 1 : 0;
}

/* All steps; every matrix is put to its smallest form. */
static size_t all_steps(struct target *t, bool feedback, struct step **ret)
{
    size_t n = 0;
    struct step *s = calloc((size_t)t->n_matrices * TARGET_FORMS, sizeof(*s));
    must(s != NULL);
    for (uint32_t i = 0; i < t->n_matrices; i++) {
        struct target_matrix *m = &t->matrices[i];
        m->chosen = smallest(m);
        unsigned at = m->chosen;
        while (next_step(m, at, feedback, &s[n])) {
            s[n].matrix = i;
            at = s[n++].to;
        }
    }
    qsort(s, n, sizeof(*s), by_worth);
    *ret = s;
    return n;
}

bool target_by_bytes(struct target *t, uint64_t most, bool feedback)
{
    struct step *s = NULL;
    size_t n = all_steps(t, feedback, &s);
    sum_up(t);
    bool holds = t->bytes <= most;
    uint64_t left = holds ? most - t->bytes : 0;
    for (size_t i = 0; i < n; i++) {
        struct target_matrix *m = &t->matrices[s[i].matrix];
        if (m->chosen == s[i].from && s[i].bytes <= left) {
            m->chosen = s[i].to;
            left -= s[i].bytes;
        }
    }
    free(s);
    sum_up(t);
    return holds;
}

bool target_by_kl(struct target *t, double most, bool feedback)
{
    struct step *s = NULL;
    size_t n = all_steps(t, feedback, &s);
    size_t taken = 0;
    while (taken < n && !(target_sum(t, feedback) <= most)) {
        t->matrices[s[taken].matrix].chosen = s[taken].to;
        taken++;
    }
    bool holds = target_sum(t, feedback) <= most;
    while (holds && taken-- > 0) { /* the last one may have been too long */
        struct target_matrix *m = &t->matrices[s[taken].matrix];
        if (m->chosen == s[taken].to) {
            m->chosen = s[taken].from;
            if (!(target_sum(t, feedback) <= most)) {
                m->chosen = s[taken].to;
            }
        }
    }
    free(s);
    sum_up(t);
    return holds;
}
