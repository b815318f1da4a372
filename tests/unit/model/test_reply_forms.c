/* test_reply_forms.c - what a chat template says of the form of answers. */
#include <dirent.h>

#include "grammar_check.h"
#include "model/chat.h"
#include "model/reply/constrain.h"
#include "model/text.h"
#include "tests/unit/model/reply_check.h"

#define N REPLY_NO_TOOLS

static void check(const char *what, const char *tmpl, enum reply_tools tools,
                  const char *open)
{
    struct reply_forms f;
    reply_forms_find(tmpl, &f);
    if (f.tools != tools) {
        fail_msg("%s: form %d, not %d", what, (int)f.tools, (int)tools);
    }
    if (tools == REPLY_HARMONY) {
        assert_int_equal(f.thoughts, REPLY_CHANNEL);
    } else if (open == NULL) {
        assert_int_equal(f.thoughts, REPLY_NO_THOUGHTS);
    } else {
        assert_int_equal(f.thoughts, REPLY_THINK);
        assert_string_equal(f.open, open);
        assert_non_null(f.close);
    }
    size_t n = 0;
    assert_non_null(f.marks);
    while (f.marks[n] != NULL) {
        n++;
    }
    assert_true(n <= TEXT_MARKS_MAX);
    assert_int_equal(n > 0, tools != N || open != NULL);
}

/* Excerpts: how a template writes a call of an earlier turn. */
static void test_excerpts(void **state)
{
    (void)state;
    static const struct {
        const char *tmpl;
        enum reply_tools tools;
        const char *open;
    } t[] = {
        {"{{ '<|im_start|>' + message.role }}", N, NULL},
        {"{{ content.split('</think>')[-1] }}", N, "<think>"},
        {"{{ '<tool_call>\\n{\"name\": \"' + f.name }}", REPLY_HERMES, NULL},
        {"{{ '<tool_call>\\n<function=' + f.name }} <think>", REPLY_HERMES, "<think>"},
        {"<tool_call>{{ f.name }}<arg_key>", REPLY_HERMES, NULL},
        {"<|start_of_role|> <tool_call>", REPLY_GRANITE, NULL},
        {"<|start_of_role|>assistant<|end_of_role|><|tool_call|>", REPLY_GRANITE, NULL},
        {"'<|tool|>' + message['tools'] + '<|/tool|>'", REPLY_PHI, NULL},
        {"'[TOOL_CALLS]' + name + '[ARGS]' [THINK]", REPLY_MISTRAL, "[THINK]"},
        {"<|python_tag|> <|start_header_id|>", REPLY_LLAMA3, NULL},
        {"[func_name1(params_name1=params_value1)]", REPLY_PYTHONIC, NULL},
        {">>>all recipient", REPLY_FUNCTIONARY, NULL},
        {"<function=example_function_name>", REPLY_FUNCTIONARY, NULL},
        {"<|tool_list_start|>", REPLY_LFM2, NULL},
        {"<|tool_call_start|> <think>", REPLY_LFM2, "<think>"},
        {"<start_of_turn>model", REPLY_GEMMA, NULL},
        {"<|tool_call>call: <|channel>thought", REPLY_GEMMA, "<|channel>thought"},
        {"<|START_ACTION|> <|START_THINKING|>", REPLY_COMMAND, "<|START_THINKING|>"},
        {"<|tool_calls_section_begin|>", REPLY_KIMI, NULL},
        {"<minimax:tool_call> <think>", REPLY_MINIMAX, "<think>"},
        {"<seed:tool_call> <seed:think>", REPLY_SEED, "<seed:think>"},
        {"<|channel|>analysis<|message|>", REPLY_HARMONY, NULL},
        {NULL, N, NULL},
    };
    for (size_t i = 0; i < countof(t); i++) {
        check(t[i].tmpl != NULL ? t[i].tmpl : "no template", t[i].tmpl,
              t[i].tools, t[i].open);
    }
}

/* Public templates, by file. Those that are not named here show nothing. */
static const struct {
    const char *file;
    enum reply_tools tools;
    const char *open;
} public[] = {
    {"CohereForAI-c4ai-command-r-plus-tool_use.jinja", REPLY_COMMAND, NULL},
    {"HuggingFaceTB-SmolLM3-3B.jinja", N, "<think>"},
    {"Mistral-Small-3.2-24B-Instruct-2506.jinja", REPLY_MISTRAL, NULL},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", REPLY_HERMES, NULL},
    {"NousResearch-Hermes-2-Pro-Mistral-7B-tool_use.jinja", REPLY_HERMES, NULL},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja", REPLY_HERMES, NULL},
    {"Qwen-QwQ-32B.jinja", REPLY_HERMES, "<think>"},
    {"Qwen-Qwen2.5-7B-Instruct.jinja", REPLY_HERMES, NULL},
    {"Qwen-Qwen2.5-Math-7B-Instruct.jinja", REPLY_HERMES, NULL},
    {"Qwen-Qwen3-0.6B.jinja", REPLY_HERMES, "<think>"},
    {"Qwen2.5.jinja", REPLY_HERMES, NULL},
    {"Qwen3.5-4B.jinja", REPLY_HERMES, "<think>"},
    {"Qwen3.jinja", REPLY_HERMES, "<think>"},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja", REPLY_DEEPSEEK, "<think>"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", REPLY_DEEPSEEK, "<think>"},
    {"deepseek-ai-DeepSeek-V3.1.jinja", REPLY_DEEPSEEK, "<think>"},
    {"deepseek_tool_call.jinja", REPLY_DEEPSEEK, NULL},
    {"fireworks-ai-llama-3-firefunction-v2.jinja", REPLY_FUNCTIONARY, NULL},
    {"gemma-3.jinja", REPLY_GEMMA, NULL},
    {"gemma-4.jinja", REPLY_GEMMA, "<|channel>thought"},
    {"gemma-it.jinja", REPLY_GEMMA, NULL},
    {"gemma4_31b_chat_template.jinja", REPLY_GEMMA, "<|channel>thought"},
    {"gemma4_e2b_chat_template.jinja", REPLY_GEMMA, "<|channel>thought"},
    {"google-gemma-2-2b-it.jinja", REPLY_GEMMA, NULL},
    {"google-gemma-4-31B-it-interleaved.jinja", REPLY_GEMMA, "<|channel>thought"},
    {"google-gemma-4-31B-it.jinja", REPLY_GEMMA, "<|channel>thought"},
    {"google-gemma-7b-it.jinja", REPLY_GEMMA, NULL},
    {"gpt-oss.jinja", REPLY_HARMONY, NULL},
    {"granite-3.0-instruct.jinja", REPLY_GRANITE, NULL},
    {"ibm-granite-granite-3.3-2B-Instruct.jinja", REPLY_GRANITE, "<think>"},
    {"llama-3.2-1B.jinja", REPLY_LLAMA3, NULL},
    {"llama-cpp-deepseek-r1.jinja", REPLY_DEEPSEEK, "<think>"},
    {"llama-cpp-rwkv-world.jinja", N, "<think>"},
    {"meta-llama-Llama-3.1-8B-Instruct.jinja", REPLY_LLAMA3, NULL},
    {"meta-llama-Llama-3.2-3B-Instruct.jinja", REPLY_LLAMA3, NULL},
    {"meta-llama-Meta-Llama-3.1-8B-Instruct.jinja", REPLY_LLAMA3, NULL},
    {"microsoft-Phi-4-mini.jinja", REPLY_PHI, NULL},
    {"mistral_nemo_tool_call.jinja", REPLY_MISTRAL, NULL},
    {"mistral_small_tool_call.jinja", REPLY_MISTRAL, NULL},
    {"mistralai-Ministral-3-14B-Reasoning-2512.jinja", REPLY_MISTRAL, "[THINK]"},
    {"mistralai-Mistral-Nemo-Instruct-2407.jinja", REPLY_MISTRAL, NULL},
    {"nousresearch_hermes2_pro_tool_use.jinja", REPLY_HERMES, NULL},
    {"openai-gpt-oss-120b.jinja", REPLY_HARMONY, NULL},
    {"phi-4.jinja", REPLY_PHI, NULL},
    {"qwen2.5-instruct.jinja", REPLY_HERMES, NULL},
    {"qwen38_chat_template.jinja", REPLY_HERMES, "<think>"},
    {"smollm3.jinja", REPLY_HERMES, "<think>"},
    {"unsloth-mistral-Devstral-Small-2507.jinja", REPLY_MISTRAL, NULL},
    {"v2.jinja", REPLY_MISTRAL, NULL},
    {"v2_spm.jinja", REPLY_MISTRAL, NULL},
    {"v3.jinja", REPLY_MISTRAL, NULL},
    {"v3_spm.jinja", REPLY_MISTRAL, NULL},
    {"v7.jinja", REPLY_MISTRAL, NULL},
    {"v7_spm.jinja", REPLY_MISTRAL, NULL},
};

/* --- what a template writes is what the parser reads --- */

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "
    "\"description\": \"Says it.\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {\"city\": {\"type\": \"string\", \"description\": "
    "\"Where.\"}, \"days\": {\"type\": \"integer\", \"description\": "
    "\"How many.\"}}, \"required\": [\"city\"]}}}]";
static const char calls[] =
    "{\"reasoning_content\": \"I think so.\", \"thinking\": \"I think so.\", "
    "\"tool_calls\": [{\"id\": \"abcdefghi\", \"type\": \"function\", "
    "\"function\": {\"name\": \"get_weather\", \"arguments\": {\"city\": "
    "\"New York\", \"days\": 2}}}]}";

/* The text of a user's turn, and of an assistant's behind it. False: the
 * template refuses it. */
static bool render(const struct chat_template *t, size_t n, bool generation,
                   struct buf *b)
{
    const struct chat_message m[] = {
        {.role = "user", .content = "How is it?", .content_n = 10},
        {.role = "assistant",
         .content = "",
         .fields = {calls, sizeof(calls) - 1}},
    };
    struct chat_request q = {
        .messages = m,
        .n_messages = n,
        .add_generation = generation,
        .tools = {tools, sizeof(tools) - 1},
        .bos = "",
        .eos = "",
    };
    struct err e = {0};
    buf_init(b, MIB(1));
    buf_puts(b, "");
    return chat_render(t, &q, b, &e) == 0;
}

/* Where the turn leaves the prompt, or the mark before that begins. */
static size_t parting(const struct buf *whole, const struct buf *prompt)
{
    size_t n = 0;
    while (n < prompt->n && n < whole->n && prompt->p[n] == whole->p[n]) {
        n++;
    }
    while (n < prompt->n && n > 0 && strchr(">]\n", whole->p[n - 1]) == NULL) {
        n--;
    }
    return n;
}

static void without_spaces(char *s)
{
    char *to = s;
    for (; *s != '\0'; s++) {
        if (strchr(" \n", *s) == NULL) {
            *to++ = *s;
        }
    }
    *to = '\0';
}

struct counts {
    int files, calls, thoughts;
    int held;  /* calls that a constraint lets through */
    int later; /* the same, from their mark on */
};

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s);
    while (n > 0 && strchr(" \n", s[n - 1]) != NULL) {
        n--;
    }
    return end != NULL && n >= strlen(end) &&
           memcmp(s + n - strlen(end), end, strlen(end)) == 0;
}

/* Whether s begins with a text that m takes; what follows ends the turn. */
static bool takes_front(struct matcher *m, const char *s)
{
    match_t at = match_start(m);
    bool ok = false;
    match_hold(m, at);
    while (*s != '\0' && match_bytes(m, &at, s, 1)) {
        ok |= match_may_end(m, at);
        s++;
    }
    match_drop(m, at);
    return ok;
}

/* Whether the constraint of a call lets through what the template writes. */
static void count_held(const struct reply_how *how, const char *answer,
                       struct counts *c)
{
    struct err e = {0};
    struct json *t = NULL;
    struct grammar *g = NULL;
    struct matcher *m = NULL;
    struct buf b;
    unit_ok(json_parse(tools, sizeof(tools) - 1, &t, &e), &e);
    const struct reply_want w = {
        .tools = t,
        .kind = WANT_CALL,
        .thoughts_open = ends_with(how->tail, how->forms.open)};
    buf_init(&b, MIB(1));
    unit_ok(reply_constraint(&how->forms, &w, &b, &e), &e);
    unit_ok(grammar_from_text(b.p, b.n, &g, &e), &e);
    unit_ok(matcher_new(g, &m, &e), &e);
    const char *s = answer;
    while (*s != '\0' && !takes_front(m, s)) {
        s++;
    }
    c->held += s == answer;
    c->later += s != answer && *s != '\0';
    buf_fini(&b);
    matcher_free(m);
    grammar_free(g);
    json_free(t);
}

/* The turn that a template writes, read as an answer to its prompt. */
static void check_turn(const char *path, struct reply_how *how,
                       struct buf *prompt, const struct buf *whole,
                       struct counts *c)
{
    size_t n = parting(whole, prompt);
    const char *answer = whole->p + n;
    prompt->p[n] = '\0';
    how->tail = prompt->p;
    char *got = reply_run(how, answer, strlen(answer), 3);
    bool thought = strstr(answer, "I think so.") != NULL;
    without_spaces(got);
    if (strstr(got, "C<get_weather>A<{\"city\":\"NewYork\",\"days\":2}>+") ==
            NULL ||
        (thought && strstr(got, "R<Ithinkso.>C<") == NULL)) {
        fail_msg("%s: %s\n  gives %s", path, answer, got);
    }
    c->calls++;
    count_held(how, answer, c);
    c->thoughts += thought ? 1 : 0;
    free(got);
}

static void check_rendered(const char *path, const char *text,
                           struct counts *c)
{
    struct err e = {0};
    struct chat_template *t = NULL;
    struct buf prompt = {0};
    struct buf whole = {0};
    struct reply_how how = reply_how(text);
    unit_ok(chat_compile(text, &t, &e), &e);
    if (render(t, 1, true, &prompt) && render(t, 2, false, &whole) &&
        strstr(whole.p, "New York") != NULL &&
        strstr(whole.p, "&#34;") == NULL) { /* no model writes quotes so */
        check_turn(path, &how, &prompt, &whole, c);
    }
    buf_fini(&prompt);
    buf_fini(&whole);
    chat_free(t);
}

static void check_file(const char *dir, const char *name, struct counts *c)
{
    char path[2048];
    char *text = calloc(1, JINJA_TEXT_MAX + 1);
    assert_non_null(text);
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "rbe");
    assert_non_null(f);
    assert_true(fread(text, 1, JINJA_TEXT_MAX, f) > 0);
    (void)fclose(f);
    size_t i = 0;
    while (i < countof(public) && strcmp(public[i].file, name) != 0) {
        i++;
    }
    if (i < countof(public)) {
        check(path, text, public[i].tools, public[i].open);
    } else {
        check(path, text, N, NULL);
    }
    check_rendered(path, text, c);
    c->files++;
    free(text);
}

static void check_folder(const char *dir, struct counts *c)
{
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e = NULL; (e = readdir(d)) != NULL;) {
        const char *end = strrchr(e->d_name, '.');
        if (end != NULL && strcmp(end, ".jinja") == 0) {
            check_file(dir, e->d_name, c);
        }
    }
    (void)closedir(d);
}

static void test_public(void **state)
{
    (void)state;
    static const char *const folders[] = {
        "jinja/chujiezheng",   "jinja/from-tokenizer-config",
        "jinja/ik_llamacpp",   "jinja/llamacpp",
        "jinja/mistral-common", "jinja/mistralrs",
        "jinja/ollama",        "jinja/ort-extensions",
        "llamacpp-goldens/templates"};
    const char *shared = unit_shared();
    struct counts c = {0};
    if (shared == NULL) {
        skip();
    }
    for (size_t i = 0; i < countof(folders); i++) {
        char dir[1024];
        (void)snprintf(dir, sizeof(dir), "%s/data/templates/%s", shared,
                       folders[i]);
        check_folder(dir, &c);
    }
    assert_int_equal(c.files, 88);
    assert_int_equal(c.calls, 38);
    assert_int_equal(c.thoughts, 10);
    /* Two write the turn's mark before a call, one the end of the prompt. One
     * indents its marks, which no other does. */
    assert_int_equal(c.held, 34);
    assert_int_equal(c.later, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_excerpts),
        cmocka_unit_test(test_public),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
