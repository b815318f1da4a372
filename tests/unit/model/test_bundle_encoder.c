/* test_bundle_encoder.c - bundles of kind encoder: those that label tokens and
 * those that give embeddings; there and back, and what is refused. */
#include "bundle_make.h"

static const char *labels[] = {"O", "B-a", "I-a", "E-a", "S-a"};

static void encoder_sample(struct bundle *b)
{
    static struct layer both[2];
    static struct bundle_shard shard;
    static struct bundle_head head;
    sample(b);
    shard = shards[0];
    shard.t_min = 32;
    shard.t_max = ENCODER_ROWS_MAX;
    head = heads[0];
    head.vocab_last = countof(labels);
    head.t_min = 32;
    head.t_max = ENCODER_ROWS_MAX;
    for (size_t i = 0; i < countof(both); i++) {
        both[i] = (struct layer){.n_heads = 2,
                                 .n_kv = 1,
                                 .d_head = 4,
                                 .kv_from = (uint32_t)i,
                                 .rotates = true,
                                 .pre_norm = true,
                                 .score_scale = 0.5F,
                                 .both_sides = true,
                                 .sinks = true,
                                 .act = ACT_CLAMPED,
                                 .gated = true,
                                 .d_ff = 12,
                                 .residual_scale = 1,
                                 .out_scale = 1};
    }
    b->labels = labels;
    b->n_labels = countof(labels);
    b->encoder = true;
    b->context = ENCODER_ROWS_MAX;
    b->rope.window = 8;
    b->rope.n_factors = 0;
    b->rope.factors = NULL;
    b->rope.long_factors = NULL;
    b->rope.original = 0;
    b->rope_local = (struct bundle_rope){.present = false};
    b->layers = both;
    b->shards = &shard;
    b->heads = &head;
    b->n_heads_shards = 1;
}

static void test_encoder(void **state)
{
    (void)state;
    struct err e = {0};
    struct bundle a;
    struct bundle *b = NULL;
    encoder_sample(&a);
    unit_ok(bundle_write(dir, &a, &e), &e);
    unit_ok(bundle_open(dir, &b, &e), &e);
    assert_int_equal(b->n_labels, countof(labels));
    for (size_t i = 0; i < countof(labels); i++) {
        assert_string_equal(b->labels[i], labels[i]);
    }
    assert_true(b->layers[1].both_sides && b->layers[1].sinks &&
                b->layers[1].act == ACT_CLAMPED);
    assert_int_equal(b->rope.window, 8);
    assert_int_equal(bundle_outputs(b), countof(labels));
    assert_string_equal(b->fingerprint, a.fingerprint);
    unit_ok(bundle_want_kind(b, BUNDLE_TAGGER, &e), &e);
    assert_int_equal(bundle_want_kind(b, BUNDLE_DECODER, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "encoder"));
    assert_int_equal(bundle_want_probe(b, &e), ERR_UNSUPPORTED);
    bundle_close(b);
    arena_fini(&a.arena);
    write_sample(&a);
    unit_ok(bundle_open(dir, &b, &e), &e);
    assert_int_equal(bundle_outputs(b), b->vocab);
    unit_ok(bundle_want_kind(b, BUNDLE_DECODER, &e), &e);
    unit_ok(bundle_want_probe(b, &e), &e);
    assert_int_equal(bundle_want_kind(b, BUNDLE_TAGGER, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "decoder"));
    bundle_close(b);
    arena_fini(&a.arena);
}

static void are_refused(void (*make)(struct bundle *b), const struct change *t,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct err e = {0};
        struct bundle a;
        struct bundle *b = NULL;
        make(&a);
        unit_ok(bundle_write(dir, &a, &e), &e);
        arena_fini(&a.arena);
        change_manifest(t[i].from, t[i].to);
        int rc = bundle_open(dir, &b, &e);
        if (rc != ERR_BUNDLE || strstr(e.msg, t[i].tells) == NULL) {
            fail_msg("%s -> %s: %s: %s", t[i].from, t[i].to, err_name(rc),
                     e.msg);
        }
        assert_null(b);
    }
}

static void test_encoder_refused(void **state)
{
    (void)state;
    static const struct change t[] = {
        {"\"kind\": \"encoder\"", "\"kind\": \"tagger\"", "kind"          },
        {"\"kind\": \"encoder\"", "\"kind\": 3",          "kind"          },
        {"\"kind\": \"encoder\"", "\"sort\": 3",          ""              },
        {"\"labels\": [",         "\"labels\": 3, \"l\": [", "labels"      },
        {"\"labels\": [",         "\"labels\": [], \"l\": [", "labels"     },
        {"\"labels\": [",         "\"l\": [",              "window"        },
        {"\"labels\": [",         "\"labels\": [7, ",       "labels"        },
        {"\"labels\": [",         "\"labels\": [\"X\", ",   ""              },
        {"\"S-a\"",               "\"\"",                   "labels[4]"     },
        {"\"S-a\"",               "\"E-a\"",                "twice"         },
        {"\"S-a\"",               "\"S-b\"",                "fingerprint"   },
        {"\"vocab_last\": 5",     "\"vocab_last\": 10",     ""              },
        {"\"window\": 8",         "\"window\": 0",          "window"        },
        {"\"window\": 8",         "\"window\": 2000000",    "window"        },
        {"\"context\": 4096",     "\"context\": 64",        "context"       },
        {"\"kv\": \"state\"",     "\"kv\": \"host\"",       ""              },
        {"\"t_min\": 32",         "\"t_min\": 31",          "T is not"      },
        {"\"both_sides\": true",  "\"both_sides\": false",  ""              },
        {"\"sinks\": true",       "\"sinks\": false",       "fingerprint"   },
        {"\"act\": \"clamped\"",  "\"act\": \"clamp\"",     "layers[0]"     },
    };
    are_refused(encoder_sample, t, countof(t));
}

/* One without labels has no head and no window, and may have positions. */
static void embedder_sample(struct bundle *b)
{
    static const char positions[512 * 4 * 2];
    static struct layer normed[2];
    encoder_sample(b);
    put("positions.bin", positions, sizeof(positions));
    memcpy(normed, b->layers, sizeof(normed));
    for (size_t i = 0; i < countof(normed); i++) {
        normed[i].sinks = false;
        normed[i].pre_norm = false;
        normed[i].sum_norm = true;
        normed[i].gated = false;
        normed[i].act = ACT_GELU_ERF;
    }
    b->labels = NULL;
    b->n_labels = 0;
    b->layers = normed;
    b->rope.window = 0;
    b->context = 512;
    b->context_train = 512;
    b->position_file = "positions.bin";
    b->pooling = POOL_CLS;
    b->n_heads_shards = 0;
}

/* Others write a manifest of all that stands here. */
static int drop_positions(void **state)
{
    char path[512];
    (void)state;
    assert_true(file_join(path, sizeof(path), dir, "positions.bin"));
    return unlink(path);
}

static void test_embedder(void **state)
{
    (void)state;
    struct err e = {0};
    struct bundle a;
    struct bundle *b = NULL;
    char with[SHA256_HEX];
    embedder_sample(&a);
    unit_ok(bundle_write(dir, &a, &e), &e);
    unit_ok(bundle_open(dir, &b, &e), &e);
    memcpy(with, b->fingerprint, sizeof(with));
    assert_int_equal(bundle_kind(b), BUNDLE_EMBEDDER);
    assert_int_equal(bundle_outputs(b), b->d_model);
    assert_int_equal(bundle_head_rows(b), 0);
    assert_string_equal(b->position_file, "positions.bin");
    assert_true(b->layers[0].sum_norm && b->layers[1].act == ACT_GELU_ERF);
    assert_int_equal(bundle_pooling(b), POOL_CLS);
    unit_ok(bundle_want_kind(b, BUNDLE_EMBEDDER, &e), &e);
    assert_int_equal(bundle_want_kind(b, BUNDLE_TAGGER, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "has no labels"));
    assert_int_equal(bundle_want_kind(b, BUNDLE_DECODER, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "writes no text"));
    assert_int_equal(bundle_want_probe(b, &e), ERR_UNSUPPORTED);
    bundle_close(b);
    arena_fini(&a.arena);
    embedder_sample(&a);
    a.position_file = NULL;
    a.pooling = POOL_NONE;
    unit_ok(bundle_write(dir, &a, &e), &e);
    unit_ok(bundle_open(dir, &b, &e), &e);
    assert_null(b->position_file);
    assert_int_equal(bundle_pooling(b), POOL_MEAN);
    assert_string_not_equal(b->fingerprint, with);
    bundle_close(b);
    arena_fini(&a.arena);
}

static void test_embedder_refused(void **state)
{
    (void)state;
    static const struct change t[] = {
        {"\"kind\": \"encoder\"", "\"sort\": 3", "both sides"},
        {"\"kind\": \"encoder\"", "\"kind\": \"encoder\", \"labels\": [\"O\"]",
         "window 0"},
        {"\"window\": 0", "\"window\": 8", "window 8"},
        {"\"context\": 512", "\"context\": 513", "context 513"},
        {"\"context_train\": 512", "\"context_train\": 511", "context 512"},
        {"\"context_train\": 512", "\"context_train\": 4096", "positions.bin"},
        {"\"t_max\": 4096", "\"t_max\": 480", "480 rows"},
        {"\"t_max\": 4096", "\"t_max\": 8192", "4096"},
        {"\"t_min\": 32", "\"t_min\": 33", "T is not"},
        {"\"kv\": \"state\"", "\"kv\": \"host\"", "no past"},
        {"\"position_file\": \"positions.bin\"",
         "\"position_file\": \"embed.bin\"", "embed.bin"},
        {"\"position_file\": \"positions.bin\"",
         "\"position_file\": \"../positions.bin\"", "../positions.bin"},
        {"\"position_file\": \"positions.bin\"", "\"position_file\": 7",
         "position_file"},
        {"\"position_file\": \"positions.bin\"", "\"positions\": 7",
         "fingerprint"},
        {"\"both_sides\": true", "\"both_sides\": false", "both sides"},
        {"\"sum_norm\": true", "\"sum_norm\": false", "fingerprint"},
        {"\"act\": \"gelu_erf\"", "\"act\": \"gelu_tanh\"", "fingerprint"},
        {"\"pooling\": \"cls\"", "\"pooling\": \"rank\"", "pooling"},
    };
    are_refused(embedder_sample, t, countof(t));
}

/* A name of any length up to the limit, and as many as there may be. */
static void test_encoder_limits(void **state)
{
    (void)state;
    static char text[MODEL_LABELS_MAX + 1][MODEL_LABEL_BYTES_MAX + 2];
    static const char *many[MODEL_LABELS_MAX + 1];
    struct err e = {0};
    struct bundle a;
    for (size_t i = 0; i < countof(many); i++) {
        memset(text[i], 'x', MODEL_LABEL_BYTES_MAX);
        (void)snprintf(text[i], 8, "%zu", i);
        text[i][strlen(text[i])] = 'x';
        many[i] = text[i];
    }
    for (int over = 0; over < 3; over++) {
        encoder_sample(&a);
        a.labels = many;
        a.n_labels = over == 1 ? countof(many) : MODEL_LABELS_MAX;
        text[3][MODEL_LABEL_BYTES_MAX] = over == 2 ? 'x' : '\0';
        a.heads[0].vocab_last = a.n_labels;
        int rc = bundle_write(dir, &a, &e);
        if ((rc != 0) != (over != 0)) {
            fail_msg("over %d: %s: %s", over, err_name(rc), e.msg);
        }
        arena_fini(&a.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encoder),
        cmocka_unit_test(test_encoder_refused),
        cmocka_unit_test(test_encoder_limits),
        cmocka_unit_test_teardown(test_embedder, drop_positions),
        cmocka_unit_test_teardown(test_embedder_refused, drop_positions),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
