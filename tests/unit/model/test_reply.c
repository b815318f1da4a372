/* test_reply.c - text, thoughts, and calls that are JSON. What has tags or
 * Python's spelling is in test_reply_values.c. */
#include "tests/unit/model/reply_check.h"

static void test_text(void **state)
{
    (void)state;
    struct reply_how how = reply_how(NULL);
    static const struct reply_case none[] = {
        {"", ""},
        {"Hello <tool_call> [TOOL_CALLS] {~name~: 1}\n",
         "T<Hello <tool_call> [TOOL_CALLS] {~name~: 1}\n>"},
        {"  two\n\n", "T<  two\n\n>"},
    };
    REPLY_CHECK_ALL(&how, none);
    how = reply_how("<tool_call>");
    static const struct reply_case hermes[] = {
        {"", ""},
        {" \n ", "T< \n >"},
        {" \n a < b <tool_ca <<tool_call\n", "T< \n a < b <tool_ca <<tool_call\n>"},
        {"gr\xC3\xBC\xC3\x9F <\xF0\x9F\x98\x80", "T<gr\xC3\xBC\xC3\x9F <\xF0\x9F\x98\x80>"},
    };
    REPLY_CHECK_ALL(&how, hermes);
}

static void test_thoughts(void **state)
{
    (void)state;
    struct reply_how how = reply_how("'</think>' in content");
    static const struct reply_case t[] = {
        {"<think>\nI see. \n\nYes\n</think>\n\nHi", "R<I see. \n\nYes>T<Hi>"},
        {"\n<think>a</think>  b", "R<a>T<  b>"},
        {"<think>a</think>\n  b", "R<a>T<  b>"},
        {"<think>\n\n</think>\n\nHi", "T<Hi>"},
        {"<think></think>", ""},
        {"<think>a</think>\n\n", "R<a>"},
        {"<think>a < b </thin </think>", "R<a < b </thin>"},
        {"<think>cut off </th", "R<cut off </th>"},
        {"<think>cut off\n", "R<cut off>"},
        {"Hi <think>no</think>", "T<Hi <think>no</think>>"},
        {"</think>", "T<</think>>"},
        {"<think>a</think><think>b</think>c", "R<ab>T<c>"},
    };
    REPLY_CHECK_ALL(&how, t);
    how.no_tools = true;
    REPLY_CHECK_ALL(&how, t);
    how.tail = "<|im_start|>assistant\n<think>\n";
    static const struct reply_case opened[] = {
        {"I see\n</think>\n\nHi", "R<I see>T<Hi>"},
        {"<think>\nI see\n</think>Hi", "R<I see>T<Hi>"},
        {"<thin ice</think>Hi", "R<<thin ice>T<Hi>"},
        {"</think>Hi", "T<Hi>"},
        {"\n", ""},
    };
    REPLY_CHECK_ALL(&how, opened);
    how.tail = "<think>\n\n</think>\n\n";
    reply_check(&how, "Hi</think>", "T<Hi</think>>");
    how.tail = "What is <think>?<|im_end|>\n<|im_start|>assistant\n";
    reply_check(&how, "A tag", "T<A tag>");
}

static void test_kin_of_think(void **state)
{
    (void)state;
    static const char *const kin[][2] = {
        {"[THINK]", "[/THINK]"},
        {"<seed:think>", "</seed:think>"},
        {"<thought>", "</thought>"},
        {"<|START_THINKING|>", "<|END_THINKING|>"},
        {"<|channel>thought", "<channel|>"},
    };
    for (size_t i = 0; i < countof(kin); i++) {
        char in[128];
        struct reply_how how = reply_how(kin[i][0]);
        (void)snprintf(in, sizeof(in), "%s\na\n%s\nb", kin[i][0], kin[i][1]);
        reply_check(&how, in, "R<a>T<b>");
    }
}

static void test_hermes(void **state)
{
    (void)state;
    struct reply_how how = reply_how("<tool_call> </think>");
    static const struct reply_case t[] = {
        {"<tool_call>\n{~name~: ~f~, ~arguments~: {~a~: [1, {~b~: ~}~}]}}\n</tool_call>",
         "C<f>A<{~a~: [1, {~b~: ~}~}]}>+"},
        {"Let me look.\n\n<tool_call>{~name~:~f~,~arguments~:{}}</tool_call>\nDone.",
         "T<Let me look.>C<f>A<{}>+T<Done.>"},
        {"<think>x</think>\n\n<tool_call>\n{~name~: ~f~, ~arguments~: {}}\n</tool_call>\n"
         "<tool_call>\n{~arguments~: {~a~: 1}, ~name~: ~g~}\n</tool_call>\n",
         "R<x>C<f>A<{}>+C<g>A<{~a~: 1}>+"},
        {"<tool_call>[{~name~:~f~,~arguments~:{}}, {~name~:~g~}]</tool_call>",
         "C<f>A<{}>+C<g>A<{}>+"},
        {"<tool_call>{~name~:~f~,~arguments~:{}}\n{~name~:~g~,~arguments~:null}\n</tool_call>x",
         "C<f>A<{}>+C<g>A<{}>+T<x>"},
        {"<tool_call>{~id~: ~x\\~y~, ~type~: ~function~, ~function~: {~name~: ~f~, ~arguments~: {~a~:1}}, ~n~: -1.5e3}</tool_call>",
         "C<f>A<{~a~:1}>+"},
        {"<tool_call>{~name~:~f\\u00fc\\ud83d\\ude00~,~arguments~:~{\\~a\\~: \\~\\\\n\\u00e9\\~}~}</tool_call>",
         "C<f\xC3\xBC\xF0\x9F\x98\x80>A<{~a~: ~\\n\xC3\xA9~}>+"},
        {"<tool_call>{~arguments~:~{\\~a\\~: 1}~,~name~:~f~}</tool_call>", "C<f>A<{~a~: 1}>+"},
        {"<tool_call>{~name~:~f~,~arguments~:~{\\~a\\~:\\~\\ud83d.\\udc00\\u0000\\~}~}</tool_call>",
         "C<f>A<{~a~:~\xEF\xBF\xBD.\xEF\xBF\xBD\xEF\xBF\xBD~}>+"},
        /* the closing tag is forgotten, or cut off */
        {"<tool_call>{~name~:~f~,~arguments~:{}}", "C<f>A<{}>+"},
        {"<tool_call>{~name~:~f~,~arguments~:{}}\n</tool_", "C<f>A<{}>+"},
        {"<tool_call>{~name~:~f~,~arguments~:{}}\n<tool_call>{~name~:~g~,~arguments~:{}}",
         "C<f>A<{}>+C<g>A<{}>+"},
        {"<tool_call>{~name~:~f~,~arguments~:{}} and text", "C<f>A<{}>+T< and text>"},
        /* the mark comes twice */
        {"<tool_call><tool_call>{~name~:~f~,~arguments~:{}}</tool_call>", "T<<tool_call>>C<f>A<{}>+"},
        {"<tool_call>\n<tool_call>\n{~name~:~f~,~arguments~:{}}\n</tool_call>", "T<<tool_call>\n>C<f>A<{}>+"},
        /* a mark inside a string is none */
        {"<tool_call>{~name~:~f~,~arguments~:{~a~:~</tool_call>~}}</tool_call>",
         "C<f>A<{~a~:~</tool_call>~}>+"},
    };
    REPLY_CHECK_ALL(&how, t);
}

static void test_no_calls(void **state)
{
    (void)state;
    struct reply_how how = reply_how("<tool_call>");
    static const char *const same[] = {
        "<tool_call>\nNo, rather not.\n</tool_call>",
        "<tool_call>{~name~: 1, ~arguments~: {}}</tool_call>",
        "<tool_call>{~name~: ~~, ~arguments~: {}}</tool_call>",
        "<tool_call>{~name~: ~a\\u000ab~, ~arguments~: {}}</tool_call>",
        "<tool_call>{~name~: ~\\q~, ~arguments~: {}}</tool_call>",
        "<tool_call>{~name~: ~\\u00g0~, ~arguments~: {}}</tool_call>",
        "<tool_call>{~arguments~: {}}</tool_call>",
        "<tool_call>{name: f}</tool_call>",
        "<tool_call>{~name~ ~f~}</tool_call>",
        "<tool_call>{~x~: [1}, ~name~: ~f~}</tool_call>",
        "<tool_call>[]</tool_call>",
        "<tool_call>[{~name~: ~f",
        " \n <tool_call>",
        "a <tool_call> <tool_call>{",
        "<tool_call>``` json {",
    };
    for (size_t i = 0; i < countof(same); i++) {
        char want[128];
        (void)snprintf(want, sizeof(want), "T<%s>", same[i]);
        reply_check(&how, same[i], want);
    }
    how.no_tools = true;
    reply_check(&how, "\n<tool_call>{~name~:~f~,~arguments~:{}}</tool_call>\n",
                "T<\n<tool_call>{~name~:~f~,~arguments~:{}}</tool_call>\n>");
}

static void test_broken_calls(void **state)
{
    (void)state;
    struct reply_how how = reply_how("<tool_call>");
    static const struct reply_case t[] = {
        {"<tool_call>{~name~:~f~,~arguments~:{~a~: ~b", "C<f>A<{~a~: ~b>-"},
        {"<tool_call>{~name~:~f~,~arguments~:", "T<<tool_call>{~name~:~f~,~arguments~:>"},
        /* brackets that fit still end the arguments */
        {"<tool_call>{~name~:~f~,~arguments~:{~a~: oops}}</tool_call>ok", "C<f>A<{~a~: oops}>-T<ok>"},
        {"<tool_call>{~name~:~f~,~arguments~:{~a~: 1,}}</tool_call>ok", "C<f>A<{~a~: 1,}>-T<ok>"},
        {"<tool_call>{~name~:~f~,~arguments~:{~a~:1,~a~:2}}</tool_call>", "C<f>A<{~a~:1,~a~:2}>-"},
        {"<tool_call>{~name~:~f~,~arguments~:[1]}</tool_call>", "C<f>A<[1]>-"},
        {"<tool_call>{~name~:~f~,~arguments~:1}</tool_call>", "C<f>A<1>-"},
        {"<tool_call>{~name~:~f~,~arguments~:~no~}</tool_call>", "C<f>A<no>-"},
        {"<tool_call>{~arguments~:[1],~name~:~f~}</tool_call>", "C<f>A<[1]>-"},
        {"<tool_call>{~name~:~f~,~arguments~:{~a~:~\\ud800~}}</tool_call>", "C<f>A<{~a~:~\\ud800~}>-"},
        /* where they do not, the closing tag does */
        {"<tool_call>{~name~:~f~,~arguments~:{~a~: ~b\nc}}\n</tool_call>\n"
         "<tool_call>{~name~:~g~,~arguments~:{}}</tool_call>",
         "C<f>A<{~a~: ~b\nc}}\n>-C<g>A<{}>+"},
        {"<tool_call>{~name~:~f~,~arguments~:{,</tool_</tool_call>x", "C<f>A<{,</tool_>-T<x>"},
        /* behind the arguments */
        {"<tool_call>{~name~:~f~,~arguments~:{}oops", "C<f>A<{}>+T<oops>"},
    };
    REPLY_CHECK_ALL(&how, t);
}

static void test_llama3(void **state)
{
    (void)state;
    struct reply_how how = reply_how("<|start_header_id|> ~<|python_tag|>~");
    static const struct reply_case t[] = {
        {"{~name~: ~f~, ~parameters~: {~a~: ~1~}}", "C<f>A<{~a~: ~1~}>+"},
        {"\n{~type~: ~function~, ~name~: ~f~, ~parameters~: {}}; {~name~: ~g~, ~parameters~: {}}\n",
         "C<f>A<{}>+C<g>A<{}>+"},
        {"<|python_tag|>{~name~: ~f~, ~parameters~: {}}", "C<f>A<{}>+"},
        {"<|python_tag|>brave_search.call(query=~what?~)", "C<brave_search>A<{~query~:~what?~}>+"},
        {"<|python_tag|>print(1)", "T<<|python_tag|>print(1)>"},
        {"<function=f>{~a~: 1}</function>", "C<f>A<{~a~: 1}>+"},
        {"{~name~: ~Bob~, ~age~: 7}", "T<{~name~: ~Bob~, ~age~: 7}>"},
        {"Look: {~name~: ~f~, ~parameters~: {}}", "T<Look: {~name~: ~f~, ~parameters~: {}}>"},
        {"{~name~: ~f~, ~parameters~: {}}\nThat was it.", "C<f>A<{}>+T<That was it.>"},
        {"{~name~: ~f~, ~parameters~: {~a~: ~", "C<f>A<{~a~: ~>-"},
        {"{}", "T<{}>"},
        {"[f(a=1)]", "C<f>A<{~a~:1}>+"},
        {"[ {~name~: ~f~, ~parameters~: {}} ]", "C<f>A<{}>+"},
        {"[{~name~: ~f~}]", "T<[{~name~: ~f~}]>"},
    };
    REPLY_CHECK_ALL(&how, t);
}

static void test_mistral(void **state)
{
    (void)state;
    struct reply_how how = reply_how("[TOOL_CALLS] [THINK]");
    static const struct reply_case t[] = {
        {"[TOOL_CALLS] [{~name~: ~f~, ~arguments~: {~a~: 1}, ~id~: ~012345678~}, {~name~: ~g~, ~arguments~: {}}]",
         "C<f>A<{~a~: 1}>+C<g>A<{}>+"},
        {"[TOOL_CALLS]f[ARGS]{~a~: 1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}", "C<f>A<{~a~: 1}>+C<g>A<{}>+"},
        {"[THINK]Hm[/THINK]So [TOOL_CALLS]f[ARGS]{}\n", "R<Hm>T<So>C<f>A<{}>+"},
        {"[TOOL_CALLS] f [ARGS] {}", "C<f>A<{}>+"},
        {"[TOOL_CALLS]f[ARGS]{~a~: ", "C<f>A<{~a~: >-"},
        {"[TOOL_CALLS]f[ARGS]", "T<[TOOL_CALLS]f[ARGS]>"},
        {"[TOOL_CALLS]f[ARGS]1", "T<[TOOL_CALLS]f[ARGS]1>"},
        {"[TOOL_CALLS] [{~name~: ~f~, ~arguments~: {}} x", "C<f>A<{}>+T< x>"},
    };
    REPLY_CHECK_ALL(&how, t);
}

static void test_deepseek(void **state)
{
    (void)state;
#define BAR     "\xEF\xBD\x9C"
#define LOW     "\xE2\x96\x81"
#define DS(s)   "<" BAR s BAR ">"
#define CALLS(s) DS("tool" LOW "calls" LOW s)
#define CALL(s) DS("tool" LOW "call" LOW s)
#define SEP     DS("tool" LOW "sep")
    struct reply_how how = reply_how(CALLS("begin") " </think>");
    how.tail = "<think>\n";
    static const struct reply_case t[] = {
        {"Hm</think>\n\n" CALLS("begin") CALL("begin") "function" SEP "f\n```json\n{~a~: 1}\n```" CALL("end") "\n"
         CALL("begin") "function" SEP "g\n```json\n{}\n```" CALL("end") CALLS("end"),
         "R<Hm>C<f>A<{~a~: 1}>+C<g>A<{}>+"},
        {"</think>I look." CALLS("begin") CALL("begin") "f" SEP "{~a~:1}" CALL("end") CALL("begin") "g" SEP "{}"
         CALL("end") CALLS("end"), "T<I look.>C<f>A<{~a~:1}>+C<g>A<{}>+"},
        {"</think>" CALLS("begin") CALL("begin") "f" SEP "{~a~", "C<f>A<{~a~>-"},
        {"</think>" CALLS("begin") CALL("begin") "f" SEP, "T<" CALL("begin") "f" SEP ">"},
        {"</think><" BAR "tool" LOW "calls", "T<<" BAR "tool" LOW "calls>"},
    };
    REPLY_CHECK_ALL(&how, t);
}

static void test_other_json(void **state)
{
    (void)state;
    static const struct {
        const char *tmpl;
        struct reply_case t;
    } all[] = {
        {"<|tool_call|> <|tool|><|/tool|>",
         {"<|tool_call|>[{~name~: ~f~, ~arguments~: {~a~: 1}}, {~name~: ~g~, ~arguments~: {}}]<|/tool_call|>",
          "C<f>A<{~a~: 1}>+C<g>A<{}>+"}},
        {"<|tool|><|/tool|>", {"functools[{~name~: ~f~, ~arguments~: {}}]", "C<f>A<{}>+"}},
        {"<|tool|><|/tool|>", {"the functools module", "T<the functools module>"}},
        {"<|tool_call|>", {"<|tool_call|>[{~name~: ~f~, ~arguments~: {}}]\n", "C<f>A<{}>+"}},
        {"<|tool_call|>", {"<|tool_call|>\nnone", "T<<|tool_call|>\nnone>"}},
        {"<tool_call> <|start_of_role|>",
         {"<tool_call>[{~name~: ~f~, ~arguments~: {}}]</tool_call> Bye", "C<f>A<{}>+T< Bye>"}},
        {"functools[",
         {"functools[{~name~: ~f~, ~arguments~: {}}, {~name~: ~g~, ~arguments~: {~a~: [2]}}]",
          "C<f>A<{}>+C<g>A<{~a~: [2]}>+"}},
        {"Action: ```json",
         {"I will search.\nAction:\n```json\n[\n    {\n        ~tool_name~: ~f~,\n        ~parameters~: {~a~: 1}\n    },\n"
          "    {~tool_name~: ~g~, ~parameters~: {}}\n]\n```",
          "T<I will search.>C<f>A<{~a~: 1}>+C<g>A<{}>+"}},
        {"<|START_ACTION|> <|START_THINKING|>",
         {"<|START_THINKING|>Hm<|END_THINKING|><|START_ACTION|>[\n{~tool_call_id~: ~0~, ~tool_name~: ~f~, ~parameters~: {}}\n]<|END_ACTION|>",
          "R<Hm>C<f>A<{}>+"}},
        {"<|tool_calls_section_begin|>",
         {"Hi<|tool_calls_section_begin|><|tool_call_begin|>functions.get_x:0<|tool_call_argument_begin|>{~a~: 1}<|tool_call_end|>"
          "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
          "T<Hi>C<get_x>A<{~a~: 1}>+C<g>A<{}>+"}},
        {"<start_of_turn>",
         {"Sure:\n```json\n{~name~: ~f~, ~parameters~: {~a~: 1}}\n```\nDone", "T<Sure:>C<f>A<{~a~: 1}>+T<Done>"}},
        {"<start_of_turn>", {"{~name~: ~f~, ~arguments~: {}}", "C<f>A<{}>+"}},
        {"<start_of_turn>", {"```json\n{~a~: 1}\n```\n", "T<```json\n{~a~: 1}\n```\n>"}},
    };
    for (size_t i = 0; i < countof(all); i++) {
        struct reply_how how = reply_how(all[i].tmpl);
        reply_check(&how, all[i].t.in, all[i].t.want);
    }
}

static void test_functionary(void **state)
{
    (void)state;
    struct reply_how how = reply_how(">>> recipient");
    static const struct reply_case t[] = {
        {"Hi>>>f\n{~a~: 1}>>>g\n{}", "T<Hi>C<f>A<{~a~: 1}>+C<g>A<{}>+"},
        {">>>all\nHello\n>>>f\n{}", "T<Hello>C<f>A<{}>+"},
        {">>> x = 1\n>>> y", "T<>>> x = 1\n>>> y>"},
        {"<function=f>{~a~: 1}</function><function=g>{}</function>", "C<f>A<{~a~: 1}>+C<g>A<{}>+"},
        {"<function=f>{~a~: 1", "C<f>A<{~a~: 1>-"},
        {"<function=f>no</function>", "T<<function=f>no</function>>"},
    };
    REPLY_CHECK_ALL(&how, t);
    how.tail = "assistant<|end_header_id|>\n\n>>>";
    static const struct reply_case opened[] = {
        {"all\nHello", "T<Hello>"},
        {"f\n{~a~: 1}\n", "C<f>A<{~a~: 1}>+"},
        {"python\nprint(1)", "T<python\nprint(1)>"},
    };
    REPLY_CHECK_ALL(&how, opened);
}

static void test_harmony(void **state)
{
    (void)state;
    struct reply_how how = reply_how("<|channel|><|message|>");
    static const struct reply_case t[] = {
        {"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi <|x",
         "R<Hm.>T<Hi <|x>"},
        {"<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary to=functions.f "
         "<|constrain|>json<|message|>{~a~: 1}<|call|>",
         "R<Hm>C<f>A<{~a~: 1}>+"},
        {" to=functions.f<|channel|>commentary json<|message|>{~a~: ~<|end~}", "C<f>A<{~a~: ~<|end~}>+"},
        {"<|channel|>commentary<|message|>I will look.<|end|>\n<|start|>assistant to=functions.f<|channel|>commentary json"
         "<|message|>{}<|call|><|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}",
         "T<I will look.>C<f>A<{}>+C<g>A<{}>+"},
        {"<|channel|>commentary to=python<|message|>{~code~: ~1~}\n", "C<python>A<{~code~: ~1~}>+"},
        {"<|channel|>commentary to=functions.f<|message|>{~a~: <|end|>", "C<f>A<{~a~: >-"},
        {"<|channel|>commentary to=functions.f<|message|>{} so", "C<f>A<{}>+T<so>"},
        {"<|channel|>commentary to=functions.f<|message|>", "C<f>-"},
        {"<|message|>Hi<|return|>", "T<Hi>"},
        {"Hi <|channel|>final<|message|>there", "T<Hi there>"},
        {"<|channel|>ana", "T<<|channel|>ana>"},
        {"<|", "T<<|>"},
        {"", ""},
    };
    REPLY_CHECK_ALL(&how, t);
    struct reply_how in_thought = how;
    in_thought.tail = "<|start|>assistant<|channel|>analysis<|message|>";
    reply_check(&in_thought, "Hm<|end|><|start|>assistant<|channel|>final<|message|>Hi", "R<Hm>T<Hi>");
    how.no_tools = true;
    reply_check(&how, " to=functions.f<|channel|>commentary json<|message|>{}",
                "T< to=functions.f<|channel|>commentary json<|message|>{}>");
}

/* What is held is bounded, and what is longer is text. */
static void test_limits(void **state)
{
    (void)state;
    struct reply_how how = reply_how("<tool_call>");
    static const char head[] = "<tool_call>{\"x\": \"";
    size_t n = 3 * REPLY_HELD_MAX;
    char *in = malloc(n + 1);
    assert_non_null(in);
    memset(in, 'y', n);
    in[n] = '\0';
    memcpy(in, head, sizeof(head) - 1);
    for (size_t step = 1; step < n; step = step * 3 + 1) {
        char *got = reply_run(&how, in, n, step);
        assert_int_equal(strlen(got), n + 3);
        assert_memory_equal(got + 2, in, n);
        free(got);
    }
    memset(in, ' ', n);
    char *got = reply_run(&how, in, n, 7);
    assert_int_equal(strlen(got), n + 3);
    free(got);
    /* a name that is too long */
    (void)snprintf(in, n, "<tool_call>{\"name\": \"%.*d\", \"arguments\": {}}",
                   (int)REPLY_NAME_MAX + 1, 0);
    got = reply_run(&how, in, strlen(in), 7);
    assert_int_equal(strlen(got), strlen(in) + 3);
    free(got);
    free(in);
}

/* Arguments are given as they arrive, long before their end. */
static void test_streamed(void **state)
{
    (void)state;
    struct reply_how how = reply_how("<tool_call>");
    static const char in[] = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"bc";
    struct reply_events v = {.last = '\0'};
    buf_init(&v.b, 4096);
    struct reply *r = reply_new(&how.forms, true, "", 0, &events_sink, &v);
    reply_put(r, in, sizeof(in) - 1);
    assert_string_equal(v.b.p, "C<f>A<{\"a\":\"bc");
    reply_put(r, "d\"", 2);
    assert_string_equal(v.b.p, "C<f>A<{\"a\":\"bcd\"");
    reply_free(r); /* without an end, too */
    buf_fini(&v.b);
    /* an answer in JSON does not wait for its end, either */
    how = reply_how("<start_of_turn>");
    v = (struct reply_events){.last = '\0'};
    buf_init(&v.b, 4096);
    r = reply_new(&how.forms, true, "", 0, &events_sink, &v);
    reply_put(r, "```json\n{\"title\": \"ab", 22);
    assert_string_equal(v.b.p, "T<```json\n{\"title\": \"ab");
    reply_free(r);
    buf_fini(&v.b);
    reply_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_thoughts),
        cmocka_unit_test(test_kin_of_think),
        cmocka_unit_test(test_hermes),
        cmocka_unit_test(test_no_calls),
        cmocka_unit_test(test_broken_calls),
        cmocka_unit_test(test_llama3),
        cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_deepseek),
        cmocka_unit_test(test_other_json),
        cmocka_unit_test(test_functionary),
        cmocka_unit_test(test_harmony),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_streamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
