/* experts.c - families whose experts lie in the files in another form than in
 * GGUF: lfm2_moe, a tensor for each matrix of each expert; the Privacy Filter, a
 * tensor for all experts of a layer, with columns where GGUF has rows, and the
 * gate's before those of `up`.
 *
 * GGUF has one tensor for all experts of a layer, (experts, rows, columns). Rows
 * are decoded when they are read, so nothing is copied.
 */
#include <string.h>

#include "base/parse.h"
#include "source/hf/fill.h"

#define WHERE "config.json: "

int hf_put_counts(struct hf *h, const struct hf_count *rows, size_t n,
                  struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t v = 0;
        RETERR(hf_u32(h->text, rows[i].key, true, 1, rows[i].most, &v, e));
        RETERR(hf_put_u32(h, rows[i].tail, v, e));
    }
    return 0;
}

static int no_place(const struct hf *h, const char *name, struct err *e)
{
    return err_set(e, ERR_CONVERT, "tensor %s has no place in a %s of %u layers",
                   name, h->family->model_type, h->n_layers);
}

/* --- matrices of experts that are tensors of their own --- */

/* Where a matrix of an expert lies; data NULL: it did not come. */
struct piece {
    enum safetensors_type type;
    const uint8_t *data;
};

/* A matrix of all experts of a layer: what a function of rows reads. */
struct stack {
    struct piece *experts;
    uint64_t rows, cols; /* of one */
    uint64_t bytes;
    const char *type_name;
};

struct hf_stacks {
    const struct hf_singles *names;
    uint32_t n_experts;
    struct stack *of; /* (layers, names->n) */
};

static void make_stack(const void *ctx, uint64_t row, uint64_t n, float *out)
{
    const struct stack *s = ctx;
    for (uint64_t i = 0; i < n; i++) {
        const struct piece *p = &s->experts[(row + i) / s->rows];
        hf_decode(p->type, p->data, (row + i) % s->rows * s->cols, s->cols,
                  out + i * s->cols);
    }
}

static int new_stacks(struct hf *h, const struct hf_singles *of,
                      struct hf_stacks **ret, struct err *e)
{
    struct hf_stacks *s = made_alloc(h->m, sizeof(*s));
    if (s == NULL) {
        return err_set(e, ERR_NOMEM, "experts");
    }
    s->names = of;
    RETERR(hf_u32(h->text, "num_experts", true, 1, MODEL_EXPERTS_MAX,
                  &s->n_experts, e));
    s->of = made_alloc(h->m, h->n_layers * of->n * sizeof(*s->of));
    *ret = s;
    return s->of != NULL ? 0 : err_set(e, ERR_NOMEM, "experts");
}

static int put_piece(struct hf *h, const struct hf_stacks *all, struct stack *s,
                     uint32_t expert, const struct safetensors_tensor *t,
                     struct err *e)
{
    RETERR(hf_check_type(t, e));
    if (t->n_dims != 2) {
        return err_set(e, ERR_CONVERT, "tensor %s has %u dimensions, not 2",
                       t->name, t->n_dims);
    }
    if (s->experts == NULL) {
        s->experts =
            made_alloc(h->m, all->n_experts * sizeof(*s->experts));
        s->rows = t->dims[0];
        s->cols = t->dims[1];
        s->type_name = t->type_name;
    }
    if (s->experts == NULL) {
        return err_set(e, ERR_NOMEM, "%s", t->name);
    }
    if (s->experts[expert].data != NULL) {
        return err_set(e, ERR_CONVERT, "tensor %s is there twice", t->name);
    }
    if (t->dims[0] != s->rows || t->dims[1] != s->cols || t->bytes == 0) {
        return err_set(e, ERR_CONVERT,
                       "tensor %s is %llu x %llu, and another expert's %llu x "
                       "%llu",
                       t->name, (unsigned long long)t->dims[0],
                       (unsigned long long)t->dims[1],
                       (unsigned long long)s->rows,
                       (unsigned long long)s->cols);
    }
    s->experts[expert] = (struct piece){t->type, t->data};
    s->bytes += t->bytes;
    return 0;
}

int hf_stacks_take(struct hf *h, struct hf_stacks **s,
                   const struct hf_singles *of,
                   const struct safetensors_tensor *t,
                   const struct hf_place *at, bool *ret, struct err *e)
{
    const size_t before = strlen(of->prefix);
    uint64_t expert = 0;
    *ret = at->layered && strncmp(at->tail, of->prefix, before) == 0;
    if (!*ret) {
        return 0;
    }
    RETERR(*s == NULL ? new_stacks(h, of, s, e) : 0);
    const char *p = parse_digits(at->tail + before, (*s)->n_experts - 1,
                                 &expert);
    if (p == NULL || at->layer >= h->n_layers) {
        return no_place(h, t->name, e);
    }
    for (size_t i = 0; i < of->n; i++) {
        if (strcmp(p, of->of[i].from) == 0) {
            return put_piece(h, *s, &(*s)->of[at->layer * of->n + i],
                             (uint32_t)expert, t, e);
        }
    }
    return no_place(h, t->name, e);
}

/* One matrix of all experts of layer l. */
static int put_stack(struct hf *h, const struct hf_stacks *all, uint32_t l,
                     size_t i, struct err *e)
{
    const struct hf_singles *of = all->names;
    const struct stack *s = &all->of[l * of->n + i];
    char to[GGUF_NAME_MAX + 1];
    if (s->experts == NULL) {
        return 0; /* arch/ says what a layer lacks */
    }
    for (uint32_t x = 0; x < all->n_experts; x++) {
        if (s->experts[x].data == NULL) {
            return err_set(e, ERR_CONVERT,
                           "tensor model.layers.%u.%s%u%s is missing",
                           of->step * l + of->first, of->prefix, x,
                           of->of[i].from);
        }
    }
    const uint64_t dims[3] = {s->cols, s->rows, all->n_experts};
    (void)snprintf(to, sizeof(to), "blk.%u.%s", l, of->of[i].to);
    return made_tensor_fn(h->m, to, 3, dims, s->type_name, make_stack, s,
                          s->bytes, e);
}

int hf_stacks_put(struct hf *h, const struct hf_stacks *s, struct err *e)
{
    for (uint32_t l = 0; s != NULL && l < h->n_layers; l++) {
        for (size_t i = 0; i < s->names->n; i++) {
            RETERR(put_stack(h, s, l, i, e));
        }
    }
    return 0;
}

/* --- lfm2_moe --- */

const char *const hf_lfm2moe_keys[] = {
    "norm_eps",              "layer_types",   "full_attn_idxs",
    "conv_L_cache",          "conv_bias",     "theta",
    "num_experts",           "norm_topk_prob", "num_experts_per_tok",
    "moe_intermediate_size", "num_dense_layers", "use_expert_bias",
    "routed_scaling_factor", NULL};

#define GATING_SIGMOID 2u /* GGUF's expert_gating_func */

int hf_fill_lfm2moe(struct hf *h, struct err *e)
{
    static const struct hf_count rows[] = {
        {"num_experts",           "expert_count",               MODEL_EXPERTS_MAX},
        {"num_experts_per_tok",   "expert_used_count",          MODEL_EXPERTS_MAX},
        {"moe_intermediate_size", "expert_feed_forward_length", MODEL_DIM_MAX    },
        {"intermediate_size",     "feed_forward_length",        MODEL_DIM_MAX    },
    };
    bool sums = true;
    bool bias = true;
    double scale = 1;
    uint32_t dense = 0;
    RETERR(hf_bool(h->text, "norm_topk_prob", &sums, e));
    RETERR(hf_bool(h->text, "use_expert_bias", &bias, e));
    RETERR(hf_num(h->text, "routed_scaling_factor", false, 0, 1e6, &scale, e));
    if (!sums || !bias || scale < 1 || scale > 1) {
        return err_set(e, ERR_UNSUPPORTED, WHERE "%s is not converted",
                       !sums   ? "norm_topk_prob false"
                       : !bias ? "use_expert_bias false"
                               : "a routed_scaling_factor other than 1");
    }
    RETERR(hf_put_counts(h, rows, countof(rows), e));
    RETERR(hf_u32(h->text, "num_dense_layers", true, 0, h->n_layers, &dense,
                  e));
    RETERR(hf_put_u32(h, "leading_dense_block_count", dense, e));
    RETERR(hf_put_u32(h, "expert_gating_func", GATING_SIGMOID, e));
    return hf_fill_lfm2_layers(h, e);
}

/* "feed_forward.experts.7.w1.weight" */
static const struct hf_single lfm2moe_single[] = {
    {".w1.weight", "ffn_gate_exps.weight"},
    {".w2.weight", "ffn_down_exps.weight"},
    {".w3.weight", "ffn_up_exps.weight"  },
};
static const struct hf_singles lfm2moe_singles = {
    "feed_forward.experts.", lfm2moe_single, countof(lfm2moe_single), 1, 0};

int hf_take_lfm2moe(struct hf *h, const struct safetensors_tensor *t,
                    const struct hf_place *at, bool *ret, struct err *e)
{
    struct hf_stacks *s = h->own;
    int rc = hf_stacks_take(h, &s, &lfm2moe_singles, t, at, ret, e);
    h->own = s;
    return rc;
}

int hf_finish_lfm2moe(struct hf *h, struct err *e)
{
    return hf_stacks_put(h, h->own, e);
}

/* --- openai_privacy_filter --- */

const char *const hf_privacy_filter_keys[] = {
    "num_local_experts", "num_experts_per_tok", "swiglu_alpha",
    "swiglu_limit",      "router_aux_loss_coef", NULL};

#define POOLING_TAGS 5u /* GGUF's pooling_type: labels for each token */

/* "id2label": {"0": "O", "1": "B-secret", ...} */
static int put_labels(struct hf *h, struct err *e)
{
    const struct json *list = hf_get(h->text, "id2label");
    size_t n = list != NULL ? json_count(list) : 0;
    if (n == 0 || n > MODEL_LABELS_MAX || json_type(list) != JSON_OBJECT) {
        return err_set(e, ERR_MODEL_CONFIG,
                       WHERE "id2label has %zu labels; aned takes 1 to %u", n,
                       MODEL_LABELS_MAX);
    }
    struct span *v = calloc(n, sizeof(*v));
    if (v == NULL) {
        return err_set(e, ERR_NOMEM, "labels");
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "%zu", i);
        const char *text = json_str(hf_get(list, name));
        if (text == NULL) {
            rc = err_set(e, ERR_MODEL_CONFIG, WHERE "id2label has no '%s'",
                         name);
            break;
        }
        v[i] = (struct span){text, strlen(text)};
    }
    rc = rc != 0 ? rc
                 : made_strs(h->m, hf_key(h, "classifier.output_labels"), v, n,
                             e);
    free(v);
    return rc != 0 ? rc
                   : hf_put_u32(h, "embedding_length_out", (uint32_t)n, e);
}

int hf_fill_privacy_filter(struct hf *h, struct err *e)
{
    static const struct hf_count rows[] = {
        {"num_local_experts",   "expert_count",               MODEL_EXPERTS_MAX},
        {"num_experts_per_tok", "expert_used_count",          MODEL_EXPERTS_MAX},
        {"intermediate_size",   "expert_feed_forward_length", MODEL_DIM_MAX    },
        {"sliding_window",      "attention.sliding_window",   UINT32_MAX       },
    };
    struct hf_rope r = {.theta = 150000};
    double slope = 1.702;
    double limit = 7;
    RETERR(hf_num(h->text, "swiglu_alpha", false, 0, 1e6, &slope, e));
    RETERR(hf_num(h->text, "swiglu_limit", false, 0, 1e6, &limit, e));
    if ((float)slope < 1.702F || (float)slope > 1.702F || limit < 7 ||
        limit > 7) {
        return err_set(e, ERR_UNSUPPORTED,
                       WHERE "swiglu_alpha %g and swiglu_limit %g; aned "
                             "converts 1.702 and 7",
                       slope, limit);
    }
    RETERR(hf_put_counts(h, rows, countof(rows), e));
    RETERR(hf_put_u32(h, "pooling_type", POOLING_TAGS, e));
    RETERR(put_labels(h, e));
    RETERR(hf_rope_of(h, NULL, &r, e));
    return hf_put_rope(h, &r, e);
}

/* Rows of GGUF that are columns of the file: of expert x, column first + r of
 * its (inputs, outputs). */
struct turned {
    enum safetensors_type type;
    const uint8_t *data;
    uint64_t inputs, outputs;
    uint64_t first, rows; /* of the outputs, those that the tensor has */
};

#define TURN_ROWS 64u

static void make_turned(const void *ctx, uint64_t row, uint64_t n, float *out)
{
    const struct turned *t = ctx;
    float part[TURN_ROWS];
    for (uint64_t done = 0; done < n;) {
        uint64_t x = (row + done) / t->rows;
        uint64_t r = (row + done) % t->rows;
        uint64_t some = n - done < TURN_ROWS ? n - done : TURN_ROWS;
        some = some < t->rows - r ? some : t->rows - r;
        for (uint64_t i = 0; i < t->inputs; i++) {
            hf_decode(t->type, t->data,
                      (x * t->inputs + i) * t->outputs + t->first + r, some,
                      part);
            for (uint64_t k = 0; k < some; k++) {
                out[(done + k) * t->inputs + i] = part[k];
            }
        }
        done += some;
    }
}

/* Elements first .. of each row of (experts, outputs). */
static void make_part(const void *ctx, uint64_t row, uint64_t n, float *out)
{
    const struct turned *t = ctx;
    for (uint64_t i = 0; i < n; i++) {
        hf_decode(t->type, t->data, (row + i) * t->outputs + t->first, t->rows,
                  out + i * t->rows);
    }
}

/* A tensor of the file, of which `parts` tensors of GGUF are made. */
static const struct together {
    const char *from;
    const char *to[2];
    uint32_t parts, dims;
} together[] = {
    {"mlp.experts.gate_up_proj",
     {"ffn_gate_exps.weight", "ffn_up_exps.weight"},
     2, 3},
    {"mlp.experts.gate_up_proj_bias",
     {"ffn_gate_exps.bias", "ffn_up_exps.bias"},
     2, 2},
    {"mlp.experts.down_proj", {"ffn_down_exps.weight", NULL}, 1, 3},
};

static int put_together(struct hf *h, const struct together *of, uint32_t layer,
                        const struct safetensors_tensor *t, struct err *e)
{
    char to[GGUF_NAME_MAX + 1];
    RETERR(hf_check_type(t, e));
    if (t->n_dims != of->dims || t->dims[of->dims - 1] % of->parts != 0) {
        return err_set(e, ERR_CONVERT,
                       "tensor %s: %u dimensions, the last %llu; %u and a "
                       "multiple of %u are expected",
                       t->name, t->n_dims,
                       (unsigned long long)t->dims[t->n_dims - 1], of->dims,
                       of->parts);
    }
    for (uint32_t i = 0; i < of->parts; i++) {
        struct turned *r = made_alloc(h->m, sizeof(*r));
        if (r == NULL) {
            return err_set(e, ERR_NOMEM, "%s", t->name);
        }
        *r = (struct turned){.type = t->type,
                             .data = t->data,
                             .inputs = of->dims == 3 ? t->dims[1] : 1,
                             .outputs = t->dims[of->dims - 1],
                             .rows = t->dims[of->dims - 1] / of->parts};
        r->first = i * r->rows;
        const uint64_t matrix[3] = {r->inputs, r->rows, t->dims[0]};
        const uint64_t table[2] = {r->rows, t->dims[0]};
        (void)snprintf(to, sizeof(to), "blk.%u.%s", layer, of->to[i]);
        RETERR(made_tensor_fn(h->m, to, of->dims,
                              of->dims == 3 ? matrix : table, t->type_name,
                              of->dims == 3 ? make_turned : make_part, r,
                              t->bytes / of->parts, e));
    }
    return 0;
}

int hf_take_privacy_filter(struct hf *h, const struct safetensors_tensor *t,
                           const struct hf_place *at, bool *ret, struct err *e)
{
    for (size_t i = 0; at->layered && i < countof(together); i++) {
        if (strcmp(at->tail, together[i].from) == 0) {
            *ret = true;
            return at->layer < h->n_layers
                       ? put_together(h, &together[i], at->layer, t, e)
                       : no_place(h, t->name, e);
        }
    }
    return 0;
}
