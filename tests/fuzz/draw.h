/* draw.h - the bytes of a fuzzer as decisions. A generator asks, and the input
 * answers: a mutation changes what is made, not its spelling. When the bytes
 * have run out every answer is 0, so 0 must be the choice that ends things. */
#pragma once

#include "base/base.h"

struct draw {
    const uint8_t *p;
    size_t n;
};

static inline unsigned draw_byte(struct draw *d)
{
    if (d->n == 0) {
        return 0;
    }
    d->n--;
    return *d->p++;
}

/* 0 to below - 1; below is at most 65536. */
static inline unsigned draw_below(struct draw *d, unsigned below)
{
    unsigned v = draw_byte(d);
    if (below > 256) {
        v = v << 8 | draw_byte(d);
    }
    return v % below;
}

/* Seldom true. */
static inline bool draw_one_in(struct draw *d, unsigned n)
{
    return draw_below(d, n) == n - 1;
}

/* How often: mostly a few times, now and then up to 65535 times. */
static inline unsigned draw_count(struct draw *d)
{
    unsigned v = draw_byte(d);
    if (v < 160) {
        return v % 6;
    }
    if (v < 192) {
        return draw_byte(d);
    }
    return draw_below(d, 1u << (1 + v % 16));
}

/* One of an array's elements. */
#define draw_of(d, array) ((array)[draw_below((d), (unsigned)countof(array))])
