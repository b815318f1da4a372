/* test_tags.c - tags.h: paths against all well-formed paths of short texts, and
 * spans of text with everything in it. */
#include "model/tags.h"

#include <math.h>

#include "../unit.h"

static uint64_t seed;

/* In [0, 1). */
static double draw(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(seed >> 11) / 9007199254740992.0;
}

/* --- labels --- */

/* O and two classes, out of order. */
static const char *const names[] = {"S-b", "O",   "B-a", "I-a", "E-b",
                                    "B-b", "E-a", "S-a", "I-b"};
enum { SB, O, BA, IA, EB, BB, EA, SA, IB, N };

static struct tags *open_all(void)
{
    struct tags *t = NULL;
    struct err e = {0};
    unit_ok(tags_open(names, N, &t, &e), &e);
    return t;
}

static void test_labels(void **state)
{
    (void)state;
    struct tags *t = open_all();
    assert_int_equal(tags_classes(t), 2);
    assert_string_equal(tags_class(t, 0), "b");
    assert_int_equal(tags_find(t, "a"), 1);
    assert_int_equal(tags_find(t, "c"), UINT32_MAX);
    tags_close(t);
    tags_close(NULL);
}

static void test_labels_refused(void **state)
{
    (void)state;
    static const struct {
        const char *list[8];
        uint32_t n;
        const char *tells;
    } bad[] = {
        {{"B-a", "I-a", "E-a", "S-a"},                4, "O"  },
        {{"O", "B-a", "I-a", "E-a"},                  4, "a"  },
        {{"O", "B-a", "I-a", "E-a", "S-a", "O"},      6, "O"  },
        {{"O", "B-a", "I-a", "E-a", "S-a", "I-a"},    6, "I-a"},
        {{"O", "L-a"},                                2, "L-a"},
        {{"O", "O-a"},                                2, "O-a"},
        {{"O", "B-"},                                 2, "B-" },
        {{"O", "B"},                                  2, "B"  },
        {{"O", "B_a"},                                2, "B_a"},
        {{"O", ""},                                   2, ""   },
        {{NULL},                                      0, "O"  },
    };
    for (size_t i = 0; i < countof(bad); i++) {
        struct tags *t = NULL;
        struct err e = {0};
        assert_int_equal(tags_open(bad[i].list, bad[i].n, &t, &e),
                         ERR_UNSUPPORTED);
        assert_null(t);
        assert_non_null(strstr(e.msg, bad[i].tells));
    }
    struct tags *t = NULL;
    struct err e = {0};
    assert_int_equal(tags_open(names, MODEL_LABELS_MAX + 1, &t, &e),
                     ERR_UNSUPPORTED);
}

/* --- paths --- */

/* What the step from label a to b adds, said once more by names; NAN: it is
 * not well formed. */
static double step(uint32_t a, uint32_t b, const float *bias)
{
    const char *x = names[a];
    const char *y = names[b];
    bool out = x[0] == 'O';
    bool over = x[0] == 'E' || x[0] == 'S';
    if (x[0] == 'B' || x[0] == 'I') {
        bool same = strcmp(x + 1, y + 1) == 0;
        return same && y[0] == 'I'   ? (double)bias[TAGS_CONTINUE]
               : same && y[0] == 'E' ? (double)bias[TAGS_END]
                                     : (double)NAN;
    }
    if (y[0] == 'I' || y[0] == 'E' || (!out && !over)) {
        return (double)NAN;
    }
    return (double)(y[0] == 'O' ? bias[out ? TAGS_STAY : TAGS_LEAVE]
                                : bias[out ? TAGS_START : TAGS_RESTART]);
}

/* The score of a path; NAN: it is not well formed. */
static double score(const uint16_t *path, uint32_t n, const float *logits,
                    const float *bias)
{
    const char *first = names[path[0]];
    const char *last = names[path[n - 1]];
    double s = first[0] == 'I' || first[0] == 'E' || last[0] == 'B' ||
                       last[0] == 'I'
                   ? (double)NAN
                   : 0;
    for (uint32_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < N; k++) {
            sum += exp((double)logits[i * N + k]);
        }
        s += (double)logits[i * N + path[i]] - log(sum);
        s += i > 0 ? step(path[i - 1], path[i], bias) : 0;
    }
    return s;
}

/* The next of all N^n paths; false after the last. */
static bool next(uint16_t *path, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (++path[i] < N) {
            return true;
        }
        path[i] = 0;
    }
    return false;
}

static double best_of_all(uint32_t n, const float *logits, const float *bias)
{
    uint16_t path[8] = {0};
    double best = -(double)INFINITY;
    do {
        double s = score(path, n, logits, bias);
        best = s > best ? s : best;
    } while (next(path, n));
    return best;
}

/* The path in pieces of some rows. */
static void run(const struct tags *t, uint32_t n, const float *logits,
                const float *bias, uint16_t *labels, float *probs)
{
    struct tags_path *p = NULL;
    struct err e = {0};
    unit_ok(tags_begin(t, n, bias, &p, &e), &e);
    for (uint32_t at = 0, k = 0; at < n; at += k) {
        k = 1 + (uint32_t)(draw() * (n - at));
        k = k > n - at ? n - at : k;
        unit_ok(tags_add(p, logits + (size_t)at * N, k, &e), &e);
    }
    tags_end(p, labels, probs);
    tags_free(p);
}

static void test_paths(void **state)
{
    (void)state;
    struct tags *t = open_all();
    static const float none[TAGS_BIASES];
    for (seed = 1; seed != 0;) {
        static int round;
        float logits[5 * N];
        float bias[TAGS_BIASES] = {0};
        uint16_t labels[5];
        float probs[5];
        uint32_t n = 1 + (uint32_t)(draw() * (UNIT_SANITIZED ? 3 : 5));
        double spread = draw() < 0.5 ? 1 : 12;
        for (size_t i = 0; i < (size_t)n * N; i++) {
            logits[i] = (float)(spread * (draw() - 0.5));
        }
        bool biased = round % 2 == 1;
        for (size_t i = 0; biased && i < TAGS_BIASES; i++) {
            bias[i] = (float)(4 * spread * (draw() - 0.5));
        }
        run(t, n, logits, biased ? bias : NULL, labels, probs);
        double got = score(labels, n, logits, biased ? bias : none);
        double want = best_of_all(n, logits, bias);
        if (!(fabs(got - want) < 1e-4)) {
            fail_msg("round %d, %u tokens: %f where %f is best", round, n, got,
                     want);
        }
        for (uint32_t i = 0; i < n; i++) {
            uint16_t alone[1] = {labels[i]};
            double p = exp(score(alone, 1, logits + (size_t)i * N, none));
            assert_true(isnan(p) || fabs((double)probs[i] - p) < 1e-5);
        }
        seed = ++round < 120 ? seed : 0;
    }
    tags_close(t);
}

/* Whatever the logits, the path is well formed. */
static void test_paths_extreme(void **state)
{
    (void)state;
    struct tags *t = open_all();
    static const float none[TAGS_BIASES];
    static const float flat[6 * N];
    float steep[6 * N];
    uint16_t labels[6];
    run(t, 6, flat, NULL, labels, NULL);
    assert_true(score(labels, 6, flat, none) < 0);
    for (size_t i = 0; i < countof(steep); i++) {
        steep[i] = i % N == IA ? 3e38F : -3e38F; /* I alone is wanted */
    }
    run(t, 6, steep, NULL, labels, NULL);
    assert_int_equal(labels[0], BA);
    assert_int_equal(labels[3], IA);
    assert_int_equal(labels[5], EA);
    run(t, 1, steep, NULL, labels, NULL);
    assert_true(labels[0] == O || labels[0] == SA || labels[0] == SB);
    tags_close(t);
}

static void test_paths_refused(void **state)
{
    (void)state;
    struct tags *t = open_all();
    struct tags_path *p = NULL;
    struct err e = {0};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < countof(bad); i++) {
        float row[N] = {0};
        row[i] = bad[i];
        unit_ok(tags_begin(t, 1, NULL, &p, &e), &e);
        assert_int_equal(tags_add(p, row, 1, &e), ERR_INVALID);
        tags_free(p);
    }
    assert_int_equal(tags_begin(t, UINT32_MAX, NULL, &p, &e), ERR_TOO_BIG);
    tags_free(NULL);
    tags_close(t);
}

/* --- spans --- */

/* 4, 3, 4 bytes; a mark behind e */
#define FAMILY "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb"
#define E_ACUTE "e\xcc\x81"
#define SUN "\xe6\x97\xa5"
#define WIDE "\xe3\x80\x80" /* an ideographic space */
#define NBSP "\xc2\xa0"

static const struct {
    const char *text;
    uint32_t n;
    uint32_t ends[8];
    uint16_t labels[8];
    size_t count;
    struct {
        uint32_t class;
        size_t from, to;
    } want[4];
} cases[] = {
    /* a span of each form */
    {"ab cd", 3, {2, 3, 5}, {SA, O, SB}, 2, {{1, 0, 2}, {0, 3, 5}}},
    {"abcd", 4, {1, 2, 3, 4}, {BA, IA, EA, O}, 1, {{1, 0, 3}}},
    /* white space at either end, of every kind */
    {" ab ", 1, {4}, {SA}, 1, {{1, 1, 3}}},
    {"\t" NBSP "a" WIDE "\r\n", 1, {9}, {SA}, 1, {{1, 3, 4}}},
    {"a b c", 2, {2, 5}, {BA, EA}, 1, {{1, 0, 5}}},
    {"a \n ", 2, {1, 4}, {O, SA}, 0, {{0}}}, /* white space alone */
    /* tokens that end inside a character: it is taken whole */
    {FAMILY, 4, {2, 4, 7, 11}, {SA, O, O, O}, 1, {{1, 0, 4}}},
    {FAMILY, 4, {2, 4, 7, 11}, {O, O, O, SB}, 1, {{0, 7, 11}}},
    {SUN SUN, 4, {1, 4, 5, 6}, {O, BA, EA, O}, 1, {{1, 0, 6}}},
    /* two spans that share a character: the first has it */
    {SUN "x", 3, {1, 3, 4}, {SA, SB, O}, 1, {{1, 0, 3}}},
    /* a mark is a character of its own, as code points are */
    {E_ACUTE "x", 3, {1, 3, 4}, {SA, O, SB}, 2, {{1, 0, 1}, {0, 3, 4}}},
    {"a" E_ACUTE, 3, {1, 2, 4}, {O, BA, EA}, 1, {{1, 1, 4}}},
    /* paths that are none, from another process */
    {"abcd", 4, {1, 2, 3, 4}, {IA, EA, BA, BA}, 4,
     {{1, 0, 1}, {1, 1, 2}, {1, 2, 3}, {1, 3, 4}}},
    {"abcd", 4, {1, 2, 3, 4}, {BA, IB, EB, O}, 3,
     {{1, 0, 1}, {0, 1, 2}, {0, 2, 3}}},
    {"abcd", 4, {1, 2, 3, 4}, {BA, EA, EA, IA}, 3,
     {{1, 0, 2}, {1, 2, 3}, {1, 3, 4}}},
    {"ab", 2, {1, 2}, {BA, IA}, 1, {{1, 0, 2}}},
    /* no bytes of its own */
    {"ab", 3, {1, 1, 2}, {O, SA, O}, 0, {{0}}},
    {"", 0, {0}, {0}, 0, {{0}}},
};

static void test_spans(void **state)
{
    (void)state;
    struct tags *t = open_all();
    for (size_t i = 0; i < countof(cases); i++) {
        static const float probs[8] = {0.5F, 0.25F, 1, 0, 0.5F, 1, 1, 1};
        struct tags_span *got = NULL;
        size_t n = 0;
        struct err e = {0};
        unit_ok(tags_spans(t, cases[i].labels, probs, cases[i].ends,
                           cases[i].n, cases[i].text, strlen(cases[i].text),
                           &got, &n, &e),
                &e);
        if (n != cases[i].count) {
            fail_msg("case %zu: %zu spans", i, n);
        }
        for (size_t k = 0; k < n; k++) {
            if (got[k].class != cases[i].want[k].class ||
                got[k].from != cases[i].want[k].from ||
                got[k].to != cases[i].want[k].to) {
                fail_msg("case %zu, span %zu: class %u, [%zu, %zu)", i, k,
                         got[k].class, got[k].from, got[k].to);
            }
            float sum = 0;
            for (uint32_t x = got[k].first; x < got[k].last; x++) {
                sum += probs[x];
            }
            assert_true(fabsf(got[k].score -
                              sum / (float)(got[k].last - got[k].first)) <
                        1e-6F);
        }
        free(got);
    }
    tags_close(t);
}

/* Any labels and ends: spans are in order, apart, whole characters. */
static void test_spans_random(void **state)
{
    (void)state;
    static const char text[] = "a " FAMILY E_ACUTE SUN WIDE " b\r\n" SUN NBSP;
    struct tags *t = open_all();
    seed = 7;
    for (int round = 0; round < 3000; round++) {
        uint16_t labels[24];
        float probs[24] = {0};
        uint32_t ends[24];
        uint32_t n = (uint32_t)(draw() * 24);
        uint32_t at = 0;
        for (uint32_t i = 0; i < n; i++) {
            labels[i] = (uint16_t)(draw() * N);
            at += (uint32_t)(draw() * 4);
            at = at < sizeof(text) - 1 ? at : (uint32_t)sizeof(text) - 1;
            ends[i] = at;
        }
        struct tags_span *got = NULL;
        size_t count = 0;
        struct err e = {0};
        unit_ok(tags_spans(t, labels, probs, ends, n, text, sizeof(text) - 1,
                           &got, &count, &e),
                &e);
        size_t least = 0;
        for (size_t k = 0; k < count; k++) {
            assert_true(got[k].from >= least && got[k].from < got[k].to &&
                        got[k].to < sizeof(text));
            assert_true(((uint8_t)text[got[k].from] & 0xc0) != 0x80 &&
                        ((uint8_t)text[got[k].to] & 0xc0) != 0x80);
            assert_true(strchr(" \r\n", text[got[k].from]) == NULL &&
                        strchr(" \r\n", text[got[k].to - 1]) == NULL);
            least = got[k].to;
        }
        free(got);
    }
    tags_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_labels_refused),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_paths_extreme),
        cmocka_unit_test(test_paths_refused),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_spans_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
