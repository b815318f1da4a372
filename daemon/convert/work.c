/* work.c - the folder of a conversion that is not over: see work.h.
 *
 * The lock is flock on the folder itself, so it ends with the process, however
 * that ends. Who waited for it may hold a folder that was removed meanwhile:
 * its name must still lead to it.
 */
#include "convert/work.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

#define WAIT_MS 20u

struct work {
    char dir[WORK_ROOM];
    char bundle[WORK_ROOM];
    char key[SHA256_HEX];
    int lock;    /* the folder */
    int journal; /* at its end */
    uint64_t at; /* its bytes */
    struct work_records records;
};

int work_place(const char *parent, const char key[SHA256_HEX],
               char out[WORK_ROOM], struct err *e)
{
    int n = snprintf(out, WORK_ROOM, "%s%s" WORK_PREFIX "%.*s", parent,
                     *parent != '\0' ? "/" : "", (int)WORK_NAME_CHARS, key);
    return n > 0 && n < WORK_ROOM - 128
               ? 0
               : err_set(e, ERR_INVALID, "the path of the bundle is too long");
}

uint64_t work_tree_bytes(const char *place)
{
    char bundle[WORK_ROOM];
    int n = snprintf(bundle, sizeof(bundle), "%s" WORK_BUNDLE, place);
    return n < (int)sizeof(bundle)
               ? file_tree_bytes(place) + file_tree_bytes(bundle)
               : 0;
}

/* --- lock --- */

static bool same_file(int fd, const char *path)
{
    struct stat a;
    struct stat b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

/* A descriptor of the locked folder; -1 with errno, EWOULDBLOCK: in use. */
static int try_lock(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        if (same_file(fd, dir)) {
            return fd;
        }
        errno = EWOULDBLOCK; /* it was removed: the next try makes it */
    }
    int failed = errno;
    (void)close(fd);
    errno = failed;
    return -1;
}

static int lock_folder(struct work *w, struct err *e)
{
    const struct timespec pause = {.tv_nsec = WAIT_MS * 1000000L};
    for (unsigned waited = 0; waited <= WORK_LOCK_MS; waited += WAIT_MS) {
        if (mkdir(w->dir, 0700) != 0 && errno != EEXIST) {
            return err_errno(e, errno, w->dir);
        }
        w->lock = try_lock(w->dir);
        if (w->lock >= 0) {
            return 0;
        }
        if (errno != EWOULDBLOCK && errno != ENOENT) {
            return err_errno(e, errno, w->dir);
        }
        (void)nanosleep(&pause, NULL);
    }
    return err_set(e, ERR_BUSY,
                   "another conversion of this file with these options is at "
                   "work in %s: wait for it, or end it",
                   w->dir);
}

/* --- journal --- */

/* Append one line and sync it. */
static int append(struct work *w, const char *text, struct err *e)
{
    char line[WORK_LINE_MAX + SHA256_HEX];
    char hex[SHA256_HEX];
    uint8_t d[SHA256_BYTES];
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, text, strlen(text));
    sha256_end(&s, d);
    sha256_hex(d, hex);
    int n = snprintf(line, sizeof(line), "%s %s\n", hex, text);
    must(n > 0 && (size_t)n <= WORK_LINE_MAX);
    if (w->at + (uint64_t)n > WORK_JOURNAL_MAX) {
        return 0; /* less is kept, and nothing is wrong */
    }
    int rc =
        file_put(w->journal, line, (size_t)n, (int64_t)w->at, "journal", e);
    rc = rc < 0 ? rc : file_sync(w->journal, "journal", e);
    if (rc == 0) {
        w->at += (uint64_t)n;
    } else if (ftruncate(w->journal, (off_t)w->at) != 0) {
        /* half a line stays: readers stop there */
        log_debug("work", "the journal cannot be cut");
    }
    return rc;
}

static int head(struct work *w, struct err *e)
{
    char text[SHA256_HEX + 16];
    if (ftruncate(w->journal, 0) != 0) {
        return err_errno(e, errno, "journal");
    }
    w->at = 0;
    (void)snprintf(text, sizeof(text), "aned-work 1 %s", w->key);
    return append(w, text, e);
}

static int read_journal(struct work *w, const char *path, struct err *e)
{
    struct buf b = {0};
    size_t whole = 0;
    int rc = file_read(path, WORK_JOURNAL_MAX, &b, e);
    if (rc < 0 && rc != ERR_TOO_BIG) {
        return rc;
    }
    work_records_read(rc == 0 ? b.p : "", rc == 0 ? b.n : 0, w->key,
                      &w->records, &whole);
    buf_fini(&b);
    if (whole == 0) {
        return head(w, e);
    }
    w->at = whole;
    return ftruncate(w->journal, (off_t)whole) == 0
               ? 0
               : err_errno(e, errno, "journal");
}

/* --- what is not recorded goes --- */

/* Of the folder `rel` in the bundle, and those below it: files without a record.
 * Among them are what a killed file_write left beside its file. */
static int prune(const struct work *w, const char *rel, unsigned depth,
                 struct err *e)
{
    char path[WORK_ROOM];
    int rc = 0;
    if (depth > 8 || !file_join(path, sizeof(path), w->bundle, rel)) {
        return err_set(e, ERR_IO, "%s is too deep", rel);
    }
    DIR *d = opendir(path);
    if (d == NULL) {
        return err_errno(e, errno, path);
    }
    for (struct dirent *it = NULL; (it = readdir(d)) != NULL;) {
        char sub[WORK_ROOM];
        char full[WORK_ROOM];
        struct stat st;
        if (strcmp(it->d_name, ".") == 0 || strcmp(it->d_name, "..") == 0) {
            continue;
        }
        int n = snprintf(sub, sizeof(sub), "%s%s%s", rel,
                         *rel != '\0' ? "/" : "", it->d_name);
        if (n >= (int)sizeof(sub) ||
            !file_join(full, sizeof(full), w->bundle, sub) ||
            lstat(full, &st) != 0) {
            rc = err_errno(e, errno, it->d_name);
            break;
        }
        if (S_ISDIR(st.st_mode)) {
            CHECK(prune(w, sub, depth + 1, e));
        } else if (work_records_find(&w->records, sub, false) == NULL &&
                   unlink(full) != 0) {
            rc = err_errno(e, errno, sub);
            break;
        }
    }
out:
    (void)closedir(d);
    return rc;
}

static int move_back(struct work *w, const char *from, struct err *e)
{
    if (from == NULL || !file_exists(from)) {
        return 0;
    }
    if (!work_worth(w)) {
        return err_set(e, ERR_EXISTS, "%s is already there", from);
    }
    RETERR(file_rmtree(w->bundle, e));
    return rename(from, w->bundle) == 0 ? 0 : err_errno(e, errno, from);
}

static int open_parts(struct work *w, const char *moved, struct err *e)
{
    char path[WORK_ROOM];
    (void)snprintf(w->bundle, sizeof(w->bundle), "%.*s" WORK_BUNDLE,
                   WORK_ROOM - 16, w->dir);
    (void)snprintf(path, sizeof(path), "%.*s/journal", WORK_ROOM - 16, w->dir);
    w->journal =
        open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (w->journal < 0) {
        return err_errno(e, errno, path);
    }
    RETERR(read_journal(w, path, e));
    RETERR(move_back(w, moved, e));
    RETERR(file_mkdirs(w->bundle, 0700, e));
    return prune(w, "", 0, e);
}

/* --- open and close --- */

int work_open(const char *parent, const char key[SHA256_HEX], const char *moved,
              struct work **ret, struct err *e)
{
    struct work *w = calloc(1, sizeof(*w));
    must(w != NULL);
    w->lock = w->journal = -1;
    memcpy(w->key, key, SHA256_HEX);
    int rc = work_place(parent, key, w->dir, e);
    rc = rc < 0 ? rc : lock_folder(w, e);
    rc = rc < 0 ? rc : open_parts(w, moved, e);
    if (rc < 0) {
        work_close(w, w->lock < 0 || work_worth(w));
        return rc;
    }
    *ret = w;
    return 0;
}

void work_close(struct work *w, bool keep)
{
    struct err e = {0};
    if (w == NULL) {
        return;
    }
    if (w->journal >= 0) {
        (void)close(w->journal);
    }
    if (!keep && (file_rmtree(w->bundle, &e) < 0 ||
                  file_rmtree(w->dir, &e) < 0)) {
        log_warn("work", "%s: %s, a later conversion removes it, continuing",
                 w->dir, e.msg);
    }
    if (w->lock >= 0) {
        (void)close(w->lock);
    }
    work_records_fini(&w->records);
    free(w);
}

const char *work_dir(const struct work *w)
{
    return w->dir;
}

const char *work_bundle(const struct work *w)
{
    return w->bundle;
}

/* --- records --- */

bool work_worth(const struct work *w)
{
    for (size_t i = 0; i < w->records.n; i++) {
        if (!w->records.v[i].note) {
            return true;
        }
    }
    return false;
}

uint64_t work_bytes(const struct work *w, const char *prefix)
{
    uint64_t n = 0;
    for (size_t i = 0; i < w->records.n; i++) {
        const struct work_record *r = &w->records.v[i];
        n += !r->note && strncmp(r->path, prefix, strlen(prefix)) == 0
                 ? r->bytes
                 : 0;
    }
    return n;
}

const struct work_record *work_find(const struct work *w, const char *path)
{
    return work_records_find(&w->records, path, false);
}

static struct work_record *slot(struct work *w, const char *path, bool note)
{
    for (size_t i = 0; i < w->records.n; i++) {
        struct work_record *r = &w->records.v[i];
        if (r->note == note && strcmp(r->path, path) == 0) {
            return r;
        }
    }
    must(strlen(path) < WORK_PATH_MAX);
    if (w->records.n == WORK_RECORDS_MAX) {
        return NULL;
    }
    struct work_record *r = &w->records.v[w->records.n++];
    *r = (struct work_record){.note = note};
    memcpy(r->path, path, strlen(path) + 1);
    return r;
}

int work_put(struct work *w, const char *path, uint64_t bytes,
             const char sha256[SHA256_HEX], struct err *e)
{
    char text[WORK_LINE_MAX];
    must(strlen(path) < WORK_PATH_MAX);
    (void)snprintf(text, sizeof(text), "file %llu %s %s",
                   (unsigned long long)bytes, sha256, path);
    RETERR(append(w, text, e));
    struct work_record *r = slot(w, path, false);
    if (r != NULL) {
        r->bytes = bytes;
        memcpy(r->sha256, sha256, SHA256_HEX);
    }
    return 0;
}

int work_note(struct work *w, const char *name, const char *text,
              bool *ret_same, struct err *e)
{
    char line[WORK_LINE_MAX];
    char hex[SHA256_HEX];
    uint8_t d[SHA256_BYTES];
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, text, strlen(text));
    sha256_end(&s, d);
    sha256_hex(d, hex);
    const struct work_record *old =
        work_records_find(&w->records, name, true);
    *ret_same = old == NULL || strcmp(old->sha256, hex) == 0;
    if (old != NULL) {
        return 0;
    }
    must(strlen(name) + strlen(text) + SHA256_HEX + 16 < sizeof(line));
    (void)snprintf(line, sizeof(line), "note %s %s", name, text);
    RETERR(append(w, line, e));
    struct work_record *r = slot(w, name, true);
    if (r != NULL) {
        memcpy(r->sha256, hex, SHA256_HEX);
    }
    return 0;
}

int work_forget(struct work *w, struct err *e)
{
    w->records.n = 0;
    RETERR(head(w, e));
    return prune(w, "", 0, e);
}
