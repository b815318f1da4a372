#include "convert/quant/shift.h"

#include "base/crew.h"
#include "base/num.h"
#include "convert/quant/hessian.h"
#include "convert/quant/strips.h"

struct shift {
    size_t cols;
    struct shift_rows of; /* w NULL: over inputs */
    size_t rows, stride;  /* of the sum; stride: cols in whole tiles */
    float *sum;           /* whole tiles of rows x stride */
};

/* Tokens on their way into a sum. */
struct adding {
    struct shift *s;
    struct strips strips;
    const float *wanted, *x;
    size_t stride;
    float *off;     /* wanted - x: (cols, stride); only with W, as: */
    float *product; /* W * off: (rows, stride) */
};

int shift_open(size_t cols, const struct shift_rows *of, struct shift **ret,
               struct err *e)
{
    RETERR(hessian_check(cols, e));
    struct shift *s = calloc(1, sizeof(*s));
    size_t rows = of != NULL ? of->rows : cols;
    size_t stride = tile_strips(cols) * TILE;
    float *sum = calloc(tile_strips(rows) * TILE * stride, sizeof(*sum));
    if (s == NULL || sum == NULL) {
        free(s);
        free(sum);
        return err_set(e, ERR_NOMEM, "no memory for the products of %zu inputs",
                       cols);
    }
    *s = (struct shift){
        .cols = cols, .rows = rows, .stride = stride, .sum = sum};
    if (of != NULL) {
        s->of = *of;
    }
    *ret = s;
    return 0;
}

void shift_close(struct shift *s)
{
    if (s != NULL) {
        free(s->sum);
        free(s);
    }
}

/* --- W times what inputs are off --- */

static void on_off(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct adding *a = ctx;
    (void)worker;
    for (size_t i = begin * a->stride; i < end * a->stride; i++) {
        a->off[i] = a->wanted[i] - a->x[i];
    }
}

static void on_product(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct adding *a = ctx;
    const struct shift *s = a->s;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        size_t row = i * TILE;
        gemm_rows(s->of.w + row * s->cols, num_min(TILE, s->rows - row),
                  s->cols, a->off, a->stride, a->product + row * a->stride);
    }
}

static int multiply(struct adding *a, unsigned threads, struct err *e)
{
    const struct shift *s = a->s;
    a->off = malloc(s->cols * a->stride * sizeof(*a->off));
    a->product = malloc(s->rows * a->stride * sizeof(*a->product));
    if (a->off == NULL || a->product == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for a panel of %zu inputs",
                       s->cols);
    }
    crew_run(threads, s->cols, TILE, on_off, a);
    crew_run(threads, tile_strips(s->rows), 1, on_product, a);
    return 0;
}

/* --- sums --- */

static void on_strips(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct adding *a = ctx;
    struct shift *s = a->s;
    float y[TILE_COUNT];
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        for (size_t j = 0; j < tile_strips(s->cols); j++) {
            float *to = s->sum + i * TILE * s->stride + j * TILE;
            strips_tile(&a->strips, i, j, y);
            for (size_t k = 0; k < TILE_COUNT; k++) {
                to[k / TILE * s->stride + k % TILE] +=
                    y[strips_at(k / TILE, k % TILE)];
            }
        }
    }
}

int shift_add(struct shift *s, unsigned threads, const float *wanted,
              const float *x, size_t stride, size_t tokens, struct err *e)
{
    struct adding a = {.s = s, .wanted = wanted, .x = x, .stride = stride};
    bool rows = shift_has_rows(s);
    must(tokens <= stride);
    int rc = strips_open(&a.strips, s->rows, s->cols, e);
    rc = rc == 0 && rows ? multiply(&a, threads, e) : rc;
    for (size_t t = 0; rc == 0 && t < tokens; t += STRIPS_TOKENS) {
        const struct strips_from from = {.left = (rows ? a.product : wanted) + t,
                                         .minus = rows ? NULL : x + t,
                                         .right = x + t,
                                         .stride = stride};
        strips_fill(&a.strips, threads, &from,
                    num_min(STRIPS_TOKENS, tokens - t));
        crew_run(threads, tile_strips(s->rows), 1, on_strips, &a);
    }
    free(a.off);
    free(a.product);
    strips_close(&a.strips);
    return rc;
}

/* --- reading --- */

size_t shift_cols(const struct shift *s)
{
    return s->cols;
}

bool shift_has_rows(const struct shift *s)
{
    return s->of.w != NULL;
}

const float *shift_row(const struct shift *s, uint64_t i)
{
    must(i >= s->of.first && i - s->of.first < s->rows);
    return s->sum + (size_t)(i - s->of.first) * s->stride;
}
