/* crew.c - one job at a time; threads take blocks from an atomic counter.
 *
 * A job is in one cache line with its *gate*: a number that changes with each
 * job, a bit that says that workers may enter, and the number of workers
 * inside. Workers spin on the gate. One that sees a new open job enters by a
 * compare-and-swap, takes blocks from `next`, and leaves by a decrement. When
 * no block is left, the caller closes the gate and waits until no worker is
 * inside. While the gate is closed and empty, only the caller writes to the
 * line. So it publishes a job with one store and takes no lock.
 *
 * A thread that has spun for YIELD_NS yields its core. Not earlier: the next
 * product may follow at once, and a process that gets the core keeps it for
 * milliseconds. After SPIN_NS it sleeps: workers on `wake`, the caller on
 * `done`. Before it sleeps, a thread counts itself as sleeping and then reads
 * the gate once more; a thread that changed the gate reads that count
 * afterwards. Both are sequentially consistent, so at least one of the two
 * threads sees the other's change. `lock` is held from the last read of the
 * gate to the sleep, so that no wake-up is lost.
 *
 * An errand is a pointer that spinning workers read. When no worker takes it
 * within ERRAND_NS, the caller takes it back: no thread is woken for an errand,
 * and the caller does not wait for a worker that has lost its core.
 */
#include "base/crew.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "base/qos.h"

#define SPIN_NS    100000u /* longer than what stands between two products */
#define YIELD_NS   10000u  /* between two products it is less, mostly */
#define ERRAND_NS  3000u   /* a worker that spins takes one in tenths of it */
#define SPIN_TURNS 64      /* pauses from one look at the clock to the next */

#define GATE_INSIDE 0xffffu             /* workers inside */
#define GATE_OPEN   0x10000u            /* the job may be entered */
#define GATE_JOB    ((uint64_t)1 << 32) /* counts jobs, in the upper half */

static struct {
    /* The job: one line. */
    _Alignas(64) atomic_ullong gate;
    atomic_size_t next;
    size_t items, grain;
    crew_fn *fn;
    void *ctx;
    unsigned want; /* workers */

    _Alignas(64) pthread_mutex_t run; /* held by the caller inside crew_run */
    pthread_mutex_t lock;             /* sleeping and the fields below */
    pthread_cond_t wake;              /* a job, or the end */
    pthread_cond_t done;              /* no worker is inside any more */
    atomic_uint sleeping;             /* workers on `wake` */
    atomic_bool waiting;              /* the caller, on `done` */
    atomic_bool stop;
    struct {
        _Atomic(crew_errand_fn *) fn; /* NULL: none, or taken */
        void *ctx;
        atomic_bool busy; /* from before fn until it is done */
    } errand;
    unsigned refs;
    unsigned n; /* workers alive */
    pthread_t thread[CREW_MAX];
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

/* Every product ends when its slowest thread does, so Apple's efficiency cores
 * would set the pace: the performance cores alone. */
static long fast_cores(void)
{
#if defined(__APPLE__)
    int n = 0;
    size_t size = sizeof(n);
    if (sysctlbyname("hw.perflevel0.physicalcpu", &n, &size, NULL, 0) == 0 &&
        size == sizeof(n) && n > 0) {
        return n;
    }
#endif
    return sysconf(_SC_NPROCESSORS_ONLN);
}

unsigned crew_threads(unsigned asked)
{
    if (asked == 0) {
        long n = fast_cores();
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

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* One turn of a spin. False when it has lasted too long; *began is 0 at
 * first. */
static bool spin(unsigned *turn, uint64_t *began)
{
    pause_cpu();
    if (++*turn % SPIN_TURNS != 0) {
        return true;
    }
    uint64_t now = now_ns();
    *began = *began != 0 ? *began : now;
    if (now - *began >= YIELD_NS) {
        (void)sched_yield();
    }
    return now - *began < SPIN_NS;
}

/* The first worker that sees it takes it. */
static void look_for_errand(void)
{
    if (atomic_load_explicit(&crew.errand.fn, memory_order_relaxed) != NULL) {
        crew_errand_fn *fn = atomic_exchange(&crew.errand.fn, NULL);
        if (fn != NULL) {
            fn(crew.errand.ctx);
            atomic_store(&crew.errand.busy, false);
            /* The process it woke may need this core: the scheduler does not
             * take a core from a running thread. */
            (void)sched_yield();
        }
    }
}

static bool is_new(uint64_t gate, uint64_t seen)
{
    return gate / GATE_JOB != seen / GATE_JOB;
}

/* Wait for a job other than that of `seen`; returns the gate. */
static uint64_t wait_job(uint64_t seen)
{
    uint64_t began = 0;
    unsigned turn = 0;
    do {
        uint64_t gate = atomic_load(&crew.gate);
        if (is_new(gate, seen)) {
            return gate;
        }
        look_for_errand();
    } while (spin(&turn, &began));
    (void)pthread_mutex_lock(&crew.lock);
    (void)atomic_fetch_add(&crew.sleeping, 1);
    uint64_t gate = atomic_load(&crew.gate);
    while (!is_new(gate, seen)) {
        (void)pthread_cond_wait(&crew.wake, &crew.lock);
        gate = atomic_load(&crew.gate);
    }
    (void)atomic_fetch_sub(&crew.sleeping, 1);
    (void)pthread_mutex_unlock(&crew.lock);
    return gate;
}

/* Enter the job; false when it has ended. */
static bool enter(uint64_t gate)
{
    unsigned long long now = gate;
    while ((now & GATE_OPEN) != 0 && !is_new(now, gate)) {
        if (atomic_compare_exchange_weak(&crew.gate, &now, now + 1)) {
            return true;
        }
    }
    return false;
}

static void leave(void)
{
    uint64_t before = atomic_fetch_sub(&crew.gate, 1);
    if ((before & (GATE_OPEN | GATE_INSIDE)) == 1 &&
        atomic_load(&crew.waiting)) {
        (void)pthread_mutex_lock(&crew.lock);
        (void)pthread_cond_signal(&crew.done);
        (void)pthread_mutex_unlock(&crew.lock);
    }
}

static void *worker_main(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg;
    uint64_t seen = 0;
    for (;;) {
        seen = wait_job(seen);
        if (atomic_load(&crew.stop)) {
            return NULL;
        }
        if (enter(seen)) {
            if (me < crew.want) {
                take_blocks(me + 1);
            }
            leave();
        }
    }
}

/* After the gate has changed. */
static void wake_workers(void)
{
    if (atomic_load(&crew.sleeping) > 0) {
        (void)pthread_mutex_lock(&crew.lock);
        (void)pthread_cond_broadcast(&crew.wake);
        (void)pthread_mutex_unlock(&crew.lock);
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
    (void)pthread_mutex_unlock(&crew.lock);
    if (n > 0) {
        atomic_store(&crew.stop, true);
        (void)atomic_fetch_add(&crew.gate, GATE_JOB);
        wake_workers();
        for (unsigned i = 0; i < n; i++) {
            (void)pthread_join(crew.thread[i], NULL);
        }
        crew.n = 0;
        atomic_store(&crew.stop, false);
        atomic_store(&crew.gate, 0);
    }
    (void)pthread_mutex_unlock(&crew.run);
}

/* Have `want` workers; fewer when the system gives no more. */
static void grow(unsigned want)
{
    while (crew.n < want) {
        void *arg = (void *)(uintptr_t)crew.n; /* cookie, never dereferenced */
        if (qos_thread(&crew.thread[crew.n], worker_main, arg) != 0) {
            return;
        }
        crew.n++;
    }
}

static bool is_empty(void)
{
    return (atomic_load(&crew.gate) & GATE_INSIDE) == 0;
}

/* Close the job and wait until no worker is in it. */
static void finish(void)
{
    uint64_t before = atomic_fetch_and(&crew.gate, ~(uint64_t)GATE_OPEN);
    if ((before & GATE_INSIDE) == 0) {
        return;
    }
    uint64_t began = 0;
    unsigned turn = 0;
    do {
        if (is_empty()) {
            return;
        }
    } while (spin(&turn, &began));
    (void)pthread_mutex_lock(&crew.lock);
    atomic_store(&crew.waiting, true);
    while (!is_empty()) {
        (void)pthread_cond_wait(&crew.done, &crew.lock);
    }
    atomic_store(&crew.waiting, false);
    (void)pthread_mutex_unlock(&crew.lock);
}

bool crew_errand(crew_errand_fn *fn, void *ctx)
{
    must(!atomic_load(&crew.errand.busy));
    if (atomic_load(&crew.sleeping) >= crew.n) { /* also: there are none */
        return false;
    }
    crew.errand.ctx = ctx;
    atomic_store(&crew.errand.busy, true);
    atomic_store(&crew.errand.fn, fn);
    for (uint64_t end = now_ns() + ERRAND_NS; now_ns() < end;) {
        if (atomic_load(&crew.errand.fn) == NULL) {
            return true;
        }
        pause_cpu();
    }
    if (atomic_exchange(&crew.errand.fn, NULL) == NULL) {
        return true;
    }
    atomic_store(&crew.errand.busy, false);
    return false;
}

void crew_errand_wait(void)
{
    while (atomic_load(&crew.errand.busy)) {
        (void)sched_yield(); /* its worker may need this core */
    }
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
    grow(threads - 1);
    crew.want = threads - 1;
    crew.items = items;
    crew.grain = grain;
    crew.fn = fn;
    crew.ctx = ctx;
    atomic_store(&crew.next, 0);
    uint64_t gate = atomic_load(&crew.gate);
    atomic_store(&crew.gate, (gate / GATE_JOB + 1) * GATE_JOB + GATE_OPEN);
    wake_workers();
    take_blocks(0);
    finish();
    (void)pthread_mutex_unlock(&crew.run);
}
