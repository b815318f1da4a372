/* Tools, calls and results: from each dialect's JSON to what templates know. */
#include "../unit.h"
#include "api/anthropic.h"
#include "api/ollama.h"
#include "api/openai.h"
#include "api/tools.h"

static struct call c;
static struct err e;

/* One request in a dialect, with ' for ". */
static int reads(const struct dialect *d, const char *text)
{
    static char json[4096];
    struct json *j = NULL;
    size_t n = strlen(text);
    must(n < sizeof(json));
    for (size_t i = 0; i <= n; i++) {
        json[i] = (char)(text[i] == '\'' ? '"' : text[i]);
    }
    arena_fini(&c.arena);
    c = (struct call){.d = d};
    e = (struct err){0};
    arena_init(&c.arena, GEN_ARENA_MAX);
    unit_ok(json_parse(json, n, &j, &e), &e);
    int rc = params_read(j, d->fields, &c.arena, &c.p, &e);
    if (rc == 0) {
        rc = d->read(&c, j, &e);
    }
    json_free(j);
    return rc;
}

static void says(struct span s, const char *want)
{
    char text[2048];
    (void)snprintf(text, sizeof(text), "%.*s", (int)s.n,
                   s.p != NULL ? s.p : "");
    for (size_t i = 0; text[i] != '\0'; i++) {
        text[i] = (char)(text[i] == '"' ? '\'' : text[i]);
    }
    assert_string_equal(text, want);
}

static void refuses(const struct dialect *d, const char *text,
                    const char *tells)
{
    int rc = reads(d, text);
    if (rc >= 0 || strstr(e.msg, tells) == NULL) {
        fail_msg("%s: %s", text, rc < 0 ? e.msg : "taken");
    }
}

#define ASK "'messages':[{'role':'user','content':'x'}]"

/* Keys stay in the client's order; hints and nulls are left out. */
static void tools(void **state)
{
    (void)state;
    assert_int_equal(
        reads(&openai_chat,
              "{" ASK ",'tools':[{'type':'function','function':{'strict':true,"
              "'parameters':{'b':1,'a':{}},'name':'f','description':null}},"
              "{'function':{'name':'g','description':'d'}}]}"),
        0);
    says(c.p.req.tools,
         "[{'type':'function','function':{'parameters':{'b':1,'a':{}},"
         "'name':'f'}},{'type':'function','function':{'name':'g',"
         "'description':'d','parameters':{'type':'object','properties':{}}}}]");
    assert_int_equal(
        reads(&anthropic_chat,
              "{" ASK ",'max_tokens':1,'tools':[{'name':'f','description':'d',"
              "'input_schema':{'type':'object'},'cache_control':{},"
              "'type':'custom'}]}"),
        0);
    says(c.p.req.tools,
         "[{'type':'function','function':{'name':'f','description':'d',"
         "'parameters':{'type':'object'}}}]");
    static const char *const none[] = {
        "{" ASK "}", "{" ASK ",'tools':null}", "{" ASK ",'tools':[]}",
        "{" ASK ",'tool_choice':'none','tools':[{'function':{'name':'f'}}]}"};
    for (size_t i = 0; i < countof(none); i++) {
        assert_int_equal(reads(&openai_chat, none[i]), 0);
        assert_int_equal(c.p.req.tools.n, 0);
    }
}

/* Arguments stay the text that they are; a result gets its call's name. */
static void calls(void **state)
{
    (void)state;
    assert_int_equal(
        reads(&openai_chat,
              "{'messages':[{'role':'user','content':'x'},{'role':'assistant',"
              "'content':null,'reasoning_content':'hm','tool_calls':[{'id':'a',"
              "'type':'function','function':{'name':'f','arguments':'{1.0'}}],"
              "'provider_specific_fields':{'refusal':null}},"
              "{'role':'tool','tool_call_id':'a','content':'18'}]}"),
        0);
    const struct chat_message *m = c.p.req.messages;
    assert_int_equal(c.p.req.n_messages, 3);
    assert_string_equal(m[1].content, "");
    assert_string_equal(m[1].reasoning, "hm");
    says(m[1].fields, "{'tool_calls':[{'id':'a','type':'function','function':"
                      "{'name':'f','arguments':'{1.0'}}]}");
    assert_string_equal(m[2].role, "tool");
    says(m[2].fields, "{'tool_call_id':'a','name':'f'}");
}

/* Who speaks is for the template, beside what else the message has. */
static void names(void **state)
{
    (void)state;
    assert_int_equal(
        reads(&openai_chat,
              "{'messages':[{'role':'user','name':'Ann \\u0022A','content':'x'},"
              "{'role':'assistant','name':'a','content':null,'tool_calls':"
              "[{'id':'i','type':'function','function':{'name':'f',"
              "'arguments':'{}'}}]},{'role':'tool','tool_call_id':'i',"
              "'content':'18'},{'role':'user','name':null,'content':'y'},"
              "{'role':'system','name':'','content':'y'}]}"),
        0);
    const struct chat_message *m = c.p.req.messages;
    says(m[0].fields, "{'name':'Ann \\'A'}");
    says(m[1].fields, "{'name':'a','tool_calls':[{'id':'i','type':'function',"
                      "'function':{'name':'f','arguments':'{}'}}]}");
    assert_int_equal(m[3].fields.n, 0);
    assert_int_equal(m[4].fields.n, 0);
    assert_int_equal(reads(&openai_chat,
                           "{'messages':[{'role':'user','name':1,"
                           "'content':'x'}]}"),
                     ERR_INVALID);
    assert_int_equal(
        reads(&openai_chat, "{'messages':[{'role':'assistant','name':'a'}]}"),
        ERR_INVALID);
}

/* Ollama's have no ids: they get some, and results find them in order. */
static void calls_without_ids(void **state)
{
    (void)state;
    assert_int_equal(
        reads(&ollama_chat,
              "{'messages':[{'role':'user','content':'x'},{'role':'assistant',"
              "'tool_calls':[{'function':{'name':'f','arguments':{'a':1}}},"
              "{'function':{'name':'f'}},{'function':{'name':'g'}}]},"
              "{'role':'tool','content':'1'},{'role':'tool','content':'2',"
              "'tool_name':'g'},{'role':'tool','content':'3'}]}"),
        0);
    const struct chat_message *m = c.p.req.messages;
    says(m[1].fields,
         "{'tool_calls':[{'id':'call00000','type':'function','function':"
         "{'name':'f','arguments':'{\\'a\\':1}'}},{'id':'call00001','type':"
         "'function','function':{'name':'f','arguments':'{}'}},{'id':"
         "'call00002','type':'function','function':{'name':'g','arguments':"
         "'{}'}}]}");
    says(m[2].fields, "{'tool_call_id':'call00000','name':'f'}");
    says(m[3].fields, "{'tool_call_id':'call00002','name':'g'}");
    says(m[4].fields, "{'tool_call_id':'call00001','name':'f'}");
}

/* Results stand before the text of their message, each as its own. */
static void blocks(void **state)
{
    (void)state;
    assert_int_equal(
        reads(&anthropic_chat,
              "{'max_tokens':1,'system':'s','messages':[{'role':'user',"
              "'content':'x'},{'role':'assistant','content':[{'type':"
              "'thinking','thinking':'hm','signature':''},{'type':'text',"
              "'text':'t'},{'type':'tool_use','id':'a','name':'f','input':"
              "{'k':'v'}},{'type':'tool_use','id':'b','name':'g','input':{}}]},"
              "{'role':'user','content':[{'type':'text','text':'go on'},"
              "{'type':'tool_result','tool_use_id':'b','is_error':true,"
              "'content':'no'},{'type':'tool_result','tool_use_id':'a',"
              "'content':[{'type':'text','text':'1'},{'type':'text','text':"
              "'2'}]}]},{'role':'assistant','content':'u'},{'role':'user',"
              "'content':[{'type':'tool_result','tool_use_id':'a'}]}]}"),
        0);
    static const struct {
        const char *role, *content, *fields;
    } want[] = {
        {"system",    "s",         ""                               },
        {"user",      "x",         ""                               },
        {"assistant", "t",         NULL                             },
        {"tool",      "Error: no", "{'tool_call_id':'b','name':'g'}"},
        {"tool",      "1\n2",      "{'tool_call_id':'a','name':'f'}"},
        {"user",      "go on",     ""                               },
        {"assistant", "u",         ""                               },
        {"tool",      "",          "{'tool_call_id':'a','name':'f'}"},
    };
    assert_int_equal(c.p.req.n_messages, countof(want));
    for (size_t i = 0; i < countof(want); i++) {
        const struct chat_message *m = &c.p.req.messages[i];
        assert_string_equal(m->role, want[i].role);
        assert_string_equal(m->content, want[i].content);
        assert_int_equal(m->content_n, strlen(want[i].content));
        if (want[i].fields != NULL) {
            says(m->fields, want[i].fields);
        }
    }
    assert_string_equal(c.p.req.messages[2].reasoning, "hm");
    says(c.p.req.messages[2].fields,
         "{'tool_calls':[{'id':'a','type':'function','function':{'name':'f',"
         "'arguments':'{\\'k\\':\\'v\\'}'}},{'id':'b','type':'function',"
         "'function':{'name':'g','arguments':'{}'}}]}");
}

static void kwargs(void **state)
{
    (void)state;
    static const struct {
        const struct dialect *d;
        const char *more, *want;
    } t[] = {
        {&openai_chat,    "",                                                   ""                                                             },
        {&openai_chat,    ",'reasoning_effort':'low'",
         "{'reasoning_effort':'low'}"                                                                                                          },
        {&openai_chat,    ",'reasoning_effort':'none'",
         "{'enable_thinking':false,'thinking':false}"                                                                                          },
        {&openai_chat,
         ",'enable_thinking':true,'chat_template_kwargs':{'thinking':1,'x':2}", "{'thinking':1,'x':2,'enable_thinking':true}"                  },
        {&anthropic_chat,
         ",'max_tokens':1,'thinking':{'type':'enabled','budget_tokens':99}",    "{'enable_thinking':true,'thinking':true,'thinking_budget':99}"},
        {&anthropic_chat, ",'max_tokens':1,'thinking':{'type':'adaptive'}",     ""                                                             },
        {&ollama_chat,    ",'think':'high'",
         "{'enable_thinking':true,'thinking':true,'reasoning_effort':'high'}"                                                                  },
        {&ollama_chat,    ",'think':false",
         "{'enable_thinking':false,'thinking':false}"                                                                                          },
    };
    for (size_t i = 0; i < countof(t); i++) {
        char text[512];
        (void)snprintf(text, sizeof(text), "{" ASK "%s}", t[i].more);
        unit_ok(reads(t[i].d, text), &e);
        says(c.p.req.kwargs, t[i].want);
    }
}

static void what_is_refused(void **state)
{
    (void)state;
    refuses(&openai_chat, "{" ASK ",'tools':{}}", "tools: must be an array");
    refuses(&openai_chat, "{" ASK ",'tools':[1]}",
            "tools[0]: must be an object");
    refuses(&openai_chat, "{" ASK ",'tools':[{'type':'x'}]}", "tools[0].type");
    refuses(&openai_chat, "{" ASK ",'tools':[{'function':{'name':''}}]}",
            "tools[0].function.name");
    refuses(&openai_chat,
            "{" ASK ",'tools':[{'function':{'name':'f','description':1}}]}",
            "tools[0].function.description");
    refuses(&anthropic_chat,
            "{" ASK ",'max_tokens':1,'tools':[{'name':'f','input_schema':1}]}",
            "tools[0].input_schema");
    refuses(&openai_chat, "{" ASK ",'documents':[1]}", "documents");
    refuses(&openai_chat,
            "{'messages':[{'role':'tool','tool_call_id':1,'content':''}]}",
            "messages[0]");
    refuses(&ollama_chat,
            "{'messages':[{'role':'tool','tool_name':1,'content':''}]}",
            "messages[0]");
    refuses(&ollama_chat, "{'messages':[{'role':'assistant','tool_calls':{}}]}",
            "messages[0].tool_calls: must be an array");
    refuses(&anthropic_chat,
            "{'max_tokens':1,'messages':[{'role':'user','content':[{'type':"
            "'tool_use'}]}]}",
            "no block of type 'tool_use'");
    refuses(&anthropic_chat,
            "{'max_tokens':1,'messages':[{'role':'assistant','content':"
            "[{'type':'tool_use','id':'a','input':{}}]}]}",
            "the name must be a string");
}

static int drop(void **state)
{
    (void)state;
    arena_fini(&c.arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tools),
        cmocka_unit_test(calls),
        cmocka_unit_test(names),
        cmocka_unit_test(calls_without_ids),
        cmocka_unit_test(blocks),
        cmocka_unit_test(kwargs),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, drop);
}
