/* test_chat.c - messages into prompts by chat templates, byte for byte. */
#include <dirent.h>
#include <unistd.h>

#include "base/file.h"
#include "model/chat.h"
#include "proto/json.h"
#include "proto/limits.h"
#include "tests/unit/unit.h"

#define WHEN 1736933400 /* 2025-01-15 09:30 UTC, as in the shared vectors */

static const struct chat_message talk[] = {
    {.role = "system",    .content = "Be brief.", .content_n = 9},
    {.role = "user",      .content = " Hi ",      .content_n = 4},
    {.role = "assistant", .content = "Hello.",    .content_n = 6},
    {.role = "user",      .content = "2+2?",      .content_n = 4},
};

/* The request for talk[from..]. */
static struct chat_request request(size_t from, bool generation)
{
    return (struct chat_request){.messages = talk + from,
                                 .n_messages = countof(talk) - from,
                                 .add_generation = generation,
                                 .bos = "<s>",
                                 .eos = "</s>",
                                 .now = WHEN};
}

static int render(const char *tmpl, const struct chat_request *q, struct buf *b,
                  struct err *e)
{
    struct chat_template *t = NULL;
    int rc = chat_compile(tmpl, &t, e);
    if (rc == 0) {
        rc = chat_render(t, q, b, e);
    }
    chat_free(t);
    return rc;
}

static void check_request(const char *tmpl, const struct chat_request *q,
                          const char *want)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_puts(&b, "");
    unit_ok(render(tmpl, q, &b, &e), &e);
    assert_string_equal(b.p, want);
    buf_fini(&b);
}

static void check(const char *tmpl, size_t from, bool generation,
                  const char *want)
{
    struct chat_request q = request(from, generation);
    check_request(tmpl, &q, want);
}

#define CHATML_LOOP                                                       \
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + " \
    "'\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
#define CHATML_END                                                            \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif " \
    "%}"

static void test_families(void **state)
{
    (void)state;
    check(CHATML_LOOP CHATML_END, 1, true,
          "<|im_start|>user\n Hi <|im_end|>\n"
          "<|im_start|>assistant\nHello.<|im_end|>\n"
          "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n");
    check("{%- if messages[0].role != 'system' %}\n"
          "    {{- '<|im_start|>system\\nDefault.<|im_end|>\\n' }}\n"
          "{%- endif %}\n" CHATML_LOOP CHATML_END,
          3, false,
          "<|im_start|>system\nDefault.<|im_end|>\n"
          "<|im_start|>user\n2+2?<|im_end|>\n");
    check("{% set loop_messages = messages %}{% for message in loop_messages "
          "%}{% set content = '<|start_header_id|>' + message['role'] + "
          "'<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' "
          "%}{% if loop.index0 == 0 %}{% set content = bos_token + content "
          "%}{% endif %}{{ content }}{% endfor %}",
          2, false,
          "<s><|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
          "<|start_header_id|>user<|end_header_id|>\n\n2+2?<|eot_id|>");
    check("{% for m in messages if m.role != 'system' %}{{ '<start_of_turn>' + "
          "('model' if m.role == 'assistant' else m.role) + '\\n' + "
          "m.content | trim + '<end_of_turn>\\n' }}{% endfor %}",
          0, false,
          "<start_of_turn>user\nHi<end_of_turn>\n"
          "<start_of_turn>model\nHello.<end_of_turn>\n"
          "<start_of_turn>user\n2+2?<end_of_turn>\n");
    check("{% for message in messages %}\n"
          "{% if message['role'] == 'user' %}\n"
          "{{ '<|user|>\\n' + message['content'] + eos_token }}\n"
          "{% else %}\n"
          "{{ '<|assistant|>\\n' + message['content'] + eos_token }}\n"
          "{% endif %}\n{% endfor %}",
          2, true, "<|assistant|>\nHello.</s>\n<|user|>\n2+2?</s>\n");
    check("{%- set ns = namespace(n=0) -%}{% for m in messages %}"
          "{% set ns.n = ns.n + 1 %}{% if not loop.last %}{% continue %}"
          "{% endif %}[INST] <<SYS>> {{ ns.n ~ loop.length }}{% endfor %}",
          0, true, "[INST] <<SYS>> 44");
    check("{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>"
          "{{ m.content }}<|im_end|>{% endfor %}",
          3, true, "<|im_start|>user<|im_sep|>2+2?<|im_end|>");
    check("{% for m in messages[::-1] %}{{ '<|' + m['role'] + '|>' }}"
          "<|end|>{% endfor %}{% if false %}<|assistant|>{% endif %}",
          2, true, "<|user|><|end|><|assistant|><|end|>");
}

/* A template that does not say developer gets a system message. */
static void test_developer(void **state)
{
    (void)state;
    const struct chat_message m[] = {
        {.role = "developer", .content = "x", .content_n = 1}
    };
    struct chat_request q = {
        .messages = m, .n_messages = 1, .bos = "", .eos = ""};
    check_request(CHATML_LOOP, &q, "<|im_start|>system\nx<|im_end|>\n");
    check_request(CHATML_LOOP "{# developer #}", &q,
                  "<|im_start|>developer\nx<|im_end|>\n");
}

static struct span text_of(const char *z)
{
    return (struct span){z, strlen(z)};
}

/* What a message has beside its text, tools, and other variables. */
static void test_more_than_text(void **state)
{
    (void)state;
    const struct chat_message m[] = {
        {.role = "user", .content = "?",                                   .content_n = 1},
        {.role = "assistant",
         .fields = text_of(
             "{\"content\": null, \"reasoning_content\": \"hm\", "
             "\"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", "
             "\"function\": {\"name\": \"f\", \"arguments\": "
             "{\"a\": [1, 1.0, \"\\u00e9\"], \"b\": {}}}}]}")                                           },
        {.role = "tool",
         .content = "18",
         .content_n = 2,
         .fields = text_of("{\"tool_call_id\": \"c1\", \"name\": \"f\"}")},
        {.role = "user",
         .fields = text_of("{\"content\": [{\"type\": \"text\", \"text\": "
                           "\"x\"}, {\"type\": \"image\"}]}")},
    };
    struct chat_request q = {
        .messages = m,
        .n_messages = countof(m),
        .tools = text_of("[{\"type\": \"function\", \"n\": 2}]"),
        .kwargs = text_of("{\"enable_thinking\": false, \"eos_token\": \"E\"}"),
        .bos = "B",
        .eos = "e"};
    check_request(
        "{{ bos_token }}{{ eos_token }}{{ enable_thinking }}{{ tools|tojson }}"
        "{{ documents }}|{% for m in messages %}{{ m.role }}:"
        "{{ m.content if m.content is string }}{{ m.reasoning_content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.arguments|tojson }}"
        "{% endfor %}{{ m.tool_call_id }}"
        "{% if m.content is sequence and m.content is not string %}"
        "{% for p in m.content %}<{{ p.type }}{{ p.text }}>{% endfor %}"
        "{% endif %};{% endfor %}",
        &q,
        "BEFalse[{\"type\": \"function\", \"n\": 2}]None|user:?;assistant:hm"
        "{\"a\": [1, 1.0, \"\xc3\xa9\"], \"b\": {}};tool:18c1;"
        "user:<textx><image>;");
}

/* Arguments that are JSON of an object are one for the template; where it wants
 * their text, it gets that. */
static void test_arguments(void **state)
{
    (void)state;
    const struct chat_message m[] = {
        {.role = "assistant",
         .content = "",
         .fields = text_of(
             "{\"tool_calls\": [{\"function\": {\"name\": \"f\", "
             "\"arguments\": \"{\\\"a\\\":1.0}\"}}, {\"function\": "
             "{\"name\": \"f\", \"arguments\": \"{1\"}}, {\"function\": "
             "{\"name\": \"f\", \"arguments\": \"3\"}}]}")},
    };
    struct chat_request q = {
        .messages = m, .n_messages = 1, .bos = "", .eos = "", .parse = true};
    static const char as_json[] =
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments|tojson }};{% endfor %}{% endfor %}";
    static const char as_text[] =
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{{ 'A' + c.function.arguments }};{% endfor %}{% endfor %}";
    check_request(as_json, &q, "{\"a\": 1.0};\"{1\";\"3\";");
    check_request(as_text, &q, "A{\"a\":1.0};A{1;A3;");
    q.parse = false;
    check_request(as_json, &q, "\"{\\\"a\\\":1.0}\";\"{1\";\"3\";");
}

/* Thoughts have the name that the template knows, and none otherwise. */
static void test_reasoning(void **state)
{
    (void)state;
    const struct chat_message m[] = {{.role = "assistant",
                                      .content = "c",
                                      .content_n = 1,
                                      .reasoning = "hm",
                                      .reasoning_n = 2}};
    struct chat_request q = {
        .messages = m, .n_messages = 1, .bos = "", .eos = ""};
    check_request("{{ messages[0].thinking }}", &q, "hm");
    check_request("{{ messages[0]['reasoning_content'] }}", &q, "hm");
    check_request("{{ messages[0].reasoning }}", &q, "hm");
    check_request("{{ messages[0]|tojson }}", &q,
                  "{\"role\": \"assistant\", \"content\": \"c\"}");
}

static void refuses_by(const char *tmpl, const struct chat_request *q, int code,
                       const char *tells)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, 4096);
    buf_puts(&b, "before");
    int rc = render(tmpl, q, &b, &e);
    if (rc != code || strstr(e.msg, tells) == NULL) {
        fail_msg("%s: %s", err_name(rc), e.msg);
    }
    assert_string_equal(b.p, "before");
    buf_fini(&b);
}

static void refuses(const struct chat_request *q, int code, const char *tells)
{
    refuses_by("{{ messages }}{{ tools }}", q, code, tells);
}

/* As gemma's and Mistral's templates do. */
#define ALTERNATING                                                         \
    "{% for m in messages %}"                                               \
    "{% if m.role == 'tool' %}[T{{ m.content }}]"                           \
    "{% elif (m.role == 'user') != (loop.index0 % 2 == 0) %}"               \
    "{{ raise_exception('roles must alternate') }}"                         \
    "{% else %}[{{ m.role[0] }}{{ m.content }}]{% endif %}{% endfor %}"

static void test_neighbours(void **state)
{
    (void)state;
    static const struct chat_message m[] = {
        {.role = "user",      .content = "a", .content_n = 1},
        {.role = "user",      .content = "",  .content_n = 0},
        {.role = "user",      .content = "b", .content_n = 1},
        {.role = "assistant", .content = "c", .content_n = 1},
        {.role = "assistant", .content = "d", .content_n = 1},
        {.role = "user",      .content = "e", .content_n = 1},
    };
    static const struct chat_message first[] = {
        {.role = "assistant", .content = "a", .content_n = 1},
        {.role = "assistant", .content = "b", .content_n = 1},
    };
    static const struct chat_message more[] = {
        {.role = "user", .content = "a", .content_n = 1},
        {.role = "user", .content = "b", .content_n = 1,
         .fields = {"{\"name\":\"x\"}", 12}},
    };
    static const struct chat_message tools[] = {
        {.role = "user", .content = "a", .content_n = 1},
        {.role = "user", .content = "b", .content_n = 1},
        {.role = "tool", .content = "1", .content_n = 1},
        {.role = "tool", .content = "2", .content_n = 1},
    };
    struct chat_request q = {.messages = m,
                             .n_messages = countof(m),
                             .join = true,
                             .bos = "",
                             .eos = "",
                             .now = WHEN};
    check_request(ALTERNATING, &q, "[ua\n\n\n\nb][ac\n\nd][ue]");
    /* a template that takes them is shown what came */
    check_request("{% for m in messages %}{{ m.content }}|{% endfor %}", &q,
                  "a||b|c|d|e|");
    q.join = false;
    refuses_by(ALTERNATING, &q, ERR_TEMPLATE_INPUT, "roles must alternate");
    q.join = true;
    q.messages = first; /* joining does not help */
    q.n_messages = countof(first);
    refuses_by(ALTERNATING, &q, ERR_TEMPLATE_INPUT, "roles must alternate");
    q.messages = more; /* what is more than text stays apart */
    refuses_by(ALTERNATING, &q, ERR_TEMPLATE_INPUT, "roles must alternate");
    q.messages = tools;
    q.n_messages = countof(tools);
    check_request(ALTERNATING, &q, "[ua\n\nb][T1][T2]");
}

static void test_bad_json(void **state)
{
    (void)state;
    struct chat_message m = {.role = "user", .content = "x", .content_n = 1};
    struct chat_request q = {
        .messages = &m, .n_messages = 1, .bos = "", .eos = ""};
    static const struct {
        const char *fields, *tells;
    } bad[] = {
        {"{",                            "a message"},
        {"[]",                           "an object"},
        {"{\"a\":1,\"a\":2}",            "twice"    },
        {"{\"content\":\"y\"}",          "'content'"},
        {"{\"role\":\"y\"}",             "'role'"   },
        {"{\"a\":1e999}",                "a message"},
        {"{\"a\":12345678901234567890}", "64 bits"  },
    };
    for (size_t i = 0; i < countof(bad); i++) {
        m.fields = text_of(bad[i].fields);
        refuses(&q, ERR_JSON, bad[i].tells);
    }
    m.fields = text_of("");
    q.tools = text_of("{}");
    refuses(&q, ERR_JSON, "tools");
    q.tools = text_of("");
    q.kwargs = text_of("3");
    refuses(&q, ERR_JSON, "chat_template_kwargs");
    q.kwargs = text_of("");
    q.n_messages = 5000;
    refuses(&q, ERR_TOO_BIG, "5000 messages");
}

static void test_mentions(void **state)
{
    (void)state;
    struct err e = {0};
    struct chat_template *t = NULL;
    unit_ok(
        chat_compile("tools {% if x.y %}{{ bos_token }}{% endif %}", &t, &e),
        &e);
    assert_true(chat_mentions(t, "bos_token"));
    assert_true(chat_mentions(t, "y"));
    assert_false(chat_mentions(t, "tools"));
    chat_free(t);
    chat_free(NULL);
    assert_int_equal(chat_compile(NULL, &t, &e), ERR_TEMPLATE);
    assert_non_null(strstr(e.msg, "no chat template"));
}

/* A template from a file: whole, or refused. */
static void test_read(void **state)
{
    (void)state;
    struct err e = {0};
    struct buf text = {0};
    char path[] = "/tmp/aned-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(chat_read("/tmp/aned-no-such-file", &text, &e),
                     ERR_NOT_FOUND);
    unit_ok(chat_read(path, &text, &e), &e);
    assert_string_equal(text.p, "");
    buf_fini(&text);
    assert_int_equal(ftruncate(fd, 1), 0); /* a NUL byte */
    assert_int_equal(chat_read(path, &text, &e), ERR_TEMPLATE);
    assert_int_equal(ftruncate(fd, JINJA_TEXT_MAX + 1), 0);
    assert_int_equal(chat_read(path, &text, &e), ERR_TEMPLATE);
    assert_non_null(strstr(e.msg, "262144 bytes"));
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, "a{{ b }}", 8, 0), 8);
    unit_ok(chat_read(path, &text, &e), &e);
    assert_string_equal(text.p, "a{{ b }}");
    buf_fini(&text);
    (void)close(fd);
    assert_int_equal(unlink(path), 0);
}

/* Rendered again and again, also at once, a template gives the same. */
static void test_compiled_once(void **state)
{
    (void)state;
    struct err e = {0};
    struct chat_template *t = NULL;
    struct chat_request q = request(0, true);
    struct buf b;
    unit_ok(chat_compile(CHATML_LOOP CHATML_END, &t, &e), &e);
    buf_init(&b, 1 << 16);
    unit_ok(chat_render(t, &q, &b, &e), &e);
    size_t n = b.n;
    unit_ok(chat_render(t, &q, &b, &e), &e);
    assert_int_equal(b.n, 2 * n);
    assert_memory_equal(b.p, b.p + n, n);
    buf_fini(&b);
    chat_free(t);
}

/* --- vectors --- */

static char *read_text(const char *path)
{
    struct err e = {0};
    struct buf b = {0};
    unit_ok(file_read(path, (size_t)1 << 24, &b, &e), &e);
    return b.p; /* NUL terminated; free() */
}

/* One vector: its text, or the error that the template raises, or any. */
static bool vector_holds(const char *tmpl, const struct json *v,
                         struct buf *text)
{
    struct err e = {0};
    struct buf in;
    struct chat_template *t = NULL;
    const char *expected = json_str(json_get(v, "expected"));
    const char *error = json_str(json_get(v, "error"));
    buf_init(&in, 1 << 20);
    json_write(json_get(v, "input"), false, &in);
    int rc = chat_compile(tmpl, &t, &e);
    if (rc == 0) {
        rc = chat_render_json(t, (struct span){in.p, in.n}, NULL, NULL, WHEN,
                              text, &e);
    }
    chat_free(t);
    buf_fini(&in);
    if (expected != NULL) {
        return rc == 0 && strcmp(text->p, expected) == 0;
    }
    bool raised = error != NULL && strncmp(error, "TemplateError: ", 15) == 0;
    return rc == ERR_TEMPLATE_INPUT &&
           (!raised || strstr(e.msg, error + 15) != NULL);
}

static size_t check_vectors(const char *folder, const char *name)
{
    char path[1024];
    struct err e = {0};
    struct json *j = NULL;
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "%s/vectors/generated/%s", folder, name);
    char *text = read_text(path);
    unit_ok(json_parse(text, strlen(text), &j, &e), &e);
    free(text);
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        struct buf b;
        (void)snprintf(path, sizeof(path), "%s/%s", folder,
                       json_str(json_get(c, "template_file")));
        if (!file_exists(path)) {
            continue; /* two templates are not in the data */
        }
        text = read_text(path);
        buf_init(&b, 1 << 20);
        buf_puts(&b, "");
        if (!vector_holds(text, c, &b)) {
            fail_msg("%s, %s: %s", name, json_str(json_get(c, "name")), b.p);
        }
        buf_fini(&b);
        free(text);
        n++;
    }
    json_free(j);
    return n;
}

/* Texts that jinja2 3.1.6 made; tests/oracle/test_templates.py asks it for
 * many more. Here they run under the sanitizers. */
static void test_generated(void **state)
{
    (void)state;
    char folder[512];
    char path[1024];
    size_t n = 0;
    if (unit_shared() == NULL) {
        skip();
    }
    (void)snprintf(folder, sizeof(folder), "%s/data/templates", unit_shared());
    (void)snprintf(path, sizeof(path), "%s/vectors/generated", folder);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *ent = NULL; (ent = readdir(d)) != NULL;) {
        n += ent->d_name[0] != '.' ? check_vectors(folder, ent->d_name) : 0;
    }
    (void)closedir(d);
    assert_true(n > 900);
}

int main(void)
{
    (void)setenv("TZ", "UTC", 1); /* the vectors' dates */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_developer),
        cmocka_unit_test(test_more_than_text),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_bad_json),
        cmocka_unit_test(test_mentions),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_compiled_once),
        cmocka_unit_test(test_generated),
    };
    return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}
