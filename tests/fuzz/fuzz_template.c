/* fuzz_template.c - chat templates out of a grammar: every construct of the
 * language, chains of any length, deep nesting, values that do and do not fit.
 * The template is rendered twice on a thread with a small stack; both
 * renderings must agree, and what fails must leave the text alone. With
 * FUZZ_SHOW in the environment the template is printed. */
#include <pthread.h>
#include <string.h>

#include "draw.h"
#include "model/chat.h"
#include "proto/limits.h"

#define STACK_BYTES KIB(512) /* what a thread has by default on macOS */
#define DEPTH       6        /* of what the generator draws level by level */

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum want { TEXT, NUMBER, LIST, TRUTH, ANY, N_WANTS };

struct gen {
    struct draw d;
    struct buf b;
};

static void put(struct gen *g, const char *s)
{
    buf_puts(&g->b, s);
}

static void repeat(struct gen *g, const char *s, unsigned n)
{
    while (n > 0 && buf_ok(&g->b)) {
        put(g, s);
        n--;
    }
}

#define PUT_OF(g, array) put((g), draw_of(&(g)->d, array))

/* --- expressions --- */

static void leaf(struct gen *g, enum want w)
{
    static const char *const text[] = {
        "'x'",
        "m.role",
        "m['content']",
        "messages[0].content",
        "bos_token",
        "\"a\\n\\u00e9\\x41\"",
        "'a' \"b\" 'c'",
        "eos_token",
        "''",
        "' \xc3\xa9\xe3\x80\x80 '",
        "strftime_now('%d %b %Y')",
        "messages[0]['role']",
        "'a,b,,c'",
    };
    static const char *const number[] = {
        "1", "0", "loop.index", "messages|length", "9223372036854775807",
        "60000", "-1", "ns.a", "loop.revindex0", "-9223372036854775807",
    };
    static const char *const list[] = {
        "messages", "[1, 2]", "range(3)", "messages[1:]", "'a b'.split(' ')",
        "[]", "(1,)", "messages[::-1]", "range(1000)",
    };
    static const char *const truth[] = {
        "true", "false", "add_generation_prompt", "loop.first", "ns is defined",
        "none", "x is undefined", "loop.last", "False",
    };
    static const char *const any[] = {"ns", "nothing", "m", "loop", "tools",
                                      "None", "x", "documents", "{}"};
    switch (w) {
    case TEXT:
        PUT_OF(g, text);
        break;
    case NUMBER:
        PUT_OF(g, number);
        break;
    case LIST:
        PUT_OF(g, list);
        break;
    case TRUTH:
        PUT_OF(g, truth);
        break;
    case ANY:
    case N_WANTS:
        PUT_OF(g, any);
        break;
    }
}

/* One link of a chain that keeps the kind of its value. */
static const char *link_of(struct gen *g, enum want w)
{
    static const char *const text[] = {
        "|trim", "+'a'", "~'b'", ".strip()", "|upper", "|lower", "~1",
        "|default('x')", "|string", ".replace('a', 'bb')", " if true",
        " or 'x'", " and 'y'", ".lstrip('x')", "|safe", " if false else 'z'",
        "[0:1]", " 'c'", "|string()",
    };
    static const char *const number[] = {"+1", "-1", "%7", " if true", " or 1",
                                         " and 2", "*2", "//2", "-(-1)"};
    static const char *const list[] = {"[:]", "[1:]", "[::-1]", "|list",
                                       " or messages", "[0:9]", " if true"};
    static const char *const truth[] = {
        " and true", " or false", " is defined", " is not none", " == 1",
        " if true", " is true", " in [true]", " is eq true", " is equalto(1)",
    };
    static const char *const any[] = {".a", "['a']", ".get('a')", "[0]", "()",
                                      "|first", "|default(ns)", ".b.a",
                                      " is mapping"};
    switch (w) {
    case TEXT:
        return draw_of(&g->d, text);
    case NUMBER:
        return draw_of(&g->d, number);
    case LIST:
        return draw_of(&g->d, list);
    case TRUTH:
        return draw_of(&g->d, truth);
    case ANY:
    case N_WANTS:
        break;
    }
    return draw_of(&g->d, any);
}

static void chain(struct gen *g, enum want w)
{
    leaf(g, w);
    const char *one = link_of(g, w);
    const char *other = draw_one_in(&g->d, 4) ? link_of(g, w) : "";
    for (unsigned n = draw_count(&g->d); n > 0 && buf_ok(&g->b); n--) {
        put(g, one);
        put(g, other);
    }
}

/* n times opened, n times closed. */
static void nest(struct gen *g, enum want w)
{
    static const struct {
        const char *open, *close;
    } kinds[] = {
        {"(",                   ")"  },
        {"[",                   "]"  },
        {"not ",                ""   },
        {"-",                   ""   },
        {"{1: ",                "}"  },
        {"(",                   ",)" },
        {"range(",              ")"  },
        {"'x' if false else ",  ""   },
        {"messages[",           "]"  },
        {"dict(a=",             ")"  },
        {"'a'.replace('a', ",   ")"  },
        {"x|default(",          ")"  },
        {"1 + (",               ")"  },
        {"{",                   ": 1}"},
        {"x is eq(",            ")"  },
        {"messages[0:",         "]"  },
    };
    unsigned k = draw_below(&g->d, countof(kinds));
    unsigned n = draw_count(&g->d);
    repeat(g, kinds[k].open, n);
    leaf(g, w);
    repeat(g, kinds[k].close, n);
}

static void expr(struct gen *g, enum want w, unsigned depth);

/* A pattern with a letter for each expression in it. */
static void fill(struct gen *g, const char *pattern, unsigned depth)
{
    for (const char *s = pattern; *s != '\0' && buf_ok(&g->b); s++) {
        const char *at = strchr("TNLBA", *s);
        if (at != NULL) {
            expr(g, (enum want)(at - "TNLBA"), depth);
        } else {
            buf_put(&g->b, s, 1);
        }
    }
}

/* Each capital letter is an expression: text, number, list, bool, any. */
static void form(struct gen *g, enum want w, unsigned depth)
{
    static const char *const text[] = {
        "(T + T)", "(T ~ A)", "T|trim", "(T if B else T)", "T.strip(T)",
        "T.replace(T, T)", "T.split(T)[N]", "L|first", "T[N:N]",
        "A|default(T)", "A.get(T, T)", "strftime_now(T)", "raise_exception(T)",
        "T.title()", "cycler(T)", "L|tojson", "A[T]", "(T or T)", "L|last",
        "T|length|string", "(B and T)", "T|upper|lower",
    };
    static const char *const number[] = {
        "(N + N)", "(N - N)", "N % N", "-N", "T|length", "L|count", "A|length",
        "(N if B else N)", "N * N", "N ** N", "(N // N)",
    };
    static const char *const list[] = {
        "range(N)", "range(N, N)", "[T, N]", "L[N:]", "L[:N]", "L[N:N:N]",
        "T.split(T)", "(T, L)", "L|list", "[L, L]", "L[::-1]", "[A]",
        "(L or L)", "A.items()", "{T: N}", "(L + L)",
    };
    static const char *const truth[] = {
        "(T == T)", "(N < N)", "(T in L)", "(T in T)", "(not B)", "(B and B)",
        "(B or B)", "A is defined", "A is not none", "(N >= N)", "(T != A)",
        "A is string", "(A not in L)", "T.startswith(T)", "(T > T)",
        "A is equalto(A)", "A is iterable", "N is odd", "(L == L)",
        "T.endswith(T)", "(T in A)",
    };
    static const char *const any[] = {
        "namespace(a=A, b=T)", "L[N]", "A.a", "A[T]", "A.get(T)", "T", "N",
        "dict(a=L)", "A(A)", "A.a(A, A)", "A|map(T)", "A[A]", "(A if B)",
        "L|first",
    };
    switch (w) {
    case TEXT:
        fill(g, draw_of(&g->d, text), depth);
        break;
    case NUMBER:
        fill(g, draw_of(&g->d, number), depth);
        break;
    case LIST:
        fill(g, draw_of(&g->d, list), depth);
        break;
    case TRUTH:
        fill(g, draw_of(&g->d, truth), depth);
        break;
    case ANY:
    case N_WANTS:
        fill(g, draw_of(&g->d, any), depth);
        break;
    }
}

static void expr(struct gen *g, enum want w, unsigned depth)
{
    if (draw_one_in(&g->d, 64)) {
        w = (enum want)draw_below(&g->d, N_WANTS); /* one that does not fit */
    }
    unsigned k = depth > 0 ? draw_below(&g->d, 8) : 0;
    if (k < 3) {
        leaf(g, w);
    } else if (k < 6) {
        form(g, w, depth - 1);
    } else if (k == 6) {
        chain(g, w);
    } else {
        nest(g, w);
    }
}

/* --- statements --- */

static void block(struct gen *g, unsigned depth);

static void open_tag(struct gen *g, const char *word)
{
    static const char *const tags[] = {"{% ", "{%- ", "{%+ ", "\n  {% "};
    PUT_OF(g, tags);
    put(g, word);
}

static void close_tag(struct gen *g)
{
    static const char *const tags[] = {" %}", " -%}", " %}\n", " +%}"};
    PUT_OF(g, tags);
}

static void branches(struct gen *g, unsigned depth)
{
    open_tag(g, "if ");
    expr(g, TRUTH, DEPTH);
    close_tag(g);
    block(g, depth);
    for (unsigned n = draw_count(&g->d); n > 0 && buf_ok(&g->b); n--) {
        put(g, "{% elif ");
        expr(g, TRUTH, 1);
        close_tag(g);
        block(g, depth);
    }
    if (draw_one_in(&g->d, 2)) {
        put(g, "{% else %}");
        block(g, depth);
    }
    open_tag(g, "endif");
    close_tag(g);
}

static void loop(struct gen *g, unsigned depth)
{
    static const char *const names[] = {"m", "message", "x", "k, v", "ns"};
    open_tag(g, "for ");
    PUT_OF(g, names);
    put(g, " in ");
    expr(g, LIST, DEPTH);
    if (draw_one_in(&g->d, 4)) {
        put(g, " if ");
        expr(g, TRUTH, 2);
    }
    close_tag(g);
    block(g, depth);
    if (draw_one_in(&g->d, 4)) {
        put(g, "{% else %}");
        block(g, depth);
    }
    put(g, "{% endfor %}");
}

static void set(struct gen *g, unsigned depth)
{
    static const char *const names[] = {"x", "ns.a", "ns", "m", "ns.b",
                                        "messages", "loop", "nothing.a"};
    open_tag(g, "set ");
    PUT_OF(g, names);
    if (draw_one_in(&g->d, 5)) {
        close_tag(g);
        block(g, depth);
        put(g, "{% endset %}");
    } else {
        put(g, " = ");
        expr(g, (enum want)draw_below(&g->d, N_WANTS), DEPTH);
        close_tag(g);
    }
}

/* Statements inside statements, as deep as drawn. */
static void deep(struct gen *g, unsigned depth)
{
    static const struct {
        const char *open, *close;
    } kinds[] = {
        {"{% if true %}",             "{% endif %}"        },
        {"{% for i in [1] %}",        "{% endfor %}"       },
        {"{% if false %}{% else %}",  "{% endif %}"        },
        {"{% set x %}",               "{% endset %}"       },
        {"{% generation %}",          "{% endgeneration %}"},
        {"{% macro f(x) %}",          "{% endmacro %}"     },
        {"{% for i in [1, 2] %}",     "{% endfor %}"       },
        {"{% for i in [] %}{% else %}", "{% endfor %}"     },
    };
    unsigned k = draw_below(&g->d, countof(kinds));
    unsigned n = draw_count(&g->d);
    repeat(g, kinds[k].open, n);
    block(g, depth);
    repeat(g, kinds[k].close, n);
}

static void wild(struct gen *g)
{
    static const char *const parts[] = {
        "{% break %}", "{% continue %}", "{# note #}", "{{", "}}", "{%", "%}",
        "{% endif %}", "{% else %}", "'", "{#", "{% include 'x' %}", "{{ }}",
        "{% raw %}", "{{- '' -}}", "\xff", "{% for %}", "{{ x[ }}", "\\",
    };
    PUT_OF(g, parts);
}

static void statement(struct gen *g, unsigned depth)
{
    static const char *const texts[] = {"text", "\n", "  ", "<|im_end|>\n",
                                        "{", "\xe2\x82\xac"};
    switch (draw_below(&g->d, 24)) {
    case 0:
        PUT_OF(g, texts);
        break;
    default:
        put(g, draw_one_in(&g->d, 3) ? "{{- " : "{{ ");
        expr(g, draw_one_in(&g->d, 3) ? NUMBER : TEXT, DEPTH);
        put(g, draw_one_in(&g->d, 3) ? " -}}" : " }}");
        break;
    case 1:
    case 2:
    case 3:
    case 4:
        branches(g, depth);
        break;
    case 5:
    case 6:
    case 7:
        loop(g, depth);
        break;
    case 8:
    case 9:
    case 10:
        set(g, depth);
        break;
    case 11:
    case 12:
        deep(g, depth);
        break;
    case 13:
        put(g, "{% macro f(a, b=1) %}");
        block(g, depth);
        put(g, "{% endmacro %}");
        break;
    case 14:
        wild(g);
        break;
    }
}

static void block(struct gen *g, unsigned depth)
{
    unsigned n = depth > 0 ? draw_below(&g->d, 4) : 0;
    for (; n > 0 && buf_ok(&g->b); n--) {
        statement(g, depth - 1);
    }
}

static void template(struct gen *g)
{
    static const char *const marks[] = {
        "<|im_start|>",
        "<start_of_turn>",
        "[INST]<<SYS>>",
        "developer<|im_sep|>",
    };
    PUT_OF(g, marks);
    put(g, "{% set ns = namespace(a=1, b='x') %}{% set ns.a = ns %}");
    for (unsigned n = 1 + draw_below(&g->d, 8); n > 0; n--) {
        statement(g, DEPTH);
    }
}

/* --- rendering --- */

static void render(const char *tmpl, struct buf *b, int *rc)
{
    static const struct chat_message talk[] = {
        {"system",    "S",           1 },
        {"user",      " a\nb \xc3\xa9", 7 },
        {"assistant", "",            0 },
        {"developer", "a,b",         3 },
    };
    struct err e = {0};
    buf_puts(b, "kept");
    *rc = chat_render_at(tmpl, "<s>", "</s>", talk, countof(talk), true,
                         1736933400, b, &e);
    must(*rc == 0 || *rc == ERR_TEMPLATE || *rc == ERR_TEMPLATE_INPUT ||
         *rc == ERR_TOO_BIG);
    must(*rc == 0 || strcmp(b->p, "kept") == 0);
}

static void *run(void *arg)
{
    const char *tmpl = arg;
    struct err e = {0};
    enum chat_family f = CHAT_NONE;
    if (chat_detect(tmpl, &f, &e) < 0) {
        return NULL;
    }
    struct buf once;
    struct buf again;
    int rc[2];
    buf_init(&once, 1 << 16);
    buf_init(&again, 1 << 16);
    render(tmpl, &once, &rc[0]);
    render(tmpl, &again, &rc[1]);
    must(rc[0] == rc[1] && once.n == again.n &&
         memcmp(once.p, again.p, once.n) == 0);
    buf_fini(&once);
    buf_fini(&again);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct gen g = {
        .d = {p, n}
    };
    pthread_t thread;
    pthread_attr_t attr;
    buf_init(&g.b, CHAT_TEXT_MAX + 64);
    template(&g);
    if (getenv("FUZZ_SHOW") != NULL) {
        puts(g.b.p);
    }
    must(pthread_attr_init(&attr) == 0 &&
         pthread_attr_setstacksize(&attr, STACK_BYTES) == 0 &&
         pthread_create(&thread, &attr, run, g.b.p) == 0 &&
         pthread_join(thread, NULL) == 0 && pthread_attr_destroy(&attr) == 0);
    buf_fini(&g.b);
    return 0;
}
