/* program_impl.h - what the files of program.h share: one function under
 * construction, and the operations it is made of. */
#pragma once

#include <math.h>

#include "convert/program.h"

#define TEXT_ROOM 64
#define NAME_ROOM (TEXT_ROOM + 32)

/* Results of a program that ends at a router (model/bundle.h). */
#define EXPERT_IN    "expert_in"
#define EXPERT_GATES "expert_gates"

/* What layers of one kind read beside x; NULL: none of the program does. */
struct kind {
    struct mil_value *cos, *sin, *mask;
};

/* One function under construction. */
struct ctx {
    const struct emit *m;
    struct mil_program *p;
    struct mil_function *f;
    int64_t t;      /* rows, or MIL_UNKNOWN */
    uint32_t first; /* layer of the model that is the program's first */
    uint32_t layer; /* from 0 in the program, for names */
    bool joins; /* l is the layer before the program's first: only what comes
                   behind its experts is drawn */
    char name[NAME_ROOM];
    const struct layer *l;
    const struct layer_weights *w;
    struct kind kinds[LAYER_KINDS];
    struct mil_value *write_mask;    /* [1, 1, S, T] */
    struct mil_value *keep;          /* [1, 1, S, 1] */
    struct mil_value *x_embed, *ple; /* of per-layer embeddings; or NULL */
    /* By layer of the model, earlier programs' too: keys and values */
    struct mil_value *(*all)[2];  /* at all positions; NULL: not drawn */
    struct mil_value *(*news)[2]; /* that the program's own layers wrote */
    struct mil_value *(*tails)[2]; /* new positions of tails; NULL */
    struct mil_value *router;      /* what the next layer's router reads */
    /* Of a program that ends at a router: what experts read, and their gates. */
    struct mil_value *expert_in, *expert_gates;
};

/* The layer of the model that is drawn. */
static inline uint32_t ctx_layer(const struct ctx *c)
{
    return c->joins ? c->first - 1 : c->first + c->layer;
}

/* --- program_ops.c --- */

const char *draw_named(struct ctx *c, const char *what);
struct mil_value *draw_binary(struct ctx *c, const char *op, const char *what,
                              struct mil_value *x, struct mil_value *y);
struct mil_value *draw_unary(struct ctx *c, const char *op, const char *what,
                             struct mil_value *x);
struct mil_value *draw_f16(struct ctx *c, float v);
struct mil_value *draw_reduce(struct ctx *c, const char *op, const char *what,
                              struct mil_value *x, int32_t axis);
struct mil_value *draw_reshape(struct ctx *c, const char *what,
                               struct mil_value *x, int32_t a, int32_t b,
                               int32_t d);
struct mil_value *draw_swap(struct ctx *c, const char *what,
                            struct mil_value *x);
struct mil_value *draw_matmul(struct ctx *c, const char *what,
                              struct mil_value *x, struct mil_value *y,
                              bool transpose_y);
/* Elements [from, to) of an axis of x, all of the others; to 0: to the end, which
 * may vary. */
struct mil_value *draw_slice(struct ctx *c, const char *what,
                             struct mil_value *x, size_t axis, int32_t from,
                             int32_t to);
struct mil_value *draw_constant(struct ctx *c, const char *what,
                                const struct mil_const *k);
struct mil_value *draw_project(struct ctx *c, const char *what,
                               struct mil_value *x, enum arch_slot slot,
                               enum arch_slot bias);
struct mil_value *draw_times(struct ctx *c, const char *what,
                             struct mil_value *x, float by);
struct mil_value *draw_last(struct ctx *c, bool last, const char *op,
                            const char *what, struct mil_value *x,
                            struct mil_value *y);
struct mil_value *draw_norm(struct ctx *c, const char *what,
                            struct mil_value *x, int32_t axis, uint32_t d,
                            float alpha, const struct mil_const *weight);
struct mil_value *draw_input(struct ctx *c, const char *name, int rank,
                             const int64_t *dims);

/* --- program_attention.c --- */

/* h: what the block reads. */
struct mil_value *draw_attention(struct ctx *c, struct mil_value *h);

/* --- program_band.c --- */

/* What heads gather in a layer that sees to both sides: q [1, n_heads, T,
 * d_head], scaled; k, v [1, n_kv, T, d_head]; [1, n_heads * d_head, T, 1]. */
struct mil_value *draw_band(struct ctx *c, struct mil_value *q,
                            struct mil_value *k, struct mil_value *v);
/* The same without a window: every row sees all rows of the text. */
struct mil_value *draw_whole(struct ctx *c, struct mil_value *q,
                             struct mil_value *k, struct mil_value *v);

/* --- program_conv.c --- */

/* The same of a short convolution; [1, d_model, T, 1]. */
struct mil_value *draw_conv(struct ctx *c, struct mil_value *h);
/* x [1, channels, T, 1] at its own positions and the `len` before them, which
 * the input ..._STEM_tail has: [1, channels, len + T, 1]. x becomes an output,
 * and has to have the name ..._STEM_new. */
struct mil_value *draw_with_tail(struct ctx *c, const char *stem, uint32_t len,
                                 uint32_t channels, struct mil_value *x);
/* A convolution along T, a group each `channels / groups` channels; bias may be
 * NULL. */
struct mil_value *draw_taps(struct ctx *c, const char *what,
                            struct mil_value *x, struct mil_value *weight,
                            struct mil_value *bias, uint32_t groups);

/* --- program_cca.c --- */

/* Queries, keys (both before their norms) and values of MIXER_CCA; each
 * [1, heads * d_head, T, 1]. */
void draw_cca(struct ctx *c, struct mil_value *h, struct mil_value **q,
              struct mil_value **k, struct mil_value **v);

/* --- program_experts.c --- */

/* What the last layer's router had, for a later program. */
struct mil_value *draw_give_router(struct ctx *c);

/* What the experts of this layer give. x: the stream; h: what the block reads. */
struct mil_value *draw_experts(struct ctx *c, struct mil_value *x,
                               struct mil_value *h);
/* The same of a sparse layer, as far as its router: fills c->expert_in and
 * _gates. */
void draw_router(struct ctx *c, struct mil_value *x);
/* With a branch of experts: what they gave together with what the dense
 * feed-forward did. */
struct mil_value *draw_branches(struct ctx *c, struct mil_value *experts,
                                struct mil_value *dense);

/* --- program_layer.c --- */

/* What a block reads of the scaled stream: a value of the name `what`. */
struct mil_value *draw_enter(struct ctx *c, const char *what,
                             struct mil_value *x, enum arch_slot norm);

/* The layer's activation of g. */
struct mil_value *draw_activation(struct ctx *c, const char *what,
                                  struct mil_value *g);

/* What enters the first layer of an encoder with a norm of its embeddings: x is
 * those of tokens and positions. */
struct mil_value *draw_embedding(struct ctx *c, struct mil_value *x);

/* x after the layer; last: it is the program's, and so has the output's name. A
 * sparse layer ends before its experts. */
struct mil_value *draw_layer(struct ctx *c, bool last, struct mil_value *x);

/* x, before the experts of a sparse layer, after it; y: their sum. */
struct mil_value *draw_join(struct ctx *c, bool last, struct mil_value *x,
                            struct mil_value *y);
