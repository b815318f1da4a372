/* kernel_amx.c - the "amx" set: products of MANY columns and more by tiles of
 * bytes (AMX-TILE, AMX-INT8, with AVX-512's VBMI), and of one column with
 * tables of 64 entries (tiles/six_one.h); all else is what the "avx512" set
 * does.
 *
 * A tile register has 16 rows of 64 bytes. One instruction adds to 16 x 16 sums
 * the products of 16 rows of weights, 64 elements of each, with 16 columns of
 * bytes: by the rates of instructions 8 times what those for 16 bits do, with
 * both halves counted. Integers are taken apart into signed bytes for it:
 *
 *   a column  q = 128 * high + low   high in [-128, 127], low in [0, 127]
 *   a table   e =  64 * high + low   high in [-64, 63],   low in [0, 63]
 *
 * 8 columns make a tile, the high and the low bytes of each side by side
 * (kernels.pack). 16 rows of weights are a tile (those of 4 bits are looked up,
 * as the numbers that nibbles mean; so are narrow tables), or with other tables
 * two, of high and of low bytes. The sums of bytes are joined in 64 bits,
 * exactly, and rounded to a float once for each block: the bits of every other
 * set.
 *
 * A *strip* is the rows whose bytes fill two tiles: 32, or 16 of two tiles
 * each. One or two groups of columns (few_units) meet each strip once. Weights
 * of 8 bits are read where they lie, others are looked up into memory some
 * steps before they are read as tiles. For more columns (many_units) a block of
 * the strip is made ready in the scratch, and all columns pass by it, 16 at a
 * time.
 */
#include "engine/cpu/kernels/products/tiles/six_one.h"
#include "engine/cpu/kernels/products/tiles/tile_few.h"
#include "engine/cpu/kernels/products/tiles/tile_many.h"

/* Units from begin on; returns where they end. */
INLINE size_t units(const struct linear_job *j, int kind, size_t width,
                    size_t begin, size_t end, char *scratch)
{
    tiles_configure(width);
    size_t o = width == GROUP && linear_groups(j->cols) > FEW_GROUPS
                   ? many_units(j, kind, begin, end, scratch)
                   : few_units(j, kind, width, begin, end, scratch);
    _tile_release();
    return o;
}

typedef size_t units_fn(const struct linear_job *j, size_t begin, size_t end,
                        char *scratch);

#define UNITS_OF(name, kind, width)                                           \
    static __attribute__((noinline)) size_t name(                             \
        const struct linear_job *j, size_t begin, size_t end, char *scratch)  \
    {                                                                         \
        return units(j, kind, width, begin, end, scratch);                    \
    }

UNITS_OF(half_i8, WEIGHT_I8, HALF)
UNITS_OF(half_i4, WEIGHT_I4, HALF)
UNITS_OF(half_lut4, WEIGHT_LUT4, HALF)
UNITS_OF(half_lut6, WEIGHT_LUT6, HALF)
UNITS_OF(half_narrow, LOOK_NARROW, HALF)
UNITS_OF(whole_i8, WEIGHT_I8, GROUP)
UNITS_OF(whole_i4, WEIGHT_I4, GROUP)
UNITS_OF(whole_lut4, WEIGHT_LUT4, GROUP)
UNITS_OF(whole_lut6, WEIGHT_LUT6, GROUP)
UNITS_OF(whole_narrow, LOOK_NARROW, GROUP)

static void int_many(const struct linear_job *j, size_t begin, size_t end,
                    void *scratch)
{
    static units_fn *const half[] = {[WEIGHT_I8] = half_i8,
                                     [WEIGHT_I4] = half_i4,
                                     [WEIGHT_LUT4] = half_lut4,
                                     [WEIGHT_LUT6] = half_lut6,
                                     [LOOK_NARROW] = half_narrow};
    static units_fn *const whole[] = {[WEIGHT_I8] = whole_i8,
                                      [WEIGHT_I4] = whole_i4,
                                      [WEIGHT_LUT4] = whole_lut4,
                                      [WEIGHT_LUT6] = whole_lut6,
                                      [LOOK_NARROW] = whole_narrow};
    struct linear_job mine = *j;
    while (begin + UNIT <= end) {
        bool narrow = false;
        const size_t stop = narrow_stop(j, begin, end, &narrow);
        const int kind = narrow ? LOOK_NARROW : (int)j->kind;
        units_fn *run = j->cols <= HALF ? half[kind] : whole[kind];
        mine.then = stop < end ? j->w + stop * j->ldw : j->then;
        begin = run(&mine, begin, stop, scratch);
    }
    if (begin < end) {
        kernels_avx512.int_few(j, begin, end, scratch);
    }
}

/* --- what is the avx512 set's, or mostly --- */

static bool round_row(const float *x, size_t k, size_t k_pad, int16_t *q,
                      float *scale)
{
    return kernels_avx512.round_row(x, k, k_pad, q, scale);
}

static void split_row(const float *x, size_t k, size_t k_pad, int16_t *hi,
                      int16_t *lo)
{
    kernels_avx512.split_row(x, k, k_pad, hi, lo);
}

static void int_few(const struct linear_job *j, size_t begin, size_t end,
                    void *scratch)
{
    if (six_fits(j)) {
        begin = six_run(j, begin, end, scratch);
    }
    kernels_avx512.int_few(j, begin, end, scratch);
}

static size_t run(const int16_t *q, size_t k_pad)
{
    return kernels_avx512.run(q, k_pad);
}

static void attend_product(const struct attend_product *m)
{
    kernels_avx512.attend_product(m);
}

static void attend_weigh(float *x, size_t begin, size_t end, bool divide,
                         float scale, float *ret_max, float *ret_sum)
{
    kernels_avx512.attend_weigh(x, begin, end, divide, scale, ret_max, ret_sum);
}

static void attend_join(const struct attend_spans *s)
{
    kernels_avx512.attend_join(s);
}

const struct kernels kernels_amx = {
    .name = "amx",
    .k_step = STEP,
    .round_row = round_row,
    .split_row = split_row,
    .int_few = int_few,
    .int_many = int_many,
    .many = MANY,
    .run = run,
    .own_words = 1,
    .narrow_cols = MANY - 1,
    .pack = pack,
    .pack_order = pack_order,
    .attend_product = attend_product,
    .attend_weigh = attend_weigh,
    .attend_join = attend_join,
};
