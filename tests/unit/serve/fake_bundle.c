/* fake_bundle.c - `fake_bundle DIR CONTEXT`: a bundle for fake_engine.
 *
 * Its vocabulary is <unk>, <s>, </s>, the 256 bytes (id = byte + 3),
 * <|im_start|> (259) and <|im_end|> (260), with a ChatML template; BOS is
 * added. There are no weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/bundle.h"
#include "tests/unit/layer.h"
#include "tests/unit/model/vocab.h"

#define VOCAB 261

static const char chatml[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

static void put_vocab(const char *path)
{
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    static const char *const last[] = {"<|im_start|>", "<|im_end|>"};
    struct vocab v;
    vocab_init(&v);
    vocab_str(&v, "general.architecture", "llama");
    vocab_str(&v, "tokenizer.ggml.model", "llama");
    vocab_array(&v, "tokenizer.ggml.tokens", 8, VOCAB);
    for (size_t i = 0; i < VOCAB; i++) {
        char byte[8];
        (void)snprintf(byte, sizeof(byte), "<0x%02X>", (unsigned)(i - 3) & 255);
        const char *s = i < 3 ? first[i] : i < 259 ? byte : last[i - 259];
        vocab_put_str(&v, s, strlen(s));
    }
    vocab_array(&v, "tokenizer.ggml.scores", 6, VOCAB);
    for (size_t i = 0; i < VOCAB; i++) {
        buf_f32(&v.kv, 0);
    }
    vocab_array(&v, "tokenizer.ggml.token_type", 5, VOCAB);
    for (size_t i = 0; i < VOCAB; i++) {
        buf_u32(&v.kv, i == 0 ? 2 : i < 3 || i > 258 ? 3 : 6);
    }
    vocab_u32(&v, "tokenizer.ggml.bos_token_id", 1);
    vocab_u32(&v, "tokenizer.ggml.eos_token_id", 2);
    vocab_bool(&v, "tokenizer.ggml.add_bos_token", true);
    vocab_bool(&v, "tokenizer.ggml.add_space_prefix", false);
    vocab_str(&v, "tokenizer.chat_template", chatml);
    vocab_save(&v, path);
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[1100];
    struct err e = {0};
    must(file_join(path, sizeof(path), dir, name));
    unit_ok(file_write(path, text, strlen(text), &e), &e);
}

int main(int argc, char **argv)
{
    static const char *functions[] = {"main"};
    static uint32_t function_t[] = {0};
    static const struct layer layer = UNIT_LAYER(1, 4, 4);
    static struct bundle_shard shard = {.path = "layers_00_01.mlpackage",
                                        .last = 1,
                                        .t_min = 1,
                                        .t_max = 4,
                                        .n_functions = 1,
                                        .functions = functions,
                                        .function_t = function_t};
    static struct bundle_head head = {.path = "head_0.mlpackage",
                                      .vocab_last = VOCAB,
                                      .t_min = 1,
                                      .t_max = 4};
    static char embed[VOCAB * 4 * 2 + 1];
    char path[1100];
    struct err e = {0};
    struct bundle b = {.name = "fake",
                       .architecture = "llama",
                       .n_layers = 1,
                       .d_model = 4,
                       .n_heads = 1,
                       .n_kv_heads = 1,
                       .d_head = 4,
                       .d_ff = 4,
                       .vocab = VOCAB,
                       .context_train = 4096,
                       .norm_eps = 1e-5F,
                       .quant = "fp16",
                       .shape = "ranged",
                       .kv = "state",
                       .norm = "scale",
                       .embed_scale = 1,
                       .residual_scale = 1,
                       .margin = 100,
                       .layers = &layer,
                       .logit_scale = 1,
                       .n_shards = 1,
                       .shards = &shard,
                       .n_heads_shards = 1,
                       .heads = &head,
                       .embed_file = "embed.bin",
                       .tokenizer_file = "tokenizer.gguf",
                       .source_name = "fake.gguf",
                       .source_bytes = 1,
                       .converter_version = "fake"};
    if (argc != 3) {
        (void)fprintf(stderr, "usage: fake_bundle DIR CONTEXT\n");
        return EXIT_USAGE;
    }
    const char *dir = argv[1];
    b.context = (uint32_t)strtoul(argv[2], NULL, 10);
    b.rope = (struct bundle_rope){
        .present = true, .dim = 4, .base = 1e4F, .scale = 1, .magnitude = 1};
    memset(b.source_sha256, 'a', SHA256_HEX - 1);
    memset(embed, 'e', sizeof(embed) - 1);
    arena_init(&b.arena, 0);
    const char *packages[] = {shard.path, head.path};
    for (size_t i = 0; i < countof(packages); i++) {
        must(file_join(path, sizeof(path), dir, packages[i]));
        unit_ok(file_mkdirs(path, 0700, &e), &e);
        put(path, "Manifest.json", "{}");
    }
    put(dir, "embed.bin", embed);
    must(file_join(path, sizeof(path), dir, "tokenizer.gguf"));
    put_vocab(path);
    unit_ok(bundle_write(dir, &b, &e), &e);
    arena_fini(&b.arena);
    return EXIT_SUCCESS;
}
