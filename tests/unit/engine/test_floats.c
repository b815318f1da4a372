/* Every table of floats.h that this machine runs, against the plain one: the
 * same bits for every length, in place and apart. */
#include <math.h>
#include <string.h>

#include "../unit.h"
#include "engine/cpu/kernels/floats.h"
#include "engine/cpu/kernels/products/gemm.h"

#define N 131 /* longer than any step of a loop, and no multiple of one */

static uint64_t state_;

static uint32_t draw(void)
{
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state_ >> 32);
}

/* Small and large numbers; now and then a special one. */
static void fill(float *x, size_t n, bool special)
{
    static const float odd[] = {0.0f,     -0.0f,    INFINITY, -INFINITY,
                                NAN,      0x1p-149f, 0x1p127f, -88.5f,
                                -103.98f, 88.73f};
    for (size_t i = 0; i < n; i++) {
        x[i] = ldexpf((float)(int32_t)draw(), (int)(draw() % 12) - 36);
        if (special && draw() % 16 == 0) {
            x[i] = odd[draw() % countof(odd)];
        }
    }
}

static const struct floats *plain(void)
{
    const struct floats *f = NULL;
    for (size_t i = 0; floats_each(i) != NULL; i++) {
        f = floats_each(i);
    }
    assert_string_equal(f->name, "scalar");
    return f;
}

/* NaNs may differ in what they carry. */
static void same(const char *what, const struct floats *f, size_t n,
                 const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&a[i], &b[i], sizeof(*a)) != 0 &&
            !(isnan(a[i]) && isnan(b[i]))) {
            fail_msg("%s of %zu: %s gives %a at %zu, not %a", f->name, n, what,
                     (double)b[i], i, (double)a[i]);
        }
    }
}

#define MAP(f)                                        \
    do {                                              \
        memcpy(a, x, sizeof(a));                      \
        memcpy(b, x, sizeof(b));                      \
        p->f(a, x, n);                                \
        k->f(b, b, n);                                \
        same(#f, k, n, a, b, N);                      \
    } while (0)

#define TO_ONE(f)                           \
    do {                                    \
        a[0] = p->f(x, n);                  \
        b[0] = k->f(x, n);                  \
        same(#f, k, n, a, b, 1);            \
    } while (0)

static void test_maps_and_sums(void **state)
{
    (void)state;
    const struct floats *p = plain();
    for (size_t s = 0; floats_each(s) != NULL; s++) {
        const struct floats *k = floats_each(s);
        for (size_t n = 1; n <= N; n++) {
            float x[N];
            float w[N];
            float a[N];
            float b[N];
            fill(x, N, n % 2 == 0);
            fill(w, N, false);
            MAP(exp);
            MAP(sigmoid);
            MAP(silu);
            MAP(tanh);
            MAP(gelu_tanh);
            MAP(gelu_sigmoid);
            MAP(softmax);
            TO_ONE(sum);
            TO_ONE(sum_square);
            TO_ONE(max);
            memcpy(a, w, sizeof(a));
            memcpy(b, w, sizeof(b));
            p->add_scaled(a, 1.1f, x, n);
            k->add_scaled(b, 1.1f, x, n);
            same("add_scaled", k, n, a, b, N);
            p->multiply(a, x, n);
            k->multiply(b, x, n);
            same("multiply", k, n, a, b, N);
            p->scale(a, x, 0.3f, w, n);
            k->scale(b, x, 0.3f, w, n);
            same("scale by weights", k, n, a, b, N);
            p->scale(a, x, 0.7f, NULL, n);
            k->scale(b, x, 0.7f, NULL, n);
            same("scale", k, n, a, b, N);
            p->rotate(a, x, w, w + N / 2, n / 2);
            memcpy(b, x, sizeof(b));
            k->rotate(b, b, w, w + N / 2, n / 2);
            same("rotate", k, n, a, b, n / 2 * 2);
        }
    }
}

static void test_tables_of_sixteen(void **state)
{
    (void)state;
    const struct floats *p = plain();
    for (size_t s = 0; floats_each(s) != NULL; s++) {
        const struct floats *k = floats_each(s);
        for (size_t n = 1; n <= N; n++) {
            uint8_t index[N / 2 + 1];
            float table[16];
            float a[N] = {0};
            float b[N] = {0};
            fill(table, 16, true);
            for (size_t i = 0; i < sizeof(index); i++) {
                index[i] = (uint8_t)draw();
            }
            p->look_up(a, index, table, n);
            k->look_up(b, index, table, n);
            same("look_up", k, n, a, b, N);
            assert_memory_equal(&a[n - 1],
                                &table[(index[(n - 1) / 2] >>
                                        ((n - 1) % 2 * 4)) &
                                       15],
                                sizeof(float));
        }
    }
}

enum { ROWS = 9, COLS = 7, DEPTH = 53 };

static void test_products(void **state)
{
    (void)state;
    const struct floats *p = plain();
    static float w[ROWS * DEPTH];
    static uint16_t half[ROWS * DEPTH];
    static int8_t byte[ROWS * DEPTH];
    static float x[COLS * 64];
    float scale[ROWS];
    const enum weight_kind kinds[] = {WEIGHT_F32, WEIGHT_F16, WEIGHT_I8};
    const void *data[] = {w, half, byte};
    fill(w, countof(w), false);
    fill(scale, ROWS, false);
    for (size_t i = 0; i < countof(w); i++) {
        half[i] = (uint16_t)(draw() & 0xbbff); /* finite */
        byte[i] = (int8_t)draw();
    }
    for (size_t s = 0; floats_each(s) != NULL; s++) {
        const struct floats *k = floats_each(s);
        for (size_t n = 0; n < 3 * COLS * DEPTH; n++) {
            size_t kind = n % 3;
            float a[ROWS * COLS] = {0};
            float b[ROWS * COLS] = {0};
            struct gemm g = {.kind = kinds[kind],
                             .w = data[kind],
                             .ldw = DEPTH,
                             .scale = scale,
                             .rows = ROWS,
                             .cols = n / 3 % COLS + 1,
                             .k = n / 3 / COLS + 1,
                             .x = x,
                             .y = a,
                             .ldr = COLS,
                             .ldc = 1};
            size_t pad = gemm_pad(g.k);
            memset(x, 0, sizeof(x));
            for (size_t c = 0; c < g.cols; c++) {
                fill(x + c * pad, g.k, false);
            }
            p->gemm(&g, 0, ROWS, 0);
            g.y = b;
            k->gemm(&g, 0, ROWS, 0);
            same("gemm", k, g.k, a, b, ROWS * COLS);
        }
        for (size_t n = 1; n <= DEPTH; n++) {
            float a[2 * DEPTH] = {0};
            float b[2 * DEPTH] = {0};
            struct chain c = {.x = x,
                              .ldx = 16,
                              .k = ROWS,
                              .n = n,
                              .m = 2,
                              .half = n % 2 == 0,
                              .o = a};
            c.y = c.half ? (const void *)half : (const void *)w;
            p->chain(&c, 0, (n + 31) / 32);
            c.o = b;
            k->chain(&c, 0, (n + 31) / 32);
            same("chain", k, n, a, b, 2 * DEPTH);
        }
    }
}

static void test_the_choice(void **state)
{
    (void)state;
    assert_ptr_equal(floats(), floats_each(0));
    floats_choose("scalar");
    assert_ptr_equal(floats(), plain());
    floats_choose("avx512");
    assert_ptr_equal(floats(), floats_each(0));
    for (size_t i = 0; floats_each(i) != NULL; i++) {
        print_message("# table: %s\n", floats_each(i)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps_and_sums),
        cmocka_unit_test(test_tables_of_sixteen),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_the_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
