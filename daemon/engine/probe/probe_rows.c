/* probe_rows.c - the rows that go in, and what comes out: is it finite, like
 * the reference's, the same bits? */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/hash.h"
#include "base/num.h"
#include "engine/probe/probe_impl.h"

#define SEED_X     0x70726f6265ull /* "probe" */
#define PAST_MOST  37u /* positions before the rows: no multiple of anything */
#define ROWS_LEAST 9u
#define PEAK_EVERY 8u /* rows, from one with a peak to the next */

/* --- in --- */

/* splitmix64: a good mixture of any two numbers. */
static uint64_t mix(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

float probe_number(uint64_t seed, uint64_t i)
{
    /* 11 bits, as many as fp16 has */
    return (float)(int32_t)(mix(seed, i) >> 53) / 1024.0F - 1.0F;
}

/* The largest number of the stream where the part begins, as it was measured;
 * 0: not known. */
static float peak_of(const struct probe_part *p)
{
    const struct bundle *b = p->b;
    uint32_t layer = p->shard != NULL ? p->shard->first : b->n_layers;
    char name[48];
    if (layer == 0) {
        return 0; /* embeddings are what they are */
    }
    (void)snprintf(name, sizeof(name), "layers.%u.residual", layer - 1);
    for (size_t i = 0; i < b->n_peaks; i++) {
        if (strcmp(b->peaks[i].name, name) == 0) {
            double v = b->peaks[i].peak * (double)b->residual_scale;
            return v < 65504 ? half_round((float)v) : 65504.0F;
        }
    }
    return 0;
}

static void fill_rows(struct probe_in *in, const struct probe_part *p)
{
    const struct bundle *b = p->b;
    float peak = peak_of(p);
    for (uint32_t r = 0; r < in->n; r++) {
        float *x = in->x + r * in->d;
        int32_t token = (int32_t)(mix(SEED_X, r) % b->vocab);
        in->tokens[r] = token;
        tables_embed(p->tables, token, x);
        half_round_floats(x, in->d);
        in->peak[r] = PEAK_NONE;
        if (peak > 0 && r % PEAK_EVERY == PEAK_EVERY - 1) {
            in->peak[r] = (uint32_t)(mix(SEED_X + 1, r) % in->d);
            x[in->peak[r]] = r % (2 * PEAK_EVERY) < PEAK_EVERY ? peak : -peak;
        }
    }
}

int probe_in_make(struct probe_in *in, const struct probe_part *p,
                  uint32_t t_max, size_t w, struct err *e)
{
    uint32_t context = p->b->context;
    uint32_t past = (uint32_t)num_min(PAST_MOST, context / 2);
    size_t n = num_max(2 * (size_t)t_max + 1, ROWS_LEAST);
    n = num_min(n, PROBE_ROWS_BYTES_MAX / sizeof(float) / w);
    n = num_max(1, num_min(n, context - past));
    *in = (struct probe_in){.past = past, .n = (uint32_t)n, .d = p->b->d_model};
    in->x = calloc(n * in->d, sizeof(*in->x));
    in->peak = calloc(n, sizeof(*in->peak));
    in->tokens = calloc(n, sizeof(*in->tokens));
    if (in->x == NULL || in->peak == NULL || in->tokens == NULL) {
        probe_in_free(in);
        return err_set(e, ERR_NOMEM, "rows");
    }
    fill_rows(in, p);
    return 0;
}

void probe_in_free(struct probe_in *in)
{
    free(in->x);
    free(in->peak);
    free(in->tokens);
    *in = (struct probe_in){0};
}

/* --- out --- */

uint64_t probe_out_bad(const struct probe_out *o, uint32_t n)
{
    uint64_t bad = 0;
    for (size_t i = 0; i < (size_t)n * o->w; i++) {
        bad += isfinite(o->v[i]) ? 0 : 1;
    }
    return bad;
}

uint64_t probe_out_hash(const struct probe_out *o, uint32_t row)
{
    return hash_bulk(o->v + row * o->w, o->w * sizeof(*o->v));
}

/* Of n numbers but one; x (NULL: zeros) is taken from both. */
static double cosine(const float *a, const float *b, const float *x, size_t n,
                     size_t but)
{
    double ab = 0;
    double aa = 0;
    double bb = 0;
    for (size_t i = 0; i < n; i++) {
        double u = (double)a[i] - (x != NULL ? (double)x[i] : 0);
        double v = (double)b[i] - (x != NULL ? (double)x[i] : 0);
        if (i != but) {
            ab += u * v;
            aa += u * u;
            bb += v * v;
        }
    }
    if (aa > 0 && bb > 0) {
        return ab / sqrt(aa) / sqrt(bb);
    }
    return aa > 0 || bb > 0 ? 0 : 1; /* both are nothing: alike */
}

struct likeness probe_out_like(const struct probe_out *o,
                               const struct probe_out *want,
                               const struct probe_in *in, bool adds)
{
    struct likeness least = {.cosine = 2, .name = ""};
    must(o->w == want->w && o->n == want->n);
    for (uint32_t r = 0; r < o->n; r++) {
        for (size_t k = 0; k < o->n_segments; k++) {
            const struct segment *s = &o->segments[k];
            bool sum = adds && k == 0;
            double c =
                cosine(o->v + r * o->w + s->from, want->v + r * o->w + s->from,
                       sum ? in->x + r * in->d : NULL, s->n,
                       sum ? in->peak[r] : PEAK_NONE);
            c = isnan(c) ? 0 : c; /* like nothing */
            if (c < least.cosine) {
                least = (struct likeness){c, s->name};
            }
        }
    }
    return least;
}
