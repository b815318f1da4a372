/* constrain.c - what a grammar costs at each token of given texts, for
 * bench_constrain.py: CPU time of one thread, in microseconds.
 *
 *   bench_constrain TOKENIZER      (a GGUF, or a bundle's folder)
 *   in:  {"schema": S, "text": "..."}       a line each
 *   out: {"tokens": [id..], "compile": us, "cold": [us..], "again": [us..],
 *         "check": [us..], "draw": [us..], "masked": [us..]}
 *
 * cold: a mask that was not made before; again: the same masks a second time;
 * check: whether the next token is allowed, and moving behind it; draw: a token
 * at temperature 1 among all, which every token costs; masked: among those of
 * the mask, which comes on top where the first was not allowed.
 */
#include <string.h>
#include <time.h>

#include "engine/sampler.h"
#include "model/grammar/mask.h"
#include "model/tokenizer.h"
#include "proto/json.h"

struct bench {
    struct tokenizer *tok;
    struct trie *trie;
    struct sampler *sampler;
    float *logits; /* (vocab) */
    uint32_t vocab;
};

struct costs {
    struct json *cold, *again, *check, *draw, *masked;
};

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int open_bench(struct bench *b, const char *path, struct err *e)
{
    RETERR(tokenizer_open(path, &b->tok, e));
    b->vocab = (uint32_t)tokenizer_vocab(b->tok);
    struct span *pieces = calloc(b->vocab, sizeof(*pieces));
    uint8_t *kinds = calloc(b->vocab, 1);
    b->logits = calloc(b->vocab, sizeof(*b->logits));
    must(pieces != NULL && kinds != NULL && b->logits != NULL);
    uint32_t random = 1;
    for (uint32_t i = 0; i < b->vocab; i++) {
        bool end = tokenizer_is_eog(b->tok, (int32_t)i);
        kinds[i] = end ? TRIE_END : TRIE_TEXT;
        pieces[i] = end ? (struct span){"", 0}
                        : tokenizer_piece(b->tok, (int32_t)i, false);
        random = random * 1664525u + 1013904223u;
        b->logits[i] = (float)(random >> 8) / (1 << 21); /* 0 to 8 */
    }
    int rc = trie_new(pieces, kinds, b->vocab, &b->trie, e);
    free(pieces);
    free(kinds);
    RETERR(rc);
    return sampler_new(b->vocab, &b->sampler, e);
}

static void close_bench(struct bench *b)
{
    sampler_free(b->sampler);
    trie_free(b->trie);
    tokenizer_close(b->tok);
    free(b->logits);
}

static void draw(struct bench *b, uint32_t i, struct costs *c)
{
    const struct msg_sampling warm = {.temperature = 1, .top_p = 1, .seed = 1};
    struct msg_token t;
    struct err e;
    double at = now_us();
    must(sampler_draw(b->sampler, b->logits, &warm, NULL, 0, i, &t, &e) == 0);
    json_add_num(c->draw, NULL, now_us() - at);
    at = now_us();
    must(sampler_draw_masked(b->sampler, b->logits, &warm, NULL, 0, i,
                             sampler_mask(b->sampler), &t, &e) == 0);
    json_add_num(c->masked, NULL, now_us() - at);
}

/* One pass over the tokens; the first makes the masks. */
static bool pass(struct bench *b, struct matcher *m, struct masker *k,
                 const int32_t *ids, size_t n, bool first, struct costs *c)
{
    uint64_t *bits = sampler_mask(b->sampler);
    match_t s = match_start(m);
    bool ok = true;
    must(bits != NULL);
    match_hold(m, s);
    for (size_t i = 0; i < n && ok; i++) {
        double at = now_us();
        ok = mask_fill(k, s, bits);
        json_add_num(first ? c->cold : c->again, NULL, now_us() - at);
        if (ok && first) {
            draw(b, (uint32_t)i, c);
        }
        at = now_us();
        ok = ok && mask_token(k, &s, (uint32_t)ids[i]);
        if (first) {
            json_add_num(c->check, NULL, now_us() - at);
        }
    }
    match_drop(m, s);
    return ok;
}

static int measure(struct bench *b, const struct json *schema, const char *text,
                   struct json *out, struct err *e)
{
    struct costs c = {json_add_array(out, "cold"), json_add_array(out, "again"),
                      json_add_array(out, "check"), json_add_array(out, "draw"),
                      json_add_array(out, "masked")};
    struct json *tokens = json_add_array(out, "tokens");
    struct grammar *g = NULL;
    struct matcher *m = NULL;
    struct masker *k = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    double at = now_us();
    RETERR(grammar_from_schema(schema, &g, e));
    json_add_num(out, "compile", now_us() - at);
    must(matcher_new(g, &m, e) == 0 && masker_new(m, b->trie, &k, e) == 0);
    must(tokenizer_encode(b->tok, text, strlen(text), false, &ids, &n, e) == 0);
    for (size_t i = 0; i < n; i++) {
        json_add_int(tokens, NULL, ids[i]);
    }
    bool ok =
        pass(b, m, k, ids, n, true, &c) && pass(b, m, k, ids, n, false, &c);
    free(ids);
    masker_free(k);
    matcher_free(m);
    grammar_free(g);
    return ok ? 0 : err_set(e, ERR_INVALID, "the text does not match");
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    struct err e = {0};
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = 0;
    if (argc != 2 || open_bench(&b, argv[1], &e) != 0) {
        (void)fprintf(stderr, "usage: bench_constrain TOKENIZER: %s\n", e.msg);
        return EXIT_USAGE;
    }
    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct json *in = NULL;
        struct json *out = json_object();
        struct buf text;
        buf_init(&text, (size_t)64 << 20);
        if (json_parse(line, (size_t)n, &in, &e) != 0 ||
            measure(&b, json_get(in, "schema"), json_str(json_get(in, "text")),
                    out, &e) != 0) {
            json_add_str(out, "error", e.msg);
        }
        json_write(out, false, &text);
        (void)printf("%s\n", buf_ok(&text) ? text.p : "{}");
        (void)fflush(stdout);
        buf_fini(&text);
        json_free(out);
        json_free(in);
    }
    free(line);
    close_bench(&b);
    return EXIT_SUCCESS;
}
