/* test_reply_constrain_random.c - random texts that a constraint lets through:
 * the parser reads from each exactly whole calls of the tools, with arguments
 * that a check written apart finds valid, and no text where there may be none.
 */
#include <math.h>

#include "tests/unit/model/constrain_check.h"

static uint64_t seed = 11;

/* --- what the parser reads --- */

struct seen {
    struct buf name, args;
    size_t text, reasoning; /* bytes */
    unsigned calls, broken, unknown, invalid;
    bool loose; /* arguments of h are any */
};

static void on_text(void *ctx, const char *p, size_t n)
{
    (void)p;
    ((struct seen *)ctx)->text += n;
}

static void on_reasoning(void *ctx, const char *p, size_t n)
{
    (void)p;
    ((struct seen *)ctx)->reasoning += n;
}

static void on_call(void *ctx, const char *name, size_t n)
{
    struct seen *s = ctx;
    buf_clear(&s->name);
    buf_clear(&s->args);
    buf_put(&s->name, name, n);
    buf_puts(&s->args, "");
}

static void on_arguments(void *ctx, const char *p, size_t n)
{
    buf_put(&((struct seen *)ctx)->args, p, n);
}

static bool is_type(const struct json *x, enum json_type t)
{
    return x != NULL && json_type(x) == t;
}

static bool known_keys(const struct json *x, const char *const *keys, size_t n)
{
    for (const struct json *m = json_first(x); m != NULL; m = json_next(m)) {
        bool known = false;
        for (size_t i = 0; i < n; i++) {
            known |= strcmp(keys[i], json_key(m)) == 0;
        }
        if (!known) {
            return false;
        }
    }
    return true;
}

static bool valid_f(const struct json *x)
{
    static const char *const keys[] = {"city", "days", "unit"};
    const struct json *days = json_get(x, "days");
    const char *unit = json_str(json_get(x, "unit"));
    return known_keys(x, keys, countof(keys)) &&
           is_type(json_get(x, "city"), JSON_STRING) &&
           (days == NULL ||
            (is_type(days, JSON_NUMBER) && fmod(json_num(days), 1) == 0)) &&
           (json_get(x, "unit") == NULL ||
            (unit != NULL &&
             (strcmp(unit, "c") == 0 || strcmp(unit, "f") == 0)));
}

static bool valid_g(const struct json *x)
{
    static const char *const keys[] = {"flag", "note", "list", "more"};
    static const char *const inner[] = {"x"};
    const struct json *note = json_get(x, "note");
    const struct json *list = json_get(x, "list");
    const struct json *more = json_get(x, "more");
    bool ok = known_keys(x, keys, countof(keys)) &&
              is_type(json_get(x, "flag"), JSON_BOOL);
    ok = ok && (note == NULL || is_type(note, JSON_STRING) ||
                is_type(note, JSON_NULL));
    ok = ok &&
         (list == NULL || (is_type(list, JSON_ARRAY) && json_count(list) <= 2));
    for (const struct json *i = json_first(list); i != NULL; i = json_next(i)) {
        ok = ok && (is_type(i, JSON_STRING) || is_type(i, JSON_NUMBER));
    }
    return ok && (more == NULL || (is_type(json_get(more, "x"), JSON_NUMBER) &&
                                   known_keys(more, inner, 1)));
}

static void on_end(void *ctx, bool whole)
{
    struct seen *s = ctx;
    struct err e = {0};
    struct json *x = NULL;
    s->calls++;
    if (s->loose && strcmp(s->name.p, "h") == 0) {
        return; /* any object, in which a key may stand twice */
    }
    s->broken += !whole;
    if (!whole || json_parse(s->args.p, s->args.n, &x, &e) != 0) {
        return;
    }
    if (strcmp(s->name.p, "f") == 0) {
        s->invalid += !valid_f(x);
    } else if (strcmp(s->name.p, "g_2") == 0) {
        s->invalid += !valid_g(x);
    } else {
        s->unknown += strcmp(s->name.p, "h") != 0;
        s->invalid += json_first(x) != NULL;
    }
    json_free(x);
}

static const struct reply_sink sink = {
    .text = on_text,
    .reasoning = on_reasoning,
    .call = on_call,
    .arguments = on_arguments,
    .call_end = on_end,
};

static void parse(const struct held *h, const struct buf *b, struct seen *s)
{
    const char *tail = h->how.tail != NULL ? h->how.tail : "";
    struct reply *r =
        reply_new(&h->how.forms, true, tail, strlen(tail), &sink, s);
    size_t step = 1 + roll(&seed, 9);
    reply_strings(r, param_is_string, NULL);
    for (size_t i = 0; i < b->n; i += step) {
        reply_put(r, b->p + i, step < b->n - i ? step : b->n - i);
    }
    reply_end(r);
    reply_free(r);
}

/* --- texts --- */

/* What leads out of strings, thoughts and values. */
static const char *const hints[] = {
    "\"",
    "\"",
    "'",
    "}",
    "]",
    ")",
    "</parameter>",
    "\n</parameter>",
    "</arg_value>",
    "<|\"|>",
    "</think>",
    "```",
    "<|end|>",
    "<|tool_call>call:",
    ">>>",
    "functools",
    "Action:",
    "```json",
    "<function=",
    "<channel|>",
    ", ",
    "True",
    "\"f\"",
    "null",
    "12",
    "-0.5e3",
    "true ",
    "[",
    "{\"",
    "Nope",
    "<think>",
    "<minimax:tool_call>",
    "<seed:tool_call>",
};

static bool add(const struct held *h, match_t *at, const char *p, size_t n,
                struct buf *b)
{
    bool ok = match_bytes(h->m, at, p, n);
    if (ok) {
        buf_put(b, p, n);
    }
    return ok;
}

static bool add_hint(const struct held *h, match_t *at, struct buf *b)
{
    const char *const *marks = h->how.forms.marks;
    size_t n = 0;
    while (marks[n] != NULL) {
        n++;
    }
    uint32_t i = roll(&seed, (uint32_t)(countof(hints) + n));
    const char *s = i < countof(hints) ? hints[i] : marks[i - countof(hints)];
    return add(h, at, s, strlen(s), b);
}

/* A text that the constraint gives; false: it did not end in time. */
static bool give(const struct held *h, struct buf *b)
{
    match_t at = match_start(h->m);
    match_hold(h->m, at);
    buf_puts(b, "");
    for (unsigned k = 0; k < 3000 && b->n < 3000; k++) {
        if (match_may_end(h->m, at) && roll(&seed, 6) == 0) {
            break;
        }
        int only = match_only_byte(h->m, at);
        char c = (char)(only >= 0 ? (uint32_t)only : roll(&seed, 256));
        if (only < 0 && (roll(&seed, 3) == 0 || b->n > 300)) {
            (void)add_hint(h, &at, b);
        }
        for (unsigned i = 0; i < 256 && !add(h, &at, &c, 1, b); i++) {
            c = (char)((unsigned char)c + 1);
        }
    }
    bool ok = match_may_end(h->m, at);
    match_drop(h->m, at);
    return ok;
}

/* --- forms --- */

static const char *const forms[] = {
    "<tool_call>",
    "<tool_call> <think>",
    "<|python_tag|>",
    "[TOOL_CALLS][",
    "[TOOL_CALLS][ARGS] [THINK]",
    "<|tool_call|> <think>",
    "<tool_call> <|start_of_role|>",
    "<|tool|><|/tool|>",
    "<\xEF\xBD\x9Ctool\xE2\x96\x81"
    "calls\xE2\x96\x81"
    "begin\xEF\xBD\x9C> <think>",
    "<\xEF\xBD\x9Ctool\xE2\x96\x81"
    "calls\xE2\x96\x81"
    "begin\xEF\xBD\x9C> ```json",
    "<|tool_calls_section_begin|>",
    ">>> recipient",
    "functools[",
    "<function=",
    "<start_of_turn>",
    "Action: ```json",
    "<|START_ACTION|> <|START_THINKING|>",
    "<|channel|><|message|>",
    "<tool_call> <function= <think>",
    "<tool_call> <arg_key>",
    "<minimax:tool_call> <think>",
    "<seed:tool_call> <seed:think>",
    "[func_name1(",
    "<|tool_call_start|> <think>",
    "<|tool_call> <|channel>thought",
};

struct tally {
    unsigned texts, calls, thoughts, plain;
};

/* In harmony control tokens end a message, also in strings of arguments. */
static bool breaks_off(const struct held *h, const struct buf *b)
{
    static const char *const marks[] = {"<|start|>", "<|channel|>", "<|end|>",
                                        "<|call|>", "<|return|>"};
    static const char head[] = "json<|message|>";
    const char *last = NULL; /* behind the head of the call */
    const char *end = b->p + b->n;
    if (h->how.forms.tools != REPLY_HARMONY) {
        return false;
    }
    for (char *s = b->p;
         (s = memmem(s, (size_t)(end - s), head, sizeof(head) - 1)) != NULL;
         s++) {
        last = s;
    }
    for (size_t i = 0; i < countof(marks) && last != NULL; i++) {
        if (memmem(last, (size_t)(end - last), marks[i], strlen(marks[i])) !=
            NULL) {
            return true;
        }
    }
    return false;
}

static void judge(const char *tmpl, const struct held *h,
                  const struct reply_want *w, const struct buf *b,
                  struct tally *t)
{
    struct seen s = {.loose = w->kind == WANT_AUTO};
    buf_init(&s.name, 4096);
    buf_init(&s.args, MIB(1));
    parse(h, b, &s);
    bool ok = s.broken + s.unknown + s.invalid == 0;
    if (w->kind == WANT_CALL) {
        ok = ok && s.text == 0 && s.calls > 0 && (w->parallel || s.calls == 1);
    }
    if (!ok) {
        fail_msg(
            "%s, kind %d: %s\nlast %s %s: %u calls, %u broken, %u unknown, "
            "%u invalid, %zu bytes of text",
            tmpl, (int)w->kind, b->p, s.name.p, s.args.p, s.calls, s.broken,
            s.unknown, s.invalid, s.text);
    }
    t->texts++;
    t->calls += s.calls;
    t->thoughts += s.reasoning > 0;
    t->plain += s.calls == 0;
    buf_fini(&s.name);
    buf_fini(&s.args);
}

static void try_form(const char *tmpl, const struct reply_want *w,
                     struct tally *t)
{
    struct held h = {.m = NULL};
    unsigned ended = 0;
    hold(&h, tmpl, w);
    if (strstr(tmpl, ">>>") != NULL) {
        h.how.tail = ">>>";
    }
    for (int i = 0; i < (UNIT_SANITIZED ? 20 : 200); i++) {
        struct buf b;
        buf_init(&b, MIB(1));
        if (give(&h, &b) && !breaks_off(&h, &b)) {
            judge(tmpl, &h, w, &b, t);
            ended++;
        }
        buf_fini(&b);
    }
    if (ended == 0) {
        fail_msg("%s: no text has ended", tmpl);
    }
    let_go(&h);
}

/* Between tags, where a closing tag inside a string of a list ends the value,
 * lists are of numbers. */
static bool has_tags(const char *tmpl)
{
    return strstr(tmpl, "<tool_call> <function=") != NULL ||
           strstr(tmpl, "arg_key") != NULL || strstr(tmpl, "minimax") != NULL ||
           strstr(tmpl, "seed") != NULL;
}

static void test_random(void **state)
{
    (void)state;
    struct json *numbers = json_of(TOOLS_OF("integer"));
    static const struct reply_want wants[] = {
        {.kind = WANT_CALL},
        {                     .kind = WANT_CALL, .parallel = true},
        {                     .kind = WANT_CALL, .parallel = true, .thoughts_off = true},
        { .kind = WANT_AUTO, .parallel = true},
    };
    for (size_t i = 0; i < countof(forms); i++) {
        struct tally t = {0};
        for (size_t k = 0; k < countof(wants); k++) {
            struct reply_want w = wants[k];
            w.tools = has_tags(forms[i]) ? numbers : NULL;
            try_form(forms[i], &w, &t);
        }
        print_message("%s: %u texts, %u calls, %u thoughts, %u without call\n",
                      forms[i], t.texts, t.calls, t.thoughts, t.plain);
        assert_true(t.calls > 0);
    }
    json_free(numbers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
