/* stored.c - a constant is known by its name: "layers_I_WHAT_weight", I counted
 * within the package, is what program_*.c calls it.
 */
#include "convert/stored.h"

#include <inttypes.h>
#include <string.h>

#include "base/num.h"
#include "mil/mil.h"

#define BLOB_UNIT  64u /* weight.bin: a record, and its data's alignment */
/* of a layer */
#define CONSTS_MAX \
    ((size_t)3 * SLOT_COUNT + EXTRA_COUNT + (size_t)2 * EXPERT_MATRICES * MODEL_EXPERT_GROUPS)

struct slice {
    struct weight matrix;
    const struct mil_const *norm;
};

struct stored {
    const struct bundle *b;
    size_t n_programs;
    struct mil_program **programs; /* layers, then heads */
    struct layer_weights *layers;  /* n_layers */
    struct slice *slices;          /* n_heads_shards */
};

/* The name of a slot's constant, and another that stands where a norm is the
 * last operation of queries or keys. */
static const struct {
    enum arch_slot slot;
    bool matrix;
    const char *name, *other;
} names[] = {
    {SLOT_Q,           true,  "q_weight",              NULL           },
    {SLOT_K,           true,  "k_weight",              NULL           },
    {SLOT_V,           true,  "v_weight",              NULL           },
    {SLOT_O,           true,  "o_weight",              NULL           },
    {SLOT_CONV_IN,     true,  "conv_in_weight",        NULL           },
    {SLOT_CONV_OUT,    true,  "conv_out_weight",       NULL           },
    {SLOT_CONV,        false, "conv_taps",             NULL           },
    {SLOT_GATE,        true,  "gate_weight",           NULL           },
    {SLOT_UP,          true,  "up_weight",             NULL           },
    {SLOT_DOWN,        true,  "down_weight",           NULL           },
    {SLOT_PLE_PROJ,    true,  "ple_proj_weight",       NULL           },
    {SLOT_PLE_GATE,    true,  "ple_gate_weight",       NULL           },
    {SLOT_PLE_OUT,     true,  "ple_out_weight",        NULL           },
    {SLOT_V_BEFORE,    true,  "value_new_weight",      NULL           },
    {SLOT_MIX,         false, "mix_taps",              NULL           },
    {SLOT_K_SCALE,     false, "k_scale",               NULL           },
    {SLOT_ROUTER_DOWN, true,  "router_down_weight",    NULL           },
    {SLOT_ROUTER_1,    true,  "router_1_weight",       NULL           },
    {SLOT_ROUTER_2,    true,  "router_2_weight",       NULL           },
    {SLOT_ROUTER,      true,  "router_weight",         NULL           },
    {SLOT_ROUTER_SCALE, false, "router_norm_weight",   NULL           },
    {SLOT_ROUTER_BIAS, false, "router_bias",           NULL           },
    {SLOT_EXPERT_SCALE, false, "expert_scale",         NULL           },
    {SLOT_EXPERT_NORM, false, "expert_norm_weight",    NULL           },
    {SLOT_POST_DENSE,  false, "post_dense_norm_weight", NULL          },
    {SLOT_POST_EXPERTS, false, "post_experts_norm_weight", NULL       },
    {SLOT_ATTN_NORM,   false, "attn_norm_weight",      NULL           },
    {SLOT_Q_BIAS,      false, "q_bias",                NULL           },
    {SLOT_K_BIAS,      false, "k_bias",                NULL           },
    {SLOT_V_BIAS,      false, "v_bias",                NULL           },
    {SLOT_O_BIAS,      false, "o_bias",                NULL           },
    {SLOT_Q_NORM,      false, "q_norm_weight",         "q_rope_weight"},
    {SLOT_K_NORM,      false, "k_norm_weight",         "k_new_weight" },
    {SLOT_POST_ATTN,   false, "post_attn_norm_weight", NULL           },
    {SLOT_FFN_NORM,    false, "ffn_norm_weight",       NULL           },
    {SLOT_GATE_BIAS,   false, "gate_bias",             NULL           },
    {SLOT_UP_BIAS,     false, "up_bias",               NULL           },
    {SLOT_DOWN_BIAS,   false, "down_bias",             NULL           },
    {SLOT_POST_FFN,    false, "post_ffn_norm_weight",  NULL           },
    {SLOT_PLE_NORM_IN, false, "ple_proj_norm_weight",  NULL           },
    {SLOT_PLE_NORM,    false, "ple_norm_weight",       NULL           },
};

static const char *const extra_names[EXTRA_COUNT] = {
    [EXTRA_CONV_BIAS] = "conv_bias",
    [EXTRA_MIX_BIAS] = "mix_bias",
    [EXTRA_JOIN_ATTN] = "join_attn_x",
    [EXTRA_JOIN_ATTN + 1] = "join_attn_y",
    [EXTRA_JOIN_ATTN + 2] = "join_attn_c",
    [EXTRA_JOIN_FFN] = "join_ffn_x",
    [EXTRA_JOIN_FFN + 1] = "join_ffn_y",
    [EXTRA_JOIN_FFN + 2] = "join_ffn_c",
    [EXTRA_ROUTER] = "router_down_bias",
    [EXTRA_ROUTER + 1] = "router_before",
    [EXTRA_ROUTER + 2] = "router_net_norm_weight",
    [EXTRA_ROUTER + 3] = "router_1_bias",
    [EXTRA_ROUTER + 4] = "router_2_bias",
};

/* One after the other, all matrices of all groups. */
static const struct weight *experts_at(const struct layer_weights *w, size_t i)
{
    return &w->experts[i / MODEL_EXPERT_GROUPS][i % MODEL_EXPERT_GROUPS];
}

/* --- reading --- */

/* What an operation gives, if it is a weight or a vector of the package. */
static bool constant_of(const struct mil_op *op, struct weight *ret)
{
    *ret = (struct weight){.data = NULL};
    if (strcmp(op->type, "const") == 0) {
        const struct mil_const *c = mil_value_const(op->outputs[0]);
        ret->data = c != NULL && c->blob_file != NULL ? c : NULL;
    } else if (strcmp(op->type, "constexpr_blockwise_shift_scale") == 0) {
        ret->data = mil_op_const(op, "data");
        ret->params = mil_op_const(op, "scale");
    } else if (strcmp(op->type, "constexpr_lut_to_dense") == 0) {
        ret->data = mil_op_const(op, "indices");
        ret->params = mil_op_const(op, "lut");
        ret->palette = true;
    }
    return ret->data != NULL && ret->data->data != NULL;
}

/* "layers_12_q_weight" -> 12, "q_weight". */
static const char *split_name(const char *name, uint32_t *layer)
{
    unsigned n = 0;
    int end = 0;
    if (sscanf(name, "layers_%u_%n", &n, &end) != 1 || end == 0) {
        return NULL;
    }
    *layer = n;
    return name + end;
}

/* The experts' constant of that name; NULL: it is none. */
static struct weight *experts_named(struct layer_weights *to, const char *name)
{
    char text[EXPERT_NAME_MAX];
    for (unsigned k = 0; k < EXPERT_MATRICES; k++) {
        for (uint32_t g = 0; g < MODEL_EXPERT_GROUPS; g++) {
            expert_constant_name((enum expert_matrix)k, g, text);
            if (strcmp(text, name) == 0) {
                return &to->experts[k][g];
            }
        }
    }
    return NULL;
}

static bool keep_constant(struct layer_weights *to, const char *name,
                          const struct weight *w)
{
    for (size_t i = 0; i < countof(names); i++) {
        bool same =
            strcmp(name, names[i].name) == 0 ||
            (names[i].other != NULL && strcmp(name, names[i].other) == 0);
        if (!same || (w->params != NULL && !names[i].matrix) ||
            (names[i].matrix && w->data->type.rank < 2)) {
            continue;
        }
        if (names[i].matrix) {
            to->matrix[names[i].slot] = *w;
        } else {
            to->vector[names[i].slot] = w->data;
        }
        return true;
    }
    for (size_t i = 0; w->params == NULL && i < EXTRA_COUNT; i++) {
        if (strcmp(name, extra_names[i]) == 0) {
            to->extra[i] = w->data;
            return true;
        }
    }
    struct weight *of = experts_named(to, name);
    if (of == NULL || w->data->type.rank < 2) {
        return false;
    }
    *of = *w;
    return true;
}

static int unknown(const char *path, const struct mil_op *op, struct err *e)
{
    return err_set(e, ERR_BUNDLE,
                   "%s: the constant %s is none that aned writes, so its "
                   "package cannot be divided anew; convert the source again",
                   path, op->outputs[0]->name);
}

/* Are there the weights of the layer's last products? */
static bool has_feed_forward(const struct stored *s, uint32_t l)
{
    const struct layer *y = &s->b->layers[l];
    const struct layer_weights *w = &s->layers[l];
    uint32_t each = y->n_experts > 0 ? layer_expert_group(y, s->b->d_model) : 1;
    bool all = y->d_ff == 0 || w->matrix[SLOT_DOWN].data != NULL;
    all = all && (y->n_experts == 0 || w->matrix[SLOT_ROUTER].data != NULL);
    for (uint32_t g = 0; g * each < y->n_experts; g++) {
        for (size_t k = 0; k < EXPERT_MATRICES; k++) {
            all = all && g < MODEL_EXPERT_GROUPS &&
                  w->experts[k][g].data != NULL;
        }
    }
    return all;
}

static int read_layers(struct stored *s, const struct mil_program *p,
                       const struct bundle_shard *from, struct err *e)
{
    const struct mil_block *body = p->functions[p->default_function]->body;
    for (size_t i = 0; i < body->n_ops; i++) {
        struct weight w;
        uint32_t l = 0;
        const struct mil_op *op = body->ops[i];
        if (!constant_of(op, &w)) {
            continue;
        }
        const char *name = split_name(op->outputs[0]->name, &l);
        if (name == NULL || l >= from->last - from->first ||
            !keep_constant(&s->layers[from->first + l], name, &w)) {
            return unknown(from->path, op, e);
        }
    }
    for (uint32_t l = from->first; l < from->last; l++) {
        if (!has_feed_forward(s, l)) {
            return err_set(e, ERR_BUNDLE, "%s: no weights of layer %u",
                           from->path, l);
        }
    }
    return 0;
}

static int read_head(struct slice *s, const struct mil_program *p,
                     const struct bundle_head *from, struct err *e)
{
    const struct mil_block *body = p->functions[p->default_function]->body;
    for (size_t i = 0; i < body->n_ops; i++) {
        struct weight w;
        const struct mil_op *op = body->ops[i];
        if (!constant_of(op, &w)) {
            continue;
        }
        if (strcmp(op->outputs[0]->name, "head_weight") == 0) {
            s->matrix = w;
        } else if (strcmp(op->outputs[0]->name, "layers_0_out_norm_weight") ==
                   0) {
            s->norm = w.data;
        } else {
            return unknown(from->path, op, e);
        }
    }
    uint32_t rows = from->vocab_last - from->vocab_first;
    const struct mil_const *c = s->matrix.data;
    const struct mil_const *k = s->matrix.params;
    bool fits = s->norm != NULL && c != NULL && c->type.rank == 4 &&
                c->type.dims[0] == (int64_t)rows && c->bytes % rows == 0 &&
                (k == NULL || (k->type.rank >= 1 && k->type.dims[0] > 0 &&
                               rows % (uint64_t)k->type.dims[0] == 0));
    return fits ? 0
                : err_set(e, ERR_BUNDLE,
                          "%s: its weights are not %u whole rows and a norm",
                          from->path, rows);
}

/* Of the same type but for the number of rows. */
static bool alike(const struct mil_const *a, const struct mil_const *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }
    struct mil_type type = a->type;
    type.dims[0] = b->type.dims[0];
    return mil_type_equal(&type, &b->type);
}

/* Rows of several slices become one constant, so all have one form. */
static int check_slices(const struct stored *s, struct err *e)
{
    const struct weight *a = &s->slices[0].matrix;
    for (size_t i = 1; i < s->b->n_heads_shards; i++) {
        const struct weight *b = &s->slices[i].matrix;
        if (a->palette != b->palette || !alike(a->data, b->data) ||
            !alike(a->params, b->params)) {
            return err_set(e, ERR_BUNDLE,
                           "%s: its weights have another form "
                           "than those of %s",
                           s->b->heads[i].path, s->b->heads[0].path);
        }
    }
    return 0;
}

static int read_package(struct stored *s, const char *path,
                        struct mil_program **ret, struct err *e)
{
    char full[sizeof(s->b->dir) + 256];
    if (!file_join(full, sizeof(full), s->b->dir, path)) {
        return err_set(e, ERR_BUNDLE, "%s: the path is too long", path);
    }
    RETERR(mil_read(full, ret, e));
    s->programs[s->n_programs++] = *ret;
    return 0;
}

int stored_open(const struct bundle *b, struct stored **ret, struct err *e)
{
    int rc = 0;
    struct mil_program *p = NULL;
    struct stored *s = calloc(1, sizeof(*s));
    must(s != NULL);
    s->b = b;
    s->programs =
        calloc(b->n_shards + b->n_heads_shards, sizeof(struct mil_program *));
    s->layers = calloc(b->n_layers, sizeof(*s->layers));
    s->slices = calloc(b->n_heads_shards, sizeof(*s->slices));
    must(s->programs != NULL && s->layers != NULL && s->slices != NULL);
    for (size_t i = 0; i < b->n_shards; i++) {
        CHECK(read_package(s, b->shards[i].path, &p, e));
        CHECK(read_layers(s, p, &b->shards[i], e));
    }
    for (size_t i = 0; i < b->n_heads_shards; i++) {
        CHECK(read_package(s, b->heads[i].path, &p, e));
        CHECK(read_head(&s->slices[i], p, &b->heads[i], e));
    }
    CHECK(check_slices(s, e));
    *ret = s;
    s = NULL;
out:
    stored_close(s);
    return rc;
}

void stored_close(struct stored *s)
{
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; i < s->n_programs; i++) {
        mil_free(s->programs[i]);
    }
    free(s->programs);
    free(s->layers);
    free(s->slices);
    free(s);
}

/* --- layers --- */

/* A layer's constants, and where each of them goes. */
struct copies {
    size_t n;
    struct copy {
        const struct mil_const *from;
        const struct mil_const **to;
    } of[CONSTS_MAX];
};

static void add_copy(struct copies *c, const struct mil_const *from,
                     const struct mil_const **to)
{
    if (from != NULL) {
        must(c->n < countof(c->of));
        c->of[c->n++] = (struct copy){from, to};
    }
}

static void list_copies(struct copies *c, const struct layer_weights *from,
                        struct layer_weights *to)
{
    c->n = 0;
    for (size_t i = 0; i < SLOT_COUNT; i++) {
        to->matrix[i].palette = from->matrix[i].palette;
        add_copy(c, from->matrix[i].data, &to->matrix[i].data);
        add_copy(c, from->matrix[i].params, &to->matrix[i].params);
        add_copy(c, from->vector[i], &to->vector[i]);
    }
    for (size_t i = 0; i < EXTRA_COUNT; i++) {
        add_copy(c, from->extra[i], &to->extra[i]);
    }
    for (size_t i = 0; i < EXPERT_MATRICES * MODEL_EXPERT_GROUPS; i++) {
        const struct weight *a = experts_at(from, i);
        struct weight *b = &to->experts[i / MODEL_EXPERT_GROUPS]
                                       [i % MODEL_EXPERT_GROUPS];
        b->palette = a->palette;
        add_copy(c, a->data, &b->data);
        add_copy(c, a->params, &b->params);
    }
}

static int by_place(const void *a, const void *b)
{
    const struct copy *x = a;
    const struct copy *y = b;
    uint64_t at = x->from->blob_offset;
    uint64_t other = y->from->blob_offset;
    return at < other ? -1 : at > other;
}

void stored_layer(const struct stored *s, struct mil_writer *w, uint32_t layer,
                  struct layer_weights *ret)
{
    struct copies c;
    list_copies(&c, &s->layers[layer], ret);
    qsort(c.of, c.n, sizeof(c.of[0]), by_place);
    for (size_t i = 0; i < c.n; i++) {
        const struct mil_const *from = c.of[i].from;
        *c.of[i].to = mil_blob(w, &from->type, from->data);
    }
}

/* --- heads --- */

/* Rows that share an entry of the parameters. */
static uint64_t group_of(const struct weight *w)
{
    return w->params == NULL ? 1
                             : (uint64_t)w->data->type.dims[0] /
                                   (uint64_t)w->params->type.dims[0];
}

/* Of slice i, its rows in [first, last). */
struct piece {
    const struct slice *s;
    uint64_t from, n;
};

static bool piece_of(const struct stored *s, size_t i, uint32_t first,
                     uint32_t last, struct piece *ret)
{
    const struct bundle_head *h = &s->b->heads[i];
    uint64_t lo = num_max(first, h->vocab_first);
    uint64_t hi = num_min(last, h->vocab_last);
    *ret = (struct piece){.s = &s->slices[i]};
    ret->from = lo - h->vocab_first;
    ret->n = hi - lo;
    return lo < hi;
}

/* A group cannot be cut, and groups of two sizes are no one constant's; but
 * rows that all have one entry keep it. */
static int check_groups(const struct stored *s, uint32_t first, uint32_t last,
                        bool *one, uint64_t *group, struct err *e)
{
    struct piece p;
    size_t pieces = 0;
    bool cut = false;
    *group = 0;
    for (size_t i = 0; i < s->b->n_heads_shards; i++) {
        if (piece_of(s, i, first, last, &p)) {
            uint64_t g = group_of(&p.s->matrix);
            cut = cut || p.from % g != 0 || p.n % g != 0 ||
                  (*group != 0 && *group != g);
            *one = p.s->matrix.params != NULL &&
                   p.s->matrix.params->type.dims[0] == 1;
            *group = g;
            pieces++;
        }
    }
    *one = *one && pieces == 1;
    return *one || !cut
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         "rows %u to %u of the head have scales or palettes "
                         "of their own slices, and the new slice needs one "
                         "of its own; convert the source again",
                         first, last - 1);
}

/* Entries [from, from + n) of the first axis of c. */
static void put_entries(struct mil_writer *w, const struct mil_const *c,
                        uint64_t from, uint64_t n)
{
    uint64_t each = c->bytes / (uint64_t)c->type.dims[0];
    mil_blob_put(w, (const uint8_t *)c->data + from * each, (size_t)(n * each));
}

static const struct mil_const *join(const struct stored *s,
                                    struct mil_writer *w, uint32_t first,
                                    uint32_t last, bool params, uint64_t group)
{
    struct piece p;
    size_t i = 0;
    while (!piece_of(s, i, first, last, &p)) {
        i++;
    }
    const struct mil_const *c = params ? p.s->matrix.params : p.s->matrix.data;
    struct mil_type type = c->type;
    type.dims[0] = (int64_t)((last - first) / group);
    mil_blob_begin(w, &type);
    for (; i < s->b->n_heads_shards && piece_of(s, i, first, last, &p); i++) {
        c = params ? p.s->matrix.params : p.s->matrix.data;
        put_entries(w, c, p.from / group, p.n / group);
    }
    return mil_blob_end(w);
}

int stored_head(const struct stored *s, struct mil_writer *w, uint32_t first,
                uint32_t last, struct weight *ret,
                const struct mil_const **norm, struct err *e)
{
    bool one = false;
    uint64_t group = 1;
    RETERR(check_groups(s, first, last, &one, &group, e));
    const struct mil_const *n = s->slices[0].norm;
    const struct weight *like = &s->slices[0].matrix;
    *norm = mil_blob(w, &n->type, n->data);
    *ret = (struct weight){.palette = like->palette};
    ret->data = join(s, w, first, last, false, 1);
    if (like->params != NULL && one) {
        struct piece p = {.s = NULL};
        for (size_t i = 0; !piece_of(s, i, first, last, &p);) {
            i++;
        }
        const struct mil_const *c = p.s->matrix.params;
        ret->params = mil_blob(w, &c->type, c->data);
    } else if (like->params != NULL) {
        ret->params = join(s, w, first, last, true, group);
    }
    return 0;
}

/* --- sizes --- */

static uint64_t blob(const struct mil_const *c)
{
    return c == NULL
               ? 0
               : BLOB_UNIT + (c->bytes + BLOB_UNIT - 1) / BLOB_UNIT * BLOB_UNIT;
}

static void measure_matrix(const struct weight *w, struct plan_layer *ret)
{
    const struct mil_const *c = w->data;
    if (c != NULL) {
        uint64_t rows = (uint64_t)c->type.dims[0];
        uint64_t cols = (uint64_t)c->type.dims[1];
        ret->bytes += blob(c) + blob(w->params);
        ret->elements += rows * cols;
        ret->channels =
            (uint32_t)num_max(ret->channels, num_max(rows, cols));
    }
}

static void measure_layer(const struct stored *s, uint32_t l,
                          struct plan_layer *ret)
{
    const struct layer_weights *w = &s->layers[l];
    for (size_t i = 0; i < SLOT_COUNT; i++) {
        measure_matrix(&w->matrix[i], ret);
        ret->bytes += blob(w->vector[i]);
    }
    for (size_t i = 0; i < EXTRA_COUNT; i++) {
        ret->bytes += blob(w->extra[i]);
    }
    for (size_t i = 0; i < EXPERT_MATRICES * MODEL_EXPERT_GROUPS; i++) {
        measure_matrix(experts_at(w, i), ret);
    }
}

void stored_measure(const struct stored *s, struct plan_input *in)
{
    uint64_t rows = 0;
    in->n_layers = s->b->n_layers;
    in->vocab = s->b->vocab;
    in->layers = calloc(in->n_layers, sizeof(*in->layers));
    must(in->layers != NULL);
    for (uint32_t l = 0; l < in->n_layers; l++) {
        measure_layer(s, l, &in->layers[l]);
    }
    for (size_t i = 0; i < s->b->n_heads_shards; i++) {
        const struct weight *w = &s->slices[i].matrix;
        rows += w->data->bytes + (w->params != NULL ? w->params->bytes : 0);
    }
    in->row_elements = s->b->d_model;
    in->row_bytes = (rows + in->vocab - 1) / in->vocab;
    in->head_bytes = blob(s->slices[0].norm) + (uint64_t)4 * BLOB_UNIT;
}

/* --- comparing --- */

static void hash_const(struct sha256 *h, const struct mil_const *c)
{
    char line[128];
    if (c == NULL) {
        return;
    }
    int n =
        snprintf(line, sizeof(line), "%d %d", (int)c->type.dtype, c->type.rank);
    for (int i = 0; i < c->type.rank; i++) {
        n += snprintf(line + n, sizeof(line) - (size_t)n, " %" PRId64,
                      c->type.dims[i]);
    }
    sha256_add(h, line, (size_t)n);
    sha256_add(h, c->data, (size_t)c->bytes);
}

/* An axis of rows is cut in another place by another division: of the heads,
 * bytes alone count. An entry that slices have in common counts once. */
static void hash_heads(struct sha256 *h, const struct stored *s)
{
    const struct mil_const *last = NULL;
    hash_const(h, s->slices[0].norm);
    for (size_t i = 0; i < s->b->n_heads_shards; i++) {
        const struct mil_const *c = s->slices[i].matrix.data;
        sha256_add(h, c->data, (size_t)c->bytes);
    }
    for (size_t i = 0; i < s->b->n_heads_shards; i++) {
        const struct mil_const *c = s->slices[i].matrix.params;
        bool again = c != NULL && last != NULL && c->type.dims[0] == 1 &&
                     last->bytes == c->bytes &&
                     memcmp(last->data, c->data, (size_t)c->bytes) == 0;
        if (c != NULL && !again) {
            sha256_add(h, c->data, (size_t)c->bytes);
        }
        last = c;
    }
}

void stored_hash(const struct stored *s, char out[SHA256_HEX])
{
    struct sha256 h;
    uint8_t digest[SHA256_BYTES];
    sha256_init(&h);
    for (uint32_t l = 0; l < s->b->n_layers; l++) {
        const struct layer_weights *w = &s->layers[l];
        for (size_t i = 0; i < SLOT_COUNT; i++) {
            hash_const(&h, w->matrix[i].data);
            hash_const(&h, w->matrix[i].params);
            hash_const(&h, w->vector[i]);
        }
        for (size_t i = 0; i < EXTRA_COUNT; i++) {
            hash_const(&h, w->extra[i]);
        }
        for (size_t i = 0; i < EXPERT_MATRICES * MODEL_EXPERT_GROUPS; i++) {
            hash_const(&h, experts_at(w, i)->data);
            hash_const(&h, experts_at(w, i)->params);
        }
    }
    hash_heads(&h, s);
    sha256_end(&h, digest);
    sha256_hex(digest, out);
}
