#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/parse.h"
#include "count.h"

#define FILE_MAX   65536 /* bytes */
#define FAULTS_MAX 64    /* of one file */
#define MS_MAX     600000

struct entry {
    enum fault kind;
    char model[FAULT_PATH_MAX];
    bool has_function;
    char function[FAULT_TEXT_MAX];
    uint64_t from, times, asked;
    char once[FAULT_PATH_MAX]; /* "": no such file */
    struct fault_hit hit;
};

static const char *const kinds[FAULT_N] = {
#define XX(name, text) [FAULT_##name] = (text),
    FAULT_MAP(XX)
#undef XX
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static struct fault_conf conf;
static struct entry entries[FAULTS_MAX];
static size_t n_entries;
static char counts_file[FAULT_PATH_MAX];
static bool was_read;
static struct stat seen; /* the file's, when it was read; zero: no file */

__attribute__((noreturn)) static void bad(const char *line)
{
    (void)fprintf(stderr, "standin: fault file: not understood: %s\n", line);
    abort();
}

/* --- one line --- */

static void copy(char *out, size_t size, const char *s, const char *line)
{
    if ((size_t)snprintf(out, size, "%s", s) >= size) {
        bad(line);
    }
}

static uint64_t number(const char *s, uint64_t max, const char *line)
{
    uint64_t n = 0;
    if (!parse_u64(s, max, &n)) {
        bad(line);
    }
    return n;
}

static void arith(const char *v, const char *line)
{
    if (strcmp(v, "fp16") != 0 && strcmp(v, "fp32") != 0) {
        bad(line);
    }
    conf.fp32 = strcmp(v, "fp32") == 0;
}

/* false: not a setting. */
static bool setting(const char *key, const char *v, const char *line)
{
    if (strcmp(key, "arith") == 0) {
        arith(v, line);
    } else if (strcmp(key, "threads") == 0) {
        conf.threads = (unsigned)number(v, 64, line);
    } else if (strcmp(key, "width_bits") == 0) {
        conf.width_bits = (int64_t)number(v, 65536, line);
    } else if (strcmp(key, "load_ms") == 0) {
        conf.load_ms = (unsigned)number(v, MS_MAX, line);
    } else if (strcmp(key, "shape_ms") == 0) {
        conf.shape_ms = (unsigned)number(v, MS_MAX, line);
    } else if (strcmp(key, "cache") == 0) {
        copy(conf.cache, sizeof(conf.cache), v, line);
    } else if (strcmp(key, "neural_engine") == 0) {
        conf.neural_engine = number(v, 1, line) == 1;
    } else if (strcmp(key, "os_build") == 0) {
        copy(conf.os_build, sizeof(conf.os_build), v, line);
    } else if (strcmp(key, "prints") == 0) {
        conf.prints = number(v, 1, line) == 1;
    } else if (strcmp(key, "counts") == 0) {
        copy(counts_file, sizeof(counts_file), v, line);
    } else {
        return false;
    }
    return true;
}

static void option(struct entry *x, const char *word, const char *line)
{
    const char *v = strchr(word, '=');
    if (v == NULL) {
        bad(line);
    }
    size_t n = (size_t)(v++ - word);
    if (n == 8 && memcmp(word, "function", n) == 0) {
        x->has_function = true;
        copy(x->function, sizeof(x->function), v, line);
    } else if (n == 4 && memcmp(word, "from", n) == 0) {
        x->from = number(v, UINT32_MAX, line);
    } else if (n == 5 && memcmp(word, "times", n) == 0) {
        x->times = number(v, UINT32_MAX, line);
    } else if (n == 4 && memcmp(word, "once", n) == 0) {
        copy(x->once, sizeof(x->once), v, line);
    } else if (n == 2 && memcmp(word, "ms", n) == 0) {
        x->hit.ms = (unsigned)number(v, MS_MAX, line);
    } else if (n == 3 && memcmp(word, "ops", n) == 0) {
        copy(x->hit.ops, sizeof(x->hit.ops), v, line);
    } else {
        bad(line);
    }
}

static void fault(const char *key, char *v, const char *line)
{
    size_t k = 0;
    while (k < FAULT_N && strcmp(kinds[k], key) != 0) {
        k++;
    }
    if (k == FAULT_N || n_entries == FAULTS_MAX) {
        bad(line);
    }
    struct entry *x = &entries[n_entries++];
    *x = (struct entry){.kind = (enum fault)k, .from = 1, .times = UINT64_MAX};
    char *rest = NULL;
    char *word = strtok_r(v, " \t", &rest);
    if (word == NULL) {
        bad(line);
    }
    copy(x->model, sizeof(x->model), word, line);
    while ((word = strtok_r(NULL, " \t", &rest)) != NULL) {
        option(x, word, line);
    }
}

/* s without blanks at both ends, in place. */
static char *trim(char *s)
{
    s += strspn(s, " \t\r");
    size_t n = strlen(s);
    while (n > 0 && strchr(" \t\r", s[n - 1]) != NULL) {
        s[--n] = '\0';
    }
    return s;
}

static void read_line(char *s)
{
    char line[FILE_MAX];
    char *hash = strchr(s, '#');
    if (hash != NULL) {
        *hash = '\0';
    }
    s = trim(s);
    if (s[0] == '\0') {
        return;
    }
    copy(line, sizeof(line), s, s);
    char *v = strchr(s, '=');
    if (v == NULL) {
        bad(line);
    }
    *v++ = '\0';
    s = trim(s);
    v = trim(v);
    if (!setting(s, v, line)) {
        fault(s, v, line);
    }
}

/* --- the file --- */

static void defaults(void)
{
    conf = (struct fault_conf){.threads = 1,
                               .neural_engine = true,
                               .prints = true,
                               .os_build = "standin"};
    n_entries = 0;
    counts_file[0] = '\0';
}

static void read_file(const char *path)
{
    struct buf b;
    struct err e = {0};
    int rc = file_read(path, FILE_MAX - 1, &b, &e);
    if (rc < 0) { /* replaced just now: the next question sees the new one */
        was_read = false;
        return;
    }
    defaults();
    char *rest = NULL;
    for (char *s = b.n > 0 ? strtok_r(b.p, "\n", &rest) : NULL; s != NULL;
         s = strtok_r(NULL, "\n", &rest)) {
        read_line(s);
    }
    buf_fini(&b);
    if (counts_file[0] != '\0') {
        si_count_dump(counts_file);
    }
}

/* Called with the lock held. */
static void refresh(void)
{
    const char *path = getenv("ANED_STANDIN"); /* NOLINT: set at start */
    struct stat now = {0};
    if (path != NULL && stat(path, &now) != 0) {
        now = (struct stat){0};
    }
    if (was_read && now.st_ino == seen.st_ino && file_unwritten(&seen, &now)) {
        return;
    }
    seen = now;
    was_read = true;
    if (now.st_ino == 0) {
        defaults();
    } else {
        read_file(path);
    }
}

void si_fault_conf(struct fault_conf *ret)
{
    (void)pthread_mutex_lock(&lock);
    refresh();
    *ret = conf;
    (void)pthread_mutex_unlock(&lock);
}

static bool matches(const struct entry *x, const struct fault_target *t)
{
    if (x->has_function &&
        strcmp(x->function, t->function != NULL ? t->function : "") != 0) {
        return false;
    }
    return strcmp(x->model, "*") == 0 ||
           (t->path != NULL && fnmatch(x->model, t->path, 0) == 0) ||
           (t->source != NULL && fnmatch(x->model, t->source, 0) == 0);
}

/* Whether this process is the one that may. */
static bool first(const char *file)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)close(fd);
    } else if (errno != EEXIST) {
        bad(file);
    }
    return fd >= 0;
}

bool si_fault_hit(enum fault f, const struct fault_target *t,
                  struct fault_hit *ret)
{
    bool hit = false;
    (void)pthread_mutex_lock(&lock);
    refresh();
    size_t i = 0;
    while (i < n_entries &&
           (entries[i].kind != f || !matches(&entries[i], t))) {
        i++;
    }
    if (i < n_entries) {
        struct entry *x = &entries[i];
        x->asked++;
        hit = x->asked >= x->from && x->asked - x->from < x->times &&
              (x->once[0] == '\0' || first(x->once));
        if (hit && ret != NULL) {
            *ret = x->hit;
        }
    }
    (void)pthread_mutex_unlock(&lock);
    if (hit) {
        si_count_add(COUNT_FAULTS, 1);
    }
    return hit;
}

void si_fault_sleep(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000,
                         .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}
