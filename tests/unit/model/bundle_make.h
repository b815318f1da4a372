/* bundle_make.h - a folder with a small bundle's files, its manifest, and changes
 * of it. No two fields of a kind have one value. */
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "model/bundle.h"
#include "tests/unit/unit.h"

static char dir[256];

static inline void put(const char *name, const void *p, size_t n)
{
    char path[512];
    struct err e = {0};
    assert_true(file_join(path, sizeof(path), dir, name));
    unit_ok(file_write(path, p, n, &e), &e);
}

static inline void make_files(void)
{
    char sub[512];
    struct err e = {0};
    static const char embed[10 * 4 * 2];
    const char *packages[] = {"layers_00_02.mlpackage", "head_0.mlpackage",
                              "head_1.mlpackage", "golden"};
    for (size_t i = 0; i < countof(packages); i++) {
        assert_true(file_join(sub, sizeof(sub), dir, packages[i]));
        unit_ok(file_mkdirs(sub, 0755, &e), &e);
    }
    put("embed.bin", embed, sizeof(embed));
    put("tokenizer.gguf", "GGUF", 4);
    put("layers_00_02.mlpackage/Manifest.json", "{}", 2);
    put("head_0.mlpackage/Manifest.json", "{ }", 3);
    put("head_1.mlpackage/Manifest.json", "{  }", 4);
    put("golden/logits.npy", "", 0);
}

static inline int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "%s/aned-bundle-XXXXXX",
                   getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(dir));
    make_files();
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    struct err e = {0};
    unit_ok(file_rmtree(dir, &e), &e);
    return 0;
}

static const char *function_names[] = {"main"};
static uint32_t function_t[] = {0};
static const float factors[] = {1.0F, 8.0F};
static const float longs[] = {2.0F, 1e30F};
/* no two fields of a kind have one value */
static const struct layer layers[] = {
    {.kind = LAYER_LOCAL,
     .rotates = true,
     .n_heads = 2,
     .n_kv = 1,
     .d_head = 4,
     .kv_from = 0,
     .pre_norm = true,
     .qk_norm = QK_NORM_FULL,
     .v_norm = true,
     .score_scale = 0.25F,
     .score_cap = 50,
     .act = ACT_GELU_TANH,
     .d_ff = 12,
     .residual_scale = 0.75F,
     .out_scale = -2},
    {.n_heads = 6,
     .n_kv = 3,
     .d_head = 8,
     .kv_from = 1,
     .post_norm = true,
     .gain_plus_one = true,
     .qk_norm_last = true,
     .v_is_k = true,
     .gated = true,
     .d_ff = 13,
     .router = ROUTER_SOFTMAX_TOP,
     .n_experts = 9,
     .n_top = 7,
     .d_expert = 5,
     .expert_branch = true,
     .out_scale = 1},
};
static struct bundle_shard shards[] = {
    {.path = "layers_00_02.mlpackage",
     .first = 0,
     .last = 2,
     .t_min = 1,
     .t_max = 4,
     .n_functions = 1,
     .functions = function_names,
     .function_t = function_t,
     .weight_bytes = 77},
};
static struct bundle_head heads[] = {
    {.path = "head_0.mlpackage",
     .vocab_first = 0,
     .vocab_last = 6,
     .t_min = 1,
     .t_max = 4,
     .weight_bytes = 5},
    {.path = "head_1.mlpackage",
     .vocab_first = 6,
     .vocab_last = 10,
     .t_min = 1,
     .t_max = 4,
     .weight_bytes = 6},
};
static struct bundle_peak peaks[] = {
    {"layers.0.residual", 104000.25}
};

/* A sound manifest; the list of files is left to bundle_write. */
static inline void sample(struct bundle *b)
{
    memset(b, 0, sizeof(*b));
    arena_init(&b->arena, 0);
    b->name = "tiny";
    b->architecture = "gemma3";
    b->n_layers = 2;
    b->d_model = 4;
    b->n_heads = 2;
    b->n_kv_heads = 1;
    b->d_head = 4;
    b->d_ff = 12;
    b->vocab = 10;
    b->context = 64;
    b->context_train = 32768;
    b->norm_eps = 1e-6F;
    b->quant = "int8";
    b->shape = "ranged";
    b->kv = "state";
    b->norm = "scale";
    b->embed_scale = 25.298221F;
    b->residual_scale = 0.125F;
    b->margin = 5.038;
    b->rope = (struct bundle_rope){.present = true,
                                   .dim = 4,
                                   .base = 1e6F,
                                   .scale = 1.0F,
                                   .magnitude = 1.25F,
                                   .n_factors = 2,
                                   .factors = factors,
                                   .long_factors = longs,
                                   .original = 64};
    b->rope_local = (struct bundle_rope){.present = true,
                                         .dim = 4,
                                         .base = 1e4F,
                                         .scale = 1.0F,
                                         .window = 512,
                                         .magnitude = 1};
    b->layers = layers;
    b->logit_scale = 0.5F;
    b->logit_cap = 30;
    b->n_shards = countof(shards);
    b->shards = shards;
    b->n_heads_shards = countof(heads);
    b->heads = heads;
    b->embed_file = "embed.bin";
    b->tokenizer_file = "tokenizer.gguf";
    b->source_name = "tiny.gguf";
    b->source_bytes = 123456789012;
    memset(b->source_sha256, 'a', SHA256_HEX - 1);
    b->converter_version = "aned 0.1.0";
    b->n_peaks = 1;
    b->peaks = peaks;
}

static inline void write_sample(struct bundle *b)
{
    struct err e = {0};
    sample(b);
    unit_ok(bundle_write(dir, b, &e), &e);
}

static inline void check_layer(const struct layer *a, const struct layer *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->n_heads, b->n_heads);
    assert_int_equal(a->n_kv, b->n_kv);
    assert_int_equal(a->d_head, b->d_head);
    assert_int_equal(a->kv_from, b->kv_from);
    assert_int_equal(a->qk_norm, b->qk_norm);
    assert_int_equal(a->act, b->act);
    assert_int_equal(a->d_ff, b->d_ff);
    assert_int_equal(a->router, b->router);
    assert_int_equal(a->n_experts, b->n_experts);
    assert_int_equal(a->n_top, b->n_top);
    assert_int_equal(a->d_expert, b->d_expert);
    assert_true(a->expert_branch == b->expert_branch);
    assert_true(a->rotates == b->rotates && a->pre_norm == b->pre_norm &&
                a->post_norm == b->post_norm && a->gated == b->gated &&
                a->gain_plus_one == b->gain_plus_one &&
                a->qk_norm_last == b->qk_norm_last &&
                a->v_norm == b->v_norm && a->v_is_k == b->v_is_k);
    assert_true(a->score_scale == b->score_scale &&
                a->score_cap == b->score_cap &&
                a->residual_scale == b->residual_scale &&
                a->out_scale == b->out_scale);
}

/* A manifest in which `from` stands as `to`; what the refusal says. */
struct change {
    const char *from, *to, *tells;
};

/* Write the sample's manifest with the first `from` replaced by `to`. */
static inline void change_manifest(const char *from, const char *to)
{
    struct err e = {0};
    struct buf text = {0};
    struct buf out = {0};
    char path[512];
    assert_true(file_join(path, sizeof(path), dir, "bundle.json"));
    unit_ok(file_read(path, BUNDLE_JSON_MAX, &text, &e), &e);
    const char *at = strstr(text.p, from);
    if (at == NULL) {
        fail_msg("%s is not in the manifest", from);
    }
    buf_init(&out, BUNDLE_JSON_MAX);
    buf_put(&out, text.p, (size_t)(at - text.p));
    buf_puts(&out, to);
    buf_puts(&out, at + strlen(from));
    unit_ok(file_write(path, out.p, out.n, &e), &e);
    buf_fini(&out);
    buf_fini(&text);
}

static inline void write_changed(const char *from, const char *to)
{
    struct bundle b;
    write_sample(&b);
    arena_fini(&b.arena);
    change_manifest(from, to);
}
