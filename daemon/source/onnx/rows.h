/* rows.h - a matrix of weights as ONNX has it, read by rows.
 *
 * Element (r, c) is (q - zero) * scale in fp32, or a plain number where there
 * are no scales. One addressing serves every form: MatMulNBits,
 * GatherBlockQuantized, DequantizeLinear, matrices that stand transposed.
 *
 * Thread: any, inside gguf_guard.
 */
#pragma once

#include "source/onnx/onnx.h"

/* A table of numbers: element (r, c) is number r * row_step + c * col_step. */
struct onnx_grid {
    const uint8_t *p; /* NULL: there is none */
    uint64_t bytes;   /* of the whole table */
    enum onnx_type type;
    uint64_t row_step, col_step;
};

struct onnx_rows {
    uint64_t rows, cols;
    uint64_t first; /* of the tables' rows: this matrix begins there */
    uint64_t bytes; /* in the file, scales and zero points included */
    struct onnx_grid q;
    struct onnx_grid scale, zero;     /* of (r / row_block, c / col_block) */
    uint64_t row_block, col_block;    /* at least 1 */
    float zero_const;                 /* where zero.p is NULL */
    enum onnx_type made;              /* results are rounded to it */
    const char *form;                 /* "MatMulNBits 4 bits"; lives on */
};

/* Some rows of a matrix, in their order, or with those of each head as GGUF has
 * them where rotations turn pairs: row 2i + s is row s * head / 2 + i. */
struct onnx_part {
    struct onnx_rows m;
    uint64_t first, rows;
    uint64_t head; /* rows of a head; 0: in their order */
};

/* Several parts of one width, their rows one after another. */
#define ONNX_STACK_MAX 3u
struct onnx_stack {
    size_t n;
    struct onnx_part of[ONNX_STACK_MAX];
};

/* made_rows_fn; ctx is a struct onnx_stack. */
void onnx_stack_rows(const void *ctx, uint64_t row, uint64_t n, float *out);

/* One number of a grid. */
float onnx_number(const struct onnx_grid *g, uint64_t i);
