/* Which form a path has, which files are opened for it, and what a folder of the
 * transformers library becomes. */
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

#include "../unit.h"
#include "hf_make.h"
#include "source/source.h"

static void names_models(void **state)
{
    (void)state;
    static const struct {
        const char *path, *stem;
    } t[] = {
        {"/a/b.gguf",                   "b"  },
        {"b-00001-of-00002.gguf",       "b"  },
        {"/a/Qwen3-0.6B",               "Qwen3-0.6B"},
        {"/a/Qwen3-0.6B///",            "Qwen3-0.6B"},
        {"Qwen/",                       "Qwen"},
        {"/a/b/model.safetensors",      "b"  },
        {"model.safetensors",           "model"},
        {"/a/b/mine.safetensors",       "mine"},
        {"/",                           ""   },
        {"/h/models--Qwen--Qwen3-0.6B/snapshots/abc/", "Qwen3-0.6B"},
        {"models--a--b--c/snapshots/abc/model.safetensors", "c"},
        {"models--/snapshots/abc",      "abc"},
        {"snapshots/abc",               "abc"},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct span s = source_stem(t[i].path);
        char got[64];
        (void)snprintf(got, sizeof(got), "%.*s", (int)s.n, s.p);
        assert_string_equal(got, t[i].stem);
    }
}

static void opens_a_folder(void **state)
{
    (void)state;
    struct err e = {0};
    struct hf_folder f;
    struct gguf *g = NULL;
    struct span s = {0};
    uint32_t n = 0;
    hf_folder_make(&f);
    unit_ok(source_open(f.dir, &g, &e), &e);
    assert_string_equal(gguf_format(g), "safetensors");
    assert_int_equal(gguf_n_parts(g), 3);
    assert_true(gguf_get_str(g, "general.architecture", &s) && s.n == 5);
    assert_true(gguf_get_u32(g, "llama.block_count", &n) && n == 1);
    assert_true(gguf_get_u32(g, "llama.attention.key_length", &n) && n == 4);
    assert_int_equal(gguf_n_tensors(g), countof(hf_tensors));
    unit_ok(gguf_check_vocab(g, NULL, &e), &e);
    unit_ok(gguf_check_unchanged(g, &e), &e);
    hf_folder_text(&f, "config.json", "{}");
    unit_ok(gguf_check_unchanged(g, &e), &e); /* another file now */
    gguf_close(g);
    hf_folder_drop(&f);
}

/* Row 2j + s of a head is row s * 2 + j of the file; of a bias, the element. */
static void puts_pairs_side_by_side(void **state)
{
    (void)state;
    struct err e = {0};
    struct hf_folder f;
    struct gguf *g = NULL;
    float out[32];
    static const int from[8] = {0, 2, 1, 3, 4, 6, 5, 7};
    hf_folder_make(&f);
    unit_ok(source_open(f.dir, &g, &e), &e);
    const struct gguf_tensor *t = gguf_tensor(g, "blk.0.attn_q.weight");
    unit_ok(gguf_rows(t, 0, 8, out, &e), &e);
    for (int r = 0; r < 8; r++) {
        assert_true(out[4 * r] == 2.0F * (float)from[r]);
        assert_true(out[4 * r + 3] == 2.0F * (float)from[r] + 1.5F);
    }
    unit_ok(gguf_rows(t, 5, 1, out, &e), &e);
    assert_true(out[0] == 12);
    t = gguf_tensor(g, "blk.0.attn_q.bias");
    assert_int_equal(t->n_dims, 1);
    unit_ok(gguf_rows(t, 0, 1, out, &e), &e);
    for (int i = 0; i < 8; i++) {
        assert_true(out[i] == 0.5F * (float)from[i]);
    }
    t = gguf_tensor(g, "blk.0.attn_v.weight"); /* as it lies */
    assert_int_equal(t->type, GGML_F32);
    gguf_close(g);
    hf_folder_drop(&f);
}

/* All codes from 0 on, against their definition. */
static void decodes_eight_bits(void **state)
{
    (void)state;
    static const char *const types[] = {"F8_E4M3", "F8_E5M2"};
    for (size_t i = 0; i < countof(types); i++) {
        struct err e = {0};
        struct hf_folder f;
        struct gguf *g = NULL;
        struct buf b;
        float out[24];
        hf_folder_make(&f);
        hf_weights(&b, "model.layers.0.mlp.up_proj.weight", types[i]);
        hf_folder_put(&f, "model.safetensors", b.p, b.n);
        buf_fini(&b);
        unit_ok(source_open(f.dir, &g, &e), &e);
        const struct gguf_tensor *t = gguf_tensor(g, "blk.0.ffn_up.weight");
        assert_string_equal(gguf_tensor_type(t), types[i]);
        unit_ok(gguf_rows(t, 0, 6, out, &e), &e);
        for (int c = 0; c < 24; c++) {
            int exp = i == 0 ? c >> 3 : c >> 2;
            int man = i == 0 ? c & 7 : c & 3;
            int bits = i == 0 ? 3 : 2;
            int bias = i == 0 ? 7 : 15;
            double want = exp > 0 ? ldexp(1 + ldexp(man, -bits), exp - bias)
                                  : ldexp(man, 1 - bias - bits);
            assert_true((double)out[c] == want);
        }
        gguf_close(g);
        hf_folder_drop(&f);
    }
}

static int try(const struct hf_folder *f, struct err *e)
{
    struct gguf *g = NULL;
    *e = (struct err){0};
    int rc = source_open(f->dir, &g, e);
    gguf_close(g);
    return rc;
}

static void refuses_configs_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int rc;
        const char *says;
    } t[] = {
        {"{}",                                     ERR_ARCH,         "model_type"         },
        {"[]",                                     ERR_MODEL_CONFIG, "no object"          },
        {"{",                                      ERR_MODEL_CONFIG, "config.json"        },
        {"{\"model_type\":\"llama\"}",             ERR_MODEL_CONFIG, "num_hidden_layers"  },
        {"{" HF_CONFIG ",\"new\":1}",              ERR_UNSUPPORTED,  "'new'"              },
        {"{" HF_CONFIG ",\"new\":null}",           0,                ""                   },
        {"{" HF_CONFIG ",\"num_experts\":8}",      ERR_UNSUPPORTED,  "num_experts"        },
        {"{" HF_CONFIG ",\"num_experts\":0}",      0,                ""                   },
        {"{" HF_CONFIG ",\"rope_theta\":\"x\"}",   ERR_MODEL_CONFIG, "rope_theta"         },
        {"{" HF_CONFIG ",\"rope_scaling\":[1]}",   ERR_MODEL_CONFIG, "rotation"           },
        {"{" HF_CONFIG ",\"rope_scaling\":{\"rope_type\":\"llama3\"}}",
                                                   ERR_MODEL_CONFIG, "factor"             },
        {"{" HF_CONFIG ",\"quantization_config\":{\"quant_method\":\"awq\"}}",
                                                   ERR_UNSUPPORTED,  "quant_method is awq"},
        {"{" HF_CONFIG ",\"quantization_config\":{\"bits\":4}}",
                                                   ERR_UNSUPPORTED,  "quantised"          },
        {"{" HF_CONFIG ",\"quantization_config\":{\"quant_method\":\"fp8\","
         "\"activation_scheme\":\"static\"}}",
                                                   ERR_UNSUPPORTED,  "is static"          },
        {"{" HF_CONFIG ",\"quantization_config\":{\"quant_method\":\"fp8\","
         "\"weight_block_size\":[128,0]}}",
                                                   ERR_UNSUPPORTED,  "weight_block_size"  },
        {"{" HF_CONFIG ",\"quantization_config\":{\"quant_method\":\"fp8\","
         "\"martian\":1}}",
                                                   ERR_UNSUPPORTED,  "martian"            },
        {"{" HF_CONFIG ",\"quantization_config\":{\"quant_method\":\"fp8\"}}",
                                                   0,                ""                   },
        {"{" HF_CONFIG ",\"text_config\":{\"model_type\":\"x\"}}",
                                                   ERR_ARCH,         "'x'"                },
    };
    struct hf_folder f;
    struct err e = {0};
    hf_folder_make(&f);
    for (size_t i = 0; i < countof(t); i++) {
        hf_folder_text(&f, "config.json", t[i].json);
        int rc = try(&f, &e);
        if (rc != t[i].rc || strstr(e.msg, t[i].says) == NULL) {
            fail_msg("%s: %d, %s", t[i].json, rc, e.msg);
        }
    }
    hf_folder_drop(&f);
}

/* Slow frequencies are divided by the factor, fast ones stay. */
static void makes_divisors_of_llama3(void **state)
{
    (void)state;
    struct hf_folder f;
    struct err e = {0};
    struct gguf *g = NULL;
    float out[2];
    hf_folder_make(&f);
    hf_folder_text(&f, "config.json",
                   "{" HF_CONFIG ",\"rope_theta\":500000,\"rope_scaling\":{"
                   "\"rope_type\":\"llama3\",\"factor\":8,"
                   "\"low_freq_factor\":1,\"high_freq_factor\":4,"
                   "\"original_max_position_embeddings\":8192}}");
    unit_ok(source_open(f.dir, &g, &e), &e);
    const struct gguf_tensor *t = gguf_tensor(g, "rope_freqs.weight");
    assert_int_equal(t->cols, 2);
    unit_ok(gguf_rows(t, 0, 1, out, &e), &e);
    assert_true(out[0] == 1);
    /* 8192 / (2 pi sqrt(500000)) = 1.8438 turns: 0.28128 of the ramp */
    assert_true(fabsf(out[1] - 2.69453F) < 1e-4F);
    gguf_close(g);
    hf_folder_drop(&f);
}

static void refuses_tensors_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name, *dtype;
        const char *says;
    } t[] = {
        {"model.layers.0.mlp.extra.weight",            "F32",     "has no place"        },
        {"model.layers.0.mlp.up_proj.weight_scale",    "F32",     "scales beside them"  },
        {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32",   ""                    },
        {"lm_head.weight",                             "F32",     ""                    },
        {"model.layers.0.self_attn.k_proj.bias",       "F32",     "heads of"            },
        {"model.layers.0.mlp.up_proj.bias",            "I8",      "dtype I8"            },
        {"model.layers.9999.mlp.up_proj.weight",       "F32",     "has no place"        },
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct hf_folder f;
        struct err e = {0};
        struct buf b;
        char text[512];
        hf_folder_make(&f);
        int n = snprintf(text, sizeof(text),
                         "{\"%s\":{\"dtype\":\"%s\",\"shape\":[3],"
                         "\"data_offsets\":[0,%d]}}",
                         t[i].name, t[i].dtype,
                         t[i].dtype[0] == 'I' ? 3 : 12);
        buf_init(&b, KIB(4));
        buf_u64(&b, (uint64_t)n);
        buf_put(&b, text, (size_t)n);
        memset(buf_grow(&b, 12), 0, 12);
        hf_folder_put(&f, "b.safetensors", b.p, b.n);
        buf_fini(&b);
        (void)snprintf(text, sizeof(text),
                       "{\"weight_map\":{\"%s\":\"b.safetensors\","
                       "\"model.norm.weight\":\"model.safetensors\"}}",
                       t[i].name);
        hf_folder_text(&f, "model.safetensors.index.json", text);
        int rc = try(&f, &e);
        if ((rc < 0) != (t[i].says[0] != '\0') ||
            strstr(e.msg, t[i].says) == NULL) {
            fail_msg("%s: %d, %s", t[i].name, rc, e.msg);
        }
        hf_folder_drop(&f);
    }
}

static void keeps_to_its_folder(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "../model.safetensors", "/etc/model.safetensors", "a/b.safetensors",
        "..",                   "model.bin",              "",
        ".model.safetensors",   "absent.safetensors",
    };
    struct hf_folder f;
    struct err e = {0};
    char text[256];
    char path[256];
    hf_folder_make(&f);
    for (size_t i = 0; i < countof(bad); i++) {
        (void)snprintf(text, sizeof(text),
                       "{\"weight_map\":{\"model.norm.weight\":\"%s\"}}",
                       bad[i]);
        hf_folder_text(&f, "model.safetensors.index.json", text);
        int rc = try(&f, &e);
        assert_true(rc == ERR_MODEL_CONFIG || rc == ERR_NOT_FOUND);
    }
    hf_folder_text(&f, "model.safetensors.index.json",
                   "{\"weight_map\":{\"nothing\":\"model.safetensors\"}}");
    assert_int_equal(try(&f, &e), ERR_GGUF_SPLIT);
    hf_folder_text(&f, "model.safetensors.index.json", "{\"weight_map\":7}");
    assert_int_equal(try(&f, &e), ERR_MODEL_CONFIG);
    hf_folder_path(&f, "model.safetensors.index.json", path);
    assert_int_equal(unlink(path), 0);
    hf_folder_path(&f, "generation_config.json", path);
    assert_int_equal(symlink("/etc/hostname", path), 0);
    assert_int_equal(try(&f, &e), ERR_INVALID);
    assert_non_null(strstr(e.msg, "symbolic link"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("config.json", path), 0); /* inside */
    unit_ok(try(&f, &e), &e);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* must not hang */
    assert_int_equal(try(&f, &e), ERR_INVALID);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(try(&f, &e), ERR_INVALID);
    hf_folder_drop(&f);
}

static void wants_a_model(void **state)
{
    (void)state;
    struct hf_folder f;
    struct err e = {0};
    char path[256];
    hf_folder_make(&f);
    hf_folder_path(&f, "config.json", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(try(&f, &e), ERR_NOT_FOUND);
    hf_folder_text(&f, "config.json", "{" HF_CONFIG "}");
    hf_folder_path(&f, "model.safetensors", path);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(try(&f, &e), ERR_SAFETENSORS);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(try(&f, &e), ERR_SAFETENSORS);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(try(&f, &e), ERR_INVALID);
    hf_folder_drop(&f);
}

/* The descriptors rise, so that a worker may move them down one by one. */
static void opens_before_it_reads(void **state)
{
    (void)state;
    struct hf_folder f;
    struct err e = {0};
    struct gguf *g = NULL;
    struct source_files files = {.form = NULL};
    hf_folder_make(&f);
    unit_ok(source_files_open(f.dir, -1, &files, &e), &e);
    assert_int_equal(files.parts.n, 3);
    for (size_t i = 1; i < files.parts.n; i++) {
        assert_true(files.parts.fd[i] > files.parts.fd[i - 1]);
    }
    assert_true(source_file_fd(&files, "config.json") >= 0);
    assert_int_equal(source_file_fd(&files, "config"), -1);
    hf_folder_drop(&f); /* names are no longer needed */
    unit_ok(source_open_files(&files, &g, &e), &e);
    source_files_close(&files);
    unit_ok(gguf_check_unchanged(g, &e), &e);
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_models),
        cmocka_unit_test(opens_a_folder),
        cmocka_unit_test(puts_pairs_side_by_side),
        cmocka_unit_test(decodes_eight_bits),
        cmocka_unit_test(refuses_configs_by_name),
        cmocka_unit_test(makes_divisors_of_llama3),
        cmocka_unit_test(refuses_tensors_by_name),
        cmocka_unit_test(keeps_to_its_folder),
        cmocka_unit_test(wants_a_model),
        cmocka_unit_test(opens_before_it_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
