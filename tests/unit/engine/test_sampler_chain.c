/* test_sampler_chain.c - chains of samplers against their definitions
 * (tests/oracle/sampler_vectors.py), how often tokens are drawn, and that every
 * chain leaves a token, whatever the numbers. */
#include <float.h>
#include <math.h>

#include "../unit.h"
#include "base/file.h"
#include "engine/sampler.h"
#include "proto/json.h"

#define VOCAB_MAX   256u
#define HISTORY_MAX 512u

static struct sampler *sampler_of(uint32_t vocab)
{
    struct sampler *s = NULL;
    struct err e;
    unit_ok(sampler_new(vocab, &s, &e), &e);
    return s;
}

/* One line of the vectors. */
struct vector {
    struct msg_sampling p;
    uint32_t vocab;
    float x[VOCAB_MAX];
    int32_t history[HISTORY_MAX];
    size_t n_history;
    int32_t breaks[64];
    double probs[VOCAB_MAX];
    double draws[VOCAB_MAX];
    bool drawn;
};

static void read_param(struct msg_sampling *p, const char *key, double v)
{
    const struct {
        const char *key;
        float *at;
    } floats[] = {
        {"temperature",       &p->temperature      },
        {"top_p",             &p->top_p            },
        {"min_p",             &p->min_p            },
        {"repeat_penalty",    &p->repeat_penalty   },
        {"presence_penalty",  &p->presence_penalty },
        {"frequency_penalty", &p->frequency_penalty},
        {"dynatemp_range",    &p->dynatemp_range   },
        {"dynatemp_exponent", &p->dynatemp_exponent},
        {"typical_p",         &p->typical_p        },
        {"top_n_sigma",       &p->top_n_sigma      },
        {"xtc_probability",   &p->xtc_probability  },
        {"xtc_threshold",     &p->xtc_threshold    },
        {"dry_multiplier",    &p->dry_multiplier   },
        {"dry_base",          &p->dry_base         },
        {"mu",                &p->mu               },
    };
    const struct {
        const char *key;
        uint32_t *at;
    } whole[] = {
        {"top_k",              &p->top_k             },
        {"dry_allowed_length", &p->dry_allowed_length},
        {"dry_last_n",         &p->dry_last_n        },
        {"mirostat",           &p->mirostat          },
    };
    bool known = strcmp(key, "seed") == 0;
    p->seed = known ? (uint64_t)v : p->seed;
    for (size_t i = 0; i < countof(floats); i++) {
        if (strcmp(floats[i].key, key) == 0) {
            *floats[i].at = (float)v;
            known = true;
        }
    }
    for (size_t i = 0; i < countof(whole); i++) {
        if (strcmp(whole[i].key, key) == 0) {
            *whole[i].at = (uint32_t)v;
            known = true;
        }
    }
    assert_true(known);
}

static void read_chain(struct msg_sampling *p, const struct json *list)
{
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        uint8_t k = 0;
        while (strcmp(msg_sampler_name(k), json_str(c)) != 0) {
            k++;
        }
        p->chain[p->n_chain++] = k;
    }
}

/* Each breaker is a group: its head and its tail. */
static void read_breaks(struct vector *v, const struct json *list)
{
    uint32_t n = 0;
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        v->breaks[n++] = (int32_t)json_count(c) - 1;
        const struct json *head = json_first(c);
        for (const struct json *t = json_next(head); t != NULL;
             t = json_next(t)) {
            v->breaks[n++] = (int32_t)json_num(t);
        }
        v->breaks[n++] = 1;
        v->breaks[n++] = (int32_t)json_num(head);
    }
    assert_true(n <= countof(v->breaks));
    v->p.breaks = v->breaks;
    v->p.n_breaks = n;
}

static void read_doubles(const struct json *list, double *to)
{
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        *to++ = json_num(c);
    }
}

static void read_vector(struct vector *v, const struct json *j)
{
    *v = (struct vector){0};
    msg_sampling_init(&v->p);
    v->p.temperature = 1;
    v->p.repeat_last_n = 64;
    v->p.dry_last_n = 64;
    v->p.no_logprob = true;
    const struct json *c = json_first(json_get(j, "params"));
    for (; c != NULL; c = json_next(c)) {
        read_param(&v->p, json_key(c), json_num(c));
    }
    read_chain(&v->p, json_get(j, "chain"));
    read_breaks(v, json_get(j, "breakers"));
    for (c = json_first(json_get(j, "history")); c != NULL; c = json_next(c)) {
        assert_true(v->n_history < HISTORY_MAX);
        v->history[v->n_history++] = (int32_t)json_num(c);
    }
    for (c = json_first(json_get(j, "logits")); c != NULL; c = json_next(c)) {
        assert_true(v->vocab < VOCAB_MAX);
        v->x[v->vocab++] =
            json_type(c) == JSON_NULL ? -INFINITY : (float)json_num(c);
    }
    read_doubles(json_get(j, "probs"), v->probs);
    read_doubles(json_get(j, "draws"), v->draws);
    v->drawn = json_get(j, "draws") != NULL;
}

/* mirostat learns from the surprise of the token that was drawn. */
static void check_mu(struct sampler *s, struct vector *v)
{
    struct msg_token t;
    struct err e;
    unit_ok(sampler_draw(s, v->x, &v->p, v->history, v->n_history, 0, &t, &e),
            &e);
    double surprise = -log2(v->probs[t.id]);
    double want = (double)v->p.mu - (double)v->p.mirostat_eta *
                                        (surprise - (double)v->p.mirostat_tau);
    assert_true(v->probs[t.id] > 0);
    assert_true(fabs((double)sampler_mu(s) - want) < 1e-5);
}

static void check_vector(const struct json *j, size_t at)
{
    struct vector v;
    float was[VOCAB_MAX];
    read_vector(&v, j);
    memcpy(was, v.x, sizeof(was));
    struct sampler *s = sampler_of(v.vocab);
    const double *got = sampler_probs(s, v.x, &v.p, v.history, v.n_history, 0);
    for (uint32_t i = 0; i < v.vocab; i++) {
        if (fabs(got[i] - v.probs[i]) > 1e-6 ||
            (got[i] > 0) != (v.probs[i] > 0)) {
            fail_msg("line %zu: token %u has %.9g, not %.9g", at + 2, i, got[i],
                     v.probs[i]);
        }
    }
    if (v.p.mirostat != 0) {
        check_mu(s, &v);
    }
    assert_memory_equal(was, v.x, sizeof(was));
    sampler_free(s);
}

static struct json *read_vectors(void)
{
    char path[1024];
    struct buf b;
    struct err e;
    struct json *all = NULL;
    assert_true(file_join(path, sizeof(path), unit_tests(),
                          "unit/engine/sampler_vectors.json"));
    unit_ok(file_read(path, MIB(1), &b, &e), &e);
    unit_ok(json_parse(b.p, b.n, &all, &e), &e);
    buf_fini(&b);
    return all;
}

static void test_definitions(void **state)
{
    (void)state;
    struct json *all = read_vectors();
    size_t n = 0;
    for (const struct json *c = json_first(all); c != NULL; c = json_next(c)) {
        check_vector(c, n++);
    }
    print_message("# %zu vectors\n", n);
    assert_true(n > 150);
    json_free(all);
}

/* Tokens come as often as they should, by chi-square at 0.001. */
static void check_draws(struct vector *v, uint32_t draws)
{
    static const double critical[] = {0,     10.83, 13.82, 16.27, 18.47, 20.52,
                                      22.46, 24.32, 26.12, 27.88, 29.59, 31.26};
    struct sampler *s = sampler_of(v->vocab);
    uint32_t seen[VOCAB_MAX] = {0};
    struct err e;
    double chi = 0;
    uint32_t kinds = 0;
    for (uint32_t i = 0; i < draws; i++) {
        struct msg_token t;
        unit_ok(
            sampler_draw(s, v->x, &v->p, v->history, v->n_history, i, &t, &e),
            &e);
        seen[t.id]++;
    }
    for (uint32_t i = 0; i < v->vocab; i++) {
        double mean = v->draws[i] * draws;
        kinds += mean > 0;
        assert_true(mean > 0 || seen[i] == 0);
        chi += mean > 0 ? (seen[i] - mean) * (seen[i] - mean) / mean : 0;
    }
    assert_in_range(kinds, 2, countof(critical));
    print_message("# %u tokens, chi-square %.2f of %.2f\n", kinds, chi,
                  critical[kinds - 1]);
    assert_true(chi < critical[kinds - 1]);
    sampler_free(s);
}

static void test_chi_square(void **state)
{
    (void)state;
    struct json *all = read_vectors();
    struct vector v;
    for (const struct json *c = json_first(all); c != NULL; c = json_next(c)) {
        read_vector(&v, c);
        if (v.drawn) {
            v.p.seed = 110;
            check_draws(&v, 200000);
        }
    }
    json_free(all);
}

/* --- whatever the numbers --- */

static uint32_t noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

#define ANY(seed, list) ((list)[noise(seed) % countof(list)])

static void wild_params(struct msg_sampling *p, uint64_t *seed)
{
    static const float parts[] = {-1, 0, 1e-45f, 0.3f, 0.9f, 1, 2, FLT_MAX};
    static const float large[] = {-FLT_MAX, -3,   0,    1e-45f, 0.5f,
                                  1,        1.5f, 1e6f, FLT_MAX};
    static const uint32_t counts[] = {0, 1, 2, 40, 300, UINT32_MAX};
    static int32_t breaks[] = {0, 3, 0, 1, 2, 1, 2, 2, 0, 3};
    float *const all[] = {
        &p->top_p,           &p->min_p,         &p->typical_p,
        &p->xtc_probability, &p->xtc_threshold, &p->temperature,
        &p->repeat_penalty,  &p->top_n_sigma,   &p->dynatemp_range,
        &p->dry_multiplier,  &p->dry_base,      &p->dynatemp_exponent,
        &p->mirostat_tau,    &p->mirostat_eta,  &p->mu,
        &p->presence_penalty};
    msg_sampling_init(p);
    for (size_t i = 0; i < countof(all); i++) {
        *all[i] = i < 5 ? ANY(seed, parts) : ANY(seed, large);
    }
    p->top_k = ANY(seed, counts);
    p->repeat_last_n = ANY(seed, counts);
    p->dry_last_n = ANY(seed, counts);
    p->dry_allowed_length = noise(seed) % 4;
    p->mirostat = noise(seed) % 4 == 0 ? 1 + noise(seed) % 2 : 0;
    p->n_chain = noise(seed) % (SAMPLERS_MAX + 1);
    for (uint32_t i = 0; i < p->n_chain; i++) {
        p->chain[i] = (uint8_t)(noise(seed) % SAMPLER_KINDS);
    }
    p->breaks = breaks;
    p->n_breaks = noise(seed) % 2 == 0 ? countof(breaks) : 0;
    p->seed = noise(seed);
    p->no_logprob = true;
}

static void wild_logits(float *x, uint32_t n, uint64_t *seed)
{
    static const float some[] = {-INFINITY, -INFINITY, -1e30f, -FLT_MAX, -5,
                                 -0.0f,     0,         1e-45f, 2,        30};
    uint32_t kind = noise(seed) % 4;
    for (uint32_t i = 0; i < n; i++) {
        float u = (float)(noise(seed) % 65536) * 0x1p-12f - 8;
        x[i] = kind == 0   ? u
               : kind == 1 ? 1
               : kind == 2 ? ANY(seed, some)
                           : -INFINITY;
    }
    x[noise(seed) % n] = 3; /* of kind 3 the only one */
}

/* At least one token is left and one of those is drawn. */
static void check_wild(struct sampler *s, float *x, uint32_t n,
                       const struct msg_sampling *p, const int32_t *history,
                       size_t n_history, const char *what)
{
    struct msg_token t;
    struct err e;
    double sum = 0;
    float was[VOCAB_MAX];
    memcpy(was, x, n * sizeof(*x));
    const double *q = sampler_probs(s, x, p, history, n_history, 7);
    for (uint32_t i = 0; i < n; i++) {
        sum += q[i];
        if (!(q[i] >= 0 && q[i] <= 1) || (x[i] < -FLT_MAX && q[i] > 0)) {
            fail_msg("%s: token %u has %g", what, i, q[i]);
        }
    }
    if (!(fabs(sum - 1) < 1e-9)) {
        fail_msg("%s: all together have %g", what, sum);
    }
    unit_ok(sampler_draw(s, x, p, history, n_history, 7, &t, &e), &e);
    assert_true(t.id >= 0 && (uint32_t)t.id < n && q[t.id] > 0);
    assert_true(isfinite(sampler_mu(s)));
    assert_memory_equal(was, x, n * sizeof(*x));
}

static void test_always_one(void **state)
{
    (void)state;
    uint64_t seed = 110;
    static const uint32_t sizes[] = {1, 2, 7, 120};
    float x[VOCAB_MAX];
    int32_t history[64];
    for (size_t k = 0; k < countof(sizes); k++) {
        uint32_t n = sizes[k];
        struct sampler *s = sampler_of(n);
        for (uint32_t round = 0; round < 5000; round++) {
            struct msg_sampling p;
            char what[64];
            (void)snprintf(what, sizeof(what), "vocab %u, round %u", n, round);
            wild_logits(x, n, &seed);
            wild_params(&p, &seed);
            for (size_t i = 0; i < countof(history); i++) {
                history[i] = (int32_t)(noise(&seed) % (n < 4 ? n : 4));
            }
            check_wild(s, x, n, &p, history, noise(&seed) % 64, what);
        }
        sampler_free(s);
    }
}

/* A model's error is found whatever the chain. */
static void test_not_finite(void **state)
{
    (void)state;
    uint64_t seed = 5;
    const float bad[][3] = {
        {-INFINITY, -INFINITY, -INFINITY},
        {0,         NAN,       1        },
        {0,         INFINITY,  1        }
    };
    struct sampler *s = sampler_of(3);
    for (uint32_t round = 0; round < 3000; round++) {
        struct msg_sampling p;
        struct msg_token t;
        struct err e;
        float x[3];
        memcpy(x, bad[round % 3], sizeof(x));
        wild_params(&p, &seed);
        assert_int_equal(
            sampler_draw(s, x, &p, (int32_t[]){2, 2, 2}, 3, 0, &t, &e),
            ERR_INVALID);
        assert_memory_equal(x, bad[round % 3], sizeof(x));
    }
    sampler_free(s);
}

/* The default order, in words, is the default, to the last bit. */
static void test_default_order(void **state)
{
    (void)state;
    static const uint8_t ours[] = {SAMPLER_PENALTIES, SAMPLER_TEMPERATURE,
                                   SAMPLER_TOP_K, SAMPLER_TOP_P, SAMPLER_MIN_P};
    enum { N = 5000 };
    static float x[N];
    static double first[N];
    uint64_t seed = 8;
    struct sampler *s = sampler_of(N);
    for (uint32_t i = 0; i < N; i++) {
        x[i] = (float)(noise(&seed) % 65536) * 0x1p-12f;
    }
    for (uint32_t round = 0; round < 16; round++) {
        struct msg_sampling p;
        msg_sampling_init(&p);
        p.temperature = 0.7f;
        p.repeat_penalty = 1.1f;
        p.repeat_last_n = 2;
        p.top_k = round & 1 ? 400 : 0;
        p.top_p = round & 2 ? 0.9f : 1;
        p.min_p = round & 4 ? 0.02f : 0;
        p.frequency_penalty = round & 8 ? 0.5f : 0;
        const int32_t history[] = {1, 2, 3, 2};
        memcpy(first, sampler_probs(s, x, &p, history, 4, 0), sizeof(first));
        p.n_chain = countof(ours);
        memcpy(p.chain, ours, sizeof(ours));
        assert_memory_equal(first, sampler_probs(s, x, &p, history, 4, 0),
                            sizeof(first));
    }
    sampler_free(s);
}

/* mirostat brings the mean surprise to tau, from either side. */
static void test_mirostat(void **state)
{
    (void)state;
    enum { N = 3000, DRAWS = 4000 };
    static float x[N];
    uint64_t seed = 3;
    struct sampler *s = sampler_of(N);
    for (uint32_t i = 0; i < N; i++) {
        x[i] = -2 * logf((float)i + 1) + (float)(noise(&seed) % 100) * 1e-3f;
    }
    for (uint32_t version = 1; version <= 2; version++) {
        for (float tau = 1; tau < 3; tau++) {
            struct msg_sampling p;
            struct msg_token t;
            struct err e;
            double sum = 0;
            msg_sampling_init(&p);
            p.temperature = 1.5f;
            p.mirostat = version;
            p.mirostat_tau = tau;
            p.mu = msg_sampling_mu(&p);
            for (uint32_t i = 0; i < DRAWS; i++) {
                unit_ok(sampler_draw(s, x, &p, NULL, 0, i, &t, &e), &e);
                float mu = sampler_mu(s); /* mu - eta * (surprise - tau) */
                sum += (double)((p.mu - mu) / p.mirostat_eta + tau);
                p.mu = mu;
            }
            print_message("# version %u, tau %g: %.3f\n", version, (double)tau,
                          sum / DRAWS);
            assert_true(fabs(sum / DRAWS - (double)tau) < 0.05);
        }
    }
    sampler_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definitions),   cmocka_unit_test(test_chi_square),
        cmocka_unit_test(test_always_one),    cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_default_order), cmocka_unit_test(test_mirostat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
