/* plan_input.c - the only place where the planner meets struct decoder. */
#include "convert/plan_input.h"

#include "base/num.h"

#define BLOB_RECORD 64u /* before each constant of weight.bin; mil/blob.c */

/* Text of a program, about: measured on bundles, rounded up. */
#define TEXT_LAYER   KIB(32)
#define TEXT_PROGRAM KIB(24)

/* One constant of n bytes in weight.bin. */
static uint64_t blob(uint64_t n)
{
    return BLOB_RECORD + (n + BLOB_RECORD - 1) / BLOB_RECORD * BLOB_RECORD;
}

static uint64_t matrix(enum quant q, uint64_t rows, uint64_t cols)
{
    uint64_t scales = q == QUANT_FP16          ? 0
                      : q == QUANT_INT8_TENSOR ? blob(2)
                                               : blob(2 * rows);
    return blob((rows * cols * quant_bits(q) + 7) / 8) + scales;
}

static bool is_matrix(enum arch_slot s)
{
    return s == SLOT_Q || s == SLOT_K || s == SLOT_V || s == SLOT_O ||
           s == SLOT_GATE || s == SLOT_UP || s == SLOT_DOWN;
}

static void read_layer(const struct decoder *d, uint32_t l,
                       const struct plan_form *f, struct plan_layer *ret)
{
    for (unsigned s = SLOT_LAYER; s < SLOT_COUNT; s++) {
        const struct gguf_tensor *t = arch_tensor(d, l, (enum arch_slot)s);
        if (t == NULL) {
            continue;
        }
        if (!is_matrix((enum arch_slot)s)) {
            ret->bytes += blob(2 * t->cols);
            continue;
        }
        uint64_t wide = num_max(t->rows, t->cols);
        ret->elements += t->rows * t->cols;
        ret->bytes += matrix(f->quant, t->rows, t->cols);
        ret->channels = (uint32_t)num_max(ret->channels, wide);
    }
    ret->states = f->host ? 0 : 2;
    ret->state_bytes = (uint64_t)2 * d->n_kv * d->d_head * 2 * f->context;
}

/* Embeddings, the vocabulary's metadata, and the text of the programs. */
static uint64_t file_bytes(const struct decoder *d, const struct gguf *g,
                           const struct plan_form *f)
{
    uint64_t n = (uint64_t)d->vocab * d->d_model * 2;
    uint64_t tensors = 0;
    for (size_t i = 0; g != NULL && i < gguf_n_tensors(g); i++) {
        tensors += gguf_tensor_at(g, i)->bytes;
    }
    if (g != NULL && gguf_file_bytes(g) > tensors) {
        n += gguf_file_bytes(g) - tensors;
    }
    return n + (uint64_t)d->n_layers * TEXT_LAYER * (f->functions ? 2 : 1);
}

void plan_input_of(const struct decoder *d, const struct gguf *g,
                   const struct plan_form *f, struct plan_input *ret)
{
    unsigned bits = quant_bits(f->quant);
    *ret = (struct plan_input){
        .n_layers = d->n_layers,
        .vocab = d->vocab,
        .context = f->context,
        .row_elements = d->d_model,
        .row_bytes =
            (uint64_t)d->d_model * bits / 8 + (f->quant == QUANT_FP16 ? 0 : 2),
        .head_bytes =
            blob(2 * (uint64_t)d->d_model) + (uint64_t)4 * BLOB_RECORD,
        .file_bytes = file_bytes(d, g, f) + TEXT_PROGRAM,
        .bits = bits,
        .n_widths = 2,
        .widths = {1, 4},
    };
    ret->layers = calloc(d->n_layers, sizeof(*ret->layers));
    must(ret->layers != NULL);
    for (uint32_t l = 0; l < d->n_layers; l++) {
        read_layer(d, l, f, &ret->layers[l]);
    }
}
