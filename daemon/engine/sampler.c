/* sampler.c - see sampler.h.
 *
 * Candidates are a list of ids in ascending order; every filter drops members
 * and keeps the order, so that the inverse CDF at the end runs in id order. The
 * rank used by top-k and top-p is (logit descending, id ascending): logits are
 * mapped to integers of the same order, and the k-th largest is found by two
 * counting passes over their halves. Only top-p sorts, and only as many of the
 * largest as its mass needs.
 */
#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#include "engine/vexp.h"

#define HALF_KEYS 65536u
#define WIDE      8     /* floats of a vector */
#define LOOKED    4096u /* logits among which the largest is looked up */
#define BLOCK     512u  /* weights between two kept sums */
#define NUCLEUS   512u  /* first guess of top-p's size */
#define PHILOX_M0 0xd2511f53u
#define PHILOX_M1 0xcd9e8d57u
#define PHILOX_W0 0x9e3779b9u
#define PHILOX_W1 0xbb67ae85u

struct sampler {
    uint32_t vocab;
    float *adj;       /* logits after bias and penalties */
    uint32_t *counts; /* of tokens in the history; zero between calls */
    uint32_t n;       /* candidates */
    int32_t *ids;     /* ascending */
    float *x;         /* adj of the candidates */
    double *w;        /* exp((x - max) / temperature) */
    double *before;   /* sum of w before each BLOCK of candidates */
    uint64_t *sort[2];
    uint32_t *hist; /* HALF_KEYS */
    double *probs;  /* sampler_probs */
};

/* --- random numbers --- */

void sampler_philox(const uint32_t ctr[4], const uint32_t key[2],
                    uint32_t ret[4])
{
    uint32_t c[4] = {ctr[0], ctr[1], ctr[2], ctr[3]};
    uint32_t k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c[0];
        uint64_t p1 = (uint64_t)PHILOX_M1 * c[2];
        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k[0];
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k[1];
        c[3] = (uint32_t)p0;
        k[0] += PHILOX_W0;
        k[1] += PHILOX_W1;
    }
    memcpy(ret, c, sizeof(c));
}

double sampler_random(uint64_t seed, uint32_t choice, uint32_t index)
{
    const uint32_t ctr[4] = {choice, index, 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t r[4];
    sampler_philox(ctr, key, r);
    uint64_t bits = ((uint64_t)r[0] << 32 | r[1]) >> 11;
    return (double)bits * 0x1p-53;
}

/* --- life --- */

int sampler_new(uint32_t vocab, struct sampler **ret, struct err *e)
{
    must(vocab > 0 && vocab <= MODEL_VOCAB_MAX);
    struct sampler *s = calloc(1, sizeof(*s));
    if (s != NULL) {
        s->vocab = vocab;
        s->adj = calloc(vocab, sizeof(*s->adj));
        s->counts = calloc(vocab, sizeof(*s->counts));
        s->ids = calloc(vocab, sizeof(*s->ids));
        s->x = calloc(vocab, sizeof(*s->x));
        s->w = calloc(vocab, sizeof(*s->w));
        s->before = calloc(vocab / BLOCK + 1, sizeof(*s->before));
        s->sort[0] = calloc(vocab, sizeof(*s->sort[0]));
        s->sort[1] = calloc(vocab, sizeof(*s->sort[1]));
        s->hist = calloc(HALF_KEYS, sizeof(*s->hist));
        s->probs = calloc(vocab, sizeof(*s->probs));
    }
    if (s == NULL || s->adj == NULL || s->counts == NULL || s->ids == NULL ||
        s->x == NULL || s->w == NULL || s->before == NULL ||
        s->sort[0] == NULL || s->sort[1] == NULL || s->hist == NULL ||
        s->probs == NULL) {
        sampler_free(s);
        return err_set(e, ERR_NOMEM, "sampler for %u tokens", vocab);
    }
    *ret = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (s == NULL) {
        return;
    }
    free(s->adj);
    free(s->counts);
    free(s->ids);
    free(s->x);
    free(s->w);
    free(s->before);
    free(s->sort[0]);
    free(s->sort[1]);
    free(s->hist);
    free(s->probs);
    free(s);
}

/* --- bias and penalties --- */

static void penalize_repeats(struct sampler *s, const struct msg_sampling *p,
                             const int32_t *history, size_t n)
{
    for (size_t i = n - (n < p->repeat_last_n ? n : p->repeat_last_n); i < n;
         i++) {
        int32_t id = history[i];
        if (s->counts[id]++ == 0) {
            float l = s->adj[id];
            s->adj[id] = l > 0 ? l / p->repeat_penalty : l * p->repeat_penalty;
        }
    }
    for (size_t i = 0; i < n; i++) {
        s->counts[history[i]] = 0;
    }
}

static void penalize_frequency(struct sampler *s, const struct msg_sampling *p,
                               const int32_t *history, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        s->counts[history[i]]++;
    }
    for (size_t i = 0; i < n; i++) {
        int32_t id = history[i];
        if (s->counts[id] > 0) {
            s->adj[id] -= (float)s->counts[id] * p->frequency_penalty +
                          p->presence_penalty;
            s->counts[id] = 0;
        }
    }
}

static bool is(float a, float b)
{
    return !(a < b) && !(a > b);
}

/* The logits to draw from: s->adj, or the caller's own when nothing changes. */
static int adjust(struct sampler *s, const float *logits,
                  const struct msg_sampling *p, const int32_t *history,
                  size_t n, const float **ret, struct err *e)
{
    bool repeat = !is(p->repeat_penalty, 1) && p->repeat_last_n > 0;
    bool frequency =
        !is(p->frequency_penalty, 0) || !is(p->presence_penalty, 0);
    if (p->n_bias == 0 && !repeat && !frequency) {
        *ret = logits;
        return 0;
    }
    memcpy(s->adj, logits, s->vocab * sizeof(*s->adj));
    for (uint32_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || (uint32_t)p->bias[i].id >= s->vocab) {
            return err_set(e, ERR_INVALID, "logit bias for token %d of %u",
                           p->bias[i].id, s->vocab);
        }
        s->adj[p->bias[i].id] += p->bias[i].bias;
    }
    for (size_t i = 0; (repeat || frequency) && i < n; i++) {
        must(history[i] >= 0 && (uint32_t)history[i] < s->vocab);
    }
    if (repeat) {
        penalize_repeats(s, p, history, n);
    }
    if (frequency) {
        penalize_frequency(s, p, history, n);
    }
    *ret = s->adj;
    return 0;
}

/* --- passes over all logits --- */

#define INLINE static inline __attribute__((always_inline))

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
static float largest(const float *x, uint32_t n)
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
    a = larger(a, b);
    float max = -INFINITY;
    for (uint32_t l = 0; l < WIDE; l++) {
        max = a[l] > max ? a[l] : max;
    }
    for (uint32_t l = 0; l < WIDE; l++) {
        max = nan[l] != 0 ? NAN : max;
    }
    for (; i < n; i++) {
        max = isnan(x[i]) || x[i] > max ? x[i] : max;
    }
    return max;
}

/* Largest logit, the lowest id among equals. A model that overflowed gives
 * infinity or not-a-number: better an error than a token drawn from it. Only
 * the block that holds the largest is looked through for its place. */
static int argmax(const float *x, uint32_t n, uint32_t *ret, struct err *e)
{
    float max = -INFINITY;
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i += LOOKED) {
        float m = largest(x + i, n - i < LOOKED ? n - i : LOOKED);
        if (isnan(m) || m > max) {
            max = m;
            at = i;
        }
        if (isnan(m)) {
            break;
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

/* log of the sum of exp(x), the sum in id order. */
static double log_sum_exp(const float *x, uint32_t n, double max)
{
    double sum = 0;
    double y[BLOCK];
    for (uint32_t i = 0; i < n; i += BLOCK) {
        uint32_t k = n - i < BLOCK ? n - i : BLOCK;
        vexp(x + i, k, max, 1, y);
        for (uint32_t j = 0; j < k; j++) {
            sum += y[j];
        }
    }
    return max + log(sum);
}

/* The k largest, ties to the lower id: insertion, k is at most 20. */
static uint32_t top_alternatives(const float *x, uint32_t n, uint32_t k,
                                 struct msg_logprob *top)
{
    uint32_t have = 0;
    for (uint32_t i = 0; k > 0 && i < n; i++) {
        if (have == k && !(x[i] > top[k - 1].logprob)) {
            continue;
        }
        uint32_t j = have < k ? have++ : k - 1;
        for (; j > 0 && x[i] > top[j - 1].logprob; j--) {
            top[j] = top[j - 1];
        }
        top[j] = (struct msg_logprob){.id = (int32_t)i, .logprob = x[i]};
    }
    return have;
}

/* --- candidates --- */

/* Integers in the order of the floats; both zeros are one. */
static uint32_t key_of(float x)
{
    float y = x + 0.0f;
    uint32_t u = 0;
    memcpy(&u, &y, sizeof(u));
    return u ^ ((u >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

/* The last member of the k best: those with a larger key, and the first `ties`
 * with this key. */
struct cut {
    uint32_t key;
    uint32_t ties;
};

/* The bin, from the top, in which the k-th largest lies; *k becomes its rank
 * inside that bin. */
static uint32_t bin_of(const uint32_t *hist, uint32_t *k)
{
    uint32_t bin = HALF_KEYS - 1;
    for (; hist[bin] < *k; bin--) {
        *k -= hist[bin];
    }
    return bin;
}

/* 1 <= k <= s->n */
static struct cut select_best(struct sampler *s, uint32_t k)
{
    memset(s->hist, 0, HALF_KEYS * sizeof(*s->hist));
    for (uint32_t i = 0; i < s->n; i++) {
        s->hist[key_of(s->x[i]) >> 16]++;
    }
    uint32_t high = bin_of(s->hist, &k);
    memset(s->hist, 0, HALF_KEYS * sizeof(*s->hist));
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t key = key_of(s->x[i]);
        if (key >> 16 == high) {
            s->hist[key & 0xffffu]++;
        }
    }
    uint32_t low = bin_of(s->hist, &k);
    return (struct cut){.key = high << 16 | low, .ties = k};
}

static bool cut_keeps(struct cut *c, uint32_t key)
{
    if (key == c->key && c->ties > 0) {
        c->ties--;
        return true;
    }
    return key > c->key;
}

/* Drop what the cut does not keep; w goes along when `weights`. */
static void apply_cut(struct sampler *s, struct cut c, bool weights)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (cut_keeps(&c, key_of(s->x[i]))) {
            s->ids[n] = s->ids[i];
            s->x[n] = s->x[i];
            if (weights) {
                s->w[n] = s->w[i];
            }
            n++;
        }
    }
    s->n = n;
}

/* The candidates that the cut keeps, best first, as key << 32 | index. Stable
 * radix sort by the key's bytes, so equal keys stay in id order. */
static const uint64_t *sort_best(struct sampler *s, struct cut c, uint32_t *ret)
{
    uint64_t *a = s->sort[0];
    uint64_t *b = s->sort[1];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t key = key_of(s->x[i]);
        if (cut_keeps(&c, key)) {
            a[n++] = (uint64_t)key << 32 | i;
        }
    }
    for (unsigned shift = 32; shift < 64; shift += 8) {
        uint32_t start[257] = {0};
        for (uint32_t i = 0; i < n; i++) {
            start[256 - (a[i] >> shift & 0xff)]++; /* descending */
        }
        for (size_t d = 1; d < countof(start); d++) {
            start[d] += start[d - 1];
        }
        for (uint32_t i = 0; i < n; i++) {
            b[start[255 - (a[i] >> shift & 0xff)]++] = a[i];
        }
        uint64_t *t = a;
        a = b;
        b = t;
    }
    *ret = n;
    return a;
}

/* In id order; keeps what the sum was before each block. */
static double sum_weights(struct sampler *s)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (i % BLOCK == 0) {
            s->before[i / BLOCK] = sum;
        }
        sum += s->w[i];
    }
    return sum;
}

/* Keep the fewest best candidates whose mass is at least p. */
static void top_p(struct sampler *s, double p)
{
    double goal = p * sum_weights(s);
    uint32_t m = s->n < NUCLEUS ? s->n : NUCLEUS;
    for (;;) {
        uint32_t n = 0;
        const uint64_t *best = sort_best(s, select_best(s, m), &n);
        double mass = 0;
        uint32_t used = 0;
        while (used < n && (used == 0 || mass < goal)) {
            mass += s->w[(uint32_t)best[used++]];
        }
        if (mass >= goal || m == s->n) {
            struct cut c = {.key = (uint32_t)(best[used - 1] >> 32)};
            for (uint32_t i = used; i > 0 && best[i - 1] >> 32 == c.key; i--) {
                c.ties++;
            }
            apply_cut(s, c, true);
            return;
        }
        m = s->n / 8 < m ? s->n : m * 8;
    }
}

static void min_p(struct sampler *s, double p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->w[i] >= p) { /* the best one's weight is 1 */
            s->ids[n] = s->ids[i];
            s->w[n++] = s->w[i];
        }
    }
    s->n = n;
}

/* Candidates and their weights after all filters. best: argmax of x. */
static void filter(struct sampler *s, const float *x, uint32_t best,
                   const struct msg_sampling *p)
{
    s->n = 0;
    if (p->temperature <= 0) {
        s->ids[s->n] = (int32_t)best;
        s->w[s->n++] = 1;
        return;
    }
    for (uint32_t i = 0; i < s->vocab; i++) {
        s->ids[s->n] = (int32_t)i;
        s->x[s->n] = x[i];
        s->n += x[i] > -INFINITY;
    }
    if (p->top_k > 0 && p->top_k < s->n) {
        apply_cut(s, select_best(s, p->top_k), false);
    }
    vexp(s->x, s->n, (double)x[best], 1 / (double)p->temperature, s->w);
    if (p->top_p < 1) {
        top_p(s, (double)p->top_p);
    }
    if (p->min_p > 0) {
        min_p(s, p->min_p < 1 ? (double)p->min_p : 1);
    }
}

/* --- the draw --- */

static int32_t inverse_cdf(struct sampler *s, double u)
{
    double goal = u * sum_weights(s);
    uint32_t i = (s->n - 1) / BLOCK;
    while (s->before[i] > goal) {
        i--;
    }
    double sum = s->before[i];
    i *= BLOCK;
    for (; i + 1 < s->n; i++) {
        sum += s->w[i];
        if (sum > goal) {
            break;
        }
    }
    while (!(s->w[i] > 0)) { /* the sum's last step may round to its goal */
        must(i > 0);
        i--;
    }
    return s->ids[i];
}

int sampler_draw(struct sampler *s, const float *logits,
                 const struct msg_sampling *p, const int32_t *history,
                 size_t n_history, uint32_t out_index, struct msg_token *ret,
                 struct err *e)
{
    const float *x = NULL;
    uint32_t best = 0;
    uint32_t raw_best = 0;
    bool raw = !p->no_logprob || p->logprobs > 0; /* of the raw distribution */
    int rc = adjust(s, logits, p, history, n_history, &x, e);
    if (rc == 0) {
        rc = argmax(x, s->vocab, &best, e);
    }
    raw_best = best;
    if (rc == 0 && raw && x != logits) {
        rc = argmax(logits, s->vocab, &raw_best, e);
    }
    if (rc < 0) {
        return rc;
    }
    int32_t id = (int32_t)best;
    if (p->temperature > 0) {
        filter(s, x, best, p);
        id = inverse_cdf(s, sampler_random(p->seed, p->choice, out_index));
    }
    *ret = (struct msg_token){.id = id};
    if (!raw) {
        return 0;
    }
    double lse = log_sum_exp(logits, s->vocab, (double)logits[raw_best]);
    ret->logprob = (float)((double)logits[id] - lse);
    must(p->logprobs <= ENGINE_LOGPROBS_MAX);
    ret->n_top = top_alternatives(logits, s->vocab, p->logprobs, ret->top);
    for (uint32_t i = 0; i < ret->n_top; i++) {
        ret->top[i].logprob = (float)((double)ret->top[i].logprob - lse);
    }
    return 0;
}

const double *sampler_probs(struct sampler *s, const float *logits,
                            const struct msg_sampling *p,
                            const int32_t *history, size_t n_history)
{
    const float *x = NULL;
    uint32_t best = 0;
    memset(s->probs, 0, s->vocab * sizeof(*s->probs));
    if (adjust(s, logits, p, history, n_history, &x, NULL) < 0 ||
        argmax(x, s->vocab, &best, NULL) < 0) {
        return s->probs;
    }
    filter(s, x, best, p);
    double sum = sum_weights(s);
    for (uint32_t i = 0; i < s->n; i++) {
        s->probs[s->ids[i]] = s->w[i] / sum;
    }
    return s->probs;
}
