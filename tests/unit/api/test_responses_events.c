/* Events of /v1/responses: their order, their numbers, and that their pieces
 * make the items of the whole. call_send is ours: it keeps what is sent. */
#include <string.h>

#include "../unit.h"
#include "api/responses.h"

bool __wrap_call_send(struct call *c);

static struct call c;
static struct call_choice choice[1];
static struct buf sent;

bool __wrap_call_send(struct call *x)
{
    assert_true(buf_ok(&x->out));
    buf_put(&sent, x->out.p, x->out.n);
    return true;
}

static void begin(void)
{
    struct err e = {0};
    struct json *j = NULL;
    static const char text[] =
        "{\"input\":\"Hi\",\"store\":false,\"tools\":[{\"type\":\"namespace\","
        "\"name\":\"s\",\"tools\":[{\"type\":\"function\",\"name\":\"g\"}]}]}";
    memset(&c, 0, sizeof(c));
    memset(choice, 0, sizeof(choice));
    c.choices = choice;
    c.d = &responses_dialect;
    arena_init(&c.arena, GEN_ARENA_MAX);
    (void)snprintf(c.id, sizeof(c.id), "resp_X");
    (void)snprintf(c.model, sizeof(c.model), "m");
    buf_init(&c.out, EVENT_BYTES_MAX);
    buf_init(&sent, 1 << 20);
    buf_puts(&sent, "");
    unit_ok(json_parse(text, strlen(text), &j, &e), &e);
    unit_ok(params_read(j, c.d->fields, &c.arena, &c.p, &e), &e);
    unit_ok(c.d->read(&c, j, &e), &e);
    json_free(j);
    c.choices[0].why = GEN_EOG;
    (void)c.d->begin(&c, 0);
}

/* What was sent, a line an event: its type without "response.", its item's
 * index, its text; everything is JSON and counted. *ret: the last one. */
static void check_events(const char *want, struct json **ret)
{
    struct err e = {0};
    struct buf b;
    int64_t n = 0;
    buf_init(&b, 1 << 20);
    *ret = NULL;
    for (char *p = sent.p; *p != '\0';) {
        char *data = strstr(p, "\ndata: "), *end = strstr(p, "\n\n");
        assert_true(data != NULL && end != NULL);
        json_free(*ret);
        unit_ok(json_parse(data + 7, (size_t)(end - data) - 7, ret, &e), &e);
        const char *type = json_str(json_get(*ret, "type"));
        assert_memory_equal(p, "event: ", 7);
        assert_memory_equal(p + 7, type, (size_t)(data - p) - 7);
        int64_t at = 0;
        assert_true(json_int(json_get(*ret, "sequence_number"), n, n, &at));
        n++;
        buf_puts(&b, type + strlen("response."));
        static const char *const keys[] = {"delta", "text", "arguments"};
        if (json_int(json_get(*ret, "output_index"), 0, 99, &at)) {
            buf_printf(&b, " %d", (int)at);
        }
        for (size_t i = 0; i < countof(keys); i++) {
            const char *s = json_str(json_get(*ret, keys[i]));
            buf_puts(&b, s != NULL ? " " : "");
            buf_puts(&b, s != NULL ? s : "");
        }
        buf_puts(&b, "\n");
        p = end + 2;
    }
    assert_string_equal(b.p, want);
    buf_fini(&b);
}

static void end(struct json *last)
{
    json_free(last);
    c.d->drop(&c);
    buf_fini(&sent);
    buf_fini(&c.out);
    arena_fini(&c.arena);
}

static void check_output(const struct json *last, const char *want)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    json_write(json_get(json_get(last, "response"), "output"), false, &b);
    assert_string_equal(b.p, want);
    buf_fini(&b);
}

#define BEGUN "created\nin_progress\n"

static void parts(void **state)
{
    (void)state;
    struct call_tool tool = {
        .id = "call_1", .name = (char[]){"g"}, .whole = true};
    struct json *last = NULL;
    begin();
    c.choices[0].tools = &tool;
    c.choices[0].n_tools = 1;
    (void)c.d->reasoning(&c, 0, "H", 1);
    (void)c.d->reasoning(&c, 0, "m\n", 2);
    (void)c.d->text(&c, 0, "So", 2);
    (void)c.d->tool_begin(&c, 0, 0);
    (void)c.d->tool_arguments(&c, 0, 0, "{\"a\":", 5);
    (void)c.d->tool_arguments(&c, 0, 0, "\"b\"}", 4);
    (void)c.d->tool_end(&c, 0, 0);
    (void)c.d->text(&c, 0, "Bye", 3);
    c.d->end(&c, 0);
    c.d->finish(&c);
    check_events(BEGUN "output_item.added 0\ncontent_part.added 0\n"
                       "reasoning_text.delta 0 H\nreasoning_text.delta 0 m\n\n"
                       "reasoning_text.done 0 Hm\n\ncontent_part.done 0\n"
                       "output_item.done 0\n"
                       "output_item.added 1\ncontent_part.added 1\n"
                       "output_text.delta 1 So\noutput_text.done 1 So\n"
                       "content_part.done 1\noutput_item.done 1\n"
                       "output_item.added 2\n"
                       "function_call_arguments.delta 2 {\"a\":\n"
                       "function_call_arguments.delta 2 \"b\"}\n"
                       "function_call_arguments.done 2 {\"a\":\"b\"}\n"
                       "output_item.done 2\n"
                       "output_item.added 3\ncontent_part.added 3\n"
                       "output_text.delta 3 Bye\noutput_text.done 3 Bye\n"
                       "content_part.done 3\noutput_item.done 3\ncompleted\n",
                 &last);
    check_output(
        last,
        "[{\"id\":\"rs_X_0\",\"type\":\"reasoning\",\"status\":\"completed\","
        "\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":"
        "\"Hm\\n\"}]},"
        "{\"id\":\"msg_X_1\",\"type\":\"message\",\"status\":\"completed\","
        "\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
        "\"annotations\":[],\"logprobs\":[],\"text\":\"So\"}]},"
        "{\"id\":\"fc_X_2\",\"type\":\"function_call\",\"status\":"
        "\"completed\",\"call_id\":\"call_1\",\"name\":\"g\",\"namespace\":"
        "\"s\",\"arguments\":\"{\\\"a\\\":\\\"b\\\"}\"},"
        "{\"id\":\"msg_X_3\",\"type\":\"message\",\"status\":\"completed\","
        "\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
        "\"annotations\":[],\"logprobs\":[],\"text\":\"Bye\"}]}]");
    end(last);
}

/* An answer of nothing has an empty message; one that was cut off says so. */
static void nothing(void **state)
{
    (void)state;
    struct json *last = NULL;
    begin();
    c.choices[0].why = GEN_LENGTH;
    c.d->end(&c, 0);
    c.d->finish(&c);
    check_events(BEGUN "output_item.added 0\ncontent_part.added 0\n"
                       "output_text.done 0 \ncontent_part.done 0\n"
                       "output_item.done 0\nincomplete\n",
                 &last);
    check_output(last,
                 "[{\"id\":\"msg_X_0\",\"type\":\"message\",\"status\":"
                 "\"incomplete\",\"role\":\"assistant\",\"content\":[{\"type\":"
                 "\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":"
                 "\"\"}]}]");
    end(last);
}

/* A call that the model broke off. */
static void broken_off(void **state)
{
    (void)state;
    struct call_tool tool = {.id = "call_1", .name = (char[]){"f"}};
    struct json *last = NULL;
    begin();
    c.choices[0].tools = &tool;
    c.choices[0].n_tools = 1;
    (void)c.d->tool_begin(&c, 0, 0);
    (void)c.d->tool_end(&c, 0, 0);
    c.d->end(&c, 0);
    c.d->finish(&c);
    check_events(BEGUN "output_item.added 0\n"
                       "function_call_arguments.done 0 \n"
                       "output_item.done 0\ncompleted\n",
                 &last);
    check_output(last,
                 "[{\"id\":\"fc_X_0\",\"type\":\"function_call\",\"status\":"
                 "\"incomplete\",\"call_id\":\"call_1\",\"name\":\"f\","
                 "\"arguments\":\"\"}]");
    end(last);
}

static void fails(void **state)
{
    (void)state;
    struct json *last = NULL;
    struct api_error x = {.code = ERR_ENGINE_LOST, .msg = "it went"};
    begin();
    (void)c.d->text(&c, 0, "So", 2);
    buf_clear(&c.out);
    c.d->failed(&c, &x);
    (void)__wrap_call_send(&c);
    check_events(BEGUN "output_item.added 0\ncontent_part.added 0\n"
                       "output_text.delta 0 So\nfailed\n",
                 &last);
    const struct json *e = json_get(json_get(last, "response"), "error");
    assert_string_equal(json_str(json_get(e, "code")), "server_error");
    assert_string_equal(json_str(json_get(e, "message")), "it went");
    end(last);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(parts),
        cmocka_unit_test(nothing),
        cmocka_unit_test(broken_off),
        cmocka_unit_test(fails),
    };
    return cmocka_run_group_tests_name("responses_events", all, NULL, NULL);
}
