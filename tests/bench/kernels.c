/* kernels.c - speed of linear_run alone: weights read per second for few rows,
 * multiply-adds per second for many, beside a plain read of the same bytes.
 *
 *   kernels [SET [THREADS [KIND [SHAPE [COLUMNS]]]]]
 *
 * Up to 16 columns, each round goes through a stack of matrices larger than the
 * last cache, as a decode step does; with more columns, or with HOT set, one
 * matrix is used again. Each figure is the fastest single product (or read) of
 * all rounds, because other work on the machine can only make it slower. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/crew.h"
#include "engine/cpu/kernels/products/linear.h"

#define STACK_BYTES (288u << 20)
#define ROUNDS      7
#define ROWS_MAX    512
#define K_MAX       8960
#define TABLES      ((size_t)151936 * 16) /* entries of the largest matrix */

/* One thread is timed by its processor time. */
static bool alone;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *need(size_t n)
{
    const size_t huge = (size_t)2 << 20;
    n = (n + huge - 1) & ~(huge - 1);
    void *p = aligned_alloc(huge, n);
    must(p != NULL);
#if defined(MADV_HUGEPAGE)
    (void)madvise(p, n, MADV_HUGEPAGE); /* as weights are mapped */
#endif
    return p;
}

static char *stack;
static int16_t *tables;
static int16_t *narrow_tables;
static const uint8_t *narrow; /* of the kind that is measured */
static volatile uint64_t sink;

struct reading {
    const char *p;
    size_t n;
};

static void read_block(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct reading *r = ctx;
    uint64_t s = 0;
    for (size_t i = begin * 64; i + 8 <= end * 64 && i + 8 <= r->n; i += 32) {
        uint64_t v[4];
        memcpy(v, r->p + i, sizeof(v));
        s += v[0] ^ v[1] ^ v[2] ^ v[3];
    }
    sink += s;
}

static double read_gbs(unsigned threads)
{
    struct reading r = {stack, STACK_BYTES};
    double best = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        double t = now();
        crew_run(threads, r.n / 64, r.n / 64 / threads, read_block, &r);
        t = now() - t;
        best = t < best ? t : best;
    }
    return STACK_BYTES / best * 1e-9;
}

static void one(const struct kernels *kn, enum weight_kind kind, size_t rows,
                size_t k, size_t n, unsigned threads, float *x, float *y,
                float *scale)
{
    size_t bytes = kind == WEIGHT_I8     ? rows * k
                   : kind == WEIGHT_F16  ? rows * k * 2
                   : kind == WEIGHT_LUT6 ? rows * k / 4 * 3
                                         : rows * k / 2;
    size_t count = n > 16 || getenv("HOT") != NULL ? 1 : STACK_BYTES / bytes;
    count = count > 0 ? count : 1;
    bool integer = kind != WEIGHT_F16 && kind != WEIGHT_ROWS;
    size_t share = kind == WEIGHT_LUT6 ? 16 : 1; /* rows of a table */
    struct err e = {0};
    struct linear_in *in = NULL;
    must(linear_in_new(k, &in, &e) == 0);
    double best = 1e9;
    double set = 0;
    double began = now();
    for (int round = 0; round < 2 || (round < 300 && now() - began < 0.2);
         round++) {
        double t0 = now();
        must(linear_in_set(in, kn, x, k, n, integer, !integer, threads, &e) ==
             0);
        set = now() - t0;
        for (size_t i = 0; i < count; i++) {
            const struct mil_const raw = {
                .type = {.dtype = MIL_UINT4,
                         .rank = 2,
                         .dims = {(int64_t)rows, (int64_t)k}},
                .data = stack + i * bytes
            };
            struct weight w = {
                .kind = kind,
                .rows = rows,
                .cols = k,
                .data = stack + i * bytes,
                .scale = scale,
 /* tables, and one of 16 row by row */
                .table = narrow != NULL ? narrow_tables : tables,
                .narrow = narrow,
                .type = raw.type,
                .raw = &raw,
                .lut = scale,
                .lut_size = 16,
                .vector = 1,
                .block[0] = (int64_t)(kind == WEIGHT_ROWS ? rows : share),
                .block[1] = (int64_t)k,
                .grid[0] = 1,
                .grid[1] = 1,
            };
            struct linear_part p = {.w = &w, .y = y, .ldy = rows};
            double t = now();
            linear_run(&p, 1, in, kn, threads);
            t = now() - t;
            best = t < best ? t : best;
        }
    }
    linear_in_free(in);
    double macs = (double)(rows * k) * (double)n;
    printf("%6zux%-5zu n %-3zu %7.2f GB/s %7.1f GMAC/s  %8.3f us each, "
           "input %.2f us\n",
           rows, k, n, (double)bytes / best * 1e-9, macs / best * 1e-9,
           best * 1e6, set * 1e6);
}

static void nothing(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)ctx;
    (void)begin;
    (void)end;
    (void)worker;
}

int main(int argc, char **argv)
{
    static const size_t shapes[][2] = {
        {896,    896 },
        {4864,   896 },
        {896,    4864},
        {151936, 896 },
        {1536,   640 },
        {640,    1024},
        {4096,   640 },
        {640,    2048},
        {1536,   1536},
        {8960,   1536},
        {1536,   8960},
        {151936, 1536}
    };
    static const size_t ns[] = {1, 2, 4, 8, 16, 64, 512};
    static const struct {
        const char *name;
        enum weight_kind kind;
    } kinds[] = {
        {"int8", WEIGHT_I8  },
        {"int4", WEIGHT_I4  },
        {"fp16", WEIGHT_F16 },
        {"lut4", WEIGHT_LUT4},
        {"narrow", WEIGHT_LUT4},
        {"lut6", WEIGHT_LUT6},
        {"rows", WEIGHT_ROWS}
    };
    const struct kernels *kn = kernels_find(argc > 1 ? argv[1] : NULL);
    unsigned threads =
        crew_threads(argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0);
    const char *only = argc > 3 ? argv[3] : NULL;
    size_t shape = argc > 4 ? strtoul(argv[4], NULL, 10) : countof(shapes);
    size_t columns = argc > 5 ? strtoul(argv[5], NULL, 10) : 0;
    must(kn != NULL);
    alone = threads == 1;
    stack = need(STACK_BYTES);
    float *scale = need(151936 * sizeof(float));
    float *x = need(ROWS_MAX * K_MAX * sizeof(float));
    float *y = need((size_t)ROWS_MAX * K_MAX * sizeof(float));
    uint64_t s = 1;
    for (size_t i = 0; i < STACK_BYTES / 2; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        /* finite as fp16 too */
        ((uint16_t *)(void *)stack)[i] = (uint16_t)(s >> 48) & 0xbbff;
    }
    for (size_t i = 0; i < ROWS_MAX * K_MAX; i++) {
        x[i] = -2; /* about normal, as activations are */
        for (int n = 0; n < 4; n++) {
            s = s * 6364136223846793005u + 1442695040888963407u;
            x[i] += (float)(s >> 40) * 0x1p-24f;
        }
    }
    for (size_t i = 0; i < 151936; i++) {
        scale[i] = 0.01f;
    }
    tables = need(TABLES * sizeof(*tables));
    narrow_tables = need(TABLES * sizeof(*tables));
    uint8_t *flags = need(TABLES);
    memset(flags, 1, TABLES);
    for (size_t i = 0; i < TABLES; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        tables[i] = (int16_t)((int)(s >> 33) % (WEIGHT_TABLE_PEAK + 1));
        narrow_tables[i] =
            (int16_t)((int)(s >> 33) % (WEIGHT_NARROW_PEAK + 1));
    }
    crew_ref();
    for (int i = 0; i < 2; i++) {
        double t = now();
        for (int j = 0; j < 20000; j++) {
            crew_run(threads, threads, 1, nothing, NULL);
        }
        printf("set %s, %u threads, a region %.2f us, read %.1f GB/s\n",
               kernels_name(kn), threads, (now() - t) / 20000 * 1e6,
               read_gbs(threads));
    }
    for (size_t kind = 0; kind < countof(kinds); kind++) {
        if (only != NULL && strcmp(only, kinds[kind].name) != 0) {
            continue;
        }
        printf("%s\n", kinds[kind].name);
        for (size_t i = 0; i < countof(shapes); i++) {
            for (size_t j = 0; j < countof(ns); j++) {
                if ((shapes[i][0] > 100000 && ns[j] > 16) ||
                    (shape < countof(shapes) && i != shape) ||
                    (columns > 0 && columns != ns[j])) {
                    continue;
                }
                narrow = strcmp(kinds[kind].name, "narrow") == 0 ? flags : NULL;
                one(kn, kinds[kind].kind, shapes[i][0], shapes[i][1], ns[j],
                    threads, x, y, scale);
            }
        }
    }
    crew_unref();
    free(stack);
    free(tables);
    free(narrow_tables);
    free(flags);
    free(scale);
    free(x);
    free(y);
    return 0;
}
