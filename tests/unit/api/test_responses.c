/* Items of /v1/responses as messages, tools as a template is shown them, and
 * the events and the whole answer of the same text. */
#include <string.h>

#include "../unit.h"
#include "api/responses.h"

static struct call c;
static struct call_choice choice[1];

static void begin(void)
{
    memset(&c, 0, sizeof(c));
    memset(choice, 0, sizeof(choice));
    c.choices = choice;
    c.d = &responses_dialect;
    arena_init(&c.arena, GEN_ARENA_MAX);
    (void)snprintf(c.id, sizeof(c.id), "resp_X");
    (void)snprintf(c.model, sizeof(c.model), "m");
    buf_init(&c.out, EVENT_BYTES_MAX);
}

static void end(void)
{
    c.d->drop(&c);
    buf_fini(&c.out);
    arena_fini(&c.arena);
}

static int take(const char *text, struct err *e)
{
    struct json *j = NULL;
    unit_ok(json_parse(text, strlen(text), &j, e), e);
    int rc = params_read(j, c.d->fields, &c.arena, &c.p, e);
    rc = rc == 0 ? c.d->read(&c, j, e) : rc;
    json_free(j);
    return rc;
}

/* "role:content{fields}" of each message, a line each. */
static void check_messages(const char *text, const char *want)
{
    struct err e = {0};
    struct buf b;
    begin();
    buf_init(&b, 1 << 16);
    unit_ok(take(text, &e), &e);
    for (size_t i = 0; i < c.p.req.n_messages; i++) {
        const struct chat_message *m = &c.p.req.messages[i];
        buf_puts(&b, m->role);
        buf_puts(&b, ":");
        buf_puts(&b, m->content != NULL ? m->content : "-");
        buf_put(&b, m->fields.p, m->fields.n);
        buf_puts(&b, m->reasoning != NULL ? " after " : "");
        buf_put(&b, m->reasoning, m->reasoning_n);
        buf_puts(&b, "\n");
    }
    assert_string_equal(b.p, want);
    buf_fini(&b);
    end();
}

#define CALL(id, name, arguments)                                  \
    "{\"type\":\"function_call\",\"call_id\":\"" id "\",\"name\":" \
    "\"" name "\",\"arguments\":\"" arguments "\"}"
#define RESULT(id, text)                                         \
    "{\"type\":\"function_call_output\",\"call_id\":\"" id "\"," \
    "\"output\":\"" text "\"}"
#define SAYS(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"

static void messages(void **state)
{
    (void)state;
    check_messages("{\"input\":\"Hi\"}", "user:Hi\n");
    check_messages("{\"input\":\"\",\"instructions\":\"S\"}",
                   "system:S\nuser:\n");
    check_messages("{\"instructions\":\"S\",\"input\":["
                   "{\"type\":\"message\",\"role\":\"developer\",\"content\":"
                   "[{\"type\":\"input_text\",\"text\":\"a\"},"
                   "{\"type\":\"input_text\",\"text\":\"b\"}]}]}",
                   "developer:S\ndeveloper:ab\n");
}

/* Calls that stand together are one message, with the text before them. */
static void calls(void **state)
{
    (void)state;
    check_messages(
        "{\"input\":[" SAYS("user", "u") "," SAYS("assistant", "So") "," CALL("c1", "f", "{\\\"a\\\":1.0}") "," CALL(
            "c2", "g",
            "no JSON") "," RESULT("c1",
                                  "r1") "," RESULT("c2",
                                                   "r2") "," CALL("c3", "f",
                                                                  "{}") "," RESULT("c9",
                                                                                   "r3") "]}",
        "user:u\n"
        "assistant:So{\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1.0}\"}},"
        "{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"g\","
        "\"arguments\":\"no JSON\"}}]}\n"
        "tool:r1{\"tool_call_id\":\"c1\",\"name\":\"f\"}\n"
        "tool:r2{\"tool_call_id\":\"c2\",\"name\":\"g\"}\n"
        "assistant:{\"tool_calls\":[{\"id\":\"c3\",\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}\n"
        "tool:r3{\"tool_call_id\":\"c9\"}\n");
}

#define THINKS(text)                                                 \
    "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":" \
    "\"reasoning_text\",\"text\":\"" text "\"}]}"

/* A thought is of the text or the calls that follow it, or of nothing. */
static void thoughts(void **state)
{
    (void)state;
    check_messages(
        "{\"input\":[" THINKS("\\\"t1\\\"") "," SAYS("assistant", "a") "," THINKS("t2") "," CALL(
            "c1", "f",
            "{}") "," RESULT("c1",
                             "r") "," THINKS("t3") "," SAYS("user",
                                                            "u") "," SAYS("assi"
                                                                          "stan"
                                                                          "t",
                                                                          "b") "]}",
        "assistant:a after \"t1\"\n"
        "assistant:{\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]} after t2\n"
        "tool:r{\"tool_call_id\":\"c1\",\"name\":\"f\"}\n"
        "user:u\nassistant:b\n");
}

static void tools(void **state)
{
    (void)state;
    static const char text[] =
        "{\"input\":\"Hi\",\"tools\":["
        "{\"type\":\"function\",\"name\":\"f\",\"description\":\"d\","
        "\"parameters\":{\"type\":\"object\"},\"strict\":true},"
        "{\"type\":\"web_search\"},{\"type\":\"custom\",\"name\":\"x\"},"
        "{\"type\":\"namespace\",\"name\":\"s\",\"description\":\"n\","
        "\"tools\":[{\"type\":\"function\",\"name\":\"g\"},"
        "{\"type\":\"custom\",\"name\":\"y\"}]}]%s}";
    char all[1024];
    struct err e = {0};
    begin();
    (void)snprintf(all, sizeof(all), text, "");
    unit_ok(take(all, &e), &e);
    assert_string_equal(
        c.p.req.tools.p,
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":"
        "\"d\",\"parameters\":{\"type\":\"object\"}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":"
        "{\"type\":\"object\",\"properties\":{}}}}]");
    assert_null(responses_space(responses_of(&c), "f"));
    assert_string_equal(responses_space(responses_of(&c), "g"), "s");
    assert_null(strstr(responses_of(&c)->echo.p, "web_search"));
    assert_non_null(strstr(responses_of(&c)->echo.p, "namespace"));
    end();
    begin();
    (void)snprintf(all, sizeof(all), text, ",\"tool_choice\":\"none\"");
    unit_ok(take(all, &e), &e);
    assert_int_equal(c.p.req.tools.n, 0);
    end();
}

/* --- answers --- */

/* "object" of an event or answer, parsed. */
static struct json *parse(const char *p, size_t n)
{
    struct err e = {0};
    struct json *j = NULL;
    unit_ok(json_parse(p, n, &j, &e), &e);
    return j;
}

/* The items of a whole answer of this text, thought and call, as JSON. */
static char *whole_items(const char *text, const char *thought,
                         struct call_tool *t)
{
    struct err e = {0};
    struct buf b, out;
    struct call_choice *x = choice;
    begin();
    unit_ok(take("{\"input\":\"Hi\",\"store\":false}", &e), &e);
    buf_init(&x->text, 4096);
    buf_init(&x->reasoning, 4096);
    buf_init(&b, 1 << 20);
    buf_init(&out, 1 << 20);
    json_put_text(&x->text, text, strlen(text));
    json_put_text(&x->reasoning, thought, strlen(thought));
    x->tools = t;
    x->n_tools = t != NULL ? 1 : 0;
    x->why = GEN_EOG;
    struct buf tail;
    buf_init(&tail, 1 << 16);
    c.d->head(&c, &b);
    c.d->tail(&c, &tail);
    c.d->choice(&c, &b, 0);
    buf_put(&b, tail.p, tail.n);
    struct json *j = parse(b.p, b.n);
    json_write(json_get(j, "output"), false, &out);
    json_free(j);
    buf_fini(&b);
    buf_fini(&tail);
    buf_fini(&x->text);
    buf_fini(&x->reasoning);
    end();
    return out.p;
}

static void whole(void **state)
{
    (void)state;
    struct call_tool t = {.id = "call_1", .name = (char[]){"f"}, .whole = true};
    buf_init(&t.arguments, 100);
    buf_puts(&t.arguments, "{\"a\": \"b\"}");
    char *p = whole_items("", "", NULL);
    assert_string_equal(
        p, "[{\"id\":\"msg_X_0\",\"type\":\"message\",\"status\":\"completed\","
           "\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
           "\"annotations\":[],\"logprobs\":[],\"text\":\"\"}]}]");
    free(p);
    p = whole_items("", "Hm\n", &t);
    assert_string_equal(
        p, "[{\"id\":\"rs_X_0\",\"type\":\"reasoning\",\"status\":"
           "\"completed\",\"summary\":[],\"content\":[{\"type\":"
           "\"reasoning_text\",\"text\":\"Hm\\n\"}]},"
           "{\"id\":\"fc_X_1\",\"type\":\"function_call\",\"status\":"
           "\"completed\",\"call_id\":\"call_1\",\"name\":\"f\","
           "\"arguments\":\"{\\\"a\\\": \\\"b\\\"}\"}]");
    free(p);
    buf_fini(&t.arguments);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(messages), cmocka_unit_test(calls),
        cmocka_unit_test(thoughts), cmocka_unit_test(tools),
        cmocka_unit_test(whole),
    };
    return cmocka_run_group_tests_name("responses", all, NULL, NULL);
}
