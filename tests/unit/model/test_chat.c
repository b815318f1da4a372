/* test_chat.c - templates of the known families, rendered byte for byte. */
#include <dirent.h>

#include "base/file.h"
#include "model/chat.h"
#include "proto/json.h"
#include "tests/unit/unit.h"

#define WHEN 1736933400 /* 2025-01-15 09:30 UTC, as in the shared vectors */

static const struct chat_message talk[] = {
    {"system",    "Be brief.", 9},
    {"user",      " Hi ",      4},
    {"assistant", "Hello.",    6},
    {"user",      "2+2?",      4},
};

static void check(const char *tmpl, enum chat_family family, size_t from,
                  bool generation, const char *want)
{
    struct err e = {0};
    enum chat_family f = CHAT_NONE;
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_puts(&b, "");
    unit_ok(chat_detect(tmpl, &f, &e), &e);
    assert_int_equal(f, family);
    unit_ok(chat_render(f, tmpl, "<s>", "</s>", talk + from,
                        countof(talk) - from, generation, &b, &e),
            &e);
    assert_string_equal(b.p, want);
    buf_fini(&b);
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
    check(CHATML_LOOP CHATML_END, CHAT_CHATML, 1, true,
          "<|im_start|>user\n Hi <|im_end|>\n"
          "<|im_start|>assistant\nHello.<|im_end|>\n"
          "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n");
    check("{%- if messages[0].role != 'system' %}\n"
          "    {{- '<|im_start|>system\\nDefault.<|im_end|>\\n' }}\n"
          "{%- endif %}\n" CHATML_LOOP CHATML_END,
          CHAT_CHATML, 3, false,
          "<|im_start|>system\nDefault.<|im_end|>\n"
          "<|im_start|>user\n2+2?<|im_end|>\n");
    check("{% set loop_messages = messages %}{% for message in loop_messages "
          "%}{% set content = '<|start_header_id|>' + message['role'] + "
          "'<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' "
          "%}{% if loop.index0 == 0 %}{% set content = bos_token + content "
          "%}{% endif %}{{ content }}{% endfor %}",
          CHAT_LLAMA3, 2, false,
          "<s><|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
          "<|start_header_id|>user<|end_header_id|>\n\n2+2?<|eot_id|>");
    check("{% for m in messages if m.role != 'system' %}{{ '<start_of_turn>' + "
          "('model' if m.role == 'assistant' else m.role) + '\\n' + "
          "m.content | trim + '<end_of_turn>\\n' }}{% endfor %}",
          CHAT_GEMMA, 0, false,
          "<start_of_turn>user\nHi<end_of_turn>\n"
          "<start_of_turn>model\nHello.<end_of_turn>\n"
          "<start_of_turn>user\n2+2?<end_of_turn>\n");
    check("{% for message in messages %}\n"
          "{% if message['role'] == 'user' %}\n"
          "{{ '<|user|>\\n' + message['content'] + eos_token }}\n"
          "{% else %}\n"
          "{{ '<|assistant|>\\n' + message['content'] + eos_token }}\n"
          "{% endif %}\n{% endfor %}",
          CHAT_ZEPHYR, 2, true,
          "<|assistant|>\nHello.</s>\n<|user|>\n2+2?</s>\n");
    check("{%- set ns = namespace(n=0) -%}{% for m in messages %}"
          "{% set ns.n = ns.n + 1 %}{% if not loop.last %}{% continue %}"
          "{% endif %}[INST] <<SYS>> {{ ns.n ~ loop.length }}{% endfor %}",
          CHAT_LLAMA2, 0, true, "[INST] <<SYS>> 44");
    check("{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>"
          "{{ m.content }}<|im_end|>{% endfor %}",
          CHAT_PHI4, 3, true, "<|im_start|>user<|im_sep|>2+2?<|im_end|>");
    check("{% for m in messages[::-1] %}{{ '<|' + m['role'] + '|>' }}"
          "<|end|>{% endfor %}{% if false %}<|assistant|>{% endif %}",
          CHAT_PHI3, 2, true, "<|user|><|end|><|assistant|><|end|>");
}

/* A template that does not say developer gets a system message. */
static void test_developer(void **state)
{
    (void)state;
    struct err e = {0};
    struct buf b;
    const struct chat_message m[] = {
        {"developer", "x", 1}
    };
    buf_init(&b, 4096);
    unit_ok(chat_render(CHAT_CHATML, CHATML_LOOP, "", "", m, 1, false, &b, &e),
            &e);
    assert_string_equal(b.p, "<|im_start|>system\nx<|im_end|>\n");
    buf_clear(&b);
    unit_ok(chat_render(CHAT_CHATML, CHATML_LOOP "{# developer #}", "", "", m,
                        1, false, &b, &e),
            &e);
    assert_string_equal(b.p, "<|im_start|>developer\nx<|im_end|>\n");
    buf_fini(&b);
}

static void fails(const char *tmpl, int code, const char *tells)
{
    struct err e = {0};
    enum chat_family f = CHAT_NONE;
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_puts(&b, "before");
    int rc = chat_detect(tmpl, &f, &e);
    if (rc == 0) {
        rc = chat_render(f, tmpl, "<s>", "</s>", talk, countof(talk), true, &b,
                         &e);
    }
    if (rc != code || strstr(e.msg, tells) == NULL) {
        fail_msg("%s: %s: %s", tmpl, err_name(rc), e.msg);
    }
    assert_string_equal(b.p, "before");
    buf_fini(&b);
}

static void test_refused(void **state)
{
    (void)state;
    fails(NULL, ERR_TEMPLATE, "no chat template");
    fails("{{ messages }}", ERR_TEMPLATE, "no known family");
    fails("[INST] {{ x }}", ERR_TEMPLATE, "[INST]");
    fails("<|im_start|>{{ raise_exception('No system.') }}", ERR_TEMPLATE_INPUT,
          "No system.");
    fails("<|im_start|>{{ nothing.role }}", ERR_TEMPLATE_INPUT, "undefined");
    fails("<|im_start|>{{ 'a' + none }}", ERR_TEMPLATE_INPUT, "none");
    fails("<|im_start|>{{ messages | tojson }}", ERR_TEMPLATE, "tojson");
    fails("<|im_start|>{{ messages }}", ERR_TEMPLATE, "a list");
    fails("<|im_start|>{{ 'x'.title() }}", ERR_TEMPLATE, "title");
    fails("<|im_start|>{{ cycler('x') }}", ERR_TEMPLATE, "cycler");
    fails("<|im_start|>{{ 'x' is odd }}", ERR_TEMPLATE, "odd");
    fails("<|im_start|>{{ {'a': 1} }}", ERR_TEMPLATE, "dictionary");
    fails("<|im_start|>{% include 'x' %}", ERR_TEMPLATE, "statement");
    fails("<|im_start|>{% if x %}", ERR_TEMPLATE, "endif");
    fails("<|im_start|>{% endif %}", ERR_TEMPLATE, "end");
    fails("<|im_start|>{% for %}", ERR_TEMPLATE, "loop");
    fails("<|im_start|>{{ 'x }}", ERR_TEMPLATE, "string");
    fails("<|im_start|>{{ x", ERR_TEMPLATE, "tag");
    fails("<|im_start|>{# x", ERR_TEMPLATE, "comment");
    fails("<|im_start|>{{ }}", ERR_TEMPLATE, "expression");
    fails("<|im_start|>{{ a b }}", ERR_TEMPLATE, "expression");
    fails("<|im_start|>{{ x[ }}", ERR_TEMPLATE, "chat template");
    fails("<|im_start|>{% for i in range(60000) %}{% for k in range(60000) %}"
          "{% endfor %}{% endfor %}",
          ERR_TOO_BIG, "");
    fails("<|im_start|>{% for i in range(60000) %}xxxxxxxxxx{% endfor %}",
          ERR_TOO_BIG, "prompt");
    /* 8 MiB of text, looked through 60000 times */
    fails(
        "<|im_start|>{% set n = namespace(x='01234567') %}"
        "{% for i in range(20) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
        "{% for i in range(60000) %}{% if 'q' in n.x %}{% endif %}{% endfor %}",
        ERR_TOO_BIG, "too long");
    fails(
        "<|im_start|>{% set n = namespace(x='01234567') %}"
        "{% for i in range(20) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
        "{% for i in range(60000) %}{% if n.x|length %}{% endif %}{% endfor %}",
        ERR_TOO_BIG, "too long");
    /* nesting is bounded before the stack is */
    char deep[9000] = "<|im_start|>{{ ";
    for (int i = 0; i < 2000; i++) {
        strcat(deep, "(");
    }
    strcat(deep, "}}");
    fails(deep, ERR_TEMPLATE, "deep");
}

/* --- vectors --- */

static const char *data_path(const char *name)
{
    static char path[1024];
    (void)snprintf(path, sizeof(path), "%s/data/templates/%s", unit_shared(),
                   name);
    return path;
}

static struct json *read_json(const char *path)
{
    struct err e = {0};
    struct buf b = {0};
    struct json *j = NULL;
    unit_ok(file_read(path, (size_t)1 << 26, &b, &e), &e);
    unit_ok(json_parse(b.p, b.n, &j, &e), &e);
    buf_fini(&b);
    return j;
}

struct tally {
    int good, bad, refused; /* of vectors in known families */
    int other_family, not_plain, not_jinja, absent;
    int64_t now; /* for templates that write the date */
};

static bool is_null(const struct json *j)
{
    return j == NULL || json_type(j) == JSON_NULL ||
           (json_type(j) == JSON_ARRAY && json_count(j) == 0);
}

#define TALK_MAX 64

/* Messages of plain text and nothing the API does not have. */
static bool plain(const struct json *in, struct chat_message *m, size_t *ret_n)
{
    static const char *const known[] = {"messages", "add_generation_prompt",
                                        "bos_token", "eos_token"};
    *ret_n = 0;
    for (const struct json *c = json_first(in); c != NULL; c = json_next(c)) {
        bool found = is_null(c);
        for (size_t i = 0; i < countof(known); i++) {
            found = found || strcmp(json_key(c), known[i]) == 0;
        }
        if (!found) {
            return false;
        }
    }
    const struct json *list = json_get(in, "messages");
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        const char *role = json_str(json_get(c, "role"));
        const char *text = json_str(json_get(c, "content"));
        bool known_role = role != NULL && (strcmp(role, "user") == 0 ||
                                           strcmp(role, "assistant") == 0 ||
                                           strcmp(role, "system") == 0);
        if (!known_role || text == NULL || json_count(c) != 2 ||
            *ret_n == TALK_MAX) {
            return false;
        }
        m[(*ret_n)++] = (struct chat_message){role, text, strlen(text)};
    }
    return true;
}

static const char *text_or_empty(const struct json *j, const char *key)
{
    const char *s = json_str(json_get(j, key));
    return s != NULL ? s : "";
}

/* expected NULL: an error is wanted, `error` tells which. */
static void check_vector(struct tally *y, const char *name, const char *tmpl,
                         const struct json *in, const char *expected,
                         const char *error)
{
    struct err e = {0};
    struct chat_message m[TALK_MAX];
    size_t n = 0;
    enum chat_family f = CHAT_NONE;
    struct buf b;
    if (tmpl == NULL) {
        y->absent++;
        return;
    }
    if (!plain(in, m, &n)) {
        y->not_plain++;
        return;
    }
    int rc = chat_detect(tmpl, &f, &e);
    if (rc < 0 && strstr(e.msg, "family") != NULL) {
        y->other_family++;
        return;
    }
    buf_init(&b, 1 << 20);
    buf_puts(&b, "");
    if (rc == 0) {
        rc = chat_render_at(tmpl, text_or_empty(in, "bos_token"),
                            text_or_empty(in, "eos_token"), m, n,
                            json_bool(json_get(in, "add_generation_prompt")),
                            y->now, &b, &e);
    }
    bool good =
        expected != NULL ? rc == 0 && strcmp(b.p, expected) == 0 : rc < 0;
    if (expected == NULL && strncmp(error, "TemplateError: ", 15) == 0) {
        good = rc == ERR_TEMPLATE_INPUT && strstr(e.msg, error + 15) != NULL;
    }
    if (good) {
        y->good++;
    } else if (rc == ERR_TEMPLATE) {
        y->refused++;
        print_message("# %s (%s): refused: %s\n", name, chat_family_name(f),
                      e.msg);
    } else {
        y->bad++;
        print_message("# %s (%s): %s %s\n#  got  \"%s\"\n#  want \"%s\"\n",
                      name, chat_family_name(f), rc < 0 ? err_name(rc) : "",
                      e.msg, b.p, expected != NULL ? expected : error);
    }
    buf_fini(&b);
}

static void tell(const char *what, const struct tally *y)
{
    print_message("# %-36s %d equal, %d refused, %d wrong; not compared: %d of "
                  "another family, %d not plain text, %d not Jinja2's, %d "
                  "without the template\n",
                  what, y->good, y->refused, y->bad, y->other_family,
                  y->not_plain, y->not_jinja, y->absent);
    assert_int_equal(y->bad, 0);
    assert_true(y->good > 0);
}

/* NULL when the data lacks the file. */
static char *read_text(const char *path)
{
    if (!file_exists(path)) {
        return NULL;
    }
    struct err e = {0};
    struct buf b = {0};
    unit_ok(file_read(path, (size_t)1 << 24, &b, &e), &e);
    return b.p; /* NUL terminated; free() */
}

static void test_generated(void **state)
{
    (void)state;
    struct tally y = {.now = WHEN};
    if (unit_shared() == NULL) {
        skip();
    }
    DIR *d = opendir(data_path("vectors/generated"));
    assert_non_null(d);
    for (struct dirent *ent = NULL; (ent = readdir(d)) != NULL;) {
        char path[512];
        if (ent->d_name[0] == '.') {
            continue;
        }
        (void)snprintf(path, sizeof(path), "vectors/generated/%s", ent->d_name);
        struct json *j = read_json(data_path(path));
        for (const struct json *c = json_first(j); c != NULL;
             c = json_next(c)) {
            char name[512];
            char *tmpl =
                read_text(data_path(json_str(json_get(c, "template_file"))));
            (void)snprintf(name, sizeof(name), "%s %s", ent->d_name,
                           json_str(json_get(c, "name")));
            check_vector(&y, name, tmpl, json_get(c, "input"),
                         json_str(json_get(c, "expected")),
                         text_or_empty(c, "error"));
            free(tmpl);
        }
        json_free(j);
    }
    (void)closedir(d);
    tell("vectors/generated", &y);
}

static void check_file(const char *file, int64_t now)
{
    struct tally y = {.now = now};
    char path[256];
    (void)snprintf(path, sizeof(path), "vectors/%s", file);
    struct json *j = read_json(data_path(path));
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        if (strcmp(text_or_empty(c, "jinja2_3_1_6"), "match") != 0) {
            y.not_jinja++;
            continue;
        }
        check_vector(&y, json_str(json_get(c, "name")),
                     json_str(json_get(c, "template")), json_get(c, "input"),
                     json_str(json_get(c, "expected")), "");
    }
    json_free(j);
    tell(file, &y);
}

static void test_published(void **state)
{
    (void)state;
    if (unit_shared() == NULL) {
        skip();
    }
    check_file("llamacpp_test_chat_template.json", WHEN);
    check_file("hfjs_e2e.dev.json", 1752139800); /* 10 July 2025 */
}

static void test_goldens(void **state)
{
    (void)state;
    /* made where the date was not defined: the template's own default */
    struct tally y = {.now = 1721995200};
    if (unit_shared() == NULL) {
        skip();
    }
    struct json *j =
        read_json(data_path("vectors/llamacpp_goldens_index.json"));
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        if (strcmp(text_or_empty(c, "jinja2_3_1_6"), "match") != 0) {
            y.not_jinja++;
            continue;
        }
        char *tmpl =
            read_text(data_path(json_str(json_get(c, "template_file"))));
        char *want =
            read_text(data_path(json_str(json_get(c, "expected_file"))));
        struct json *in =
            read_json(data_path(json_str(json_get(c, "context_file"))));
        check_vector(&y, json_str(json_get(c, "name")), tmpl, in, want, "");
        json_free(in);
        free(want);
        free(tmpl);
    }
    json_free(j);
    tell("llamacpp-goldens", &y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),  cmocka_unit_test(test_developer),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_generated),
        cmocka_unit_test(test_published), cmocka_unit_test(test_goldens),
    };
    (void)setenv("TZ", "UTC", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
