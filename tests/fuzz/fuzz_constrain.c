/* Constraints of answers: two bytes choose the form and what is wanted, the
 * rest is JSON, a list of tools or the schema of one. What is not refused
 * compiles, and whatever the constraint lets through the parser takes without
 * harm. */
#include <string.h>

#include "draw.h"
#include "model/grammar/match.h"
#include "model/reply/constrain.h"
#include "proto/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const char *const templates[] = {
    "<tool_call>",
    "<tool_call> <function= <think>",
    "<tool_call> <arg_key>",
    "[func_name1(",
    "<|tool_call> <|channel>thought",
    "<|channel|><|message|>",
    "<|python_tag|>",
    "[TOOL_CALLS][ARGS] [THINK]",
    ">>> recipient",
    "Action: ```json",
    "<minimax:tool_call>",
    "",
};

static void drop(void *ctx, const char *p, size_t n)
{
    (void)ctx;
    (void)p;
    (void)n;
}

static void drop_end(void *ctx, bool whole)
{
    (void)ctx;
    (void)whole;
}

static const struct reply_sink sink = {
    .text = drop,
    .reasoning = drop,
    .call = drop,
    .arguments = drop,
    .call_end = drop_end,
};

/* Bytes that the constraint lets through, read by the parser. */
static void walk(const struct reply_forms *f, const struct grammar *g,
                 struct draw d)
{
    struct err e = {0};
    struct matcher *m = NULL;
    if (matcher_new(g, &m, &e) != 0) {
        return;
    }
    struct reply *r = reply_new(f, true, "", 0, &sink, NULL);
    match_t s = match_start(m);
    match_hold(m, s);
    for (int i = 0; i < 400; i++) {
        int only = match_only_byte(m, s);
        char c = (char)(only >= 0 ? (unsigned)only : draw_byte(&d));
        bool moved = false;
        for (int k = 0; k < 256 && !moved; k++) {
            moved = match_bytes(m, &s, &c, 1);
            c = (char)((unsigned char)c + !moved);
        }
        must(moved || match_may_end(m, s) || s == match_start(m));
        if (!moved) {
            break;
        }
        reply_put(r, &c, 1);
    }
    reply_end(r);
    reply_free(r);
    match_drop(m, s);
    matcher_free(m);
}

/* The input as tools. */
static struct json *tools_of(const char *p, size_t n)
{
    struct err e = {0};
    struct json *j = NULL;
    if (json_parse(p, n, &j, &e) != 0 || json_type(j) == JSON_ARRAY) {
        return j;
    }
    struct json *tools = json_array();
    for (int i = 0; i < 2; i++) {
        struct json *f =
            json_add_object(json_add_object(tools, NULL), "function");
        json_add_str(f, "name", i == 0 ? "f" : "g");
        json_add_bool(f, "strict", i == 0);
        json_add_tree(f, "parameters", json_copy(j));
    }
    json_free(j);
    return tools;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct err e = {0};
    struct buf b;
    struct grammar *g = NULL;
    struct reply_forms f;
    if (n < 2) {
        return 0;
    }
    struct json *tools = tools_of((const char *)p + 2, n - 2);
    struct reply_want w = {.tools = tools,
                           .parallel = (p[1] & 4) != 0,
                           .thoughts_open = (p[1] & 8) != 0,
                           .thoughts_off = (p[1] & 16) != 0,
                           .answer = p[1] & 32 ? "{\"object\":true}" : NULL};
    w.kind = p[1] % 4 == 0   ? WANT_ANSWER
             : p[1] % 4 == 1 ? WANT_AUTO
                             : WANT_CALL;
    reply_forms_find(templates[p[0] % countof(templates)], &f);
    buf_init(&b, GRAMMAR_TEXT_MAX);
    int rc = reply_constraint(&f, &w, &b, &e);
    must(rc == 0 || rc == ERR_INVALID || rc == ERR_UNSUPPORTED ||
         rc == ERR_TOO_BIG);
    if (rc == 0) {
        rc = grammar_from_text(b.p, b.n, &g, &e);
        must(rc == 0 || rc == ERR_TOO_BIG);
    }
    if (g != NULL) {
        walk(&f, g, (struct draw){p, n});
    }
    grammar_free(g);
    buf_fini(&b);
    json_free(tools);
    return 0;
}
