#include "count.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

#define DUMP_MAX 16384 /* bytes; a line a count */
#define PATH_LEN 4096

static atomic_int_fast64_t counts[COUNT_N];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *const names[COUNT_N] = {
#define XX(name, text) text,
    COUNT_OBJECTS(XX) COUNT_LEVELS(XX) COUNT_TOTALS(XX)
#undef XX
};

static void dump_at_exit(void)
{
    si_count_dump(getenv("ANED_STANDIN_COUNTS")); /* NOLINT: at exit */
}

static void watch_exit(void)
{
    if (getenv("ANED_STANDIN_COUNTS") != NULL) { /* NOLINT: set at start */
        must(atexit(dump_at_exit) == 0);
    }
}

void si_count_add(enum count c, int64_t n)
{
    (void)pthread_once(&once, watch_exit);
    /* Relaxed: threads that have nothing else in common stay unordered for
     * ThreadSanitizer. */
    (void)atomic_fetch_add_explicit(&counts[c], n, memory_order_relaxed);
}

int64_t si_count_get(enum count c)
{
    return atomic_load_explicit(&counts[c], memory_order_relaxed);
}

const char *si_count_name(enum count c)
{
    return names[c];
}

int64_t si_count_objects(void)
{
    int64_t n = 0;
#define XX(name, text) n += si_count_get(COUNT_##name);
    COUNT_OBJECTS(XX)
#undef XX
    return n;
}

/* path with "%p" replaced by the process's id. */
static void expand(char *out, size_t size, const char *path)
{
    const char *at = strstr(path, "%p");
    if (at == NULL) {
        (void)snprintf(out, size, "%s", path);
    } else {
        (void)snprintf(out, size, "%.*s%ld%s", (int)(at - path), path,
                       (long)getpid(), at + 2);
    }
}

void si_count_dump(const char *path)
{
    char file[PATH_LEN];
    struct buf b;
    struct err e = {0};
    if (path == NULL) {
        return;
    }
    expand(file, sizeof(file), path);
    buf_init(&b, DUMP_MAX);
    for (int i = 0; i < COUNT_N; i++) {
        buf_printf(&b, "%s %lld\n", names[i],
                   (long long)si_count_get((enum count)i));
    }
    if (!buf_ok(&b) || file_replace(file, b.p, b.n, &e) < 0) {
        (void)fprintf(stderr, "standin: counts not written to %s: %s\n", file,
                      e.msg);
    }
    buf_fini(&b);
}
