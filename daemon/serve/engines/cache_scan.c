/* cache_scan.c - reads the files at start. A file is kept when its header is
 * sound and its length is the one in the header; else it is removed. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "proto/state_file.h"
#include "serve/engines/cache_impl.h"

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
    const struct cache_key k = {f->fingerprint, f->backend, f->arith,
                                f->long_list};
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
    int fd = -1;
    RETERR(state_file_open(path, &f, &fd, e));
    int rc = fstat(fd, &st) == 0 ? 0 : err_errno(e, errno, path);
    if (rc == 0) {
        add_file(c, id, &f, &st);
        if (id > known) {
            budget_found(c, f.created_ms, (uint64_t)st.st_size, now_ms);
        }
    }
    (void)close(fd);
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
