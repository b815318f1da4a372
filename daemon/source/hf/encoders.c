/* encoders.c - bert and nomic_bert: encoders that give embeddings. The second is
 * read in both of its forms, that of its first release (n_embd, Wqkv, fc11) and
 * the library's own (hidden_size, q_proj, up_proj).
 *
 * Only the body is read. What pre-training put on top of it (a pooler, the head
 * for masked words) changes no hidden state and is passed over; a head that
 * judges texts is another class, and refused by it.
 */
#include <string.h>

#include "base/num.h"
#include "base/parse.h"
#include "source/hf/fill.h"

#define WHERE "config.json: "

const char *const hf_bert_keys[] = {
    "layer_norm_eps",          "position_embedding_type",
    "is_decoder",              "add_cross_attention",
    /* said by the tensors, of training, or of the pooler */
    "type_vocab_size",         "attention_probs_dropout_prob",
    "hidden_dropout_prob",     "gradient_checkpointing",
    "directionality",          "output_past",
    "pooler_fc_size",          "pooler_num_attention_heads",
    "pooler_num_fc_layers",    "pooler_size_per_head",
    "pooler_type",             NULL,
};

const char *const hf_bert_bodies[] = {"BertForMaskedLM", "BertForPreTraining",
                                      NULL};

const char *const hf_nomic_keys[] = {
    "layer_norm_eps", "layer_norm_epsilon", "n_embd", "n_head", "n_inner",
    "n_layer", "n_positions", "max_trained_positions", "activation_function",
    "causal", "prenorm", "parallel_block", "parallel_block_tied_norm",
    "use_rms_norm", "rotary_emb_base", "rotary_emb_fraction",
    "rotary_emb_interleaved", "rotary_emb_scale_base", "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx", "default_theta",
    /* said by the tensors, of training, or how Python computes it */
    "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "type_vocab_size",
    "attention_probs_dropout_prob", "hidden_dropout_prob", "attn_pdrop",
    "dense_seq_output", "fused_bias_fc", "fused_dropout_add_ln",
    "pad_vocab_size_multiple", "reorder_and_upcast_attn", "summary_activation",
    "summary_first_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "use_flash_attn", "use_xentropy", "last_layer_subset",
    /* of texts beyond the trained length, which are not read */
    "rotary_scaling_factor", NULL,
};

const char *const hf_nomic_bodies[] = {"NomicBertForMaskedLM",
                                       "NomicBertForPreTraining", NULL};

const char *const hf_nomic_other[][2] = {
    {"num_hidden_layers",       "n_layer"              },
    {"hidden_size",             "n_embd"               },
    {"num_attention_heads",     "n_head"               },
    {"intermediate_size",       "n_inner"              },
    {"max_position_embeddings", "max_trained_positions"},
    {"max_position_embeddings", "n_positions"          },
    {"layer_norm_eps",          "layer_norm_epsilon"   },
    {NULL,                      NULL                   },
};

/* --- config.json --- */

/* Members that pass with one value, or when they are absent. */
struct must_be {
    const char *key;
    const char *text; /* the string; NULL: a bool or a number */
    double number;    /* false is 0 */
};

static int check_members(const struct hf *h, const struct must_be *rows,
                         size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        const struct json *j = hf_get(h->root, rows[i].key);
        const char *text = json_str(j);
        double v = json_bool(j) ? 1 : json_num(j);
        bool same = rows[i].text != NULL
                        ? text != NULL && strcmp(text, rows[i].text) == 0
                        : text == NULL && v == rows[i].number;
        if (j != NULL && !same) {
            return err_set(e, ERR_UNSUPPORTED,
                           WHERE "%s %.64s: another value is not converted",
                           rows[i].key, text != NULL ? text : "of this model");
        }
    }
    return 0;
}

int hf_check_bert(const struct hf *h, struct err *e)
{
    static const struct must_be rows[] = {
        {"is_decoder",              NULL,       0},
        {"add_cross_attention",     NULL,       0},
        {"position_embedding_type", "absolute", 0},
    };
    return check_members(h, rows, countof(rows), e);
}

int hf_check_nomic(const struct hf *h, struct err *e)
{
    static const struct must_be rows[] = {
        {"activation_function",             "swiglu", 0},
        {"causal",                          NULL,     0},
        {"prenorm",                         NULL,     0},
        {"parallel_block",                  NULL,     0},
        {"parallel_block_tied_norm",        NULL,     0},
        {"use_rms_norm",                    NULL,     0},
        {"rotary_emb_fraction",             NULL,     1},
        {"rotary_emb_interleaved",          NULL,     0},
        {"rotary_emb_scale_base",           NULL,     0},
        {"scale_attn_weights",              NULL,     1},
        {"scale_attn_by_inverse_layer_idx", NULL,     0},
    };
    return check_members(h, rows, countof(rows), e);
}

int hf_fill_bert(struct hf *h, struct err *e)
{
    double eps = 1e-12; /* of both classes */
    RETERR(hf_num(h->text, hf_known_as(h, "layer_norm_eps"), false, 0, 0.1,
                  &eps, e));
    RETERR(hf_put_f32(h, "attention.layer_norm_epsilon", eps, e));
    return made_bool(h->m, hf_key(h, "attention.causal"), false, e);
}

int hf_fill_nomic(struct hf *h, struct err *e)
{
    double theta = 1000;
    RETERR(hf_num(h->text, "rotary_emb_base", false, 1, 1e12, &theta, e));
    RETERR(hf_put_plain_rope(h, theta, e));
    return hf_fill_bert(h, e);
}

/* --- tensors --- */

struct stem {
    const char *from, *to;
};

static const struct stem bert_first[] = {
    {"embeddings.word_embeddings",       "token_embd"     },
    {"embeddings.position_embeddings",   "position_embd"  },
    {"embeddings.token_type_embeddings", "token_types"    },
    {"embeddings.LayerNorm",             "token_embd_norm"},
};
static const struct stem bert_layer[] = {
    {"attention.self.query",       "attn_q"           },
    {"attention.self.key",         "attn_k"           },
    {"attention.self.value",       "attn_v"           },
    {"attention.output.dense",     "attn_output"      },
    {"attention.output.LayerNorm", "attn_output_norm" },
    {"intermediate.dense",         "ffn_up"           },
    {"output.dense",               "ffn_down"         },
    {"output.LayerNorm",           "layer_output_norm"},
};
static const struct stem nomic_first[] = {
    {"embeddings.word_embeddings",       "token_embd"     },
    {"embeddings.token_type_embeddings", "token_types"    },
    {"embeddings.LayerNorm",             "token_embd_norm"},
    {"emb_ln",                           "token_embd_norm"},
};
static const struct stem nomic_layer[] = {
    {"attn.Wqkv",                "attn_qkv"         },
    {"self_attn.q_proj",         "attn_q"           },
    {"self_attn.k_proj",         "attn_k"           },
    {"self_attn.v_proj",         "attn_v"           },
    {"attn.out_proj",            "attn_output"      },
    {"self_attn.o_proj",         "attn_output"      },
    {"norm1",                    "attn_output_norm" },
    {"post_attention_layernorm", "attn_output_norm" },
    {"mlp.fc11",                 "ffn_up"           },
    {"mlp.up_proj",              "ffn_up"           },
    {"mlp.fc12",                 "ffn_gate"         },
    {"mlp.gate_proj",            "ffn_gate"         },
    {"mlp.fc2",                  "ffn_down"         },
    {"mlp.down_proj",            "ffn_down"         },
    {"norm2",                    "layer_output_norm"},
    {"post_mlp_layernorm",       "layer_output_norm"},
};

/* A family's names. */
struct names {
    const char *body;      /* in front of all, where the file has a head too */
    const char *layers[2]; /* in front of a layer's number */
    const struct stem *first, *layer;
    size_t n_first, n_layer;
};

static const char *skip(const char *name, const char *prefix)
{
    size_t n = prefix != NULL ? strlen(prefix) : 0;
    return n > 0 && strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

static bool passed_over(const char *name)
{
    static const char *const parts[] = {"pooler.", "cls.predictions.",
                                        "cls.seq_relationship.",
                                        "embeddings.position_ids"};
    for (size_t i = 0; i < countof(parts); i++) {
        if (skip(name, parts[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* "LayerNorm.gamma" is what old files call its weight. */
static const char *kind_of(const char *dot)
{
    static const char *const kinds[][2] = {{".weight", "weight"},
                                           {".gamma", "weight"},
                                           {".bias", "bias"},
                                           {".beta", "bias"}};
    for (size_t i = 0; dot != NULL && i < countof(kinds); i++) {
        if (strcmp(dot, kinds[i][0]) == 0) {
            return kinds[i][1];
        }
    }
    return NULL;
}

static const char *stem_of(const struct stem *rows, size_t n, const char *p,
                           size_t len)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(rows[i].from) == len && memcmp(rows[i].from, p, len) == 0) {
            return rows[i].to;
        }
    }
    return NULL;
}

/* GGUF's name of a tensor; false: it has none. */
static bool name_of(const struct names *f, const char *name,
                    char to[GGUF_NAME_MAX + 1])
{
    const char *dot = strrchr(name, '.');
    const char *kind = kind_of(dot);
    const char *at = NULL;
    uint64_t layer = 0;
    for (size_t i = 0; i < countof(f->layers) && at == NULL; i++) {
        at = skip(name, f->layers[i]);
    }
    at = at != NULL ? parse_digits(at, MODEL_LAYERS_MAX - 1, &layer) : NULL;
    if (kind == NULL || (at != NULL && (*at != '.' || at >= dot))) {
        return false;
    }
    const char *stem =
        at != NULL ? stem_of(f->layer, f->n_layer, at + 1, (size_t)(dot - at - 1))
                   : stem_of(f->first, f->n_first, name, (size_t)(dot - name));
    if (stem != NULL && at != NULL) {
        (void)snprintf(to, GGUF_NAME_MAX + 1, "blk.%u.%s.%s", (unsigned)layer,
                       stem, kind);
    } else if (stem != NULL) {
        (void)snprintf(to, GGUF_NAME_MAX + 1, "%s.%s", stem, kind);
    }
    return stem != NULL;
}

static int take(struct hf *h, const struct safetensors_tensor *t,
                const struct names *f, bool *ret, struct err *e)
{
    char to[GGUF_NAME_MAX + 1];
    const char *inner = skip(t->name, f->body);
    const char *name = inner != NULL ? inner : t->name;
    *ret = true;
    if (passed_over(name)) {
        return 0;
    }
    *ret = name_of(f, name, to);
    return *ret ? hf_put_tensor(h, t, to, 0, e) : 0;
}

int hf_take_bert(struct hf *h, const struct safetensors_tensor *t,
                 const struct hf_place *at, bool *ret, struct err *e)
{
    static const struct names f = {"bert.",
                                   {"encoder.layer.", NULL},
                                   bert_first,
                                   bert_layer,
                                   countof(bert_first),
                                   countof(bert_layer)};
    (void)at; /* as layers of decoders are numbered */
    return take(h, t, &f, ret, e);
}

int hf_take_nomic(struct hf *h, const struct safetensors_tensor *t,
                  const struct hf_place *at, bool *ret, struct err *e)
{
    static const struct names f = {"nomic_bert.",
                                   {"encoder.layers.", "layers."},
                                   nomic_first,
                                   nomic_layer,
                                   countof(nomic_first),
                                   countof(nomic_layer)};
    (void)at;
    return take(h, t, &f, ret, e);
}
