/* quant.h - rows of fp32 weights become what a package stores of them.
 *
 * A spec names a form; quant_encode gives it: codes as weight.bin packs them,
 * the fp16 parameters beside them (scales or palettes), and the error. Who
 * writes the package, or draws its program, knows no form by name.
 *
 *   fp16         the weights themselves
 *   int8, int4   q times one scale for each row (a row is an output channel)
 *   int8-tensor  q times one scale for all rows
 *   lut4, lut6   an index into a palette of 16 or 64 entries; `group`
 *                neighbouring rows share one
 *
 * A scale that changes along a row (GGUF's own blocks) is refused: the Neural
 * Engine takes one per output channel or per tensor, and Core ML moves every
 * other product to the CPU.
 *
 * Pure: no I/O. The same input gives the same bytes, on every machine.
 */
#pragma once

#include "base/err.h"
#include "proto/limits.h"

enum quant {
    QUANT_INT8,
    QUANT_FP16,
    QUANT_INT8_TENSOR,
    QUANT_INT4,
    QUANT_LUT4,
    QUANT_LUT6
};

struct quant_spec {
    enum quant kind;
    uint32_t group; /* rows that share a palette; 1 without palettes */
};

#define QUANT_TEXT_MAX 16u /* of a spec, with the NUL: "int8-tensor" */

/* "int8", "lut4", "lut6:8" (palettes of 8 rows each). NULL is int8. Without a
 * number lut4 has a palette for each row, lut6 one for 16: that is where more
 * palettes cost more bits than they are worth (measured on gemma-3-270m).
 * Errors: INVALID, which lists the forms; UNSUPPORTED for blocks along a row.
 */
CHECKED int quant_parse(const char *text, struct quant_spec *ret,
                        struct err *e);
/* As quant_parse reads it, in its shortest form. */
void quant_text(struct quant_spec s, char out[QUANT_TEXT_MAX]);

/* Bits of one stored weight, without its parameters. */
unsigned quant_bits(enum quant k);
/* Entries of a palette; 0 for forms that have none. */
unsigned quant_entries(enum quant k);
/* The spec for a matrix of so many rows: a group is made smaller until it
 * divides them, because a package's palettes cover equal groups. */
struct quant_spec quant_fit(struct quant_spec s, uint64_t rows);
/* Parameters beside `rows` rows, which are whole groups. A tensor's common
 * scale counts as 1. */
uint64_t quant_params(struct quant_spec s, uint64_t rows);
/* Bytes of a matrix as stored: codes and parameters. */
uint64_t quant_bytes(struct quant_spec s, uint64_t rows, uint64_t cols);
/* May rows of `cols` weights be encoded? Codes of rows stand in whole bytes.
 * Errors: UNSUPPORTED, with what would do. */
CHECKED int quant_check(struct quant_spec s, uint64_t cols, struct err *e);

/* Nanoseconds that encoding a weight takes one core, to forecast with. */
double quant_encode_ns(enum quant k);

/* --- encoding --- */

struct feedback; /* quant/feedback.h */

struct quant_input {
    struct quant_spec spec;
    const float *rows; /* n_rows x cols, whole groups */
    uint64_t n_rows, cols;
    uint64_t first; /* number of the first row in its tensor */
    /* What an error in each column costs (the mean square of that input), cols
     * numbers from 0; NULL: all alike. Palettes are made for it. */
    const float *importance;
    float peak; /* int8-tensor: max |w| of the whole tensor */
    /* Spread each weight's error over the columns that follow; NULL: each
     * weight becomes the nearest value. fp16 ignores it. Made for these cols.
     */
    const struct feedback *feedback;
};

struct quant_form {
    uint8_t *codes;   /* n_rows * cols * bits / 8 bytes; fp16: the weights */
    uint16_t *params; /* quant_params(spec, n_rows) of fp16; unused by fp16 */
    /* Sum of importance * (w - value)^2; without feedback's targets. */
    double error;
};

/* Fill *out, whose arrays the caller owns. Thread: any; works on the caller's
 * alone. Errors: CONVERT (a weight that is not finite), RANGE (one that fp16
 * cannot hold), NOMEM. The message holds no name: prefix the tensor's. */
CHECKED int quant_encode(const struct quant_input *in, struct quant_form *out,
                         struct err *e);

/* --- decoding --- */

struct quant_rows { /* of a form; as quant_form */
    const uint8_t *codes;
    const uint16_t *params;
    uint64_t cols;
};

/* out: the cols numbers that row `row` stands for. spec: with the group that
 * the rows were encoded with. Thread: any. */
void quant_decode(struct quant_spec spec, const struct quant_rows *from,
                  uint64_t row, float *out);

/* --- scales --- */

/* max |w|; NaN when an element is NaN or infinite. */
float quant_peak(const float *w, size_t n);

/* The fp16 scale for a row with this peak, so that peak / scale <= levels +
 * 1/2. It is never zero, and is rounded up where fp16 is too coarse (subnormal
 * scales). A peak of zero gives 1. Infinity: the peak is too large. */
uint16_t quant_scale(float peak, int levels);

/* q[i] = round(w[i] / scale), ties to even, within -levels..levels, which is
 * 127 or 7. The scale is fp16 and q is rounded against that: an element is off
 * by at most half of it. w is finite and scale one that quant_scale gave for
 * it. */
void quant_round(const float *w, size_t n, uint16_t scale, int levels,
                 int8_t *q);
