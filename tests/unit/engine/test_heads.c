/* A bundle whose packages take a fixed number of rows, on both CPU backends. */
#include <unistd.h>

#include "../layer.h"
#include "converted.h"
#include "cpu_pkg.h"
#include "engine/impl.h"
#include "row_ops.h"

enum { D = 8, VOCAB = 40, FIRST = 24, CONTEXT = 32, TOKENS = 11 };

static char dir[256];

static void put(const char *name, const void *p, size_t n)
{
    char path[512];
    struct err e = {0};
    assert_true(file_join(path, sizeof(path), dir, name));
    unit_ok(file_write(path, p, n, &e), &e);
}

/* x [1, D, t, 1] -> [1, rows, t, 1], the output's name `out`. */
static void write_package(const char *name, int64_t t, int32_t rows,
                          const char *out)
{
    struct err e = {0};
    struct pkg k = {0};
    assert_true(file_join(k.path, sizeof(k.path), dir, name));
    unit_ok(mil_writer_open(k.path, &k.w, &e), &e);
    k.p = mil_writer_program(k.w);
    k.f = mil_add_function(k.p, "main");
    struct mil_value *x = in4(&k, "x", D, t, 1);
    x = conv(&k, x, rows, ROW_OPS_FP16, true, (uint32_t)rows);
    output(&k, mil_op(k.p, k.f, "relu", out, "x", x, NULL));
    pkg_finish(&k);
}

/* One layer and two head slices; 0: any T. */
static void write_bundle(int64_t layers_t, int64_t head_t)
{
    const char *function = "main";
    uint32_t any = 0;
    struct bundle_shard shard = {.path = "layers_00_01.mlpackage",
                                 .last = 1,
                                 .t_min = 1,
                                 .t_max = 4,
                                 .n_functions = 1,
                                 .functions = &function,
                                 .function_t = &any};
    struct bundle_head heads[] = {
        {.path = "head_0.mlpackage",
         .vocab_first = 0,
         .vocab_last = FIRST,
         .t_min = 1,
         .t_max = 4,
         .weight_bytes = 5},
        {.path = "head_1.mlpackage",
         .vocab_first = FIRST,
         .vocab_last = VOCAB,
         .t_min = 1,
         .t_max = 4,
         .weight_bytes = 6}
    };
    static const struct layer layer = UNIT_LAYER(1, 4, 4);
    struct bundle b = {.name = "heads",
                       .architecture = "gemma3",
                       .n_layers = 1,
                       .d_model = D,
                       .n_heads = 1,
                       .n_kv_heads = 1,
                       .d_head = 4,
                       .d_ff = 4,
                       .vocab = VOCAB,
                       .context = CONTEXT,
                       .norm_eps = 1e-6f,
                       .quant = "fp16",
                       .shape = "ranged",
                       .kv = "state",
                       .norm = "scale",
                       .embed_scale = 1,
                       .residual_scale = 1,
                       .margin = 4,
                       .rope = {.present = true,
                                .dim = 4,
                                .base = 100,
                                .scale = 1,
                                .magnitude = 1},
                       .layers = &layer,
                       .logit_scale = 1,
                       .n_shards = 1,
                       .shards = &shard,
                       .n_heads_shards = 2,
                       .heads = heads,
                       .embed_file = "embed.bin",
                       .tokenizer_file = "tokenizer.gguf",
                       .source_name = "heads.gguf",
                       .converter_version = "test"};
    uint16_t embed[VOCAB * D];
    uint32_t seed = 9;
    struct err e = {0};
    converted_dir(dir, "heads");
    write_package(shard.path, layers_t > 0 ? layers_t : -1, D, "hidden");
    write_package(heads[0].path, head_t > 0 ? head_t : -1, FIRST, "logits");
    write_package(heads[1].path, -1, VOCAB - FIRST, "logits");
    for (size_t i = 0; i < countof(embed); i++) {
        embed[i] = half_from_float(pkg_noise(&seed));
    }
    put("embed.bin", embed, sizeof(embed));
    put("tokenizer.gguf", "GGUF", 4);
    memset(b.source_sha256, 'a', SHA256_HEX - 1);
    arena_init(&b.arena, 0);
    unit_ok(bundle_write(dir, &b, &e), &e);
    arena_fini(&b.arena);
}

/* Logits of a few tokens. */
static void run(const char *backend, uint32_t chunk, float *out)
{
    const struct engine_conf conf = {.threads = 2, .backend = backend};
    int32_t tokens[TOKENS];
    const float *logits = NULL;
    struct engine *g = NULL;
    struct engine_seq *s = NULL;
    struct err e = {0};
    for (int32_t i = 0; i < TOKENS; i++) {
        tokens[i] = i * 7 % VOCAB;
    }
    unit_ok(engine_open(dir, &conf, &g, &e), &e);
    unit_ok(engine_seq_open(g, &s, &e), &e);
    unit_ok(engine_eval(s, tokens, TOKENS, chunk, 2, &logits, NULL, &e), &e);
    memcpy(out, logits, TOKENS * VOCAB * sizeof(*out));
    engine_seq_close(s);
    engine_close(g);
}

static void check(int64_t layers_t, int64_t head_t)
{
    float want[TOKENS * VOCAB];
    float got[TOKENS * VOCAB];
    struct err e = {0};
    print_message("# layers of T = %d, a head of T = %d\n", (int)layers_t,
                  (int)head_t);
    write_bundle(layers_t, head_t);
    run("interpreter", 0, want);
    for (uint32_t chunk = 0; chunk < 5; chunk++) {
        run("cpu", chunk, got);
        for (size_t i = 0; i < countof(got); i++) {
            assert_true(fabsf(got[i] - want[i]) < 1e-5f);
        }
    }
    unit_ok(file_rmtree(dir, &e), &e);
}

static void test_fixed_heads(void **state)
{
    (void)state;
    check(0, 0);
    check(0, 1);
    check(0, 2);
    check(0, 4);
    check(0, 32);
}

static void test_fixed_layers(void **state)
{
    (void)state;
    check(1, 0);
    check(4, 0);
    check(3, 4);
}

/* Of the slices' likeliest tokens the model's: of equal ones the lower id. */
static void test_tops(void **state)
{
    (void)state;
    struct bundle b = {.vocab = VOCAB, .argmax = true};
    struct engine g = {.b = &b};
    struct msg_sampling s;
    struct msg_token t;
    struct err e = {0};
    float row[TOP_NUMBERS];
    tops_merge(row, true, 0, 3, -1.5F);
    tops_merge(row, false, FIRST, 5, -1.5F);
    unit_ok(tops_draw(&g, row, &t, &e), &e);
    assert_int_equal(t.id, 3);
    tops_merge(row, false, FIRST, 5, -1);
    unit_ok(tops_draw(&g, row, &t, &e), &e);
    assert_int_equal(t.id, FIRST + 5);
    tops_merge(row, false, FIRST, 99, 7); /* no such token */
    assert_int_equal(tops_draw(&g, row, &t, &e), ERR_BUNDLE);
    tops_merge(row, true, 0, 3, 0.0F / 0.0F);
    tops_merge(row, false, FIRST, 5, 2); /* cannot hide it */
    assert_int_equal(tops_draw(&g, row, &t, &e), ERR_INVALID);
    tops_merge(row, true, 0, 3, 1);
    tops_merge(row, false, FIRST, 5, 0.0F / 0.0F);
    assert_int_equal(tops_draw(&g, row, &t, &e), ERR_INVALID);
    msg_sampling_init(&s);
    assert_int_equal(tops_check(&g, &s, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "logprobs"));
    s.no_logprob = true;
    unit_ok(tops_check(&g, &s, &e), &e);
    s.temperature = 1;
    assert_int_equal(tops_check(&g, &s, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "temperature"));
    s.temperature = 0;
    s.top_n_sigma = 1; /* keeps the likeliest, as top_k does */
    s.top_k = 4;
    s.dry_multiplier = 1; /* looks back at no token */
    unit_ok(tops_check(&g, &s, &e), &e);
    s.dry_last_n = 64;
    assert_int_equal(tops_check(&g, &s, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "dry_multiplier"));
    s.chain[s.n_chain++] = SAMPLER_TYPICAL_P; /* dry is off */
    unit_ok(tops_check(&g, &s, &e), &e);
    s.typical_p = 0.5F;
    assert_int_equal(tops_check(&g, &s, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "typical_p"));
    s.mirostat = 1;
    assert_int_equal(tops_check(&g, &s, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "mirostat"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed_heads),
        cmocka_unit_test(test_fixed_layers),
        cmocka_unit_test(test_tops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
