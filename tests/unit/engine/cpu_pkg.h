/* cpu_pkg.h - packages of a few operations, written with build.h into a
 * temporary folder and opened with a backend. */
#pragma once

#include <math.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "base/half.h"
#include "plain.h"
#include "mil/build.h"

struct pkg {
    char dir[256];
    char path[288];
    struct mil_writer *w;
    struct mil_program *p;
    struct mil_function *f;
    struct backend_model *m;
    const struct backend *b;
};

static inline void pkg_begin(struct pkg *k)
{
    struct err e = {0};
    memset(k, 0, sizeof(*k));
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(k->dir, sizeof(k->dir), "%s/aned-cpu-XXXXXX",
                     tmp != NULL ? tmp : "/tmp");
    assert_in_range(n, 1, sizeof(k->dir) - 1);
    assert_non_null(mkdtemp(k->dir));
    (void)snprintf(k->path, sizeof(k->path), "%s/t.mlpackage", k->dir);
    unit_ok(mil_writer_open(k->path, &k->w, &e), &e);
    k->p = mil_writer_program(k->w);
    k->f = mil_add_function(k->p, "main");
}

/* Write the package; it may then be opened any number of times. */
static inline void pkg_finish(struct pkg *k)
{
    struct err e = {0};
    unit_ok(mil_writer_finish(k->w, &e), &e);
}

static inline void pkg_open(struct pkg *k, const struct backend *b,
                            unsigned threads, bool round)
{
    struct err e = {0};
    const struct cpu_conf cpu = {.round_fp16 = round};
    struct backend_conf conf = {.threads = threads, .cpu = &cpu};
    k->b = b;
    unit_ok(b->open(k->path, NULL, &conf, &k->m, &e), &e);
}

static inline void pkg_close(struct pkg *k)
{
    k->b->close(k->m);
    k->m = NULL;
}

static inline void pkg_end(struct pkg *k)
{
    struct err e = {0};
    if (k->m != NULL) {
        pkg_close(k);
    }
    unit_ok(file_rmtree(k->dir, &e), &e);
}

static inline struct tensor pkg_tensor(const char *name, int rank,
                                       const int64_t *dims, const void *data)
{
    union {
        const void *c;
        void *p;
    } u = {.c = data}; /* inputs are only read */
    struct tensor t = {
        .name = name, .dtype = MIL_FP32, .rank = rank, .data = u.p};
    for (int i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
    }
    return t;
}

static inline struct mil_value *pkg_input(struct pkg *k, const char *name,
                                          enum mil_dtype t, int rank,
                                          const int64_t *dims)
{
    return mil_add_input(k->p, k->f, name, t, rank, dims, 1, 16);
}

/* A cheap, fixed sequence in -1 .. 1. */
static inline float pkg_noise(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / 8388608.0f - 1.0f;
}
