#include "convert/progress.h"

#include <string.h>
#include <time.h>

#define TELL_MS 50u

static uint64_t now_ms(const struct progress *p)
{
    struct timespec t = {0};
    if (p->now_ms != NULL) {
        return p->now_ms();
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

double progress_fraction(const struct progress *p)
{
    double part = p->total > 0 ? (double)p->done / (double)p->total : 0;
    double done = p->before + p->base + p->cost * (part < 1 ? part : 1);
    double f = p->sum > 0 ? done / p->sum : 0;
    f = f < 1 ? f : 1;
    return f > p->told ? f : p->told;
}

static int tell(struct progress *p, struct err *e)
{
    p->told = progress_fraction(p);
    p->told_ms = now_ms(p);
    if (p->fn != NULL && !p->fn(p->ctx, p->stage, p->told)) {
        return err_set(e, ERR_CANCELLED, "cancelled while %s", p->stage);
    }
    return 0;
}

void progress_plan(struct progress *p, const struct progress_part *parts,
                   size_t n)
{
    must(n <= PROGRESS_PARTS_MAX);
    memcpy(p->parts, parts, n * sizeof(*parts));
    p->n_parts = n;
    p->at = 0;
    p->before = 0;
    p->sum = 0;
    for (size_t i = 0; i < n; i++) {
        p->sum += parts[i].cost;
    }
}

void progress_credit(struct progress *p, double cost)
{
    p->before += cost;
    p->sum += cost;
}

int progress_stage(struct progress *p, const char *stage, uint64_t total,
                   struct err *e)
{
    size_t i = p->at;
    double base = p->base + p->cost;
    while (i < p->n_parts && strcmp(p->parts[i].stage, stage) != 0) {
        i++;
    }
    p->stage = stage;
    p->done = 0;
    p->total = total;
    p->cost = 0;
    if (i < p->n_parts) {
        base = 0;
        for (size_t k = 0; k < i; k++) {
            base += p->parts[k].cost;
        }
        p->cost = p->parts[i].cost;
        p->at = i + 1;
    }
    p->base = base;
    return tell(p, e);
}

int progress_add(struct progress *p, uint64_t n, struct err *e)
{
    p->done += n;
    return now_ms(p) - p->told_ms < TELL_MS ? 0 : tell(p, e);
}
