/* test_grammar_text.c - constraints as text: each form, forms in each other,
 * what is refused, and strings that are looked for against memmem. In the rows
 * '~' stands for '"'. */
#include "base/utf8.h"
#include "grammar_check.h"
#include "proto/json.h"
#include "proto/limits.h"

struct row {
    const char *constraint, *text;
    bool want;
};

static char *quoted(const char *s)
{
    char *p = strdup(s);
    assert_non_null(p);
    for (char *q = p; *q != '\0'; q++) {
        *q = *q == '~' ? '"' : *q;
    }
    return p;
}

static void check(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct err e = {0};
        struct grammar *g = NULL;
        struct matcher *m = NULL;
        char *c = quoted(rows[i].constraint);
        char *t = quoted(rows[i].text);
        int rc = grammar_from_text(c, strlen(c), &g, &e);
        if (rc != 0) {
            fail_msg("%s: %s: %s", c, err_name(rc), e.msg);
        }
        unit_ok(matcher_new(g, &m, &e), &e);
        if (grammar_takes(m, t, strlen(t)) != rows[i].want) {
            fail_msg("%s: %s should %smatch", c, t, rows[i].want ? "" : "not ");
        }
        matcher_free(m);
        grammar_free(g);
        free(c);
        free(t);
    }
}

static void test_forms(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{~schema~: {~type~: ~integer~}}",           "12",               true },
        {"{~schema~: {~type~: ~integer~}}",           "1.5",              false},
        {"{~schema~: true}",                          "[{}]",             true },
        {"{~object~: true}",                          "{~a~: [1]}",       true },
        {"{~object~: true}",                          "[1]",              false},
        {"{~gbnf~: ~root ::= x+ \\n x ::= [ab]~}",    "abba",             true },
        {"{~gbnf~: ~root ::= x+ \\n x ::= [ab]~}",    "abc",              false},
        {"{~regex~: ~a+|b~}",                         "aaa",              true },
        {"{~regex~: ~a+|b~}",                         "ab",               false},
        {"{~text~: ~</a>\\n~}",                       "</a>\n",           true },
        {"{~text~: ~</a>\\n~}",                       "</a>",             false},
        {"{~text~: ~~}",                              "",                 true },
        {"{~until~: ~ab~}",                           "ab",               true },
        {"{~until~: ~ab~}",                           "aab",              true },
        {"{~until~: ~ab~}",                           "xa\xC3\xA9\n ab",  true },
        {"{~until~: ~ab~}",                           "",                 false},
        {"{~until~: ~ab~}",                           "a",                false},
        {"{~until~: ~ab~}",                           "abab",             false},
        {"{~until~: ~ab~}",                           "ab ",              false},
        {"{~until~: ~ab~}",
         "\xFF"
         "ab",                                                            false},
        {"{~until~: ~aabaaab~}",                      "aabaabaaab",       true },
        {"{~until~: ~\xC3\xA9~}",                     "\xC3\xA8\xC3\xA9", true },
        {"{~until~: ~\xC3\xA9~}",                     "\xC3\xA9\xA9",     false},
        {"{~without~: [~ab~, ~c~]}",                  "",                 true },
        {"{~without~: [~ab~, ~c~]}",                  "ba a",             true },
        {"{~without~: [~ab~, ~c~]}",                  "aab",              false},
        {"{~without~: [~ab~, ~c~]}",                  "abb",              false},
        {"{~without~: [~ab~, ~c~]}",                  "xc",               false},
        {"{~without~: [~abcd~, ~bc~]}",               "abc",              false},
        {"{~without~: [~abcd~, ~bcx~]}",              "abcx",             false},
        {"{~without~: [~abcd~, ~bcx~]}",              "abcc",             true },
        {"{~without~: [~a~]}",                        "\xC3",             false},
        {"{~without~: []}",                           "anything",         true },
        {"{~seq~: []}",                               "",                 true },
        {"{~seq~: []}",                               "x",                false},
        {"{~seq~: [{~text~: ~a~}, {~regex~: ~b*~}]}", "abb",              true },
        {"{~seq~: [{~text~: ~a~}, {~regex~: ~b*~}]}", "b",                false},
        {"{~any~: [{~text~: ~a~}, {~text~: ~ab~}]}",  "ab",               true },
        {"{~any~: [{~text~: ~a~}, {~text~: ~ab~}]}",  "aab",              false},
    };
    check(rows, countof(rows));
}

static void test_repeat(void **state)
{
    (void)state;
#define A     "{~repeat~: {~text~: ~a~}"
#define COMMA ", ~between~: {~text~: ~, ~}}"
    static const struct row rows[] = {
        {A "}",                                                         "",           true },
        {A "}",                                                         "aaaa",       true },
        {A "}",                                                         "ab",         false},
        {A ", ~min~: 2}",                                               "a",          false},
        {A ", ~min~: 2, ~max~: null}",                                  "aaa",        true },
        {A ", ~max~: 2}",                                               "aaa",        false},
        {A ", ~max~: 2}",                                               "aa",         true },
        {A ", ~max~: 0}",                                               "",           true },
        {A ", ~max~: 0}",                                               "a",          false},
        {A COMMA,                                                       "",           true },
        {A COMMA,                                                       "a",          true },
        {A COMMA,                                                       "a, a, a",    true },
        {A COMMA,                                                       "a, a, ",     false},
        {A COMMA,                                                       "aa",         false},
        {A ", ~min~: 1" COMMA,                                          "",           false},
        {A ", ~min~: 1" COMMA,                                          "a",          true },
        {A ", ~min~: 2, ~max~: 3" COMMA,                                "a",          false},
        {A ", ~min~: 2, ~max~: 3" COMMA,                                "a, a, a",    true },
        {A ", ~min~: 2, ~max~: 3" COMMA,                                "a, a, a, a", false},
        {A ", ~max~: 0" COMMA,                                          "",           true },
        {A ", ~max~: 0" COMMA,                                          "a",          false},
        {A ", ~max~: 1" COMMA,                                          "a, a",       false},
 /* of what may be empty */
        {"{~repeat~: {~repeat~: {~text~: ~a~}}}",                       "aaa",        true },
        {"{~repeat~: {~seq~: []}, ~min~: 3, ~between~: {~text~: ~-~}}", "--",
         true                                                                              },
        {"{~repeat~: {~seq~: []}, ~between~: {~seq~: []}}",             "",           true },
    };
    check(rows, countof(rows));
}

/* Parts know nothing of each other. */
static void test_nested(void **state)
{
    (void)state;
#define NODE(type)                                                        \
    "{~schema~: {~$ref~: ~#/$defs/n~, ~$defs~: {~n~: {~type~: ~object~, " \
    "~properties~: {~v~: {~type~: ~" type "~}, ~next~: {~$ref~: "         \
    "~#/$defs/n~}}, ~required~: [~v~], ~additionalProperties~: false}}}}"
    static const char two[] =
        "{~seq~: [" NODE("integer") ", {~text~: ~;~}, " NODE("boolean") "]}";
    static const char names[] =
        "{~seq~: [{~gbnf~: ~root ::= x{2}\\nx ::= [ab]~}, {~any~: ["
        "{~gbnf~: ~root ::= x x\\nx ::= [01]{1,2}~}, {~regex~: ~-+~}]}]}";
    static const char call[] =
        "{~seq~: [{~any~: [{~seq~: []}, {~seq~: [{~text~: ~<t>~}, {~until~: "
        "~</t>~}]}]}, {~repeat~: {~any~: [{~seq~: [{~text~: ~f ~}, {~schema~: "
        "{~type~: ~object~, ~properties~: {~a~: {~type~: ~integer~}}, "
        "~required~: [~a~]}}]}, {~seq~: [{~text~: ~g ~}, {~object~: true}]}]}, "
        "~min~: 1, ~between~: {~text~: ~\\n~}}]}";
    const struct row rows[] = {
        {two,   "{~v~:1};{~v~:true}",                                   true },
        {two,   "{~v~:1,~next~:{~v~:2}};{~v~:true,~next~:{~v~:false}}", true },
        {two,   "{~v~:1};{~v~:2}",                                      false},
        {two,   "{~v~:true};{~v~:true}",                                false},
        {names, "ab001",                                                true },
        {names, "ab--",                                                 true },
        {names, "ab0",                                                  false},
        {names, "a101",                                                 false},
        {call,  "f {~a~: 1}",                                           true },
        {call,  "<t>g {}</t>f {~a~: 1}\ng {~b~: {}}\nf {~a~:2}",        true },
        {call,  "f {}",                                                 false},
        {call,  "<t>f {~a~: 1}",                                        false},
        {call,  "f {~a~: 1}\n",                                         false},
    };
    check(rows, countof(rows));
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *constraint;
        int code;
        const char *msg; /* a part of it */
    } rows[] = {
        {"",                                                           ERR_JSON,        "constraint: "                         },
        {"{~text~: ~a~",                                               ERR_JSON,        "constraint: "                         },
        {"[]",                                                         ERR_INVALID,     "constraint #: is no object"           },
        {"{}",                                                         ERR_INVALID,     "constraint #: no form"                },
        {"{~txt~: ~a~}",                                               ERR_INVALID,     "constraint #: txt: this word is not"  },
        {"{~text~: ~a~, ~min~: 1}",                                    ERR_INVALID,     "#: min: this word"                    },
        {"{~text~: ~a~, ~regex~: ~a~}",                                ERR_INVALID,     "#: text: this word is"                },
        {"{~text~: 1}",                                                ERR_INVALID,     "#: text: is not a string"             },
        {"{~object~: false}",                                          ERR_INVALID,     "#: object: is not true"               },
        {"{~seq~: {}}",                                                ERR_INVALID,     "#: seq: is not a"                     },
        {"{~any~: []}",                                                ERR_INVALID,     "#: any: an empty list"                },
        {"{~until~: ~~}",                                              ERR_INVALID,     "#: until: an empty string"            },
        {"{~without~: [~a~, ~~]}",                                     ERR_INVALID,     "#: without: an empty"                 },
        {"{~without~: [~a~, 1]}",                                      ERR_INVALID,     "without: is no list of str"           },
        {"{~until~: ~a~, ~without~: ~b~}",                             ERR_INVALID,     "is no list of str"                    },
        {"{~until~: ~a~, ~without_first~: [2]}",                       ERR_INVALID,
         "without_first: is no list of strings"                                                                                },
        {"{~repeat~: {~text~: ~a~}, ~min~: -1}",                       ERR_INVALID,     "#: min: is no"                        },
        {"{~repeat~: {~text~: ~a~}, ~min~: 2, ~max~: 1}",              ERR_INVALID,
         "#: min: is more than max"                                                                                            },
        {"{~repeat~: 1}",                                              ERR_INVALID,     "#/repeat: is no object"               },
        {"{~repeat~: {~text~: ~a~}, ~between~: {~any~: [{}]}}",        ERR_INVALID,
         "constraint #/between/any/0: no form"                                                                                 },
        {"{~seq~: [{~text~: ~a~}, {~any~: [{~text~: ~b~}, 3]}]}",      ERR_INVALID,
         "constraint #/seq/1/any/1: is no object"                                                                              },
        {"{~seq~: [{~text~: ~a~}, {~schema~: {~properties~: {~x~: {~not~: "
         "{}}}}}]}",                                          ERR_UNSUPPORTED, "schema #/properties/x: not: this word"},
        {"{~schema~: ~x~}",                                            ERR_INVALID,     "schema #: neither"                    },
        {"{~schema~: false}",                                          ERR_INVALID,     "schema #: false: nothing"             },
        {"{~gbnf~: ~root ::= a~}",                                     ERR_INVALID,     "line 1: the rule 'a' is not"          },
        {"{~gbnf~: ~a ::= [b]~}",                                      ERR_INVALID,     "there is no rule 'root'"              },
        {"{~gbnf~: ~:~}",                                              ERR_INVALID,     "line 1: expected a rule's name"       },
        {"{~gbnf~: ~root ::= root [a]~}",                              ERR_INVALID,     "left recursive"                       },
 /* another part's rule is not seen */
        {"{~seq~: [{~gbnf~: ~root ::= a\\na ::= [a]~}, {~gbnf~: ~root ::= "
         "a~}]}",                                             ERR_INVALID,     "the rule 'a' is not defined"          },
        {"{~seq~: [{~gbnf~: ~root ::= [a]~}, {~gbnf~: ~a ::= [a]~}]}",
         ERR_INVALID,                                                                   "there is no rule 'root'"              },
        {"{~regex~: ~(~}",                                             ERR_INVALID,     "byte 1 of the pattern: expected ')'"  },
        {"{~schema~: {~$ref~: ~#~}}",                                  ERR_INVALID,     "refers to itself"                     },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct err e = {0};
        struct grammar *g = NULL;
        char *c = quoted(rows[i].constraint);
        int rc = grammar_from_text(c, strlen(c), &g, &e);
        if (rc != rows[i].code || strstr(e.msg, rows[i].msg) == NULL) {
            fail_msg("%s: %s: %s", c, err_name(rc), e.msg);
        }
        assert_null(g);
        free(c);
    }
}

/* --- limits --- */

static int compile(const struct buf *b, struct err *e)
{
    struct grammar *g = NULL;
    assert_true(buf_ok(b));
    int rc = grammar_from_text(b->p, b->n, &g, e);
    grammar_free(g);
    return rc;
}

/* `n` times one text between two others. */
static int many(const char *before, const char *one, unsigned n,
                const char *after, struct err *e)
{
    struct buf b;
    buf_init(&b, MIB(8));
    buf_puts(&b, before);
    for (unsigned i = 0; i < n; i++) {
        buf_puts(&b, one);
    }
    buf_puts(&b, after);
    int rc = compile(&b, e);
    buf_fini(&b);
    return rc;
}

static void test_limits(void **state)
{
    (void)state;
    struct err e = {0};
    static const char last[] = "{\"text\":\"\"}";
    char deep[512] = "{\"text\":\"a\"";
    for (unsigned i = 0; i < GRAMMAR_FORMS_DEPTH_MAX; i++) {
        strcat(deep, "}");
    }
    unit_ok(many("", "{\"repeat\":", GRAMMAR_FORMS_DEPTH_MAX - 1, deep, &e),
            &e);
    strcat(deep, "}");
    assert_int_equal(
        many("", "{\"repeat\":", GRAMMAR_FORMS_DEPTH_MAX, deep, &e),
        ERR_TOO_BIG);
    assert_non_null(strstr(e.msg, "nested too deep"));

    unit_ok(many("{\"seq\":[", "{\"text\":\"\"},", GRAMMAR_FORMS_MAX - 2,
                 "{\"text\":\"\"}]}", &e),
            &e);
    assert_int_equal(many("{\"seq\":[", "{\"text\":\"\"},",
                          GRAMMAR_FORMS_MAX - 1, "{\"text\":\"\"}]}", &e),
                     ERR_TOO_BIG);
    assert_int_equal(
        many("{\"without\":[", "\"a\",", GRAMMAR_FORMS_MAX, "\"a\"]}", &e),
        ERR_TOO_BIG);

    unit_ok(many("{\"until\":\"", "a", GRAMMAR_FIND_MAX, "\"}", &e), &e);
    assert_int_equal(
        many("{\"until\":\"", "a", GRAMMAR_FIND_MAX + 1, "\"}", &e),
        ERR_TOO_BIG);
    unit_ok(many("{\"until\":\"", "\xF0\x9F\x98\x80\xC3\xA9",
                 GRAMMAR_FIND_MAX / 6, "\"}", &e),
            &e);

    assert_int_equal(many(last, " ", GRAMMAR_TEXT_MAX, "", &e), ERR_TOO_BIG);
    unit_ok(many(last, " ", GRAMMAR_TEXT_MAX - sizeof(last) + 1, "", &e), &e);
    /* of what is built */
    assert_int_equal(many("{\"repeat\":{\"repeat\":{\"text\":\"a\"},\"min\":"
                          "65536},\"min\":65536",
                          "", 0, "}", &e),
                     0);
    assert_int_equal(many("{\"seq\":[",
                          "{\"repeat\":{\"text\":\"a\"},\"min\":"
                          "65536},",
                          5, "{\"text\":\"\"}]}", &e),
                     ERR_TOO_BIG);
}

/* --- strings that are looked for, against memmem --- */

static uint64_t seed = 7;

static const char *const letters[] = {"a",
                                      "b",
                                      "a",
                                      "c",
                                      "\xC3\xA9",
                                      "\xC3\xA8",
                                      "\xE2\x82\xAC",
                                      "\xF0\x9F\x98\x80"};

static void draw(struct buf *b, uint32_t most, uint32_t kinds)
{
    buf_init(b, 4096);
    buf_puts(b, "");
    for (uint32_t n = roll(&seed, most + 1); n > 0; n--) {
        buf_puts(b, letters[roll(&seed, kinds)]);
    }
}

/* Where the first of the strings ends in the text; SIZE_MAX: none is there. */
static size_t first_end(const struct buf *text, const struct buf *strings,
                        size_t n)
{
    size_t end = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        char *at = text->n > 0
                       ? memmem(text->p, text->n, strings[i].p, strings[i].n)
                       : NULL;
        if (at != NULL && (size_t)(at - text->p) + strings[i].n < end) {
            end = (size_t)(at - text->p) + strings[i].n;
        }
    }
    return end;
}

static struct matcher *matcher_of(const struct buf *c, struct grammar **g)
{
    struct err e = {0};
    struct matcher *m = NULL;
    unit_ok(grammar_from_text(c->p, c->n, g, &e), &e);
    unit_ok(matcher_new(*g, &m, &e), &e);
    return m;
}

static unsigned n_found, n_absent;

static void try_texts(const struct buf *strings, size_t n,
                      struct matcher *until, struct matcher *without,
                      uint32_t kinds)
{
    for (unsigned i = 0; i < 40; i++) {
        struct buf text;
        draw(&text, 12, kinds);
        size_t all = first_end(&text, strings, n);
        size_t one = first_end(&text, strings, 1);
        bool whole = utf8_valid(text.p, text.n);
        if (grammar_takes(without, text.p, text.n) !=
                (whole && all == SIZE_MAX) ||
            grammar_takes(until, text.p, text.n) != (whole && one == text.n)) {
            fail_msg("'%s' in '%s'", strings[0].p, text.p);
        }
        if (one != SIZE_MAX && !grammar_takes(until, text.p, one)) {
            fail_msg("'%s' in '%.*s'", strings[0].p, (int)one, text.p);
        }
        n_found += one != SIZE_MAX;
        n_absent += all == SIZE_MAX;
        buf_fini(&text);
    }
}

static void test_search(void **state)
{
    (void)state;
    for (unsigned i = 0; i < (UNIT_SANITIZED ? 100 : 1000); i++) {
        struct buf strings[4];
        struct buf until;
        struct buf without;
        struct grammar *g[2] = {NULL, NULL};
        size_t n = 1 + roll(&seed, countof(strings));
        uint32_t kinds = 2 + roll(&seed, countof(letters) - 1);
        buf_init(&until, 4096);
        buf_init(&without, 4096);
        for (size_t k = 0; k < n; k++) {
            draw(&strings[k], 5, kinds);
            if (strings[k].n == 0) {
                buf_puts(&strings[k], "b");
            }
            buf_printf(&without, "%s\"%s\"", k > 0 ? "," : "{\"without\":[",
                       strings[k].p);
        }
        buf_puts(&without, "]}");
        buf_printf(&until, "{\"until\":\"%s\"}", strings[0].p);
        struct matcher *a = matcher_of(&until, &g[0]);
        struct matcher *b = matcher_of(&without, &g[1]);
        try_texts(strings, n, a, b, kinds);
        for (size_t k = 0; k < n; k++) {
            buf_fini(&strings[k]);
        }
        buf_fini(&until);
        buf_fini(&without);
        matcher_free(a);
        matcher_free(b);
        grammar_free(g[0]);
        grammar_free(g[1]);
    }
    print_message("found %u, absent %u\n", n_found, n_absent);
    assert_true(n_found > 500 && n_absent > 500);
}

/* All of them at once: "until" the first string, without the second, not
 * beginning with the third. */
static bool allowed(const struct buf *text, const struct buf *s)
{
    size_t at = strspn(text->p, " ");
    bool begins =
        text->n - at >= s[2].n && memcmp(text->p + at, s[2].p, s[2].n) == 0;
    return utf8_valid(text->p, text->n) &&
           first_end(text, &s[0], 1) == text->n &&
           first_end(text, &s[1], 1) == SIZE_MAX && !begins;
}

static unsigned try_together(struct matcher *m, const struct buf *s,
                             uint32_t kinds)
{
    unsigned n_taken = 0;
    for (unsigned k = 0; k < 60; k++) {
        struct buf text;
        draw(&text, 5, kinds);
        if (roll(&seed, 3) == 0) {
            buf_puts(&text, s[0].p);
        }
        if (roll(&seed, 4) == 0) {
            buf_puts(&text, " ");
            memmove(text.p + 1, text.p, text.n - 1);
            text.p[0] = ' ';
        }
        if (grammar_takes(m, text.p, text.n) != allowed(&text, s)) {
            fail_msg("until '%s', without '%s', first '%s': '%s'", s[0].p,
                     s[1].p, s[2].p, text.p);
        }
        n_taken += allowed(&text, s);
        buf_fini(&text);
    }
    return n_taken;
}

static void test_together(void **state)
{
    (void)state;
    unsigned n_taken = 0;
    for (unsigned i = 0; i < (UNIT_SANITIZED ? 100 : 1000); i++) {
        struct buf s[3];
        struct buf c;
        struct grammar *g = NULL;
        uint32_t kinds = 3 + roll(&seed, 2);
        for (size_t k = 0; k < countof(s); k++) {
            draw(&s[k], 2, kinds);
            buf_puts(&s[k], k == 1 ? "ba" : "b");
        }
        if (strstr(s[0].p, s[1].p) != NULL) { /* then nothing can match */
            buf_puts(&s[1], "a");
            buf_clear(&s[0]);
            buf_puts(&s[0], "ab");
        }
        buf_init(&c, 4096);
        buf_printf(&c,
                   "{\"until\":\"%s\",\"without\":[\"%s\"],"
                   "\"without_first\":[\"%s\"]}",
                   s[0].p, s[1].p, s[2].p);
        struct matcher *m = matcher_of(&c, &g);
        n_taken += try_together(m, s, kinds);
        for (size_t k = 0; k < countof(s); k++) {
            buf_fini(&s[k]);
        }
        matcher_free(m);
        grammar_free(g);
        buf_fini(&c);
    }
    print_message("%u let through\n", n_taken);
    assert_true(n_taken > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),    cmocka_unit_test(test_repeat),
        cmocka_unit_test(test_nested),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_search),
        cmocka_unit_test(test_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
