/* sampler_filter.c - the list of candidates, the filters that keep the best of
 * it, and the draw.
 *
 * Candidates are a list of ids in ascending order; every filter drops members
 * and keeps the order, so that the inverse CDF at the end runs in id order. The
 * rank used by filters is (logit descending, id ascending).
 *
 * A vocabulary has a quarter of a million tokens of which a few matter, so the
 * list is short from the start: a first pass over the logits finds the largest
 * of each BLOCK (its peak), a bound is computed below which the first filter
 * keeps nothing, and only blocks whose peak reaches it are looked through.
 *   top-k: the k-th largest peak, for there are k logits at least as large;
 *   min-p: the logit of that weight;
 *   top-p: the logit of a weight so small that all tokens below together are
 *          less than the part left out. This one needs the sum of all weights.
 * Bounds lie a little too low, which costs a few candidates more; what is kept
 * in the end is decided by each filter's own rule. Without a filter there is no
 * list: the weights are summed, and those of the one SPAN into which the random
 * number falls are computed again.
 */
#include <float.h>
#include <string.h>

#include "base/fmath.h"
#include "base/isa.h"
#include "engine/sampler_impl.h"
#include "engine/vexp.h"

#define WIDE      8   /* floats of a vector */
#define DIGIT     11u /* bits of a key looked at in one pass */
#define DIGITS    (1u << DIGIT)
#define TOP_SHIFT (2 * DIGIT) /* 10 bits are left for the first digit */
#define FEW       64u         /* candidates that are sorted by insertion */
#define FEWER     64          /* times higher is the bound top-p tries first */
#define SURE      (1 + 1e-9)  /* more than sums in other orders differ by */

/* --- passes over all logits --- */

#define INLINE static inline __attribute__((always_inline))

/* Every function that takes or gives a vector is inlined: none crosses a call,
 * whose way of passing it would depend on the machine. */
#pragma GCC diagnostic ignored "-Wpsabi"

typedef float f32v __attribute__((vector_size(WIDE * sizeof(float))));
typedef int32_t i32v __attribute__((vector_size(WIDE * sizeof(int32_t))));

INLINE f32v larger(f32v a, f32v b)
{
    i32v more = a > b;
    return (f32v)(((i32v)a & more) | ((i32v)b & ~more));
}

INLINE f32v f32v_at(const float *x)
{
    f32v v;
    memcpy(&v, x, sizeof(v));
    return v;
}

/* Largest of n numbers; not-a-number when one of them is. Two at a time, so
 * that one need not wait for the other. */
INLINE float largest_of(const float *x, uint32_t n)
{
    f32v a = f32v_at((float[WIDE]){0}) - INFINITY;
    f32v b = a;
    i32v nan = {0};
    uint32_t i = 0;
    for (; i + 2 * WIDE <= n; i += 2 * WIDE) {
        f32v v = f32v_at(x + i);
        f32v w = f32v_at(x + i + WIDE);
        a = larger(v, a);
        b = larger(w, b);
        nan |= (v != v) | (w != w);
    }
    a = (f32v)((i32v)larger(a, b) | nan); /* all bits set is one */
    float max = -INFINITY;
    for (uint32_t l = 0; l < WIDE; l++) {
        max = isnan(a[l]) || a[l] > max ? a[l] : max;
    }
    for (; i < n; i++) {
        max = isnan(x[i]) || x[i] > max ? x[i] : max;
    }
    return max;
}

#if defined(ISA_FOR_V3)
ISA_FOR_V3 static float largest_v3(const float *x, uint32_t n)
{
    return largest_of(x, n);
}
#endif

static float largest(const float *x, uint32_t n)
{
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        return largest_v3(x, n);
    }
#endif
    return largest_of(x, n);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Largest logit, the lowest id among equals; leaves the peaks. A model that
 * overflowed gives infinity or not-a-number: better an error than a token drawn
 * from it. */
int sampler_argmax(struct sampler *s, const float *x, uint32_t *ret,
                   struct err *e)
{
    float max = -INFINITY;
    uint32_t at = 0;
    for (uint32_t i = 0; i < s->vocab && !isnan(max); i += BLOCK) {
        float peak = largest(x + i, smaller(BLOCK, s->vocab - i));
        s->peaks[i / BLOCK] = peak;
        if (isnan(peak) || peak > max) {
            max = peak;
            at = i;
        }
    }
    if (!isfinite(max)) {
        return err_set(e, ERR_INVALID, "logits are not finite");
    }
    while (x[at] < max) {
        at++;
    }
    *ret = at;
    return 0;
}

/* The k largest, ties to the lower id: insertion, k is at most 20. */
uint32_t sampler_alternatives(const struct sampler *s, const float *x,
                              uint32_t k, struct msg_logprob *top)
{
    uint32_t have = 0;
    for (uint32_t b = 0; k > 0 && b < s->blocks; b++) {
        if (have == k && !(s->peaks[b] > top[k - 1].logprob)) {
            continue;
        }
        uint32_t end = smaller((b + 1) * BLOCK, s->vocab);
        for (uint32_t i = b * BLOCK; i < end; i++) {
            if (have == k && !(x[i] > top[k - 1].logprob)) {
                continue;
            }
            uint32_t j = have < k ? have++ : k - 1;
            for (; j > 0 && x[i] > top[j - 1].logprob; j--) {
                top[j] = top[j - 1];
            }
            top[j] = (struct msg_logprob){.id = (int32_t)i, .logprob = x[i]};
        }
    }
    return have;
}

/* --- rank --- */

/* Integers in the order of the floats; both zeros are one. */
static uint32_t key_of(float x)
{
    float y = x + 0.0f;
    uint32_t u = 0;
    memcpy(&u, &y, sizeof(u));
    return u ^ ((u >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

static float float_of(uint32_t key)
{
    uint32_t u = key ^ ((key >> 31) != 0 ? 0x80000000u : 0xffffffffu);
    float x = 0;
    memcpy(&x, &u, sizeof(x));
    return x;
}

/* The last member of the k best: those with a larger key, and the first `ties`
 * with this key. */
struct cut {
    uint32_t key;
    uint32_t ties;
};

/* 1 <= k <= n. Finds the key digit by digit: counts the next digit of those
 * that begin like it, and goes down from the top until k are passed. */
static struct cut select_best(const float *x, uint32_t n, uint32_t k)
{
    uint32_t found = 0;
    for (uint32_t shift = TOP_SHIFT;; shift -= DIGIT) {
        uint32_t count[DIGITS] = {0};
        for (uint32_t i = 0; i < n; i++) {
            uint32_t key = key_of(x[i]) >> shift;
            if (key >> DIGIT == found) {
                count[key % DIGITS]++;
            }
        }
        uint32_t d = DIGITS - 1;
        for (; count[d] < k; d--) {
            k -= count[d];
        }
        found = found << DIGIT | d;
        if (shift == 0) {
            return (struct cut){.key = found, .ties = k};
        }
    }
}

/* --- candidates --- */

/* Makes the list: everything from `bound` on but minus infinity. Rounding the
 * bound to a float loses nothing, as no float lies between the two. */
static void gather_from(struct sampler *s, const float *x, double bound)
{
    float low = bound > (double)-FLT_MAX ? (float)bound : -FLT_MAX;
    int32_t *ids = s->ids;
    uint32_t n = 0;
    for (uint32_t b = 0; b < s->blocks; b++) {
        uint32_t end = smaller((b + 1) * BLOCK, s->vocab);
        uint32_t i = s->peaks[b] < low ? end : b * BLOCK;
#pragma GCC unroll 8
        for (; i < end; i++) {
            ids[n] = (int32_t)i;
            n += x[i] >= low;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        s->x[i] = x[ids[i]];
    }
    s->n = n;
    s->listed = true;
    s->weighed = false;
}

void sampler_gather(struct sampler *s, const float *x)
{
    if (!s->listed) {
        gather_from(s, x, -HUGE_VAL);
    }
}

void sampler_move(const struct sampler *s, uint32_t from, uint32_t to)
{
    s->ids[to] = s->ids[from];
    s->x[to] = s->x[from];
    s->w[to] = s->w[from];
}

/* Keep what the cut keeps; the weights may still be unknown. */
static void apply_cut(struct sampler *s, struct cut c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t key = key_of(s->x[i]);
        if (key > c.key || (key == c.key && c.ties > 0)) {
            c.ties -= key == c.key;
            sampler_move(s, i, n++);
        }
    }
    s->n = n;
}

/* Insertion: what top-k leaves is short, and counting digits has a price of its
 * own. Equal keys stay in id order. */
static void sort_few(uint64_t *a, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint64_t v = a[i];
        uint32_t j = i;
        for (; j > 0 && a[j - 1] >> 32 < v >> 32; j--) {
            a[j] = a[j - 1];
        }
        a[j] = v;
    }
}

/* Stable radix sort by the key's digits, so equal keys stay in id order. */
const uint64_t *sampler_sort(struct sampler *s)
{
    uint64_t *a = s->sort[0];
    uint64_t *b = s->sort[1];
    for (uint32_t i = 0; i < s->n; i++) {
        a[i] = (uint64_t)key_of(s->x[i]) << 32 | i;
    }
    if (s->n <= FEW) {
        sort_few(a, s->n);
        return a;
    }
    for (uint32_t shift = 32; shift < 64; shift += DIGIT) {
        uint32_t start[DIGITS + 1] = {0};
        for (uint32_t i = 0; i < s->n; i++) {
            start[DIGITS - (a[i] >> shift) % DIGITS]++; /* descending */
        }
        for (uint32_t d = 1; d <= DIGITS; d++) {
            start[d] += start[d - 1];
        }
        for (uint32_t i = 0; i < s->n; i++) {
            b[start[DIGITS - 1 - (a[i] >> shift) % DIGITS]++] = a[i];
        }
        uint64_t *t = a;
        a = b;
        b = t;
    }
    return a;
}

/* --- weights --- */

/* Of all tokens in id order; keeps what the sum was before each span. */
static double sum_all(struct sampler *s, const float *x)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->vocab; i += SPAN) {
        s->before[i / SPAN] = sum;
        sum =
            vexp_sum(x + i, smaller(SPAN, s->vocab - i), s->max, s->scale, sum);
    }
    return sum;
}

/* Of the candidates. */
double sampler_sum(const struct sampler *s)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        sum += s->w[i];
    }
    return sum;
}

/* With s->max as it is: the best candidate's logit, or a larger one. */
static void weigh(struct sampler *s)
{
    vexp(s->x, s->n, s->max, s->scale, s->w);
    s->weighed = true;
}

void sampler_weigh(struct sampler *s)
{
    if (!s->weighed) {
        s->max = (double)s->x[sampler_best(s)];
        weigh(s);
    }
}

uint32_t sampler_best(const struct sampler *s)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < s->n; i++) {
        best = s->x[i] > s->x[best] ? i : best;
    }
    return best;
}

/* A bound for gather: every logit below weighs less than w. The margins are
 * many times what exp, log and these steps are rounded by. */
static double logit_of(const struct sampler *s, double w)
{
    return s->max + (fmath_log(w) - 1e-6) / s->scale - 1e-9 * fabs(s->max);
}

/* Keep the fewest best candidates whose mass is at least `goal`. */
static void keep_mass(struct sampler *s, double goal)
{
    const uint64_t *best = sampler_sort(s);
    double mass = 0;
    uint32_t used = 0;
    while (used < s->n && (used == 0 || mass < goal)) {
        mass += s->w[(uint32_t)best[used++]];
    }
    struct cut c = {.key = (uint32_t)(best[used - 1] >> 32)};
    for (uint32_t i = used; i > 0 && best[i - 1] >> 32 == c.key; i--) {
        c.ties++;
    }
    apply_cut(s, c);
}

/* Keep what weighs at least w; false: nothing does, and the list is empty. */
static bool keep_weight(struct sampler *s, double w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->w[i] >= w) {
            sampler_move(s, i, n++);
        }
    }
    s->n = n;
    return n > 0;
}

/* The list that top-k, the first filter, leaves. */
static void gather_best(struct sampler *s, const float *x, uint32_t k)
{
    double bound = -HUGE_VAL;
    if (k <= s->blocks) {
        struct cut c = select_best(s->peaks, s->blocks, k);
        bound = (double)float_of(c.key);
    }
    gather_from(s, x, bound);
    if (k < s->n) {
        apply_cut(s, select_best(s->x, s->n, k));
    }
    weigh(s);
}

/* A list that holds what top-p keeps when it is the first filter; returns its
 * goal. All that weigh less than w have together at most half of the mass that
 * top-p leaves out; mostly a list of far fewer will do, and shows it. */
static double gather_nucleus(struct sampler *s, const float *x, double p)
{
    double sum = sum_all(s, x);
    double w = (1 - p) / 2 * sum / s->vocab;
    gather_from(s, x, logit_of(s, w * FEWER < 1 ? w * FEWER : 1));
    weigh(s);
    if (sampler_sum(s) < p * sum * SURE) {
        gather_from(s, x, logit_of(s, w));
        weigh(s);
    }
    return p * sum;
}

/* --- filters that keep the best --- */

void sampler_top_k(struct sampler *s, const float *x, uint32_t k)
{
    if (!s->listed && k < s->vocab) {
        gather_best(s, x, k);
    } else if (s->listed && k < s->n) {
        apply_cut(s, select_best(s->x, s->n, k));
    }
}

void sampler_top_p(struct sampler *s, const float *x, double p)
{
    double goal = 0;
    if (!s->listed) {
        goal = gather_nucleus(s, x, p);
    } else {
        sampler_weigh(s);
        goal = p * sampler_sum(s);
    }
    keep_mass(s, goal);
}

void sampler_min_p(struct sampler *s, const float *x, double p)
{
    if (!s->listed) {
        gather_from(s, x, logit_of(s, p));
        weigh(s);
    } else {
        sampler_weigh(s);
    }
    must(keep_weight(s, p)); /* the best one's weight is 1 */
}

bool sampler_min_share(struct sampler *s, const float *x, double share)
{
    must(!s->listed);
    double w = share * sum_all(s, x);
    gather_from(s, x, logit_of(s, w));
    weigh(s);
    return keep_weight(s, w);
}

void sampler_only(struct sampler *s, const float *x, uint32_t id)
{
    s->ids[0] = (int32_t)id;
    s->x[0] = x[id];
    s->n = 1;
    s->listed = true;
    s->weighed = false;
}

/* --- the draw --- */

/* The first with which the sum exceeds the goal, u times the whole sum: there
 * is one, for u is at most 1 - 2^-53, and that product rounds to less than the
 * sum. */
static uint32_t inverse_cdf(const double *w, uint32_t n, double sum,
                            double goal)
{
    uint32_t i = 0;
    for (; i < n; i++) {
        sum += w[i];
        if (sum > goal) {
            break;
        }
    }
    must(i < n);
    return i;
}

uint32_t sampler_draw_list(struct sampler *s, double u)
{
    sampler_weigh(s);
    return inverse_cdf(s->w, s->n, 0, u * sampler_sum(s));
}

int32_t sampler_draw_all(struct sampler *s, const float *x, double u)
{
    double goal = u * sum_all(s, x);
    uint32_t b = (s->vocab - 1) / SPAN;
    while (s->before[b] > goal) {
        b--;
    }
    uint32_t i = b * SPAN;
    uint32_t n = smaller(SPAN, s->vocab - i);
    vexp(x + i, n, s->max, s->scale, s->w);
    return (int32_t)(i + inverse_cdf(s->w, n, s->before[b], goal));
}
