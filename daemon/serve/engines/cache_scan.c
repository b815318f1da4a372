/* cache_scan.c - reads the files at start. A file is kept when its header is
 * sound and its length is the one in the header; else it is removed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "proto/state_file.h"
#include "serve/engines/cache_impl.h"

static int read_header(int fd, struct state_file *ret, struct err *e)
{
    char least[STATE_HEADER_LEAST];
    uint64_t n = 0;
    if (pread(fd, least, sizeof(least), 0) != (ssize_t)sizeof(least)) {
        return err_set(e, ERR_STATE, "too short");
    }
    RETERR(state_file_peek(least, sizeof(least), &n, e));
    char *all = malloc(n);
    if (all == NULL) {
        return err_set(e, ERR_NOMEM, "a header");
    }
    int rc = pread(fd, all, n, 0) == (ssize_t)n
                 ? state_file_get(all, n, ret, e)
                 : err_set(e, ERR_STATE, "too short");
    free(all);
    return rc;
}

/* "0123456789abcdef.state" */
static bool id_of(const char *name, uint64_t *ret)
{
    char *end = NULL;
    if (strspn(name, "0123456789abcdef") != 16 ||
        strcmp(name + 16, CACHE_SUFFIX) != 0) {
        return false;
    }
    *ret = strtoull(name, &end, 16);
    return true;
}

static void add_file(struct cache *c, uint64_t id, const struct state_file *f,
                     const struct stat *st)
{
    const struct cache_key k = {f->fingerprint, f->backend, f->arith_version};
    uint64_t *chain = cache_chain(f->tokens, f->to / STATE_BLOCK);
    struct entry *x =
        cache_entry(c, id, &k, f->from, f->to, chain, (uint64_t)st->st_size);
    x->used_ms = file_mtime_ns(st) / 1000000;
    x->touched_ms = x->used_ms;
    free(chain);
}

static int take_file(struct cache *c, const char *path, uint64_t id,
                     uint64_t known, int64_t now_ms, struct err *e)
{
    struct state_file f = {0};
    struct stat st;
    int rc = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = err_errno(e, errno, path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, ERR_STATE, "not a regular file");
        goto out;
    }
    CHECK(read_header(fd, &f, e));
    if (state_file_bytes(&f) != (uint64_t)st.st_size) {
        rc = err_set(e, ERR_STATE, "not as long as it says");
        goto out;
    }
    add_file(c, id, &f, &st);
    if (id > known) {
        budget_found(c, f.created_ms, (uint64_t)st.st_size, now_ms);
    }
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    state_file_fini(&f);
    return rc;
}

int cache_scan(struct cache *c, uint64_t known, int64_t now_ms, struct err *e)
{
    DIR *d = opendir(c->dir);
    if (d == NULL) {
        return err_errno(e, errno, c->dir);
    }
    for (struct dirent *x = readdir(d); x != NULL; x = readdir(d)) {
        char path[CACHE_PATH_MAX];
        uint64_t id = 0;
        struct err why = {0};
        if (x->d_name[0] == '.' ||
            !file_join(path, sizeof(path), c->dir, x->d_name)) {
            continue;
        }
        int rc = 0;
        if (c->n == CACHE_FILES_MAX || !id_of(x->d_name, &id)) {
            rc = err_set(&why, ERR_STATE, "unfinished, or one too many");
        } else {
            rc = take_file(c, path, id, known, now_ms, &why);
        }
        if (rc == 0) {
            c->last_id = id > c->last_id ? id : c->last_id;
        } else {
            c->stats.refused_damaged++;
            log_info("state_removed", "file=%s error=%s", x->d_name, why.msg);
            (void)unlink(path);
        }
    }
    (void)closedir(d);
    return 0;
}
