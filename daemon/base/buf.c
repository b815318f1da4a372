#include "base/buf.h"

#include <stdarg.h>
#include <string.h>

/* Most hold a line, a message or a head: they get there in one step or two. */
enum { CAP_MIN = 64, CAP_SMALL = 4096 };

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_fini(struct buf *b)
{
    if (b != NULL) {
        free(b->p);
        *b = (struct buf){.max = b->max};
    }
}

void buf_clear(struct buf *b)
{
    b->n = 0;
    b->over = false;
    if (b->p != NULL) {
        b->p[0] = '\0';
    }
}

static bool enlarge(struct buf *b, size_t need)
{
    size_t cap = b->cap < CAP_MIN ? CAP_MIN : b->cap;
    while (cap < need) {
        cap *= cap < CAP_SMALL ? 4 : 2;
    }
    char *p = realloc(b->p, cap);
    if (p == NULL) {
        b->over = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

/* Room for n more bytes and the NUL after them. */
static inline bool reserve(struct buf *b, size_t n)
{
    if (b->over || n > b->max - b->n) {
        b->over = true;
        return false;
    }
    size_t need = b->n + n + 1;
    return need <= b->cap || enlarge(b, need);
}

void *buf_grow(struct buf *b, size_t n)
{
    if (!reserve(b, n)) {
        return NULL;
    }
    void *at = b->p + b->n;
    b->n += n;
    b->p[b->n] = '\0';
    return at;
}

void buf_put(struct buf *b, const void *p, size_t n)
{
    if (reserve(b, n)) {
        if (n > 0) {
            memcpy(b->p + b->n, p, n);
        }
        b->n += n;
        b->p[b->n] = '\0';
    }
}

void buf_puts(struct buf *b, const char *s)
{
    buf_put(b, s, strlen(s));
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    char small[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof(small), fmt, ap);
    va_end(ap);
    if (n < 0) {
        b->over = true;
        return;
    }
    if ((size_t)n < sizeof(small)) {
        buf_put(b, small, (size_t)n);
        return;
    }
    if (!reserve(b, (size_t)n)) {
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(b->p + b->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->n += (size_t)n;
}

static void put_digits(struct buf *b, uint64_t v, unsigned base)
{
    char t[20]; /* of 2^64 - 1 in decimal */
    size_t at = sizeof(t);
    do {
        t[--at] = "0123456789abcdef"[v % base];
        v /= base;
    } while (v > 0);
    buf_put(b, t + at, sizeof(t) - at);
}

void buf_dec(struct buf *b, uint64_t v)
{
    put_digits(b, v, 10);
}

void buf_hex(struct buf *b, uint64_t v)
{
    put_digits(b, v, 16);
}

/* Little-endian, whatever the machine is. */
static void put_le(struct buf *b, uint64_t v, size_t bytes)
{
    uint8_t t[8];
    for (size_t i = 0; i < bytes; i++) {
        t[i] = (uint8_t)(v >> (8 * i));
    }
    buf_put(b, t, bytes);
}

void buf_u8(struct buf *b, uint8_t v)
{
    put_le(b, v, 1);
}

void buf_u16(struct buf *b, uint16_t v)
{
    put_le(b, v, 2);
}

void buf_u32(struct buf *b, uint32_t v)
{
    put_le(b, v, 4);
}

void buf_u64(struct buf *b, uint64_t v)
{
    put_le(b, v, 8);
}

void buf_f32(struct buf *b, float v)
{
    uint32_t u = 0;
    memcpy(&u, &v, sizeof(u));
    put_le(b, u, 4);
}

void buf_shift(struct buf *b, size_t n)
{
    must(n <= b->n);
    if (n > 0) {
        memmove(b->p, b->p + n, b->n - n + 1);
        b->n -= n;
    }
}

const void *cur_bytes(struct cur *c, size_t n)
{
    if (c->bad || n > c->n - c->at) {
        c->bad = true;
        return NULL;
    }
    const void *p = c->p + c->at;
    c->at += n;
    return p;
}

static uint64_t get_le(struct cur *c, size_t bytes)
{
    const uint8_t *p = cur_bytes(c, bytes);
    uint64_t v = 0;
    for (size_t i = 0; p != NULL && i < bytes; i++) {
        v |= (uint64_t)p[i] << (8 * i);
    }
    return v;
}

uint8_t cur_u8(struct cur *c)
{
    return (uint8_t)get_le(c, 1);
}

uint16_t cur_u16(struct cur *c)
{
    return (uint16_t)get_le(c, 2);
}

uint32_t cur_u32(struct cur *c)
{
    return (uint32_t)get_le(c, 4);
}

uint64_t cur_u64(struct cur *c)
{
    return get_le(c, 8);
}

float cur_f32(struct cur *c)
{
    uint32_t u = cur_u32(c);
    float v = 0;
    memcpy(&v, &u, sizeof(v));
    return v;
}
