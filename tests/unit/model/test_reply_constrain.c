/* test_reply_constrain.c - constraints of answers: for each form what is let
 * through, which the parser then reads as whole calls, and what is not; what
 * cannot be held; random texts that a constraint gives, read by the parser. In
 * all texts '~' stands for '"'. */
#include "tests/unit/model/constrain_check.h"

struct text {
    const char *text;
    const char *events; /* what the parser reads; NULL: it is not let through */
};

static void check(const char *tmpl, const struct reply_want *w,
                  const char *tail, const struct text *t, size_t n)
{
    struct held h = {.m = NULL};
    hold(&h, tmpl, w);
    h.how.tail = tail;
    for (size_t i = 0; i < n; i++) {
        char *p = reply_quoted(t[i].text);
        if (grammar_takes(h.m, p, strlen(p)) != (t[i].events != NULL)) {
            fail_msg("%s: %s should %sbe let through", tmpl, p,
                     t[i].events != NULL ? "" : "not ");
        }
        if (t[i].events != NULL) {
            reply_check(&h.how, t[i].text, t[i].events);
        }
        free(p);
    }
    let_go(&h);
}

#define CHECK_ALL(tmpl, w, tail, t) check(tmpl, w, tail, t, countof(t))

static const struct reply_want call = {.kind = WANT_CALL};
static const struct reply_want calls = {.kind = WANT_CALL, .parallel = true};
static const struct reply_want automatic = {.kind = WANT_AUTO,
                                            .parallel = true};

static void test_hermes(void **state)
{
    (void)state;
    static const char tmpl[] = "<tool_call> <think>";
    static const struct text one[] = {
        {"<tool_call>\n{~name~: ~f~, ~arguments~: {~city~: ~x~}}\n</tool_call>",
         "C<f>A<{~city~: ~x~}>+"},
        {"<tool_call>\n{~name~: ~g_2~, ~arguments~: {~flag~: true, ~note~: "
         "null, ~list~: [~a~], ~more~: {~x~: 1.5}}}\n</tool_call>",
         "C<g_2>A<{~flag~: true, ~note~: null, ~list~: [~a~], ~more~: {~x~: "
         "1.5}}>+"},
        {"<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>",
         "C<h>A<{}>+"},
        {"<think>\nHm <tool_call>\n</think>\n\n<tool_call>\n{~name~: ~h~, "
         "~arguments~: {}}\n</tool_call>",
         "R<Hm <tool_call>>C<h>A<{}>+"},
        {"<think></think><tool_call>\n{~name~: ~h~, ~arguments~: {}}\n"
         "</tool_call>", "C<h>A<{}>+"},
        {"", NULL},
        {"Text", NULL},
        {"Text<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>", NULL},
        {"<think>Hm</think>Text", NULL},
        {"<think>Hm", NULL},
        {"<tool_call>\n{~name~: ~h~, ~arguments~: {~a~: 1}}\n</tool_call>",
         NULL},
        {"<tool_call>\n{~name~: ~no~, ~arguments~: {}}\n</tool_call>", NULL},
        {"<tool_call>\n{~name~: ~f~, ~arguments~: {}}\n</tool_call>", NULL},
        {"<tool_call>\n{~name~: ~f~, ~arguments~: {~city~: 1}}\n</tool_call>",
         NULL},
        {"<tool_call>\n{~name~: ~f~, ~arguments~: {~city~: ~x~}}\n</tool_call>"
         "\n", NULL},
        {"<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>\n"
         "<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>", NULL},
    };
    static const struct text many[] = {
        {"<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>\n"
         "<tool_call>\n{~name~: ~f~, ~arguments~: {~city~: ~~}}\n</tool_call>",
         "C<h>A<{}>+C<f>A<{~city~: ~~}>+"},
    };
    CHECK_ALL(tmpl, &call, NULL, one);
    CHECK_ALL(tmpl, &calls, NULL, many);
    const struct reply_want named = {.kind = WANT_CALL, .name = "h"};
    static const struct text only[] = {
        {"<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>",
         "C<h>A<{}>+"},
        {"<tool_call>\n{~name~: ~f~, ~arguments~: {~city~: ~~}}\n</tool_call>",
         NULL},
    };
    CHECK_ALL(tmpl, &named, NULL, only);
}

static void test_hermes_auto(void **state)
{
    (void)state;
    static const char tmpl[] = "<tool_call> <think>";
    static const struct text t[] = {
        {"", ""},
        {"Hello < b\n", "T<Hello < b\n>"},
        {"<think>x</think>\n\nHello", "R<x>T<Hello>"},
        {"I look.\n\n<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>",
         "T<I look.>C<h>A<{}>+"},
        {"<think>x</think>\n\n<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n"
         "</tool_call>\n<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n"
         "</tool_call>", "R<x>C<h>A<{}>+C<h>A<{}>+"},
        {"What is <think>?", "T<What is <think>?>"},
        {"I look. <tool_call>", NULL},
        {"I look. <tool_call>\n{~name~: ~no~, ~arguments~: {}}\n</tool_call>",
         NULL},
        {"<function=f>", NULL},
        {"<think>x", NULL},
        {"<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>So", NULL},
    };
    CHECK_ALL(tmpl, &automatic, NULL, t);
    const struct reply_want off = {.kind = WANT_AUTO, .thoughts_off = true};
    static const struct text without[] = {
        {"Hello", "T<Hello>"},
        {"<think>x</think>Hello", NULL},
        {" <think>x", NULL},
    };
    CHECK_ALL(tmpl, &off, "<think>\n\n</think>\n\n", without);
    const struct reply_want open = {.kind = WANT_CALL, .thoughts_open = true};
    static const struct text opened[] = {
        {"x</think>\n\n<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n"
         "</tool_call>", "R<x>C<h>A<{}>+"},
        {"<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>", NULL},
    };
    CHECK_ALL(tmpl, &open, "<think>\n", opened);
}

static void test_answers(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
        "\"integer\"}},\"required\":[\"a\"]}}";
    const struct reply_want answer = {.kind = WANT_ANSWER, .answer = schema};
    static const struct text t[] = {
        {"{~a~: 1}", "T<{~a~: 1}>"},
        {"<think>Hm</think>\n\n{~a~: 1}", "R<Hm>T<{~a~: 1}>"},
        {"<think>Hm</think>{~a~: 1}", "R<Hm>T<{~a~: 1}>"},
        {"{}", NULL},
        {"Hm", NULL},
        {"<think>Hm</think>", NULL},
        {"<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>", NULL},
    };
    CHECK_ALL("<tool_call> <think>", &answer, NULL, t);
    const struct reply_want either = {.kind = WANT_AUTO, .answer = schema};
    static const struct text e[] = {
        {"{~a~: 1}", "T<{~a~: 1}>"},
        {"<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>",
         "C<h>A<{}>+"},
        {"So<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>", NULL},
        {"So", NULL},
    };
    CHECK_ALL("<tool_call>", &either, NULL, e);
    static const struct text harmony[] = {
        {"<|channel|>final<|message|>{~a~: 1}", "T<{~a~: 1}>"},
        {"<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>"
         "final<|message|>{~a~: 1}", "R<Hm>T<{~a~: 1}>"},
        {"<|channel|>final<|message|>Hm", NULL},
        {"{~a~: 1}", NULL},
        {"<|channel|>commentary<|message|>Hm<|end|><|start|>assistant"
         "<|channel|>final<|message|>{~a~: 1}", NULL},
    };
    CHECK_ALL("<|channel|><|message|>", &answer, NULL, harmony);
    const struct reply_want any = {.kind = WANT_ANSWER};
    static const struct text free[] = {
        {"Any.", "T<Any.>"},
        {"", ""},
        {"<think>a</think>b", "R<a>T<b>"},
        {"<think>a", NULL},
    };
    CHECK_ALL("<think>", &any, NULL, free);
}

/* --- each form --- */

#define BAR     "\xEF\xBD\x9C"
#define LOW     "\xE2\x96\x81"
#define DEEP(s) "<" BAR "tool" LOW s BAR ">"
#define F       "{~city~: ~x~}"
#define QF      "<|~|>"

/* How a call is written, '@' is its tool's name: open, then calls with `between`
 * between them, then close. */
static const struct form {
    const char *tmpl;
    const char *open, *head, *args, *tail;
    const char *between; /* NULL: there is never a second */
    const char *close;
    const char *other;  /* another call of f that is let through, or NULL */
    const char *prompt; /* its end, or NULL */
} forms[] = {
    {"<tool_call>", "", "<tool_call>\n{~name~: ~@~, ~arguments~: ", F,
     "}\n</tool_call>", "\n", "",
     "<tool_call>\n{~name~: ~f~, ~arguments~: {\n  ~city~: ~x~\n}}\n"
     "</tool_call>", NULL},
    {"<|python_tag|>", "", "{~name~: ~@~, ~parameters~: ", F, "}", NULL, "",
     NULL, NULL},
    {"[TOOL_CALLS][", "[TOOL_CALLS][", "{~name~: ~@~, ~arguments~: ", F, "}",
     ", ", "]",
     "[TOOL_CALLS] [{~name~: ~f~, ~arguments~: " F ", ~id~: ~abcdefghi~}]",
     NULL},
    {"[TOOL_CALLS][ARGS]", "", "[TOOL_CALLS]@[ARGS]", F, "", "", "",
     "[TOOL_CALLS]f[CALL_ID]abc12defg[ARGS]" F, NULL},
    {"<|tool_call|>", "<|tool_call|>[", "{~name~: ~@~, ~arguments~: ", F, "}",
     ", ", "]", NULL, NULL},
    {"<tool_call> <|start_of_role|>", "",
     "<tool_call>\n{~name~: ~@~, ~arguments~: ", F, "}\n</tool_call>", "\n", "",
     NULL, NULL},
    {"<|tool|><|/tool|>", "<|tool_call|>[", "{~name~: ~@~, ~arguments~: ", F,
     "}", ", ", "]<|/tool_call|>", NULL, NULL},
    {DEEP("calls" LOW "begin"), DEEP("calls" LOW "begin"),
     DEEP("call" LOW "begin") "@" DEEP("sep"), F, DEEP("call" LOW "end"), "",
     DEEP("calls" LOW "end"), NULL, NULL},
    {DEEP("calls" LOW "begin") "```json", DEEP("calls" LOW "begin"),
     DEEP("call" LOW "begin") "function" DEEP("sep") "@\n```json\n", F,
     "\n```" DEEP("call" LOW "end"), "\n", DEEP("calls" LOW "end"), NULL, NULL},
    {"<|tool_calls_section_begin|>", "<|tool_calls_section_begin|>",
     "<|tool_call_begin|>functions.@:0<|tool_call_argument_begin|>", F,
     "<|tool_call_end|>", "", "<|tool_calls_section_end|>", NULL, NULL},
    {">>> recipient", "", "@\n", F, "", ">>>", "", NULL,
     "<|end_header_id|>\n\n>>>"},
    {"functools[", "functools[", "{~name~: ~@~, ~arguments~: ", F, "}", ", ",
     "]", NULL, NULL},
    {"<function=", "", "<function=@>", F, "</function>", "", "", NULL, NULL},
    {"<start_of_turn>", "```json\n", "{~name~: ~@~, ~parameters~: ", F, "}",
     "\n", "\n```", NULL, NULL},
    {"Action: ```json", "Action:\n```json\n[\n",
     "    {\n        ~tool_name~: ~@~,\n        ~parameters~: ", F, "\n    }",
     ",\n", "\n]```",
     "Action:\n```json\n[\n    {\n        ~tool_name~: ~f~,\n        "
     "~parameters~: {\n            ~city~: ~x~\n        }\n    }\n]```", NULL},
    {"<|START_ACTION|>", "<|START_ACTION|>[\n",
     "    {~tool_call_id~: ~0~, ~tool_name~: ~@~, ~parameters~: ", F, "}",
     ",\n", "\n]<|END_ACTION|>", NULL, NULL},
    {"<|channel|><|message|>", "",
     "<|channel|>commentary to=functions.@ <|constrain|>json<|message|>", F, "",
     NULL, "", " to=functions.f<|channel|>commentary json<|message|>" F, NULL},
    {"<tool_call> <function=", "", "<tool_call>\n<function=@>\n",
     "<parameter=city>\nx\n</parameter>\n", "</function>\n</tool_call>", "\n",
     "", NULL, NULL},
    {"<tool_call> <arg_key>", "", "<tool_call>@\n",
     "<arg_key>city</arg_key>\n<arg_value>x</arg_value>\n", "</tool_call>",
     "\n", "",
     "<tool_call>f<arg_key>city</arg_key><arg_value>x</arg_value></tool_call>",
     NULL},
    {"<minimax:tool_call>", "<minimax:tool_call>\n", "<invoke name=~@~>\n",
     "<parameter name=~city~>x</parameter>\n", "</invoke>\n", "",
     "</minimax:tool_call>", NULL, NULL},
    {"<seed:tool_call>", "", "<seed:tool_call>\n<function=@>\n",
     "<parameter=city>x</parameter>\n", "</function>\n</seed:tool_call>", "\n",
     "", NULL, NULL},
    {"[func_name1(", "[", "@(", "city=~x~", ")", ", ", "]", "[f(city='x')]",
     NULL},
    {"<|tool_call_start|>", "<|tool_call_start|>[", "@(", "city=~x~", ")",
     ", ", "]<|tool_call_end|>", NULL, NULL},
    {"<|tool_call>", "", "<|tool_call>call:@{", "city:" QF "x" QF,
     "}<tool_call|>", "", "", NULL, NULL},
};

/* A call of this name with these arguments, behind b. */
static void put_call(struct buf *b, const struct form *f, const char *name,
                     const char *args)
{
    for (const char *s = f->head; *s != '\0'; s++) {
        if (*s == '@') {
            buf_puts(b, name);
        } else {
            buf_put(b, s, 1);
        }
    }
    buf_puts(b, args);
    buf_puts(b, f->tail);
}

static bool takes(const struct held *h, const char *before, const struct buf *b,
                  const char *behind)
{
    char text[1024];
    (void)snprintf(text, sizeof(text), "%s%s%s", before, b->p, behind);
    char *p = reply_quoted(text);
    bool ok = grammar_takes(h->m, p, strlen(p));
    free(p);
    return ok;
}

/* The parser's events, without blanks. */
static void reads(const struct held *h, const char *text, const char *want)
{
    char *p = reply_quoted(text);
    char *w = reply_quoted(want);
    char *got = reply_run(&h->how, p, strlen(p), 3);
    char *to = got;
    for (char *s = got; *s != '\0'; s++) {
        if (strchr(" \n", *s) == NULL) {
            *to++ = *s;
        }
    }
    *to = '\0';
    if (strcmp(got, w) != 0) {
        fail_msg("%s is read as %s, not %s", p, got, w);
    }
    free(p);
    free(w);
    free(got);
}

/* One call, and whether it is let through. */
static bool one_call(const struct held *h, const struct form *f,
                     const char *name, const char *args, struct buf *b)
{
    buf_clear(b);
    buf_puts(b, f->open);
    put_call(b, f, name, args);
    buf_puts(b, f->close);
    return takes(h, "", b, "");
}

static void check_form(const struct form *f, const struct held *one,
                       const struct held *two, const struct held *either)
{
    static const char want[] = "C<f>A<{~city~:~x~}>+";
    const char *none = *f->args == '{' ? "{}" : "";
    struct buf b;
    buf_init(&b, 4096);
    assert_false(one_call(one, f, "q", f->args, &b));
    assert_false(one_call(one, f, "f", none, &b));
    assert_true(one_call(one, f, "h", none, &b));
    assert_true(one_call(two, f, "f", f->args, &b));
    assert_true(one_call(one, f, "f", f->args, &b));
    assert_true(takes(either, "", &b, ""));
    reads(one, b.p, want);
    assert_false(takes(one, "Hm", &b, ""));
    assert_false(takes(one, "", &b, " Hm"));
    b.p[b.n - 1] = 'Q';
    assert_false(takes(one, "", &b, ""));
    b.p[0] = '\0';
    assert_false(takes(one, "", &b, ""));
    if (f->other != NULL) {
        buf_clear(&b);
        buf_puts(&b, f->other);
        assert_true(takes(one, "", &b, ""));
        reads(one, f->other, want);
    }
    if (f->between != NULL) {
        buf_clear(&b);
        buf_puts(&b, f->open);
        put_call(&b, f, "f", f->args);
        buf_puts(&b, f->between);
        put_call(&b, f, "h", none);
        buf_puts(&b, f->close);
        assert_false(takes(one, "", &b, ""));
        assert_true(takes(two, "", &b, ""));
        assert_true(takes(either, "", &b, ""));
        reads(two, b.p, "C<f>A<{~city~:~x~}>+C<h>A<{}>+");
    }
    buf_fini(&b);
}

static void test_forms(void **state)
{
    (void)state;
    static const struct reply_want *const wants[] = {&call, &calls, &automatic};
    for (size_t i = 0; i < countof(forms); i++) {
        struct held h[countof(wants)];
        for (size_t k = 0; k < countof(h); k++) {
            hold(&h[k], forms[i].tmpl, wants[k]);
            h[k].how.tail = forms[i].prompt;
        }
        check_form(&forms[i], &h[0], &h[1], &h[2]);
        for (size_t k = 0; k < countof(h); k++) {
            let_go(&h[k]);
        }
    }
}

/* --- what cannot be held --- */

#define TOOL(rest)  "[{~type~: ~function~, ~function~: {" rest "}}]"
#define PARAMS(s)   TOOL("~name~: ~f~, ~strict~: true, ~parameters~: " s)
#define OF(s)       PARAMS("{~type~: ~object~, ~properties~: {~a~: " s "}}")

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *tmpl, *tools, *name;
        int code;
        const char *msg;
    } rows[] = {
        {"", TOOL("~name~: ~f~"), NULL, ERR_UNSUPPORTED,
         "shows no form of calls"},
        {"<tool_call>", "[]", NULL, ERR_INVALID, "there is no tool"},
        {"<tool_call>", TOOL("~name~: ~f~"), "g", ERR_INVALID,
         "there is no tool 'g'"},
        {"<|channel|><|message|>", TOOL("~name~: ~f~"), "g", ERR_INVALID,
         "there is no tool 'g'"},
        {"<tool_call>", TOOL("~name~: 1"), NULL, ERR_INVALID, "with a name"},
        {"<tool_call>", "[{~type~: ~function~}]", NULL, ERR_INVALID,
         "with a name"},
        {"<tool_call>", TOOL("~name~: ~~"), NULL, ERR_INVALID, "tool ''"},
        {"<tool_call>", TOOL("~name~: ~a\\nb~"), NULL, ERR_INVALID, "this name"},
        {"[TOOL_CALLS][ARGS]", TOOL("~name~: ~a b~"), NULL, ERR_INVALID,
         "tool 'a b': the model's calls cannot have this name"},
        {"[TOOL_CALLS][ARGS]", TOOL("~name~: ~functions.a~"), NULL,
         ERR_INVALID, "this name"},
        {"<tool_call>", OF("{~uniqueItems~: true}"), NULL, ERR_UNSUPPORTED,
         "tool 'f': schema #/properties/a: uniqueItems: this word"},
        {"<tool_call>", PARAMS("{~type~: ~string~}"), NULL, ERR_INVALID,
         "tool 'f': parameters: the schema is not one of objects"},
        {"<tool_call>", PARAMS("true"), NULL, ERR_INVALID, "one of objects"},
        {"<tool_call>", PARAMS("{~type~: [~object~, ~null~]}"), NULL,
         ERR_INVALID, "one of objects"},
        {"<tool_call>",
         OF("{~items~: {~items~: {~items~: {~items~: {~items~: {~items~: "
            "{~items~: {~items~: {~items~: {~items~: {~items~: {~items~: "
            "{~items~: {~items~: {~items~: {~items~: {~type~: ~null~}}}}}}}}}}"
            "}}}}}}}"),
         NULL, ERR_UNSUPPORTED, "nested deeper than 18"},
        {"<tool_call> <function=", OF("{~type~: ~string~, ~pattern~: ~x~}"),
         NULL, ERR_UNSUPPORTED,
         "tool 'f': schema #/properties/a: pattern: no strings without"},
        {"<tool_call> <function=", OF("{~anyOf~: [{~type~: ~null~}, {~type~: "
                                      "~string~, ~maxLength~: 3}]}"),
         NULL, ERR_UNSUPPORTED, "#/properties/a: maxLength: no strings"},
        {"<tool_call> <function=", OF("{~enum~: [~yes~, ~true~]}"), NULL,
         ERR_UNSUPPORTED, "#/properties/a: enum: a value that would be read"},
        {"<tool_call> <function=", PARAMS("{~anyOf~: [{~type~: ~object~}]}"),
         NULL, ERR_UNSUPPORTED, "schema #: anyOf: not around all parameters"},
        {"<tool_call> <function=",
         PARAMS("{~properties~: {~a b~: {~type~: ~null~}}}"), NULL,
         ERR_UNSUPPORTED, "schema #/properties/a b: properties: no such name"},
        {"[func_name1(", PARAMS("{~properties~: {~a-b~: {~type~: ~null~}}}"),
         NULL, ERR_UNSUPPORTED, "properties: no such name"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct err e = {0};
        struct buf b;
        struct json *tools = json_of(rows[i].tools);
        struct reply_how how = reply_how(rows[i].tmpl);
        const struct reply_want w = {
            .tools = tools, .kind = WANT_CALL, .name = rows[i].name};
        buf_init(&b, MIB(1));
        int rc = reply_constraint(&how.forms, &w, &b, &e);
        if (rc != rows[i].code || strstr(e.msg, rows[i].msg) == NULL) {
            fail_msg("%s: %s: %s: %s", rows[i].tmpl, rows[i].tools,
                     err_name(rc), e.msg);
        }
        buf_fini(&b);
        json_free(tools);
    }
}

/* What is said of tools that are not strict. */
static void check_tools(const char *tmpl, const char *tools, int kind,
                        const char *text, bool want)
{
    struct held h = {.m = NULL};
    struct json *t = json_of(tools);
    struct reply_want w = {.tools = t, .kind = WANT_CALL};
    w.kind = kind == WANT_AUTO ? WANT_AUTO : WANT_CALL;
    hold(&h, tmpl, &w);
    char *p = reply_quoted(text);
    if (grammar_takes(h.m, p, strlen(p)) != want) {
        fail_msg("%s: %s: %s", tmpl, tools, p);
    }
    free(p);
    let_go(&h);
    json_free(t);
}

static void test_schemas(void **state)
{
    (void)state;
#define LOOSE(s) TOOL("~name~: ~f~, ~parameters~: " s)
#define INT_A    "{~properties~: {~a~: {~type~: ~integer~}}}"
#define HERMES(args)                                                      \
    "<tool_call>\n{~name~: ~f~, ~arguments~: " args "}\n</tool_call>"
#define QWEN(a)                                                           \
    "<tool_call>\n<function=f>\n" a "</function>\n</tool_call>"
#define QWEN_A(a) QWEN("<parameter=a>\n" a "\n</parameter>\n")
    static const struct {
        const char *tmpl, *tools;
        int kind;
        const char *text;
        bool want;
    } rows[] = {
        {"<tool_call>", LOOSE(INT_A), WANT_CALL, HERMES("{~a~: 1}"), true},
        {"<tool_call>", LOOSE(INT_A), WANT_CALL, HERMES("{~a~: ~x~}"), false},
        {"<tool_call>", LOOSE(INT_A), WANT_AUTO, HERMES("{~a~: ~x~}"), true},
        {"<tool_call>", PARAMS(INT_A), WANT_AUTO, HERMES("{~a~: ~x~}"), false},
        {"<tool_call>", LOOSE("{~not~: {}}"), WANT_CALL, HERMES("{~b~: 1}"),
         true},
        {"<tool_call>", LOOSE("true"), WANT_CALL, HERMES("{~b~: 1}"), true},
        {"<tool_call>", LOOSE("true"), WANT_CALL, HERMES("1"), false},
        {"<tool_call>", LOOSE("{}"), WANT_CALL, HERMES("{~b~: 1}"), false},
        {"<tool_call>", LOOSE("{}"), WANT_CALL, HERMES("{}"), true},
        {"<tool_call>", LOOSE("null"), WANT_CALL, HERMES("{}"), true},
        {"<tool_call>", LOOSE("{~type~: ~object~}"), WANT_CALL,
         HERMES("{~b~: 1}"), true},
        {"<tool_call> <function=", LOOSE(INT_A), WANT_CALL, QWEN_A("12"), true},
        {"<tool_call> <function=", LOOSE(INT_A), WANT_CALL, QWEN_A("x"), false},
        {"<tool_call> <function=", LOOSE(INT_A), WANT_AUTO, QWEN_A("x"), true},
        {"<tool_call> <function=", LOOSE("{~anyOf~: [{~type~: ~object~}]}"),
         WANT_CALL, QWEN_A("x"), true},
        {"<tool_call> <function=", OF("{~type~: [~string~, ~null~]}"),
         WANT_CALL, QWEN_A("null"), true},
        {"<tool_call> <function=", OF("{~type~: [~string~, ~null~]}"),
         WANT_CALL, QWEN_A("Norway"), true},
        {"<tool_call> <function=", OF("{~type~: [~string~, ~null~]}"),
         WANT_CALL, QWEN_A("2024-01-05"), true},
        {"<tool_call> <function=", OF("{~type~: [~string~, ~null~]}"),
         WANT_CALL, QWEN_A("3 pm"), true},
        {"<tool_call> <function=", OF("{~type~: [~string~, ~null~]}"),
         WANT_CALL, QWEN_A("12"), false},
        {"<tool_call> <function=", OF("{~type~: [~string~, ~null~]}"),
         WANT_CALL, QWEN_A("None"), false},
        {"<tool_call> <function=", OF("{~type~: ~string~}"), WANT_CALL,
         QWEN_A("12"), true},
        {"<tool_call> <function=", OF("{~enum~: [~red~, 3, null]}"), WANT_CALL,
         QWEN_A("red"), true},
        {"<tool_call> <function=", OF("{~enum~: [~red~, 3, null]}"), WANT_CALL,
         QWEN_A("3"), true},
        {"<tool_call> <function=", OF("{~enum~: [~red~, 3, null]}"), WANT_CALL,
         QWEN_A("4"), false},
        {"<tool_call> <function=", OF("true"), WANT_CALL, QWEN_A("[1]"), true},
        {"<tool_call> <function=", OF("true"), WANT_CALL, QWEN_A("x"), true},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        check_tools(rows[i].tmpl, rows[i].tools, rows[i].kind, rows[i].text,
                    rows[i].want);
    }
}

/* Where calls have no mark, text does not begin as they do. */
static void test_text_before(void **state)
{
    (void)state;
    static const struct text llama[] = {
        {"Hm {", "T<Hm {>"},
        {"\n", "T<\n>"},
        {"\n{~name~: ~h~, ~parameters~: {}}", "C<h>A<{}>+"},
        {"{~title~: 1}", NULL},
        {" [1]", NULL},
        {"Hm <|python_tag|>", NULL},
        {"Hm {~name~: ~h~, ~parameters~: {}}",
         "T<Hm {~name~: ~h~, ~parameters~: {}}>"},
    };
    CHECK_ALL("<|python_tag|>", &automatic, NULL, llama);
    static const struct text functionary[] = {
        {"all\nHello", "T<Hello>"},
        {"all\nHello\n>>>h\n{}", "T<Hello>C<h>A<{}>+"},
        {"h\n{}", "C<h>A<{}>+"},
        {"Hello", NULL},
        {"all\nHello\n>>>python\n", NULL},
    };
    CHECK_ALL(">>> recipient", &automatic, ">>>", functionary);
    static const struct text harmony[] = {
        {"<|channel|>final<|message|>Hello", "T<Hello>"},
        {"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
         "<|channel|>commentary to=functions.h <|constrain|>json<|message|>{}",
         "T<I look.>C<h>A<{}>+"},
        {"<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>"
         "commentary to=functions.h json<|message|>{}", "R<Hm>C<h>A<{}>+"},
        {"Hello", NULL},
        {"<|channel|>commentary to=functions.no json<|message|>{}", NULL},
        {"<|channel|>final<|message|>a<|end|>", NULL},
    };
    CHECK_ALL("<|channel|><|message|>", &automatic, NULL, harmony);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes),
        cmocka_unit_test(test_hermes_auto),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_text_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
