/* draw_onnx.h - a whole decoder of one of the families that onnx_recover knows,
 * drawn: one to three layers, attention in each of its forms, convolutions,
 * mixtures, both ends, and what the configuration says beside it. */
#pragma once

#include "../unit/source/onnx_mixture.h"
#include "draw_onnx_attention.h"

/* --- the convolution --- */

static const char *swap(struct drawn *w, const char *v)
{
    static int64_t order[3] = {0, 2, 1};
    static int64_t same[3] = {0, 1, 2};
    v = op(w, "Transpose", v);
    Ox__Attribute *p = kit_attr(&w->k, w->last, "perm", ONNX_ATTR_INTS);
    p->n_ints = 3;
    p->ints = odd(w) ? same : order;
    return v;
}

static const char *convolution(struct drawn *w, const char *x)
{
    const int64_t parts[3] = {w->width, w->width, w->width};
    const int64_t taps[3] = {w->width, 1, w->taps};
    const char *v = swap(w, product(w, x, w->width, 3 * w->width, false));
    const char *part = text(w, "p%u", w->names++);
    w->last = kit_node(&w->k, w->k.g, "Split",
                       text(w, "%s,%s", v, ints(w, parts, 3)),
                       text(w, "%s.0,%s.1,%s.2", part, part, part));
    attr(w, "axis", 1);
    v = op(w, "Mul", text(w, "%s.%u,%s.%u", part, (unsigned)odd(w), part, 2u));
    const char *states = ports(w, 1);
    const char *y = text(w, "v%u", w->names++);
    const char *in = text(w, "%s,%s,%s%s", v, put(w, w->type, taps, 3),
                          odd(w) ? put1(w, w->type, w->width) : "", states);
    w->last = kit_node(&w->k, w->k.g, "CausalConvWithState", in,
                       text(w, "%s,out%u.0", y, w->layer));
    maybe(w, "ndim", 1);
    maybe(w, "state_window", 0);
    if (half_the_time(w)) {
        kit_attr(&w->k, w->last, "activation", ONNX_ATTR_STRING)->s =
            kit_text(&w->k, odd(w) ? "silu" : "none");
    }
    v = op(w, "Mul", text(w, "%s.1,%s", part, y));
    return product(w, swap(w, v), w->width, w->width, false);
}

/* --- the feed-forward block --- */

static const char *activation(struct drawn *w, const char *x)
{
    if (has(w, D_GELU)) {
        const char *y = op(w, half_the_time(w) ? "FastGelu" : "Gelu", x);
        if (!odd(w)) {
            kit_attr(&w->k, w->last, "approximate", ONNX_ATTR_STRING)->s =
                kit_text(&w->k, "tanh");
        }
        return y;
    }
    const char *s = op(w, "Sigmoid", x);
    return op(w, "Mul", half_the_time(w) ? text(w, "%s,%s", x, s)
                                         : text(w, "%s,%s", s, x));
}

static const char *dense(struct drawn *w, const char *x)
{
    const int64_t parts[2] = {w->ff, w->ff};
    const char *gate = NULL;
    const char *up = NULL;
    if (half_the_time(w)) {
        const char *in = product(w, x, w->width, 2 * w->ff, odd(w));
        gate = text(w, "v%u", w->names++);
        up = text(w, "v%u", w->names++);
        const bool list = half_the_time(w);
        w->last = kit_node(&w->k, w->k.g, "Split",
                           list ? text(w, "%s,%s", in, ints(w, parts, 2)) : in,
                           text(w, "%s,%s", gate, up));
        attr(w, "axis", half_the_time(w) ? -1 : 2);
        if (!list) {
            maybe(w, "num_outputs", 2);
        }
    } else {
        gate = product(w, x, w->width, w->ff, odd(w));
        up = product(w, x, w->width, w->ff, false);
    }
    const char *act = activation(w, gate);
    const char *both = op(w, "Mul", half_the_time(w) ? text(w, "%s,%s", act, up)
                                                     : text(w, "%s,%s", up, act));
    return product(w, both, w->ff, w->width, odd(w));
}

static const char *mixture(struct drawn *w, const char *x)
{
    static const int64_t block[] = {0, 16, 32};
    struct kit_mix m = {.x = x,
                        .y = text(w, "v%u", w->names++),
                        .tail = text(w, ".%u", w->layer),
                        .width = w->width,
                        .ff = 32,
                        .experts = 4,
                        .top = unless(w, w->top),
                        .bits = odd(w) ? 2 : draw_one_in(w->d, 2) ? 8 : 4,
                        .block = draw_of(w->d, block)};
    m.flat = m.block == 0 && half_the_time(w);
    m.scale_type = half_the_time(w) ? ONNX_FLOAT : ONNX_FLOAT16;
    Ox__Node *n = kit_experts(&w->k, &m);
    for (size_t i = 0; odd(w) && i < 15; i += 1 + draw_below(w->d, 6)) {
        n->input[i] = kit_text(&w->k, put2(w, ONNX_UINT8, 4, 64));
        n->n_input = i < n->n_input ? n->n_input : i + 1;
    }
    return m.y;
}

/* --- both ends --- */

static const char *blocks_table(struct drawn *w)
{
    static const int32_t types[] = {ONNX_UINT8, ONNX_UINT4, ONNX_INT4};
    const int32_t type = draw_of(w->d, types);
    const int64_t bits = type == ONNX_UINT8 && half_the_time(w) ? 8 : 4;
    const int64_t n = (w->width - 1) / 16 + 1;
    const int64_t cols = type == ONNX_UINT8 && bits == 4 ? w->width / 2 : w->width;
    const char *in = text(w, "%s,ids,%s", put2(w, type, w->vocab, cols),
                          put2(w, w->type, w->vocab, n));
    if (half_the_time(w)) {
        in = text(w, "%s,%s", in,
                  type == ONNX_UINT8 ? put2(w, type, w->vocab, (n * bits + 7) / 8)
                                     : put2(w, type, w->vocab, n));
    }
    in = op(w, "GatherBlockQuantized", in);
    attr(w, "block_size", 16);
    if (bits == 8 || half_the_time(w)) {
        attr(w, "bits", bits);
    }
    maybe(w, "gather_axis", 0);
    maybe(w, "quantize_axis", half_the_time(w) ? -1 : 1);
    return in;
}

/* The output matrix's blocks in another shape; rows may be padded. */
static const char *shared_table(struct drawn *w, const struct blocks *b)
{
    const int64_t n = (b->cols - 1) / b->block + 1;
    const int64_t shape[2] = {b->rows, n * b->block * b->bits / 8};
    const int64_t cut[3] = {0, b->cols, -1};
    const char *v = op(w, "Reshape", text(w, "%s,%s", b->names[0], ints(w, shape, 2)));
    v = op(w, "GatherBlockQuantized",
           text(w, "%s,ids,%s%s%s", v, b->names[1], b->names[2] != NULL ? "," : "",
                b->names[2] != NULL ? b->names[2] : ""));
    attr(w, "block_size", b->block);
    attr(w, "bits", b->bits);
    return n * b->block == b->cols
               ? v
               : op(w, "Slice", text(w, "%s,%s,%s,%s", v, ints(w, &cut[0], 1),
                                     ints(w, &cut[1], 1), ints(w, &cut[2], 1)));
}

static void embedding(struct drawn *w, struct blocks *shared)
{
    switch (draw_below(w->d, 4)) {
    case 0:
        w->embed = put2(w, w->type, w->vocab, w->width);
        w->stream = op(w, "Gather", text(w, "%s,ids", w->embed));
        maybe(w, "axis", 0);
        break;
    case 1:
        w->stream = op(w, "Gather",
                       text(w, "%s,ids", matrix(w, draw_below(w->d, FORM_COUNT),
                                                w->vocab, w->width)));
        break;
    case 2:
        w->stream = blocks_table(w);
        break;
    default:
        *shared = blocks(w, w->vocab, w->width);
        w->stream = shared_table(w, shared);
    }
    if (has(w, D_SCALED)) {
        const char *s = number(w, sqrtf((float)w->width));
        w->stream = op(w, "Mul", half_the_time(w) ? text(w, "%s,%s", w->stream, s)
                                                  : text(w, "%s,%s", s, w->stream));
    }
    w->stream = rounded(w, w->stream);
}

static const char *head(struct drawn *w, const char *x,
                        const struct blocks *shared)
{
    const bool tied = half_the_time(w);
    if (tied && shared->rows > 0) {
        return blocks_product(w, x, shared, NULL);
    }
    if (!tied || w->embed == NULL) {
        return product(w, x, w->width, w->vocab, odd(w));
    }
    if (half_the_time(w)) {
        const char *y = op(w, "Gemm", text(w, "%s,%s", x, w->embed));
        attr(w, "transB", 1);
        return y;
    }
    const char *t = op(w, "Transpose", w->embed);
    return op(w, "MatMul", text(w, "%s,%s", x, t));
}

static void logits(struct drawn *w, const struct blocks *shared)
{
    const char *v = head(w, next_norm(w, true), shared);
    if (has(w, D_CAPS)) {
        const char *cap = number(w, 30);
        v = op(w, "Div", text(w, "%s,%s", v, cap));
        v = op(w, "Tanh", v);
        v = op(w, "Mul", text(w, "%s,%s", v, cap));
    }
    kit_port(&w->k, w->k.g, rounded(w, v), true);
}

/* --- the whole --- */

static void sizes(struct drawn *w)
{
    static const int64_t width[] = {32, 16, 64, 48};
    static const int64_t head_size[] = {16, 8, 32};
    static const int64_t ff[] = {32, 16, 48};
    w->width = draw_of(w->d, width);
    w->head = draw_of(w->d, head_size);
    w->kv = 1 + draw_below(w->d, 2);
    w->heads = w->kv * (has(w, D_MHA) ? 1 : 1 + draw_below(w->d, 2));
    w->ff = draw_of(w->d, ff);
    w->vocab = 8 * (1 + draw_below(w->d, 3));
    w->turned = has(w, D_PART) ? w->head / 2 : w->head;
    w->taps = unless(w, 3) & 7;
    w->layers = 1 + draw_below(w->d, 3);
    if (has(w, D_LOCAL | D_CONV | D_EXPERTS)) { /* two kinds of them */
        w->layers = 2 + (has(w, D_QK_NORM) ? draw_below(w->d, 2) : 0);
    }
    w->type = draw_of(w->d, float_types);
    w->form = draw_below(w->d, FORM_COUNT + 1);
    w->scale = half_the_time(w);
    w->top = 1 + draw_below(w->d, 3);
}

static void family(struct drawn *w)
{
    const unsigned f = draw_below(w->d, countof(drawn_families));
    const char *type = drawn_families[f].type;
    w->traits = drawn_families[f].traits;
    for (uint32_t t = 1; t < D_ALL; t *= 2) {
        bool may = (drawn_families[f].may & t) != 0;
        w->traits |= may && draw_one_in(w->d, 3) ? t : 0;
        w->traits ^= w->odd > 0 && draw_one_in(w->d, 60) ? t : 0;
    }
    type = odd(w) ? draw_of(w->d, drawn_families).type : type;
    (void)snprintf(w->c.model_type, sizeof(w->c.model_type), "%s",
                   half_the_time(w) ? type : "");
}

static void config(struct drawn *w)
{
    w->c.context = unless(w, half_the_time(w) ? 32 : 0);
    if (half_the_time(w)) {
        w->c.layers = unless(w, w->layers);
        w->c.d_model = unless(w, w->width);
        w->c.heads = unless(w, w->heads);
        w->c.kv = unless(w, w->kv);
        w->c.d_head = unless(w, w->head);
        w->c.vocab = unless(w, w->vocab);
        w->c.d_ff = unless(w, w->ff);
        w->c.eps = odd(w) ? 1e-5 : (double)1e-6f;
    }
    if (has(w, D_TWO | D_FACTORS)) {
        divisors(w);
    }
    w->c.scaled = w->c.scaled || has(w, D_LINEAR) || odd(w);
    w->c.alpha = odd(w) ? 1000 : 0;
}

/* The whole of w->k's graph, from decisions; *w is the caller's: arena_fini of
 * its kit's. */
static void draw_decoder(struct drawn *w, struct draw *d)
{
    static const char *const inputs[] = {"ids", "mask", "positions"};
    struct blocks shared = {0};
    *w = (struct drawn){.d = d};
    kit_init(&w->k);
    w->odd = w->drawn_odd = draw_one_in(d, 3) ? 1 + draw_below(d, 3) : 0;
    family(w);
    sizes(w);
    config(w);
    w->k.m->opset_import[0]->version = unless(w, 13 + draw_below(d, 12));
    for (size_t i = 0; i < countof(inputs); i++) {
        kit_port(&w->k, w->k.g, inputs[i], false);
    }
    w->less = w->total = "mask";
    if (!has(w, D_MHA)) {
        lengths(w);
    } else {
        kit_mask(&w->k, "in0.0");
    }
    embedding(w, &shared);
    for (; w->layer < w->layers; w->layer++) {
        const bool conv = has(w, D_CONV) && w->layer % 2 == 0;
        const bool experts = has(w, D_EXPERTS) && w->layer > 0;
        const char *x = next_norm(w, false);
        x = conv ? convolution(w, x) : attention(w, x);
        w->branch = has(w, D_POST) && !odd(w) ? norm(w, x, w->width) : x;
        x = next_norm(w, false);
        x = experts ? mixture(w, x) : dense(w, x);
        w->branch = has(w, D_POST) && !odd(w) ? norm(w, x, w->width) : x;
    }
    logits(w, &shared);
}
