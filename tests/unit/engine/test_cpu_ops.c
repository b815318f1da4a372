/* Every case: operations over small inputs, against values computed here in
 * double by the operation's definition, or written down by hand. */
#include <pthread.h>

#include "cpu_pkg.h"

#define CASES_MAX 40

struct want {
    const char *name; /* of the output */
    size_t n;
    float v[32];
};

static void check_close(const char *what, const float *got, const float *want,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float tol = 2e-6f * fmaxf(1.0f, fabsf(want[i]));
        if (!(fabsf(got[i] - want[i]) <= tol)) {
            fail_msg("%s[%zu]: %.9g, not %.9g", what, i, (double)got[i],
                     (double)want[i]);
        }
    }
}

/* Finish, run once with `in` on both backends, compare. */
static void run_and_check(struct pkg *k, const struct tensor *in, size_t n_in,
                          const struct want *want, size_t n)
{
    static const struct backend *const backends[] = {&backend_interpreter,
                                                     &backend_cpu};
    struct tensor out[CASES_MAX] = {0};
    assert_true(n <= CASES_MAX);
    pkg_finish(k);
    for (size_t b = 0; b < countof(backends); b++) {
        struct err e = {0};
        pkg_open(k, backends[b], 2, false);
        for (size_t i = 0; i < n; i++) {
            out[i].name = want[i].name;
        }
        unit_ok(plain_predict(k->b, k->m, NULL, in, n_in, out, n, &e), &e);
        for (size_t i = 0; i < n; i++) {
            size_t count = 1;
            for (int d = 0; d < out[i].rank; d++) {
                count *= (size_t)out[i].dims[d];
            }
            assert_int_equal(count, want[i].n);
            check_close(want[i].name, out[i].data, want[i].v, want[i].n);
        }
        pkg_close(k);
    }
    pkg_end(k);
}

static const int64_t d23[2] = {2, 3};
static const float x23[6] = {-2, -0.25f, 0, 0.5f, 1.5f, 3};

static void add_out(struct pkg *k, struct mil_value *v)
{
    mil_add_output(k->p, k->f, v);
}

/* --- elementwise --- */

static double f_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double f_silu(double x)
{
    return x / (1 + exp(-x));
}
static double f_relu(double x)
{
    return x > 0 ? x : 0;
}
static double f_square(double x)
{
    return x * x;
}
static double f_sign(double x)
{
    return (x > 0) - (x < 0);
}
static double f_softplus(double x)
{
    return log1p(exp(x));
}

static void test_unary(void **state)
{
    (void)state;
    static const struct {
        const char *op;
        double (*f)(double);
    } t[] = {
        {"abs",      fabs      },
        {"square",   f_square  },
        {"exp",      exp       },
        {"exp2",     exp2      },
        {"sin",      sin       },
        {"cos",      cos       },
        {"tanh",     tanh      },
        {"erf",      erf       },
        {"sigmoid",  f_sigmoid },
        {"silu",     f_silu    },
        {"relu",     f_relu    },
        {"softplus", f_softplus},
        {"floor",    floor     },
        {"ceil",     ceil      },
        {"round",    rint      },
        {"sign",     f_sign    },
    };
    struct pkg k;
    struct want w[countof(t)];
    pkg_begin(&k);
    struct mil_value *x = pkg_input(&k, "x", MIL_FP32, 2, d23);
    for (size_t i = 0; i < countof(t); i++) {
        struct mil_value *v = mil_op(k.p, k.f, t[i].op, t[i].op, "x", x, NULL);
        add_out(&k, v);
        w[i].name = t[i].op;
        w[i].n = 6;
        for (size_t j = 0; j < 6; j++) {
            w[i].v[j] = (float)t[i].f((double)x23[j]);
        }
    }
    struct tensor in = pkg_tensor("x", 2, d23, x23);
    run_and_check(&k, &in, 1, w, countof(t));
}

static void test_gelu_has_its_three_modes(void **state)
{
    (void)state;
    static const char *const modes[] = {"EXACT", "TANH_APPROXIMATION",
                                        "SIGMOID_APPROXIMATION"};
    static const char *const names[] = {"g0", "g1", "g2"};
    struct pkg k;
    struct want w[3];
    pkg_begin(&k);
    struct mil_value *x = pkg_input(&k, "x", MIL_FP32, 2, d23);
    for (size_t i = 0; i < 3; i++) {
        struct mil_value *v = mil_op(k.p, k.f, "gelu", names[i], "x", x, "mode",
                                     mil_str(k.p, k.f, modes[i]), NULL);
        add_out(&k, v);
        w[i].name = names[i];
        w[i].n = 6;
        for (size_t j = 0; j < 6; j++) {
            double a = (double)x23[j];
            double u =
                sqrt(2 / 3.14159265358979323846) * (a + 0.044715 * a * a * a);
            w[i].v[j] = (float)(i == 0   ? a / 2 * (1 + erf(a / sqrt(2)))
                                : i == 1 ? a / 2 * (1 + tanh(u))
                                         : a * f_sigmoid(1.702 * a));
        }
    }
    struct tensor in = pkg_tensor("x", 2, d23, x23);
    run_and_check(&k, &in, 1, w, 3);
}

static void test_binary_broadcasts(void **state)
{
    (void)state;
    static const int64_t d3[1] = {3};
    static const int64_t d21[2] = {2, 1};
    static const float y3[3] = {1, 2, 4};
    static const float y21[2] = {2, -1};
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = pkg_input(&k, "x", MIL_FP32, 2, d23);
    struct mil_value *y = pkg_input(&k, "y", MIL_FP32, 1, d3);
    struct mil_value *z = pkg_input(&k, "z", MIL_FP32, 2, d21);
    add_out(&k, mil_op(k.p, k.f, "add", "a", "x", x, "y", y, NULL));
    add_out(&k, mil_op(k.p, k.f, "sub", "b", "x", z, "y", x, NULL));
    add_out(&k, mil_op(k.p, k.f, "mul", "c", "x", z, "y", y, NULL));
    add_out(&k, mil_op(k.p, k.f, "real_div", "d", "x", x, "y", y, NULL));
    add_out(&k, mil_op(k.p, k.f, "maximum", "e", "x", x, "y", z, NULL));
    add_out(&k, mil_op(k.p, k.f, "pow", "f", "x", y, "y", z, NULL));
    struct mil_value *less =
        mil_op(k.p, k.f, "less", "less", "x", x, "y", z, NULL);
    add_out(&k, mil_op(k.p, k.f, "select", "g", "cond", less, "a", x, "b", z,
                       NULL));
    static const struct want w[] = {
        {"a", 6, {-1, 1.75f, 4, 1.5f, 3.5f, 7}       },
        {"b", 6, {4, 2.25f, 2, -1.5f, -2.5f, -4}     },
        {"c", 6, {2, 4, 8, -1, -2, -4}               },
        {"d", 6, {-2, -0.125f, 0, 0.5f, 0.75f, 0.75f}},
        {"e", 6, {2, 2, 2, 0.5f, 1.5f, 3}            },
        {"f", 6, {1, 4, 16, 1, 0.5f, 0.25f}          },
        {"g", 6, {-2, -0.25f, 0, -1, -1, -1}         },
    };
    struct tensor in[3] = {pkg_tensor("x", 2, d23, x23),
                           pkg_tensor("y", 1, d3, y3),
                           pkg_tensor("z", 2, d21, y21)};
    run_and_check(&k, in, 3, w, countof(w));
}

/* --- reductions --- */

static void test_reductions(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = pkg_input(&k, "x", MIL_FP32, 2, d23);
    struct mil_value *yes = mil_bool(k.p, k.f, true);
    struct mil_value *no = mil_bool(k.p, k.f, false);
    const int32_t zero = 0;
    const int32_t last = -1;
    struct mil_value *a0 = mil_i32s(k.p, k.f, 1, &zero);
    struct mil_value *a1 = mil_i32s(k.p, k.f, 1, &last);
    add_out(&k, mil_op(k.p, k.f, "reduce_sum", "a", "x", x, "axes", a0,
                       "keep_dims", no, NULL));
    add_out(&k, mil_op(k.p, k.f, "reduce_mean", "b", "x", x, "axes", a1,
                       "keep_dims", yes, NULL));
    add_out(&k, mil_op(k.p, k.f, "reduce_max", "c", "x", x, "axes", a1,
                       "keep_dims", no, NULL));
    add_out(&k, mil_op(k.p, k.f, "reduce_sum_square", "d", "x", x, "axes", a0,
                       "keep_dims", yes, NULL));
    add_out(&k, mil_op(k.p, k.f, "softmax", "e", "x", x, "axis",
                       mil_i32(k.p, k.f, 0), NULL));
    struct want w[] = {
        {"a", 3, {-1.5f, 1.25f, 3}  },
        {"b", 2, {-0.75f, 5.0f / 3} },
        {"c", 2, {0, 3}             },
        {"d", 3, {4.25f, 2.3125f, 9}},
        {"e", 6, {0}                },
    };
    for (size_t j = 0; j < 3; j++) {
        double p = exp((double)x23[j]);
        double q = exp((double)x23[3 + j]);
        w[4].v[j] = (float)(p / (p + q));
        w[4].v[3 + j] = (float)(q / (p + q));
    }
    struct tensor in = pkg_tensor("x", 2, d23, x23);
    run_and_check(&k, &in, 1, w, countof(w));
}

/* --- movement --- */

static struct mil_value *ints(struct pkg *k, size_t n, const int32_t *v)
{
    return mil_i32s(k->p, k->f, n, v);
}

static void test_movement(void **state)
{
    (void)state;
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = pkg_input(&k, "x", MIL_FP32, 2, d23);
    static const int32_t perm[2] = {1, 0};
    static const int32_t shape[3] = {3, -1, 1};
    static const int32_t begin[2] = {-1, -1};
    static const int32_t end[2] = {0, -4};
    static const int32_t stride[2] = {1, -2};
    static const bool none[2] = {false, false};
    static const bool first[2] = {true, false};
    static const int32_t idx[3] = {2, 0, 2};
    struct mil_value *t = mil_op(k.p, k.f, "transpose", "a", "x", x, "perm",
                                 ints(&k, 2, perm), NULL);
    add_out(&k, t);
    add_out(&k, mil_op(k.p, k.f, "reshape", "b", "x", t, "shape",
                       ints(&k, 3, shape), NULL));
    struct mil_value *two[2] = {x, x};
    add_out(&k, mil_concat(k.p, k.f, "c", 2, two, 1));
    add_out(&k, mil_op(k.p, k.f, "slice_by_index", "d", "x", x, "begin",
                       ints(&k, 2, begin), "end", ints(&k, 2, end), "stride",
                       ints(&k, 2, stride), "begin_mask",
                       mil_bools(k.p, k.f, 2, none), "end_mask",
                       mil_bools(k.p, k.f, 2, none), "squeeze_mask",
                       mil_bools(k.p, k.f, 2, first), NULL));
    add_out(&k, mil_op(k.p, k.f, "gather", "e", "x", x, "indices",
                       ints(&k, 3, idx), "axis", mil_i32(k.p, k.f, 1),
                       "batch_dims", mil_i32(k.p, k.f, 0), "validate_indices",
                       mil_bool(k.p, k.f, false), NULL));
    struct mil_value *part[3];
    mil_split(k.p, k.f, "s", x, 3, 1, part);
    add_out(&k, mil_op(k.p, k.f, "identity", "f", "x", part[1], NULL));
    struct want w[] = {
        {"a", 6,  {-2, 0.5f, -0.25f, 1.5f, 0, 3}                              },
        {"b", 6,  {-2, 0.5f, -0.25f, 1.5f, 0, 3}                              },
        {"c", 12, {-2, -0.25f, 0, -2, -0.25f, 0, 0.5f, 1.5f, 3, 0.5f, 1.5f, 3}},
        {"d", 2,  {3, 0.5f}                                                   },
        {"e", 6,  {0, -2, 0, 3, 0.5f, 3}                                      },
        {"f", 2,  {-0.25f, 1.5f}                                              },
    };
    struct tensor in = pkg_tensor("x", 2, d23, x23);
    run_and_check(&k, &in, 1, w, countof(w));
}

static void test_slice_update_writes_a_part(void **state)
{
    (void)state;
    static const int64_t d1[2] = {1, 2};
    static const float y[2] = {10, 20};
    static const int32_t begin[2] = {1, 0};
    static const int32_t end[2] = {2, 3};
    static const int32_t stride[2] = {1, 2};
    static const bool none[2] = {false, false};
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *x = pkg_input(&k, "x", MIL_FP32, 2, d23);
    struct mil_value *u = pkg_input(&k, "u", MIL_FP32, 2, d1);
    struct mil_value *no = mil_bools(k.p, k.f, 2, none);
    add_out(&k, mil_op(k.p, k.f, "slice_update", "a", "x", x, "update", u,
                       "begin", ints(&k, 2, begin), "end", ints(&k, 2, end),
                       "stride", ints(&k, 2, stride), "begin_mask", no,
                       "end_mask", no, "squeeze_mask", no, NULL));
    static const struct want w[] = {
        {"a", 6, {-2, -0.25f, 0, 10, 1.5f, 20}}
    };
    struct tensor in[2] = {pkg_tensor("x", 2, d23, x23),
                           pkg_tensor("u", 2, d1, y)};
    run_and_check(&k, in, 2, w, 1);
}

/* numpy's order, and so that of coremltools' own evaluation: NaN after every
 * number, ascending and descending; equal ones in the order they had. */
static void test_sorting_puts_nan_last(void **state)
{
    (void)state;
    static const float x[8] = {2, NAN, -1, INFINITY, NAN, 0, -INFINITY, 2};
    static const int64_t d8[1] = {8};
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *v = pkg_input(&k, "x", MIL_FP32, 1, d8);
    for (int up = 0; up < 2; up++) {
        struct mil_value *order = mil_op(
            k.p, k.f, "argsort", up ? "a" : "d", "x", v, "axis",
            mil_i32(k.p, k.f, 0), "ascending", mil_bool(k.p, k.f, up), NULL);
        add_out(&k, mil_op(k.p, k.f, "cast", up ? "up" : "down", "x", order,
                           "dtype", mil_str(k.p, k.f, "fp32"), NULL));
    }
    static const struct want w[] = {
        {"up",   8, {6, 2, 5, 0, 7, 3, 1, 4}},
        {"down", 8, {3, 0, 7, 5, 2, 6, 1, 4}},
    };
    struct tensor in = pkg_tensor("x", 1, d8, x);
    run_and_check(&k, &in, 1, w, countof(w));
}

/* Like reduce_max and reduce_min, wherever it stands. */
static void test_argmax_passes_over_nan(void **state)
{
    (void)state;
    static const float x[9] = {NAN, 1, 3, 1, NAN, 3, NAN, NAN, NAN};
    static const int64_t d33[2] = {3, 3};
    static const char *const ops[] = {"reduce_argmax", "reduce_argmin"};
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *v = pkg_input(&k, "x", MIL_FP32, 2, d33);
    for (size_t i = 0; i < countof(ops); i++) {
        struct mil_value *at = mil_op(
            k.p, k.f, ops[i], i == 0 ? "a" : "b", "x", v, "axis",
            mil_i32(k.p, k.f, 1), "keep_dims", mil_bool(k.p, k.f, false),
            "output_dtype", mil_str(k.p, k.f, "int32"), NULL);
        add_out(&k, mil_op(k.p, k.f, "cast", i == 0 ? "most" : "least", "x", at,
                           "dtype", mil_str(k.p, k.f, "fp32"), NULL));
    }
    static const struct want w[] = {
        {"most",  3, {2, 2, 0}},
        {"least", 3, {1, 0, 0}},
    };
    struct tensor in = pkg_tensor("x", 2, d33, x);
    run_and_check(&k, &in, 1, w, countof(w));
}

/* --- products --- */

/* out[o, p] over x [1, cin, h, w] by the definition, in double. */
static void naive_conv(const float *x, int cin, int h, int wd, const float *w,
                       int cout, int kh, int kw, int groups, int stride,
                       int pad, float *out)
{
    int oh = (h + 2 * pad - kh) / stride + 1;
    int ow = (wd + 2 * pad - kw) / stride + 1;
    int per = cin / groups;
    for (int o = 0; o < cout; o++) {
        for (int p = 0; p < oh * ow; p++) {
            double s = 0;
            int g = o / (cout / groups);
            for (int c = 0; c < per; c++) {
                for (int q = 0; q < kh * kw; q++) {
                    int i = p / ow * stride + q / kw - pad;
                    int j = p % ow * stride + q % kw - pad;
                    if (i >= 0 && i < h && j >= 0 && j < wd) {
                        s += (double)x[((g * per + c) * h + i) * wd + j] *
                             (double)w[(o * per + c) * kh * kw + q];
                    }
                }
            }
            out[o * oh * ow + p] = (float)s;
        }
    }
}

static void conv_case(int groups, int ksize, int stride, int pad)
{
    enum { CIN = 4, H = 5, W = 3, COUT = 4 };
    static const int64_t dx[4] = {1, CIN, H, W};
    struct mil_type wt = {
        .dtype = MIL_FP16,
        .rank = 4,
        .dims = {COUT, CIN / groups, ksize, ksize}
    };
    float x[CIN * H * W];
    float wf[COUT * CIN * 9];
    uint16_t wh[COUT * CIN * 9];
    uint32_t seed = 7;
    int nw = COUT * CIN / groups * ksize * ksize;
    for (size_t i = 0; i < countof(x); i++) {
        x[i] = half_round(pkg_noise(&seed));
    }
    for (int i = 0; i < nw; i++) {
        wh[i] = half_from_float(pkg_noise(&seed));
        wf[i] = half_to_float(wh[i]);
    }
    const int32_t st[2] = {stride, stride};
    const int32_t pads[4] = {pad, pad, pad, pad};
    static const int32_t ones[2] = {1, 1};
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *v = pkg_input(&k, "x", MIL_FP16, 4, dx);
    struct mil_value *w = mil_const_op(k.p, k.f, "w", mil_blob(k.w, &wt, wh));
    add_out(&k, mil_op(k.p, k.f, "conv", "a", "x", v, "weight", w, "strides",
                       ints(&k, 2, st), "pad_type", mil_str(k.p, k.f, "custom"),
                       "pad", ints(&k, 4, pads), "dilations", ints(&k, 2, ones),
                       "groups", mil_i32(k.p, k.f, groups), NULL));
    float all[COUT * 64];
    int oh = (H + 2 * pad - ksize) / stride + 1;
    int ow = (W + 2 * pad - ksize) / stride + 1;
    naive_conv(x, CIN, H, W, wf, COUT, ksize, ksize, groups, stride, pad, all);
    struct tensor in = pkg_tensor("x", 4, dx, x);
    struct tensor out = {.name = "a"};
    struct err e = {0};
    pkg_finish(&k);
    pkg_open(&k, &backend_interpreter, 1, false);
    unit_ok(plain_predict(k.b, k.m, NULL, &in, 1, &out, 1, &e), &e);
    assert_int_equal(out.dims[2], oh);
    assert_int_equal(out.dims[3], ow);
    check_close("conv", out.data, all, (size_t)(COUT * oh * ow));
    pkg_end(&k);
}

static void test_conv(void **state)
{
    (void)state;
    conv_case(1, 1, 1, 0);
    conv_case(1, 3, 1, 1);
    conv_case(2, 2, 2, 0);
    conv_case(4, 3, 1, 0); /* depthwise */
}

static void test_int8_conv_scales_per_row(void **state)
{
    (void)state;
    enum { CIN = 21, COUT = 5, T = 3 }; /* a tail after the 16 lanes */
    static const int64_t dx[4] = {1, CIN, T, 1};
    struct mil_type wt = {
        .dtype = MIL_INT8, .rank = 4, .dims = {COUT, CIN, 1, 1}
    };
    struct mil_type st = {
        .dtype = MIL_FP16, .rank = 4, .dims = {COUT, 1, 1, 1}
    };
    int8_t q[COUT * CIN];
    uint16_t s[COUT];
    float x[CIN * T];
    uint32_t seed = 3;
    for (size_t i = 0; i < countof(q); i++) {
        q[i] = (int8_t)(pkg_noise(&seed) * 127);
    }
    for (size_t i = 0; i < COUT; i++) {
        s[i] = half_from_float(0.01f * (float)(i + 1));
    }
    for (size_t i = 0; i < countof(x); i++) {
        x[i] = half_round(pkg_noise(&seed));
    }
    struct pkg k;
    pkg_begin(&k);
    struct mil_value *v = pkg_input(&k, "x", MIL_FP16, 4, dx);
    struct mil_value *w = mil_dequant(k.p, k.f, "w", mil_blob(k.w, &wt, q),
                                      mil_blob(k.w, &st, s));
    add_out(&k, mil_conv1x1(k.p, k.f, "a", v, w, NULL));
    struct want want = {"a", COUT * T, {0}};
    for (size_t o = 0; o < COUT; o++) {
        for (size_t t = 0; t < T; t++) {
            double sum = 0;
            for (size_t c = 0; c < CIN; c++) {
                sum += (double)q[o * CIN + c] * (double)x[c * T + t];
            }
            want.v[o * T + t] = (float)(sum * (double)half_to_float(s[o]));
        }
    }
    struct tensor in = pkg_tensor("x", 4, dx, x);
    run_and_check(&k, &in, 1, &want, 1);
}

static void test_matmul_transposes_and_broadcasts(void **state)
{
    (void)state;
    static const int64_t da[4] = {2, 2, 2, 3};
    static const int64_t db[4] = {2, 1, 3, 2};
    float a[24];
    float b[12];
    struct pkg k;
    pkg_begin(&k);
    for (int i = 0; i < 24; i++) {
        a[i] = (float)(i % 7) - 3;
    }
    for (int i = 0; i < 12; i++) {
        b[i] = (float)(i % 5) - 2;
    }
    struct mil_value *x = pkg_input(&k, "x", MIL_FP32, 4, da);
    struct mil_value *y = pkg_input(&k, "y", MIL_FP32, 4, db);
    struct mil_value *no = mil_bool(k.p, k.f, false);
    struct mil_value *yes = mil_bool(k.p, k.f, true);
    add_out(&k, mil_op(k.p, k.f, "matmul", "a", "x", x, "y", y, "transpose_x",
                       no, "transpose_y", no, NULL));
    add_out(&k, mil_op(k.p, k.f, "matmul", "b", "x", x, "y", y, "transpose_x",
                       yes, "transpose_y", yes, NULL));
    float want[16] = {0};
    for (int n = 0; n < 4; n++) {
        for (int i = 0; i < 2; i++) {
            for (int j = 0; j < 2; j++) {
                for (int c = 0; c < 3; c++) {
                    want[n * 4 + i * 2 + j] +=
                        a[n * 6 + i * 3 + c] * b[n / 2 * 6 + c * 2 + j];
                }
            }
        }
    }
    struct tensor in[2] = {pkg_tensor("x", 4, da, a),
                           pkg_tensor("y", 4, db, b)};
    struct tensor out = {.name = "b"};
    struct err e = {0};
    pkg_finish(&k);
    pkg_open(&k, &backend_interpreter, 1, false);
    unit_ok(plain_predict(k.b, k.m, NULL, in, 2, &out, 1, &e), &e);
    const float *got = out.data;
    for (int n = 0; n < 4; n++) { /* x^T [3, 2] times y^T [2, 3] */
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < 3; j++) {
                float s = 0;
                for (int c = 0; c < 2; c++) {
                    s += a[n * 6 + c * 3 + i] * b[n / 2 * 6 + j * 2 + c];
                }
                assert_true(got[n * 9 + i * 3 + j] == s);
            }
        }
    }
    out.name = "a";
    unit_ok(plain_predict(k.b, k.m, NULL, in, 2, &out, 1, &e), &e);
    check_close("a", out.data, want, 16);
    pkg_end(&k);
}

/* --- refusals --- */

static void test_refusals_name_what_is_wrong(void **state)
{
    (void)state;
    struct pkg k;
    struct err e = {0};
    pkg_begin(&k);
    int64_t dims[2] = {MIL_UNKNOWN, 3};
    struct mil_value *x = pkg_input(&k, "x", MIL_FP32, 2, dims);
    add_out(&k, mil_op(k.p, k.f, "abs", "a", "x", x, NULL));
    pkg_finish(&k);
    pkg_open(&k, &backend_cpu, 1, false);
    struct backend_info info;
    k.b->info(k.m, &info);
    assert_int_equal(info.t_min, 1);
    assert_int_equal(info.t_max, 16);

    float data[17 * 3] = {0};
    struct tensor out = {.name = "a"};
    dims[0] = 17;
    struct tensor in = pkg_tensor("x", 2, dims, data);
    assert_int_equal(plain_predict(k.b, k.m, NULL, &in, 1, &out, 1, &e),
                     ERR_MIL_INPUT);
    assert_non_null(strstr(e.msg, "17"));
    assert_int_equal(plain_predict(k.b, k.m, NULL, &in, 0, &out, 1, &e),
                     ERR_MIL_INPUT);
    assert_non_null(strstr(e.msg, "x is missing"));
    in.dims[0] = 16;
    out.name = "b";
    assert_int_equal(plain_predict(k.b, k.m, NULL, &in, 1, &out, 1, &e),
                     ERR_MIL_INPUT);
    struct backend_conf conf = {.threads = 1};
    struct backend_model *m = NULL;
    assert_int_equal(k.b->open(k.path, "other", &conf, &m, &e), ERR_NOT_FOUND);
    assert_null(m);
    assert_null(backend_find("abacus"));
    assert_ptr_equal(backend_find("interpreter"), &backend_interpreter);
    pkg_end(&k);
}

/* What is named is taken to be 1; a call with another T is refused. */
static void test_squeeze_of_an_unknown_dimension(void **state)
{
    (void)state;
    static const struct backend *const backends[] = {&backend_interpreter,
                                                     &backend_cpu};
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    struct pkg k;
    struct err e = {0};
    pkg_begin(&k);
    int64_t dims[2] = {MIL_UNKNOWN, 3};
    const int32_t zero = 0;
    struct mil_value *x = pkg_input(&k, "x", MIL_FP32, 2, dims);
    struct mil_value *y = mil_op(k.p, k.f, "squeeze", "y", "x", x, "axes",
                                 mil_i32s(k.p, k.f, 1, &zero), NULL);
    assert_int_equal(y->type.rank, 1);
    add_out(&k, mil_op(k.p, k.f, "add", "a", "x", y, "y", y, NULL));
    pkg_finish(&k);
    for (size_t i = 0; i < countof(backends); i++) {
        pkg_open(&k, backends[i], 1, false);
        struct tensor out = {.name = "a"};
        dims[0] = 1;
        struct tensor in = pkg_tensor("x", 2, dims, (void *)(uintptr_t)data);
        unit_ok(plain_predict(k.b, k.m, NULL, &in, 1, &out, 1, &e), &e);
        assert_int_equal(out.rank, 1);
        assert_true(((const float *)out.data)[2] == 6.0F);
        in.dims[0] = 2;
        assert_int_equal(plain_predict(k.b, k.m, NULL, &in, 1, &out, 1, &e),
                         ERR_MIL_SHAPE);
        assert_non_null(strstr(e.msg, "axis 0 is not 1"));
        pkg_close(&k);
    }
    pkg_end(&k);
}

/* --- depth --- */

static void *open_and_close(void *arg)
{
    struct pkg *k = arg;
    pkg_open(k, &backend_cpu, 1, false);
    pkg_close(k);
    return NULL;
}

/* Chains of views of a state, and above a softmax, on a small stack. */
static void test_long_chains(void **state)
{
    (void)state;
    enum { LINKS = 20000 };
    static const int32_t shape[] = {1, 2, 32, 4};
    static const int64_t dims[] = {1, 2, 32, 4};
    struct pkg k;
    pthread_t thread;
    pthread_attr_t attr;
    pkg_begin(&k);
    struct mil_value *x = mil_add_input(k.p, k.f, "x", MIL_FP16, 4, dims, 1, 1);
    struct mil_value *s = mil_add_state(k.p, k.f, "s", 4, dims);
    struct mil_value *to = mil_i32s(k.p, k.f, 4, shape);
    struct mil_value *v = mil_state_read(k.p, k.f, "r", s);
    struct mil_value *mask = x;
    for (int i = 0; i < LINKS; i++) {
        char name[24];
        (void)snprintf(name, sizeof(name), "v%d", i);
        v = mil_op(k.p, k.f, "reshape", name, "x", v, "shape", to, NULL);
        (void)snprintf(name, sizeof(name), "m%d", i);
        mask = mil_op(k.p, k.f, "reshape", name, "x", mask, "shape", to, NULL);
    }
    struct mil_value *sum =
        mil_op(k.p, k.f, "add", "sum", "x", v, "y", mask, NULL);
    add_out(&k, mil_op(k.p, k.f, "softmax", "a", "x", sum, "axis",
                       mil_i32(k.p, k.f, -1), NULL));
    pkg_finish(&k);
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, KIB(512)), 0);
    assert_int_equal(pthread_create(&thread, &attr, open_and_close, &k), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)pthread_attr_destroy(&attr);
    pkg_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_gelu_has_its_three_modes),
        cmocka_unit_test(test_binary_broadcasts),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_movement),
        cmocka_unit_test(test_slice_update_writes_a_part),
        cmocka_unit_test(test_sorting_puts_nan_last),
        cmocka_unit_test(test_argmax_passes_over_nan),
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_int8_conv_scales_per_row),
        cmocka_unit_test(test_matmul_transposes_and_broadcasts),
        cmocka_unit_test(test_refusals_name_what_is_wrong),
        cmocka_unit_test(test_squeeze_of_an_unknown_dimension),
        cmocka_unit_test(test_long_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
