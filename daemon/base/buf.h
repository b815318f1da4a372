/* buf.h - growing byte buffer with a mandatory limit.
 *
 * A buf never holds more than `max` bytes. An append that would pass this limit
 * does not change the buffer but sets `over`; later appends do nothing. So a
 * caller may append many times and check buf_ok() once. After the first append
 * a NUL follows the bytes; n does not count it.
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
/* Append v as digits. Cheaper than buf_printf: it runs for each token. */
void buf_dec(struct buf *b, uint64_t v);
void buf_hex(struct buf *b, uint64_t v);
/* Little-endian integers. */
void buf_u8(struct buf *b, uint8_t v);
void buf_u16(struct buf *b, uint16_t v);
void buf_u32(struct buf *b, uint32_t v);
void buf_u64(struct buf *b, uint64_t v);
void buf_f32(struct buf *b, float v);
/* Append n uninitialised bytes for the caller to fill; NULL when they do not
 * fit. */
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
/* Whether all bytes were read, and none past the end. */
static inline bool cur_done(const struct cur *c)
{
    return !c->bad && c->at == c->n;
}
