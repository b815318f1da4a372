/* zaya.c - ZAYA: numbers, and tensors of which several are one here.
 *
 * No exporter writes GGUFs of it, so convert/arch names its tensors: vectors
 * that belong together are rows of one table. They come in any order, from any
 * file, so `take` keeps where they lie, and `finish` makes the tables. What
 * enters the first layer, (embedding + bias) * scale, is made when rows are
 * read.
 */
#include <string.h>

#include "source/hf/fill.h"

#define WHERE "config.json: "

/* --- numbers --- */

const char *const hf_zaya_keys[] = {
    "cca_time0",   "cca_time1",           "router_hidden_size",
    "num_experts", "num_experts_per_tok", "moe_intermediate_size", NULL};

int hf_fill_zaya(struct hf *h, struct err *e)
{
    static const struct {
        const char *key, *tail;
        uint32_t lo, hi;
    } rows[] = {
        {"cca_time0",             "cca.time0",                  2, MODEL_CONV_MAX   },
        {"cca_time1",             "cca.time1",                  2, MODEL_CONV_MAX   },
        {"router_hidden_size",    "router_length",              1, MODEL_DIM_MAX    },
        {"num_experts",           "expert_count",               1, MODEL_EXPERTS_MAX},
        {"num_experts_per_tok",   "expert_used_count",          1, MODEL_EXPERTS_MAX},
        {"moe_intermediate_size", "expert_feed_forward_length", 1, MODEL_DIM_MAX    },
        {"moe_intermediate_size", "feed_forward_length",        1, MODEL_DIM_MAX    },
    };
    struct hf_rope r = {.theta = 10000};
    for (size_t i = 0; i < countof(rows); i++) {
        uint32_t v = 0;
        RETERR(hf_u32(h->text, rows[i].key, true, rows[i].lo, rows[i].hi, &v,
                      e));
        RETERR(hf_put_u32(h, rows[i].tail, v, e));
    }
    RETERR(hf_check_layers(h, "", "hybrid", 0, e));
    uint32_t window = 0;
    RETERR(hf_u32(h->text, "sliding_window", false, 0, UINT32_MAX, &window, e));
    if (window > 0) {
        return err_set(e, ERR_UNSUPPORTED,
                       WHERE "sliding_window is not converted in this family");
    }
    RETERR(hf_put_u32(h, "attention.head_count_kv", h->n_kv, e));
    RETERR(hf_put_u32(h, "attention.key_length", h->d_head, e));
    RETERR(hf_put_u32(h, "attention.value_length", h->d_head, e));
    RETERR(h->vocab > 0 ? hf_put_u32(h, "vocab_size", h->vocab, e) : 0);
    RETERR(hf_rope_of(h, "hybrid", &r, e));
    RETERR(hf_put_u32(h, "rope.dimension_count",
                      (uint32_t)(r.partial * h->d_head), e));
    return hf_put_rope(h, &r, e);
}

/* --- tables --- */

#define TABLE_ROWS 5u

/* Rows of a layer's table, in order. */
static const struct table {
    const char *to;
    const char *rows[TABLE_ROWS];
    uint32_t n;
    uint32_t not_first; /* the row that layer 0 does not have: zeros; or n */
} tables[] = {
    {"join_attn.weight",
     {"post_attention_residual_scale.hidden_states_bias",
      "post_attention_residual_scale.hidden_states_scale",
      "post_attention_residual_scale.residual_bias",
      "post_attention_residual_scale.residual_scale"},
     4, 4},
    {"join_ffn.weight",
     {"post_mlp_residual_scale.hidden_states_bias",
      "post_mlp_residual_scale.hidden_states_scale",
      "post_mlp_residual_scale.residual_bias",
      "post_mlp_residual_scale.residual_scale"},
     4, 4},
    {"cca_bias.weight",
     {"self_attn.qkv_proj.conv_qk_depthwise.bias",
      "self_attn.qkv_proj.conv_qk_grouped.bias"},
     2, 2},
    {"ffn_gate_inp_vectors.weight",
     {"mlp.gate.down_proj.bias", "mlp.gate.router_states_scale",
      "mlp.gate.router_mlp.norm.weight", "mlp.gate.router_mlp.fc1.bias",
      "mlp.gate.router_mlp.fc2.bias"},
     5, 1},
};

/* Where a tensor's elements lie; data NULL: none came. */
struct piece {
    enum safetensors_type type;
    const uint8_t *data;
    const char *type_name;
    uint64_t cols, rows, bytes;
};

/* What a function of rows reads: pieces[i] is row i. */
struct table_rows {
    struct piece pieces[TABLE_ROWS];
};

struct zaya {
    struct piece embedding, bias, scale;
    struct table_rows *layers[countof(tables)]; /* n_layers of each */
    struct hf_stacks *experts; /* of the first form */
};

static const struct hf_single single[] = {
    {".linear_fc1.weight", "ffn_gate_up_exps.weight"},
    {".linear_fc2.weight", "ffn_down_exps.weight"   },
};
static const struct hf_singles singles = {HF_ZAYA_EXPERT, single,
                                          countof(single), 2, 1};

static void make_table(const void *ctx, uint64_t row, uint64_t n, float *out)
{
    const struct table_rows *t = ctx;
    uint64_t cols = t->pieces[0].cols;
    for (uint64_t i = 0; i < n; i++) {
        const struct piece *p = &t->pieces[row + i];
        if (p->data != NULL) {
            hf_decode(p->type, p->data, 0, cols, out + i * cols);
        } else {
            memset(out + i * cols, 0, (size_t)cols * sizeof(*out));
        }
    }
}

static void make_embedding(const void *ctx, uint64_t row, uint64_t n,
                           float *out)
{
    const struct zaya *z = ctx;
    uint64_t cols = z->embedding.cols;
    for (uint64_t i = 0; i < n; i++) {
        float *y = out + i * cols;
        hf_decode(z->embedding.type, z->embedding.data, (row + i) * cols, cols,
                  y);
        for (uint64_t c = 0; c < cols; c++) {
            float of[2];
            hf_decode(z->bias.type, z->bias.data, c, 1, &of[0]);
            hf_decode(z->scale.type, z->scale.data, c, 1, &of[1]);
            y[c] = (y[c] + of[0]) * of[1];
        }
    }
}

/* --- take --- */

static struct zaya *state_of(struct hf *h)
{
    if (h->own == NULL) {
        struct zaya *z = made_alloc(h->m, sizeof(*z));
        for (size_t i = 0; z != NULL && i < countof(tables); i++) {
            z->layers[i] =
                made_alloc(h->m, h->n_layers * sizeof(*z->layers[i]));
            z = z->layers[i] != NULL ? z : NULL;
        }
        h->own = z;
    }
    return h->own;
}

/* The place of a tensor of the whole model; NULL: it is no such one. *ret_dims:
 * axes that it must have. */
static struct piece *global_of(struct zaya *z, const struct hf_place *at,
                               uint32_t *ret_dims)
{
    static const char *const names[] = {"embed_tokens.weight",
                                        "input_hidden_states_bias",
                                        "input_hidden_states_scale"};
    struct piece *const of[] = {&z->embedding, &z->bias, &z->scale};
    for (size_t i = 0; !at->layered && i < countof(names); i++) {
        if (strcmp(at->tail, names[i]) == 0) {
            *ret_dims = i == 0 ? 2 : 1;
            return of[i];
        }
    }
    return NULL;
}

/* The place of a row of a table; *ret NULL: it is none. */
static int row_of(const struct hf *h, struct zaya *z, const char *name,
                  const struct hf_place *at, struct piece **ret, struct err *e)
{
    for (size_t i = 0; at->layered && i < countof(tables); i++) {
        for (uint32_t r = 0; r < tables[i].n; r++) {
            if (strcmp(at->tail, tables[i].rows[r]) != 0) {
                continue;
            }
            if (at->layer >= h->n_layers ||
                (at->layer == 0 && r == tables[i].not_first)) {
                return err_set(e, ERR_CONVERT,
                               "tensor %s has no place in a zaya of %u layers",
                               name, h->n_layers);
            }
            *ret = &z->layers[i][at->layer].pieces[r];
            return 0;
        }
    }
    return 0;
}

/* A name of the first release. */
static bool is_first_form(const char *name)
{
    static const char *const parts[] = {".linear_q.", ".linear_k.",
                                        ".val_proj1.", ".val_proj2.",
                                        ".linear_fc1.", ".linear_fc2.",
                                        ".res_scale.", ".rmsnorm_eda."};
    for (size_t i = 0; i < countof(parts); i++) {
        if (strstr(name, parts[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* Without a head of its own the model has the embedding as it stands. */
static bool is_tied(const struct hf *h)
{
    bool head = false;
    for (size_t i = 0; i < h->n_weights; i++) {
        head = head ||
               safetensors_find(h->weights[i], "lm_head.weight") != NULL;
    }
    return h->tied || !head;
}

int hf_take_zaya(struct hf *h, const struct safetensors_tensor *t,
                 const struct hf_place *at, bool *ret, struct err *e)
{
    struct zaya *z = state_of(h);
    uint32_t n_dims = 1;
    if (z == NULL) {
        return err_set(e, ERR_NOMEM, "%s", t->name);
    }
    if (is_first_form(t->name) && !h->first_form) {
        return err_set(e, ERR_CONVERT,
                       "tensor %s has a name of ZAYA's first release, and "
                       "config.json is of the later form",
                       t->name);
    }
    RETERR(hf_stacks_take(h, &z->experts, &singles, t, at, ret, e));
    if (*ret) {
        return 0;
    }
    struct piece *p = global_of(z, at, &n_dims);
    RETERR(p == NULL ? row_of(h, z, t->name, at, &p, e) : 0);
    *ret = p != NULL;
    if (p == NULL) {
        return 0;
    }
    RETERR(hf_check_type(t, e));
    if (t->n_dims != n_dims) {
        return err_set(e, ERR_CONVERT, "tensor %s has %u dimensions, not %u",
                       t->name, t->n_dims, n_dims);
    }
    if (p->data != NULL) {
        return err_set(e, ERR_CONVERT, "tensor %s is there twice", t->name);
    }
    *p = (struct piece){.type = t->type,
                        .data = t->data,
                        .type_name = t->type_name,
                        .cols = t->dims[n_dims - 1],
                        .rows = n_dims == 2 ? t->dims[0] : 1,
                        .bytes = t->bytes};
    return p == &z->embedding && is_tied(h)
               ? hf_put_tensor(h, t, "output.weight", 0, e)
               : 0;
}

/* --- finish --- */

static int missing(const struct hf *h, uint32_t layer, const char *tail,
                   struct err *e)
{
    return err_set(e, ERR_CONVERT, "tensor model.layers.%u.%s is missing%s",
                   layer, tail,
                   h->first_form ? " (by its name in the later form)" : "");
}

static int put_table(struct hf *h, const struct table *of, uint32_t layer,
                     const struct table_rows *t, struct err *e)
{
    char to[GGUF_NAME_MAX + 1];
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < of->n; r++) {
        const struct piece *p = &t->pieces[r];
        if (p->data == NULL && !(layer == 0 && r == of->not_first)) {
            return missing(h, layer, of->rows[r], e);
        }
        if (p->data != NULL && p->cols != t->pieces[0].cols) {
            return err_set(e, ERR_CONVERT,
                           "tensor model.layers.%u.%s has %llu elements, %s "
                           "%llu",
                           layer, of->rows[r], (unsigned long long)p->cols,
                           of->rows[0], (unsigned long long)t->pieces[0].cols);
        }
        bytes += p->bytes;
    }
    (void)snprintf(to, sizeof(to), "blk.%u.%s", layer, of->to);
    const uint64_t dims[2] = {t->pieces[0].cols, of->n};
    return made_tensor_fn(h->m, to, 2, dims, t->pieces[0].type_name,
                          make_table, t, bytes, e);
}

static int put_embedding(struct hf *h, const struct zaya *z, struct err *e)
{
    const struct piece *p = &z->embedding;
    if (p->data == NULL || z->bias.data == NULL || z->scale.data == NULL) {
        return err_set(e, ERR_CONVERT, "tensor model.%s is missing",
                       p->data == NULL        ? "embed_tokens.weight"
                       : z->bias.data == NULL ? "input_hidden_states_bias"
                                              : "input_hidden_states_scale");
    }
    if (z->bias.cols != p->cols || z->scale.cols != p->cols) {
        return err_set(e, ERR_CONVERT,
                       "tensor model.input_hidden_states_bias or _scale does "
                       "not have the %llu elements of an embedding",
                       (unsigned long long)p->cols);
    }
    const uint64_t dims[2] = {p->cols, p->rows};
    return made_tensor_fn(h->m, "token_embd.weight", 2, dims, p->type_name,
                          make_embedding, z,
                          p->bytes + z->bias.bytes + z->scale.bytes, e);
}

int hf_finish_zaya(struct hf *h, struct err *e)
{
    struct zaya *z = state_of(h);
    if (z == NULL) {
        return err_set(e, ERR_NOMEM, "%s", err_text(ERR_NOMEM));
    }
    RETERR(put_embedding(h, z, e));
    RETERR(hf_stacks_put(h, z->experts, e));
    for (uint32_t l = 0; l < h->n_layers; l++) {
        for (size_t i = 0; i < countof(tables); i++) {
            RETERR(put_table(h, &tables[i], l, &z->layers[i][l], e));
        }
    }
    return 0;
}
