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

struct found {
    char path[WORK_ROOM];
    int64_t used_s; /* when it was last worked on */
    uint64_t bytes;
};

static bool is_work(const char *name)
{
    size_t n = strlen(WORK_PREFIX);
    return strncmp(name, WORK_PREFIX, n) == 0 &&
           strlen(name) == n + WORK_NAME_CHARS &&
           strspn(name + n, "0123456789abcdef") == WORK_NAME_CHARS;
}

static int64_t last_used(const char *dir)
{
    char path[WORK_ROOM + 16];
    struct stat st;
    if ((file_join(path, sizeof(path), dir, "journal") &&
         stat(path, &st) == 0) ||
        stat(dir, &st) == 0) {
        return file_mtime_ns(&st) / 1000000000;
    }
    return 0;
}

static int newest_first(const void *a, const void *b)
{
    const struct found *x = a;
    const struct found *y = b;
    return (x->used_s < y->used_s) - (x->used_s > y->used_s);
}

/* At most `max` works of parent, except `spare`. */
static size_t list(const char *parent, const char *spare, struct found *v,
                   size_t max)
{
    size_t n = 0;
    DIR *d = opendir(*parent != '\0' ? parent : ".");
    if (d == NULL) {
        return 0;
    }
    for (struct dirent *it = NULL; n < max && (it = readdir(d)) != NULL;) {
        struct found *f = &v[n];
        if (!is_work(it->d_name) ||
            (spare != NULL && strcmp(it->d_name, spare) == 0) ||
            !file_join(f->path, sizeof(f->path), *parent != '\0' ? parent : ".",
                       it->d_name) ||
            !file_is_dir(f->path)) {
            continue;
        }
        f->used_s = last_used(f->path);
        f->bytes = file_tree_bytes(f->path);
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
        if (file_rmtree(f->path, &e) < 0) {
            log_warn("work", "%s, continuing", e.msg);
        }
    }
    (void)close(fd);
}

void work_sweep(const char *parent, const char *spare)
{
    struct found *v = calloc((size_t)WORKS_MAX * 2, sizeof(*v));
    must(v != NULL);
    size_t n = list(parent, spare, v, (size_t)WORKS_MAX * 2);
    int64_t now = (int64_t)time(NULL);
    uint64_t bytes = 0;
    qsort(v, n, sizeof(*v), newest_first);
    for (size_t i = 0; i < n; i++) {
        bytes += v[i].bytes;
        if (i >= WORKS_MAX || bytes > WORK_BYTES_MAX ||
            now - v[i].used_s > (int64_t)WORK_AGE_S) {
            remove_work(&v[i]);
        }
    }
    free(v);
}

bool work_left(const char *parent)
{
    struct found *v = calloc((size_t)WORKS_MAX * 2, sizeof(*v));
    must(v != NULL);
    size_t n = list(parent, NULL, v, (size_t)WORKS_MAX * 2);
    bool any = false;
    for (size_t i = 0; i < n && !any; i++) {
        char path[WORK_ROOM + 16];
        struct stat st;
        any = file_join(path, sizeof(path), v[i].path, "journal") &&
              stat(path, &st) == 0 && st.st_size > 0;
    }
    free(v);
    return any;
}
