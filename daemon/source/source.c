/* source.c - the forms of a model, which one a path has, and the files that are
 * opened for it. Nothing here looks into a file. */
#include "source/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "source/hf/hf.h"
#include "source/onnx/folder.h"

/* A form whose files stand in one folder. */
struct source_form {
    const char *format; /* as gguf_format */
    const char *suffix; /* of a file that is named by itself */
    bool (*marks)(const char *name); /* a file that makes a folder of it */
    bool (*wants)(const char *name); /* a file that is opened */
    const char *const *below; /* files in folders of it, "DIR/FILE", which are
                                 opened where they are; NULL ends. NULL: none */
    int (*open)(const struct source_files *f, struct gguf **ret,
                struct err *e);
};

/* Where a folder is of two forms, the first one is taken. */
static const struct source_form forms[] = {
    {"safetensors", ".safetensors", hf_marks, hf_wants, hf_below, hf_open},
    {"onnx", ".onnx", onnx_marks, onnx_wants, NULL, onnx_open_files},
};

static bool ends(const char *s, const char *suffix)
{
    size_t n = strlen(s);
    size_t m = strlen(suffix);
    return n > m && strcmp(s + n - m, suffix) == 0;
}

/* --- names --- */

struct names {
    size_t n;
    char (*p)[SOURCE_NAME_MAX + 1]; /* owned */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int add_name(struct names *ret, const char *dir, const char *name,
                    struct err *e)
{
    if (ret->n == GGUF_PARTS_MAX) {
        return err_set(e, ERR_GGUF_COUNT, "%s: more than %u files", dir,
                       GGUF_PARTS_MAX);
    }
    (void)snprintf(ret->p[ret->n++], sizeof(*ret->p), "%s", name);
    return 0;
}

/* The form's files in folders of dir, where they are. */
static int list_below(const char *dir, const struct source_form *form,
                      struct names *ret, struct err *e)
{
    char path[PATH_MAX];
    for (size_t i = 0; form->below != NULL && form->below[i] != NULL; i++) {
        if (file_join(path, sizeof(path), dir, form->below[i]) &&
            file_exists(path)) {
            RETERR(add_name(ret, dir, form->below[i], e));
        }
    }
    return 0;
}

/* What of a folder the form wants, in order. only: of the files that mark it
 * just this one; NULL: all. */
static int list_folder(const char *dir, const struct source_form *form,
                       const char *only, struct names *ret, struct err *e)
{
    int rc = 0;
    DIR *d = opendir(dir);
    if (d == NULL) {
        return err_errno(e, errno, dir);
    }
    for (const struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        bool mark = form->marks(f->d_name);
        if (!form->wants(f->d_name) || strlen(f->d_name) > SOURCE_NAME_MAX ||
            (mark && only != NULL && strcmp(f->d_name, only) != 0)) {
            continue;
        }
        rc = add_name(ret, dir, f->d_name, e);
        if (rc < 0) {
            break;
        }
    }
    (void)closedir(d);
    rc = rc < 0 ? rc : list_below(dir, form, ret, e);
    if (ret->n > 0) {
        qsort(ret->p, ret->n, sizeof(*ret->p), by_name);
    }
    return rc;
}

/* The form that a folder has; NULL: none. */
static int form_of_folder(const char *dir, const struct source_form **ret,
                          struct err *e)
{
    size_t best = countof(forms);
    DIR *d = opendir(dir);
    if (d == NULL) {
        return err_errno(e, errno, dir);
    }
    for (const struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        for (size_t i = 0; i < best; i++) {
            if (forms[i].marks(f->d_name)) {
                best = i;
            }
        }
    }
    (void)closedir(d);
    if (best == countof(forms)) {
        return err_set(e, ERR_INVALID,
                       "%s: a folder with no model that aned reads: no "
                       "*.safetensors, no *.onnx (GGUFs are named one by one)",
                       dir);
    }
    *ret = &forms[best];
    return 0;
}

/* --- files --- */

/* Whether the real path of a link lies where it may: in the folder, or in the
 * hub cache's blobs. */
static bool inside(const char *dir, const char *real)
{
    char root[PATH_MAX];
    if (realpath(dir, root) == NULL) {
        return false;
    }
    size_t n = strlen(root);
    if (strncmp(real, root, n) == 0 && real[n] == '/') {
        return true;
    }
    char *slash = strrchr(root, '/'); /* DIR/snapshots/REVISION */
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    if (!ends(root, "/snapshots")) {
        return false;
    }
    n = strlen(root) - strlen("snapshots"); /* up to the slash */
    return strncmp(real, root, n) == 0 &&
           strncmp(real + n, "blobs/", strlen("blobs/")) == 0;
}

/* A link in place of the file. */
static int open_link(const char *dir, const char *name, struct err *e)
{
    char path[PATH_MAX];
    char real[PATH_MAX];
    if (!file_join(path, sizeof(path), dir, name)) {
        return err_set(e, ERR_INVALID, "%s: the path is too long", name);
    }
    if (realpath(path, real) == NULL) {
        return err_errno(e, errno, path);
    }
    if (!inside(dir, real)) {
        return err_set(e, ERR_INVALID,
                       "%s: a symbolic link that leaves the model's folder",
                       path);
    }
    int fd = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    return fd >= 0 ? fd : err_errno(e, errno, path);
}

/* As openat, of "FILE" or "DIR/FILE"; neither is a link. */
static int open_plain(int at, const char *name)
{
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
    char dir[SOURCE_NAME_MAX + 1];
    const char *slash = strchr(name, '/');
    if (slash == NULL) {
        return openat(at, name, flags);
    }
    (void)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - name), name);
    int below = openat(at, dir, flags | O_DIRECTORY);
    int fd = below >= 0 ? openat(below, slash + 1, flags) : -1;
    int why = errno;
    if (below >= 0) {
        (void)close(below);
    } else if (why == ENOTDIR) { /* a link, on some systems */
        why = ELOOP;
    }
    errno = why;
    return fd;
}

/* A descriptor, or an error. */
static int open_in(int at, const char *dir, const char *name, struct err *e)
{
    struct stat st;
    int fd = open_plain(at, name);
    if (fd < 0 && errno == ELOOP) {
        fd = open_link(dir, name, e);
    } else if (fd < 0) {
        fd = err_errno(e, errno, name);
    }
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
        (void)close(fd);
        return err_set(e, ERR_INVALID, "%s is no regular file", name);
    }
    return fd;
}

/* The descriptors come in rising order: the folder's stays open meanwhile. */
static int open_all(const char *dir, struct source_files *f, size_t n,
                    struct err *e)
{
    int rc = 0;
    int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0) {
        return err_errno(e, errno, dir);
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        int fd = open_in(at, dir, f->names[i], e);
        rc = fd < 0 ? fd : 0;
        if (rc == 0) {
            f->parts.fd[f->parts.n++] = fd;
        }
    }
    (void)close(at);
    return rc;
}

static int open_folder(const char *path, const char *dir, const char *only,
                       const struct source_form *form,
                       struct source_files *ret, struct err *e)
{
    struct source_files f = {.form = form, .whole = only == NULL};
    struct names names = {.p = calloc(GGUF_PARTS_MAX, sizeof(*names.p))};
    must(names.p != NULL); /* fixed size */
    f.parts.path = path;
    f.names = names.p;
    int rc = list_folder(dir, form, only, &names, e);
    rc = rc < 0 ? rc : open_all(dir, &f, names.n, e);
    if (rc < 0) {
        source_files_close(&f);
        return rc;
    }
    *ret = f;
    return 0;
}

/* One file of a folder, by its suffix; NULL: a GGUF. */
static const struct source_form *form_of_file(const char *path)
{
    for (size_t i = 0; i < countof(forms); i++) {
        if (ends(path, forms[i].suffix)) {
            return &forms[i];
        }
    }
    return NULL;
}

int source_files_open(const char *path, int fd, struct source_files *ret,
                      struct err *e)
{
    const struct source_form *form = NULL;
    char dir[PATH_MAX];
    if (path != NULL && file_is_dir(path)) {
        RETERR(form_of_folder(path, &form, e));
        return open_folder(path, path, NULL, form, ret, e);
    }
    form = path != NULL ? form_of_file(path) : NULL;
    if (form != NULL && file_exists(path)) {
        const char *slash = strrchr(path, '/');
        file_parent(path, dir, sizeof(dir));
        return open_folder(path, dir, slash != NULL ? slash + 1 : path, form,
                           ret, e);
    }
    struct source_files f = {.whole = true};
    RETERR(gguf_parts_open(path, fd, &f.parts, e));
    *ret = f;
    return 0;
}

int source_look(const char *path, struct err *e)
{
    const struct source_form *form = NULL;
    return file_is_dir(path) ? form_of_folder(path, &form, e) : 0;
}

void source_files_close(struct source_files *f)
{
    gguf_parts_close(&f->parts);
    free(f->names);
    f->names = NULL;
}

int source_file_fd(const struct source_files *f, const char *name)
{
    for (size_t i = 0; f->names != NULL && i < f->parts.n; i++) {
        if (strcmp(f->names[i], name) == 0) {
            return f->parts.fd[i];
        }
    }
    return -1;
}

/* --- reading --- */

int source_open_files(const struct source_files *f, struct gguf **ret,
                      struct err *e)
{
    return f->form != NULL ? f->form->open(f, ret, e)
                           : gguf_open_parts(&f->parts, ret, e);
}

const char *source_format(const struct source_files *f)
{
    return f->form != NULL ? f->form->format : "gguf";
}

int source_open(const char *path, struct gguf **ret, struct err *e)
{
    struct source_files f = {.form = NULL};
    RETERR(source_files_open(path, -1, &f, e));
    int rc = source_open_files(&f, ret, e);
    source_files_close(&f);
    return rc < 0 ? err_prefix(e, rc, "%s", path) : 0;
}

/* --- what it is called --- */

/* The last component of p[0..n), without slashes behind it. */
static struct span last_of(const char *p, size_t n)
{
    while (n > 1 && p[n - 1] == '/') {
        n--;
    }
    size_t from = n;
    while (from > 0 && p[from - 1] != '/') {
        from--;
    }
    return (struct span){p + from, n - from};
}

static bool is(struct span s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

/* The name of a folder p[0..n), which may be a revision in the hub's cache. */
static struct span name_of_folder(const char *p, size_t n)
{
    static const char begins[] = "models--";
    struct span own = last_of(p, n);
    struct span above = last_of(p, (size_t)(own.p - p));
    struct span repository = last_of(p, (size_t)(above.p - p));
    size_t m = strlen(begins);
    if (!is(above, "snapshots") || repository.n <= m ||
        memcmp(repository.p, begins, m) != 0) {
        return own;
    }
    size_t from = repository.n;
    while (from > m && memcmp(repository.p + from - 2, "--", 2) != 0) {
        from--;
    }
    return from < repository.n
               ? (struct span){repository.p + from, repository.n - from}
               : own;
}

struct span source_stem(const char *path)
{
    struct span s = last_of(path, strlen(path));
    size_t before = (size_t)(s.p - path);
    for (size_t i = 0; i < countof(forms) && s.p[s.n] == '\0'; i++) {
        bool plain = strncmp(s.p, "model", 5) == 0 &&
                     strcmp(s.p + 5, forms[i].suffix) == 0;
        if (plain && before > 1) {
            return name_of_folder(path, before);
        }
        if (ends(s.p, forms[i].suffix)) {
            return (struct span){s.p, s.n - strlen(forms[i].suffix)};
        }
    }
    size_t n = s.p[s.n] == '\0' ? gguf_stem(s.p) : s.n;
    if (n == s.n) { /* no file of a form: a folder */
        return name_of_folder(path, strlen(path));
    }
    return (struct span){s.p, n};
}
