/* program.h - builds the graphs of a shard from constants that are already in
 * the package. emit.c streams the constants and calls this.
 */
#pragma once

#include "convert/emit.h"

/* One layer's constants; NULL where the model has none. */
struct layer_weights {
    struct weight q, k, v, o, gate, up, down;
    const struct mil_const *q_bias, *k_bias, *v_bias, *o_bias;
    const struct mil_const *attn_norm, *q_norm, *k_norm, *post_attn;
    const struct mil_const *ffn_norm, *post_ffn;
};

/* One function over layers [first, last); t: its rows, or MIL_UNKNOWN. */
void program_layers(const struct emit *m, struct mil_program *p,
                    const char *name, int64_t t, uint32_t first, uint32_t last,
                    const struct layer_weights *w);

/* The final norm and one slice of the vocabulary: function "main". */
void program_head(const struct emit *m, struct mil_program *p,
                  const struct weight *head, const struct mil_const *norm);
