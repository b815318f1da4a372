/* role.c - the engine child: frames on fd 3 in, answers out, one at a time.
 *
 *   LOAD -> PROGRESS* READY        SEQ_* -> OK        STEP -> STEP_DONE
 *   STATE_* ... STATE_DONE         GRAMMAR_* -> OK
 *   of an encoder: TAGS -> PROGRESS* TAGS_DONE, ended by CANCEL
 *   anything that fails -> ERROR
 *   UNLOAD or end of file -> exit 0
 *
 * A step that is predicted (ahead.h) is begun before its frame arrives, because
 * the engine would have nothing to do until serve answers. Between products the
 * role checks for a frame. If it is the frame of that step, the step continues
 * as if it had been begun with it; if it is another, or none arrives in time,
 * the step is cancelled.
 *
 * States are saved and loaded in slices: one after each step, and more while no
 * frame waits. UNLOAD waits for them.
 *
 * A frame that is malformed or out of place ends the process with EXIT_BUG:
 * serve and engine are the same program, so it is a bug. The process sleeps in
 * read(2) when there is nothing to do. It ends with its parent: by end of file,
 * and on Linux by a signal, even in the middle of a step.
 */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/crew.h"
#include "base/log.h"
#include "base/qos.h"
#include "base/seatbelt.h"
#ifdef ANED_COREML
#include "engine/coreml/backend_coreml.h"
#endif
#include "engine/role.h"
#include "engine/role_impl.h"

#define ROLE_FD  3
#define KEEP_MAX KIB(64) /* answers that wait for the next one */
#define LARGE_BLOCK KIB(128)
#define SPIN_US  200u    /* what serve needs for the next step, mostly */
#define REST_MS  10000   /* without a frame, until memory goes back */
#define PAUSE_MS 1000    /* the same, until nobody is taken to wait */
#define LATE_US  500u    /* then serve has no next step */
#define LOOK_US  50u     /* from one look for it to the next: 1 us each */

static uint64_t now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void write_going(void *ctx)
{
    struct role *r = ctx;
    struct err e;
    if (r->write_rc == 0) {
        r->write_rc = frames_write_fd(ROLE_FD, r->going.p, r->going.n, &e);
    }
    buf_clear(&r->going);
}

/* To `going`, when what was there is gone. */
static void take_answers(struct role *r)
{
    crew_errand_wait();
    struct buf empty = r->going;
    r->going = r->answers;
    r->answers = empty;
}

static void flush(struct role *r)
{
    if (r->answers.n > 0) {
        take_answers(r);
        write_going(r);
    }
}

/* Have an awake worker write, if there is one. Writing wakes serve, and when
 * all cores compute, the kernel puts it on the writer's core (it assumes that a
 * writer is about to sleep). That should not be this thread's core: it begins
 * the next step as soon as serve has sent it. */
static void flush_aside(struct role *r)
{
    take_answers(r);
    if (!crew_errand(write_going, r)) {
        write_going(r);
    }
}

void role_put_answer(struct role *r, enum frame_type type)
{
    must(buf_ok(&r->out));
    frame_put(&r->answers, type, r->request, r->out.p, r->out.n);
    must(buf_ok(&r->answers));
    buf_clear(&r->out);
    if (r->answers.n >= KEEP_MAX) {
        flush(r);
    }
}

void role_answer(struct role *r, enum frame_type type)
{
    role_put_answer(r, type);
    flush(r);
}

void role_answer_error(struct role *r, const struct err *e)
{
    buf_clear(&r->out);
    msg_error_put(&r->out, e);
    role_answer(r, FRAME_ERROR);
}

struct slot *role_find(struct role *r, uint32_t id)
{
    for (size_t i = 0; i < countof(r->slots); i++) {
        if (r->slots[i].seq != NULL && r->slots[i].id == id) {
            return &r->slots[i];
        }
    }
    return NULL;
}

static void drop_all(struct role *r)
{
    for (size_t i = 0; i < countof(r->slots); i++) {
        engine_seq_close(r->slots[i].seq);
        r->slots[i].seq = NULL;
    }
}

/* A frame, or the end, is there to be read. */
static bool waits(const struct frame_in *in)
{
    struct pollfd p = {.fd = ROLE_FD, .events = POLLIN};
    return in->b.n > in->taken || poll(&p, 1, 0) != 0;
}

/* --- load --- */

static void on_progress(void *ctx, enum engine_stage stage, uint32_t done,
                        uint32_t total)
{
    struct role *r = ctx;
    const struct msg_progress m = {
        .warms = stage == ENGINE_WARMS, .done = done, .total = total};
    msg_progress_put(&r->out, &m);
    role_answer(r, FRAME_PROGRESS);
}

/* Opening a model may take minutes. It is given up when serve wants something
 * else (it only ever asks to unload), or is gone. */
bool role_quiet(struct role *r)
{
    if (!r->peeked && waits(&r->in)) {
        r->in_rc = frame_read_fd(ROLE_FD, &r->in, &r->f, &r->in_err);
        r->peeked = true;
    }
    return !r->peeked;
}

static bool load_wanted(void *ctx)
{
    return role_quiet(ctx);
}

/* A bundle is HOME/models/NAME; states, and what a backend prepares, go to
 * HOME/cache. */
static void enter_sandbox(const char *bundle)
{
    char cache[PATH_BYTES_MAX + 16];
    (void)snprintf(cache, sizeof(cache), "%.*s/../../cache",
                   (int)PATH_BYTES_MAX - 1, bundle);
    seatbelt_engine(cache);
}

/* Of either kind. */
static int open_model(struct role *r, const struct msg_load *m,
                      const struct engine_conf *conf, struct msg_ready *ready,
                      struct err *e)
{
    struct bundle *b = NULL;
    RETERR(bundle_open(m->bundle, &b, e));
    bool encoder = b->encoder;
    bundle_close(b);
    if (encoder) {
        int rc = role_tags_load(r, m, conf, ready, e);
        if (rc < 0) {
            role_tags_close(r);
        }
        return rc;
    }
    RETERR(engine_open(m->bundle, conf, &r->g, e));
    engine_ready(r->g, ready);
    return 0;
}

/* Failures that are the frame's own end the process (ERR_FRAME); others are
 * answered. The same holds for on_seq and on_step. */
static int on_load(struct role *r, const struct frame *f, struct err *e)
{
    struct msg_load m;
    int rc = msg_load_get(f->payload, f->n, &m, e);
    if (rc < 0) {
        return rc;
    }
    uint64_t start = now_us();
    bool loaded = r->g != NULL || r->t != NULL;
    if (!loaded) {
        enter_sandbox(m.bundle);
    }
    const struct engine_conf conf = {.backend = m.backend,
                                     .threads = m.threads,
                                     .round_fp16 = m.round_fp16,
                                     .margin = m.margin,
                                     .cache = m.cache[0] != '\0' ? m.cache
                                                                 : NULL,
                                     .layers = m.layers,
                                     .heads = m.heads,
                                     .progress = on_progress,
                                     .ctx = r,
                                     .watch = {load_wanted, r}};
    struct msg_ready ready = {0};
    rc = loaded ? err_set(e, ERR_CONFLICT, "a model is loaded")
                : open_model(r, &m, &conf, &ready, e);
    if (rc == 0) {
        ready.load_ms = (uint32_t)((now_us() - start) / 1000);
        msg_ready_put(&r->out, &ready);
        role_answer(r, FRAME_READY);
        log_info("engine_ready",
                 "model=%s backend=%s t_max=%u context=%u weight_mb=%llu "
                 "ms=%u",
                 (r->t != NULL ? encoder_bundle(r->t) : engine_bundle(r->g))
                     ->name,
                 m.backend, ready.t_max,
                 ready.context, (unsigned long long)(ready.weight_bytes >> 20),
                 ready.load_ms);
    }
    msg_load_fini(&m);
    return rc;
}

/* --- sequences --- */

int role_add(struct role *r, uint32_t id, struct slot **ret, struct err *e)
{
    if (role_find(r, id) != NULL) {
        return err_set(e, ERR_CONFLICT, "sequence %u is open", id);
    }
    for (size_t i = 0; i < countof(r->slots); i++) {
        if (r->slots[i].seq == NULL) {
            r->slots[i].id = id;
            *ret = &r->slots[i];
            return 0;
        }
    }
    return err_set(e, ERR_BUSY, "%zu sequences are open", countof(r->slots));
}

static int seq_open(struct role *r, const struct msg_seq *m, struct slot *s,
                    struct err *e)
{
    struct engine_seq *q = NULL;
    RETERR(engine_seq_open(r->g, &q, e));
    int rc = engine_seq_expect(q, m->n, e);
    if (rc < 0) {
        engine_seq_close(q);
        return rc;
    }
    s->seq = q;
    return 0;
}

static int seq_apply(struct role *r, enum frame_type type,
                     const struct msg_seq *m, struct err *e)
{
    struct slot *s = NULL;
    if (type == FRAME_SEQ_OPEN || type == FRAME_SEQ_FORK) {
        const struct slot *from = role_find(r, m->from);
        if (type == FRAME_SEQ_FORK && from == NULL) {
            return err_set(e, ERR_NOT_FOUND, "no sequence %u", m->from);
        }
        int rc = role_add(r, m->seq, &s, e);
        if (rc < 0) {
            return rc;
        }
        return type == FRAME_SEQ_OPEN
                   ? seq_open(r, m, s, e)
                   : engine_seq_fork(from->seq, m->n, &s->seq, e);
    }
    s = role_find(r, m->seq);
    if (s == NULL) {
        return err_set(e, ERR_NOT_FOUND, "no sequence %u", m->seq);
    }
    if (type == FRAME_SEQ_TRUNCATE) {
        return engine_seq_truncate(s->seq, m->n, e);
    }
    engine_seq_close(s->seq);
    s->seq = NULL;
    return 0;
}

static int on_seq(struct role *r, const struct frame *f, struct err *e)
{
    struct msg_seq m;
    RETERR(msg_seq_get(f->payload, f->n, &m, e));
    RETERR(seq_apply(r, f->type, &m, e));
    role_put_answer(r, FRAME_OK);
    return 0;
}

/* A grammar that is none fails the rows that name it. */
static int on_grammar(struct role *r, const struct frame *f, struct err *e)
{
    struct msg_grammar m;
    RETERR(msg_grammar_get(f->payload, f->n, &m, e));
    if (f->type == FRAME_GRAMMAR_DROP) {
        engine_grammar_drop(r->g, m.id);
    } else if (engine_grammar(r->g, m.id, m.text, m.n, e) != 0) {
        log_warn("grammar_failed", "grammar=%u error=%s: %s, continuing", m.id,
                 err_name(e->code), e->msg);
    }
    role_put_answer(r, FRAME_OK);
    return 0;
}

/* --- steps --- */

/* A failed row costs its own sequence only; the answer has room for the code.
 */
static void row_failed(const struct msg_row *row, const struct engine_seq *seq,
                       const struct err *e, struct msg_row_done *done)
{
    log_warn("step_row_failed", "seq=%u error=%s: %s, continuing", row->seq,
             err_name(e->code), e->msg);
    msg_row_done_init(done, row->seq);
    done->error = e->code;
    done->length = seq != NULL ? engine_seq_length(seq) : 0;
}

/* All rows of known sequences in one go; go: engine_step_rows_if's, or NULL.
 * False: it was called off. */
static bool step_rows(struct role *r, const struct msg_step *m,
                      engine_go_fn *go, struct msg_step_done *done,
                      struct engine_times *times)
{
    size_t n = 0;
    for (uint32_t i = 0; i < m->n_rows; i++) {
        const struct slot *s = role_find(r, m->rows[i].seq);
        if (s != NULL) {
            r->rows[n++] = (struct engine_row){
                .seq = s->seq, .row = &m->rows[i], .done = &done->rows[i]};
        }
    }
    if (go == NULL) {
        engine_step_rows(r->g, r->rows, n, times);
    } else {
        engine_step_rows_if(r->g, r->rows, n, go, r, times);
        if (!r->agreed) {
            return false;
        }
    }
    size_t k = 0;
    for (uint32_t i = 0; i < m->n_rows; i++) {
        struct err e;
        if (k < n && r->rows[k].row == &m->rows[i]) {
            const struct engine_row *x = &r->rows[k++];
            if (x->rc < 0) {
                row_failed(x->row, x->seq, &x->err, x->done);
            }
        } else {
            (void)err_set(&e, ERR_NOT_FOUND, "no such sequence");
            row_failed(&m->rows[i], NULL, &e, &done->rows[i]);
        }
    }
    return true;
}

/* What happened to packages, before the answer that it concerns. */
static void tell(struct role *r)
{
    struct engine_event x;
    while (engine_event(r->g, &x)) {
        struct msg_notice m = {.on_cpu = x.on_cpu};
        memcpy(m.package, x.package, sizeof(m.package));
        memcpy(m.why, x.why.msg, sizeof(m.why));
        (void)snprintf(m.arith, sizeof(m.arith), "%s", engine_arith(r->g));
        msg_notice_put(&r->out, &m);
        role_put_answer(r, FRAME_NOTICE);
    }
}

/* Run and answer m, which is taken. 1; 0: called off; NOMEM. */
static int run_step(struct role *r, struct msg_step *m, engine_go_fn *go,
                    uint64_t start, struct err *e)
{
    struct engine_times times = {0};
    struct msg_step_done done = {.n_rows = m->n_rows};
    int rc = 0;
    done.rows = malloc(((size_t)m->n_rows + 1) * sizeof(*done.rows));
    if (done.rows == NULL) {
        rc = err_set(e, ERR_NOMEM, "%u rows", m->n_rows);
        done.n_rows = 0;
    }
    for (uint32_t i = 0; i < done.n_rows; i++) {
        msg_row_done_init(&done.rows[i], m->rows[i].seq);
    }
    if (rc == 0 && step_rows(r, m, go, &done, &times)) {
        rc = 1;
        done.us_embed = times.us_embed;
        done.us_masks = times.us_masks;
        done.us_layers = times.us_layers;
        done.us_head = times.us_head;
        done.us_sample = times.us_sample;
        done.us_total = (uint32_t)(now_us() - start) - times.us_wait;
        tell(r);
        msg_step_done_put(&r->out, &done);
        role_put_answer(r, FRAME_STEP_DONE);
        flush_aside(r);
        r->answered_us = now_us();
        ahead_note(&r->ahead, m, &done, engine_bundle(r->g));
    }
    msg_step_done_fini(&done);
    msg_step_fini(m);
    return rc;
}

static int on_step(struct role *r, const struct frame *f, struct err *e)
{
    struct msg_step m;
    uint64_t start = now_us();
    ahead_count(&r->ahead, ahead_is(&r->ahead, f->payload, f->n));
    int rc = msg_step_get(f->payload, f->n, &m, e);
    return rc < 0 ? rc : run_step(r, &m, NULL, start, e);
}

/* --- the loop --- */

/* 1: continue; 0: end; < 0: answer with ERROR, or ERR_FRAME. */
static int dispatch(struct role *r, const struct frame *f, struct err *e)
{
    int rc = 0;
    switch ((int)f->type) {
    case FRAME_UNLOAD:
        r->unloading = true;
        return 0;
    case FRAME_LOAD:
        rc = on_load(r, f, e);
        break;
    case FRAME_SEQ_OPEN:
    case FRAME_SEQ_FORK:
    case FRAME_SEQ_TRUNCATE:
    case FRAME_SEQ_CLOSE:
        rc = r->g != NULL ? on_seq(r, f, e)
                          : err_set(e, ERR_CONFLICT, "no model is loaded");
        break;
    case FRAME_STEP:
        rc = r->g != NULL ? on_step(r, f, e)
                          : err_set(e, ERR_CONFLICT, "no model is loaded");
        break;
    case FRAME_GRAMMAR:
    case FRAME_GRAMMAR_DROP:
        rc = r->g != NULL ? on_grammar(r, f, e)
                          : err_set(e, ERR_CONFLICT, "no model is loaded");
        break;
    case FRAME_TAGS:
        rc = role_on_tags(r, f, e);
        break;
    case FRAME_CANCEL: /* of what has ended */
        break;
    case FRAME_STATE_SAVE:
    case FRAME_STATE_LOAD:
        rc = r->g != NULL ? role_on_state(r, f, e)
                          : err_set(e, ERR_CONFLICT, "no model is loaded");
        break;
    default:
        rc =
            err_set(e, ERR_FRAME, "type %d is not for an engine", (int)f->type);
        break;
    }
    return rc < 0 ? rc : 1;
}

/* Serve usually sends the next step at once. A sleeping thread would see it
 * tens of microseconds later, and serve would pay for the wake-up; so spin. */
static bool await_frame(const struct role *r)
{
    uint64_t until = r->answered_us + SPIN_US;
    bool there = waits(&r->in);
    while (!there && now_us() < until) {
        (void)sched_yield(); /* serve, or a client, may need this core */
        there = waits(&r->in);
    }
    return there;
}

static void at_work(bool works)
{
#ifdef ANED_COREML
    coreml_at_work(works);
#else
    (void)works;
#endif
}

/* Nothing is to be done for now. */
static void rest(const struct role *r)
{
    struct pollfd p = {.fd = ROLE_FD, .events = POLLIN};
    if (poll(&p, 1, PAUSE_MS) != 0) {
        return;
    }
    at_work(false);
    if (r->g != NULL && poll(&p, 1, REST_MS - PAUSE_MS) == 0) {
        engine_trim(r->g);
    }
}

/* The next frame to r->f; as frame_read_fd. */
static int next_frame(struct role *r, struct err *e)
{
    if (r->peeked) {
        r->peeked = false;
        *e = r->in_err;
        return r->in_rc;
    }
    int rc = frame_in_next(&r->in, &r->f, e);
    if (rc == 0) {
        flush(r);
        if (!await_frame(r)) {
            rest(r);
        }
        rc = frame_read_fd(ROLE_FD, &r->in, &r->f, e);
    }
    return rc;
}

/* The step at hand was begun early: is it wanted? Undecided while its frame may
 * still come, but not at the last. */
static bool still_wanted(void *ctx, bool last)
{
    struct role *r = ctx;
    if (r->agreed || r->peeked) {
        return r->agreed;
    }
    uint64_t now = now_us();
    if (!last && now < r->looked_us + LOOK_US) {
        return true;
    }
    r->looked_us = now;
    if (!(last ? await_frame(r) : waits(&r->in))) {
        return !last && now < r->answered_us + LATE_US;
    }
    r->in_rc = frame_read_fd(ROLE_FD, &r->in, &r->f, &r->in_err);
    r->agreed = r->in_rc > 0 && r->f.type == FRAME_STEP &&
                ahead_is(&r->ahead, r->f.payload, r->f.n);
    r->peeked = !r->agreed;
    r->request = r->f.request;
    return r->agreed;
}

/* Run the predicted step before its frame is here. 1: it is answered; 0: it was
 * called off, and a frame may be waiting. */
static int step_early(struct role *r, struct err *e)
{
    struct msg_step m = ahead_take(&r->ahead);
    r->agreed = false;
    int rc = run_step(r, &m, still_wanted, now_us(), e);
    ahead_count(&r->ahead, rc == 1);
    return rc;
}

static bool begins_early(const struct role *r)
{
    return !r->peeked && r->n_jobs == 0 && r->g != NULL &&
           ahead_sure(&r->ahead) &&
           r->ahead.m.n_rows <= engine_can_stop(r->g) && !waits(&r->in);
}

static int loop(struct role *r, struct err *e)
{
    int rc = 1;
    while (rc > 0 && r->write_rc == 0) {
        if (r->n_jobs > 0 && !r->peeked && !waits(&r->in)) {
            flush(r);
            role_job_run(r);
            continue;
        }
        if (begins_early(r) && step_early(r, e) == 1) {
            continue;
        }
        rc = next_frame(r, e);
        if (rc <= 0) {
            break;
        }
        r->request = r->f.request;
        at_work(true);
        rc = dispatch(r, &r->f, e);
        if (rc < 0 && rc != ERR_FRAME) {
            role_answer_error(r, e);
            rc = 1;
        }
        if (r->f.type == FRAME_STEP && r->n_jobs > 0) {
            role_job_run(r);
        }
    }
    while (rc == 0 && r->unloading && r->n_jobs > 0 && r->write_rc == 0) {
        role_job_run(r);
    }
    return rc;
}

void die_with_parent(void)
{
    const struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none); /* weights and prompts stay private */
    (void)signal(SIGINT, SIG_IGN);       /* ^C is for serve to handle */
#ifdef __linux__
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
}

/* Flat states and pasts are memory of their own, which goes back to the system
 * when it is freed. Else glibc, when it frees such a block, takes the next ones
 * of its size from the heap, where they stay. */
static void large_blocks_return(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, (int)LARGE_BLOCK);
#endif
}

int engine_role(int argc, char **argv)
{
    (void)argc; /* argv holds the word `engine` and nothing for us */
    (void)argv;
    struct err e;
    log_setup(LOG_INFO, "engine");
    qos_set(QOS_ANSWER);
    die_with_parent();
    large_blocks_return();
    struct role *r = calloc(1, sizeof(*r));
    must(r != NULL);
    frame_in_init(&r->in, FRAME_ENGINE_MAX);
    ahead_init(&r->ahead);
    buf_init(&r->out, FRAME_ENGINE_MAX);
    buf_init(&r->answers, KEEP_MAX + FRAME_HEADER + FRAME_ENGINE_MAX);
    buf_init(&r->going, KEEP_MAX + FRAME_HEADER + FRAME_ENGINE_MAX);
    int rc = loop(r, &e);
    flush(r);
    crew_errand_wait();
    if (rc < 0) {
        log_error("engine_ends", "error=%s: %s", err_name(rc), e.msg);
    }
    while (r->n_jobs > 0) {
        role_job_end(r);
    }
    drop_all(r);
    engine_close(r->g);
    role_tags_close(r);
    frame_in_fini(&r->in);
    ahead_fini(&r->ahead);
    buf_fini(&r->out);
    buf_fini(&r->answers);
    buf_fini(&r->going);
    free(r);
    return rc == ERR_FRAME ? EXIT_BUG : rc < 0 ? EXIT_UNAVAILABLE : 0;
}
