/* plan_input.h - a decoder as the planner sees it. */
#pragma once

#include "convert/arch/arch.h"
#include "convert/plan.h"
#include "convert/quant/choice.h"
#include "convert/shape.h"

#define TEXT_LAYER KIB(32) /* of a program's text, about */

/* The form that a bundle is made in. */
struct plan_form {
    const struct quant_choice *forms; /* of the matrices; borrowed */
    uint32_t context;
    const struct program_shape *shape; /* NULL: ranged */
    bool host;                 /* kv = host: no states */
    bool sparse;               /* experts in packages of their own */
};

/* What d weighs in that form: *ret is the caller's (plan_input_fini). Sizes are
 * those of weight.bin, record by record. g: its file, for the size of the
 * vocabulary; NULL counts none. */
void plan_input_of(const struct decoder *d, const struct gguf *g,
                   const struct plan_form *f, struct plan_input *ret);
/* Bytes of a matrix in weight.bin: codes and parameters, with the records. */
uint64_t plan_matrix_bytes(struct quant_spec spec, uint64_t rows,
                           uint64_t cols);

/* Parts of it, for who has layers and no source. */
/* States, and whose states each layer reads. ret->layers is there. */
void plan_input_states(const struct layer *layers, bool host, uint32_t context,
                       struct plan_input *ret);
/* s NULL: ranged. */
void plan_input_widths(const struct program_shape *s, struct plan_input *ret);
