/* probe.c - which model is measured next, and what its result changes. See
 * probe.h; the measuring itself is probe_run.c.
 *
 *   REST --load, ask, update--> QUEUED --child--> RUNNING --stored--> REST
 *                                  ^                 |
 *                                  +-- put off for who waits, or a generation
 *
 * The next one is a model that a load waits for, then one that was asked
 * about, then, when nothing else is done, one whose verdicts are of another
 * machine.
 */
#include <string.h>

#include "base/log.h"
#include "serve/engines/residency.h"
#include "serve/jobs/jobs.h"
#include "serve/probe/probe_queue.h"
#include "store/row.h"

struct saving { /* the model may go before the store answers */
    struct prober *v;
    struct model *m;          /* NULL: gone */
    struct store_residency r; /* owned; without report and operations */
};

static void next(struct prober *v);
static void look_in(struct prober *v, uint64_t ms);

static bool on_device(const struct prober *v)
{
    return runner_device(v->ms->srv->conf.engine_backend);
}

static void set_why(struct model *m, const char *why)
{
    char *copy = model_strdup(why);
    free(m->probe.why);
    m->probe.why = copy;
}

/* --- what a result changes --- */

static bool is_failed(const struct store_residency *r)
{
    return strcmp(r->verdict, "failed") == 0;
}

void probe_reject(struct model *m, const struct store_residency *r)
{
    char why[ERR_MSG_MAX];
    (void)snprintf(why, sizeof(why),
                   "measured on this machine: %.220s; anectl residency %.128s",
                   r->reason != NULL ? r->reason : "it does not run right",
                   m->name);
    if (m->state == MODEL_READY) {
        model_set(m, MODEL_REJECTED);
        m->probe.rejected = true;
        log_warn("model_rejected", "model=%s %s, continuing", m->name, why);
    }
    if (m->probe.rejected || m->state == MODEL_LOADED) {
        model_reason(m, why); /* a gate's own is the graver one */
    }
}

static void accept_model(struct model *m)
{
    if (m->probe.rejected) {
        m->probe.rejected = false;
        model_set(m, MODEL_READY);
        model_reason(m, NULL);
    }
}

/* What is known of this machine decides, or nothing. */
static void apply(struct prober *v, struct model *m)
{
    const struct store_residency *r = known_find(v, m, v->machine);
    if (!on_device(v)) {
        return;
    }
    if (r != NULL && is_failed(r) && !m->probe.again) {
        probe_reject(m, r);
    } else if (v->machine[0] != '\0') {
        accept_model(m);
    }
}

static void queue(struct model *m)
{
    if (m->probe.state == PROBING_REST) {
        m->probe.state = PROBING_QUEUED;
    }
}

/* Which machine this is. Models that were measured on others only wait for
 * another measurement. */
static void learn_machine(struct prober *v, const char *machine)
{
    if (machine[0] == '\0' || strcmp(v->machine, machine) == 0) {
        return;
    }
    (void)snprintf(v->machine, sizeof(v->machine), "%s", machine);
    log_info("machine_known", "machine=\"%s\"", machine);
    for (struct model *m = models_first(v->ms); m != NULL; m = models_next(m)) {
        bool other = m->state != MODEL_FAILED &&
                     known_find(v, m, NULL) != NULL &&
                     known_find(v, m, machine) == NULL;
        if (m == v->current || !on_device(v)) {
            continue;
        }
        if (other) {
            queue(m);
        }
        apply(v, m);
    }
}

/* m's turn is over. r: its result; NULL: there is none, and e tells why, or the
 * machine is a known one. */
static void end(struct prober *v, struct model *m,
                const struct store_residency *r, const struct err *e)
{
    struct err why = {0};
    probe_run_free(m->probe.run);
    m->probe.run = NULL;
    m->probe.state = PROBING_REST;
    m->probe.asked = false;
    m->probe.again = false;
    v->current = NULL;
    if (on_device(v) && r != NULL && is_failed(r)) {
        (void)err_set(&why, ERR_REJECTED, "%s: %s", m->name,
                      r->reason != NULL ? r->reason : "it does not run right");
        model_probed(m, &why); /* if a load waits, it fails */
        probe_reject(m, r);
        verify_loaded(m); /* its files may be damaged */
    } else {
        model_probed(m, e);
        apply(v, m);
    }
    model_changed(m);
    models_retry(v->ms); /* what it held is free */
    next(v);
}

static void on_stored(void *ctx, int status, const struct err *e)
{
    struct saving *s = ctx;
    struct prober *v = s->v;
    struct model *m = s->m;
    v->saving = NULL;
    if (status != 0) { /* it counts as long as the daemon runs */
        log_warn("probe_not_stored", "error=%s: %s, continuing",
                 err_name(status), e != NULL ? e->msg : "");
    }
    if (m != NULL) {
        set_why(m, status != 0 ? "the report could not be stored" : NULL);
        known_add(v, &s->r);
        learn_machine(v, s->r.machine);
        log_info("model_probed", "model=%s verdict=%s machine=\"%s\"", m->name,
                 s->r.verdict, s->r.machine);
        end(v, m, &s->r, NULL);
    } else {
        next(v);
    }
    free(s->r.reason);
    free(s->r.widths);
    free(s);
}

static void save(struct prober *v, struct model *m)
{
    struct saving *s = calloc(1, sizeof(*s));
    struct store_residency r = *probe_run_result(m->probe.run);
    must(s != NULL);
    r.created_ms = server_unix_ms();
    (void)snprintf(r.fingerprint, sizeof(r.fingerprint), "%s",
                   m->bundle->fingerprint);
    s->v = v;
    s->m = m;
    s->r = r;
    s->r.reason = row_dup(r.reason);
    s->r.widths = row_dup(r.widths);
    s->r.report = NULL;
    s->r.ops = NULL;
    s->r.n_ops = 0;
    v->saving = s;
    int rc = store_residency_put(v->ms->srv->store, &r, on_stored, s);
    if (rc != 0) {
        on_stored(s, rc, NULL);
    }
}

static void on_over(void *ctx, int rc, const struct err *e)
{
    struct prober *v = ctx;
    struct model *m = v->current;
    if (rc != 0) {
        struct err why = *e;
        (void)err_prefix(&why, rc, "%s could not be measured", m->name);
        log_warn("probe_failed", "model=%s error=%s: %s, continuing", m->name,
                 err_name(rc), e->msg);
        set_why(m, e->msg);
        end(v, m, NULL, &why);
    } else if (probe_run_known(m->probe.run) != NULL) {
        learn_machine(v, probe_run_known(m->probe.run));
        end(v, m, NULL, NULL);
    } else {
        save(v, m);
    }
}

static void on_progress(void *ctx)
{
    const struct prober *v = ctx;
    model_changed(v->current);
}

/* --- whose turn it is --- */

static int rank(const struct model *m)
{
    return m->awaits_probe ? 2 : m->probe.asked ? 1 : 0;
}

/* Nothing is generated, loaded or converted. */
static bool idle(const struct prober *v)
{
    const struct models *ms = v->ms;
    bool any = ms->n_used > 0 ||
               (ms->srv->jobs != NULL && jobs_running(ms->srv->jobs));
    LIST_EACH(l, &v->ms->all) {
        const struct model *m = model_of(l);
        any = any || m->state == MODEL_LOADING || m->state == MODEL_AWAITING;
    }
    return !any;
}

static bool has_room(const struct prober *v, const struct model *m)
{
    return models_bytes(v->ms) + m->bundle->total_bytes <= v->ms->budget;
}

static struct model *wanted(const struct prober *v)
{
    struct model *best = NULL;
    for (struct model *m = models_first(v->ms); m != NULL; m = models_next(m)) {
        if (m->probe.state == PROBING_QUEUED &&
            (best == NULL || rank(m) > rank(best))) {
            best = m;
        }
    }
    return best;
}

static struct probe_run *run_of(struct prober *v, const struct model *m)
{
    const char *machines[PROBE_KNOWN_MAX];
    const struct conf *c = &v->ms->srv->conf;
    bool anew = m->probe.asked || m->probe.again;
    struct probe_run_conf rc = {.loop = &v->ms->srv->loop,
                                .bundle = m->dir,
                                .backend = c->engine_backend,
                                .cache = runner_device(c->engine_backend)
                                             ? m->prepared
                                             : NULL,
                                .threads = (uint32_t)c->engine_threads,
                                .known = machines,
                                .ctx = v,
                                .on_progress = on_progress,
                                .on_over = on_over};
    rc.n_known = anew ? 0 : known_machines(v, m, machines);
    return probe_run_new(&rc);
}

static void begin(struct prober *v, struct model *m)
{
    struct err e = {0};
    v->current = m;
    m->probe.state = PROBING_RUNNING;
    if (m->probe.run == NULL) {
        m->probe.run = run_of(v, m);
    }
    int rc = probe_run_start(m->probe.run, &e);
    if (rc != 0) {
        on_over(v, rc, &e);
    } else {
        log_info("probing", "model=%s", m->name);
        model_changed(m);
    }
}

/* Its child goes; what it has measured stays. */
static void put_off(struct prober *v)
{
    struct model *m = v->current;
    probe_run_pause(m->probe.run);
    m->probe.state = PROBING_QUEUED;
    v->current = NULL;
}

static void next(struct prober *v)
{
    struct model *m = v->stopping ? NULL : wanted(v);
    if (m == NULL || v->saving != NULL) {
        return; /* on_stored comes back */
    }
    if (v->current != NULL) {
        if (rank(v->current) >= rank(m)) {
            return;
        }
        put_off(v);
    }
    if (rank(m) > 0) {
        begin(v, m);
    } else {
        look_in(v, v->idle_ms);
    }
}

/* What waits in the background is begun when nothing was done for a while. */
static void on_timer(uv_timer_t *t)
{
    struct prober *v = uv_handle_get_data((uv_handle_t *)t);
    struct model *m = wanted(v);
    if (m == NULL || rank(m) > 0) {
        next(v);
    } else if (v->current != NULL || v->saving != NULL || v->stopping) {
        return; /* next() comes when that is over */
    } else if (idle(v) && has_room(v, m)) {
        begin(v, m);
    } else {
        look_in(v, v->idle_ms);
    }
}

static void look_in(struct prober *v, uint64_t ms)
{
    if (v->timing) {
        must(uv_timer_start(&v->timer, on_timer, ms, 0) == 0);
    }
}

/* --- what others ask for --- */

/* A run that looks whether the machine is known is not what is asked for. */
static void drop_run(struct prober *v, struct model *m)
{
    if (v->saving == NULL || v->current != m) {
        probe_run_free(m->probe.run);
        m->probe.run = NULL;
        m->probe.state = PROBING_QUEUED;
        v->current = v->current == m ? NULL : v->current;
    }
}

int probe_holds(struct model *m, struct err *e)
{
    struct prober *v = m->of->prober;
    if (v == NULL || v->stopping || !on_device(v) ||
        m->bundle->encoder) { /* an encoder cannot be measured */
        return 0;
    }
    const struct store_residency *r = v->machine[0] != '\0' && !m->probe.again
                                          ? known_find(v, m, v->machine)
                                          : NULL;
    if (r != NULL && is_failed(r)) {
        probe_reject(m, r);
        return err_set(e, ERR_REJECTED, "%s: %s", m->name, m->reason);
    }
    if (r != NULL) {
        return 0;
    }
    m->awaits_probe = true;
    if (m->probe.again && !m->probe.asked) {
        drop_run(v, m);
    }
    queue(m);
    look_in(v, 0);
    return 1;
}

void probe_converted(struct model *m)
{
    const struct prober *v = m->of->prober;
    const struct store_residency *r =
        v != NULL && on_device(v) ? probe_verdict(m) : NULL;
    m->probe.again = r != NULL && is_failed(r);
}

int probe_ask(struct model *m, struct err *e)
{
    struct prober *v = m->of->prober;
    if (m->bundle == NULL) {
        return err_set(e, ERR_BUNDLE, "%s: %s", m->name,
                       m->reason != NULL ? m->reason : "it has no manifest");
    }
    RETERR(bundle_want_probe(m->bundle, e));
    if (v == NULL || v->stopping) {
        return err_set(e, ERR_UNAVAILABLE, "nothing is measured now");
    }
    if (m->probe.asked || (m->probe.again && m->awaits_probe)) {
        return 0;
    }
    if (v->current != m && !has_room(v, m)) {
        return err_set(e, ERR_NOMEM,
                       "there is no room beside what is loaded: a probe of %s "
                       "takes %llu MiB; unload a model",
                       m->name,
                       (unsigned long long)(m->bundle->total_bytes >> 20));
    }
    m->probe.asked = true;
    drop_run(v, m);
    look_in(v, 0);
    return 0;
}

/* `but`: the model that it may go on for; NULL: none. */
static void yield_to(struct prober *v, const struct model *but)
{
    struct model *m = v->current;
    if (m != NULL && m != but && v->saving == NULL && rank(m) == 0) {
        put_off(v);
        model_changed(m);
    }
    m = v->current == NULL ? wanted(v) : NULL;
    if (m != NULL && rank(m) == 0) {
        look_in(v, v->idle_ms);
    }
}

/* Nothing is at work in the background, or waits for its time: on the CPU it is
 * always so. */
static bool rests(const struct prober *v)
{
    return v == NULL || (v->current == NULL &&
                         uv_is_active((const uv_handle_t *)&v->timer) == 0);
}

void probe_busy(struct models *ms)
{
    if (!rests(ms->prober)) {
        yield_to(ms->prober, NULL);
    }
}

void probe_yield(const struct model *m)
{
    if (!rests(m->of->prober)) {
        yield_to(m->of->prober, m);
    }
}

uint64_t probe_bytes(const struct models *ms)
{
    const struct prober *v = ms->prober;
    return v != NULL && v->current != NULL && v->saving == NULL
               ? v->current->bundle->total_bytes
               : 0;
}

/* --- begin and end --- */

void probes_start(struct models *ms)
{
    struct prober *v = calloc(1, sizeof(*v));
    must(v != NULL);
    v->ms = ms;
    v->idle_ms = PROBE_IDLE_MS;
    list_init(&v->known);
    must(uv_timer_init(&ms->srv->loop, &v->timer) == 0);
    uv_handle_set_data((uv_handle_t *)&v->timer, v);
    v->timing = true;
    ms->prober = v;
}

/* Until a child has told which machine this is, it counts as that of the newest
 * verdict. Whether it still is, is looked at when nothing else is done. */
void probes_load(struct models *ms, const struct store_residency *r, size_t n)
{
    struct prober *v = ms->prober;
    struct model *newest = NULL;
    int64_t at = 0;
    for (size_t i = n; v != NULL && i-- > 0;) {
        known_add(v, &r[i]);
    }
    if (v == NULL || !on_device(v)) {
        return;
    }
    for (struct model *m = models_first(ms); m != NULL; m = models_next(m)) {
        const struct store_residency *k = known_find(v, m, NULL);
        if (k != NULL && is_failed(k)) {
            probe_reject(m, k);
        }
        if (k != NULL && k->created_ms > at) {
            newest = m;
            at = k->created_ms;
        }
    }
    if (newest != NULL) {
        queue(newest);
        look_in(v, v->idle_ms);
    }
}

void probes_stop(struct models *ms)
{
    struct prober *v = ms->prober;
    if (v == NULL || v->stopping) {
        return;
    }
    v->stopping = true;
    if (v->current != NULL && v->saving == NULL) {
        put_off(v);
    }
    v->timing = false;
    uv_close((uv_handle_t *)&v->timer, NULL);
}

void probes_free(struct models *ms)
{
    if (ms->prober != NULL) {
        known_free(ms->prober);
        free(ms->prober);
        ms->prober = NULL;
    }
}

void probe_forget(struct model *m)
{
    struct prober *v = m->of->prober;
    probe_run_free(m->probe.run);
    m->probe.run = NULL;
    m->probe.state = PROBING_REST;
    set_why(m, NULL);
    if (v == NULL) {
        return;
    }
    if (v->current == m) {
        v->current = NULL;
        if (v->saving != NULL) {
            v->saving->m = NULL;
        }
        look_in(v, 0); /* for the next one */
    }
    known_forget(v, m);
}
