/* gguf_make.h - small GGUF files in memory, sound or broken on purpose. */
#pragma once

#include <string.h>

#include "base/buf.h"
#include "source/gguf.h"

static inline void make_str(struct buf *b, const char *s)
{
    buf_u64(b, strlen(s));
    buf_puts(b, s);
}

static inline void make_head(struct buf *b, uint64_t n_tensors, uint64_t n_kv)
{
    buf_init(b, MIB(8));
    buf_put(b, "GGUF", 4);
    buf_u32(b, 3);
    buf_u64(b, n_tensors);
    buf_u64(b, n_kv);
}

static inline void make_u32(struct buf *b, const char *key, uint32_t v)
{
    make_str(b, key);
    buf_u32(b, GGUF_U32);
    buf_u32(b, v);
}

static inline void make_text(struct buf *b, const char *key, const char *v)
{
    make_str(b, key);
    buf_u32(b, GGUF_STRING);
    make_str(b, v);
}

static inline void make_array(struct buf *b, const char *key,
                              enum gguf_kind item, uint64_t n)
{
    make_str(b, key);
    buf_u32(b, GGUF_ARRAY);
    buf_u32(b, item);
    buf_u64(b, n);
}

static inline void make_tensor(struct buf *b, const char *name, uint32_t n_dims,
                               const uint64_t *dims, uint32_t type,
                               uint64_t offset)
{
    make_str(b, name);
    buf_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) {
        buf_u64(b, dims[i]);
    }
    buf_u32(b, type);
    buf_u64(b, offset);
}

static inline void make_pad(struct buf *b, size_t align)
{
    while (b->n % align != 0) {
        buf_u8(b, 0);
    }
}

static inline void make_zeros(struct buf *b, size_t n)
{
    while (n-- > 0) {
        buf_u8(b, 0);
    }
}

/* Architecture "t", two F32 tensors a (4 x 2) and b (8), every scalar kind. */
static inline void make_sound(struct buf *b)
{
    static const uint64_t a_dims[] = {4, 2};
    static const uint64_t b_dims[] = {8};
    make_head(b, 2, 5);
    make_text(b, "general.architecture", "t");
    make_u32(b, "t.block_count", 3);
    make_str(b, "t.eps");
    buf_u32(b, GGUF_F32);
    buf_f32(b, 0.5f);
    make_str(b, "t.flag");
    buf_u32(b, GGUF_BOOL);
    buf_u8(b, 1);
    make_array(b, "t.list", GGUF_I32, 3);
    buf_u32(b, 7);
    buf_u32(b, (uint32_t)-8);
    buf_u32(b, 9);
    make_tensor(b, "b", 1, b_dims, GGML_F32, 32);
    make_tensor(b, "a", 2, a_dims, GGML_F32, 0);
    make_pad(b, 32);
    for (int i = 0; i < 16; i++) {
        buf_f32(b, (float)i);
    }
}

/* Tensor i is in part 1 + i, or in the last one; the first one has none. */
static inline size_t make_part_of(size_t i, size_t count)
{
    return i + 1 < count ? i + 1 : count - 1;
}

/* Part `no` (from 0) of `count` of g, whose bytes are `file`. The first one has
 * its metadata. What it says of itself is `says`. */
struct make_says {
    uint32_t no, count, tensors;
};
static inline void make_part(struct buf *b, const struct gguf *g,
                             const uint8_t *file, size_t no, size_t count,
                             const struct make_says *says)
{
    size_t n = 0;
    uint64_t offset = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        n += make_part_of(i, count) == no;
    }
    make_head(b, n, 3 + (no == 0 ? gguf_n_kv(g) : 0));
    make_u32(b, "split.no", says->no);
    make_u32(b, "split.count", says->count);
    make_u32(b, "split.tensors.count", says->tensors);
    if (no == 0) {
        const struct gguf_kv *last = gguf_kv_at(g, gguf_n_kv(g) - 1);
        buf_put(b, file + 24, (size_t)(last->p + last->bytes - (file + 24)));
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (make_part_of(i, count) == no) {
            make_tensor(b, t->name, t->n_dims, t->dims, t->type, offset);
            offset += (t->bytes + 31) / 32 * 32;
        }
    }
    make_pad(b, 32);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (make_part_of(i, count) == no) {
            buf_put(b, t->data, (size_t)t->bytes);
            make_pad(b, 32);
        }
    }
}
