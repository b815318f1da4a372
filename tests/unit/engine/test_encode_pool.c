/* test_encode_pool.c - encoder_vectors: texts side by side have the bits that each
 * has alone, in any order, any number of threads and any width, on the compiled
 * backend and the interpreter; how a call ends. */
#include <math.h>

#include "converted.h"
#include "engine/encode.h"

/* A bert and a nomic-bert of two layers. */
enum { LAYERS = 2, D = 64, HEADS = 4, FF = 96, VOCAB = 40, POSITIONS = 160, TEXTS = 16 };

static char dir[256];

/* --- the models --- */

struct file {
    struct buf head, data;
    uint64_t random;
};

/* Around `mean`, at most `by` away. */
static void put_tensor(struct file *f, const char *name, unsigned rows,
                       unsigned cols, float mean, float by)
{
    size_t at = f->data.n;
    for (unsigned i = 0; i < (rows > 0 ? rows : 1) * cols; i++) {
        f->random = f->random * 6364136223846793005ull + 1442695040888963407ull;
        float x = (float)(f->random >> 40) / (float)(1u << 23) - 1;
        buf_f32(&f->data, mean + by * x);
    }
    buf_printf(&f->head, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[",
               f->head.n > 1 ? "," : "", name);
    buf_printf(&f->head, rows > 0 ? "%u,%u" : "%.0u%u", rows, cols);
    buf_printf(&f->head, "],\"data_offsets\":[%zu,%zu]}", at, f->data.n);
}

static void put_norm(struct file *f, const char *stem)
{
    char name[128];
    (void)snprintf(name, sizeof(name), "%s.weight", stem);
    put_tensor(f, name, 0, D, 1, 0.3F);
    (void)snprintf(name, sizeof(name), "%s.bias", stem);
    put_tensor(f, name, 0, D, 0, 0.3F);
}

static const struct {
    const char *bert, *nomic;
    unsigned rows, cols;
} matrices[] = {
    {"attention.self.query",   "self_attn.q_proj", D,  D },
    {"attention.self.key",     "self_attn.k_proj", D,  D },
    {"attention.self.value",   "self_attn.v_proj", D,  D },
    {"attention.output.dense", "self_attn.o_proj", D,  D },
    {"intermediate.dense",     "mlp.up_proj",      FF, D },
    {NULL,                     "mlp.gate_proj",    FF, D },
    {"output.dense",           "mlp.down_proj",    D,  FF},
};

static void put_layer(struct file *f, bool bert, unsigned l)
{
    char stem[64];
    char name[128];
    (void)snprintf(stem, sizeof(stem), bert ? "encoder.layer.%u" : "layers.%u",
                   l);
    for (size_t i = 0; i < countof(matrices); i++) {
        const char *of = bert ? matrices[i].bert : matrices[i].nomic;
        if (of == NULL) {
            continue;
        }
        (void)snprintf(name, sizeof(name), "%s.%s.weight", stem, of);
        put_tensor(f, name, matrices[i].rows, matrices[i].cols, 0, 0.3F);
        if (bert) {
            (void)snprintf(name, sizeof(name), "%s.%s.bias", stem, of);
            put_tensor(f, name, 0, matrices[i].rows, 0, 0.3F);
        }
    }
    (void)snprintf(name, sizeof(name), "%s.%s", stem,
                   bert ? "attention.output.LayerNorm"
                        : "post_attention_layernorm");
    put_norm(f, name);
    (void)snprintf(name, sizeof(name), "%s.%s", stem,
                   bert ? "output.LayerNorm" : "post_mlp_layernorm");
    put_norm(f, name);
}

static void put_file(const char *folder, const char *name, const void *p,
                     size_t n)
{
    char path[512];
    struct err e = {0};
    assert_true(file_join(path, sizeof(path), folder, name));
    unit_ok(file_write(path, p, n, &e), &e);
}

static void put_model(const char *folder, bool bert)
{
    struct file f = {.random = bert ? 1 : 2};
    struct buf all;
    char config[512];
    static const char vocab[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n";
    buf_init(&f.head, MIB(1));
    buf_init(&f.data, MIB(4));
    buf_init(&all, MIB(8));
    buf_puts(&f.head, "{");
    put_tensor(&f, "embeddings.word_embeddings.weight", VOCAB, D, 0, 1);
    put_tensor(&f, "embeddings.token_type_embeddings.weight", 2, D, 0, 0.5F);
    if (bert) {
        put_tensor(&f, "embeddings.position_embeddings.weight", POSITIONS, D, 0,
                   0.5F);
    }
    put_norm(&f, "embeddings.LayerNorm");
    for (unsigned l = 0; l < LAYERS; l++) {
        put_layer(&f, bert, l);
    }
    buf_puts(&f.head, "}");
    buf_u64(&all, f.head.n);
    buf_put(&all, f.head.p, f.head.n);
    buf_put(&all, f.data.p, f.data.n);
    assert_true(buf_ok(&all));
    put_file(folder, "model.safetensors", all.p, all.n);
    (void)snprintf(config, sizeof(config),
                   "{\"model_type\":\"%s\",\"hidden_size\":%d,"
                   "\"num_hidden_layers\":%d,\"num_attention_heads\":%d,"
                   "\"intermediate_size\":%d,\"hidden_act\":\"%s\","
                   "\"vocab_size\":%d,\"max_position_embeddings\":%d}",
                   bert ? "bert" : "nomic_bert", D, LAYERS, HEADS, FF,
                   bert ? "gelu" : "silu", VOCAB, POSITIONS);
    put_file(folder, "config.json", config, strlen(config));
    put_file(folder, "vocab.txt", vocab, strlen(vocab));
    buf_fini(&f.head);
    buf_fini(&f.data);
    buf_fini(&all);
}

static struct encoder *open_model(bool bert, const char *quant,
                                  const char *shape,
                                  const struct engine_conf *conf)
{
    char from[300];
    char name[64];
    char out[512];
    struct convert_options o;
    struct convert_result r;
    struct encoder *g = NULL;
    struct err e = {0};
    (void)snprintf(from, sizeof(from), "%s/%s", dir, bert ? "bert" : "nomic");
    (void)snprintf(name, sizeof(name), "%s-%s-%s", bert ? "bert" : "nomic",
                   quant, shape);
    assert_true(file_join(out, sizeof(out), dir, name));
    if (!file_exists(from)) {
        unit_ok(file_mkdirs(from, 0700, &e), &e);
        put_model(from, bert);
    }
    if (!file_exists(out)) {
        convert_options_init(&o);
        o.source = from;
        o.out = out;
        o.quant = quant;
        o.shape = shape;
        o.threads = 1;
        unit_ok(convert_run(&o, &r, &e), &e);
    }
    unit_ok(encoder_open(out, conf, &g, &e), &e);
    return g;
}

/* --- texts --- */

static int32_t tokens[TEXTS * POSITIONS];
static uint32_t lengths[TEXTS], starts[TEXTS];

/* Of every length around whole lanes and blocks, and some as long as a text may
 * be. */
static int setup(void **state)
{
    (void)state;
    static const uint32_t some[] = {1, 15, 16, 17, 31, 32, 33, 64, POSITIONS, 2};
    uint64_t x = 3;
    uint32_t at = 0;
    for (uint32_t i = 0; i < TEXTS; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        lengths[i] = i < countof(some) ? some[i] : 1 + (uint32_t)(x >> 33) % 70;
        starts[i] = at;
        for (uint32_t k = 0; k < lengths[i]; k++) {
            x = x * 6364136223846793005ull + 1442695040888963407ull;
            tokens[at++] = (int32_t)((x >> 33) % VOCAB);
        }
    }
    converted_dir(dir, "encode-pool");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct err e = {0};
    unit_ok(file_rmtree(dir, &e), &e);
    return 0;
}

static void vectors(struct encoder *g, uint32_t first, uint32_t n,
                    enum pooling pool, uint32_t rows, float *out)
{
    struct err e = {0};
    const struct encoder_texts x = {.tokens = tokens + starts[first],
                                    .len = lengths + first,
                                    .n = n,
                                    .pool = pool,
                                    .rows = rows};
    unit_ok(encoder_vectors(g, &x, out, &e), &e);
}

static void same(const float *a, const float *b, uint32_t n, const char *what)
{
    for (uint32_t i = 0; i < n; i++) {
        if (memcmp(a + (size_t)i * D, b + (size_t)i * D, D * sizeof(*a)) != 0) {
            fail_msg("%s: text %u of %u has other bits", what, i, n);
        }
    }
}

static void the_same_bits(bool bert, const char *quant, const char *shape)
{
    static float alone[TEXTS * D], got[TEXTS * D];
    static const struct engine_conf confs[] = {
        {.threads = 1},
        {.threads = 1, .isa = "scalar"},
        {.threads = 2},
        {.threads = 1, .backend = "interpreter"},
    };
    static const uint32_t rows[] = {0, 64, 200};
    for (size_t c = 0; c < countof(confs); c++) {
        if (unit_passed_over(c, 2)) {
            continue;
        }
        struct encoder *g = open_model(bert, quant, shape, &confs[c]);
        for (uint32_t i = 0; c == 0 && i < TEXTS; i++) {
            vectors(g, i, 1, POOL_MEAN, 0, alone + (size_t)i * D);
        }
        /* the interpreter takes its time over whole scores */
        for (size_t r = confs[c].backend != NULL ? 1 : 0;
             r < (confs[c].backend != NULL ? 2 : countof(rows)); r++) {
            vectors(g, 0, TEXTS, POOL_MEAN, rows[r], got);
            same(alone, got, TEXTS, shape);
        }
        for (uint32_t i = 1; i < TEXTS; i += 7) {
            uint32_t n = TEXTS - i < 5 ? TEXTS - i : 5;
            vectors(g, i, n, POOL_MEAN, 0, got);
            same(alone + (size_t)i * D, got, n, "some");
            vectors(g, i, 1, POOL_MEAN, 0, got);
            same(alone + (size_t)i * D, got, 1, "alone");
        }
        encoder_close(g);
    }
}

static void bert_has_the_same_bits(void **state)
{
    (void)state;
    the_same_bits(true, "fp16", "ranged");
    the_same_bits(true, "int8", "functions");
}

static void nomic_has_the_same_bits(void **state)
{
    (void)state;
    the_same_bits(false, "int8", "ranged");
}

/* Each pooling is of the text's own rows. */
static void pools_own_rows(void **state)
{
    (void)state;
    static const enum pooling kinds[] = {POOL_CLS, POOL_LAST, POOL_MEAN};
    static float got[TEXTS * D], one[D];
    const struct engine_conf conf = {.threads = 2};
    struct encoder *g = open_model(true, "fp16", "ranged", &conf);
    for (size_t k = 0; k < countof(kinds); k++) {
        vectors(g, 0, TEXTS, kinds[k], 0, got);
        for (uint32_t i = 0; i < TEXTS; i++) {
            vectors(g, i, 1, kinds[k], 0, one);
            assert_memory_equal(one, got + (size_t)i * D, sizeof(one));
            assert_true(isfinite(one[0]) && fabsf(one[0]) < 100);
        }
        assert_memory_not_equal(got + (size_t)4 * D, got + (size_t)5 * D,
                                sizeof(one));
    }
    encoder_close(g);
}

static bool stop(void *ctx)
{
    uint32_t *left = ctx;
    return (*left)-- > 0;
}

static void ends_with_an_error(void **state)
{
    (void)state;
    static float out[TEXTS * D];
    struct err e = {0};
    uint32_t left = 0;
    const struct engine_conf conf = {.threads = 1};
    struct encoder *g = open_model(true, "fp16", "ranged", &conf);
    struct encoder_texts x = {.tokens = tokens,
                              .len = lengths,
                              .n = TEXTS,
                              .pool = POOL_MEAN,
                              .rows = 64,
                              .go = stop,
                              .ctx = &left};
    assert_int_equal(encoder_vectors(g, &x, out, &e), ERR_CANCELLED);
    left = 2; /* in the middle of the list */
    assert_int_equal(encoder_vectors(g, &x, out, &e), ERR_CANCELLED);
    int32_t was = tokens[starts[7]];
    tokens[starts[7]] = VOCAB;
    left = 1000;
    assert_int_equal(encoder_vectors(g, &x, out, &e), ERR_INVALID);
    assert_int_equal(left, 1000); /* nothing was computed */
    tokens[starts[7]] = was;
    lengths[8]++;
    assert_int_equal(encoder_vectors(g, &x, out, &e), ERR_CONTEXT);
    lengths[8] = 0;
    assert_int_equal(encoder_vectors(g, &x, out, &e), ERR_INVALID);
    lengths[8] = POSITIONS;
    unit_ok(encoder_vectors(g, &x, out, &e), &e);
    encoder_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bert_has_the_same_bits),
        cmocka_unit_test(nomic_has_the_same_bits),
        cmocka_unit_test(pools_own_rows),
        cmocka_unit_test(ends_with_an_error),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
