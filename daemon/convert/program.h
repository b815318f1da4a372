/* program.h - builds the graphs of a shard from constants that are already in
 * the package. emit.c streams the constants and calls this.
 */
#pragma once

#include "convert/emit.h"

/* Matrices of experts; the experts of a group (layer_expert_group) are one
 * constant. */
enum expert_matrix { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN };
#define EXPERT_MATRICES 3u
static inline enum arch_slot expert_slot(unsigned which)
{
    return which == EXPERT_GATE ? SLOT_EXPERT_GATE
           : which == EXPERT_UP ? SLOT_EXPERT_UP
                                : SLOT_EXPERT_DOWN;
}
/* The constant's name after "layers_N_". */
#define EXPERT_NAME_MAX 48u
void expert_constant_name(enum expert_matrix which, uint32_t group,
                          char out[EXPERT_NAME_MAX]);

/* Constants that are made of rows of a table (arch_slot). */
enum layer_extra {
    EXTRA_CONV_BIAS, /* MIXER_CCA: of the depthwise convolution */
    EXTRA_MIX_BIAS,
    EXTRA_JOIN_ATTN, /* affine_join: times the stream, times the block's, and
                        what is added */
    EXTRA_JOIN_FFN = EXTRA_JOIN_ATTN + 3,
    EXTRA_ROUTER = EXTRA_JOIN_FFN + 3, /* ROUTER_NETWORK: five vectors */
    EXTRA_COUNT = EXTRA_ROUTER + 5,
};

/* The least rows of a program, of which all numbers of rows are multiples: 1,
 * or a block of an encoder. */
static inline uint32_t program_rows_least(const struct decoder *d)
{
    return d->encoder ? layer_block(d->kinds[LAYER_GLOBAL].window) : 1;
}

/* One layer's constants by slot; empty where the model has none. */
struct layer_weights {
    const struct mil_const *extra[EXTRA_COUNT];
    struct weight experts[EXPERT_MATRICES][MODEL_EXPERT_GROUPS];
    /* [n * d_expert] of gate and up, [d_model, n, 1, 1] of down; or NULL */
    const struct mil_const *expert_bias[EXPERT_MATRICES][MODEL_EXPERT_GROUPS];
    struct weight matrix[SLOT_COUNT];
    const struct mil_const *vector[SLOT_COUNT];
};
static inline const struct weight *layer_matrix(const struct layer_weights *w,
                                                enum arch_slot slot)
{
    must(w->matrix[slot].data != NULL);
    return &w->matrix[slot];
}
/* NULL: none */
static inline const struct mil_const *
layer_vector(const struct layer_weights *w, enum arch_slot slot)
{
    return w->vector[slot];
}

void expert_bias_name(enum expert_matrix which, uint32_t group,
                      char out[EXPERT_NAME_MAX]);

/* Write the experts of layer l, if it has any and is not sparse. Errors: of
 * weights_matrix. */
CHECKED int experts_put(const struct emit *m, struct mil_writer *w, uint32_t l,
                        struct layer_weights *r, struct err *e);

/* The ports by which rows of layer l go from the program whose first layer is
 * `first` (an output) to later ones (an input). */
#define PROGRAM_PORT_MAX 48u
void program_gives_name(uint32_t first, uint32_t l, enum layer_port what,
                        char out[PROGRAM_PORT_MAX]);
void program_takes_name(uint32_t l, enum layer_port what,
                        char out[PROGRAM_PORT_MAX]);
/* Whether a program that ends at layer `last` gives those of layer l. */
bool program_gives(const struct decoder *d, enum layer_port what, uint32_t l,
                   uint32_t last);

/* One function over layers [first, last); t: its rows, or MIL_UNKNOWN. Where
 * layer first - 1 is sparse it begins with what comes behind that layer's
 * experts, of the weights `before` (else NULL); last may be first then. */
void program_layers(const struct emit *m, struct mil_program *p,
                    const char *name, int64_t t, uint32_t first, uint32_t last,
                    const struct layer_weights *before,
                    const struct layer_weights *w);

/* An expert of a sparse layer as a function of its own: x [1, d_model, T, 1] to
 * y of the same shape, before its gate. */
void program_expert(const struct emit *m, struct mil_program *p,
                    const char *name, int64_t t, uint32_t l,
                    const struct weight w[EXPERT_MATRICES]);
/* "expert_3", or "expert_3_t4" where a function has T rows; t 0: any. */
#define EXPERT_FUNCTION_MAX 32u
void program_expert_name(uint32_t expert, uint32_t t,
                         char out[EXPERT_FUNCTION_MAX]);
/* Write one expert of layer l. Errors: of weights_matrix. */
CHECKED int expert_put(const struct emit *m, struct mil_writer *w, uint32_t l,
                       uint32_t expert, struct weight r[EXPERT_MATRICES],
                       struct err *e);

/* Whether the layer's part behind its experts holds what the slot is. */
bool program_behind(const struct layer *l, enum arch_slot slot);

/* What queries are multiplied by: in their norm's weight where they have one.
 * It has the division of a cap of the scores in it. */
float program_query_scale(const struct layer *l);
/* What the final norm's weight is multiplied by, beside the norm's gain. */
float program_head_gain(const struct decoder *d);
/* The final norm and one slice of the vocabulary, with the output `logits`; or
 * `top_id` and `top_value` of each row, where m->argmax: the slice's likeliest
 * token, counted from 0, and its logit. Of equal ones the first. */
struct program_head {
    const struct weight *matrix;
    const struct mil_const *norm;
    const struct mil_const *bias; /* NULL: none */
};
void program_head(const struct emit *m, struct mil_program *p,
                  const char *name, int64_t t, const struct program_head *h);
