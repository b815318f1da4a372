/* The shared collection: what must be refused and under which name, what must
 * open, and that dequantisation is bit for bit the `gguf` package's. */
#include <dirent.h>
#include <math.h>
#include <unistd.h>

#include "../unit.h"
#include "base/buf.h"
#include "base/file.h"
#include "source/gguf.h"

static char *shared_path(const char *rel)
{
    static char path[1024];
    if (unit_shared() == NULL) {
        skip();
    }
    (void)snprintf(path, sizeof(path), "%s/data/%s", unit_shared(), rel);
    return path;
}

static int open_and_check(const char *path, struct err *e)
{
    struct gguf *g = NULL;
    int rc = gguf_open(path, &g, e);
    if (rc == 0) {
        rc = gguf_check_vocab(g, NULL, e);
    }
    gguf_close(g);
    return rc;
}

static void names_every_fault(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        const char *name;
    } want[] = {
        {"malformed-modelled/alignment-2G",                "gguf.alignment"         },
        {"malformed-modelled/alignment-zero",              "gguf.alignment"         },
        {"malformed-modelled/array-len-huge",              "gguf.count"             },
        {"malformed-modelled/big-endian",                  "gguf.big_endian"        },
        {"malformed-modelled/block-count-huge",            "gguf.value"             },
        {"malformed-modelled/bos-out-of-range",            "gguf.vocab"             },
        {"malformed-modelled/empty",                       "gguf.truncated"         },
        {"malformed-modelled/key-empty",                   "gguf.key"               },
        {"malformed-modelled/kv-array-nested",             "gguf.value"             },
        {"malformed-modelled/kv-count-huge",               "gguf.count"             },
        {"malformed-modelled/kv-dup",                      "gguf.key"               },
        {"malformed-modelled/ndims-5",                     "gguf.tensor"            },
        {"malformed-modelled/scores-as-uint8",             "gguf.vocab"             },
        {"malformed-modelled/scores-short",                "gguf.vocab"             },
        {"malformed-modelled/string-len-1GiB",             "gguf.truncated"         },
        {"malformed-modelled/tensor-dim-zero",             "gguf.tensor"            },
        {"malformed-modelled/tensor-dims-overflow",        "gguf.offset_out_of_file"},
        {"malformed-modelled/tensor-name-dup",             "gguf.tensor"            },
        {"malformed-modelled/tensor-offset-past-eof",
         "gguf.offset_out_of_file"                                                  },
        {"malformed-modelled/tensor-type-unknown",         "gguf.tensor"            },
        {"malformed-modelled/token-byte-nonhex",           "gguf.vocab"             },
        {"malformed-modelled/truncated-header",            "gguf.truncated"         },
        {"malformed-modelled/truncated-tensorinfo",        "gguf.truncated"         },
        {"malformed-modelled/version-0",                   "gguf.version"           },
        {"malformed/git-lfs-pointer-ggml-vocab-aquila",    "gguf.not_gguf"          },
        {"malformed/git-lfs-pointer-ggml-vocab-command-r", "gguf.not_gguf"          },
        {"legacy/example",                                 "gguf.not_gguf"          },
        {"legacy/ggml-vocab-llama.v1",                     "gguf.version"           },
 /* its one tensor has no data behind the header */
        {"minimal/weight-inspect-tiny",                    "gguf.offset_out_of_file"},
    };
    for (size_t i = 0; i < countof(want); i++) {
        struct err e = {0};
        char rel[256];
        (void)snprintf(rel, sizeof(rel), "gguf/%s.gguf", want[i].file);
        int rc = open_and_check(shared_path(rel), &e);
        if (rc == 0 || strcmp(err_name(rc), want[i].name) != 0) {
            fail_msg("%s: wanted %s, got %s: %s", want[i].file, want[i].name,
                     rc == 0 ? "success" : err_name(rc), e.msg);
        }
    }
}

/* No file of the two folders is forgotten by the table above. */
static void refuses_all_malformed(void **state)
{
    (void)state;
    static const char *const dirs[] = {"gguf/malformed",
                                       "gguf/malformed-modelled"};
    int files = 0;
    for (size_t i = 0; i < countof(dirs); i++) {
        char dir[1024];
        (void)snprintf(dir, sizeof(dir), "%s", shared_path(dirs[i]));
        DIR *d = opendir(dir);
        assert_non_null(d);
        for (struct dirent *f = NULL; (f = readdir(d)) != NULL;) {
            char path[2048];
            struct err e = {0};
            if (f->d_name[0] == '.') {
                continue;
            }
            (void)snprintf(path, sizeof(path), "%s/%s", dir, f->d_name);
            assert_true(open_and_check(path, &e) < 0);
            files++;
        }
        (void)closedir(d);
    }
    assert_true(files >= 27);
}

static const char *const sound[] = {
    "gguf/legacy/ggml-vocab-gpt2.nopre.gguf",
    "models/derived/stories260K.F32.gguf",
    "models/derived/stories260K.F16.gguf",
    "models/derived/stories260K.BF16.gguf",
    "models/derived/stories260K.Q4_K_M.gguf",
    "models/llama-2-tiny-random.gguf",
    "tokenizers/gguf-derived/ggml-vocab-phi-4-mini.gguf",
    "tokenizers/gguf-vocab/ggml-vocab-baichuan.gguf",
    "tokenizers/gguf-vocab/ggml-vocab-bert-bge.gguf",
    "tokenizers/gguf-vocab/ggml-vocab-deepseek-llm.gguf",
    "tokenizers/gguf-vocab/ggml-vocab-falcon.gguf",
    "tokenizers/gguf-vocab/ggml-vocab-gpt-2.gguf",
    "tokenizers/gguf-vocab/ggml-vocab-gpt-neox.gguf",
    "tokenizers/gguf-vocab/ggml-vocab-llama-spm.gguf",
    "tokenizers/gguf-vocab/ggml-vocab-refact.gguf",
};

static void opens_sound_files(void **state)
{
    (void)state;
    struct err e = {0};
    struct gguf *g = NULL;
    for (size_t i = 0; i < countof(sound); i++) {
        unit_ok(open_and_check(shared_path(sound[i]), &e), &e);
    }
    unit_ok(gguf_open(shared_path("gguf/minimal/weight-inspect-empty.gguf"), &g,
                      &e),
            &e);
    assert_int_equal(gguf_n_kv(g), 1);
    assert_int_equal(gguf_check_vocab(g, NULL, &e), ERR_GGUF_MISSING);
    gguf_close(g);
}

/* The copy holds the same vocabulary and nothing else. */
static void copies_the_vocabulary(void **state)
{
    (void)state;
    char path[] = "/tmp/aned-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    for (size_t i = 0; i < countof(sound); i++) {
        struct err e = {0};
        struct gguf *a = NULL;
        struct gguf *b = NULL;
        unit_ok(gguf_open(shared_path(sound[i]), &a, &e), &e);
        unit_ok(gguf_write_vocab(a, NULL, path, &e), &e);
        unit_ok(gguf_open(path, &b, &e), &e);
        unit_ok(gguf_check_vocab(b, NULL, &e), &e);
        assert_int_equal(gguf_n_tensors(b), 0);
        for (size_t k = 0; k < gguf_n_kv(a); k++) {
            const struct gguf_kv *x = gguf_kv_at(a, k);
            char key[GGUF_KEY_MAX + 1];
            (void)snprintf(key, sizeof(key), "%.*s", (int)x->key.n, x->key.p);
            const struct gguf_kv *y = gguf_find(b, key);
            bool kept = strncmp(key, "general.", 8) == 0 ||
                        strncmp(key, "tokenizer.", 10) == 0 ||
                        strstr(key, ".vocab_size") != NULL ||
                        strstr(key, ".context_length") != NULL;
            assert_int_equal(y != NULL, kept);
            if (y != NULL) {
                assert_true(x->kind == y->kind && x->item == y->item &&
                            x->count == y->count && x->bytes == y->bytes);
                assert_memory_equal(x->p, y->p, x->bytes);
            }
        }
        gguf_close(a);
        gguf_close(b);
    }
    assert_int_equal(unlink(path), 0);
}

/* Another chat template takes the place of the vocabulary's own, or comes
 * where there is none; all else is as it was. */
static void copies_with_another_template(void **state)
{
    (void)state;
    static const char other[] = "{{ messages }} other";
    const char *key = "tokenizer.chat_template";
    char path[] = "/tmp/aned-test-XXXXXX";
    unsigned had = 0;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    for (size_t i = 0; i < countof(sound); i++) {
        struct err e = {0};
        struct span text = {0};
        struct gguf *a = NULL;
        struct gguf *plain = NULL;
        struct gguf *b = NULL;
        unit_ok(gguf_open(shared_path(sound[i]), &a, &e), &e);
        unit_ok(gguf_write_vocab(a, NULL, path, &e), &e);
        unit_ok(gguf_open(path, &plain, &e), &e);
        unit_ok(gguf_write_vocab(a, other, path, &e), &e);
        unit_ok(gguf_open(path, &b, &e), &e);
        unit_ok(gguf_check_vocab(b, NULL, &e), &e);
        assert_true(gguf_get_str(b, key, &text));
        assert_int_equal(text.n, strlen(other));
        assert_memory_equal(text.p, other, text.n);
        bool has = gguf_find(a, key) != NULL;
        had += has;
        assert_int_equal(gguf_n_kv(b), gguf_n_kv(plain) + (has ? 0 : 1));
        gguf_close(a);
        gguf_close(plain);
        gguf_close(b);
    }
    assert_true(had < countof(sound)); /* the data have both kinds */
    assert_int_equal(unlink(path), 0);
}

static void dequantises_bit_for_bit(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = {
        {"f32",     GGML_F32    },
        {"f16",     GGML_F16    },
        {"bf16",    GGML_BF16   },
        {"q4_0",    GGML_Q4_0   },
        {"q4_1",    GGML_Q4_1   },
        {"q5_0",    GGML_Q5_0   },
        {"q5_1",    GGML_Q5_1   },
        {"q8_0",    GGML_Q8_0   },
        {"q2_K",    GGML_Q2_K   },
        {"q3_K",    GGML_Q3_K   },
        {"q4_K",    GGML_Q4_K   },
        {"q5_K",    GGML_Q5_K   },
        {"q6_K",    GGML_Q6_K   },
        {"iq2_s",   GGML_IQ2_S  },
        {"iq3_xxs", GGML_IQ3_XXS},
        {"iq3_s",   GGML_IQ3_S  },
        {"iq4_nl",  GGML_IQ4_NL },
        {"iq4_xs",  GGML_IQ4_XS },
        {"tq1_0",   GGML_TQ1_0  },
        {"tq2_0",   GGML_TQ2_0  },
    };
    enum { ROWS = 8, COLS = 256 };
    for (size_t i = 0; i < countof(types); i++) {
        struct err e = {0};
        struct buf blk;
        struct buf want;
        char rel[128];
        (void)snprintf(rel, sizeof(rel), "gguf/quant-vectors/%s.blk",
                       types[i].name);
        unit_ok(file_read(shared_path(rel), MIB(1), &blk, &e), &e);
        (void)snprintf(rel, sizeof(rel), "gguf/quant-vectors/%s.f32",
                       types[i].name);
        unit_ok(file_read(shared_path(rel), MIB(1), &want, &e), &e);
        assert_int_equal(want.n, ROWS * COLS * sizeof(float));
        const struct gguf_tensor t = {.name = types[i].name,
                                      .type = types[i].type,
                                      .rows = ROWS,
                                      .cols = COLS,
                                      .data = (const uint8_t *)blk.p,
                                      .bytes = blk.n,
                                      .row_bytes = blk.n / ROWS};
        float got[ROWS * COLS];
        for (uint64_t r = 0; r < ROWS; r += 2) {
            unit_ok(gguf_rows(&t, r, 2, got + r * COLS, &e), &e);
        }
        if (memcmp(got, want.p, sizeof(got)) != 0) {
            fail_msg("%s differs", types[i].name);
        }
        buf_fini(&blk);
        buf_fini(&want);
    }
    const struct gguf_tensor other = {.name = "x", .type = 40, .rows = 1};
    struct err e = {0};
    assert_int_equal(gguf_rows(&other, 0, 1, NULL, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "NVFP4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_every_fault),
        cmocka_unit_test(refuses_all_malformed),
        cmocka_unit_test(opens_sound_files),
        cmocka_unit_test(copies_the_vocabulary),
        cmocka_unit_test(copies_with_another_template),
        cmocka_unit_test(dequantises_bit_for_bit),
    };
    return cmocka_run_group_tests_name("gguf_corpus", tests, NULL, NULL);
}
