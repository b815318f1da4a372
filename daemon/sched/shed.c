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
