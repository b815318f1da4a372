/* hf.h - a model in the form of the transformers library: config.json,
 * *.safetensors, tokenizer.json or tokenizer.model, as metadata and tensors
 * under GGUF's names.
 *
 * The names and numbers are those of llama.cpp's converter, so what comes after
 * knows no difference. Where its files say less than config.json does, nothing
 * is lost silently: a key that would change the arithmetic and has no place is
 * an error that names it.
 *
 * Of an encoder, also what the sentence-transformers library writes beside it.
 *
 *   folder.c     which files, in which order; the whole
 *   config.c     numbers that all families have; keys.c: which keys are known
 *   rope.c       rotation   families.c, families_gemma.c, zaya.c, zaya_first.c,
 *                experts.c, encoders.c   the table, and what a family adds (fill.h)
 *   sentence.c   modules.json and what it names
 *   tensors.c    names and rows   scales.c  factors beside F8
 *   tokenizer.c  tokenizer.json   pre.c  how it cuts text   spm.c  tokenizer.model
 *   unigram.c    tokenizer.json of kind Unigram   wordpiece.c  of kind
 *                WordPiece, and vocab.txt
 *   special.c    special tokens, chat template
 */
#pragma once

#include "proto/json.h"
#include "source/made.h"
#include "source/safetensors.h"
#include "source/source.h"

/* The form's row of the table in source.c. */
bool hf_wants(const char *name); /* a file of such a folder that is read */
bool hf_marks(const char *name); /* a file that makes the folder such a one */
#define HF_POOLING_DIR "1_Pooling"
#define HF_POOLING     HF_POOLING_DIR "/config.json"
extern const char *const hf_below[]; /* in folders of it */
/* Errors: as source_open_files. */
CHECKED int hf_open(const struct source_files *f, struct gguf **ret,
                    struct err *e);

/* --- of the files of hf/ --- */

struct hf;

/* Where a tensor stands: "model.layers.12.x" is x of layer 12. */
struct hf_place {
    const char *tail;
    bool layered;
    uint32_t layer;
};

/* A family: one model_type. */
struct hf_family {
    const char *model_type;
    const char *head; /* the class that architectures must name */
    const char *arch; /* general.architecture */
    const char *like; /* an arch whose names of tensors it has too, or NULL */
    const char *const *keys; /* read by `fill`; NULL ends the list */
    const char *const *acts; /* activations; NULL ends */
    bool pairs;      /* GGUF has rotated rows of q and k as pairs (2i, 2i+1) */
    bool plus_one;   /* norms multiply by 1 + weight */
    bool sandwich;   /* post_attention_layernorm is a norm of attn's output */
    bool full_rope;  /* rope.dimension_count and vocab_size are written */
    bool yarn_exact; /* a yarn rotation may say truncate false */
    bool own_sizes;  /* `fill` writes heads of keys and feed-forward */
    bool encodes;    /* it gives embeddings, and `fill` writes the epsilon */
    const char *eps; /* the key of the norms' epsilon; NULL: rms_norm_eps */
    const char *const *bodies; /* other classes that may be named: what they
                                  have on top is passed over; NULL ends */
    const char *const (*other)[2]; /* a key, and what another form of config.json
                                      calls it; NULL ends */
    int (*fill)(struct hf *h, struct err *e);
    /* A config of an older form becomes one of this: h->root is replaced. */
    int (*renew)(struct hf *h, struct err *e);
    /* Before the numbers are read. Any of these may be NULL. */
    int (*check)(const struct hf *h, struct err *e);
    /* Where a tensor of an older form of the files stands in this one. */
    int (*rename)(const struct hf *h, const char *name, struct hf_place *at,
                  struct err *e);
    /* A tensor that the family takes itself (*ret), and the end of all. */
    int (*take)(struct hf *h, const struct safetensors_tensor *t,
                const struct hf_place *at, bool *ret, struct err *e);
    int (*finish)(struct hf *h, struct err *e);
};

struct hf {
    const struct source_files *files;
    struct made *m;
    struct json *root;       /* config.json */
    const struct json *text; /* of it, the language model's part */
    const struct hf_family *family;
    uint32_t n_layers, d_model, n_heads, n_kv, d_head, context, vocab;
    bool tied; /* config.json says so */
    bool first_form; /* names of tensors are those of a family's older form */
    void *own; /* what the family keeps, of made_alloc */
    bool scaled;      /* F8 weights have factors beside them */
    int64_t block[2]; /* rows and columns that one is for; 0: all */
    enum { HF_NO_TOKENIZER, HF_TOKENIZER_JSON, HF_TOKENIZER_SPM } tokens;
    int64_t unk; /* of a Unigram or WordPiece vocabulary; else -1 */
    bool wordpiece;
    bool lowers;       /* sentence.c: text is lowered before anything else */
    uint32_t text_max; /* the same: tokens of a text; 0: it does not say */
    size_t n_weights;
    struct safetensors *weights[GGUF_PARTS_MAX];
    char text_key[GGUF_KEY_MAX]; /* the last key's name */
};

/* folder.c. A file of at most max bytes into b, which the caller frees; it is
 * held and watched from then on. false in *ret_there: there is none. */
CHECKED int hf_read(struct hf *h, const char *name, size_t max, struct buf *b,
                    bool *ret_there, struct err *e);
/* The same as JSON; *ret NULL: there is none. The caller frees it. Errors:
 * MODEL_CONFIG, with the file's name. */
CHECKED int hf_read_json(struct hf *h, const char *name, size_t max,
                         struct json **ret, struct err *e);

extern const struct hf_family *const hf_families; /* families.c */
extern const size_t hf_n_families;

/* config.c. Members of the config; absent or null: *ret stays, unless `need`.
 * Errors: MODEL_CONFIG. */
CHECKED int hf_u32(const struct json *j, const char *key, bool need,
                   uint32_t lo, uint32_t hi, uint32_t *ret, struct err *e);
CHECKED int hf_num(const struct json *j, const char *key, bool need, double lo,
                   double hi, double *ret, struct err *e);
CHECKED int hf_bool(const struct json *j, const char *key, bool *ret,
                    struct err *e);
CHECKED int hf_str(const struct json *j, const char *key, const char **ret,
                   struct err *e);
/* A member that is there and not null. */
const struct json *hf_get(const struct json *j, const char *key);
/* What this config.json calls a key (hf_family.other). */
const char *hf_known_as(const struct hf *h, const char *key);
/* "ARCH.tail" with a value. */
const char *hf_key(struct hf *h, const char *tail);
CHECKED int hf_put_u32(struct hf *h, const char *tail, uint32_t v,
                       struct err *e);
CHECKED int hf_put_f32(struct hf *h, const char *tail, double v,
                       struct err *e);
/* The family, and what all families have. */
CHECKED int hf_read_config(struct hf *h, struct err *e);

/* keys.c. Every key of the config is read, or says nothing about the
 * arithmetic. Errors: UNSUPPORTED, which names the key. */
CHECKED int hf_check_keys(const struct hf *h, struct err *e);

/* rope.c. The rotation of all layers, or, where parameters are by kind, of the
 * kind named. ret->theta: the default before, then what holds. */
struct hf_rope {
    const struct json *j; /* parameters; NULL: only theta */
    const char *type;     /* "default", "linear", ... */
    double theta;
    double partial; /* of a head's elements */
};
CHECKED int hf_rope_of(const struct hf *h, const char *kind,
                       struct hf_rope *ret, struct err *e);
/* Keys, and tensors of divisors. Errors: UNSUPPORTED (a type, by name). */
CHECKED int hf_put_rope(struct hf *h, const struct hf_rope *r, struct err *e);
/* A vector of floats in memory as a tensor. */
CHECKED int hf_put_vector(struct hf *h, const char *name, const float *v,
                          size_t n, struct err *e);

/* tensors.c. Every tensor of the files has a place, is of another part of the
 * model, or is an error. */
CHECKED int hf_put_tensors(struct hf *h, struct err *e);

/* One tensor under another name; flags are those of its table, or 0. Errors:
 * UNSUPPORTED (dtype), CONVERT (shape), those of made.h. */
CHECKED int hf_put_tensor(struct hf *h, const struct safetensors_tensor *t,
                          const char *to, unsigned flags, struct err *e);
/* Errors: UNSUPPORTED, which names the dtype. */
CHECKED int hf_check_type(const struct safetensors_tensor *t, struct err *e);
/* Elements [at, at + n) of a tensor of a known dtype. Inside gguf_guard. */
void hf_decode(enum safetensors_type type, const uint8_t *data, uint64_t at,
               uint64_t n, float *out);

/* scales.c. quantization_config. Errors: UNSUPPORTED, by name. */
CHECKED int hf_read_scales(struct hf *h, struct err *e);
/* Is this tensor the factors of another? */
bool hf_is_scale(const struct hf *h, const char *name);
/* Factors of a matrix, in blocks; data NULL: it has none. */
struct hf_scale {
    const uint8_t *data;
    uint32_t type, bytes; /* ggml's */
    uint64_t row_block, col_block, cols;
};
/* Errors: UNSUPPORTED (it should have some), CONVERT (their shape). */
CHECKED int hf_scale_of(const struct hf *h, const struct safetensors_tensor *t,
                        struct hf_scale *ret, struct err *e);
/* Row `row` of n numbers times its factors. Inside gguf_guard. */
void hf_scale_row(const struct hf_scale *s, uint64_t row, uint64_t n, float *y);

/* sentence.c: pooling_type; what tokenizers and max_seq_length need is kept.
 * Errors: UNSUPPORTED, which names the step or the key; MODEL_CONFIG. */
CHECKED int hf_put_sentence(struct hf *h, struct err *e);
/* max_seq_length, where it is less than the context. */
CHECKED int hf_put_text_max(struct hf *h, const struct json *tokenizer_config,
                            struct err *e);

/* tokenizer.c, spm.c: tokenizer.ggml.*. A model without a tokenizer has none of
 * these keys. Errors: TOKENIZER (what aned has not, by name), MODEL_CONFIG. */
CHECKED int hf_put_tokenizer(struct hf *h, struct err *e);

/* The vocabulary while it is put together, by id. */
struct hf_vocab {
    size_t n;
    struct span *text; /* owned list; the texts are borrowed */
    int32_t *type;     /* of tokenizer.ggml.token_type; 0: no token yet */
    float *score;
};
enum {
    HF_TOKEN_NORMAL = 1,
    HF_TOKEN_UNKNOWN,
    HF_TOKEN_CONTROL,
    HF_TOKEN_USER,
    HF_TOKEN_UNUSED,
    HF_TOKEN_BYTE
};
/* Room for n ids; none is a token yet. Errors: NOMEM, TOKENIZER (n). */
CHECKED int hf_vocab_init(struct hf_vocab *v, size_t n, struct err *e);
void hf_vocab_fini(struct hf_vocab *v);
/* Ids without a text get one, "[PAD5]"; then tokens, types, and where `scores`
 * those. */
CHECKED int hf_vocab_put(struct hf *h, struct hf_vocab *v, bool scores,
                         struct err *e);
/* The type of an added token. */
int32_t hf_added_type(const char *text, bool special);

/* pre.c. The name of tokenizer.ggml.pre for a byte-level tokenizer.json.
 * Errors: TOKENIZER, which names what is not known. */
CHECKED int hf_pre_of(const struct json *tokenizer, const char **ret,
                      struct err *e);
/* What a byte-fallback tokenizer.json does with spaces: replaces them by
 * U+2581, and with *ret_prefix puts one in front. */
CHECKED int hf_spaces_of(const struct json *tokenizer, bool *ret_prefix,
                         struct err *e);

/* unigram.c. `model` of a tokenizer.json into v, which has room for it, and
 * h->unk; then, with added tokens in v, all keys. Errors: TOKENIZER. */
CHECKED int hf_unigram_vocab(struct hf *h, const struct json *model,
                             struct hf_vocab *v, struct err *e);
CHECKED int hf_put_unigram(struct hf *h, const struct json *tokenizer,
                           struct hf_vocab *v, struct err *e);

/* wordpiece.c. Whether a tokenizer.json of that kind is as aned does it; then,
 * with the vocabulary in v, all keys and h->unk. Errors: TOKENIZER. */
CHECKED int hf_check_wordpiece(const struct json *tokenizer, struct err *e);
CHECKED int hf_put_wordpiece(struct hf *h, const struct json *tokenizer,
                             struct hf_vocab *v, struct err *e);
/* vocab.txt as a tokenizer.json, which the caller frees; *ret stays where there
 * is none. config: tokenizer_config.json or NULL. */
CHECKED int hf_read_vocab_txt(struct hf *h, const struct json *config,
                              struct json **ret, struct err *e);

/* spm.c. tokenizer.model in p[0..n). config: tokenizer_config.json or NULL. */
CHECKED int hf_put_spm(struct hf *h, const void *p, size_t n,
                       const struct json *config, struct err *e);

/* special.c. Ids of special tokens, whether they are added, and the template.
 * Any may be NULL. */
CHECKED int hf_put_special(struct hf *h, const struct json *tokenizer,
                           const struct json *config, struct err *e);
