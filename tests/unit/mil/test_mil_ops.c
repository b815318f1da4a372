/* Type inference: every op of the table once, described with the builder and
 * compared with the type it must have; then the whole written, read back and
 * validated. With ANED_BUILD set the package stays in its folder `emitted`,
 * where the oracle suite gives it to coremltools. */
#include "../unit.h"
#include "base/file.h"
#include "mil/build.h"
#include "mil/sig.h"

#define U MIL_UNKNOWN

static struct mil_writer *w;
static struct mil_program *p;
static struct mil_function *f;
static char dir[512];

static int open_writer(void **state)
{
    (void)state;
    struct err e = {0};
    const char *build = getenv("ANED_BUILD");
    (void)snprintf(dir, sizeof(dir), "%s/emitted/mil_ops.mlpackage",
                   build != NULL ? build : "/tmp/aned-mil-ops");
    if (file_rmtree(dir, &e) < 0 || mil_writer_open(dir, &w, &e) < 0) {
        (void)err_print(&e);
        return -1;
    }
    p = mil_writer_program(w);
    return 0;
}

/* NULL after the last test has finished it. */
static int abort_writer(void **state)
{
    (void)state;
    mil_writer_abort(w);
    return 0;
}

static void want(const struct mil_value *v, const char *type)
{
    char got[160];
    mil_type_print(&v->type, got, sizeof(got));
    if (strcmp(got, type) != 0) {
        fail_msg("%s (%s): %s, must be %s", v->name, v->def->type, got, type);
    }
}

/* int32 constants: a scalar, a vector. */
#define I(v) mil_i32(p, f, v)
#define IS(...)                                               \
    mil_i32s(p, f, countof(((const int32_t[]){__VA_ARGS__})), \
             (const int32_t[]){__VA_ARGS__})
#define BS(...)                                             \
    mil_bools(p, f, countof(((const bool[]){__VA_ARGS__})), \
              (const bool[]){__VA_ARGS__})
#define YES     mil_bool(p, f, true)
#define NO      mil_bool(p, f, false)
#define H(v)    mil_f16(p, f, v)
#define S(s)    mil_str(p, f, s)
#define DO(...) mil_op(p, f, __VA_ARGS__, NULL)

static struct mil_value *input(const char *name, enum mil_dtype t, int rank,
                               const int64_t *dims)
{
    return mil_add_input(p, f, name, t, rank, dims, 1, 64);
}

#define IN(name, t, ...)                                           \
    input(name, t, (int)countof(((const int64_t[]){__VA_ARGS__})), \
          (const int64_t[]){__VA_ARGS__})

/* A constant of zeros. */
static struct mil_value *zeros(const char *name, enum mil_dtype t, int rank,
                               const int64_t *dims)
{
    static const uint8_t data[4096];
    struct mil_type type = {.dtype = t, .rank = rank};
    memcpy(type.dims, dims, (size_t)rank * sizeof(*dims));
    return mil_const_new(p, f, name, mil_blob(w, &type, data));
}

#define ZEROS(name, t, ...)                                        \
    zeros(name, t, (int)countof(((const int64_t[]){__VA_ARGS__})), \
          (const int64_t[]){__VA_ARGS__})

static const struct mil_const *imm(enum mil_dtype t, int rank,
                                   const int64_t *dims, const void *data)
{
    struct mil_type type = {.dtype = t, .rank = rank};
    memcpy(type.dims, dims, (size_t)rank * sizeof(*dims));
    return mil_imm(p, &type, data);
}

#define IMM(t, data, ...)                                  \
    imm(t, (int)countof(((const int64_t[]){__VA_ARGS__})), \
        (const int64_t[]){__VA_ARGS__}, data)

struct in {
    struct mil_value *x;    /* fp16[1,8,?,4] */
    struct mil_value *y;    /* fp16[1,8,16,4] */
    struct mil_value *v;    /* fp16[4] */
    struct mil_value *n;    /* int32[?] */
    struct mil_value *k;    /* int32[2] */
    struct mil_value *flag; /* bool[1,8,?,4] */
};
static struct in in;

static void elementwise(void **state)
{
    (void)state;
    static const char *const plain[] = {
        "abs",     "square", "exp2",  "sign", "sqrt",  "exp",      "cos",
        "sin",     "tan",    "tanh",  "erf",  "silu",  "relu",     "softplus",
        "sigmoid", "floor",  "round", "ceil", "relu6", "softsign", "identity",
    };
    static const char *const binary[] = {"add",      "sub",       "mul",
                                         "real_div", "pow",       "maximum",
                                         "minimum",  "floor_div", "mod"};
    static const char *const compare[] = {
        "greater", "greater_equal", "less", "less_equal", "equal", "not_equal"};
    f = mil_add_function(p, "main");
    in.x = IN("x", MIL_FP16, 1, 8, U, 4);
    in.y = IN("y", MIL_FP16, 1, 8, 16, 4);
    in.v = IN("v", MIL_FP16, 4);
    in.n = IN("n", MIL_INT32, U);
    in.k = IN("k", MIL_INT32, 2);
    in.flag = DO("greater", "flag", "x", in.x, "y", H(0));
    want(in.flag, "bool[1,8,?,4]");
    for (size_t i = 0; i < countof(plain); i++) {
        want(DO(plain[i], plain[i], "x", in.x), "fp16[1,8,?,4]");
    }
    for (size_t i = 0; i < countof(binary); i++) {
        want(DO(binary[i], binary[i], "x", in.x, "y", in.v), "fp16[1,8,?,4]");
        want(DO(binary[i], binary[i], "x", H(2), "y", in.y), "fp16[1,8,16,4]");
        /* what one side knows is known */
        want(DO(binary[i], binary[i], "x", in.x, "y", in.y), "fp16[1,8,16,4]");
    }
    for (size_t i = 0; i < countof(compare); i++) {
        want(DO(compare[i], compare[i], "x", in.n, "y", I(3)), "bool[?]");
    }
    want(DO("logical_and", "land", "x", in.flag, "y", in.flag),
         "bool[1,8,?,4]");
    want(DO("logical_or", "lor", "x", in.flag, "y", YES), "bool[1,8,?,4]");
    want(DO("logical_not", "lnot", "x", in.flag), "bool[1,8,?,4]");
    want(DO("rsqrt", "rs", "x", in.x, "epsilon", H(0)), "fp16[1,8,?,4]");
    want(DO("log", "lg", "x", in.x, "epsilon", H(0)), "fp16[1,8,?,4]");
    want(DO("inverse", "iv", "x", in.x, "epsilon", H(0)), "fp16[1,8,?,4]");
    want(DO("gelu", "ge", "x", in.x, "mode", S("TANH_APPROXIMATION")),
         "fp16[1,8,?,4]");
    want(DO("leaky_relu", "lr", "x", in.x, "alpha", H(0.5F)), "fp16[1,8,?,4]");
    want(DO("elu", "el", "x", in.x, "alpha", H(1)), "fp16[1,8,?,4]");
    want(DO("softmax", "sm", "x", in.x, "axis", I(-1)), "fp16[1,8,?,4]");
    want(DO("clip", "cl", "x", in.x, "alpha", H(-1), "beta", H(1)),
         "fp16[1,8,?,4]");
    want(DO("cumsum", "cs", "x", in.x, "axis", I(2), "exclusive", NO, "reverse",
            NO),
         "fp16[1,8,?,4]");
    want(DO("select", "se", "cond", in.flag, "a", in.x, "b", H(0)),
         "fp16[1,8,?,4]");
    want(DO("cast", "ca", "x", in.x, "dtype", S("fp32")), "fp32[1,8,?,4]");
    want(DO("cast", "ca", "x", in.n, "dtype", S("uint16")), "uint16[?]");
}

static void reductions(void **state)
{
    (void)state;
    static const char *const names[] = {"reduce_sum",     "reduce_mean",
                                        "reduce_max",     "reduce_min",
                                        "reduce_prod",    "reduce_sum_square",
                                        "reduce_l1_norm", "reduce_l2_norm",
                                        "reduce_log_sum", "reduce_log_sum_exp"};
    for (size_t i = 0; i < countof(names); i++) {
        want(DO(names[i], names[i], "x", in.x, "axes", IS(1), "keep_dims", YES),
             "fp16[1,1,?,4]");
        want(DO(names[i], names[i], "x", in.x, "axes", IS(-1, 1), "keep_dims",
                NO),
             "fp16[1,?]");
    }
    want(DO("reduce_sum", "all", "x", in.x, "keep_dims", NO), "fp16");
    want(DO("reduce_argmax", "am", "x", in.x, "axis", I(1), "keep_dims", NO,
            "output_dtype", S("int32")),
         "int32[1,?,4]");
    want(DO("reduce_argmin", "an", "x", in.x, "axis", I(-1), "keep_dims", YES,
            "output_dtype", S("uint16")),
         "uint16[1,8,?,1]");
    struct mil_value *c = ZEROS("gamma", MIL_FP16, 8);
    want(DO("layer_norm", "ln", "x", in.x, "axes", IS(1), "gamma", c, "beta", c,
            "epsilon", H(0.001F)),
         "fp16[1,8,?,4]");
    want(DO("batch_norm", "bn", "x", in.x, "mean", c, "variance", c, "gamma", c,
            "beta", c, "epsilon", H(0.001F)),
         "fp16[1,8,?,4]");
    want(DO("instance_norm", "in", "x", in.x, "gamma", c, "beta", c, "epsilon",
            H(0.001F)),
         "fp16[1,8,?,4]");
    want(DO("l2_norm", "l2", "x", in.y, "epsilon", H(0.001F)),
         "fp16[1,8,16,4]");
}

static void products(void **state)
{
    (void)state;
    struct mil_value *w1 = ZEROS("w1", MIL_FP16, 6, 8, 1, 1);
    struct mil_value *w3 = ZEROS("w3", MIL_FP16, 6, 4, 3, 2);
    struct mil_value *b = ZEROS("b6", MIL_FP16, 6);
    want(mil_conv1x1(p, f, "c1", in.x, w1, NULL), "fp16[1,6,?,4]");
    want(mil_conv1x1(p, f, "c2", in.y, w1, b), "fp16[1,6,16,4]");
    want(DO("conv", "c3", "x", in.y, "weight", w3, "strides", IS(2, 1),
            "pad_type", S("custom"), "pad", IS(1, 2, 0, 1), "dilations",
            IS(2, 1), "groups", I(2)),
         "fp16[1,6,8,4]");
    want(DO("conv", "c4", "x", in.y, "weight", w3, "strides", IS(3, 3),
            "pad_type", S("same"), "pad", IS(0, 0, 0, 0), "dilations", IS(1, 1),
            "groups", I(2)),
         "fp16[1,6,6,2]");
    struct mil_value *lw = ZEROS("lw", MIL_FP16, 6, 4);
    struct mil_value *x3 = DO("squeeze", "x3", "x", in.x, "axes", IS(0));
    want(x3, "fp16[8,?,4]");
    want(DO("linear", "li", "x", x3, "weight", lw, "bias", b), "fp16[8,?,6]");
    want(DO("matmul", "mm", "x", in.x, "y", in.y, "transpose_x", NO,
            "transpose_y", YES),
         "fp16[1,8,?,16]");
    want(DO("matmul", "mm", "x", in.x, "y", in.x, "transpose_x", YES,
            "transpose_y", NO),
         "fp16[1,8,4,4]");
    struct mil_value *m = ZEROS("m", MIL_FP16, 4, 5);
    want(DO("matmul", "mm", "x", in.v, "y", m, "transpose_x", NO, "transpose_y",
            NO),
         "fp16[5]");
    struct mil_value *mask =
        DO("fill", "mask", "shape", IS(1, 1, 1, 16), "value", H(0));
    want(mask, "fp16[1,1,1,16]");
    want(DO("scaled_dot_product_attention", "at", "query", in.x, "key", in.y,
            "value", in.y, "attn_mask", mask),
         "fp16[1,8,?,4]");
    struct mil_value *q = DO("quantize", "qu", "input", in.y, "scale", H(1),
                             "output_dtype", S("int8"));
    want(q, "int8[1,8,16,4]");
    want(DO("dequantize", "dq", "input", q, "scale", H(1)), "fp16[1,8,16,4]");
}

static void shapes(void **state)
{
    (void)state;
    want(DO("reshape", "re", "x", in.x, "shape", IS(1, 2, 4, -1)),
         "fp16[1,2,4,?]");
    want(DO("reshape", "re", "x", in.y, "shape", IS(8, -1)), "fp16[8,64]");
    want(DO("reshape", "re", "x", in.x, "shape", in.k), "fp16[?,?]");
    want(DO("transpose", "tr", "x", in.x, "perm", IS(0, 2, 3, -3)),
         "fp16[1,?,4,8]");
    want(DO("expand_dims", "ex", "x", in.n, "axes", IS(0, -1)), "int32[1,?,1]");
    want(DO("squeeze", "sq", "x", in.y), "fp16[8,16,4]");
    static const int64_t free_dims[] = {1, MIL_UNKNOWN, 4, MIL_UNKNOWN};
    struct mil_value *free_x =
        mil_add_input(p, f, "free_x", MIL_FP16, 4, free_dims, 1, 4);
    want(DO("squeeze", "sq1", "x", free_x), "fp16[?,4,?]");
    want(DO("squeeze", "sq2", "x", free_x, "axes", IS(1)), "fp16[1,4,?]");
    want(DO("squeeze", "sq3", "x", free_x, "axes", IS(0, -1)), "fp16[?,4]");
    want(DO("squeeze", "sq4", "x", free_x, "axes", IS(1, 2)), "fp16[1,4,?]");
    want(DO("reverse", "rv", "x", in.x, "axes", IS(1)), "fp16[1,8,?,4]");
    struct mil_value *both[] = {in.x, in.y};
    want(mil_concat(p, f, "cc", 2, both, 2), "fp16[1,8,?,4]");
    struct mil_value *same[] = {in.y, in.y, in.y};
    want(mil_concat(p, f, "cc", 3, same, -1), "fp16[1,8,16,12]");
    struct mil_value *parts[4] = {0};
    mil_split(p, f, "sp", in.x, 4, 1, parts);
    want(parts[3], "fp16[1,2,?,4]");
    struct mil_value *some =
        DO("split", "ss", "x", in.x, "split_sizes", IS(1, 5, 2), "axis", I(1));
    want(some, "fp16[1,1,?,4]");
    want(some->def->outputs[1], "fp16[1,5,?,4]");
    want(DO("tile", "ti", "x", in.x, "reps", IS(1, 3, 2, 1)), "fp16[1,24,?,4]");
    want(DO("pad", "pa", "x", in.x, "pad", IS(0, 1, 2, 3), "mode",
            S("constant"), "constant_val", H(0)),
         "fp16[1,8,?,9]");
    want(DO("fill_like", "fl", "ref_tensor", in.x, "value", I(7)),
         "int32[1,8,?,4]");
    want(DO("range_1d", "ra", "start", I(2), "end", I(9), "step", I(3)),
         "int32[3]");
    struct mil_value *sh = DO("shape", "sh", "x", in.x);
    want(sh, "int32[4]");
    struct mil_value *t = DO("gather", "t", "x", sh, "indices", I(2), "axis",
                             I(0), "batch_dims", I(0), "validate_indices", NO);
    want(t, "int32");
    want(DO("range_1d", "ra", "start", I(0), "end", t, "step", I(1)),
         "int32[?]");
    want(DO("band_part", "bp", "x", in.x, "lower", I(-1), "upper", I(0)),
         "fp16[1,8,?,4]");
}

static void slices(void **state)
{
    (void)state;
    struct mil_value *z4 = IS(0, 0, 0, 0);
    want(DO("slice_by_index", "sl", "x", in.x, "begin", z4, "end",
            IS(1, 4, 0, 4), "end_mask", BS(false, false, true, false)),
         "fp16[1,4,?,4]");
    want(DO("slice_by_index", "sl", "x", in.y, "begin", IS(0, 1, -1, 3), "end",
            IS(1, 8, 0, 0), "stride", IS(1, 3, -5, -2), "end_mask",
            BS(true, false, true, true)),
         "fp16[1,3,4,2]");
    want(DO("slice_by_index", "sl", "x", in.x, "begin", IS(0, 5, 3, 0), "end",
            IS(1, 6, 4, 4), "squeeze_mask", BS(true, true, false, false)),
         "fp16[1,4]");
    want(DO("slice_by_index", "sl", "x", in.x, "begin", IS(0, 0, -1, 0), "end",
            z4, "end_mask", BS(true, true, true, true)),
         "fp16[1,8,1,4]");
    want(DO("slice_by_size", "sz", "x", in.y, "begin", IS(0, 2, 3, 0), "size",
            IS(1, 4, -1, 2)),
         "fp16[1,4,13,2]");
    want(DO("slice_update", "su", "x", in.y, "update", in.y, "begin", z4, "end",
            z4, "stride", IS(1, 1, 1, 1), "begin_mask",
            BS(false, true, true, true), "end_mask", BS(true, true, true, true),
            "squeeze_mask", BS(false, false, false, false)),
         "fp16[1,8,16,4]");
}

static void indexing(void **state)
{
    (void)state;
    want(DO("gather", "ga", "x", in.y, "indices", in.n, "axis", I(2),
            "batch_dims", I(0), "validate_indices", NO),
         "fp16[1,8,?,4]");
    want(DO("gather", "gb", "x", in.y, "indices", IS(3, 1), "axis", I(-1),
            "batch_dims", I(0), "validate_indices", NO),
         "fp16[1,8,16,2]");
    struct mil_value *ix =
        DO("fill", "ix", "shape", IS(1, 8, 3, 4), "value", I(0));
    want(DO("gather_along_axis", "gl", "x", in.y, "indices", ix, "axis", I(2),
            "validate_indices", NO),
         "fp16[1,8,3,4]");
    struct mil_value *nd = DO("fill", "nd", "shape", IS(5, 2), "value", I(0));
    want(DO("gather_nd", "gn", "x", in.y, "indices", nd, "batch_dims", I(0),
            "validate_indices", NO),
         "fp16[5,16,4]");
    struct mil_value *row =
        DO("fill", "row", "shape", IS(1, 8, 2, 4), "value", H(0));
    want(DO("scatter", "sc", "data", in.y, "indices", IS(1, 2), "updates", row,
            "axis", I(2), "mode", S("update"), "validate_indices", NO),
         "fp16[1,8,16,4]");
    struct mil_value *up =
        DO("fill", "up", "shape", IS(1, 8, 3, 4), "value", H(0));
    want(DO("scatter_along_axis", "sa", "data", in.y, "indices", ix, "updates",
            up, "axis", I(2), "mode", S("add"), "validate_indices", NO),
         "fp16[1,8,16,4]");
    struct mil_value *un =
        DO("fill", "un", "shape", IS(5, 16, 4), "value", H(0));
    want(DO("scatter_nd", "sn", "data", in.y, "indices", nd, "updates", un,
            "mode", S("update"), "validate_indices", NO),
         "fp16[1,8,16,4]");
    struct mil_value *top = DO("topk", "tk", "x", in.x, "k", I(3), "axis", I(1),
                               "ascending", NO, "sort", YES, "return_indices",
                               YES, "output_indices_dtype", S("uint16"));
    want(top, "fp16[1,3,?,4]");
    want(top->def->outputs[1], "uint16[1,3,?,4]");
    want(DO("argsort", "as", "x", in.x, "axis", I(-1), "ascending", YES),
         "int32[1,8,?,4]");
    want(DO("one_hot", "oh", "indices", in.n, "one_hot_vector_size", I(6),
            "axis", I(-1), "on_value", H(1), "off_value", H(0)),
         "fp16[?,6]");
}

/* An op whose operands are inline values or other constexprs. */
static struct mil_value *constexpr_op(const char *type, size_t n,
                                      const char *const *names,
                                      const struct mil_const *const *vals)
{
    struct mil_binding b[4] = {{0}};
    struct mil_arg args[4] = {{0}};
    struct mil_op op = {.type = type, .n_args = n, .args = args};
    struct mil_type out[2];
    struct err e = {0};
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) {
        b[i].imm = vals[i];
        args[i] = (struct mil_arg){names[i], 1, &b[i]};
    }
    unit_ok(mil_infer(&op, 9, out, 2, &n_out, &e), &e);
    static struct mil_op def;
    static struct mil_value v;
    def = (struct mil_op){.type = type};
    v = (struct mil_value){.name = "v", .type = out[n_out - 1], .def = &def};
    return &v;
}

#define CONSTEXPR(type, n, a, av, b_, bv, c, cv)           \
    constexpr_op(type, n, (const char *const[]){a, b_, c}, \
                 (const struct mil_const *const[]){av, bv, cv})

static void compressed(void **state)
{
    (void)state;
    static const uint8_t bytes[512];
    static const uint16_t ones[64] = {0x3c00, 0x3c00, 0x3c00, 0x3c00};
    static const uint8_t mask[] = {0x0d, 0x00};
    static const uint16_t palettes[3 * 64] = {0x3c00};
    struct mil_type qt = {
        .dtype = MIL_INT8, .rank = 4, .dims = {6, 8, 1, 1}
    };
    struct mil_type st = {
        .dtype = MIL_FP16, .rank = 4, .dims = {6, 2, 1, 1}
    };
    want(
        mil_dequant(p, f, "dw", mil_blob(w, &qt, bytes), mil_imm(p, &st, ones)),
        "fp16[6,8,1,1]");
    want(CONSTEXPR("constexpr_blockwise_shift_scale", 3, "data",
                   IMM(MIL_UINT4, bytes, 8, 64), "scale",
                   IMM(MIL_FP16, ones, 8, 2), "offset",
                   IMM(MIL_UINT4, bytes, 8, 2)),
         "fp16[8,64]");
    want(CONSTEXPR("constexpr_lut_to_dense", 2, "indices",
                   IMM(MIL_UINT4, bytes, 8, 64, 1, 1), "lut",
                   IMM(MIL_FP16, ones, 4, 1, 1, 1, 16, 1), NULL, NULL),
         "fp16[8,64,1,1]");
    struct mil_type ct = {
        .dtype = MIL_UINT6, .rank = 4, .dims = {6, 8, 1, 1}
    };
    struct mil_type lt = {
        .dtype = MIL_FP16, .rank = 6, .dims = {3, 1, 1, 1, 64, 1}
    };
    want(mil_look_up(p, f, "looked_up", mil_blob(w, &ct, bytes),
                     mil_blob(w, &lt, palettes)),
         "fp16[6,8,1,1]");
    int32_t axis = 1;
    struct mil_type scalar = {.dtype = MIL_INT32};
    want(CONSTEXPR("constexpr_lut_to_dense", 3, "indices",
                   IMM(MIL_UINT1, bytes, 2, 2, 2), "lut",
                   IMM(MIL_INT8, bytes, 1, 1, 1, 2, 3), "vector_axis",
                   mil_imm(p, &scalar, &axis)),
         "int8[2,6,2]");
    want(CONSTEXPR("constexpr_sparse_to_dense", 2, "nonzero_data",
                   IMM(MIL_FP16, ones, 3), "mask", IMM(MIL_UINT1, mask, 3, 4),
                   NULL, NULL),
         "fp16[3,4]");
    want(CONSTEXPR("constexpr_lut_to_sparse", 3, "indices_mask",
                   IMM(MIL_UINT1, mask, 3, 4), "indices_nonzero_data",
                   IMM(MIL_UINT2, bytes, 3), "lut",
                   IMM(MIL_FP16, ones, 1, 1, 4, 1)),
         "fp16[3]");
    want(CONSTEXPR("constexpr_sparse_blockwise_shift_scale", 3, "data_mask",
                   IMM(MIL_UINT1, mask, 3, 4), "nonzero_data",
                   IMM(MIL_INT8, bytes, 3), "scale", IMM(MIL_FP16, ones, 3, 1)),
         "fp16[3]");
    want(CONSTEXPR("constexpr_cast", 2, "source_val", IMM(MIL_FP16, ones, 4),
                   "output_dtype", mil_imm_str(p, "fp32"), NULL, NULL),
         "fp32[4]");
}

/* The forms whose operands are attributes. */
static void compressed_as_attributes(void **state)
{
    (void)state;
    static const uint8_t bytes[64];
    static const uint8_t mask[] = {0x0d, 0x00};
    static const uint16_t ones[16] = {0};
    static const uint32_t shape[] = {3, 4};
    int32_t axis = 0;
    struct mil_type scalar = {.dtype = MIL_INT32};
    const struct mil_const *sh = IMM(MIL_UINT32, shape, 2);
    const struct {
        const char *op;
        int spec;
        int rc;
        struct mil_attr attrs[4];
        size_t n;
        const char *type;
    } rows[] = {
        {"constexpr_affine_dequantize",
         9,                                        0,
         {{"quantized_data", IMM(MIL_INT8, bytes, 8, 4)},
          {"zero_point", IMM(MIL_INT8, bytes, 8)},
          {"scale", IMM(MIL_FP16, ones, 8)},
          {"axis", mil_imm(p, &scalar, &axis)}},
         4, "fp16[8,4]"},
        {"constexpr_lut_to_dense",
         7,                                        0,
         {{"indices", IMM(MIL_UINT8, bytes, 6)},
          {"lut", IMM(MIL_FP16, ones, 16)},
          {"shape", sh}},
         3, "fp16[3,4]"},
        {"constexpr_sparse_to_dense",
         8,                                        0,
         {{"nonzero_data", IMM(MIL_FP16, ones, 3)},
          {"mask", IMM(MIL_UINT8, mask, 2)},
          {"shape", sh}},
         3, "fp16[3,4]"},
        {"constexpr_lut_to_dense",      /* CoreML8 has only the input form */
         9,      ERR_MIL_INVALID,
         {{"indices", IMM(MIL_UINT8, bytes, 6)},
          {"lut", IMM(MIL_FP16, ones, 16)},
          {"shape", sh}},
         3, NULL       },
        {"constexpr_affine_dequantize", /* too old */
         6, ERR_MIL_OP,
         {{"axis", sh}},
         1, NULL       },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct mil_attr attrs[4];
        memcpy(attrs, rows[i].attrs, sizeof(attrs));
        struct mil_op op = {
            .type = rows[i].op, .attrs = attrs, .n_attrs = rows[i].n};
        struct mil_value v = {.name = "v", .def = &op};
        struct err e = {0};
        size_t n = 0;
        int rc = mil_infer(&op, rows[i].spec, &v.type, 1, &n, &e);
        if (rc != rows[i].rc) {
            fail_msg("row %zu: %s: %s", i, err_name(rc), e.msg);
        }
        if (rc == 0) {
            want(&v, rows[i].type);
        }
    }
}

static void all_of_it_is_a_package(void **state)
{
    (void)state;
    struct mil_program *got = NULL;
    struct err e = {0};
    mil_add_output(p, f, DO("identity", "out", "x", in.y));
    mil_add_meta(p, "aned.test", "every op \"once\"");

    f = mil_add_function(p, "stateful");
    static const int64_t dims[] = {1, 2, 32, 4};
    struct mil_value *k = mil_add_state(p, f, "k", 4, dims);
    struct mil_value *v = mil_add_state(p, f, "v", 4, dims);
    struct mil_value *x = IN("x", MIL_FP16, 1, 2, 32, 4); /* before states */
    assert_ptr_equal(f->inputs[0], x);
    struct mil_value *k0 = mil_state_read(p, f, "k0", k);
    struct mil_value *v0 = mil_state_read(p, f, "v0", v);
    struct mil_value *k1 =
        mil_state_write(p, f, "k1", k, k0, DO("add", "ka", "x", k0, "y", x));
    struct mil_value *v1 =
        mil_state_write(p, f, "v1", v, v0, DO("add", "va", "x", v0, "y", x));
    mil_add_output(p, f, DO("add", "out", "x", k1, "y", v1));

    struct mil_writer *give = w;
    w = NULL;
    unit_ok(mil_writer_finish(give, &e), &e);
    unit_ok(mil_read(dir, &got, &e), &e);
    unit_ok(mil_validate(got, &e), &e);
    assert_true(got->multi);
    assert_int_equal(got->n_functions, 2);
    assert_string_equal(mil_function_find(got, NULL)->name, "main");
    assert_string_equal(got->meta[0].value, "every op \"once\"");

    struct buf text = {0};
    buf_init(&text, MIB(4));
    mil_dump(got, &text);
    assert_true(buf_ok(&text));
    assert_non_null(strstr(text.p, "function stateful opset \"CoreML8\""));
    assert_non_null(strstr(text.p, "  input \"n\": int32[1] range 1..64\n"));
    assert_non_null(strstr(text.p, "= softmax(x=%x, axis=%i32_"));
    buf_fini(&text);
    mil_free(got);
}

static void equations(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "ab,bc",
                                      "ab->ab",
                                      "ab,bc->ad",
                                      "aab,bc->ac",
                                      "ab,bc->aa",
                                      "ab,bc->ac ",
                                      "ab,bc-ac",
                                      "a1,bc->ac",
                                      "abcdefghi,a->a",
                                      "abcdefgh,ijklmnop->aq"};
    struct mil_einsum e;
    for (size_t i = 0; i < countof(bad); i++) {
        if (mil_einsum_parse(bad[i], &e)) {
            fail_msg("\"%s\" is taken", bad[i]);
        }
    }
    assert_true(mil_einsum_parse("nchw,nwhu->nchu", &e));
    assert_int_equal(e.n_labels, 5);
    assert_int_equal(e.in[1][1], e.in[0][3]); /* w */
    assert_int_equal(e.out[3], e.in[1][3]);   /* u */
    assert_true(mil_einsum_parse("a,b->", &e));
    assert_int_equal(e.out_rank, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equations),
        cmocka_unit_test(elementwise),
        cmocka_unit_test(reductions),
        cmocka_unit_test(products),
        cmocka_unit_test(shapes),
        cmocka_unit_test(slices),
        cmocka_unit_test(indexing),
        cmocka_unit_test(compressed),
        cmocka_unit_test(compressed_as_attributes),
        cmocka_unit_test(all_of_it_is_a_package),
    };
    return cmocka_run_group_tests_name("mil_ops", tests, open_writer,
                                       abort_writer);
}
