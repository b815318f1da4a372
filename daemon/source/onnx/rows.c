/* rows.c - weights to floats.
 *
 * Rows that lie in a row with one scale for a run of columns are decoded run by
 * run. Everything else (transposed matrices, scales for runs of rows) goes
 * element by element, in the order in which the elements lie.
 */
#include "source/onnx/rows.h"

#include "base/half.h"
#include "base/num.h"
#include "source/gguf_impl.h"

static float load_f32(const uint8_t *p)
{
    return half_float(gguf_u32(p));
}

float onnx_number(const struct onnx_grid *g, uint64_t i)
{
    const uint8_t *p = g->p;
    switch (g->type) {
    case ONNX_FLOAT:
        return load_f32(p + i * 4);
    case ONNX_FLOAT16:
        return half_to_float(gguf_u16(p + i * 2));
    case ONNX_BFLOAT16:
        return half_from_bf16(gguf_u16(p + i * 2));
    case ONNX_UINT8:
    case ONNX_BOOL:
        return (float)p[i];
    case ONNX_INT8:
        return (float)(int8_t)p[i];
    case ONNX_UINT4:
        return (float)(p[i / 2] >> (i % 2 * 4) & 15);
    case ONNX_INT4:
        return (float)(((p[i / 2] >> (i % 2 * 4) & 15) ^ 8) - 8);
    case ONNX_INT32:
        return (float)(int32_t)gguf_u32(p + i * 4);
    case ONNX_INT64:
        return (float)(int64_t)gguf_u64(p + i * 8);
    }
    return 0;
}

static float rounded(float v, enum onnx_type to)
{
    if (to == ONNX_FLOAT16) {
        return half_round(v);
    }
    if (to == ONNX_BFLOAT16) { /* to the nearest, ties to even */
        uint32_t u = half_bits(v);
        u = (u & 0x7fffffffu) > 0x7f800000u
                ? u | 0x10000u
                : u + 0x7fffu + (u >> 16 & 1);
        return half_float(u & 0xffff0000u);
    }
    return v;
}

static uint64_t place(const struct onnx_grid *g, uint64_t r, uint64_t c)
{
    return r * g->row_step + c * g->col_step;
}

/* Scale and zero point of a block. */
static float scale_of(const struct onnx_rows *m, uint64_t rb, uint64_t cb)
{
    return m->scale.p != NULL ? onnx_number(&m->scale, place(&m->scale, rb, cb))
                              : 1.0f;
}

static float zero_of(const struct onnx_rows *m, uint64_t rb, uint64_t cb)
{
    return m->zero.p != NULL ? onnx_number(&m->zero, place(&m->zero, rb, cb))
                             : m->zero_const;
}

/* n elements from number `at` on, one scale for all. */
static void run(const struct onnx_grid *q, uint64_t at, uint64_t n, float zero,
                float scale, float *out)
{
    if (q->type == ONNX_UINT4 && at % 2 == 0) {
        const uint8_t *p = q->p + at / 2;
        for (uint64_t i = 0; i + 1 < n; i += 2, p++) {
            out[i] = ((float)(*p & 15) - zero) * scale;
            out[i + 1] = ((float)(*p >> 4) - zero) * scale;
        }
        if (n % 2 == 1) {
            out[n - 1] = ((float)(*p & 15) - zero) * scale;
        }
        return;
    }
    if (q->type == ONNX_UINT8) {
        for (uint64_t i = 0; i < n; i++) {
            out[i] = ((float)q->p[at + i] - zero) * scale;
        }
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        out[i] = (onnx_number(q, at + i) - zero) * scale;
    }
}

static void by_runs(const struct onnx_rows *m, uint64_t r, float *out)
{
    uint64_t rb = r / m->row_block;
    for (uint64_t c = 0; c < m->cols; c += m->col_block) {
        uint64_t n = m->cols - c < m->col_block ? m->cols - c : m->col_block;
        uint64_t cb = c / m->col_block;
        run(&m->q, place(&m->q, r, c), n, zero_of(m, rb, cb),
            scale_of(m, rb, cb), out + c);
    }
}

static float element(const struct onnx_rows *m, uint64_t r, uint64_t c)
{
    float q = onnx_number(&m->q, place(&m->q, r, c));
    if (m->scale.p == NULL) {
        return q;
    }
    uint64_t rb = r / m->row_block;
    uint64_t cb = c / m->col_block;
    return (q - zero_of(m, rb, cb)) * scale_of(m, rb, cb);
}

static void by_elements(const struct onnx_rows *m, uint64_t row, uint64_t n,
                        float *out)
{
    for (uint64_t c = 0; c < m->cols; c++) {
        for (uint64_t i = 0; i < n; i++) {
            out[i * m->cols + c] = element(m, row + i, c);
        }
    }
}

static void decode(const struct onnx_rows *m, uint64_t row, uint64_t n,
                   float *out)
{
    row += m->first;
    if (m->q.col_step == 1) {
        for (uint64_t i = 0; i < n; i++) {
            by_runs(m, row + i, out + i * m->cols);
        }
    } else {
        by_elements(m, row, n, out);
    }
    if (m->made != ONNX_FLOAT) {
        for (uint64_t i = 0; i < n * m->cols; i++) {
            out[i] = rounded(out[i], m->made);
        }
    }
}

static void part_rows(const struct onnx_part *p, uint64_t row, uint64_t n,
                      float *out)
{
    if (p->head == 0) {
        decode(&p->m, p->first + row, n, out);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t in = (row + i) % p->head;
        uint64_t from = row + i - in + in % 2 * (p->head / 2) + in / 2;
        decode(&p->m, p->first + from, 1, out + i * p->m.cols);
    }
}

void onnx_stack_rows(const void *ctx, uint64_t row, uint64_t n, float *out)
{
    const struct onnx_stack *s = ctx;
    for (size_t i = 0; i < s->n && n > 0; i++) {
        const struct onnx_part *p = &s->of[i];
        if (row >= p->rows) {
            row -= p->rows;
            continue;
        }
        uint64_t here = p->rows - row < n ? p->rows - row : n;
        part_rows(p, row, here, out);
        out += here * p->m.cols;
        n -= here;
        row = 0;
    }
}
