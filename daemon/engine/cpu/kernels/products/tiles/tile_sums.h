/* tile_sums.h - from sums of bytes to results. */
#pragma once

#include "engine/cpu/kernels/products/tiles/tile.h"
#include "engine/cpu/kernels/products/tiles/tile_weights.h"

/* 8 sums of a row from those of high and low bytes of columns. */
INLINE __m512i sums_joined(__m512i a)
{
    return _mm512_add_epi64(_mm512_mul_epi32(a, _mm512_set1_epi64(128)),
                            _mm512_srai_epi64(a, 32));
}

INLINE void sums_put(__m512i s, float *out, bool first)
{
    const __m256 f = _mm512_cvtepi64_ps(s);
    _mm256_storeu_ps(out, first ? f : _mm256_add_ps(_mm256_loadu_ps(out), f));
}

#define SUMS (TILE / sizeof(int32_t))

/* acc (+)= the sums in two tiles, and in two more: [row][column] with `width`
 * columns, of UNIT rows. */
INLINE void sums_add(int kind, const int32_t *tile, size_t width, bool more,
                     float *acc, bool first)
{
    for (size_t i = 0; i < TILE_ROWS * width; i += 8, tile += 16, acc += 8) {
        __m512i a = _mm512_loadu_si512((const void *)tile);
        __m512i b = _mm512_loadu_si512((const void *)(tile + SUMS));
        if (more) {
            a = _mm512_add_epi32(
                a, _mm512_loadu_si512((const void *)(tile + 2 * SUMS)));
            b = _mm512_add_epi32(
                b, _mm512_loadu_si512((const void *)(tile + 3 * SUMS)));
        }
        a = sums_joined(a);
        b = sums_joined(b);
        if (planes(kind) == 2) {
            sums_put(_mm512_add_epi64(_mm512_slli_epi64(a, 6), b), acc, first);
        } else {
            sums_put(a, acc, first);
            sums_put(b, acc + TILE_ROWS * width, first);
        }
    }
}

/* The sums of a block, or of a part of it, on their way to acc. */
struct sums {
    _Alignas(64) int32_t tile[4 * SUMS];
    float *acc;
    bool two, first; /* groups of columns; nothing is in acc yet */
};

INLINE void sums_store(struct sums *s, size_t width, float *acc, bool two,
                       bool first)
{
    _tile_stored(0, s->tile, width * 8);
    _tile_stored(1, s->tile + SUMS, width * 8);
    _tile_stored(2, s->tile + 2 * SUMS, width * 8);
    _tile_stored(3, s->tile + 3 * SUMS, width * 8);
    s->acc = acc;
    s->two = two;
    s->first = first;
}

INLINE void sums_settle(const struct sums *s, int kind, size_t width)
{
    sums_add(kind, s->tile, width, !s->two, s->acc, s->first);
    if (s->two) {
        sums_add(kind, s->tile + 2 * SUMS, width, false, s->acc + UNIT * GROUP,
                 s->first);
    }
}

/* Four registers of four rows each, [column][row] in each, to 16 rows of four
 * columns. */
INLINE void lanes_put(const __m512 u[4], float *out)
{
    const __m512 a = _mm512_shuffle_f32x4(u[0], u[1], 0x88);
    const __m512 b = _mm512_shuffle_f32x4(u[0], u[1], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(u[2], u[3], 0x88);
    const __m512 d = _mm512_shuffle_f32x4(u[2], u[3], 0xdd);
    _mm512_storeu_ps(out, _mm512_shuffle_f32x4(a, c, 0x88));
    _mm512_storeu_ps(out + UNIT, _mm512_shuffle_f32x4(b, d, 0x88));
    _mm512_storeu_ps(out + 2 * UNIT, _mm512_shuffle_f32x4(a, c, 0xdd));
    _mm512_storeu_ps(out + 3 * UNIT, _mm512_shuffle_f32x4(b, d, 0xdd));
}

/* The sums of a group as linear_finish wants them, [column][row]. */
INLINE void group_turn(float *acc, size_t width)
{
    const __m512i turn = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5,
                                          1, 12, 8, 4, 0);
    const __m512i left = _mm512_set_epi32(27, 19, 11, 3, 26, 18, 10, 2, 25, 17,
                                          9, 1, 24, 16, 8, 0);
    const __m512i right = _mm512_add_epi32(left, _mm512_set1_epi32(4));
    UNSET float t[UNIT * GROUP];
    memcpy(t, acc, UNIT * width * sizeof(*t));
    for (size_t r = 0; r < UNIT; r += 16) {
        UNSET __m512 u[4];
        UNSET __m512 v[4];
        for (size_t i = 0; i < 4; i++) {
            const float *four = t + (r + 4 * i) * width;
            const __m512 a = _mm512_loadu_ps(four);
            if (width == HALF) {
                u[i] = _mm512_permutexvar_ps(turn, a);
            } else {
                const __m512 b = _mm512_loadu_ps(four + 16);
                u[i] = _mm512_permutex2var_ps(a, left, b);
                v[i] = _mm512_permutex2var_ps(a, right, b);
            }
        }
        lanes_put(u, acc + r);
        if (width != HALF) {
            lanes_put(v, acc + HALF * UNIT + r);
        }
    }
}

INLINE void unit_finish(const struct linear_job *j, size_t o, size_t width,
                        float *acc)
{
    for (size_t g = 0; g < linear_groups(j->cols); g++) {
        group_turn(acc + g * UNIT * GROUP, width);
    }
    linear_finish(j, o, UNIT, 0, j->n, acc, UNIT);
}
