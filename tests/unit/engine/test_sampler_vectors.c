/* test_sampler_vectors.c - the sampler against llama.cpp's: which tokens its
 * filters leave, and with which probabilities. */
#include <math.h>

#include "base/file.h"
#include "proto/json.h"
#include "sampler_kit.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
