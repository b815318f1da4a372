/* npy.h - the only array format: numpy's .npy, version 1.0 and 2.0,
 * little-endian, C order. Read: f2 f4 i4 i8 (and b1 u1 i1 u2 u4). Write: f2,
 * f4, i4. Source: numpy/lib/format.py's description of the format. */
#pragma once

#include "base/err.h"

#define NPY_RANK_MAX 8

enum npy_type {
    NPY_F16,
    NPY_F32,
    NPY_I32,
    NPY_I64,
    NPY_BOOL,
    NPY_U8,
    NPY_I8,
    NPY_U16,
    NPY_U32
};

struct npy {
    enum npy_type type;
    int rank;
    int64_t dims[NPY_RANK_MAX];
    uint64_t count; /* elements */
    void *data;     /* owned, malloc */
};

/* Errors: NOT_FOUND, NPY, TOO_BIG (data above max_bytes). */
CHECKED int npy_read(const char *path, uint64_t max_bytes, struct npy *ret,
                     struct err *e);
void npy_fini(struct npy *a);
size_t npy_type_bytes(enum npy_type t);

/* Write data (borrowed) as a whole file. */
CHECKED int npy_write(const char *path, enum npy_type type, int rank,
                      const int64_t *dims, const void *data, struct err *e);
/* Write header only, for streaming: rows follow with write(2). fd is at 0. */
CHECKED int npy_write_header(int fd, enum npy_type type, int rank,
                             const int64_t *dims, struct err *e);
