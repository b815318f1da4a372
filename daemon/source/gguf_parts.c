/* Split models: which files belong together, by name and by what they say of
 * themselves; opening them; one table of tensors for all.
 *
 * A part is a GGUF of its own, whose offsets count from its own data. It says
 * which one it is and how many there are (split.no, split.count), and how many
 * tensors all of them hold. The first part has the metadata. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "source/gguf_impl.h"

/* --- names --- */

#define PART_FORM "-00000-of-00000.gguf" /* 0 is any digit */

bool gguf_part_of(const char *path, uint32_t *ret_no, uint32_t *ret_count)
{
    size_t n = strlen(path);
    size_t len = strlen(PART_FORM);
    uint32_t numbers[2] = {0, 0};
    if (n <= len || path[n - len - 1] == '/') {
        return false;
    }
    const char *p = path + n - len;
    for (size_t i = 0; i < len; i++) {
        bool digit = p[i] >= '0' && p[i] <= '9';
        if (PART_FORM[i] == '0' ? !digit : p[i] != PART_FORM[i]) {
            return false;
        }
        if (digit) {
            uint32_t *to = &numbers[i > 6]; /* the second one begins at 10 */
            *to = *to * 10 + (uint32_t)(p[i] - '0');
        }
    }
    *ret_no = numbers[0];
    *ret_count = numbers[1];
    return numbers[0] >= 1 && numbers[0] <= numbers[1];
}

size_t gguf_stem(const char *name)
{
    size_t n = strlen(name);
    uint32_t no = 0;
    uint32_t count = 0;
    if (gguf_part_of(name, &no, &count)) {
        return n - strlen(PART_FORM);
    }
    return n > 5 && strcmp(name + n - 5, ".gguf") == 0 ? n - 5 : n;
}

enum { PATH_ROOM = 4096 }; /* longer ones are never parts */

/* The path of part i beside p->path, which is a part by its name. */
static void part_path(const struct gguf_parts *p, size_t i, char out[PATH_ROOM])
{
    size_t n = strlen(p->path) - strlen(PART_FORM);
    (void)snprintf(out, PATH_ROOM, "%.*s-%05zu-of-%05zu.gguf", (int)n, p->path,
                   i + 1, p->n);
}

/* --- files --- */

/* O_NONBLOCK: a FIFO must not hang us before it is refused. */
static int open_path(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

int gguf_parts_open(const char *path, int fd, struct gguf_parts *ret,
                    struct err *e)
{
    struct gguf_parts p = {.path = path, .n = 1};
    uint32_t no = 0;
    uint32_t count = 0;
    if (path != NULL && strlen(path) < PATH_ROOM &&
        gguf_part_of(path, &no, &count) && count <= GGUF_PARTS_MAX) {
        p.n = count;
        p.named = no - 1;
    }
    int mine = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : open_path(path);
    if (mine < 0) {
        return err_errno(e, errno, path != NULL ? path : "source");
    }
    for (size_t i = 0; i < p.n; i++) {
        char other[PATH_ROOM];
        p.fd[i] = mine;
        if (i != p.named) {
            part_path(&p, i, other);
            p.fd[i] = open_path(other);
            p.error[i] = p.fd[i] < 0 ? errno : 0;
        }
    }
    *ret = p;
    return 0;
}

void gguf_parts_close(struct gguf_parts *p)
{
    for (size_t i = 0; i < p->n; i++) {
        if (p->fd[i] >= 0) {
            (void)close(p->fd[i]);
        }
    }
    p->n = 0;
}

/* --- one of many --- */

static int check_part(const struct gguf *g, size_t i, size_t n,
                      const struct gguf *first, struct err *e)
{
    const struct gguf_split *s = &g->split;
    if (s->count != (int64_t)n || s->no != (int64_t)i) {
        return err_set(e, ERR_GGUF_SPLIT,
                       "part %zu of %zu says that it is part %lld of %lld",
                       i + 1, n, (long long)s->no + 1, (long long)s->count);
    }
    if (s->tensors != first->split.tensors) {
        return err_set(e, ERR_GGUF_SPLIT,
                       "part %zu of %zu is of a model of %lld tensors, the "
                       "first one of %lld",
                       i + 1, n, (long long)s->tensors,
                       (long long)first->split.tensors);
    }
    return 0;
}

/* One table of the tensors of all parts, in the first one's arena. */
static int join_tables(struct gguf **parts, size_t n, struct err *e)
{
    struct gguf *g = parts[0];
    size_t all = 0; /* no overflow: each is at most GGUF_TENSORS_MAX */
    for (size_t i = 0; i < n; i++) {
        all += parts[i]->n_tensors;
    }
    if ((int64_t)all != g->split.tensors) {
        return err_set(e, ERR_GGUF_SPLIT,
                       "the %zu parts hold %zu tensors; the model has %lld", n,
                       all, (long long)g->split.tensors);
    }
    if (all > GGUF_TENSORS_MAX) {
        return err_set(e, ERR_GGUF_COUNT, "%zu tensors; the limit is %u", all,
                       GGUF_TENSORS_MAX);
    }
    struct gguf_tensor *t = arena_array(&g->arena, all, sizeof(*t));
    if (t == NULL && all > 0) {
        return err_set(e, ERR_NOMEM, "%zu tensors", all);
    }
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < parts[i]->n_tensors; k++) {
            t[at++] = parts[i]->tensors[k];
        }
    }
    g->tensors = t;
    g->n_tensors = all;
    return gguf_index_tensors(g, e);
}

/* The first of n > 1 parts becomes the whole and owns the others; on an error
 * they stay the caller's. */
static int join(struct gguf **parts, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        RETERR(check_part(parts[i], i, n, parts[0], e));
    }
    struct gguf **more = calloc(n, sizeof(*more));
    if (more == NULL) {
        return err_set(e, ERR_NOMEM, "%zu parts", n);
    }
    int rc = join_tables(parts, n, e);
    if (rc < 0) {
        free(more);
        return rc;
    }
    memcpy(more, parts + 1, (n - 1) * sizeof(*more));
    parts[0]->more = more;
    parts[0]->n_more = n - 1;
    return 0;
}

static void close_parts(struct gguf **parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        gguf_close(parts[i]);
    }
}

/* --- opening --- */

static int open_part(const struct gguf_parts *p, size_t i, struct gguf **ret,
                     struct err *e)
{
    char path[PATH_ROOM];
    int rc = 0;
    part_path(p, i, path);
    if (p->fd[i] < 0) {
        rc = err_errno(e, p->error[i], path);
    } else {
        rc = gguf_open_one(p->fd[i], ret, e);
        rc = rc < 0 ? err_prefix(e, rc, "%s", path) : 0;
    }
    return rc < 0 ? err_prefix(e, rc, "part %zu of %zu", i + 1, p->n) : 0;
}

/* The name and the file must agree, or others of the model cannot be found. */
static int check_name(const struct gguf_parts *p, const struct gguf *g,
                      struct err *e)
{
    if (g->split.count > GGUF_PARTS_MAX) {
        return err_set(e, ERR_GGUF_SPLIT, "%lld parts; the limit is %u",
                       (long long)g->split.count, GGUF_PARTS_MAX);
    }
    if (g->split.count != (int64_t)p->n || g->split.no != (int64_t)p->named) {
        return err_set(e, ERR_GGUF_SPLIT,
                       "this is part %lld of %lld of a split model: its name "
                       "must end in -%05lld-of-%05lld.gguf",
                       (long long)g->split.no + 1, (long long)g->split.count,
                       (long long)g->split.no + 1, (long long)g->split.count);
    }
    return 0;
}

int gguf_open_parts(const struct gguf_parts *p, struct gguf **ret,
                    struct err *e)
{
    struct gguf *parts[GGUF_PARTS_MAX] = {NULL};
    struct gguf *g = NULL;
    int rc = gguf_open_one(p->fd[p->named], &g, e);
    parts[p->named] = g;
    CHECK(rc);
    if (g->split.count <= 1) { /* whatever its name says */
        *ret = g;
        return 0;
    }
    CHECK(check_name(p, g, e));
    for (size_t i = 0; i < p->n; i++) {
        CHECK(i == p->named ? 0 : open_part(p, i, &parts[i], e));
    }
    CHECK(join(parts, p->n, e));
    *ret = parts[0];
    return 0;
out:
    close_parts(parts, p->n);
    return rc;
}

int gguf_open(const char *path, struct gguf **ret, struct err *e)
{
    struct gguf_parts p;
    RETERR(gguf_parts_open(path, -1, &p, e));
    int rc = gguf_open_parts(&p, ret, e);
    gguf_parts_close(&p);
    return rc < 0 ? err_prefix(e, rc, "%s", path) : 0;
}

int gguf_open_mems(const struct span *bytes, size_t n, struct gguf **ret,
                   struct err *e)
{
    struct gguf *parts[GGUF_PARTS_MAX] = {NULL};
    int rc = 0;
    must(n >= 1 && n <= GGUF_PARTS_MAX);
    for (size_t i = 0; i < n; i++) {
        CHECK(gguf_open_bytes(bytes[i].p, bytes[i].n, &parts[i], e));
    }
    if (n > 1) {
        CHECK(join(parts, n, e));
    } else if (parts[0]->split.count > 1) {
        CHECK(check_part(parts[0], 0, 1, parts[0], e));
    }
    *ret = parts[0];
    return 0;
out:
    close_parts(parts, n);
    return rc;
}

int gguf_open_mem(const void *p, size_t n, struct gguf **ret, struct err *e)
{
    const struct span whole = {p, n};
    return gguf_open_mems(&whole, 1, ret, e);
}

/* --- what readers ask of the files --- */

static const struct gguf *part(const struct gguf *g, size_t i)
{
    must(i <= g->n_more);
    return i == 0 ? g : g->more[i - 1];
}

size_t gguf_n_parts(const struct gguf *g)
{
    return 1 + g->n_more;
}

int gguf_part_fd(const struct gguf *g, size_t i)
{
    return part(g, i)->fd;
}

static int check_file(const struct gguf *g, struct err *e)
{
    struct stat st;
    if (g->fd < 0) {
        return 0; /* borrowed bytes */
    }
    if (fstat(g->fd, &st) != 0) {
        return err_errno(e, errno, "fstat");
    }
    if (!file_unwritten(&g->st, &st)) {
        return err_set(e, ERR_SOURCE_CHANGED, "%s",
                       err_text(ERR_SOURCE_CHANGED));
    }
    return 0;
}

int gguf_check_unchanged(const struct gguf *g, struct err *e)
{
    for (size_t i = 0; i <= g->n_more; i++) {
        int rc = check_file(part(g, i), e);
        if (rc < 0 && part(g, i)->name != NULL) {
            return err_prefix(e, rc, "%s", part(g, i)->name);
        }
        if (rc < 0) {
            return g->n_more == 0 ? rc
                                  : err_prefix(e, rc, "part %zu of %zu", i + 1,
                                               gguf_n_parts(g));
        }
    }
    return 0;
}
