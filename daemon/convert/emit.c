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

#include "convert/program.h"
#include "convert/stored.h"

/* --- weights --- */

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

static int put_vectors(const struct emit *m, struct mil_writer *w, uint32_t l,
                       struct layer_weights *r, struct err *e)
{
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
        {SLOT_POST_ATTN, WEIGHTS_CHANNEL, post,                            true,  false},
        {SLOT_FFN_NORM,  WEIGHTS_CHANNEL, gain,                            true,  false},
        {SLOT_GATE_BIAS, WEIGHTS_BIAS,    1,                               false, false},
        {SLOT_UP_BIAS,   WEIGHTS_BIAS,    1,                               false, false},
        {SLOT_DOWN_BIAS, WEIGHTS_BIAS,    1,                               false, false},
        {SLOT_POST_FFN,  WEIGHTS_CHANNEL, post,                            true,  false},
        {SLOT_PLE_NORM,  WEIGHTS_CHANNEL, gain * m->alpha,                 true,  false},
    };
    for (size_t i = 0; i < countof(forms); i++) {
        RETERR(put_vector(m, w, l, &forms[i], r, e));
    }
    if (y->d_ple > 0) { /* the division by sqrt(2) stands in it */
        const struct vector_form in = {
            SLOT_PLE_NORM_IN, WEIGHTS_CHANNEL,
            norm_gain(m->norm, y->d_ple) * (float)M_SQRT1_2, true, false};
        RETERR(put_vector(m, w, l, &in, r, e));
    }
    return 0;
}

static int put_layer(const struct emit *m, struct mil_writer *w, uint32_t l,
                     struct layer_weights *r, struct err *e)
{
    static const enum arch_slot matrices[] = {
        SLOT_Q,  SLOT_K,    SLOT_V,        SLOT_O,        SLOT_GATE,
        SLOT_UP, SLOT_DOWN, SLOT_PLE_PROJ, SLOT_PLE_GATE, SLOT_PLE_OUT};
    struct head_rows perm;
    bool permutes = arch_permutes(m->d, l, &perm);
    RETERR(put_vectors(m, w, l, r, e));
    for (size_t i = 0; i < countof(matrices); i++) {
        enum arch_slot s = matrices[i];
        const struct part *p = arch_part(m->d, l, s);
        bool rope = permutes && (s == SLOT_Q || s == SLOT_K);
        if (p->t != NULL) {
            RETERR(weights_matrix(&m->weights, w, p, 0, p->rows,
                                  rope ? &perm : NULL, &r->matrix[s], e));
        }
    }
    return 0;
}

/* --- packages --- */

static void put_meta(const struct emit *m, struct mil_program *p)
{
    mil_add_meta(p, "dev.aned.version", ANED_VERSION);
    mil_add_meta(p, "dev.aned.architecture", m->architecture);
    mil_add_meta(p, "dev.aned.quant", m->quant);
}

static int layers_package(const struct emit *m, struct mil_writer *w,
                          uint32_t first, uint32_t last,
                          struct layer_weights *lw, struct err *e)
{
    char name[SHAPE_NAME_MAX];
    struct mil_program *p = mil_writer_program(w);
    for (uint32_t l = first; l < last && m->from != NULL; l++) {
        stored_layer(m->from, w, l, &lw[l - first]);
    }
    for (uint32_t l = first; l < last && m->from == NULL; l++) {
        RETERR(put_layer(m, w, l, &lw[l - first], e));
    }
    for (uint32_t i = 0; i < m->shape.n; i++) {
        shape_name(m->shape.t[i], name);
        program_layers(m, p, name, m->shape.t[i], first, last, lw);
    }
    if (m->shape.n == 0) {
        program_layers(m, p, "main", MIL_UNKNOWN, first, last, lw);
    }
    put_meta(m, p);
    return 0;
}

static void draw_heads(const struct emit *m, struct mil_program *p,
                       const struct weight *head, const struct mil_const *norm)
{
    char name[SHAPE_NAME_MAX];
    struct program_shape s = {0};
    shape_of_heads(&m->shape, &s);
    for (uint32_t i = 0; i < s.n; i++) {
        shape_name(s.t[i], name);
        program_head(m, p, name, s.t[i], head, norm);
    }
    if (s.n == 0) {
        program_head(m, p, "main", MIL_UNKNOWN, head, norm);
    }
}

static int put_head(const struct emit *m, struct mil_writer *w, uint32_t first,
                    uint32_t last, struct weight *ret,
                    const struct mil_const **norm, struct err *e)
{
    const struct decoder *d = m->d;
    RETERR(weights_vector(w, &d->global[SLOT_OUT_NORM], WEIGHTS_CHANNEL,
                          norm_gain(m->norm, d->d_model) * program_head_gain(d),
                          d->layers[0].gain_plus_one, NULL, norm, e));
    return weights_matrix(&m->weights, w, arch_head(d), first, last - first,
                          NULL, ret, e);
}

static int head_package(const struct emit *m, struct mil_writer *w,
                        uint32_t first, uint32_t last, struct err *e)
{
    const struct mil_const *norm = NULL;
    struct weight head = {0};
    RETERR(m->from != NULL
               ? stored_head(m->from, w, first, last, &head, &norm, e)
               : put_head(m, w, first, last, &head, &norm, e));
    draw_heads(m, mil_writer_program(w), &head, norm);
    put_meta(m, mil_writer_program(w));
    return 0;
}

/* Finish the package, or give it up when rc is an error already. */
static int close_package(struct mil_writer *w, int rc, uint64_t *ret_bytes,
                         struct err *e)
{
    if (rc < 0) {
        mil_writer_abort(w);
        return rc;
    }
    uint64_t bytes = mil_writer_weight_bytes(w);
    rc = mil_writer_finish(w, e);
    if (rc == 0) {
        *ret_bytes = bytes;
    }
    return rc;
}

int emit_layers(const struct emit *m, const char *dir, uint32_t first,
                uint32_t last, uint64_t *ret_weight_bytes, struct err *e)
{
    must(first < last && last <= m->d->n_layers);
    struct mil_writer *w = NULL;
    int rc = mil_writer_open(dir, &w, e);
    if (rc < 0) {
        return rc;
    }
    struct layer_weights *lw = calloc(last - first, sizeof(*lw));
    must(lw != NULL);
    rc = layers_package(m, w, first, last, lw, e);
    free(lw);
    return close_package(w, rc, ret_weight_bytes, e);
}

int emit_head(const struct emit *m, const char *dir, uint32_t first,
              uint32_t last, uint64_t *ret_weight_bytes, struct err *e)
{
    must(first < last && last <= m->d->vocab);
    struct mil_writer *w = NULL;
    int rc = mil_writer_open(dir, &w, e);
    if (rc < 0) {
        return rc;
    }
    rc = head_package(m, w, first, last, e);
    return close_package(w, rc, ret_weight_bytes, e);
}

/* A sketch reads and writes nothing: there is no error that it could meet. */
struct mil_writer *emit_sketch_layers(const struct emit *m, uint32_t first,
                                      uint32_t last)
{
    struct mil_writer *w = mil_sketch();
    struct layer_weights *lw = calloc(last - first, sizeof(*lw));
    must(lw != NULL && m->from == NULL);
    must(layers_package(m, w, first, last, lw, NULL) == 0);
    free(lw);
    return w;
}

struct mil_writer *emit_sketch_head(const struct emit *m, uint32_t first,
                                    uint32_t last)
{
    struct mil_writer *w = mil_sketch();
    must(m->from == NULL && head_package(m, w, first, last, NULL) == 0);
    return w;
}
