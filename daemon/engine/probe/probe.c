/* probe.c - packages one after another, step by step. See probe.h. */
#include "engine/probe/probe.h"

#include <string.h>

#include "base/crew.h"
#include "base/file.h"
#include "engine/probe/probe_impl.h"

static const char *const step_names[PROBE_STEPS] = {
    [PROBE_OPEN] = "open",           [PROBE_PLAN] = "plan",
    [PROBE_REFERENCE] = "reference", [PROBE_WARM] = "warm",
    [PROBE_COMPARE] = "compare",     [PROBE_TIME] = "time",
    [PROBE_CPU_OPEN] = "cpu_open",   [PROBE_CPU_TIME] = "cpu_time",
    [PROBE_REPEAT] = "repeat",       [PROBE_MARGIN] = "margin",
};

const char *probe_step_name(enum probe_step s)
{
    must(s < PROBE_STEPS);
    return step_names[s];
}

enum probe_step probe_step_find(const char *name)
{
    enum probe_step s = PROBE_OPEN;
    while (s < PROBE_STEPS && strcmp(step_names[s], name) != 0) {
        s++;
    }
    return s;
}

/* --- steps --- */

int package_at(const struct package *k, const char *function,
               enum probe_step step, uint32_t width)
{
    struct probe *p = k->p;
    const struct probe_place place = {step, k->r.path, function, width};
    size_t all = p->b->n_shards + p->b->n_heads_shards;
    p->stop = p->c->at(p->c->ctx, &place, k->number, all);
    return p->stop;
}

bool package_lost(const struct package *k, const char *function,
                  enum probe_step step, uint32_t width)
{
    const struct probe_conf *c = k->p->c;
    for (size_t i = 0; i < c->n_lost; i++) {
        const struct probe_place *x = &c->lost[i];
        if (x->step == step && strcmp(x->package, k->r.path) == 0 &&
            (function == NULL || strcmp(x->function, function) == 0) &&
            (width == ANY_WIDTH || x->width == width)) {
            return true;
        }
    }
    return false;
}

/* At a step that this width needs. */
static bool width_lost(const struct package *k, const char *function,
                       uint32_t t)
{
    static const enum probe_step needed[] = {PROBE_WARM, PROBE_COMPARE,
                                             PROBE_TIME, PROBE_REPEAT};
    for (size_t i = 0; i < countof(needed); i++) {
        if (package_lost(k, function, needed[i], t)) {
            return true;
        }
    }
    return false;
}

int function_fails(const struct package *k, struct function_result *f,
                   enum probe_step step, const struct err *e)
{
    f->code = e->code;
    f->step = step;
    (void)snprintf(f->why, sizeof(f->why), "%s", e->msg);
    return k->p->stop;
}

double ms_since(uint64_t from)
{
    return (double)(now_us() - from) / 1000;
}

/* --- open, plan --- */

/* The widths that this function may run as, if the conf wants them. */
static void list_widths(const struct package *k, struct function_result *f,
                        const struct unit *u)
{
    const struct msg_widths *only = &k->p->c->widths;
    uint32_t hi =
        k->part.shard != NULL ? k->part.shard->t_max : k->part.head->t_max;
    hi = u->fixed > 0 ? u->fixed : hi < u->t_hi ? hi : u->t_hi;
    for (uint32_t t = u->t_lo; t <= hi; t++) {
        bool wanted = only->n == 0;
        for (uint32_t i = 0; i < only->n; i++) {
            wanted = wanted || only->of[i] == t;
        }
        if (wanted && (only->n > 0 || widths_worth(t, hi)) &&
            !width_lost(k, f->name, t)) {
            must(f->n < ENGINE_WIDTHS_MAX);
            f->width[f->n++] = (struct width_result){
                .t = t,
                .warm_ms = -1,
                .us = -1,
                .cpu_us = -1,
                .like = {.cosine = 2, .name = ""}
            };
        }
    }
}

/* Whether what is known of this machine spares the rest. */
static void ask_known(struct probe *p, const char *arith)
{
    for (size_t i = 0; !p->asked && i < p->c->n_known; i++) {
        p->known =
            strcmp(p->c->known[i], arith) == 0 ? p->c->known[i] : p->known;
    }
    p->asked = true;
}

static int open_function(struct package *k, size_t i)
{
    struct function_result *f = &k->r.f[i];
    const struct probe_conf *c = k->p->c;
    struct err why = {0};
    if (f->arith[0] != '\0') { /* nothing needs to open for that */
        ask_known(k->p, f->arith);
        if (k->p->known != NULL) {
            return 0;
        }
    }
    if (package_lost(k, f->name, PROBE_OPEN, 0) ||
        package_lost(k, f->name, PROBE_COMPARE, 0)) {
        (void)err_set(&why, ERR_BACKEND, "the probe was lost");
        return function_fails(k, f, PROBE_OPEN, &why);
    }
    RETERR(package_at(k, f->name, PROBE_OPEN, 0));
    uint64_t from = now_us();
    int rc = rig_open(&k->rigs[i], &k->part, i, c->be, &c->conf, &why);
    f->open_ms = ms_since(from);
    if (rc < 0) {
        return function_fails(k, f, PROBE_OPEN, &why);
    }
    const struct backend_info *info = rig_info(&k->rigs[i]);
    (void)snprintf(f->arith, sizeof(f->arith), "%s", info->arith);
    f->weight_bytes = info->weight_bytes;
    list_widths(k, f, rig_unit(&k->rigs[i]));
    ask_known(k->p, f->arith);
    return 0;
}

static int plan_function(struct package *k, struct function_result *f)
{
    const struct probe_conf *c = k->p->c;
    struct backend_plan plan = {0};
    char path[sizeof(k->part.b->dir) + 256];
    struct err why = {0};
    if (c->be->plan == NULL || package_lost(k, f->name, PROBE_PLAN, 0)) {
        return 0;
    }
    RETERR(package_at(k, f->name, PROBE_PLAN, 0));
    must(file_join(path, sizeof(path), k->part.b->dir, k->r.path)); /* open */
    uint64_t from = now_us();
    int rc = c->be->plan(path, f->name[0] != '\0' ? f->name : NULL, &c->conf,
                         &plan, &why);
    f->plan_ms = ms_since(from);
    if (rc < 0) {
        (void)snprintf(f->plan_why, sizeof(f->plan_why), "%s", why.msg);
        return k->p->stop;
    }
    plan_group(&plan, &f->plan);
    f->planned = true;
    free(plan.ops);
    return 0;
}

/* --- reference --- */

static int compute_reference(struct package *k, struct rig *r,
                             const char *function, struct err *e)
{
    const struct unit *u = rig_unit(r);
    uint32_t t = u->fixed > 0 ? u->fixed : u->t_lo;
    RETERR(rig_out(r, k->in.n, &k->want, e));
    RETERR(rig_rows(r, &k->in, e));
    for (uint32_t at = 0; at < k->in.n; at += t) {
        uint32_t n = k->in.n - at < t ? k->in.n - at : t;
        RETERR(package_at(k, function, PROBE_REFERENCE, 0));
        RETERR(rig_place(r, t, at, n, e));
        RETERR(rig_predict(r, t, e));
        RETERR(rig_take(r, t, at, n, &k->want, e));
    }
    return rig_states(r, &k->want, e);
}

/* By the i-th function, which has been opened. */
static int reference(struct package *k, size_t i)
{
    const struct probe_conf *c = k->p->c;
    const struct function_result *f = &k->r.f[i];
    struct backend_conf bc = {.threads = c->conf.threads,
                              .watch = c->conf.watch};
    struct rig r = {0};
    struct err why = {0};
    if (package_lost(k, NULL, PROBE_REFERENCE, 0)) {
        (void)snprintf(k->r.reference_why, sizeof(k->r.reference_why),
                       "the probe was lost while it computed");
        return 0;
    }
    RETERR(package_at(k, f->name, PROBE_REFERENCE, 0));
    int rc = rig_open(&r, &k->part, i, c->reference, &bc, &why);
    rc = rc == 0 ? compute_reference(k, &r, f->name, &why) : rc;
    if (rc == 0 && probe_out_bad(&k->want, k->in.n) > 0) {
        rc = err_set(&why, ERR_RANGE, "numbers that are not finite");
    }
    if (rc < 0) {
        (void)snprintf(k->r.reference_why, sizeof(k->r.reference_why), "%s",
                       why.msg);
    }
    /* its segments' names are its ports' */
    k->want.n = rc == 0 ? k->want.n : 0;
    rig_close(&r);
    return k->p->stop;
}

/* --- a package --- */

static uint32_t widest(const struct package *k)
{
    uint32_t t = 1;
    for (size_t i = 0; i < k->r.n; i++) {
        const struct function_result *f = &k->r.f[i];
        t = f->n > 0 && f->width[f->n - 1].t > t ? f->width[f->n - 1].t : t;
    }
    return t;
}

static int tell(const struct package *k)
{
    struct probe *p = k->p;
    for (size_t i = 0; i < k->r.n && p->stop == 0; i++) {
        p->stop = p->c->result(p->c->ctx, report_function(&k->r, &k->r.f[i]));
    }
    if (p->stop == 0) {
        p->stop =
            p->c->result(p->c->ctx, report_package(&k->r, p->c->reference));
    }
    return p->stop;
}

static int measure(struct package *k, struct err *e)
{
    size_t first = SIZE_MAX; /* that opened */
    for (size_t i = 0; i < k->r.n && k->p->known == NULL; i++) {
        RETERR(open_function(k, i));
        first = first == SIZE_MAX && k->rigs[i].open ? i : first;
    }
    if (k->p->known != NULL) {
        return 0;
    }
    for (size_t i = 0; i < k->r.n; i++) {
        RETERR(k->rigs[i].open ? plan_function(k, &k->r.f[i]) : 0);
    }
    if (first != SIZE_MAX) {
        RETERR(probe_in_make(&k->in, &k->part, widest(k),
                             rig_out_width(&k->rigs[first]), e));
        k->r.rows = k->in.n;
        RETERR(reference(k, first));
    }
    for (size_t i = 0; i < k->r.n; i++) {
        RETERR(k->rigs[i].open ? measure_function(k, i) : 0);
    }
    return tell(k);
}

static void name_functions(struct package *k)
{
    const struct probe_conf *c = k->p->c;
    const struct bundle_shard *s = k->part.shard;
    const char **names = s != NULL ? s->functions : k->part.head->functions;
    bool many = s != NULL ? strcmp(k->part.b->shape, "functions") == 0
                          : k->part.head->n_functions > 0;
    k->r.n = !many       ? 1
             : s != NULL ? s->n_functions
                         : k->part.head->n_functions;
    k->r.f = calloc(k->r.n, sizeof(*k->r.f));
    k->rigs = calloc(k->r.n, sizeof(*k->rigs));
    must(k->r.f != NULL && k->rigs != NULL); /* MIL_FUNCTIONS_MAX */
    for (size_t i = 0; i < k->r.n; i++) {
        struct function_result *f = &k->r.f[i];
        f->name = many ? names[i] : "";
        if (c->be->machine != NULL) {
            c->be->machine(&c->conf, f->arith);
        }
    }
}

static void package_fini(struct package *k)
{
    for (size_t i = 0; i < k->r.n; i++) {
        rig_close(&k->rigs[i]);
        for (size_t j = 0; j < k->r.f[i].n; j++) {
            free(k->r.f[i].width[j].hash);
        }
    }
    probe_in_free(&k->in);
    probe_out_free(&k->want);
    probe_out_free(&k->now);
    free(k->rigs);
    free(k->r.f);
}

static int run_package(struct probe *p, size_t i, struct err *e)
{
    const struct bundle *b = p->b;
    struct package k = {.p = p, .number = i};
    k.part.b = b;
    k.part.tables = &p->tables;
    if (i < b->n_shards) {
        k.part.shard = &b->shards[i];
    } else {
        k.part.head = &b->heads[i - b->n_shards];
    }
    k.r.path = part_path(&k.part);
    k.r.head = k.part.head != NULL;
    name_functions(&k);
    int rc = measure(&k, e);
    package_fini(&k);
    return rc;
}

int probe_run(const char *bundle_dir, const struct probe_conf *conf,
              const char **ret_known, struct err *e)
{
    struct probe p = {.c = conf};
    size_t n = 0;
    int rc = 0;
    crew_ref();
    CHECK(bundle_open(bundle_dir, &p.b, e));
    CHECK(bundle_want_probe(p.b, e));
    CHECK(tables_open(&p.tables, p.b, e));
    n = p.b->n_shards + p.b->n_heads_shards;
    for (size_t i = conf->first; i < n && p.known == NULL; i++) {
        CHECK(run_package(&p, i, e));
    }
    *ret_known = p.known;
out:
    tables_close(&p.tables);
    bundle_close(p.b);
    crew_unref();
    return rc;
}
