/* probe_run.c - the children of a probe. See probe_run.h.
 *
 *   start -> child: packages from `first` on --lost--> again, without that step
 *              |                                  (up to PROBE_LOST_MAX times)
 *             DONE --> do widths differ? --> child: margin --> over
 */
#include "serve/probe/probe_run.h"

#include <string.h>

#include "base/log.h"
#include "serve/probe/probe_impl.h"

struct probe_run {
    struct probe_run_conf c; /* of its strings the copies count */
    char bundle[PATH_BYTES_MAX], backend[BACKEND_NAME_MAX];
    char cache[PATH_BYTES_MAX]; /* "": none */
    char known[PROBE_KNOWN_MAX][ARITH_BYTES_MAX];
    struct child *child; /* NULL: none now */
    bool margin;         /* what it is at; else packages */
    bool answered;       /* it has said all; it only has to leave */
    bool told;           /* it has begun a step: `at` */
    bool slow;           /* which may take c.time_out_ms */
    struct probe_loss at;
    double fraction;
    char stage[400];
    const char *is_known; /* of `known` */
    struct probe_found found;
    struct store_residency record; /* at the end */
    struct err why;                /* that it cannot measure; code 0: none */
    uint64_t began_ms;
};

static uint64_t now_ms(void)
{
    return uv_hrtime() / 1000000;
}

struct probe_run *probe_run_new(const struct probe_run_conf *c)
{
    struct probe_run *r = calloc(1, sizeof(*r));
    must(r != NULL && c->n_known <= PROBE_KNOWN_MAX);
    r->c = *c;
    (void)snprintf(r->bundle, sizeof(r->bundle), "%s", c->bundle);
    (void)snprintf(r->backend, sizeof(r->backend), "%s", c->backend);
    (void)snprintf(r->cache, sizeof(r->cache), "%s",
                   c->cache != NULL ? c->cache : "");
    for (size_t i = 0; i < c->n_known; i++) {
        (void)snprintf(r->known[i], sizeof(r->known[i]), "%s", c->known[i]);
    }
    r->c.time_out_ms = c->time_out_ms != 0 ? c->time_out_ms : ENGINE_WARM_MS;
    r->c.step_ms = c->step_ms != 0 ? c->step_ms : PROBE_STEP_MS;
    r->found.functions = json_array();
    r->found.packages = json_array();
    r->began_ms = now_ms();
    return r;
}

void probe_run_free(struct probe_run *r)
{
    if (r == NULL) {
        return;
    }
    child_drop(r->child);
    probe_record_fini(&r->record);
    json_free(r->found.functions);
    json_free(r->found.packages);
    free(r->found.ops);
    free(r);
}

double probe_run_progress(const struct probe_run *r)
{
    return r->fraction;
}

const char *probe_run_stage(const struct probe_run *r)
{
    return r->stage;
}

const char *probe_run_known(const struct probe_run *r)
{
    return r->is_known;
}

const struct store_residency *probe_run_result(const struct probe_run *r)
{
    return &r->record;
}

/* --- what the child says --- */

static void set_stage(struct probe_run *r)
{
    const struct probe_loss *x = &r->at;
    char width[24] = "";
    if (x->width > 0) {
        (void)snprintf(width, sizeof(width), ", width %u", x->width);
    }
    (void)snprintf(r->stage, sizeof(r->stage), "%.200s%s%.100s%s%s%s",
                   x->package, x->function[0] != '\0' ? " " : "", x->function,
                   x->package[0] != '\0' ? ": " : "", x->step, width);
}

static int on_progress(struct probe_run *r, const struct json *j)
{
    int64_t width = 0;
    bool slow = false;
    struct probe_loss *x = &r->at;
    RETERR(json_want_int(j, "width", true, 0, ENGINE_CHUNK_MAX, &width, NULL));
    RETERR(json_want_bool(j, "slow", true, &slow, NULL));
    RETERR(json_want_num(j, "fraction", true, 0, 1, &r->fraction, NULL));
    probe_copy(x->package, sizeof(x->package), j, "package");
    probe_copy(x->function, sizeof(x->function), j, "function");
    probe_copy(x->step, sizeof(x->step), j, "step");
    x->width = (uint32_t)width;
    r->told = true;
    r->slow = slow;
    set_stage(r);
    child_deadline(r->child, slow ? r->c.time_out_ms : r->c.step_ms);
    if (r->c.on_progress != NULL) {
        r->c.on_progress(r->c.ctx);
    }
    return 0;
}

static int on_result(struct probe_run *r, const struct json *j)
{
    const struct json *f = json_get(j, "function");
    const struct json *p = json_get(j, "package");
    if (json_type(f) == JSON_OBJECT) {
        json_add_tree(r->found.functions, NULL, json_copy(f));
        probe_take_ops(&r->found.ops, &r->found.n_ops, f, json_get(j, "ops"));
    } else if (json_type(p) == JSON_OBJECT) {
        json_add_tree(r->found.packages, NULL, json_copy(p));
    } else {
        return ERR_FRAME;
    }
    return 0;
}

static int on_done(struct probe_run *r, const struct json *j)
{
    const char *known = json_str(json_get(j, "known"));
    r->answered = true;
    child_deadline(r->child, JOB_CANCEL_MS); /* it only has to leave */
    if (r->margin) {
        r->found.margin_known = true;
        return json_want_num(j, "margin", true, 0, 1e30, &r->found.margin,
                             NULL);
    }
    r->found.whole = known == NULL;
    for (size_t i = 0; known != NULL && i < r->c.n_known; i++) {
        r->is_known =
            strcmp(r->known[i], known) == 0 ? r->known[i] : r->is_known;
    }
    return known == NULL || r->is_known != NULL ? 0 : ERR_FRAME;
}

static int on_error(struct probe_run *r, const struct frame *f)
{
    struct msg_error m = {0};
    RETERR(msg_error_get(f->payload, f->n, &m, NULL));
    (void)err_set(&r->why, m.code < 0 ? m.code : ERR_INTERNAL, "%s", m.msg);
    r->answered = true;
    child_deadline(r->child, JOB_CANCEL_MS);
    return 0;
}

static void on_frame(void *ctx, const struct frame *f)
{
    struct probe_run *r = ctx;
    struct json *j = NULL;
    int rc = 0;
    if (r->answered) {
        rc = ERR_FRAME;
    } else if (f->type == FRAME_ERROR) {
        rc = on_error(r, f);
    } else {
        rc = json_parse((const char *)f->payload, f->n, &j, NULL);
        rc = rc != 0                         ? rc
             : f->type == FRAME_PROGRESS     ? on_progress(r, j)
             : f->type == FRAME_PROBE_RESULT ? on_result(r, j)
             : f->type == FRAME_PROBE_DONE   ? on_done(r, j)
                                             : ERR_FRAME;
    }
    json_free(j);
    if (rc != 0) {
        child_kill(r->child, ERR_FRAME);
    }
}

/* --- the children --- */

static bool finished(const struct probe_found *f, const char *package)
{
    for (const struct json *p = json_first(f->packages); p != NULL;
         p = json_next(p)) {
        const char *name = json_str(json_get(p, "package"));
        if (name != NULL && package != NULL && strcmp(name, package) == 0) {
            return true;
        }
    }
    return false;
}

/* Functions of a package that is not over are measured again. */
static void drop_unfinished(struct probe_found *f)
{
    struct json *kept = json_array();
    size_t n = 0;
    for (const struct json *x = json_first(f->functions); x != NULL;
         x = json_next(x)) {
        if (finished(f, json_str(json_get(x, "package")))) {
            json_add_tree(kept, NULL, json_copy(x));
        }
    }
    json_free(f->functions);
    f->functions = kept;
    for (size_t i = 0; i < f->n_ops; i++) {
        if (finished(f, f->ops[i].package)) {
            f->ops[n++] = f->ops[i];
        }
    }
    f->n_ops = n;
}

static void put_margin(struct json *o, const struct probe_found *f)
{
    struct probe_agreement layers;
    struct probe_agreement heads;
    struct json *m = json_add_object(o, "margin");
    probe_agree(f, "layers", &layers);
    probe_agree(f, "head", &heads);
    probe_put_widths(m, "layers", &layers.all);
    probe_put_widths(m, "heads", &heads.all);
}

static void send_spec(struct probe_run *r)
{
    struct json *o = json_object();
    size_t done = json_count(r->found.packages);
    json_add_str(o, "bundle", r->bundle);
    json_add_str(o, "backend", r->backend);
    json_add_int(o, "threads", r->c.threads);
    if (r->cache[0] != '\0') {
        json_add_str(o, "cache", r->cache);
    }
    if (r->margin) {
        put_margin(o, &r->found);
    } else {
        probe_put_widths(o, "widths", &r->c.widths);
        json_add_int(o, "first", (int64_t)done);
        probe_put_losses(o, &r->found);
        struct json *known = json_add_array(o, "known");
        for (size_t i = 0; done == 0 && i < r->c.n_known; i++) {
            json_add_str(known, NULL, r->known[i]);
        }
    }
    child_send_json(r->child, FRAME_PROBE, 1, o);
    json_free(o);
}

static void on_gone(void *ctx, const struct child_exit *x);

int probe_run_start(struct probe_run *r, struct err *e)
{
    const struct child_conf c = {
        .program = r->c.program,
        .role = "probe-worker",
        .fd = -1,
        .frame_max = FRAME_WORKER_MAX,
        .ctx = r,
        .on_frame = on_frame,
        .on_exit = on_gone,
    };
    must(r->child == NULL);
    r->answered = false;
    r->told = false;
    RETERR(child_spawn(r->c.loop, &c, &r->child, e));
    child_deadline(r->child, PROBE_STEP_MS);
    send_spec(r);
    return 0;
}

void probe_run_pause(struct probe_run *r)
{
    child_drop(r->child);
    r->child = NULL;
    drop_unfinished(&r->found);
}

static void over(struct probe_run *r, int rc, const struct err *e)
{
    if (rc == 0 && r->is_known == NULL) {
        probe_record_make(&r->found, r->backend, now_ms() - r->began_ms,
                          &r->record);
    }
    r->fraction = 1;
    r->c.on_over(r->c.ctx, rc, e); /* may free r */
}

static void start_again(struct probe_run *r)
{
    struct err e = {0};
    int rc = probe_run_start(r, &e);
    if (rc != 0) {
        over(r, rc, &e);
    }
}

/* More than one class of widths runs right: how far are they apart? */
static bool wants_margin(const struct probe_found *f)
{
    struct probe_agreement layers;
    struct probe_agreement heads;
    probe_agree(f, "layers", &layers);
    probe_agree(f, "head", &heads);
    return layers.best.n > 0 && heads.best.n > 0 &&
           (layers.all.n > layers.best.n || heads.all.n > heads.best.n);
}

static void tell_how(const struct probe_run *r, const struct child_exit *x,
                     char *out, size_t size)
{
    if (x->code == ERR_TIMEOUT) {
        uint32_t ms = r->slow ? r->c.time_out_ms : r->c.step_ms;
        (void)snprintf(out, size, "said nothing for %.3g s", ms / 1000.0);
    } else if (x->code != 0) {
        (void)snprintf(out, size, "was ended: %s", err_name(x->code));
    } else if (x->signal != 0) {
        (void)snprintf(out, size, "was ended by signal %d", x->signal);
    } else {
        (void)snprintf(out, size, "ended with status %d", (int)x->status);
    }
}

/* It ended in the middle of a step, which becomes a result. */
static void lost(struct probe_run *r, const struct child_exit *x)
{
    struct probe_found *f = &r->found;
    struct err e = {0};
    tell_how(r, x, r->at.how, sizeof(r->at.how));
    if (!r->told) {
        over(
            r,
            err_set(&e, ERR_BACKEND, "the probe %s before it began", r->at.how),
            &e);
        return;
    }
    log_warn("probe_lost", "at=\"%s\" %s, continuing", r->stage, r->at.how);
    f->losses[f->n_losses++] = r->at;
    if (r->margin || f->n_losses == PROBE_LOST_MAX) {
        over(r, 0, &e);
        return;
    }
    drop_unfinished(f);
    start_again(r);
}

static void on_gone(void *ctx, const struct child_exit *x)
{
    struct probe_run *r = ctx;
    struct err none = {0};
    r->child = NULL;
    if (!r->answered) {
        lost(r, x);
    } else if (r->why.code != 0 && !r->margin) {
        over(r, r->why.code, &r->why);
    } else if (r->margin || r->is_known != NULL || !wants_margin(&r->found)) {
        over(r, 0, &none);
    } else {
        r->margin = true;
        start_again(r);
    }
}
