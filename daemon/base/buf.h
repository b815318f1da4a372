/* buf.h - growing byte buffer with a mandatory limit.
 *
 * A buf never holds more than `max` bytes: an append that would pass it leaves
 * the buffer as it was and sets `over`; later appends do nothing. So a writer
 * may append many times and look at buf_ok() once. p is always NUL terminated
 * after the first append (the NUL is not counted in n).
 */
#pragma once

#include "base/err.h"

struct buf {
    char *p; /* owned; NULL while empty */
    size_t n;
    size_t cap;
    size_t max; /* bytes */
    bool over;  /* something did not fit, or memory ran out */
};

void buf_init(struct buf *b, size_t max);
void buf_fini(struct buf *b);  /* NULL and zeroed are fine */
void buf_clear(struct buf *b); /* n = 0, over = false; memory stays */

void buf_put(struct buf *b, const void *p, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Digits, without a printf's price: what is written for each token. */
void buf_dec(struct buf *b, uint64_t v);
void buf_hex(struct buf *b, uint64_t v);
/* Little-endian integers. */
void buf_u8(struct buf *b, uint8_t v);
void buf_u16(struct buf *b, uint16_t v);
void buf_u32(struct buf *b, uint32_t v);
void buf_u64(struct buf *b, uint64_t v);
void buf_f32(struct buf *b, float v);
/* n uninitialised bytes to write into; NULL when they do not fit. */
void *buf_grow(struct buf *b, size_t n);
/* Drop n bytes (<= b->n) from the front. */
void buf_shift(struct buf *b, size_t n);

static inline bool buf_ok(const struct buf *b)
{
    return !b->over;
}

/* Bounds-checked little-endian reader over borrowed bytes: after the first
 * read past the end `bad` is set and every read gives zero. */
struct cur {
    const uint8_t *p;
    size_t n;
    size_t at;
    bool bad;
};

static inline struct cur cur_of(const void *p, size_t n)
{
    return (struct cur){.p = p, .n = n};
}

uint8_t cur_u8(struct cur *c);
uint16_t cur_u16(struct cur *c);
uint32_t cur_u32(struct cur *c);
uint64_t cur_u64(struct cur *c);
float cur_f32(struct cur *c);
/* n bytes borrowed from the input, or NULL (and bad). */
const void *cur_bytes(struct cur *c, size_t n);
/* All read, and nothing read past the end. */
static inline bool cur_done(const struct cur *c)
{
    return !c->bad && c->at == c->n;
}
