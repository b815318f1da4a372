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
        "strftime_now('%d %b %Y %f')",
        "messages[0]['role']",
        "'a,b,,c'",
        "('<b>'|safe)",
        "tools|tojson",
        "mac('x')",
        "'%s %d'",
        "caller()",
        "d.a",
    };
    static const char *const number[] = {
        "1", "0", "loop.index", "messages|length", "9223372036854775807",
        "60000", "-1", "ns.a", "loop.revindex0", "-9223372036854775807",
        "2.5", "1e300", "loop.length", "d.b", "0x1f", "-0.0", "loop.depth",
    };
    static const char *const list[] = {
        "messages", "[1, 2]", "range(3)", "messages[1:]", "'a b'.split(' ')",
        "[]", "(1,)", "messages[::-1]", "range(1000)", "d.items()", "tools",
        "'ab'|list", "messages|map(attribute='role')", "d|items", "d.keys()",
        "['b', 'A', 'a']", "varargs", "loop.nextitem",
    };
    static const char *const truth[] = {
        "true", "false", "add_generation_prompt", "loop.first", "ns is defined",
        "none", "x is undefined", "loop.last", "False",
    };
    static const char *const any[] = {"ns", "nothing", "m", "loop", "tools",
                                      "None", "x", "documents", "{}", "d", "mac",
                                      "kwargs", "caller", "messages[2]",
                                      "range", "cycler('a', 1)", "joiner()"};
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
        "[0:1]", " 'c'", "|string()", "|title", "|capitalize", "|indent",
        "|e", ".title()", "*2", "|tojson", "|reverse", ".rstrip()", "[::-1]",
        "|truncate(5)", "|center(9)", ".swapcase()", "|urlencode", " % 'x'",
    };
    static const char *const number[] = {"+1", "-1", "%7", " if true", " or 1",
                                         " and 2", "*2", "//2", "-(-1)", "/3",
                                         "**2", "|abs", "|int", "|float",
                                         "|round(1)", "-0.5"};
    static const char *const list[] = {"[:]", "[1:]", "[::-1]", "|list",
                                       " or messages", "[0:9]", " if true",
                                       "|sort", "|reverse", "+[1]", "*2",
                                       "|unique", "|map('string')", "|select",
                                       "|batch(2)", "|slice(2)", "|reject('odd')"};
    static const char *const truth[] = {
        " and true", " or false", " is defined", " is not none", " == 1",
        " if true", " is true", " in [true]", " is eq true", " is equalto(1)",
        " is ne(2)", " != 3 == 4", " is callable", " < 1 < 2",
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
        "L|join(T)", "A|tojson(indent=N)", "A|string", "T % A", "T % (A, A)",
        "T.format(A, x=A)", "mac(A)", "mac(T, b=A)", "T|indent(N)",
        "T|replace(T, T)", "T.join(L)", "T.ljust(N, T)", "T.zfill(N)", "[A]|string",
        "T * N", "T|format(A, N)", "T|truncate(N)", "A|pprint", "T.partition(T)|join",
        "A|tojson(separators=(T, T), sort_keys=B)", "T[N:N:N]", "loop.cycle(T, A)",
        "T|length|string", "(B and T)", "T|upper|lower",
    };
    static const char *const number[] = {
        "(N + N)", "(N - N)", "N % N", "-N", "T|length", "L|count", "A|length",
        "(N if B else N)", "N * N", "N ** N", "(N // N)", "N / N", "A|int", "A|float(N)",
        "N|round(N)", "L|sum", "L|max", "T.find(T, N)", "T.count(T)", "T|int(N, N)",
        "N|abs", "L.index(A)", "L|min(attribute=T)", "T.rindex(T)",
    };
    static const char *const list[] = {
        "range(N)", "range(N, N)", "[T, N]", "L[N:]", "L[:N]", "L[N:N:N]",
        "T.split(T)", "(T, L)", "L|list", "[L, L]", "L[::-1]", "[A]",
        "(L or L)", "A.items()", "{T: N}", "(L + L)", "L|sort", "L|sort(attribute=T)",
        "L|map(T)|list", "L|map(attribute=T)", "L|select(T, A)", "L|selectattr(T)",
        "L|rejectattr(T, T, A)|list", "A|dictsort", "L|unique", "L|groupby(T)",
        "L|batch(N, A)", "L|slice(N)", "T.split(T, N)", "T.rsplit(T)", "A.values()",
        "T.splitlines()", "L|reverse|list", "A|items", "range(N, N, N)", "L * N",
        "dict(A, **A).keys()", "L|sort(reverse=B, attribute=T)",
    };
    static const char *const truth[] = {
        "(T == T)", "(N < N)", "(T in L)", "(T in T)", "(not B)", "(B and B)",
        "(B or B)", "A is defined", "A is not none", "(N >= N)", "(T != A)",
        "A is string", "(A not in L)", "T.startswith(T)", "(T > T)",
        "A is equalto(A)", "A is iterable", "N is odd", "(L == L)",
        "T.endswith(T)", "(T in A)", "A is mapping", "A is sequence", "N is even",
        "A is sameas A", "A is divisibleby N", "(N < N <= N)", "T is lower",
        "A is callable", "A is T", "loop.changed(A)", "A is in L",
    };
    static const char *const any[] = {
        "namespace(a=A, b=T)", "L[N]", "A.a", "A[T]", "A.get(T)", "T", "N",
        "dict(a=L)", "A(A)", "A.a(A, A)", "A|map(T)", "A[A]", "(A if B)",
        "L|first", "{T: A, N: A}", "dict(A, k=A)", "cycler(A, A).next()",
        "joiner(T)()", "A(*L, **A)", "A|attr(T)", "A|tojson", "mac(*L)", "A|items",
        "L|groupby(T)|first", "namespace(A)", "A|default(A, B)", "A[N:]",
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
    static const char *const names[] = {"m", "message", "x", "k, v", "ns",
                                        "(a, b), c", "mac"};
    open_tag(g, "for ");
    PUT_OF(g, names);
    put(g, " in ");
    expr(g, LIST, DEPTH);
    if (draw_one_in(&g->d, 4)) {
        put(g, " if ");
        expr(g, TRUTH, 2);
    }
    put(g, draw_one_in(&g->d, 8) ? " recursive" : "");
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
                                        "messages", "loop", "nothing.a",
                                        "x, y", "(x, ns.a)", "mac"};
    open_tag(g, "set ");
    PUT_OF(g, names);
    if (draw_one_in(&g->d, 5)) {
        put(g, draw_one_in(&g->d, 4) ? "|upper|replace('a', 'b')" : "");
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
        {"{% filter trim %}",         "{% endfilter %}"    },
        {"{% with a = ns %}",         "{% endwith %}"      },
        {"{% call mac() %}",          "{% endcall %}"      },
        {"{% call(a, b=1) mac(x) %}", "{% endcall %}"      },
        {"{% set x|upper %}",         "{% endset %}"       },
        {"{% for i in [[]] recursive %}{{ loop(i) }}", "{% endfor %}"},
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

/* `mac` may call itself, and names what its caller gives. */
static void macro(struct gen *g, unsigned depth)
{
    static const char *const heads[] = {
        "{% macro mac(a, b=1) %}", "{% macro mac(a=x, b=a) -%}",
        "{% macro mac() %}{{ varargs }}{{ kwargs }}",
        "{% macro mac(m) %}{{ caller(m) if caller }}",
        "{%- macro mac(m, x=mac) %}",
    };
    PUT_OF(g, heads);
    block(g, depth);
    put(g, "{% endmacro %}");
}

static void statement(struct gen *g, unsigned depth)
{
    static const char *const texts[] = {"text", "\n", "  ", "<|im_end|>\n",
                                        "{", "\xe2\x82\xac"};
    static const char *const filters[] = {"upper", "trim|lower", "indent(2)",
                                          "replace('a', x)", "tojson", "list"};
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
        macro(g, depth);
        break;
    case 15:
        put(g, "{% filter ");
        PUT_OF(g, filters);
        put(g, " %}");
        block(g, depth);
        put(g, "{% endfilter %}");
        break;
    case 16:
        put(g, "{% call(x) ");
        expr(g, ANY, 2);
        put(g, "(1) %}");
        block(g, depth);
        put(g, "{% endcall %}");
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

static struct span json(const char *z)
{
    return (struct span){z, strlen(z)};
}

static void render(const struct chat_template *t, struct buf *b, int *rc)
{
    const struct chat_message talk[] = {
        {.role = "system", .content = "S", .content_n = 1},
        {.role = "user", .content = " a\nb \xc3\xa9", .content_n = 7},
        {.role = "assistant",
         .fields = json("{\"content\": null, \"tool_calls\": [{\"function\": "
                        "{\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, "
                        "null], \"items\": {}}}}]}")},
        {.role = "tool",
         .fields = json("{\"content\": [{\"type\": \"text\", \"text\": "
                        "\"x\"}], \"name\": \"f\"}")},
        {.role = "developer", .content = "a,b", .content_n = 3},
    };
    const struct chat_request q = {
        .messages = talk,
        .n_messages = countof(talk),
        .add_generation = true,
        .tools = json("[{\"function\": {\"name\": \"f\", \"parameters\": "
                      "{\"type\": \"object\", \"properties\": {\"a\": "
                      "{\"type\": [\"array\", \"null\"], \"enum\": [1]}}}}}]"),
        .kwargs = json("{\"enable_thinking\": false, \"d\": {\"b\": 1, "
                       "\"a\": \"x\"}}"),
        .bos = "<s>",
        .eos = "</s>",
        .now = 1736933400};
    struct err e = {0};
    buf_puts(b, "kept");
    *rc = chat_render(t, &q, b, &e);
    must(*rc == 0 || *rc == ERR_TEMPLATE || *rc == ERR_TEMPLATE_INPUT ||
         *rc == ERR_TOO_BIG);
    must(*rc == 0 || strcmp(b->p, "kept") == 0);
}

static void *run(void *arg)
{
    const char *tmpl = arg;
    struct err e = {0};
    struct chat_template *t = NULL;
    if (chat_compile(tmpl, &t, &e) < 0) {
        return NULL;
    }
    struct buf once;
    struct buf again;
    int rc[2];
    buf_init(&once, 1 << 16);
    buf_init(&again, 1 << 16);
    render(t, &once, &rc[0]);
    render(t, &again, &rc[1]);
    must(rc[0] == rc[1] && once.n == again.n &&
         memcmp(once.p, again.p, once.n) == 0);
    buf_fini(&once);
    buf_fini(&again);
    chat_free(t);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct gen g = {
        .d = {p, n}
    };
    pthread_t thread;
    pthread_attr_t attr;
    buf_init(&g.b, JINJA_TEXT_MAX + 64);
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
