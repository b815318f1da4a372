/* test_reply_constrain.c - constraints of answers: for each form what is let
 * through, which the parser then reads as whole calls, and what is not; what
 * cannot be held; random texts that a constraint gives, read by the parser. In
 * all texts '~' stands for '"'. */
#include "grammar_check.h"
#include "model/reply/constrain.h"
#include "tests/unit/model/reply_check.h"

/* f(city, days?, unit?) and g(flag, note?, list?, more?) */
#define TOOLS                                                                 \
    "[{~type~: ~function~, ~function~: {~name~: ~f~, ~strict~: true, "        \
    "~parameters~: {~type~: ~object~, ~properties~: {~city~: {~type~: "       \
    "~string~}, ~days~: {~type~: ~integer~}, ~unit~: {~type~: ~string~, "     \
    "~enum~: [~c~, ~f~]}}, ~required~: [~city~], ~additionalProperties~: "    \
    "false}}}, {~type~: ~function~, ~function~: {~name~: ~g_2~, ~strict~: "   \
    "true, ~parameters~: {~type~: ~object~, ~properties~: {~flag~: {~type~: " \
    "~boolean~}, ~note~: {~type~: [~string~, ~null~]}, ~list~: {~type~: "     \
    "~array~, ~items~: {~type~: ~string~}, ~maxItems~: 2}, ~more~: {~$ref~: " \
    "~#/$defs/m~}}, ~required~: [~flag~], ~additionalProperties~: false, "    \
    "~$defs~: {~m~: {~type~: ~object~, ~properties~: {~x~: {~type~: "         \
    "~number~}}, ~required~: [~x~], ~additionalProperties~: false}}}}}, "     \
    "{~type~: ~function~, ~function~: {~name~: ~h~}}]"

struct held {
    struct reply_how how;
    struct json *tools;
    struct grammar *g;
    struct matcher *m;
};

static struct json *json_of(const char *text)
{
    struct err e = {0};
    struct json *j = NULL;
    char *p = reply_quoted(text);
    unit_ok(json_parse(p, strlen(p), &j, &e), &e);
    free(p);
    return j;
}

static bool city_is_string(void *ctx, const char *name, size_t n,
                           const char *key, size_t key_n)
{
    (void)ctx;
    return n == 1 && *name == 'f' && key_n == 4 && *key != 'd';
}

static void hold(struct held *h, const char *tmpl, const struct reply_want *w)
{
    struct err e = {0};
    struct buf b;
    struct reply_want want = *w;
    h->how = reply_how(tmpl);
    h->how.is_string = city_is_string;
    h->tools = json_of(TOOLS);
    want.tools = want.tools != NULL ? want.tools : h->tools;
    buf_init(&b, MIB(1));
    unit_ok(reply_constraint(&h->how.forms, &want, &b, &e), &e);
    int rc = grammar_from_text(b.p, b.n, &h->g, &e);
    if (rc != 0) {
        fail_msg("%s: %s: %s", b.p, err_name(rc), e.msg);
    }
    unit_ok(matcher_new(h->g, &h->m, &e), &e);
    buf_fini(&b);
}

static void let_go(struct held *h)
{
    matcher_free(h->m);
    grammar_free(h->g);
    json_free(h->tools);
}

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

/* --- each form: a call of f, of h, and both --- */

#define BAR     "\xEF\xBD\x9C"
#define LOW     "\xE2\x96\x81"
#define DEEP(s) "<" BAR "tool" LOW s BAR ">"
#define F       "{~city~: ~x~}"
#define QF      "<|~|>"

static const struct {
    const char *tmpl;
    const char *head; /* before a call of f, and between its arguments and end */
    const char *args;
    const char *tail;
    const char *two; /* f and h, parallel; NULL: the form has no second */
    const char *other; /* another that is let through, or NULL */
    const char *tail_of_prompt;
} forms[] = {
    {"<tool_call>", "<tool_call>\n{~name~: ~f~, ~arguments~: ", F,
     "}\n</tool_call>",
     "<tool_call>\n{~name~: ~f~, ~arguments~: " F "}\n</tool_call>\n"
     "<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>",
     "<tool_call>\n{~name~: ~f~, ~arguments~: {\n  ~city~: ~x~\n}}\n"
     "</tool_call>", NULL},
    {"<|python_tag|>", "{~name~: ~f~, ~parameters~: ", F, "}", NULL, NULL,
     NULL},
    {"[TOOL_CALLS][", "[TOOL_CALLS][{~name~: ~f~, ~arguments~: ", F, "}]",
     "[TOOL_CALLS][{~name~: ~f~, ~arguments~: " F "}, {~name~: ~h~, "
     "~arguments~: {}}]",
     "[TOOL_CALLS] [{~name~: ~f~, ~arguments~: " F ", ~id~: ~abcdefghi~}]",
     NULL},
    {"[TOOL_CALLS][ARGS]", "[TOOL_CALLS]f[ARGS]", F, "",
     "[TOOL_CALLS]f[ARGS]" F "[TOOL_CALLS]h[ARGS]{}",
     "[TOOL_CALLS]f[CALL_ID]abc12defg[ARGS]" F, NULL},
    {"<|tool_call|>", "<|tool_call|>[{~name~: ~f~, ~arguments~: ", F, "}]",
     "<|tool_call|>[{~name~: ~f~, ~arguments~: " F "}, {~name~: ~h~, "
     "~arguments~: {}}]", NULL, NULL},
    {"<tool_call> <|start_of_role|>",
     "<tool_call>\n{~name~: ~f~, ~arguments~: ", F, "}\n</tool_call>",
     "<tool_call>\n{~name~: ~f~, ~arguments~: " F "}\n</tool_call>\n"
     "<tool_call>\n{~name~: ~h~, ~arguments~: {}}\n</tool_call>", NULL, NULL},
    {"<|tool|><|/tool|>", "<|tool_call|>[{~name~: ~f~, ~arguments~: ", F,
     "}]<|/tool_call|>",
     "<|tool_call|>[{~name~: ~f~, ~arguments~: " F "}, {~name~: ~h~, "
     "~arguments~: {}}]<|/tool_call|>", NULL, NULL},
    {DEEP("calls" LOW "begin"),
     DEEP("calls" LOW "begin") DEEP("call" LOW "begin") "f" DEEP("sep"), F,
     DEEP("call" LOW "end") DEEP("calls" LOW "end"),
     DEEP("calls" LOW "begin") DEEP("call" LOW "begin") "f" DEEP("sep") F
     DEEP("call" LOW "end") DEEP("call" LOW "begin") "h" DEEP("sep") "{}"
     DEEP("call" LOW "end") DEEP("calls" LOW "end"), NULL, NULL},
    {DEEP("calls" LOW "begin") "```json",
     DEEP("calls" LOW "begin") DEEP("call" LOW "begin") "function" DEEP("sep")
     "f\n```json\n", F,
     "\n```" DEEP("call" LOW "end") DEEP("calls" LOW "end"),
     DEEP("calls" LOW "begin") DEEP("call" LOW "begin") "function" DEEP("sep")
     "f\n```json\n" F "\n```" DEEP("call" LOW "end") "\n"
     DEEP("call" LOW "begin") "function" DEEP("sep") "h\n```json\n{}\n```"
     DEEP("call" LOW "end") DEEP("calls" LOW "end"), NULL, NULL},
    {"<|tool_calls_section_begin|>",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
     "<|tool_call_argument_begin|>", F,
     "<|tool_call_end|><|tool_calls_section_end|>",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
     "<|tool_call_argument_begin|>" F "<|tool_call_end|><|tool_call_begin|>"
     "functions.h:12<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>", NULL, NULL},
    {">>> recipient", "f\n", F, "", "f\n" F ">>>h\n{}", NULL,
     "<|end_header_id|>\n\n>>>"},
    {"functools[", "functools[{~name~: ~f~, ~arguments~: ", F, "}]",
     "functools[{~name~: ~f~, ~arguments~: " F "}, {~name~: ~h~, ~arguments~: "
     "{}}]", NULL, NULL},
    {"<function=", "<function=f>", F, "</function>",
     "<function=f>" F "</function><function=h>{}</function>", NULL, NULL},
    {"<start_of_turn>", "```json\n{~name~: ~f~, ~parameters~: ", F, "}\n```",
     "```json\n{~name~: ~f~, ~parameters~: " F "}\n{~name~: ~h~, ~parameters~: "
     "{}}\n```", NULL, NULL},
    {"Action: ```json",
     "Action:\n```json\n[\n    {\n        ~tool_name~: ~f~,\n        "
     "~parameters~: ", F, "\n    }\n]```",
     "Action:\n```json\n[\n    {\n        ~tool_name~: ~f~,\n        "
     "~parameters~: " F "\n    },\n    {\n        ~tool_name~: ~h~,\n        "
     "~parameters~: {}\n    }\n]```",
     "Action:\n```json\n[\n    {\n        ~tool_name~: ~f~,\n        "
     "~parameters~: {\n            ~city~: ~x~\n        }\n    }\n]```", NULL},
    {"<|START_ACTION|>",
     "<|START_ACTION|>[\n    {~tool_call_id~: ~0~, ~tool_name~: ~f~, "
     "~parameters~: ", F, "}\n]<|END_ACTION|>",
     "<|START_ACTION|>[\n    {~tool_call_id~: ~0~, ~tool_name~: ~f~, "
     "~parameters~: " F "},\n    {~tool_call_id~: ~1~, ~tool_name~: ~h~, "
     "~parameters~: {}}\n]<|END_ACTION|>", NULL, NULL},
    {"<|channel|><|message|>",
     "<|channel|>commentary to=functions.f <|constrain|>json<|message|>", F, "",
     NULL, " to=functions.f<|channel|>commentary json<|message|>" F, NULL},
    {"<tool_call> <function=", "<tool_call>\n<function=f>\n",
     "<parameter=city>\nx\n</parameter>\n", "</function>\n</tool_call>",
     "<tool_call>\n<function=f>\n<parameter=city>\nx\n</parameter>\n"
     "</function>\n</tool_call>\n<tool_call>\n<function=h>\n</function>\n"
     "</tool_call>", NULL, NULL},
    {"<tool_call> <arg_key>", "<tool_call>f\n",
     "<arg_key>city</arg_key>\n<arg_value>x</arg_value>\n", "</tool_call>",
     "<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>x</arg_value>\n"
     "</tool_call>\n<tool_call>h\n</tool_call>", NULL, NULL},
    {"<tool_call> <arg_key>", "<tool_call>f",
     "<arg_key>city</arg_key><arg_value>x</arg_value>", "</tool_call>",
     "<tool_call>f<arg_key>city</arg_key><arg_value>x</arg_value></tool_call>"
     "<tool_call>h</tool_call>", NULL, NULL},
    {"<minimax:tool_call>", "<minimax:tool_call>\n<invoke name=~f~>\n",
     "<parameter name=~city~>x</parameter>\n",
     "</invoke>\n</minimax:tool_call>",
     "<minimax:tool_call>\n<invoke name=~f~>\n<parameter name=~city~>x"
     "</parameter>\n</invoke>\n<invoke name=~h~>\n</invoke>\n"
     "</minimax:tool_call>", NULL, NULL},
    {"<seed:tool_call>", "<seed:tool_call>\n<function=f>\n",
     "<parameter=city>x</parameter>\n", "</function>\n</seed:tool_call>",
     "<seed:tool_call>\n<function=f>\n<parameter=city>x</parameter>\n"
     "</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=h>\n"
     "</function>\n</seed:tool_call>", NULL, NULL},
    {"[func_name1(", "[f(", "city=~x~", ")]", "[f(city=~x~), h()]", NULL, NULL},
    {"<|tool_call_start|>", "<|tool_call_start|>[f(", "city=~x~",
     ")]<|tool_call_end|>",
     "<|tool_call_start|>[f(city=~x~), h()]<|tool_call_end|>", NULL, NULL},
    {"<|tool_call>", "<|tool_call>call:f{", "city:" QF "x" QF, "}<tool_call|>",
     "<|tool_call>call:f{city:" QF "x" QF "}<tool_call|><|tool_call>call:h{}"
     "<tool_call|>", NULL, NULL},
};

static bool takes(struct matcher *m, const char *a, const char *b,
                  const char *c)
{
    char text[1024];
    (void)snprintf(text, sizeof(text), "%s%s%s", a, b, c);
    char *p = reply_quoted(text);
    bool ok = grammar_takes(m, p, strlen(p));
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

static void check_form(size_t i, const struct held *one, const struct held *two,
                       const struct held *automatic_)
{
    static const char want[] = "C<f>A<{~city~:~x~}>+";
    static const char both[] = "C<f>A<{~city~:~x~}>+C<h>A<{}>+";
    const char *head = forms[i].head;
    const char *args = forms[i].args;
    const char *tail = forms[i].tail;
    char text[1024];
    (void)snprintf(text, sizeof(text), "%s%s%s", head, args, tail);
    print_message("%s\n", forms[i].tmpl);
    assert_true(takes(one->m, head, args, tail));
    assert_true(takes(two->m, head, args, tail));
    assert_true(takes(automatic_->m, head, args, tail));
    reads(one, text, want);
    if (forms[i].other != NULL) {
        assert_true(takes(one->m, forms[i].other, "", ""));
        reads(one, forms[i].other, want);
    }
    if (forms[i].two != NULL) {
        assert_false(takes(one->m, forms[i].two, "", ""));
        assert_true(takes(two->m, forms[i].two, "", ""));
        assert_true(takes(automatic_->m, forms[i].two, "", ""));
        reads(two, forms[i].two, both);
    }
    /* no argument, text around, another name, a part */
    assert_false(takes(one->m, head, *args == '{' ? "{}" : "", tail));
    assert_false(takes(one->m, "Hm", text, ""));
    assert_false(takes(one->m, text, " Hm", ""));
    assert_false(takes(one->m, head, args, "x"));
    assert_false(takes(one->m, "", "", ""));
    char *f = strrchr(text, 'f');
    while (f > text && strncmp(f, "f", 1) == 0 &&
           ((f[1] >= 'a' && f[1] <= 'z') || (f[-1] >= 'a' && f[-1] <= 'z') ||
            f > text + strlen(head))) {
        for (f--; f > text && *f != 'f';) {
            f--;
        }
    }
    assert_true(*f == 'f');
    *f = 'q';
    assert_false(takes(one->m, text, "", ""));
}

static void test_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(forms); i++) {
        struct held one = {.m = NULL};
        struct held two = {.m = NULL};
        struct held automatic_ = {.m = NULL};
        hold(&one, forms[i].tmpl, &call);
        hold(&two, forms[i].tmpl, &calls);
        hold(&automatic_, forms[i].tmpl, &automatic);
        one.how.tail = forms[i].tail_of_prompt;
        two.how.tail = forms[i].tail_of_prompt;
        check_form(i, &one, &two, &automatic_);
        let_go(&one);
        let_go(&two);
        let_go(&automatic_);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes),
        cmocka_unit_test(test_hermes_auto),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
