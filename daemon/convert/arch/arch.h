/* arch.h - a decoder as data: what arch_read makes of a source file.
 *
 * A family is a row of the table in families.c: which tensors it has and what
 * its layers are like. arch_read (read.c) reads the numbers, fills one struct
 * layer a layer, and finds the tensors (tensors.c). What runs after it
 * (reference, emitter, planner) walks the layers and knows no family by name.
 */
#pragma once

#include "model/layer.h"
#include "proto/pooling.h"
#include "source/gguf.h"

/* Tensors of a model. Those from SLOT_LAYER on exist once per layer. */
enum arch_slot {
    SLOT_EMBD,
    SLOT_OUT_NORM,
    SLOT_OUTPUT,
    SLOT_OUT_BIAS, /* of an encoder's labels */
    SLOT_ROPE_FREQS,  /* divisors of the global kind's frequencies */
    SLOT_ROPE_SHORT,  /* the same, up to the original context */
    SLOT_ROPE_LONG,   /* and beyond it */
    SLOT_PLE_EMBD,    /* per-layer embeddings: (vocab, n_layers * d_ple) */
    SLOT_PLE_NORM_IN, /* of their part that the embedding makes */
    SLOT_POSITIONS,   /* what is added to the embedding at a position */
    SLOT_TYPES,       /* row 0: what is added at all of them */
    SLOT_EMBD_NORM,   /* of the sum */
    SLOT_EMBD_NORM_BIAS,
    SLOT_LAYER,
    SLOT_ATTN_NORM = SLOT_LAYER,
    SLOT_Q,
    SLOT_K,
    SLOT_V,
    SLOT_O,
    SLOT_Q_BIAS,
    SLOT_K_BIAS,
    SLOT_V_BIAS,
    SLOT_O_BIAS,
    SLOT_Q_NORM,
    SLOT_K_NORM,
    SLOT_SINKS,   /* a score a head */
    SLOT_CONV_IN, /* MIXER_CONV: rows [b; c; x] */
    SLOT_CONV,    /* taps of each channel, the oldest first: (d_model, taps) */
    SLOT_CONV_OUT,
    SLOT_V_BEFORE, /* MIXER_CCA: values that the next position reads */
    SLOT_MIX,      /* (heads * d_head, d_head * taps): input, then tap */
    SLOT_MIX_BIAS, /* rows: of the depthwise convolution, of this one */
    SLOT_K_SCALE,  /* a factor a key head */
    SLOT_JOIN_ATTN, /* affine_join: rows a, b, c, d */
    SLOT_JOIN_FFN,
    SLOT_POST_ATTN,
    SLOT_POST_ATTN_BIAS, /* sum_norm */
    SLOT_FFN_NORM,
    SLOT_GATE,
    SLOT_UP,
    SLOT_DOWN,
    SLOT_GATE_BIAS,
    SLOT_UP_BIAS,
    SLOT_DOWN_BIAS,
    SLOT_POST_FFN,
    SLOT_POST_FFN_BIAS,
    SLOT_ROUTER,       /* (n_experts, d_model) */
    SLOT_ROUTER_SCALE, /* of what it reads, with expert_branch */
    SLOT_ROUTER_BIAS,  /* of the scores, where experts are chosen */
    SLOT_ROUTER_DOWN,  /* ROUTER_NETWORK: (d_router, d_model) */
    SLOT_ROUTER_1,     /* (d_router, d_router) */
    SLOT_ROUTER_2,
    SLOT_ROUTER_VECTORS, /* rows: bias of `down`, scale of the layer before,
                            norm, biases of 1 and 2 */
    SLOT_ROUTER_ADD,   /* joins the scores themselves */
    SLOT_EXPERT_GATE,  /* experts one after the other: n_experts * d_expert */
    SLOT_EXPERT_UP,
    SLOT_EXPERT_DOWN,  /* n_experts * d_model rows */
    SLOT_EXPERT_GATE_BIAS, /* (n_experts, d_expert) */
    SLOT_EXPERT_UP_BIAS,
    SLOT_EXPERT_DOWN_BIAS, /* (n_experts, d_model) */
    SLOT_EXPERT_SCALE, /* a factor an expert */
    SLOT_EXPERT_NORM,  /* what they read, with expert_branch */
    SLOT_POST_DENSE,   /* norms of the two branches */
    SLOT_POST_EXPERTS,
    SLOT_PLE_PROJ, /* a layer's rows of one tensor for all */
    SLOT_PLE_GATE,
    SLOT_PLE_OUT,
    SLOT_PLE_NORM,
    SLOT_OUT_SCALE,
    SLOT_COUNT,
};
#define SLOT_GLOBALS ((size_t)SLOT_LAYER)
#define SLOT_LAYERED ((size_t)SLOT_COUNT - SLOT_GLOBALS)
_Static_assert(SLOT_COUNT - SLOT_LAYER <= 64 && SLOT_LAYER <= 32,
               "a bit each");
/* Those of layers; 0 of the others, which have SLOT_GLOBAL_BIT. */
#define SLOT_BIT(slot)                                          \
    ((slot) < SLOT_LAYER ? UINT64_C(0)                          \
                         : UINT64_C(1) << (((unsigned)(slot) -  \
                                            SLOT_LAYER) & 63u))
#define SLOT_GLOBAL_BIT(slot) (UINT32_C(1) << (slot))

/* A matrix or vector of the decoder: some rows of a tensor of the source, or
 * some elements of a vector. t NULL: the model has none. */
struct part {
    const struct gguf_tensor *t; /* borrowed from the source */
    uint64_t first;              /* row; of a vector: element */
    uint64_t rows, cols;         /* a vector has one row */
    uint64_t run, step; /* rows come in runs of `run`, which begin `step` rows
                           apart in the tensor; run 0: they follow one another */
};

struct reading;

/* A tensor's name where a family has another than most. */
struct arch_name {
    enum arch_slot slot;
    const char *name;
};

/* A family. What stands here holds for all its layers; `fill` changes what
 * differs. */
struct arch_row {
    const char *name;   /* general.architecture */
    uint64_t need, may; /* of layers: bits SLOT_BIT(enum arch_slot) */
    uint32_t need_all, may_all; /* of the model: bits SLOT_GLOBAL_BIT */
    bool experts; /* the keys of arch_expert_keys are understood */
    const char *const *keys; /* understood beside the common ones; NULL ends */
    enum layer_act act;
    const struct arch_name *names; /* NULL: the usual ones; else a name NULL
                                      ends them */
    bool encoder; /* reads a text: gives each token's labels, or what is pooled
                     into a vector */
    bool some_heads;    /* head_count_kv may be 0: a layer without attention */
    bool pairs;         /* rotary pairs (2i, 2i+1): q and k rows are permuted */
    bool no_pre_norm;
    bool qk_norm_last;  /* after the rotation */
    bool qk_norm_full;  /* over all heads together */
    bool fused_up;      /* rows of the tensor of `up` are [gate; up] */
    bool embed_sqrt;    /* embeddings times sqrt(d_model) */
    uint32_t local_every; /* n: layer l is global when (l + 1) % n == 0; 0: all
                             layers are global */
    float local_base;   /* rotary base of local layers */
    uint32_t wide_layers; /* with that many layers, scores are scaled by
                             1/sqrt(d_model / n_heads), not by d_head's */
    int (*fill)(struct reading *r, struct err *e); /* or NULL */
};

/* Angles and sight of one kind of layer. */
struct arch_kind {
    bool used;
    uint32_t rope_dim; /* rotated elements of a head, the first ones */
    float base;
    float scale;        /* position = pos * scale */
    float magnitude;    /* of cosine and sine */
    uint32_t n_factors; /* 0 or rope_dim / 2 */
    float *factors;     /* owned; frequency i is divided by factors[i] */
    float *long_factors; /* owned; in place of them when a sequence is longer
                            than `original`; NULL: there is one list */
    uint32_t original;
    uint32_t window; /* keys a query sees, itself included; 0 = all. Of an
                        encoder: keys on each side */
};

struct decoder {
    const struct gguf *source; /* borrowed */
    const struct arch_row *arch;
    uint32_t n_layers, d_model, vocab;
    uint32_t context_train;
    float norm_eps;
    float embed_scale;
    float logit_scale; /* of the logits */
    float logit_cap;   /* cap * tanh(logits / cap); 0: none */
    enum pooling pooling; /* of hidden states; POOL_NONE: it says none */
    uint32_t text_max;    /* of an encoder: tokens of the texts that it was made
                             for, where the source says fewer than its context */
    uint32_t d_ple;    /* 0: none */
    bool encoder;      /* the family's */
    uint32_t n_labels; /* of an encoder that labels; 0: it gives embeddings, or
                          is a decoder */
    uint32_t n_types;  /* rows of SLOT_TYPES; 0: none */
    struct arch_kind kinds[LAYER_KINDS];
    struct layer *layers; /* owned, n_layers */
    struct part global[SLOT_GLOBALS];
    struct part (*parts)[SLOT_LAYERED]; /* owned, n_layers */
};

/* g is borrowed and must outlive ret. Errors: ARCH (unknown family, by name),
 * CONVERT (numbers that do not fit, tensors of a wrong shape or of no use),
 * UNSUPPORTED (keys that are not understood), GGUF_MISSING, GGUF_VALUE. */
CHECKED int arch_read(const struct gguf *g, struct decoder *ret, struct err *e);
void arch_fini(struct decoder *d); /* zeroed is fine */

/* The families' names in the table's order, joined by ", ". out holds `size`
 * bytes, at least one; what passes them is cut. An error's text has room for
 * them beside what else it says. */
#define ARCH_NAMES_MAX (ERR_MSG_MAX / 2)
void arch_names(char *out, size_t size);

/* t is NULL when the model has none. */
static inline const struct part *
arch_part(const struct decoder *d, uint32_t layer, enum arch_slot slot)
{
    return slot < SLOT_LAYER ? &d->global[slot]
                             : &d->parts[layer][slot - SLOT_LAYER];
}
static inline bool arch_has(const struct decoder *d, uint32_t layer,
                            enum arch_slot slot)
{
    return arch_part(d, layer, slot)->t != NULL;
}

/* One of the biases of experts: (n_experts, width). */
static inline bool arch_is_expert_bias(enum arch_slot slot)
{
    return slot == SLOT_EXPERT_GATE_BIAS || slot == SLOT_EXPERT_UP_BIAS ||
           slot == SLOT_EXPERT_DOWN_BIAS;
}

/* One of a layer's matrices, whose products are stored in a form of quant.h; NULL
 * for vectors, for taps, tables of vectors and the biases of experts, and where
 * the layer has none. */
static inline const struct part *
arch_matrix(const struct decoder *d, uint32_t layer, enum arch_slot slot)
{
    const struct part *p = arch_part(d, layer, slot);
    static const uint64_t tables =
        SLOT_BIT(SLOT_CONV) | SLOT_BIT(SLOT_MIX) | SLOT_BIT(SLOT_MIX_BIAS) |
        SLOT_BIT(SLOT_JOIN_ATTN) | SLOT_BIT(SLOT_JOIN_FFN) |
        SLOT_BIT(SLOT_ROUTER_VECTORS);
    bool vectors = (tables & SLOT_BIT(slot)) != 0 || arch_is_expert_bias(slot);
    return p->t != NULL && p->rows > 1 && !vectors ? p : NULL;
}

/* Whether it gives embeddings alone: the last layer's stream is its result, and
 * there is no head. */
static inline bool arch_embeds(const struct decoder *d)
{
    return d->encoder && d->n_labels == 0;
}
/* The output projection: its own tensor, or the embedding when tied. Not of a
 * model that embeds. */
const struct part *arch_head(const struct decoder *d);
/* Numbers of a token that the model gives: its head's rows (the vocabulary, or an
 * encoder's labels), or those of the stream where there is none. */
uint32_t arch_outputs(const struct decoder *d);
/* Rows of heads: 0 where there are none. */
static inline uint32_t arch_head_rows(const struct decoder *d)
{
    return arch_embeds(d) ? 0 : arch_outputs(d);
}
/* The name of label i, in the source. */
struct span arch_label(const struct decoder *d, uint32_t i);

/* Is it a matrix of all experts of a layer? */
bool arch_is_experts(enum arch_slot slot);
/* Rows of a matrix that one constant of a package may hold; the last constant
 * of experts may have fewer. */
uint64_t arch_rows_most(const struct decoder *d, uint32_t layer,
                        enum arch_slot slot);

/* Rows [first, first + n) of a matrix as floats: (n, cols). Errors: those of
 * gguf_rows. */
CHECKED int arch_rows_of(const struct part *p, uint64_t first, uint64_t n,
                         float *out, struct err *e);
/* Is row `at` of the tensor one of the matrix's, and which? */
bool arch_has_row(const struct part *p, uint64_t at, uint64_t *ret);
/* The rows of expert `index` of an expert slot: without runs. */
struct part arch_expert(const struct decoder *d, uint32_t layer,
                        enum arch_slot slot, uint32_t index);

/* The elements of a vector as floats. Errors: those of gguf_rows, NOMEM. */
CHECKED int arch_vector(const struct part *p, float *out, struct err *e);

/* A row of one of a layer's tables of vectors, as a vector. */
static inline struct part arch_table_row(const struct decoder *d,
                                         uint32_t layer, enum arch_slot slot,
                                         uint32_t row)
{
    struct part p = *arch_part(d, layer, slot);
    p.first += row;
    p.rows = 1;
    return p;
}
/* Scores that a layer's router gives. */
static inline uint32_t arch_classes(const struct layer *y)
{
    return y->n_experts + (y->router == ROUTER_NETWORK ? 1 : 0);
}

/* How rows of each head stand in the source: pairs (2i, 2i+1) of the first
 * rope_dim become (i, i + rope_dim / 2). */
struct head_rows {
    uint32_t d_head, rope_dim;
};
/* Row of a head in the source that becomes row i of the head as emitted. */
uint32_t head_row(const struct head_rows *h, uint32_t i);
/* Of a layer's queries and keys; false: they stay as they are. */
bool arch_permutes(const struct decoder *d, uint32_t layer,
                   struct head_rows *ret);

/* Rows of one of a layer's matrices (outputs) and its columns (inputs). */
void arch_shape(const struct decoder *d, uint32_t layer, enum arch_slot slot,
                uint64_t *rows, uint64_t *cols);

/* The first layer with attention; there is one. */
const struct layer *arch_attention(const struct decoder *d);
/* Bytes of keys and values that a layer keeps of each position; 0: it has none
 * of its own. */
uint64_t arch_position_bytes(const struct decoder *d, uint32_t layer);

/* Elements of a layer's matrices. */
uint64_t arch_layer_weights(const struct decoder *d, uint32_t layer);

/* --- of the files of arch/ --- */

/* A family's keys while they are read: "llama." + tail. */
struct reading {
    const struct gguf *g;
    struct decoder *d;
    char text[GGUF_KEY_MAX]; /* the last key's name */
};

const char *arch_key(struct reading *r, const char *tail);
bool arch_has_key(struct reading *r, const char *tail);
/* A count in [lo, hi]. Absent: *ret stays when it is set, else an error. */
CHECKED int arch_u32(struct reading *r, const char *tail, uint32_t lo,
                     uint32_t hi, uint32_t *ret, struct err *e);
CHECKED int arch_f32(struct reading *r, const char *tail, float lo, float hi,
                     float *ret, struct err *e);
/* One for all layers, or one a layer: out has n_layers. Absent: as it is. */
CHECKED int arch_u32s(struct reading *r, const char *tail, uint32_t lo,
                      uint32_t hi, uint32_t *out, struct err *e);
CHECKED int arch_bools(struct reading *r, const char *tail, bool *out,
                       struct err *e);

/* rope.c: the global kind's rotation, before the families' `fill`; and its
 * divisors, when the tensors are found. Errors: as arch_read. */
CHECKED int arch_read_rope(struct reading *r, struct err *e);
CHECKED int arch_read_factors(struct decoder *d, struct err *e);

/* experts.c: the numbers of experts, for a family's `fill`: n_experts, n_top and
 * d_expert of layers [first, n_layers) from arch_expert_keys, and no experts
 * where the model has none. branch: as struct layer's; else these layers have no
 * dense feed-forward. Errors: as arch_read. */
CHECKED int arch_read_experts(struct reading *r, uint32_t first,
                              enum layer_router router, bool branch,
                              struct err *e);
/* The check of a layer's numbers, whoever filled them. Errors: UNSUPPORTED. */
CHECKED int arch_check_experts(const struct decoder *d, uint32_t l,
                               struct err *e);
/* Bits of the slots that a layer's router and experts need, and of those that
 * must not be there. */
uint64_t arch_experts_need(const struct layer *y);
uint64_t arch_experts_unused(const struct layer *y);
extern const char *const arch_expert_keys[]; /* NULL ends */

/* encoders.c: `fill` of encoders that give embeddings. Errors: as arch_read. */
CHECKED int arch_fill_bert(struct reading *r, struct err *e);
CHECKED int arch_fill_nomic(struct reading *r, struct err *e);

extern const struct arch_row *const arch_rows; /* families.c */
extern const size_t arch_n_rows;

/* keys.c. Check that every key "FAMILY.*" of g is read, does not affect the
 * arithmetic, or has its neutral value. Errors: UNSUPPORTED, which names the
 * key. */
CHECKED int arch_check_keys(const struct gguf *g,
                            const struct arch_row *family, struct err *e);

/* tensors.c. Errors: as arch_read. */
CHECKED int arch_find_vocab(const struct gguf *g, struct decoder *d,
                            struct err *e);
CHECKED int arch_find_tensors(const struct gguf *g, struct decoder *d,
                              struct err *e);
