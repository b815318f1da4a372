/* dispatch.m - semaphores and serial queues with libdispatch's interface. */
#include <dispatch/dispatch.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#import "standin.h"

enum kind { KIND_SEMAPHORE, KIND_QUEUE };

struct head { /* first in both, for dispatch_release */
    enum kind kind;
    atomic_int users;
};

struct standin_semaphore {
    struct head head;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    long value, began; /* began: what it was made with */
    long waiting;
};

struct job {
    struct job *next;
    dispatch_function_t work;
    void *context;
};

struct standin_queue {
    struct head head;
    pthread_mutex_t lock; /* of what is below */
    pthread_cond_t wake;
    struct job *first, **last;
    bool ending;      /* nobody uses it any more */
    pthread_t thread; /* which runs the jobs */
};

/* --- time --- */

static uint64_t now(void)
{
    struct timespec t;
    must(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

dispatch_time_t dispatch_time(dispatch_time_t when, int64_t delta)
{
    if (when == DISPATCH_TIME_FOREVER) {
        return when;
    }
    uint64_t base = when == DISPATCH_TIME_NOW ? now() : when;
    if (delta < 0) {
        uint64_t back = (uint64_t)-delta;
        return back < base ? base - back : 1;
    }
    return base + (uint64_t)delta < base ? DISPATCH_TIME_FOREVER
                                         : base + (uint64_t)delta;
}

static void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t a;
    must(pthread_condattr_init(&a) == 0);
    must(pthread_condattr_setclock(&a, CLOCK_MONOTONIC) == 0);
    must(pthread_cond_init(c, &a) == 0);
    must(pthread_condattr_destroy(&a) == 0);
}

/* --- semaphores --- */

dispatch_semaphore_t dispatch_semaphore_create(long value)
{
    if (value < 0) {
        return NULL;
    }
    struct standin_semaphore *s = calloc(1, sizeof(*s));
    must(s != NULL);
    s->head.kind = KIND_SEMAPHORE;
    atomic_init(&s->head.users, 1);
    must(pthread_mutex_init(&s->lock, NULL) == 0);
    cond_init(&s->wake);
    s->value = s->began = value;
    si_count_add(COUNT_SEMAPHORE, 1);
    return s;
}

long dispatch_semaphore_wait(dispatch_semaphore_t s, dispatch_time_t timeout)
{
    uint64_t until = timeout == DISPATCH_TIME_NOW ? now() : timeout;
    struct timespec t = {.tv_sec = (time_t)(until / NSEC_PER_SEC),
                         .tv_nsec = (long)(until % NSEC_PER_SEC)};
    int rc = 0;
    (void)pthread_mutex_lock(&s->lock);
    s->waiting++;
    while (s->value == 0 && rc != ETIMEDOUT) {
        rc = timeout == DISPATCH_TIME_FOREVER
                 ? pthread_cond_wait(&s->wake, &s->lock)
                 : pthread_cond_timedwait(&s->wake, &s->lock, &t);
    }
    s->waiting--;
    bool got = s->value > 0;
    s->value -= got;
    (void)pthread_mutex_unlock(&s->lock);
    return got ? 0 : 1;
}

long dispatch_semaphore_signal(dispatch_semaphore_t s)
{
    (void)pthread_mutex_lock(&s->lock);
    bool woke = s->waiting > s->value;
    s->value++;
    (void)pthread_cond_signal(&s->wake);
    (void)pthread_mutex_unlock(&s->lock);
    return woke;
}

static void semaphore_free(struct standin_semaphore *s)
{
    if (s->value < s->began || s->waiting > 0) {
        si_rule_broken(RULE_SEMAPHORE_IN_USE, "it has %ld of %ld", s->value,
                       s->began);
    }
    (void)pthread_cond_destroy(&s->wake);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
    si_count_add(COUNT_SEMAPHORE, -1);
}

/* --- queues --- */

static void queue_free(struct standin_queue *q)
{
    (void)pthread_cond_destroy(&q->wake);
    (void)pthread_mutex_destroy(&q->lock);
    free(q);
    si_count_add(COUNT_QUEUE, -1);
}

static void run(struct job *j)
{
    @autoreleasepool {
        j->work(j->context);
    }
}

/* The thread of a queue, until the queue has no users and no jobs. */
static void *serve(void *arg)
{
    struct standin_queue *q = arg;
    (void)pthread_mutex_lock(&q->lock);
    while (q->first != NULL || !q->ending) {
        if (q->first == NULL) {
            (void)pthread_cond_wait(&q->wake, &q->lock);
            continue;
        }
        struct job *j = q->first;
        q->first = j->next;
        if (q->first == NULL) {
            q->last = &q->first;
        }
        (void)pthread_mutex_unlock(&q->lock);
        run(j);
        free(j);
        (void)pthread_mutex_lock(&q->lock);
    }
    (void)pthread_mutex_unlock(&q->lock);
    queue_free(q);
    return NULL;
}

dispatch_queue_t dispatch_queue_create(const char *label,
                                       dispatch_queue_attr_t attr)
{
    (void)label;
    must(attr == DISPATCH_QUEUE_SERIAL);
    struct standin_queue *q = calloc(1, sizeof(*q));
    pthread_attr_t detached;
    must(q != NULL);
    q->head.kind = KIND_QUEUE;
    atomic_init(&q->head.users, 1);
    must(pthread_mutex_init(&q->lock, NULL) == 0);
    must(pthread_cond_init(&q->wake, NULL) == 0);
    q->last = &q->first;
    si_count_add(COUNT_QUEUE, 1);
    must(pthread_attr_init(&detached) == 0);
    must(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0);
    (void)pthread_mutex_lock(&q->lock); /* the thread sees q->thread */
    must(pthread_create(&q->thread, &detached, serve, q) == 0);
    (void)pthread_mutex_unlock(&q->lock);
    must(pthread_attr_destroy(&detached) == 0);
    return q;
}

dispatch_queue_attr_t
dispatch_queue_attr_make_with_qos_class(dispatch_queue_attr_t attr,
                                        dispatch_qos_class_t qos_class,
                                        int relative_priority)
{
    (void)qos_class;
    (void)relative_priority;
    return attr;
}

void dispatch_async_f(dispatch_queue_t q, void *context,
                      dispatch_function_t work)
{
    struct job *j = calloc(1, sizeof(*j));
    must(j != NULL);
    j->work = work;
    j->context = context;
    (void)pthread_mutex_lock(&q->lock);
    *q->last = j;
    q->last = &j->next;
    (void)pthread_cond_signal(&q->wake);
    (void)pthread_mutex_unlock(&q->lock);
}

struct sync {
    dispatch_function_t work;
    void *context;
    dispatch_semaphore_t done;
};

static void run_sync(void *arg)
{
    struct sync *s = arg;
    s->work(s->context);
    (void)dispatch_semaphore_signal(s->done);
}

/* On the queue's thread. libdispatch may run it on the caller's; nobody may
 * rely on either. */
void dispatch_sync_f(dispatch_queue_t q, void *context,
                     dispatch_function_t work)
{
    struct sync s = {work, context, dispatch_semaphore_create(0)};
    if (pthread_equal(q->thread, pthread_self())) {
        si_rule_broken(RULE_QUEUE_DEADLOCK, "it would wait for itself");
    }
    dispatch_async_f(q, &s, run_sync);
    (void)dispatch_semaphore_wait(s.done, DISPATCH_TIME_FOREVER);
    dispatch_release(s.done);
}

static void run_block(void *block)
{
    ((dispatch_block_t)block)();
}

static void run_and_release(void *block)
{
    ((dispatch_block_t)block)();
    Block_release((dispatch_block_t)block);
}

void dispatch_async(dispatch_queue_t queue, dispatch_block_t block)
{
    dispatch_async_f(queue, Block_copy(block), run_and_release);
}

void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block)
{
    dispatch_sync_f(queue, (void *)block, run_block);
}

/* --- both --- */

void dispatch_retain(dispatch_object_t object)
{
    struct head *h = object;
    (void)atomic_fetch_add(&h->users, 1);
}

void dispatch_release(dispatch_object_t object)
{
    struct head *h = object;
    if (atomic_fetch_sub(&h->users, 1) > 1) {
        return;
    }
    if (h->kind == KIND_SEMAPHORE) {
        semaphore_free(object);
        return;
    }
    struct standin_queue *q = object;
    (void)pthread_mutex_lock(&q->lock);
    q->ending = true;
    (void)pthread_cond_signal(&q->wake);
    (void)pthread_mutex_unlock(&q->lock);
}

void dispatch_once(dispatch_once_t *predicate, dispatch_block_t block)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)pthread_mutex_lock(&lock);
    if (*predicate == 0) {
        block();
        *predicate = ~0l;
    }
    (void)pthread_mutex_unlock(&lock);
}
