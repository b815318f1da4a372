/* op_attention.h - softmax(q k^T ... + mask) v without the score matrix.
 *
 * A row attends only to the positions that its mask shows. A position whose
 * mask is at most `hidden` is not computed at all. With the converter's mask of
 * -1e4 this gives the same bits as the full computation: exp of such a score is
 * exactly 0 (scores stay below some thousands), and adding 0 changes nothing.
 */
#pragma once

#include "engine/cpu/cpu.h"

#define ATTENTION_OPS  6
#define ATTENTION_MASK (-9999.0f) /* the contract's -1e4, and below */

enum attention_op {
    ATTENTION_MUL,
    ATTENTION_DIV,
    ATTENTION_TANH,
    ATTENTION_ADD_MASK,
    ATTENTION_CAST
};

struct attention_step {
    enum attention_op op;
    float c;   /* of MUL and DIV */
    bool fp16; /* declared type of the result */
};

/* The operations between the two products, with the rounding that each one's
 * declared type needs in round mode. */
struct attention_form {
    bool tx; /* q is [.., D, T] */
    int n;
    struct attention_step ops[ATTENTION_OPS];
    const struct mil_type *space; /* shape of the scores where the mask is
                                     added; NULL: that of the product */
    bool scores_fp16;             /* of q k^T */
    bool probs_fp16;              /* of the softmax or the cast after it */
    float hidden;
};
