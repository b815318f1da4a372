/* test_attend.c - attention over blocks: right, and the same bits in any
 * company (attend.h).
 *
 * "Alone" is the row by itself, on one thread, with the scalar loops. */
#include <float.h>
#include <math.h>

#include "../unit.h"
#include "base/crew.h"
#include "base/half.h"
#include "engine/cpu/kernels/attention/attend.h"
#include "engine/cpu/kernels/kernel_impl.h"

#define ROWS_MAX 96
#define POS_MAX  1100u

static uint32_t noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static float real(uint64_t *seed, float most)
{
    return ((float)(noise(seed) % 65536) / 32768.0f - 1.0f) * most;
}

struct shape {
    uint32_t heads, kv_heads, dim, vdim;
};

/* Sequences and rows that look at them. */
struct scene {
    struct shape s;
    struct kv_pool *pool;
    uint64_t seed;
    size_t rows;
    const struct kv_table *table[ROWS_MAX];
    uint32_t lo[ROWS_MAX], hi[ROWS_MAX];
    bool divide;
    float scale;
    size_t ldq, ldo;
    float *q, *alone, *out; /* [ROWS_MAX][ld] */
    uint16_t *k, *v;        /* one sequence, flat */
};

static void scene_begin(struct scene *c, struct shape s, uint64_t seed)
{
    struct err e = {0};
    *c = (struct scene){.s = s, .seed = seed};
    const struct kv_shape shapes[] = {
        {.heads = s.kv_heads, .dim = s.vdim,        .positions = POS_MAX},
        { .heads = s.kv_heads,       .dim = s.dim, .positions = POS_MAX,          .key = true},
    };
    unit_ok(kv_pool_new(2, shapes, &c->pool, &e), &e);
    c->divide = seed % 2 != 0;
    c->scale = c->divide ? sqrtf((float)s.dim) : 1.0f / sqrtf((float)s.dim);
    c->ldq = (size_t)s.heads * s.dim + 3;
    c->ldo = (size_t)s.heads * s.vdim + 5;
    c->q = calloc(ROWS_MAX * c->ldq, sizeof(float));
    c->alone = calloc(ROWS_MAX * c->ldo, sizeof(float));
    c->out = calloc(ROWS_MAX * c->ldo, sizeof(float));
    c->k = calloc((size_t)s.kv_heads * POS_MAX * s.dim, sizeof(uint16_t));
    c->v = calloc((size_t)s.kv_heads * POS_MAX * s.vdim, sizeof(uint16_t));
    assert_true(c->q != NULL && c->alone != NULL && c->out != NULL &&
                c->k != NULL && c->v != NULL);
}

static void scene_end(struct scene *c)
{
    kv_pool_free(c->pool);
    free(c->q);
    free(c->alone);
    free(c->out);
    free(c->k);
    free(c->v);
}

static struct kv_table *table_new(struct scene *c)
{
    struct kv_table *t = NULL;
    struct err e = {0};
    unit_ok(kv_table_new(c->pool, &t, &e), &e);
    return t;
}

/* Positions [first, first + n) whose contents follow from `seed` and the
 * position alone. */
static void write(struct scene *c, struct kv_table *t, uint32_t first,
                  uint32_t n, uint64_t seed)
{
    static float x[64 * 256];
    struct err e = {0};
    unit_ok(kv_reserve(t, first, n, &e), &e);
    for (uint32_t pos = first; pos < first + n; pos++) {
        uint64_t s = seed * 1000003 + pos;
        for (size_t i = 0; i < (size_t)c->s.kv_heads * c->s.vdim; i++) {
            x[i] = real(&s, 3.0f);
        }
        kv_store(t, 0, pos, x);
        for (size_t i = 0; i < (size_t)c->s.kv_heads * c->s.dim; i++) {
            x[i] = real(&s, 3.0f);
        }
        kv_store(t, 1, pos, x);
    }
}

static void add_row(struct scene *c, const struct kv_table *t, uint32_t lo,
                    uint32_t hi)
{
    assert_true(c->rows < ROWS_MAX);
    size_t r = c->rows++;
    c->table[r] = t;
    c->lo[r] = lo;
    c->hi[r] = hi;
    for (size_t i = 0; i < (size_t)c->s.heads * c->s.dim; i++) {
        c->q[r * c->ldq + i] = real(&c->seed, 2.0f);
    }
}

/* Rows order[0 .. n) in one call; each result lands in its own row of out. */
static void run(const struct scene *c, const size_t *order, size_t n,
                const struct kernels *kn, unsigned threads, float *out)
{
    const struct kv_table *table[ROWS_MAX];
    uint32_t lo[ROWS_MAX];
    uint32_t hi[ROWS_MAX];
    size_t nq = (size_t)c->s.heads * c->s.dim;
    size_t no = (size_t)c->s.heads * c->s.vdim;
    float *q = malloc(n * c->ldq * sizeof(float));
    float *o = malloc(n * c->ldo * sizeof(float));
    size_t floats = attend_scratch(POS_MAX, c->s.heads, c->s.kv_heads, c->s.dim,
                                   c->s.vdim, threads);
    float *scratch = malloc(floats * sizeof(float));
    assert_true(q != NULL && o != NULL && scratch != NULL);
    memset(scratch, 0xff, floats * sizeof(float)); /* NaN */
    for (size_t i = 0; i < n; i++) {
        table[i] = c->table[order[i]];
        lo[i] = c->lo[order[i]];
        hi[i] = c->hi[order[i]];
        memcpy(q + i * c->ldq, c->q + order[i] * c->ldq, nq * sizeof(float));
    }
    for (size_t i = 0; i < n * c->ldo; i++) {
        o[i] = 77.0f;
    }
    attend_run(&(struct attend){.rows = n,
                                .heads = c->s.heads,
                                .kv_heads = c->s.kv_heads,
                                .dim = c->s.dim,
                                .vdim = c->s.vdim,
                                .k_state = 1,
                                .v_state = 0,
                                .q = q,
                                .ldq = c->ldq,
                                .out = o,
                                .ldo = c->ldo,
                                .table = table,
                                .lo = lo,
                                .hi = hi,
                                .divide = c->divide,
                                .scale = c->scale,
                                .scratch = scratch,
                                .threads = threads},
               kn);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = no; k < c->ldo; k++) {
            assert_true(o[i * c->ldo + k] == 77.0f); /* nothing after a row */
        }
        memcpy(out + order[i] * c->ldo, o + i * c->ldo, no * sizeof(float));
    }
    free(q);
    free(o);
    free(scratch);
}

static void run_alone(const struct scene *c, float *out)
{
    for (size_t r = 0; r < c->rows; r++) {
        run(c, &r, 1, kernels_find("scalar"), 1, out);
    }
}

static void check_same(const struct scene *c, const size_t *order, size_t n,
                       const char *what)
{
    size_t no = (size_t)c->s.heads * c->s.vdim;
    for (size_t i = 0; i < n; i++) {
        const float *a = c->alone + order[i] * c->ldo;
        const float *b = c->out + order[i] * c->ldo;
        for (size_t k = 0; k < no; k++) {
            if (half_bits(a[k]) != half_bits(b[k])) {
                fail_msg("%s: heads %u/%u dim %u/%u row %zu of %zu [%u,%u) "
                         "element %zu: %a, alone %a",
                         what, c->s.heads, c->s.kv_heads, c->s.dim, c->s.vdim,
                         i, n, c->lo[order[i]], c->hi[order[i]], k,
                         (double)b[k], (double)a[k]);
            }
        }
    }
}

/* All rows, in order and in random subsets, everywhere. */
static void sweep(struct scene *c, int mixtures)
{
    static const unsigned threads[] = {1, 2, 5};
    size_t order[ROWS_MAX];
    run_alone(c, c->alone);
    for (size_t k = 0; kernels_each(k) != NULL; k++) {
        const struct kernels *kn = kernels_each(k);
        for (int m = 0; m <= mixtures; m++) {
            size_t n = c->rows;
            for (size_t i = 0; i < n; i++) {
                order[i] = i;
            }
            for (size_t i = 0; m > 0 && i < n; i++) { /* shuffle and cut */
                size_t j = i + noise(&c->seed) % (n - i);
                size_t t = order[i];
                order[i] = order[j];
                order[j] = t;
            }
            n = m > 0 ? 1 + noise(&c->seed) % n : n;
            /* one thread alone races with nobody */
            for (size_t t = UNIT_SANITIZED; t < countof(threads); t++) {
                memset(c->out, 0xff, ROWS_MAX * c->ldo * sizeof(float));
                run(c, order, n, kn, threads[t], c->out);
                check_same(c, order, n, kernels_name(kn));
            }
        }
    }
}

/* One head of a row in double precision; returns the largest error in units
 * of what is allowed. u = 2^-24 is half an ulp. A score is off by at most
 * (dim + 2) u scale sum |q k|, and so is an exponent's argument, plus its own
 * subtraction and exp's 3 ulp (6 u); a sum over a span and over spans is off
 * by u times its length, twice for numerator and denominator. */
static double head_error(const struct scene *c, size_t r, uint32_t h)
{
    static double p[POS_MAX];
    const struct shape *s = &c->s;
    uint32_t kh = h / (s->heads / s->kv_heads);
    const float *q = c->q + r * c->ldq + (size_t)h * s->dim;
    const float *out = c->alone + r * c->ldo + (size_t)h * s->vdim;
    double u = ldexp(1, -24);
    double max = -HUGE_VAL;
    double off = 0;
    double most = 0;
    for (uint32_t i = c->lo[r]; i < c->hi[r]; i++) {
        double dot = 0;
        double mag = 0;
        for (uint32_t d = 0; d < s->dim; d++) {
            double k = (double)half_to_float(
                c->k[((size_t)kh * POS_MAX + i) * s->dim + d]);
            dot += k * (double)q[d];
            mag += fabs(k * (double)q[d]);
        }
        double f = c->divide ? 1 / (double)c->scale : (double)c->scale;
        p[i] = dot * f;
        max = p[i] > max ? p[i] : max;
        off = fmax(off, (s->dim + 2) * u * mag * f);
        most = fmax(most, mag * f);
    }
    double sum = 0;
    for (uint32_t i = c->lo[r]; i < c->hi[r]; i++) {
        p[i] = exp(p[i] - max);
        sum += p[i];
    }
    double worst = 0;
    uint32_t n = c->hi[r] - c->lo[r];
    double chain = (n < 256 ? n : 256) + POS_MAX / 256 + 10;
    double rel = 2 * (2 * off + 2 * u * most + (6 + chain) * u);
    for (uint32_t d = 0; d < s->vdim; d++) {
        double want = 0;
        double mag = 0;
        for (uint32_t i = c->lo[r]; i < c->hi[r]; i++) {
            double v = (double)half_to_float(
                c->v[((size_t)kh * POS_MAX + i) * s->vdim + d]);
            want += p[i] / sum * v;
            mag += p[i] / sum * fabs(v);
        }
        double err = fabs(want - (double)out[d]) / (rel * mag + 1e-30);
        worst = err > worst || isnan(err) ? err : worst;
    }
    return worst;
}

static const struct shape all_shapes[] = {
    {1,  1, 16,  16 },
    {4,  2, 32,  32 },
    {14, 2, 64,  64 },
    {8,  8, 80,  80 },
    {8,  1, 96,  96 },
    {12, 2, 128, 128},
    {4,  1, 256, 256},
    {6,  3, 20,  36 },
    {17, 1, 40,  24 },
    {2,  2, 5,   3  },
    {3,  1, 1,   1  },
    {24, 8, 64,  128},
};

/* Against double precision: every shape, first and last positions, ends at
 * and beside the edges of lanes, blocks and spans. */
static void test_reference(void **state)
{
    (void)state;
    static const uint32_t ends[][2] = {
        {0,    1   },
        {0,    2   },
        {0,    15  },
        {0,    16  },
        {0,    17  },
        {0,    63  },
        {0,    64  },
        {0,    65  },
        {5,    6   },
        {37,   300 },
        {0,    256 },
        {0,    257 },
        {255,  257 },
        {250,  1000},
        {0,    1100},
        {512,  513 },
        {511,  768 },
        {1,    640 },
        {1099, 1100}
    };
    double worst = 0;
    for (size_t k = 0; k < countof(all_shapes); k++) {
        struct scene c;
        scene_begin(&c, all_shapes[k], k + 1);
        struct kv_table *t = table_new(&c);
        write(&c, t, 0, POS_MAX, 9);
        for (size_t i = 0; i < countof(ends); i++) {
            add_row(&c, t, ends[i][0], ends[i][1]);
        }
        run_alone(&c, c.alone);
        kv_flatten(t, 0, c.v);
        kv_flatten(t, 1, c.k);
        for (size_t r = 0; r < c.rows; r++) {
            for (uint32_t h = 0; h < c.s.heads; h++) {
                double err = head_error(&c, r, h);
                worst = err > worst || isnan(err) ? err : worst;
                if (!(err <= 1)) {
                    fail_msg("heads %u/%u dim %u/%u [%u,%u) head %u: %g of the "
                             "bound",
                             c.s.heads, c.s.kv_heads, c.s.dim, c.s.vdim,
                             c.lo[r], c.hi[r], h, err);
                }
            }
        }
        kv_table_free(t);
        scene_end(&c);
    }
    print_message("# largest error: %.3f of the bound\n", worst);
}

/* Rows of five sequences: single ones, a chunk, a window, two of one
 * position; in every mixture. */
static void test_mixtures(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(all_shapes); k++) {
        struct scene c;
        struct kv_table *t[5];
        scene_begin(&c, all_shapes[k], k + 20);
        uint32_t n[] = {1, 63, 130, 300, 700};
        for (size_t i = 0; i < countof(t); i++) {
            t[i] = table_new(&c);
            write(&c, t[i], 0, n[i], i);
            add_row(&c, t[i], 0, n[i]);
        }
        for (uint32_t i = 0; i < 19; i++) { /* a chunk over a span's edge */
            add_row(&c, t[3], 0, 245 + i);
        }
        for (uint32_t i = 0; i < 9; i++) {
            add_row(&c, t[4], 601 + i - 500, 601 + i);
        }
        add_row(&c, t[4], 600, 601);
        add_row(&c, t[4], 0, 601);
        add_row(&c, t[4], 64, 128);
        sweep(&c, UNIT_SANITIZED ? 1 : 3);
        for (size_t i = 0; i < countof(t); i++) {
            kv_table_free(t[i]);
        }
        scene_end(&c);
    }
}

/* Each row once it can first be computed, and all of them afterwards as one
 * chunk, when the table holds what they must not see. */
static void test_chunk(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(all_shapes); k++) {
        struct scene c;
        size_t order[ROWS_MAX];
        scene_begin(&c, all_shapes[k], k + 40);
        struct kv_table *t = table_new(&c);
        for (uint32_t pos = 0; pos < 90; pos++) {
            order[pos] = pos;
            write(&c, t, pos, 1, 7);
            add_row(&c, t, pos > 33 ? pos - 33 : 0, pos + 1);
            run(&c, &order[pos], 1, kernels_find("scalar"), 1, c.alone);
        }
        for (size_t i = 0; kernels_each(i) != NULL; i++) {
            for (unsigned threads = 1 + UNIT_SANITIZED; threads < 4; threads++) {
                run(&c, order, c.rows, kernels_each(i), threads, c.out);
                check_same(&c, order, c.rows, "chunk");
                run(&c, order + 5, 40, kernels_each(i), threads, c.out);
                check_same(&c, order, c.rows, "part of a chunk");
            }
        }
        kv_table_free(t);
        scene_end(&c);
    }
}

/* What a row does not see may be anything. */
static void test_outside(void **state)
{
    (void)state;
    static float bad[64 * 256];
    struct err e = {0};
    for (size_t k = 0; k < countof(all_shapes); k++) {
        struct scene c;
        scene_begin(&c, all_shapes[k], k + 60);
        struct kv_table *clean = table_new(&c);
        struct kv_table *dirty = table_new(&c);
        write(&c, clean, 40, 300, 3);
        write(&c, dirty, 40, 300, 3);
        for (size_t i = 0; i < countof(bad); i++) {
            bad[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
        }
        unit_ok(kv_reserve(dirty, 0, 40, &e), &e);
        unit_ok(kv_reserve(dirty, 340, 100, &e), &e);
        for (uint32_t pos = 0; pos < 440; pos++) {
            if (pos < 40 || pos >= 340) {
                kv_store(dirty, 0, pos, bad);
                kv_store(dirty, 1, pos, bad);
            }
        }
        for (uint32_t i = 0; i < 12; i++) {
            add_row(&c, clean, 40 + i, 340 - i);
        }
        run_alone(&c, c.alone);
        for (size_t r = 0; r < c.rows; r++) {
            c.table[r] = dirty;
            assert_true(isfinite(c.alone[r * c.ldo]));
        }
        size_t order[] = {3, 0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11};
        for (size_t i = 0; kernels_each(i) != NULL; i++) {
            run(&c, order, c.rows, kernels_each(i), 2, c.out);
            check_same(&c, order, c.rows, "outside");
        }
        kv_table_free(clean);
        kv_table_free(dirty);
        scene_end(&c);
    }
}

/* Forks, cuts and flat copies: the same contents, the same bits. */
static void test_history(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(all_shapes); k++) {
        struct scene c;
        struct err e = {0};
        struct kv_table *t[5] = {NULL};
        size_t order[] = {0, 1, 2, 3};
        scene_begin(&c, all_shapes[k], k + 80);
        for (size_t i = 0; i < 3; i++) {
            t[i] = table_new(&c);
        }
        write(&c, t[0], 0, 280, 1); /* the one thing, written straight */
        write(&c, t[0], 280, 40, 2);
        write(&c, t[1], 0, 310, 1); /* another, to be forked and cut */
        add_row(&c, t[1], 0, 310);
        run_alone(&c, c.alone);
        unit_ok(kv_fork(t[1], 280, &t[3], &e), &e);
        write(&c, t[3], 280, 40, 2);
        run(&c, order, 1, kernels_find(NULL), 2, c.out);
        check_same(&c, order, 1, "forked from");

        kv_truncate(t[1], 280);
        write(&c, t[1], 280, 40, 2);
        kv_flatten(t[0], 0, c.v);
        kv_flatten(t[0], 1, c.k);
        unit_ok(kv_unflatten(t[2], 0, c.v, &e), &e);
        unit_ok(kv_unflatten(t[2], 1, c.k, &e), &e);
        c.rows = 0;
        for (size_t i = 0; i < 4; i++) {
            add_row(&c, t[0], 0, 320);
            memcpy(c.q + i * c.ldq, c.q,
                   (size_t)c.s.heads * c.s.dim * sizeof(float));
        }
        run_alone(&c, c.alone);
        for (size_t i = 0; i < 4; i++) {
            c.table[i] = t[i];
        }
        run(&c, order, 4, kernels_find(NULL), 2, c.out);
        check_same(&c, order, 4, "history");
        for (size_t i = 0; i < countof(t); i++) {
            kv_table_free(t[i]);
        }
        scene_end(&c);
    }
}

/* Scores of every size: infinite keys, huge and equal scores, zero blocks. */
static void test_extremes(void **state)
{
    (void)state;
    struct scene c;
    struct err e = {0};
    float x[16];
    size_t order[] = {0, 1, 2, 3};
    scene_begin(&c, (struct shape){1, 1, 16, 16}, 1);
    struct kv_table *t = table_new(&c);
    struct kv_table *none = table_new(&c);
    write(&c, t, 0, 600, 5);
    for (size_t i = 0; i < countof(x); i++) {
        x[i] = i == 0 ? -INFINITY : 0.0f;
    }
    for (uint32_t pos = 0; pos < 300; pos++) {
        kv_store(t, 1, pos, x); /* a whole span of -infinity */
    }
    add_row(&c, t, 0, 600);
    add_row(&c, t, 300, 600);
    add_row(&c, t, 0, 300);
    add_row(&c, none, 0, 1000); /* nothing was ever written there */
    for (size_t r = 0; r < c.rows; r++) {
        memcpy(c.q + r * c.ldq, c.q, 16 * sizeof(float));
        c.q[r * c.ldq] = 1.0f;
    }
    run_alone(&c, c.alone);
    for (size_t i = 0; i < 16; i++) {
        /* Positions of -infinity weigh nothing, not even in another span;
         * where nothing else is, softmax is not a number. */
        assert_true(fabsf(c.alone[i] - c.alone[c.ldo + i]) < 1e-6f);
        assert_true(isnan(c.alone[2 * c.ldo + i]));
        assert_true(c.alone[3 * c.ldo + i] == 0.0f);
    }
    for (size_t i = 0; kernels_each(i) != NULL; i++) {
        size_t shown[] = {3, 1, 0};
        run(&c, order, 4, kernels_each(i), 2, c.out);
        check_same(&c, shown, 3, "extremes");
    }
    /* One score above all others by more than exp can hold. */
    unit_ok(kv_reserve(none, 0, 1000, &e), &e);
    memset(x, 0, sizeof(x));
    for (uint32_t pos = 0; pos < 1000; pos++) {
        x[0] = pos == 700 ? 60000.0f : -60000.0f;
        kv_store(none, 1, pos, x);
        x[0] = (float)pos;
        kv_store(none, 0, pos, x);
    }
    run(&c, &order[3], 1, kernels_find(NULL), 1, c.out);
    assert_true(c.out[3 * c.ldo] == 700.0f);
    kv_table_free(t);
    kv_table_free(none);
    scene_end(&c);
}

/* A product that depends on its company: alone as it should be, else from the
 * last row to the first. */
static void unfair(const struct attend_product *m)
{
    if (m->cols == 1) {
        kernels_find("scalar")->attend_product(m);
        return;
    }
    for (size_t c = 0; c < m->cols; c++) {
        for (size_t i = 0; i < m->n; i++) {
            float sum = m->add ? m->y[c * m->ldy + i] : 0.0f;
            for (size_t k = m->k; k-- > 0;) {
                sum = fmaf(m->x[c * m->ldx + k],
                           half_to_float(m->w[k * m->ldw + i]), sum);
            }
            m->y[c * m->ldy + i] = sum;
        }
    }
}

/* The comparison above sees such a kernel. */
static void test_detects(void **state)
{
    (void)state;
    struct scene c;
    size_t order[8];
    struct kernels bad = *kernels_find("scalar");
    bad.attend_product = unfair;
    scene_begin(&c, (struct shape){2, 2, 64, 64}, 3);
    struct kv_table *t = table_new(&c);
    write(&c, t, 0, 100, 1);
    for (size_t i = 0; i < countof(order); i++) {
        order[i] = i;
        add_row(&c, t, 0, 93 + (uint32_t)i);
        run(&c, &order[i], 1, &bad, 1, c.alone);
    }
    for (size_t i = 0; i < countof(order); i++) {
        run(&c, &order[i], 1, kernels_find(NULL), 1, c.out);
    }
    check_same(&c, order, countof(order), "alone");
    run(&c, order, countof(order), &bad, 1, c.out);
    size_t differ = 0;
    for (size_t i = 0; i < countof(order); i++) {
        differ += memcmp(c.out + i * c.ldo, c.alone + i * c.ldo,
                         (size_t)c.s.heads * c.s.vdim * sizeof(float)) != 0;
    }
    assert_int_equal(differ, countof(order));
    kv_table_free(t);
    scene_end(&c);
}

static int begin(void **state)
{
    (void)state;
    crew_ref();
    return 0;
}

static int end(void **state)
{
    (void)state;
    crew_unref();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference), cmocka_unit_test(test_mixtures),
        cmocka_unit_test(test_chunk),     cmocka_unit_test(test_outside),
        cmocka_unit_test(test_history),   cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_detects),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
