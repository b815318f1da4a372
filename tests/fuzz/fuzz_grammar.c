/* Grammars of any bytes: GBNF, schemas, regular expressions, constraints, as the
 * first byte says. What compiles is walked by tokens that the input chooses; at each place
 * the mask of a small vocabulary is compared with every token tried, and a
 * place that is not the end leads on. Compiling runs on a small stack. */
#include <pthread.h>
#include <string.h>

#include "draw.h"
#include "model/grammar/mask.h"
#include "proto/json.h"
#include "proto/limits.h"

#define STACK_BYTES KIB(256)

enum { STEPS = 12, WORDS = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct job {
    uint8_t kind;
    const char *p;
    size_t n;
    struct grammar *g;
};

static void *compile(void *arg)
{
    struct job *j = arg;
    struct err e = {0};
    struct json *root = NULL;
    int rc = ERR_JSON;
    switch (j->kind % 4) {
    case 0:
        rc = grammar_from_gbnf(j->p, j->n, &j->g, &e);
        break;
    case 1:
        rc = grammar_from_regex(j->p, j->n, &j->g, &e);
        break;
    case 2:
        if (json_parse(j->p, j->n, &root, &e) == 0) {
            rc = grammar_from_schema(root, &j->g, &e);
        }
        json_free(root);
        break;
    default:
        rc = grammar_from_text(j->p, j->n, &j->g, &e);
        break;
    }
    must(rc == 0 || rc == ERR_INVALID || rc == ERR_UNSUPPORTED ||
         rc == ERR_TOO_BIG || rc == ERR_JSON);
    must((rc == 0) == (j->g != NULL));
    return NULL;
}

static const char *const pieces[] = {
    "\"", "\":", "\",\"", "{\"", "{", "}", "[", "]", ", ", ",", ": ", "\n",
    "\n  ", "\\", "\\\"", "\\n", "\\u00", "the", " of", "ab", "aa", "abc",
    "true", "false", "null", "12", "-1", "0.5", "e+", "\xC3\xA9", "\xE2\x82",
    "\xAC", "\xF0\x9F", "\x98\x80", "-", "::", "a b", "  ", "()", "x\"y",
};

static void walk(const struct grammar *g, struct draw *d)
{
    struct span tokens[256 + countof(pieces) + 2];
    uint8_t kinds[countof(tokens)] = {0};
    char bytes[256];
    uint64_t bits[WORDS] = {0};
    struct err e = {0};
    struct matcher *m = NULL;
    struct trie *t = NULL;
    struct masker *k = NULL;
    uint32_t n = 0;
    for (unsigned c = 0; c < 256; c++) {
        bytes[c] = (char)c;
        tokens[n++] = (struct span){bytes + c, 1};
    }
    for (size_t i = 0; i < countof(pieces); i++) {
        tokens[n++] = (struct span){pieces[i], strlen(pieces[i])};
    }
    kinds[n] = TRIE_END;
    tokens[n++] = (struct span){"<end>", 5};
    kinds[n] = TRIE_BANNED;
    tokens[n++] = (struct span){"<ban>", 5};
    if (matcher_new(g, &m, &e) != 0) {
        return;
    }
    must(trie_new(tokens, kinds, n, &t, &e) == 0);
    must(masker_new(m, t, &k, &e) == 0);
    match_t s = match_start(m);
    match_hold(m, s);
    for (int step = 0; step < STEPS && s != MATCH_DEAD; step++) {
        uint32_t allowed[countof(tokens)];
        uint32_t n_allowed = 0;
        bool any = mask_fill(k, s, bits);
        for (uint32_t id = 0; id < n; id++) {
            match_t x = s;
            match_hold(m, x);
            bool ok = mask_token(k, &x, id);
            match_drop(m, x);
            must(ok == ((bits[id / 64] >> id % 64 & 1) != 0));
            if (ok) {
                allowed[n_allowed++] = id;
            }
        }
        must(any == (n_allowed > 0));
        if (n_allowed > 0) {
            must(mask_token(k, &s, allowed[draw_below(d, n_allowed)]));
        } else {
            break;
        }
    }
    match_drop(m, s);
    masker_free(k);
    trie_free(t);
    matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    pthread_t thread;
    pthread_attr_t attr;
    if (n == 0) {
        return 0;
    }
    struct job j = {.kind = p[0], .p = (const char *)p + 1, .n = n - 1};
    must(pthread_attr_init(&attr) == 0 &&
         pthread_attr_setstacksize(&attr, STACK_BYTES) == 0 &&
         pthread_create(&thread, &attr, compile, &j) == 0 &&
         pthread_join(thread, NULL) == 0 && pthread_attr_destroy(&attr) == 0);
    if (j.g != NULL) {
        struct draw d = {p, n};
        walk(j.g, &d);
    }
    grammar_free(j.g);
    return 0;
}
