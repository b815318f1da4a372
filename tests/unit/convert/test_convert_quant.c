/* Forms of weights: names, scales, palettes, packing, patterns. */
#include "base/half.h"
#include "convert/quant/choice.h"
#include "convert/quant/narrow.h"
#include "convert/quant/palette.h"
#include "mkgguf.h"

static void fill(float *w, size_t n, float size, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        float u = (float)mk_random(&seed) / 1073741824.0f - 1.0f;
        w[i] = size * u;
    }
}

/* Bell-shaped, as weights are. */
static void fill_bell(float *w, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        w[i] = 0;
        for (int k = 0; k < 6; k++) {
            w[i] += (float)mk_random(&seed) / 2147483648.0f - 0.5f;
        }
    }
}

/* --- scales --- */

/* An element is off by at most half a step of the rounded scale. */
static void int8_error_bound(void **state)
{
    (void)state;
    static const float sizes[] = {3e-7f, 1e-5f, 1e-3f, 7.7e-3f,
                                  0.05f, 1.0f,  300.0f};
    enum { N = 101 }; /* whole vectors and a rest */
    float w[N];
    int8_t q[N];
    for (size_t k = 0; k < 2 * countof(sizes); k++) {
        int levels = k % 2 == 0 ? 127 : 7;
        fill(w, N, sizes[k / 2], k + 1);
        uint16_t bits = quant_scale(quant_peak(w, N), levels);
        float s = half_to_float(bits);
        assert_true(s > 0);
        quant_round(w, N, bits, levels, q);
        for (size_t i = 0; i < N; i++) {
            float err = fabsf((float)q[i] * s - w[i]);
            assert_true(err <= 0.5001f * s + 1e-12f);
            assert_int_equal(
                q[i], (int8_t)fmaxf((float)-levels,
                                    fminf((float)levels, rintf(w[i] / s))));
        }
    }
}

static void zero_and_extreme_rows(void **state)
{
    (void)state;
    float w[40] = {0};
    int8_t q[40];
    memset(q, 1, sizeof(q));
    assert_true(quant_peak(w, 40) == 0);
    assert_int_equal(quant_scale(0, 127), half_from_float(1.0f));
    quant_round(w, 40, quant_scale(0, 127), 127, q);
    for (size_t i = 0; i < 40; i++) {
        assert_int_equal(q[i], 0);
    }
    /* the least scale is the least subnormal, never zero */
    assert_int_equal(quant_scale(1e-9f, 127), 1);
    /* rounding the scale down may not clip: the peak keeps its value */
    for (float peak = 1e-6f; peak < 1e-2f; peak *= 1.07f) {
        float s = half_to_float(quant_scale(peak, 127));
        assert_true(peak / s <= 127.5f);
    }
    w[3] = NAN;
    assert_true(isnan(quant_peak(w, 40)));
    w[3] = 0;
    w[39] = -INFINITY; /* in the rest after the vectors */
    assert_true(isnan(quant_peak(w, 40)));
}

/* --- names and sizes --- */

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *text, *again;
        enum quant kind;
        uint32_t group;
    } good[] = {
        {"int8",        "int8",        QUANT_INT8,        1 },
        {"int8-tensor", "int8-tensor", QUANT_INT8_TENSOR, 1 },
        {"fp16",        "fp16",        QUANT_FP16,        1 },
        {"int4",        "int4",        QUANT_INT4,        1 },
        {"lut4",        "lut4",        QUANT_LUT4,        1 },
        {"lut4:1",      "lut4",        QUANT_LUT4,        1 },
        {"lut4:16",     "lut4:16",     QUANT_LUT4,        16},
        {"lut6",        "lut6",        QUANT_LUT6,        16},
        {"lut6:64",     "lut6:64",     QUANT_LUT6,        64},
    };
    static const struct {
        const char *text, *word;
        int code;
    } bad[] = {
        {"lut4:0",      "share a palette", ERR_INVALID    },
        {"lut4:65",     "1 to 64",         ERR_INVALID    },
        {"lut4:",       "share a palette", ERR_INVALID    },
        {"int8:2",      "share a palette", ERR_INVALID    },
        {"lut5",        "lut6",            ERR_INVALID    },
        {"",            "int8-tensor",     ERR_INVALID    },
        {"q4_k_m",      "along a row",     ERR_UNSUPPORTED},
        {"IQ4_XS",      "along a row",     ERR_UNSUPPORTED},
        {"int4-tensor", "int4",            ERR_INVALID    },
    };
    struct err e = {0};
    struct quant_spec s = {0};
    unit_ok(quant_parse(NULL, &s, &e), &e);
    assert_int_equal(s.kind, QUANT_INT8);
    for (size_t i = 0; i < countof(good); i++) {
        char again[QUANT_TEXT_MAX];
        unit_ok(quant_parse(good[i].text, &s, &e), &e);
        assert_int_equal(s.kind, good[i].kind);
        assert_int_equal(s.group, good[i].group);
        quant_text(s, again);
        assert_string_equal(again, good[i].again);
    }
    for (size_t i = 0; i < countof(bad); i++) {
        assert_int_equal(quant_parse(bad[i].text, &s, &e), bad[i].code);
        assert_non_null(strstr(e.msg, bad[i].word));
    }
}

static void sizes(void **state)
{
    (void)state;
    struct quant_spec six = {QUANT_LUT6, 16};
    struct err e = {0};
    assert_int_equal(quant_fit(six, 64).group, 16);
    assert_int_equal(quant_fit(six, 36).group, 12);
    assert_int_equal(quant_fit(six, 7).group, 7);
    assert_int_equal(quant_fit(six, 17).group, 1);
    assert_int_equal(quant_bytes(six, 32, 640), 32 * 640 * 6 / 8 + 2 * 64 * 2);
    struct quant_spec four = {QUANT_LUT4, 1};
    assert_int_equal(quant_bytes(four, 32, 640), 32 * 320 + 32 * 16 * 2);
    struct quant_spec common = {QUANT_INT8_TENSOR, 1};
    assert_int_equal(quant_bytes(common, 3, 5), 15 + 2);
    assert_int_equal(quant_bytes((struct quant_spec){QUANT_FP16, 1}, 3, 5), 30);
    unit_ok(quant_check(common, 5, &e), &e);
    unit_ok(quant_check(six, 12, &e), &e);
    assert_int_equal(quant_check(six, 6, &e), ERR_UNSUPPORTED);
    assert_int_equal(quant_check(four, 5, &e), ERR_UNSUPPORTED);
}

/* --- k-means --- */

static double cost(const float *x, const float *w, size_t n, const double *c,
                   size_t k)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double least = (double)INFINITY;
        for (size_t j = 0; j < k; j++) {
            double d = (double)x[i] - c[j];
            least = d * d < least ? d * d : least;
        }
        sum += least * (w != NULL ? (double)w[i] : 1);
    }
    return sum;
}

struct pair {
    float x, w;
};

static int by_x(const void *a, const void *b)
{
    float x = ((const struct pair *)a)->x;
    float y = ((const struct pair *)b)->x;
    return x < y ? -1 : x > y;
}

/* The least cost of one run of sorted pairs. */
static double run_cost(const struct pair *p, size_t from, size_t to)
{
    double w = 0;
    double m = 0;
    double sum = 0;
    for (size_t i = from; i < to; i++) {
        w += (double)p[i].w;
        m += (double)p[i].w * (double)p[i].x;
    }
    for (size_t i = from; w > 0 && i < to; i++) {
        double d = (double)p[i].x - m / w;
        sum += (double)p[i].w * d * d;
    }
    return sum;
}

#define LEAST_MAX 40u

/* Every way to cut n sorted pairs into k runs, by the definition. */
static double least_cost(const float *x, const float *w, size_t n, size_t k)
{
    struct pair p[LEAST_MAX];
    double best[LEAST_MAX + 1];
    assert_true(n <= LEAST_MAX);
    for (size_t i = 0; i < n; i++) {
        p[i] = (struct pair){x[i], w != NULL ? w[i] : 1};
    }
    qsort(p, n, sizeof(*p), by_x);
    for (size_t j = 0; j <= n; j++) {
        best[j] = run_cost(p, 0, j);
    }
    for (size_t c = 1; c < k; c++) {
        for (size_t j = n; j > 0; j--) {
            for (size_t i = 0; i < j; i++) {
                double here = best[i] + run_cost(p, i, j);
                best[j] = here < best[j] ? here : best[j];
            }
        }
    }
    return best[n];
}

static void kmeans_is_exact(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (size_t round = 0; round < 300; round++) {
        size_t n = 1 + mk_random(&seed) % LEAST_MAX;
        size_t k = 2 + mk_random(&seed) % 9;
        float x[LEAST_MAX];
        float w[LEAST_MAX];
        double c[16];
        struct kmeans *m = NULL;
        struct err e = {0};
        fill_bell(x, n, seed);
        for (size_t i = 0; i < n; i++) {
            w[i] = mk_random(&seed) % 4 == 0
                       ? 0
                       : (float)(mk_random(&seed) % 1000) / 17;
            if (i > 0 && mk_random(&seed) % 5 == 0) {
                x[i] = x[i - 1];
            }
        }
        const float *weights = round % 3 == 0 ? NULL : w;
        unit_ok(kmeans_open(n, k, &m, &e), &e);
        kmeans_run(m, x, weights, n, c);
        kmeans_close(m);
        double want = least_cost(x, weights, n, k);
        double got = cost(x, weights, n, c, k);
        if (fabs(got - want) > 1e-9 * (1 + want)) {
            fail_msg("round %zu: %zu numbers, %zu entries: %g, not %g", round,
                     n, k, got, want);
        }
        for (size_t i = 1; i < k; i++) {
            assert_true(c[i - 1] <= c[i]);
        }
    }
}

/* Beyond the exact limit: 64 clumps far apart must each get their entry. */
static void kmeans_finds_clumps(void **state)
{
    (void)state;
    enum { K = 64, EACH = 100, N = K * EACH };
    static float x[N];
    static float w[N];
    double sum[K] = {0};
    double weight[K] = {0};
    double c[K];
    uint64_t seed = 11;
    struct kmeans *m = NULL;
    struct err e = {0};
    assert_true((size_t)N * K > KMEANS_EXACT);
    for (size_t i = 0; i < N; i++) {
        size_t at = i * 37 % K; /* in no order */
        float spread = (float)mk_random(&seed) / 2147483648.0f;
        /* the last clumps are a hundred times as far: few cuts by width */
        float place = at < 60 ? (float)at : (float)(at - 59) * 5000;
        x[i] = place + spread / 50;
        w[i] = (float)(1 + mk_random(&seed) % 9);
        sum[at] += (double)x[i] * (double)w[i];
        weight[at] += (double)w[i];
    }
    unit_ok(kmeans_open(N, K, &m, &e), &e);
    kmeans_run(m, x, w, N, c);
    kmeans_close(m);
    for (size_t k = 0; k < K; k++) {
        double want = sum[k] / weight[k];
        if (fabs(c[k] - want) > 1e-6 * want + 1e-6) {
            fail_msg("clump %zu: %.9g, not %.9g", k, c[k], want);
        }
    }
}

/* Weights of very different sizes, and numbers that weigh nothing at all. */
static void kmeans_bears_extremes(void **state)
{
    (void)state;
    static const float x[] = {1, 2, 3, -4, 5, 6e4f, -6e4f, 1e-7f};
    static const float w[] = {1e-30f, 1e30f, 1, 0, 1e-38f, 1e-20f, 1e20f, 3};
    static const float none[countof(x)] = {0};
    double c[16];
    struct kmeans *m = NULL;
    struct err e = {0};
    unit_ok(kmeans_open(countof(x), 4, &m, &e), &e);
    kmeans_run(m, x, w, countof(x), c);
    for (size_t i = 0; i < 4; i++) {
        assert_true(isfinite(c[i]) && fabs(c[i]) <= 6e4);
    }
    kmeans_run(m, x, none, countof(x), c);
    double zero = cost(x, NULL, countof(x), c, 4);
    kmeans_run(m, x, NULL, countof(x), c);
    assert_true(zero == cost(x, NULL, countof(x), c, 4));
    kmeans_run(m, x, NULL, 1, c);
    assert_true(c[0] == 1 && c[3] == 1);
    kmeans_close(m);
}

/* --- narrow palettes --- */

/* Are the entries integers up to 127 times one scale? Every number that the
 * largest could be is tried. */
static bool is_narrow(const uint16_t entry[NARROW_ENTRIES])
{
    double peak = 0;
    for (size_t k = 0; k < NARROW_ENTRIES; k++) {
        peak = fmax(peak, fabs((double)half_to_float(entry[k])));
    }
    for (int most = 1; most <= 127; most++) {
        bool all = true;
        for (size_t k = 0; all && k < NARROW_ENTRIES; k++) {
            const double v = (double)half_to_float(entry[k]) * most;
            all = peak == 0 || v == peak * rint(v / peak);
        }
        if (all) {
            return true;
        }
    }
    return false;
}

enum { NARROW_N = 900 };

/* The palette of a row, and its squared error beside that of the best entries in
 * fp16. */
static double narrow_palette(const float *x, const float *importance,
                             uint16_t entry[NARROW_ENTRIES])
{
    static float w[NARROW_N];
    double best[NARROW_ENTRIES];
    double at[NARROW_ENTRIES];
    struct kmeans *m = NULL;
    struct err e = {0};
    unit_ok(kmeans_open(NARROW_N, NARROW_ENTRIES, &m, &e), &e);
    kmeans_run(m, x, importance, NARROW_N, best);
    palette_make(m, x, 1, NARROW_N, importance, w, entry, NARROW_ENTRIES);
    kmeans_close(m);
    for (size_t k = 0; k < NARROW_ENTRIES; k++) {
        best[k] = (double)half_to_float(half_from_float((float)best[k]));
        at[k] = (double)half_to_float(entry[k]);
        assert_true(k == 0 || at[k - 1] <= at[k]);
    }
    const double before = cost(x, importance, NARROW_N, best, NARROW_ENTRIES);
    const double after = cost(x, importance, NARROW_N, at, NARROW_ENTRIES);
    assert_true(before > 0 || after == 0);
    return before > 0 ? after / before : 1;
}

/* Palettes of bell-shaped weights are narrow, of any size, with importance and
 * without, and cost next to nothing. */
static void palettes_of_16_are_narrow(void **state)
{
    (void)state;
    static const float sizes[] = {3e-5f, 1e-4f, 0.02f, 1, 300, 2e4f};
    static float x[NARROW_N];
    static float importance[NARROW_N];
    uint64_t seed = 8;
    for (size_t i = 0; i < 12 * countof(sizes); i++) {
        uint16_t entry[NARROW_ENTRIES];
        fill_bell(x, NARROW_N, seed + i);
        for (size_t k = 0; k < NARROW_N; k++) {
            x[k] *= sizes[i % countof(sizes)];
            importance[k] = (float)(mk_random(&seed) % 100);
        }
        double more = narrow_palette(x, i % 2 ? importance : NULL, entry);
        if (!is_narrow(entry) || more > 1.02) {
            fail_msg("size %g: %s, error %g of the best's",
                     (double)sizes[i % countof(sizes)],
                     is_narrow(entry) ? "narrow" : "not narrow", more);
        }
    }
}

/* Where an entry far away makes the steps too coarse, and where every weight has
 * an entry of its own, palettes stay as they are. */
static void palettes_stay_where_narrow_ones_cost(void **state)
{
    (void)state;
    static float x[NARROW_N];
    uint64_t seed = 9;
    size_t narrow = 0;
    for (size_t i = 0; i < 60; i++) {
        uint16_t entry[NARROW_ENTRIES];
        fill_bell(x, NARROW_N, seed + i);
        x[i] = 2 * (float)(i + 1); /* up to 170 times the deviation */
        assert_true(narrow_palette(x, NULL, entry) <= NARROW_COST * 1.0001);
        narrow += is_narrow(entry) ? 1 : 0;
        for (size_t k = 0; k < NARROW_N; k++) {
            const int v = (int)((k + i) % 15) - 7;
            x[k] = half_to_float(half_from_float((float)(v * v * v) * 0.011f));
        }
        assert_true(narrow_palette(x, NULL, entry) == 1);
        assert_false(is_narrow(entry));
    }
    assert_true(narrow > 3 && narrow < 30);
}

/* No weights but zero, subnormal ones, and the largest that there are. */
static void narrow_palettes_bear_extremes(void **state)
{
    (void)state;
    static const float sizes[] = {0, 6e-8f, 1e-6f, 65504.0f};
    static float x[NARROW_N];
    for (size_t i = 0; i < countof(sizes); i++) {
        uint16_t entry[NARROW_ENTRIES];
        fill(x, NARROW_N, sizes[i], i + 1);
        x[0] = -sizes[i];
        x[1] = sizes[i];
        assert_true(narrow_palette(x, NULL, entry) <= NARROW_COST * 1.0001);
        for (size_t k = 0; k < NARROW_ENTRIES; k++) {
            assert_true(isfinite(half_to_float(entry[k])));
        }
    }
}

/* --- encoding --- */

static float stored(const struct quant_form *f, struct quant_spec s, size_t row,
                    size_t col, size_t cols)
{
    unsigned bits = quant_bits(s.kind);
    size_t at = (row * cols + col) * bits;
    unsigned code = 0;
    for (unsigned b = 0; b < bits; b++) { /* the facts' stream of bits */
        code |= (unsigned)(f->codes[(at + b) / 8] >> (at + b) % 8 & 1) << b;
    }
    if (s.kind == QUANT_FP16) {
        return half_to_float((uint16_t)code);
    }
    if (quant_entries(s.kind) > 0) {
        size_t e = row / s.group * quant_entries(s.kind) + code;
        return half_to_float(f->params[e]);
    }
    int q = bits == 4 ? (int)(code ^ 8u) - 8 : (int8_t)code;
    size_t k = s.kind == QUANT_INT8_TENSOR ? 0 : row;
    return half_to_float(f->params[k]) * (float)q;
}

enum { ROWS = 12, COLS = 52 };

/* What is stored is the nearest of what could be, and the error is its. */
static void forms_are_nearest(void **state)
{
    (void)state;
    static const char *const specs[] = {"fp16", "int8",   "int8-tensor",
                                        "int4", "lut4",   "lut4:4",
                                        "lut6", "lut6:1", "lut6:3"};
    float w[ROWS * COLS];
    float imp[COLS];
    fill_bell(w, ROWS * COLS, 3);
    fill(imp, COLS, 1, 4);
    for (size_t i = 0; i < COLS; i++) {
        imp[i] *= imp[i];
    }
    for (size_t k = 0; k < countof(specs); k++) {
        struct err e = {0};
        struct quant_spec s = {0};
        uint8_t codes[ROWS * COLS * 2];
        uint16_t params[ROWS * 64];
        struct quant_form f = {.codes = codes, .params = params};
        unit_ok(quant_parse(specs[k], &s, &e), &e);
        s = quant_fit(s, ROWS);
        struct quant_input in = {.spec = s,
                                 .rows = w,
                                 .n_rows = ROWS,
                                 .cols = COLS,
                                 .importance = imp,
                                 .peak = quant_peak(w, ROWS * COLS)};
        unit_ok(quant_encode(&in, &f, &e), &e);
        double sum = 0;
        for (size_t i = 0; i < ROWS * COLS; i++) {
            float v = stored(&f, s, i / COLS, i % COLS, COLS);
            double d = (double)(v - w[i]);
            sum += (double)imp[i % COLS] * d * d;
            unsigned n = quant_entries(s.kind);
            for (size_t j = 0; j < n; j++) {
                size_t group = i / COLS / s.group * n;
                float other = half_to_float(params[group + j]);
                assert_true(fabsf(v - w[i]) <= fabsf(other - w[i]) + 1e-7f);
                assert_true(j == 0 ||
                            half_to_float(params[group + j - 1]) <= other);
            }
            if (n == 0 && s.kind != QUANT_FP16) {
                float step = half_to_float(
                    params[s.kind == QUANT_INT8_TENSOR ? 0 : i / COLS]);
                assert_true(fabsf(v - w[i]) <= step * 0.5001f);
            }
        }
        if (fabs(sum - f.error) > 1e-5 * sum + 1e-12) {
            fail_msg("%s: error %g, is %g", specs[k], f.error, sum);
        }
    }
}

static void packing(void **state)
{
    (void)state;
    const float w[6] = {7, -7, 1, -1, 0, 3};
    uint8_t codes[48];
    uint16_t params[64];
    struct err e = {0};
    struct quant_form f = {.codes = codes, .params = params};
    struct quant_input in = {
        .spec = {QUANT_INT4, 1},
          .rows = w, .n_rows = 1, .cols = 6
    };
    unit_ok(quant_encode(&in, &f, &e), &e);
    assert_int_equal(params[0], half_from_float(1.0f));
    assert_int_equal(codes[0], 0x97); /* low nibble first */
    assert_int_equal(codes[1], 0xf1);
    assert_int_equal(codes[2], 0x30);
    float v[64]; /* each its own entry: indices are places */
    for (size_t i = 0; i < 64; i++) {
        v[i] = (float)i;
    }
    in = (struct quant_input){
        .spec = {QUANT_LUT6, 1},
          .rows = v, .n_rows = 1, .cols = 64
    };
    unit_ok(quant_encode(&in, &f, &e), &e);
    assert_true(f.error == 0);
    assert_int_equal(codes[0], 0x40); /* facts 4.3: 0, 1, 2, 3 */
    assert_int_equal(codes[1], 0x20);
    assert_int_equal(codes[2], 0x0c);
    assert_int_equal(codes[47], 0xff); /* 60, 61, 62, 63: 3c 7d e? ff */
}

static void bad_weights(void **state)
{
    (void)state;
    static const enum quant kinds[] = {QUANT_INT8, QUANT_FP16, QUANT_INT4,
                                       QUANT_LUT4, QUANT_LUT6};
    for (size_t k = 0; k < countof(kinds); k++) {
        float w[16] = {0};
        uint8_t codes[32];
        uint16_t params[4 * 64];
        struct err e = {0};
        struct quant_form f = {.codes = codes, .params = params};
        struct quant_input in = {
            .spec = {kinds[k], 1},
            .rows = w,
            .n_rows = 2,
            .cols = 8,
            .first = 40
        };
        unit_ok(quant_encode(&in, &f, &e), &e); /* all zero */
        assert_true(f.error == 0);
        w[9] = NAN;
        assert_int_equal(quant_encode(&in, &f, &e), ERR_CONVERT);
        assert_non_null(strstr(e.msg, "row 41 "));
        w[9] = 1e9f;
        assert_int_equal(quant_encode(&in, &f, &e), ERR_RANGE);
        w[9] = 1e5f; /* a scale reaches beyond fp16, an entry does not */
        bool scaled = kinds[k] == QUANT_INT8 || kinds[k] == QUANT_INT4;
        assert_int_equal(quant_encode(&in, &f, &e), scaled ? 0 : ERR_RANGE);
    }
}

/* --- which form --- */

static void patterns(void **state)
{
    (void)state;
    struct quant_choice c;
    struct err e = {0};
    unit_ok(quant_choice_init(&c, "lut4", NULL, &e), &e);
    assert_int_equal(quant_choice_for(&c, "blk.3.attn_q.weight").kind,
                     QUANT_LUT4);
    assert_int_equal(quant_choice_for(&c, "output.weight").kind, QUANT_INT8);
    assert_int_equal(quant_choice_for(&c, "token_embd.weight").kind,
                     QUANT_INT8);
    unit_ok(quant_choice_add(&c, "blk.*.ffn_down.*=lut6:8", &e), &e);
    unit_ok(quant_choice_add(&c, "*.1*.*_down*=fp16", &e), &e);
    unit_ok(quant_choice_add(&c, "out*=lut6", &e), &e);
    assert_int_equal(quant_choice_for(&c, "output.weight").kind, QUANT_LUT6);
    assert_int_equal(quant_choice_for(&c, "blk.2.ffn_down.weight").group, 8);
    assert_int_equal(quant_choice_for(&c, "blk.12.ffn_down.weight").kind,
                     QUANT_FP16);
    assert_int_equal(quant_choice_for(&c, "blk.2.ffn_downs").kind, QUANT_LUT4);
    unit_ok(quant_choice_add(&c, "*11.q*ab=int4", &e), &e);
    assert_int_equal(quant_choice_for(&c, "blk.111.qaab").kind, QUANT_INT4);
    assert_int_equal(quant_choice_for(&c, "blk.111.qaac").kind, QUANT_LUT4);
    c.n_rules--;
    quant_choice_note(&c, "blk.2.ffn_down.weight");
    quant_choice_note(&c, "output.weight");
    assert_int_equal(quant_choice_check(&c, &e), ERR_INVALID);
    assert_non_null(strstr(e.msg, "'*.1*.*_down*'"));
    quant_choice_note(&c, "blk.10.ffn_down.weight");
    unit_ok(quant_choice_check(&c, &e), &e);
    assert_int_equal(quant_choice_add(&c, "ffn", &e), ERR_INVALID);
    assert_int_equal(quant_choice_add(&c, "=int8", &e), ERR_INVALID);
    assert_int_equal(quant_choice_add(&c, "a=q4_0", &e), ERR_UNSUPPORTED);
    while (c.n_rules < QUANT_RULES_MAX) {
        unit_ok(quant_choice_add(&c, "a=int8", &e), &e);
    }
    assert_int_equal(quant_choice_add(&c, "a=int8", &e), ERR_TOO_BIG);
    unit_ok(quant_choice_init(&c, "int4", NULL, &e), &e);
    assert_int_equal(quant_choice_for(&c, "output.weight").kind, QUANT_INT4);
    unit_ok(quant_choice_init(&c, NULL, "lut6", &e), &e);
    assert_int_equal(quant_choice_for(&c, "output.weight").kind, QUANT_LUT6);
    assert_int_equal(quant_choice_for(&c, "blk.0.ffn_up.weight").kind,
                     QUANT_INT8);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(int8_error_bound),
        cmocka_unit_test(zero_and_extreme_rows),
        cmocka_unit_test(names),
        cmocka_unit_test(sizes),
        cmocka_unit_test(kmeans_is_exact),
        cmocka_unit_test(kmeans_finds_clumps),
        cmocka_unit_test(kmeans_bears_extremes),
        cmocka_unit_test(palettes_of_16_are_narrow),
        cmocka_unit_test(palettes_stay_where_narrow_ones_cost),
        cmocka_unit_test(narrow_palettes_bear_extremes),
        cmocka_unit_test(forms_are_nearest),
        cmocka_unit_test(packing),
        cmocka_unit_test(bad_weights),
        cmocka_unit_test(patterns),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
