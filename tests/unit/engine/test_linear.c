/* Products of rows: every instruction set gives the bits of the plain C one,
 * a row's bits do not depend on what runs beside it, and what comes out is
 * close to the exact sum. */
#include <math.h>

#include "../unit.h"
#include "base/crew.h"
#include "base/half.h"
#include "base/isa.h"
#include "engine/cpu/kernels/kernel_impl.h"
#include "engine/cpu/kernels/products/gemm.h"
#include "engine/cpu/kernels/products/linear_impl.h"

#if defined(HAVE_SIMDE)
extern const struct kernels kernels_simde; /* kernel_avx512.c, simulated */
#endif
#if defined(HAVE_AVXVNNI) /* kernel_avxvnni.c, with (meson.build) */
extern const struct kernels kernels_described;
extern const struct kernels kernels_evex;
#endif
#if defined(HAVE_AMX)
extern const struct kernels kernels_tiles; /* kernel_amx.c, amx_described.h */
#endif

static uint64_t seed = 1;

static uint32_t any(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static size_t upto(size_t n)
{
    return any() % n;
}

/* About normal, in (-6, 6). */
static float bell(void)
{
    float s = 0;
    for (int i = 0; i < 12; i++) {
        s += (float)(any() & 0xffff) * 0x1p-16f;
    }
    return s - 6;
}

/* The sets under test; the scalar one is the truth. */
static const struct kernels *set_of(size_t i)
{
    const struct kernels *more[5] = {NULL};
    size_t n = 0;
    size_t m = 0;
    while (kernels_each(n) != NULL) {
        n++;
    }
#if defined(HAVE_SIMDE)
    if (isa_has(ISA_V3)) {
        more[m++] = &kernels_simde;
    }
#endif
#if defined(HAVE_AVXVNNI)
    if (isa_has(ISA_V3)) {
        more[m++] = &kernels_described;
    }
    if (isa_has(ISA_V3 | ISA_AVX512)) {
        more[m++] = &kernels_evex;
    }
#endif
#if defined(HAVE_AMX)
    if (isa_has(ISA_V3 | ISA_AVX512 | ISA_VBMI)) {
        more[m++] = &kernels_tiles;
    }
#endif
    return i < n ? kernels_each(i) : i < n + m ? more[i - n] : NULL;
}

/* --- a case: a weight, rows, what came out --- */

struct trial {
    struct weight w;
    void *block; /* w.data ends where it ends: sanitizers see reads after */
    int16_t *table;
    uint8_t *narrow;
    float *scale, *bias;
    size_t n, k, rows, ldx, ldy;
    float *x, *y;
};

static void *need(size_t n)
{
    void *p = malloc(n > 0 ? n : 1);
    assert_non_null(p);
    return p;
}

static bool has_tables(enum weight_kind kind)
{
    return weight_entries(kind) > 0;
}

/* Elements of a row come in whole groups. */
static size_t group_of(enum weight_kind kind)
{
    return kind == WEIGHT_LUT6                        ? 4
           : kind == WEIGHT_I4 || kind == WEIGHT_LUT4 ? 2
                                                      : 1;
}

static size_t bits_of(enum weight_kind kind)
{
    return kind == WEIGHT_I4 || kind == WEIGHT_LUT4 ? 4
           : kind == WEIGHT_LUT6                    ? 6
           : kind == WEIGHT_I8                      ? 8
           : kind == WEIGHT_F16                     ? 16
                                                    : 32;
}

/* Entries as large as they can be, often. */
static void table_draw(int16_t *e, size_t n, int peak)
{
    for (size_t i = 0; i < n; i++) {
        int16_t v = (int16_t)upto((size_t)peak + 1);
        v = (int16_t)(upto(6) ? v : peak);
        e[i] = (int16_t)(upto(2) ? v : -v);
    }
}

/* Tables for the weight, of so many rows each: all narrow, none, or some. */
static void tables_new(struct trial *t)
{
    size_t rows = t->rows;
    size_t share = upto(3) ? rows : 1;
    while (upto(2) && (share == rows || rows % share != 0)) {
        share = 1 + upto(rows);
    }
    share = rows % share == 0 ? share : rows;
    const size_t entries = weight_entries(t->w.kind);
    const size_t n = rows / share;
    const size_t wide = t->w.kind == WEIGHT_LUT4 ? upto(3) : 2;
    t->table = need(n * entries * sizeof(*t->table));
    t->narrow = need(n);
    for (size_t i = 0; i < n; i++) {
        t->narrow[i] = wide == 0 || (wide == 1 && upto(20)) ? 1 : 0;
        table_draw(t->table + i * entries, entries,
                   t->narrow[i] ? WEIGHT_NARROW_PEAK : WEIGHT_TABLE_PEAK);
    }
    t->w.table = t->table;
    t->w.narrow = t->w.kind == WEIGHT_LUT4 ? t->narrow : NULL;
    t->w.block[0] = (int64_t)share;
}

static void trial_new(struct trial *t, enum weight_kind kind, size_t rows,
                      size_t k, size_t n)
{
    size_t bits = bits_of(kind);
    size_t bytes = rows * k * bits / 8;
    size_t off = bits >= 16 ? 0 : upto(64);
    *t = (struct trial){.n = n, .k = k, .rows = rows};
    t->ldx = k + upto(5);
    t->ldy = rows + upto(5);
    t->block = need(off + bytes);
    uint8_t *data = (uint8_t *)t->block + off;
    t->scale = need(rows * sizeof(float));
    t->bias = upto(2) ? need(rows * sizeof(float)) : NULL;
    t->x = need(n * t->ldx * sizeof(float));
    t->y = need(n * t->ldy * sizeof(float));
    for (size_t i = 0; i < rows; i++) {
        t->scale[i] = 0.001f + (float)upto(1000) * 1e-5f;
        if (t->bias != NULL) {
            t->bias[i] = bell();
        }
    }
    for (size_t i = 0; i < rows * k; i++) {
        if (bits <= 8) {
            break;
        }
        float v = bell() * 0.05f;
        uint16_t h = half_from_float(v);
        memcpy(data + i * bits / 8, bits == 16 ? (void *)&h : (void *)&v,
               bits / 8);
    }
    for (size_t i = 0; bits <= 8 && i < bytes; i++) {
        data[i] = (uint8_t)(upto(8) ? any() : 0x80); /* -128 often */
    }
    for (size_t i = 0; i < n * t->ldx; i++) {
        t->x[i] = bell();
    }
    t->w = (struct weight){.kind = kind,
                           .rows = rows,
                           .cols = k,
                           .data = data,
                           .scale = bits <= 8 ? t->scale : NULL};
    if (has_tables(kind)) {
        tables_new(t);
    }
}

static void trial_free(struct trial *t)
{
    free(t->block);
    free(t->table);
    free(t->narrow);
    free(t->scale);
    free(t->bias);
    free(t->x);
    free(t->y);
}

/* Rows as they come in life and in nightmares. */
static void season(struct trial *t)
{
    static const float odd[] = {0.0f, NAN, INFINITY, -INFINITY, 1e-42f};
    for (size_t r = 0; r < t->n; r++) {
        float *x = t->x + r * t->ldx;
        size_t kind = upto(12);
        for (size_t i = 0; i < t->k; i++) {
            if (kind == 0) {
                x[i] = 0;
            } else if (kind == 1) {
                x[i] *= 1e-40f; /* subnormal */
            } else if (kind == 2) {
                x[i] *= 5e37f;
            } else if (kind == 3) {
                x[i] = x[i] < 0 ? -7.25f : 7.25f; /* all at the peak */
            } else if (kind < 6 && upto(100) == 0) {
                x[i] *= 3000; /* wide */
            } else if (kind == 6 && upto(2)) {
                x[i] = upto(9) ? 0 : 1e6f; /* sparse */
            }
        }
        if (kind == 7) {
            x[upto(t->k)] = odd[upto(countof(odd))];
        }
    }
}

/* Rows first .. first + n - 1 into y, ldy apart. */
static void run_rows(const struct trial *t, const struct kernels *kn,
                     size_t first, size_t n, unsigned threads, float *y)
{
    struct err e = {0};
    struct linear_in *in = NULL;
    bool integer = linear_wants_integer(&t->w);
    unit_ok(linear_in_new(t->k, &in, &e), &e);
    unit_ok(linear_in_set(in, kn, t->x + first * t->ldx, t->ldx, n, integer,
                          !integer, threads, &e),
            &e);
    struct linear_part p = {.w = &t->w, .bias = t->bias, .y = y, .ldy = t->ldy};
    linear_run(&p, 1, in, kn, threads);
    linear_in_free(in);
}

static bool same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (half_bits(a[i]) != half_bits(b[i]) &&
            !(isnan(a[i]) && isnan(b[i]))) {
            return false;
        }
    }
    return true;
}

static bool rows_same(const struct trial *t, const float *a, const float *b,
                      size_t n)
{
    for (size_t r = 0; r < n; r++) {
        if (!same(a + r * t->ldy, b + r * t->ldy, t->rows)) {
            return false;
        }
    }
    return true;
}

/* --- the same bits --- */

static const size_t lengths[] = {1,    2,    3,    15,   16,   31,   32,
                                 33,   63,   64,   65,   95,   127,  128,
                                 640,  896,  1000, 1023, 1024, 1025, 1087,
                                 2046, 2048, 2049, 3072, 4097, 4864, 5000};

static void draw(struct trial *t, enum weight_kind kind, size_t i)
{
    size_t k = i < countof(lengths) ? lengths[i] : 1 + upto(5000);
    size_t group = group_of(kind);
    k = (k + group - 1) / group * group;
    size_t rows = upto(3) ? 1 + upto(70) : 33 + upto(8);
    size_t n = upto(3) ? 1 + upto(9) : 1 + upto(40);
    trial_new(t, kind, rows, k, n);
    season(t);
}

static void sets_agree(enum weight_kind kind, size_t trials)
{
    static const unsigned threads[] = {1, 2, 5};
    crew_ref();
    for (size_t i = 0; i < trials; i++) {
        struct trial t;
        draw(&t, kind, i);
        float *y = need(t.n * t.ldy * sizeof(float));
        run_rows(&t, &kernels_scalar, 0, t.n, 1, t.y);
        for (size_t s = 0; set_of(s) != NULL; s++) {
            run_rows(&t, set_of(s), 0, t.n, threads[upto(3)], y);
            if (!rows_same(&t, t.y, y, t.n)) {
                fail_msg("%s: k %zu rows %zu n %zu", kernels_name(set_of(s)),
                         t.k, t.rows, t.n);
            }
        }
        free(y);
        trial_free(&t);
    }
    crew_unref();
}

static void sets_agree_on_int8(void **state)
{
    (void)state;
    sets_agree(WEIGHT_I8, UNIT_SANITIZED ? 20 : 120);
}

static void sets_agree_on_int4(void **state)
{
    (void)state;
    sets_agree(WEIGHT_I4, UNIT_SANITIZED ? 20 : 120);
}

static void sets_agree_on_floats(void **state)
{
    (void)state;
    sets_agree(WEIGHT_F16, UNIT_SANITIZED ? 10 : 60);
    sets_agree(WEIGHT_F32, UNIT_SANITIZED ? 10 : 60);
}

static void sets_agree_on_tables(void **state)
{
    (void)state;
    sets_agree(WEIGHT_LUT4, UNIT_SANITIZED ? 30 : 120);
    sets_agree(WEIGHT_LUT6, UNIT_SANITIZED ? 30 : 120);
}

/* Is input i at the peak, or else 0? Lanes add up other places in each set:
 * one may be full where another has half of it. */
static bool at_peak(size_t pattern, size_t i)
{
    static const size_t apart[] = {0, 1, 2, 8, 16, 32, 64};
    size_t n = apart[pattern % countof(apart)];
    return n == 0 || i / n % 2 == 0;
}

/* The widest sums there are: every weight the least, inputs at the peak, both
 * signs. */
static void extremes_of(size_t pattern)
{
    static const enum weight_kind kinds[] = {WEIGHT_I8, WEIGHT_LUT4,
                                             WEIGHT_LUT6, WEIGHT_LUT4};
    static const size_t columns[] = {1, 4, 9, 40};
    for (size_t i = 0; set_of(i / 16) != NULL; i++) {
        struct trial t;
        trial_new(&t, kinds[i % 4], 37, 4100, columns[i / 4 % 4]);
        const int least =
            i % 4 == 3 ? WEIGHT_NARROW_PEAK : WEIGHT_TABLE_PEAK; /* negated */
        size_t skip = (size_t)((const char *)t.w.data - (char *)t.block);
        memset((char *)t.block + skip, 0x80,
               t.rows * t.k * bits_of(t.w.kind) / 8);
        for (size_t c = 0; t.table != NULL && c < 37 / (size_t)t.w.block[0] *
                                                      weight_entries(t.w.kind);
             c++) {
            t.table[c] = (int16_t)-least;
        }
        if (t.table != NULL) {
            memset(t.narrow, i % 4 == 3, 37 / (size_t)t.w.block[0]);
        }
        free(t.bias);
        t.bias = NULL;
        for (size_t c = 0; c < t.n * t.ldx; c++) {
            float peak = at_peak(pattern, c % t.ldx) ? 3.0f : 0.0f;
            t.x[c] = c / t.ldx % 2 ? peak : -peak;
        }
        size_t full = 0;
        for (size_t c = 0; c < t.k; c++) {
            full += at_peak(pattern, c);
        }
        run_rows(&t, set_of(i / 16), 0, t.n, 1, t.y);
        for (size_t c = 0; c < t.n * t.rows; c++) {
            double want = (c / t.rows % 2 ? -1 : 1) * 3.0 *
                          (t.table != NULL ? least : 128) *
                          (double)t.scale[c % t.rows] * (double)full;
            double got = (double)t.y[c / t.rows * t.ldy + c % t.rows];
            assert_true(fabs(got - want) <= 1e-6 * fabs(want));
        }
        trial_free(&t);
    }
}

static void extremes_do_not_overflow(void **state)
{
    (void)state;
    for (size_t pattern = 0; pattern < (UNIT_SANITIZED ? 2 : 7); pattern++) {
        extremes_of(UNIT_SANITIZED ? pattern * 5 : pattern);
    }
}

/* --- batch invariance --- */

/* Is every row what it is alone, in each batch and for each thread count? */
static bool invariant(const struct trial *t, const struct kernels *kn)
{
    static const size_t sizes[] = {2, 3, 4, 5, 7, 8, 16, 25, 40};
    static const unsigned threads[] = {1, 2, 5};
    bool ok = true;
    float *y = need(t->n * t->ldy * sizeof(float));
    for (size_t r = 0; r < t->n; r++) {
        run_rows(t, kn, r, 1, 1, t->y + r * t->ldy);
    }
    for (size_t i = 0; i < countof(sizes); i++) {
        size_t n = sizes[i];
        size_t first = n < t->n ? upto(t->n - n) : 0;
        n = n < t->n ? n : t->n;
        run_rows(t, kn, first, n, threads[i % 3], y);
        ok = ok && rows_same(t, t->y + first * t->ldy, y, n);
    }
    free(y);
    return ok;
}

static void a_row_alone_is_the_row_in_a_batch(void **state)
{
    (void)state;
    static const enum weight_kind kinds[] = {
        WEIGHT_I8, WEIGHT_I4, WEIGHT_F16, WEIGHT_F32, WEIGHT_LUT4, WEIGHT_LUT6};
    crew_ref();
    for (size_t s = 0; set_of(s) != NULL; s++) {
        for (size_t i = 0; i < (UNIT_SANITIZED ? 6u : 18u); i++) {
            struct trial t;
            trial_new(&t, kinds[i % countof(kinds)], 33 + upto(40),
                      4 * (1 + upto(750)), 40);
            season(&t);
            if (!invariant(&t, set_of(s))) {
                fail_msg("%s: kind %d k %zu rows %zu", kernels_name(set_of(s)),
                         (int)t.w.kind, t.k, t.rows);
            }
            trial_free(&t);
        }
    }
    crew_unref();
}

/* A kernel that adds up differently when it has company. */
static void sloppy(const struct linear_job *j, size_t begin, size_t end,
                   void *scratch)
{
    kernels_scalar.int_few(j, begin, end, scratch);
    for (size_t o = begin; j->n > 4 && o < end; o++) {
        j->y[o] = nextafterf(j->y[o], INFINITY);
    }
}

static void the_check_finds_a_batch_dependent_kernel(void **state)
{
    (void)state;
    struct kernels bad = kernels_scalar;
    bad.int_few = sloppy;
    bad.int_many = sloppy;
    static const enum weight_kind kinds[] = {WEIGHT_I8, WEIGHT_LUT4};
    for (size_t i = 0; i < countof(kinds); i++) {
        struct trial t;
        trial_new(&t, kinds[i], 40, 640, 40);
        assert_true(invariant(&t, &kernels_scalar));
        assert_false(invariant(&t, &bad));
        trial_free(&t);
    }
}

/* --- accuracy --- */

static double weight_at(const struct trial *t, size_t o, size_t k)
{
    size_t at = o * t->k + k;
    const uint8_t *u = t->w.data;
    if (t->w.kind == WEIGHT_I4) {
        int v = (u[at / 2] >> (at % 2 * 4)) & 15;
        return (v < 8 ? v : v - 16) * (double)t->scale[o];
    }
    if (has_tables(t->w.kind)) {
        size_t v = 0; /* bit by bit */
        size_t bits = bits_of(t->w.kind);
        for (size_t b = 0; b < bits; b++) {
            size_t bit = at * bits + b;
            v |= (size_t)(u[bit / 8] >> bit % 8 & 1) << b;
        }
        v += o / (size_t)t->w.block[0] * weight_entries(t->w.kind);
        return t->table[v] * (double)t->scale[o];
    }
    return ((const int8_t *)u)[at] * (double)t->scale[o];
}

/* Half a step of the rounding for each element, and the float sums. */
static void results_are_near_exact(void **state)
{
    (void)state;
    double worst = 0;
    static const enum weight_kind kinds[] = {WEIGHT_I8, WEIGHT_I4, WEIGHT_LUT4,
                                             WEIGHT_LUT6};
    for (size_t i = 0; i < 80; i++) {
        struct trial t;
        trial_new(&t, kinds[i % countof(kinds)], 1 + upto(40),
                  4 * (1 + upto(1000)), 1 + upto(6));
        run_rows(&t, kernels_find(NULL), 0, t.n, 1, t.y);
        for (size_t c = 0; c < t.n * t.rows; c++) {
            size_t r = c / t.rows;
            size_t o = c % t.rows;
            double sum = 0;
            double mag = 0;
            double bulk = 0;
            double peak = 0;
            for (size_t k = 0; k < t.k; k++) {
                double x = (double)t.x[r * t.ldx + k];
                double w = weight_at(&t, o, k);
                sum += w * x;
                mag += fabs(w * x);
                bulk += fabs(w);
                peak = fabs(x) > peak ? fabs(x) : peak;
            }
            double b = t.bias != NULL ? (double)t.bias[o] : 0;
            double off = fabs((double)t.y[r * t.ldy + o] - sum - b);
            assert_true(off <=
                        bulk * peak / 32766 + mag * 0x1p-20 + fabs(b) * 1e-6);
            if (t.k >= 64) {
                worst = fmax(worst, off / (mag + fabs(b)));
            }
        }
        trial_free(&t);
    }
    print_message("# largest error / sum of |w x|: %.2g\n", worst);
    assert_true(worst < 1e-4);
}

/* Few channels a thousand times the others, with small or no weights: the
 * others must come through. share: one in so many channels. */
static double outlier_error(size_t share, int8_t outlier_weight)
{
    struct trial t;
    trial_new(&t, WEIGHT_I8, 64, 896, 4);
    free(t.bias);
    t.bias = NULL;
    int8_t *w = (int8_t *)t.block + ((const char *)t.w.data - (char *)t.block);
    double err = 0;
    double all = 0;
    for (size_t k = 0; k < t.k; k += share) {
        for (size_t r = 0; r < t.n; r++) {
            t.x[r * t.ldx + k] = r % 2 ? 1000.0f : -1003.7f;
        }
        for (size_t o = 0; o < t.rows; o++) {
            w[o * t.k + k] =
                (int8_t)(upto(2) ? outlier_weight : -outlier_weight);
        }
    }
    run_rows(&t, kernels_find(NULL), 0, t.n, 1, t.y);
    for (size_t c = 0; c < t.n * t.rows; c++) {
        double sum = 0;
        for (size_t k = 0; k < t.k; k++) {
            sum += weight_at(&t, c % t.rows, k) *
                   (double)t.x[c / t.rows * t.ldx + k];
        }
        double off = (double)t.y[c / t.rows * t.ldy + c % t.rows] - sum;
        err += off * off;
        all += sum * sum;
    }
    trial_free(&t);
    return sqrt(err / all);
}

static void outliers_do_not_drown_the_rest(void **state)
{
    (void)state;
    static const size_t shares[] = {896, 100, 20, 5};
    double worst = 0;
    for (size_t i = 0; i < countof(shares); i++) {
        worst = fmax(worst, outlier_error(shares[i], 0));
        worst = fmax(worst, outlier_error(shares[i], 1));
    }
    print_message("# relative error beside outliers: %.2g\n", worst);
    assert_true(worst < 1e-5); /* 1e-3 is asked for */
}

static void bad_numbers_make_their_row_nan_only(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t s = 0; set_of(s) != NULL; s++) {
        for (size_t i = 0; i < countof(bad); i++) {
            struct trial t;
            trial_new(&t, WEIGHT_I8, 35, 333, 5);
            t.x[2 * t.ldx + 17] = bad[i];
            run_rows(&t, set_of(s), 0, t.n, 1, t.y);
            for (size_t c = 0; c < t.n * t.rows; c++) {
                float y = t.y[c / t.rows * t.ldy + c % t.rows];
                assert_int_equal(isnan(y) != 0, c / t.rows == 2);
            }
            trial_free(&t);
        }
    }
}

/* Float kinds are the interpreter's own reduction. */
static void floats_are_the_gemm_of_the_interpreter(void **state)
{
    (void)state;
    for (size_t i = 0; i < 20; i++) {
        struct trial t;
        trial_new(&t, i % 2 ? WEIGHT_F16 : WEIGHT_F32, 1 + upto(70),
                  1 + upto(1500), 1 + upto(9));
        float *x = need(t.n * gemm_pad(t.k) * sizeof(float));
        float *want = need(t.n * t.ldy * sizeof(float));
        gemm_pack(x, t.x, t.n, t.k, t.ldx, 1);
        struct gemm g = {.x = x,
                         .cols = t.n,
                         .bias = t.bias,
                         .y = want,
                         .ldr = 1,
                         .ldc = t.ldy,
                         .threads = 1};
        gemm_weight(&g, &t.w, 0, t.rows);
        gemm_run(&g);
        for (size_t s = 0; set_of(s) != NULL; s++) {
            run_rows(&t, set_of(s), 0, t.n, 1, t.y);
            assert_true(rows_same(&t, want, t.y, t.n));
        }
        free(x);
        free(want);
        trial_free(&t);
    }
}

/* --- several parts, one input --- */

static void parts_share_an_input(void **state)
{
    (void)state;
    static const enum weight_kind kinds[] = {
        WEIGHT_I8, WEIGHT_F16, WEIGHT_I4, WEIGHT_LUT4, WEIGHT_I8, WEIGHT_LUT6};
    struct trial t[countof(kinds)];
    struct linear_part p[countof(kinds)];
    float *y[countof(kinds)];
    struct err e = {0};
    const struct kernels *kn = kernels_find(NULL);
    struct linear_in *in = NULL;
    crew_ref();
    unit_ok(linear_in_new(1032, &in, &e), &e);
    for (size_t i = 0; i < countof(kinds); i++) {
        trial_new(&t[i], kinds[i], 1 + upto(200), 1032, 9);
        y[i] = need(t[i].n * t[i].ldy * sizeof(float));
        p[i] = (struct linear_part){
            .w = &t[i].w, .bias = t[i].bias, .y = y[i], .ldy = t[i].ldy};
    }
    for (unsigned threads = 1; threads < 6; threads++) {
        for (size_t n = 1; n <= 9; n += 4) { /* grows and is used again */
            unit_ok(linear_in_set(in, kn, t[0].x, t[0].ldx, n, true, true,
                                  threads, &e),
                    &e);
            linear_run(p, countof(kinds), in, kn, threads);
            for (size_t i = 0; i < countof(kinds); i++) {
                struct trial one = t[i];
                one.x = t[0].x;
                one.ldx = t[0].ldx;
                run_rows(&one, kn, 0, n, 1, t[i].y);
                assert_true(rows_same(&t[i], y[i], t[i].y, n));
            }
        }
    }
    for (size_t i = 0; i < countof(kinds); i++) {
        free(y[i]);
        trial_free(&t[i]);
    }
    linear_in_free(in);
    crew_unref();
}

/* --- groups of rows, each with products of its own --- */

enum { GROUP_ROWS = 48, GROUPS = 5 };
static const uint32_t group_start[GROUPS + 1] = {0, 1, 3, 3, 43, GROUP_ROWS};

/* Group i is multiplied by t[i].w; rows in any order. As each row alone. */
static void check_groups(struct trial *t, struct linear_in *in, size_t ldy)
{
    struct err e = {0};
    const struct kernels *kn = kernels_find(NULL);
    struct linear_part p[GROUPS];
    uint32_t row[GROUP_ROWS];
    float *y = need(GROUP_ROWS * ldy * sizeof(float));
    for (uint32_t r = 0; r < GROUP_ROWS; r++) {
        row[r] = (uint32_t)upto(GROUP_ROWS);
    }
    const struct linear_rows rows = {.x = t[0].x,
                                     .ldx = t[0].ldx,
                                     .row = row,
                                     .n = GROUP_ROWS,
                                     .start = group_start,
                                     .groups = GROUPS};
    unit_ok(linear_in_take(in, kn, &rows, true, true, 3, &e), &e);
    for (size_t i = 0; i < GROUPS; i++) {
        p[i] = (struct linear_part){.w = &t[i].w,
                                    .bias = t[i].bias,
                                    .y = y + group_start[i] * ldy,
                                    .ldy = ldy,
                                    .group = (uint32_t)i};
    }
    linear_run(p, GROUPS, in, kn, 3);
    for (size_t i = 0; i < GROUPS; i++) {
        struct trial one = t[i];
        one.x = t[0].x;
        one.ldx = t[0].ldx;
        for (size_t r = group_start[i]; r < group_start[i + 1]; r++) {
            run_rows(&one, kn, row[r], 1, 1, t[i].y);
            assert_true(same(t[i].y, y + r * ldy, t[i].w.rows));
        }
    }
    free(y);
}

static void groups_are_as_alone(void **state)
{
    (void)state;
    static const enum weight_kind kinds[] = {WEIGHT_LUT4, WEIGHT_I8, WEIGHT_F16,
                                             WEIGHT_LUT6, WEIGHT_I4};
    struct err e = {0};
    struct linear_in *in = NULL;
    crew_ref();
    unit_ok(linear_in_new(1032, &in, &e), &e);
    for (size_t round = 0; round < 4 * countof(kinds); round++) {
        struct trial t[GROUPS];
        size_t ldy = 0;
        for (size_t i = 0; i < GROUPS; i++) { /* sometimes all of one kind */
            trial_new(&t[i], kinds[(i * (round % 3) + round) % countof(kinds)],
                      1 + upto(400), 1032, GROUP_ROWS);
            ldy = t[i].ldy > ldy ? t[i].ldy : ldy;
        }
        season(&t[0]);
        check_groups(t, in, ldy);
        for (size_t i = 0; i < GROUPS; i++) {
            trial_free(&t[i]);
        }
    }
    linear_in_free(in);
    crew_unref();
}

static void sets_have_names(void **state)
{
    (void)state;
    assert_non_null(kernels_each(0));
    assert_ptr_equal(kernels_find(NULL), kernels_each(0));
    assert_ptr_equal(kernels_find("scalar"), &kernels_scalar);
    assert_null(kernels_find("mmx"));
    for (size_t i = 0; set_of(i) != NULL; i++) {
        print_message("# set: %s\n", kernels_name(set_of(i)));
    }
}

#if defined(__x86_64__)
/* The AVX-512 set where the machine has none. */
static void avx512_is_simulated(void **state)
{
    (void)state;
#if !defined(HAVE_SIMDE)
    print_message("# no SIMDe headers: avx512 is tested only where it runs\n");
    skip();
#endif
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_have_names),
#if defined(__x86_64__)
        cmocka_unit_test(avx512_is_simulated),
#endif
        cmocka_unit_test(sets_agree_on_int8),
        cmocka_unit_test(sets_agree_on_int4),
        cmocka_unit_test(sets_agree_on_floats),
        cmocka_unit_test(sets_agree_on_tables),
        cmocka_unit_test(extremes_do_not_overflow),
        cmocka_unit_test(a_row_alone_is_the_row_in_a_batch),
        cmocka_unit_test(the_check_finds_a_batch_dependent_kernel),
        cmocka_unit_test(results_are_near_exact),
        cmocka_unit_test(outliers_do_not_drown_the_rest),
        cmocka_unit_test(bad_numbers_make_their_row_nan_only),
        cmocka_unit_test(floats_are_the_gemm_of_the_interpreter),
        cmocka_unit_test(parts_share_an_input),
        cmocka_unit_test(groups_are_as_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
