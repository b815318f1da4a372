/* safetensors.h - one safetensors file, which may be hostile: where its tensors
 * lie.
 *
 * A file is u64 n, n bytes of JSON ({"name": {"dtype", "shape",
 * "data_offsets": [begin, end]}, "__metadata__": {...}}), then the tensors'
 * bytes, from which the offsets count. Every number is checked: a tensor lies
 * inside the file, its bytes are what its shape says, no two share a byte, no
 * name stands twice. Holes are no fault.
 *
 * Thread: read-only after open, any number of threads.
 */
#pragma once

#include "base/err.h"
#include "proto/limits.h"

enum safetensors_type {
    SAFETENSORS_F32,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_F8_E4M3, /* no infinities; 0x7f and 0xff are NaN */
    SAFETENSORS_F8_E5M2,
    SAFETENSORS_OTHER, /* known to the format, or to nobody: not read */
};

struct safetensors_tensor {
    const char *name; /* NUL terminated, owned by the file's object */
    enum safetensors_type type;
    const char *type_name; /* as it stands in the file */
    uint32_t n_dims;
    uint64_t dims[SAFETENSORS_DIMS_MAX]; /* numpy's order: the last is a row */
    const uint8_t *data;
    uint64_t bytes;
};

struct safetensors;

/* p[0..n) is the whole file, borrowed: it must outlive ret, and may be a mapping
 * (its header is copied under gguf_guard). Errors: SAFETENSORS, NOMEM,
 * SOURCE_CHANGED. */
CHECKED int safetensors_open(const void *p, size_t n, struct safetensors **ret,
                             struct err *e);
void safetensors_close(struct safetensors *s); /* NULL is fine */

size_t safetensors_count(const struct safetensors *s);
/* In the order of their bytes. */
const struct safetensors_tensor *safetensors_at(const struct safetensors *s,
                                                size_t i);
/* NULL: there is no such tensor. */
const struct safetensors_tensor *
safetensors_find(const struct safetensors *s, const char *name);
