/* test_weight.c - rows of tables: groups of rows and of columns, even and odd
 * places, every number of index bits, against the definition. */
#include <math.h>
#include <stdlib.h>

#include "../unit.h"
#include "engine/cpu/weights/weight.h"

enum { ROWS = 6, COLS_MAX = 75, ENTRIES_MAX = 256 };

static uint32_t salt = 1;

static uint32_t pick(uint32_t n)
{
    salt = salt * 1664525U + 1013904223U;
    return (salt >> 8) % n;
}

/* block_rows and block_cols elements share a table. */
static void check(enum mil_dtype dtype, unsigned bits, size_t cols,
                  int64_t block_rows, int64_t block_cols)
{
    static uint8_t data[ROWS * COLS_MAX];
    static float lut[ROWS * COLS_MAX * ENTRIES_MAX];
    float out[COLS_MAX + 1];
    size_t entries = (size_t)1 << bits;
    size_t bytes = (ROWS * cols * bits + 7) / 8;
    uint8_t *exact = malloc(bytes); /* a sanitizer sees what is read after */
    assert_non_null(exact);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)pick(256);
    }
    memcpy(exact, data, bytes);
    const struct mil_const raw = {
        .type = {.dtype = dtype, .rank = 2, .dims = {ROWS, (int64_t)cols}},
        .data = exact,
        .bytes = bytes
    };
    const struct weight w = {
        .kind = WEIGHT_ROWS,
        .type = {.dtype = MIL_FP16, .rank = 2, .dims = {ROWS, (int64_t)cols}},
        .rows = ROWS,
        .cols = cols,
        .raw = &raw,
        .lut = lut,
        .lut_size = entries,
        .vector = 1,
        .block = {block_rows,                 block_cols                },
        .grid = {ROWS / block_rows,                 (int64_t)cols / block_cols}
    };
    size_t across = cols / (size_t)block_cols;
    for (size_t i = 0; i < ROWS / (size_t)block_rows * across * entries; i++) {
        lut[i] = (float)pick(4096) - 2048;
    }
    for (size_t r = 0; r < ROWS; r++) {
        out[cols] = 77;
        weight_row(&w, r, out);
        for (size_t c = 0; c < cols; c++) {
            size_t at = (r * cols + c) * bits; /* LSB first */
            unsigned k = 0;
            for (unsigned b = 0; b < bits; b++) {
                unsigned bit = data[(at + b) / 8] >> ((at + b) % 8) & 1;
                k |= bit << b;
            }
            size_t cell =
                r / (size_t)block_rows * across + c / (size_t)block_cols;
            assert_true(out[c] == lut[cell * entries + k]);
        }
        assert_true(out[cols] == 77);
    }
    free(exact);
}

static void test_tables(void **state)
{
    (void)state;
    static const struct {
        enum mil_dtype dtype;
        unsigned bits;
    } form[] = {
        {MIL_UINT1, 1},
        {MIL_UINT2, 2},
        {MIL_UINT3, 3},
        {MIL_UINT4, 4},
        {MIL_UINT6, 6},
        {MIL_UINT8, 8}
    };
    for (size_t i = 0; i < countof(form); i++) {
        for (size_t cols = 1; cols <= COLS_MAX; cols++) {
            check(form[i].dtype, form[i].bits, cols, 1, (int64_t)cols);
            check(form[i].dtype, form[i].bits, cols, 3, (int64_t)cols);
            if (cols % 3 == 0) {
                check(form[i].dtype, form[i].bits, cols, 2, (int64_t)cols / 3);
            }
        }
    }
}

/* The kind of 6 x cols indices with tables in a grid, as an operation of a
 * package has them. */
static float lut[ROWS * COLS_MAX * ENTRIES_MAX];

static void with_weight(enum mil_dtype dtype, int64_t entries, int64_t cols,
                        int64_t down, int64_t across, int64_t vector,
                        void (*check_it)(const struct weight *w, void *ctx),
                        void *ctx)
{
    static uint8_t zeros[ROWS * COLS_MAX];
    const struct mil_const indices = {
        .type = {.dtype = dtype, .rank = 2, .dims = {ROWS, cols}},
        .data = zeros,
        .bytes = sizeof(zeros)
    };
    const struct mil_const tables = {
        .type = {.dtype = MIL_FP32,
                 .rank = 4,
                 .dims = {down, across, entries, vector}},
        .data = lut,
        .bytes = sizeof(lut)
    };
    const int32_t axis = 0;
    const struct mil_const vector_axis = {
        .type = {.dtype = MIL_INT32}, .data = &axis, .bytes = sizeof(axis)};
    struct mil_binding b[] = {
        {.imm = &indices}, {.imm = &tables}, {.imm = &vector_axis}};
    struct mil_arg args[] = {
        {"indices",     1, &b[0]},
        {"lut",         1, &b[1]},
        {"vector_axis", 1, &b[2]}
    };
    struct mil_value value = {.type = {.dtype = MIL_FP16}};
    struct mil_value *out = &value;
    const struct mil_op op = {.type = "constexpr_lut_to_dense",
                              .n_args = countof(args),
                              .args = args,
                              .n_outputs = 1,
                              .outputs = &out};
    struct arena a;
    struct err e = {0};
    const struct weight *w = NULL;
    arena_init(&a, 1 << 20);
    unit_ok(weight_of_op(&a, &op, true, &w, &e), &e);
    check_it(w, ctx);
    arena_fini(&a);
}

static void take_kind(const struct weight *w, void *ctx)
{
    *(enum weight_kind *)ctx = w->kind;
}

static enum weight_kind kind_of(enum mil_dtype dtype, int64_t entries,
                                int64_t cols, int64_t down, int64_t across,
                                int64_t vector)
{
    enum weight_kind kind = WEIGHT_F32;
    with_weight(dtype, entries, cols, down, across, vector, take_kind, &kind);
    return kind;
}

/* Integers are what is nearest to the palette's own values. */
static void near_palette(const struct weight *w, void *ctx)
{
    size_t entries = *(const size_t *)ctx;
    for (size_t r = 0; r < ROWS; r++) {
        size_t first = r / (size_t)w->block[0] * entries;
        double peak = 0;
        for (size_t i = first; i < first + entries; i++) {
            peak = fmax(peak, fabs((double)lut[i]));
        }
        for (size_t i = first; i < first + entries; i++) {
            double v = w->table[i] * (double)w->scale[r];
            assert_true(abs(w->table[i]) <= WEIGHT_TABLE_PEAK);
            assert_true(fabs(v - (double)lut[i]) <=
                        peak * (0.5 / WEIGHT_TABLE_PEAK + 1e-6));
        }
    }
}

static void test_integer_tables(void **state)
{
    (void)state;
    for (int64_t down = 1; down <= ROWS; down++) {
        size_t entries = down % 2 == 0 ? 16 : 64;
        for (size_t i = 0; i < countof(lut); i++) {
            lut[i] = (float)pick(4096) - 2048;
            lut[i] = lut[i] * lut[i] * (i % 3 == 0 ? 1e-9F : -1e-9F);
        }
        memset(lut, 0, entries * sizeof(*lut)); /* a palette of zeros */
        if (ROWS % down == 0) {
            with_weight(entries == 16 ? MIL_UINT4 : MIL_UINT6, (int64_t)entries,
                        20, down, 1, 1, near_palette, &entries);
        }
    }
    memset(lut, 0, sizeof(lut));
}

/* Small integers times a scale are found, exactly; one that is too large, or a
 * number beside them, is not. */
static void narrow_or_not(const struct weight *w, void *ctx)
{
    const bool *narrow = ctx;
    assert_int_equal(w->kind, WEIGHT_LUT4);
    for (size_t r = 0; r < ROWS; r++) {
        const size_t table = r / (size_t)w->block[0];
        assert_int_equal(w->narrow[table], *narrow);
        for (size_t i = table * 16; *narrow && i < table * 16 + 16; i++) {
            assert_true(abs(w->table[i]) <= WEIGHT_NARROW_PEAK);
            assert_true((float)w->table[i] * w->scale[r] == lut[i]);
        }
    }
}

static void test_narrow_tables(void **state)
{
    (void)state;
    for (size_t round = 0; round < 300; round++) {
        const int64_t down = round % 2 ? ROWS : 2;
        const float scale =
            ldexpf((float)(1 + pick(15)), (int)pick(29) - 24 + (round % 9 == 0));
        bool narrow = round % 3 != 0;
        for (size_t i = 0; i < (size_t)down * 16; i++) {
            lut[i] = ((float)pick(255) - 127) * scale;
        }
        for (size_t i = 0; !narrow && i < (size_t)down * 16; i += 16) {
            lut[i] = scale * (float)(i % 32 ? 131 : 257); /* both prime */
            lut[i + 1] = scale;
        }
        with_weight(MIL_UINT4, 16, 18, down, 1, 1, narrow_or_not, &narrow);
    }
    bool narrow = false;
    for (size_t i = 0; i < 16; i++) {
        lut[i] = 1.0F / 3; /* no number of fp16 */
    }
    lut[3] = 0.25F;
    with_weight(MIL_UINT4, 16, 18, 1, 1, 1, narrow_or_not, &narrow);
    memset(lut, 0, sizeof(lut));
    narrow = true;
    with_weight(MIL_UINT4, 16, 18, 1, 1, 1, narrow_or_not, &narrow);
}

/* What is no number has no integer: the rows are decoded. */
static void test_infinite_entries(void **state)
{
    (void)state;
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < countof(odd); i++) {
        lut[17] = odd[i];
        assert_int_equal(kind_of(MIL_UINT4, 16, 18, 2, 1, 1), WEIGHT_ROWS);
        assert_int_equal(kind_of(MIL_UINT4, 16, 18, 1, 1, 1), WEIGHT_LUT4);
    }
    lut[17] = 0;
}

/* Tables of 16 and 64 for groups of whole rows that begin at a byte have a
 * kernel; all else is decoded. */
static void test_kinds(void **state)
{
    (void)state;
    for (int64_t down = 1; down <= ROWS; down++) {
        if (ROWS % down == 0) {
            assert_int_equal(kind_of(MIL_UINT4, 16, 18, down, 1, 1),
                             WEIGHT_LUT4);
            assert_int_equal(kind_of(MIL_UINT6, 64, 20, down, 1, 1),
                             WEIGHT_LUT6);
        }
    }
    assert_int_equal(kind_of(MIL_UINT4, 16, 17, 1, 1, 1), WEIGHT_ROWS);
    assert_int_equal(kind_of(MIL_UINT4, 16, 18, 2, 3, 1), WEIGHT_ROWS);
    assert_int_equal(kind_of(MIL_UINT4, 16, 18, 1, 1, 2), WEIGHT_ROWS);
    assert_int_equal(kind_of(MIL_UINT3, 8, 18, 1, 1, 1), WEIGHT_ROWS);
    assert_int_equal(kind_of(MIL_UINT8, 16, 18, 1, 1, 1), WEIGHT_ROWS);
    assert_int_equal(kind_of(MIL_UINT6, 64, 18, 1, 1, 1), WEIGHT_ROWS);
    assert_int_equal(kind_of(MIL_UINT6, 64, 20, 1, 2, 1), WEIGHT_ROWS);
    assert_int_equal(kind_of(MIL_UINT6, 48, 20, 1, 1, 1), WEIGHT_ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_integer_tables),
        cmocka_unit_test(test_narrow_tables),
        cmocka_unit_test(test_infinite_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
