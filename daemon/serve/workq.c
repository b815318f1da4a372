/* workq.c - one thread, two lists, one lock.
 *
 *   put -> todo --worker--> finished --async, loop--> done()
 *
 * `depth` belongs to the loop; the lists and `stop` are guarded by `lock`. */
#include "serve/workq.h"

#include <string.h>

struct workq {
    uv_thread_t thread;
    uv_mutex_t lock;
    uv_cond_t wake;
    uv_async_t async;
    struct list todo, finished;
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
        uv_mutex_unlock(&q->lock);
        w->run(w);
        uv_mutex_lock(&q->lock);
        bool told = !list_empty(&q->finished);
        list_push(&q->finished, &w->link);
        if (!told) { /* without the lock, which the loop takes when told */
            uv_mutex_unlock(&q->lock);
            (void)uv_async_send(&q->async);
            uv_mutex_lock(&q->lock);
        }
    }
    uv_mutex_unlock(&q->lock);
}

static void on_closed(uv_handle_t *h)
{
    struct workq *q = container_of(h, struct workq, async);
    uv_cond_destroy(&q->wake);
    uv_mutex_destroy(&q->lock);
    void (*closed)(void *) = q->closed;
    void *ctx = q->ctx;
    free(q);
    closed(ctx);
}

static void on_async(uv_async_t *a)
{
    struct workq *q = container_of(a, struct workq, async);
    struct list all;
    list_init(&all);
    uv_mutex_lock(&q->lock);
    while (!list_empty(&q->finished)) {
        struct list *l = q->finished.next;
        list_del(l);
        list_push(&all, l);
    }
    uv_mutex_unlock(&q->lock);
    while (!list_empty(&all)) {
        struct work *w = container_of(all.next, struct work, link);
        list_del(&w->link);
        q->depth--;
        w->done(w);
    }
    if (q->closed != NULL && q->depth == 0 &&
        !uv_is_closing((uv_handle_t *)&q->async)) {
        must(uv_thread_join(&q->thread) == 0);
        uv_close((uv_handle_t *)&q->async, on_closed);
    }
}

struct workq *workq_new(uv_loop_t *loop, size_t max)
{
    struct workq *q = calloc(1, sizeof(*q));
    must(q != NULL);
    list_init(&q->todo);
    list_init(&q->finished);
    q->max = max;
    must(uv_mutex_init(&q->lock) == 0);
    must(uv_cond_init(&q->wake) == 0);
    must(uv_async_init(loop, &q->async, on_async) == 0);
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
    uv_mutex_lock(&q->lock);
    list_push(&q->todo, &w->link);
    uv_mutex_unlock(&q->lock);
    uv_cond_signal(&q->wake); /* who wakes finds the lock free */
    return 0;
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
