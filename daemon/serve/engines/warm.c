/* warm.c - see warm.h.
 *
 *   wait --place free, no step in flight--> loading --STATE_DONE--> warm, fn
 *
 * There is one load at a time: the next prompt in line may find that the last
 * load had its positions too. A save needs no place in the scheduler: the
 * engine copies the sequence when it handles the frame, and later frames do not
 * change the copy.
 */
#include "serve/engines/warm.h"

#include <string.h>

#include "base/log.h"
#include "proto/state_file.h"
#include "sched/restore.h"
#include "sched/shed.h"
#include "serve/server.h"

struct save {
    uint32_t request;
    struct cache_save what;
};

/* Closed with the engine, freed by the loop. */
struct warm_timer {
    uv_timer_t t;
    struct warm *w;
};

struct warm {
    struct warm_conf conf;
    struct cache_key key;
    char arith[ARITH_BYTES_MAX]; /* of key */
    uint64_t block_bytes; /* about; exact after the first save */
    uint32_t counter;
    bool up;
    bool flushing;
    bool discards;            /* nothing is saved any more */
    bool stalled;             /* the timer is for the first in line */
    struct warm_timer *timer; /* NULL: down */
    struct list waits;
    size_t n_saves;
    struct save saves[STATE_JOBS_MAX];
    bool loading, load_waits; /* for the first of waits; else for a stream */
    uint32_t load_request, load_seq;
    uint32_t load_whole; /* tokens of the timeline that it is for */
    struct cache_hit hit;
    int32_t *tokens; /* hit.n, of the load */
    struct buf out;
};

struct warm *warm_new(const struct warm_conf *c)
{
    struct warm *w = calloc(1, sizeof(*w));
    must(w != NULL);
    w->conf = *c;
    list_init(&w->waits);
    buf_init(&w->out, FRAME_ENGINE_MAX);
    return w;
}

void warm_free(struct warm *w)
{
    if (w == NULL) {
        return;
    }
    must(!w->up && list_empty(&w->waits));
    buf_fini(&w->out);
    free(w);
}

void warm_set_gain(struct warm *w, uint32_t gain_min)
{
    w->conf.gain_min = gain_min;
}

bool warm_waits(const struct warm *w)
{
    return !list_empty(&w->waits);
}

static uint32_t next_request(struct warm *w)
{
    return WARM_REQUEST | (w->counter++ & (WARM_REQUEST - 1));
}

static void send_msg(struct warm *w, enum frame_type type, uint32_t request,
                     const struct msg_state *m)
{
    buf_clear(&w->out);
    msg_state_put(&w->out, m);
    must(buf_ok(&w->out));
    w->conf.send(w->conf.ctx, type, request, &w->out);
}

/* Of states by one list of the rotation (sched.h, rule 12). */
static struct cache_key key_of(const struct warm *w, bool long_list)
{
    struct cache_key k = w->key;
    k.long_list = long_list;
    return k;
}

/* --- saving --- */

/* true: a frame is on its way. */
static bool save(struct warm *w, const struct sched_seq *q)
{
    struct save *s = &w->saves[w->n_saves];
    char path[CACHE_PATH_MAX];
    int64_t now_ms = server_unix_ms();
    int64_t age_us = (int64_t)(server_now_us() - q->used_us);
    const struct cache_key key = key_of(w, q->long_list);
    if (cache_plan(w->conf.cache, &key, q->tokens, q->computed, w->block_bytes,
                   now_ms - age_us / 1000, now_ms, &s->what) != 1) {
        return false;
    }
    must(cache_path(w->conf.cache, s->what.id, path));
    struct msg_state m = {.seq = q->id,
                          .n_parts = 1,
                          .parts = {{s->what.from, s->what.to, path}}};
    s->request = next_request(w);
    w->n_saves++;
    send_msg(w, FRAME_STATE_SAVE, s->request, &m);
    return true;
}

/* on_loss of the scheduler: the engine gets the operation after this. */
static void on_loss(void *ctx, const struct sched_seq *q)
{
    struct warm *w = ctx;
    if (w->up && !w->discards && w->n_saves < countof(w->saves)) {
        (void)save(w, q);
    }
}

/* Warm sequences, as many at once as may be, the one used last first: then the
 * budgets are spent on what is wanted most. */
static void save_more(struct warm *w)
{
    bool tried[ENGINE_SEQS_MAX] = {false};
    const struct sched_seq *q = NULL;
    while (w->n_saves < WARM_SAVES &&
           (q = sched_warmest(w->conf.sched, tried)) != NULL) {
        tried[q->id] = true;
        (void)save(w, q);
    }
}

static void on_saved(struct warm *w, size_t i, const struct msg_state_done *m)
{
    struct save s = w->saves[i];
    w->n_saves--;
    memmove(w->saves + i, w->saves + i + 1,
            (w->n_saves - i) * sizeof(w->saves[0]));
    uint64_t bytes = m != NULL ? m->bytes : 0;
    cache_saved(w->conf.cache, s.what.id, bytes);
    uint64_t header = (uint64_t)s.what.to * 4;
    if (bytes > header) {
        w->block_bytes =
            (bytes - header) / ((s.what.to - s.what.from) / STATE_BLOCK);
    }
    bool idle = sched_idle(w->conf.sched);
    if (bytes > 0 && !w->discards && (w->flushing || idle)) {
        save_more(w);
    }
    if (w->flushing && w->n_saves == 0) {
        w->flushing = false;
        w->conf.flushed(w->conf.ctx);
    }
}

void warm_discard(struct warm *w)
{
    w->discards = true;
}

void warm_arith(struct warm *w, const char *arith)
{
    (void)snprintf(w->arith, sizeof(w->arith), "%s", arith);
}

bool warm_flush(struct warm *w)
{
    if (!w->up || w->discards) {
        return false;
    }
    save_more(w);
    w->flushing = w->n_saves > 0;
    return w->flushing;
}

static void go_on(struct warm_wait *x)
{
    warm_unwant(x);
    x->fn(x);
}

static void on_timer(uv_timer_t *t)
{
    struct warm *w = container_of(t, struct warm_timer, t)->w;
    if (w->stalled) {
        w->stalled = false;
        if (!w->loading && !list_empty(&w->waits)) {
            go_on(container_of(w->waits.next, struct warm_wait, link));
        }
        return;
    }
    if (sched_idle(w->conf.sched)) {
        save_more(w);
    }
}

void warm_touch(struct warm *w)
{
    if (!w->up || w->stalled) {
        return;
    }
    if (sched_idle(w->conf.sched)) {
        must(uv_timer_start(&w->timer->t, on_timer, WARM_IDLE_MS, 0) == 0);
    } else {
        (void)uv_timer_stop(&w->timer->t);
    }
}

/* --- loading --- */

/* Files have enough of a timeline of n tokens. */
static bool found(struct warm *w, const int32_t *tokens, uint32_t n,
                  struct cache_hit *ret)
{
    const struct cache_key key = key_of(w, sched_long(w->conf.sched, n));
    cache_find(w->conf.cache, &key, tokens, n - 1, ret);
    return ret->n >= w->conf.gain_min;
}

/* And enough beyond what sequences have of x. */
static bool worth(struct warm *w, const struct warm_wait *x,
                  struct cache_hit *ret)
{
    return found(w, x->tokens, x->n, ret) &&
           ret->n - w->conf.gain_min >=
               sched_shared(w->conf.sched, x->tokens, x->n);
}

int warm_want(struct warm *w, struct warm_wait *x)
{
    struct cache_hit hit;
    bool known = w->key.fingerprint != NULL; /* up, or once was */
    if (!known || x->n < 2 || !worth(w, x, &hit)) {
        return 0;
    }
    x->waits = true;
    list_push(&w->waits, &x->link);
    return 1;
}

void warm_unwant(struct warm_wait *x)
{
    if (x->waits) {
        x->waits = false;
        list_del(&x->link);
    }
}

/* Paths are copied by the codec; they stand in one array until then. */
static void send_load(struct warm *w)
{
    struct msg_state m = {.seq = w->load_seq,
                          .n_whole = w->load_whole,
                          .n_tokens = w->hit.n,
                          .tokens = w->tokens};
    char(*paths)[CACHE_PATH_MAX] = calloc(STATE_PARTS_MAX, sizeof(*paths));
    must(paths != NULL);
    for (uint32_t i = 0; i < w->hit.n_parts; i++) {
        must(cache_path(w->conf.cache, w->hit.parts[i].id, paths[i]));
        m.parts[i] = (struct msg_state_part){w->hit.parts[i].from,
                                             w->hit.parts[i].to, paths[i]};
    }
    m.n_parts = w->hit.n_parts;
    w->load_request = next_request(w);
    send_msg(w, FRAME_STATE_LOAD, w->load_request, &m);
    free(paths);
}

/* Of the timeline `tokens`, what w->hit says, into sequence seq. */
static void begin_load(struct warm *w, uint32_t seq, const int32_t *tokens,
                       uint32_t n)
{
    w->loading = true;
    w->load_seq = seq;
    w->load_whole = n;
    w->tokens = malloc(((size_t)w->hit.n + 1) * sizeof(*w->tokens));
    must(w->tokens != NULL); /* at most MODEL_CONTEXT_MAX * 4 bytes */
    memcpy(w->tokens, tokens, w->hit.n * sizeof(*w->tokens));
    send_load(w);
}

/* A sequence that a stream had in the engine that died. true: its load began.
 */
static bool load_held(struct warm *w)
{
    struct sched *s = w->conf.sched;
    const struct sched_seq *q = NULL;
    while ((q = sched_restore_waiting(s)) != NULL) {
        if (found(w, q->tokens, q->n, &w->hit)) {
            sched_restore_held(s, q->id);
            w->load_waits = false;
            begin_load(w, q->id, q->tokens, q->n);
            return true;
        }
        sched_restore_let_go(s, q->id); /* evicted meanwhile */
    }
    return false;
}

void warm_next(struct warm *w)
{
    if (!w->up || w->loading || w->flushing || w->conf.sched->in_flight ||
        load_held(w) || list_empty(&w->waits)) {
        return;
    }
    struct warm_wait *x = container_of(w->waits.next, struct warm_wait, link);
    if (worth(w, x, &w->hit)) {
        cache_use(w->conf.cache, &w->hit, server_unix_ms());
    }
    int seq = sched_restore_begin(w->conf.sched, x->n);
    if (seq < 0) {
        return; /* all places are owned: at the end of a step again */
    }
    /* Search again: the sequence that lost the place was saved, and files may
     * have been removed for it. When none is left, the load has no parts. */
    if (!worth(w, x, &w->hit)) {
        w->hit = (struct cache_hit){0};
    }
    const struct sched_plan *p = &w->conf.sched->plan;
    for (size_t i = 0; i < p->n_ops; i++) { /* of the place that was taken */
        struct msg_seq m = {.seq = p->ops[i].seq};
        must(p->ops[i].kind == SCHED_OP_CLOSE);
        buf_clear(&w->out);
        msg_seq_put(&w->out, &m);
        w->conf.send(w->conf.ctx, FRAME_SEQ_CLOSE, m.seq, &w->out);
    }
    w->load_waits = true;
    begin_load(w, (uint32_t)seq, x->tokens, x->n);
}

void warm_stalled(struct warm *w)
{
    if (w->up && !w->loading && !w->flushing && !list_empty(&w->waits)) {
        w->stalled = true;
        must(uv_timer_start(&w->timer->t, on_timer, 0, 0) == 0);
    }
}

static void on_loaded(struct warm *w, const struct msg_state_done *m)
{
    uint32_t n = m != NULL && m->n <= w->hit.n ? m->n : 0;
    w->loading = false;
    sched_restore_end(w->conf.sched, w->load_seq, w->tokens, n, m != NULL,
                      server_now_us());
    cache_loaded(w->conf.cache, &w->hit, n, m != NULL ? m->bad : 0,
                 m != NULL ? m->bytes : 0, server_unix_ms());
    log_debug("state_loaded", "tokens=%u of=%u bad=%u", n, w->hit.n,
              m != NULL ? m->bad : 0);
    free(w->tokens);
    w->tokens = NULL;
    if (!w->load_waits || list_empty(&w->waits)) {
        return;
    }
    /* the first has what there is; so may have those after it */
    struct cache_hit hit;
    struct warm_wait *x = container_of(w->waits.next, struct warm_wait, link);
    go_on(x);
    while (!list_empty(&w->waits)) {
        x = container_of(w->waits.next, struct warm_wait, link);
        if (worth(w, x, &hit)) {
            break;
        }
        go_on(x);
    }
}

void warm_answer(struct warm *w, uint32_t request,
                 const struct msg_state_done *m)
{
    if (w->loading && request == w->load_request) {
        on_loaded(w, m);
        return;
    }
    for (size_t i = 0; i < w->n_saves; i++) {
        if (w->saves[i].request == request) {
            on_saved(w, i, m);
            return;
        }
    }
}

/* --- the engine comes up, and goes --- */

/* Streams of the last engine continue: the part of their timelines that files
 * hold is loaded, the rest is computed. */
static void hold_lost(struct warm *w)
{
    struct sched *s = w->conf.sched;
    struct cache_hit hit;
    const struct sched_seq *q = sched_restore_lost(s, 0);
    for (; q != NULL; q = sched_restore_lost(s, q->id + 1)) {
        if (found(w, q->tokens, q->n, &hit)) {
            sched_restore_hold(s, q->id);
        }
    }
}

void warm_up(struct warm *w, const struct msg_ready *r)
{
    if (w->conf.cache == NULL) {
        return;
    }
    memcpy(w->arith, r->arith, sizeof(w->arith));
    w->key = (struct cache_key){.fingerprint = w->conf.fingerprint,
                                .backend = w->conf.backend,
                                .arith = w->arith};
    if (w->block_bytes == 0) {
        w->block_bytes = r->state_bytes * STATE_BLOCK / r->context;
    }
    w->timer = calloc(1, sizeof(*w->timer));
    must(w->timer != NULL);
    w->timer->w = w;
    must(uv_timer_init(w->conf.loop, &w->timer->t) == 0);
    w->conf.sched->on_loss = on_loss;
    w->conf.sched->on_loss_ctx = w;
    w->up = true;
    hold_lost(w);
}

static void on_timer_closed(uv_handle_t *h)
{
    free(container_of((uv_timer_t *)h, struct warm_timer, t));
}

void warm_down(struct warm *w)
{
    if (!w->up) {
        return;
    }
    w->up = false;
    w->flushing = false;
    w->stalled = false;
    uv_close((uv_handle_t *)&w->timer->t, on_timer_closed);
    w->timer = NULL;
    while (w->n_saves > 0) {
        cache_saved(w->conf.cache, w->saves[--w->n_saves].what.id, 0);
    }
    if (w->loading) {
        w->loading = false;
        sched_restore_end(w->conf.sched, w->load_seq, NULL, 0, false,
                          server_now_us());
        free(w->tokens);
        w->tokens = NULL;
    }
}

void warm_release(struct warm *w)
{
    while (!list_empty(&w->waits)) {
        go_on(container_of(w->waits.next, struct warm_wait, link));
    }
}
