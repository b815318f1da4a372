/* crew.c - one job at a time, blocks taken off an atomic counter.
 *
 * A job is published by raising `epoch`. A worker that sees it enters by
 * counting itself into `inside`, and only then takes blocks off `next`; the
 * caller closes the job (`open` = false) after the last block is taken and
 * waits until `inside` is 0 again, so no worker can touch the next job's
 * fields by accident. All fields of a job are written before the epoch and
 * under the lock.
 *
 * The caller sleeps on `done` when its wait gets long. `waiting` and `inside`
 * are each written by one side before it reads the other (both sequentially
 * consistent): either the last worker out sees a waiter, or the caller sees 0.
 */
#include "base/crew.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define SPIN_TURNS 4000 /* about 30 us of pause instructions */

static struct {
    pthread_mutex_t run;  /* held by the one caller inside crew_run */
    pthread_mutex_t lock; /* sleeping and the fields below */
    pthread_cond_t wake;  /* a job, or the end */
    pthread_cond_t done;  /* nobody is inside any more */
    unsigned refs;
    unsigned n; /* workers alive */
    bool stop;
    bool open; /* the job may be entered */
    unsigned sleeping;
    pthread_t thread[CREW_MAX];

    atomic_uint epoch;
    atomic_uint inside;
    atomic_bool waiting; /* the caller, on `done` */
    atomic_size_t next;
    unsigned want; /* workers of this job */
    size_t items, grain;
    crew_fn *fn;
    void *ctx;
} crew = {
    .run = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .wake = PTHREAD_COND_INITIALIZER,
    .done = PTHREAD_COND_INITIALIZER,
};

static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

unsigned crew_threads(unsigned asked)
{
    if (asked == 0) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        asked = n > 0 ? (unsigned)n : 1;
    }
    return asked < CREW_MAX ? asked : CREW_MAX;
}

static void take_blocks(unsigned worker)
{
    for (;;) {
        size_t at = atomic_fetch_add(&crew.next, crew.grain);
        if (at >= crew.items) {
            return;
        }
        size_t end =
            crew.items - at < crew.grain ? crew.items : at + crew.grain;
        crew.fn(crew.ctx, at, end, worker);
    }
}

/* Wait for an epoch other than `seen`; returns it. */
static unsigned wait_epoch(unsigned seen)
{
    for (int i = 0; i < SPIN_TURNS; i++) {
        unsigned now = atomic_load(&crew.epoch);
        if (now != seen) {
            return now;
        }
        pause_cpu();
    }
    (void)pthread_mutex_lock(&crew.lock);
    while (atomic_load(&crew.epoch) == seen && !crew.stop) {
        crew.sleeping++;
        (void)pthread_cond_wait(&crew.wake, &crew.lock);
        crew.sleeping--;
    }
    unsigned now = atomic_load(&crew.epoch);
    (void)pthread_mutex_unlock(&crew.lock);
    return now;
}

static void leave(void)
{
    if (atomic_fetch_sub(&crew.inside, 1) == 1 && atomic_load(&crew.waiting)) {
        (void)pthread_mutex_lock(&crew.lock);
        (void)pthread_cond_signal(&crew.done);
        (void)pthread_mutex_unlock(&crew.lock);
    }
}

static void *worker_main(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg;
    unsigned seen = 0;
    for (;;) {
        seen = wait_epoch(seen);
        (void)pthread_mutex_lock(&crew.lock);
        bool stop = crew.stop;
        bool enter = crew.open && me < crew.want;
        if (enter) {
            (void)atomic_fetch_add(&crew.inside, 1);
        }
        (void)pthread_mutex_unlock(&crew.lock);
        if (stop) {
            return NULL;
        }
        if (enter) {
            take_blocks(me + 1);
            leave();
        }
    }
}

void crew_ref(void)
{
    (void)pthread_mutex_lock(&crew.lock);
    crew.refs++;
    (void)pthread_mutex_unlock(&crew.lock);
}

void crew_unref(void)
{
    (void)pthread_mutex_lock(&crew.run);
    (void)pthread_mutex_lock(&crew.lock);
    must(crew.refs > 0);
    unsigned n = --crew.refs == 0 ? crew.n : 0;
    if (n > 0) {
        crew.stop = true;
        (void)atomic_fetch_add(&crew.epoch, 1);
        (void)pthread_cond_broadcast(&crew.wake);
    }
    (void)pthread_mutex_unlock(&crew.lock);
    for (unsigned i = 0; i < n; i++) {
        (void)pthread_join(crew.thread[i], NULL);
    }
    if (n > 0) {
        crew.n = 0;
        crew.stop = false;
        atomic_store(&crew.epoch, 0);
    }
    (void)pthread_mutex_unlock(&crew.run);
}

/* Have `want` workers; fewer when the system gives no more. Lock held. */
static void grow(unsigned want)
{
    while (crew.n < want) {
        void *arg = (void *)(uintptr_t)crew.n; /* cookie, never dereferenced */
        if (pthread_create(&crew.thread[crew.n], NULL, worker_main, arg) != 0) {
            return;
        }
        crew.n++;
    }
}

/* Close the job and wait until no worker is in it. */
static void finish(void)
{
    (void)pthread_mutex_lock(&crew.lock);
    crew.open = false;
    (void)pthread_mutex_unlock(&crew.lock);
    for (int i = 0; i < SPIN_TURNS; i++) {
        if (atomic_load(&crew.inside) == 0) {
            return;
        }
        pause_cpu();
    }
    (void)pthread_mutex_lock(&crew.lock);
    atomic_store(&crew.waiting, true);
    while (atomic_load(&crew.inside) > 0) {
        (void)pthread_cond_wait(&crew.done, &crew.lock);
    }
    atomic_store(&crew.waiting, false);
    (void)pthread_mutex_unlock(&crew.lock);
}

void crew_run(unsigned threads, size_t items, size_t grain, crew_fn *fn,
              void *ctx)
{
    must(grain > 0);
    threads = threads < CREW_MAX ? threads : CREW_MAX;
    if (items == 0) {
        return;
    }
    if (threads <= 1 || items <= grain ||
        pthread_mutex_trylock(&crew.run) != 0) {
        fn(ctx, 0, items, 0);
        return;
    }
    (void)pthread_mutex_lock(&crew.lock);
    grow(threads - 1);
    crew.want = threads - 1;
    crew.items = items;
    crew.grain = grain;
    crew.fn = fn;
    crew.ctx = ctx;
    atomic_store(&crew.next, 0);
    crew.open = true;
    (void)atomic_fetch_add(&crew.epoch, 1);
    if (crew.sleeping > 0) {
        (void)pthread_cond_broadcast(&crew.wake);
    }
    (void)pthread_mutex_unlock(&crew.lock);

    take_blocks(0);
    finish();
    (void)pthread_mutex_unlock(&crew.run);
}
