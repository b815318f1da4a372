/* probe_role.c - the probe's child: one frame in, progress and results out. See
 * probe.h for the frames.
 *
 * While the system works on something long, the parent's end of the socket is
 * looked at (backend_watch): a probe does not outlive who wants to know.
 */
#include <poll.h>
#include <signal.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/qos.h"
#include "base/seatbelt.h"
#ifdef ANED_COREML
#include "engine/coreml/backend_coreml.h"
#endif
#include "engine/cpu/backend_cpu.h"
#include "engine/probe/probe_impl.h"
#include "engine/role.h"
#include "proto/frame.h"
#include "proto/parent.h"

#define TELL_US 100000u /* between two frames about the same step */

struct asked {
    struct frame_in in;
    struct json *spec;
    uint32_t request;
    const char *bundle, *backend;
    struct probe_conf conf;
    struct probe_place lost[PROBE_LOST_MAX];
    const char *known[PROBE_KNOWN_MAX];
    bool margin; /* of these widths; else the packages are measured */
    struct msg_widths layers, heads;
    /* last frame */
    enum probe_step step;
    uint32_t width;
    uint64_t told_us;
    struct err err; /* why the parent was not told */
    int (*tap)(void *ctx, const struct probe_place *p, size_t done,
               size_t all); /* of a test; NULL */
    void *tap_ctx;
};

/* --- what is asked --- */

static int read_widths(const struct json *list, const char *what,
                       struct msg_widths *ret, struct err *e)
{
    struct msg_widths w = {0};
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        int64_t t = 0;
        if (w.n == ENGINE_WIDTHS_MAX || !json_int(c, 1, ENGINE_CHUNK_MAX, &t)) {
            return err_set(e, ERR_FRAME, "probe: %s", what);
        }
        w.of[w.n++] = (uint32_t)t;
    }
    *ret = w;
    return msg_widths_ok(&w) ? 0 : err_set(e, ERR_FRAME, "probe: %s", what);
}

static int read_place(const struct json *j, struct probe_place *ret,
                      struct err *e)
{
    const char *step = NULL;
    int64_t width = 0;
    RETERR(json_want_str(j, "package", true, &ret->package, e));
    RETERR(json_want_str(j, "function", true, &ret->function, e));
    RETERR(json_want_str(j, "step", true, &step, e));
    RETERR(json_want_int(j, "width", true, 0, ENGINE_CHUNK_MAX, &width, e));
    ret->width = (uint32_t)width;
    ret->step = probe_step_find(step);
    return ret->step < PROBE_STEPS ? 0 : err_set(e, ERR_FRAME, "probe: step");
}

static int read_lists(struct asked *a, struct err *e)
{
    for (const struct json *c = json_first(json_get(a->spec, "lost"));
         c != NULL; c = json_next(c)) {
        if (a->conf.n_lost == PROBE_LOST_MAX) {
            return err_set(e, ERR_FRAME, "probe: lost");
        }
        RETERR(read_place(c, &a->lost[a->conf.n_lost++], e));
    }
    for (const struct json *c = json_first(json_get(a->spec, "known"));
         c != NULL; c = json_next(c)) {
        if (a->conf.n_known == PROBE_KNOWN_MAX || json_str(c) == NULL) {
            return err_set(e, ERR_FRAME, "probe: known");
        }
        a->known[a->conf.n_known++] = json_str(c);
    }
    a->conf.lost = a->lost;
    a->conf.known = a->known;
    return 0;
}

static int read_spec(struct asked *a, const struct frame *f, struct err *e)
{
    int64_t first = 0;
    int64_t threads = 0;
    a->request = f->request;
    if (f->type != FRAME_PROBE) {
        return err_set(e, ERR_FRAME, "a frame of type %d comes first",
                       (int)f->type);
    }
    RETERR(json_parse((const char *)f->payload, f->n, &a->spec, e));
    RETERR(json_want_str(a->spec, "bundle", true, &a->bundle, e));
    RETERR(json_want_str(a->spec, "backend", true, &a->backend, e));
    RETERR(json_want_int(a->spec, "threads", false, 0, ENGINE_THREADS_MAX,
                         &threads, e));
    RETERR(json_want_str(a->spec, "cache", false, &a->conf.conf.cache, e));
    RETERR(
        json_want_int(a->spec, "first", false, 0, 2 * SHARDS_MAX, &first, e));
    a->conf.conf.threads = (unsigned)threads;
    a->conf.first = (size_t)first;
    RETERR(
        read_widths(json_get(a->spec, "widths"), "widths", &a->conf.widths, e));
    const struct json *m = json_get(a->spec, "margin");
    a->margin = m != NULL;
    RETERR(read_widths(json_get(m, "layers"), "layers", &a->layers, e));
    RETERR(read_widths(json_get(m, "heads"), "heads", &a->heads, e));
    return read_lists(a, e);
}

/* --- what is told --- */

/* As long as a load may take. */
static bool slow(enum probe_step s)
{
    return s == PROBE_OPEN || s == PROBE_PLAN || s == PROBE_WARM ||
           s == PROBE_CPU_OPEN || s == PROBE_MARGIN;
}

static int tell_place(struct asked *a, const struct probe_place *p,
                      double fraction)
{
    struct json *j = json_object();
    a->step = p->step;
    a->width = p->width;
    a->told_us = now_us();
    json_add_str(j, "package", p->package);
    json_add_str(j, "function", p->function);
    json_add_int(j, "width", p->width);
    json_add_str(j, "step", probe_step_name(p->step));
    json_add_bool(j, "slow", slow(p->step));
    json_add_num(j, "fraction", fraction);
    return parent_tell(a->request, FRAME_PROGRESS, j, &a->err);
}

static int on_at(void *ctx, const struct probe_place *p, size_t done,
                 size_t all)
{
    struct asked *a = ctx;
    bool same = p->step == a->step && p->width == a->width && !slow(p->step);
    if (!same || now_us() - a->told_us >= TELL_US) {
        RETERR(tell_place(a, p, all > 0 ? (double)done / (double)all : 1));
    }
    return a->tap != NULL ? a->tap(a->tap_ctx, p, done, all) : 0;
}

static int on_result(void *ctx, struct json *j)
{
    struct asked *a = ctx;
    return parent_tell(a->request, FRAME_PROBE_RESULT, j, &a->err);
}

static bool parent_there(void *ctx)
{
    struct pollfd p = {.fd = CONTROL_FD, .events = POLLIN};
    (void)ctx;
    return poll(&p, 1, 0) == 0; /* it sends no second frame */
}

/* --- the work --- */

#ifdef ANED_COREML
static void without_device(struct backend_conf *c)
{
    static const struct coreml_conf cpu = {.cpu_only = true};
    c->coreml = &cpu;
}
#endif

/* The two CPU backends are each other's reference, and have nothing to be
 * compared with in time. */
static int choose(struct asked *a, struct err *e)
{
    struct probe_conf *c = &a->conf;
#ifdef ANED_COREML
    bool device = strcmp(a->backend, backend_coreml.name) == 0;
    c->cpu_only = device ? without_device : c->cpu_only;
#endif
    if (c->be == NULL) {
        c->be = backend_find(a->backend);
        c->reference =
            c->be == &backend_cpu ? &backend_interpreter : &backend_cpu;
    }
    return c->be != NULL
               ? 0
               : err_set(e, ERR_UNSUPPORTED, "no backend '%.32s' in this build",
                         a->backend);
}

static int measure(struct asked *a, struct err *e)
{
    struct json *j = NULL;
    const char *known = NULL;
    double margin = 0;
    if (a->margin) {
        RETERR(probe_margin(a->bundle, &a->conf, &a->layers, &a->heads, &margin,
                            e));
    } else {
        RETERR(probe_run(a->bundle, &a->conf, &known, e));
    }
    j = json_object();
    if (a->margin) {
        json_add_num(j, "margin", margin);
    } else if (known != NULL) {
        json_add_str(j, "known", known);
    } else {
        json_add_null(j, "known");
    }
    return parent_tell(a->request, FRAME_PROBE_DONE, j, e);
}

static int answer(struct asked *a, const struct frame *f, struct err *e)
{
    RETERR(read_spec(a, f, e));
    const char *cache = a->conf.conf.cache;
    RETERR(choose(a, e));
    if (cache != NULL) {
        RETERR(file_mkdirs(cache, 0700, e)); /* the rules name what is there */
    }
    seatbelt_engine(cache != NULL ? cache : "/tmp");
#ifdef ANED_COREML
    coreml_at_work(true); /* until it ends */
#endif
    return measure(a, e);
}

int probe_role_with(const struct probe_conf *conf)
{
    struct asked *a = calloc(1, sizeof(*a));
    struct frame f = {.n = 0};
    struct err e = {0};
    must(a != NULL);
    a->conf = *conf;
    a->tap = conf->at;
    a->tap_ctx = conf->ctx;
    a->conf.at = on_at;
    a->conf.result = on_result;
    a->conf.ctx = a;
    a->conf.conf.watch.go = parent_there;
    a->step = PROBE_STEPS;
    log_setup(LOG_INFO, "probe");
    qos_set(QOS_ANSWER); /* as the engine: times are to be its own */
    (void)signal(SIGPIPE, SIG_IGN);
    die_with_parent();
    frame_in_init(&a->in, FRAME_WORKER_MAX);
    int rc = frame_read_fd(CONTROL_FD, &a->in, &f, &e);
    int code = EXIT_SUCCESS; /* 0: the parent changed its mind */
    if (rc != 0) {
        rc = rc < 0 ? rc : answer(a, &f, &e);
        e = rc < 0 && e.code == 0 ? a->err : e;
        code = rc < 0 ? parent_tell_error(a->request, &e) : EXIT_SUCCESS;
    }
    json_free(a->spec);
    frame_in_fini(&a->in);
    free(a);
    return code;
}

int probe_role(int argc, char **argv)
{
    static const struct probe_conf conf;
    (void)argc; /* argv holds the role's name and nothing for us */
    (void)argv;
    return probe_role_with(&conf);
}
