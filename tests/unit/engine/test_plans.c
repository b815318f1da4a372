/* Programs that run as a whole, with many shapes: every one of them right, the
 * plans that are kept within their bounds, and used again. */
#include "engine/cpu/graph/plan.h"
#include "row_ops.h"

enum { SHAPES = 100, WIDTH = 64 };

/* Running sums along T of x [1, a, T, b]. */
static void open_sums(struct pkg *k, const struct backend *b, int64_t a,
                      int64_t width)
{
    const int64_t dims[4] = {1, a, -1, width};
    pkg_begin(k);
    struct mil_value *x =
        mil_add_input(k->p, k->f, "x", MIL_FP16, 4, dims, 1, 512);
    struct mil_value *no = mil_bool(k->p, k->f, false);
    output(k, mil_op(k->p, k->f, "cumsum", "y", "x", x, "axis",
                     mil_i32(k->p, k->f, 2), "exclusive", no, "reverse", no,
                     NULL));
    pkg_finish(k);
    pkg_open(k, b, 1, false);
}

static float at(size_t i)
{
    return (float)(i % 7) - 2;
}

/* One prediction with T = t; x is [a][t][b]. */
static void predict(struct pkg *k, int64_t a, int64_t t, int64_t b)
{
    const int64_t dims[4] = {1, a, t, b};
    struct err e = {0};
    size_t n = (size_t)(a * t * b);
    float *x = calloc(n, sizeof(*x));
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        x[i] = at(i);
    }
    struct tensor in = pkg_tensor("x", 4, dims, x);
    struct tensor out = {.name = "y"};
    unit_ok(plain_predict(k->b, k->m, NULL, &in, 1, &out, 1, &e), &e);
    assert_int_equal(out.rank, 4);
    assert_memory_equal(out.dims, dims, sizeof(dims));
    const float *y = out.data;
    for (size_t c = 0; c < (size_t)(a * b); c++) {
        size_t from = c / (size_t)b * (size_t)(t * b) + c % (size_t)b;
        float sum = 0;
        for (size_t i = 0; i < (size_t)t; i++) { /* small integers: exact */
            sum += x[from + i * (size_t)b];
            if (!(y[from + i * (size_t)b] == sum)) {
                fail_msg("T %d, row %zu: %g, not %g", (int)t, i,
                         (double)y[from + i * (size_t)b], (double)sum);
            }
        }
    }
    free(x);
}

static size_t kept_bytes(const struct backend_model *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_plans; i++) {
        n += plan_bytes(m->plans[i]);
    }
    return n;
}

static void test_many_shapes(void **state)
{
    (void)state;
    static const struct backend *const all[] = {&backend_cpu,
                                                &backend_interpreter};
    for (size_t i = 0; i < countof(all); i++) {
        struct pkg k;
        open_sums(&k, all[i], WIDTH, 1);
        for (int round = 0; round < 2; round++) {
            for (int64_t t = 1; t <= SHAPES; t++) {
                predict(&k, WIDTH, t, 1);
                assert_in_range(k.m->n_plans, 1, ENGINE_PLANS_MAX);
                assert_true(kept_bytes(k.m) <= ENGINE_PLANS_BYTES_MAX);
            }
        }
        assert_int_equal(k.m->n_plans, ENGINE_PLANS_MAX);
        pkg_end(&k);
    }
}

/* cpu_conf.once: right as well, and nothing of it stays but the results. */
static void test_once(void **state)
{
    (void)state;
    const struct cpu_conf cpu = {.once = true};
    const struct backend_conf conf = {.threads = 1, .cpu = &cpu};
    struct err e = {0};
    struct pkg k;
    open_sums(&k, &backend_interpreter, WIDTH, 1);
    pkg_close(&k);
    unit_ok(k.b->open(k.path, NULL, &conf, &k.m, &e), &e);
    for (int64_t t = 1; t <= 20; t++) {
        predict(&k, WIDTH, t % 4 * 10 + 1, 1); /* shorter ones after longer */
        assert_int_equal(k.m->n_plans, 0);
        assert_null(k.m->last);
    }
    pkg_end(&k);
}

/* A plan is known by a mark that a new one does not have. */
static void test_shapes_come_again(void **state)
{
    (void)state;
    enum { MARK = 4711 };
    struct pkg k;
    open_sums(&k, &backend_cpu, WIDTH, 1);
    predict(&k, WIDTH, 3, 1);
    struct plan *p = k.m->plans[0];
    p->touched_serial = MARK;
    for (int64_t t = 10; t < 9 + (int64_t)ENGINE_PLANS_MAX; t++) {
        predict(&k, WIDTH, t, 1);
    }
    assert_ptr_equal(k.m->plans[ENGINE_PLANS_MAX - 1], p); /* next to go */
    predict(&k, WIDTH, 3, 1);
    assert_ptr_equal(k.m->plans[0], p);
    assert_int_equal(k.m->plans[0]->touched_serial, MARK);
    for (int64_t t = 100; t < 100 + (int64_t)ENGINE_PLANS_MAX; t++) {
        predict(&k, WIDTH, t, 1);
    }
    predict(&k, WIDTH, 3, 1); /* made again */
    assert_int_equal(k.m->plans[0]->touched_serial, 0);
    assert_int_equal(k.m->n_plans, ENGINE_PLANS_MAX);
    pkg_end(&k);
}

/* Plans of half a megabyte a row: long before there are many, they are much. */
static void test_large_shapes(void **state)
{
    (void)state;
    struct pkg k;
    size_t most = 0;
    size_t all = 0;
    open_sums(&k, &backend_cpu, 4096, 16);
    for (int64_t t = 8; t <= 160; t += 8) {
        predict(&k, 4096, t, 16);
        size_t bytes = kept_bytes(k.m);
        assert_true(bytes <= ENGINE_PLANS_BYTES_MAX);
        assert_true(plan_bytes(k.m->plans[0]) > (size_t)t * 500000);
        most = bytes > most ? bytes : most;
        all += plan_bytes(k.m->plans[0]);
    }
    assert_true(all > 2 * ENGINE_PLANS_BYTES_MAX); /* it was a matter of it */
    assert_true(most > ENGINE_PLANS_BYTES_MAX / 2);
    assert_true(k.m->n_plans > 0 && k.m->n_plans < 20);
    pkg_end(&k);
}

/* A program whose shapes depend on data: one plan stands, that of the last
 * prediction, whose output may be the next one's input. */
static void test_shapes_from_data(void **state)
{
    (void)state;
    const int64_t dims[2] = {-1, WIDTH};
    struct err e = {0};
    struct pkg k;
    pkg_begin(&k); /* rows that begin with more than 0.5 */
    struct mil_value *x =
        mil_add_input(k.p, k.f, "x", MIL_FP16, 2, dims, 1, 128);
    struct mil_value *v = slice(&k, x, 1, 0, 1);
    v = two(&k, "greater", v, num(&k, 0.5f));
    v = mil_op(k.p, k.f, "non_zero", "found", "x", v, NULL);
    v = reshape(&k, slice(&k, v, 1, 0, 1), 1, &(int32_t){-1});
    output(&k, two(&k, "sub", gather(&k, x, v, 0), num(&k, 1)));
    pkg_finish(&k);
    pkg_open(&k, &backend_cpu, 1, false);
    float data[100 * WIDTH];
    for (size_t i = 0; i < countof(data); i++) { /* row r: r + 1 everywhere */
        data[i] = (float)(i / WIDTH + 1);
    }
    const int64_t full[2] = {100, WIDTH};
    struct tensor in = pkg_tensor("x", 2, full, data);
    for (int64_t n = 100; n > 0; n--) { /* the first row goes each time */
        struct tensor out = {.name = k.m->out[0].name};
        unit_ok(plain_predict(k.b, k.m, NULL, &in, 1, &out, 1, &e), &e);
        assert_true(k.m->dynamic && k.m->n_plans == 0 && k.m->last != NULL);
        assert_int_equal(out.dims[0], n);
        const float *y = out.data;
        for (int64_t i = 0; i < n * WIDTH; i++) {
            assert_true(y[i] == (float)(i / WIDTH));
        }
        in = out;
        in.name = "x";
    }
    pkg_end(&k);
}

/* Attention over rows that the data chose, after a state was written. With a
 * mask of one number its fused form does not take it, and what wrote a state
 * cannot begin again. */
static void test_written_before_it_is_refused(void **state)
{
    (void)state;
    static const struct backend *const all[] = {&backend_interpreter,
                                                &backend_cpu};
    const int64_t dims[2] = {-1, 8}, one_row[4] = {1, 1, 1, 8};
    const int32_t rows[4] = {1, 1, -1, 8};
    float want[2][8], data[4 * 8], zero = 0;
    struct pkg k;
    struct err e = {0};
    pkg_begin(&k);
    struct mil_value *x =
        mil_add_input(k.p, k.f, "x", MIL_FP16, 2, dims, 1, 64);
    struct mil_value *mask = in4(&k, "mask", 1, 1, -1);
    struct mil_value *s = mil_add_state(k.p, k.f, "s", 4, one_row);
    struct mil_value *q = mil_state_read(k.p, k.f, "r0", s);
    q = mil_state_write(k.p, k.f, "r1", s, q, two(&k, "add", q, num(&k, 1)));
    struct mil_value *v =
        two(&k, "greater", slice(&k, x, 1, 0, 1), num(&k, 0.5f));
    v = mil_op(k.p, k.f, "non_zero", "found", "x", v, NULL);
    v = reshape(&k, slice(&k, v, 1, 0, 1), 1, &(int32_t){-1});
    v = reshape(&k, gather(&k, x, v, 0), 4, rows);
    output(&k, attention(&k, q, v, v, mask, 0.25f));
    pkg_finish(&k);
    for (size_t i = 0; i < countof(data); i++) {
        data[i] = i % 8 == 0 ? (i < 8 ? 0 : 1) : (float)(i % 5) / 4;
    }
    for (size_t b = 0; b < countof(all); b++) {
        struct backend_state *st = NULL;
        pkg_open(&k, all[b], 1, false);
        unit_ok(k.b->state_new(k.m, &st, &e), &e);
        for (int i = 0; i < 2; i++) {
            const struct tensor in[2] = {
                pkg_tensor("x", 2, (const int64_t[]){4, 8}, data),
                pkg_tensor("mask", 4, (const int64_t[]){1, 1, 1, 1}, &zero)};
            struct tensor out = {.name = k.m->out[0].name};
            unit_ok(plain_predict(k.b, k.m, st, in, 2, &out, 1, &e), &e);
            assert_true(k.m->dynamic);
            if (b == 0) {
                memcpy(want[i], out.data, sizeof(want[i]));
            }
            assert_memory_equal(out.data, want[i], sizeof(want[i]));
        }
        k.b->state_free(st);
        pkg_close(&k);
    }
    assert_true(want[0][1] != want[1][1]); /* the state is in it */
    pkg_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_shapes),
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_shapes_come_again),
        cmocka_unit_test(test_large_shapes),
        cmocka_unit_test(test_shapes_from_data),
        cmocka_unit_test(test_written_before_it_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
