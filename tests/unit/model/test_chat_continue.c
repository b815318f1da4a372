/* test_chat_continue.c - prompts that end inside the last message. The same
 * rule over public templates: tests/oracle/test_templates.py. */
#include "model/chat.h"
#include "tests/unit/unit.h"

#define LOOP(content)                                                  \
    "{% for m in messages %}{{ '<' ~ m.role ~ '>\\n' ~ " content " ~ " \
    "'</end>\\n' }}{% endfor %}"                                       \
    "{% if add_generation_prompt %}{{ '<assistant>\\n' }}{% endif %}"
#define AS_IT_IS LOOP("m.content")
#define TRIMMED  LOOP("m.content|trim")

static struct chat_message say(const char *role, const char *text)
{
    return (struct chat_message){
        .role = role, .content = text, .content_n = strlen(text)};
}

/* The prompt of a conversation that ends with `last`, after "?". */
static int render(const char *tmpl, struct chat_message last, struct buf *b,
                  struct err *e)
{
    const struct chat_message m[] = {say("user", "?"), last};
    const struct chat_request q = {.messages = m,
                                   .n_messages = 2,
                                   .add_generation = true,
                                   .go_on = true,
                                   .join = true,
                                   .bos = "",
                                   .eos = ""};
    struct chat_template *t = NULL;
    int rc = chat_compile(tmpl, &t, e);
    if (rc == 0) {
        rc = chat_render(t, &q, b, e);
    }
    chat_free(t);
    return rc;
}

static void check_message(const char *tmpl, struct chat_message last,
                          const char *want)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, 4096);
    buf_puts(&b, "before|");
    unit_ok(render(tmpl, last, &b, &e), &e);
    assert_int_equal(b.n, strlen(b.p));
    assert_memory_equal(b.p, "before|", 7);
    assert_string_equal(b.p + 7, want);
    buf_fini(&b);
}

static void check(const char *tmpl, const char *text, const char *want)
{
    check_message(tmpl, say("assistant", text), want);
}

static void test_ends_inside(void **state)
{
    (void)state;
    check(AS_IT_IS, "So", "<user>\n?</end>\n<assistant>\nSo");
    check(TRIMMED, "So", "<user>\n?</end>\n<assistant>\nSo");
    /* letters of what comes behind it, a text that stands there twice, the mark
     * itself: the cut is behind the last message's own */
    check(AS_IT_IS, "e", "<user>\n?</end>\n<assistant>\ne");
    check(AS_IT_IS, "?", "<user>\n?</end>\n<assistant>\n?");
    check(AS_IT_IS, "CONTINUE_FINAL_MESSAGE_TAG x",
          "<user>\n?</end>\n<assistant>\nCONTINUE_FINAL_MESSAGE_TAG x");
}

/* White space at the end stays where the template keeps it. */
static void test_white_space(void **state)
{
    (void)state;
    check(AS_IT_IS, " So \n", "<user>\n?</end>\n<assistant>\n So \n");
    check(TRIMMED, " So \n", "<user>\n?</end>\n<assistant>\nSo");
    check(TRIMMED, "So\xc2\xa0", "<user>\n?</end>\n<assistant>\nSo");
}

/* Nothing to go on with: a turn begins. */
static void test_new_turns(void **state)
{
    (void)state;
    static const char turn[] = "<user>\n?</end>\n<assistant>\n";
    check(AS_IT_IS, "", turn);
    check(AS_IT_IS, " \n\t", turn);
    check_message(AS_IT_IS, say("user", "!"),
                  "<user>\n?</end>\n<user>\n!</end>\n<assistant>\n");
    struct chat_message calls = say("assistant", "So");
    calls.fields = (struct span){"{\"tool_calls\":[{}]}", 19};
    check_message(AS_IT_IS, calls,
                  "<user>\n?</end>\n<assistant>\nSo</end>\n<assistant>\n");
    calls.fields = (struct span){"{\"tool_calls\":[]}", 17};
    check_message(AS_IT_IS, calls, "<user>\n?</end>\n<assistant>\nSo");
}

/* A template that demands alternation is shown neighbours as one message. */
static void test_joined(void **state)
{
    (void)state;
    const struct chat_message m[] = {say("user", "a"), say("user", "b"),
                                     say("assistant", "c"),
                                     say("assistant", "d")};
    struct chat_request q = {.messages = m,
                             .n_messages = countof(m),
                             .add_generation = true,
                             .go_on = true,
                             .join = true,
                             .bos = "",
                             .eos = ""};
    struct err e = {0};
    struct chat_template *t = NULL;
    struct buf b;
    buf_init(&b, 4096);
    unit_ok(chat_compile("{% for m in messages %}"
                         "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
                         "{{ raise_exception('roles must alternate') }}"
                         "{% endif %}[{{ m.content }}]{% endfor %}",
                         &t, &e),
            &e);
    unit_ok(chat_render(t, &q, &b, &e), &e);
    assert_string_equal(b.p, "[a\n\nb][c\n\nd");
    q.go_on = false;
    buf_clear(&b);
    unit_ok(chat_render(t, &q, &b, &e), &e);
    assert_string_equal(b.p, "[a\n\nb][c\n\nd]");
    chat_free(t);
    buf_fini(&b);
}

static void refuses(const char *tmpl, const char *text)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, 4096);
    buf_puts(&b, "before");
    assert_int_equal(render(tmpl, say("assistant", text), &b, &e),
                     ERR_TEMPLATE_INPUT);
    assert_non_null(strstr(e.msg, "cannot be continued"));
    assert_string_equal(b.p, "before");
    buf_fini(&b);
}

/* What the template does not show, or not as it is. */
static void test_refused(void **state)
{
    (void)state;
    refuses("{% for m in messages if m.role == 'user' %}{{ m.content }}"
            "{% endfor %}",
            "So");
    refuses(LOOP("m.content|upper"), "So");
    refuses(LOOP("m.content.split('</think>')[-1]"), "<think>x</think>So");
    refuses(LOOP("m.content[:1]"), "So");
    refuses("", "So");
}

/* Text that the rule of old would look through again and again. */
static void test_long(void **state)
{
    (void)state;
    struct err e = {0};
    struct buf b;
    const size_t n = 1 << 20;
    char *text = malloc(n + 1);
    assert_non_null(text);
    memset(text, 'C', n);
    text[n] = '\0';
    buf_init(&b, (size_t)4 << 20);
    unit_ok(render(AS_IT_IS, say("assistant", text), &b, &e), &e);
    assert_int_equal(b.n, n + strlen("<user>\n?</end>\n<assistant>\n"));
    free(text);
    buf_fini(&b);
}

/* `aned template` asks by a variable; content may be parts. */
static void check_json(const char *json, const char *want)
{
    struct err e = {0};
    struct buf b;
    struct chat_template *t = NULL;
    buf_init(&b, 4096);
    unit_ok(chat_compile("{% for m in messages %}<{{ m.content if m.content is "
                         "string else m.content|map(attribute='text')|join }}>"
                         "{% endfor %}",
                         &t, &e),
            &e);
    int rc = chat_render_json(t, (struct span){json, strlen(json)}, NULL, NULL,
                              0, &b, &e);
    if (want != NULL) {
        unit_ok(rc, &e);
        assert_string_equal(b.p, want);
    } else {
        assert_int_equal(rc, ERR_TEMPLATE_INPUT);
        assert_non_null(strstr(e.msg, "no text to go on with"));
    }
    chat_free(t);
    buf_fini(&b);
}

static void test_json(void **state)
{
    (void)state;
    check_json("{\"messages\":[{\"content\":\"a\"},{\"content\":\"b \"}],"
               "\"continue_final_message\":true}",
               "<a><b ");
    check_json("{\"messages\":[{\"content\":[{\"text\":\"a\"},{\"text\":\"b\"},"
               "{\"type\":\"image\"}]}],\"continue_final_message\":true}",
               "<ab");
    check_json("{\"messages\":[{\"content\":\"a\"}],"
               "\"continue_final_message\":false}",
               "<a>");
    check_json("{\"messages\":[],\"continue_final_message\":true}", NULL);
    check_json("{\"messages\":[3],\"continue_final_message\":true}", NULL);
    check_json("{\"continue_final_message\":true}", NULL);
    check_json("{\"messages\":[{\"content\":[{}]}],"
               "\"continue_final_message\":true}",
               NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends_inside), cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_new_turns),   cmocka_unit_test(test_joined),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_long),
        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests_name("chat_continue", tests, NULL, NULL);
}
