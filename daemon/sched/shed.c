#include "sched/shed.h"

bool sched_idle(const struct sched *s)
{
    return s->n_waiting == 0 && s->n_running == 0;
}

uint32_t sched_shed(struct sched *s)
{
    uint32_t n = 0;
    share_forget(&s->share);
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        struct sched_seq *q = &s->seqs[i];
        if (q->used && q->owner == NULL && !q->failed) {
            q->failed = true; /* sched_next closes it */
            n++;
        }
    }
    return n;
}

static uint32_t common(const struct sched_seq *q, struct sched_line x)
{
    uint32_t n = 0;
    while (n < q->n && n < x.n && q->tokens[n] == x.tokens[n]) {
        n++;
    }
    return n;
}

/* One is a beginning of the other. The last token of either is not looked at:
 * the one that ended an answer stands in the sequence alone. */
static bool continues(const struct sched_seq *q, struct sched_line x,
                      uint32_t n_common)
{
    return n_common + 1 >= q->n || n_common + 1 >= x.n;
}

static bool is_of(const struct sched_seq *q, struct sched_line gone)
{
    uint32_t n = common(q, gone);
    return continues(q, gone, n) && n > q->n / 2 && n > gone.n / 2;
}

static bool is_wanted(const struct sched_seq *q, struct sched_line x)
{
    uint32_t n = common(q, x);
    return continues(q, x, n) && n >= SCHED_FORK_MIN;
}

uint32_t sched_forget(struct sched *s, struct sched_line gone,
                      const struct sched_line *others, size_t n_others)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->conf.seqs; i++) {
        struct sched_seq *q = &s->seqs[i];
        bool drop = q->used && q->owner == NULL && !q->failed && is_of(q, gone);
        for (size_t k = 0; drop && k < n_others; k++) {
            drop = !is_wanted(q, others[k]);
        }
        if (drop) {
            q->failed = true; /* sched_next closes it */
            q->computed = 0;  /* so it is no loss */
            n++;
        }
    }
    return n;
}
