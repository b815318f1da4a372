/* array.h - numbers to and from a backend's arrays (backend.h), whatever their
 * type and strides. The caller has locked the array.
 */
#pragma once

#include "engine/backend.h"
#include "engine/tensor.h"

/* A straight line through an array: n elements along `axis` from the index
 * `at` (rank of them) on. */
struct array_line {
    const int64_t *at;
    int axis;
    size_t n;
};

/* The line's elements become p[0], p[step], p[2 * step] ... Integers are
 * rounded to nearest, fp16 as in base/half.h; bools are 0 or 1. */
void array_put(struct backend_array *a, struct array_line l, const float *p,
               size_t step);
/* They become v. */
void array_set(struct backend_array *a, struct array_line l, float v);
/* And back. */
void array_get(const struct backend_array *a, struct array_line l, float *p,
               size_t step);
/* Elements; 0 when they are more than 2^64. */
uint64_t array_count(const struct backend_array *a);
size_t array_dtype_bytes(enum mil_dtype t); /* 0: not of an array */
/* Set the strides of a dense array of its shape. */
void array_lay(struct backend_array *a);

/* `to` becomes `from`, which has the same shape. */
void array_copy(struct backend_array *to, const struct backend_array *from);

/* --- blocks of STATE_BLOCK positions, as saved states have them --- */

/* The layout (struct state_array) of a block of an fp16 array [1, heads,
 * positions, dim]: [heads][STATE_BLOCK][dim]. In files: new orders, new
 * numbers. */
#define LAYOUT_FLAT 1u

/* Bytes of a block of an array of this type; 0: it has no separate positions,
 * or less than a block of them. */
size_t array_block_bytes(const struct mil_type *t);
/* Block b of such an array to `bytes` or from them. False: the array has no
 * positions there. */
CHECKED bool array_block(struct backend_array *a, uint32_t b, void *bytes,
                         bool save);

/* All of an array from a dense one of its shape, or to one; conversions as
 * above. t->dtype may differ from a->dtype. */
void array_from_dense(struct backend_array *a, const struct tensor *t);
void array_to_dense(const struct backend_array *a, struct tensor *t);
