/* test_grammar.c - GBNF: what is taken and refused, what a grammar matches;
 * forks, replays, limits. */
#include <pthread.h>

#include "grammar_check.h"
#include "proto/json.h"
#include "proto/limits.h"

struct row {
    const char *grammar, *text;
    bool want;
};

static void check(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct err e = {0};
        struct grammar *g = NULL;
        struct matcher *m = NULL;
        unit_ok(grammar_from_gbnf(rows[i].grammar, strlen(rows[i].grammar), &g,
                                  &e),
                &e);
        unit_ok(matcher_new(g, &m, &e), &e);
        if (grammar_takes(m, rows[i].text, strlen(rows[i].text)) !=
            rows[i].want) {
            fail_msg("%s: \"%s\" should %smatch", rows[i].grammar, rows[i].text,
                     rows[i].want ? "" : "not ");
        }
        matcher_free(m);
        grammar_free(g);
    }
}

static void test_matches(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"root ::= \"a\"", "a", true},
        {"root ::= \"a\"", "", false},
        {"root ::= \"a\"", "aa", false},
        {"root ::= \"a\" | \"b\" \"c\"", "bc", true},
        {"root ::= \"a\" | \"b\" \"c\"", "ac", false},
        {"root ::=", "", true},
        {"root ::= | \"x\"", "", true},
        {"root ::= \"a\"*", "aaaa", true},
        {"root ::= \"a\"*", "", true},
        {"root ::= \"a\"+", "", false},
        {"root ::= \"a\"+ \"b\"?", "aab", true},
        {"root ::= \"a\"? \"b\"", "b", true},
        {"root ::= [a-c]{2}", "ab", true},
        {"root ::= [a-c]{2}", "abc", false},
        {"root ::= [a-c]{2,3}", "abc", true},
        {"root ::= [a-c]{2,3}", "a", false},
        {"root ::= [a-c]{2,}", "abcabc", true},
        {"root ::= [a-c]{0,2} \"!\"", "!", true},
        {"root ::= [a-c]{ 1 , 2 }", "a", true},
        {"root ::= [a]{0}", "", true},
        {"root ::= [a]{0}", "a", false},
        {"root ::= (\"a\" | \"b\"){3}", "aba", true},
        {"root ::= (\"a\"{2} \"b\"){2}", "aabaab", true},
        {"root ::= (\"a\"{2} \"b\"){2}", "aabaa", false},
        {"root ::= \"a\"*?", "aa", true},
        {"root ::= (\"a\"?)* \"b\"", "aab", true},
        {"root ::= (\"a\"*)+ \"b\"", "b", true},
        {"root ::= [^a-c]", "d", true},
        {"root ::= [^a-c]", "b", false},
        {"root ::= [^a-c]", "\xC3\xA9", true},
        {"root ::= [^a-c]", "\xC3", false},
        {"root ::= [^\\n]+", "a b", true},
        {"root ::= [^\\n]+", "a\nb", false},
        {"root ::= .", "\xE2\x82\xAC", true},
        {"root ::= .", "\xF0\x9F\x98\x80", true},
        {"root ::= .", "\xED\xA0\x80", false},
        {"root ::= .", "\xC0\x80", false},
        {"root ::= .", "ab", false},
        {"root ::= . .", "\xE2\x82\xAC", false},
        {"root ::= [\\x41-\\x43]", "B", true},
        {"root ::= [\\u00e0-\\u00ff]", "\xC3\xA9", true},
        {"root ::= [\\u00e0-\\u00ff]", "\xC3\x9F", false},
        {"root ::= \"\\U0001F600\"", "\xF0\x9F\x98\x80", true},
        {"root ::= [\\U0001F600-\\U0001F64F]", "\xF0\x9F\x98\x85", true},
        {"root ::= [\xE3\x81\x81-\xE3\x82\x94]", "\xE3\x81\x82", true},
        {"root ::= \"\\\"\\\\\\n\\t\\r\"", "\"\\\n\t\r", true},
        {"root ::= [\\]\\[-]+", "]-[", true},
        {"root ::= [a-]+", "a-", true},
        {"root ::= x y\nx ::= \"1\"\ny ::= \"2\"", "12", true},
        {"root ::= x\nx ::= \"(\" x \")\" | \"\"", "((()))", true},
        {"root ::= x\nx ::= \"(\" x \")\" | \"\"", "(()", false},
        {"# c\nroot ::= x # d\n# e\n\nx ::= \"1\" |\n  \"2\" # f\n", "2", true},
        {"root ::= (\n \"a\"\n | \"b\" # c\n)\n", "b", true},
        {"root ::=\n  \"a\"\r\nx ::= \"b\"\r\n", "a", true},
        {"root ::= ws \"x\"\nws ::= ([ \\t] ws)?", "  \t x", true},
        {"root ::= a-b_9\na-b_9 ::= \"q\"", "q", true},
        {"root ::= e \"x\" | \"y\"\ne ::= \"\"", "x", true},
        {"root ::= \"a\" dead | \"b\"\ndead ::= \"c\" dead", "b", true},
        {"root ::= \"a\" dead | \"b\"\ndead ::= \"c\" dead", "a", false},
        {"root ::= s\ns ::= t \"+\" s | t\nt ::= [0-9]+", "1+22+3", true},
        {"root ::= s\ns ::= t \"+\" s | t\nt ::= [0-9]+", "1++3", false},
    };
    check(rows, countof(rows));
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *want;
        int code;
    } rows[] = {
        {"", "no rule 'root'", ERR_INVALID},
        {"x ::= \"a\"", "no rule 'root'", ERR_INVALID},
        {"root ::= x", "line 1: the rule 'x' is not defined", ERR_INVALID},
        {"root ::= \"a\"\n\ny ::= nope", "line 3: the rule 'nope'", ERR_INVALID},
        {"root ::= root \"a\" | \"b\"", "line 1: the rule 'root' is left",
         ERR_INVALID},
        {"root ::= \"q\" x\nx ::= y\ny ::= \"\" x \"a\" | \"b\"",
         "is left recursive", ERR_INVALID},
        {"root ::= e root \"a\" | \"b\"\ne ::= \"x\"?", "is left recursive",
         ERR_INVALID},
        {"root ::= (\"x\"? root){2}", "line 1: the rule 'root' is left",
         ERR_INVALID},
        {"root ::= (\"a\"", "line 1, rule 'root': expected ')'", ERR_INVALID},
        {"root ::= \"a", "expected a character", ERR_INVALID},
        {"root ::= \"a\nb\"", "does not end in its line", ERR_INVALID},
        {"root ::= [a", "expected a character", ERR_INVALID},
        {"root ::= []", "an empty class", ERR_INVALID},
        {"root ::= [z-a]", "a range ends before", ERR_INVALID},
        {"root ::= \"\\q\"", "unknown escape", ERR_INVALID},
        {"root ::= \"\\x4\"", "hexadecimal", ERR_INVALID},
        {"root ::= \"\\UFFFFFFFF\"", "no such character", ERR_INVALID},
        {"root ::= \"\xFF\"", "expected a character", ERR_INVALID},
        {"root ::= \"a\"{3,2}", "ends before it begins", ERR_INVALID},
        {"root ::= \"a\"{x}", "number of repetitions", ERR_INVALID},
        {"root ::= \"a\"{1", "expected '}'", ERR_INVALID},
        {"root ::= \"a\"{99999999999}", "repetitions", ERR_TOO_BIG},
        {"root ::= ((\"a\"{9999}){9999}){9999} ((\"a\"{60000} \"b\"){60000} | "
         "\"b\"{60000} \"c\"{60000} \"e\"{60000}){3}", "states", ERR_TOO_BIG},
        {"root ::= *", "unexpected character", ERR_INVALID},
        {"root : \"a\"", "expected ::=", ERR_INVALID},
        {"::= \"a\"", "expected a rule's name", ERR_INVALID},
        {"root ::= \"a\"\nroot ::= \"b\"", "is defined in line 1 already",
         ERR_INVALID},
        {"root ::= <think>", "tokens are not supported", ERR_INVALID},
        {"root ::= \"a\" root", "nothing can match", ERR_INVALID},
        {"root ::= )", "unexpected character", ERR_INVALID},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct err e = {0};
        struct grammar *g = NULL;
        int rc = grammar_from_gbnf(rows[i].grammar, strlen(rows[i].grammar), &g,
                                   &e);
        if (rc != rows[i].code || strstr(e.msg, rows[i].want) == NULL) {
            fail_msg("%.60s: %s: %s", rows[i].grammar, err_name(rc), e.msg);
        }
        assert_null(g);
    }
}

/* --- masks, forks, replays --- */

static const char *const grammars[] = {
    "root ::= \"a\"* \"b\" [0-9]{1,3}",
    "root ::= s\ns ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"\\\\n])* "
    "\"\\\"\" (\",\" s)?",
    "root ::= \"{\" (kv (\",\" kv)*)? \"}\"\nkv ::= str \":\" val\nstr ::= "
    "\"\\\"\" [^\"\\\\\\x00-\\x1f]{0,30} \"\\\"\"\nval ::= str | root | [0-9]+",
    "root ::= .{0,12}",
    "root ::= [a-z ]+ | [\\u00e0-\\u00ff ]+ \"!\"",
    "root ::= e\ne ::= t ([-+*/] t)*\nt ::= [0-9]+ | \"(\" e \")\" | [a-z]+",
    "root ::= ([ab]* \"a\" [ab]{10} | \"ab\" .)*",
    "root ::= [^a]* \"a\"",
    "root ::= \"tr\" \"ue\" | \"false\" | \"null\" x\nx ::= \"y\" x | \"\"",
};

static const char *const parts[] = {
    "a", "b", "ab", "\"", "\\", ",", ":", "{", "}", "1", "23", "(", ")", "+",
    " ", "  ", "the", " of", "\n", "\xC3\xA9", "\xE2\x82\xAC", "\xE3\x81\x82",
    "\xF0\x9F\x98\x80", "\xFF", "true", "false", "null", "\":\"", "\",\"", "!",
    "\x01", "\x7f", "y", "*", "-", "/",
};

/* Walks by random tokens; at each place the mask is compared with all tokens
 * tried, a fork goes another way, and what was said is matched again. */
static void test_masks(void **state)
{
    (void)state;
    uint64_t seed = 7;
    static struct voc v;
    static uint64_t bits[countof(v.tokens) / 64];
    for (size_t i = 0; i < countof(grammars); i++) {
        struct err e = {0};
        struct grammar *g = NULL;
        struct matcher *m = NULL;
        struct trie *t = NULL;
        struct masker *k = NULL;
        voc_make(&v, parts, countof(parts), &seed);
        unit_ok(grammar_from_gbnf(grammars[i], strlen(grammars[i]), &g, &e),
                &e);
        unit_ok(matcher_new(g, &m, &e), &e);
        unit_ok(trie_new(v.tokens, v.kinds, v.n, &t, &e), &e);
        unit_ok(masker_new(m, t, &k, &e), &e);
        for (int round = 0; round < 12; round++) {
            match_t s = match_start(m);
            uint32_t said[24];
            uint32_t n = 0;
            match_hold(m, s);
            while (n < countof(said) && s != MATCH_DEAD &&
                   mask_compare(m, k, s, &v, bits)) {
                uint32_t id = roll(&seed, v.n);
                while ((bits[id / 64] >> id % 64 & 1) == 0) {
                    id = (id + 1) % v.n;
                }
                match_t fork = s;
                match_hold(m, fork);
                assert_true(mask_token(k, &fork, id));
                assert_true(mask_token(k, &s, id));
                assert_int_equal(fork, s);
                match_drop(m, fork);
                said[n++] = id;
            }
            match_t again = match_start(m);
            match_hold(m, again);
            for (uint32_t j = 0; j < n; j++) {
                assert_true(mask_token(k, &again, said[j]));
            }
            assert_int_equal(again, s);
            match_drop(m, again);
            match_drop(m, s);
        }
        masker_free(k);
        trie_free(t);
        matcher_free(m);
        grammar_free(g);
    }
}

/* --- limits --- */

/* Nested as deep as JSON may be, and references that go round. */
static void deep_schemas(void)
{
    static const struct {
        const char *open, *inner, *close;
        int times, code;
    } rows[] = {
        {"{\"items\":", "{}", "}", 31, 0},
        {"{\"properties\":{\"a\":", "{}", "}}", 15, 0},
        {"{\"type\":\"array\",\"anyOf\":[", "{}", "]}", 15, 0},
        {"{\"type\":\"array\",\"anyOf\":[", "{\"$ref\":\"#\"}", "]}", 15,
         ERR_TOO_BIG},
        {"{\"allOf\":[{\"items\":{\"allOf\":[true,", "{\"minItems\":1}",
         "]}}]}", 6, 0},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct err e = {0};
        struct json *j = NULL;
        struct grammar *g = NULL;
        struct buf b;
        buf_init(&b, 1 << 16);
        for (int k = 0; k < rows[i].times; k++) {
            buf_puts(&b, rows[i].open);
        }
        buf_puts(&b, rows[i].inner);
        for (int k = 0; k < rows[i].times; k++) {
            buf_puts(&b, rows[i].close);
        }
        unit_ok(json_parse(b.p, b.n, &j, &e), &e);
        int rc = grammar_from_schema(j, &g, &e);
        if (rc != rows[i].code) {
            fail_msg("%s: %s: %s", b.p, err_name(rc), e.msg);
        }
        grammar_free(g);
        json_free(j);
        buf_fini(&b);
    }
}

static void *deep(void *arg)
{
    (void)arg;
    enum { N = 100000 };
    char *src = malloc(2 * N + 64);
    assert_non_null(src);
    memcpy(src, "root ::= ", 9);
    memset(src + 9, '(', N);
    src[9 + N] = 'x';
    memset(src + 10 + N, ')', N);
    struct err e = {0};
    struct grammar *g = NULL;
    assert_int_equal(grammar_from_gbnf(src, 10 + 2 * N, &g, &e), ERR_TOO_BIG);
    assert_int_equal(grammar_from_regex(src + 9, 1 + 2 * N, &g, &e),
                     ERR_TOO_BIG);
    memset(src, '(', 2 * N);
    assert_int_equal(grammar_from_regex(src, 2 * N, &g, &e), ERR_TOO_BIG);
    deep_schemas();
    /* A long chain of rules. */
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "root ::= r0\n");
    for (int i = 0; i < 3000; i++) {
        buf_printf(&b, "r%d ::= r%d\n", i, i + 1);
    }
    buf_puts(&b, "r3000 ::= \"x\"\n");
    unit_ok(grammar_from_gbnf(b.p, b.n, &g, &e), &e);
    struct matcher *m = NULL;
    unit_ok(matcher_new(g, &m, &e), &e);
    assert_true(grammar_takes(m, "x", 1));
    matcher_free(m);
    grammar_free(g);
    buf_fini(&b);
    free(src);
    return NULL;
}

static void test_small_stack(void **state)
{
    (void)state;
    pthread_t thread;
    pthread_attr_t attr;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(
        pthread_attr_setstacksize(&attr, UNIT_SANITIZED ? MIB(2) : KIB(256)),
        0);
    assert_int_equal(pthread_create(&thread, &attr, deep, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)pthread_attr_destroy(&attr);
}

/* As many repetitions of repetitions as a source may have compile soon, and are
 * too deep to match. */
static void test_many_repetitions(void **state)
{
    (void)state;
    struct err e = {0};
    struct grammar *g = NULL;
    struct buf b;
    buf_init(&b, GRAMMAR_SOURCE_MAX);
    buf_puts(&b, "root ::= \"a\"");
    while (b.n + 8 < GRAMMAR_SOURCE_MAX) {
        buf_puts(&b, "{1,2}");
    }
    unit_ok(grammar_from_gbnf(b.p, b.n, &g, &e), &e);
    struct matcher *m = NULL;
    assert_int_equal(matcher_new(g, &m, &e), ERR_TOO_BIG);
    grammar_free(g);
    assert_int_equal(grammar_from_gbnf(b.p, GRAMMAR_SOURCE_MAX + 1, &g, &e),
                     ERR_TOO_BIG);
    buf_fini(&b);
}

/* More stacks than are followed: the text does not match, nothing breaks. */
static void test_limits_of_matching(void **state)
{
    (void)state;
    struct err e = {0};
    struct grammar *g = NULL;
    struct matcher *m = NULL;
    static const char nest[] = "root ::= x\nx ::= \"(\" x \")\" | \"\"";
    unit_ok(grammar_from_gbnf(nest, strlen(nest), &g, &e), &e);
    unit_ok(matcher_new(g, &m, &e), &e);
    match_t s = match_start(m);
    match_hold(m, s);
    uint32_t n = 0;
    while (n < 100000 && match_bytes(m, &s, "(", 1)) {
        n++;
    }
    assert_in_range(n, 64, MATCH_STACK_MAX);
    for (; n > 0; n--) {
        assert_true(match_bytes(m, &s, ")", 1));
    }
    assert_true(match_may_end(m, s));
    match_drop(m, s);
    matcher_free(m);
    grammar_free(g);
}

/* More configurations than are kept: the same answers as at first. */
static void test_forgetting(void **state)
{
    (void)state;
    struct err e = {0};
    struct grammar *g = NULL;
    struct matcher *m = NULL;
    static const char src[] = "root ::= ([ab]* \"a\" [ab]{18})";
    unit_ok(grammar_from_gbnf(src, strlen(src), &g, &e), &e);
    unit_ok(matcher_new(g, &m, &e), &e);
    uint64_t seed = 3;
    char text[60000];
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = roll(&seed, 2) == 0 ? 'a' : 'b';
    }
    match_t s = match_start(m);
    match_hold(m, s);
    for (size_t i = 0; i < sizeof(text); i++) {
        assert_true(match_bytes(m, &s, text + i, 1));
        assert_int_equal(match_may_end(m, s),
                         i >= 18 && text[i - 18] == 'a');
    }
    match_drop(m, s);
    matcher_free(m);
    grammar_free(g);
}

/* A walk that passes more configurations than are kept: every token is allowed,
 * wherever the text stands. */
static void test_forgetting_in_a_walk(void **state)
{
    (void)state;
    enum { BITS = 13, N = (1 << (BITS + 1)) - 2 };
    static const char src[] = "root ::= ([ab]* \"a\" [ab]{18})";
    struct err e = {0};
    struct grammar *g = NULL;
    struct matcher *m = NULL;
    struct trie *t = NULL;
    struct masker *k = NULL;
    char *bytes = malloc((size_t)N * BITS);
    struct span *tokens = calloc(N, sizeof(*tokens));
    uint64_t *bits = calloc(N / 64 + 1, sizeof(*bits));
    assert_true(bytes != NULL && tokens != NULL && bits != NULL);
    uint32_t n = 0;
    for (unsigned len = 1; len <= BITS; len++) {
        for (unsigned v = 0; v < 1u << len; v++) {
            char *p = bytes + (size_t)n * BITS;
            for (unsigned i = 0; i < len; i++) {
                p[i] = (v >> i & 1) != 0 ? 'a' : 'b';
            }
            tokens[n++] = (struct span){p, len};
        }
    }
    unit_ok(grammar_from_gbnf(src, strlen(src), &g, &e), &e);
    unit_ok(matcher_new(g, &m, &e), &e);
    unit_ok(trie_new(tokens, NULL, n, &t, &e), &e);
    unit_ok(masker_new(m, t, &k, &e), &e);
    uint64_t seed = 5;
    match_t s = match_start(m);
    match_hold(m, s);
    for (int step = 0; step < 6; step++) {
        assert_true(mask_fill(k, s, bits));
        for (uint32_t id = 0; id < n; id++) {
            assert_true((bits[id / 64] >> id % 64 & 1) != 0);
        }
        assert_true(mask_token(k, &s, roll(&seed, n)));
    }
    match_drop(m, s);
    masker_free(k);
    trie_free(t);
    matcher_free(m);
    grammar_free(g);
    free(bits);
    free(tokens);
    free(bytes);
}

static void test_forced(void **state)
{
    (void)state;
    struct err e = {0};
    struct grammar *g = NULL;
    struct matcher *m = NULL;
    struct trie *t = NULL;
    struct masker *k = NULL;
    static const char src[] = "root ::= \"{\\\"name\\\":\" [0-9]+ \"}\"";
    static const struct span tokens[] = {
        {"{", 1}, {"{\"", 2}, {"na", 2}, {"name", 4}, {"\":", 2}, {"1", 1},
        {"\"", 1}, {"m", 1},
    };
    unit_ok(grammar_from_gbnf(src, strlen(src), &g, &e), &e);
    unit_ok(matcher_new(g, &m, &e), &e);
    unit_ok(trie_new(tokens, NULL, countof(tokens), &t, &e), &e);
    unit_ok(masker_new(m, t, &k, &e), &e);
    struct buf b;
    uint32_t ids[8];
    buf_init(&b, 64);
    assert_int_equal(mask_forced(k, match_start(m), &b, ids, 8), 3);
    assert_int_equal(b.n, 8);
    assert_memory_equal(b.p, "{\"name\":", 8);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 3);
    assert_int_equal(ids[2], 4);
    buf_fini(&b);
    masker_free(k);
    trie_free(t);
    matcher_free(m);
    grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_small_stack),
        cmocka_unit_test(test_many_repetitions),
        cmocka_unit_test(test_limits_of_matching),
        cmocka_unit_test(test_forgetting),
        cmocka_unit_test(test_forgetting_in_a_walk),
        cmocka_unit_test(test_forced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
