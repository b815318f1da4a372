/* test_bundle.c - bundle.json there and back, and hostile manifests. */
#include "bundle_make.h"

static void test_round_trip(void **state)
{
    (void)state;
    struct err e = {0};
    struct bundle a;
    struct bundle *b = NULL;
    write_sample(&a);
    unit_ok(bundle_open(dir, &b, &e), &e);
    assert_string_equal(b->name, "tiny");
    assert_string_equal(b->architecture, "gemma3");
    assert_int_equal(b->d_ff, 12);
    assert_int_equal(b->context_train, 32768);
    assert_memory_equal(&b->norm_eps, &a.norm_eps, sizeof(float));
    assert_memory_equal(&b->embed_scale, &a.embed_scale, sizeof(float));
    assert_memory_equal(&b->margin, &a.margin, sizeof(double));
    assert_int_equal(b->rope.n_factors, 2);
    assert_memory_equal(b->rope.factors, factors, sizeof(factors));
    assert_int_equal(b->rope_local.window, 512);
    assert_memory_equal(b->rope.long_factors, longs, sizeof(longs));
    assert_true(b->rope.magnitude == 1.25F && b->rope.original == 64);
    for (size_t i = 0; i < countof(layers); i++) {
        check_layer(&b->layers[i], &layers[i]);
    }
    assert_true(b->logit_scale == 0.5F && b->logit_cap == 30);
    assert_int_equal(b->n_shards, 1);
    assert_string_equal(b->shards[0].functions[0], "main");
    assert_int_equal(b->shards[0].weight_bytes, 77);
    assert_int_equal(b->n_heads_shards, 2);
    assert_int_equal(b->heads[1].vocab_first, 6);
    assert_int_equal(b->n_files, 6);
    assert_string_equal(b->files[0].path, "embed.bin");
    assert_int_equal(b->files[0].bytes, 80);
    assert_int_equal(b->total_bytes, 80 + 4 + 2 + 3 + 4 + 0);
    assert_true(b->source_bytes == 123456789012);
    assert_string_equal(b->peaks[0].name, "layers.0.residual");
    assert_true(b->peaks[0].peak == 104000.25);
    assert_string_equal(b->fingerprint, a.fingerprint);
    assert_string_equal(b->dir, dir);
    unit_ok(bundle_verify(b, NULL, NULL, &e), &e);
    bundle_close(b);
    arena_fini(&a.arena);
}

/* Design 5: another source or new peaks keep it, numbers and files do not. */
static void test_fingerprint(void **state)
{
    (void)state;
    struct err e = {0};
    struct bundle a;
    struct bundle b;
    write_sample(&a);

    sample(&b);
    b.source_name = "elsewhere.gguf";
    b.name = "renamed";
    b.n_peaks = 0;
    b.margin = 4;
    unit_ok(bundle_write(dir, &b, &e), &e);
    assert_string_equal(a.fingerprint, b.fingerprint);
    arena_fini(&b.arena);

    sample(&b);
    b.rope_local.window = 256;
    unit_ok(bundle_write(dir, &b, &e), &e);
    assert_string_not_equal(a.fingerprint, b.fingerprint);
    arena_fini(&b.arena);

    put("tokenizer.gguf", "GGUG", 4);
    sample(&b);
    unit_ok(bundle_write(dir, &b, &e), &e);
    assert_string_not_equal(a.fingerprint, b.fingerprint);
    arena_fini(&b.arena);
    put("tokenizer.gguf", "GGUF", 4);
    arena_fini(&a.arena);
}

/* A manifest aned could not read again is not written. */
static void test_write_refuses(void **state)
{
    (void)state;
    struct err e = {0};
    struct bundle b;
    struct bundle_head gap[] = {heads[0], heads[1]};
    gap[1].vocab_first = 7;
    sample(&b);
    b.heads = gap;
    assert_int_equal(bundle_write(dir, &b, &e), ERR_BUNDLE);
    arena_fini(&b.arena);
    sample(&b);
    b.residual_scale = 0.3F;
    assert_int_equal(bundle_write(dir, &b, &e), ERR_BUNDLE);
    assert_non_null(strstr(e.msg, "power of two"));
    arena_fini(&b.arena);
}

/* A bundle that an earlier aned wrote: a flag a layer, one list of factors. */
static void test_format_1(void **state)
{
    (void)state;
    struct err e = {0};
    struct bundle *b = NULL;
    struct buf text = {0};
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/unit/model/format1.json",
                   getenv("ANED_TESTS"));
    unit_ok(file_read(path, BUNDLE_JSON_MAX, &text, &e), &e);
    assert_true(file_join(path, sizeof(path), dir, "bundle.json"));
    unit_ok(file_write(path, text.p, text.n, &e), &e);
    buf_fini(&text);
    unit_ok(bundle_open(dir, &b, &e), &e);
    assert_int_equal(b->format, 1);
    assert_int_equal(b->layers[0].kind, LAYER_LOCAL);
    assert_int_equal(b->layers[1].kind, LAYER_GLOBAL);
    assert_int_equal(b->layers[1].d_head, 4);
    assert_int_equal(b->layers[1].kv_from, 1);
    assert_true(b->rope.magnitude == 1 && b->rope.long_factors == NULL);
    assert_true(b->logit_scale == 1 && b->logit_cap == 0);
    bundle_close(b);
}

/* --- keys and values from shard to shard --- */

/* Layer 1 reads the keys of layer 0, which stands in another shard. */
struct handing {
    struct layer layers[2];
    struct bundle_port gives[2], takes[2];
    struct bundle_shard shards[2];
    struct bundle b;
};

static void handing_sample(struct handing *h)
{
    static const struct bundle_port gives[] = {
        {"layers_0_k_new", 0, PORT_KEYS  },
        {"layers_0_v_new", 0, PORT_VALUES},
    };
    static const struct bundle_port takes[] = {
        {"shared_0_k_new", 0, PORT_KEYS  },
        {"shared_0_v_new", 0, PORT_VALUES},
    };
    sample(&h->b);
    h->layers[0] = h->layers[1] = layers[0];
    memcpy(h->gives, gives, sizeof(gives));
    memcpy(h->takes, takes, sizeof(takes));
    h->shards[0] = h->shards[1] = shards[0];
    h->shards[0].last = 1;
    h->shards[0].gives = h->gives;
    h->shards[0].n_gives = 2;
    h->shards[1].path = "golden"; /* there, and that is all */
    h->shards[1].first = 1;
    h->shards[1].takes = h->takes;
    h->shards[1].n_takes = 2;
    h->b.layers = h->layers;
    h->b.n_shards = 2;
    h->b.shards = h->shards;
}

static void test_handing(void **state)
{
    (void)state;
    struct handing h;
    struct bundle *b = NULL;
    struct err e = {0};
    char before[SHA256_HEX];
    handing_sample(&h);
    unit_ok(bundle_write(dir, &h.b, &e), &e);
    memcpy(before, h.b.fingerprint, sizeof(before));
    arena_fini(&h.b.arena);
    unit_ok(bundle_open(dir, &b, &e), &e);
    const struct bundle_shard *s = b->shards;
    assert_true(s[0].n_gives == 2 && s[0].n_takes == 0);
    assert_true(s[1].n_gives == 0 && s[1].n_takes == 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(s[0].gives[i].name, h.gives[i].name);
        assert_string_equal(s[1].takes[i].name, h.takes[i].name);
        assert_int_equal(s[1].takes[i].layer, 0);
        assert_int_equal(s[1].takes[i].role, i);
    }
    bundle_close(b);
    handing_sample(&h); /* names are part of what a bundle is */
    h.takes[1].name = "other";
    unit_ok(bundle_write(dir, &h.b, &e), &e);
    assert_string_not_equal(h.b.fingerprint, before);
    arena_fini(&h.b.arena);
}

static void not_given(struct handing *h)
{
    h->shards[0].n_gives = 0;
}

static void values_not_given(struct handing *h)
{
    h->shards[0].n_gives = 1;
}

static void not_taken(struct handing *h)
{
    h->shards[1].n_takes = 1;
}

static void given_by_itself(struct handing *h)
{
    h->shards[0].n_takes = 2;
    h->shards[0].takes = h->takes;
}

static void not_read(struct handing *h)
{
    h->layers[1].kv_from = 1;
}

static void given_twice(struct handing *h)
{
    h->gives[1].role = PORT_KEYS;
}

static void one_name(struct handing *h)
{
    h->takes[1].name = h->takes[0].name;
}

static void no_name(struct handing *h)
{
    h->takes[1].name = "";
}

static void no_such_layer(struct handing *h)
{
    h->takes[1].layer = 7;
}

static void other_heads(struct handing *h)
{
    h->layers[1].n_kv = 2;
}

/* A port that nobody gives, or nobody reads, is refused by its name. */
static void test_handing_refused(void **state)
{
    (void)state;
    static const struct {
        void (*change)(struct handing *h);
        const char *tells;
    } t[] = {
        {not_given,        "golden takes shared_0_k_new, the keys of layer 0, "
                           "which no program before it gives"                 },
        {values_not_given, "golden takes shared_0_v_new, the values of layer 0"},
        {not_taken,        "golden takes no values of layer 0, which it reads" },
        {given_by_itself,  "layers_00_02.mlpackage takes shared_0_k_new"       },
        {not_read,         "layers_00_02.mlpackage gives rows that "
                           "nobody reads"                                     },
        {given_twice,      "port layers_0_v_new stands there twice"            },
        {one_name,         "port shared_0_k_new stands there twice"            },
        {no_name,          "golden: a port has no name"                        },
        {no_such_layer,    "golden takes shared_0_v_new, the values of layer 7"},
        {other_heads,      "layer 1 cannot read the keys of layer 0"           },
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct handing h;
        struct err e = {0};
        handing_sample(&h);
        t[i].change(&h);
        int rc = bundle_write(dir, &h.b, &e);
        if (rc != ERR_BUNDLE || strstr(e.msg, t[i].tells) == NULL) {
            fail_msg("%s: %s: %s", t[i].tells, err_name(rc), e.msg);
        }
        arena_fini(&h.b.arena);
    }
}

/* Layer 1's router goes on from that of layer 0, and has its own keys. */
static void routers(struct handing *h)
{
    for (size_t l = 0; l < 2; l++) {
        struct layer *y = &h->layers[l];
        y->kv_from = (uint32_t)l;
        y->router = ROUTER_NETWORK;
        y->n_experts = 4;
        y->n_top = 1;
        y->d_expert = 6;
        y->d_router = 5;
        y->d_ff = 0;
    }
    h->gives[0] = (struct bundle_port){"layers_0_router_new", 0, PORT_ROUTER};
    h->takes[0] = (struct bundle_port){"shared_0_router_new", 0, PORT_ROUTER};
    h->shards[0].n_gives = h->shards[1].n_takes = 1;
}

static void test_handing_routers(void **state)
{
    (void)state;
    struct handing h;
    struct bundle *b = NULL;
    struct err e = {0};
    handing_sample(&h);
    routers(&h);
    unit_ok(bundle_write(dir, &h.b, &e), &e);
    arena_fini(&h.b.arena);
    unit_ok(bundle_open(dir, &b, &e), &e);
    assert_int_equal(b->shards[1].n_takes, 1);
    assert_int_equal(b->shards[1].takes[0].role, PORT_ROUTER);
    assert_string_equal(bundle_port_role(PORT_ROUTER), "router");
    assert_int_equal(layer_port_heads(&b->layers[0], PORT_ROUTER), 1);
    assert_int_equal(layer_port_dim(&b->layers[0], PORT_ROUTER), 5);
    bundle_close(b);
    static const char *const tells[] = {"golden takes no router of layer 0",
                                        "which no program before it gives",
                                        "rows that nobody reads",
                                        "goes on from one of 0"};
    for (size_t i = 0; i < countof(tells); i++) {
        handing_sample(&h);
        routers(&h);
        h.shards[1].n_takes = i == 0 ? 0 : 1;
        h.shards[0].n_gives = i == 1 ? 0 : 1;
        if (i >= 2) { /* one of the two has no router of this kind */
            struct layer *y = &h.layers[i == 2 ? 1 : 0];
            y->router = ROUTER_SOFTMAX_TOP;
            y->d_router = 0;
        }
        int rc = bundle_write(dir, &h.b, &e);
        if (rc != ERR_BUNDLE || strstr(e.msg, tells[i]) == NULL) {
            fail_msg("%s: %s: %s", tells[i], err_name(rc), e.msg);
        }
        arena_fini(&h.b.arena);
    }
}

static void test_handing_read(void **state)
{
    (void)state;
    static const struct change t[] = {
        {"\"role\": \"keys\"", "\"role\": \"queries\"", "gives[0]"   },
        {"\"role\": \"keys\"", "\"role\": \"values\"",  "twice"      },
        {"\"gives\": [",       "\"gives\": [7, ",        "gives[0]"   },
        {"\"gives\": [",       "\"given\": [",           "gives"      },
        {"\"takes\": [",       "\"takes\": 3, \"t\": [", "takes"      },
        {"\"layers_0_v_new\"", "\"layers_9_v_new\"",     "fingerprint"},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct handing h;
        struct bundle *b = NULL;
        struct err e = {0};
        handing_sample(&h);
        unit_ok(bundle_write(dir, &h.b, &e), &e);
        arena_fini(&h.b.arena);
        change_manifest(t[i].from, t[i].to);
        int rc = bundle_open(dir, &b, &e);
        if (rc != ERR_BUNDLE || strstr(e.msg, t[i].tells) == NULL) {
            fail_msg("%s -> %s: %s: %s", t[i].from, t[i].to, err_name(rc),
                     e.msg);
        }
    }
}

static const struct {
    const char *from, *to, *tells;
} hostile[] = {
    {"\"format\": 2",                  "\"format\": 3",                   "format 3"     },
    {"\"format\": 2",                  "\"format\": 0",                   "format 0"     },
    {"\"format\": 2",                  "\"format\": 1",                   "layer_local"  },
    {"\"kv_from\": 1",                 "\"kv_from\": 2",                  "kv_from"      },
    {"\"kv_from\": 1",                 "\"kv_from\": 0",                  "keys of layer"},
    {"\"qk_norm\": \"full\"",          "\"qk_norm\": \"fuller\"",         "layers[0]"    },
    {"\"mixer\": \"attention\"",       "\"mixer\": \"convolution\"",      "layers[0]"    },
    {"\"n_kv\": 3",                    "\"n_kv\": 4",                     "layer 1"      },
    {"\"d_head\": 8",                  "\"d_head\": 0",                   "heads and no"},
    {"\"d_head\": 8",                  "\"d_head\": 70000",               "d_head"       },
    {"\"mixer\": \"attention\"",       "\"mixer\": \"conv\"",             "conv_len"     },
    {"\"n_kv\": 3",                    "\"conv_len\": 3, \"n_kv\": 3",      "conv_len"     },
    {"\"n_kv\": 3",                    "\"conv_len\": 1, \"n_kv\": 3",      "conv_len"     },
    {"\"n_kv\": 3",                    "\"conv_len\": 65, \"n_kv\": 3",     "conv_len"     },
    {"\"d_ff\": 13",                   "\"d_ff\": 14",                    "fingerprint"  },
    {"\"gated\": true",                "\"gated\": false",                "fingerprint"  },
    {"\"n_experts\": 9",               "\"n_experts\": 8",                "fingerprint"  },
    {"\"n_experts\": 9",               "\"n_experts\": 1",                "n_experts"    },
    {"\"n_experts\": 9",               "\"n_expert\": 9",                 "fingerprint"  },
    {"\"n_top\": 7",                   "\"n_top\": 10",                   "10 experts of"},
    {"\"d_expert\": 5",                "\"d_expert\": 6",                 "fingerprint"  },
    {"\"router\": \"softmax_top\"",    "\"router\": \"top\"",             "router"       },
    {"\"router\": \"softmax_top\"",    "\"router\": \"none\"",            "router none"  },
    {"\"expert_branch\": true",        "\"expert_branch\": false",        "expert_branch"},
    {"\"d_ff\": 13",                   "\"d_ff\": 0",                     "expert_branch"},
    {"\"d_ple\": 0",                   "\"d_ple\": 4",                    "ple"          },
    {"\"original\": 64",               "\"original\": 63",                "fingerprint"  },
    {"\"original\": 64",               "\"original\": 0",                 "long list"    },
    {"\"long_factors\": [",            "\"long_factors\": [3, ",          "long_factors" },
    {"\"n_layers\": 2",                "\"n_layers\": 0",                 "n_layers"     },
    {"\"n_layers\": 2",                "\"n_layers\": 1e300",             "n_layers"     },
    {"\"n_layers\": 2",                "\"n_layers\": 3",                 "layers"       },
    {"\"n_layers\": 2",                "\"n_layers\": \"2\"",             "n_layers"     },
    {"\"vocab\": 10",                  "\"vocab\": 99999999",             "vocab"        },
    {"\"vocab\": 10",                  "\"vocab\": 11",                   "heads end"    },
    {"\"d_model\": 4",                 "\"d_model\": 8",                  "embed.bin"    },
    {"\"n_kv_heads\": 1",              "\"n_kv_heads\": 3",               "kv heads"     },
    {"\"d_ff\": 12",                   "\"d_ff\": 13",                    "fingerprint"  },
    {"\"residual_scale\": 0.125",      "\"residual_scale\": 0.12",        "power of two" },
    {"\"embed_scale\": ",              "\"embed_scale\": -",              "embed_scale"  },
    {"\"name\": \"tiny\"",             "\"name\": \"../tiny\"",           "name"         },
    {"\"shape\": \"ranged\"",          "\"shape\": \"round\"",            "shape"        },
    {"\"path\": \"embed.bin\"",        "\"path\": \"../embed.bin\"",      "path"         },
    {"\"path\": \"embed.bin\"",        "\"path\": \"/embed.bin\"",        "path"         },
    {"\"path\": \"embed.bin\"",        "\"path\": \"golden/../x\"",       "path"         },
    {"\"path\": \"embed.bin\"",        "\"path\": \"bundle.json\"",       "path"         },
    {"\"path\": \"embed.bin\"",        "\"path\": \"golden/logits.npy\"", "twice"        },
    {"\"path\": \"embed.bin\"",        "\"path\": \"absent.bin\"",        "list of files"},
    {"\"path\": \"golden/logits",      "\"path\": \"golden/absent",       "missing"      },
    {"\"bytes\": 4",                   "\"bytes\": 5",                    "total_bytes"  },
    {"\"bytes\": 4",                   "\"bytes\": -1",                   "bytes"        },
    {"\"total_bytes\": 93",            "\"total_bytes\": 94",             "total_bytes"  },
    {"\"embed_file\": \"embed.bin",    "\"embed_file\": \"other.bin",
     "list of files"                                                                     },
    {"\"path\": \"layers_00_02",       "\"path\": \"layers_00_03",        "no file"      },
    {"\"path\": \"head_0.mlpackage\"", "\"path\": \"..\"",                "path"         },
    {"\"first\": 0",                   "\"first\": 1",                    "do not follow"},
    {"\"t_max\": 4",                   "\"t_max\": 4000",                 "t_max"        },
    {"\"t_max\": 4",                   "\"t_max\": 0",                    "t_max"        },
    {"\"vocab_first\": 6",             "\"vocab_first\": 5",              "do not follow"},
    {"\"name\": \"main\"",             "\"name\": \"\"",                  "shards[0]"    },
    {"\"dim\": 4",                     "\"dim\": 3",                      "rope"         },
    {"\"dim\": 4",                     "\"dim\": 6",                      "rope"         },
    {"\"functions\": [",               "\"functions\": [7, ",             "shards[0]"    },
    {"\"shards\": [",                  "\"shards\": [null, ",             "shards[0]"    },
    {"\"peaks\": [",                   "\"peaks\": 3, \"p\": [",          "peaks"        },
    {"\"source\": {",                  "\"source\": [], \"s\": {",        "source"       },
    {"\"sha256\": \"aaaa",             "\"sha256\": \"AAAA",              "sha256"       },
    {"\"format\": 2",                  "\"format\": 2, \"format\": 2",    "bundle.json"  },
};

static void test_hostile(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(hostile); i++) {
        struct err e = {0};
        struct bundle *b = NULL;
        write_changed(hostile[i].from, hostile[i].to);
        int rc = bundle_open(dir, &b, &e);
        if (rc != ERR_BUNDLE || strstr(e.msg, hostile[i].tells) == NULL) {
            fail_msg("%s -> %s: %s: %s", hostile[i].from, hostile[i].to,
                     err_name(rc), e.msg);
        }
        assert_null(b);
    }
}

/* Files that changed after the manifest's back. */
static void test_files(void **state)
{
    (void)state;
    struct err e = {0};
    struct bundle a;
    struct bundle *b = NULL;
    char path[512];
    char link_to[512];
    write_sample(&a);
    arena_fini(&a.arena);

    put("tokenizer.gguf", "GGUX", 4); /* same size: only the hash tells */
    unit_ok(bundle_open(dir, &b, &e), &e);
    assert_int_equal(bundle_verify(b, NULL, NULL, &e), ERR_BUNDLE);
    assert_non_null(strstr(e.msg, "tokenizer.gguf"));
    bundle_close(b);

    put("tokenizer.gguf", "GGUF2", 5);
    assert_int_equal(bundle_open(dir, &b, &e), ERR_BUNDLE);
    assert_non_null(strstr(e.msg, "tokenizer.gguf"));

    /* a link out of the folder */
    put("golden/tok", "GGUF", 4);
    assert_true(file_join(path, sizeof(path), dir, "tokenizer.gguf"));
    assert_true(file_join(link_to, sizeof(link_to), dir, "golden/tok"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(link_to, path), 0);
    assert_int_equal(bundle_open(dir, &b, &e), ERR_BUNDLE);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(link_to), 0);
    assert_int_equal(bundle_open(dir, &b, &e), ERR_BUNDLE);
    put("tokenizer.gguf", "GGUF", 4);

    assert_true(file_join(path, sizeof(path), dir, "absent"));
    assert_int_equal(bundle_open(path, &b, &e), ERR_NOT_FOUND);
}

struct hashed {
    uint64_t bytes, stop; /* at so many */
};

static bool on_hashed(void *ctx, uint64_t bytes)
{
    struct hashed *h = ctx;
    assert_true(bytes >= h->bytes);
    h->bytes = bytes;
    return bytes < h->stop;
}

/* Progress ends at all bytes, may be stopped; the stamp is the files'. */
static void test_verify(void **state)
{
    (void)state;
    struct err e = {0};
    struct bundle a;
    struct bundle *b = NULL;
    struct hashed h = {.stop = UINT64_MAX};
    char stamp[3][SHA256_HEX];
    write_sample(&a);
    arena_fini(&a.arena);
    unit_ok(bundle_open(dir, &b, &e), &e);
    unit_ok(bundle_stamp(b, stamp[0], &e), &e);
    unit_ok(bundle_verify(b, on_hashed, &h, &e), &e);
    assert_int_equal(h.bytes, b->total_bytes);
    h = (struct hashed){.stop = 1};
    assert_int_equal(bundle_verify(b, on_hashed, &h, &e), ERR_CANCELLED);
    assert_true(h.bytes < b->total_bytes);
    unit_ok(bundle_stamp(b, stamp[1], &e), &e);
    assert_string_equal(stamp[0], stamp[1]); /* reading leaves no trace */
    put("tokenizer.gguf", "GGUF", 4);        /* the same bytes again */
    unit_ok(bundle_stamp(b, stamp[2], &e), &e);
    assert_string_not_equal(stamp[0], stamp[2]);
    unit_ok(bundle_verify(b, NULL, NULL, &e), &e);
    bundle_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_format_1),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_write_refuses),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_handing),
        cmocka_unit_test(test_handing_refused),
        cmocka_unit_test(test_handing_routers),
        cmocka_unit_test(test_handing_read),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_verify),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
