/* Encoders in the form of the transformers and sentence-transformers libraries:
 * names of tensors, numbers, vocabularies, pooling, and what is refused by name.
 * Real files of both are tests/oracle/test_minilm.py's and test_encoder_folder.py's. */
#include <sys/stat.h>

#include "../unit.h"
#include "convert/arch/arch.h"
#include "hf_make.h"
#include "model/tokenizer.h"

/* One layer of width 4, 2 heads, 6 inside; 9 tokens, 16 positions. */
#define BERT                                                               \
    "\"architectures\":[\"BertModel\"],\"model_type\":\"bert\","          \
    "\"hidden_size\":4,\"num_hidden_layers\":1,\"num_attention_heads\":2," \
    "\"intermediate_size\":6,\"hidden_act\":\"gelu\",\"vocab_size\":9,"   \
    "\"max_position_embeddings\":16,\"type_vocab_size\":2"
/* As the first release of nomic-bert has it. */
#define NOMIC                                                              \
    "\"architectures\":[\"NomicBertModel\"],\"model_type\":\"nomic_bert\"," \
    "\"n_embd\":4,\"n_layer\":1,\"n_head\":2,\"n_inner\":6,"              \
    "\"activation_function\":\"swiglu\",\"vocab_size\":9,"                \
    "\"n_positions\":64,\"max_trained_positions\":16,"                     \
    "\"layer_norm_epsilon\":1e-6,\"rotary_emb_base\":500,\"causal\":false," \
    "\"prenorm\":false,\"rotary_emb_fraction\":1.0,\"use_rms_norm\":false"

#define VOCAB "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nrun\n##s\n\xC3\xA9\n"
#define MODULE(name, path)                                                  \
    "{\"path\":\"" path "\",\"type\":\"sentence_transformers.models." name \
    "\"}"
#define MODULES                                                       \
    "[" MODULE("Transformer", "") "," MODULE("Pooling", "1_Pooling") \
    "," MODULE("Normalize", "2_Normalize") "]"
#define POOLING \
    "{\"word_embedding_dimension\":4,\"pooling_mode_cls_token\":true}"

#define PARTS(prefix, layer, norm, kind, shift)                              \
    {prefix "embeddings.word_embeddings.weight", 9, 4, 0},                   \
    {prefix "embeddings.position_embeddings.weight", 16, 4, 0},              \
    {prefix "embeddings.token_type_embeddings.weight", 2, 4, 0},             \
    {prefix "embeddings." norm "." kind, 0, 4, 0},                           \
    {prefix "embeddings." norm "." shift, 0, 4, 0},                          \
    {prefix layer "attention.self.query.weight", 4, 4, 0},                   \
    {prefix layer "attention.self.query.bias", 0, 4, 0},                     \
    {prefix layer "attention.self.key.weight", 4, 4, 0},                     \
    {prefix layer "attention.self.key.bias", 0, 4, 0},                       \
    {prefix layer "attention.self.value.weight", 4, 4, 0},                   \
    {prefix layer "attention.self.value.bias", 0, 4, 0},                     \
    {prefix layer "attention.output.dense.weight", 4, 4, 0},                 \
    {prefix layer "attention.output.dense.bias", 0, 4, 0},                   \
    {prefix layer "attention.output." norm "." kind, 0, 4, 0},               \
    {prefix layer "attention.output." norm "." shift, 0, 4, 0},              \
    {prefix layer "intermediate.dense.weight", 6, 4, 0},                     \
    {prefix layer "intermediate.dense.bias", 0, 6, 0},                       \
    {prefix layer "output.dense.weight", 4, 6, 0},                           \
    {prefix layer "output.dense.bias", 0, 4, 0},                             \
    {prefix layer "output." norm "." kind, 0, 4, 0},                         \
    {prefix layer "output." norm "." shift, 0, 4, 0},                        \
    {prefix "pooler.dense.weight", 4, 4, 0}

#define LAYER "encoder.layer.0."
static const struct hf_tensor plain[] = {
    PARTS("", LAYER, "LayerNorm", "weight", "bias")};
/* A model for masked words, of an old version. */
static const struct hf_tensor prefixed[] = {
    PARTS("bert.", LAYER, "LayerNorm", "gamma", "beta"),
    {"cls.predictions.bias", 0, 9, 0},
    {"cls.predictions.transform.dense.weight", 4, 4, 0},
    {"cls.seq_relationship.weight", 2, 4, 0},
};

#define FIRST "encoder.layers.0."
static const struct hf_tensor first_nomic[] = {
    {"embeddings.word_embeddings.weight", 9, 4, 0},
    {"embeddings.token_type_embeddings.weight", 2, 4, 0},
    {"emb_ln.weight", 0, 4, 0},
    {"emb_ln.bias", 0, 4, 0},
    {FIRST "attn.Wqkv.weight", 12, 4, 0},
    {FIRST "attn.out_proj.weight", 4, 4, 0},
    {FIRST "norm1.weight", 0, 4, 0},
    {FIRST "norm1.bias", 0, 4, 0},
    {FIRST "mlp.fc11.weight", 6, 4, 0},
    {FIRST "mlp.fc12.weight", 6, 4, 0},
    {FIRST "mlp.fc2.weight", 4, 6, 0},
    {FIRST "norm2.weight", 0, 4, 0},
    {FIRST "norm2.bias", 0, 4, 0},
};

static void put_weights(const struct hf_folder *f, const struct hf_tensor *t,
                        size_t n)
{
    struct buf b;
    hf_file(&b, t, n, NULL, NULL);
    hf_folder_put(f, "model.safetensors", b.p, b.n);
    buf_fini(&b);
}

/* As sentence-transformers saves it. */
static void make(struct hf_folder *f)
{
    char dir[256];
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/aned-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    hf_folder_path(f, "1_Pooling", dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    hf_folder_text(f, "config.json", "{" BERT "}");
    hf_folder_text(f, "vocab.txt", VOCAB);
    hf_folder_text(f, "modules.json", MODULES);
    hf_folder_text(f, "1_Pooling/config.json", POOLING);
    hf_folder_text(f, "sentence_bert_config.json",
                   "{\"max_seq_length\":12,\"do_lower_case\":false}");
    put_weights(f, plain, countof(plain));
}

static struct gguf *open_folder(const struct hf_folder *f)
{
    struct err e = {0};
    struct gguf *g = NULL;
    unit_ok(source_open(f->dir, &g, &e), &e);
    return g;
}

static void reads_names_of_old_and_new_files(void **state)
{
    (void)state;
    struct hf_folder f;
    struct err e = {0};
    make(&f);
    struct gguf *a = open_folder(&f);
    assert_int_equal(gguf_n_tensors(a), countof(plain) - 1);
    put_weights(&f, prefixed, countof(prefixed));
    struct gguf *b = open_folder(&f);
    assert_int_equal(gguf_n_tensors(b), gguf_n_tensors(a));
    for (size_t i = 0; i < gguf_n_tensors(a); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(a, i);
        const struct gguf_tensor *u = gguf_tensor(b, t->name);
        assert_non_null(u);
        assert_int_equal(t->bytes, u->bytes);
    }
    struct decoder d = {0};
    unit_ok(arch_read(b, &d, &e), &e);
    assert_string_equal(d.arch->name, "bert");
    assert_int_equal(d.pooling, POOL_CLS);
    assert_int_equal(d.context_train, 16);
    assert_int_equal(d.text_max, 12);
    assert_true(d.norm_eps == 1e-12f);
    assert_int_equal(d.layers[0].n_heads, 2);
    assert_int_equal(d.layers[0].act, ACT_GELU_ERF);
    arch_fini(&d);
    gguf_close(a);
    gguf_close(b);
    hf_folder_drop(&f);
}

static void reads_nomic_of_the_first_release(void **state)
{
    (void)state;
    struct hf_folder f;
    struct err e = {0};
    struct decoder d = {0};
    make(&f);
    hf_folder_text(&f, "config.json", "{" NOMIC "}");
    put_weights(&f, first_nomic, countof(first_nomic));
    struct gguf *g = open_folder(&f);
    unit_ok(arch_read(g, &d, &e), &e);
    assert_string_equal(d.arch->name, "nomic-bert");
    assert_int_equal(d.context_train, 16);
    assert_int_equal(d.layers[0].d_ff, 6);
    assert_true(d.layers[0].rotates && d.layers[0].gated);
    assert_true(d.kinds[LAYER_GLOBAL].base == 500);
    assert_true(d.norm_eps == 1e-6f);
    arch_fini(&d);
    gguf_close(g);
    hf_folder_drop(&f);
}

/* The longest text: what the library takes. */
static void knows_the_longest_text(void **state)
{
    (void)state;
    static const struct {
        const char *sentence, *tokenizer;
        uint32_t most;
    } t[] = {
        {"{\"max_seq_length\":12}",   NULL,                           12},
        {"{\"max_seq_length\":12}",   "{\"model_max_length\":8}",     12},
        {"{\"max_seq_length\":null}", "{\"model_max_length\":8}",     8 },
        {"{}",                        "{\"model_max_length\":1e30}",  0 },
        {"{\"max_seq_length\":514}",  NULL,                           0 },
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct hf_folder f;
        struct err e = {0};
        struct decoder d = {0};
        make(&f);
        hf_folder_text(&f, "sentence_bert_config.json", t[i].sentence);
        if (t[i].tokenizer != NULL) {
            hf_folder_text(&f, "tokenizer_config.json", t[i].tokenizer);
        }
        struct gguf *g = open_folder(&f);
        unit_ok(arch_read(g, &d, &e), &e);
        assert_int_equal(d.text_max, t[i].most);
        arch_fini(&d);
        gguf_close(g);
        hf_folder_drop(&f);
    }
}

static void reads_poolings(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        enum pooling kind;
    } t[] = {
        {"{}",                                                   POOL_MEAN},
        {"{\"pooling_mode_mean_tokens\":true}",                  POOL_MEAN},
        {"{\"pooling_mode_lasttoken\":true}",                    POOL_LAST},
        {"{\"pooling_mode\":\"cls\",\"embedding_dimension\":4}", POOL_CLS },
        {"{\"pooling_mode\":[\"lasttoken\"]}",                   POOL_LAST},
        {NULL,                                                   POOL_NONE},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct hf_folder f;
        struct err e = {0};
        struct decoder d = {0};
        make(&f);
        if (t[i].json != NULL) {
            hf_folder_text(&f, "1_Pooling/config.json", t[i].json);
        } else { /* a model of the transformers library */
            char path[256];
            hf_folder_path(&f, "modules.json", path);
            assert_int_equal(unlink(path), 0);
        }
        struct gguf *g = open_folder(&f);
        unit_ok(arch_read(g, &d, &e), &e);
        assert_int_equal(d.pooling, t[i].kind);
        arch_fini(&d);
        gguf_close(g);
        hf_folder_drop(&f);
    }
}

/* --- vocabularies --- */

#define JSON_VOCAB                                                            \
    "{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"[MASK]\":4,"        \
    "\"the\":5,\"run\":6,\"##s\":7,\"\\u00e9\":8}"
#define NORMAL(more)                                                       \
    "{\"type\":\"BertNormalizer\",\"clean_text\":true,"                   \
    "\"handle_chinese_chars\":true" more "}"
#define TOKENIZER(normal, model)                                              \
    "{\"added_tokens\":[{\"id\":1,\"content\":\"[UNK]\",\"special\":true},"  \
    "{\"id\":2,\"content\":\"[CLS]\",\"special\":true},"                     \
    "{\"id\":3,\"content\":\"[SEP]\",\"special\":true}],\"normalizer\":"     \
    normal ",\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"             \
    "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\"},"                \
    "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",3]," \
    "\"cls\":[\"[CLS]\",2]},\"model\":{\"type\":\"WordPiece\","              \
    "\"unk_token\":\"[UNK]\",\"vocab\":" JSON_VOCAB model "}}"

static void check_ids(const struct hf_folder *f, const char *text,
                      const int32_t *want, size_t n)
{
    struct err e = {0};
    struct tokenizer *t = NULL;
    int32_t *ids = NULL;
    size_t got = 0;
    struct gguf *g = open_folder(f);
    unit_ok(tokenizer_of(g, &t, &e), &e);
    assert_int_equal(tokenizer_bos(t), 2);
    assert_int_equal(tokenizer_eos(t), 3);
    assert_true(tokenizer_add_bos(t) && tokenizer_add_eos(t));
    unit_ok(tokenizer_encode(t, text, strlen(text), true, &ids, &got, &e), &e);
    assert_int_equal(got, n);
    assert_memory_equal(ids, want, n * sizeof(*want));
    free(ids);
    tokenizer_close(t);
    gguf_close(g);
}

static void reads_vocabularies(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        int32_t want[5]; /* of "The runs \xC3\x89 [SEP]" */
    } t[] = {
        {"vocab.txt", VOCAB, {5, 6, 7, 1, 3}}, /* e is no token */
        {"tokenizer_config.json", "{\"do_lower_case\":false}",
         {1, 6, 7, 1, 3}},
        {"tokenizer_config.json", "{\"strip_accents\":false}",
         {5, 6, 7, 8, 3}},
        {"tokenizer.json", TOKENIZER(NORMAL(""), ""), {5, 6, 7, 1, 3}},
        {"tokenizer.json", TOKENIZER(NORMAL(",\"lowercase\":false"), ""),
         {1, 6, 7, 1, 3}},
        {"tokenizer.json", TOKENIZER(NORMAL(",\"strip_accents\":false"), ""),
         {5, 6, 7, 8, 3}},
        {"tokenizer.json",
         TOKENIZER(NORMAL(""), ",\"max_input_chars_per_word\":100,"
                               "\"continuing_subword_prefix\":\"##\""),
         {5, 6, 7, 1, 3}},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct hf_folder f;
        make(&f);
        hf_folder_text(&f, t[i].name, t[i].text);
        check_ids(&f, "The runs \xC3\x89 [SEP]", t[i].want, 5);
        hf_folder_drop(&f);
    }
    struct hf_folder f; /* do_lower_case of the library itself: accents stay */
    make(&f);
    hf_folder_text(&f, "tokenizer.json",
                   TOKENIZER(NORMAL(",\"lowercase\":false"), ""));
    hf_folder_text(&f, "sentence_bert_config.json", "{\"do_lower_case\":true}");
    check_ids(&f, "The runs \xC3\x89 [SEP]", (int32_t[]){5, 6, 7, 8, 3}, 5);
    hf_folder_drop(&f);
}

/* --- what is refused --- */

static void refuse(const struct hf_folder *f, const char *what,
                   const char *says)
{
    struct err e = {0};
    struct gguf *g = NULL;
    struct decoder d = {0};
    int rc = source_open(f->dir, &g, &e);
    if (rc == 0) {
        rc = arch_read(g, &d, &e);
        arch_fini(&d);
    }
    gguf_close(g);
    if (rc == 0 || strstr(e.msg, says) == NULL) {
        fail_msg("%s: %d, %s", what, rc, e.msg);
    }
}

static void refuses_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *says;
    } t[] = {
        {"config.json", "{" BERT ",\"is_decoder\":true}", "is_decoder"},
        {"config.json",
         "{" BERT ",\"position_embedding_type\":\"relative_key\"}",
         "position_embedding_type relative_key"},
        {"config.json", "{" BERT ",\"new\":1}", "'new'"},
        {"config.json",
         "{\"architectures\":[\"BertForSequenceClassification\"],"
         "\"model_type\":\"bert\"}",
         "BertForSequenceClassification"},
        {"config.json",
         "{\"architectures\":[\"BertModel\"],\"model_type\":\"bert\","
         "\"hidden_act\":\"relu\"}",
         "relu"},
        {"config.json", "{" NOMIC ",\"rotary_emb_interleaved\":true}",
         "rotary_emb_interleaved"},
        {"config.json", "{" NOMIC ",\"moe_top_k\":2}", "moe_top_k"},
        {"modules.json", "[]", "no list"},
        {"modules.json", "[" MODULE("Pooling", "1_Pooling") "]", "Pooling"},
        {"modules.json",
         "[" MODULE("Transformer", "") "," MODULE("Pooling", "1_Pooling")
         "," MODULE("Dense", "2_Dense") "]",
         "Dense"},
        {"modules.json",
         "[" MODULE("Transformer", "") "," MODULE("Normalize", "1_Normalize")
         "," MODULE("Pooling", "1_Pooling") "]",
         "Pooling"},
        {"modules.json", "[" MODULE("Transformer", "0_Transformer") "]",
         "0_Transformer"},
        {"modules.json",
         "[" MODULE("Transformer", "") "," MODULE("Pooling", "2_Pooling") "]",
         "2_Pooling"},
        {"modules.json", "[{\"path\":\"\",\"type\":\"mine.Transformer\"}]",
         "mine.Transformer"},
        {"1_Pooling/config.json", "{\"pooling_mode_max_tokens\":true}",
         "'max'"},
        {"1_Pooling/config.json",
         "{\"pooling_mode_mean_sqrt_len_tokens\":true}",
         "mean_sqrt_len_tokens"},
        {"1_Pooling/config.json", "{\"pooling_mode\":\"weightedmean\"}",
         "weightedmean"},
        {"1_Pooling/config.json", "{\"pooling_mode\":[\"cls\",\"mean\"]}",
         "of several"},
        {"1_Pooling/config.json", "{\"pooling_mode\":\"best\"}", "'best'"},
        {"1_Pooling/config.json",
         "{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":true}",
         "beside"},
        {"1_Pooling/config.json", "{\"word_embedding_dimension\":5}",
         "word_embedding_dimension"},
        {"sentence_bert_config.json", "{\"max_seq_length\":0}",
         "max_seq_length"},
        {"sentence_bert_config.json", "{\"query_length\":32}", "query_length"},
        {"sentence_bert_config.json", "{\"transformer_task\":\"fill-mask\"}",
         "fill-mask"},
        {"config_sentence_transformers.json",
         "{\"prompts\":{\"q\":\"query: \"},\"default_prompt_name\":\"q\"}",
         "default_prompt_name 'q'"},
        {"vocab.txt", "[PAD]\n[UNK]\n[CLS]\n", "sep_token '[SEP]'"},
        {"vocab.txt", "a\nb\n", "unk_token"},
        {"tokenizer.json",
         TOKENIZER(NORMAL(""), ",\"max_input_chars_per_word\":50"),
         "max_input_chars_per_word"},
        {"tokenizer.json",
         TOKENIZER(NORMAL(""), ",\"continuing_subword_prefix\":\"@@\""),
         "continuing_subword_prefix"},
        {"tokenizer.json",
         TOKENIZER("{\"type\":\"BertNormalizer\","
                   "\"handle_chinese_chars\":false}",
                   ""),
         "handle_chinese_chars"},
        {"tokenizer.json", TOKENIZER("{\"type\":\"Lowercase\"}", ""),
         "Lowercase"},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct hf_folder f;
        make(&f);
        hf_folder_text(&f, t[i].name, t[i].text);
        refuse(&f, t[i].text, t[i].says);
        hf_folder_drop(&f);
    }
}

/* The folder of Pooling may be no link to somewhere else. */
static void refuses_links(void **state)
{
    (void)state;
    struct hf_folder f;
    struct hf_folder other;
    char from[256];
    char to[256];
    make(&f);
    make(&other);
    hf_folder_path(&f, "1_Pooling/config.json", from);
    hf_folder_path(&other, "1_Pooling/config.json", to);
    assert_int_equal(unlink(from), 0);
    assert_int_equal(symlink(to, from), 0);
    refuse(&f, "a file", "leaves the model's folder");
    assert_int_equal(unlink(from), 0);
    refuse(&f, "none", "does not stand in the folder");
    hf_folder_path(&f, "1_Pooling", from);
    hf_folder_path(&other, "1_Pooling", to);
    assert_int_equal(rmdir(from), 0);
    assert_int_equal(symlink(to, from), 0);
    refuse(&f, "a folder", "leaves the model's folder");
    hf_folder_drop(&f);
    hf_folder_drop(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_names_of_old_and_new_files),
        cmocka_unit_test(reads_nomic_of_the_first_release),
        cmocka_unit_test(knows_the_longest_text),
        cmocka_unit_test(reads_poolings),
        cmocka_unit_test(reads_vocabularies),
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(refuses_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
