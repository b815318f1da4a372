/* work_sweep.c - works that nobody came back for: see work.h. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "convert/work.h"

/* Looked at in one sweep; the next one sees the rest. */
#define LISTED_MAX ((size_t)WORKS_MAX * 4)

struct found {
    char path[WORK_ROOM];
    int64_t used_s; /* when it was last worked on */
    uint64_t bytes;
};

static bool is_named(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 &&
           strlen(name) == n + WORK_NAME_CHARS &&
           strspn(name + n, "0123456789abcdef") == WORK_NAME_CHARS;
}

bool work_is_home(const char *name)
{
    return is_named(name, WORK_HOME_PREFIX);
}

static int64_t changed_s(const char *dir, const char *name)
{
    char path[WORK_ROOM + 300];
    struct stat st;
    return file_join(path, sizeof(path), dir, name) && stat(path, &st) == 0
               ? file_mtime_ns(&st) / 1000000000
               : 0;
}

static int64_t last_used(const char *dir)
{
    int64_t journal = changed_s(dir, "journal");
    int64_t folder = changed_s(dir, ".");
    return journal > folder ? journal : folder;
}

static int newest_first(const void *a, const void *b)
{
    const struct found *x = a;
    const struct found *y = b;
    return (x->used_s < y->used_s) - (x->used_s > y->used_s);
}

/* At most `max` folders of parent so named, except `spare`. */
static size_t list(const char *parent, const char *prefix, const char *spare,
                   struct found *v, size_t max)
{
    size_t n = 0;
    DIR *d = opendir(*parent != '\0' ? parent : ".");
    if (d == NULL) {
        return 0;
    }
    for (struct dirent *it = NULL; n < max && (it = readdir(d)) != NULL;) {
        struct found *f = &v[n];
        if (!is_named(it->d_name, prefix) ||
            (spare != NULL && strcmp(it->d_name, spare) == 0) ||
            !file_join(f->path, sizeof(f->path), *parent != '\0' ? parent : ".",
                       it->d_name) ||
            !file_is_dir(f->path)) {
            continue;
        }
        f->used_s = last_used(f->path);
        f->bytes = work_tree_bytes(f->path);
        n++;
    }
    (void)closedir(d);
    return n;
}

/* Unless somebody uses it. */
static void remove_work(const struct found *f)
{
    struct err e = {0};
    int fd = open(f->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        log_info("work_removed", "%s bytes=%llu", f->path,
                 (unsigned long long)f->bytes);
        char bundle[WORK_ROOM + 16];
        (void)snprintf(bundle, sizeof(bundle), "%s" WORK_BUNDLE, f->path);
        if (file_rmtree(bundle, &e) < 0 || file_rmtree(f->path, &e) < 0) {
            log_warn("work", "%s, continuing", e.msg);
        }
    }
    (void)close(fd);
}

/* What is in a folder of the daemon's. */
struct contents {
    bool journal;
    bool bundle; /* a work's, or one on its way */
};

static void look_into(const char *home, struct contents *ret)
{
    DIR *d = opendir(home);
    *ret = (struct contents){.journal = false};
    if (d == NULL) {
        return;
    }
    for (struct dirent *it = NULL; (it = readdir(d)) != NULL;) {
        char path[WORK_ROOM + 300];
        if (!is_named(it->d_name, WORK_PREFIX)) {
            ret->bundle = ret->bundle || (strcmp(it->d_name, ".") != 0 &&
                                          strcmp(it->d_name, "..") != 0);
        } else if (file_join(path, sizeof(path), home, it->d_name)) {
            ret->journal = ret->journal || changed_s(path, "journal") > 0;
        }
    }
    (void)closedir(d);
}

/* Nobody can go on with it: there are no records, or what they speak of was
 * published. */
static bool is_spent(const char *path, const char *prefix)
{
    struct contents c;
    if (strcmp(prefix, WORK_HOME_PREFIX) != 0) {
        return false;
    }
    look_into(path, &c);
    return !c.journal || !c.bundle;
}

static void sweep(const char *parent, const char *prefix, const char *spare)
{
    struct found *v = calloc(LISTED_MAX, sizeof(*v));
    must(v != NULL);
    size_t n = list(parent, prefix, spare, v, LISTED_MAX);
    int64_t now = (int64_t)time(NULL);
    uint64_t bytes = 0;
    qsort(v, n, sizeof(*v), newest_first);
    for (size_t i = 0; i < n; i++) {
        bytes += v[i].bytes;
        if (i >= WORKS_MAX || bytes > WORK_BYTES_MAX ||
            now - v[i].used_s > (int64_t)WORK_AGE_S ||
            is_spent(v[i].path, prefix)) {
            remove_work(&v[i]);
        }
    }
    free(v);
}

void work_sweep(const char *parent, const char *spare)
{
    sweep(parent, WORK_PREFIX, spare);
}

void work_sweep_homes(const char *staging)
{
    sweep(staging, WORK_HOME_PREFIX, NULL);
}

bool work_left(const char *parent)
{
    struct contents c;
    look_into(parent, &c);
    return c.journal;
}
