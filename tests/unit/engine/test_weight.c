/* test_weight.c - rows of tables: groups of rows and of columns, even and odd
 * places, every number of index bits, against the definition. */
#include "../unit.h"
#include "engine/cpu/weight.h"

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
    uint8_t *exact = malloc(bytes); /* a sanitizer sees what is read behind */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
