/* test_sampler.c - the one rule by which a token is drawn (sampler.h), against a
 * plain rendering of it. Its random numbers: test_sampler_random.c; llama.cpp's
 * numbers: test_sampler_vectors.c; the chain: test_sampler_chain.c. */
#include <math.h>
#include <time.h>

#include "engine/vexp.h"
#include "sampler_kit.h"

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
        cmocka_unit_test(test_against_plain),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_penalties_and_bias),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_masked),
        cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
