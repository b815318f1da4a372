/* test_sampler.c - the one rule by which a token is drawn (sampler.h); the chain:
 * test_sampler_chain.c. One long file: its cases share the plain rule that they
 * are compared with. */
#include <math.h>
#include <time.h>

#include "../unit.h"
#include "base/file.h"
#include "engine/sampler.h"
#include "engine/vexp.h"
#include "proto/json.h"

static struct sampler *sampler_of(uint32_t vocab)
{
    struct sampler *s = NULL;
    struct err e;
    unit_ok(sampler_new(vocab, &s, &e), &e);
    return s;
}

/* A plain generator for test data, apart from the one under test. */
static uint32_t noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Known answers of the authors' Random123 library, philox4x32 with 10 rounds.
 */
static void test_philox(void **state)
{
    (void)state;
    static const struct {
        uint32_t ctr[4], key[2], want[4];
    } t[] = {
        {{0, 0, 0, 0},
         {0, 0},
         {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < countof(t); i++) {
        uint32_t got[4];
        sampler_philox(t[i].ctr, t[i].key, got);
        assert_memory_equal(got, t[i].want, sizeof(got));
    }
}

/* What a seed means is fixed for ever: these numbers may never change. */
static void test_random_is_fixed(void **state)
{
    (void)state;
    uint64_t first = ((uint64_t)0x6627e8d5 << 32 | 0xe169c58d) >> 11;
    assert_true(sampler_random(0, 0, 0) == (double)first * 0x1p-53);
    /* counter (choice, index), key (low, high half of the seed) */
    uint32_t r[4];
    sampler_philox((uint32_t[]){3, 9, 0, 0}, (uint32_t[]){7, 5}, r);
    uint64_t bits = ((uint64_t)r[0] << 32 | r[1]) >> 11;
    assert_true(sampler_random((uint64_t)5 << 32 | 7, 3, 9) ==
                (double)bits * 0x1p-53);
    assert_true(sampler_random(1, 3, 9) != sampler_random(1, 9, 3));
}

static void test_vexp(void **state)
{
    (void)state;
    uint64_t seed = 1;
    double worst = 0;
    for (int i = 0; i < 200000; i++) {
        float x = -(float)noise(&seed) * (i % 2 == 0 ? 0x1p-22f : 0x1p-27f);
        double got = 0;
        vexp(&x, 1, 0.25, 1, &got);
        long double want = expl((long double)x - 0.25L);
        if (x < -699) {
            continue;
        }
        double error = (double)fabsl(((long double)got - want) / want);
        worst = error > worst ? error : worst;
    }
    print_message("# worst relative error %.3g\n", worst);
    assert_true(worst < 4e-16);
    /* edges */
    float x[7] = {0, -1, -2, -INFINITY, -701, -0.5f, -1e30f};
    double all[7];
    vexp(x, 7, 0, 1, all);
    assert_true(all[0] == 1 && all[3] == 0 && all[4] == 0 && all[6] == 0);
}

/* Whatever stands beside it, a number has the same result; these bits may never
 * change. */
static void test_vexp_bits(void **state)
{
    (void)state;
    enum { N = 300 };
    uint64_t seed = 7;
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, by words */
    for (size_t n = 0; n < N; n++) {
        float x[N] = {0};
        double got[N];
        double scale = 0x1p-4 * (double)(1 + n % 40);
        double sum = 0.25;
        for (size_t i = 0; i < n; i++) {
            x[i] = 3 - (float)(noise(&seed) % 100000) * 0x1p-11f;
        }
        vexp(x, n, 3, scale, got);
        for (size_t i = 0; i < n; i++) {
            double one = -1;
            uint64_t bits = 0;
            vexp(&x[i], 1, 3, scale, &one);
            assert_true(one == got[i]);
            memcpy(&bits, &one, sizeof(bits));
            hash = (hash ^ bits) * 0x100000001b3u;
            sum += one;
        }
        assert_true(vexp_sum(x, n, 3, scale, 0.25) == sum);
    }
    assert_true(hash == 0x5da6ab04380d1b4eu);
}

/* --- llama.cpp's vectors --- */

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x < y) - (x > y);
}

static float number(const struct json *params, const char *key)
{
    const struct json *j = json_get(params, key);
    assert_non_null(j);
    return (float)json_num(j);
}

static void ids_of(const struct json *j, const char *key, int32_t *ids,
                   size_t *n)
{
    for (const struct json *c = json_first(json_get(j, key)); c != NULL;
         c = json_next(c)) {
        ids[(*n)++] = (int32_t)json_num(c);
    }
}

/* Breakers of one token. */
static void breaks_of(const struct json *j, struct msg_sampling *p)
{
    static int32_t breaks[8] = {0, 0};
    for (const struct json *c = json_first(json_get(j, "seq_breakers"));
         c != NULL; c = json_next(c)) {
        breaks[2 + breaks[1]++] = (int32_t)json_num(json_first(c));
        p->breaks = breaks;
        p->n_breaks = 2 + (uint32_t)breaks[1];
    }
}

/* False when the sampler is none of ours. */
static bool vector_params(const char *name, const struct json *j,
                          struct msg_sampling *p, int32_t *history,
                          size_t *n_history)
{
    p->temperature = 1;
    if (strcmp(name, "temp") == 0 || strcmp(name, "temp_ext") == 0) {
        /* temp_ext with delta 0 is temp */
        p->temperature = number(j, "temp");
    } else if (strcmp(name, "top_k") == 0) {
        p->top_k = (uint32_t)number(j, "k");
    } else if (strcmp(name, "top_p") == 0) {
        p->top_p = number(j, "p");
    } else if (strcmp(name, "min_p") == 0) {
        p->min_p = number(j, "p");
    } else if (strcmp(name, "penalties") == 0) {
        p->repeat_penalty = number(j, "repeat_penalty");
        p->repeat_last_n = UINT32_MAX;
        p->frequency_penalty = number(j, "alpha_frequency");
        p->presence_penalty = number(j, "alpha_presence");
        ids_of(j, "last_tokens", history, n_history);
    } else if (strcmp(name, "dry") == 0) {
        p->dry_multiplier = number(j, "multiplier");
        p->dry_base = number(j, "base");
        p->dry_allowed_length = (uint32_t)number(j, "allowed_length");
        p->dry_last_n = (uint32_t)number(j, "penalty_last_n");
        ids_of(j, "last_tokens", history, n_history);
        breaks_of(j, p);
    } else if (strcmp(name, "typical") == 0) {
        p->typical_p = number(j, "p");
    } else if (strcmp(name, "xtc") == 0) {
        p->xtc_probability = number(j, "probability");
        p->xtc_threshold = number(j, "threshold");
    } else if (strcmp(name, "top_n_sigma") == 0) {
        p->top_n_sigma = number(j, "n");
    } else {
        return false;
    }
    return strcmp(name, "top_n_sigma") != 0 ||
           p->top_n_sigma > 0; /* 0 was greedy once: llama.cpp PR 13345 */
}

static bool vector_run(const struct json *v)
{
    struct msg_sampling p;
    int32_t history[16];
    size_t n_history = 0;
    const char *name = json_str(json_get(v, "sampler"));
    msg_sampling_init(&p);
    if (!vector_params(name, json_get(v, "params"), &p, history, &n_history)) {
        return false;
    }
    float logits[8];
    uint32_t vocab = 0;
    for (const struct json *c = json_first(json_get(v, "probs")); c != NULL;
         c = json_next(c)) {
        logits[vocab++] = logf((float)json_num(c));
    }
    struct sampler *s = sampler_of(vocab);
    double got[8];
    memcpy(got, sampler_probs(s, logits, &p, history, n_history, 0),
           vocab * sizeof(*got));
    qsort(got, vocab, sizeof(*got), descending);
    const struct json *want = json_first(json_get(v, "expected"));
    double all = 0; /* those of xtc and typical are not renormalised */
    for (const struct json *c = want; c != NULL; c = json_next(c)) {
        all += json_num(c);
    }
    for (uint32_t i = 0; i < vocab; i++) {
        double w = want != NULL ? json_num(want) / all : 0;
        if (fabs(got[i] - w) > 1e-5) {
            fail_msg("%s: rank %u: %.7f, wanted %.7f", name, i, got[i], w);
        }
        want = want != NULL ? json_next(want) : NULL;
    }
    sampler_free(s);
    return true;
}

static void test_vectors(void **state)
{
    (void)state;
    char path[1024];
    if (unit_shared() == NULL) {
        skip();
    }
    assert_true(file_join(path, sizeof(path), unit_shared(),
                          "data/sampling/llamacpp_sampler_vectors.json"));
    struct buf b;
    struct err e;
    struct json *all = NULL;
    unit_ok(file_read(path, MIB(1), &b, &e), &e);
    unit_ok(json_parse(b.p, b.n, &all, &e), &e);
    int run = 0;
    int other = 0;
    for (const struct json *v = json_first(all); v != NULL; v = json_next(v)) {
        if (vector_run(v)) {
            run++;
        } else {
            print_message("# not applicable: %s\n",
                          json_str(json_get(v, "sampler")));
            other++;
        }
    }
    print_message("# %d vectors pass, %d not applicable\n", run, other);
    assert_int_equal(run, 39);
    assert_int_equal(other, 1); /* top_n_sigma 0 */
    json_free(all);
    buf_fini(&b);
}

/* --- against a plain rendering of the rule: sort everything, then filter ---
 */

struct cand {
    int32_t id;
    float x;
    double w;
};

static int rank(const void *a, const void *b)
{
    const struct cand *p = a;
    const struct cand *q = b;
    int by_x = (p->x < q->x) - (p->x > q->x);
    return by_x != 0 ? by_x : (p->id > q->id) - (p->id < q->id);
}

/* Weights by id, 0 where a filter drops the token; scratch: n. */
static void plain_weights(const float *x, uint32_t n,
                          const struct msg_sampling *p, struct cand *scratch,
                          double *w)
{
    for (uint32_t i = 0; i < n; i++) {
        scratch[i] = (struct cand){.id = (int32_t)i, .x = x[i]};
    }
    qsort(scratch, n, sizeof(*scratch), rank);
    uint32_t k = p->top_k > 0 && p->top_k < n ? p->top_k : n;
    memset(w, 0, n * sizeof(*w));
    for (uint32_t i = 0; i < k; i++) {
        vexp(&scratch[i].x, 1, (double)scratch[0].x, 1 / (double)p->temperature,
             &scratch[i].w);
        w[scratch[i].id] = scratch[i].w;
    }
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += w[i];
    }
    double goal = (double)p->top_p * sum;
    double mass = 0;
    for (uint32_t i = 0; i < k; i++) {
        bool nucleus = i == 0 || p->top_p >= 1 || mass < goal;
        mass += scratch[i].w;
        if (!nucleus || scratch[i].w < (double)p->min_p) {
            w[scratch[i].id] = 0;
        }
    }
}

/* The draws and the probabilities are those of the plain rule, bit for bit. */
static void check_plain(struct sampler *s, float *x, uint32_t n,
                        struct msg_sampling *p, struct cand *scratch, double *w)
{
    struct msg_token t;
    struct err e;
    plain_weights(x, n, p, scratch, w);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += w[i];
    }
    const double *got = sampler_probs(s, x, p, NULL, 0, 0);
    for (uint32_t i = 0; i < n; i++) {
        if (got[i] < w[i] / sum || got[i] > w[i] / sum) {
            fail_msg("vocab %u top_k %u top_p %.9g min_p %g temperature %g: "
                     "token %u has %a, not %a",
                     n, p->top_k, (double)p->top_p, (double)p->min_p,
                     (double)p->temperature, i, got[i], w[i] / sum);
        }
    }
    for (uint32_t index = 0; index < 8; index++) {
        double goal = sampler_random(p->seed, p->choice, index) * sum;
        double below = 0;
        int32_t want = -1;
        while (below <= goal) {
            below += w[++want];
        }
        unit_ok(sampler_draw(s, x, p, NULL, 0, index, &t, &e), &e);
        assert_int_equal(t.id, want);
    }
}

/* Logits of many shapes. */
static void make_logits(uint32_t shape, float *x, uint32_t n, uint64_t *seed)
{
    for (uint32_t i = 0; i < n; i++) {
        float u = (float)(noise(seed) % 65536) * 0x1p-16f;
        switch (shape % 10) {
        case 0:
            x[i] = u * 12 - 6;
            break;
        case 1:
            x[i] = floorf(u * 8) - 4;
            break; /* many are equal */
        case 2:
            x[i] = 1;
            break;
        case 3:
            x[i] = u * u * u * u * 60 - 30;
            break;
        case 4:
            x[i] = u < 0.9f ? -INFINITY : u * 50;
            break;
        case 5:
            x[i] = u * 2000 - 1000;
            break; /* most weigh nothing */
        case 6:
            x[i] = (u * 2 - 1) * 3e38f;
            break;
        case 7:
            x[i] = (floorf(u * 64) - 32) * 0x1p-149f;
            break;
        case 8:
            x[i] = (float)i * 1e-3f - (u < 0.5f ? 0.f : 3.f);
            break;
        default:
            x[i] = u < 0.999f ? -u * 0x1p-20f : 8;
            break;
        }
    }
    x[noise(seed) % n] = 2;
    x[noise(seed) % n] = noise(seed) % 2 == 0 ? 0.f : -0.f;
}

static void test_against_plain(void **state)
{
    (void)state;
    static const struct {
        uint32_t vocab, rounds; /* 0: any up to 300 */
    } sizes[] = {
        {0,      6000},
        {4096,   300 },
        {262144, 10  },
    };
    static const float ts[] = {1,      0.3f,   0.7f, 1.9f, 1e-3f,
                               1e-30f, 1e-45f, 50,   1e6f, 3e38f};
    static const uint32_t ks[] = {0, 0, 0, 1, 2, 40, 300, 3000, 300000};
    static const float ps[] = {1,     1,      0.95f,       0.5f,
                               0.05f, 0.999f, 0.99999994f, 0};
    static const float ms[] = {0, 0, 0.05f, 0.3f, 1, 1e-45f};
    enum { MAX = 262144 };
    float *x = calloc(MAX, sizeof(*x));
    double *w = calloc(MAX, sizeof(*w));
    struct cand *scratch = calloc(MAX, sizeof(*scratch));
    assert_true(x != NULL && w != NULL && scratch != NULL);
    uint64_t seed = 77;
    for (size_t k = 0; k < countof(sizes); k++) {
        for (uint32_t round = 0; round < sizes[k].rounds; round++) {
            uint32_t n = sizes[k].vocab;
            n = n > 0 ? n : 1 + noise(&seed) % 300;
            struct sampler *s = sampler_of(n);
            struct msg_sampling p;
            msg_sampling_init(&p);
            make_logits(round, x, n, &seed);
            p.seed = noise(&seed);
            p.no_logprob = true;
            p.temperature = ts[noise(&seed) % countof(ts)];
            p.top_k = ks[noise(&seed) % countof(ks)];
            p.top_p = ps[noise(&seed) % countof(ps)];
            p.min_p = ms[noise(&seed) % countof(ms)];
            check_plain(s, x, n, &p, scratch, w);
            sampler_free(s);
        }
    }
    free(x);
    free(w);
    free(scratch);
}

static void test_greedy(void **state)
{
    (void)state;
    struct sampler *s = sampler_of(6);
    struct msg_sampling p;
    struct msg_token t;
    struct err e;
    msg_sampling_init(&p);
    float tie[6] = {-1, 2, 0, 2, 2, -5};
    unit_ok(sampler_draw(s, tie, &p, NULL, 0, 0, &t, &e), &e);
    assert_int_equal(t.id, 1); /* the lowest id */
    float zeros[6] = {-1, -0.0f, 0, -3, -2, -5};
    unit_ok(sampler_draw(s, zeros, &p, NULL, 0, 0, &t, &e), &e);
    assert_int_equal(t.id, 1);
    p.temperature = 1;
    p.top_k = 1; /* the same rule */
    unit_ok(sampler_draw(s, zeros, &p, NULL, 0, 0, &t, &e), &e);
    assert_int_equal(t.id, 1);
    unit_ok(sampler_draw(s, tie, &p, NULL, 0, 0, &t, &e), &e);
    assert_int_equal(t.id, 1);
    sampler_free(s);
}

static void test_penalties_and_bias(void **state)
{
    (void)state;
    struct sampler *s = sampler_of(4);
    struct msg_sampling p;
    struct msg_token t;
    struct err e;
    float x[4] = {4, 3, -1, -2};
    const int32_t history[] = {1, 0, 2, 2};
    msg_sampling_init(&p);

    p.repeat_penalty = 2; /* 0: 4 -> 2; 2: -1 -> -2 */
    p.repeat_last_n = 3;  /* not token 1 */
    unit_ok(sampler_draw(s, x, &p, history, 4, 0, &t, &e), &e);
    assert_int_equal(t.id, 1);
    p.repeat_last_n = 4; /* 1: 3 -> 1.5 */
    unit_ok(sampler_draw(s, x, &p, history, 4, 0, &t, &e), &e);
    assert_int_equal(t.id, 0);
    p.repeat_last_n = 0;
    p.presence_penalty = 1.5f; /* whatever repeat_last_n is */
    unit_ok(sampler_draw(s, x, &p, history + 1, 3, 0, &t, &e), &e);
    assert_int_equal(t.id, 1);
    p.presence_penalty = 0;
    p.frequency_penalty = 0.75f; /* 0: 3.25, 2: -2.5 */
    p.temperature = 1;
    const double *w = sampler_probs(s, x, &p, history + 1, 3, 0);
    double sum = exp(3.25) + exp(3) + exp(-2.5) + exp(-2);
    assert_true(fabs(w[0] - exp(3.25) / sum) < 1e-9);
    assert_true(fabs(w[2] - exp(-2.5) / sum) < 1e-9);
    /* the raw distribution is what is reported */
    unit_ok(sampler_draw(s, x, &p, history + 1, 3, 0, &t, &e), &e);
    double raw = exp(4) + exp(3) + exp(-1) + exp(-2);
    assert_true(fabs((double)t.logprob - ((double)x[t.id] - log(raw))) < 1e-6);

    msg_sampling_init(&p);
    struct msg_bias bias[3] = {
        {3, 7        }, /* 5 */
        {0, -INFINITY}, /* banned */
    };
    p.bias = bias;
    p.n_bias = 2;
    unit_ok(sampler_draw(s, x, &p, NULL, 0, 0, &t, &e), &e);
    assert_int_equal(t.id, 3);
    p.temperature = 1;
    assert_true(sampler_probs(s, x, &p, NULL, 0, 0)[0] == 0);
    /* the logits are as before, whatever happened, how often to one of them */
    float was[4] = {4, 3, -1, -2};
    assert_memory_equal(x, was, sizeof(was));
    p.n_bias = 3;
    bias[2] = bias[0];
    p.repeat_penalty = 2;
    p.repeat_last_n = 4;
    p.frequency_penalty = 0.75f;
    unit_ok(sampler_draw(s, x, &p, (int32_t[]){3, 3, 1, 0}, 4, 0, &t, &e), &e);
    assert_memory_equal(x, was, sizeof(was));
    bias[2].id = 4;
    assert_int_equal(sampler_draw(s, x, &p, NULL, 0, 0, &t, &e), ERR_INVALID);
    assert_memory_equal(x, was, sizeof(was));
    bias[2].id = 0;
    bias[2].bias = NAN;
    assert_int_equal(sampler_draw(s, x, &p, NULL, 0, 0, &t, &e), ERR_INVALID);
    assert_memory_equal(x, was, sizeof(was));
    sampler_free(s);
}

static void test_logprobs(void **state)
{
    (void)state;
    enum { N = 1000 };
    float x[N];
    uint64_t seed = 9;
    long double sum = 0;
    for (size_t i = 0; i < N; i++) {
        x[i] = (float)(noise(&seed) % 4000) * 0.01f - 20;
        sum += expl((long double)x[i]);
    }
    x[10] = x[500] = x[700] = 20; /* equal ones: lowest id first */
    for (size_t i = 0; i < 3; i++) {
        sum += expl(20);
    }
    sum = 0;
    for (size_t i = 0; i < N; i++) {
        sum += expl((long double)x[i]);
    }
    struct sampler *s = sampler_of(N);
    struct msg_sampling p;
    struct msg_token t;
    struct err e;
    msg_sampling_init(&p);
    p.logprobs = ENGINE_LOGPROBS_MAX;
    unit_ok(sampler_draw(s, x, &p, NULL, 0, 0, &t, &e), &e);
    assert_int_equal(t.id, 10);
    assert_int_equal(t.n_top, ENGINE_LOGPROBS_MAX);
    assert_int_equal(t.top[0].id, 10);
    assert_int_equal(t.top[1].id, 500);
    assert_int_equal(t.top[2].id, 700);
    for (size_t i = 0; i < t.n_top; i++) {
        long double want = (long double)x[t.top[i].id] - logl(sum);
        assert_true(fabsl((long double)t.top[i].logprob - want) < 1e-6L);
        assert_true(i == 0 || t.top[i].logprob <= t.top[i - 1].logprob);
    }
    /* the raw ones also where a bias decides */
    p.n_bias = 1;
    p.bias = &(struct msg_bias){10, -INFINITY};
    unit_ok(sampler_draw(s, x, &p, NULL, 0, 0, &t, &e), &e);
    assert_int_equal(t.id, 500);
    assert_int_equal(t.top[0].id, 10);
    assert_int_equal(t.top[2].id, 700);
    p.n_bias = 0;
    p.logprobs = 0;
    unit_ok(sampler_draw(s, x, &p, NULL, 0, 0, &t, &e), &e);
    assert_int_equal(t.n_top, 0);
    assert_true(fabsl((long double)t.logprob - (20 - logl(sum))) < 1e-6L);
    p.no_logprob = true;
    unit_ok(sampler_draw(s, x, &p, NULL, 0, 0, &t, &e), &e);
    assert_int_equal(t.id, 10);
    assert_true(t.logprob >= 0 && t.logprob <= 0);
    sampler_free(s);
    /* fewer tokens than asked for */
    s = sampler_of(3);
    p.logprobs = 5; /* says more than no_logprob */
    unit_ok(sampler_draw(s, x, &p, NULL, 0, 0, &t, &e), &e);
    assert_int_equal(t.n_top, 3);
    assert_true(t.logprob < 0);
    sampler_free(s);
}

static void test_not_finite(void **state)
{
    (void)state;
    struct sampler *s = sampler_of(3);
    struct msg_sampling p;
    struct msg_token t = {.id = 77};
    struct err e;
    msg_sampling_init(&p);
    float bad[][3] = {
        {-INFINITY, -INFINITY, -INFINITY},
        {0,         NAN,       1        },
        {0,         INFINITY,  1        }
    };
    for (size_t i = 0; i < countof(bad); i++) {
        assert_int_equal(sampler_draw(s, bad[i], &p, NULL, 0, 0, &t, &e),
                         ERR_INVALID);
        assert_int_equal(t.id, 77);
    }
    enum { N = 37 }; /* lanes and a tail */
    struct sampler *wide = sampler_of(N);
    for (uint32_t i = 0; i < N; i++) {
        float x[N];
        for (uint32_t k = 0; k < N; k++) {
            x[k] = -(float)(k % 5);
        }
        x[i] = 1;
        x[(i + 7) % N] = (i + 7) % N > i ? 1 : 0;
        unit_ok(sampler_draw(wide, x, &p, NULL, 0, 0, &t, &e), &e);
        assert_int_equal(t.id, i);
        x[i] = NAN;
        assert_int_equal(sampler_draw(wide, x, &p, NULL, 0, 0, &t, &e),
                         ERR_INVALID);
        x[i] = INFINITY;
        assert_int_equal(sampler_draw(wide, x, &p, NULL, 0, 0, &t, &e),
                         ERR_INVALID);
    }
    sampler_free(wide);
    float fine[3] = {-INFINITY, -3, -INFINITY};
    p.temperature = 2;
    unit_ok(sampler_draw(s, fine, &p, NULL, 0, 0, &t, &e), &e);
    assert_int_equal(t.id, 1);
    sampler_free(s);
}

/* 60000 draws by consecutive output indexes follow the distribution, and the
 * same seed draws the same. Critical value: chi-square, 7 degrees, 0.001. */
static void test_chi_square(void **state)
{
    (void)state;
    enum { N = 8, DRAWS = 60000 };
    float x[N] = {0, 1, -1, 0.5f, 2, -2, 0.25f, 1.5f};
    struct sampler *s = sampler_of(N);
    struct msg_sampling p;
    struct err e;
    msg_sampling_init(&p);
    p.temperature = 0.8f;
    for (p.seed = 0; p.seed < 4; p.seed++) {
        double want[N];
        unsigned seen[N] = {0};
        uint64_t sum_ids = 0;
        memcpy(want, sampler_probs(s, x, &p, NULL, 0, 0), sizeof(want));
        for (uint32_t i = 0; i < DRAWS; i++) {
            struct msg_token t;
            unit_ok(sampler_draw(s, x, &p, NULL, 0, i, &t, &e), &e);
            seen[t.id]++;
            sum_ids += (uint64_t)t.id * i;
        }
        double chi = 0;
        for (size_t i = 0; i < N; i++) {
            double mean = want[i] * (double)DRAWS;
            double d = seen[i] - mean;
            chi += d * d / mean;
        }
        print_message("# seed %u: chi-square %.2f\n", (unsigned)p.seed, chi);
        assert_true(chi < 24.32);
        for (uint32_t i = DRAWS; i-- > 0;) { /* any order, the same tokens */
            struct msg_token t;
            unit_ok(sampler_draw(s, x, &p, NULL, 0, i, &t, &e), &e);
            sum_ids -= (uint64_t)t.id * i;
        }
        assert_true(sum_ids == 0);
    }
    sampler_free(s);
}

/* The token is the inverse CDF of its random number in id order. */
static void test_inverse_cdf(void **state)
{
    (void)state;
    float x[4] = {0, 0, 0, 0};
    struct sampler *s = sampler_of(4);
    struct msg_sampling p;
    struct err e;
    msg_sampling_init(&p);
    p.temperature = 1;
    p.seed = 11;
    for (p.choice = 0; p.choice < 3; p.choice++) {
        for (uint32_t i = 0; i < 100; i++) {
            struct msg_token t;
            unit_ok(sampler_draw(s, x, &p, NULL, 0, i, &t, &e), &e);
            assert_int_equal(t.id, (int)(sampler_random(11, p.choice, i) * 4));
        }
    }
    sampler_free(s);
}

/* The same over many blocks of candidates, against the plain sum. */
static void test_inverse_cdf_wide(void **state)
{
    (void)state;
    enum { N = 5000 };
    float x[N];
    uint64_t seed = 4;
    for (size_t i = 0; i < N; i++) {
        x[i] = (float)(noise(&seed) % 1000) * 0.004f;
    }
    x[0] = x[N - 1] = -INFINITY;
    struct sampler *s = sampler_of(N);
    struct msg_sampling p;
    struct err e;
    msg_sampling_init(&p);
    p.temperature = 0.7f;
    p.min_p = 0.05f;
    double w[N];
    memcpy(w, sampler_probs(s, x, &p, NULL, 0, 0), sizeof(w));
    int32_t low = N;
    int32_t high = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        struct msg_token t;
        unit_ok(sampler_draw(s, x, &p, NULL, 0, i, &t, &e), &e);
        double u = sampler_random(0, 0, i);
        double below = 0;
        for (int32_t k = 0; k < t.id; k++) {
            below += w[k];
        }
        assert_true(w[t.id] > 0);
        assert_true(below <= u + 1e-12 && u - 1e-12 < below + w[t.id]);
        low = t.id < low ? t.id : low;
        high = t.id > high ? t.id : high;
    }
    assert_true(low < 100 && high > N - 100);
    sampler_free(s);
}

/* A draw under a mask is one from the masked target, by another random number,
 * and its log-probability is that of the whole distribution. */
static void test_masked(void **state)
{
    (void)state;
    enum { N = 300, DRAWS = 20000 };
    float x[N];
    float masked[N];
    uint64_t seed = 9;
    static double counts[N];
    struct sampler *s = sampler_of(N);
    uint64_t *mask = sampler_mask(s);
    struct msg_sampling p;
    struct msg_token t;
    struct err e;
    assert_non_null(mask);
    for (uint32_t i = 0; i < N; i++) {
        x[i] = (float)(noise(&seed) % 1000) * 0.005f;
        bool allowed = i % 7 == 3;
        mask[i / 64] = i % 64 == 0 ? 0 : mask[i / 64];
        mask[i / 64] |= (uint64_t)allowed << i % 64;
        masked[i] = allowed ? x[i] : -INFINITY;
    }
    msg_sampling_init(&p);
    p.temperature = 0.8f;
    p.top_k = 20; /* of those that are allowed */
    double want[N];
    memcpy(want, sampler_probs(s, masked, &p, NULL, 0, 0), sizeof(want));
    for (uint32_t i = 0; i < DRAWS; i++) {
        unit_ok(sampler_draw_masked(s, x, &p, NULL, 0, i, mask, &t, &e), &e);
        assert_true(want[t.id] > 0);
        counts[t.id]++;
        double u = sampler_random_of(0, 0, i, 1);
        double below = 0;
        for (int32_t k = 0; k < t.id; k++) {
            below += want[k];
        }
        assert_true(below <= u + 1e-12 && u - 1e-12 < below + want[t.id]);
    }
    double chi = 0;
    for (uint32_t i = 0; i < N; i++) {
        double expected = want[i] * DRAWS;
        chi += expected > 0
                   ? (counts[i] - expected) * (counts[i] - expected) / expected
                   : 0;
    }
    assert_true(chi < 43.8); /* 19 degrees of freedom: 0.001 */
    double lse = 0;
    for (uint32_t i = 0; i < N; i++) {
        lse += exp((double)x[i]);
    }
    assert_true(fabs((double)t.logprob - ((double)x[t.id] - log(lse))) < 1e-5);
    p.temperature = 0; /* the best of them */
    unit_ok(sampler_draw_masked(s, x, &p, NULL, 0, 0, mask, &t, &e), &e);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(!(masked[i] > x[t.id]));
    }
    memset(mask, 0, (N + 63) / 64 * sizeof(*mask));
    assert_int_equal(
        sampler_draw_masked(s, x, &p, NULL, 0, 0, mask, &t, &e), ERR_INVALID);
    mask[1] = 2; /* one token, which a bias bans */
    struct msg_bias ban = {.id = 65, .bias = -INFINITY};
    p.bias = &ban;
    p.n_bias = 1;
    assert_int_equal(
        sampler_draw_masked(s, x, &p, NULL, 0, 0, mask, &t, &e), ERR_INVALID);
    ban.id = 64;
    unit_ok(sampler_draw_masked(s, x, &p, NULL, 0, 0, mask, &t, &e), &e);
    assert_int_equal(t.id, 65);
    sampler_free(s);
}

/* Not a threshold, a printed figure: one draw over gemma's vocabulary. */
static void test_speed(void **state)
{
    (void)state;
    enum { N = 262144, RUNS = 20 };
    float *x = malloc(N * sizeof(*x));
    assert_non_null(x);
    uint64_t seed = 3;
    for (size_t i = 0; i < N; i++) {
        float u = (float)(noise(&seed) % 65536) * 0x1p-16f;
        x[i] = u * u * u * 24 - 12;
    }
    struct sampler *s = sampler_of(N);
    static const struct {
        const char *name;
        float temperature, top_p, min_p;
        uint32_t top_k;
    } t[] = {
        {"greedy",       0, 1,     0,     0 },
        {"temperature",  1, 1,     0,     0 },
        {"top-k 40",     1, 1,     0,     40},
        {"top-p 0.95",   1, 0.95f, 0,     0 },
        {"min-p 0.05",   1, 1,     0.05f, 0 },
        {"40/0.95/0.05", 1, 0.95f, 0.05f, 40},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct msg_sampling p;
        struct msg_token tok;
        struct err e;
        struct timespec a;
        struct timespec b;
        msg_sampling_init(&p);
        p.temperature = t[i].temperature;
        p.top_k = t[i].top_k;
        p.top_p = t[i].top_p;
        p.min_p = t[i].min_p;
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        for (uint32_t k = 0; k < RUNS; k++) {
            unit_ok(sampler_draw(s, x, &p, NULL, 0, k, &tok, &e), &e);
        }
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        double us = (double)(b.tv_sec - a.tv_sec) * 1e6 +
                    (double)(b.tv_nsec - a.tv_nsec) * 1e-3;
        print_message("# %-12s %7.0f us\n", t[i].name, us / (double)RUNS);
    }
    sampler_free(s);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_random_is_fixed),
        cmocka_unit_test(test_vexp),
        cmocka_unit_test(test_vexp_bits),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_against_plain),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_penalties_and_bias),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_chi_square),
        cmocka_unit_test(test_inverse_cdf),
        cmocka_unit_test(test_masked),
        cmocka_unit_test(test_inverse_cdf_wide),
        cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
