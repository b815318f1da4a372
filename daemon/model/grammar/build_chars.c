/* build_chars.c - sets of characters, and as edges of bytes.
 *
 * A range of characters is split where the bytes of its UTF-8 would not be a
 * product of ranges; each part is then a chain of ranges of bytes. Chains of
 * one set share their ends. */
#include <string.h>

#include "base/utf8.h"
#include "model/grammar/grammar_impl.h"

void chars_add(struct builder *b, struct chars *c, uint32_t lo, uint32_t hi)
{
    if (b->rc != 0 || lo > hi) {
        return;
    }
    if (c->n == c->cap) {
        size_t cap = c->cap == 0 ? 8 : c->cap * 2;
        struct char_range *r = arena_array(&b->arena, cap, sizeof(*r));
        if (r == NULL) {
            (void)build_fail(b, ERR_TOO_BIG, "a class of %zu ranges", cap);
            return;
        }
        if (c->n > 0) {
            memcpy(r, c->r, c->n * sizeof(*r));
        }
        c->r = r;
        c->cap = cap;
    }
    c->r[c->n++] = (struct char_range){lo, hi};
}

static int by_lo(const void *a, const void *b)
{
    const struct char_range *x = a;
    const struct char_range *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

void chars_sort(struct chars *c)
{
    if (c->n == 0) {
        return;
    }
    qsort(c->r, c->n, sizeof(*c->r), by_lo);
    size_t n = 1;
    for (size_t i = 1; i < c->n; i++) {
        struct char_range *last = &c->r[n - 1];
        if (c->r[i].lo <= last->hi + 1) {
            last->hi = c->r[i].hi > last->hi ? c->r[i].hi : last->hi;
        } else {
            c->r[n++] = c->r[i];
        }
    }
    c->n = n;
}

struct chars chars_not(struct builder *b, struct chars *c)
{
    struct chars r = {0};
    uint32_t at = 0;
    chars_sort(c);
    for (size_t i = 0; i < c->n; i++) {
        if (c->r[i].lo > at) {
            chars_add(b, &r, at, c->r[i].lo - 1);
        }
        at = c->r[i].hi + 1;
    }
    if (at <= CHAR_MAX_CODE) {
        chars_add(b, &r, at, CHAR_MAX_CODE);
    }
    return r;
}

bool chars_has(const struct chars *c, uint32_t code)
{
    for (size_t i = 0; i < c->n; i++) {
        if (code >= c->r[i].lo && code <= c->r[i].hi) {
            return true;
        }
    }
    return false;
}

/* --- as bytes --- */

enum { ENDS_MAX = 64 };

struct splitter {
    struct builder *b;
    uint32_t from, to;
    /* States made so far, by what leaves them. */
    struct byte_edge ends[ENDS_MAX];
    uint32_t state[ENDS_MAX];
    unsigned n;
};

/* A state with the one edge lo..hi to `to`. */
static uint32_t before(struct splitter *s, uint8_t lo, uint8_t hi, uint32_t to)
{
    for (unsigned i = 0; i < s->n; i++) {
        if (s->ends[i].lo == lo && s->ends[i].hi == hi && s->ends[i].to == to) {
            return s->state[i];
        }
    }
    uint32_t st = build_state(s->b);
    build_bytes(s->b, st, lo, hi, to);
    if (s->n < ENDS_MAX) {
        s->ends[s->n] = (struct byte_edge){to, lo, hi};
        s->state[s->n++] = st;
    }
    return st;
}

static void chain(struct splitter *s, uint32_t lo, uint32_t hi)
{
    char first[4];
    char last[4];
    size_t n = utf8_put(first, lo);
    uint32_t to = s->to;
    (void)utf8_put(last, hi);
    for (size_t i = n; --i > 0;) {
        to = before(s, (uint8_t)first[i], (uint8_t)last[i], to);
    }
    build_bytes(s->b, s->from, (uint8_t)first[0], (uint8_t)last[0], to);
}

static void split(struct splitter *s, uint32_t lo, uint32_t hi)
{
    static const uint32_t lengths[] = {0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF};
    if (lo > hi || (lo >= 0xD800 && hi <= 0xDFFF)) {
        return;
    }
    for (size_t i = 0; i < countof(lengths); i++) {
        if (lo <= lengths[i] && hi > lengths[i]) {
            split(s, lo, lengths[i]);
            split(s, lengths[i] + 1, hi);
            return;
        }
    }
    for (unsigned shift = 6; hi >= 0x80 && shift <= 18; shift += 6) {
        uint32_t m = (1u << shift) - 1;
        if ((lo & ~m) == (hi & ~m)) {
            break;
        }
        if ((lo & m) != 0) {
            split(s, lo, lo | m);
            split(s, (lo | m) + 1, hi);
            return;
        }
        if ((hi & m) != m) {
            split(s, lo, (hi & ~m) - 1);
            split(s, hi & ~m, hi);
            return;
        }
    }
    chain(s, lo, hi);
}

void build_chars(struct builder *b, uint32_t from, struct chars *c, uint32_t to)
{
    struct splitter s = {.b = b, .from = from, .to = to};
    chars_sort(c);
    for (size_t i = 0; i < c->n && b->rc == 0; i++) {
        split(&s, c->r[i].lo, c->r[i].hi);
    }
}

/* --- in JSON strings --- */

/* The letter behind a backslash, or 0. */
static char short_escape(uint32_t code)
{
    static const char codes[] = "\b\f\n\r\t\"\\";
    static const char letters[] = "bfnrt\"\\";
    const char *at = code != 0 && code < 0x80 ? strchr(codes, (int)code) : NULL;
    return at != NULL ? letters[at - codes] : '\0';
}

void build_json_chars(struct builder *b, uint32_t from, struct chars *c,
                      uint32_t to)
{
    struct chars plain = {0};
    uint32_t slash = NO_STATE;
    uint32_t last = 0x20;
    chars_sort(c);
    for (size_t i = 0; i < c->n; i++) {
        uint32_t lo = c->r[i].lo > 0x20 ? c->r[i].lo : 0x20;
        chars_add(b, &plain, lo, c->r[i].hi);
    }
    struct chars marks = chars_not(b, &plain);
    chars_add(b, &marks, '"', '"');
    chars_add(b, &marks, '\\', '\\');
    plain = chars_not(b, &marks);
    build_chars(b, from, &plain, to);
    for (uint32_t code = 1; code <= '\\'; code++) { /* NUL: readers in C */
        if ((code >= last && code != '"' && code != '\\') ||
            !chars_has(c, code)) {
            continue;
        }
        if (slash == NO_STATE) {
            slash = build_state(b);
            build_bytes(b, from, '\\', '\\', slash);
        }
        unsigned letter = (unsigned char)short_escape(code);
        if (letter != 0) {
            build_bytes(b, slash, letter, letter, to);
            continue;
        }
        uint32_t at = build_text(b, slash, code < 16 ? "u000" : "u001", 4);
        unsigned digit = code & 15;
        if (digit < 10) {
            build_bytes(b, at, '0' + digit, '0' + digit, to);
        } else {
            build_bytes(b, at, 'a' + digit - 10, 'a' + digit - 10, to);
            build_bytes(b, at, 'A' + digit - 10, 'A' + digit - 10, to);
        }
    }
}
