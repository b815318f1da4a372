/* gemm.c - see gemm.h: the parts of a product, and which thread computes which
 * rows. The loops are in gemm_impl.h. */
#include "engine/cpu/kernels/products/gemm.h"

#include <string.h>

#include "base/crew.h"
#include "engine/cpu/kernels/floats.h"

#define PARALLEL_MIN 131072 /* multiply-adds that pay for waking a thread */
#define BLOCK_WORK   65536  /* multiply-adds in a block of rows */

static void block(void *ctx, size_t begin, size_t end, unsigned worker)
{
    floats()->gemm(ctx, begin, end, worker);
}

void gemm_weight(struct gemm *g, const struct weight *w, size_t row0,
                 size_t rows)
{
    bool decode = w->kind == WEIGHT_I4 || weight_entries(w->kind) > 0;
    g->kind = decode ? WEIGHT_ROWS : w->kind;
    g->ldw = w->cols;
    g->k = w->cols;
    g->rows = rows;
    g->src = w;
    g->src_row = row0;
    if (g->kind != WEIGHT_ROWS) {
        g->w = gemm_row_at(w->kind, w->data, row0 * w->cols);
        g->scale = w->scale != NULL ? w->scale + row0 : NULL;
    }
}

void gemm_run(struct gemm *g)
{
    size_t work = g->k * g->cols;
    size_t grain = work > 0 ? BLOCK_WORK / work : g->rows;
    if (g->cols < GEMM_COLS) {
        grain = (grain & ~(size_t)3) + 4;
    } else { /* groups of three, and some of them to a block of columns */
        size_t share =
            g->rows / (4 * (size_t)(g->threads > 0 ? g->threads : 1));
        grain = grain > 48 ? grain : 48;
        grain = (grain < share ? grain : share) / 12 * 12 + 12;
    }
    unsigned threads = work * g->rows < PARALLEL_MIN ? 1 : g->threads;
    crew_run(threads, g->rows, grain, block, g);
}

void gemm_pack(float *out, const float *x, size_t cols, size_t k, size_t sc,
               size_t sk)
{
    size_t ld = gemm_pad(k);
    for (size_t c = 0; c < cols; c++) {
        float *o = out + c * ld;
        const float *from = x + c * sc;
        if (sk == 1) {
            memcpy(o, from, k * sizeof(float));
        } else {
            for (size_t i = 0; i < k; i++) {
                o[i] = from[i * sk];
            }
        }
        for (size_t i = k; i < ld; i++) {
            o[i] = 0.0f;
        }
    }
}
