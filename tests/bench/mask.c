/* mask.c - how long masks take: CPU time of mask_fill at each token of a text,
 * the first time (cold) and again, over a vocabulary of ranks (a line is a token
 * in base64 and its rank). Usage: bench_mask RANKS */
#include <string.h>
#include <time.h>

#include "model/grammar/mask.h"
#include "proto/json.h"
#include "proto/limits.h"

enum { TOKENS_MAX_HERE = 1 << 19, POOL = 16 << 20, STEPS = 4096 };

struct vocabulary {
    struct span *tokens;
    uint8_t *kinds;
    uint32_t n;
    char *pool;
    size_t used;
};

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void read_ranks(struct vocabulary *v, const char *path)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789+/";
    char line[8192];
    FILE *f = fopen(path, "re");
    must(f != NULL);
    while (fgets(line, sizeof(line), f) != NULL && v->n + 1 < TOKENS_MAX_HERE) {
        char *from = v->pool + v->used;
        uint32_t bits = 0;
        unsigned n = 0;
        for (const char *c = line; *c != ' ' && *c != '=' && *c != '\0'; c++) {
            const char *at = strchr(digits, *c);
            must(at != NULL && v->used < POOL);
            bits = bits << 6 | (uint32_t)(at - digits);
            n += 6;
            if (n >= 8) {
                n -= 8;
                v->pool[v->used++] = (char)(bits >> n & 0xFF);
            }
        }
        v->tokens[v->n++] =
            (struct span){from, (size_t)(v->pool + v->used - from)};
    }
    (void)fclose(f);
    v->kinds[v->n] = TRIE_END;
    v->tokens[v->n++] = (struct span){"<end>", 5};
}

static int by_time(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* The longest token that the text begins with. */
static uint32_t next_token(const struct vocabulary *v, struct span text)
{
    uint32_t best = 0;
    size_t len = 0;
    for (uint32_t i = 0; i + 1 < v->n; i++) {
        size_t n = v->tokens[i].n;
        if (n > len && n <= text.n &&
            memcmp(text.p, v->tokens[i].p, n) == 0) {
            best = i;
            len = n;
        }
    }
    must(len > 0);
    return best;
}

static void run(const char *name, const struct grammar *g, const struct trie *t,
                const struct vocabulary *v, const char *text)
{
    struct err e = {0};
    struct matcher *m = NULL;
    struct masker *k = NULL;
    uint64_t *bits = calloc(v->n / 64 + 1, sizeof(*bits));
    static double us[STEPS];
    must(bits != NULL && matcher_new(g, &m, &e) == 0 &&
         masker_new(m, t, &k, &e) == 0);
    for (int again = 0; again < 2; again++) {
        struct span rest = {text, strlen(text)};
        match_t s = match_start(m);
        size_t n = 0;
        uint64_t made = mask_made(k);
        match_hold(m, s);
        while (n < STEPS) {
            double at = now_us();
            (void)mask_fill(k, s, bits);
            us[n++] = now_us() - at;
            if (rest.n == 0) {
                break;
            }
            uint32_t id = next_token(v, rest);
            must(mask_token(k, &s, id));
            rest.p += v->tokens[id].n;
            rest.n -= v->tokens[id].n;
        }
        match_drop(m, s);
        qsort(us, n, sizeof(*us), by_time);
        printf("%-8s %s %4zu tokens, %3u made: median %.1f us, "
               "90%% %.1f, most %.1f\n",
               name, again ? "again" : "cold ", n,
               (unsigned)(mask_made(k) - made), us[n / 2], us[n * 9 / 10],
               us[n - 1]);
    }
    masker_free(k);
    matcher_free(m);
    free(bits);
}

static const char text[] =
    "{\"name\": \"Ada Lovelace, countess\", \"kind\": \"beta\", \"age\": 36, "
    "\"when\": \"2024-02-29T12:30:00Z\", \"tags\": [\"first-one\", \"second\"], "
    "\"text\": \"The quick brown fox jumps over \\\"the\\\" lazy dog.\\nA "
    "second line with more words.\", \"other\": \"more\"}";

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\","
    "\"maxLength\":80},\"kind\":{\"enum\":[\"alpha\",\"beta\"]},\"age\":{"
    "\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"when\":{\"type\":"
    "\"string\",\"format\":\"date-time\"},\"tags\":{\"type\":\"array\","
    "\"items\":{\"type\":\"string\",\"pattern\":\"^[a-z][a-z0-9-]*$\"}},"
    "\"text\":{\"type\":\"string\"}},\"required\":[\"name\",\"age\"],"
    "\"additionalProperties\":{\"type\":\"string\"}}";

int main(int argc, char **argv)
{
    struct err e = {0};
    struct trie *t = NULL;
    struct grammar *g = NULL;
    struct json *j = NULL;
    struct vocabulary v = {
        .tokens = calloc(TOKENS_MAX_HERE, sizeof(struct span)),
        .kinds = calloc(TOKENS_MAX_HERE, 1),
        .pool = malloc(POOL)};
    must(argc == 2 && v.tokens != NULL && v.kinds != NULL && v.pool != NULL);
    read_ranks(&v, argv[1]);
    double at = now_us();
    must(trie_new(v.tokens, v.kinds, v.n, &t, &e) == 0);
    printf("%u tokens: trie in %.0f ms, %.1f MB\n", v.n,
           (now_us() - at) / 1e3, (double)trie_bytes(t) / 1e6);
    must(grammar_json(&g, &e) == 0);
    run("json", g, t, &v, text);
    grammar_free(g);
    must(json_parse(schema, strlen(schema), &j, &e) == 0);
    at = now_us();
    must(grammar_from_schema(j, &g, &e) == 0);
    printf("schema compiled in %.0f us, %zu bytes\n", now_us() - at,
           grammar_bytes(g));
    run("schema", g, t, &v, text);
    grammar_free(g);
    json_free(j);
    trie_free(t);
    free(v.tokens);
    free(v.kinds);
    free(v.pool);
    return EXIT_SUCCESS;
}
