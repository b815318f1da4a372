/* draw_onnx_attention.h - the traits of a drawn decoder, its tables of rotations
 * and its attention in each of its forms. */
#pragma once

#include "../unit/source/onnx_mask.h"
#include "draw_onnx_weights.h"

enum drawn_trait {
    D_CONV = 1u << 0,     /* on every other layer */
    D_QK_NORM = 1u << 1,
    D_NORM_LAST = 1u << 2,
    D_POST = 1u << 3,
    D_GELU = 1u << 4,
    D_SCALED = 1u << 5,
    D_BIAS = 1u << 6,
    D_O_BIAS = 1u << 7,
    D_LOCAL = 1u << 8,    /* windows on the layers but the last */
    D_PART = 1u << 9,
    D_TWO = 1u << 10,     /* a long pair of tables */
    D_FACTORS = 1u << 11,
    D_CAPS = 1u << 12,
    D_EXPERTS = 1u << 13, /* on layers but the first */
    D_WINDOW = 1u << 14,  /* on all layers */
    D_MHA = 1u << 15,
    D_LINEAR = 1u << 16,  /* positions divided */
    D_ALL = (1u << 17) - 1,
};

static const struct {
    const char *type;
    uint32_t traits, may;
} drawn_families[] = {
    {"llama", 0, D_BIAS | D_O_BIAS | D_FACTORS | D_MHA | D_LINEAR},
    {"mistral", D_WINDOW, D_MHA},
    {"qwen2", D_BIAS, D_MHA},
    {"qwen3", D_QK_NORM, D_MHA | D_LINEAR},
    {"hunyuan_v1_dense", D_QK_NORM | D_NORM_LAST, 0},
    {"phi3", D_TWO, D_PART | D_WINDOW},
    {"gemma", D_GELU | D_SCALED, 0},
    {"gemma2", D_POST | D_GELU | D_SCALED | D_LOCAL, D_CAPS},
    {"gemma3_text", D_QK_NORM | D_POST | D_GELU | D_SCALED | D_LOCAL, D_LINEAR},
    {"lfm2", D_CONV | D_QK_NORM, 0},
    {"lfm2_moe", D_CONV | D_QK_NORM | D_EXPERTS, 0},
};

static bool has(const struct drawn *w, uint32_t trait)
{
    return (w->traits & trait) != 0;
}

/* --- rotations --- */

enum { TURNS = 64, SHORT_TURNS = 16 };

static Ox__Tensor *table(struct drawn *w, const char *name, bool sine,
                         double base, bool longer, bool local, int64_t rows)
{
    const int64_t dims[2] = {rows, w->turned / 2};
    size_t n = (size_t)(rows * dims[1]);
    uint8_t *p = arena_array(&w->k.a, n + 1, 4);
    const int32_t type = has(w, D_TWO) ? ONNX_FLOAT : w->type;
    const double m = has(w, D_TWO) ? 1.19 : 1;
    must(p != NULL);
    for (size_t i = 0; i < n; i++) {
        size_t c = i % (size_t)dims[1];
        double t = pow(base, -(double)c / (double)dims[1]);
        t /= local                      ? 1
             : has(w, D_LINEAR)         ? 2
             : longer                   ? w->c.longs[c]
             : has(w, D_TWO | D_FACTORS) ? w->c.shorts[c]
                                        : 1;
        t *= (double)(i / (size_t)dims[1]);
        float v = (float)(m * (sine ? sin(t) : cos(t)));
        uint32_t bits = half_bits(v);
        uint16_t h = type == ONNX_FLOAT16
                         ? half_from_float(v)
                         : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        memcpy(p + i * (type == ONNX_FLOAT ? 4 : 2),
               type == ONNX_FLOAT ? (void *)&bits : (void *)&h,
               type == ONNX_FLOAT ? 4 : 2);
    }
    Ox__Tensor *t = kit_tensor(&w->k, name, type, dims, 2, p,
                               (size_t)type_bytes(type, n));
    t->dims[0] = unless(w, t->dims[0]);
    return t;
}

static void add_branch(struct drawn *w, Ox__Node *n, const char *name,
                       double base, bool longer)
{
    Ox__Graph *g = KIT_NEW(&w->k, Graph);
    for (unsigned i = 0; i < 2; i++) {
        const char *out = text(w, "%s%u.%u", longer ? "long" : "short", i,
                               w->names++);
        Ox__Node *c = kit_node(&w->k, g, odd(w) ? "Identity" : "Constant", "",
                               out);
        kit_attr(&w->k, c, "value", ONNX_ATTR_TENSOR)->t =
            table(w, "", i == 1, base, longer, false,
                  longer ? TURNS : SHORT_TURNS);
        kit_port(&w->k, g, out, true);
    }
    size_t n_bytes = ox__graph__get_packed_size(g);
    Ox__Attribute *a = kit_attr(&w->k, n, name, ONNX_ATTR_GRAPH);
    a->g = (ProtobufCBinaryData){n_bytes, arena_alloc(&w->k.a, n_bytes + 1)};
    must(a->g.data != NULL && ox__graph__pack(g, a->g.data) == n_bytes);
}

/* Cosines and sines of global (0) or local (1) layers. */
static void rotation(struct drawn *w, unsigned kind)
{
    static const double bases[] = {10000, 1e6, 500000, 12345};
    const double base = draw_of(w->d, bases);
    double *said = kind == 0 ? &w->c.theta : &w->c.local_theta;
    if (w->tables[kind][0] != NULL) {
        return;
    }
    *said = has(w, D_TWO | D_FACTORS | D_LINEAR) || half_the_time(w) ? base : 0;
    *said = odd(w) ? 777 : *said;
    if (has(w, D_TWO)) {
        const int64_t border = SHORT_TURNS;
        const char *more = op(w, "Greater",
                              text(w, "%s,%s", w->total, ints(w, &border, 1)));
        const char *cos = text(w, "v%u", w->names++);
        const char *sin = text(w, "v%u", w->names++);
        Ox__Node *n = kit_node(&w->k, w->k.g, "If", more,
                               text(w, "%s,%s", cos, sin));
        add_branch(w, n, "then_branch", base, true);
        add_branch(w, n, "else_branch", base, false);
        w->tables[kind][0] = cos;
        w->tables[kind][1] = sin;
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        w->tables[kind][i] = text(w, "table%u.%u", kind, i);
        KIT_PUSH(&w->k, w->k.g, initializer,
                 table(w, w->tables[kind][i], i == 1, base, false, kind == 1, TURNS));
    }
}

static void divisors(struct drawn *w)
{
    w->c.scaled = true;
    w->c.n_short = w->c.n_long = (size_t)(w->turned / 2);
    for (size_t i = 0; i < w->c.n_short; i++) {
        w->c.shorts[i] = 1 + 0.25 * (double)(i % 3);
        w->c.longs[i] = 2 + (double)i;
    }
    if (!has(w, D_TWO) || half_the_time(w)) {
        w->c.n_short = w->c.n_long = 0; /* the tables say them */
    }
    w->c.n_short = (size_t)unless(w, (int64_t)w->c.n_short) % ONNX_FACTORS_MAX;
}

/* --- attention --- */

/* How many keys the mask lets count, and how long it is. */
static void lengths(struct drawn *w)
{
    const int64_t one = 1;
    const char *mask = "mask";
    if (half_the_time(w)) {
        mask = op(w, "Cast", "mask");
        attr(w, "to", ONNX_INT32);
    }
    const char *sum = op(w, "ReduceSum", text(w, "%s,%s", mask, ints(w, &one, 1)));
    maybe(w, "keepdims", 0);
    maybe(w, "noop_with_empty_axes", 0);
    w->less = op(w, "Sub", text(w, "%s,%s", sum, ints(w, &one, 1)));
    if (half_the_time(w)) {
        w->less = op(w, "Cast", w->less);
        attr(w, "to", ONNX_INT32);
    }
    if (half_the_time(w)) {
        w->total = op(w, "ReduceMax", text(w, "%s,%s", sum, ints(w, &one, 1)));
        maybe(w, "keepdims", 0);
        return;
    }
    const char *shape = op(w, "Shape", "mask");
    w->total = op(w, "Gather", text(w, "%s,%s", shape, ints(w, &one, 1)));
    maybe(w, "axis", 0);
    if (half_the_time(w)) {
        w->total = op(w, "Cast", w->total);
        attr(w, "to", ONNX_INT32);
    }
}

static const char *into(struct drawn *w, const char *v, int64_t last, bool four)
{
    const int64_t to[4] = {0, four ? 0 : -1, four ? -1 : last, last};
    return op(w, "Reshape", text(w, "%s,%s", v, ints(w, to, four ? 4 : 3)));
}

static const char *head_norm(struct drawn *w, const char *v, int64_t heads)
{
    v = norm(w, rounded(w, into(w, v, w->head, half_the_time(w))), w->head);
    return into(w, rounded(w, v), w->head * heads, false);
}

static const char *turn(struct drawn *w, const char *v, int64_t heads,
                        unsigned kind)
{
    v = op(w, "RotaryEmbedding",
           text(w, "%s,%s,%s,%s", v, odd(w) ? "ids" : "positions",
                w->tables[kind][0], w->tables[kind][1]));
    maybe(w, "num_heads", half_the_time(w) ? heads : 0);
    maybe(w, "interleaved", 0);
    maybe(w, "rotary_embedding_dim", half_the_time(w) ? w->turned : 0);
    maybe(w, "is_packed_batching", 0);
    return v;
}

/* q, k, v (the list for attention), from one product or three. */
static const char *lanes(struct drawn *w, const char *x, bool turn_here,
                         bool norm_here, bool packed, unsigned kind)
{
    const int64_t sizes[3] = {w->heads * w->head, w->kv * w->head,
                              w->kv * w->head};
    const int64_t all = sizes[0] + 2 * sizes[1];
    const char *v[3] = {NULL, NULL, NULL};
    if (packed) {
        return text(w, "%s,,", product(w, x, w->width, all, has(w, D_BIAS)));
    }
    if (half_the_time(w)) {
        const char *in = product(w, x, w->width, all, has(w, D_BIAS));
        for (unsigned i = 0; i < 3; i++) {
            v[i] = text(w, "v%u", w->names++);
        }
        w->last = kit_node(&w->k, w->k.g, "Split",
                           text(w, "%s,%s", in, ints(w, sizes, 3)),
                           text(w, "%s,%s,%s", v[0], v[1], v[2]));
        attr(w, "axis", half_the_time(w) ? -1 : 2);
    } else {
        for (unsigned i = 0; i < 3; i++) {
            v[i] = product(w, x, w->width, sizes[i], has(w, D_BIAS));
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        int64_t heads = i == 0 ? w->heads : w->kv;
        bool first = norm_here && !has(w, D_NORM_LAST);
        v[i] = first ? head_norm(w, v[i], heads) : v[i];
        v[i] = turn_here && !odd(w) ? turn(w, v[i], heads, kind) : v[i];
        v[i] = norm_here && !first ? head_norm(w, v[i], heads) : v[i];
    }
    return text(w, "%s,%s,%s", v[0], v[1], v[2]);
}

/* Inputs of GroupQueryAttention that change what it computes. */
static const char *more_inputs(struct drawn *w)
{
    static const char *const any[] = {"positions", "mask", "ids"};
    const char *s = "";
    for (unsigned i = 9; i < 14; i++) {
        s = text(w, "%s,%s", s, odd(w) ? draw_of(w->d, any) : "");
    }
    return s;
}

static void gqa_numbers(struct drawn *w, bool inside, bool local)
{
    attr(w, "num_heads", w->heads);
    attr(w, "kv_num_heads", w->kv);
    if (inside || half_the_time(w)) {
        attr(w, "do_rotary", inside);
    }
    if (local) {
        attr(w, "local_window_size", 8);
    } else {
        maybe(w, "local_window_size", -1);
    }
    maybe(w, "rotary_interleaved", 0);
    maybe(w, "smooth_softmax", draw_one_in(w->d, 2) ? 0 : -1);
    maybe(w, "qk_output", 0);
    maybe(w, "sliding_window_cache", draw_below(w->d, 2));
    if (w->scale || odd(w)) {
        kit_float(&w->k, w->last, "scale",
                  odd(w) ? 0.3f : 1.0f / sqrtf((float)w->head));
    }
    if (has(w, D_CAPS)) {
        kit_float(&w->k, w->last, "softcap", odd(w) ? -1.0f : 50.0f);
    }
}

static const char *ports(struct drawn *w, unsigned n)
{
    const char *s = "";
    for (unsigned i = 0; i < n; i++) {
        const char *in = text(w, "in%u.%u", w->layer, i);
        const char *out = text(w, "out%u.%u", w->layer, i);
        kit_port(&w->k, w->k.g, in, false);
        if (!odd(w)) {
            kit_port(&w->k, w->k.g, out, true);
        }
        s = text(w, "%s,%s", s, in);
    }
    return s;
}

static const char *attention(struct drawn *w, const char *x)
{
    const bool mha = has(w, D_MHA);
    const bool local = has(w, D_WINDOW) ||
                       (has(w, D_LOCAL) && w->layer + 1 < w->layers);
    const unsigned kind = local && has(w, D_LOCAL) && has(w, D_QK_NORM);
    const bool inside = !mha && !has(w, D_NORM_LAST) && !half_the_time(w);
    const bool norms = has(w, D_QK_NORM);
    const bool inner = norms && inside && draw_one_in(w->d, 3);
    rotation(w, kind);
    const char *in = lanes(w, x, !inside, norms && !inner,
                           inside && (!norms || inner) && half_the_time(w), kind);
    const char *states = ports(w, 2);
    const char *y = text(w, "v%u", w->names++);
    const char *outs = text(w, "%s,out%u.0,out%u.1", y, w->layer, w->layer);
    if (mha) {
        w->last = kit_node(&w->k, w->k.g, "MultiHeadAttention",
                           text(w, "%s,,,m70%s", in, states), outs);
        attr(w, "num_heads", w->heads);
        if (w->scale) {
            kit_float(&w->k, w->last, "scale", 1.0f / sqrtf((float)w->head));
        }
    } else {
        in = text(w, "%s%s,%s,%s", in, states, w->less, w->total);
        in = inside || odd(w) ? text(w, "%s,%s,%s", in, w->tables[kind][0],
                                     w->tables[kind][1])
                              : text(w, "%s,,", in);
        if (inner || w->odd > 0) {
            in = text(w, "%s%s", in, more_inputs(w));
        }
        if (inner) {
            in = text(w, "%s,%s,%s", in, put1(w, w->type, w->head),
                      put1(w, w->type, w->head));
        }
        w->last = kit_node(&w->k, w->k.g, "GroupQueryAttention", in, outs);
        gqa_numbers(w, inside, local);
        if (inner) {
            kit_float(&w->k, w->last, "qk_norm_epsilon", odd(w) ? 1e-5f : 1e-6f);
        }
    }
    return product(w, y, w->heads * w->head, w->width, has(w, D_O_BIAS));
}
