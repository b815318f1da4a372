/* handoff_rig.h - a small gemma4 whose last layers read the keys of earlier
 * ones, or a small zaya whose routers read those of the layer before, in one
 * program and divided. */
#pragma once

#include "convert/reshard.h"
#include "engine/cpu/backend_cpu.h"
#include "engine/engine.h"
#include "model/bundle.h"

#include "room.h" /* its macros are short: after all else */
#include "mkfamilies.h"

#define TEXT 40u /* tokens; the window is 24 */
#define MOST 6u /* layers */

static int32_t tokens[TEXT];

static inline void fill_tokens(void)
{
    for (uint32_t i = 0; i < TEXT; i++) {
        tokens[i] = (int32_t)((5u + i * 7919u) % VOCAB);
    }
}

static enum family rig_family = GEMMA4;

static inline struct mk e_model(void)
{
    struct mk m = models[rig_family];
    m.layers = MOST;
    m.n_tokens = VOCAB;
    m.context = 128;
    m.gain = 1.7f;
    return m;
}

/* Programs that begin at the layers of `cuts`, a bit each. */
static inline struct plan plan_of(uint32_t cuts)
{
    struct plan p = {.n_heads = 1, .heads = {{0, VOCAB}}};
    uint32_t at = 0;
    for (uint32_t l = 1; l <= MOST; l++) {
        if (l == MOST || (cuts >> l & 1) != 0) {
            p.shards[p.n_shards++] = (struct plan_range){at, l};
            at = l;
        }
    }
    return p;
}

static struct convert_result whole; /* of the last make() */

/* The model in one program, as the bundle "whole". */
static inline void make(const char *shape, const char *kv, const char *norm)
{
    struct mk m = e_model();
    struct convert_options o = options(write_model(&m, "m.gguf"), at("whole"));
    struct err e = {0};
    o.quant = "fp16";
    o.shape = shape;
    o.kv = kv;
    o.norm = norm;
    o.accept = "quality,exactness";
    unit_ok(file_rmtree(at("whole"), &e), &e);
    unit_ok(convert_run(&o, &whole, &e), &e);
}

static inline const char *verdict(const struct convert_result *r,
                                  const char *name)
{
    for (size_t i = 0; i < r->n_gates; i++) {
        if (strcmp(r->gates[i].name, name) == 0) {
            return r->gates[i].verdict;
        }
    }
    return "";
}

/* Residency says of it what it says of the whole. */
static inline void cut(const char *from, const char *out, uint32_t cuts)
{
    struct convert_options o = options(NULL, at(out));
    struct convert_result r;
    struct plan p = plan_of(cuts);
    struct err e = {0};
    o.bundle = at(from);
    unit_ok(file_rmtree(at(out), &e), &e);
    unit_ok(reshard_as(&o, &p, &r, &e), &e);
    assert_string_equal(verdict(&r, "structure"), "passed");
    assert_string_equal(verdict(&r, "exactness"), "passed");
    assert_string_equal(verdict(&r, "residency"),
                        verdict(&whole, "residency"));
}

static inline struct engine *open_as(const char *bundle, const char *backend)
{
    const struct engine_conf conf = {.threads = 2, .backend = backend};
    struct engine *g = NULL;
    struct err e = {0};
    unit_ok(engine_open(at(bundle), &conf, &g, &e), &e);
    return g;
}

/* Logits of all tokens. */
static inline void eval(struct engine_seq *s, uint32_t chunk, float *out)
{
    const float *got = NULL;
    struct err e = {0};
    unit_ok(engine_eval(s, tokens, TEXT, chunk, 2, &got, NULL, &e), &e);
    memcpy(out, got, (size_t)TEXT * VOCAB * sizeof(*out));
}

static inline float *logits_of(const char *bundle, const char *backend,
                               uint32_t chunk)
{
    struct engine *g = open_as(bundle, backend);
    struct engine_seq *s = NULL;
    struct err e = {0};
    float *out = calloc((size_t)TEXT * VOCAB, sizeof(*out));
    assert_non_null(out);
    unit_ok(engine_seq_open(g, &s, &e), &e);
    eval(s, chunk, out);
    engine_seq_close(s);
    engine_close(g);
    return out;
}

/* Not the bits of one program: fails, saying where. */
static inline void same_bits(const char *form, const char *backend,
                             uint32_t chunk)
{
    float *want = logits_of("whole", backend, chunk);
    float *got = logits_of("cut", backend, chunk);
    if (memcmp(want, got, (size_t)TEXT * VOCAB * sizeof(*got)) != 0) {
        fail_msg("%s, %s, chunks of %u: other bits", form, backend, chunk);
    }
    free(want);
    free(got);
}

static const struct form {
    const char *shape, *kv;
} forms[] = {
    {"ranged",          "state"},
    {"ranged",          "host" },
    {"functions",       "state"},
    {"functions:1,2,8", "host" },
};

/* The last one where there is Core ML, or what imitates it. */
static const char *const backends[] = {"cpu", "interpreter", "coreml"};

static inline size_t n_backends(void)
{
    return backend_find("coreml") != NULL ? 3 : 2;
}
