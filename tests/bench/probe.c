/* probe.c - see probe.h. Each measurement starts its threads, pins one to each
 * core, lets them meet at a barrier and ends them: nothing of it runs beside
 * the workloads. */
#include "probe.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BUFFER_BYTES ((size_t)512 << 20)
#define READ_PASSES  3    /* of each number of streams */
#define TRIPS        1000 /* of one window */
#define WINDOWS      12   /* the least counts: others only make it longer */
#define TICKS        2000000

struct probe {
    unsigned threads;
    char *map, *buf; /* buf: aligned for huge pages */
    size_t map_bytes;
};

double probe_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double probe_median(double *v, size_t n)
{
    must(n > 0);
    qsort(v, n, sizeof(*v), by_size);
    return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

struct probe *probe_new(unsigned threads)
{
    const size_t huge = (size_t)2 << 20;
    struct probe *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return NULL;
    }
    p->threads = threads < PROBE_THREADS_MAX ? threads : PROBE_THREADS_MAX;
    p->map_bytes = BUFFER_BYTES + huge;
    p->map = mmap(NULL, p->map_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p->map == MAP_FAILED) {
        free(p);
        return NULL;
    }
    p->buf = p->map + (huge - (uintptr_t)p->map % huge) % huge;
#ifdef MADV_HUGEPAGE
    (void)madvise(p->buf, BUFFER_BYTES, MADV_HUGEPAGE);
#endif
    /* every page its own: a buffer of zeros may be one page many times */
    memset(p->buf, 0x5a, BUFFER_BYTES);
    return p;
}

void probe_free(struct probe *p)
{
    if (p != NULL) {
        (void)munmap(p->map, p->map_bytes);
        free(p);
    }
}

/* Cores this process may use. */
static unsigned cores(void)
{
#ifdef __linux__
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof(all), &all) == 0) {
        return (unsigned)CPU_COUNT(&all);
    }
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

static void pin(unsigned i)
{
#ifdef __linux__
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof(all), &all) != 0) {
        return;
    }
    i %= (unsigned)CPU_COUNT(&all);
    for (size_t c = 0; c < CPU_SETSIZE; c++) {
        if (CPU_ISSET(c, &all) && i-- == 0) {
            CPU_ZERO(&all);
            CPU_SET(c, &all);
            (void)sched_setaffinity(0, sizeof(all), &all);
            return;
        }
    }
#else
    (void)i;
#endif
}

/* --- threads that start together --- */

struct member {
    struct team *team;
    unsigned i;
    double result;
};

struct team {
    struct probe *p;
    unsigned n;
    _Atomic unsigned here, away; /* arrivals; a round is over at n */
    _Atomic unsigned round;
    double (*work)(struct member *m);
};

static inline void pause_a_little(void)
{
#if defined(__x86_64__)
    _mm_pause();
#endif
}

/* A barrier that spins a while, then lets others run: with more threads than
 * cores somebody must sleep. */
static void meet(struct team *t)
{
    unsigned round = atomic_load(&t->round);
    if (atomic_fetch_add(&t->here, 1) + 1 == t->n) {
        atomic_store(&t->here, 0);
        atomic_store(&t->round, round + 1);
        return;
    }
    for (unsigned k = 0; atomic_load(&t->round) == round; k++) {
        if (k > 20000) {
            (void)sched_yield();
        }
        pause_a_little();
    }
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    pin(m->i);
    m->result = m->team->work(m);
    return NULL;
}

/* Result of member 0, with the others' sum in *sum; 0 when threads failed. */
static double team_run(struct probe *p, unsigned n,
                       double (*work)(struct member *m), double *sum)
{
    struct team t = {.p = p, .n = n, .work = work};
    struct member m[PROBE_THREADS_MAX];
    pthread_t id[PROBE_THREADS_MAX];
    for (unsigned i = 0; i < n; i++) {
        m[i] = (struct member){.team = &t, .i = i};
        /* those that run already wait for the rest: no way back */
        must(pthread_create(&id[i], NULL, member_main, &m[i]) == 0);
    }
    *sum = 0;
    for (unsigned i = 0; i < n; i++) {
        (void)pthread_join(id[i], NULL);
        *sum += m[i].result;
    }
    return m[0].result;
}

/* --- read bandwidth --- */

typedef uint64_t line __attribute__((vector_size(32)));

/* In so many streams at once; eight sums, so that none waits for the one
 * before. n: a multiple of 4096. */
static uint64_t read_all(const char *p, size_t n, size_t streams)
{
    const size_t part = n / streams / sizeof(line);
    line s[8] = {0};
    for (size_t i = 0; i < part; i += 8) {
        for (size_t j = 0; j < streams; j++) {
            const line *a = (const line *)(const void *)p + j * part + i;
            for (size_t k = 0; k < 8; k++) {
                s[k] ^= a[k];
            }
        }
    }
    for (size_t k = 1; k < 8; k++) {
        s[0] ^= s[k];
    }
    return s[0][0] ^ s[0][1] ^ s[0][2] ^ s[0][3];
}

static volatile uint64_t kept; /* so that reading is not left out */

/* Which number of streams is best depends on the machine and its neighbours:
 * the best of three is the bandwidth. */
static double work_read(struct member *m)
{
    static const size_t streams[] = {1, 2, 4};
    struct team *t = m->team;
    double pass[READ_PASSES];
    size_t part = BUFFER_BYTES / t->n / 4096 * 4096;
    const char *mine = t->p->buf + m->i * part;
    double best = 0;
    meet(t);
    for (size_t j = 0; j < countof(streams); j++) {
        for (size_t i = 0; i < READ_PASSES; i++) {
            double at = probe_seconds();
            kept = read_all(mine, part, streams[j]);
            meet(t);
            pass[i] = probe_seconds() - at;
        }
        double rate =
            (double)(part * t->n) / probe_median(pass, READ_PASSES) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* --- where the cores stand --- */

static struct {
    _Alignas(256) _Atomic unsigned ball;
    char rest[252];
} court;

static double work_trip(struct member *m)
{
    double best = 1e9;
    if (m->i == 0) {
        atomic_store(&court.ball, 0);
    }
    meet(m->team);
    for (int w = 0; w < WINDOWS; w++) {
        double at = probe_seconds();
        for (unsigned k = 0; k < TRIPS; k++) {
            unsigned mine = 2 * ((unsigned)w * TRIPS + k) + m->i;
            while (atomic_load_explicit(&court.ball, memory_order_acquire) !=
                   mine) {
            }
            atomic_store_explicit(&court.ball, mine + 1, memory_order_release);
        }
        double ns = (probe_seconds() - at) / TRIPS * 1e9;
        best = ns < best ? ns : best;
    }
    return best;
}

static bool amd(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("amd") != 0;
#else
    return false;
#endif
}

struct probe_place probe_place(struct probe *p)
{
    struct probe_place r = {.state = "other"};
    double sum = 0;
    r.read_gb_s = team_run(p, p->threads, work_read, &sum);
    if (cores() < 2) { /* the ball would move once a time slice */
        return r;
    }
    r.trip_ns = team_run(p, 2, work_trip, &sum);
    if (r.trip_ns < 40) { /* two cores of one cache: 52 at the least (Zen 4) */
        r.state = "smt";
    } else if (amd() && r.trip_ns < 200) {
        r.state = "1ccd";
    } else if (amd() && r.trip_ns > 250) {
        r.state = "2ccd";
    }
    return r;
}

/* --- multipliers --- */

#if defined(__x86_64__)
/* Sixteen sums in registers, in assembly: compilers put some of them on the
 * stack, and measure that. */
#define SUM_16(m) \
    m(0) m(1) m(2) m(3) m(4) m(5) m(6) m(7) m(8) m(9) m(10) m(11) m(12) m(13) m(14) m(15)
#define SUM_8(m)    m(0) m(1) m(2) m(3) m(4) m(5) m(6) m(7)
#define VNNI(i)     "vpdpwssd %%zmm16, %%zmm16, %%zmm" #i "\n\t"
#define WORDS(i)    "vpmaddwd %%ymm15, %%ymm15, %%ymm14\n\t" \
                    "vpaddd %%ymm14, %%ymm" #i ", %%ymm" #i "\n\t"
#define CLOBBER(i)  "xmm" #i,

__attribute__((target("avx512f"))) static void multiply_vnni(void)
{
    for (int n = 0; n < TICKS / 16; n++) {
        __asm__ volatile(SUM_16(VNNI) ::: SUM_16(CLOBBER) "xmm16");
    }
}

static void multiply_words(void)
{
    for (int n = 0; n < TICKS / 8; n++) {
        __asm__ volatile(SUM_8(WORDS) ::: SUM_8(CLOBBER) "xmm14", "xmm15");
    }
}
#endif

struct multiplier {
    const char *name;
    double products; /* of an instruction */
    void (*run)(void);
};

static struct multiplier multiplier(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512vnni") &&
        __builtin_cpu_supports("avx512bw")) {
        return (struct multiplier){"vpdpwssd zmm", 32, multiply_vnni};
    }
    return (struct multiplier){"vpmaddwd ymm", 16, multiply_words};
#else
    return (struct multiplier){"none", 0, NULL};
#endif
}

static double work_multiply(struct member *m)
{
    struct multiplier how = multiplier();
    double best = 1e9;
    for (int i = 0; i < 8; i++) {
        meet(m->team);
        double at = probe_seconds();
        how.run();
        double took = probe_seconds() - at;
        best = took < best ? took : best;
    }
    return how.products * TICKS / best * 1e-9;
}

double probe_multiply(struct probe *p, const char **name)
{
    double sum = 0;
    struct multiplier how = multiplier();
    *name = how.name;
    if (how.run != NULL) {
        (void)team_run(p, p->threads, work_multiply, &sum);
    }
    return sum;
}

/* --- who else is here --- */

struct probe_clock probe_clock(void)
{
    struct probe_clock c = {.wall = probe_seconds(), .busy = -1};
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    c.mine = (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
    FILE *f = fopen("/proc/stat", "re");
    if (f != NULL) {
        /* user nice system idle iowait irq softirq steal, in ticks */
        unsigned long long v[8];
        if (fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0],
                   &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) == 8) {
            double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
            c.busy = (double)(v[0] + v[1] + v[2] + v[5] + v[6]) * tick;
            c.stolen = (double)v[7] * tick;
        }
        (void)fclose(f);
    }
    return c;
}

double probe_others(const struct probe_clock *from, double *stolen)
{
    struct probe_clock now = probe_clock();
    double wall = now.wall - from->wall;
    double others = now.busy - from->busy - (now.mine - from->mine);
    *stolen = (now.stolen - from->stolen) / wall;
    return from->busy < 0 || others < 0 ? 0 : others / wall;
}
