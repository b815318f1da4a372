/* encoders.c - what only encoders that give embeddings write: bert (absolute
 * positions, gelu) and nomic-bert (rotations, gated silu).
 *
 *   x = norm(token + type 0 (+ position)); norm is LayerNorm with a bias
 *   x = norm(x + attention(x)); x = norm(x + feed_forward(x))
 *
 * Every token sees every other one of its text. Sources: the papers, the forward
 * passes of transformers, and the names and keys of llama.cpp's converter.
 */
#include "convert/arch/arch.h"

#define POOLING_RANK 4u /* a score for a pair of texts */
#define TYPES_MAX    16u

static int check_keys(struct reading *r, struct err *e)
{
    const char *name = arch_key(r, "attention.causal");
    uint32_t pooling = 0;
    bool causal = false;
    if (gguf_find(r->g, name) != NULL &&
        (!gguf_get_bool(r->g, name, &causal) || causal)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: an encoder that sees one side only is not converted",
                       name);
    }
    name = arch_key(r, "pooling_type");
    if (gguf_get_u32(r->g, name, &pooling) && pooling == POOLING_RANK) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s is %u: a model that ranks pairs of texts is not "
                       "converted",
                       name, pooling);
    }
    if (arch_has_key(r, "max_seq_length")) {
        RETERR(arch_u32(r, "max_seq_length", 1, UINT32_MAX, &r->d->text_max, e));
    }
    r->d->norm_eps = 1e-12f; /* bert's own, where the file says none */
    return arch_f32(r, "attention.layer_norm_epsilon", 0, 0.1f, &r->d->norm_eps,
                    e);
}

/* Rows of the table of token types; the first one is used. */
static int read_types(struct reading *r, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor(r->g, "token_types.weight");
    if (t == NULL) {
        return 0;
    }
    if (t->rows == 0 || t->rows > TYPES_MAX) {
        return err_set(e, ERR_CONVERT, "%s has %llu rows; aned takes 1 to %u",
                       t->name, (unsigned long long)t->rows, TYPES_MAX);
    }
    r->d->n_types = (uint32_t)t->rows;
    return 0;
}

static int fill(struct reading *r, bool rotates, bool gated, struct err *e)
{
    struct decoder *d = r->d;
    RETERR(check_keys(r, e));
    RETERR(read_types(r, e));
    if (d->kinds[LAYER_GLOBAL].window != 0) {
        return err_set(e, ERR_UNSUPPORTED, "%s: a window is not converted here",
                       arch_key(r, "attention.sliding_window"));
    }
    for (uint32_t l = 0; l < d->n_layers; l++) {
        struct layer *y = &d->layers[l];
        if (y->n_kv != y->n_heads) {
            return err_set(e, ERR_UNSUPPORTED,
                           "layer %u: %u heads share %u key heads; only heads "
                           "with keys of their own are converted",
                           l, y->n_heads, y->n_kv);
        }
        y->both_sides = true;
        y->post_norm = false;
        y->sum_norm = true;
        y->rotates = rotates;
        y->gated = gated;
    }
    return 0;
}

int arch_fill_bert(struct reading *r, struct err *e)
{
    return fill(r, false, false, e);
}

int arch_fill_nomic(struct reading *r, struct err *e)
{
    return fill(r, true, true, e);
}
