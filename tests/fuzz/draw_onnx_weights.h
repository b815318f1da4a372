/* draw_onnx_weights.h - products, tables and norms of a drawn decoder, their
 * weights in every form that exporters write. Everything fits, until `odd` says
 * otherwise: then one thing is other than it should be. */
#pragma once

#include <stdarg.h>
#include <stdio.h>

#include "../unit/source/onnx_kit.h"
#include "base/half.h"
#include "draw.h"
#include "onnx_any.h"
#include "source/onnx/config.h"

enum form { FORM_PLAIN, FORM_CAST, FORM_TURNED, FORM_GEMM, FORM_BLOCKS,
            FORM_WHOLE, FORM_QDQ, FORM_COUNT };

struct drawn {
    struct kit k;
    struct draw *d;
    struct onnx_config c;
    uint32_t traits;    /* draw_onnx.h */
    unsigned odd;       /* how many things may still be other than they should */
    unsigned drawn_odd; /* how many were to be */
    int64_t width, head, heads, kv, ff, vocab, turned, taps;
    unsigned layers, layer, names;
    int32_t type;       /* of plain weights and scales */
    unsigned form;      /* of matrices; FORM_COUNT: each its own */
    bool scale;         /* attention says the scale of its scores */
    int64_t top;        /* experts of a token */
    uint64_t placed;    /* bytes of w.data that are taken */
    const char *stream, *branch; /* branch: not yet added; NULL: none */
    const char *less, *total;    /* keys less one, and all of them */
    const char *tables[2][2];    /* global, local: cosines, sines */
    const char *embed;           /* a plain table (vocab, width); NULL: none */
    Ox__Node *last;
};

static const int32_t float_types[] = {ONNX_FLOAT, ONNX_FLOAT16, ONNX_BFLOAT16};

static bool odd(struct drawn *w)
{
    if (w->odd == 0 || !draw_one_in(w->d, 24)) {
        return false;
    }
    w->odd--;
    return true;
}
/* Mostly `right`. */
static int64_t unless(struct drawn *w, int64_t right)
{
    static const int64_t wrong[] = {0, 1, 2, -1, 3, 7, 8, 17, 24, 64, 65535,
                                    INT32_MAX, INT64_MAX, INT64_MIN};
    return !odd(w) ? right
           : draw_one_in(w->d, 2) ? right + draw_below(w->d, 3) - 1
                                  : draw_of(w->d, wrong);
}
static bool half_the_time(struct drawn *w)
{
    return draw_one_in(w->d, 2);
}

PRINTF_LIKE(2, 3)
static const char *text(struct drawn *w, const char *fmt, ...)
{
    char *p = arena_alloc(&w->k.a, 400);
    va_list ap;
    must(p != NULL);
    va_start(ap, fmt);
    (void)vsnprintf(p, 400, fmt, ap);
    va_end(ap);
    return p;
}

/* A node of one result, which has a name of its own. */
static const char *op(struct drawn *w, const char *name, const char *in)
{
    const char *out = text(w, "v%u", w->names++);
    w->last = kit_node(&w->k, w->k.g, name, in, out);
    return out;
}
static void attr(struct drawn *w, const char *name, int64_t v)
{
    kit_int(&w->k, w->last, name, unless(w, v));
}
/* An attribute that may be left out. */
static void maybe(struct drawn *w, const char *name, int64_t v)
{
    if (half_the_time(w)) {
        attr(w, name, v);
    }
}

/* --- constants --- */

static uint64_t type_bytes(int32_t type, uint64_t n)
{
    uint64_t bytes = 0;
    return onnx_type_bytes((enum onnx_type)type, n, &bytes) ? bytes : n;
}

/* The same values as numbers in a list. */
static void respell(struct drawn *w, Ox__Tensor *t)
{
    size_t n = t->raw_data.len;
    size_t unit = t->data_type == ONNX_FLOAT16 || t->data_type == ONNX_BFLOAT16
                      ? 2
                      : 1;
    if (t->data_type == ONNX_FLOAT) {
        t->n_float_data = n / 4;
        t->float_data = (float *)(void *)t->raw_data.data;
    } else if (t->data_type != ONNX_INT64) {
        t->n_int32_data = n / unit;
        t->int32_data = arena_array(&w->k.a, n + 1, sizeof(int32_t));
        must(t->int32_data != NULL);
        for (size_t i = 0; i < n / unit; i++) {
            t->int32_data[i] = t->raw_data.data[i * unit] |
                               (unit == 2 ? t->raw_data.data[i * 2 + 1] << 8 : 0);
        }
    } else {
        return;
    }
    t->raw_data.len = 0;
}

static void outside(struct drawn *w, Ox__Tensor *t)
{
    uint64_t n = t->raw_data.len;
    if (w->placed + n > OUTSIDE_BYTES) {
        return;
    }
    kit_entry(&w->k, t, "location", odd(w) ? "other.data" : "w.data");
    kit_entry(&w->k, t, "offset",
              text(w, "%lld", (long long)unless(w, (int64_t)w->placed)));
    if (half_the_time(w)) {
        kit_entry(&w->k, t, "length",
                  text(w, "%lld", (long long)unless(w, (int64_t)n)));
    }
    w->placed += n;
}

/* An initialiser of any numbers. */
static const char *put(struct drawn *w, int32_t type, const int64_t *dims,
                       size_t n_dims)
{
    const char *name = text(w, "w%u", w->names++);
    uint64_t n = 1;
    uint32_t s = draw_byte(w->d) * 40503u + w->names;
    for (size_t i = 0; i < n_dims; i++) {
        n *= (uint64_t)dims[i];
    }
    size_t bytes = (size_t)type_bytes(type, n);
    uint8_t *p = arena_alloc(&w->k.a, bytes + 4);
    must(p != NULL && n < 1 << 20);
    for (size_t i = 0; i < bytes; i++) {
        s = s * 1664525u + 1013904223u;
        p[i] = (uint8_t)(s >> 24);
    }
    for (size_t i = 0; type == ONNX_FLOAT && i < n; i++) {
        float v = (float)p[i * 4] / 256 - 0.5f;
        memcpy(p + i * 4, &v, 4);
    }
    Ox__Tensor *t = kit_tensor(&w->k, name, type, dims, n_dims, p, bytes);
    if (n_dims > 0) {
        int64_t *dim = &t->dims[draw_below(w->d, 4) % n_dims];
        *dim = unless(w, *dim);
    }
    t->data_type = odd(w) ? (int32_t)draw_below(w->d, 24) : type;
    if (draw_one_in(w->d, 16)) {
        respell(w, t);
    } else if (draw_one_in(w->d, 16)) {
        outside(w, t);
    }
    KIT_PUSH(&w->k, w->k.g, initializer, t);
    return name;
}
static const char *put1(struct drawn *w, int32_t type, int64_t n)
{
    return put(w, type, &n, 1);
}
static const char *put2(struct drawn *w, int32_t type, int64_t a, int64_t b)
{
    const int64_t dims[2] = {a, b};
    return put(w, type, dims, 2);
}

/* Whole numbers, as a Constant or an initialiser. */
static const char *ints(struct drawn *w, const int64_t *v, size_t n)
{
    const char *name = text(w, "c%u", w->names++);
    int64_t own[4] = {0, 0, 0, 0};
    const int64_t dims[1] = {(int64_t)n};
    must(n <= countof(own));
    for (size_t i = 0; i < n; i++) {
        own[i] = unless(w, v[i]);
    }
    if (half_the_time(w)) {
        kit_ints(&w->k, w->k.g, name, own, n);
    } else {
        Ox__Tensor *t = kit_tensor(&w->k, name, ONNX_INT64, dims, 1, own, n * 8);
        KIT_PUSH(&w->k, w->k.g, initializer, t);
    }
    return name;
}
static const char *number(struct drawn *w, float v)
{
    const char *name = text(w, "c%u", w->names++);
    v = odd(w) ? v + 1 : v;
    KIT_PUSH(&w->k, w->k.g, initializer,
             kit_tensor(&w->k, name, ONNX_FLOAT, NULL, 0, &v, sizeof(v)));
    return name;
}

/* --- matrices: nodes that end in one of (a, b) numbers --- */

/* Whole numbers, scales of four shapes, zero points. */
static const char *dequantised(struct drawn *w, int64_t a, int64_t b)
{
    static const int32_t whole[] = {ONNX_INT8, ONNX_UINT8, ONNX_INT4, ONNX_UINT4};
    const int32_t type = draw_of(w->d, whole);
    const int32_t scale = half_the_time(w) ? w->type : draw_of(w->d, float_types);
    const unsigned shape = draw_below(w->d, 5);
    const int64_t axis = shape == 1 || shape == 3; /* of scales or of blocks */
    const int64_t n = axis == 0 ? a : b;
    const int64_t blocks = (n - 1) / 16 + 1;
    const int64_t dims[2] = {shape < 3 ? (shape == 0 ? 1 : n) : axis == 0 ? blocks : a,
                             axis == 0 ? b : blocks};
    const size_t n_dims = shape >= 3 ? 2 : shape == 0 ? draw_below(w->d, 2) : 1;
    const char *x = put2(w, type, a, b);
    const char *in = text(w, "%s,%s", x, put(w, scale, dims, n_dims));
    if (half_the_time(w)) {
        in = text(w, "%s,%s", in, put(w, type, dims, n_dims));
    }
    const char *y = op(w, "DequantizeLinear", in);
    attr(w, "axis", half_the_time(w) ? axis : axis - 2);
    if (shape >= 3) {
        attr(w, "block_size", 16);
    }
    return y;
}

static const char *matrix(struct drawn *w, unsigned form, int64_t a, int64_t b)
{
    const char *v = NULL;
    if (form == FORM_TURNED) {
        v = op(w, "Transpose", put2(w, w->type, b, a));
        if (half_the_time(w)) {
            Ox__Attribute *p = kit_attr(&w->k, w->last, "perm", ONNX_ATTR_INTS);
            static int64_t swap[2] = {1, 0};
            p->n_ints = odd(w) ? 1 : 2;
            p->ints = swap;
        }
        return v;
    }
    if (form == FORM_WHOLE || form == FORM_QDQ) {
        return dequantised(w, a, b);
    }
    v = put2(w, w->type, a, b);
    if (form == FORM_CAST) {
        v = op(w, "Cast", v);
        attr(w, "to", draw_of(w->d, float_types));
        maybe(w, "saturate", 1);
    }
    return v;
}

/* --- products --- */

struct blocks {
    int64_t rows, cols, bits, block;
    const char *names[3]; /* weights, scales, zero points (NULL: none) */
};

static struct blocks blocks(struct drawn *w, int64_t rows, int64_t cols)
{
    static const int64_t sizes[] = {16, 32, 64, 128};
    const int64_t block = draw_of(w->d, sizes);
    const int64_t bits = draw_one_in(w->d, 3) ? 8 : odd(w) ? 2 : 4;
    const int64_t n = (cols - 1) / block + 1;
    const int64_t dims[3] = {rows, n, block * bits / 8};
    struct blocks b = {.rows = rows, .cols = cols, .bits = bits, .block = block};
    b.names[0] = put(w, ONNX_UINT8, dims, 3);
    b.names[1] = put2(w, w->type, rows, n);
    switch (draw_below(w->d, 4)) {
    case 1:
        b.names[2] = put2(w, ONNX_UINT8, rows, (n * bits + 7) / 8);
        break;
    case 2:
        b.names[2] = put2(w, w->type, rows, n);
        break;
    case 3:
        b.names[2] = bits == 4 ? put2(w, ONNX_UINT4, rows, n) : NULL;
        break;
    default:
        break;
    }
    return b;
}

static const char *blocks_product(struct drawn *w, const char *x,
                                  const struct blocks *b, const char *bias)
{
    const char *z = b->names[2] != NULL ? b->names[2] : "";
    const char *in = text(w, "%s,%s,%s", x, b->names[0], b->names[1]);
    if (bias != NULL) {
        in = text(w, "%s,%s,,%s", in, z, bias);
    } else if (z[0] != '\0') {
        in = text(w, "%s,%s", in, z);
    }
    const char *y = op(w, "MatMulNBits", in);
    attr(w, "K", b->cols);
    attr(w, "N", b->rows);
    if (b->bits != 4 || half_the_time(w)) {
        attr(w, "bits", b->bits);
    }
    attr(w, "block_size", b->block);
    maybe(w, "accuracy_level", draw_below(w->d, 5));
    maybe(w, "weight_prepacked", 0);
    return y;
}

/* Through halves and back, now and then. */
static const char *rounded(struct drawn *w, const char *v)
{
    if (!draw_one_in(w->d, 24)) {
        return v;
    }
    for (unsigned i = 1 + draw_below(w->d, 2); i > 0; i--) {
        v = op(w, "Cast", v);
        attr(w, "to", draw_of(w->d, float_types));
    }
    return v;
}

static const char *plus(struct drawn *w, const char *a, const char *b)
{
    return half_the_time(w) ? op(w, "Add", text(w, "%s,%s", a, b))
                            : op(w, "Add", text(w, "%s,%s", b, a));
}

/* Activations through bytes, which nobody takes. */
static const char *through_bytes(struct drawn *w, const char *x)
{
    const char *s = number(w, 0.5f);
    x = op(w, "QuantizeLinear", text(w, "%s,%s", x, s));
    return op(w, "DequantizeLinear", text(w, "%s,%s", x, s));
}

/* x (.., in) times a matrix, and a vector where `bias`. */
static const char *product(struct drawn *w, const char *x, int64_t in,
                           int64_t out, bool bias)
{
    const unsigned form = w->form < FORM_COUNT ? w->form
                                               : draw_below(w->d, FORM_COUNT);
    const char *b = bias ? put1(w, w->type, out) : NULL;
    const bool inside = b != NULL && half_the_time(w);
    const char *y = NULL;
    if (form == FORM_QDQ && odd(w)) {
        x = through_bytes(w, x);
    }
    if (form == FORM_BLOCKS) {
        const struct blocks m = blocks(w, out, in);
        y = blocks_product(w, x, &m, inside ? b : NULL);
        return inside || b == NULL ? y : plus(w, y, b);
    }
    if (form != FORM_GEMM && !(form >= FORM_WHOLE && half_the_time(w))) {
        y = op(w, "MatMul", text(w, "%s,%s", x, matrix(w, form, in, out)));
        return b == NULL ? y : plus(w, y, b);
    }
    const bool flip = half_the_time(w);
    const char *m = matrix(w, form, flip ? out : in, flip ? in : out);
    y = op(w, "Gemm", inside ? text(w, "%s,%s,%s", x, m, b)
                             : text(w, "%s,%s", x, m));
    if (flip || half_the_time(w)) {
        attr(w, "transB", flip);
    }
    maybe(w, "transA", 0);
    return inside || b == NULL ? y : plus(w, y, b);
}

/* --- norms --- */

static const char *norm(struct drawn *w, const char *x, int64_t width)
{
    const char *name = odd(w)             ? "LayerNormalization"
                       : half_the_time(w) ? "RMSNormalization"
                                          : "SimplifiedLayerNormalization";
    const char *in = text(w, "%s,%s", x, put1(w, w->type, width));
    const char *y = op(w, name, odd(w) ? text(w, "%s,%s", in, put1(w, w->type, width))
                                       : in);
    kit_float(&w->k, w->last, "epsilon", odd(w) ? 1e-5f : 1e-6f);
    maybe(w, "axis", -1);
    maybe(w, "stash_type", 1);
    return y;
}

/* What stands before the next block: the stream so far, normed. A sum that is
 * not made yet is made, in one node with the norm or in its own. */
static const char *next_norm(struct drawn *w, bool last)
{
    if (w->branch == NULL) {
        return rounded(w, norm(w, w->stream, w->width));
    }
    const char *branch = rounded(w, w->branch);
    w->branch = NULL;
    if (draw_one_in(w->d, 3)) {
        w->stream = plus(w, w->stream, branch);
        return norm(w, w->stream, w->width);
    }
    const char *h = text(w, "v%u", w->names++);
    const char *x = text(w, "v%u", w->names++);
    const bool first = half_the_time(w);
    w->last = kit_node(
        &w->k, w->k.g, "SkipSimplifiedLayerNormalization",
        text(w, "%s,%s,%s", first ? w->stream : branch,
             first ? branch : w->stream, put1(w, w->type, w->width)),
        last && half_the_time(w) ? h : text(w, "%s,,,%s", h, x));
    kit_float(&w->k, w->last, "epsilon", odd(w) ? 1e-3f : 1e-6f);
    w->stream = x;
    return rounded(w, h);
}
