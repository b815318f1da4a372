/* sampler_dry.c - the sampler dry ("don't repeat yourself"), as in llama.cpp: a
 * token that would make a repetition longer loses
 *     multiplier * base ^ (tokens that are repeated - allowed_length).
 *
 * Of the tokens looked back at, the last one is h[n - 1]. For each k the length
 * z[k] of what ends k tokens before the end and is also the end is wanted:
 *     h:   a b c c b c y a b c          z[7] = 3: "a b c" ended there too, and
 *                ^ k = 7 before the end           a "c" would make it four
 * Read backwards that is a common prefix of the text and its part from k on, so
 * all lengths are found in one pass (Gusfield's Z algorithm): [left, right) is
 * the match found so far that reaches farthest, and what lies in it has been
 * seen at its beginning.
 *
 * No repetition is counted across a breaker: the last one in the text bounds
 * all lengths. A token that is a breaker by itself is never punished.
 */
#include "base/fmath.h"
#include "engine/sampler_impl.h"

#define EXPONENT_LOG 88.7228391 /* log of the largest float: llama.cpp's */

/* The tokens looked back at. */
struct past {
    const int32_t *h;
    uint32_t n;
};

/* i tokens before the last. */
static int32_t back(const struct past *t, uint32_t i)
{
    return t->h[t->n - 1 - i];
}

/* Whether what follows the token at i, up to the end, begins with the tail. */
static bool tail_follows(const struct past *t, uint32_t i,
                         const struct msg_breaker *g)
{
    if (g->n_tail > i) {
        return false;
    }
    for (uint32_t k = 0; k < g->n_tail; k++) {
        if (g->tail[k] != back(t, i - 1 - k)) {
            return false;
        }
    }
    return true;
}

/* Tokens of the longest breaker that begins i tokens before the end; 0: none.
 */
static uint32_t breaker_at(const struct past *t, uint32_t i,
                           const struct msg_sampling *p)
{
    struct msg_breaker g;
    uint32_t longest = 0;
    for (uint32_t at = 0; msg_breaker_next(p, &at, &g);) {
        if (g.n_tail >= longest && tail_follows(t, i, &g) &&
            msg_breaker_has(&g, back(t, i))) {
            longest = g.n_tail + 1;
        }
    }
    return longest;
}

/* Tokens behind the last breaker: the longest repetition that counts. */
static uint32_t behind_breaker(const struct past *t,
                               const struct msg_sampling *p)
{
    for (uint32_t i = 0; p->n_breaks > 0 && i < t->n; i++) {
        uint32_t n = breaker_at(t, i, p);
        if (n > 0) {
            return i + 1 - n;
        }
    }
    return t->n;
}

static bool is_breaker(const struct msg_sampling *p, int32_t id)
{
    struct msg_breaker g;
    for (uint32_t at = 0; msg_breaker_next(p, &at, &g);) {
        if (g.n_tail == 0 && msg_breaker_has(&g, id)) {
            return true;
        }
    }
    return false;
}

/* z[k] for 0 < k < n. */
static void find_lengths(const struct past *t, uint32_t *z)
{
    uint32_t left = 0;
    uint32_t right = 0;
    for (uint32_t k = 1; k < t->n; k++) {
        uint32_t len = 0;
        if (k < right) {
            uint32_t rest = right - k;
            len = z[k - left] < rest ? z[k - left] : rest;
        }
        while (k + len < t->n && back(t, len) == back(t, k + len)) {
            len++;
        }
        z[k] = len;
        if (k + len > right) {
            left = k;
            right = k + len;
        }
    }
}

static int reserve(struct sampler *s, size_t n, struct err *e)
{
    if (n <= s->max_lengths) {
        return 0;
    }
    uint32_t *p = realloc(s->lengths, n * sizeof(*p));
    if (p == NULL) {
        return err_set(e, ERR_NOMEM, "dry looks back at %zu tokens", n);
    }
    s->lengths = p;
    s->max_lengths = n;
    return 0;
}

static float penalty(const struct msg_sampling *p, uint32_t length)
{
    double base = (double)p->dry_base;
    double exponent = (double)(length - p->dry_allowed_length);
    if (base > 1.000001) {
        double most = floor(EXPONENT_LOG / fmath_log(base));
        exponent = most > 0 && exponent > most ? most : exponent;
    }
    double v = (double)p->dry_multiplier * fmath_pow(base, exponent);
    return sampler_finite(v);
}

/* The token after each repetition would make it longer; of several the longest
 * counts. s->counts has its length and 1. */
static void punish(struct sampler *s, float *logits,
                   const struct msg_sampling *p, const struct past *t,
                   uint32_t most)
{
    for (uint32_t k = 1; k < t->n; k++) {
        uint32_t len = s->lengths[k] < most ? s->lengths[k] : most;
        uint32_t *known = &s->counts[back(t, k - 1)];
        if (len >= p->dry_allowed_length && *known < len + 1) {
            *known = len + 1;
        }
    }
    for (uint32_t k = 1; k < t->n; k++) {
        int32_t id = back(t, k - 1);
        uint32_t len = s->counts[id];
        s->counts[id] = 0;
        float *x =
            len > 0 && !is_breaker(p, id) ? sampler_at(s, logits, id) : NULL;
        if (x != NULL && *x >= -FLT_MAX) { /* a banned one stays banned */
            *x = sampler_finite((double)(*x - penalty(p, len - 1)));
        }
    }
}

int sampler_dry(struct sampler *s, float *logits, const struct msg_sampling *p,
                const int32_t *history, size_t n, struct err *e)
{
    size_t last = n < p->dry_last_n ? n : p->dry_last_n;
    must(last <= UINT32_MAX);
    struct past t = {history + (n - last), (uint32_t)last};
    if (t.n <= p->dry_allowed_length) {
        return 0;
    }
    for (uint32_t i = 0; i < t.n; i++) {
        must(t.h[i] >= 0 && (uint32_t)t.h[i] < s->vocab);
    }
    uint32_t most = behind_breaker(&t, p);
    if (most < p->dry_allowed_length) {
        return 0;
    }
    RETERR(reserve(s, t.n, e));
    find_lengths(&t, s->lengths);
    punish(s, logits, p, &t, most);
    return 0;
}
