/* schema_number.c - numbers of a schema.
 *
 * Bounds of integers are automata over their digits: for each number of digits
 * four states a place, by whether the digits so far are those of the lower
 * bound, of the upper, of both or of neither. Numbers with a fraction have
 * integers as bounds; then only the digits at a bound itself need care. A side
 * without a bound ends where doubles are no longer exact. */
#include <string.h>

#include "model/grammar/schema.h"

#define EXACT_MAX ((int64_t)9007199254740991) /* 2^53 - 1 */

enum { FRACTION_MAX = 16, DOUBLE_DIGITS = 15 };

struct bound {
    int64_t at;
    bool open; /* `at` itself is out */
    bool given;
};

/* --- whole digits --- */

/* As many digits as text lo and hi have. */
static void same_length(struct builder *b, uint32_t from, const char *lo,
                        const char *hi, size_t n, uint32_t to)
{
    enum { BOTH, LOW, HIGH, FREE, N };
    uint32_t at[N] = {from, NO_STATE, NO_STATE, NO_STATE};
    for (size_t i = 0; i < n && b->rc == 0; i++) {
        uint32_t next[N];
        for (int k = 0; k < N; k++) {
            next[k] = i + 1 == n ? to : build_state(b);
        }
        unsigned l = (unsigned char)lo[i];
        unsigned h = (unsigned char)hi[i];
        if (at[BOTH] != NO_STATE && l == h) {
            build_bytes(b, at[BOTH], l, l, next[BOTH]);
        } else if (at[BOTH] != NO_STATE) {
            build_bytes(b, at[BOTH], l, l, next[LOW]);
            build_bytes(b, at[BOTH], h, h, next[HIGH]);
            if (l + 1 < h) {
                build_bytes(b, at[BOTH], l + 1, h - 1, next[FREE]);
            }
        }
        if (at[LOW] != NO_STATE) {
            build_bytes(b, at[LOW], l, l, next[LOW]);
            if (l < '9') {
                build_bytes(b, at[LOW], l + 1, '9', next[FREE]);
            }
        }
        if (at[HIGH] != NO_STATE) {
            build_bytes(b, at[HIGH], h, h, next[HIGH]);
            if (h > '0') {
                build_bytes(b, at[HIGH], '0', h - 1, next[FREE]);
            }
        }
        if (at[FREE] != NO_STATE) {
            build_bytes(b, at[FREE], '0', '9', next[FREE]);
        }
        memcpy(at, next, sizeof(at));
    }
}

/* lo..hi, both at least 0, without leading zeros. */
static void digits(struct builder *b, uint32_t from, int64_t lo, int64_t hi,
                   uint32_t to)
{
    int64_t first = 0;
    int64_t last = 9;
    while (first <= hi) {
        int64_t l = lo > first ? lo : first;
        int64_t h = hi < last ? hi : last;
        if (l <= h) {
            char a[24];
            char z[24];
            int n = snprintf(a, sizeof(a), "%lld", (long long)l);
            (void)snprintf(z, sizeof(z), "%lld", (long long)h);
            same_length(b, from, a, z, (size_t)n, to);
        }
        first = last + 1;
        last = last * 10 + 9;
    }
}

static void integers(struct builder *b, int64_t lo, int64_t hi, uint32_t from,
                     uint32_t to)
{
    if (lo < 0) {
        digits(b, build_text(b, from, "-", 1), hi < 0 ? -hi : 1, -lo, to);
    }
    if (hi >= 0) {
        digits(b, from, lo > 0 ? lo : 0, hi, to);
    }
}

/* --- fractions --- */

enum fraction { ANY, ZERO, NOT_ZERO };

static void fraction(struct builder *b, enum fraction kind, unsigned max,
                     uint32_t from, uint32_t to)
{
    uint32_t zero = build_text(b, from, ".", 1); /* only zeros so far */
    uint32_t free = NO_STATE;
    if (kind != NOT_ZERO) {
        build_empty(b, from, to);
    }
    for (unsigned i = 0; i < max; i++) {
        uint32_t next_zero = build_state(b);
        build_bytes(b, zero, '0', '0', next_zero);
        if (kind != NOT_ZERO) {
            build_empty(b, next_zero, to);
        }
        if (kind != ZERO) {
            uint32_t next = build_state(b);
            build_bytes(b, zero, '1', '9', next);
            if (free != NO_STATE) {
                build_bytes(b, free, '0', '9', next);
            }
            build_empty(b, next, to);
            free = next;
        }
        zero = next_zero;
    }
}

/* Numbers from lo to hi, both at least 0. */
static void above_zero(struct builder *b, struct bound lo, struct bound hi,
                       unsigned max, uint32_t from, uint32_t to)
{
    uint32_t n = build_state(b);
    if (lo.at == hi.at) {
        if (!lo.open && !hi.open) {
            digits(b, from, lo.at, lo.at, n);
            fraction(b, ZERO, max, n, to);
        }
        return;
    }
    digits(b, from, lo.at, lo.at, n);
    fraction(b, lo.open ? NOT_ZERO : ANY, max, n, to);
    if (lo.at + 1 <= hi.at - 1) {
        n = build_state(b);
        digits(b, from, lo.at + 1, hi.at - 1, n);
        fraction(b, ANY, max, n, to);
    }
    if (!hi.open) {
        n = build_state(b);
        digits(b, from, hi.at, hi.at, n);
        fraction(b, ZERO, max, n, to);
    }
}

/* Digits of a fraction: with those before the point no more than a double keeps
 * apart, so that nothing rounds to a bound that is out. */
static unsigned fraction_digits(struct bound lo, struct bound hi)
{
    unsigned n = FRACTION_MAX;
    const struct bound both[] = {lo, hi};
    for (size_t i = 0; i < countof(both); i++) {
        unsigned left = DOUBLE_DIGITS - 1;
        int64_t at = both[i].at < 0 ? -both[i].at : both[i].at;
        for (; at >= 10 && left > 0; at /= 10) {
            left--;
        }
        n = both[i].open && left < n ? left : n;
    }
    return n;
}

static void numbers(struct builder *b, struct bound lo, struct bound hi,
                    unsigned max, uint32_t from, uint32_t to)
{
    struct bound zero = {.at = 0};
    if (lo.at < 0) {
        struct bound near = hi.at < 0 ? (struct bound){-hi.at, hi.open, true}
                                      : (struct bound){0, true, true};
        above_zero(b, near, (struct bound){-lo.at, lo.open, true}, max,
                   build_text(b, from, "-", 1), to);
    }
    if (hi.at > 0 || (hi.at == 0 && !hi.open)) {
        above_zero(b, lo.at >= 0 ? lo : zero, hi, max, from, to);
    }
}

/* --- bounds --- */

/* The number of a word as an integer, rounded up or down where only integers
 * are wanted: then what was not an integer is in itself. */
static bool whole_bound(struct schema *c, const char *word, double d,
                        bool integer, bool up, struct bound *x)
{
    if (d > (double)EXACT_MAX || d < -(double)EXACT_MAX) {
        schema_deny(c, ERR_UNSUPPORTED, word, "beyond 2^53");
        return false;
    }
    x->at = (int64_t)d;
    if ((double)x->at == d) {
        return true;
    }
    if (!integer) {
        schema_deny(c, ERR_UNSUPPORTED, word,
                    "a bound of numbers that is no integer");
        return false;
    }
    x->open = false;
    x->at += up && d > 0 ? 1 : !up && d < 0 ? -1 : 0;
    return true;
}

/* minimum and exclusiveMinimum (`up`), or the other side, into *ret. */
static void bound_of(struct schema *c, const struct view *v, bool integer,
                     bool up, struct bound *ret)
{
    const char *words[] = {up ? "minimum" : "maximum",
                           up ? "exclusiveMinimum" : "exclusiveMaximum"};
    bool open = false;
    const struct json *flag = view_get(c, v, words[1]);
    if (flag != NULL && json_type(flag) == JSON_BOOL) {
        open = json_bool(flag); /* draft 4: it is about the other word */
    }
    for (int i = 0; i < 2; i++) {
        const struct json *w = view_get(c, v, words[i]);
        struct bound x = {.open = i == 1 || open, .given = true};
        if (w == NULL || (i == 1 && json_type(w) == JSON_BOOL)) {
            continue;
        }
        if (json_type(w) != JSON_NUMBER) {
            schema_deny(c, ERR_INVALID, words[i], "is no number");
            return;
        }
        if (!whole_bound(c, words[i], json_num(w), integer, up, &x)) {
            return;
        }
        bool tighter = up ? x.at > ret->at : x.at < ret->at;
        if (!ret->given || tighter || (x.at == ret->at && x.open)) {
            *ret = x;
        }
    }
}

void schema_number(struct schema *c, const struct view *v, bool integer,
                   uint32_t from, uint32_t to)
{
    struct builder *b = c->b;
    struct bound lo = {.at = -EXACT_MAX};
    struct bound hi = {.at = EXACT_MAX};
    bound_of(c, v, integer, true, &lo);
    bound_of(c, v, integer, false, &hi);
    if (b->rc != 0) {
        return;
    }
    if (!lo.given && !hi.given) {
        build_call(b, from, integer ? c->json->integer : c->json->number, to);
        return;
    }
    if (integer) {
        lo.at += lo.open;
        hi.at -= hi.open;
        lo.open = false;
        hi.open = false;
    }
    if (lo.at > hi.at || (lo.at == hi.at && (lo.open || hi.open))) {
        schema_deny(c, ERR_INVALID, lo.given ? "minimum" : "maximum",
                    "no number is valid");
    } else if (integer) {
        integers(b, lo.at, hi.at, from, to);
    } else if (fraction_digits(lo, hi) == 0) {
        schema_deny(c, ERR_UNSUPPORTED,
                    lo.open ? "exclusiveMinimum" : "exclusiveMaximum",
                    "more digits than a fraction leaves room for");
    } else {
        numbers(b, lo, hi, fraction_digits(lo, hi), from, to);
    }
}
