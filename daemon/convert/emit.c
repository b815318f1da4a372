/* emit.c - a package: its weights streamed first, then its program, so that
 * functions share them (program.c draws the graphs).
 *
 * What is folded where: alpha and the residual's scale into the post norms'
 * weights, the score scale into the q norm's, the logits' scale into the final
 * norm's, the norm form's gain into every norm's weight. Nothing is folded into
 * a quantised matrix: its scales would become subnormal.
 */
#include "convert/emit.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "convert/program.h"
#include "convert/stored.h"

/* --- weights --- */

/* Which part of a layer is put: a sparse one stands in two programs. */
struct piece {
    uint32_t l;
    bool whole, behind; /* behind: what comes after the experts; else before */
};

static struct piece piece_of(const struct decoder *d, uint32_t l, bool behind)
{
    return (struct piece){
        .l = l, .whole = !d->layers[l].sparse, .behind = behind};
}

static bool piece_has(const struct emit *m, struct piece p, enum arch_slot slot)
{
    return p.whole || program_behind(&m->d->layers[p.l], slot) == p.behind;
}

/* A vector's form in the package, and what is folded into it. */
struct vector_form {
    enum arch_slot slot;
    enum weights_shape shape;
    float factor;
    bool norm; /* the weight of a norm */
    bool rope; /* permuted as the heads are */
};

static int put_vector(const struct emit *m, struct mil_writer *w, uint32_t l,
                      const struct vector_form *f, struct layer_weights *r,
                      struct err *e)
{
    const struct part *p = arch_part(m->d, l, f->slot);
    struct head_rows perm;
    bool permutes = arch_permutes(m->d, l, &perm) && f->rope;
    return p->t == NULL
               ? 0
               : weights_vector(w, p, f->shape, f->factor,
                                f->norm && m->d->layers[l].gain_plus_one,
                                permutes ? &perm : NULL, &r->vector[f->slot],
                                e);
}

/* What affine_join multiplies and adds, of one block: the stream's factor d, the
 * block's b and b * a + c * d, the last two in the scaled stream. */
static int put_join(const struct emit *m, struct mil_writer *w, uint32_t l,
                    enum arch_slot slot, const struct mil_const **ret,
                    struct err *e)
{
    const struct part *p = arch_part(m->d, l, slot);
    size_t n = m->d->d_model;
    float *v = malloc(7 * n * sizeof(*v)); /* a, b, c, d, and the three */
    if (v == NULL) {
        return err_set(e, ERR_NOMEM, "%s: no memory", p->t->name);
    }
    int rc = mil_writer_keeps(w) ? 0 : gguf_rows(p->t, p->first, 4, v, e);
    for (size_t i = 0; rc == 0 && !mil_writer_keeps(w) && i < n; i++) {
        float added = v[i] * v[n + i] + v[2 * n + i] * v[3 * n + i];
        v[4 * n + i] = v[3 * n + i];
        v[5 * n + i] = v[n + i] * m->alpha;
        v[6 * n + i] = added * m->alpha;
    }
    for (size_t i = 0; rc == 0 && i < 3; i++) {
        rc = weights_floats(w, p->t->name, WEIGHTS_CHANNEL, v + (4 + i) * n, n,
                            &ret[i], e);
    }
    free(v);
    return rc;
}

/* Rows of tables, as they are. */
static int put_rows(const struct emit *m, struct mil_writer *w, uint32_t l,
                    enum arch_slot slot, enum weights_shape shape,
                    const struct mil_const **ret, struct err *e)
{
    for (uint32_t i = 0; i < arch_part(m->d, l, slot)->rows; i++) {
        const struct part p = arch_table_row(m->d, l, slot, i);
        RETERR(weights_vector(w, &p, shape, 1, false, NULL, &ret[i], e));
    }
    return 0;
}

static int put_cca(const struct emit *m, struct mil_writer *w, uint32_t l,
                   struct layer_weights *r, struct err *e)
{
    RETERR(weights_taps(w, arch_part(m->d, l, SLOT_CONV), 1,
                        &r->vector[SLOT_CONV], e));
    RETERR(weights_taps(w, arch_part(m->d, l, SLOT_MIX), m->d->layers[l].d_head,
                        &r->vector[SLOT_MIX], e));
    return put_rows(m, w, l, SLOT_MIX_BIAS, WEIGHTS_BIAS,
                    &r->extra[EXTRA_CONV_BIAS], e);
}

/* Router networks: the norm's weight has the form's gain. */
static int put_network(const struct emit *m, struct mil_writer *w, uint32_t l,
                       struct layer_weights *r, struct err *e)
{
    enum { NORM = 2 }; /* of the table's rows; arch.h */
    uint32_t n = m->d->layers[l].d_router;
    for (uint32_t i = 0; i < arch_part(m->d, l, SLOT_ROUTER_VECTORS)->rows;
         i++) {
        const struct part p = arch_table_row(m->d, l, SLOT_ROUTER_VECTORS, i);
        float gain = i == NORM ? norm_gain(m->norm, n) : 1;
        RETERR(weights_vector(w, &p, WEIGHTS_CHANNEL, gain, false, NULL,
                              &r->extra[EXTRA_ROUTER + i], e));
    }
    return 0;
}

static int put_extras(const struct emit *m, struct mil_writer *w,
                      struct piece p, struct layer_weights *r, struct err *e)
{
    uint32_t l = p.l;
    const struct layer *y = &m->d->layers[l];
    if (y->mixer == MIXER_CONV && piece_has(m, p, SLOT_CONV)) {
        RETERR(weights_taps(w, arch_part(m->d, l, SLOT_CONV), 1,
                            &r->vector[SLOT_CONV], e));
    }
    if (y->mixer == MIXER_CCA && piece_has(m, p, SLOT_CONV)) {
        RETERR(put_cca(m, w, l, r, e));
    }
    if (y->router == ROUTER_NETWORK && piece_has(m, p, SLOT_ROUTER_VECTORS)) {
        RETERR(put_network(m, w, l, r, e));
    }
    if (y->affine_join && piece_has(m, p, SLOT_JOIN_ATTN)) {
        RETERR(put_join(m, w, l, SLOT_JOIN_ATTN, &r->extra[EXTRA_JOIN_ATTN],
                        e));
    }
    if (y->affine_join && piece_has(m, p, SLOT_JOIN_FFN)) {
        RETERR(put_join(m, w, l, SLOT_JOIN_FFN, &r->extra[EXTRA_JOIN_FFN], e));
    }
    return 0;
}

/* What an encoder's first layer does with the embeddings. */
static int put_embedding(const struct emit *m, struct mil_writer *w,
                         struct layer_weights *r, struct err *e)
{
    const struct vector_form forms[] = {
        {SLOT_EMBD_NORM, WEIGHTS_CHANNEL,
         norm_gain(m->norm, m->d->d_model) * m->alpha, false, false},
        {SLOT_EMBD_NORM_BIAS, WEIGHTS_CHANNEL, m->alpha, false, false},
    };
    if (m->d->global[SLOT_TYPES].t != NULL) {
        const struct part p = arch_table_row(m->d, 0, SLOT_TYPES, 0);
        RETERR(weights_vector(w, &p, WEIGHTS_CHANNEL, m->alpha, false, NULL,
                              &r->vector[SLOT_TYPES], e));
    }
    for (size_t i = 0; i < countof(forms); i++) {
        RETERR(put_vector(m, w, 0, &forms[i], r, e));
    }
    return 0;
}

static int put_vectors(const struct emit *m, struct mil_writer *w,
                       struct piece p, struct layer_weights *r, struct err *e)
{
    uint32_t l = p.l;
    const struct layer *y = &m->d->layers[l];
    bool full = y->qk_norm == QK_NORM_FULL;
    enum weights_shape qk = full ? WEIGHTS_CHANNEL : WEIGHTS_LAST;
    float gain = norm_gain(m->norm, m->d->d_model);
    float q_gain =
        norm_gain(m->norm, full ? y->n_heads * y->d_head : y->d_head);
    float k_gain = norm_gain(m->norm, full ? y->n_kv * y->d_head : y->d_head);
    float post = gain * m->alpha * y->residual_scale;
    const struct vector_form forms[] = {
        {SLOT_ATTN_NORM, WEIGHTS_CHANNEL, gain,                            true,  false},
        {SLOT_Q_BIAS,    WEIGHTS_BIAS,    1,                               false, true },
        {SLOT_K_BIAS,    WEIGHTS_BIAS,    1,                               false, true },
        {SLOT_V_BIAS,    WEIGHTS_BIAS,    1,                               false, false},
        {SLOT_O_BIAS,    WEIGHTS_BIAS,    1,                               false, false},
        {SLOT_Q_NORM,    qk,              q_gain * program_query_scale(y), true,  true },
        {SLOT_K_NORM,    qk,              k_gain,                          true,  true },
        {SLOT_SINKS,     WEIGHTS_CHANNEL, 1,                               false, false},
        {SLOT_POST_ATTN, WEIGHTS_CHANNEL, post,                            true,  false},
        {SLOT_FFN_NORM,  WEIGHTS_CHANNEL, gain,                            true,  false},
        {SLOT_GATE_BIAS, WEIGHTS_BIAS,    1,                               false, false},
        {SLOT_UP_BIAS,   WEIGHTS_BIAS,    1,                               false, false},
        {SLOT_DOWN_BIAS, WEIGHTS_BIAS,    1,                               false, false},
        {SLOT_POST_FFN,  WEIGHTS_CHANNEL, post,                            true,  false},
        {SLOT_PLE_NORM,  WEIGHTS_CHANNEL, gain * m->alpha,                 true,  false},
        {SLOT_POST_ATTN_BIAS, WEIGHTS_CHANNEL, m->alpha, false, false},
        {SLOT_POST_FFN_BIAS, WEIGHTS_CHANNEL, m->alpha, false, false},
        {SLOT_ROUTER_SCALE, WEIGHTS_CHANNEL, gain / sqrtf((float)m->d->d_model), false, false},
        {SLOT_K_SCALE, WEIGHTS_CHANNEL, 1, false, false},
        {SLOT_ROUTER_BIAS, WEIGHTS_CHANNEL, 1, false, false},
        {SLOT_ROUTER_ADD, WEIGHTS_BIAS, 1, false, false},
        {SLOT_EXPERT_SCALE, WEIGHTS_CHANNEL, 1, false, false},
        {SLOT_EXPERT_NORM, WEIGHTS_CHANNEL, gain, true, false},
        {SLOT_POST_DENSE, WEIGHTS_CHANNEL, gain, true, false},
        {SLOT_POST_EXPERTS, WEIGHTS_CHANNEL, gain, true, false},
    };
    for (size_t i = 0; i < countof(forms); i++) {
        if (piece_has(m, p, forms[i].slot)) {
            RETERR(put_vector(m, w, l, &forms[i], r, e));
        }
    }
    RETERR(put_extras(m, w, p, r, e));
    if (l == 0 && piece_has(m, p, SLOT_EMBD_NORM)) {
        RETERR(put_embedding(m, w, r, e));
    }
    if (y->d_ple > 0 && piece_has(m, p, SLOT_PLE_NORM_IN)) { /* the division by sqrt(2) stands in it */
        const struct vector_form in = {
            SLOT_PLE_NORM_IN, WEIGHTS_CHANNEL,
            norm_gain(m->norm, y->d_ple) * (float)M_SQRT1_2, true, false};
        RETERR(put_vector(m, w, l, &in, r, e));
    }
    return 0;
}

static int put_layer(const struct emit *m, struct mil_writer *w,
                     struct piece at, struct layer_weights *r, struct err *e)
{
    uint32_t l = at.l;
    static const enum arch_slot matrices[] = {
        SLOT_Q,        SLOT_K,        SLOT_V,        SLOT_O,
        SLOT_CONV_IN,  SLOT_CONV_OUT, SLOT_GATE,     SLOT_UP,
        SLOT_DOWN,     SLOT_PLE_PROJ, SLOT_PLE_GATE, SLOT_PLE_OUT,
        SLOT_V_BEFORE, SLOT_ROUTER_DOWN, SLOT_ROUTER_1, SLOT_ROUTER_2,
        SLOT_ROUTER};
    struct head_rows perm;
    bool permutes = arch_permutes(m->d, l, &perm);
    RETERR(put_vectors(m, w, at, r, e));
    for (size_t i = 0; i < countof(matrices); i++) {
        enum arch_slot s = matrices[i];
        const struct part *p = arch_part(m->d, l, s);
        bool rope = permutes && (s == SLOT_Q || s == SLOT_K);
        if (p->t != NULL && piece_has(m, at, s)) {
            RETERR(weights_matrix(&m->weights, w, p, 0, p->rows,
                                  rope ? &perm : NULL, &r->matrix[s], e));
        }
    }
    return experts_put(m, w, l, r, e);
}

/* --- packages --- */

/* What one package is made of. */
enum pack_kind { PACK_LAYERS, PACK_EXPERTS, PACK_HEAD };

struct pack {
    struct emit *m;
    const char *name;
    enum pack_kind kind;
    uint32_t first, last; /* layers, experts or rows of the vocabulary */
    uint32_t layer;       /* of PACK_EXPERTS */
    /* PACK_LAYERS; the first has what comes behind the experts of the layer
     * before, where that is sparse. */
    struct layer_weights *lw;
    struct weight (*experts)[EXPERT_MATRICES]; /* PACK_EXPERTS */
    struct weight matrix; /* of a head */
    const struct mil_const *norm;
    const struct mil_const *bias; /* of labels; NULL: none */
};

static void put_meta(const struct emit *m, struct mil_program *p)
{
    mil_add_meta(p, "dev.aned.version", ANED_VERSION);
    mil_add_meta(p, "dev.aned.architecture", m->architecture);
    mil_add_meta(p, "dev.aned.quant", m->quant);
}

void emit_weight_file(const char *name, char out[WORK_PATH_MAX])
{
    int n = snprintf(out, WORK_PATH_MAX,
                     "%s/Data/com.apple.CoreML/weights/weight.bin", name);
    must(n > 0 && n < (int)WORK_PATH_MAX);
}

/* What was put so far is synced and on record. */
static int mark(const struct pack *k, struct mil_writer *w, struct err *e)
{
    struct mil_kept now;
    char file[WORK_PATH_MAX];
    if (k->m->work == NULL || mil_writer_blobs(w) == 0) {
        return 0; /* a join may have no weight at all */
    }
    RETERR(mil_writer_mark(w, &now, e));
    emit_weight_file(k->name, file);
    const struct work_record *r = work_find(k->m->work, file);
    if (r != NULL && r->bytes == now.bytes) {
        return 0; /* all of it was kept */
    }
    return work_put(k->m->work, file, now.bytes, now.sha256, e);
}

/* After a layer: a mark where enough would be lost without. */
static int maybe_mark(const struct pack *k, struct mil_writer *w, bool dry,
                      struct err *e)
{
    struct emit *m = k->m;
    if (dry || m->work == NULL || mil_writer_keeps(w) ||
        m->now_ms() - m->marked_ms < WORK_MARK_MS) {
        return 0;
    }
    RETERR(mark(k, w, e));
    m->marked_ms = m->now_ms();
    return 0;
}

/* It begins behind the experts of a sparse layer. */
static bool pack_joins(const struct pack *k)
{
    return k->first > 0 && k->m->d->layers[k->first - 1].sparse;
}

static int put_layers(struct pack *k, struct mil_writer *w, bool dry,
                      struct err *e)
{
    const struct stored *from = k->m->from;
    if (pack_joins(k)) {
        RETERR(put_layer(k->m, w, piece_of(k->m->d, k->first - 1, true),
                         &k->lw[0], e));
    }
    for (uint32_t l = k->first; l < k->last; l++) {
        struct layer_weights *r = &k->lw[1 + l - k->first];
        if (from != NULL) {
            stored_layer(from, w, l, r);
        } else {
            RETERR(put_layer(k->m, w, piece_of(k->m->d, l, false), r, e));
        }
        RETERR(maybe_mark(k, w, dry, e));
    }
    return 0;
}

static int put_experts(struct pack *k, struct mil_writer *w, bool dry,
                       struct err *e)
{
    for (uint32_t x = k->first; x < k->last; x++) {
        RETERR(expert_put(k->m, w, k->layer, x, k->experts[x - k->first], e));
        RETERR(maybe_mark(k, w, dry, e));
    }
    return 0;
}

static int put_head(struct pack *k, struct mil_writer *w, struct err *e)
{
    struct emit *m = k->m;
    const struct decoder *d = m->d;
    if (m->from != NULL) {
        return stored_head(m->from, w, k->first, k->last, &k->matrix, &k->norm,
                           e);
    }
    RETERR(weights_vector(w, &d->global[SLOT_OUT_NORM], WEIGHTS_CHANNEL,
                          norm_gain(m->norm, d->d_model) * program_head_gain(d),
                          d->layers[0].gain_plus_one, NULL, &k->norm, e));
    if (d->global[SLOT_OUT_BIAS].t != NULL) { /* labels are one slice */
        RETERR(weights_vector(w, &d->global[SLOT_OUT_BIAS], WEIGHTS_BIAS, 1,
                              false, NULL, &k->bias, e));
    }
    return weights_matrix(&m->weights, w, arch_head(d), k->first,
                          k->last - k->first, NULL, &k->matrix, e);
}

static int put_weights(struct pack *k, struct mil_writer *w, bool dry,
                       struct err *e)
{
    return k->kind == PACK_HEAD      ? put_head(k, w, e)
           : k->kind == PACK_EXPERTS ? put_experts(k, w, dry, e)
                                     : put_layers(k, w, dry, e);
}

/* The functions for t rows, 0: any number of them. */
static void put_functions(const struct pack *k, struct mil_program *p,
                          uint32_t t)
{
    char name[SHAPE_NAME_MAX] = "main";
    int64_t rows = t > 0 ? (int64_t)t : MIL_UNKNOWN;
    if (t > 0) {
        shape_name(t, name);
    }
    if (k->kind == PACK_HEAD) {
        const struct program_head h = {&k->matrix, k->norm, k->bias};
        program_head(k->m, p, name, rows, &h);
    } else if (k->kind == PACK_LAYERS) {
        program_layers(k->m, p, name, rows, k->first, k->last,
                       pack_joins(k) ? &k->lw[0] : NULL, &k->lw[1]);
    }
    for (uint32_t x = k->first; k->kind == PACK_EXPERTS && x < k->last; x++) {
        char of[EXPERT_FUNCTION_MAX];
        program_expert_name(x, t, of);
        program_expert(k->m, p, of, rows, k->layer, k->experts[x - k->first]);
    }
}

static void put_program(const struct pack *k, struct mil_program *p)
{
    const struct emit *m = k->m;
    struct program_shape s = m->shape;
    if (k->kind == PACK_HEAD) {
        shape_of_heads(&m->shape, &s);
    }
    for (uint32_t i = 0; i < s.n; i++) {
        put_functions(k, p, s.t[i]);
    }
    if (s.n == 0) {
        put_functions(k, p, 0);
    }
    put_meta(m, p);
}

/* How many blobs it has: made once without data. */
static int count_blobs(struct pack *k, uint32_t *ret, struct err *e)
{
    struct mil_writer *w = mil_writer_dry();
    int rc = put_weights(k, w, true, e);
    *ret = mil_writer_blobs(w);
    mil_writer_abort(w);
    return rc;
}

static int open_package(struct pack *k, struct mil_writer **ret, struct err *e)
{
    char file[WORK_PATH_MAX];
    char dir[WORK_ROOM];
    struct mil_kept kept = {0};
    uint32_t n = 0;
    struct work *work = k->m->work;
    if (!file_join(dir, sizeof(dir), k->m->dir, k->name)) {
        return err_set(e, ERR_INVALID, "the path of the bundle is too long");
    }
    if (work == NULL) {
        return mil_writer_open(dir, ret, e);
    }
    emit_weight_file(k->name, file);
    const struct work_record *r = work_find(work, file);
    if (r != NULL) {
        kept.bytes = r->bytes;
        memcpy(kept.sha256, r->sha256, SHA256_HEX);
    }
    RETERR(count_blobs(k, &n, e));
    return mil_writer_resume(dir, r != NULL ? &kept : NULL, n, ret, e);
}

static int write_package(struct pack *k, uint64_t *ret_bytes, struct err *e)
{
    struct mil_writer *w = NULL;
    int rc = open_package(k, &w, e);
    if (rc < 0) {
        return rc;
    }
    rc = put_weights(k, w, false, e);
    rc = rc < 0 ? rc : mark(k, w, e);
    if (rc < 0) {
        mil_writer_abort(w);
        return rc;
    }
    put_program(k, mil_writer_program(w));
    if (k->m->work != NULL) {
        k->m->marked_ms = k->m->now_ms();
    }
    uint64_t bytes = mil_writer_weight_bytes(w);
    rc = mil_writer_finish(w, e);
    if (rc == 0) {
        *ret_bytes = bytes;
    }
    return rc;
}

/* A package of layers has room for their weights. */
static struct pack pack_layers(struct emit *m, const char *name, uint32_t first,
                               uint32_t last)
{
    struct pack k = {.m = m, .name = name, .first = first, .last = last};
    must(first <= last && last <= m->d->n_layers);
    must(first < last || pack_joins(&k));
    k.lw = calloc(1 + last - first, sizeof(*k.lw));
    must(k.lw != NULL);
    return k;
}

static struct pack pack_experts(struct emit *m, const char *name,
                                uint32_t layer, uint32_t first, uint32_t last)
{
    must(layer < m->d->n_layers && first < last &&
         last <= m->d->layers[layer].n_experts);
    struct pack k = {.m = m,
                     .name = name,
                     .kind = PACK_EXPERTS,
                     .layer = layer,
                     .first = first,
                     .last = last};
    k.experts = calloc(last - first, sizeof(*k.experts));
    must(k.experts != NULL);
    return k;
}

static struct pack pack_head(struct emit *m, const char *name, uint32_t first,
                             uint32_t last)
{
    must(first < last && last <= arch_head_rows(m->d));
    return (struct pack){.m = m,
                         .name = name,
                         .kind = PACK_HEAD,
                         .first = first,
                         .last = last};
}

int emit_layers(struct emit *m, const char *name, uint32_t first, uint32_t last,
                uint64_t *ret_weight_bytes, struct err *e)
{
    struct pack k = pack_layers(m, name, first, last);
    int rc = write_package(&k, ret_weight_bytes, e);
    free(k.lw);
    return rc;
}

int emit_experts(struct emit *m, const char *name, uint32_t layer,
                 uint32_t first, uint32_t last, uint64_t *ret_weight_bytes,
                 struct err *e)
{
    struct pack k = pack_experts(m, name, layer, first, last);
    int rc = write_package(&k, ret_weight_bytes, e);
    free(k.experts);
    return rc;
}

int emit_head(struct emit *m, const char *name, uint32_t first, uint32_t last,
              uint64_t *ret_weight_bytes, struct err *e)
{
    struct pack k = pack_head(m, name, first, last);
    return write_package(&k, ret_weight_bytes, e);
}

/* --- sketches --- */

/* The source's weights are not read: there is no error that it could meet. */
static struct mil_writer *sketch(struct pack *k)
{
    struct mil_writer *w = mil_writer_dry();
    must(k->m->from == NULL && put_weights(k, w, true, NULL) == 0);
    put_program(k, mil_writer_program(w));
    return w;
}

struct mil_writer *emit_sketch_layers(struct emit *m, uint32_t first,
                                      uint32_t last)
{
    struct pack k = pack_layers(m, NULL, first, last);
    struct mil_writer *w = sketch(&k);
    free(k.lw);
    return w;
}

struct mil_writer *emit_sketch_experts(struct emit *m, uint32_t layer,
                                       uint32_t first, uint32_t last)
{
    struct pack k = pack_experts(m, NULL, layer, first, last);
    struct mil_writer *w = sketch(&k);
    free(k.experts);
    return w;
}

struct mil_writer *emit_sketch_head(struct emit *m, uint32_t first,
                                    uint32_t last)
{
    struct pack k = pack_head(m, NULL, first, last);
    return sketch(&k);
}
