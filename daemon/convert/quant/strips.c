#include "convert/quant/strips.h"

#include <assert.h>
#include <string.h>

#include "base/crew.h"
#include "base/num.h"

static_assert(TILE % GEMM_LANES == 0, "a tile is whole lanes wide");

struct fill {
    struct strips *s;
    const struct strips_from *from;
};

int strips_open(struct strips *s, size_t left_rows, size_t right_rows,
                struct err *e)
{
    size_t one = (size_t)TILE * STRIPS_TOKENS;
    *s = (struct strips){.left_rows = left_rows, .right_rows = right_rows};
    s->left = malloc(tile_strips(left_rows) * one * sizeof(*s->left));
    s->right = malloc(tile_strips(right_rows) * one * sizeof(*s->right));
    return s->left != NULL && s->right != NULL
               ? 0
               : err_set(e, ERR_NOMEM, "no memory for a panel of %zu inputs",
                         right_rows);
}

void strips_close(struct strips *s)
{
    free(s->left);
    free(s->right);
    s->left = NULL;
    s->right = NULL;
}

static void fill_left(const struct strips *s, const struct strips_from *from,
                      size_t strip)
{
    size_t n = s->depth;
    float *to = s->left + strip * TILE * n;
    for (size_t r = 0; r < TILE; r++, to += n) {
        size_t f = strip * TILE + r;
        if (f >= s->left_rows) {
            memset(to, 0, n * sizeof(*to));
            continue;
        }
        memcpy(to, from->left + f * from->stride, n * sizeof(*to));
        for (size_t t = 0; from->minus != NULL && t < n; t++) {
            to[t] -= from->minus[f * from->stride + t];
        }
    }
}

static void fill_right(const struct strips *s, const struct strips_from *from,
                       size_t strip)
{
    size_t n = s->depth;
    for (size_t c = 0; c < TILE; c++) {
        size_t f = strip * TILE + c;
        float *to = s->right + (strip * TILE + c / GEMM_LANES * GEMM_LANES) * n;
        const float *x = from->right + f * from->stride;
        for (size_t t = 0; t < n; t++) {
            to[t * GEMM_LANES + c % GEMM_LANES] = f < s->right_rows ? x[t] : 0;
        }
    }
}

static void on_fill(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct fill *f = ctx;
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        if (i < tile_strips(f->s->left_rows)) {
            fill_left(f->s, f->from, i);
        }
        if (i < tile_strips(f->s->right_rows)) {
            fill_right(f->s, f->from, i);
        }
    }
}

void strips_fill(struct strips *s, unsigned threads,
                 const struct strips_from *from, size_t depth)
{
    struct fill f = {s, from};
    must(depth <= STRIPS_TOKENS);
    s->depth = depth;
    size_t n = num_max(tile_strips(s->left_rows), tile_strips(s->right_rows));
    crew_run(threads, n, 1, on_fill, &f);
}

void strips_tile(const struct strips *s, size_t i, size_t j,
                 float y[TILE_COUNT])
{
    const float *right = s->right + j * TILE * s->depth;
    for (size_t b = 0; b < TILE; b += GEMM_LANES) {
        gemm_rows(s->left + i * TILE * s->depth, TILE, s->depth,
                  right + b * s->depth, GEMM_LANES, y + b * TILE);
    }
}
