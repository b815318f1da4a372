/* probe_measure.c - the widths of a function, one after another: warm, right,
 * fast, the same again. What fails is noted with the width, and the next one
 * goes on.
 */
#include <string.h>

#include "engine/probe/probe_impl.h"

static int width_fails(const struct package *k, struct width_result *w,
                       enum probe_step step, const struct err *e)
{
    w->code = e->code;
    w->step = step;
    (void)snprintf(w->why, sizeof(w->why), "%s", e->msg);
    return k->p->stop;
}

/* --- widths: warm, compare --- */

/* All rows, the first `shift` of them first, then t at a time; step: how many
 * of a chunk are real. */
struct pass {
    uint32_t shift, step, n;
};

static int run_pass(struct package *k, size_t i, uint32_t t,
                    const struct pass *x, struct err *e)
{
    struct rig *r = &k->rigs[i];
    uint32_t n = 0;
    RETERR(rig_again(r, e));
    for (uint32_t at = 0; at < x->n; at += n) {
        n = at == 0 && x->shift > 0 ? x->shift : x->step;
        n = n < x->n - at ? n : x->n - at;
        RETERR(package_at(k, k->r.f[i].name, PROBE_COMPARE, t));
        RETERR(rig_place(r, t, at, n, e));
        RETERR(rig_predict(r, t, e));
        RETERR(rig_take(r, t, at, n, &k->now, e));
    }
    return rig_states(r, &k->now, e);
}

static bool same_rows(const struct package *k, const uint64_t *hash, uint32_t n)
{
    bool same = true;
    for (uint32_t i = 0; i < n; i++) {
        same = same && probe_out_hash(&k->now, i) == hash[i];
    }
    return same;
}

#define ALONE_MAX 8u /* rows that are run one by one too */

static int compare(struct package *k, size_t i, struct width_result *w,
                   struct err *e)
{
    uint32_t n = k->in.n;
    uint32_t t = w->t;
    const struct pass whole = {0, t, n};
    const struct pass shifted = {t / 2, t, n};
    const struct pass alone = {0, 1, n < ALONE_MAX ? n : ALONE_MAX};
    bool adds = !k->r.head;
    RETERR(run_pass(k, i, t, &whole, e));
    w->bad = probe_out_bad(&k->now, n);
    if (k->want.n > 0) {
        w->like = probe_out_like(&k->now, &k->want, &k->in, adds);
    }
    w->hash = calloc(n, sizeof(*w->hash));
    must(w->hash != NULL);
    for (uint32_t row = 0; row < n; row++) {
        w->hash[row] = probe_out_hash(&k->now, row);
    }
    RETERR(run_pass(k, i, t, &shifted, e));
    w->steady = same_rows(k, w->hash, n);
    RETERR(run_pass(k, i, t, &alone, e));
    w->steady = w->steady && same_rows(k, w->hash, alone.n);
    return 0;
}

static int try_width(struct package *k, size_t i, struct width_result *w)
{
    const struct probe_conf *c = k->p->c;
    struct err e = {0};
    if (c->be->warm != NULL) {
        struct backend_model *m = rig_unit(&k->rigs[i])->m;
        RETERR(package_at(k, k->r.f[i].name, PROBE_WARM, w->t));
        uint64_t from = now_us();
        int rc = c->be->warm(m, w->t, &c->conf.watch, &e);
        w->warm_ms = ms_since(from);
        if (rc < 0) {
            return width_fails(k, w, PROBE_WARM, &e);
        }
    }
    return compare(k, i, w, &e) < 0 ? width_fails(k, w, PROBE_COMPARE, &e) : 0;
}

/* --- time --- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The median, in microseconds. */
static int time_width(struct package *k, struct rig *r, const char *name,
                      enum probe_step step, uint32_t t, double *us,
                      struct err *e)
{
    uint64_t took[PROBE_TIMED];
    uint32_t n = t < k->in.n ? t : k->in.n;
    RETERR(rig_again(r, e));
    RETERR(rig_place(r, t, 0, n, e));
    RETERR(package_at(k, name, step, t));
    RETERR(rig_predict(r, t, e)); /* the first one after others */
    for (size_t i = 0; i < PROBE_TIMED; i++) {
        RETERR(package_at(k, name, step, t));
        uint64_t from = now_us();
        RETERR(rig_predict(r, t, e));
        took[i] = now_us() - from;
    }
    qsort(took, PROBE_TIMED, sizeof(*took), by_value);
    *us = (double)(took[PROBE_TIMED / 2 - 1] + took[PROBE_TIMED / 2]) / 2;
    return 0;
}

static int time_all(struct package *k, size_t i)
{
    struct function_result *f = &k->r.f[i];
    struct err e = {0};
    for (size_t j = 0; j < f->n; j++) {
        struct width_result *w = &f->width[j];
        if (w->code == 0 && time_width(k, &k->rigs[i], f->name, PROBE_TIME,
                                       w->t, &w->us, &e) < 0) {
            RETERR(width_fails(k, w, PROBE_TIME, &e));
        }
    }
    return 0;
}

static int time_on_cpu(struct package *k, size_t i, struct rig *r,
                       struct err *e)
{
    const struct probe_conf *c = k->p->c;
    struct function_result *f = &k->r.f[i];
    struct backend_conf bc = c->conf;
    c->cpu_only(&bc);
    RETERR(package_at(k, f->name, PROBE_CPU_OPEN, 0));
    RETERR(rig_open(r, &k->part, i, c->be, &bc, e));
    RETERR(rig_rows(r, &k->in, e));
    for (size_t j = 0; j < f->n; j++) {
        struct width_result *w = &f->width[j];
        if (w->code != 0) {
            continue;
        }
        RETERR(package_at(k, f->name, PROBE_CPU_OPEN, w->t));
        if (c->be->warm != NULL) {
            RETERR(c->be->warm(rig_unit(r)->m, w->t, &bc.watch, e));
        }
        RETERR(time_width(k, r, f->name, PROBE_CPU_TIME, w->t, &w->cpu_us, e));
    }
    return 0;
}

/* What fails on the CPU alone is no fault of the model's. */
static int compare_with_cpu(struct package *k, size_t i)
{
    struct function_result *f = &k->r.f[i];
    struct rig r = {0};
    struct err e = {0};
    if (k->p->c->cpu_only == NULL) {
        return 0;
    }
    if (package_lost(k, f->name, PROBE_CPU_OPEN, ANY_WIDTH) ||
        package_lost(k, f->name, PROBE_CPU_TIME, ANY_WIDTH)) {
        (void)snprintf(f->cpu_why, sizeof(f->cpu_why), "the probe was lost");
        return 0;
    }
    if (time_on_cpu(k, i, &r, &e) < 0) {
        (void)snprintf(f->cpu_why, sizeof(f->cpu_why), "%s", e.msg);
    }
    rig_close(&r);
    return k->p->stop;
}

/* --- repeat --- */

/* n predictions of the same rows: do they give the same bits? */
static int repeat_width(struct package *k, size_t i, struct width_result *w,
                        uint32_t n, struct err *e)
{
    struct rig *r = &k->rigs[i];
    uint32_t rows = w->t < k->in.n ? w->t : k->in.n;
    uint64_t first = 0;
    RETERR(rig_again(r, e));
    RETERR(rig_place(r, w->t, 0, rows, e));
    w->repeats = true;
    for (uint32_t x = 0; x < n; x++) {
        uint64_t hash = 0;
        RETERR(package_at(k, k->r.f[i].name, PROBE_REPEAT, w->t));
        RETERR(rig_predict(r, w->t, e));
        RETERR(rig_take(r, w->t, 0, rows, &k->now, e));
        for (uint32_t row = 0; row < rows; row++) {
            hash = hash * 31 + probe_out_hash(&k->now, row);
        }
        first = x == 0 ? hash : first;
        w->repeats = w->repeats && hash == first;
    }
    return 0;
}

static int repeat_all(struct package *k, size_t i)
{
    struct function_result *f = &k->r.f[i];
    struct err e = {0};
    uint32_t good = 0;
    for (size_t j = 0; j < f->n; j++) {
        good += f->width[j].code == 0;
    }
    for (size_t j = 0; j < f->n; j++) {
        struct width_result *w = &f->width[j];
        uint32_t n = good > 0 ? (PROBE_REPEATS + good - 1) / good : 0;
        if (w->code == 0 && repeat_width(k, i, w, n, &e) < 0) {
            RETERR(width_fails(k, w, PROBE_REPEAT, &e));
        }
    }
    return 0;
}

/* --- a function --- */

int measure_function(struct package *k, size_t i)
{
    struct function_result *f = &k->r.f[i];
    struct rig *r = &k->rigs[i];
    struct err e = {0};
    probe_out_free(&k->now);
    RETERR(package_at(k, f->name, PROBE_COMPARE, 0)); /* the past is filled */
    if (rig_rows(r, &k->in, &e) < 0 || rig_out(r, k->in.n, &k->now, &e) < 0) {
        return function_fails(k, f, PROBE_COMPARE, &e);
    }
    for (size_t j = 0; j < f->n; j++) {
        RETERR(try_width(k, i, &f->width[j]));
    }
    RETERR(time_all(k, i));
    RETERR(compare_with_cpu(k, i));
    return repeat_all(k, i);
}
