/* rule.c - broken rules, and the pages that show them.
 *
 * A table holds what is mapped, so that the handler of SIGSEGV can tell which
 * rule an address stands for. The handler takes no lock: an entry's fields are
 * atomic, and its address is set last and cleared first.
 */
#include "rule.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES_MAX     16384 /* mappings at a time; one an array of a result */
#define PAGES_RETIRED 64    /* mappings kept unreadable */
#define DETAIL_MAX    512   /* bytes of text behind a rule's name */

struct mapping {
    _Atomic(uintptr_t) at; /* 0: free */
    _Atomic(size_t) n;
    _Atomic(int) rule;
};

static struct mapping table[PAGES_MAX];
static atomic_size_t table_used; /* entries above it were never used */
static void *retired[PAGES_RETIRED];
static size_t n_retired; /* in all: the place is n_retired % PAGES_RETIRED */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all above */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sigaction before;

static const char *const texts[RULE_N] = {
#define XX(name, text) [RULE_##name] = (text),
    RULE_MAP(XX)
#undef XX
};

void si_rule_broken(enum rule r, const char *fmt, ...)
{
    char line[DETAIL_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    (void)fprintf(stderr, "standin: rule broken: %s: %s\n", texts[r], line);
    abort();
}

/* --- the handler --- */

/* Only calls that a signal handler may make. */
static void say(const char *s)
{
    (void)!write(STDERR_FILENO, s, strlen(s));
}

static void on_segv(int sig, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    size_t n = atomic_load(&table_used);
    for (size_t i = 0; i < n; i++) {
        uintptr_t from = atomic_load(&table[i].at);
        if (from != 0 && at >= from && at - from < atomic_load(&table[i].n)) {
            say("standin: rule broken: ");
            say(texts[atomic_load(&table[i].rule)]);
            say(": a forbidden access to its memory\n");
            abort();
        }
    }
    if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != NULL) {
        before.sa_sigaction(sig, info, context);
        return;
    }
    /* Not ours: the access is repeated, and the process dies of it. */
    (void)sigaction(sig, &before, NULL);
}

static void install(void)
{
    struct sigaction a = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO};
    (void)sigemptyset(&a.sa_mask);
    must(sigaction(SIGSEGV, &a, &before) == 0);
}

/* --- pages --- */

static size_t round_up(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return n == 0 ? page : (n + page - 1) / page * page;
}

static struct mapping *find(const void *p)
{
    size_t n = atomic_load(&table_used);
    size_t i = 0;
    while (i < n && atomic_load(&table[i].at) != (uintptr_t)p) {
        i++;
    }
    must(i < n);
    return &table[i];
}

void *si_pages_new(size_t n, enum rule r)
{
    (void)pthread_once(&once, install);
    n = round_up(n);
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    must(p != MAP_FAILED);
    (void)pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < PAGES_MAX && atomic_load(&table[i].at) != 0) {
        i++;
    }
    must(i < PAGES_MAX);
    atomic_store(&table[i].n, n);
    atomic_store(&table[i].rule, (int)r);
    atomic_store(&table[i].at, (uintptr_t)p);
    if (i >= atomic_load(&table_used)) {
        atomic_store(&table_used, i + 1);
    }
    (void)pthread_mutex_unlock(&lock);
    return p;
}

void si_pages_protect(void *p, enum pages_access access)
{
    static const int prot[] = {
        [PAGES_NONE] = PROT_NONE,
        [PAGES_READ] = PROT_READ,
        [PAGES_WRITE] = PROT_READ | PROT_WRITE,
    };
    must(mprotect(p, atomic_load(&find(p)->n), prot[access]) == 0);
}

static void unmap(struct mapping *m)
{
    void *p = (void *)atomic_load(&m->at);
    size_t n = atomic_load(&m->n);
    atomic_store(&m->at, 0);
    must(munmap(p, n) == 0);
}

void si_pages_free(void *p)
{
    if (p != NULL) {
        (void)pthread_mutex_lock(&lock);
        unmap(find(p));
        (void)pthread_mutex_unlock(&lock);
    }
}

void si_pages_retire(void *p)
{
    (void)pthread_mutex_lock(&lock);
    struct mapping *m = find(p);
    size_t n = atomic_load(&m->n);
    /* A new mapping in its place gives the memory back. */
    must(mmap(p, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
              0) == p);
    size_t at = n_retired++ % PAGES_RETIRED;
    if (retired[at] != NULL) {
        unmap(find(retired[at]));
    }
    retired[at] = p;
    (void)pthread_mutex_unlock(&lock);
}
