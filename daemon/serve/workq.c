/* workq.c - one thread, two lists, one lock.
 *
 *   put -> todo --worker--> finished --async, loop-> ready --> done()
 *   run -------------------------------------------> ready --> done()
 *
 * The loop thread owns `depth` and `ready`. `lock` guards the other lists,
 * `stop` and work.begun. The idle handle runs while something is ready: then
 * the loop does not wait for events.
 *
 * One turn of the loop calls done() for TURN_NS; the rest waits for the next
 * turn, so that much finished work does not delay all clients (NOTES 48). */
#include "serve/workq.h"

#include <string.h>

#define TURN_NS 3000000u

struct workq {
    uv_thread_t thread;
    uv_mutex_t lock;
    uv_cond_t wake;
    uv_async_t async;
    uv_idle_t idle;
    unsigned open; /* handles libuv still holds */
    struct list todo, finished, ready;
    bool stop;
    size_t depth, max;
    void (*closed)(void *ctx);
    void *ctx;
};

static void worker(void *arg)
{
    struct workq *q = arg;
    uv_mutex_lock(&q->lock);
    for (;;) {
        while (list_empty(&q->todo) && !q->stop) {
            uv_cond_wait(&q->wake, &q->lock);
        }
        if (list_empty(&q->todo)) {
            break;
        }
        struct work *w = container_of(q->todo.next, struct work, link);
        list_del(&w->link);
        w->begun = true;
        uv_mutex_unlock(&q->lock);
        w->run(w);
        uv_mutex_lock(&q->lock);
        bool told = !list_empty(&q->finished);
        list_push(&q->finished, &w->link);
        if (!told) { /* without the lock: the loop takes it when notified */
            uv_mutex_unlock(&q->lock);
            (void)uv_async_send(&q->async);
            uv_mutex_lock(&q->lock);
        }
    }
    uv_mutex_unlock(&q->lock);
}

static void on_idle(uv_idle_t *i);

static void on_closed(uv_handle_t *h)
{
    struct workq *q = uv_handle_get_data(h);
    if (--q->open > 0) {
        return;
    }
    uv_cond_destroy(&q->wake);
    uv_mutex_destroy(&q->lock);
    void (*closed)(void *) = q->closed;
    void *ctx = q->ctx;
    free(q);
    closed(ctx);
}

static void move_all(struct list *from, struct list *to)
{
    while (!list_empty(from)) {
        struct list *l = from->next;
        list_del(l);
        list_push(to, l);
    }
}

/* done() of what is ready, until the turn's time is over. */
static void give_back(struct workq *q)
{
    uint64_t begun = uv_hrtime();
    struct list all; /* done() may make more work ready: for the next turn */
    list_init(&all);
    move_all(&q->ready, &all);
    while (!list_empty(&all) && uv_hrtime() - begun < TURN_NS) {
        struct work *w = container_of(all.next, struct work, link);
        list_del(&w->link);
        q->depth--;
        w->done(w);
    }
    move_all(&q->ready, &all);
    move_all(&all, &q->ready); /* older work first */
    if (!list_empty(&q->ready)) {
        must(uv_idle_start(&q->idle, on_idle) == 0);
    } else {
        must(uv_idle_stop(&q->idle) == 0);
    }
    if (q->closed != NULL && q->depth == 0 &&
        !uv_is_closing((uv_handle_t *)&q->async)) {
        must(uv_thread_join(&q->thread) == 0);
        uv_close((uv_handle_t *)&q->async, on_closed);
        uv_close((uv_handle_t *)&q->idle, on_closed);
    }
}

static void on_idle(uv_idle_t *i)
{
    give_back(container_of(i, struct workq, idle));
}

static void on_async(uv_async_t *a)
{
    struct workq *q = container_of(a, struct workq, async);
    uv_mutex_lock(&q->lock);
    move_all(&q->finished, &q->ready);
    uv_mutex_unlock(&q->lock);
    /* not here: a turn would call it twice before it looks for events again */
    must(uv_idle_start(&q->idle, on_idle) == 0);
}

struct workq *workq_new(uv_loop_t *loop, size_t max)
{
    struct workq *q = calloc(1, sizeof(*q));
    must(q != NULL);
    list_init(&q->todo);
    list_init(&q->finished);
    list_init(&q->ready);
    q->max = max;
    must(uv_mutex_init(&q->lock) == 0);
    must(uv_cond_init(&q->wake) == 0);
    must(uv_async_init(loop, &q->async, on_async) == 0);
    must(uv_idle_init(loop, &q->idle) == 0);
    uv_handle_set_data((uv_handle_t *)&q->async, q);
    uv_handle_set_data((uv_handle_t *)&q->idle, q);
    q->open = 2;
    int rc = uv_thread_create(&q->thread, worker, q);
    must(rc == 0); /* at start; without threads there is no daemon */
    return q;
}

int workq_put(struct workq *q, struct work *w)
{
    if (q->depth >= q->max || q->closed != NULL) {
        return ERR_BUSY;
    }
    q->depth++;
    w->begun = false;
    uv_mutex_lock(&q->lock);
    list_push(&q->todo, &w->link);
    uv_mutex_unlock(&q->lock);
    uv_cond_signal(&q->wake); /* the worker finds the lock free */
    return 0;
}

int workq_run(struct workq *q, struct work *w)
{
    if (q->depth >= q->max || q->closed != NULL) {
        return ERR_BUSY;
    }
    q->depth++;
    w->begun = true;
    w->run(w);
    list_push(&q->ready, &w->link);
    must(uv_idle_start(&q->idle, on_idle) == 0);
    return 0;
}

bool workq_cancel(struct workq *q, struct work *w)
{
    uv_mutex_lock(&q->lock);
    bool begun = w->begun;
    if (!begun) {
        list_del(&w->link);
    }
    uv_mutex_unlock(&q->lock);
    q->depth -= begun ? 0 : 1;
    if (q->closed != NULL) { /* it may have been the last */
        (void)uv_async_send(&q->async);
    }
    return !begun;
}

size_t workq_depth(const struct workq *q)
{
    return q->depth;
}

void workq_close(struct workq *q, void (*closed)(void *ctx), void *ctx)
{
    if (q == NULL) {
        closed(ctx);
        return;
    }
    must(q->closed == NULL);
    q->closed = closed;
    q->ctx = ctx;
    uv_mutex_lock(&q->lock);
    q->stop = true;
    uv_cond_signal(&q->wake);
    uv_mutex_unlock(&q->lock);
    (void)uv_async_send(&q->async);
}
