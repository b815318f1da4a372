/* accept_same.c - the same tokens whatever the daemon does: drafts, forks, a
 * restart, the end of an engine; and memory that does not grow. Each on the CPU
 * backend and on Core ML, against what the same backend draws undisturbed. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "client/accept.h"

#define BASE_N       320u /* tokens of the undisturbed run */
#define PART_N       80u  /* of a part of it; the state of two is saved */
#define KILLS_MAX    2    /* a third within ten minutes fails the model */
#define MEMORY_N     256u /* tokens of a timeline */
#define MEMORY_WARM  3u   /* timelines before memory is looked at */
#define MEMORY_RUNS  8u   /* and between the looks: 2048 predictions */
#define MEMORY_LIMIT MIB(8)

static const char *prompt_of(const struct accept *a)
{
    return ask_str(json_first(json_get(a->expected, "runs")), "prompt");
}

/* The undisturbed run: without drafts, without anything before it. */
static int base(struct accept *a, bool coreml, const struct draw **ret,
                struct err *e)
{
    struct draw *d = coreml ? &a->core : &a->base;
    const struct draw_wish w = {
        .model = "demo", .prompt = prompt_of(a), .n = BASE_N};
    *ret = d;
    if (d->n > 0) {
        return 0;
    }
    RETERR(box_backend(a, coreml, 0, e));
    return draw(a, &w, d, e);
}

/* What `want` was at its first n drawn tokens. */
static struct draw cut(const struct draw *want, uint32_t n)
{
    struct draw d = *want;
    d.n = want->n_prompt + n;
    return d;
}

/* got: room for what is drawn. */
typedef int same_fn(struct accept *a, bool coreml, struct draw *got,
                    struct err *e);

static void run(struct doctor *d, same_fn *fn, bool coreml, const char *what)
{
    struct accept *a = accept_of(d);
    struct draw got;
    struct err e = {0};
    if (fn(a, coreml, &got, &e) < 0) {
        accept_error(a, what, &e);
    }
}

/* --- drafts --- */

static int drafts(struct accept *a, bool coreml, struct draw *got,
                  struct err *e)
{
    const struct draw *want = NULL;
    struct draw_wish w = {.model = "demo", .n = BASE_N};
    w.prompt = prompt_of(a);
    RETERR(base(a, coreml, &want, e));
    RETERR(box_backend(a, coreml, 8, e));
    w.guess = want;
    RETERR(draw(a, &w, got, e));
    (void)draw_same(a, "drafts that are right", want, got);
    accept_number(a, "drafts_accepted", got->accepted);
    if (got->accepted == 0) {
        accept_fail(a, "no draft was accepted: nothing is shown");
    }
    struct draw wrong = *want;
    for (uint32_t i = want->n_prompt; i < want->n; i += 3) {
        wrong.ids[i] = wrong.ids[i] > 0 ? wrong.ids[i] - 1 : 1;
    }
    w.guess = &wrong;
    RETERR(draw(a, &w, got, e));
    (void)draw_same(a, "drafts of which a third is wrong", want, got);
    return 0;
}

void step_cpu_drafts(struct doctor *d)
{
    run(d, drafts, false, "drafts");
}

void step_coreml_drafts(struct doctor *d)
{
    run(d, drafts, true, "drafts");
}

/* --- fork --- */

static int fork_session(struct accept *a, const char *id, char to[64],
                        struct err *e)
{
    char path[160];
    struct json *j = NULL;
    RETERR(ask_path(path, sizeof(path), "/aned/v1/sessions/", id, "/fork", e));
    RETERR(box_ask(a, "POST", path, NULL, &j, e));
    (void)snprintf(to, 64, "%s", ask_str(j, "id"));
    json_free(j);
    return 0;
}

static int forks(struct accept *a, bool coreml, struct draw *got, struct err *e)
{
    const struct draw *want = NULL;
    char one[64] = "";
    char two[64] = "";
    struct draw_wish w = {.model = "demo", .n = PART_N, .session = one};
    RETERR(base(a, coreml, &want, e));
    RETERR(box_backend(a, coreml, 0, e));
    w.prompt = prompt_of(a);
    RETERR(draw(a, &w, got, e));
    RETERR(fork_session(a, one, two, e));
    const struct draw whole = cut(want, 2 * PART_N);
    w.prompt = NULL;
    RETERR(draw(a, &w, got, e));
    (void)draw_same(a, "the original", &whole, got);
    w.session = two;
    RETERR(draw(a, &w, got, e));
    (void)draw_same(a, "the fork", &whole, got);
    accept_number(a, "positions_shared", got->cached);
    if (got->cached < PART_N) {
        accept_fail(a, "%u positions were shared, %u were there", got->cached,
                    want->n_prompt + PART_N);
    }
    return 0;
}

void step_cpu_fork(struct doctor *d)
{
    run(d, forks, false, "fork");
}

void step_coreml_fork(struct doctor *d)
{
    run(d, forks, true, "fork");
}

/* --- restart --- */

static int restart(struct accept *a, bool coreml, struct draw *got,
                   struct err *e)
{
    const struct draw *want = NULL;
    char id[64] = "";
    struct draw_wish w = {.model = "demo", .n = PART_N, .session = id};
    RETERR(base(a, coreml, &want, e));
    RETERR(box_backend(a, coreml, 0, e));
    w.prompt = prompt_of(a);
    RETERR(draw(a, &w, got, e));
    RETERR(box_stop(a, e));
    RETERR(box_backend(a, coreml, 0, e));
    const struct draw whole = cut(want, 2 * PART_N);
    w.prompt = NULL;
    RETERR(draw(a, &w, got, e));
    (void)draw_same(a, "after the restart", &whole, got);
    accept_number(a, "positions_from_disk", got->cached);
    if (box_metric(a, "states_loads_total") < 1 || got->cached == 0) {
        accept_fail(a, "no state was read from disk: all was computed again");
    }
    return 0;
}

void step_cpu_restart(struct doctor *d)
{
    run(d, restart, false, "restart");
}

void step_coreml_restart(struct doctor *d)
{
    run(d, restart, true, "restart");
}

/* --- the end of an engine --- */

struct killing {
    pid_t pid;
    bool sent;
};

static void on_first(void *ctx)
{
    struct killing *k = ctx;
    k->sent = kill(k->pid, SIGKILL) == 0;
}

/* The pid of the demo's engine: a child of our own daemon. */
static int engine_pid(struct accept *a, pid_t *ret, struct err *e)
{
    struct json *j = NULL;
    RETERR(box_load(a, "demo", &j, e));
    double pid = box_engine(j, "pid");
    json_free(j);
    *ret = (pid_t)pid;
    return pid > 1 ? 0 : err_set(e, ERR_UNAVAILABLE, "there is no engine");
}

/* One stream whose engine is killed at its first piece; *hit: it had not ended
 * before. */
static int kill_once(struct accept *a, const struct draw *want,
                     struct draw *got, bool *hit, struct err *e)
{
    struct killing k = {0};
    const struct draw_wish w = {.model = "demo",
                                .prompt = prompt_of(a),
                                .n = BASE_N,
                                .on_first = on_first,
                                .ctx = &k};
    double before = box_metric(a, "engine_restarts_total");
    RETERR(engine_pid(a, &k.pid, e));
    RETERR(draw(a, &w, got, e));
    *hit = k.sent && box_metric(a, "engine_restarts_total") > before;
    if (*hit) {
        (void)draw_same(a, "a stream whose engine was killed", want, got);
    }
    return 0;
}

static int kills(struct accept *a, bool coreml, struct draw *got, struct err *e)
{
    const struct draw *want = NULL;
    bool hit = false;
    RETERR(base(a, coreml, &want, e));
    RETERR(box_backend(a, coreml, 0, e));
    for (int i = 0; i < KILLS_MAX && !hit; i++) {
        RETERR(kill_once(a, want, got, &hit, e));
    }
    if (!hit) {
        accept_fail(a, "the stream was over each time before the engine died");
    }
    return 0;
}

void step_cpu_kill(struct doctor *d)
{
    run(d, kills, false, "kill");
}

void step_coreml_kill(struct doctor *d)
{
    run(d, kills, true, "kill");
}

/* --- memory --- */

static int resident(struct accept *a, double *ret, struct err *e)
{
    struct json *j = NULL;
    RETERR(box_ask(a, "GET", "/aned/v1/models/demo", NULL, &j, e));
    *ret = box_engine(j, "resident_bytes");
    json_free(j);
    return *ret > 0 ? 0 : err_set(e, ERR_UNAVAILABLE, "there is no engine");
}

static int timelines(struct accept *a, uint32_t n, struct draw *got,
                     struct err *e)
{
    const struct draw_wish w = {
        .model = "demo", .prompt = prompt_of(a), .n = MEMORY_N};
    for (uint32_t i = 0; i < n; i++) {
        RETERR(draw(a, &w, got, e));
    }
    return 0;
}

/* Few sequences stay warm, so that what grows is not theirs. */
static int memory(struct accept *a, bool coreml, struct draw *got,
                  struct err *e)
{
    char conf[200];
    double before = 0;
    double after = 0;
    (void)snprintf(conf, sizeof(conf),
                   "[engine]\nbackend = %s\n[speculation]\nmax_draft = 0\n"
                   "[cache]\nsessions = 2\n",
                   coreml ? "coreml" : "cpu");
    RETERR(box_serve(a, conf, e));
    RETERR(timelines(a, MEMORY_WARM, got, e));
    RETERR(resident(a, &before, e));
    RETERR(timelines(a, MEMORY_RUNS, got, e));
    RETERR(resident(a, &after, e));
    accept_number(a, "predictions_of_a_package", MEMORY_RUNS * MEMORY_N);
    accept_number(a, "resident_bytes_before", before);
    accept_number(a, "resident_bytes_after", after);
    if (after > before + (double)MEMORY_LIMIT) {
        accept_fail(a, "the engine grew by %.0f bytes", after - before);
    } else {
        accept_pass(a, "%u predictions: %+.0f bytes", MEMORY_RUNS * MEMORY_N,
                    after - before);
    }
    return 0;
}

void step_cpu_memory(struct doctor *d)
{
    run(d, memory, false, "memory");
}

void step_coreml_memory(struct doctor *d)
{
    run(d, memory, true, "memory");
}
