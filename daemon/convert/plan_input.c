/* plan_input.c - the only place where the planner meets struct decoder. */
#include "convert/plan_input.h"

#include <assert.h>
#include <string.h>

#include "base/num.h"
#include "convert/program.h"

#define BLOB_RECORD 64u /* before each constant of weight.bin; mil/blob.c */

/* Text of a program, about: measured on bundles, rounded up. */
#define TEXT_PROGRAM KIB(24)

/* One constant of n bytes in weight.bin. */
static uint64_t blob(uint64_t n)
{
    return BLOB_RECORD + (n + BLOB_RECORD - 1) / BLOB_RECORD * BLOB_RECORD;
}

uint64_t plan_matrix_bytes(struct quant_spec spec, uint64_t rows, uint64_t cols)
{
    struct quant_spec s = quant_fit(spec, rows);
    uint64_t params = 2 * quant_params(s, rows);
    return blob(quant_bytes(s, rows, cols) - params) +
           (params > 0 ? blob(params) : 0);
}

static void read_layer(const struct decoder *d, uint32_t l,
                       const struct plan_form *f, struct plan_layer *ret)
{
    const struct layer *y = &d->layers[l];
    for (unsigned s = SLOT_LAYER; s < SLOT_COUNT; s++) {
        const struct part *p = arch_part(d, l, (enum arch_slot)s);
        if (p->t == NULL) {
            continue;
        }
        if (arch_matrix(d, l, (enum arch_slot)s) == NULL) {
            uint64_t bytes = blob(2 * p->rows * p->cols);
            ret->bytes += bytes;
            ret->behind_bytes +=
                program_behind(y, (enum arch_slot)s) ? bytes : 0;
            continue;
        }
        struct quant_spec spec = quant_choice_for(f->forms, p->t->name);
        uint64_t most = arch_rows_most(d, l, (enum arch_slot)s);
        uint64_t wide = num_max(num_min(p->rows, most), p->cols);
        ret->elements += p->rows * p->cols;
        ret->channels = (uint32_t)num_max(ret->channels, wide);
        uint64_t bytes = 0;
        for (uint64_t at = 0; at < p->rows; at += most) {
            uint64_t rows = num_min(p->rows - at, most);
            bytes += plan_matrix_bytes(spec, rows, p->cols);
        }
        ret->bytes += bytes;
        if (arch_is_experts((enum arch_slot)s)) {
            ret->expert_bytes += bytes;
            ret->one_bytes +=
                plan_matrix_bytes(spec, p->rows / y->n_experts, p->cols);
        } else if (program_behind(y, (enum arch_slot)s)) {
            ret->behind_bytes += bytes;
        }
    }
    ret->experts = y->n_experts;
    ret->top = y->n_top;
    if (d->d_ple > 0) { /* a norm that stands in each layer's program */
        uint64_t bytes = blob(2 * (uint64_t)d->d_ple);
        ret->bytes += bytes;
        ret->behind_bytes += bytes;
    }
}

void plan_input_states(const struct layer *layers, bool host, uint32_t context,
                       struct plan_input *ret)
{
    for (uint32_t l = 0; l < ret->n_layers; l++) {
        const struct layer *y = &layers[l];
        bool own = y->kv_from == l && y->n_kv > 0 && !y->both_sides;
        ret->layers[l].kv_from = y->kv_from;
        ret->layers[l].states = host || !own ? 0 : 2;
        ret->layers[l].state_bytes =
            own ? (uint64_t)2 * y->n_kv * y->d_head * 2 * context : 0;
    }
}

/* Functions share the weights; each has its own text. */
static uint32_t functions_of(const struct plan_form *f)
{
    return f->shape != NULL && f->shape->n > 0 ? f->shape->n : 1;
}

/* Embeddings, the vocabulary's metadata, and the text of the programs. */
static uint64_t file_bytes(const struct decoder *d, const struct gguf *g,
                           const struct plan_form *f)
{
    uint64_t ple = (uint64_t)d->n_layers * d->d_ple;
    uint64_t positions =
        d->global[SLOT_POSITIONS].t != NULL ? d->context_train : 0;
    uint64_t n = (uint64_t)d->vocab * (d->d_model + ple) * 2 +
                 positions * d->d_model * 2;
    uint64_t tensors = 0;
    for (size_t i = 0; g != NULL && i < gguf_n_tensors(g); i++) {
        tensors += gguf_tensor_at(g, i)->bytes;
    }
    if (g != NULL && gguf_file_bytes(g) > tensors) {
        n += gguf_file_bytes(g) - tensors;
    }
    return n + (uint64_t)d->n_layers * TEXT_LAYER * functions_of(f);
}

/* A range is prepared for a row alone, and for as many as it takes. */
void plan_input_widths(const struct program_shape *s, struct plan_input *ret)
{
    static_assert(PLAN_WIDTHS_MAX >= ENGINE_WIDTHS_MAX, "one a function");
    bool ranged = s == NULL || s->n == 0;
    ret->n_widths = ranged ? 2 : s->n;
    ret->widths[0] = 1;
    ret->widths[1] = SHAPE_RANGE_MAX;
    if (s != NULL && s->block > 0) {
        ret->widths[0] = s->block;
        ret->widths[1] = ENCODER_ROWS_MAX;
    }
    ret->n_head_widths = ret->n_widths;
    if (!ranged) {
        struct program_shape heads = {0};
        shape_of_heads(s, &heads);
        memcpy(ret->widths, s->t, s->n * sizeof(*ret->widths));
        ret->n_head_widths = heads.n;
    }
}

void plan_input_of(const struct decoder *d, const struct gguf *g,
                   const struct plan_form *f, struct plan_input *ret)
{
    struct quant_spec head =
        quant_choice_for(f->forms, arch_head(d)->t->name);
    uint64_t outputs = arch_outputs(d); /* without a head: it costs nothing */
    uint64_t row = quant_bytes(quant_fit(head, outputs), outputs, d->d_model);
    *ret = (struct plan_input){
        .n_layers = d->n_layers,
        .vocab = arch_head_rows(d),
        .context = f->context,
        .row_elements = d->d_model,
        .row_bytes = (row + outputs - 1) / outputs,
        .head_bytes =
            blob(2 * (uint64_t)d->d_model) + (uint64_t)4 * BLOB_RECORD,
        .file_bytes = file_bytes(d, g, f) + TEXT_PROGRAM,
        .bits = quant_entries(f->forms->spec.kind) > 0
                    ? 16
                    : quant_bits(f->forms->spec.kind),
    };
    plan_input_widths(f->shape, ret);
    ret->sparse = f->sparse;
    ret->layers = calloc(d->n_layers, sizeof(*ret->layers));
    must(ret->layers != NULL);
    for (uint32_t l = 0; l < d->n_layers; l++) {
        read_layer(d, l, f, &ret->layers[l]);
    }
    plan_input_states(d->layers, f->host, f->context, ret);
}
