/* room.h - small models and their conversions in a temporary folder. */
#pragma once

#include <dirent.h>
#include <unistd.h>

#include "base/file.h"
#include "convert/convert.h"
#include "mil/mil.h"
#include "mkgguf.h"

static char room[64]; /* a temporary folder of this program */

/* A path in it, good until the 4th next call with another name. */
static inline const char *at(const char *name)
{
    static char path[4][256];
    static unsigned next;
    char p[256];
    (void)snprintf(p, sizeof(p), "%s/%s", room, name);
    for (unsigned i = 0; i < countof(path); i++) {
        if (strcmp(path[i], p) == 0) {
            return path[i];
        }
    }
    memcpy(path[next % 4], p, sizeof(p));
    return path[next++ % 4];
}

static inline int setup(void **state)
{
    (void)state;
    (void)snprintf(room, sizeof(room), "/tmp/aned-convert-XXXXXX");
    return mkdtemp(room) != NULL ? 0 : -1;
}

static inline int teardown(void **state)
{
    (void)state;
    struct err e = {0};
    return file_rmtree(room, &e);
}

static inline unsigned count_entries(const char *dir)
{
    unsigned n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *x = readdir(d); x != NULL; x = readdir(d)) {
        n += strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0;
    }
    (void)closedir(d);
    return n;
}

static inline const char *write_model(const struct mk *m, const char *name)
{
    struct err e = {0};
    struct buf b = mk_gguf(m);
    const char *path = at(name);
    unit_ok(file_write(path, b.p, b.n, &e), &e);
    buf_fini(&b);
    return path;
}

static inline struct convert_options options(const char *source,
                                             const char *out)
{
    struct convert_options o;
    convert_options_init(&o);
    o.source = source;
    o.out = out;
    o.threads = 2;
    return o;
}

static inline const struct mil_op *find_op(const struct mil_function *f,
                                           const char *type, const char *out)
{
    for (size_t i = 0; i < f->body->n_ops; i++) {
        const struct mil_op *op = f->body->ops[i];
        if (strcmp(op->type, type) == 0 && op->n_outputs > 0 &&
            strcmp(op->outputs[0]->name, out) == 0) {
            return op;
        }
    }
    return NULL;
}
