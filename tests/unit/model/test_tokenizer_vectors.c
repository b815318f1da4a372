/* test_tokenizer_vectors.c - every published vector in the shared data whose
 * vocabulary is there too. VECTORS.md is the table of what is covered and what
 * is not; this test prints the counts it was made from.
 */
#include <unistd.h>

#include "model/tokenizer.h"
#include "proto/json.h"
#include "tests/unit/model/vocab.h"
#include "tests/unit/unit.h"

static char tmp[256]; /* a folder for vocabularies made here */

static const char *data_path(const char *name)
{
    static char path[2][1024];
    static int turn;
    turn = !turn;
    (void)snprintf(path[turn], sizeof(path[turn]), "%s/data/%s", unit_shared(),
                   name);
    return path[turn];
}

static const char *tmp_path(const char *name)
{
    static char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", tmp, name);
    return path;
}

static struct tokenizer *open_path(const char *path)
{
    struct err e = {0};
    struct tokenizer *t = NULL;
    unit_ok(tokenizer_open(path, &t, &e), &e);
    return t;
}

static struct tokenizer *open_shared(const char *name)
{
    return open_path(data_path(name));
}

struct tally {
    const char *name;
    int good, all;
    bool bad_decode;
    struct tokenizer_words *words; /* of all texts, until it is told */
};

static void tell(const struct tally *y)
{
    tokenizer_words_free(y->words);
    print_message("# %-60s %d/%d\n", y->name, y->good, y->all);
    if (y->good != y->all || y->all == 0) {
        fail_msg("%s: %d of %d", y->name, y->good, y->all);
    }
}

static void show(const char *what, const int32_t *ids, size_t n, size_t from)
{
    print_message("#   %s (%zu) from %zu:", what, n, from);
    for (size_t i = from; i < n && i < from + 12; i++) {
        print_message(" %d", ids[i]);
    }
    print_message("\n");
}

/* text must give want, after `skip` ids that the model's own tokenizer puts
 * in front (BOS). Decoding without them must give the text back. */
static void check(struct tally *y, const struct tokenizer *t, const char *text,
                  size_t n, bool special, const int32_t *want, size_t n_want)
{
    struct err e = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    size_t skip = 0;
    if (n_want > 0 && want[0] == tokenizer_bos(t) && tokenizer_add_bos(t) &&
        !(special && n >= 3 && memcmp(text, "<s>", 3) == 0)) {
        skip = 1;
    }
    unit_ok(tokenizer_encode(t, text, n, special, &ids, &n_ids, &e), &e);
    y->words = y->words != NULL ? y->words : tokenizer_words_new();
    for (int i = 0; i < 2; i++) { /* and with the words of all texts before */
        int32_t *again = NULL;
        size_t n_again = 0;
        unit_ok(tokenizer_encode_words(t, y->words, text, n, special, &again,
                                       &n_again, &e),
                &e);
        assert_int_equal(n_again, n_ids);
        assert_memory_equal(again, ids, n_ids * sizeof(*ids));
        free(again);
    }
    y->all++;
    size_t i = 0;
    while (i < n_ids && i + skip < n_want && ids[i] == want[i + skip]) {
        i++;
    }
    if (i == n_ids && i + skip == n_want) {
        y->good++;
    } else {
        print_message("# %s: \"%.*s\" differs at token %zu\n", y->name,
                      (int)(n < 60 ? n : 60), text, i);
        show("got", ids, n_ids, i);
        show("want", want + skip, n_want - skip, i);
    }
    free(ids);
}

static size_t numbers(const struct json *a, int32_t *out, size_t max)
{
    size_t n = 0;
    for (const struct json *c = json_first(a); c != NULL; c = json_next(c)) {
        assert_true(n < max);
        out[n++] = (int32_t)json_num(c);
    }
    return n;
}

#define IDS_MAX 65536
static int32_t ids_buf[IDS_MAX];

#define NUL_ESCAPE "\\uE001" /* private use, for NUL */
#define NUL_BYTES  "\xEE\x80\x81"

static void check_json(struct tally *y, const struct tokenizer *t,
                       const char *text, bool special, const struct json *ids)
{
    assert_non_null(text);
    assert_non_null(ids);
    size_t n = numbers(ids, ids_buf, IDS_MAX);
    struct buf plain;
    buf_init(&plain, (size_t)1 << 20);
    for (const char *nul = strstr(text, NUL_BYTES); nul != NULL;
         nul = strstr(text, NUL_BYTES)) {
        buf_put(&plain, text, (size_t)(nul - text));
        buf_u8(&plain, 0);
        text = nul + strlen(NUL_BYTES);
    }
    buf_puts(&plain, text);
    check(y, t, plain.p, plain.n, special, ids_buf, n);
    buf_fini(&plain);
}

static struct json *read_json(const char *path)
{
    struct err e = {0};
    struct buf b = {0};
    struct json *j = NULL;
    unit_ok(file_read(path, (size_t)1 << 26, &b, &e), &e);
    /* Our JSON refuses NUL in strings; some vectors are about it. */
    for (char *p = strstr(b.p, "\\u0000"); p != NULL;
         p = strstr(p, "\\u0000")) {
        memcpy(p, NUL_ESCAPE, 6);
    }
    unit_ok(json_parse(b.p, b.n, &j, &e), &e);
    buf_fini(&b);
    return j;
}

/* llama.cpp's pairs: inputs between separators, a line of ids for each. */
static void check_inp(const char *name, const char *stem,
                      const struct tokenizer *t)
{
    static const char gap[] = "\n__ggml_vocab_test__\n";
    struct err e = {0};
    struct buf in = {0};
    struct buf out = {0};
    struct tally y = {.name = name};
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s.inp", stem);
    unit_ok(file_read(path, (size_t)1 << 20, &in, &e), &e);
    (void)snprintf(path, sizeof(path), "%s.out", stem);
    unit_ok(file_read(path, (size_t)1 << 20, &out, &e), &e);
    char *line = out.p;
    for (char *text = in.p; text != NULL;) {
        char *end = strstr(text, gap);
        size_t n =
            end != NULL ? (size_t)(end - text) : (size_t)(in.p + in.n - text);
        size_t n_ids = 0;
        if (line >= out.p + out.n) {
            break; /* the last separator ends the file */
        }
        char *eol = strchr(line, '\n');
        for (char *p = line; p < eol;) {
            char *next = NULL;
            ids_buf[n_ids] = (int32_t)strtol(p, &next, 10);
            if (next == p || next > eol) {
                break;
            }
            n_ids++;
            p = next;
        }
        check(&y, t, text, n, false, ids_buf, n_ids);
        line = eol + 1;
        text = end != NULL ? end + strlen(gap) : NULL;
    }
    buf_fini(&in);
    buf_fini(&out);
    tell(&y);
}

static void test_gguf_vocab(void **state)
{
    (void)state;
    static const char *const names[] = {
        "tokenizers/gguf-vocab/ggml-vocab-bert-bge.gguf",
        "tokenizers/gguf-vocab/ggml-vocab-deepseek-llm.gguf",
        "tokenizers/gguf-vocab/ggml-vocab-falcon.gguf",
        "tokenizers/gguf-vocab/ggml-vocab-gpt-2.gguf",
        "tokenizers/gguf-vocab/ggml-vocab-llama-spm.gguf",
        "tokenizers/gguf-vocab/ggml-vocab-refact.gguf",
        "tokenizers/gguf-derived/ggml-vocab-phi-4-mini.gguf",
    };
    if (unit_shared() == NULL) {
        skip();
    }
    for (size_t i = 0; i < countof(names); i++) {
        struct tokenizer *t = open_shared(names[i]);
        check_inp(names[i], data_path(names[i]), t);
        tokenizer_close(t);
    }
}

/* No vectors: every id comes back from its own piece, texts survive. */
static void test_without_vectors(void **state)
{
    (void)state;
    static const char *const names[] = {
        "tokenizers/gguf-vocab/ggml-vocab-baichuan.gguf",
        "tokenizers/gguf-vocab/ggml-vocab-gpt-neox.gguf",
        "gguf/legacy/ggml-vocab-gpt2.nopre.gguf",
    };
    static const char text[] =
        "Hello  world, 1234567\n\n\tint main(void) { return 0; }  "
        "caf\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80 it's";
    if (unit_shared() == NULL) {
        skip();
    }
    for (size_t i = 0; i < countof(names); i++) {
        struct err e = {0};
        struct tokenizer *t = open_shared(names[i]);
        int32_t *ids = NULL;
        size_t n = 0;
        struct buf b;
        buf_init(&b, 4096);
        unit_ok(tokenizer_encode(t, text, strlen(text), false, &ids, &n, &e),
                &e);
        tokenizer_decode(t, ids, n, false, &b);
        assert_int_equal(b.n, strlen(text));
        assert_memory_equal(b.p, text, b.n);
        print_message("# %-60s round trip, %zu tokens\n", names[i], n);
        free(ids);
        buf_fini(&b);
        tokenizer_close(t);
    }
}

/* --- vectors of other projects, all as {text, ids} --- */

static void check_transformersjs(const char *file, const struct tokenizer *t)
{
    char name[256];
    struct tally y = {.name = name};
    (void)snprintf(name, sizeof(name), "tokenizers/vectors/transformersjs/%s",
                   file);
    struct json *j = read_json(data_path(name));
    for (const struct json *c = json_first(json_get(j, "cases")); c != NULL;
         c = json_next(c)) {
        check_json(&y, t, json_str(json_get(c, "text")), true,
                   json_get(c, "ids"));
    }
    json_free(j);
    tell(&y);
}

static void check_swift(const char *file, const struct tokenizer *t)
{
    char name[256];
    struct tally y = {.name = name};
    (void)snprintf(name, sizeof(name), "tokenizers/vectors/swift/%s", file);
    struct json *j = read_json(data_path(name));
    check_json(&y, t, json_str(json_get(j, "text")), true,
               json_get(j, "token_ids"));
    json_free(j);
    tell(&y);
}

static void check_multilingual(const char *file, const struct tokenizer *t)
{
    char name[256];
    struct tally y = {.name = name};
    (void)snprintf(name, sizeof(name),
                   "tokenizers/vectors/swift-multilingual/%s", file);
    struct json *in = read_json(
        data_path("tokenizers/vectors/swift-multilingual/inputs.json"));
    struct json *j = read_json(data_path(name));
    const struct json *text = json_first(in);
    for (const struct json *c = json_first(json_get(j, "entries")); c != NULL;
         c = json_next(c)) {
        assert_string_equal(json_str(json_get(text, "id")),
                            json_str(json_get(c, "id")));
        check_json(&y, t, json_str(json_get(text, "text")), true,
                   json_get(c, "input_ids"));
        text = json_next(text);
    }
    json_free(in);
    json_free(j);
    tell(&y);
}

/* gpt-tokenizer's plans: three lines a case, the sample may have newlines. */
static void check_plans(const char *encoding, const struct tokenizer *t)
{
    char name[128];
    struct err e = {0};
    struct buf b = {0};
    struct tally y = {.name = name};
    (void)snprintf(name, sizeof(name),
                   "tokenizers/vectors/gpt-tokenizer.TestPlans.txt, %s",
                   encoding);
    unit_ok(
        file_read(data_path("tokenizers/vectors/gpt-tokenizer.TestPlans.txt"),
                  (size_t)1 << 20, &b, &e),
        &e);
    char head[64];
    (void)snprintf(head, sizeof(head), "EncodingName: %s\nSample: ", encoding);
    for (char *p = strstr(b.p, head); p != NULL; p = strstr(p, head)) {
        char *text = p + strlen(head);
        char *end = strstr(text, "\nEncoded: [");
        assert_non_null(end);
        char *ids = end + strlen("\nEncoded: [");
        size_t n_ids = 0;
        for (p = ids; *p != ']';) {
            ids_buf[n_ids++] = (int32_t)strtol(p, &p, 10);
            p += strspn(p, ", ");
        }
        check(&y, t, text, (size_t)(end - text), false, ids_buf, n_ids);
    }
    buf_fini(&b);
    tell(&y);
}

static void check_lib_rs(const char *file, const struct tokenizer *t)
{
    struct err e = {0};
    struct buf b = {0};
    char name[128];
    struct tally y = {.name = name};
    (void)snprintf(name, sizeof(name), "tokenizers/vectors/%s", file);
    unit_ok(file_read(data_path("tokenizers/vectors/gpt-tokenizer.lib.rs.txt"),
                      (size_t)1 << 20, &b, &e),
            &e);
    struct json *j = read_json(data_path(name));
    size_t n = numbers(j, ids_buf, IDS_MAX);
    check(&y, t, b.p, b.n, false, ids_buf, n);
    json_free(j);
    buf_fini(&b);
    tell(&y);
}

static void check_orion(const struct tokenizer *t)
{
    struct tally y = {.name = "tokenizers/vectors/orion.tokenizer_golden.json"};
    struct json *j = read_json(data_path(y.name));
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        check_json(&y, t, json_str(json_get(c, "text")), true,
                   json_get(c, "tokens"));
    }
    json_free(j);
    tell(&y);
}

static void test_gpt2(void **state)
{
    (void)state;
    if (unit_shared() == NULL) {
        skip();
    }
    struct tokenizer *t =
        open_shared("tokenizers/gguf-vocab/ggml-vocab-gpt-2.gguf");
    check_transformersjs("gpt2.json", t);
    check_swift("gpt2_encoded_tokens.json", t);
    check_multilingual("gpt2_multilingual.json", t);
    check_plans("r50k_base", t);
    check_lib_rs("ms-tokenizer.tokens_gpt2.json", t);
    check_orion(t);
    tokenizer_close(t);
}

static void test_falcon(void **state)
{
    (void)state;
    if (unit_shared() == NULL) {
        skip();
    }
    struct tokenizer *t =
        open_shared("tokenizers/gguf-vocab/ggml-vocab-falcon.gguf");
    check_transformersjs("falcon-7b.json", t);
    check_swift("falcon_encoded.json", t);
    tokenizer_close(t);
}

static void test_llama2(void **state)
{
    (void)state;
    if (unit_shared() == NULL) {
        skip();
    }
    struct tokenizer *t =
        open_shared("tokenizers/gguf-vocab/ggml-vocab-llama-spm.gguf");
    check_swift("llama_encoded.json", t);
    check_transformersjs("llama2.json", t);
    check_multilingual("tinyllama_multilingual.json", t);
    tokenizer_close(t);
}

/* A vocabulary from a rank file, with its control tokens after the ranks. */
static struct tokenizer *from_ranks(const char *file, size_t max,
                                    const char *pre,
                                    const char *const *specials, size_t n)
{
    struct ranks r;
    const char *path = tmp_path("ranks.gguf");
    assert_true(ranks_read(data_path(file), max, &r));
    ranks_save(&r, pre, specials, n, path);
    ranks_free(&r);
    return open_path(path);
}

static void test_llama3(void **state)
{
    (void)state;
    static const char *const specials[] = {"<|begin_of_text|>",
                                           "<|end_of_text|>"};
    if (unit_shared() == NULL) {
        skip();
    }
    struct tokenizer *t =
        from_ranks("tokenizers/bpe-ranks/llama3.tokenizer.model", 128000,
                   "llama-bpe", specials, countof(specials));
    check_inp("tokenizers/gguf-vocab-vectors-only/ggml-vocab-llama-bpe.gguf",
              data_path("tokenizers/gguf-vocab-vectors-only/"
                        "ggml-vocab-llama-bpe.gguf"),
              t);
    check_transformersjs("llama3.json", t);
    check_swift("llama_3.2_encoded.json", t);
    tokenizer_close(t);

    /* cl100k is the first 100256 ranks of llama 3's */
    t = from_ranks("tokenizers/bpe-ranks/llama3.tokenizer.model", 100256,
                   "dbrx", NULL, 0);
    check_plans("cl100k_base", t);
    check_transformersjs("gpt-4_cl100k.json", t);
    tokenizer_close(t);
}

static void test_qwen(void **state)
{
    (void)state;
    static const char *const specials[] = {"<|endoftext|>", "<|im_start|>",
                                           "<|im_end|>"};
    if (unit_shared() == NULL) {
        skip();
    }
    struct tokenizer *t =
        from_ranks("tokenizers/bpe-ranks/qwen.tiktoken", 151643, "qwen2",
                   specials, countof(specials));
    check_inp("tokenizers/gguf-vocab-vectors-only/ggml-vocab-qwen2.gguf",
              data_path("tokenizers/gguf-vocab-vectors-only/"
                        "ggml-vocab-qwen2.gguf"),
              t);
    check_transformersjs("qwen1.5-qwen2.json", t);
    check_multilingual("qwen2_5_multilingual.json", t);
    tokenizer_close(t);
    t = from_ranks("tokenizers/bpe-ranks/qwen.tiktoken", 151643,
                   "deepseek-r1-qwen", NULL, 0);
    check_inp(
        "tokenizers/gguf-vocab-vectors-only/ggml-vocab-deepseek-r1-qwen.gguf",
        data_path("tokenizers/gguf-vocab-vectors-only/"
                  "ggml-vocab-deepseek-r1-qwen.gguf"),
        t);
    tokenizer_close(t);
}

static void test_o200k(void **state)
{
    (void)state;
    if (unit_shared() == NULL) {
        skip();
    }
    struct tokenizer *t = from_ranks("tokenizers/bpe-ranks/o200k_base.tiktoken",
                                     199998, "gpt-4o", NULL, 0);
    check_plans("o200k_base", t);
    check_transformersjs("gpt-4o_o200k.json", t);
    check_lib_rs("ms-tokenizer.tokens_gpt_4o.json", t);
    tokenizer_close(t);
}

/* Rendered conversations: U+2581 stands for a space in the text files, and
 * the vocabulary's own space prefix is already written out. */
static void check_mistral(const char *sample, int version)
{
    static const char *const models[] = {
        "", "tokenizers/spm/mistral.tokenizer.model.v1",
        "tokenizers/spm/mistral.model.v2", "tokenizers/spm/mistral.model.v3"};
    char name[256];
    struct err e = {0};
    struct buf text = {0};
    struct buf plain;
    struct tally y = {.name = name};
    const char *path = tmp_path("mistral.gguf");
    assert_true(spm_save(data_path(models[version]), false, path));
    struct tokenizer *t = open_path(path);
    (void)snprintf(name, sizeof(name),
                   "tokenizers/vectors/mistral-samples/%s/text_v%d.txt", sample,
                   version);
    unit_ok(file_read(data_path(name), (size_t)1 << 20, &text, &e), &e);
    buf_init(&plain, (size_t)1 << 20);
    for (size_t i = 0; i < text.n;) {
        if (text.n - i >= 3 && memcmp(text.p + i, "\xE2\x96\x81", 3) == 0) {
            buf_puts(&plain, " ");
            i += 3;
        } else if (strncmp(text.p + i, "<0x0A>", 6) == 0) {
            buf_puts(&plain, "\n");
            i += 6;
        } else {
            buf_put(&plain, text.p + i, 1);
            i++;
        }
    }
    char tokens[256];
    (void)snprintf(tokens, sizeof(tokens),
                   "tokenizers/vectors/mistral-samples/%s/tokens_v%d.json",
                   sample, version);
    struct json *j = read_json(data_path(tokens));
    size_t n = numbers(json_get(j, "tokens"), ids_buf, IDS_MAX);
    check(&y, t, plain.p, plain.n, true, ids_buf, n);
    json_free(j);
    buf_fini(&text);
    buf_fini(&plain);
    tokenizer_close(t);
    tell(&y);
}

static void test_mistral(void **state)
{
    (void)state;
    if (unit_shared() == NULL) {
        skip();
    }
    check_mistral("no_tools", 1);
    for (int version = 2; version <= 3; version++) {
        check_mistral("no_tools", version);
        check_mistral("get_weather_full", version);
        check_mistral("get_weather_no_history", version);
        check_mistral("get_weather_no_system_prompt", version);
    }
}

/* Prompts of the greedy runs: what llama.cpp saw. */
static void test_models(void **state)
{
    (void)state;
    if (unit_shared() == NULL) {
        skip();
    }
    static const char *const models[][2] = {
        {"stories260K.F32",     "models/derived/stories260K.F32.gguf"   },
        {"stories260K.Q4_K_M",  "models/derived/stories260K.Q4_K_M.gguf"},
        {"llama-2-tiny-random", "models/llama-2-tiny-random.gguf"       },
    };
    struct json *j =
        read_json(data_path("models/derived/expected_greedy.json"));
    for (size_t i = 0; i < countof(models); i++) {
        struct tally y = {.name = models[i][1]};
        struct tokenizer *t = open_shared(models[i][1]);
        for (const struct json *c = json_first(json_get(j, models[i][0]));
             c != NULL; c = json_next(c)) {
            check_json(&y, t, json_str(json_get(c, "prompt")), false,
                       json_get(c, "prompt_tokens"));
        }
        tokenizer_close(t);
        tell(&y);
    }
    json_free(j);
}

static void test_not_covered(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"gguf-vocab-vectors-only: command-r, tekken, smollm, chameleon, "
         "roberta-bpe",                            "their vocabularies are not in the data" },
        {"gpt-tokenizer.TestPlans: p50k_base, p50k_edit",
         "their ranks are not in the data"                                                           },
        {"swift/gemma_encoded.json",
         "the Gemma 1 vocabulary is not in the data"                                                 },
        {"transformersjs/bert-base-uncased.json, swift-multilingual/bge_small, "
         "t5_small",                               "their vocabularies are not in the data" },
        {"transformersjs/tinyllama-v0.json",
         "its own vocabulary is not in the data"                                                     },
        {"openai-harmony/*.txt",                            "rendered prompts without ids"           },
        {"hf/*.json",                                       "tokenizer.json is read by a later issue"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        print_message("# not covered: %s: %s\n", rows[i][0], rows[i][1]);
    }
}

static int setup(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    (void)snprintf(tmp, sizeof(tmp), "%s/aned-vectors-XXXXXX",
                   base != NULL ? base : "/tmp");
    return mkdtemp(tmp) == NULL;
}

static int teardown(void **state)
{
    (void)state;
    struct err e = {0};
    return file_rmtree(tmp, &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf_vocab),
        cmocka_unit_test(test_without_vectors),
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_falcon),
        cmocka_unit_test(test_llama2),
        cmocka_unit_test(test_llama3),
        cmocka_unit_test(test_qwen),
        cmocka_unit_test(test_o200k),
        cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_not_covered),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
