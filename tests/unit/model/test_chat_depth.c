/* test_chat_depth.c - how deep a chat template may be, on a small stack.
 *
 * Every construct that makes the parser or the evaluator recurse stands here
 * with the number of links that it may have: with as many it renders on a
 * thread of STACK_BYTES, with one more it is refused. */
#include <pthread.h>

#include "model/chat.h"
#include "proto/limits.h"
#include "tests/unit/unit.h"

/* The smallest stack that a thread gets by default (macOS); it must do with
 * AddressSanitizer's frames too. */
#define STACK_BYTES KIB(512)

#define HEAD                                                          \
    "<|im_start|>{% set n = namespace() %}{% set n.a = n %}" \
    "{% set n.b = 'b' %}"

struct shape {
    const char *what;
    const char *open; /* once */
    const char *left; /* once for each link, before the middle */
    const char *middle;
    const char *right; /* once for each link, after the middle */
    const char *close; /* once */
    int links;         /* that fit */
};

/* What is left of the tree's budget for a chain of one node a link in
 * {{ middle chain }}: without block, print and the middle itself. */
#define CHAIN (JINJA_TREE_MAX - 3)
/* The parser is 1 deep in the outermost block; an expression takes 2 more, and
 * what stands in brackets is an expression. */
#define BRACKETS ((JINJA_DEPTH_MAX - 3) / 2)
#define UNARY    (JINJA_DEPTH_MAX - 3)

static const struct shape shapes[] = {
    {"attributes",   "{{ ",               "",                             "n",        ".a",                  ".b }}",          CHAIN - 1},
    {"indices",      "{{ ",               "",                             "n",        "['a']",               ".b }}",          CHAIN - 1},
    {"slices",       "{{ ",               "",                             "messages", "[:]",                 "[0].role }}",    CHAIN - 2},
    {"filters",      "{{ ",               "",                             "'x'",      "|trim",               " }}",            CHAIN    },
    {"methods",      "{{ ",               "",                             "'x'",      ".strip()",            " }}",            CHAIN / 2},
    {"tests",        "{{ ",               "",                             "n",        " is eq(1)",           " }}",            CHAIN    },
    {"not tests",    "{{ ",               "",                             "n",        " is not eq(1)",       " }}",            CHAIN / 2},
    {"sums",         "{{ ",               "",                             "1",        "+1",                  " }}",            CHAIN    },
    {"differences",  "{{ ",               "",                             "1",        "-1",                  " }}",            CHAIN    },
    {"remainders",   "{{ ",               "",                             "1",        "%3",                  " }}",            CHAIN    },
    {"ands",         "{{ ",               "",                             "true",     " and true",           " }}",            CHAIN    },
    {"ors",          "{{ ",               "",                             "false",    " or false",           " }}",            CHAIN    },
    {"ifs",          "{{ ",               "",                             "'x'",      " if true",            " }}",            CHAIN    },
    {"elses",        "{{ ",               "'x' if false else ",           "'x'",      "",                    " }}",            UNARY    },
    {"nots",         "{{ ",               "not ",                         "true",     "",                    " }}",            UNARY    },
    {"minuses",      "{{ ",               "-",                            "1",        "",                    " }}",            UNARY    },
    {"brackets",     "{{ ",               "(",                            "1",        ")",                   " }}",            BRACKETS },
    {"lists",        "{% set l = ",       "[",                            "1",        "]",                   " %}",            BRACKETS },
    {"tuples",       "{% set l = ",       "(",                            "1",        ",)",                  " %}",            BRACKETS },
    {"indexed by",   "{{ ",               "n[",                           "'b'",      "]",                   " }}",            BRACKETS },
    {"arguments",    "{% set l = ",       "dict(a=",                      "1",        ")",                   " %}",            BRACKETS },
    {"dictionaries", "{% if false %}{{ ", "{1:",                          "1",        "}",                   " }}{% endif %}",
     BRACKETS                                                                                                                           },
    {"if blocks",    "",                  "{% if true %}",                "x",        "{% endif %}",         "",
     JINJA_DEPTH_MAX - 1                                                                                                                 },
    {"else blocks",  "",                  "{% if n is none %}{% else %}", "x",        "{% endif %}",         "",
     JINJA_DEPTH_MAX - 1                                                                                                                 },
    {"for blocks",   "",                  "{% for i in range(1) %}",      "x",        "{% endfor %}",        "",
     JINJA_DEPTH_MAX - 3                                                                                                                 },
    {"set blocks",   "",                  "{% set x %}",                  "x",        "{% endset %}",        "",
     JINJA_DEPTH_MAX - 1                                                                                                                 },
    {"generations",  "",                  "{% generation %}",             "x",        "{% endgeneration %}", "",
     JINJA_DEPTH_MAX - 1                                                                                                                 },
    {"macros",       "",                  "{% macro f() %}",              "x",        "{% endmacro %}",      "",
     JINJA_DEPTH_MAX - 1                                                                                                                 },
};

static char *text_of(const struct shape *s, int links)
{
    struct buf b;
    buf_init(&b, MIB(4));
    buf_puts(&b, HEAD);
    buf_puts(&b, s->open);
    for (int i = 0; i < links; i++) {
        buf_puts(&b, s->left);
    }
    buf_puts(&b, s->middle);
    for (int i = 0; i < links; i++) {
        buf_puts(&b, s->right);
    }
    buf_puts(&b, s->close);
    assert_true(buf_ok(&b));
    return b.p;
}

struct job {
    const char *text;
    int rc;
    struct err e;
};

static void *run(void *arg)
{
    static const struct chat_message talk[] = {
        {.role = "user", .content = "x", .content_n = 1}
    };
    static const struct chat_request q = {
        .messages = talk, .n_messages = 1, .add_generation = true, .bos = "",
        .eos = ""};
    struct job *j = arg;
    struct chat_template *t = NULL;
    struct buf b;
    buf_init(&b, MIB(1));
    j->rc = chat_compile(j->text, &t, &j->e);
    if (j->rc == 0) {
        j->rc = chat_render(t, &q, &b, &j->e);
    }
    chat_free(t);
    buf_fini(&b);
    return NULL;
}

static struct job on_small_stack(const char *text)
{
    struct job j = {.text = text};
    pthread_t thread;
    pthread_attr_t attr;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attr, run, &j), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)pthread_attr_destroy(&attr);
    return j;
}

static void refused(const struct shape *s, int links)
{
    char *text = text_of(s, links);
    struct job j = on_small_stack(text);
    if (j.rc != ERR_TEMPLATE || (strstr(j.e.msg, "deep") == NULL &&
                                 strstr(j.e.msg, "too many parts") == NULL)) {
        fail_msg("%s, %d links: %s: %s", s->what, links, err_name(j.rc),
                 j.e.msg);
    }
    free(text);
}

static void at_the_budget(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(shapes); i++) {
        char *text = text_of(&shapes[i], shapes[i].links);
        struct job j = on_small_stack(text);
        if (j.rc != 0) {
            fail_msg("%s, %d links: %s: %s", shapes[i].what, shapes[i].links,
                     err_name(j.rc), j.e.msg);
        }
        free(text);
        refused(&shapes[i], shapes[i].links + 1);
    }
}

/* 40 KB of links, and as much as a template may hold. */
static void far_beyond(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(shapes); i++) {
        refused(&shapes[i], 2000);
        size_t link = strlen(shapes[i].left) + strlen(shapes[i].right);
        refused(&shapes[i], (int)(JINJA_TEXT_MAX / link) - 100);
    }
}

/* What goes on without end is refused while there is still stack: macros that
 * call themselves by each way of the evaluator, loops that recur, values inside
 * values. */
static void without_end(void **state)
{
    (void)state;
    static const char *const shapes_of[] = {
        "{% macro f(a) %}{{ f(a) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(a) %}{{ [f(a)]|map('string')|join(f(a)) }}{% endmacro %}"
        "{{ f(1) }}",
        "{% macro f(a) %}{% if f(a) == 'x' %}y{% endif %}{% endmacro %}"
        "{{ f(1) }}",
        "{% macro f(a=f()) %}{% endmacro %}{{ f() }}",
        "{% macro f() %}{% set x %}{% filter upper %}{{ 1 + -(f()|int) }}"
        "{% endfilter %}{% endset %}{% endmacro %}{{ f() }}",
        "{% macro f() %}{% for i in [1] %}{% with a = {'x': f(b=f)} %}"
        "{% endwith %}{% endfor %}{{ kwargs }}{% endmacro %}{{ f() }}",
        "{% macro f() %}{% call f() %}x{% endcall %}{{ caller }}{% endmacro %}"
        "{% call f() %}x{% endcall %}",
        "{% macro f() %}{{ 'a'.replace('a', f()) ~ (f() if true) }}"
        "{% endmacro %}{{ f() }}",
        "{% macro f() %}{% generation %}{{ f() is eq f() }}{% endgeneration %}"
        "{% endmacro %}{{ f() }}",
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% for i in [1] if (loop is undefined) recursive %}{{ loop([1])|trim }}"
        "{% endfor %}",
        "{% set m = namespace(l=[]) %}{% for i in range(2000) %}"
        "{% set m.l = [m.l] %}{% endfor %}{{ m.l }}",
        "{% set m = namespace(l={}) %}{% for i in range(2000) %}"
        "{% set m.l = {'a': m.l} %}{% endfor %}{{ m.l|tojson }}",
        "{% set m = namespace(l=[], k=[]) %}{% for i in range(2000) %}"
        "{% set m.l = [m.l] %}{% set m.k = [m.k] %}{% endfor %}"
        "{{ m.l == m.k }}",
        "{% set m = namespace(l=[], k=[]) %}{% for i in range(2000) %}"
        "{% set m.l = [m.l] %}{% set m.k = [m.k] %}{% endfor %}"
        "{{ m.l < m.k }}",
        "{{ [n]|string }}",
    };
    for (size_t i = 0; i < countof(shapes_of); i++) {
        char *text = text_of(
            &(struct shape){"", "", "", shapes_of[i], "", "", 1}, 0);
        struct job j = on_small_stack(text);
        if (j.rc != ERR_TOO_BIG || strstr(j.e.msg, "too deep") == NULL) {
            fail_msg("%s: %s: %s", shapes_of[i], err_name(j.rc), j.e.msg);
        }
        free(text);
    }
}

/* What stands side by side is not deep. */
static void long_and_flat(void **state)
{
    (void)state;
    static const struct shape flat[] = {
        {"elifs",    "{% if false %}", "{% elif false %}y",                  "{% else %}x", "",
         "{% endif %}",                                                                                 5000},
        {"prints",   "",               "{{ 'x' }}{% if true %}y{% endif %}", "",            "", "",     4000},
        {"joined",   "{{ ",            "'x'~",                               "'x'",        "", " }}",   5000},
        {"elements", "{% set l = [",   "1,",                                 "1",           "", "] %}", 5000},
    };
    for (size_t i = 0; i < countof(flat); i++) {
        char *text = text_of(&flat[i], flat[i].links);
        struct job j = on_small_stack(text);
        unit_ok(j.rc, &j.e);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_the_budget),
        cmocka_unit_test(far_beyond),
        cmocka_unit_test(without_end),
        cmocka_unit_test(long_and_flat),
    };
    return cmocka_run_group_tests_name("chat_depth", tests, NULL, NULL);
}
