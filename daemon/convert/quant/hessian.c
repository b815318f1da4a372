/* hessian.c - sums over STRIPS_TOKENS tokens are fp32, sums of those double. */
#include "convert/quant/hessian.h"

#include "base/crew.h"
#include "base/num.h"
#include "convert/quant/strips.h"
#include "proto/limits.h"

struct hessian {
    size_t cols, strips;
    uint64_t tokens;
    double *tiles;
};

/* Tokens on their way into a sum. */
struct adding {
    struct hessian *h;
    struct strips strips;
};

int hessian_check(size_t cols, struct err *e)
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
    RETERR(hessian_check(cols, e));
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

static void on_strips(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct adding *a = ctx;
    float y[TILE_COUNT];
    (void)worker;
    for (size_t item = begin; item < end; item++) {
        size_t i = a->h->strips - 1 - item; /* the longest rows first */
        for (size_t j = 0; j <= i; j++) {
            double *to = a->h->tiles + tile_at(i, j);
            strips_tile(&a->strips, i, j, y);
            for (size_t k = 0; k < TILE_COUNT; k++) {
                to[k] += (double)y[strips_at(k / TILE, k % TILE)];
            }
        }
    }
}

int hessian_add(struct hessian *h, unsigned threads, const float *x,
                size_t stride, size_t tokens, struct err *e)
{
    struct adding a = {.h = h};
    must(tokens <= stride);
    int rc = strips_open(&a.strips, h->cols, h->cols, e);
    for (size_t t = 0; rc == 0 && t < tokens; t += STRIPS_TOKENS) {
        const struct strips_from from = {
            .left = x + t, .right = x + t, .stride = stride};
        strips_fill(&a.strips, threads, &from,
                    num_min(STRIPS_TOKENS, tokens - t));
        crew_run(threads, h->strips, 1, on_strips, &a);
    }
    h->tokens += rc == 0 ? tokens : 0;
    strips_close(&a.strips);
    return rc;
}

void hessian_blend(struct hessian *h, const struct hessian *of, double by)
{
    size_t n = tile_at(h->strips, 0);
    must(of->cols == h->cols);
    for (size_t i = 0; i < n; i++) {
        h->tiles[i] += by * of->tiles[i];
    }
}

void hessian_soften(struct hessian *h, double keep)
{
    for (size_t i = 0; i < h->strips; i++) {
        for (size_t j = 0; j <= i; j++) {
            double *t = h->tiles + tile_at(i, j);
            for (size_t k = 0; k < TILE_COUNT; k++) {
                bool own = i == j && k / TILE == k % TILE;
                t[k] *= own ? 1 : keep;
            }
        }
    }
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
