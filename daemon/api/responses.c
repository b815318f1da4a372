/* responses.c - a request of /v1/responses, what is kept of its answer, and the
 * routes. Shapes: OpenAI's API reference.
 *
 * An answer is kept by its id (serve/gen/answers.h): its JSON, for GET, and the
 * conversation with it as messages, for previous_response_id. `instructions`
 * are of one request and not kept. An answer's items become messages by the
 * same reader as a client's own: to go on by id, or by sending all items again,
 * gives the same prompt. */
#include "api/responses.h"

#include <string.h>

#include "api/tools.h"
#include "model/chat_talk.h"
#include "serve/gen/answers.h"

/* --- the request --- */

/* Members of the answer that say again what the request says, or what holds
 * without it. */
static void put_echo(struct json *o, const struct json *j)
{
    static const struct {
        const char *key, *usual; /* JSON */
    } rows[] = {
        {"instructions",         "null"                              },
        {"max_output_tokens",    "null"                              },
        {"max_tool_calls",       "null"                              },
        {"metadata",             "{}"                                },
        {"parallel_tool_calls",  "true"                              },
        {"previous_response_id", "null"                              },
        {"prompt_cache_key",     "null"                              },
        {"reasoning",            "{\"effort\":null,\"summary\":null}"},
        {"safety_identifier",    "null"                              },
        {"temperature",          "1"                                 },
        {"text",                 "{\"format\":{\"type\":\"text\"}}"  },
        {"tool_choice",          "\"auto\""                          },
        {"top_p",                "1"                                 },
        {"truncation",           "\"disabled\""                      },
        {"user",                 "null"                              },
    };
    json_add_bool(o, "background", false);
    for (size_t i = 0; i < countof(rows); i++) {
        const struct json *v = json_get(j, rows[i].key);
        if (v != NULL && json_type(v) != JSON_NULL) {
            json_add_tree(o, rows[i].key, json_copy(v));
        } else {
            json_add_raw(o, rows[i].key, rows[i].usual);
        }
    }
}

/* The members of `echo` without its braces, after a comma. */
static int keep_echo(struct responses *x, const struct json *echo,
                     struct err *e)
{
    json_write(echo, false, &x->echo);
    if (!buf_ok(&x->echo)) {
        return message_too_big(e);
    }
    x->echo.p[0] = ',';
    x->echo.p[--x->echo.n] = '\0';
    return 0;
}

static struct responses *own(struct call *c)
{
    struct responses *x = calloc(1, sizeof(*x));
    must(x != NULL);
    buf_init(&x->echo, 2 * HTTP_CHAT_BODY_MAX);
    buf_init(&x->spaces, TEXT_BYTES_MAX);
    buf_init(&x->items, 3 * ANSWER_BYTES_MAX);
    buf_init(&x->text, 2 * ANSWER_BYTES_MAX);
    c->own = x;
    return x;
}

void responses_drop(struct call *c)
{
    struct responses *x = responses_of(c);
    if (x != NULL) {
        buf_fini(&x->echo);
        buf_fini(&x->spaces);
        buf_fini(&x->items);
        buf_fini(&x->text);
        json_free(x->input);
        free(x->instructions);
        free(x);
    }
}

/* `instructions` in front of the messages. Neighbours of one role can become
 * one message, where the template wants that: it takes the role of the next. */
static int instruct(struct call *c, const char *text, struct err *e)
{
    struct chat_message *m = c->p.req.messages;
    bool developer = strcmp(m[1].role, "developer") == 0;
    c->field = "instructions";
    m->role = developer ? "developer" : "system";
    m->content_n = strlen(text);
    m->content = arena_strn(&c->arena, text, m->content_n);
    return m->content != NULL ? 0 : message_too_big(e);
}

/* The messages of "input", behind the instructions (NULL: none). */
static int read_messages(struct call *c, const struct json *input,
                         const char *instructions, struct err *e)
{
    struct gen_req *q = &c->p.req;
    bool instructed = responses_of(c)->instructed;
    RETERR(responses_messages(&c->arena, input, instructed ? 1 : 0,
                              &q->messages, &q->n_messages, &c->field, e));
    return instructed ? instruct(c, instructions, e) : 0;
}

/* What is referred to is known on the loop only: resolve reads it. */
static int keep_input(struct call *c, const struct json *input,
                      const char *instructions, struct err *e)
{
    struct responses *x = responses_of(c);
    struct buf b;
    c->field = "input";
    buf_init(&b, ANSWER_READ_BYTES);
    json_write(input, false, &b);
    bool ok = buf_ok(&b);
    buf_fini(&b);
    if (!ok) {
        return err_set(e, ERR_TOO_BIG,
                       "input: with item_reference at most %zu bytes",
                       (size_t)ANSWER_READ_BYTES);
    }
    x->input = json_copy(input);
    if (x->instructed) {
        x->instructions = strdup(instructions);
        must(x->instructions != NULL);
    }
    return 0;
}

static int read_references(struct call *c, struct err *e)
{
    struct responses *x = responses_of(c);
    struct json *input = NULL;
    c->field = "input";
    RETERR(responses_refer(c, x->input, &input, e));
    int rc = read_messages(c, input, x->instructions, e);
    json_free(input);
    json_free(x->input);
    x->input = NULL;
    return rc;
}

int responses_read(struct call *c, const struct json *j, struct err *e)
{
    const struct json *input = json_get(j, "input");
    struct gen_req *q = &c->p.req;
    struct responses *x = own(c);
    const struct json *store = json_get(j, "store");
    const char *text = json_str(json_get(j, "instructions"));
    const char *previous = json_str(json_get(j, "previous_response_id"));
    q->kind = GEN_CHAT;
    x->store =
        store == NULL || json_type(store) == JSON_NULL || json_bool(store);
    x->instructed = text != NULL && text[0] != '\0';
    if (previous != NULL) {
        (void)snprintf(x->previous, sizeof(x->previous), "%s", previous);
    }
    if (responses_has_references(input)) {
        RETERR(keep_input(c, input, text, e));
    } else {
        RETERR(read_messages(c, input, text, e));
    }
    struct json *echo = json_object();
    put_echo(echo, j);
    int rc = responses_tools(c, j, echo, e);
    if (rc == 0) {
        rc = keep_echo(x, echo, e);
    }
    json_free(echo);
    return rc;
}

/* The calls of the last message of m[0..n) that has some. */
static int last_calls(struct call *c, const struct chat_message *m, size_t n,
                      struct calls *ret, struct err *e)
{
    struct chat_message same = {0};
    struct json *o = NULL;
    while (n > 0 && (m[n - 1].fields.n == 0 ||
                     strcmp(m[n - 1].role, "assistant") != 0)) {
        n--;
    }
    if (n == 0 || m[n - 1].fields.n > BODY_HERE_MAX) {
        return 0;
    }
    RETERR(json_parse(m[n - 1].fields.p, m[n - 1].fields.n, &o, e));
    int rc =
        calls_read(ret, &c->arena, json_get(o, "tool_calls"), "", &same, e);
    json_free(o);
    return rc;
}

/* Results m[from..n) of calls in messages before them: templates want the name
 * of the function, too, and the item has only the call's id. */
static int name_results(struct call *c, struct chat_message *m, size_t from,
                        size_t n, struct err *e)
{
    struct calls calls = {0};
    bool read = false;
    for (size_t i = from; i < n; i++) {
        struct json *o = NULL;
        if (strcmp(m[i].role, "tool") != 0) {
            continue;
        }
        if (!read) {
            RETERR(last_calls(c, m, from, &calls, e));
            read = true;
        }
        RETERR(json_parse(m[i].fields.p, m[i].fields.n, &o, e));
        int rc = json_get(o, "name") == NULL
                     ? calls_answer(&calls, &c->arena,
                                    json_str(json_get(o, "tool_call_id")), NULL,
                                    &m[i], e)
                     : 0;
        json_free(o);
        RETERR(rc);
    }
    return 0;
}

/* The messages before those of this request, behind its instructions. */
int responses_resolve(struct call *c, struct err *e)
{
    const struct responses *x = responses_of(c);
    struct gen_req *q = &c->p.req;
    struct chat_message *m = NULL;
    if (x->input != NULL) {
        RETERR(read_references(c, e));
    }
    size_t n = 0, first = x->instructed ? 1 : 0;
    size_t rest = q->n_messages - first;
    if (x->previous[0] == '\0') {
        return 0;
    }
    c->field = "previous_response_id";
    const struct answer *a = answers_find(c->srv->answers, x->previous);
    if (a == NULL) {
        return err_set(e, ERR_NOT_FOUND,
                       "Previous response with id '%s' not found.",
                       x->previous);
    }
    RETERR(talk_get(&c->arena, a->talk.p, a->talk.n, first, rest, &m, &n, e));
    memcpy(m, q->messages, first * sizeof(*m));
    memcpy(m + first + n, q->messages + first, rest * sizeof(*m));
    q->messages = m;
    q->n_messages = first + n + rest;
    return name_results(c, m, first + n, q->n_messages, e);
}

/* --- what is kept --- */

/* The answer went on with `last`, a message of the assistant: they are one. */
static bool join_answer(struct arena *a, const struct chat_message *last,
                        struct chat_message *answer)
{
    char *p = arena_alloc(a, last->content_n + answer->content_n + 1);
    if (p == NULL) {
        return false;
    }
    memcpy(p, last->content, last->content_n);
    memcpy(p + last->content_n, answer->content, answer->content_n);
    answer->content = p;
    answer->content_n += last->content_n;
    if (answer->reasoning == NULL) {
        answer->reasoning = last->reasoning;
        answer->reasoning_n = last->reasoning_n;
    }
    return true;
}

static bool goes_on(const struct chat_message *last,
                    const struct chat_message *answer)
{
    return strcmp(last->role, "assistant") == 0 && last->fields.n == 0 &&
           last->content_n > 0 && strcmp(answer->role, "assistant") == 0;
}

/* The conversation of the request and its answer. */
static bool put_talk(struct buf *talk, const struct call *c)
{
    const struct responses *x = responses_of(c);
    const struct gen_req *q = &c->p.req;
    size_t first = x->instructed ? 1 : 0, n = 0;
    struct chat_message *m = NULL;
    struct arena a;
    struct buf b;
    struct json *items = NULL;
    const char *field = NULL;
    arena_init(&a, GEN_ARENA_MAX);
    buf_init(&b, ANSWER_READ_BYTES + 2);
    buf_puts(&b, "[");
    buf_put(&b, x->items.p, x->items.n);
    buf_puts(&b, "]");
    size_t asked = q->n_messages - first;
    bool ok = buf_ok(&b) && json_parse(b.p, b.n, &items, NULL) == 0 &&
              responses_messages(&a, items, 0, &m, &n, &field, NULL) == 0;
    if (ok && goes_on(&q->messages[q->n_messages - 1], &m[0])) {
        ok = join_answer(&a, &q->messages[q->n_messages - 1], &m[0]);
        asked--;
    }
    if (ok) {
        talk_put(talk, q->messages + first, asked);
        talk_put(talk, m, n);
    }
    json_free(items);
    buf_fini(&b);
    arena_fini(&a);
    return ok && buf_ok(talk);
}

bool responses_keep(struct call *c)
{
    struct responses *x = responses_of(c);
    struct buf talk, body;
    if (!x->store || !buf_ok(&x->items) || x->items.n > ANSWER_READ_BYTES) {
        return false;
    }
    buf_init(&talk, ANSWER_KEPT_BYTES);
    buf_init(&body, ANSWER_KEPT_BYTES);
    bool kept = put_talk(&talk, c);
    if (kept) {
        responses_put(&body, c, responses_status(c), true, NULL);
        kept = buf_ok(&body) && talk.n + body.n <= ANSWER_KEPT_BYTES;
    }
    if (kept) {
        answers_put(c->srv->answers, c->id, server_unix_ms(), &body, &talk);
    }
    buf_fini(&talk);
    buf_fini(&body);
    return kept;
}

/* --- routes --- */

void api_responses(struct http_req *r, const struct http_args *a)
{
    (void)a;
    call_start(r, &responses_dialect, "");
}

/* The answer of the path; else 404 was sent. */
static struct answer *answer_of(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct answer *x = answers_find(s->answers, a->v[0]);
    struct err e = {0};
    if (x == NULL) {
        int rc = err_set(&e, ERR_NOT_FOUND,
                         "Response with id '%.64s' not found.", a->v[0]);
        api_fail(r, rc, NULL, e.msg);
    }
    return x;
}

void api_response_get(struct http_req *r, const struct http_args *a)
{
    const struct answer *x = answer_of(r, a);
    if (x != NULL) {
        http_reply(r, 200, NULL, x->body.p, x->body.n);
    }
}

void api_response_items(struct http_req *r, const struct http_args *a)
{
    const struct answer *x = answer_of(r, a);
    if (x != NULL) {
        responses_list_items(r, x);
    }
}

void api_response_delete(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct answer *x = answer_of(r, a);
    if (x != NULL) {
        struct json *o = json_object();
        json_add_str(o, "id", x->id);
        json_add_str(o, "object", "response");
        json_add_bool(o, "deleted", true);
        answers_drop(s->answers, x);
        api_reply(r, 200, o);
    }
}
