/* emit.c - a package: its weights streamed first, then its program, so that
 * functions share them (program.c draws the graphs).
 *
 * What is folded where: alpha into the post norms' weights, the score scale
 * into the q norm's, the norm form's gain into every norm's weight. Nothing is
 * folded into a quantised matrix: its scales would become subnormal.
 */
#include "convert/emit.h"

#include "convert/program.h"

/* --- weights --- */

struct want_matrix {
    enum arch_slot slot;
    struct weight *to;
    bool rope;
};

struct want_vector {
    enum arch_slot slot;
    const struct mil_const **to;
    enum weights_shape shape;
    float factor;
    bool rope;
};

static int put_layer(const struct emit *m, struct mil_writer *w, uint32_t l,
                     struct layer_weights *r, struct err *e)
{
    const struct decoder *d = m->d;
    float gain = norm_gain(m->norm, d->d_model);
    float head_gain = norm_gain(m->norm, d->d_head);
    const struct want_vector vectors[] = {
        {SLOT_ATTN_NORM, &r->attn_norm, WEIGHTS_CHANNEL, gain, false},
        {SLOT_Q_BIAS, &r->q_bias, WEIGHTS_BIAS, 1, true},
        {SLOT_K_BIAS, &r->k_bias, WEIGHTS_BIAS, 1, true},
        {SLOT_V_BIAS, &r->v_bias, WEIGHTS_BIAS, 1, false},
        {SLOT_O_BIAS, &r->o_bias, WEIGHTS_BIAS, 1, false},
        {SLOT_Q_NORM, &r->q_norm, WEIGHTS_LAST, head_gain * d->score_scale,
         true},
        {SLOT_K_NORM, &r->k_norm, WEIGHTS_LAST, head_gain, true},
        {SLOT_POST_ATTN, &r->post_attn, WEIGHTS_CHANNEL, gain * m->alpha,
         false},
        {SLOT_FFN_NORM, &r->ffn_norm, WEIGHTS_CHANNEL, gain, false},
        {SLOT_POST_FFN, &r->post_ffn, WEIGHTS_CHANNEL, gain * m->alpha, false},
    };
    const struct want_matrix matrices[] = {
        {SLOT_Q, &r->q, true},        {SLOT_K, &r->k, true},
        {SLOT_V, &r->v, false},       {SLOT_O, &r->o, false},
        {SLOT_GATE, &r->gate, false}, {SLOT_UP, &r->up, false},
        {SLOT_DOWN, &r->down, false},
    };
    const struct decoder *perm = d->arch->rope_interleaved ? d : NULL;
    for (size_t i = 0; i < countof(vectors); i++) {
        const struct want_vector *v = &vectors[i];
        const struct gguf_tensor *t = arch_tensor(d, l, v->slot);
        if (t != NULL) {
            RETERR(weights_vector(w, t, v->shape, v->factor,
                                  v->rope ? perm : NULL, v->to, e));
        }
    }
    for (size_t i = 0; i < countof(matrices); i++) {
        const struct want_matrix *x = &matrices[i];
        const struct gguf_tensor *t = arch_tensor(d, l, x->slot);
        RETERR(weights_matrix(&m->weights, w, t, 0, t->rows,
                              x->rope ? perm : NULL, x->to, e));
    }
    return 0;
}

/* --- packages --- */

static void put_meta(const struct emit *m, struct mil_program *p)
{
    mil_add_meta(p, "dev.aned.version", ANED_VERSION);
    mil_add_meta(p, "dev.aned.architecture", m->d->arch->name);
    char quant[QUANT_TEXT_MAX];
    quant_text(m->weights.choice->spec, quant);
    mil_add_meta(p, "dev.aned.quant", quant);
}

static int layers_package(const struct emit *m, struct mil_writer *w,
                          uint32_t first, uint32_t last,
                          struct layer_weights *lw, struct err *e)
{
    struct mil_program *p = mil_writer_program(w);
    for (uint32_t l = first; l < last; l++) {
        RETERR(put_layer(m, w, l, &lw[l - first], e));
    }
    if (m->functions) {
        program_layers(m, p, "t1", 1, first, last, lw);
        program_layers(m, p, "t4", EMIT_T_MAX, first, last, lw);
    } else {
        program_layers(m, p, "main", MIL_UNKNOWN, first, last, lw);
    }
    put_meta(m, p);
    return 0;
}

static int head_package(const struct emit *m, struct mil_writer *w,
                        uint32_t first, uint32_t last, struct err *e)
{
    const struct decoder *d = m->d;
    const struct mil_const *norm = NULL;
    struct weight head = {0};
    RETERR(weights_vector(w, d->global[SLOT_OUT_NORM], WEIGHTS_CHANNEL,
                          norm_gain(m->norm, d->d_model), NULL, &norm, e));
    RETERR(weights_matrix(&m->weights, w, arch_head(d), first, last - first,
                          NULL, &head, e));
    program_head(m, mil_writer_program(w), &head, norm);
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
