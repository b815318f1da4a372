/* width.c - see width.h. */
#include "sched/width.h"

enum width_kind width_kind(uint32_t match)
{
    return match < 4    ? WIDTH_SHORT
           : match < 8  ? WIDTH_MIDDLE
           : match < 16 ? WIDTH_LONG
                        : WIDTH_LONGER;
}

void odds_note(struct odds *o, enum width_kind kind, uint32_t drafted,
               uint32_t accepted, double keep)
{
    double *hit = &o->hit[kind];
    double *miss = &o->miss[kind];
    *hit += accepted;
    *miss += accepted < drafted ? 1 : 0;
    if (*hit + *miss > keep) {
        double f = keep / (*hit + *miss);
        *hit *= f;
        *miss *= f;
    }
}

double odds_of(const struct odds *own, const struct odds *all,
               enum width_kind kind)
{
    double n = all->hit[kind] + all->miss[kind];
    double p = (all->hit[kind] + 2 * WIDTH_PRIOR) / (n + 2);
    double k = own->hit[kind] + own->miss[kind];
    return (own->hit[kind] + WIDTH_TRUST * p) / (k + WIDTH_TRUST);
}

/* The stream to which one more draft brings most; *gain: the p^k it brings. */
static struct width *best_next(struct width *w, size_t n, const double *next,
                               double *gain)
{
    struct width *best = NULL;
    *gain = 0;
    for (size_t i = 0; i < n; i++) {
        if (w[i].n < w[i].max && next[i] > *gain) {
            best = &w[i];
            *gain = next[i];
        }
    }
    return best;
}

/* Drafts are added in the order of what they bring, and the number with the
 * most tokens a microsecond is kept: steps of the cost do not stop it. */
void width_choose(struct width *w, size_t n, uint32_t rows, uint32_t room,
                  bool shared, const struct cost *c)
{
    double next[STREAMS_MAX];
    uint32_t best[STREAMS_MAX] = {0};
    double known = cost_of(c, rows);
    double most = 2 * cost_most(c) + 1; /* no leap into the unknown */
    double plain = known > 0 ? known : 1;
    double tokens = rows;
    double rate = tokens / plain * WIDTH_GAIN;
    must(n <= STREAMS_MAX);
    for (size_t i = 0; i < n; i++) {
        w[i].n = 0;
        next[i] = w[i].p;
    }
    for (uint32_t k = 1; k <= room; k++) {
        double gain = 0;
        struct width *x = best_next(w, n, next, &gain);
        if (x == NULL) {
            break;
        }
        double us = known > 0 ? cost_of(c, rows + k) : 1 + k / COST_GUESS;
        if ((known > 0 && rows + k > most) ||
            (shared && us > WIDTH_SLOWER * plain)) {
            break;
        }
        x->n++;
        next[x - w] *= x->p;
        tokens += gain;
        if (tokens / us > rate) {
            rate = tokens / us;
            for (size_t i = 0; i < n; i++) {
                best[i] = w[i].n;
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        w[i].n = best[i];
    }
}
