/* test_jinja.c - the template language, one row a rule. What jinja2 itself says
 * of these and of many more is asked by tests/oracle/test_templates.py; the
 * rows here are its answers, and what it has not: limits. */
#include "base/buf.h"
#include "model/jinja/jinja.h"
#include "model/jinja/value.h"
#include "proto/limits.h"
#include "tests/unit/unit.h"

#define WHEN 1736933400 /* 2025-01-15 09:30 UTC */

static const char vars_text[] =
    "{\"i\": 7, \"f\": 2.5, \"s\": \" a b \", \"u\": \"caf\\u00e9\\u4e2d\", "
    "\"l\": [3, 1, 2], \"e\": [], \"nil\": null, \"yes\": true, "
    "\"d\": {\"b\": 1, \"a\": {\"x\": [1, 2.0]}, \"items\": \"I\"}, "
    "\"people\": [{\"name\": \"bob\", \"age\": 3}, {\"name\": \"Al\", \"age\": "
    "1}], "
    "\"html\": \"<a>'&'\"}";

static int render(const char *tmpl, struct buf *b, struct err *e)
{
    struct arena a;
    struct val vars;
    struct jinja *t = NULL;
    arena_init(&a, JINJA_ARENA_MAX);
    unit_ok(val_from_json(&a, vars_text, strlen(vars_text), &vars, e), e);
    int rc = jinja_compile(tmpl, strlen(tmpl), &t, e);
    if (rc == 0) {
        rc = jinja_render(t, &a, vars.dict, WHEN, 0, b, e);
    }
    jinja_free(t);
    arena_fini(&a);
    return rc;
}

struct row {
    const char *tmpl, *want;
};

static void check(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct err e = {0};
        struct buf b;
        buf_init(&b, 1 << 16);
        buf_puts(&b, "");
        int rc = render(rows[i].tmpl, &b, &e);
        if (rc != 0 || strcmp(b.p, rows[i].want) != 0) {
            fail_msg("%s: %s %s\n  got  \"%s\"\n  want \"%s\"", rows[i].tmpl,
                     rc < 0 ? err_name(rc) : "", e.msg, b.p, rows[i].want);
        }
        buf_fini(&b);
    }
}

static void test_white_space(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"a\n",                                       "a"                 },
        {"a\r\nb\rc",                                 "a\nb\nc"           },
        {"  {% if yes %}\n  x\n  {% endif %}\n  y",   "  x\n  y"          },
        {"a {%- if yes -%}  b  {%- endif -%} c",      "abc"               },
        {"a\n   {%+ if yes %} b{% endif +%}\n c",     "a\n    b\n c"      },
        {"  {{ i -}}  \n x",                          "  7x"              },
        {"{# c #}\n x {#- c -#} y",                   " xy"               },
        {"{% raw %} {{ x }} {% if %}{% endraw %}\nz", " {{ x }} {% if %}z"},
        {"{{ {'a': {'b': 1}}['a']['b'] }}{{ '}}' }}", "1}}"               },
        {"{ {{ 1 }} }",                               "{ 1 }"             },
    };
    check(rows, countof(rows));
}

static void test_scopes(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{% set a = 1 %}{% for x in l %}{{ a }}{% set a = x %}{% endfor %}"
         "{{ a }}",                                                 "1111"},
        {"{% if yes %}{% set q = 5 %}{% endif %}{{ q }}",                    "5"   },
        {"{% set n = namespace(a=0) %}{% for x in l %}"
         "{% set n.a = n.a + x %}{% endfor %}{{ n.a }}",            "6"   },
        {"{% macro m() %}{{ i }}{% endmacro %}{{ m() }}"
         "{% set i = 8 %}{{ m() }}",                                "8"   },
        {"{% for x in l %}{{ i }}{% endfor %}{% set i = 5 %}{{ i }}",        "5"   },
        {"{{ i }}{% set i = 3 %}{{ i }}",                                    "73"  },
        {"{% if nil %}{% set i = 3 %}{% endif %}{{ i }}",                    "7"   },
        {"{% set x %}{% set y = 2 %}{{ y }}{% endset %}{{ x }}{{ y }}",      "2"   },
        {"{% with a = i %}{{ a }}{% endwith %}{{ a }}",                      "7"   },
        {"{% for x in l %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}"
         "{% endfor %}",                                            "312" },
        {"{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}",
         "1"                                                                       },
    };
    check(rows, countof(rows));
}

/* Sums of lists share their array (arith.c); no list sees another's items. */
static void test_sums_of_lists(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{% set a = l + [1] %}{% set b = a + [2] %}{% set c = a + [3] %}"
         "{% set d = b + [4] %}{{ l }}{{ a }}{{ b }}{{ c }}{{ d }}{{ a + a }}", "[3, 1, 2][3, 1, 2, 1][3, 1, 2, 1, 2][3, 1, 2, 1, 3]"
         "[3, 1, 2, 1, 2, 4][3, 1, 2, 1, 3, 1, 2, 1]"},
        {"{% set n = namespace(l=[]) %}{% for i in range(40000) %}"
         "{% set n.l = n.l + [i] %}{% endfor %}{{ n.l|length }} {{ n.l[-1] }}", "40000 39999"                                       },
        {"{% set e = [] + [] %}{% set f = e + [1] %}{{ e }}{{ f }}"
         "{{ (1,) + (2,) + () }}",                                              "[][1](1, 2)"                                       },
    };
    check(rows, countof(rows));
}

static void test_macros_and_loops(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}"
         "{{ f(1) }} {{ f(1, c=5) }} {{ f(b=1, a=0) }}",         "121 125 010"    },
        {"{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}"
         "{{ f(1, x=3) }}",                                      "(1,){'x': 3}"   },
        {"{% macro f() %}[{{ caller(2) }}]{% endmacro %}"
         "{% call(x) f() %}{{ x }}{{ i }}{% endcall %}",         "[27]"           },
        {"{% macro n(k) %}{{ k if k < 2 else k * n(k - 1)|int }}{% endmacro %}"
         "{{ n(5) }}",                                           "120"            },
        {"{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{{ loop.last }};"
         "{% endfor %}",                                         "13False;22True;"},
        {"{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}"
         "{% endfor %}",                                         "<3>13<1>21<2>"  },
        {"{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}"
         "{% if loop.last %}{% break %}{% endif %}{% endfor %}", "32"             },
        {"{% for n in [{'v': 1, 'c': [{'v': 2}]}] recursive %}{{ n.v }}"
         "{{ loop.depth }}{% if n.c %}({{ loop(n.c) }}){% endif %}"
         "{% endfor %}",                                         "11(22)"         },
        {"{% for x in e %}{% else %}none{% endfor %}",                    "none"           },
        {"{% for k, v in d.a.items() %}{{ k }}{{ v }}{% endfor %}",
         "x[1, 2.0]"                                                                       },
        {"{% filter upper|replace('A', 'z') %}a{{ s }}{% endfilter %}",
         "z z B "                                                                          },
    };
    check(rows, countof(rows));
}

static void test_values(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{{ [1, 'it\\'s', none, true, 2.0, (1,), {'k': [x]}] }}",
         "[1, \"it's\", None, True, 2.0, (1,), {'k': [Undefined]}]"                                                        },
        {"{{ 1e16 }} {{ 123456789012345.0 }} {{ 0.0001 }} {{ 1e-5 }} {{ 0.1 }}",
         "1e+16 123456789012345.0 0.0001 1e-05 0.1"                                                                        },
        {"{{ -7 // 2 }} {{ 7 % -3 }} {{ -7.5 % 2 }} {{ 7 / 2 }} {{ 2 ** 10 }}",
         "-4 -2 0.5 3.5 1024"                                                                                              },
        {"{{ 1 < 2 < 3 }} {{ 1 == 1.0 == true }} {{ 'a' in s }} {{ 4 not in l "
         "}}",                                                          "True True True True"                     },
        {"{{ d.items is callable }} {{ d['items'] }} {{ d.get('q', 5) }}",
         "True I 5"                                                                                                        },
        {"{{ u|length }} {{ u[-1] }} {{ u[1:3] }} {{ u[::-1] }} {{ u|upper }}",
         "5 \xe4\xb8\xad af \xe4\xb8\xad\xc3\xa9"
         "fac CAF\xc3\x89\xe4\xb8\xad"                                                                                     },
        {"{{ d|tojson }}|{{ u|tojson(ensure_ascii=true) }}",
         "{\"b\": 1, \"a\": {\"x\": [1, 2.0]}, \"items\": \"I\"}|"
         "\"caf\\u00e9\\u4e2d\""                                                                                           },
        {"{{ d.a|tojson(indent=2) }}",
         "{\n  \"x\": [\n    1,\n    2.0\n  ]\n}"                                                                          },
        {"{{ people|map(attribute='name')|join(',') }} "
         "{{ (people|sort(attribute='age')|first).name }} "
         "{{ people|selectattr('age', 'gt', 2)|list|length }} "
         "{{ d|dictsort|map('first')|join }}",                          "bob,Al Al 1 abitems"                     },
        {"{{ x|default('d') }}{{ x }}{{ x if nil }}{{ nil }}",                   "dNone"                                   },
        {"{{ html|e }} {{ ('<'|safe) + '<' }} {{ html|tojson }}",
         "&lt;a&gt;&#39;&amp;&#39; <&lt; \"<a>'&'\""                                                                       },
        {"{{ s.strip().split() }} {{ 'a,b'.partition(',') }} "
         "{{ 'they\\'re'.title() }} {{ 'ab'.center(5, '*') }}",         "['a', 'b'] ('a', ',', 'b') They'Re **ab*"},
        {"{{ '%05.1f|%-3s|%x' % (2.25, 'a', 255) }} {{ '{}-{k}'.format(1, k=2) "
         "}}",                                                          "002.2|a  |ff 1-2"                        },
        {"{{ strftime_now('%d %b %Y %H:%M') }}",                                 "15 Jan 2025 09:30"                       },
    };
    check(rows, countof(rows));
}

struct refusal {
    const char *tmpl;
    int code;
    const char *tells;
};

static void refuse(const struct refusal *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct err e = {0};
        struct buf b;
        buf_init(&b, 1 << 16);
        buf_puts(&b, "before");
        int rc = render(rows[i].tmpl, &b, &e);
        if (rc != rows[i].code || strstr(e.msg, rows[i].tells) == NULL) {
            fail_msg("%.200s: %s: %s", rows[i].tmpl, err_name(rc), e.msg);
        }
        assert_string_equal(b.p, "before");
        buf_fini(&b);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct refusal rows[] = {
        {"{{ raise_exception('No system.') }}",         ERR_TEMPLATE_INPUT,
         "No system."                                                                               },
        {"{{ nothing.role }}",                          ERR_TEMPLATE_INPUT, "'nothing' is undefined"},
        {"{{ 'a' + none }}",                            ERR_TEMPLATE_INPUT, "'str' and 'NoneType'"  },
        {"{{ l.append(1) }}",                           ERR_TEMPLATE_INPUT, "append"                },
        {"{{ x|tojson }}",                              ERR_TEMPLATE_INPUT, "Undefined"             },
        {"{{ 1 / 0 }}",                                 ERR_TEMPLATE_INPUT, "zero"                  },
        {"{{ 9223372036854775807 + 1 }}",               ERR_TEMPLATE_INPUT, "64 bits"               },
        {"{{ 9223372036854775808 }}",                   ERR_TEMPLATE,       "64 bits"               },
        {"{{ '9223372036854775808'|int }}",             ERR_TEMPLATE_INPUT, "64 bits"               },
        {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", ERR_TEMPLATE_INPUT,
         "not more than 1"                                                                          },
        {"{{ 'x'|nosuch }}",                            ERR_TEMPLATE,       "nosuch"                },
        {"{{ 'x' is nosuch }}",                         ERR_TEMPLATE,       "nosuch"                },
        {"{{ 'x'.encode() }}",                          ERR_TEMPLATE,       "method of str"         },
        {"{% include 'x' %}",                           ERR_TEMPLATE,       "statement"             },
        {"{% break %}",                                 ERR_TEMPLATE,       "loops"                 },
        {"{% if x %}",                                  ERR_TEMPLATE,       "endif"                 },
        {"{% endif %}",                                 ERR_TEMPLATE,       "end"                   },
        {"{% for %}",                                   ERR_TEMPLATE,       "name"                  },
        {"{{ 'x }}",                                    ERR_TEMPLATE,       "string"                },
        {"{{ x",                                        ERR_TEMPLATE,       "tag"                   },
        {"{# x",                                        ERR_TEMPLATE,       "comment"               },
        {"{% raw %}x",                                  ERR_TEMPLATE,       "raw"                   },
        {"{{ }}",                                       ERR_TEMPLATE,       "expression"            },
        {"{{ a b }}",                                   ERR_TEMPLATE,       "expression"            },
        {"{{ x[ }}",                                    ERR_TEMPLATE,       "chat template"         },
        {"{{ f(a=1, 2) }}",                             ERR_TEMPLATE,       "argument"              },
    };
    refuse(rows, countof(rows));
}

#define OFTEN "{% for i in range(60000) %}"

static void test_limits(void **state)
{
    (void)state;
    static const struct refusal rows[] = {
        {"{% set r = range(60000) %}{% for i in r %}{% for k in r %}{% endfor "
         "%}"
         "{% endfor %}",                                              ERR_TOO_BIG, "too long"},
        {OFTEN OFTEN "{% endfor %}{% endfor %}",                               ERR_TOO_BIG, ""        },
        {OFTEN "xxxxxxxxxx{% endfor %}",                                       ERR_TOO_BIG, "prompt"  },
        {OFTEN "{% set x = [i] * 90000 %}{% endfor %}",                        ERR_TOO_BIG, "values"  },
        {"{{ 'x' * 100000000 }}",                                              ERR_TOO_BIG, "values"  },
        {"{{ [1] * 9000000000000000000 }}",                                    ERR_TOO_BIG, ""        },
        {"{{ range(100001) }}",                                                ERR_TOO_BIG, "range"   },
        {"{% set x %}" OFTEN "xxxxxxxxxx{% endfor %}{% endset %}",             ERR_TOO_BIG,
         "prompt"                                                                                     },
        {"{{ '%999999s' % 'x' }}",                                             ERR_TOO_BIG, ""        },
        {"{{ 'x'.ljust(999999999) }}",                                         ERR_TOO_BIG, ""        },
        {"{{ [range(99999)|list]|tojson(indent=9999) }}",                      ERR_TOO_BIG, ""        },
        {"{{ [range(99999)|list]|string }}",                                   ERR_TOO_BIG, ""        },
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",                    ERR_TOO_BIG,
         "too deep"                                                                                   },
        {"{% macro f() %}" OFTEN "{{ f }}{% endfor %}{% endmacro %}{{ f() }}",
         ERR_TOO_BIG,                                                                       "prompt"  },
    };
    refuse(rows, countof(rows));
}

/* 1 MiB of text that is looked through 60000 times costs as many steps. */
static void test_steps(void **state)
{
    (void)state;
    static const char *const uses[] = {
        "{% if 'q' in n.x %}{% endif %}",
        "{% if n.x == n.y %}{% endif %}",
        "{% if n.x.isdigit() %}{% endif %}",
    };
    for (size_t i = 0; i < countof(uses); i++) {
        struct err e = {0};
        struct buf text;
        struct buf out;
        buf_init(&text, 4096);
        buf_init(&out, MIB(16));
        buf_puts(&text, "{% set n = namespace(x='01234567') %}"
                        "{% for i in range(17) %}{% set n.x = n.x ~ n.x %}"
                        "{% endfor %}{% set n.y = n.x ~ '' %}" OFTEN);
        buf_puts(&text, uses[i]);
        buf_puts(&text, "{% endfor %}");
        int rc = render(text.p, &out, &e);
        if (rc != ERR_TOO_BIG || strstr(e.msg, "too long") == NULL) {
            fail_msg("%s: %s: %s", uses[i], err_name(rc), e.msg);
        }
        buf_fini(&text);
        buf_fini(&out);
    }
}

int main(void)
{
    (void)setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_sums_of_lists),
        cmocka_unit_test(test_macros_and_loops),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_steps),
    };
    return cmocka_run_group_tests_name("jinja", tests, NULL, NULL);
}
