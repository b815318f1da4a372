/* rules.c - the rules on operations, as a table. Reasons are for people: what
 * is so, and what to do where there is something. */
#include "convert/residency/rules.h"

#include <stdarg.h>
#include <string.h>

#define NATIVE_OPS                                                             \
    "conv linear matmul softmax exp erf gelu silu sigmoid tanh relu relu6 "    \
    "leaky_relu prelu elu clamped_relu add sub mul real_div pow sqrt rsqrt "   \
    "square abs maximum minimum clip floor reduce_sum reduce_mean reduce_max " \
    "reduce_min reduce_sum_square reduce_log_sum_exp layer_norm batch_norm "   \
    "instance_norm l2_norm concat split slice_by_size slice_by_index reshape " \
    "transpose squeeze expand_dims stack tile pad depth_to_space "             \
    "space_to_depth slice_update read_state write_state greater "              \
    "greater_equal less less_equal equal not_equal logical_not select sin cos"
#define PARTIAL_OPS                                                      \
    "gather_along_axis gather_nd scatter scatter_along_axis scatter_nd " \
    "one_hot non_zero sliding_windows reverse_sequence band_part mod "   \
    "reduce_prod"
#define LIST_OPS \
    "make_list list_read list_write list_gather list_scatter list_length"
#define RANDOM_OPS \
    "random_bernoulli random_categorical random_normal random_uniform"
#define STATE_OPS "read_state write_state slice_update"

/* clang-format off */
static const struct op_rule rules[] = {
    {{"op.native", "6.2",
      "all generations run it"},
     PREDICT_ON,
     NATIVE_OPS,
     NULL},

    /* --- operations --- */
    {{"op.control", "R11",
      "control flow and lists do not run there; unroll it"},
     PREDICT_OFF,
     "cond while_loop " LIST_OPS,
     NULL},
    {{"op.nested", "R11",
      "it is inside a cond or a while_loop, which do not run there"},
     PREDICT_OFF,
     NULL,
     holds_nested},
    {{"op.recurrent", "6.2",
      "recurrent operations do not run there"},
     PREDICT_OFF,
     "lstm gru rnn",
     NULL},
    {{"op.random", "6.2",
      "random numbers are not made there; give them as an input"},
     PREDICT_OFF,
     RANDOM_OPS,
     NULL},
    {{"op.gather", "6.2",
      "a gather is often given to the CPU; look rows up on the host"},
     PREDICT_OFF,
     "gather",
     NULL},
    {{"op.partial", "6.2",
      "it runs there in part or not at all; rewrite it, or do it on the host"},
     PREDICT_OFF,
     PARTIAL_OPS,
     NULL},
    {{"op.topk", "6.2",
      "Core ML puts sorting on the CPU; choose on the host"},
     PREDICT_OFF,
     "topk sort argsort",
     NULL},
    {{"op.logical", "6.2",
      "it does not run there; use mul or maximum"},
     PREDICT_OFF,
     "logical_and logical_or logical_xor",
     NULL},
    {{"op.dynamic", "R11",
      "shapes that are computed at run time do not run there; use constants "
      "or inputs"},
     PREDICT_OFF,
     NULL,
     holds_dynamic},
    {{"op.sin_cos", "6.2",
      "M1 has none; give the tables as inputs"},
     PREDICT_OFF,
     "sin cos",
     holds_old_chip},
    {{"op.attention_small", "6.2",
      "the fused form needs heads of 64, and some 496 to 2048 keys; write "
      "matmul and softmax"},
     PREDICT_OFF,
     "scaled_dot_product_attention",
     holds_attention},
    {{"op.attention", "6.2",
      "the fused form runs there in few shapes; write matmul and softmax"},
     PREDICT_UNKNOWN,
     "scaled_dot_product_attention",
     NULL},
    {{"op.argmax", "6.2",
      "reports differ; choose on the host"},
     PREDICT_UNKNOWN,
     "reduce_argmax reduce_argmin",
     NULL},
    {{"op.cumsum", "6.2",
      "only some forms run there"},
     PREDICT_UNKNOWN,
     "cumsum",
     NULL},
    {{"op.quantize", "6.2",
      "activations in 8 bits run there on some chips, and were computed with "
      "wrong scales"},
     PREDICT_UNKNOWN,
     "quantize dequantize",
     NULL},
    {{"op.cast", "6.2",
      "a cast splits the program, and was seen on the CPU"},
     PREDICT_UNKNOWN,
     "cast",
     NULL},

    /* --- types and sizes --- */
    {{"state.type", "R8",
      "a state that is not fp16"},
     PREDICT_OFF,
     STATE_OPS,
     holds_state_type},
    {{"type.fp32", "R1",
      "not fp16: the operations around it become a segment of the CPU"},
     PREDICT_OFF,
     NULL,
     holds_fp32},
    {{"type.integers", "R8",
      "tensors of integers are refused there"},
     PREDICT_OFF,
     NULL,
     holds_integers},
    {{"type.integer", "R8",
      "an integer that is computed; constants and inputs are safe"},
     PREDICT_UNKNOWN,
     NULL,
     holds_integer},
    {{"rank", "R2",
      "more than 5 axes"},
     PREDICT_OFF,
     NULL,
     holds_rank},
    {{"axis.cap", "R3",
      "an axis is longer than the chip takes"},
     PREDICT_OFF,
     NULL,
     holds_axis},
    {{"axis.contraction", "R3",
      "a product sums over more than the chip's longest axis"},
     PREDICT_UNKNOWN,
     "conv linear matmul",
     holds_contraction},
    {{"axis.rows", "R3",
      "more output channels than the profile's head_rows; split it"},
     PREDICT_UNKNOWN,
     "conv linear",
     holds_rows},

    /* --- forms of operations --- */
    {{"conv.kernel", "6.2",
      "a kernel wider than the chip takes"},
     PREDICT_OFF,
     "conv conv_transpose",
     holds_kernel},
    {{"conv.stride", "6.2",
      "strides of 5 and 7 hang the compiler"},
     PREDICT_OFF,
     "conv conv_transpose",
     holds_stride},
    {{"slice.dynamic", "6.2",
      "bounds that are computed at run time go to the CPU or stop the load; "
      "mask instead"},
     PREDICT_OFF,
     "slice_by_index slice_by_size",
     holds_slice},
    {{"tile.reps", "6.2",
      "only 2, 3, 4 and 8 times are known to run there"},
     PREDICT_UNKNOWN,
     "tile",
     holds_reps},
    {{"pad.mode", "6.2",
      "only padding with a constant is known to run there"},
     PREDICT_UNKNOWN,
     "pad",
     holds_pad},

    /* --- states --- */
    {{"state.width", "R8",
      "a state whose last axis is not a multiple of 32 (270 failed, 256 ran)"},
     PREDICT_OFF,
     STATE_OPS,
     holds_state_width},
    {{"state.view", "R8",
      "a view between a state and its update is refused; write what was "
      "read, blended"},
     PREDICT_OFF,
     "write_state slice_update",
     holds_state_view},
    {{"state.reread", "R8",
      "what is written to a state is used without reading it back"},
     PREDICT_UNKNOWN,
     "write_state",
     holds_state_reread},
    {{"slice_update.alone", "R8",
      "\"cannot support standalone slice_update\": it must change what was "
      "read of a state, and be written"},
     PREDICT_OFF,
     "slice_update",
     holds_alone},
    {{"slice_update.ranged", "0.3",
      "a position that depends on a shape stops the load (-14); mask instead"},
     PREDICT_OFF,
     "slice_update",
     holds_begin_ranged},
    {{"slice_update.tensor", "R8",
      "a position that is a tensor at run time ended the compiler; mask "
      "instead"},
     PREDICT_OFF,
     "slice_update",
     holds_begin_tensor},
    {{"slice_update.position", "R8",
      "a position given at run time is accepted on some systems; masks are "
      "on all"},
     PREDICT_UNKNOWN,
     "slice_update",
     holds_begin_scalar},

    /* --- weights --- */
    {{"weights.blocks", "6.3",
      "scales by blocks: the Neural Engine takes one a tensor or an output "
      "channel"},
     PREDICT_OFF,
     NULL,
     holds_blocks},
    {{"weights.lut_blocks", "6.3",
      "palettes by blocks of input channels do not run there"},
     PREDICT_OFF,
     NULL,
     holds_lut_blocks},
    {{"weights.lut_int8", "6.3",
      "palettes of int8 do not run there; use fp16 entries"},
     PREDICT_OFF,
     NULL,
     holds_lut_int8},
    {{"weights.int4", "6.3",
      "4 bits with a scale an output channel were seen there on M5 only"},
     PREDICT_UNKNOWN,
     NULL,
     holds_int4},
    {{"weights.lut_scale", "6.3",
      "a palette with scales ended the system's compiler in some releases"},
     PREDICT_UNKNOWN,
     NULL,
     holds_lut_scale},
    {{"weights.lut_state", "6.3",
      "palettes beside states ended the process on M5 (Core ML tools issue "
      "2716)"},
     PREDICT_UNKNOWN,
     NULL,
     holds_lut_state},
    {{"weights.lut_other", "6.3",
      "palettes other than of 3, 4 and 6 bits: no report"},
     PREDICT_UNKNOWN,
     NULL,
     holds_lut_other},
    {{"weights.sparse", "6.3",
      "sparse weights need M2 or later"},
     PREDICT_UNKNOWN,
     NULL,
     holds_sparse},
    {{"weights.other", "6.3",
      "no report on this form of weights"},
     PREDICT_UNKNOWN,
     NULL,
     holds_weight_other},
};
/* clang-format on */

static const struct op_rule unlisted = {
    {"op.unlisted", "6.2", "no report tells whether it runs there"},
    PREDICT_UNKNOWN,
    NULL,
    NULL
};

const struct predict_rule *predict_rule_at(size_t i)
{
    return i < countof(rules)    ? &rules[i].is
           : i == countof(rules) ? &unlisted.is
                                 : program_rule_at(i - countof(rules) - 1);
}

bool rule_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; *p != '\0' && n > 0;) {
        size_t k = strcspn(p, " ");
        if (k == n && memcmp(p, word, n) == 0) {
            return true;
        }
        p += k;
        p += strspn(p, " ");
    }
    return false;
}

void look_detail(struct look *k, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(k->detail, sizeof(k->detail), fmt, ap);
    va_end(ap);
}

const struct op_rule *rule_for(struct look *k)
{
    const struct op_rule *best = NULL;
    char detail[PREDICT_DETAIL_MAX] = "";
    for (size_t i = 0; i < countof(rules); i++) {
        const struct op_rule *r = &rules[i];
        if ((best != NULL && r->verdict >= best->verdict) ||
            (r->ops != NULL && !rule_word(r->ops, k->op->type))) {
            continue;
        }
        k->detail[0] = '\0';
        if (r->holds == NULL || r->holds(k)) {
            best = r;
            memcpy(detail, k->detail, sizeof(detail));
        }
    }
    memcpy(k->detail, detail, sizeof(detail));
    return best != NULL ? best : &unlisted;
}
