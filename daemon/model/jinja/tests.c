/* tests.c - what stands behind `is`. */
#include <string.h>

#include "model/jinja/eval.h"
#include "model/jinja/text.h"

static int yes_no(struct val *ret, bool yes)
{
    *ret = val_bool(yes);
    return 0;
}

#define KIND_TEST(name, condition)                                        \
    static int name(struct run *r, const struct call *c, struct val *ret) \
    {                                                                     \
        enum val_kind k = c->self.kind;                                   \
        (void)r;                                                          \
        (void)k;                                                          \
        return yes_no(ret, condition);                                    \
    }

KIND_TEST(t_defined, k != V_UNDEFINED)
KIND_TEST(t_undefined, k == V_UNDEFINED)
KIND_TEST(t_none, k == V_NONE)
KIND_TEST(t_boolean, k == V_BOOL)
KIND_TEST(t_true, k == V_BOOL && c->self.b)
KIND_TEST(t_false, k == V_BOOL && !c->self.b)
KIND_TEST(t_integer, k == V_INT)
KIND_TEST(t_float, k == V_FLOAT)
KIND_TEST(t_number, val_is_number(&c->self))
KIND_TEST(t_string, k == V_STR)
KIND_TEST(t_mapping, k == V_DICT)
KIND_TEST(t_iterable, k == V_STR || k == V_DICT || k == V_UNDEFINED ||
                          k == V_LOOP || val_has_list(&c->self))
/* what has a length and items by number or key */
KIND_TEST(t_sequence, k == V_STR || k == V_LIST || k == V_TUPLE ||
                          k == V_RANGE || k == V_DICT || k == V_UNDEFINED)
KIND_TEST(t_callable, k == V_FUNC || k == V_METHOD || k == V_MACRO ||
                          k == V_UNDEFINED || k == V_LOOP)
KIND_TEST(t_escaped, k == V_STR && c->self.markup)
KIND_TEST(t_filter, k == V_STR && find_filter(c->self.s) != NULL)
KIND_TEST(t_test, k == V_STR && find_test(c->self.s) != NULL)

/* Whether self % by == want, whatever % does with such a value. */
static int remains(struct run *r, const struct call *c, const struct val *by,
                   int64_t want, struct val *ret)
{
    struct val m;
    struct val number = val_int(want);
    bool yes = false;
    RETERR(arith(r, OP_MOD, &c->self, by, &m));
    RETERR(val_equal(r, &m, &number, &yes));
    return yes_no(ret, yes);
}

static int t_odd(struct run *r, const struct call *c, struct val *ret)
{
    const struct val two = val_int(2);
    return remains(r, c, &two, 1, ret);
}

static int t_even(struct run *r, const struct call *c, struct val *ret)
{
    const struct val two = val_int(2);
    return remains(r, c, &two, 0, ret);
}

static int t_divisibleby(struct run *r, const struct call *c, struct val *ret)
{
    return remains(r, c, &c->a[0], 0, ret);
}

/* str.islower, str.isupper: a cased character, and none of the other case */
static int all_cased(struct run *r, const struct call *c, bool (*is)(int32_t),
                     struct val *ret)
{
    struct span s;
    int32_t u = 0;
    bool some = false;
    bool ok = true;
    RETERR(self_text(r, c, &s));
    RETERR(run_charge_chars(r, s.n));
    for (size_t i = 0; i < s.n;) {
        i += text_char(s.p + i, s.n - i, &u);
        some = some || is(u);
        ok = ok && (is(u) || !char_is_cased(u));
    }
    return yes_no(ret, some && ok);
}

static int t_lower(struct run *r, const struct call *c, struct val *ret)
{
    return all_cased(r, c, char_is_lower, ret);
}

static int t_upper(struct run *r, const struct call *c, struct val *ret)
{
    return all_cased(r, c, char_is_upper, ret);
}

/* Python's `is`. Small integers and equal constants are one object there. */
static int t_sameas(struct run *r, const struct call *c, struct val *ret)
{
    const struct val *a = &c->self;
    const struct val *b = &c->a[0];
    bool same = a->kind == b->kind;
    if (same && a->kind <= V_STR) {
        RETERR(val_equal(r, a, b, &same));
    } else if (same) {
        same = a->loop == b->loop;
    }
    return yes_no(ret, same);
}

#define OP_TEST(name, op)                                                 \
    static int name(struct run *r, const struct call *c, struct val *ret) \
    {                                                                     \
        return eval_binary(r, op, &c->self, &c->a[0], ret);               \
    }

OP_TEST(t_eq, OP_EQ)
OP_TEST(t_ne, OP_NE)
OP_TEST(t_lt, OP_LT)
OP_TEST(t_le, OP_LE)
OP_TEST(t_gt, OP_GT)
OP_TEST(t_ge, OP_GE)
OP_TEST(t_in, OP_IN)

static const struct builtin tests[] = {
    {"defined",     t_defined,     0, ""     },
    {"undefined",   t_undefined,   0, ""     },
    {"none",        t_none,        0, ""     },
    {"boolean",     t_boolean,     0, ""     },
    {"true",        t_true,        0, ""     },
    {"false",       t_false,       0, ""     },
    {"integer",     t_integer,     0, ""     },
    {"float",       t_float,       0, ""     },
    {"number",      t_number,      0, ""     },
    {"string",      t_string,      0, ""     },
    {"mapping",     t_mapping,     0, ""     },
    {"iterable",    t_iterable,    0, ""     },
    {"sequence",    t_sequence,    0, ""     },
    {"callable",    t_callable,    0, ""     },
    {"escaped",     t_escaped,     0, ""     },
    {"filter",      t_filter,      0, ""     },
    {"test",        t_test,        0, ""     },
    {"odd",         t_odd,         0, ""     },
    {"even",        t_even,        0, ""     },
    {"divisibleby", t_divisibleby, 1, "num"  },
    {"lower",       t_lower,       0, ""     },
    {"upper",       t_upper,       0, ""     },
    {"sameas",      t_sameas,      1, "other"},
    {"in",          t_in,          1, "seq"  },
    {"eq",          t_eq,          1, "b"    },
    {"equalto",     t_eq,          1, "b"    },
    {"==",          t_eq,          1, "b"    },
    {"ne",          t_ne,          1, "b"    },
    {"!=",          t_ne,          1, "b"    },
    {"lt",          t_lt,          1, "b"    },
    {"lessthan",    t_lt,          1, "b"    },
    {"<",           t_lt,          1, "b"    },
    {"le",          t_le,          1, "b"    },
    {"<=",          t_le,          1, "b"    },
    {"gt",          t_gt,          1, "b"    },
    {"greaterthan", t_gt,          1, "b"    },
    {">",           t_gt,          1, "b"    },
    {"ge",          t_ge,          1, "b"    },
    {">=",          t_ge,          1, "b"    },
};

const struct builtin *find_test(struct span name)
{
    return builtin_find(tests, countof(tests), name);
}
