/* stored.h - the constants of a bundle's packages, found by what they are: so
 * that its programs can be drawn anew, divided in another way or for another
 * context, without the source and without quantising again.
 */
#pragma once

#include "convert/plan.h"
#include "convert/program.h"
#include "model/bundle.h"

struct stored;

/* Read all packages of b, which must outlive the result. Errors: those of
 * mil_read; BUNDLE, naming a constant that is missing, or one that aned did not
 * write (an imported package). */
CHECKED int stored_open(const struct bundle *b, struct stored **ret,
                        struct err *e);
void stored_close(struct stored *s); /* NULL is fine */

/* Copy a layer's constants, in the order in which they stand in its package,
 * and bit for bit. */
void stored_layer(const struct stored *s, struct mil_writer *w, uint32_t layer,
                  struct layer_weights *ret);

/* Copy the final norm, and rows [first, last) of the vocabulary from the slices
 * that have them. Errors: UNSUPPORTED (these rows have no scale or palette in
 * common). */
CHECKED int stored_head(const struct stored *s, struct mil_writer *w,
                        uint32_t first, uint32_t last, struct weight *ret,
                        const struct mil_const **norm, struct err *e);

/* Of all constants' types and bytes, in the order of layers and rows: the same
 * for every division of the same weights. */
void stored_hash(const struct stored *s, char out[SHA256_HEX]);

/* What the planner asks of layers and head; in->context, and what concerns
 * functions and files, is the caller's. Sizes are those of weight.bin. */
void stored_measure(const struct stored *s, struct plan_input *in);
