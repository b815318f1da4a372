/* States, the worked example of the format notes, and the promise of
 * backend.h: a row's bits depend neither on the chunk it came in nor on the
 * number of threads. */
#include "cpu_pkg.h"
#include "engine/cpu/cpu.h"

/* --- the worked example: y = conv(x), acc += sum y, out = y + acc --- */

static struct mil_value *example_state(struct pkg *k, struct mil_value *y)
{
    static const int64_t dims[4] = {1, 4, 1, 1};
    static const int32_t two = 2;
    struct mil_value *acc = mil_add_state(k->p, k->f, "acc", 4, dims);
    struct mil_value *axes = mil_i32s(k->p, k->f, 1, &two);
    struct mil_value *yes = mil_bool(k->p, k->f, true);
    struct mil_value *s = mil_op(k->p, k->f, "reduce_sum", "s", "x", y, "axes",
                                 axes, "keep_dims", yes, NULL);
    struct mil_value *r0 = mil_state_read(k->p, k->f, "r0", acc);
    struct mil_value *u = mil_op(k->p, k->f, "add", "u", "x", r0, "y", s, NULL);
    return mil_state_write(k->p, k->f, "r1", acc, r0, u);
}

static void test_worked_example(void **state)
{
    (void)state;
    static const int8_t w[16] = {-8, -7, -6, -5, -4, -3, -2, -1,
                                 0,  1,  2,  3,  4,  5,  6,  7};
    static const float scale[4] = {0.5f, 0.25f, 0.125f, 1};
    static const float want[2][4] = {
        {-117, -22.5f, 6.75f,  198},
        {-221, -42.5f, 12.75f, 374}
    };
    static const float kept[4] = {-208, -40, 12, 352};
    struct mil_type wt = {
        .dtype = MIL_INT8, .rank = 4, .dims = {4, 4, 1, 1}
    };
    struct mil_type st = {
        .dtype = MIL_FP16, .rank = 4, .dims = {4, 1, 1, 1}
    };
    int64_t dims[4] = {1, 4, MIL_UNKNOWN, 1};
    uint16_t sh[4];
    float x[32];
    struct pkg k;
    struct err e = {0};
    half_from_floats(scale, sh, 4);
    for (size_t i = 0; i < 32; i++) {
        x[i] = 1;
    }
    pkg_begin(&k);
    struct mil_value *in = pkg_input(&k, "x", MIL_FP16, 4, dims);
    struct mil_value *wv =
        mil_dequant(k.p, k.f, "w", mil_imm(k.p, &wt, w), mil_imm(k.p, &st, sh));
    struct mil_value *y = mil_conv1x1(k.p, k.f, "y", in, wv, NULL);
    struct mil_value *r1 = example_state(&k, y);
    mil_add_output(k.p, k.f,
                   mil_op(k.p, k.f, "add", "out", "x", y, "y", r1, NULL));
    pkg_finish(&k);
    pkg_open(&k, &backend_cpu, 1, true);
    struct backend_state *s = NULL;
    unit_ok(k.b->state_new(k.m, &s, &e), &e);
    dims[2] = 8;
    struct tensor t = pkg_tensor("x", 4, dims, x);
    struct tensor out = {.name = "out"};
    for (int call = 0; call < 2; call++) {
        unit_ok(plain_predict(k.b, k.m, s, &t, 1, &out, 1, &e), &e);
        for (int i = 0; i < 32; i++) {
            assert_true(((const float *)out.data)[i] == want[call][i / 8]);
        }
    }
    struct tensor acc;
    unit_ok(plain_state(k.b, k.m, s, "acc", &acc, &e), &e);
    for (int i = 0; i < 4; i++) {
        assert_true(half_to_float(((const uint16_t *)acc.data)[i]) == kept[i]);
    }
    assert_int_equal(plain_predict(k.b, k.m, NULL, &t, 1, &out, 1, &e),
                     ERR_MIL_INPUT); /* no state given */
    k.b->state_free(s);
    pkg_end(&k);
}

/* --- a layer in the shard contract's form --- */

enum {
    D = 256,     /* model */
    KV = 2,      /* heads of keys and values */
    HEADS = 4,   /* of queries */
    DH = 16,     /* of one head */
    S = 64,      /* positions */
    TOKENS = 11, /* run through it */
    T_MAX = 4,
};

static struct mil_value *weight(struct pkg *k, const char *name, int rows,
                                int cols, bool int8)
{
    struct mil_type t = {
        .dtype = int8 ? MIL_INT8 : MIL_FP16,
        .rank = 4,
        .dims = {rows, cols, 1, 1}
    };
    struct mil_type st = {
        .dtype = MIL_FP16, .rank = 4, .dims = {rows, 1, 1, 1}
    };
    static uint16_t h[4 * D * D];
    static int8_t q[4 * D * D];
    static uint16_t s[4 * D];
    uint32_t seed = (uint32_t)(rows * 31 + cols);
    for (int i = 0; i < rows * cols; i++) {
        float v = pkg_noise(&seed) * 0.1f;
        h[i] = half_from_float(v);
        q[i] = (int8_t)(v * 1270);
    }
    for (int i = 0; i < rows; i++) {
        s[i] = half_from_float(0.001f);
    }
    if (int8) {
        return mil_dequant(k->p, k->f, name, mil_blob(k->w, &t, q),
                           mil_blob(k->w, &st, s));
    }
    return mil_const_op(k->p, k->f, name, mil_blob(k->w, &t, h));
}

/* [1, n * DH, T, 1] -> [1, n, T, DH] */
static struct mil_value *heads(struct pkg *k, struct mil_value *x, int32_t n)
{
    const int32_t shape[4] = {1, n, DH, -1};
    static const int32_t perm[4] = {0, 1, 3, 2};
    struct mil_value *h = mil_op(k->p, k->f, "reshape", "h", "x", x, "shape",
                                 mil_i32s(k->p, k->f, 4, shape), NULL);
    return mil_op(k->p, k->f, "transpose", "t", "x", h, "perm",
                  mil_i32s(k->p, k->f, 4, perm), NULL);
}

static struct mil_value *matmul(struct pkg *k, struct mil_value *x,
                                struct mil_value *y, bool ty)
{
    struct mil_value *no = mil_bool(k->p, k->f, false);
    struct mil_value *t = mil_bool(k->p, k->f, ty);
    return mil_op(k->p, k->f, "matmul", "m", "x", x, "y", y, "transpose_x", no,
                  "transpose_y", t, NULL);
}

static struct mil_value *binary(struct pkg *k, const char *op,
                                struct mil_value *x, struct mil_value *y)
{
    return mil_op(k->p, k->f, op, op, "x", x, "y", y, NULL);
}

static struct mil_value *masked_write(struct pkg *k, const char *name,
                                      struct mil_value *mask,
                                      struct mil_value *new)
{
    static const int64_t dims[4] = {1, KV, S, DH};
    static const int32_t last = -1;
    struct mil_value *state = mil_add_state(k->p, k->f, name, 4, dims);
    struct mil_value *r0 = mil_state_read(k->p, k->f, "r0", state);
    struct mil_value *axes = mil_i32s(k->p, k->f, 1, &last);
    struct mil_value *yes = mil_bool(k->p, k->f, true);
    struct mil_value *sum = mil_op(k->p, k->f, "reduce_sum", "sum", "x", mask,
                                   "axes", axes, "keep_dims", yes, NULL);
    struct mil_value *keep = binary(k, "sub", mil_f16(k->p, k->f, 1), sum);
    struct mil_value *kept = binary(k, "mul", r0, keep);
    struct mil_value *put = matmul(k, mask, new, false);
    return mil_state_write(k->p, k->f, "r1", state, r0,
                           binary(k, "add", kept, put));
}

static struct mil_value *reshape4(struct pkg *k, struct mil_value *x, int32_t a,
                                  int32_t b, int32_t c)
{
    const int32_t shape[4] = {1, a, b, c};
    return mil_op(k->p, k->f, "reshape", "r", "x", x, "shape",
                  mil_i32s(k->p, k->f, 4, shape), NULL);
}

static void make_layer(struct pkg *k, bool int8)
{
    static const int64_t dx[4] = {1, D, MIL_UNKNOWN, 1};
    static const int64_t dm[4] = {1, 1, MIL_UNKNOWN, S};
    static const int64_t dw[4] = {1, 1, S, MIL_UNKNOWN};
    static const int32_t one = 1;
    pkg_begin(k);
    struct mil_value *x = pkg_input(k, "x", MIL_FP16, 4, dx);
    struct mil_value *mask = pkg_input(k, "attn_mask", MIL_FP16, 4, dm);
    struct mil_value *wm = pkg_input(k, "kv_write_mask", MIL_FP16, 4, dw);
    struct mil_value *sq = binary(k, "mul", x, x);
    struct mil_value *axes = mil_i32s(k->p, k->f, 1, &one);
    struct mil_value *yes = mil_bool(k->p, k->f, true);
    struct mil_value *mean = mil_op(k->p, k->f, "reduce_mean", "mean", "x", sq,
                                    "axes", axes, "keep_dims", yes, NULL);
    struct mil_value *rs = mil_op(k->p, k->f, "rsqrt", "rs", "x", mean,
                                  "epsilon", mil_f16(k->p, k->f, 0), NULL);
    struct mil_value *h = binary(k, "mul", x, rs);
    struct mil_value *q = mil_conv1x1(
        k->p, k->f, "q", h, weight(k, "wq", HEADS * DH, D, int8), NULL);
    struct mil_value *kk = mil_conv1x1(k->p, k->f, "k", h,
                                       weight(k, "wk", KV * DH, D, int8), NULL);
    struct mil_value *vv = mil_conv1x1(k->p, k->f, "v", h,
                                       weight(k, "wv", KV * DH, D, int8), NULL);
    q = reshape4(k, heads(k, q, HEADS), KV, -1, DH);
    kk = masked_write(k, "k_state", wm, heads(k, kk, KV));
    vv = masked_write(k, "v_state", wm, heads(k, vv, KV));
    struct mil_value *s = reshape4(k, matmul(k, q, kk, true), HEADS, -1, S);
    s = binary(k, "add", binary(k, "mul", s, mil_f16(k->p, k->f, 0.25f)), mask);
    s = mil_op(k->p, k->f, "softmax", "p", "x", s, "axis",
               mil_i32(k->p, k->f, -1), NULL);
    s = matmul(k, reshape4(k, s, KV, -1, S), vv, false);
    static const int32_t perm[4] = {0, 1, 3, 2};
    s = mil_op(k->p, k->f, "transpose", "o", "x", reshape4(k, s, HEADS, -1, DH),
               "perm", mil_i32s(k->p, k->f, 4, perm), NULL);
    s = mil_conv1x1(k->p, k->f, "up", reshape4(k, s, HEADS * DH, -1, 1),
                    weight(k, "wo", 4 * D, HEADS * DH, int8), NULL);
    s = mil_op(k->p, k->f, "silu", "a", "x", s, NULL);
    s = mil_conv1x1(k->p, k->f, "down", s, weight(k, "wd", D, 4 * D, int8),
                    NULL);
    mil_add_output(k->p, k->f,
                   mil_op(k->p, k->f, "add", "hidden", "x", s, "y", x, NULL));
    pkg_finish(k);
}

/* Run TOKENS tokens in chunks of `chunk`; out: [TOKENS][D]. */
static void run_layer(struct pkg *k, const struct backend *b, unsigned threads,
                      bool round, size_t chunk, float *out, uint16_t *keys)
{
    struct backend_state *st = NULL;
    struct err e = {0};
    pkg_open(k, b, threads, round);
    unit_ok(b->state_new(k->m, &st, &e), &e);
    for (size_t at = 0; at < TOKENS;) {
        size_t t = TOKENS - at < chunk ? TOKENS - at : chunk;
        float x[D * T_MAX];
        float mask[T_MAX * S];
        float wm[S * T_MAX] = {0};
        for (size_t r = 0; r < t; r++) {
            uint32_t seed = (uint32_t)(at + r + 1) * 977u;
            for (size_t c = 0; c < D; c++) {
                x[c * t + r] = half_round(pkg_noise(&seed) * 3);
            }
            for (size_t s = 0; s < S; s++) {
                mask[r * S + s] = s <= at + r ? 0 : -1e4f;
            }
            wm[(at + r) * t + r] = 1;
        }
        const int64_t dx[4] = {1, D, (int64_t)t, 1};
        const int64_t dm[4] = {1, 1, (int64_t)t, S};
        const int64_t dw[4] = {1, 1, S, (int64_t)t};
        struct tensor in[3] = {pkg_tensor("x", 4, dx, x),
                               pkg_tensor("attn_mask", 4, dm, mask),
                               pkg_tensor("kv_write_mask", 4, dw, wm)};
        struct tensor o = {.name = "hidden"};
        unit_ok(plain_predict(b, k->m, st, in, 3, &o, 1, &e), &e);
        for (size_t r = 0; r < t; r++) {
            for (size_t c = 0; c < D; c++) {
                out[(at + r) * D + c] = ((const float *)o.data)[c * t + r];
            }
        }
        at += t;
    }
    struct tensor kt;
    unit_ok(plain_state(b, k->m, st, "k_state", &kt, &e), &e);
    memcpy(keys, kt.data, sizeof(uint16_t) * KV * S * DH);
    b->state_free(st);
    pkg_close(k);
}

static float plain[TOKENS * D];
static float first[TOKENS * D];
static float other[TOKENS * D];
static uint16_t first_keys[KV * S * DH];
static uint16_t other_keys[KV * S * DH];

/* The fast form has bits of its own, but for round mode, which is the plain
 * form's. */
static void check_near(bool exact, const float *want, const float *got)
{
    float top = 0;
    if (exact) {
        assert_memory_equal(want, got, sizeof(first));
        return;
    }
    for (size_t i = 0; i < countof(first); i++) {
        top = fabsf(want[i]) > top ? fabsf(want[i]) : top;
    }
    for (size_t i = 0; i < countof(first); i++) {
        assert_true(fabsf(want[i] - got[i]) <= 1e-3f * top);
    }
}

static void check_rows(bool int8, bool round)
{
    static const struct backend *const backends[] = {&backend_interpreter,
                                                     &backend_cpu};
    struct pkg k;
    make_layer(&k, int8);
    run_layer(&k, &backend_interpreter, 1, round, 1, plain, first_keys);
    float size = 0;
    for (size_t i = 0; i < countof(plain); i++) {
        size += fabsf(plain[i]);
    }
    assert_true(size > 100 && size < 1e6f);
    for (size_t b = 0; b < countof(backends); b++) {
        run_layer(&k, backends[b], 1, round, 1, first, first_keys);
        check_near(b == 0 || round, plain, first);
        for (size_t chunk = 1; chunk <= T_MAX; chunk++) {
            for (unsigned threads = 1; threads <= 2; threads++) {
                run_layer(&k, backends[b], threads, round, chunk, other,
                          other_keys);
                assert_memory_equal(first, other, sizeof(first));
                assert_memory_equal(first_keys, other_keys, sizeof(first_keys));
            }
        }
    }
    pkg_end(&k);
}

static void test_rows_are_independent_fp16_weights(void **state)
{
    (void)state;
    check_rows(false, false);
    check_rows(false, true);
}

static void test_rows_are_independent_int8_weights(void **state)
{
    (void)state;
    check_rows(true, false);
    check_rows(true, true);
}

static int count_nodes(const struct backend_model *m, const char *type)
{
    int n = 0;
    for (int i = 0; i < m->n_nodes; i++) {
        n += strcmp(m->nodes[i]->def->type, type) == 0;
    }
    return n;
}

static void test_the_fast_paths_are_taken(void **state)
{
    (void)state;
    struct pkg k;
    make_layer(&k, true);
    pkg_open(&k, &backend_cpu, 1, false);
    assert_int_equal(count_nodes(k.m, "store_rows"), 2);
    assert_int_equal(count_nodes(k.m, "attention"), 1);
    assert_int_equal(count_nodes(k.m, "read_state_in_place"), 2);
    assert_int_equal(count_nodes(k.m, "read_state"), 0);
    assert_int_equal(count_nodes(k.m, "softmax"), 0);
    assert_int_equal(count_nodes(k.m, "matmul"), 0);
    pkg_close(&k);
    pkg_open(&k, &backend_interpreter, 1, false);
    assert_int_equal(count_nodes(k.m, "attention"), 0);
    assert_int_equal(count_nodes(k.m, "read_state"), 4);
    pkg_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worked_example),
        cmocka_unit_test(test_rows_are_independent_fp16_weights),
        cmocka_unit_test(test_rows_are_independent_int8_weights),
        cmocka_unit_test(test_the_fast_paths_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
