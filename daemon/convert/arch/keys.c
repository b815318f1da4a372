/* keys.c - which keys under a family's own prefix are understood.
 *
 * A key that is not in the table may change the arithmetic, so it is refused
 * by its name. The rows are what exporters of these families write; where one
 * exists only to switch something on, its neutral value passes.
 */
#include <string.h>

#include "convert/arch/arch.h"

/* read.c reads these, and refuses a wrong kind or value. */
static const char *const read_keys[] = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_attn_factor",
    "rope.scale_linear",
};
/* The same, of families with local layers. */
static const char *const local_keys[] = {
    "attention.sliding_window_pattern",
    "rope.freq_base_swa",
};

/* These say nothing about the arithmetic. */
static const char *const notes[] = {
    "vocab_size", /* the embedding's rows are the vocabulary */
    /* read where a scaling uses it */
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned", /* when the model was stretched */
    "pooling_type", /* how hidden states become one vector: read_pooling */
};

enum rule {
    KEY_VALUE, /* a number: `value`, or 0 for "off" */
    KEY_TRUE,
    KEY_FALSE,
    KEY_TEXT, /* the string `what` */
};

/* These pass with one value. */
static const struct neutral {
    const char *tail;
    enum rule rule;
    float value;
    const char *what; /* what another value would mean */
} neutrals[] = {
    {"tensor_data_layout",           KEY_TEXT,  0, "Meta AI original pth"        },
    {"attention.causal",             KEY_TRUE,  0, "attention to both sides"     },
    {"use_parallel_residual",        KEY_FALSE, 0, "a parallel residual"         },
    {"attn_logit_softcapping",       KEY_VALUE, 0, "soft-capped attention scores"},
    {"final_logit_softcapping",      KEY_VALUE, 0, "soft-capped logits"          },
    {"logit_scale",                  KEY_VALUE, 1, "scaled logits"               },
    {"residual_scale",               KEY_VALUE, 1, "a scaled residual stream"    },
    {"embedding_scale",              KEY_VALUE, 1, "scaled embeddings"           },
    {"attention.scale",              KEY_VALUE, 0, "an attention scale"          },
    {"attention.max_alibi_bias",     KEY_VALUE, 0, "ALiBi positions"             },
    {"attention.clamp_kqv",          KEY_VALUE, 0, "clamped q, k, v"             },
    {"attention.layer_norm_epsilon", KEY_VALUE, 0, "LayerNorm"                   },
    {"attention.key_length_mla",     KEY_VALUE, 0, "latent attention"            },
    {"rope.scaling.attn_factor",     KEY_VALUE, 1, "scaled rotations"            },
    {"expert_count",                 KEY_VALUE, 0, "a mixture of experts"        },
    {"expert_used_count",            KEY_VALUE, 0, "a mixture of experts"        },
    {"expert_shared_count",          KEY_VALUE, 0, "a mixture of experts"        },
    {"expert_group_count",           KEY_VALUE, 0, "a mixture of experts"        },
    {"expert_group_used_count",      KEY_VALUE, 0, "a mixture of experts"        },
    {"leading_dense_block_count",    KEY_VALUE, 0, "a mixture of experts"        },
    {"nextn_predict_layers",         KEY_VALUE, 0, "layers that draft"           },
    {"ssm.state_size",               KEY_VALUE, 0, "state space layers"          },
};

static bool same(struct span s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

static bool among(struct span s, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (same(s, texts[i])) {
            return true;
        }
    }
    return false;
}

static const struct neutral *neutral_of(struct span tail)
{
    for (size_t i = 0; i < countof(neutrals); i++) {
        if (same(tail, neutrals[i].tail)) {
            return &neutrals[i];
        }
    }
    return NULL;
}

static bool passes(const struct gguf *g, const struct neutral *r,
                   const char *name)
{
    uint32_t u = 0;
    float f = 0;
    bool b = false;
    struct span s = {0};
    switch (r->rule) {
    case KEY_VALUE:
        if (gguf_get_u32(g, name, &u)) {
            f = (float)u;
        } else if (!gguf_get_f32(g, name, &f)) {
            return false;
        }
        return f == r->value || f == 0;
    case KEY_TRUE:
    case KEY_FALSE:
        return gguf_get_bool(g, name, &b) && b == (r->rule == KEY_TRUE);
    case KEY_TEXT:
        return gguf_get_str(g, name, &s) && same(s, r->what);
    }
    return false;
}

/* Is it among the keys of this family's row? */
static bool of_family(const struct arch_row *family, struct span tail)
{
    size_t n = 0;
    while (family->keys != NULL && family->keys[n] != NULL) {
        n++;
    }
    size_t x = 0;
    while (arch_expert_keys[x] != NULL) {
        x++;
    }
    return among(tail, family->keys, n) ||
           (family->experts && among(tail, arch_expert_keys, x)) ||
           (family->local_every != 0 &&
            among(tail, local_keys, countof(local_keys)));
}

static int check_key(const struct gguf *g, const struct arch_row *family,
                     struct span key, struct span tail, struct err *e)
{
    char name[GGUF_KEY_MAX + 1];
    if (among(tail, read_keys, countof(read_keys)) ||
        among(tail, notes, countof(notes)) || of_family(family, tail)) {
        return 0;
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)key.n, key.p);
    const struct neutral *r = neutral_of(tail);
    if (r == NULL) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: aned does not know this key, and it may change "
                       "what the model computes",
                       name);
    }
    if (!passes(g, r, name)) {
        return err_set(e, ERR_UNSUPPORTED,
                       r->rule == KEY_TEXT ? "%s: only '%s' is converted"
                                           : "%s: %s is not converted",
                       name, r->what);
    }
    return 0;
}

int arch_check_keys(const struct gguf *g, const struct arch_row *family,
                    struct err *e)
{
    size_t n = strlen(family->name);
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        struct span key = gguf_kv_at(g, i)->key;
        if (key.n > n + 1 && memcmp(key.p, family->name, n) == 0 &&
            key.p[n] == '.') {
            struct span tail = {key.p + n + 1, key.n - n - 1};
            RETERR(check_key(g, family, key, tail, e));
        }
    }
    return 0;
}
