/* kernel_avx512.c - the "avx512" set: F, BW, DQ, VL and VNNI. */
#include <immintrin.h>

#include "engine/cpu/kernels/attention/attend_impl.h"
#include "engine/cpu/kernels/products/linear_impl.h"
#include "engine/cpu/kernels/sets/vectors_512.h"
#include "engine/cpu/kernels/simd.h"

#if !defined(__AVX512F__) /* simulated: no such registers */
#undef ORDER
#define ORDER(v) ((void)(v))
#endif

#define VB        64
#define FEW_TALL  4
#define FEW_COLS  4
#define MANY_VECS 2
#define MANY_COLS 8

typedef __m512i vi;

INLINE vi vi_zero(void)
{
    return _mm512_setzero_si512();
}

/* ORDER: loaded once, not once for each product or by way of the stack. */
INLINE vi vi_load(const int16_t *p)
{
    vi a = _mm512_loadu_si512((const void *)p);
    ORDER(a);
    return a;
}

INLINE void vi_store(int16_t *p, vi a)
{
    _mm512_storeu_si512((void *)p, a);
}

INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

INLINE vi vi_dot(vi acc, vi w, vi x)
{
    acc = _mm512_dpwssd_epi32(acc, w, x);
    ORDER(acc);
    return acc;
}

INLINE vi vi_abs(vi a)
{
    return _mm512_abs_epi16(a);
}

INLINE vi vi_ones(void)
{
    return _mm512_set1_epi16(1);
}

INLINE vi vi_pair(const int16_t *q)
{
    int32_t pair = 0;
    memcpy(&pair, q, sizeof(pair));
    return _mm512_set1_epi32(pair);
}

INLINE vi vi_split8(vi b, int odd)
{
    return _mm512_srai_epi16(odd ? b : _mm512_slli_epi16(b, 8), 8);
}

INLINE vi vi_half8(const int8_t *p, int odd)
{
    return vi_split8(_mm512_loadu_si512((const void *)p), odd);
}

INLINE vi vi_half4(const uint8_t *p, int odd)
{
    __m512i b = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)p));
    return odd ? _mm512_srai_epi16(b, 4)
               : _mm512_srai_epi16(_mm512_slli_epi16(b, 12), 12);
}

typedef __m128i vi4;

INLINE vi4 vi_across(const vi a[4])
{
    return across_512(a);
}

INLINE void vi_floats(float *out, vi a, bool first)
{
    __m512 f = _mm512_cvtepi32_ps(a);
    _mm512_storeu_ps(out, first ? f : _mm512_add_ps(_mm512_loadu_ps(out), f));
}

INLINE void vi_floats_wide(float *out, vi high, vi low, bool first)
{
    __m512 f = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high),
                               _mm512_set1_ps((float)(1 << LOOK_SHIFT)),
                               _mm512_cvtepi32_ps(low));
    _mm512_storeu_ps(out, first ? f : _mm512_add_ps(_mm512_loadu_ps(out), f));
}

/* 16 x 16 of int32: each 4 x 4 in its lane of 128 bits, then the lanes. */
INLINE void vi_transpose(vi t[16])
{
    UNSET vi a[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(t[i], t[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(t[i], t[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        t[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        t[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        t[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        t[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        a[i] = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88);
        a[i + 4] = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);
        a[i + 8] = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
        a[i + 12] = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        t[i] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0x88);
        t[i + 8] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0xdd);
    }
}

/* --- tables (linear_look.h): words of a register, or of two --- */

#define LOOK_KEEP

/* Any number: a lookup costs less than a word that is stored and read again. */
#define LOOK_DIRECT 64

#define LOOK_MEASURED

#define LOOK_PAIRS PAIRS_ONE
#define LOOK_OWN   1u

#define LOOK_NARROWS 31u /* those of int_few */

struct lk_table {
    vi entries[2]; /* 16 twice, or 64 */
};

INLINE vi vi_high(vi a)
{
    return _mm512_srai_epi32(a, LOOK_SHIFT);
}

INLINE vi vi_low(vi a)
{
    return _mm512_and_si512(a, _mm512_set1_epi32((1 << LOOK_SHIFT) - 1));
}

#define LOOK_EIGHT true

/* Two numbers of a pair as 64 bits, and their sum. */
INLINE vi pair_sums(vi a)
{
    return _mm512_add_epi64(_mm512_mul_epi32(a, _mm512_set1_epi64(1)),
                            _mm512_srai_epi64(a, 32));
}

INLINE vi add_lanes(vi a, vi b)
{
    return _mm512_add_epi64(_mm512_shuffle_i32x4(a, b, 0x88),
                            _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* In 64 bits nothing has to be split before it is added up across: half of the
 * instructions that vi_across takes for both parts. */
INLINE void lk_put8(const vi a[8], float *out, float *next, bool first)
{
    UNSET vi p[4];
    for (int i = 0; i < 4; i++) {
        vi b = pair_sums(a[2 * i]);
        vi c = pair_sums(a[2 * i + 1]);
        p[i] = _mm512_add_epi64(_mm512_unpacklo_epi64(b, c),
                                _mm512_unpackhi_epi64(b, c));
    }
    vi s = add_lanes(add_lanes(p[0], p[1]), add_lanes(p[2], p[3]));
    __m256 f = _mm512_cvtepi64_ps(s);
    __m128 g = _mm256_castps256_ps128(f);
    __m128 h = _mm256_extractf128_ps(f, 1);
    _mm_storeu_ps(out, first ? g : _mm_add_ps(_mm_loadu_ps(out), g));
    _mm_storeu_ps(next, first ? h : _mm_add_ps(_mm_loadu_ps(next), h));
}

INLINE void lk_set(int kind, struct lk_table *t, const int16_t *e)
{
    if (kind == LOOK_NARROW) {
        __m128i bytes = _mm_packs_epi16(
            _mm_loadu_si128((const void *)e),
            _mm_loadu_si128((const void *)(e + 8)));
        bytes = _mm_xor_si128(bytes, _mm_set1_epi8((char)NARROW_MORE));
        t->entries[0] = _mm512_broadcast_i32x4(bytes);
    } else if (kind == WEIGHT_LUT4) {
        __m256i all = _mm256_loadu_si256((const void *)e);
        t->entries[0] = _mm512_broadcast_i64x4(all);
    } else {
        t->entries[0] = _mm512_loadu_si512((const void *)e);
        t->entries[1] = _mm512_loadu_si512((const void *)(e + 32));
    }
}

/* Each two indices of four bits in a word. Of a word only the lowest five bits
 * count, and entries are there twice: nothing is masked. */
INLINE void lk_look4(const struct lk_table *t, const uint8_t *p, vi w[2])
{
    vi k = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)p));
    w[0] = _mm512_permutexvar_epi16(k, t->entries[0]);
    w[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(k, 4), t->entries[0]);
}

/* Four indices in a word: no byte is made a word. */
INLINE void lk_pair(const struct lk_table *t, vi k, int half, vi w[2])
{
    k = half ? _mm512_srli_epi16(k, 8) : k;
    w[0] = _mm512_permutexvar_epi16(k, t->entries[0]);
    w[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(k, 4), t->entries[0]);
}

/* Of each four elements the first, then the second, and so on. */
INLINE void pair_words(const int16_t *q, int16_t *to)
{
    const vi even = _mm512_set_epi16(
        62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28,
        26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const vi odd = _mm512_add_epi16(even, vi_ones());
    for (int part = 0; part < 2; part++, to += VB / 2) {
        vi a = vi_load(q + part * (VB / 2));
        vi b = vi_load(q + VB + part * (VB / 2));
        vi_store(to, _mm512_permutex2var_epi16(a, even, b));
        vi_store(to + VB, _mm512_permutex2var_epi16(a, odd, b));
    }
}

/* Three bytes of four indices in a word and a word that overlaps it; of a word
 * only the lowest six bits count. */
INLINE void lk_look6(const struct lk_table *t, const uint8_t *p, vi w[2])
{
    const vi lanes =
        _mm512_set_epi32(0, 11, 10, 9, 0, 8, 7, 6, 0, 5, 4, 3, 0, 2, 1, 0);
    const vi bytes =
        _mm512_set4_epi32(0x0b0a0a09, 0x08070706, 0x05040403, 0x02010100);
    vi k = _mm512_maskz_loadu_epi32(0x0fff, p);
    k = _mm512_permutexvar_epi32(lanes, k);
    k = _mm512_shuffle_epi8(k, bytes);
    vi even = _mm512_srlv_epi16(k, _mm512_set1_epi32(4 << 16));
    vi odd = _mm512_srlv_epi16(k, _mm512_set1_epi32(10 << 16 | 6));
    w[0] = _mm512_permutex2var_epi16(t->entries[0], even, t->entries[1]);
    w[1] = _mm512_permutex2var_epi16(t->entries[0], odd, t->entries[1]);
}

/* --- narrow tables (linear_narrow.h) --- */

INLINE vi lk_bytes(const struct lk_table *t, const char *p, int odd)
{
    vi k = _mm512_loadu_si512((const void *)p);
    k = odd ? _mm512_srli_epi16(k, 4) : k;
    return _mm512_shuffle_epi8(t->entries[0],
                               _mm512_and_si512(k, _mm512_set1_epi8(15)));
}

INLINE vi lk_dot8(vi acc, vi w, vi x)
{
    acc = _mm512_dpbusd_epi32(acc, w, x);
    ORDER(acc);
    return acc;
}

INLINE vi lk_join8(vi high, vi low)
{
    return _mm512_add_epi32(_mm512_slli_epi32(high, 7), low);
}

/* Of NARROW_STEP words at q; second: there are more than VB. Returns their
 * sums. */
INLINE vi narrow_step_own(const int16_t *q, bool second, int16_t *to)
{
    const vi low7 = _mm512_set1_epi16(127);
    vi sum = vi_zero();
    for (int odd = 0; odd < 2; odd++, q += VB / 2, to += VB / 2) {
        vi a = vi_load(q);
        vi b = second ? vi_load(q + VB) : vi_zero();
        vi_store(to, bytes_512(_mm512_srai_epi16(a, 7),
                               _mm512_srai_epi16(b, 7)));
        vi_store(to + VB, bytes_512(_mm512_and_si512(a, low7),
                                    _mm512_and_si512(b, low7)));
        sum = vi_dot(vi_dot(sum, a, vi_ones()), b, vi_ones());
    }
    return sum;
}

INLINE void narrow_own(const int16_t *q, size_t k, int16_t *to)
{
    int16_t *less = to + narrow_words(k);
    for (size_t at = 0; at < k; at += LOOK_BLOCK, less += VB / 2) {
        vi sum = vi_zero();
        for (size_t i = at; i < k && i < at + LOOK_BLOCK; i += NARROW_STEP) {
            sum = vi_add(sum, narrow_step_own(q + i, k - i > VB, to + i));
        }
        vi_store(less, _mm512_sub_epi32(vi_zero(), sum));
    }
}

#include "engine/cpu/kernels/sets/kernel_x86.h"
#include "engine/cpu/kernels/products/linear_int.h"
#include "engine/cpu/kernels/products/linear_round.h"

const struct kernels kernels_avx512 = {
    .name = "avx512",
    .k_step = VB,
    .round_row = round_row,
    .split_row = split_row,
    .int_few = int_few,
    .int_many = int_many,
    .many = LOOK_NARROWS + 1,
    .lane = int_lane,
    .run = look_run_of,
    .own_words = LOOK_OWN,
    .narrow_cols = LOOK_NARROWS,
    .attend_product = attend_product,
    .attend_weigh = attend_weigh,
    .attend_join = attend_join,
};
