/* hessian.c - a panel is cut into strips of TILE features and DEPTH tokens,
 * each kept as it is and turned, so that a tile of the sum is one call of
 * gemm_rows. Sums over a strip's tokens are fp32, sums of strips double.
 */
#include "convert/quant/hessian.h"

#include <math.h>
#include <string.h>

#include "base/crew.h"
#include "base/num.h"
#include "convert/gemm.h"
#include "convert/quant/tile.h"
#include "proto/limits.h"

#define DEPTH 128u /* tokens */

struct hessian {
    size_t cols, strips;
    uint64_t tokens;
    double *tiles;
};

struct shift {
    size_t cols, strips, stride; /* stride: cols in whole strips */
    float *sum;                  /* (strips * TILE) x stride */
};

/* One strip of tokens on its way into a sum. */
struct piece {
    size_t cols, depth; /* depth: its tokens */
    float *left;        /* strips x (TILE x depth) */
    float *right;       /* strips x (depth x TILE) */
    struct hessian *h;
    struct shift *s;
};

static int check_cols(size_t cols, struct err *e)
{
    must(cols > 0);
    if (cols > QUANT_HESSIAN_MAX) {
        return err_set(
            e, ERR_UNSUPPORTED,
            "error feedback takes rows of up to %u weights, not %zu; "
            "convert this matrix without calibration",
            QUANT_HESSIAN_MAX, cols);
    }
    return 0;
}

int hessian_open(size_t cols, struct hessian **ret, struct err *e)
{
    RETERR(check_cols(cols, e));
    struct hessian *h = calloc(1, sizeof(*h));
    size_t strips = tile_strips(cols);
    double *tiles = calloc(tile_at(strips, 0), sizeof(*tiles));
    if (h == NULL || tiles == NULL) {
        free(h);
        free(tiles);
        return err_set(e, ERR_NOMEM, "no memory for the products of %zu inputs",
                       cols);
    }
    *h = (struct hessian){.cols = cols, .strips = strips, .tiles = tiles};
    *ret = h;
    return 0;
}

void hessian_close(struct hessian *h)
{
    if (h != NULL) {
        free(h->tiles);
        free(h);
    }
}

int shift_open(size_t cols, struct shift **ret, struct err *e)
{
    RETERR(check_cols(cols, e));
    struct shift *s = calloc(1, sizeof(*s));
    size_t side = tile_strips(cols) * TILE;
    float *sum = calloc(side * side, sizeof(*sum));
    if (s == NULL || sum == NULL) {
        free(s);
        free(sum);
        return err_set(e, ERR_NOMEM, "no memory for the products of %zu inputs",
                       cols);
    }
    *s = (struct shift){cols, tile_strips(cols), side, sum};
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

/* --- strips of a panel --- */

static int piece_open(struct piece *p, size_t cols, struct err *e)
{
    size_t n = tile_strips(cols) * TILE * DEPTH;
    p->cols = cols;
    p->left = malloc(n * sizeof(*p->left));
    p->right = malloc(n * sizeof(*p->right));
    if (p->left == NULL || p->right == NULL) {
        free(p->left);
        free(p->right);
        return err_set(e, ERR_NOMEM, "no memory for a panel of %zu inputs",
                       cols);
    }
    return 0;
}

/* left from (a - b), or from a when b is NULL; right from x. */
static void piece_fill(struct piece *p, const float *a, const float *b,
                       const float *x, size_t stride)
{
    size_t n = p->depth;
    for (size_t f = 0; f < tile_strips(p->cols) * TILE; f++) {
        size_t strip = f / TILE * TILE * n;
        float *left = p->left + strip + f % TILE * n;
        float *right = p->right + strip + f % TILE;
        bool real = f < p->cols;
        for (size_t t = 0; t < n; t++) {
            size_t at = f * stride + t;
            left[t] = !real ? 0 : b != NULL ? a[at] - b[at] : a[at];
            right[t * TILE] = real ? x[at] : 0;
        }
    }
}

/* The product of two strips. */
static void piece_tile(const struct piece *p, size_t i, size_t j,
                       float y[TILE_COUNT])
{
    gemm_rows(p->left + i * TILE * p->depth, TILE, p->depth,
              p->right + j * TILE * p->depth, TILE, y);
}

/* --- sums --- */

static void on_strips(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct piece *p = ctx;
    float y[TILE_COUNT];
    (void)worker;
    for (size_t item = begin; item < end; item++) {
        size_t i = p->h->strips - 1 - item; /* the longest rows first */
        for (size_t j = 0; j <= i; j++) {
            double *to = p->h->tiles + tile_at(i, j);
            piece_tile(p, i, j, y);
            for (size_t k = 0; k < TILE_COUNT; k++) {
                to[k] += (double)y[k];
            }
        }
    }
}

int hessian_add(struct hessian *h, unsigned threads, const float *x,
                size_t stride, size_t tokens, struct err *e)
{
    struct piece p = {.h = h};
    must(tokens <= stride);
    RETERR(piece_open(&p, h->cols, e));
    for (size_t t = 0; t < tokens; t += DEPTH) {
        p.depth = num_min(DEPTH, tokens - t);
        piece_fill(&p, x + t, NULL, x + t, stride);
        crew_run(threads, h->strips, 1, on_strips, &p);
    }
    h->tokens += tokens;
    free(p.left);
    free(p.right);
    return 0;
}

static void on_shift(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct piece *p = ctx;
    struct shift *s = p->s;
    float y[TILE_COUNT];
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        for (size_t j = 0; j < s->strips; j++) {
            piece_tile(p, i, j, y);
            for (size_t r = 0; r < TILE; r++) {
                float *to = s->sum + (i * TILE + r) * s->stride + j * TILE;
                for (size_t c = 0; c < TILE; c++) {
                    to[c] += y[r * TILE + c];
                }
            }
        }
    }
}

int shift_add(struct shift *s, unsigned threads, const float *wanted,
              const float *x, size_t stride, size_t tokens, struct err *e)
{
    struct piece p = {.s = s};
    must(tokens <= stride);
    RETERR(piece_open(&p, s->cols, e));
    for (size_t t = 0; t < tokens; t += DEPTH) {
        p.depth = num_min(DEPTH, tokens - t);
        piece_fill(&p, wanted + t, x + t, x + t, stride);
        crew_run(threads, s->strips, 1, on_shift, &p);
    }
    free(p.left);
    free(p.right);
    return 0;
}

/* --- reading --- */

size_t hessian_cols(const struct hessian *h)
{
    return h->cols;
}

double hessian_get(const struct hessian *h, size_t i, size_t j)
{
    size_t row = i > j ? i : j;
    size_t col = i > j ? j : i;
    const double *t = h->tiles + tile_at(row / TILE, col / TILE);
    return t[row % TILE * TILE + col % TILE];
}

void hessian_importance(const struct hessian *h, float *out)
{
    double mean = 0;
    double n = h->tokens > 0 ? (double)h->tokens : 1;
    for (size_t i = 0; i < h->cols; i++) {
        mean += hessian_get(h, i, i) / n / (double)h->cols;
    }
    for (size_t i = 0; i < h->cols; i++) {
        out[i] = (float)(hessian_get(h, i, i) / n + mean / 100);
    }
}

size_t shift_cols(const struct shift *s)
{
    return s->cols;
}

const float *shift_row(const struct shift *s, size_t i)
{
    return s->sum + i * s->stride;
}
