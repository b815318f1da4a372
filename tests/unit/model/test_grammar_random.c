/* test_grammar_random.c - schemas that are drawn, against a validator that is
 * written apart: valid values match, every text that the grammar gives is valid,
 * and texts with an error match only if they are valid still. Masks of these
 * grammars are compared with every token tried. */
#include <math.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "grammar_check.h"
#include "proto/json.h"

static uint64_t seed = 2024;

/* --- schemas --- */

static void schema(struct buf *b, int depth);

static void properties(struct buf *b, int depth)
{
    static const char *const names[] = {"a", "ab", "b\\\"c", "\xC3\xA9", "x y"};
    unsigned n = roll(&seed, countof(names) + 1);
    buf_puts(b, "\"properties\":{");
    for (unsigned i = 0; i < n; i++) {
        buf_printf(b, "%s\"%s\":", i > 0 ? "," : "", names[i]);
        schema(b, depth - 1);
    }
    buf_puts(b, "},\"required\":[");
    for (unsigned i = 0, k = 0; i < n; i++) {
        if (roll(&seed, 2) == 0) {
            buf_printf(b, "%s\"%s\"", k++ > 0 ? "," : "", names[i]);
        }
    }
    buf_puts(b, "]");
    if (roll(&seed, 2) == 0) {
        buf_puts(b, ",\"additionalProperties\":");
        if (roll(&seed, 3) == 0) {
            buf_puts(b, "false");
        } else {
            schema(b, depth - 1);
        }
    }
}

static void schema(struct buf *b, int depth)
{
    static const char *const enums[] = {
        "{\"enum\":[\"a\",\"ab\",3,null,[1,{\"k\":true}]]}",
        "{\"const\":\"x\\\\y\"}",
        "{\"type\":\"string\",\"enum\":[\"red\",\"reddish\",7]}",
        "{\"type\":[\"null\",\"boolean\"]}",
    };
    int lo = (int)roll(&seed, 300) - 150;
    unsigned min = roll(&seed, 3);
    unsigned max = min + roll(&seed, 3);
    switch (roll(&seed, depth > 0 ? 9 : 5)) {
    case 0:
        buf_puts(b, enums[roll(&seed, countof(enums))]);
        break;
    case 1:
        buf_printf(b, "{\"type\":\"integer\",\"minimum\":%d,\"%s\":%d}", lo,
                   roll(&seed, 2) ? "maximum" : "exclusiveMaximum",
                   lo + 1 + (int)roll(&seed, 200));
        break;
    case 2:
        buf_printf(b, "{\"type\":\"number\",\"%s\":%d%s%d}",
                   roll(&seed, 2) ? "minimum" : "exclusiveMinimum", lo,
                   roll(&seed, 2) ? ",\"maximum\":" : ",\"exclusiveMaximum\":",
                   lo + 1 + (int)roll(&seed, 4));
        break;
    case 3:
        buf_printf(b, "{\"type\":\"string\",\"minLength\":%u,\"maxLength\":%u}",
                   min, max);
        break;
    case 4:
        buf_puts(b, "{\"type\":\"string\"}");
        break;
    case 5:
        buf_printf(b, "{\"type\":\"array\",\"minItems\":%u,\"maxItems\":%u,"
                      "\"items\":", min, max);
        schema(b, depth - 1);
        buf_puts(b, "}");
        break;
    case 6:
        buf_puts(b, "{\"anyOf\":[");
        schema(b, depth - 1);
        buf_puts(b, ",");
        schema(b, depth - 1);
        buf_puts(b, "]}");
        break;
    case 7:
        buf_puts(b, "{\"type\":\"array\",\"prefixItems\":[");
        schema(b, depth - 1);
        buf_puts(b, "],\"items\":");
        schema(b, depth - 1);
        buf_printf(b, ",\"maxItems\":%u}", 1 + min);
        break;
    default:
        buf_puts(b, "{\"type\":\"object\",");
        properties(b, depth);
        buf_puts(b, "}");
        break;
    }
}

/* --- the validator --- */

static bool valid(const struct json *s, const struct json *x);

static bool is_type(const char *type, const struct json *x)
{
    if (strcmp(type, "integer") == 0) {
        return json_type(x) == JSON_NUMBER &&
               fabs(json_num(x) - round(json_num(x))) < 1e-12;
    }
    static const char *const names[] = {"null",   "boolean", "number",
                                        "string", "array",   "object"};
    return strcmp(type, names[json_type(x)]) == 0;
}

static bool same(const struct json *a, const struct json *b)
{
    struct buf x;
    struct buf y;
    buf_init(&x, 4096);
    buf_init(&y, 4096);
    json_write(a, false, &x);
    json_write(b, false, &y);
    bool ok = x.n == y.n && memcmp(x.p, y.p, x.n) == 0;
    buf_fini(&x);
    buf_fini(&y);
    return ok;
}

static double number(const struct json *s, const char *word, double absent)
{
    const struct json *w = json_get(s, word);
    return w != NULL ? json_num(w) : absent;
}

static size_t chars_of(const char *p)
{
    size_t n = 0;
    for (; *p != '\0'; p++) {
        n += ((unsigned char)*p & 0xC0) != 0x80;
    }
    return n;
}

static bool valid_object(const struct json *s, const struct json *x)
{
    const struct json *props = json_get(s, "properties");
    const struct json *more = json_get(s, "additionalProperties");
    for (const struct json *r = json_first(json_get(s, "required")); r != NULL;
         r = json_next(r)) {
        if (json_get(x, json_str(r)) == NULL) {
            return false;
        }
    }
    for (const struct json *m = json_first(x); m != NULL; m = json_next(m)) {
        const struct json *p = json_get(props, json_key(m));
        p = p != NULL ? p : more;
        if (p != NULL && !valid(p, m)) {
            return false;
        }
    }
    return true;
}

static bool valid_array(const struct json *s, const struct json *x)
{
    double n = (double)json_count(x);
    const struct json *own = json_first(json_get(s, "prefixItems"));
    const struct json *rest = json_get(s, "items");
    for (const struct json *m = json_first(x); m != NULL; m = json_next(m)) {
        const struct json *p = own != NULL ? own : rest;
        if (p != NULL && !valid(p, m)) {
            return false;
        }
        own = own != NULL ? json_next(own) : NULL;
    }
    return n >= number(s, "minItems", 0) && n <= number(s, "maxItems", 1e9);
}

static bool valid(const struct json *s, const struct json *x)
{
    const struct json *type = json_get(s, "type");
    const struct json *list = json_get(s, "enum");
    const struct json *any = json_get(s, "anyOf");
    bool ok = json_type(s) != JSON_BOOL || json_bool(s);
    if (json_type(type) == JSON_ARRAY && type != NULL) {
        bool one = false;
        for (const struct json *t = json_first(type); t; t = json_next(t)) {
            one |= is_type(json_str(t), x);
        }
        ok &= one;
    } else if (type != NULL) {
        ok &= is_type(json_str(type), x);
    }
    if (list != NULL || any != NULL) {
        bool one = false;
        for (const struct json *v = json_first(list); v; v = json_next(v)) {
            one |= same(v, x);
        }
        for (const struct json *v = json_first(any); v; v = json_next(v)) {
            one |= valid(v, x);
        }
        ok &= one;
    }
    if (json_get(s, "const") != NULL) {
        ok &= same(json_get(s, "const"), x);
    }
    if (json_type(x) == JSON_NUMBER) {
        double d = json_num(x);
        ok &= d >= number(s, "minimum", -1e300) &&
              d <= number(s, "maximum", 1e300) &&
              d > number(s, "exclusiveMinimum", -1e300) &&
              d < number(s, "exclusiveMaximum", 1e300);
    } else if (json_type(x) == JSON_STRING) {
        double n = (double)chars_of(json_str(x));
        ok &= n >= number(s, "minLength", 0) && n <= number(s, "maxLength", 1e9);
    }
    return ok && (json_type(x) != JSON_ARRAY || valid_array(s, x)) &&
           (json_type(x) != JSON_OBJECT || valid_object(s, x));
}

/* --- valid values --- */

static void instance(struct buf *b, const struct json *s)
{
    static const char *const strings[] = {"a", "\xC3\xA9", "\\n", "\\\"",
                                          "\xF0\x9F\x98\x80", "\\ud83d\\ude00"};
    const struct json *any = json_get(s, "anyOf");
    const struct json *list = json_get(s, "enum");
    const char *type = json_str(json_get(s, "type"));
    if (any != NULL) {
        const struct json *x = json_first(any);
        instance(b, roll(&seed, 2) == 0 ? x : json_next(x));
    } else if (list != NULL) {
        json_write(json_first(list), false, b);
    } else if (json_get(s, "const") != NULL) {
        json_write(json_get(s, "const"), false, b);
    } else if (type == NULL) {
        buf_puts(b, "null");
    } else if (strcmp(type, "integer") == 0) {
        int lo = (int)number(s, "minimum", 0);
        int hi = (int)number(s, "maximum", number(s, "exclusiveMaximum", 0) - 1);
        buf_printf(b, "%d", lo + (int)roll(&seed, (uint32_t)(hi - lo + 1)));
    } else if (strcmp(type, "number") == 0) {
        int lo = (int)number(s, "minimum", number(s, "exclusiveMinimum", 0));
        int hi = (int)number(s, "maximum", number(s, "exclusiveMaximum", 0));
        double x = lo + (hi - lo) * (double)(1 + roll(&seed, 998)) / 1000;
        buf_printf(b, "%.4f", x);
    } else if (strcmp(type, "string") == 0) {
        unsigned lo = (unsigned)number(s, "minLength", 0);
        unsigned hi = (unsigned)number(s, "maxLength", 9);
        buf_puts(b, "\"");
        for (unsigned n = lo + roll(&seed, hi - lo + 1); n > 0; n--) {
            buf_puts(b, strings[roll(&seed, countof(strings))]);
        }
        buf_puts(b, "\"");
    } else if (strcmp(type, "array") == 0) {
        unsigned lo = (unsigned)number(s, "minItems", 0);
        unsigned hi = (unsigned)number(s, "maxItems", 3);
        const struct json *own = json_first(json_get(s, "prefixItems"));
        unsigned n = lo + roll(&seed, hi - lo + 1);
        buf_puts(b, "[");
        for (unsigned i = 0; i < n; i++) {
            buf_puts(b, i > 0 ? "," : "");
            instance(b, own != NULL ? own : json_get(s, "items"));
            own = own != NULL ? json_next(own) : NULL;
        }
        buf_puts(b, "]");
    } else {
        const struct json *more = json_get(s, "additionalProperties");
        unsigned k = 0;
        buf_puts(b, "{");
        for (const struct json *p = json_first(json_get(s, "properties"));
             p != NULL; p = json_next(p)) {
            bool need = false;
            for (const struct json *r = json_first(json_get(s, "required"));
                 r != NULL; r = json_next(r)) {
                need |= strcmp(json_str(r), json_key(p)) == 0;
            }
            if (need || roll(&seed, 2) == 0) {
                buf_puts(b, k++ > 0 ? ", " : "");
                json_put_string(b, json_key(p), strlen(json_key(p)));
                buf_puts(b, ": ");
                instance(b, p);
            }
        }
        if (more != NULL && json_type(more) == JSON_OBJECT &&
            roll(&seed, 2) == 0) {
            buf_puts(b, k > 0 ? ", \"abc\": " : "\"abc\": ");
            instance(b, more);
        }
        buf_puts(b, "}");
    }
}

/* --- the comparisons --- */

static unsigned n_valid, n_given, n_mutated, n_refused;

/* Whether text is JSON and valid; not JSON at all is not valid. A key that
 * stands twice passes: it may be one that is not declared, of which a grammar
 * does not know whether it came before. */
static bool judge(const struct json *s, const struct buf *text)
{
    struct err e = {0};
    struct json *x = NULL;
    if (json_check(text->p, text->n, &e) != 0) {
        return false;
    }
    bool ok = json_parse(text->p, text->n, &x, &e) != 0 || valid(s, x);
    json_free(x);
    return ok;
}

static void mutate(struct matcher *m, const struct json *s,
                   const struct buf *text)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_put(&b, text->p, text->n);
    size_t at = roll(&seed, (uint32_t)b.n);
    static const char bytes[] = "\"{}[],:0123456789.-eax\\ n";
    switch (roll(&seed, 3)) {
    case 0:
        b.p[at] = bytes[roll(&seed, sizeof(bytes) - 1)];
        break;
    case 1:
        memmove(b.p + at, b.p + at + 1, b.n - at);
        b.n--;
        break;
    default:
        buf_puts(&b, "x");
        memmove(b.p + at + 1, b.p + at, b.n - 1 - at);
        b.p[at] = bytes[roll(&seed, sizeof(bytes) - 1)];
        break;
    }
    bool takes = grammar_takes(m, b.p, b.n);
    n_mutated++;
    n_refused += !takes;
    if (takes && !judge(s, &b)) {
        struct buf w;
        buf_init(&w, 1 << 16);
        json_write(s, false, &w);
        fail_msg("%s: %.*s should not match", w.p, (int)b.n, b.p);
    }
    buf_fini(&b);
}

/* A text that the grammar gives: random bytes that match, ends soon. */
static bool give(struct matcher *m, struct buf *b)
{
    match_t s = match_start(m);
    match_hold(m, s);
    while (b->n < 400) {
        if (match_may_end(m, s) && roll(&seed, 3) == 0) {
            break;
        }
        uint8_t from = (uint8_t)roll(&seed, 256);
        static const char likely[] = "\"\"\"}],";
        bool moved = false;
        for (unsigned i = 0; i < 260 && !moved; i++) {
            char c = (char)(i < 4 && b->n > 40 + roll(&seed, 100)
                                ? likely[roll(&seed, sizeof(likely) - 1)]
                                : (char)(from + i));
            moved = match_bytes(m, &s, &c, 1);
            if (moved) {
                buf_put(b, &c, 1);
            }
        }
        if (!moved) {
            break;
        }
    }
    bool ok = match_may_end(m, s);
    match_drop(m, s);
    return ok;
}

static void try_schema(const char *text, size_t n)
{
    struct err e = {0};
    struct json *s = NULL;
    struct grammar *g = NULL;
    struct matcher *m = NULL;
    unit_ok(json_parse(text, n, &s, &e), &e);
    unit_ok(grammar_from_schema(s, &g, &e), &e);
    unit_ok(matcher_new(g, &m, &e), &e);
    for (int i = 0; i < 8; i++) {
        struct buf b;
        buf_init(&b, 1 << 16);
        instance(&b, s);
        assert_true(judge(s, &b));
        if (!grammar_takes(m, b.p, b.n)) {
            fail_msg("%.*s: %s should match", (int)n, text, b.p);
        }
        n_valid++;
        for (int k = 0; k < 20; k++) {
            mutate(m, s, &b);
        }
        buf_clear(&b);
        if (give(m, &b)) {
            n_given++;
            if (!judge(s, &b)) {
                print_message("given: %s\n", b.p);
                fail_msg("%.*s: it gives this", (int)n, text);
            }
        }
        buf_fini(&b);
    }
    matcher_free(m);
    grammar_free(g);
    json_free(s);
}

static void test_schemas(void **state)
{
    (void)state;
    for (int i = 0; i < (UNIT_SANITIZED ? 60 : 400); i++) {
        struct buf b;
        buf_init(&b, 1 << 16);
        schema(&b, 3);
        try_schema(b.p, b.n);
        buf_fini(&b);
    }
    print_message("%u valid, %u given, %u of %u mutated refused\n", n_valid,
                  n_given, n_refused, n_mutated);
    assert_true(n_given > n_valid / 4);
    assert_true(n_refused > n_mutated / 2);
}

static void test_masks(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "\"", "\":", "\",\"", "{\"", "{", "}", "[", "]", ", ", ",", ": ", "\n",
        "\\", "\\n", "\\u00", "the", " of", "a", "ab", "\"ab\"", "abc", "true",
        "null", "12", "-1", "0.5", "1", "\xC3\xA9", "\xE2\x82\xAC", "x y", "red",
    };
    static struct voc v;
    static uint64_t bits[countof(v.tokens) / 64];
    for (int i = 0; i < (UNIT_SANITIZED ? 6 : 30); i++) {
        struct err e = {0};
        struct buf b;
        struct json *j = NULL;
        struct grammar *g = NULL;
        struct matcher *m = NULL;
        struct trie *t = NULL;
        struct masker *k = NULL;
        buf_init(&b, 1 << 16);
        schema(&b, 3);
        voc_make(&v, parts, countof(parts), &seed);
        unit_ok(json_parse(b.p, b.n, &j, &e), &e);
        unit_ok(grammar_from_schema(j, &g, &e), &e);
        unit_ok(matcher_new(g, &m, &e), &e);
        unit_ok(trie_new(v.tokens, v.kinds, v.n, &t, &e), &e);
        unit_ok(masker_new(m, t, &k, &e), &e);
        match_t s = match_start(m);
        match_hold(m, s);
        for (int step = 0; step < 30 && s != MATCH_DEAD &&
                           mask_compare(m, k, s, &v, bits);
             step++) {
            uint32_t id = roll(&seed, v.n);
            while ((bits[id / 64] >> id % 64 & 1) == 0) {
                id = (id + 1) % v.n;
            }
            assert_true(mask_token(k, &s, id));
        }
        match_drop(m, s);
        masker_free(k);
        trie_free(t);
        matcher_free(m);
        grammar_free(g);
        json_free(j);
        buf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
