/* runner.c - see runner.h: starts and ends the child, handles its frames, adds
 * and removes streams. The step itself: runner_step.c.
 *
 * Each frame has a request number. A step's has STEP_BIT, a state's has
 * WARM_REQUEST; a sequence operation's has the sequence in its low byte. The
 * engine answers in order, so a failed operation needs no bookkeeping here: the
 * rows of that sequence fail too.
 */
#include "serve/engines/runner.h"

#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "sched/shed.h"
#include "serve/engines/runner_impl.h"

#define LOAD_REQUEST 0x40000000u
#define STOP_MS      2000u /* from UNLOAD to SIGKILL */

static void send_state(void *ctx, enum frame_type type, uint32_t request,
                       const struct buf *b)
{
    struct runner *r = ctx;
    child_send(r->child, type, request, b->p, b->n);
    if (type == FRAME_STATE_LOAD) {
        child_deadline(r->child, r->conf.step_ms);
    }
}

static void send_grammar(void *ctx, enum frame_type type, const struct buf *b)
{
    struct runner *r = ctx;
    uint32_t request = (r->counter++ & OP_COUNTER) << 8;
    child_put(r->child, type, request, b->p, b->n);
}

static void send_unload(void *ctx)
{
    struct runner *r = ctx;
    if (r->child != NULL && r->stopping) {
        child_send(r->child, FRAME_UNLOAD, 0, NULL, 0);
        child_deadline(r->child, STOP_MS);
    }
}

static void set_conf(struct runner *r, const struct runner_conf *c)
{
    r->conf = *c;
    r->conf.step_ms = c->step_ms != 0 ? c->step_ms : ENGINE_STEP_MS;
}

struct runner *runner_new(const struct runner_conf *c, const char *dir,
                          const struct runner_owner *o)
{
    struct runner *r = calloc(1, sizeof(*r));
    must(r != NULL);
    set_conf(r, c);
    r->owner = *o;
    list_init(&r->turn);
    list_init(&r->saying);
    list_init(&r->left);
    list_init(&r->tags);
    (void)snprintf(r->dir, sizeof(r->dir), "%s", dir);
    r->rows = calloc(SAMPLING_ROWS, sizeof(*r->rows));
    must(r->rows != NULL);
    buf_init(&r->out, FRAME_ENGINE_MAX);
    const struct warm_conf w = {.loop = c->loop,
                                .cache = c->cache,
                                .fingerprint = c->fingerprint,
                                .backend = c->backend,
                                .gain_min = c->cache_tokens,
                                .sched = &r->sched,
                                .ctx = r,
                                .send = send_state,
                                .flushed = send_unload};
    r->warm = warm_new(&w);
    grammars_init(&r->grammars);
    r->grammars.ctx = r;
    r->grammars.send = send_grammar;
    return r;
}

void runner_free(struct runner *r)
{
    if (r == NULL) {
        return;
    }
    list_del(&r->turn);
    child_drop(r->child);
    warm_free(r->warm);
    grammars_fini(&r->grammars);
    sched_fini(&r->sched);
    buf_fini(&r->out);
    free(r->rows);
    free(r);
}

void runner_set_conf(struct runner *r, const struct runner_conf *c)
{
    r->conf.max_draft = c->max_draft;
    r->conf.step_ms = c->step_ms != 0 ? c->step_ms : ENGINE_STEP_MS;
    r->conf.cache_tokens = c->cache_tokens;
    warm_set_gain(r->warm, c->cache_tokens);
    if (r->ever_up) {
        sched_set_drafts(&r->sched, c->max_draft);
    }
}

bool runner_renew(struct runner *r, const struct runner_conf *c)
{
    if (r->state != RUNNER_DOWN || warm_waits(r->warm) ||
        (r->ever_up && !sched_idle(&r->sched))) {
        return false;
    }
    sched_fini(&r->sched);
    memset(&r->sched, 0, sizeof(r->sched));
    memset(&r->ready, 0, sizeof(r->ready));
    r->ever_up = false;
    set_conf(r, c);
    warm_set_gain(r->warm, c->cache_tokens);
    return true;
}

/* --- answers --- */

void runner_quiet(struct runner *r)
{
    if (!r->stopping) {
        child_deadline(r->child, 0);
    }
}

/* m NULL: the engine could not. */
static void on_state(struct runner *r, uint32_t request,
                     const struct msg_state_done *m)
{
    if (!r->sched.in_flight) {
        runner_quiet(r);
    }
    warm_answer(r->warm, request, m);
    runner_step(r);
}

static void on_state_done(struct runner *r, const struct frame *f)
{
    struct msg_state_done m = {0};
    struct err e = {0};
    if (msg_state_done_get(f->payload, f->n, &m, &e) != 0) {
        child_kill(r->child, ERR_FRAME);
        return;
    }
    on_state(r, f->request, &m);
}

static void on_error(struct runner *r, const struct frame *f)
{
    struct msg_error m = {0};
    struct err e = {0};
    if (msg_error_get(f->payload, f->n, &m, &e) != 0) {
        child_kill(r->child, ERR_FRAME);
        return;
    }
    int code = m.code < 0 ? m.code : ERR_INTERNAL;
    if (r->state == RUNNER_LOADING) {
        r->load_rc = err_set(&r->load_error, code, "%s", m.msg);
        child_kill(r->child, code);
    } else if (runner_tags_error(r, f->request, code, m.msg)) {
        return;
    } else if (r->sched.in_flight && f->request == r->step_request) {
        int codes[STREAMS_MAX];
        for (size_t i = 0; i < countof(codes); i++) {
            codes[i] = code;
        }
        runner_quiet(r);
        runner_hand_out(r, NULL, codes, m.msg, 0);
    } else if ((f->request & (STEP_BIT | LOAD_REQUEST | WARM_REQUEST)) ==
               WARM_REQUEST) {
        log_info("state_refused", "error=%s: %s", err_name(code), m.msg);
        if (code == ERR_UNSUPPORTED) { /* it never will */
            warm_discard(r->warm);
        }
        on_state(r, f->request, NULL);
    } else { /* a sequence operation; its rows will tell the streams */
        log_warn("engine_refused", "seq=%u error=%s: %s, continuing",
                 f->request & 0xffu, err_name(code), m.msg);
    }
}

/* --- start and end --- */

static void on_ready(struct runner *r, const struct frame *f)
{
    struct msg_ready m = {0};
    struct err e = {0};
    if (r->state != RUNNER_LOADING ||
        msg_ready_get(f->payload, f->n, &m, &e) != 0 || m.context == 0 ||
        (r->ever_up &&
         (m.context < r->ready.context || m.short_max != r->ready.short_max))) {
        child_kill(r->child, ERR_FRAME);
        return;
    }
    child_deadline(r->child, 0);
    if (!r->ever_up) {
        struct sched_conf c = {.rows_seq = m.t_max,
                               .rows_step = m.batch_max,
                               .chunk = r->conf.chunk,
                               .running = r->conf.streams,
                               .queue = r->conf.queue,
                               .context = m.context,
                               .short_max = m.short_max,
                               .cut_at = m.recurrent ? STATE_BLOCK : 0,
                               .max_draft = r->conf.max_draft,
                               .ngram_min = r->conf.ngram_min,
                               .share_tokens = r->conf.share_tokens};
        runner_size(r, &m, &c);
        sched_init(&r->sched, &c);
        r->ready = m;
        r->ever_up = true;
    }
    memcpy(r->ready.arith, m.arith, sizeof(m.arith));
    r->state = RUNNER_UP;
    r->progress = 1;
    r->warms = false;
    warm_up(r->warm, &m);
    r->owner.on_up(r->owner.ctx);
    runner_step(r);
    runner_tags_kick(r);
}

bool runner_device(const char *backend)
{
    return strcmp(backend, "coreml") == 0;
}

/* Until the next sign of life of an engine that loads. */
static uint64_t load_ms(const struct runner *r)
{
    bool device = runner_device(r->conf.backend);
    return device || r->warms ? ENGINE_WARM_MS : ENGINE_LOAD_MS;
}

/* A package of the model failed on its device. On the CPU it has other bits:
 * saved states of before do not fit the sequences of after. */
static void on_notice(struct runner *r, const struct frame *f)
{
    struct msg_notice m = {0};
    struct err e = {0};
    if (r->state != RUNNER_UP ||
        msg_notice_get(f->payload, f->n, &m, &e) != 0) {
        child_kill(r->child, ERR_FRAME);
        return;
    }
    log_warn(m.on_cpu ? "engine_on_cpu" : "engine_reopened",
             "pid=%d package=%s error=%s, continuing", child_pid(r->child),
             m.package, m.why);
    r->conf.stats->packages_reopened += !m.on_cpu;
    r->conf.stats->packages_on_cpu += m.on_cpu;
    r->n_on_cpu += m.on_cpu;
    r->n_reopened += !m.on_cpu;
    (void)snprintf(r->why, sizeof(r->why), "%s: %s", m.package, m.why);
    memcpy(r->ready.arith, m.arith, sizeof(r->ready.arith));
    warm_arith(r->warm, r->ready.arith);
}

static void on_frame(void *ctx, const struct frame *f)
{
    struct runner *r = ctx;
    struct msg_progress m = {0};
    struct err e = {0};
    if (f->type == FRAME_READY) {
        on_ready(r, f);
    } else if (f->type == FRAME_STEP_DONE) {
        runner_on_step_done(r, f);
    } else if (f->type == FRAME_STATE_DONE) {
        on_state_done(r, f);
    } else if (f->type == FRAME_TAGS_DONE) {
        runner_on_tags_done(r, f);
    } else if (f->type == FRAME_PROGRESS && r->tags_request != 0) {
        child_deadline(r->child, r->conf.step_ms); /* a window more */
    } else if (f->type == FRAME_NOTICE) {
        on_notice(r, f);
    } else if (f->type == FRAME_ERROR) {
        on_error(r, f);
    } else if (f->type == FRAME_PROGRESS) {
        if (msg_progress_get(f->payload, f->n, &m, &e) == 0 && m.total > 0) {
            r->progress = (double)m.done / (double)m.total;
            r->warms = m.warms && (r->state == RUNNER_LOADING || m.done < m.total);
            child_deadline(r->child, load_ms(r));
            if (r->owner.on_progress != NULL) {
                r->owner.on_progress(r->owner.ctx);
            }
        }
    } else if (f->type != FRAME_OK) {
        log_warn("engine_frame", "pid=%d type=%d out of place, killing it",
                 child_pid(r->child), (int)f->type);
        child_kill(r->child, ERR_FRAME);
    }
}

static void on_gone(void *ctx, const struct child_exit *x)
{
    struct runner *r = ctx;
    bool stopping = r->stopping;
    int rc = r->load_rc;
    struct err e = r->load_error;
    log_info("engine_exit", "status=%d signal=%d reason=%s", (int)x->status,
             x->signal, x->code != 0 ? err_name(x->code) : "none");
    if (stopping) {
        rc = 0;
    } else if (rc == 0) {
        rc = err_set(&e, ERR_ENGINE_LOST,
                     "the engine ended (status %d, signal %d%s%s)",
                     (int)x->status, x->signal, x->code != 0 ? ", " : "",
                     x->code != 0 ? err_name(x->code) : "");
    }
    r->child = NULL;
    r->state = RUNNER_DOWN;
    r->stopping = false;
    r->load_rc = 0;
    r->progress = 0;
    r->warms = false;
    r->n_on_cpu = 0; /* the next one begins on the device again */
    r->n_reopened = 0;
    r->why[0] = '\0';
    runner_tags_lost(r);
    warm_down(r->warm);
    grammars_lost(&r->grammars);
    if (r->ever_up) {
        sched_lost(&r->sched);
    }
    r->owner.on_down(r->owner.ctx, rc, &e);
}

void runner_set_widths(struct runner *r, const struct msg_widths *layers,
                       const struct msg_widths *heads)
{
    r->layers = *layers;
    r->heads = *heads;
}

int runner_start(struct runner *r, struct err *e)
{
    must(r->state == RUNNER_DOWN && r->child == NULL);
    struct child_conf c = {
        .program = r->conf.program,
        .role = "engine",
        .fd = -1,
        .frame_max = FRAME_ENGINE_MAX,
        .ctx = r,
        .on_frame = on_frame,
        .on_exit = on_gone,
    };
    int rc = child_spawn(r->conf.loop, &c, &r->child, e);
    if (rc != 0) {
        return rc;
    }
    r->conf.stats->engine_starts++;
    r->state = RUNNER_LOADING;
    r->progress = 0;
    struct msg_load m = {.bundle = r->dir,
                         .backend = r->conf.backend,
                         .cache = runner_device(r->conf.backend)
                                      ? r->conf.prepared
                                      : NULL,
                         .margin = r->conf.margin,
                         .threads = r->conf.threads,
                         .layers = r->layers,
                         .heads = r->heads};
    buf_clear(&r->out);
    msg_load_put(&r->out, &m);
    must(buf_ok(&r->out));
    child_send(r->child, FRAME_LOAD, LOAD_REQUEST, r->out.p, r->out.n);
    child_deadline(r->child, load_ms(r));
    return 0;
}

void runner_discard(struct runner *r)
{
    warm_discard(r->warm);
}

void runner_stop(struct runner *r)
{
    if (r->child == NULL || r->stopping) {
        return;
    }
    r->stopping = true;
    if (r->state == RUNNER_UP && warm_flush(r->warm)) {
        child_deadline(r->child, WARM_FLUSH_MS);
    } else {
        send_unload(r);
    }
}

enum runner_state runner_state(const struct runner *r)
{
    return r->state;
}

double runner_progress(const struct runner *r)
{
    return r->progress;
}

void runner_troubles(const struct runner *r, struct runner_troubles *ret)
{
    *ret = (struct runner_troubles){
        .on_cpu = r->n_on_cpu, .reopened = r->n_reopened, .why = r->why};
}

bool runner_warms(const struct runner *r)
{
    return r->warms;
}

const struct msg_ready *runner_ready(const struct runner *r)
{
    return &r->ready;
}

int runner_pid(const struct runner *r)
{
    return r->child != NULL ? child_pid(r->child) : 0;
}

const struct sched *runner_sched(const struct runner *r)
{
    return &r->sched;
}

int runner_add(struct runner *r, struct run_stream *x)
{
    must(r->ever_up);
    x->n_out = 0;
    x->n_drafted = 0;
    x->n_accepted = 0;
    x->n_said = 0;
    x->on_cpu = false;
    x->leaving = false;
    list_init(&x->saying);
    int rc = sched_add(&r->sched, &x->s, now_us());
    warm_touch(r->warm);
    return rc;
}

int runner_grammar(struct runner *r, const char *text, size_t n, uint32_t *ret,
                   struct err *e)
{
    return grammars_take(&r->grammars, text, n, ret, e);
}

void runner_grammar_release(struct runner *r, uint32_t id)
{
    grammars_release(&r->grammars, id);
}

int runner_want(struct runner *r, struct warm_wait *x)
{
    int rc = warm_want(r->warm, x);
    if (rc == 1) {
        runner_step(r);
    }
    return rc;
}

void runner_kick(struct runner *r)
{
    if (r->conf.turn == NULL) {
        runner_step(r);
    } else if (list_empty(&r->turn)) {
        list_push(r->conf.turn, &r->turn);
    }
}

void runner_turn(struct list *turn)
{
    while (!list_empty(turn)) {
        struct runner *r = container_of(turn->next, struct runner, turn);
        list_del(&r->turn);
        runner_step(r);
    }
}

int runner_push(struct runner *r, struct run_stream *x, int32_t token)
{
    return sched_push(&r->sched, &x->s, token);
}

void runner_leave(struct runner *r, struct run_stream *x)
{
    must(r->in_results && x->s.phase != SCHED_OUT);
    r->one_left = true;
    x->leaving = true;
    sched_remove(&r->sched, &x->s, now_us());
    warm_touch(r->warm);
}

void runner_remove(struct runner *r, struct run_stream *x)
{
    if (x->leaving) {
        list_del(&x->saying);
        x->leaving = false;
    }
    if (x->s.phase == SCHED_OUT) {
        return;
    }
    list_del(&x->saying);
    sched_remove(&r->sched, &x->s, now_us());
    runner_step(r);
    warm_touch(r->warm);
}

void runner_pause(struct runner *r, struct run_stream *x, bool paused)
{
    sched_pause(&x->s, paused, now_us());
    if (!paused) {
        runner_step(r);
    }
}

uint32_t runner_shed(struct runner *r)
{
    uint32_t n = r->ever_up ? sched_shed(&r->sched) : 0;
    if (n > 0) {
        runner_step(r);
    }
    return n;
}

void runner_forget(struct runner *r, struct sched_line gone,
                   const struct sched_line *others, size_t n_others)
{
    if (r->ever_up && sched_forget(&r->sched, gone, others, n_others) > 0) {
        runner_step(r);
    }
}

void runner_fail_all(struct runner *r, int code, const char *msg)
{
    if (!r->ever_up) {
        return;
    }
    runner_tags_fail(r, code, msg);
    struct list *lists[] = {&r->sched.running, &r->sched.waiting};
    r->in_results = true;
    warm_release(r->warm); /* they join the streams in the queue */
    for (size_t i = 0; i < countof(lists); i++) {
        while (!list_empty(lists[i])) {
            struct sched_stream *s =
                container_of(lists[i]->next, struct sched_stream, link);
            struct run_stream *x = stream_of(s);
            struct list *was = &s->link;
            x->events->on_fail(x, code, msg); /* may free x */
            must(lists[i]->next != was);      /* it was removed */
        }
    }
    r->in_results = false;
}
