/* encode_pool.c - the vectors of texts: what an encoder's last layer gives of
 * their rows, added in double in their order.
 *
 * Short texts are read side by side, as many as ENCODER_PACK_ROWS have room for:
 *
 *   rows   0        16       32       48       64
 *          |text 0 ..........|text 1 -|text 2 ----
 *
 * A text begins at a multiple of ENCODER_PACK_ALIGN rows and sees its own rows alone.
 * What is hidden has no part in a row's sums (backend.h, wide_masks), and its
 * position is that in its text: its bits are those of the text alone. What fills
 * the gaps is the text's last token, which sees itself.
 * A backend without such masks reads one text after the other.
 */
#include "engine/encode_impl.h"

#include <math.h>

#include "base/num.h"

static uint32_t aligned(uint32_t n)
{
    return (n + ENCODER_PACK_ALIGN - 1) / ENCODER_PACK_ALIGN *
           ENCODER_PACK_ALIGN;
}

/* A text alone takes all the rows it has; several may not pass `most`. Returns
 * how many of len[0..n) go together, and the rows they take. */
static uint32_t count_together(const struct encoder *g, const uint32_t *len,
                               uint32_t n, uint32_t most, uint32_t *ret_rows)
{
    uint32_t k = 0;
    uint32_t rows = 0;
    while (k < n && g->packs && len[k] <= most - rows) {
        rows += aligned(len[k++]);
        if (rows >= most) {
            break;
        }
    }
    *ret_rows = k > 1 ? rows : len[0];
    return k > 1 ? k : 1;
}

/* Rows of n texts, the first token of which is number `token`. */
static void place_texts(struct encoder *g, const uint32_t *len, uint32_t n,
                        uint32_t token, uint32_t t)
{
    uint32_t at = 0;
    struct encode_row pad = {0};
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < len[k]; i++) {
            g->rows[at + i] = (struct encode_row){.token = token + i,
                                                  .position = i,
                                                  .lo = at,
                                                  .hi = at + len[k]};
        }
        pad = g->rows[at + len[k] - 1];
        token += len[k];
        uint32_t end = k + 1 < n ? at + aligned(len[k]) : t;
        for (at += len[k]; at < end; at++) {
            pad.lo = n > 1 ? at : 0;
            pad.hi = n > 1 ? at + 1 : len[0];
            g->rows[at] = pad;
        }
    }
}

/* rows: (n, wide) */
static int pool(const float *rows, uint32_t n, uint32_t wide, enum pooling kind,
                double *sum, float *out, struct err *e)
{
    uint32_t first = kind == POOL_LAST ? n - 1 : 0;
    uint32_t last = kind == POOL_CLS ? 1 : n;
    for (uint32_t k = 0; k < wide; k++) {
        sum[k] = 0;
    }
    for (uint32_t i = first; i < last; i++) {
        for (uint32_t k = 0; k < wide; k++) {
            sum[k] += (double)rows[(size_t)i * wide + k];
        }
    }
    for (uint32_t k = 0; k < wide; k++) {
        out[k] = (float)(sum[k] / (last - first));
        if (!isfinite(out[k])) {
            return err_set(e, ERR_INVALID, "a hidden state is not finite");
        }
    }
    return 0;
}

/* len[0..n) in one window; `token` is the first one's number. */
static int read_together(struct encoder *g, const struct encoder_texts *x,
                         uint32_t from, uint32_t n, uint32_t token,
                         uint32_t rows, double *sum, float *out, struct err *e)
{
    uint32_t wide = bundle_outputs(g->b);
    const uint32_t *len = x->len + from;
    const struct window w = {.tokens = x->tokens,
                             .n = rows,
                             .t = encode_width(g, rows),
                             .wide = n > 1};
    place_texts(g, len, n, token, w.t);
    RETERR(encode_window(g, &w, x->go, x->ctx, e));
    uint32_t at = 0;
    for (uint32_t k = 0; k < n; k++) {
        const float *y = encode_rows(g, at, len[k], e);
        RETERR(y != NULL ? pool(y, len[k], wide, x->pool, sum,
                                out + (size_t)(from + k) * wide, e)
                         : e->code);
        at += aligned(len[k]);
    }
    return 0;
}

int encoder_vectors(struct encoder *g, const struct encoder_texts *x,
                    float *out, struct err *e)
{
    const struct bundle *b = g->b;
    if (bundle_kind(b) != BUNDLE_EMBEDDER) {
        return bundle_want_kind(b, BUNDLE_EMBEDDER, e);
    }
    for (uint32_t i = 0, token = 0; i < x->n; token += x->len[i++]) {
        RETERR(encode_check(g, x->tokens + token, x->len[i], e));
    }
    uint32_t most = (uint32_t)num_min(
        x->rows > 0 ? x->rows : ENCODER_PACK_ROWS, encode_widest(g));
    double *sum = calloc(bundle_outputs(b), sizeof(*sum));
    if (sum == NULL) {
        return err_set(e, ERR_NOMEM, "a vector");
    }
    int rc = 0;
    for (uint32_t i = 0, token = 0; i < x->n && rc == 0;) {
        uint32_t rows = 0;
        uint32_t n = count_together(g, x->len + i, x->n - i, most, &rows);
        rc = read_together(g, x, i, n, token, rows, sum, out, e);
        for (uint32_t k = 0; k < n; k++) {
            token += x->len[i++];
        }
    }
    free(sum);
    return rc;
}
