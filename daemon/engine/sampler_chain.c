/* sampler_chain.c - the samplers in their order, and those that are more than
 * a filter of the best. The definitions are those of llama.cpp, in double:
 *
 *   temperature  divides logits; with a range, by a temperature between
 *                T - range and T + range that grows with the entropy (dynatemp)
 *   top_n_sigma  keeps logits of at least max - n * standard deviation
 *   typical_p    keeps tokens whose surprise is nearest to the entropy
 *   xtc          at times keeps only the last of the tokens above a threshold
 *   mirostat     cuts so that drawn tokens have a given mean surprise; its
 *                number mu is the only state, and travels with the row (msg.h)
 *
 * A temperature does not touch the logits: s->scale is the product of all of
 * them. Only where penalties come behind one are logits multiplied by it.
 *
 * Tokens of minus infinity are never candidates. So sizes that enter a formula
 * (dynatemp's largest entropy) count tokens that can be drawn, where llama.cpp
 * also counts those that a bias or top_n_sigma has banned.
 */
#include <string.h>

#include "base/fmath.h"
#include "engine/sampler_impl.h"

#define LN2          0.69314718055994530942
#define SCALE_MAX    1e100 /* what a double can still square */
#define MIROSTAT_TOP 100u  /* tokens that v1 fits: llama.cpp's m */

struct chain {
    struct sampler *s;
    float *x; /* logits */
    const struct msg_sampling *p;
    const int32_t *history;
    size_t n_history;
    uint32_t out_index;
    unsigned in_place; /* samplers that changed logits where they stand */
};

/* The logits stay as they are from here on. */
static int begin(struct chain *c, struct err *e)
{
    struct sampler *s = c->s;
    if (!s->begun) {
        RETERR(sampler_argmax(s, c->x, &s->best, e));
        s->max = (double)c->x[s->best];
        s->begun = true;
    }
    return 0;
}

static int list_all(struct chain *c, struct err *e)
{
    RETERR(begin(c, e));
    sampler_gather(c->s, c->x);
    return 0;
}

/* --- penalties and dry: they change logits --- */

/* Make the logits of the list what they count as; they stay finite. */
static void apply_scale(struct sampler *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        s->x[i] = sampler_finite((double)s->x[i] * s->scale);
    }
    s->scale = 1;
    s->weighed = false;
}

/* Logits are changed where they stand as long as nothing has looked at them,
 * and once by each sampler: then there is room to note what they were. */
static int penalise(struct chain *c, enum msg_sampler k, struct err *e)
{
    struct sampler *s = c->s;
    bool scaled = s->scale < 1 || s->scale > 1;
    if (s->begun || scaled || (c->in_place & 1u << k) != 0) {
        RETERR(list_all(c, e));
        apply_scale(s);
    }
    c->in_place |= 1u << k;
    if (k == SAMPLER_DRY) {
        RETERR(sampler_dry(s, c->x, c->p, c->history, c->n_history, e));
    } else {
        sampler_penalize(s, c->x, c->p, c->history, c->n_history);
    }
    if (s->listed) {
        apply_scale(s);
    }
    return 0;
}

/* --- temperature --- */

static int keep_best(struct chain *c, struct err *e)
{
    struct sampler *s = c->s;
    RETERR(begin(c, e));
    uint32_t id = s->best;
    if (s->listed) {
        uint32_t i = sampler_best(s);
        sampler_move(s, i, 0);
        s->n = 1;
        s->weighed = false;
    } else {
        sampler_only(s, c->x, id);
    }
    return 0;
}

/* Sum and entropy of the list, which is weighed: with w = e^y the entropy is
 * ln(sum) - (sum of w y) / sum. */
static double entropy_of(const struct sampler *s, double *sum)
{
    double sum_wy = 0;
    *sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        *sum += s->w[i];
        sum_wy += s->w[i] * (((double)s->x[i] - s->max) * s->scale);
    }
    return fmath_log(*sum) - sum_wy / *sum;
}

/* The temperature by the entropy's share of the largest that is possible. */
static int dynamic(struct chain *c, double *t, struct err *e)
{
    const struct msg_sampling *p = c->p;
    struct sampler *s = c->s;
    double range = (double)p->dynatemp_range;
    double low = sampler_limited(*t - range, 0, HUGE_VAL);
    double sum = 0;
    RETERR(list_all(c, e));
    if (s->n < 2) {
        return 0;
    }
    sampler_weigh(s);
    double part = entropy_of(s, &sum) / fmath_log((double)s->n);
    double power =
        fmath_pow(sampler_limited(part, 0, 1), (double)p->dynatemp_exponent);
    *t = low + (*t + range - low) * power;
    return 0;
}

static int temperature(struct chain *c, struct err *e)
{
    double t = (double)c->p->temperature;
    if (c->p->dynatemp_range > 0 && c->p->mirostat == 0) {
        RETERR(dynamic(c, &t, e));
    }
    if (!(t > 0)) {
        return keep_best(c, e);
    }
    c->s->scale =
        sampler_limited(c->s->scale * (1 / t), 1 / SCALE_MAX, SCALE_MAX);
    c->s->weighed = false;
    return 0;
}

/* --- top_n_sigma --- */

/* max - n * sigma, of the n logits that are not minus infinity. A temperature
 * divides both sides, so it plays no part. */
static double sigma_bound(const float *x, uint32_t n, double sigmas)
{
    double sum = 0;
    double squares = 0;
    double max = -HUGE_VAL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] >= -FLT_MAX) {
            sum += (double)x[i];
            max = (double)x[i] > max ? (double)x[i] : max;
            count++;
        }
    }
    double mean = sum / count;
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] >= -FLT_MAX) {
            double d = (double)x[i] - mean;
            squares += d * d;
        }
    }
    return max - sigmas * sqrt(squares / count);
}

static int top_n_sigma(struct chain *c, struct err *e)
{
    struct sampler *s = c->s;
    double sigmas = (double)c->p->top_n_sigma;
    uint32_t n = 0;
    RETERR(begin(c, e));
    double bound = s->listed ? sigma_bound(s->x, s->n, sigmas)
                             : sigma_bound(c->x, s->vocab, sigmas);
    sampler_gather(s, c->x);
    for (uint32_t i = 0; i < s->n; i++) {
        if ((double)s->x[i] >= bound) {
            sampler_move(s, i, n++);
        }
    }
    s->n = n;
    return 0;
}

/* --- typical_p --- */

/* Keep the candidates of ranks [lo, hi). */
static void keep_ranks(struct sampler *s, const uint64_t *ranked, uint32_t lo,
                       uint32_t hi)
{
    uint64_t *kept = s->sort[ranked == s->sort[0] ? 1 : 0];
    uint32_t n = 0;
    memset(kept, 0, s->n * sizeof(*kept));
    for (uint32_t r = lo; r < hi; r++) {
        kept[(uint32_t)ranked[r]] = 1;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        if (kept[i] != 0) {
            sampler_move(s, i, n++);
        }
    }
    s->n = n;
    s->weighed = false; /* the best may be gone */
}

/* How far a rank's surprise is from the entropy. */
static double distance(const struct sampler *s, uint64_t ranked, double middle)
{
    return ((double)s->x[(uint32_t)ranked] - s->max) * s->scale - middle;
}

/* Surprise grows with the rank, so the nearest to the entropy are neighbours:
 * the range grows by the nearer end until its mass is above the goal. Of equal
 * distances the likelier token is first. */
static int typical_p(struct chain *c, struct err *e)
{
    struct sampler *s = c->s;
    double sum = 0;
    RETERR(list_all(c, e));
    sampler_weigh(s);
    double entropy = entropy_of(s, &sum);
    double middle = fmath_log(sum) - entropy; /* its (x - max) * scale */
    double goal = (double)c->p->typical_p * sum;
    const uint64_t *ranked = sampler_sort(s);
    uint32_t lo = 0;
    while (lo < s->n && distance(s, ranked[lo], middle) > 0) {
        lo++;
    }
    uint32_t hi = lo;
    double mass = 0;
    while (hi - lo < s->n && (hi == lo || mass <= goal)) {
        bool up =
            lo > 0 && (hi == s->n || distance(s, ranked[lo - 1], middle) <=
                                         -distance(s, ranked[hi], middle));
        mass += s->w[(uint32_t)ranked[up ? --lo : hi++]];
    }
    keep_ranks(s, ranked, lo, hi);
    return 0;
}

/* --- xtc --- */

static int xtc(struct chain *c, struct err *e)
{
    struct sampler *s = c->s;
    const struct msg_sampling *p = c->p;
    uint32_t above = 0;
    uint32_t last = 0; /* of those above, in rank */
    uint32_t n = 0;
    if (sampler_random_of(p->seed, p->choice, c->out_index, STREAM_XTC) >=
        (double)p->xtc_probability) {
        return 0;
    }
    RETERR(list_all(c, e));
    sampler_weigh(s);
    double w = (double)p->xtc_threshold * sampler_sum(s);
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->w[i] >= w) {
            last = above == 0 || s->x[i] <= s->x[last] ? i : last;
            above++;
        }
    }
    for (uint32_t i = 0; above > 1 && i < s->n; i++) {
        if (i == last || s->w[i] < w) {
            sampler_move(s, i, n++);
        }
    }
    if (above > 1) {
        s->n = n;
        s->weighed = false;
    }
    return 0;
}

/* --- mirostat --- */

/* How many tokens v1 keeps, when the exponent of Zipf's law is estimated from
 * the likeliest ones (Basu et al. 2021, equations 30 and 31). */
static uint32_t zipf_count(struct sampler *s, double mu)
{
    const uint64_t *ranked = sampler_sort(s);
    double sum_tb = 0;
    double sum_tt = 0;
    for (uint32_t r = 0; r + 1 < s->n; r++) {
        double t = fmath_log((double)(r + 2) / (double)(r + 1));
        double b = ((double)s->x[(uint32_t)ranked[r]] -
                    (double)s->x[(uint32_t)ranked[r + 1]]) *
                   s->scale;
        sum_tb += t * b;
        sum_tt += t * t;
    }
    double exponent = sum_tb / sum_tt;
    double over = exponent - 1;
    double k = fmath_pow(over * fmath_exp2(mu) /
                             (1 - fmath_pow((double)s->vocab, -over)),
                         1 / exponent);
    return (uint32_t)sampler_limited(k, 1, (double)s->vocab);
}

static void mirostat(struct chain *c)
{
    struct sampler *s = c->s;
    double mu = (double)c->p->mu;
    if (s->listed) {
        return; /* the likeliest alone */
    }
    if (c->p->mirostat == 1) {
        bool few = s->vocab <= MIROSTAT_TOP;
        if (few) {
            sampler_gather(s, c->x);
        } else {
            sampler_top_k(s, c->x, MIROSTAT_TOP);
        }
        uint32_t k = zipf_count(s, mu);
        s->listed = few || k <= s->n;
        sampler_top_k(s, c->x, k);
    } else if (!sampler_min_share(s, c->x, fmath_exp2(-mu))) {
        sampler_only(s, c->x, s->best); /* all are above mu */
    }
    sampler_gather(s, c->x);
}

float sampler_learn(const struct sampler *s, const struct msg_sampling *p,
                    uint32_t i)
{
    double surprise = fmath_log(sampler_sum(s) / s->w[i]) / LN2;
    double mu = (double)p->mu -
                (double)p->mirostat_eta * (surprise - (double)p->mirostat_tau);
    return sampler_finite(mu);
}

/* --- the chain --- */

static int apply(struct chain *c, enum msg_sampler k, struct err *e)
{
    const struct msg_sampling *p = c->p;
    switch (k) {
    case SAMPLER_PENALTIES:
    case SAMPLER_DRY:
        return penalise(c, k, e);
    case SAMPLER_TOP_N_SIGMA:
        return top_n_sigma(c, e);
    case SAMPLER_TYPICAL_P:
        return typical_p(c, e);
    case SAMPLER_XTC:
        return xtc(c, e);
    case SAMPLER_TEMPERATURE:
        return temperature(c, e);
    case SAMPLER_TOP_K:
        RETERR(begin(c, e));
        sampler_top_k(c->s, c->x, p->top_k);
        return 0;
    case SAMPLER_TOP_P:
        RETERR(begin(c, e));
        sampler_top_p(c->s, c->x, sampler_limited((double)p->top_p, 0, 1));
        return 0;
    case SAMPLER_MIN_P:
        RETERR(begin(c, e));
        sampler_min_p(c->s, c->x, sampler_limited((double)p->min_p, 0, 1));
        return 0;
    case SAMPLER_KINDS:
        break;
    }
    must(false);
    return 0;
}

int sampler_chain(struct sampler *s, float *logits,
                  const struct msg_sampling *p, const int32_t *history,
                  size_t n, uint32_t out_index, struct err *e)
{
    struct chain c = {.s = s,
                      .x = logits,
                      .p = p,
                      .history = history,
                      .n_history = n,
                      .out_index = out_index};
    const uint8_t *order = NULL;
    uint32_t n_order = msg_sampling_order(p, &order);
    s->begun = false;
    s->listed = false;
    s->weighed = false;
    s->scale = 1;
    for (uint32_t i = 0; i < n_order && !(s->listed && s->n == 1); i++) {
        if (msg_sampling_asks(p, order[i])) {
            RETERR(apply(&c, order[i], e));
        }
    }
    RETERR(begin(&c, e));
    if (p->mirostat != 0) {
        mirostat(&c);
    }
    if (msg_sampling_greedy(p)) {
        RETERR(keep_best(&c, e)); /* also where no temperature is listed */
    }
    return 0;
}
