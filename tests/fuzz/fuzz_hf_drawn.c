/* fuzz_hf_drawn.c - a small folder of the transformers library whose files are
 * drawn from their grammar (draw.h): every kind of tokenizer.json with its
 * normalizers, pre-tokenizers, decoders, added tokens; tokenizer.model of both
 * kinds; keys of config.json. What is accepted must encode any text, to ids of
 * its vocabulary, and take them back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../unit/source/hf_weights.h"
#include "base/utf8.h"
#include "convert/arch/arch.h"
#include "draw.h"
#include "model/tokenizer.h"
#include "source/hf/hf.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* What is read must not be optimised away. */
volatile int64_t sink;

#define SPACE "\xE2\x96\x81"

/* As they stand in JSON. */
static const char *const texts[] = {
    "a", "b", "ab", "ba", "abab", SPACE, SPACE "a", "a" SPACE, SPACE SPACE, " ",
    "  ", "\\n", "\\r\\n", "\xC3\xA9", "e\xCC\x81", "\xE4\xBD\xA0", "<0x0A>",
    "<0x41>", "<0xC3>", "<0xZZ>", "<s>", "</s>", "<unk>", "<pad>", "<mask>",
    "\xC4\xA0", "\xC4\xA0" "a", "\xC4\x8A", "", "\xEF\xAC\x81",
    "\xF0\x9F\x99\x82", "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
    "\\u0000", "\\ud800", "1", "123", "'s", "\xEF\xBF\xBD",
};
static const char *const numbers[] = {
    "0", "-1.5", "-2", "-3.25", "-1", "1", "2", "3", "8", "1e38", "-1e39", "1e-45", "-1e308",
    "9223372036854775807", "9223372036854775808", "4294967296", "262144", "null",
    "true", "\"1\"", "[]", "0.5",
};

static void text(struct buf *b, struct draw *d)
{
    buf_printf(b, "\"%s\"", draw_of(d, texts));
}
static void number(struct buf *b, struct draw *d)
{
    buf_puts(b, draw_of(d, numbers));
}
static void boolean(struct buf *b, struct draw *d)
{
    buf_puts(b, draw_one_in(d, 2) ? "true" : "false");
}
/* Mostly the first, which is right. */
static const char *mostly(struct draw *d, const char *right, const char *wrong)
{
    return draw_one_in(d, 12) ? wrong : right;
}

/* --- parts of tokenizer.json --- */

static void base64(struct buf *b, const uint8_t *p, size_t n)
{
    static const char digit[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 |
                     (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0u);
        for (unsigned k = 0; k < 4; k++) {
            char c = digit[v >> (18 - 6 * k) & 63];
            buf_u8(b, (uint8_t)(i + k > n ? '=' : c));
        }
    }
}

/* A table of characters with texts of one byte, and some units changed. */
static void charsmap(struct buf *b, struct draw *d)
{
    static const char by[] = " \0x\0\0fi\0" SPACE;
    uint32_t unit[512] = {0};
    unit[0] = 256u << 10;
    for (unsigned n = draw_below(d, 8); n > 0; n--) {
        unsigned c = draw_byte(d);
        unit[256 ^ c] = c | 1u << 8 | 256u << 10;
        unit[c] = c > 0 ? draw_below(d, (unsigned)sizeof(by) + 1) : unit[0];
    }
    for (unsigned n = draw_below(d, 3); n > 0; n--) {
        uint32_t v = draw_below(d, 65536);
        unit[draw_below(d, 512)] = v << draw_below(d, 17);
    }
    buf_u32(b, draw_one_in(d, 16) ? (uint32_t)draw_below(d, 65536) << 8
                                  : (uint32_t)sizeof(unit));
    for (size_t i = 0; i < countof(unit); i++) {
        buf_u32(b, unit[i]);
    }
    buf_put(b, by, sizeof(by) - draw_below(d, 2));
}

static void normalizer(struct buf *b, struct draw *d, unsigned deep)
{
    static const char *const plain[] = {"NFC", "NFD", "NFKC", "NFKD", "Nmt",
                                        "Lowercase", "StripAccents",
                                        "BertNormalizer", "ByteLevel", ""};
    switch (draw_below(d, deep > 0 ? 8 : 7)) {
    case 0:
        buf_puts(b, "null");
        break;
    case 1:
    case 2:
        buf_printf(b, "{\"type\":\"%s\"}", draw_of(d, plain));
        break;
    case 3: {
        struct buf table;
        buf_init(&table, KIB(4));
        charsmap(&table, d);
        buf_puts(b, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
        base64(b, (const uint8_t *)table.p,
               table.n - (draw_one_in(d, 16) ? 7 : 0));
        buf_puts(b, "\"}");
        buf_fini(&table);
        break;
    }
    case 4:
        buf_puts(b, "{\"type\":\"Replace\",\"pattern\":{");
        if (draw_one_in(d, 3)) {
            buf_printf(b, "\"Regex\":\"%s\"", mostly(d, " {2,}", "\\\\s+"));
        } else {
            buf_printf(b, "\"String\":\"%s\"", draw_one_in(d, 2) ? draw_of(d, texts) : " ");
        }
        buf_printf(b, "},\"content\":\"%s\"}", draw_one_in(d, 2) ? draw_of(d, texts) : SPACE);
        break;
    case 5:
        buf_puts(b, "{\"type\":\"Strip\",\"strip_left\":");
        boolean(b, d);
        buf_puts(b, ",\"strip_right\":");
        boolean(b, d);
        buf_puts(b, "}");
        break;
    case 6:
        buf_printf(b, "{\"type\":\"Prepend\",\"prepend\":\"%s\"}",
                   draw_one_in(d, 2) ? draw_of(d, texts) : SPACE);
        break;
    default:
        buf_puts(b, "{\"type\":\"Sequence\",\"normalizers\":[");
        for (unsigned i = 0, n = draw_below(d, 5); i < n; i++) {
            buf_puts(b, i > 0 ? "," : "");
            normalizer(b, d, deep - 1);
        }
        buf_puts(b, "]}");
    }
}

static void pre_tokenizer(struct buf *b, struct draw *d, unsigned deep)
{
    static const char *const schemes[] = {"always", "first", "never", "often"};
    static const char *const plain[] = {"WhitespaceSplit", "Digits", "Whitespace",
                                        "Punctuation", "BertPreTokenizer"};
    static const char *const regexes[] = {
        "\\\\p{N}{1,3}", "\\\\p{N}", "[^\\\\n]+|[\\\\n]+", "(a+)+", "("};
    switch (draw_below(d, deep > 0 ? 6 : 5)) {
    case 0:
        buf_puts(b, "null");
        break;
    case 1:
        buf_printf(b, "{\"type\":\"Metaspace\",\"replacement\":\"%s\",", mostly(d, SPACE, "_"));
        if (draw_one_in(d, 3)) {
            buf_puts(b, "\"add_prefix_space\":");
            boolean(b, d);
        } else {
            buf_printf(b, "\"prepend_scheme\":\"%s\"", draw_of(d, schemes));
        }
        buf_puts(b, ",\"split\":");
        boolean(b, d);
        buf_puts(b, "}");
        break;
    case 2:
        buf_printf(b, "{\"type\":\"%s\"}", draw_of(d, plain));
        break;
    case 3:
        buf_puts(b, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":");
        boolean(b, d);
        buf_puts(b, "}");
        break;
    case 4:
        buf_printf(b, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"%s\",\"invert\":",
                   draw_of(d, regexes), mostly(d, "Isolated", "Removed"));
        boolean(b, d);
        buf_puts(b, "}");
        break;
    default:
        buf_puts(b, "{\"type\":\"Sequence\",\"pretokenizers\":[");
        for (unsigned i = 0, n = draw_below(d, 4); i < n; i++) {
            buf_puts(b, i > 0 ? "," : "");
            pre_tokenizer(b, d, deep - 1);
        }
        buf_puts(b, "]}");
    }
}

static void added_tokens(struct buf *b, struct draw *d)
{
    static const char *const flags[] = {"lstrip", "rstrip", "normalized",
                                        "special"};
    buf_puts(b, "\"added_tokens\":[");
    for (unsigned i = 0, n = draw_below(d, 4); i < n; i++) {
        buf_printf(b, "%s{\"id\":%u,\"content\":\"%s\"", i > 0 ? "," : "",
                   draw_below(d, 40), draw_of(d, texts));
        for (size_t k = 0; k < countof(flags); k++) {
            if (draw_one_in(d, 3)) {
                buf_printf(b, ",\"%s\":true", flags[k]);
            }
        }
        buf_puts(b, draw_one_in(d, 20) ? ",\"single_word\":true}" : "}");
    }
    buf_puts(b, "],");
}

static void ends(struct buf *b, struct draw *d)
{
    static const char *const decoders[] = {
        "null", "{\"type\":\"ByteLevel\"}", "{\"type\":\"Metaspace\"}",
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}",
        "{\"type\":\"WordPiece\"}"};
    static const char *const processors[] = {
        "null",
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"</s>\"}}]}",
        "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}]}",
        "{\"type\":\"RobertaProcessing\"}"};
    buf_printf(b, "\"decoder\":%s,\"post_processor\":%s,", draw_of(d, decoders),
               draw_of(d, processors));
}

static void pieces(struct buf *b, struct draw *d)
{
    buf_puts(b, "{\"type\":\"Unigram\",\"unk_id\":");
    if (draw_one_in(d, 6)) {
        number(b, d);
    } else {
        buf_puts(b, "0");
    }
    buf_puts(b, ",\"byte_fallback\":");
    boolean(b, d);
    buf_puts(b, ",\"vocab\":[[\"<unk>\",0]");
    for (unsigned n = draw_below(d, 60); n > 0; n--) {
        buf_puts(b, ",[");
        text(b, d);
        if (draw_one_in(d, 30)) {
            buf_puts(b, ",");
            number(b, d);
        } else {
            buf_printf(b, ",-%u.%u", draw_below(d, 12), draw_below(d, 10));
        }
        buf_puts(b, "]");
    }
    buf_puts(b, "]}");
}

static void bpe(struct buf *b, struct draw *d)
{
    buf_puts(b, "{\"type\":\"BPE\",\"byte_fallback\":");
    boolean(b, d);
    buf_puts(b, ",\"ignore_merges\":");
    boolean(b, d);
    buf_puts(b, ",\"vocab\":{");
    for (size_t i = 0, n = 0; i < countof(texts); i++) { /* no text twice */
        if (texts[i][0] != '\\' && texts[i][0] != '\0') {
            buf_printf(b, "%s\"%s\":%u", n > 0 ? "," : "", texts[i],
                       draw_one_in(d, 60) ? draw_byte(d) : (unsigned)n);
            n++;
        }
        i += draw_one_in(d, 8);
    }
    buf_puts(b, "},\"merges\":[");
    for (unsigned i = 0, n = draw_below(d, 20); i < n; i++) {
        const char *left = draw_of(d, texts);
        buf_printf(b, i > 0 ? ",\"%s %s\"" : "\"%s %s\"", left, draw_of(d, texts));
    }
    buf_puts(b, "]}");
}

/* What stands around a BPE that is read: of bytes, of characters. */
static const char *const around_bpe[] = {
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":",
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
    "\"Prepend\",\"prepend\":\"" SPACE "\"},{\"type\":\"Replace\","
    "\"pattern\":{\"String\":\" \"},\"content\":\"" SPACE "\"}]},\"model\":",
};

static void tokenizer_json(struct buf *b, struct draw *d)
{
    buf_puts(b, "{");
    added_tokens(b, d);
    if (draw_one_in(d, 3)) {
        buf_puts(b, draw_of(d, around_bpe));
        bpe(b, d);
        buf_puts(b, "}");
        return;
    }
    buf_puts(b, "\"normalizer\":");
    normalizer(b, d, 2);
    buf_puts(b, ",\"pre_tokenizer\":");
    pre_tokenizer(b, d, 2);
    buf_puts(b, ",");
    ends(b, d);
    buf_puts(b, "\"model\":");
    if (draw_one_in(d, 6)) {
        bpe(b, d);
    } else {
        pieces(b, d);
    }
    buf_puts(b, "}");
}

/* --- tokenizer.model --- */

static void varint(struct buf *b, uint64_t v)
{
    for (; v > 127; v >>= 7) {
        buf_u8(b, (uint8_t)(v | 128));
    }
    buf_u8(b, (uint8_t)v);
}
static void field(struct buf *b, unsigned number_, const void *p, size_t n)
{
    varint(b, number_ << 3 | 2);
    varint(b, n);
    buf_put(b, p, n);
}
static void whole(struct buf *b, unsigned number_, uint64_t v)
{
    varint(b, number_ << 3);
    varint(b, v);
}

static void tokenizer_model(struct buf *b, struct draw *d)
{
    struct buf part;
    buf_init(&part, KIB(8));
    for (unsigned i = 0, n = draw_below(d, 60) + 1; i < n; i++) {
        const char *t = i == 0 ? "<unk>" : draw_of(d, texts);
        float score = i == 0 ? 0 : -(float)draw_below(d, 50) / 4;
        buf_clear(&part);
        field(&part, 1, t, strlen(t));
        varint(&part, 2 << 3 | 5);
        buf_f32(&part, draw_one_in(d, 40) ? (float)(0.0 / 0.0) : score);
        whole(&part, 3, i == 0 ? 2 : draw_one_in(d, 4) ? draw_below(d, 8) : 1);
        field(b, 1, part.p, part.n);
    }
    buf_clear(&part);
    unsigned kind = draw_one_in(d, 8) ? draw_below(d, 6) : 1 + draw_below(d, 2);
    whole(&part, 3, kind);
    whole(&part, 35, draw_below(d, 2));
    whole(&part, 40, draw_one_in(d, 8) ? draw_below(d, 65536) : 0);
    field(b, 2, part.p, part.n);
    buf_clear(&part);
    if (draw_one_in(d, 2)) {
        struct buf table;
        buf_init(&table, KIB(4));
        charsmap(&table, d);
        field(&part, 2, table.p, table.n);
        buf_fini(&table);
    }
    whole(&part, 3, draw_below(d, 2));
    whole(&part, 4, draw_below(d, 2));
    whole(&part, 5, draw_one_in(d, 8) ? 0 : 1);
    field(b, 3, part.p, part.n);
    buf_fini(&part);
}

/* --- config.json --- */

static void config(struct buf *b, struct draw *d)
{
    static const char *const keys[] = {
        "rope_theta", "bos_token_id", "eos_token_id", "attention_bias", "rope_scaling",
        "sliding_window", "layer_types", "mlp_bias", "partial_rotary_factor",
        "pretraining_tp", "quantization_config", "martian_scale"};
    static const char *const ropes[] = {"linear", "dynamic", "yarn", "longrope",
                                        "llama3", "default", "su"};
    buf_puts(b, "{");
    for (unsigned n = draw_below(d, 3); n > 0; n--) {
        buf_printf(b, "\"%s\":", draw_of(d, keys));
        number(b, d);
        buf_puts(b, ",");
    }
    if (draw_one_in(d, 4)) {
        buf_printf(b, "\"rope_parameters\":{\"rope_type\":\"%s\",\"factor\":",
                   draw_of(d, ropes));
        number(b, d);
        buf_puts(b, ",\"original_max_position_embeddings\":");
        number(b, d);
        buf_puts(b, ",\"low_freq_factor\":1,\"high_freq_factor\":4,\"short_factor\":[1,1],\"long_factor\":[1,");
        number(b, d);
        buf_puts(b, "]},");
    }
    buf_puts(b, HF_CONFIG "}");
}

/* --- the folder --- */

/* A descriptor of a file without a name. */
static void add_file(struct source_files *f, const char *name, struct buf *b)
{
    FILE *t = tmpfile();
    int fd = t != NULL ? dup(fileno(t)) : -1;
    must(fd >= 0 && buf_ok(b) && write(fd, b->p, b->n) == (ssize_t)b->n);
    (void)fclose(t);
    (void)snprintf(f->names[f->parts.n], sizeof(f->names[0]), "%s", name);
    f->parts.fd[f->parts.n++] = fd;
    buf_fini(b);
}

static void encode(const struct tokenizer *t, const char *p, size_t n)
{
    struct err e = {0};
    struct buf back;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    must(tokenizer_encode(t, p, n, n % 2 == 0, &ids, &n_ids, &e) == 0);
    for (size_t i = 0; i < n_ids; i++) {
        must(ids[i] >= 0 && ids[i] < tokenizer_vocab(t));
    }
    buf_init(&back, MIB(4));
    tokenizer_decode(t, ids, n_ids, false, &back);
    sink += (int64_t)back.n;
    buf_fini(&back);
    free(ids);
}

static void look(const struct gguf *g, struct draw *d)
{
    struct err e = {0};
    struct tokenizer *t = NULL;
    struct decoder arch = {0};
    int rc = tokenizer_of(g, &t, &e);
    must(rc == 0 || (e.code == rc && e.msg[0] != '\0'));
    for (size_t i = 0; rc == 0 && i < countof(texts); i++) {
        encode(t, texts[i], strlen(texts[i]));
    }
    if (rc == 0) {
        static const char longer[] = "a ab  abab" SPACE "\n\xC3\xA9\xFF\xE2\x96 e\xCC\x81\xE4\xBD\xA0<s></s> <mask>\xEF\xAC\x81\r\n";
        encode(t, longer, sizeof(longer) - 1);
        encode(t, (const char *)d->p, d->n);
    }
    tokenizer_close(t);
    if (arch_read(g, &arch, &e) == 0) {
        arch_fini(&arch);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct draw d = {p, n};
    struct source_files f = {.whole = true};
    struct gguf *g = NULL;
    struct err e = {0};
    struct buf b;
    f.parts.path = "folder";
    f.names = calloc(9, sizeof(*f.names));
    must(f.names != NULL);
    buf_init(&b, KIB(64));
    config(&b, &d);
    add_file(&f, "config.json", &b);
    hf_weights(&b, NULL, NULL);
    add_file(&f, "model.safetensors", &b);
    buf_init(&b, KIB(256));
    bool model = draw_one_in(&d, 3);
    if (model) {
        tokenizer_model(&b, &d);
    } else {
        tokenizer_json(&b, &d);
    }
    add_file(&f, model ? "tokenizer.model" : "tokenizer.json", &b);
    int rc = hf_open(&f, &g, &e);
    source_files_close(&f);
    if (rc == 0) {
        look(g, &d);
    } else {
        must(e.code == rc && e.msg[0] != '\0');
    }
    gguf_close(g);
    return 0;
}
