/* narrow.c - a scale with which small integers come near the best entries.
 *
 * An integer of 7 bits times a scale of MANTISSA bits has the 11 bits of fp16.
 * Backends that multiply bytes find the scale again, as what all entries have
 * in common (engine/cpu/weights/weight_table.c), and are faster with it; to
 * others the entries are what entries are. Eight scales reach the palette's
 * largest entry with finer steps than its double would have; the one that costs
 * least is taken. The error of moved entries follows from sums over the weights
 * of each, which are collected once. */
#include "convert/quant/narrow.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "convert/quant/palette.h"

#define PIECE       256u
#define NARROW_PEAK 127
#define MANTISSA    4
#define HALF_UNIT   (-24) /* fp16's numbers are multiples of 2^-24 */
#define HALF_MOST   65504.0

/* What the weights nearest to an entry are, measured from it: sums of their
 * costs, times distance, times its square. */
struct near {
    double cost[NARROW_ENTRIES], off[NARROW_ENTRIES], square[NARROW_ENTRIES];
};

static void near_sum(const struct palette *p, const float *w, const float *cost,
                     size_t n, struct near *s)
{
    memset(s, 0, sizeof(*s));
    for (size_t at = 0; at < n; at += PIECE) {
        const size_t some = n - at < PIECE ? n - at : PIECE;
        uint8_t index[PIECE];
        palette_nearest(p, w + at, some, index);
        for (size_t i = 0; i < some; i++) {
            const unsigned k = index[i];
            const double c = cost != NULL ? (double)cost[at + i] : 1;
            const double d = (double)w[at + i] - (double)p->entry[k];
            s->cost[k] += c;
            s->off[k] += c * d;
            s->square[k] += c * d * d;
        }
    }
}

/* The squared error with integers times scale as entries, to[]. */
static double narrow_error(const struct palette *p, const struct near *s,
                           double scale, int to[NARROW_ENTRIES])
{
    double error = 0;
    for (unsigned k = 0; k < NARROW_ENTRIES; k++) {
        const double mean = s->cost[k] > 0 ? s->off[k] / s->cost[k] : 0;
        const double want = rint(((double)p->entry[k] + mean) / scale);
        const int least = k > 0 ? to[k - 1] : -NARROW_PEAK; /* ascending */
        to[k] = want < least         ? least
                : want > NARROW_PEAK ? NARROW_PEAK
                                     : (int)want;
        const double move = to[k] * scale - (double)p->entry[k];
        error +=
            s->square[k] - 2 * move * s->off[k] + s->cost[k] * move * move;
    }
    return error;
}

/* The scales from the finest on that reach the peak, an octave of them. */
static void narrow_best(const struct palette *p, const struct near *s,
                        double peak, double *error, double *scale,
                        int to[NARROW_ENTRIES])
{
    int exponent = 0;
    (void)frexp(peak / NARROW_PEAK, &exponent);
    exponent -= MANTISSA;
    exponent = exponent > HALF_UNIT ? exponent : HALF_UNIT;
    double m = ceil(ldexp(peak / NARROW_PEAK, -exponent));
    *error = (double)INFINITY;
    for (int i = 0; i < 1 << (MANTISSA - 1); i++, m++) {
        if (m >= 1 << MANTISSA) {
            m /= 2;
            exponent++;
        }
        int at[NARROW_ENTRIES];
        const double this = ldexp(m, exponent);
        const double e = narrow_error(p, s, this, at);
        const bool fits = peak + this < HALF_MOST;
        if (fits && e < *error) {
            *error = e;
            *scale = this;
            memcpy(to, at, sizeof(at));
        }
    }
}

void narrow_entries(const float *rows, const float *cost, size_t n,
                    uint16_t *entry)
{
    struct palette p;
    struct near s;
    double error = 0;
    double scale = 0;
    int to[NARROW_ENTRIES];
    palette_init(&p, entry, NARROW_ENTRIES);
    const double first = fabs((double)p.entry[0]); /* one of the two is it */
    const double last = fabs((double)p.entry[NARROW_ENTRIES - 1]);
    const double peak = first > last ? first : last;
    if (peak == 0) {
        return; /* is narrow */
    }
    near_sum(&p, rows, cost, n, &s);
    double before = 0;
    for (unsigned k = 0; k < NARROW_ENTRIES; k++) {
        before += s.square[k];
    }
    narrow_best(&p, &s, peak, &error, &scale, to);
    if (error > before * NARROW_COST) {
        return;
    }
    for (unsigned k = 0; k < NARROW_ENTRIES; k++) {
        entry[k] = half_from_float((float)(to[k] * scale));
    }
}
