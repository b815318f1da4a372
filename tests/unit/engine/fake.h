/* fake.h - a backend that keeps the shard contract in plain arithmetic, and a
 * tiny bundle for it.
 *
 * A layer shard adds to every channel of a row the sum of what the visible
 * positions hold, times (position % 3 + 1); a position holds channel 0 of its
 * row as fp16 (the stateless form has a second head that holds its negative).
 * Which positions are visible, and where a row writes, comes from the masks
 * alone. Each prediction also holds all its inputs against what the contract
 * says for the positions they claim (fake_check). A head gives the highest
 * logit to the id nearest to channel 0, modulo the vocabulary. fake_reference
 * computes the same without any mask.
 *
 * Its arrays are as awkward as backend.h allows (fake_array.h). Its results
 * may depend on the width (fake.by_width), widths may have to be run once
 * before they are used (fake.warms), and any call may be made to fail.
 */
#pragma once

#include <math.h>
#include <unistd.h>

#include "../layer.h"
#include "../unit.h"
#include "base/file.h"
#include "base/half.h"
#include "engine/engine.h"
#include "fake_array.h"

enum {
    FAKE_D = 3,
    FAKE_S = 32,
    FAKE_V = 10,
    FAKE_WINDOW = 5,
    FAKE_HALF = 2, /* rope columns, global; local has 1 */
    FAKE_CALLS = 4096,
    FAKE_WIDTH = 4, /* at which the reference runs, when that matters */
};
#define FAKE_BASE       100.0f
#define FAKE_BASE_LOCAL 50.0f
#define FAKE_SCALE      0.5f
#define FAKE_MAGNITUDE  1.25f /* of the global kind, by both lists */

/* What the next engine_open_with finds. */
static struct {
    int64_t t_lo, t_hi; /* 0, 0: T of the function, "t4" */
    bool host;
    const char *wrong; /* a fault in the packages, or NULL */
    int fail_after;    /* predictions; < 0 never */
    uint32_t fail_times; /* one after the other; 0: once */
    int fail_rc;         /* 0: ERR_MIL_OP */
    uint32_t opens;      /* packages opened so far */
    float by_width;    /* times T is added to channel 0 of every layer */
    uint32_t exact[4], n_exact; /* exact widths that it reports */
    bool warms;                 /* a width must be warm before it predicts */
    uint32_t asks;              /* how often a warm-up asks whether to go on */
    uint32_t
        original;   /* of the bundle's second list of factors; 0: it has one */
    bool long_list; /* rows come by the second list now */
} fake;

/* What predictions saw. */
static struct {
    size_t n;
    struct {
        char kind; /* 'a', 'b' layers, 'h' head */
        uint32_t pos, rows, t;
        bool same; /* all columns of x are equal */
    } calls[FAKE_CALLS];
} seen;

struct backend_model {
    char kind;
    uint32_t rows; /* of the output */
    int64_t t;     /* fixed, or 0 */
    struct backend_port in[8], out[2];
    size_t n_in, n_out;
    bool warm[ENGINE_CHUNK_MAX + 1];
    float *y;
    float *fresh;
};

struct backend_state {
    uint16_t held[FAKE_S];
};

static const struct backend_port fake_state_port = {
    .name = "layers_0_k_state",
    .type = {.dtype = MIL_FP16, .rank = 4, .dims = {1, 1, FAKE_S, 1}}
};

static struct backend_port fake_port(const char *name, int64_t a, int64_t b,
                                     int64_t c, int64_t d)
{
    struct backend_port p = {
        .name = name,
        .type = {
                 .dtype = MIL_FP16, .rank = d == 0 ? 2 : 4, .dims = {a, b, c, d}}
    };
    return p;
}

/* Shard a reads the global set, shard b both. */
static void fake_ports(struct backend_model *m, int64_t t)
{
    struct backend_port *p = m->in;
    *p++ = fake_port("x", 1, FAKE_D, t, 1);
    if (m->kind != 'h') {
        *p++ = fake_port("rope_cos", t, FAKE_HALF, 0, 0);
        *p++ = fake_port("rope_sin", t, FAKE_HALF, 0, 0);
        *p++ = fake_port("attn_mask", 1, 1, t, FAKE_S);
        *p++ = fake_port("kv_write_mask", 1, 1, FAKE_S, t);
    }
    if (m->kind == 'b') {
        *p++ = fake_port("attn_mask_local", 1, 1, t, FAKE_S);
        *p++ = fake_port("rope_cos_local", t, 1, 0, 0);
    }
    if (m->kind != 'h' && fake.host) {
        *p++ = fake_port("layers_0_k_past", 1, 2, FAKE_S, 1);
    }
    m->n_in = (size_t)(p - m->in);
    m->out[0] = fake_port(m->kind == 'h' ? "logits" : "hidden", 1,
                          (int64_t)m->rows, t, 1);
    m->n_out = 1;
    if (m->kind != 'h' && fake.host) {
        m->out[m->n_out++] = fake_port("layers_0_k_new", 1, 2, t, 1);
    }
    const char *wrong = fake.wrong != NULL ? fake.wrong : "";
    if (strcmp(wrong, "shape") == 0 && m->kind == 'b') {
        m->in[3].type.dims[3] = FAKE_S + 1;
    } else if (strcmp(wrong, "input") == 0 && m->kind == 'a') {
        m->in[1].name = "rope_tan";
    } else if (strcmp(wrong, "x") == 0 && m->kind == 'a') {
        m->in[0] = m->in[1];
    } else if (strcmp(wrong, "hidden") == 0 && m->kind == 'b') {
        m->out[0].name = "y";
    } else if (strcmp(wrong, "logits") == 0 && m->kind == 'h') {
        m->out[0].type.dims[1]++;
    } else if (strcmp(wrong, "new") == 0 && m->n_out == 2) {
        m->out[1].name = "layers_0_k_old";
    }
}

static int fake_open(const char *pkg, const char *function,
                     const struct backend_conf *conf,
                     struct backend_model **ret, struct err *e)
{
    (void)e;
    assert_int_equal(conf->threads, 3);
    struct backend_model *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    const char *name = strrchr(pkg, '/') + 1;
    m->kind = strcmp(name, "layers_00_01.mlpackage") == 0   ? 'a'
              : strcmp(name, "layers_01_02.mlpackage") == 0 ? 'b'
                                                            : 'h';
    m->rows = m->kind != 'h'                          ? FAKE_D
              : strcmp(name, "head_0.mlpackage") == 0 ? 6
                                                      : 4;
    if (function != NULL) { /* "t4" */
        assert_int_equal(function[0], 't');
        m->t = strtol(function + 1, NULL, 10);
    }
    m->y = calloc((size_t)FAKE_V * ENGINE_CHUNK_MAX, sizeof(float));
    m->fresh = calloc((size_t)2 * ENGINE_CHUNK_MAX, sizeof(float));
    assert_true(m->y != NULL && m->fresh != NULL);
    fake_ports(m, m->t > 0 ? m->t : MIL_UNKNOWN);
    fake.opens++;
    *ret = m;
    return 0;
}

static void fake_close(struct backend_model *m)
{
    if (m != NULL) {
        free(m->y);
        free(m->fresh);
        free(m);
    }
}

static void fake_info(const struct backend_model *m, struct backend_info *ret)
{
    *ret = (struct backend_info){
        .n_in = m->n_in,
        .n_out = m->n_out,
        .n_states = m->kind != 'h' && !fake.host,
        .in = m->in,
        .out = m->out,
        .states = &fake_state_port,
        .exact_widths = fake.exact,
        .n_exact_widths = fake.n_exact,
        .arith = "fake 7",
        .t_min = m->t > 0 ? 1 : fake.t_lo,
        .t_max = m->t > 0 ? 1 : fake.t_hi,
        .weight_bytes = 1000,
        .state_bytes = m->kind != 'h' && !fake.host ? FAKE_S * 2 : 0,
    };
}

static int fake_state_new(struct backend_model *m, struct backend_state **ret,
                          struct err *e)
{
    (void)m;
    (void)e;
    *ret = calloc(1, sizeof(**ret));
    assert_non_null(*ret);
    return 0;
}

static void fake_state_free(struct backend_state *s)
{
    free(s);
}

static int fake_state_copy(struct backend_state *to,
                           const struct backend_state *from, struct err *e)
{
    (void)e;
    *to = *from;
    return 0;
}

static const struct tensor *fake_in(const struct tensor *in, size_t n,
                                    const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(in[i].name, name) == 0) {
            return &in[i];
        }
    }
    fail_msg("no input %s", name);
    abort(); /* not reached */
}

static float fake_at(const struct tensor *t, size_t i)
{
    return t->dtype == MIL_FP16 ? half_to_float(((const uint16_t *)t->data)[i])
                                : ((const float *)t->data)[i];
}

/* Dims are the port's, T filled in. */
static void fake_check_dims(const struct backend_model *m,
                            const struct tensor *in, int64_t t)
{
    for (size_t i = 0; i < m->n_in; i++) {
        const struct backend_port *p = &m->in[i];
        const struct tensor *x = fake_in(in, m->n_in, p->name);
        assert_int_equal(x->rank, p->type.rank);
        for (int d = 0; d < x->rank; d++) {
            int64_t want = p->type.dims[d];
            assert_int_equal(x->dims[d], want == MIL_UNKNOWN ? t : want);
        }
        assert_int_equal(x->dtype, fake_dtype(p->name));
    }
}

static void fake_check_rope(const struct tensor *x, size_t t, size_t half,
                            uint32_t pos, float base, bool sine)
{
    for (size_t i = 0; i < half; i++) {
        double f = pow((double)base, -(double)i / (double)half);
        /* the bundle's factors */
        f /= half == 2 && i == 1 ? (fake.long_list ? 8.0 : 4.0) : 1.0;
        double angle = pos * (double)FAKE_SCALE * f;
        double want = (sine ? sin(angle) : cos(angle)) *
                      (half == 2 ? (double)FAKE_MAGNITUDE : 1.0);
        assert_true(fabs((double)fake_at(x, t * half + i) - want) < 1e-7);
    }
}

static void fake_check_mask(const struct tensor *x, size_t t, uint32_t lo,
                            uint32_t hi)
{
    for (uint32_t s = 0; s < FAKE_S; s++) {
        float v = fake_at(x, t * FAKE_S + s);
        bool visible = s >= lo && s < hi;
        if (!(visible ? v >= 0 && v <= 0 : v >= -1e4f && v <= -1e4f)) {
            fail_msg("row %zu position %u is %g", t, s, (double)v);
        }
    }
}

/* Positions from the write mask: consecutive, padding last. Every other input
 * is then known. */
static void fake_check(const struct backend_model *m, const struct tensor *in,
                       uint32_t t, uint32_t *pos, uint32_t *rows)
{
    const struct tensor *write = fake_in(in, m->n_in, "kv_write_mask");
    *rows = 0;
    for (uint32_t i = 0; i < t; i++) {
        uint32_t ones = 0;
        uint32_t at = 0;
        for (uint32_t s = 0; s < FAKE_S; s++) {
            float v = fake_at(write, (size_t)s * t + i);
            assert_true((v >= 0 && v <= 0) || (v >= 1 && v <= 1));
            if (v > 0) {
                ones++;
                at = s;
            }
        }
        assert_true(ones <= 1);
        *pos = i == 0 ? at : *pos;
        if (ones == 1) {
            assert_int_equal(at, *pos + i);
            assert_int_equal(*rows, i); /* no real row after a padding row */
            (*rows)++;
        }
    }
    assert_true(*rows > 0);
    const struct tensor *x = fake_in(in, m->n_in, "x");
    for (uint32_t i = 0; i < t; i++) {
        uint32_t real = i < *rows ? i : *rows - 1;
        uint32_t p = *pos + real;
        fake_check_rope(fake_in(in, m->n_in, "rope_cos"), i, FAKE_HALF, p,
                        FAKE_BASE, false);
        fake_check_rope(fake_in(in, m->n_in, "rope_sin"), i, FAKE_HALF, p,
                        FAKE_BASE, true);
        fake_check_mask(fake_in(in, m->n_in, "attn_mask"), i, 0, p + 1);
        if (m->kind == 'b') {
            fake_check_rope(fake_in(in, m->n_in, "rope_cos_local"), i, 1, p,
                            FAKE_BASE_LOCAL, false);
            fake_check_mask(fake_in(in, m->n_in, "attn_mask_local"), i,
                            p + 1 > FAKE_WINDOW ? p + 1 - FAKE_WINDOW : 0,
                            p + 1);
        }
        for (size_t c = 0; c < FAKE_D; c++) {
            float a = fake_at(x, c * t + i);
            float b = fake_at(x, c * t + real);
            assert_memory_equal(&a, &b, sizeof(a));
        }
    }
}

static void fake_layer(struct backend_model *m, struct backend_state *s,
                       const struct tensor *in, uint32_t t)
{
    const struct tensor *x = fake_in(in, m->n_in, "x");
    const struct tensor *write = fake_in(in, m->n_in, "kv_write_mask");
    const struct tensor *mask =
        fake_in(in, m->n_in, m->kind == 'b' ? "attn_mask_local" : "attn_mask");
    uint16_t held[FAKE_S];
    const uint16_t *past =
        fake.host ? fake_in(in, m->n_in, "layers_0_k_past")->data : s->held;
    memcpy(held, past, sizeof(held));
    for (uint32_t p = 0; fake.host && p < FAKE_S; p++) { /* the second head */
        assert_true(half_to_float(past[FAKE_S + p]) == -half_to_float(past[p]));
    }
    for (uint32_t i = 0; i < t; i++) {
        m->fresh[i] = fake_at(x, i);
        m->fresh[t + i] = -m->fresh[i];
        for (uint32_t p = 0; p < FAKE_S; p++) {
            if (fake_at(write, (size_t)p * t + i) > 0) {
                held[p] = half_from_float(m->fresh[i]);
            }
        }
    }
    for (uint32_t i = 0; i < t; i++) {
        float sum = 0;
        for (uint32_t p = 0; p < FAKE_S; p++) {
            if (fake_at(mask, (size_t)i * FAKE_S + p) >= 0) {
                sum += half_to_float(held[p]) * (float)(p % 3 + 1);
            }
        }
        for (size_t c = 0; c < FAKE_D; c++) {
            m->y[c * t + i] =
                fake_at(x, c * t + i) + sum + fake.by_width * (float)t;
        }
    }
    if (!fake.host) {
        memcpy(s->held, held, sizeof(held));
    }
}

static float fake_logit(float x0, uint32_t id)
{
    float at = fmodf(floorf(x0), FAKE_V);
    float d = at - (float)id;
    return 3 - d * d * 0.25f;
}

static void fake_head(struct backend_model *m, const struct tensor *x,
                      uint32_t t)
{
    uint32_t first = m->rows == 6 ? 0 : 6;
    for (uint32_t v = 0; v < m->rows; v++) {
        for (uint32_t i = 0; i < t; i++) {
            m->y[v * t + i] = fake_logit(fake_at(x, i), first + v);
        }
    }
}

/* Note what a prediction saw. */
static void fake_see(const struct backend_model *m, const struct tensor *in,
                     uint32_t pos, uint32_t rows, uint32_t t)
{
    assert_true(seen.n < FAKE_CALLS);
    seen.calls[seen.n].kind = m->kind;
    seen.calls[seen.n].pos = pos;
    seen.calls[seen.n].rows = rows;
    seen.calls[seen.n].same = true;
    for (size_t i = 0; i < (size_t)FAKE_D * t; i++) {
        const float *x = fake_in(in, m->n_in, "x")->data;
        if (memcmp(&x[i], &x[i / t * t], sizeof(*x)) != 0) {
            seen.calls[seen.n].same = false;
        }
    }
    seen.calls[seen.n++].t = t;
}

static void fake_compute(struct backend_model *m, struct backend_state *s,
                         const struct tensor *in, uint32_t t)
{
    uint32_t pos = 0;
    uint32_t rows = t;
    assert_true(m->t > 0 ? t == m->t : t >= fake.t_lo && t <= fake.t_hi);
    assert_true(!fake.warms || m->warm[t]);
    fake_check_dims(m, in, t);
    if (m->kind == 'h') {
        fake_head(m, &in[0], t);
    } else {
        assert_true((s != NULL) == !fake.host);
        fake_check(m, in, t, &pos, &rows);
        fake_layer(m, s, in, t);
    }
    fake_see(m, in, pos, rows, t);
}

static bool fake_fails(void)
{
    if (fake.fail_after != 0) {
        fake.fail_after -= fake.fail_after > 0;
        return false;
    }
    if (fake.fail_times > 1) {
        fake.fail_times--;
    } else {
        fake.fail_after = -1;
    }
    return true;
}

static int fake_predict(struct backend_io *io, struct backend_state *s,
                        struct err *e)
{
    struct backend_model *m = io->m;
    if (fake_fails()) {
        return err_set(e, fake.fail_rc != 0 ? fake.fail_rc : ERR_MIL_OP,
                       "the fake fails");
    }
    struct tensor in[countof(m->in)];
    for (size_t i = 0; i < m->n_in; i++) {
        in[i] = fake_dense(io->in[i], m->in[i].name);
    }
    uint32_t t = (uint32_t)fake_in(in, m->n_in, "x")->dims[2];
    fake_compute(m, s, in, t);
    for (size_t i = 0; i < m->n_in; i++) {
        free(in[i].data);
    }
    fake_result(&io->out[0], (const int64_t[]){1, m->rows, t, 1}, m->y);
    if (m->n_out == 2) {
        assert_string_equal(m->out[1].name, "layers_0_k_new");
        fake_result(&io->out[1], (const int64_t[]){1, 2, t, 1}, m->fresh);
    }
    return 0;
}

static int fake_warm(struct backend_model *m, uint32_t t,
                     const struct backend_watch *watch, struct err *e)
{
    for (uint32_t i = 0; i < fake.asks; i++) {
        if (watch->go != NULL && !watch->go(watch->ctx)) {
            return err_set(e, ERR_CANCELLED, "the fake was told to stop");
        }
    }
    assert_in_range(t, 1, ENGINE_CHUNK_MAX);
    m->warm[t] = true;
    return 0;
}

static int fake_array_new(struct backend_model *m, size_t i,
                          enum mil_dtype dtype, int rank, const int64_t *dims,
                          struct backend_array **ret, struct err *e)
{
    (void)e;
    assert_true(i < m->n_in);
    assert_int_equal(rank, m->in[i].type.rank);
    assert_int_equal(dtype, strstr(m->in[i].name, "_past") != NULL ? MIL_FP16
                                                                   : MIL_FP32);
    *ret = fake_array(fake_dtype(m->in[i].name), rank, dims);
    return 0;
}

static int fake_bind(struct backend_model *m, struct backend_array *const *in,
                     struct backend_io **ret, struct err *e)
{
    (void)e;
    struct backend_io *io = calloc(1, sizeof(*io));
    assert_non_null(io);
    *io = (struct backend_io){.m = m, .n_in = m->n_in, .n_out = m->n_out};
    io->in = calloc(m->n_in, sizeof(struct backend_array *));
    io->out = calloc(m->n_out, sizeof(*io->out));
    assert_true(io->in != NULL && io->out != NULL);
    for (size_t i = 0; i < m->n_in; i++) {
        assert_non_null(in[i]);
        io->in[i] = in[i];
    }
    *ret = io;
    return 0;
}

static void fake_unbind(struct backend_io *io)
{
    for (size_t i = 0; io != NULL && i < io->n_out; i++) {
        free(io->out[i].own);
    }
    if (io != NULL) {
        free(io->in);
        free(io->out);
        free(io);
    }
}

static void fake_rebind(struct backend_io *io, size_t i,
                        struct backend_array *a)
{
    assert_true(i < io->n_in); /* the old array may be gone */
    assert_int_equal(a->dims[2], FAKE_S);
    io->in[i] = a;
}

#define FAKE_BACKEND                                                      \
    .name = "fake", .open = fake_open, .close = fake_close,               \
    .warm = fake_warm, .array_new = fake_array_new,                       \
    .array_free = fake_array_free, .lock = fake_lock,                     \
    .unlock = fake_unlock, .bind = fake_bind, .unbind = fake_unbind,      \
    .rebind = fake_rebind, .predict = fake_predict,                       \
    .state_free = fake_state_free, .state_copy = fake_state_copy

static const struct backend fake_backend = {
    FAKE_BACKEND,
    .info = fake_info,
    .state_new = fake_state_new,
};

/* Logits of every row of n tokens, straight from the definition. */
static inline void fake_reference(const int32_t *tokens, uint32_t n, float *logits)
{
    float x[FAKE_S]; /* channel 0 */
    for (uint32_t i = 0; i < n; i++) {
        x[i] = (float)tokens[i] * 2 * 0.25f;
    }
    for (int layer = 0; layer < 2; layer++) {
        float y[FAKE_S];
        for (uint32_t i = 0; i < n; i++) {
            float sum = 0;
            for (uint32_t p = 0; p <= i; p++) {
                if (layer == 0 || i - p < FAKE_WINDOW) {
                    sum += half_round(x[p]) * (float)(p % 3 + 1);
                }
            }
            y[i] = x[i] + sum + fake.by_width * (float)FAKE_WIDTH;
        }
        memcpy(x, y, sizeof(x));
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t v = 0; v < FAKE_V; v++) {
            logits[i * FAKE_V + v] = fake_logit(x[i], v);
        }
    }
}

/* --- the bundle --- */

static char fake_dir[256];

static void fake_put(const char *name, const void *p, size_t n)
{
    char path[512];
    struct err e = {0};
    assert_true(file_join(path, sizeof(path), fake_dir, name));
    unit_ok(file_write(path, p, n, &e), &e);
}

/* functions: NULL is ranged. */
static void fake_write_bundle(const char **functions, uint32_t *ts, size_t n)
{
    static const float factors[] = {1, 4};
    static const float longs[] = {1, 8};
    struct layer layers[2] = {UNIT_LAYER(1, 4, 4), UNIT_LAYER(1, 4, 4)};
    layers[1].kind = LAYER_LOCAL;
    layers[1].kv_from = 1;
    const char *one[] = {"main"};
    uint32_t zero[] = {0};
    bool ranged = functions == NULL;
    struct bundle_shard shards[2] = {
        {.path = "layers_00_01.mlpackage", .first = 0, .last = 1},
        {.path = "layers_01_02.mlpackage", .first = 1, .last = 2},
    };
    for (size_t i = 0; i < 2; i++) {
        shards[i].t_min = 1;
        shards[i].t_max = ranged ? 4 : ts[n - 1];
        shards[i].n_functions = ranged ? 1 : n;
        shards[i].functions = ranged ? one : functions;
        shards[i].function_t = ranged ? zero : ts;
    }
    struct bundle_head heads[] = {
        {.path = "head_0.mlpackage",
         .vocab_first = 0,
         .vocab_last = 6,
         .t_min = 1,
         .t_max = 4,
         .weight_bytes = 5},
        {.path = "head_1.mlpackage",
         .vocab_first = 6,
         .vocab_last = FAKE_V,
         .t_min = 1,
         .t_max = 4,
         .weight_bytes = 6}
    };
    struct bundle b = {
        .name = "fake",
        .architecture = "gemma3",
        .n_layers = 2,
        .d_model = FAKE_D,
        .n_heads = 1,
        .n_kv_heads = 1,
        .d_head = 4,
        .d_ff = 4,
        .vocab = FAKE_V,
        .context = FAKE_S,
        .norm_eps = 1e-6f,
        .quant = "fp16",
        .shape = ranged ? "ranged" : "functions",
        .kv = fake.host ? "host" : "state",
        .norm = "scale",
        .embed_scale = 2,
        .residual_scale = 0.25f,
        .margin = 4,
        .rope = {.present = true,
                 .dim = 4,
                 .base = FAKE_BASE,
                 .scale = FAKE_SCALE,
                 .magnitude = FAKE_MAGNITUDE,
                 .n_factors = 2,
                 .factors = factors,
                 .long_factors = fake.original > 0 ? longs : NULL,
                 .original = fake.original},
        .rope_local = {.present = true,
                 .dim = 2,
                 .base = FAKE_BASE_LOCAL,
                 .scale = FAKE_SCALE,
                 .window = FAKE_WINDOW,
                 .magnitude = 1},
        .layers = layers,
        .logit_scale = 1,
        .n_shards = 2,
        .shards = shards,
        .n_heads_shards = 2,
        .heads = heads,
        .embed_file = "embed.bin",
        .tokenizer_file = "tokenizer.gguf",
        .source_name = "fake.gguf",
        .converter_version = "test",
    };
    struct err e = {0};
    memset(b.source_sha256, 'a', SHA256_HEX - 1);
    arena_init(&b.arena, 0);
    unit_ok(bundle_write(fake_dir, &b, &e), &e);
    arena_fini(&b.arena);
}

static int fake_setup(void **state)
{
    (void)state;
    static const char *const packages[] = {
        "layers_00_01.mlpackage", "layers_01_02.mlpackage", "head_0.mlpackage",
        "head_1.mlpackage"};
    const char *tmp = getenv("TMPDIR");
    struct err e = {0};
    (void)snprintf(fake_dir, sizeof(fake_dir), "%s/aned-engine-XXXXXX",
                   tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(fake_dir));
    for (size_t i = 0; i < countof(packages); i++) {
        char path[512];
        assert_true(file_join(path, sizeof(path), fake_dir, packages[i]));
        unit_ok(file_mkdirs(path, 0755, &e), &e);
        (void)snprintf(path, sizeof(path), "%s/Manifest.json", packages[i]);
        fake_put(path, "{}", 2);
    }
    uint16_t embed[FAKE_V * FAKE_D];
    for (size_t i = 0; i < countof(embed); i++) {
        embed[i] = half_from_float((float)(i / FAKE_D + i % FAKE_D));
    }
    fake_put("embed.bin", embed, sizeof(embed));
    fake_put("tokenizer.gguf", "GGUF", 4);
    return 0;
}

static int fake_teardown(void **state)
{
    (void)state;
    struct err e = {0};
    unit_ok(file_rmtree(fake_dir, &e), &e);
    return 0;
}
