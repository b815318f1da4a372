/* values.c - rows of the source as a package would give them back.
 *
 * Only parameters are kept (a lut4 row has 32 bytes of them): a weight's code
 * is found again whenever its row is read, so memory is a few bytes a row for
 * any size of model. */
#include <string.h>

#include "base/half.h"
#include "convert/quant/palette.h"
#include "convert/target/impl.h"

#define PIECE 1024u /* weights whose codes are found at once */

static uint64_t params_of(struct quant_spec spec, const struct part *p)
{
    return quant_params(quant_fit(spec, p->rows), p->rows);
}

static int make_form(const struct target_cost *c, struct target_place *p,
                     unsigned f, const struct weights *w, struct err *e)
{
    uint64_t n = 0;
    for (size_t i = 0; i < p->n_parts; i++) {
        n += params_of(c->spec, p->parts[i].p);
    }
    p->params[f] = calloc((size_t)n, sizeof(uint16_t));
    if (p->params[f] == NULL) {
        return err_set(e, ERR_NOMEM, "%s: the parameters of a form",
                       p->t->name);
    }
    uint16_t *at = p->params[f];
    p->error[f] = 0;
    for (size_t i = 0; i < p->n_parts; i++) {
        const struct target_part *part = &p->parts[i];
        double error = 0;
        RETERR(weights_params(w, part->p,
                              part->emitted != NULL ? &part->perm : NULL,
                              c->spec, at, &error, e));
        p->error[f] += error;
        at += params_of(c->spec, part->p);
    }
    return 0;
}

int target_params(const struct target *t, struct target_place *p,
                  const struct weights *w, struct err *e)
{
    for (uint32_t i = 0; i < t->n_matrices; i++) {
        const struct target_matrix *m = &t->matrices[i];
        for (unsigned f = 0; f < m->n_costs; f++) {
            if (m->costs[f].spec.kind != QUANT_FP16) {
                RETERR(make_form(&m->costs[f], &p[i], f, w, e));
            }
        }
    }
    return 0;
}

/* --- rows --- */

static void to_palette(const uint16_t *entry, unsigned entries, float *w,
                       size_t n)
{
    struct palette p;
    uint8_t index[PIECE];
    palette_init(&p, entry, entries);
    for (size_t at = 0; at < n; at += PIECE) {
        size_t some = n - at < PIECE ? n - at : PIECE;
        palette_nearest(&p, w + at, some, index);
        for (size_t i = 0; i < some; i++) {
            w[at + i] = p.entry[index[i]];
        }
    }
}

static void to_scale(uint16_t scale, int levels, float *w, size_t n)
{
    float s = half_to_float(scale);
    int8_t q[PIECE];
    for (size_t at = 0; at < n; at += PIECE) {
        size_t some = n - at < PIECE ? n - at : PIECE;
        quant_round(w + at, some, scale, levels, q);
        for (size_t i = 0; i < some; i++) {
            w[at + i] = s * (float)q[i];
        }
    }
}

/* Row `row` of the part, as its form `spec` gives it. */
static void to_form(const struct target_part *part, struct quant_spec spec,
                    const uint16_t *params, uint64_t row, float *w)
{
    unsigned entries = quant_entries(spec.kind);
    uint32_t heads = part->perm.d_head;
    if (part->emitted != NULL) {
        row = row - row % heads + part->emitted[row % heads];
    }
    if (entries > 0) {
        to_palette(params + row / spec.group * entries, entries, w,
                   (size_t)part->p->cols);
    } else {
        bool common = spec.kind == QUANT_INT8_TENSOR;
        to_scale(params[common ? 0 : row], spec.kind == QUANT_INT4 ? 7 : 127, w,
                 (size_t)part->p->cols);
    }
}

static uint32_t place_of(const struct target_values *v,
                         const struct gguf_tensor *t)
{
    uint32_t i = 0;
    while (i < v->t->n_matrices && v->places[i].t != t) {
        i++;
    }
    return i;
}

int target_rows(void *ctx, const struct gguf_tensor *t, uint64_t first,
                uint64_t n, float *out, struct err *e)
{
    const struct target_values *v = ctx;
    uint32_t at = place_of(v, t);
    RETERR(gguf_rows(t, first, n, out, e));
    if (at == v->t->n_matrices || v->places[at].now < 0) {
        return 0;
    }
    const struct target_place *p = &v->places[at];
    struct quant_spec spec = v->t->matrices[at].costs[p->now].spec;
    const uint16_t *params = p->params[p->now];
    if (spec.kind == QUANT_FP16) {
        return 0; /* what that costs is nothing beside the others */
    }
    for (size_t i = 0; i < p->n_parts; i++) {
        const struct part *part = p->parts[i].p;
        struct quant_spec fit = quant_fit(spec, part->rows);
        uint64_t row = 0;
        for (uint64_t r = first; r < first + n; r++) {
            if (arch_has_row(part, r, &row)) {
                to_form(&p->parts[i], fit, params, row,
                        out + (size_t)((r - first) * t->cols));
            }
        }
        params += quant_params(fit, part->rows);
    }
    return 0;
}
