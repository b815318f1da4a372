/* palette.c - AVX2 and portable forms give the same indices: both only
 * compare. */
#include "convert/quant/palette.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/isa.h"
#include "convert/quant/narrow.h"

void palette_init(struct palette *p, const uint16_t *entry, unsigned entries)
{
    must(entries <= PALETTE_MAX && entries % 2 == 0 && entries > 0);
    p->entries = entries;
    half_to_floats(entry, p->entry, entries);
    for (unsigned i = 0; i < PALETTE_MAX; i++) {
        p->edge[i] = INFINITY;
    }
    for (unsigned i = 0; i + 1 < entries; i++) {
        double sum = (double)p->entry[i] + (double)p->entry[i + 1];
        p->edge[i] = (float)(sum / 2);
    }
}

void palette_make(struct kmeans *m, const float *rows, size_t n, size_t cols,
                  const float *importance, float *weights, uint16_t *entry,
                  unsigned entries)
{
    double best[PALETTE_MAX];
    must(entries <= PALETTE_MAX);
    for (size_t i = 0; importance != NULL && i < n; i++) {
        memcpy(weights + i * cols, importance, cols * sizeof(*weights));
    }
    kmeans_run(m, rows, importance != NULL ? weights : NULL, n * cols, best);
    for (unsigned i = 0; i < entries; i++) {
        entry[i] = half_from_float((float)best[i]);
    }
    if (entries == NARROW_ENTRIES) {
        narrow_entries(rows, importance != NULL ? weights : NULL, n * cols,
                       entry);
    }
}

#if defined(ISA_FOR_V3)
#include <immintrin.h>

/* Whole eights of n; returns how many it did. */
ISA_FOR_V3 static size_t nearest_v3(const struct palette *p, const float *w,
                                    size_t n, uint8_t *index)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 x = _mm256_loadu_ps(w + i);
        __m256i below = _mm256_setzero_si256();
        for (unsigned k = 0; k + 1 < p->entries; k++) {
            __m256 more =
                _mm256_cmp_ps(x, _mm256_set1_ps(p->edge[k]), _CMP_GT_OQ);
            below = _mm256_sub_epi32(below, _mm256_castps_si256(more));
        }
        uint32_t lane[8];
        _mm256_storeu_si256((__m256i *)(void *)lane, below);
        for (size_t k = 0; k < 8; k++) {
            index[i + k] = (uint8_t)lane[k];
        }
    }
    return i;
}
#endif

void palette_nearest(const struct palette *p, const float *w, size_t n,
                     uint8_t *index)
{
    size_t i = 0;
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        i = nearest_v3(p, w, n, index);
    }
#endif
    for (; i < n; i++) {
        index[i] = palette_index(p, w[i]);
    }
}
