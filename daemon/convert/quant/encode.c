/* encode.c - rows to a form: parameters first, then a code for each weight,
 * then the codes packed.
 *
 * Parameters do not depend on feedback: it moves weights among the values that
 * there are.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "convert/quant.h"
#include "convert/quant/feedback.h"
#include "convert/quant/grid.h"

struct encode {
    const struct quant_input *in;
    unsigned entries;
    struct grid *grid;        /* a row */
    struct palette *palettes; /* a group */
    uint8_t *codes;           /* a byte a weight */
};

static int check_rows(const struct quant_input *in, struct err *e)
{
    int levels = in->spec.kind == QUANT_INT4 ? 7 : 127;
    bool scaled =
        quant_entries(in->spec.kind) == 0 && in->spec.kind != QUANT_FP16;
    float reach = scaled ? 65504.0f * (float)levels : 65504.0f;
    for (uint64_t r = 0; r < in->n_rows; r++) {
        float peak = quant_peak(in->rows + r * in->cols, in->cols);
        if (isnan(peak)) {
            return err_set(e, ERR_CONVERT, "row %llu is not finite",
                           (unsigned long long)(in->first + r));
        }
        if (peak > reach) {
            return err_set(e, ERR_RANGE, "a weight of %g leaves the fp16 range",
                           (double)peak);
        }
    }
    return 0;
}

/* --- parameters --- */

static void make_scales(struct encode *c, uint16_t *params)
{
    const struct quant_input *in = c->in;
    bool common = in->spec.kind == QUANT_INT8_TENSOR;
    int levels = in->spec.kind == QUANT_INT4 ? 7 : 127;
    for (uint64_t r = 0; r < in->n_rows; r++) {
        float peak =
            common ? in->peak : quant_peak(in->rows + r * in->cols, in->cols);
        uint16_t scale = quant_scale(peak, levels);
        params[common ? 0 : r] = scale;
        c->grid[r] = (struct grid){NULL, half_to_float(scale), levels};
    }
}

static int make_palettes(struct encode *c, uint16_t *params, struct err *e)
{
    const struct quant_input *in = c->in;
    struct kmeans *m = NULL;
    uint32_t group = in->spec.group;
    size_t points = (size_t)(group * in->cols);
    float *weights = NULL;
    int rc = kmeans_open(points, c->entries, &m, e);
    if (rc < 0) {
        return rc;
    }
    if (in->importance != NULL) {
        weights = malloc(points * sizeof(*weights));
        if (weights == NULL) {
            kmeans_close(m);
            return err_set(e, ERR_NOMEM, "no memory for a palette");
        }
    }
    for (uint64_t i = 0; i < in->n_rows / group; i++) {
        uint16_t *entry = params + i * c->entries;
        palette_make(m, in->rows + i * points, group, in->cols, in->importance,
                     weights, entry, c->entries);
        palette_init(&c->palettes[i], entry, c->entries);
        for (uint32_t r = 0; r < group; r++) {
            c->grid[i * group + r] = (struct grid){.palette = &c->palettes[i]};
        }
    }
    free(weights);
    kmeans_close(m);
    return 0;
}

/* --- codes --- */

static void nearest_codes(struct encode *c, const uint16_t *params)
{
    const struct quant_input *in = c->in;
    bool common = in->spec.kind == QUANT_INT8_TENSOR;
    for (uint64_t r = 0; r < in->n_rows; r++) {
        const float *w = in->rows + r * in->cols;
        uint8_t *to = c->codes + r * in->cols;
        if (c->grid[r].palette != NULL) {
            palette_nearest(c->grid[r].palette, w, in->cols, to);
        } else {
            quant_round(w, in->cols, params[common ? 0 : r], c->grid[r].levels,
                        (int8_t *)to);
        }
    }
}

static double sum_error(const struct encode *c)
{
    const struct quant_input *in = c->in;
    double sum = 0;
    for (uint64_t r = 0; r < in->n_rows; r++) {
        for (uint64_t k = 0; k < in->cols; k++) {
            size_t at = (size_t)(r * in->cols + k);
            double d = (double)in->rows[at] -
                       (double)grid_value(&c->grid[r], c->codes[at]);
            double cost =
                in->importance != NULL ? (double)in->importance[k] : 1;
            sum += cost * d * d;
        }
    }
    return sum;
}

/* Facts 4.3: a stream of bits, the lowest first. n: whole bytes. */
static void pack(const uint8_t *codes, size_t n, unsigned bits, uint8_t *out)
{
    if (bits == 8) {
        memcpy(out, codes, n);
    } else if (bits == 4) {
        for (size_t i = 0; i < n / 2; i++) {
            out[i] = (uint8_t)((codes[2 * i] & 15u) | (unsigned)codes[2 * i + 1]
                                                          << 4);
        }
    } else {
        must(bits == 6);
        for (size_t i = 0; i < n / 4; i++) {
            const uint8_t *c = codes + 4 * i;
            uint32_t v = c[0] | (uint32_t)c[1] << 6 | (uint32_t)c[2] << 12 |
                         (uint32_t)c[3] << 18;
            out[3 * i] = (uint8_t)v;
            out[3 * i + 1] = (uint8_t)(v >> 8);
            out[3 * i + 2] = (uint8_t)(v >> 16);
        }
    }
}

/* --- fp16 --- */

static void encode_half(const struct quant_input *in, struct quant_form *out)
{
    size_t n = (size_t)(in->n_rows * in->cols);
    half_from_floats(in->rows, (uint16_t *)(void *)out->codes, n);
    out->error = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = 0;
        memcpy(&h, out->codes + i * sizeof(h), sizeof(h));
        double d = (double)in->rows[i] - (double)half_to_float(h);
        size_t k = i % (size_t)in->cols;
        out->error +=
            (in->importance != NULL ? (double)in->importance[k] : 1) * d * d;
    }
}

int quant_encode(const struct quant_input *in, struct quant_form *out,
                 struct err *e)
{
    struct encode c = {.in = in, .entries = quant_entries(in->spec.kind)};
    must(in->n_rows > 0 && in->cols > 0);
    must(in->n_rows % in->spec.group == 0);
    RETERR(quant_check(in->spec, in->cols, e));
    RETERR(check_rows(in, e));
    if (in->spec.kind == QUANT_FP16) {
        encode_half(in, out);
        return 0;
    }
    size_t n = (size_t)(in->n_rows * in->cols);
    size_t groups = (size_t)(in->n_rows / in->spec.group);
    int rc = 0;
    c.grid = calloc((size_t)in->n_rows, sizeof(*c.grid));
    c.codes = malloc(n);
    c.palettes = c.entries > 0 ? calloc(groups, sizeof(*c.palettes)) : NULL;
    if (c.grid == NULL || c.codes == NULL ||
        (c.entries > 0 && c.palettes == NULL)) {
        rc = err_set(e, ERR_NOMEM, "no memory for the codes of %llu rows",
                     (unsigned long long)in->n_rows);
        goto out;
    }
    if (c.entries > 0) {
        CHECK(make_palettes(&c, out->params, e));
    } else {
        make_scales(&c, out->params);
    }
    if (in->feedback != NULL) {
        CHECK(feedback_codes(in->feedback, in->rows, (size_t)in->first,
                             (size_t)in->n_rows, c.grid, c.codes, e));
    } else {
        nearest_codes(&c, out->params);
    }
    out->error = sum_error(&c);
    pack(c.codes, n, quant_bits(in->spec.kind), out->codes);
out:
    free(c.grid);
    free(c.codes);
    free(c.palettes);
    return rc;
}
