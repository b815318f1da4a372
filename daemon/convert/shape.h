/* shape.h - the numbers of rows that a model's programs take. Also asked by
 * serve, which reads jobs. */
#pragma once

#include "base/err.h"
#include "proto/limits.h"

/* n = 0: any number up to SHAPE_RANGE_MAX, but for an encoder. */
struct program_shape {
    uint32_t n;
    uint32_t block; /* not 0: of an encoder, which takes up to ENCODER_ROWS_MAX,
                       in multiples of this */
    uint32_t t[ENGINE_WIDTHS_MAX]; /* ascending: a function each */
};

#define SHAPE_RANGE_MAX 4u /* rows of one prediction on the Neural Engine */

#define SHAPE_NAME_MAX 16u

/* "ranged", "functions" (1 and 4 rows) or "functions:T,T,..."; NULL is
 * "ranged". Errors: INVALID, saying what may stand there. */
CHECKED int shape_parse(const char *text, struct program_shape *ret,
                        struct err *e);

/* The same numbers for an encoder with blocks of so many rows; of "functions"
 * alone, 128, 256 and 512. text: as given. Errors: INVALID (no multiple). */
CHECKED int shape_of_encoder(const char *text, uint32_t block,
                             struct program_shape *s, struct err *e);

/* What of it heads have: they are asked for ENGINE_HEAD_ROWS_MAX rows at most.
 */
void shape_of_heads(const struct program_shape *s, struct program_shape *ret);

/* "t8": the function of 8 rows. */
void shape_name(uint32_t t, char out[SHAPE_NAME_MAX]);

/* The most rows of one prediction. */
uint32_t shape_max(const struct program_shape *s);

/* Where a layer's experts are. EXPERTS_AUTO: where the plan's figures say. */
enum experts_form { EXPERTS_AUTO, EXPERTS_DENSE, EXPERTS_SPARSE };

/* "auto", "dense", "sparse" or "sparse:N", N experts a package; NULL is "auto".
 * *group: N, or 0. Errors: INVALID, saying what may stand there. */
CHECKED int experts_parse(const char *text, enum experts_form *ret,
                          uint32_t *group, struct err *e);
