/* Predicted residency of operations: a planted fault for each rule, caught by
 * that rule's name, and a sound program that is all on. */
#include "residency_rig.h"

/* --- the sound one --- */

/* A projection and a state, blended and read back: what the converter makes. */
static void all_is_on(void **state)
{
    (void)state;
    static const int64_t scale_dims[] = {64, 1, 1, 1};
    static const int64_t data_dims[] = {64, 64, 1, 1};
    struct mil_value *s = a_state("k", 32);
    struct mil_value *old = mil_state_read(r.p, r.f, "old", s);
    struct mil_value *w =
        mil_dequant(r.p, r.f, "w", zeros(MIL_INT8, 4, data_dims),
                    zeros(MIL_FP16, 4, scale_dims));
    struct mil_value *y = conv(r.x, w, 1);
    struct mil_value *all = mil_state_write(
        r.p, r.f, "all", s, old, binary("mul", old, mil_f16(r.p, r.f, 2)));
    mil_add_output(r.p, r.f, y);
    mil_add_output(r.p, r.f, unary("exp", all));
    predict(NULL);
    assert_int_equal(r.v.f[0].n_ops, 7);
    assert_int_equal(r.v.f[0].count[PREDICT_ON], 7);
    assert_true(r.v.f[0].cost[PREDICT_ON] >= 1 &&
                r.v.f[0].cost[PREDICT_ON] <= 1);
    assert_int_equal(r.v.f[0].findings.n + r.v.findings.n, 0);
    op_is("conv", PREDICT_ON, "op.native");
    op_is("slice_update", PREDICT_ON, "op.native");
    struct predict_total t;
    predict_total_init(&t, &r.v.limits);
    predict_total_add(&t, "a", &r.v);
    assert_string_equal(predict_judge(&t), "passed");
    /* 64 x 64 weights, 64 scales, x, y: what a step has to move */
    double bytes = 4096 + 128 + 2 * 2 * 64.0 * 4 * 32;
    double others = 2 * 2 * 64 * 32 * (2 + 3 + 2); /* mul, update, exp */
    assert_true(last_of("conv")->cost > 0.99 * bytes / (bytes + others + 2));
    assert_true(last_of("conv")->cost < 1.01 * bytes / (bytes + others + 2));
}

/* --- operations --- */

/* These rules look at the name only: an operation renamed is one of them. */
static void by_name(void **state)
{
    (void)state;
    static const struct {
        const char *type, *rule;
        enum predict_verdict verdict;
    } rows[] = {
        {"cond",              "op.control",   PREDICT_OFF    },
        {"list_read",         "op.control",   PREDICT_OFF    },
        {"lstm",              "op.recurrent", PREDICT_OFF    },
        {"random_normal",     "op.random",    PREDICT_OFF    },
        {"gather",            "op.gather",    PREDICT_OFF    },
        {"gather_along_axis", "op.partial",   PREDICT_OFF    },
        {"scatter_nd",        "op.partial",   PREDICT_OFF    },
        {"topk",              "op.topk",      PREDICT_OFF    },
        {"argsort",           "op.topk",      PREDICT_OFF    },
        {"logical_and",       "op.logical",   PREDICT_OFF    },
        {"logical_not",       "op.native",    PREDICT_ON     },
        {"range_1d",          "op.dynamic",   PREDICT_OFF    },
        {"sin",               "op.sin_cos",   PREDICT_OFF    },
        {"reduce_argmax",     "op.argmax",    PREDICT_UNKNOWN},
        {"cumsum",            "op.cumsum",    PREDICT_UNKNOWN},
        {"dequantize",        "op.quantize",  PREDICT_UNKNOWN},
        {"cast",              "op.cast",      PREDICT_UNKNOWN},
        {"frobnicate",        "op.unlisted",  PREDICT_UNKNOWN},
        {"gathe",             "op.unlisted",  PREDICT_UNKNOWN},
    };
    struct mil_value *y = unary("exp", r.x);
    for (size_t i = 0; i < countof(rows); i++) {
        y->def->type = rows[i].type;
        predict(NULL);
        op_is(rows[i].type, rows[i].verdict, rows[i].rule);
    }
    y->def->type = "sin";
    predict("m4");
    op_is("sin", PREDICT_ON, "op.native");
}

static void nested(void **state)
{
    (void)state;
    struct mil_value *outer = unary("exp", r.x);
    struct mil_value *inner = unary("tanh", r.x);
    struct mil_block block = {.n_ops = 1, .ops = &inner->def};
    struct mil_block *blocks[] = {&block};
    outer->def->type = "while_loop";
    outer->def->blocks = blocks;
    outer->def->n_blocks = 1;
    r.f->body->n_ops--; /* it is in the block */
    predict(NULL);
    assert_int_equal(r.v.f[0].n_ops, 2);
    op_is("while_loop", PREDICT_OFF, "op.control");
    op_is("tanh", PREDICT_OFF, "op.nested");
    outer->def->n_blocks = 0;
}

static void shapes_at_run_time(void **state)
{
    (void)state;
    struct mil_value *to = input("to", MIL_INT32, 1, 4, 1, 1, 1, 0);
    (void)mil_op(r.p, r.f, "reshape", "y", "x", r.x, "shape", to, NULL);
    predict(NULL);
    op_is("reshape", PREDICT_OFF, "op.dynamic");
    (void)mil_op(r.p, r.f, "slice_by_size", "z", "x", r.x, "begin", to, "size",
                 ints(4, 1, 1, 1, 1), NULL);
    predict(NULL);
    op_is("slice_by_size", PREDICT_OFF, "slice.dynamic");
    (void)mil_op(r.p, r.f, "slice_by_size", "fixed", "x", r.x, "begin",
                 ints(4, 0, 0, 0, 0), "size", ints(4, 1, 1, 1, 1), NULL);
    predict(NULL);
    op_is("slice_by_size", PREDICT_ON, "op.native");
}

static void attention_of(int64_t keys, int64_t width)
{
    char name[3][16];
    for (size_t i = 0; i < countof(name); i++) {
        (void)snprintf(name[i], sizeof(name[i]), "a%zu_%lld", i,
                       (long long)keys);
    }
    struct mil_value *q = input(name[0], MIL_FP16, 4, 1, 2, 4, width, 0);
    struct mil_value *k = input(name[1], MIL_FP16, 4, 1, 2, keys, width, 0);
    struct mil_value *v = input(name[2], MIL_FP16, 4, 1, 2, keys, width, 0);
    (void)mil_op(r.p, r.f, "scaled_dot_product_attention", "a", "query", q,
                 "key", k, "value", v, NULL);
    predict(NULL);
}

static void fused_attention(void **state)
{
    (void)state;
    attention_of(512, 64);
    op_is("scaled_dot_product_attention", PREDICT_UNKNOWN, "op.attention");
    attention_of(100, 64);
    op_is("scaled_dot_product_attention", PREDICT_OFF, "op.attention_small");
    attention_of(600, 32);
    op_is("scaled_dot_product_attention", PREDICT_OFF, "op.attention_small");
}

/* --- types and sizes --- */

static struct mil_value *cast(struct mil_value *x, const char *to)
{
    return mil_op(r.p, r.f, "cast", "cast", "x", x, "dtype",
                  mil_str(r.p, r.f, to), NULL);
}

/* The softmax of some exporters. */
static void an_fp32_island(void **state)
{
    (void)state;
    struct mil_value *y = unary("tanh", unary("exp", cast(r.x, "fp32")));
    (void)unary("silu", cast(y, "fp16"));
    predict(NULL);
    op_is("exp", PREDICT_OFF, "type.fp32");
    op_is("cast", PREDICT_OFF, "type.fp32");
    op_is("silu", PREDICT_ON, "op.native");
    assert_int_equal(r.v.f[0].count[PREDICT_OFF], 4);
    assert_string_equal(last_of("exp")->detail, "fp32[1,64,4,32]");
}

static void integers(void **state)
{
    (void)state;
    struct mil_value *n = input("n", MIL_INT32, 1, 4, 1, 1, 1, 0);
    struct mil_value *i = input("i", MIL_INT32, 1, 1, 1, 1, 1, 0);
    (void)binary("add", n, n);
    (void)binary("sub", i, i);
    (void)cast(r.x, "int32");
    predict(NULL);
    op_is("add", PREDICT_OFF, "type.integers");
    op_is("sub", PREDICT_UNKNOWN, "type.integer");
    op_is("cast", PREDICT_OFF, "type.integers");
    predict("m4");
    op_is("cast", PREDICT_UNKNOWN, "op.cast");
}

static void ranks_and_axes(void **state)
{
    (void)state;
    (void)unary("exp", input("deep", MIL_FP16, 6, 1, 2, 3, 4, 0));
    (void)unary("tanh", input("five", MIL_FP16, 5, 1, 2, 3, 4, 0));
    (void)unary("silu", input("long", MIL_FP16, 4, 1, 64, 1, 20000, 0));
    (void)unary("relu", input("wide", MIL_FP16, 4, 1, 60000, 1, 32, 0));
    (void)unary("abs", input("wider", MIL_FP16, 4, 1, 70000, 1, 32, 0));
    predict(NULL);
    op_is("exp", PREDICT_OFF, "rank");
    op_is("tanh", PREDICT_ON, "op.native");
    op_is("silu", PREDICT_OFF, "axis.cap");
    op_is("relu", PREDICT_ON, "op.native"); /* channels */
    op_is("abs", PREDICT_OFF, "axis.cap");
    predict("m4");
    op_is("silu", PREDICT_ON, "op.native");
    op_is("abs", PREDICT_OFF, "axis.cap");
}

static void products(void **state)
{
    (void)state;
    struct mil_value *x = input("a", MIL_FP16, 4, 1, 20000, 4, 1, 0);
    (void)conv(x, stored("w", MIL_FP16, 4, 8, 20000, 1, 1), 1);
    predict(NULL);
    op_is("conv", PREDICT_UNKNOWN, "axis.contraction");
    predict("m4");
    op_is("conv", PREDICT_ON, "op.native");
    x = input("b", MIL_FP16, 4, 1, 8, 4, 1, 0);
    (void)conv(x, stored("v", MIL_FP16, 4, 40000, 8, 1, 1), 1);
    predict(NULL);
    op_is("conv", PREDICT_UNKNOWN, "axis.rows");
    x = input("c", MIL_FP16, 4, 1, 8, 4, 32, 0);
    (void)conv(x, stored("u", MIL_FP16, 4, 8, 8, 1, 17), 1);
    predict("m4");
    op_is("conv", PREDICT_OFF, "conv.kernel");
    (void)conv(x, stored("t", MIL_FP16, 4, 8, 8, 1, 14), 1);
    predict("m4");
    op_is("conv", PREDICT_ON, "op.native");
    predict("m1");
    op_is("conv", PREDICT_OFF, "conv.kernel");
    (void)conv(x, stored("s", MIL_FP16, 4, 8, 8, 1, 1), 5);
    predict("m4");
    op_is("conv", PREDICT_OFF, "conv.stride");
    (void)conv(x, stored("q", MIL_FP16, 4, 8, 8, 1, 1), 4);
    predict("m4");
    op_is("conv", PREDICT_ON, "op.native");
}

static void forms(void **state)
{
    (void)state;
    static const int32_t pads[] = {0, 0, 0, 0, 0, 0, 1, 1};
    struct mil_value *p = mil_i32s(r.p, r.f, 8, pads);
    struct mil_value *zero = mil_f16(r.p, r.f, 0);
    (void)mil_op(r.p, r.f, "tile", "t", "x", r.x, "reps", ints(4, 1, 5, 1, 1),
                 NULL);
    (void)mil_op(r.p, r.f, "pad", "p", "x", r.x, "pad", p, "mode",
                 mil_str(r.p, r.f, "reflect"), "constant_val", zero, NULL);
    predict(NULL);
    op_is("tile", PREDICT_UNKNOWN, "tile.reps");
    op_is("pad", PREDICT_UNKNOWN, "pad.mode");
    (void)mil_op(r.p, r.f, "tile", "t", "x", r.x, "reps", ints(4, 1, 4, 1, 1),
                 NULL);
    (void)mil_op(r.p, r.f, "pad", "p", "x", r.x, "pad", p, "mode",
                 mil_str(r.p, r.f, "constant"), "constant_val", zero, NULL);
    predict(NULL);
    op_is("tile", PREDICT_ON, "op.native");
    op_is("pad", PREDICT_ON, "op.native");
}

/* --- states --- */

static void widths_and_types(void **state)
{
    (void)state;
    struct mil_value *s = a_state("k", 270);
    (void)unary("exp", mil_state_read(r.p, r.f, "old", s));
    predict(NULL);
    op_is("read_state", PREDICT_OFF, "state.width");
    assert_string_equal(last_of("read_state")->detail, "k is 270 wide");
    op_is("exp", PREDICT_ON, "op.native");
    s->type.dtype = MIL_INT8;
    predict(NULL);
    op_is("read_state", PREDICT_OFF, "state.type");
}

static void views_of_a_state(void **state)
{
    (void)state;
    struct mil_value *s = a_state("k", 32);
    struct mil_value *old = mil_state_read(r.p, r.f, "old", s);
    struct mil_value *flat = mil_op(r.p, r.f, "reshape", "flat", "x", old,
                                    "shape", ints(4, 2, 64, 32, 1), NULL);
    struct mil_value *back =
        mil_op(r.p, r.f, "reshape", "back", "x", unary("exp", flat), "shape",
               ints(4, 1, 2, 64, 32), NULL);
    put_state(s, back);
    predict(NULL);
    op_is("write_state", PREDICT_OFF, "state.view");
    struct mil_value *u = update(flat, flat, ints(4, 0, 0, 0, 0));
    predict(NULL);
    op_is("slice_update", PREDICT_OFF, "state.view");
    assert_non_null(u);
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    struct mil_value *s = a_state("k", 32);
    struct mil_value *old = mil_state_read(r.p, r.f, "old", s);
    struct mil_value *u = update(old, unary("exp", old), ints(4, 0, 0, 0, 0));
    put_state(s, u);
    (void)unary("tanh", u);
    predict(NULL);
    op_is("slice_update", PREDICT_ON, "op.native");
    op_is("write_state", PREDICT_UNKNOWN, "state.reread");
    (void)unary("silu", mil_state_read(r.p, r.f, "new", s));
    predict(NULL);
    op_is("write_state", PREDICT_ON, "op.native");
}

static void positions(void **state)
{
    (void)state;
    struct mil_value *s = a_state("k", 32);
    struct mil_value *old = mil_state_read(r.p, r.f, "old", s);
    struct mil_value *new = unary("exp", old);
    struct mil_value *at = input("at", MIL_INT32, 1, 4, 1, 1, 1, 0);
    struct mil_value *pos = input("pos", MIL_INT32, 1, 1, 1, 1, 1, 0);
    struct mil_value *parts[] = {ints(2, 0, 0, 0, 0), pos, ints(1, 0, 0, 0, 0)};
    struct mil_value *begin = mil_concat(r.p, r.f, "begin", 3, parts, 0);
    (void)update(new, new, ints(4, 0, 0, 0, 0));
    predict(NULL);
    op_is("slice_update", PREDICT_OFF, "slice_update.alone");
    (void)update(old, new, ints(4, 0, 0, 0, 0)); /* and not written */
    predict(NULL);
    op_is("slice_update", PREDICT_OFF, "slice_update.alone");
    put_state(s, update(old, new, at));
    predict(NULL);
    op_is("slice_update", PREDICT_OFF, "slice_update.tensor");
    put_state(s, update(old, new, begin));
    predict(NULL);
    op_is("slice_update", PREDICT_UNKNOWN, "slice_update.position");
    put_state(s, update(old, new, unary("shape", r.x)));
    predict(NULL);
    op_is("slice_update", PREDICT_OFF, "slice_update.ranged");
    op_is("shape", PREDICT_OFF, "op.dynamic");
}

/* --- weights --- */

static struct mil_value *scaled(enum mil_dtype t, int64_t rows, int64_t blocks)
{
    const int64_t data[] = {64, 64, 1, 1};
    const int64_t scale[] = {rows, blocks, 1, 1};
    return mil_dequant(r.p, r.f, "w", zeros(t, 4, data),
                       zeros(MIL_FP16, 4, scale));
}

static void scales(void **state)
{
    (void)state;
    static const struct {
        enum mil_dtype type;
        int64_t rows, blocks;
        const char *profile, *rule;
        enum predict_verdict verdict;
    } rows[] = {
        {MIL_INT8, 64, 1, "law", "op.native",      PREDICT_ON     },
        {MIL_INT8, 1,  1, "law", "op.native",      PREDICT_ON     },
        {MIL_INT8, 64, 4, "law", "weights.blocks", PREDICT_OFF    },
        {MIL_INT8, 4,  1, "law", "weights.blocks", PREDICT_OFF    },
        {MIL_INT4, 64, 2, "law", "weights.blocks", PREDICT_OFF    },
        {MIL_INT4, 64, 2, "m5",  "weights.blocks", PREDICT_OFF    },
        {MIL_INT4, 64, 1, "law", "weights.int4",   PREDICT_UNKNOWN},
        {MIL_INT4, 64, 1, "m5",  "op.native",      PREDICT_ON     },
        {MIL_FP16, 64, 1, "law", "weights.other",  PREDICT_UNKNOWN},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        (void)conv(r.x, scaled(rows[i].type, rows[i].rows, rows[i].blocks), 1);
        predict(rows[i].profile);
        op_is("conv", rows[i].verdict, rows[i].rule);
    }
}

/* The same weights, and another axis is of output channels: the columns, unless
 * the product turns them round. */
static void scales_of_a_matmul(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        const int64_t data[] = {32, 32};
        const int64_t scale[] = {1, 32};
        struct mil_value *w = mil_dequant(
            r.p, r.f, "w", zeros(MIL_INT8, 2, data), zeros(MIL_FP16, 2, scale));
        (void)mil_op(r.p, r.f, "matmul", "m", "x", r.x, "y", w, "transpose_x",
                     mil_bool(r.p, r.f, false), "transpose_y",
                     mil_bool(r.p, r.f, t != 0), NULL);
        predict(NULL);
        if (t == 0) {
            op_is("matmul", PREDICT_ON, "op.native");
        } else {
            op_is("matmul", PREDICT_OFF, "weights.blocks");
        }
    }
}

/* The older form: its operands are attributes. */
static void affine_scales(void **state)
{
    (void)state;
    static const int64_t dims[] = {64, 64, 1, 1};
    static const int64_t n[] = {64};
    static int32_t axes[] = {0, 1};
    struct mil_value *w = scaled(MIL_INT8, 64, 1);
    struct mil_type scalar = {.dtype = MIL_INT32};
    struct mil_attr attrs[] = {
        {"quantized_data", zeros(MIL_INT8, 4, dims)},
        {"scale",           zeros(MIL_FP16,                         1, n)},
        {"axis",NULL},
    };
    (void)conv(r.x, w, 1);
    w->def->type = "constexpr_affine_dequantize";
    w->def->n_args = 0;
    w->def->attrs = attrs;
    w->def->n_attrs = countof(attrs);
    for (size_t i = 0; i < countof(axes); i++) {
        attrs[2].val = mil_imm(r.p, &scalar, &axes[i]);
        predict(NULL);
        if (i == 0) {
            op_is("conv", PREDICT_ON, "op.native");
        } else {
            op_is("conv", PREDICT_OFF, "weights.blocks");
        }
    }
}

static struct mil_value *lut(enum mil_dtype bits, enum mil_dtype entry,
                             int64_t n, int64_t rows, int64_t blocks)
{
    const int64_t data[] = {64, 64, 1, 1};
    const int64_t dims[] = {rows, blocks, 1, 1, n, 1};
    struct mil_value *i = mil_const_op(r.p, r.f, "i", zeros(bits, 4, data));
    struct mil_value *t = mil_const_op(r.p, r.f, "lut", zeros(entry, 6, dims));
    return mil_op(r.p, r.f, "constexpr_lut_to_dense", "w", "indices", i, "lut",
                  t, NULL);
}

static void palettes(void **state)
{
    (void)state;
    static const struct {
        enum mil_dtype bits, entry;
        int64_t n, rows, blocks;
        const char *profile, *rule;
        enum predict_verdict verdict;
    } rows[] = {
        {MIL_UINT4, MIL_FP16, 16, 64, 1, "law", "op.native",          PREDICT_ON},
        {MIL_UINT4, MIL_FP16, 16, 4,  1, "m5",  "op.native",          PREDICT_ON},
        {MIL_UINT6, MIL_FP16, 64, 64, 1, "law", "op.native",          PREDICT_ON},
        {MIL_UINT4, MIL_FP16, 16, 64, 4, "law", "weights.lut_blocks",
         PREDICT_OFF                                                            },
        {MIL_UINT4, MIL_INT8, 16, 64, 1, "law", "weights.lut_int8",
         PREDICT_OFF                                                            },
        {MIL_UINT2, MIL_FP16, 4,  64, 1, "law", "weights.lut_other",
         PREDICT_UNKNOWN                                                        },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct mil_value *w = lut(rows[i].bits, rows[i].entry, rows[i].n,
                                  rows[i].rows, rows[i].blocks);
        /* an int8 palette gives int8 weights: the shape is what matters here */
        w->type.dtype = MIL_FP16;
        (void)conv(r.x, w, 1);
        predict(rows[i].profile);
        op_is("conv", rows[i].verdict, rows[i].rule);
    }
    (void)a_state("k", 32);
    (void)conv(r.x, lut(MIL_UINT4, MIL_FP16, 16, 64, 1), 1);
    predict("m5");
    op_is("conv", PREDICT_UNKNOWN, "weights.lut_state");
}

static void palettes_with_scales(void **state)
{
    (void)state;
    static const int64_t n[] = {64, 1, 1, 1};
    struct mil_value *p = lut(MIL_UINT4, MIL_FP16, 16, 64, 1);
    struct mil_value *scale =
        mil_const_op(r.p, r.f, "scale", zeros(MIL_FP16, 4, n));
    struct mil_value *w = mil_op(r.p, r.f, "constexpr_blockwise_shift_scale",
                                 "w", "data", p, "scale", scale, NULL);
    (void)conv(r.x, w, 1);
    predict(NULL);
    op_is("conv", PREDICT_UNKNOWN, "weights.lut_scale");
}

/* The entries are int8, with a scale of their own. */
static void palettes_of_scaled_entries(void **state)
{
    (void)state;
    static const int64_t indices[] = {64, 64, 1, 1};
    static const int64_t entries[] = {64, 1, 1, 1, 16, 1};
    static const int64_t scale[] = {64, 1, 1, 1, 1, 1};
    struct mil_value *i =
        mil_const_op(r.p, r.f, "i", zeros(MIL_UINT4, 4, indices));
    struct mil_value *t =
        mil_dequant(r.p, r.f, "lut", zeros(MIL_INT8, 6, entries),
                    zeros(MIL_FP16, 6, scale));
    (void)conv(r.x,
               mil_op(r.p, r.f, "constexpr_lut_to_dense", "w", "indices", i,
                      "lut", t, NULL),
               1);
    predict(NULL);
    op_is("conv", PREDICT_OFF, "weights.lut_int8");
}

static void sparse(void **state)
{
    (void)state;
    struct mil_value *w = scaled(MIL_INT8, 64, 1);
    (void)conv(r.x, w, 1);
    w->def->type = "constexpr_sparse_to_dense";
    predict(NULL);
    op_is("conv", PREDICT_UNKNOWN, "weights.sparse");
    predict("m2");
    op_is("conv", PREDICT_ON, "op.native");
}

static void each_rule_was_seen(void **state)
{
    (void)state;
    rig_each_was_seen(true);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, up, down)
    const struct CMUnitTest tests[] = {
        T(all_is_on),
        T(by_name),
        T(nested),
        T(shapes_at_run_time),
        T(fused_attention),
        T(an_fp32_island),
        T(integers),
        T(ranks_and_axes),
        T(products),
        T(forms),
        T(widths_and_types),
        T(views_of_a_state),
        T(what_is_written_is_read_back),
        T(positions),
        T(scales),
        T(scales_of_a_matmul),
        T(affine_scales),
        T(palettes),
        T(palettes_with_scales),
        T(palettes_of_scaled_entries),
        T(sparse),
        cmocka_unit_test(each_rule_was_seen),
    };
    return cmocka_run_group_tests_name("residency", tests, NULL, NULL);
}
