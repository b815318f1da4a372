/* resume.c - see resume.h. */
#include "serve/gen/resume.h"

#include <string.h>

#include "base/log.h"

#define RESUME_MAGIC   0x7265736du
#define RESUME_TICK_MS 250u

struct resumes {
    struct server *srv;
    struct list all; /* oldest first */
    size_t n;
    uv_timer_t timer;
    bool closing;
};

struct resume {
    uint32_t magic;
    struct list link;
    struct resumes *of;
    struct http_req *r; /* NULL: no client reads */
    struct resume_owner owner;
    bool begun, ended;
    bool paused;          /* the owner waits for on_drain */
    uint64_t since_us;    /* when its client left, or it ended */
    uint64_t first, next; /* numbers of the first event kept and of the next */
    struct buf kept;      /* "id: N\ndata: ...\n\n" ... */
    char id[64];
};

static struct resume *of_list(struct list *l)
{
    return container_of(l, struct resume, link);
}

static void forget(struct resume *x)
{
    must(x->magic == RESUME_MAGIC);
    list_del(&x->link);
    x->of->n--;
    buf_fini(&x->kept);
    x->magic = 0;
    free(x);
}

/* No client will read the rest. */
static void over(struct resume *x)
{
    struct resume_owner o = x->owner;
    bool tell = !x->ended;
    forget(x);
    if (tell) {
        o.on_over(o.ctx);
    }
}

/* Where the event after `at` begins; there is one. */
static size_t next_event(const struct resume *x, size_t at)
{
    const char *p = x->kept.p + at;
    const char *end = memmem(p, x->kept.n - at, "\n\n", 2);
    must(end != NULL); /* each ends with an empty line */
    return at + (size_t)(end - p) + 2;
}

/* Drop the oldest until half of the place is free. */
static void make_place(struct resume *x)
{
    size_t at = 0;
    while (x->kept.n - at > RESUME_KEPT_MAX / 2) {
        at = next_event(x, at);
        x->first++;
    }
    buf_shift(&x->kept, at);
}

/* --- the reader --- */

static void go_on(struct resume *x)
{
    if (x->paused) {
        x->paused = false;
        x->owner.on_drain(x->owner.ctx);
    }
}

static void on_gone(struct http_req *r, void *user)
{
    struct resume *x = user;
    must(x->magic == RESUME_MAGIC && x->r == r);
    x->r = NULL;
    x->since_us = server_now_us();
    if (!x->begun || x->of->closing) { /* the client does not know its id */
        over(x);
        return;
    }
    make_place(x);
    go_on(x);
}

static void on_drain(struct http_req *r, void *user)
{
    (void)r;
    go_on(user);
}

static void take(struct resume *x, struct http_req *r)
{
    x->r = r;
    http_on_gone(r, on_gone, x);
    http_stream_on_drain(r, on_drain);
}

/* --- time --- */

static void on_timer(uv_timer_t *t)
{
    struct resumes *rs = uv_handle_get_data((uv_handle_t *)t);
    uint64_t now = server_now_us();
    uint64_t life = (uint64_t)rs->srv->conf.http_resume_s * 1000000u;
    LIST_EACH_SAFE(l, &rs->all) {
        struct resume *x = of_list(l);
        if (x->r == NULL && now - x->since_us >= life) {
            over(x);
        }
    }
    if (rs->n == 0) {
        must(uv_timer_stop(t) == 0);
    }
}

/* The oldest one that ended and that no client reads. */
static bool forget_one(struct resumes *rs)
{
    LIST_EACH(l, &rs->all) {
        struct resume *x = of_list(l);
        if (x->ended && x->r == NULL) {
            forget(x);
            return true;
        }
    }
    return false;
}

int resume_new(struct server *s, const char *id, struct http_req *r,
               const struct resume_owner *o, struct resume **ret, struct err *e)
{
    struct resumes *rs = s->resumes;
    if (rs->n >= RESUME_MAX && !forget_one(rs)) {
        return err_set(e, ERR_BUSY, "there are %u resumable streams already",
                       RESUME_MAX);
    }
    struct resume *x = calloc(1, sizeof(*x));
    must(x != NULL);
    x->magic = RESUME_MAGIC;
    x->of = rs;
    x->owner = *o;
    x->first = 1;
    x->next = 1;
    buf_init(&x->kept, (size_t)2 * RESUME_KEPT_MAX);
    (void)snprintf(x->id, sizeof(x->id), "%s", id);
    list_push(&rs->all, &x->link);
    if (rs->n++ == 0) {
        must(uv_timer_start(&rs->timer, on_timer, RESUME_TICK_MS,
                            RESUME_TICK_MS) == 0);
    }
    take(x, r);
    *ret = x;
    return 0;
}

void resume_drop(struct resume *x)
{
    must(x->magic == RESUME_MAGIC && !x->begun);
    forget(x);
}

bool resume_write(struct resume *x, const void *p, size_t n)
{
    char id[32];
    int k = snprintf(id, sizeof(id), "id: %llu\n", (unsigned long long)x->next);
    must(x->magic == RESUME_MAGIC && !x->ended && k > 0);
    x->next++;
    if (!x->begun) {
        x->begun = true;
        if (!http_stream_begun(x->r)) {
            http_stream_begin(x->r, 200, "text/event-stream");
        }
    }
    bool fast = true;
    /* Other choices of a paused stream may still have had a step. */
    bool keep = n <= RESUME_KEPT_MAX / 2 &&
                x->kept.n + (size_t)k + n <= (size_t)2 * RESUME_KEPT_MAX;
    if (!keep) {
        buf_clear(&x->kept);
        x->first = x->next;
    } else {
        buf_put(&x->kept, id, (size_t)k);
        buf_put(&x->kept, p, n);
        must(buf_ok(&x->kept));
    }
    if (x->r != NULL) {
        (void)http_stream_write(x->r, id, (size_t)k);
        fast = http_stream_write(x->r, p, n);
        if (x->kept.n >= RESUME_KEPT_MAX) {
            make_place(x);
        }
    } else {
        fast = x->kept.n < RESUME_KEPT_MAX;
    }
    x->paused = !fast;
    return fast;
}

void resume_end(struct resume *x)
{
    must(x->magic == RESUME_MAGIC && x->begun && !x->ended);
    x->ended = true;
    if (x->r != NULL) {
        struct http_req *r = x->r;
        x->r = NULL;
        http_stream_end(r);
        x->since_us = server_now_us();
    }
}

/* --- by id --- */

static struct resume *find(const struct resumes *rs, const char *id)
{
    LIST_EACH(l, &rs->all) {
        struct resume *x = of_list(l);
        if (x->begun && strcmp(x->id, id) == 0) {
            return x;
        }
    }
    return NULL;
}

int resume_attach(struct server *s, const char *id, uint64_t after,
                  struct http_req *r, struct err *e)
{
    struct resume *x = find(s->resumes, id);
    if (x == NULL) {
        return err_set(e, ERR_NOT_FOUND, "there is no such stream");
    }
    if (after >= x->next) {
        return err_set(e, ERR_INVALID,
                       "Last-Event-ID: the stream is at event %llu",
                       (unsigned long long)(x->next - 1));
    }
    if (after + 1 < x->first) {
        return err_set(e, ERR_NOT_FOUND,
                       "events up to %llu of this stream are gone",
                       (unsigned long long)(x->first - 1));
    }
    if (http_is_head(r)) { /* the client that reads it is not cut off */
        http_stream_begin(r, 200, "text/event-stream");
        http_stream_end(r);
        return 0;
    }
    if (x->r != NULL) { /* another took over */
        struct http_req *old = x->r;
        x->r = NULL;
        http_stream_end(old);
    }
    size_t at = 0;
    for (uint64_t i = x->first; i <= after; i++) {
        at = next_event(x, at);
    }
    http_stream_begin(r, 200, "text/event-stream");
    bool fast =
        at == x->kept.n || http_stream_write(r, x->kept.p + at, x->kept.n - at);
    if (x->ended) {
        x->since_us = server_now_us(); /* it may be lost again */
        http_stream_end(r);
        return 0;
    }
    take(x, r);
    if (fast) {
        go_on(x);
    }
    return 0;
}

int resume_cancel(struct server *s, const char *id)
{
    struct resume *x = find(s->resumes, id);
    if (x == NULL) {
        return ERR_NOT_FOUND;
    }
    if (x->r != NULL) {
        struct http_req *r = x->r;
        x->r = NULL;
        http_stream_end(r);
    }
    over(x);
    return 0;
}

/* --- all streams --- */

struct resumes *resumes_new(struct server *s)
{
    struct resumes *rs = calloc(1, sizeof(*rs));
    must(rs != NULL);
    rs->srv = s;
    list_init(&rs->all);
    must(uv_timer_init(&s->loop, &rs->timer) == 0);
    uv_handle_set_data((uv_handle_t *)&rs->timer, rs);
    return rs;
}

size_t resumes_running(const struct resumes *rs)
{
    size_t n = 0;
    LIST_EACH(l, &rs->all) {
        n += of_list(l)->ended ? 0 : 1;
    }
    return n;
}

static void on_closed(uv_handle_t *h)
{
    free(uv_handle_get_data(h));
}

void resumes_stop(struct resumes *rs)
{
    if (rs == NULL) {
        return;
    }
    rs->closing = true;
    while (!list_empty(&rs->all)) {
        over(of_list(rs->all.next));
    }
    uv_close((uv_handle_t *)&rs->timer, on_closed);
}
