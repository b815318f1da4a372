/* sampler.c - see sampler.h: random numbers, bias and penalties, and what a
 * draw is; sampler_chain.c decides which tokens are left. */
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "engine/sampler_impl.h"
#include "engine/vexp.h"

#define PHILOX_M0 0xd2511f53u
#define PHILOX_M1 0xcd9e8d57u
#define PHILOX_W0 0x9e3779b9u
#define PHILOX_W1 0xbb67ae85u

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

double sampler_random_of(uint64_t seed, uint32_t choice, uint32_t index,
                         uint32_t stream)
{
    const uint32_t ctr[4] = {choice, index, stream, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t r[4];
    sampler_philox(ctr, key, r);
    uint64_t bits = ((uint64_t)r[0] << 32 | r[1]) >> 11;
    return (double)bits * 0x1p-53;
}

double sampler_random(uint64_t seed, uint32_t choice, uint32_t index)
{
    return sampler_random_of(seed, choice, index, STREAM_DRAW);
}

/* --- make and free --- */

int sampler_new(uint32_t vocab, struct sampler **ret, struct err *e)
{
    must(vocab > 0 && vocab <= MODEL_VOCAB_MAX);
    struct sampler *s = calloc(1, sizeof(*s));
    if (s != NULL) {
        s->vocab = vocab;
        s->blocks = (vocab + BLOCK - 1) / BLOCK;
        s->undo = calloc(UNDO_MAX(vocab), sizeof(*s->undo));
        s->counts = calloc(vocab, sizeof(*s->counts));
        s->peaks = calloc(s->blocks, sizeof(*s->peaks));
        s->before = calloc(vocab / SPAN + 1, sizeof(*s->before));
        s->ids = calloc(vocab, sizeof(*s->ids));
        s->x = calloc(vocab, sizeof(*s->x));
        s->w = calloc(vocab, sizeof(*s->w));
        s->sort[0] = calloc(vocab, sizeof(*s->sort[0]));
        s->sort[1] = calloc(vocab, sizeof(*s->sort[1]));
        s->probs = calloc(vocab, sizeof(*s->probs));
    }
    if (s == NULL || s->undo == NULL || s->counts == NULL || s->peaks == NULL ||
        s->before == NULL || s->ids == NULL || s->x == NULL || s->w == NULL ||
        s->sort[0] == NULL || s->sort[1] == NULL || s->probs == NULL) {
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
    free(s->undo);
    free(s->counts);
    free(s->peaks);
    free(s->before);
    free(s->ids);
    free(s->x);
    free(s->w);
    free(s->sort[0]);
    free(s->sort[1]);
    free(s->probs);
    free(s->mask);
    free(s->masked);
    free(s->lengths);
    free(s);
}

/* --- bias and penalties --- */

/* A few logits of very many change, so they are changed where they stand and
 * put back afterwards: copying all took longer than looking at them. */
static void change(struct sampler *s, float *logits, int32_t id, float to)
{
    must(s->n_undo < UNDO_MAX(s->vocab));
    s->undo[s->n_undo++] = (struct undo){id, logits[id]};
    logits[id] = to;
}

/* The last first: one may have changed twice. */
static void put_back(struct sampler *s, float *logits)
{
    while (s->n_undo > 0) {
        struct undo u = s->undo[--s->n_undo];
        logits[u.id] = u.was;
    }
}

float *sampler_at(struct sampler *s, float *logits, int32_t id)
{
    if (!s->listed) {
        change(s, logits, id, logits[id]);
        return &logits[id];
    }
    uint32_t low = 0;
    uint32_t high = s->n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (s->ids[mid] < id) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < s->n && s->ids[low] == id ? &s->x[low] : NULL;
}

/* What a logit becomes: a banned one stays banned, and penalties ban none, for
 * were all banned no token could be drawn. */
static float penalized(float was, float v)
{
    return isfinite(was) ? sampler_finite((double)v) : was;
}

static void penalize_repeats(struct sampler *s, float *logits,
                             const struct msg_sampling *p,
                             const int32_t *history, size_t n)
{
    for (size_t i = n - (n < p->repeat_last_n ? n : p->repeat_last_n); i < n;
         i++) {
        int32_t id = history[i];
        float *l = s->counts[id]++ == 0 ? sampler_at(s, logits, id) : NULL;
        if (l != NULL) {
            *l = penalized(*l, *l > 0 ? *l / p->repeat_penalty
                                      : *l * p->repeat_penalty);
        }
    }
    for (size_t i = 0; i < n; i++) {
        s->counts[history[i]] = 0;
    }
}

static void penalize_frequency(struct sampler *s, float *logits,
                               const struct msg_sampling *p,
                               const int32_t *history, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        s->counts[history[i]]++;
    }
    for (size_t i = 0; i < n; i++) {
        int32_t id = history[i];
        float *l = s->counts[id] > 0 ? sampler_at(s, logits, id) : NULL;
        if (l != NULL) {
            *l = penalized(*l,
                           *l - ((float)s->counts[id] * p->frequency_penalty +
                                 p->presence_penalty));
        }
        s->counts[id] = 0;
    }
}

static bool is(float a, float b)
{
    return !(a < b) && !(a > b);
}

void sampler_penalize(struct sampler *s, float *logits,
                      const struct msg_sampling *p, const int32_t *history,
                      size_t n)
{
    bool repeat = !is(p->repeat_penalty, 1) && p->repeat_last_n > 0;
    bool frequency =
        !is(p->frequency_penalty, 0) || !is(p->presence_penalty, 0);
    for (size_t i = 0; i < n; i++) {
        must(history[i] >= 0 && (uint32_t)history[i] < s->vocab);
    }
    if (repeat) {
        penalize_repeats(s, logits, p, history, n);
    }
    if (frequency) {
        penalize_frequency(s, logits, p, history, n);
    }
}

/* Until put_back. */
static int add_bias(struct sampler *s, float *logits,
                    const struct msg_sampling *p, struct err *e)
{
    must(p->n_bias <= ENGINE_BIAS_MAX);
    for (uint32_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || (uint32_t)p->bias[i].id >= s->vocab) {
            return err_set(e, ERR_INVALID, "logit bias for token %d of %u",
                           p->bias[i].id, s->vocab);
        }
        change(s, logits, p->bias[i].id,
               logits[p->bias[i].id] + p->bias[i].bias);
    }
    return 0;
}

/* Bias and all samplers; the logits are changed until put_back. */
static int prepare(struct sampler *s, float *logits,
                   const struct msg_sampling *p, const int32_t *history,
                   size_t n_history, uint32_t out_index, struct err *e)
{
    s->mu = p->mu;
    RETERR(add_bias(s, logits, p, e));
    return sampler_chain(s, logits, p, history, n_history, out_index, e);
}

/* The token's logprob and the alternatives. best: argmax of the logits. */
static void fill_logprobs(struct sampler *s, const float *logits, uint32_t best,
                          uint32_t k, struct msg_token *ret)
{
    must(k <= ENGINE_LOGPROBS_MAX);
    double max = (double)logits[best];
    double lse = max + fmath_log(vexp_sum(logits, s->vocab, max, 1, 0));
    ret->logprob = (float)((double)logits[ret->id] - lse);
    ret->n_top = sampler_alternatives(s, logits, k, ret->top);
    for (uint32_t i = 0; i < ret->n_top; i++) {
        ret->top[i].logprob = (float)((double)ret->top[i].logprob - lse);
    }
}

/* From what the chain left. */
static int32_t draw(struct sampler *s, const float *x,
                    const struct msg_sampling *p, uint32_t out_index,
                    uint32_t stream)
{
    bool one = s->listed && s->n == 1;
    double u =
        one ? 0 : sampler_random_of(p->seed, p->choice, out_index, stream);
    if (!s->listed) {
        return sampler_draw_all(s, x, u);
    }
    uint32_t i = sampler_draw_list(s, u);
    if (p->mirostat != 0) {
        s->mu = sampler_learn(s, p, i);
    }
    return s->ids[i];
}

/* The log-probabilities that p wants of ret->id, and of the likeliest, among all
 * tokens. */
static int of_all(struct sampler *s, const float *logits,
                  const struct msg_sampling *p, struct msg_token *ret,
                  struct err *e)
{
    uint32_t best = 0;
    if (p->no_logprob && p->logprobs == 0) {
        return 0;
    }
    RETERR(sampler_argmax(s, logits, &best, e));
    fill_logprobs(s, logits, best, p->logprobs, ret);
    return 0;
}

int sampler_draw(struct sampler *s, float *logits, const struct msg_sampling *p,
                 const int32_t *history, size_t n_history, uint32_t out_index,
                 struct msg_token *ret, struct err *e)
{
    bool raw = !p->no_logprob || p->logprobs > 0; /* of the raw distribution */
    int rc = prepare(s, logits, p, history, n_history, out_index, e);
    bool adjusted = s->n_undo > 0;
    if (rc == 0) {
        *ret = (struct msg_token){.id = draw(s, logits, p, out_index, STREAM_DRAW)};
    }
    put_back(s, logits);
    if (rc != 0 || !raw) {
        return rc;
    }
    if (adjusted) {
        return of_all(s, logits, p, ret, e);
    }
    fill_logprobs(s, logits, s->best, p->logprobs, ret);
    return 0;
}

/* --- under a mask --- */

uint64_t *sampler_mask(struct sampler *s)
{
    if (s->mask == NULL) {
        s->mask = calloc(((size_t)s->vocab + 63) / 64, sizeof(*s->mask));
        s->masked = calloc(s->vocab, sizeof(*s->masked));
    }
    return s->masked != NULL ? s->mask : NULL;
}

int sampler_draw_masked(struct sampler *s, float *logits,
                        const struct msg_sampling *p, const int32_t *history,
                        size_t n_history, uint32_t out_index,
                        const uint64_t *mask, struct msg_token *ret,
                        struct err *e)
{
    must(s->masked != NULL);
    for (uint32_t i = 0; i < s->vocab; i++) {
        bool allowed = (mask[i / 64] >> i % 64 & 1) != 0;
        s->masked[i] = allowed ? logits[i] : -INFINITY;
    }
    int rc = prepare(s, s->masked, p, history, n_history, out_index, e);
    if (rc == 0) {
        *ret = (struct msg_token){
            .id = draw(s, s->masked, p, out_index, STREAM_MASKED)};
    }
    s->n_undo = 0; /* the copy is not used again */
    if (rc != 0) {
        return err_set(e, rc,
                       "none of the tokens that the grammar allows can be drawn");
    }
    return of_all(s, logits, p, ret, e);
}

float sampler_mu(const struct sampler *s)
{
    return s->mu;
}

const double *sampler_probs(struct sampler *s, float *logits,
                            const struct msg_sampling *p,
                            const int32_t *history, size_t n_history,
                            uint32_t out_index)
{
    memset(s->probs, 0, s->vocab * sizeof(*s->probs));
    if (prepare(s, logits, p, history, n_history, out_index, NULL) == 0) {
        sampler_gather(s, logits);
        sampler_weigh(s);
        double sum = sampler_sum(s);
        for (uint32_t i = 0; i < s->n; i++) {
            s->probs[s->ids[i]] = s->w[i] / sum;
        }
    }
    put_back(s, logits);
    return s->probs;
}
