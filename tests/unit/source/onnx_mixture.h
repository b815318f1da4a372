/* onnx_mixture.h - a mixture of experts behind QMoE, as onnxruntime-genai's
 * builder writes LFM2's, in the place of a feed-forward block. */
#pragma once

#include "base/half.h"
#include "onnx_kit.h"

enum { KIT_EXPERTS = 4, KIT_TOP = 2, KIT_EXPERT_FF = 16, KIT_BLOCK = 16 };

struct kit_mix {
    const char *x, *y; /* what it reads and gives; other names get a tail */
    const char *tail;
    int64_t width, ff, experts, top, bits;
    int64_t block;      /* 0: a scale for each row */
    bool flat;          /* scales without the dimension of blocks */
    int32_t scale_type; /* ONNX_FLOAT, ONNX_FLOAT16 */
};

/* The kit's own decoder's. */
static inline struct kit_mix kit_mix(int64_t bits, int64_t block)
{
    return (struct kit_mix){"h2", "down", "", KIT_WIDTH, KIT_EXPERT_FF,
                            KIT_EXPERTS, KIT_TOP, bits, block, block == 0,
                            ONNX_FLOAT};
}

/* Each name of a list with the mixture's tail; x and y are its own. */
static inline const char *mix_names(struct kit *k, const struct kit_mix *m,
                                    const char *list)
{
    char *p = arena_alloc(&k->a, 512);
    size_t at = 0;
    must(p != NULL);
    p[0] = '\0';
    while (*list != '\0') {
        int n = (int)strcspn(list, ",");
        const char *own = n == 1 && *list == 'x'   ? m->x
                          : n == 1 && *list == 'y' ? m->y
                                                   : NULL;
        int put = own != NULL ? snprintf(p + at, 512 - at, "%s", own)
                              : snprintf(p + at, 512 - at, "%.*s%s", n, list,
                                         n > 0 ? m->tail : "");
        list += n + (list[n] == ',');
        at += (size_t)put;
        must(put >= 0 && at < 510);
        if (list[-1] == ',') {
            p[at++] = ',';
            p[at] = '\0';
        }
    }
    return p;
}
static inline Ox__Node *mix_node(struct kit *k, const struct kit_mix *m,
                                 const char *op, const char *in,
                                 const char *out)
{
    return kit_node(k, k->g, op, mix_names(k, m, in), mix_names(k, m, out));
}
static inline void mix_ints(struct kit *k, const struct kit_mix *m,
                            const char *name, const int64_t *v, size_t n)
{
    kit_ints(k, k->g, mix_names(k, m, name), v, n);
}
static inline void mix_number(struct kit *k, const struct kit_mix *m,
                              const char *name, float v)
{
    Ox__Node *c = mix_node(k, m, "Constant", "", name);
    kit_attr(k, c, "value", ONNX_ATTR_TENSOR)->t =
        kit_tensor(k, "", ONNX_FLOAT, NULL, 0, &v, sizeof(v));
}

/* Byte i of codes, and scale i: what the tests compute again. */
static inline uint8_t kit_code(size_t i)
{
    return (uint8_t)(i * 37 + 11);
}
static inline float kit_code_scale(size_t i)
{
    return 0.25f + (float)(i % 7);
}

/* Rows of codes that count up, for all experts, and their scales. */
static inline void mix_codes(struct kit *k, const struct kit_mix *m,
                             const char *w, const char *s, int64_t rows,
                             int64_t cols)
{
    int64_t blocks = m->block > 0 ? (cols - 1) / m->block + 1 : 1;
    const int64_t dw[3] = {m->experts, rows, cols * m->bits / 8};
    const int64_t ds[3] = {m->experts, rows, blocks};
    size_t n = (size_t)(dw[0] * dw[1] * dw[2]);
    size_t n_s = (size_t)(ds[0] * ds[1] * ds[2]);
    size_t unit = m->scale_type == ONNX_FLOAT ? 4 : 2;
    uint8_t *p = arena_alloc(&k->a, n + 1);
    uint8_t *x = arena_array(&k->a, n_s + 1, unit);
    must(p != NULL && x != NULL);
    for (size_t i = 0; i < n; i++) {
        p[i] = kit_code(i);
    }
    for (size_t i = 0; i < n_s; i++) {
        float f = kit_code_scale(i);
        uint16_t h = half_from_float(f);
        memcpy(x + i * unit, unit == 4 ? (void *)&f : (void *)&h, unit);
    }
    KIT_PUSH(k, k->g, initializer,
             kit_tensor(k, mix_names(k, m, w), ONNX_UINT8, dw, 3, p, n));
    KIT_PUSH(k, k->g, initializer,
             kit_tensor(k, mix_names(k, m, s), m->scale_type, ds,
                        m->flat ? 2 : 3, x, n_s * unit));
}

static inline void mix_router(struct kit *k, const struct kit_mix *m)
{
    const int64_t rows[2] = {-1, m->experts};
    (void)kit_floats(k, k->g, mix_names(k, m, "wr"), m->width, m->experts);
    (void)kit_floats(k, k->g, mix_names(k, m, "rb"), 0, m->experts);
    mix_ints(k, m, "rows", rows, 2);
    mix_ints(k, m, "top", &m->top, 1);
    mix_number(k, m, "one.f", 1);
    mix_number(k, m, "tiny", 1e-30f);
    (void)mix_node(k, m, "MatMul", "x,wr", "r0");
    (void)mix_node(k, m, "Reshape", "r0,rows", "r");
    (void)mix_node(k, m, "Neg", "r", "neg");
    (void)mix_node(k, m, "Exp", "neg", "exp");
    (void)mix_node(k, m, "Add", "exp,one.f", "more");
    (void)mix_node(k, m, "Reciprocal", "more", "scores");
    (void)mix_node(k, m, "Add", "scores,rb", "biased");
    kit_int(k, mix_node(k, m, "TopK", "biased,top", "best,picked"), "axis", -1);
    kit_int(k, mix_node(k, m, "GatherElements", "scores,picked", "chosen"),
            "axis", 1);
    (void)mix_node(k, m, "Clip", "chosen,tiny,", "clip");
    (void)mix_node(k, m, "Log", "clip", "log");
    (void)mix_node(k, m, "Shape", "scores", "s.shape");
    const float low = -10000;
    const int64_t single = 1;
    kit_attr(k, mix_node(k, m, "ConstantOfShape", "s.shape", "fill"), "value",
             ONNX_ATTR_TENSOR)
        ->t = kit_tensor(k, "", ONNX_FLOAT, &single, 1, &low, sizeof(low));
    kit_int(k, mix_node(k, m, "ScatterElements", "fill,picked,log", "shares"),
            "axis", 1);
}

static inline void mix_share_sum(struct kit *k, const struct kit_mix *m)
{
    const int64_t zero = 0;
    const int64_t one = 1;
    const int64_t last = -1;
    mix_ints(k, m, "zero", &zero, 1);
    mix_ints(k, m, "one.i", &one, 1);
    mix_ints(k, m, "last", &last, 1);
    mix_number(k, m, "eps", 1e-6f);
    (void)mix_node(k, m, "ReduceSum", "chosen,last", "all");
    (void)mix_node(k, m, "Add", "all,eps", "all.eps");
    (void)mix_node(k, m, "Div", "all,all.eps", "part");
    (void)mix_node(k, m, "Shape", "x", "x.shape");
    (void)mix_node(k, m, "Slice", "x.shape,zero,last", "x.rows");
    kit_int(k, mix_node(k, m, "Concat", "x.rows,one.i", "x.ones"), "axis", 0);
    (void)mix_node(k, m, "Reshape", "part,x.ones", "scale");
}

/* All nodes and weights; the QMoE itself is the result. */
static inline Ox__Node *kit_experts(struct kit *k, const struct kit_mix *m)
{
    mix_router(k, m);
    mix_share_sum(k, m);
    mix_codes(k, m, "fc1", "fc1.s", 2 * m->ff, m->width);
    mix_codes(k, m, "fc2", "fc2.s", m->width, m->ff);
    Ox__Node *n = mix_node(k, m, "QMoE", "x,shares,fc1,fc1.s,,fc2,fc2.s", "moe");
    kit_int(k, n, "k", m->top);
    kit_int(k, n, "expert_weight_bits", m->bits);
    if (m->block > 0) {
        kit_int(k, n, "block_size", m->block);
    }
    kit_int(k, n, "normalize_routing_weights", 1);
    kit_int(k, n, "swiglu_fusion", 1);
    kit_attr(k, n, "activation_type", ONNX_ATTR_STRING)->s =
        kit_text(k, "swiglu");
    (void)mix_node(k, m, "Mul", "moe,scale", "y");
    return n;
}

/* In the place of the kit's feed-forward block. */
static inline Ox__Node *kit_mixture(struct kit *k, const struct kit_mix *m)
{
    static const char *const gone[] = {"gate", "up", "sig", "act", "both", "down"};
    kit_drop(k, gone, countof(gone));
    return kit_experts(k, m);
}
