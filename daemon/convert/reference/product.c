/* product.c - weights times panels: a block of rows is dequantised by
 * any free thread, and multiplied at once. */
#include <math.h>

#include "base/crew.h"
#include "base/num.h"
#include "convert/gemm.h"
#include "convert/quant.h"
#include "convert/reference/impl.h"

#define BATCH 64u /* blocks a worker between two looks at progress */

uint64_t reference_block_rows(uint64_t cols)
{
    uint64_t rows = num_max(BLOCK_FLOATS / cols, BLOCK_ROWS);
    return rows - rows % 6; /* whole tiles of gemm */
}

/* max |x| over the real columns; NaN when one is not a number. */
static double panel_peak(const struct reference *r, const float *x, size_t rows)
{
    double m = 0;
    for (size_t i = 0; i < rows; i++) {
        float p = quant_peak(x + i * r->stride, r->n);
        if (isnan(p)) {
            return (double)NAN;
        }
        m = (double)p > m ? (double)p : m;
    }
    return m;
}

static int read_rows(const struct reference_conf *c,
                     const struct gguf_tensor *t, uint64_t first, uint64_t n,
                     float *out, struct err *e)
{
    return c->rows != NULL ? c->rows(c->ctx, t, first, n, out, e)
                           : gguf_rows(t, first, n, out, e);
}

static void run_block(struct product *p, size_t i, struct scratch *s)
{
    struct reference *r = p->r;
    uint64_t from = (p->first + i) * p->block_rows;
    uint64_t n = num_min(p->block_rows, p->w->rows - from);
    if (s->rc < 0) {
        return;
    }
    s->rc = read_rows(r->conf, p->w->t, p->w->first + from, n, s->rows, &s->err);
    if (s->rc < 0) {
        return;
    }
    float *y = p->y != NULL ? p->y + from * r->stride : s->y;
    gemm_rows(s->rows, n, p->w->cols, p->x, r->stride, y);
    if (p->y != NULL) {
        return;
    }
    double peak = panel_peak(r, y, n);
    s->peak = isnan(peak) || peak > s->peak ? peak : s->peak;
    for (uint64_t j = 0; p->logits != NULL && j < n; j++) {
        for (uint32_t t = 0; t < r->n; t++) {
            p->logits[(size_t)t * p->w->rows + from + j] = y[j * r->stride + t];
        }
    }
}

static void on_blocks(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct product *p = ctx;
    for (size_t i = begin; i < end; i++) {
        run_block(p, i, &p->r->scratch[worker]);
    }
}

int reference_product(struct product *p, struct err *e)
{
    struct reference *r = p->r;
    p->block_rows = reference_block_rows(p->w->cols);
    uint64_t blocks = (p->w->rows + p->block_rows - 1) / p->block_rows;
    uint64_t batch = (uint64_t)r->n_scratch * BATCH;
    for (p->first = 0; p->first < blocks; p->first += batch) {
        uint64_t n = num_min(batch, blocks - p->first);
        crew_run(r->threads, (size_t)n, 1, on_blocks, p);
        for (size_t i = 0; i < r->n_scratch; i++) {
            if (r->scratch[i].rc < 0) {
                return err_set(e, r->scratch[i].rc, "%s",
                               r->scratch[i].err.msg);
            }
        }
        uint64_t bytes = p->w->t->row_bytes * p->w->rows / blocks * n;
        int rc = r->progress == NULL ? 0 : progress_add(r->progress, bytes, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

int reference_multiply(struct reference *r, const struct part *w,
                       const struct part *bias, const float *x, float *y,
                       struct err *e)
{
    struct product p = {.r = r, .w = w, .x = x, .y = y};
    RETERR(reference_product(&p, e));
    if (bias->t == NULL) {
        return 0;
    }
    float *b = malloc(bias->cols * sizeof(*b));
    if (b == NULL) {
        return err_set(e, ERR_NOMEM, "%s: no memory", bias->t->name);
    }
    int rc = 0;
    CHECK(arch_vector(bias, b, e));
    for (size_t i = 0; i < bias->cols; i++) {
        for (size_t t = 0; t < r->stride; t++) {
            y[i * r->stride + t] += b[i];
        }
    }
out:
    free(b);
    return rc;
}

int reference_project(struct reference *r, uint32_t l, enum arch_slot slot,
                      enum arch_slot bias, enum range_kind kind, const float *x,
                      float *y, struct err *e)
{
    static const struct part none;
    const struct part *w = arch_part(r->d, l, slot);
    RETERR(reference_multiply(
        r, w, bias == SLOT_COUNT ? &none : arch_part(r->d, l, bias), x, y, e));
    reference_peak(r, kind, l, y, w->rows);
    return 0;
}

void reference_peak(struct reference *r, enum range_kind kind, uint32_t layer,
                    const float *x, size_t rows)
{
    if (r->range != NULL) {
        range_add_peak(r->range, kind, layer, panel_peak(r, x, rows));
    }
}
