/* encode_inputs.c - what a window's programs read: embeddings, turns, masks.
 *
 * Embeddings and turns are those of encoder.rows. A band's mask follows from the
 * window alone; that of whole texts from what each row sees.
 */
#include "engine/encode_impl.h"

#include <string.h>

#include "base/fmath.h"
#include "engine/array.h"

/* x of the first program: embeddings. */
static void put_tokens(struct encoder *g, struct backend_array *x,
                       const struct window *w)
{
    for (uint32_t i = 0; i < w->t; i++) {
        const int64_t at[4] = {0, 0, i, 0};
        const struct encode_row *r = &g->rows[i];
        if (r->token != ENCODE_NO_TOKEN) {
            tables_embed(&g->tables, w->tokens[r->token], g->row);
            tables_position(&g->tables, r->position, g->row);
        } else {
            memset(g->row, 0, g->b->d_model * sizeof(*g->row));
        }
        array_put(x, (struct array_line){at, 1, g->b->d_model}, g->row, 1);
    }
}

/* Row i of cosines or sines is that of the row's position. */
static void put_turns(struct encoder *g, struct backend_array *a, bool sines,
                      const struct window *w)
{
    const struct rope *r = &g->in.rope[0];
    for (uint32_t i = 0; i < w->t; i++) {
        const int64_t at[2] = {i, 0};
        for (uint32_t k = 0; k < r->half; k++) {
            double sine = 0;
            double cosine = 0;
            fmath_sincos((double)g->rows[i].position * r->of[0].freq[k], &sine,
                         &cosine);
            g->row[k] = (float)((sines ? sine : cosine) * r->magnitude);
        }
        array_put(a, (struct array_line){at, 1, r->half}, g->row, 1);
    }
}

/* Which rows a row sees: the same for all, unless there is a mask for each. */
static void put_keys(struct encoder *g, struct backend_array *a,
                     const struct window *w)
{
    for (uint32_t i = 0; i < (w->wide ? w->t : 1); i++) {
        const int64_t at[4] = {0, 0, i, 0};
        const struct encode_row *r = &g->rows[i];
        for (uint32_t j = 0; j < w->t; j++) {
            g->row[j] = j >= r->lo && j < r->hi ? 0 : MASK_OFF;
        }
        array_put(a, (struct array_line){at, 3, w->t}, g->row, 1);
    }
}

/* Column c of row i is key block * (i / block - 1) + c. */
static void put_mask(struct encoder *g, struct backend_array *a,
                     const struct window *w)
{
    int64_t reach = g->b->rope.window;
    for (uint32_t i = 0; i < w->t; i++) {
        const int64_t at[4] = {0, 0, i, 0};
        int64_t first = (int64_t)(i - i % g->block) - g->block;
        for (int64_t c = 0; c < 3 * (int64_t)g->block; c++) {
            int64_t j = first + c;
            int64_t far = j > i ? j - i : i - j;
            bool seen = j == i || (i < w->n && j >= 0 && j < w->n &&
                                   far <= reach);
            g->row[c] = seen ? 0 : MASK_OFF;
        }
        array_put(a, (struct array_line){at, 3, (size_t)3 * g->block}, g->row,
                  1);
    }
}

int encode_inputs(struct encoder *g, size_t i, const struct window *w,
                  struct err *e)
{
    for (unsigned r = 0; r < ROLE_PAST; r++) {
        struct backend_array *a = g->bound[i].in[r];
        if (a == NULL || (r == ROLE_X && i > 0)) {
            continue;
        }
        RETERR(array_begin(g->be, a, true, e));
        switch (r) {
        case ROLE_X:
            put_tokens(g, a, w);
            break;
        case ROLE_COS:
        case ROLE_SIN:
            put_turns(g, a, r == ROLE_SIN, w);
            break;
        default: /* unit.c takes no other */
            (g->b->rope.window > 0 ? put_mask : put_keys)(g, a, w);
            break;
        }
        array_end(g->be, a, true);
    }
    return 0;
}
