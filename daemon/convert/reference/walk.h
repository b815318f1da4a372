/* walk.h - the reference block by block, for many sequences at once.
 *
 * A layer is two or three blocks that add to the stream. A block begins with
 * the products that read the stream (REFERENCE_ATTENTION: q, k, v) and ends
 * with one that joins it (o). Between them a caller may look at what a product
 * reads, and have its rows replaced (reference_conf.rows). The stream is the
 * only thing that goes from a block to the next, beside the keys and values
 * that later layers share.
 *
 *   reference_at, reference_embed
 *   for each layer, for each block it has:
 *       reference_open_block, reference_close_block
 *   reference_head
 *
 * Columns of a panel are tokens: sequence s has columns [s * columns, (s + 1) *
 * columns), which stand at positions from reference_at's on. No column's bits
 * depend on its neighbours in the panel.
 *
 * Thread: one at a time; it uses the crew itself.
 */
#pragma once

#include "convert/reference/reference.h"

struct reference;
struct reference_keys;

enum reference_block { REFERENCE_ATTENTION, REFERENCE_FFN, REFERENCE_PLE };
#define REFERENCE_BLOCKS 3u

/* sequences * columns: 1 .. REFERENCE_TOKENS_MAX. d and conf are borrowed.
 * Errors: NOMEM. */
CHECKED int reference_open(const struct decoder *d,
                           const struct reference_conf *conf,
                           uint32_t sequences, uint32_t columns,
                           struct reference **ret, struct err *e);
void reference_close(struct reference *r); /* NULL is fine */
/* Bytes that reference_open takes for so many tokens, without a worker's. */
uint64_t reference_panel_bytes(const struct decoder *d, uint32_t tokens);

/* Room for keys and values of `room` positions (REFERENCE_TOKENS_MAX at most)
 * of each sequence. all: of every layer, so that columns may follow one
 * another; else of those that a later layer reads, and one place for the
 * others. Errors: NOMEM. */
CHECKED int reference_keys_open(const struct decoder *d, uint32_t sequences,
                                uint32_t room, bool all,
                                struct reference_keys **ret, struct err *e);
void reference_keys_close(struct reference_keys *k); /* NULL is fine */
uint64_t reference_keys_bytes(const struct decoder *d, uint32_t sequences,
                              uint32_t room, bool all);

/* The next columns of each sequence begin at this position. keys: borrowed, of
 * the same sequences; position + columns are within their room. */
void reference_at(struct reference *r, struct reference_keys *keys,
                  uint32_t position);

/* The stream becomes the tokens' embeddings; tokens: one a column, borrowed as
 * long as layers with embeddings of their own run. Errors: INVALID (a token
 * beyond the vocabulary), NOMEM, those of gguf_rows. */
CHECKED int reference_embed(struct reference *r, const int32_t *tokens,
                            struct err *e);

/* (reference_stream_rows, stride): value (f, t) at [f * stride + t]. It may be
 * read and replaced between blocks. The first d_model rows are the residual
 * stream; where a router reads that of the layer before, its rows follow. */
size_t reference_stream_rows(const struct decoder *d);
float *reference_stream(const struct reference *r, size_t *ret_stride);

/* Has the layer this block? */
bool reference_has(const struct decoder *d, uint32_t l,
                   enum reference_block block);

/* The norm that a block begins with, alone: afterwards reference_input is that
 * of the block's first products. Errors of this and the next ones: CANCELLED,
 * NOMEM, those of reference_conf.rows and gguf_rows. */
CHECKED int reference_enter(struct reference *r, uint32_t l,
                            enum reference_block block, struct err *e);
/* The same and the products, up to what the block's last product reads. */
CHECKED int reference_open_block(struct reference *r, uint32_t l,
                                 enum reference_block block, struct err *e);
/* The last product, and the stream after it. */
CHECKED int reference_close_block(struct reference *r, uint32_t l,
                                  enum reference_block block, struct err *e);
/* Layers [first, last). Layer `first` may be computed again, with other rows,
 * while those before it last ran as they should: their shared keys are kept. So
 * go from the last layer to the first. */
CHECKED int reference_layers(struct reference *r, uint32_t first, uint32_t last,
                             struct err *e);

/* The final norm alone: reference_input of SLOT_OUTPUT. */
CHECKED int reference_enter_head(struct reference *r, struct err *e);
/* The norm and the head. logits: (tokens, arch_outputs), or NULL. */
CHECKED int reference_head(struct reference *r, float *logits, struct err *e);

/* What the product with a layer's matrix reads: value (f, t) at x[f * stride +
 * t], of `rows` features and `tokens` tokens; borrowed, and may be replaced.
 * It is there after reference_enter (the first products; those of
 * REFERENCE_PLE: the embeddings and the stream), or reference_open_block (the
 * last). */
struct reference_panel {
    float *x;
    size_t rows, stride;
    uint32_t tokens;
};
struct reference_panel reference_input(struct reference *r, uint32_t l,
                                       enum arch_slot slot);

/* A layer's experts, in steps: the router alone, which leaves what they read as
 * reference_input of SLOT_EXPERT_GATE. *ret: what each column multiplies an
 * expert by, (n_experts, stride), 0 where it did not choose it. The stream's
 * router rows are those after the layer then: put it back before the layer runs.
 * Errors: as reference_enter. */
CHECKED int reference_route(struct reference *r, uint32_t l,
                            struct reference_panel *ret, struct err *e);
/* What the last product of expert `index` reads of n columns like those that
 * experts read (x: (d_model, stride), which is n in whole lanes, within the
 * panels), by: what each is multiplied by. *ret is valid until the next call.
 * Errors: as reference_enter. */
CHECKED int reference_expert(struct reference *r, uint32_t l, uint32_t index,
                             const struct reference_panel *x, const float *by,
                             struct reference_panel *ret, struct err *e);
