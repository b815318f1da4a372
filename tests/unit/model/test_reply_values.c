/* test_reply_values.c - calls with tags, in Python's spelling and gemma 4's:
 * their values become JSON text. */
#include "tests/unit/model/reply_check.h"

static void test_qwen_coder(void **state)
{
    (void)state;
    struct reply_how how = reply_how("<tool_call> <function= </think>");
    static const struct reply_case t[] = {
        {"<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx ~y~\n\tz\\\n</parameter>\n</function>\n</tool_call>",
         "C<f>A<{~a~:1,~b~:~x \\~y\\~\\n\\u0009z\\\\~}>+"},
        {"Hi\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n<parameter=a>\n[1, ~b~]\n</parameter>\n"
         "</function>\n</tool_call>\nBye",
         "T<Hi>C<f>A<{}>+C<g>A<{~a~:[1, ~b~]}>+T<Bye>"},
        /* without what should be around it, or its end */
        {"<function=f>\n<parameter=a>\ntrue\n</parameter>\n</function>\n</tool_call>", "C<f>A<{~a~:true}>+T<</tool_call>>"},
        {"<tool_call><function=f><parameter=a>b</parameter></tool_call>x", "C<f>A<{~a~:~b~}>+T<x>"},
        /* Functionary's JSON inside Qwen's tags */
        {"<tool_call>\n<function=f>{~a~: 1}</function>\n</tool_call>\nx", "C<f>A<{~a~: 1}>+T<x>"},
        {"<tool_call>\n<function=f>{~a~: 1}</function>\n<function=g></function></tool_call>", "C<f>A<{~a~: 1}>+C<g>A<{}>+"},
        /* words and numbers, or strings that only begin like them */
        {"<function=f><parameter=a>True</parameter><parameter=b>None</parameter><parameter=c>-1.5e3</parameter>"
         "<parameter=d>Nobody</parameter><parameter=e>1 2</parameter><parameter=f>{no}</parameter><parameter=g>\n\n</parameter>"
         "<parameter=h></parameter><parameter=i>~q~</parameter></function>",
         "C<f>A<{~a~:true,~b~:null,~c~:-1.5e3,~d~:~Nobody~,~e~:~1 2~,~f~:~{no}~,~g~:~~,~h~:~~,~i~:~\\~q\\~~}>+"},
        {"<function=f><parameter=a>\n\n x\n\n</parameter></function>", "C<f>A<{~a~:~\\n x\\n~}>+"},
        {"<function=f><parameter=a>a</param</parameter ></parameter></function>",
         "C<f>A<{~a~:~a</param</parameter >~}>+"},
        /* broken */
        {"<function=f><parameter=a>gr\xC3\xBC\xC3\x9F", "C<f>A<{~a~:~gr\xC3\xBC\xC3\x9F>-"},
        {"<function=f><parameter=a>[1, 2", "C<f>A<{~a~:~[1, 2>-"},
        {"<function=f><parameter=a>1</parameter>\nno", "C<f>A<{~a~:1>-T<no>"},
        {"<function=f><parameter=a>1</parameter></functio", "C<f>A<{~a~:1>-"},
        {"<tool_call>\n<function=f>\n", "T<<tool_call>\n<function=f>\n>"},
        {"<function= is a tag", "T<<function= is a tag>"},
        {"<function=>", "T<<function=>>"},
        {"<tool_call><funny>", "T<<tool_call><funny>>"},
    };
    REPLY_CHECK_ALL(&how, t);
    how.no_tools = true;
    reply_check(&how, "<function=f></function>", "T<<function=f></function>>");
}

static bool content_is_string(void *ctx, const char *name, size_t n,
                              const char *key, size_t key_n)
{
    (void)ctx;
    return n == 5 && memcmp(name, "write", n) == 0 && key_n == 7 &&
           memcmp(key, "content", key_n) == 0;
}

/* The request's schema says what is a string. */
static void test_strings(void **state)
{
    (void)state;
    struct reply_how how = reply_how("<tool_call> <function=");
    how.is_string = content_is_string;
    reply_check(&how,
                "<function=write><parameter=content>\n{~a~: 1}\n</parameter><parameter=n>1</parameter></function>",
                "C<write>A<{~content~:~{\\~a\\~: 1}~,~n~:1}>+");
    reply_check(&how, "<function=read><parameter=content>1</parameter></function>",
                "C<read>A<{~content~:1}>+");
}

static void test_glm(void **state)
{
    (void)state;
    struct reply_how how = reply_how("<tool_call> <arg_key>");
    static const struct reply_case t[] = {
        {"<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n<arg_value>x\ny</arg_value>\n</tool_call>",
         "C<f>A<{~a~:1,~b~:~x\\ny~}>+"},
        {"So\n<tool_call>f</tool_call>\n<tool_call>g\n</tool_call>", "T<So>C<f>A<{}>+C<g>A<{}>+"},
        {"<tool_call>f<arg_key>a</arg_key>1", "C<f>A<{~a~:>-T<1>"},
        {"<tool_call>no call", "T<<tool_call>no call>"},
    };
    REPLY_CHECK_ALL(&how, t);
}

static void test_other_tags(void **state)
{
    (void)state;
    struct reply_how how = reply_how("<minimax:tool_call>");
    static const struct reply_case minimax[] = {
        {"Hi\n<minimax:tool_call>\n<invoke name=~f~>\n<parameter name=~a~>1</parameter>\n</invoke>\n<invoke name=~g~>\n</invoke>\n"
         "</minimax:tool_call>\nBye",
         "T<Hi>C<f>A<{~a~:1}>+C<g>A<{}>+T<Bye>"},
        {"<minimax:tool_call>\n<invoke name=~f~>\n</invoke>\nno", "C<f>A<{}>+T<no>"},
        {"<minimax:tool_call>\nno", "T<<minimax:tool_call>\nno>"},
    };
    REPLY_CHECK_ALL(&how, minimax);
    how = reply_how("<seed:tool_call> <seed:think>");
    static const struct reply_case seed[] = {
        {"<seed:think>Hm</seed:think><seed:tool_call>\n<function=f>\n<parameter=a>b</parameter>\n</function>\n</seed:tool_call>",
         "R<Hm>C<f>A<{~a~:~b~}>+"},
    };
    REPLY_CHECK_ALL(&how, seed);
}

static void test_python(void **state)
{
    (void)state;
    struct reply_how how = reply_how("[func_name1(");
    static const struct reply_case t[] = {
        {"[f(a=1, b='x')]", "C<f>A<{~a~:1,~b~:~x~}>+"},
        {"[f(), g.h-i( a = -1.5 ,b = [ 1, 'two', (3,), {'k': None, ~l~: True} ], )]\n",
         "C<f>A<{}>+C<g.h-i>A<{~a~:-1.5,~b~:[1,~two~,[3],{~k~:null,~l~:true}]}>+"},
        {"[f(a='it\\'s \\n \\x41\\u00e9\\U0001F600 \\q ~q~ \\ud83d\\ude00 \\ud83d.')]",
         "C<f>A<{~a~:~it's \\n A\xC3\xA9\xF0\x9F\x98\x80 \\\\q \\~q\\~ \xF0\x9F\x98\x80 \xEF\xBF\xBD.~}>+"},
        {"[f(a='', b=~~, c='''x 'y' ''z\n''', d=~~~~~~)]", "C<f>A<{~a~:~~,~b~:~~,~c~:~x 'y' ''z\\n~,~d~:~~}>+"},
        {"[f(a='x\\\ny')]", "C<f>A<{~a~:~xy~}>+"},
        {"[f(a={}, b=[], c={'d': {'': 1}})] Done", "C<f>A<{~a~:{},~b~:[],~c~:{~d~:{~~:1}}}>+T< Done>"},
        {"<|python_start|>[f(a=1)]<|python_end|>", "C<f>A<{~a~:1}>+"},
        /* no calls */
        {"[see(1)]", "T<[see(1)]>"},
        {"[1, 2]", "T<[1, 2]>"},
        {"[link](url)", "T<[link](url)>"},
        {"[f(a", "T<[f(a>"},
        {"[f(a.b=1)]", "T<[f(a.b=1)]>"},
        {"Hi [f(a=1)]", "T<Hi [f(a=1)]>"},
        /* broken: what there is, then text */
        {"[f(a=1, b=celsius)] x", "C<f>A<{~a~:1,~b~:celsius>-T<)] x>"},
        {"[f(a='b", "C<f>A<{~a~:~b>-"},
        {"[f(a=12", "C<f>A<{~a~:12>-"},
        {"[f(a=[1}", "C<f>A<{~a~:[1>-T<}>"},
        {"[f(a={1: 2})]", "C<f>A<{~a~:{>-T<1: 2})]>"},
        {"[f(a=1, a=2)]", "C<f>A<{~a~:1,~a~:2}>-"},
        {"[f(a=1) x", "C<f>A<{~a~:1}>+T< x>"},
        {"[f(a=1),]", "C<f>A<{~a~:1}>+T<,]>"},
    };
    REPLY_CHECK_ALL(&how, t);
}

static void test_lfm2_and_tool_code(void **state)
{
    (void)state;
    struct reply_how how = reply_how("<|tool_call_start|>");
    static const struct reply_case lfm2[] = {
        {"<|tool_call_start|>[f(a=~x~), g()]<|tool_call_end|>Checking.", "C<f>A<{~a~:~x~}>+C<g>A<{}>+T<Checking.>"},
        {"<|tool_call_start|>[{~name~: ~f~, ~arguments~: {}}]<|tool_call_end|>", "C<f>A<{}>+"},
        {"<|tool_call_start|>[oops]<|tool_call_end|>", "T<<|tool_call_start|>[oops]<|tool_call_end|>>"},
    };
    REPLY_CHECK_ALL(&how, lfm2);
    how = reply_how("<start_of_turn>");
    static const struct reply_case gemma[] = {
        {"Sure.\n```tool_code\nf(a=1)\ng(b='x')\n```", "T<Sure.>C<f>A<{~a~:1}>+C<g>A<{~b~:~x~}>+"},
        {"```tool_code\nprint(default_api.f(a=1))\n```\nDone", "C<f>A<{~a~:1}>+T<Done>"},
        {"```tool_code\n[f(a=1), g()]\n```", "C<f>A<{~a~:1}>+C<g>A<{}>+"},
        {"```tool_code\nprint('x')\n```", "T<```tool_code\nprint('x')\n```>"},
        {"[f(a=1)]", "C<f>A<{~a~:1}>+"},
        {"```python\nf(a=1)\n```", "T<```python\nf(a=1)\n```>"},
    };
    REPLY_CHECK_ALL(&how, gemma);
}

static void test_gemma4(void **state)
{
    (void)state;
#define Q "<|~|>"
    struct reply_how how = reply_how("<|tool_call> <|channel>thought");
    static const struct reply_case t[] = {
        {"<|channel>thought\nHm\n<channel|><|tool_call>call:f{a:1,b:" Q "x, ~y~}\n" Q ",c:[true," Q Q ",null],d:{e:-2.5," Q "f g" Q ":{}}}<tool_call|>",
         "R<Hm>C<f>A<{~a~:1,~b~:~x, \\~y\\~}\\n~,~c~:[true,~~,null],~d~:{~e~:-2.5,~f g~:{}}}>+"},
        {"Hi<|tool_call>call:f{}<tool_call|><|tool_call>call:g{a:" Q "<|x" Q "}<tool_call|>",
         "T<Hi>C<f>A<{}>+C<g>A<{~a~:~<|x~}>+"},
        {"<|tool_call>call:f{a:celsius degrees,b:~x\\n~}<tool_call|>", "C<f>A<{~a~:~celsius degrees~,~b~:~x\\n~}>+"},
        {"<|tool_call>call:f{a:" Q "b<<|<|~<" Q ",c:x }<tool_call|>", "C<f>A<{~a~:~b<<|<|\\~<~,~c~:~x~}>+"},
        {"<|tool_call>call:f{a:" Q "b<", "C<f>A<{~a~:~b<>-"},
        {"<|tool_call>call:f{a:<b}<tool_call|>", "C<f>A<{~a~:<>-T<b}<tool_call|>>"},
        {"<|tool_call>call:f{a}<tool_call|>", "T<<|tool_call>call:f{a}<tool_call|>>"},
        {"<|tool_call>call:f g{", "T<<|tool_call>call:f g{>"},
        {"<|tool_call>f{}", "T<<|tool_call>f{}>"},
    };
    REPLY_CHECK_ALL(&how, t);
    how.tail = "<|turn>model\n<|channel>thought\n<channel|>";
    reply_check(&how, "Hi", "T<Hi>");
}

/* As deep as JSON may be here, and deeper. */
static void test_depth(void **state)
{
    (void)state;
    struct reply_how how = reply_how("[func_name1(");
    for (int depth = JSON_DEPTH_MAX - 2; depth <= JSON_DEPTH_MAX + 40; depth++) {
        char in[512] = "[f(a=";
        size_t n = strlen(in);
        memset(in + n, '[', (size_t)depth);
        memset(in + n + (size_t)depth, ']', (size_t)depth);
        memcpy(in + n + 2 * (size_t)depth, ")]", 3);
        char *got = reply_run(&how, in, strlen(in), 5);
        bool whole = strchr(got, '+') != NULL;
        assert_int_equal(whole, depth < JSON_DEPTH_MAX);
        free(got);
        struct reply_how hermes = reply_how("<tool_call>");
        n = (size_t)snprintf(in, sizeof(in), "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":");
        memset(in + n, '[', (size_t)depth);
        memset(in + n + (size_t)depth, ']', (size_t)depth);
        memcpy(in + n + 2 * (size_t)depth, "}}</tool_call>", 15);
        got = reply_run(&hermes, in, strlen(in), 5);
        whole = strchr(got, '+') != NULL;
        assert_int_equal(whole, depth < JSON_DEPTH_MAX);
        free(got);
    }
}

/* Names, keys and numbers beyond their limit. */
static void test_long_words(void **state)
{
    (void)state;
    static const struct {
        const char *tmpl, *head, *want;
    } t[] = {
        {"[func_name1(", "[f(a=", "C<f>A<{\"a\":"},
        {"[func_name1(", "[f(", "T<[f("},
        {"[func_name1(", "[", "T<["},
        {"<|tool_call>", "<|tool_call>call:", "T<<|tool_call>call:"},
        {"<tool_call> <function=", "<function=", "T<<function="},
        {"<tool_call> <function=", "<function=f><parameter=",
         "C<f>A<{>-T<"},
        {"[TOOL_CALLS]", "[TOOL_CALLS]", "T<[TOOL_CALLS]"},
    };
    char in[1024];
    for (size_t i = 0; i < countof(t); i++) {
        struct reply_how how = reply_how(t[i].tmpl);
        size_t n = strlen(t[i].head);
        memcpy(in, t[i].head, n);
        memset(in + n, '1', 600);
        in[n] = t[i].head[n - 1] == '=' ? '1' : 'x';
        char *got = reply_run(&how, in, n + 600, 7);
        char *again = reply_run(&how, in, n + 600, 1);
        assert_memory_equal(got, t[i].want, strlen(t[i].want));
        assert_null(strchr(got, '+'));
        assert_string_equal(got, again);
        size_t ones = 0; /* none is lost, and none comes twice */
        for (const char *p = got; *p != '\0'; p++) {
            ones += *p == '1';
        }
        assert_int_equal(ones, in[n] == '1' ? 600 : 599);
        free(got);
        free(again);
    }
}

/* A value that is too long to wait for its end is a string. */
static void test_long_value(void **state)
{
    (void)state;
    struct reply_how how = reply_how("<tool_call> <function=");
    size_t n = 2 * REPLY_HELD_MAX;
    char *in = malloc(n + 128);
    assert_non_null(in);
    size_t head = (size_t)snprintf(in, 128, "<function=f><parameter=a>");
    memset(in + head, '1', n);
    memcpy(in + head + n, "</parameter></function>", 24);
    for (size_t step = 1; step < n; step = step * 5 + 2) {
        char *got = reply_run(&how, in, strlen(in), step);
        assert_memory_equal(got, "C<f>A<{\"a\":\"1", 13);
        assert_int_equal(strlen(got), n + 16);
        assert_int_equal(got[strlen(got) - 1], '+');
        free(got);
    }
    free(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qwen_coder),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_glm),
        cmocka_unit_test(test_other_tags),
        cmocka_unit_test(test_python),
        cmocka_unit_test(test_lfm2_and_tool_code),
        cmocka_unit_test(test_gemma4),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_long_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
