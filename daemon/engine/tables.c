/* tables.c - the tables of numbers by token or position: mapped files, a row of which is
 * looked up and scaled for each token. They are never in a graph.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "engine/impl.h"

static int map_table(struct file_map *m, const struct bundle *b,
                     const char *file, uint32_t rows, uint64_t cols,
                     struct err *e)
{
    char path[sizeof(b->dir) + 256];
    if (!file_join(path, sizeof(path), b->dir, file)) {
        return err_set(e, ERR_BUNDLE, "%s: the path is too long", file);
    }
    RETERR(file_map(path, m, e));
    return m->n == rows * cols * 2
               ? 0
               : err_set(e, ERR_BUNDLE,
                         "%s holds %zu bytes, not %u rows of %llu", file, m->n,
                         rows, (unsigned long long)cols);
}

int tables_open(struct tables *t, const struct bundle *b, struct err *e)
{
    *t = (struct tables){.b = b, .ple_width = (size_t)b->n_layers * b->d_ple};
    RETERR(map_table(&t->embed, b, b->embed_file, b->vocab, b->d_model, e));
    if (b->position_file != NULL) {
        RETERR(map_table(&t->positions, b, b->position_file, b->context_train,
                         b->d_model, e));
    }
    return b->ple_file != NULL
               ? map_table(&t->ple, b, b->ple_file, b->vocab, t->ple_width, e)
               : 0;
}

void tables_close(struct tables *t)
{
    file_unmap(&t->embed);
    file_unmap(&t->ple);
    file_unmap(&t->positions);
    *t = (struct tables){0};
}

/* The files are mapped at pages and rows have 2-byte elements. */
static const void *row_of(const struct file_map *m, size_t cols, int32_t token)
{
    return (const uint8_t *)m->p + (size_t)token * cols * 2;
}

void tables_embed(const struct tables *t, int32_t token, float *out)
{
    size_t d = t->b->d_model;
    half_to_floats(row_of(&t->embed, d, token), out, d);
    for (size_t c = 0; c < d; c++) {
        out[c] = out[c] * t->b->embed_scale * t->b->residual_scale;
    }
}

void tables_ple(const struct tables *t, int32_t token, float *out)
{
    float scale = sqrtf((float)t->b->d_ple / 2);
    half_to_floats(row_of(&t->ple, t->ple_width, token), out, t->ple_width);
    for (size_t c = 0; c < t->ple_width; c++) {
        out[c] *= scale;
    }
}

void tables_position(const struct tables *t, uint32_t i, float *x)
{
    size_t d = t->b->d_model;
    if (t->positions.p == NULL) {
        return;
    }
    must(i < t->b->context_train);
    const uint16_t *row = row_of(&t->positions, d, (int32_t)i);
    for (size_t c = 0; c < d; c++) {
        x[c] += half_to_float(row[c]) * t->b->residual_scale;
    }
}
