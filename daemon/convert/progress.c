#include "convert/progress.h"

#include <time.h>

#define TELL_MS 50u

static uint64_t now_ms(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

static int tell(struct progress *p, struct err *e)
{
    double part = 0;
    if (p->total > 0) {
        part = (double)p->done / (double)p->total;
    }
    part = part > 1 ? 1 : part;
    p->told_ms = now_ms();
    if (p->fn != NULL && !p->fn(p->ctx, p->stage, p->base + p->span * part)) {
        return err_set(e, ERR_CANCELLED, "cancelled while %s", p->stage);
    }
    return 0;
}

int progress_stage(struct progress *p, const char *stage, double base,
                   double span, uint64_t total, struct err *e)
{
    p->stage = stage;
    p->base = base;
    p->span = span;
    p->done = 0;
    p->total = total;
    return tell(p, e);
}

int progress_add(struct progress *p, uint64_t n, struct err *e)
{
    p->done += n;
    return now_ms() - p->told_ms < TELL_MS ? 0 : tell(p, e);
}
