/* pool.c - one mutex, two conditions, an atomic-free counter under the mutex:
 * pieces here take a millisecond, so the lock is not felt. */
#include "convert/pool.h"

#include <pthread.h>
#include <unistd.h>

#define POOL_MAX 64u

struct worker {
    struct pool *pool;
    unsigned index;
    pthread_t thread;
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work; /* a run began, or the end */
    pthread_cond_t done; /* the last piece of a run is done */
    unsigned n;          /* threads, the caller included */
    bool stop;
    void (*fn)(void *ctx, unsigned worker, size_t i);
    void *ctx;
    size_t next, left, count;
    struct worker workers[POOL_MAX];
};

/* Take pieces until none is left. Called and left with the lock held. */
static void drain(struct pool *p, unsigned index)
{
    while (p->next < p->count) {
        size_t i = p->next++;
        (void)pthread_mutex_unlock(&p->lock);
        p->fn(p->ctx, index, i);
        (void)pthread_mutex_lock(&p->lock);
        if (--p->left == 0) {
            (void)pthread_cond_signal(&p->done);
        }
    }
}

static void *on_thread(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    (void)pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        drain(p, w->index);
        if (!p->stop) {
            (void)pthread_cond_wait(&p->work, &p->lock);
        }
    }
    (void)pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct pool *pool_new(unsigned threads)
{
    if (threads == 0) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        threads = n > 0 ? (unsigned)n : 1;
    }
    threads = threads > POOL_MAX ? POOL_MAX : threads;
    struct pool *p = calloc(1, sizeof(*p));
    must(p != NULL);
    must(pthread_mutex_init(&p->lock, NULL) == 0);
    must(pthread_cond_init(&p->work, NULL) == 0);
    must(pthread_cond_init(&p->done, NULL) == 0);
    p->n = 1;
    while (p->n < threads) {
        struct worker *w = &p->workers[p->n];
        *w = (struct worker){.pool = p, .index = p->n};
        if (pthread_create(&w->thread, NULL, on_thread, w) != 0) {
            break;
        }
        p->n++;
    }
    return p;
}

void pool_free(struct pool *p)
{
    if (p == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&p->lock);
    p->stop = true;
    (void)pthread_cond_broadcast(&p->work);
    (void)pthread_mutex_unlock(&p->lock);
    for (unsigned i = 1; i < p->n; i++) {
        (void)pthread_join(p->workers[i].thread, NULL);
    }
    (void)pthread_cond_destroy(&p->done);
    (void)pthread_cond_destroy(&p->work);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}

unsigned pool_threads(const struct pool *p)
{
    return p->n;
}

void pool_run(struct pool *p, void (*fn)(void *ctx, unsigned worker, size_t i),
              void *ctx, size_t n)
{
    if (n == 0) {
        return;
    }
    (void)pthread_mutex_lock(&p->lock);
    p->fn = fn;
    p->ctx = ctx;
    p->next = 0;
    p->count = n;
    p->left = n;
    (void)pthread_cond_broadcast(&p->work);
    drain(p, 0);
    while (p->left > 0) {
        (void)pthread_cond_wait(&p->done, &p->lock);
    }
    p->count = 0;
    p->next = 0;
    (void)pthread_mutex_unlock(&p->lock);
}
