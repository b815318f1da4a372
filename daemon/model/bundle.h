/* bundle.h - a model on disk: the manifest bundle.json and the files it names.
 * It is published by rename and never changed in place.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"
#include "model/layer.h"
#include "proto/limits.h"
#include "proto/pooling.h"

#define BUNDLE_FORMAT 2 /* aned reads 1 too: there layers differ in kind only */

struct bundle_file {
    const char *path; /* relative to the bundle, '/' separated, no ".." */
    uint64_t bytes;
    char sha256[SHA256_HEX];
};

/* What goes from one program to another beside the stream: the rows of a
 * prediction [1, heads, T, dim] (layer_port_heads and _dim); keys and values are
 * kept by the program that takes them in a state of its own. An output of the
 * one, an input of the other. */
struct bundle_port {
    const char *name;
    uint32_t layer; /* whose rows they are */
    enum layer_port role;
};

/* "keys", "values", "router". */
const char *bundle_port_role(enum layer_port role);

struct bundle_shard {
    const char *path;      /* "layers_00_08.mlpackage" */
    uint32_t first, last;  /* layers [first, last) */
    uint32_t t_min, t_max; /* rows of one prediction */
    size_t n_functions;
    const char **functions; /* names; one "main" when ranged */
    uint32_t
        *function_t; /* T of each function when shape = functions, else 0 */
    uint64_t weight_bytes;
    size_t n_gives, n_takes; /* 0 where no later, or earlier, program shares
                                keys or a router with it */
    struct bundle_port *gives, *takes; /* exactly what its layers and those of
                                          others need */
};

/* A function of one expert: rows x [1, d_model, T, 1] to y of the same shape, before
 * its gate. */
struct bundle_expert {
    const char *function;
    uint32_t expert; /* of the layer */
    uint32_t t;      /* its rows when shape = functions, else 0 */
};

/* A package that has some experts of a sparse layer (layer.h). */
struct bundle_group {
    const char *path; /* "experts_02_00.mlpackage" */
    uint32_t layer;
    size_t n_experts;
    struct bundle_expert *experts; /* by expert, then by T */
    uint64_t weight_bytes;
};

struct bundle_head {
    const char *path;                 /* "head_0.mlpackage" */
    uint32_t vocab_first, vocab_last; /* [first, last) */
    uint32_t t_min, t_max;
    uint64_t weight_bytes;
    size_t n_functions;     /* 0: the default one, of any T in the range */
    const char **functions; /* as of a shard */
    uint32_t *function_t;
};

/* Rotary tables of one kind of layer. */
struct bundle_rope {
    bool present;
    uint32_t dim; /* rotated elements of a head; tables have dim / 2 columns */
    float base;
    float scale; /* position = pos * scale (linear scaling factor inverted) */
    uint32_t window;      /* keys a query sees, itself included; 0 = all. Of
                             an encoder: keys on each side */
    float magnitude;      /* of cosine and sine; 1 unless a scaling says so */
    uint32_t n_factors;   /* 0, or dim/2: a divisor for each frequency */
    const float *factors; /* inverse frequency is divided by it */
    const float *long_factors; /* NULL, or n_factors: in place of them for a
                                  sequence longer than `original` */
    uint32_t original;         /* see bundle_short_max */
};

struct bundle_peak {  /* measured in fp32 on the calibration text */
    const char *name; /* "layers.3.residual", "layers.3.scores", ... */
    double peak;      /* max |value|, unscaled */
};

struct bundle_form {
    const char *tensor; /* a matrix of the source */
    const char *quant;  /* how it is stored: "lut6" */
};

/* What the forms were chosen for. */
struct bundle_target {
    bool present;
    uint64_t bytes;     /* of the programs' weights at most; 0: KL was asked */
    double kl;          /* nats at most; 0: bytes were asked */
    double measured_kl; /* in fp32, before error feedback */
    double expected_kl; /* the same, or what feedback was to make of it */
    double reached_kl;  /* of the weights as stored, in fp32, same text */
    uint32_t positions; /* of that measurement */
};

/* Text that the quantised matrices were chosen for. It is no part of the
 * fingerprint: the files are. */
enum bundle_calibration_from {
    BUNDLE_CALIBRATION_OFF,
    BUNDLE_CALIBRATION_OWN, /* written by the model */
    BUNDLE_CALIBRATION_TEXT
};
struct bundle_calibration {
    enum bundle_calibration_from from;
    uint32_t sequences, tokens; /* tokens: of each */
    uint64_t seed;
    char sha256[SHA256_HEX]; /* of the text */
};

struct bundle {
    struct arena arena;
    char dir[1024];
    int format;
    const char *name;
    const char *architecture; /* "llama", "qwen2", "gemma3" */
    uint32_t n_layers, d_model, vocab;
    uint32_t n_heads, n_kv_heads, d_head, d_ff; /* of the first that has */
    uint32_t context;       /* S: compiled positions */
    uint32_t context_train; /* the source's own */
    float norm_eps;
    const char *quant;       /* "int8", "fp16", ...; "mixed": see forms */
    const char *shape;       /* "ranged" | "functions" */
    const char *kv;          /* "state" | "host" */
    bool argmax;             /* heads give each row's likeliest token, and no
                                logits: "output" is "argmax" */
    const char *norm;        /* "scale" | "max" */
    float embed_scale;       /* of the model: sqrt(d_model) for gemma, else 1 */
    float residual_scale;    /* alpha, a power of two */
    double margin;           /* 65504 / (alpha * largest residual peak) */
    bool eps_omitted;        /* epsilon * alpha^2 vanished in fp16 */
    struct bundle_rope rope; /* global layers, or the only kind */
    struct bundle_rope rope_local; /* present only when layers differ */
    const struct layer *layers;    /* n_layers */
    float logit_scale, logit_cap;  /* layer.h's terms; the head does both */
    bool encoder;        /* "kind": it reads a text and writes none */
    uint32_t n_labels;   /* of an encoder that gives each token's logits of
                            labels; 0: it gives what is pooled, or is a decoder */
    const char **labels; /* n_labels names: "O", "B-secret" */
    enum pooling pooling; /* of the source's metadata; POOL_NONE: it says none */
    uint32_t d_ple;                /* width of per-layer embeddings; 0: none */
    const char *ple_file; /* fp16 (vocab, n_layers * d_ple), to be multiplied by
                             sqrt(d_ple / 2); or NULL */
    const char *position_file; /* fp16 (context_train, d_model), of an encoder:
                                  added to the embeddings; or NULL */
    size_t n_shards;
    struct bundle_shard *shards;
    size_t n_groups; /* 0: no layer is sparse */
    struct bundle_group *groups; /* by layer; each of its experts once a T */
    size_t n_heads_shards;
    struct bundle_head *heads; /* vocabulary slices in order, no gaps */
    size_t n_files;
    struct bundle_file *files;
    /* Hashed while they were written: bundle_write does not read them again.
     * Borrowed; paths as in `files`. */
    size_t n_known;
    const struct bundle_file *known;
    const char *embed_file;     /* "embed.bin": fp16 (vocab, d_model) */
    const char *tokenizer_file; /* "tokenizer.gguf" */
    const char *source_name;
    uint64_t source_bytes;
    char source_sha256[SHA256_HEX];
    struct bundle_calibration calibration; /* absent in old bundles: off */
    const char *converter_version;
    size_t n_peaks;
    struct bundle_peak *peaks;
    size_t n_forms; /* 0: nothing but `quant` says them */
    struct bundle_form *forms;
    struct bundle_target target;
    char fingerprint[SHA256_HEX]; /* architecture numbers + file hashes */
    uint64_t total_bytes;         /* of all files */
};

/* Read and check dir/bundle.json: numbers in range, every named file present
 * with the recorded size (hashes are checked by bundle_verify).
 * Errors: NOT_FOUND, BUNDLE. */
CHECKED int bundle_open(const char *dir, struct bundle **ret, struct err *e);
void bundle_close(struct bundle *b); /* NULL is fine */

/* What a model is for. One that embeds has no head: its result is what the last
 * layer gives. (Decoders give embeddings too.) */
enum bundle_kind { BUNDLE_DECODER, BUNDLE_TAGGER, BUNDLE_EMBEDDER };
static inline enum bundle_kind bundle_kind(const struct bundle *b)
{
    return !b->encoder       ? BUNDLE_DECODER
           : b->n_labels > 0 ? BUNDLE_TAGGER
                             : BUNDLE_EMBEDDER;
}
/* Programs of layers are cut at experts that the engine runs. The shard adds what
 * those of the layer before it gave (input `experts`); the last one may have no
 * layer of its own. */
static inline bool bundle_joins(const struct bundle *b,
                                const struct bundle_shard *s)
{
    return s->first > 0 && b->layers[s->first - 1].sparse;
}
/* It ends at the router of its last layer: `hidden` is the stream before the
 * experts, `expert_in` what they read, `expert_gates` what they are multiplied
 * by, 0 for all that were not chosen. */
static inline bool bundle_routes(const struct bundle *b,
                                 const struct bundle_shard *s)
{
    return s->first < s->last && b->layers[s->last - 1].sparse;
}
/* "dense" or "sparse"; NULL: the model has no experts. */
const char *bundle_experts(const struct bundle *b);
/* Packages of programs in order: shards, then groups, then heads. */
size_t bundle_n_packages(const struct bundle *b);
const char *bundle_package(const struct bundle *b, size_t i);

/* Rows of the heads: the vocabulary, an encoder's labels, or none. */
static inline uint32_t bundle_head_rows(const struct bundle *b)
{
    return !b->encoder ? b->vocab : b->n_labels;
}
/* Numbers of a token that it gives: those rows, or the stream's. */
static inline uint32_t bundle_outputs(const struct bundle *b)
{
    return bundle_kind(b) == BUNDLE_EMBEDDER ? b->d_model : bundle_head_rows(b);
}
/* How a text's hidden states become its embedding, where the model does not say:
 * a decoder's last token has seen all of the text, an encoder's tokens all have. */
static inline enum pooling bundle_pooling(const struct bundle *b)
{
    return b->pooling != POOL_NONE ? b->pooling
           : b->encoder            ? POOL_MEAN
                                   : POOL_LAST;
}
/* Errors: UNSUPPORTED, saying what the model is and what is not done with it. */
CHECKED int bundle_want_kind(const struct bundle *b, enum bundle_kind kind,
                             struct err *e);
/* Whether the probe can measure it (engine/probe/). Errors: UNSUPPORTED. */
CHECKED int bundle_want_probe(const struct bundle *b, struct err *e);

/* The longest sequence, in tokens, that turns by `factors`. All positions of a
 * longer one turn by `long_factors`, so nothing that was computed of one serves
 * the other. The context where there is one list only, or no need of two. */
uint32_t bundle_short_max(const struct bundle *b);

/* Write dir/bundle.json from b. Fills files' size and sha256 by reading them
 * (of those in b->known only the size is looked at), and the fingerprint. */
CHECKED int bundle_write(const char *dir, struct bundle *b, struct err *e);

/* Hash every file again. fn (NULL is fine) is called after every piece with the
 * number of bytes hashed so far, of total_bytes; when it returns false, hashing
 * stops. Errors: BUNDLE or IO naming the file, CANCELLED. */
typedef bool bundle_hashed_fn(void *ctx, uint64_t bytes);
CHECKED int bundle_verify(const struct bundle *b, bundle_hashed_fn *fn,
                          void *ctx, struct err *e);

/* Let files of the bundle at `to` that are byte for byte files of the one at
 * `from` share their room on the disk: as clones where the file system can
 * (copy on write), else as further names of the same file. What cannot be
 * shared stays a copy. *ret_bytes: what is shared now. Both are published, and
 * stay whole if the other is removed. Errors: those of bundle_open. */
CHECKED int bundle_share(const char *from, const char *to, uint64_t *ret_bytes,
                         struct err *e);

/* A hash of all files' inodes, sizes and times (to the nanosecond). While it
 * stays the same, no file was written. Errors: BUNDLE. */
CHECKED int bundle_stamp(const struct bundle *b, char out[SHA256_HEX],
                         struct err *e);
