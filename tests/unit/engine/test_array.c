/* test_array.c - whole arrays between strides and types, blocks of positions:
 * bits stay as they are, padding is nobody's. */
#include <math.h>

#include "../unit.h"
#include "base/half.h"
#include "engine/array.h"

enum { ROOM = 4096, HOLE = 0x5a };

/* An array of these dims; the innermost one is padded, and dimension `far` has
 * elements that lie apart. */
static struct backend_array make(enum mil_dtype t, int rank,
                                 const int64_t *dims, int64_t pad, int far)
{
    struct backend_array a = {.dtype = t, .rank = rank};
    int64_t n = 1;
    for (int i = rank; i-- > 0;) {
        a.dims[i] = dims[i];
        n *= i == far ? 3 : 1;
        a.strides[i] = n;
        n = n * dims[i] + (i == rank - 1 ? pad : 0);
    }
    assert_true(n * 4 < ROOM);
    a.data = malloc(ROOM);
    assert_non_null(a.data);
    memset(a.data, HOLE, ROOM);
    return a;
}

static size_t place(const struct backend_array *a, size_t i)
{
    int64_t at = 0;
    for (int k = a->rank; k-- > 0; i /= (size_t)a->dims[k]) {
        at += (int64_t)(i % (size_t)a->dims[k]) * a->strides[k];
    }
    return (size_t)at * array_dtype_bytes(a->dtype);
}

static void put(struct backend_array *a, size_t i, const void *p)
{
    memcpy((char *)a->data + place(a, i), p, array_dtype_bytes(a->dtype));
}

static void expect(const struct backend_array *a, size_t i, const void *p)
{
    assert_memory_equal((const char *)a->data + place(a, i), p,
                        array_dtype_bytes(a->dtype));
}

/* Bytes that are no element. */
static size_t holes(const struct backend_array *a)
{
    size_t n = 0;
    for (size_t i = 0; i < ROOM; i++) {
        n += ((const unsigned char *)a->data)[i] == HOLE;
    }
    return n;
}

static const int64_t shapes[][4] = {
    {2, 3, 4, 5},
    {1, 6, 4, 1},
    {1, 7, 1, 1},
    {1, 1, 1, 9},
    {1, 1, 1, 1},
};

/* Every pair of layouts, one type: any bits, not-a-numbers too. */
static void test_same_type(void **state)
{
    static const enum mil_dtype types[] = {MIL_FP32, MIL_FP16, MIL_INT32,
                                           MIL_BOOL};
    (void)state;
    for (size_t x = 0; x < countof(types) * countof(shapes) * 16; x++) {
        enum mil_dtype t = types[x % 4];
        const int64_t *dims = shapes[x / 4 % countof(shapes)];
        size_t w = x / 4 / countof(shapes);
        struct backend_array from =
            make(t, 4, dims, (int64_t)(w % 2) * 3, w & 2 ? 2 : -1);
        struct backend_array to =
            make(t, 4, dims, (int64_t)(w / 4 % 2) * 5, w & 8 ? 1 : -1);
        size_t n = array_count(&from);
        for (size_t i = 0; i < n; i++) {
            uint32_t bits = 0x7f817c01u + (uint32_t)i * 0x01000193u;
            put(&from, i, &bits);
        }
        array_copy(&to, &from);
        for (size_t i = 0; i < n; i++) {
            uint32_t bits = 0x7f817c01u + (uint32_t)i * 0x01000193u;
            expect(&to, i, &bits);
        }
        assert_true(holes(&to) >= ROOM - n * array_dtype_bytes(t));
        free(from.data);
        free(to.data);
    }
}

static void test_conversion(void **state)
{
    (void)state;
    for (size_t x = 0; x < countof(shapes); x++) {
        struct backend_array f = make(MIL_FP32, 4, shapes[x], 2, -1);
        struct backend_array h = make(MIL_FP16, 4, shapes[x], 1, 2);
        struct backend_array i32 = make(MIL_INT32, 4, shapes[x], 0, 1);
        size_t n = array_count(&f);
        for (size_t i = 0; i < n; i++) {
            float v = (float)i * 0.75f - 3;
            put(&f, i, &v);
        }
        array_copy(&h, &f);
        array_copy(&i32, &h);
        for (size_t i = 0; i < n; i++) {
            float v = (float)i * 0.75f - 3;
            uint16_t bits = half_from_float(v);
            int32_t whole = (int32_t)rintf(v);
            expect(&h, i, &bits);
            expect(&i32, i, &whole);
        }
        free(f.data);
        free(h.data);
        free(i32.data);
    }
}

static void test_dense(void **state)
{
    (void)state;
    static const int64_t dims[3] = {2, 3, 4};
    int32_t in[24];
    int32_t out[24] = {0};
    struct backend_array a = make(MIL_INT32, 3, dims, 3, 1);
    struct tensor t = {.dtype = MIL_INT32, .rank = 3, .data = in};
    memcpy(t.dims, dims, sizeof(dims));
    for (int32_t i = 0; i < 24; i++) {
        in[i] = (1 << 24) + i; /* no float has all of these */
    }
    array_from_dense(&a, &t);
    t.data = out;
    array_to_dense(&a, &t);
    assert_memory_equal(in, out, sizeof(in));
    free(a.data);
}

/* A scalar is one element; an empty array none. */
static void test_ranks(void **state)
{
    (void)state;
    float x = 3;
    float y = 0;
    struct backend_array a = {.dtype = MIL_FP32, .data = &x};
    struct backend_array b = {.dtype = MIL_FP32, .data = &y};
    array_copy(&b, &a);
    assert_memory_equal(&x, &y, sizeof(x));
    a = (struct backend_array){.dtype = MIL_FP32, .rank = 1, .dims = {0}};
    array_lay(&a);
    b = a;
    array_copy(&b, &a);
}

static void test_blocks(void **state)
{
    (void)state;
    static const struct mil_type type = {
        .dtype = MIL_FP16, .rank = 4, .dims = {1, 2, 130, 3}
    };
    enum { N = 2 * 130 * 3, BLOCK = 2 * STATE_BLOCK * 3 };
    uint16_t dense[N];
    uint16_t wide[2 * 130 * 32];
    uint16_t block[BLOCK];
    struct backend_array a = {.dtype = MIL_FP16, .rank = 4, .data = dense};
    memcpy(a.dims, type.dims, sizeof(a.dims));
    array_lay(&a);
    for (size_t i = 0; i < N; i++) {
        dense[i] = (uint16_t)(0x7c01 + i); /* signalling ones too */
    }
    struct backend_array b = a; /* rows of 64 bytes */
    b.strides[0] = 2 * 130 * 32;
    b.strides[1] = 130 * 32;
    b.strides[2] = 32;
    b.data = wide;
    memset(wide, 0, sizeof(wide));
    assert_int_equal(array_block_bytes(&type), sizeof(block));
    assert_true(array_block(&a, 1, block, true));
    for (size_t h = 0; h < 2; h++) {
        assert_memory_equal(block + h * STATE_BLOCK * 3,
                            dense + (h * 130 + STATE_BLOCK) * 3,
                            STATE_BLOCK * 3 * 2);
    }
    assert_true(array_block(&b, 1, block, false));
    memset(block, 0, sizeof(block));
    assert_true(array_block(&b, 1, block, true));
    for (size_t h = 0; h < 2; h++) {
        assert_memory_equal(block + h * STATE_BLOCK * 3,
                            dense + (h * 130 + STATE_BLOCK) * 3,
                            STATE_BLOCK * 3 * 2);
        assert_int_equal(wide[(h * 130 + 63) * 32], 0);
        assert_int_equal(wide[(h * 130 + 128) * 32], 0);
    }
    assert_false(array_block(&a, 2, block, true)); /* 130 are not 192 */
}

static void test_no_blocks(void **state)
{
    (void)state;
    static const struct mil_type of[] = {
        {.dtype = MIL_FP32, .rank = 4, .dims = {1, 2, 128, 3}},
        {.dtype = MIL_FP16, .rank = 3, .dims = {2, 128, 3}   },
        {.dtype = MIL_FP16, .rank = 4, .dims = {2, 2, 128, 3}},
        {.dtype = MIL_FP16, .rank = 4, .dims = {1, 2, 63, 3} },
    };
    for (size_t i = 0; i < countof(of); i++) {
        assert_int_equal(array_block_bytes(&of[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_type), cmocka_unit_test(test_conversion),
        cmocka_unit_test(test_dense),     cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_blocks),    cmocka_unit_test(test_no_blocks),
    };
    return cmocka_run_group_tests_name("array", tests, NULL, NULL);
}
