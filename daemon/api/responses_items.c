/* responses_items.c - items of answers that are kept: those that led to one
 * (/v1/responses/ID/input_items), and those that a request names (items of type
 * item_reference).
 *
 * What led to an answer is its conversation without the answer itself, that of
 * previous_response_id too. It was kept as messages, so an item has its text,
 * not its parts, and an id of this answer: "msg_X_i0" of "resp_X". Of answers
 * items have other ids: "msg_X_0" is the first of the output of "resp_X". */
#include <string.h>

#include "api/messages.h"
#include "api/responses.h"
#include "model/chat_talk.h"
#include "serve/gen/answers.h"

#define ITEMS_USUAL 20 /* limit, where the client does not say */
#define ITEMS_MAX   100

/* --- items of an answer --- */

/* The end of the JSON array that begins at p. */
static size_t array_end(const char *p, size_t n)
{
    bool text = false;
    size_t depth = 0, i = 0;
    for (; i < n; i++) {
        if (text && p[i] == '\\') {
            i++;
        } else if (p[i] == '"') {
            text = !text;
        } else if (!text) {
            depth += p[i] == '[' || p[i] == '{' ? 1 : 0;
            depth -= p[i] == ']' || p[i] == '}' ? 1 : 0;
            if (depth == 0) {
                return i + 1;
            }
        }
    }
    return n;
}

/* The output in an answer's JSON, where only short members of ours stand before
 * it. At most ANSWER_READ_BYTES. */
static struct span output_of(const char *body, size_t n)
{
    static const char key[] = "\"output\":[";
    const char *p = n > 0 ? strstr(body, key) : NULL;
    if (p == NULL) {
        return (struct span){"[]", 2};
    }
    p += strlen(key) - 1;
    return (struct span){p, array_end(p, n - (size_t)(p - body))};
}

/* --- items that led to an answer --- */

struct listing {
    struct work work;
    struct http_req *r;  /* NULL: the client left */
    struct workq *queue; /* that has it */
    char id[64], after[96];
    bool newest_first;
    uint32_t limit;
    struct buf body, talk; /* the answer's, copied */
    struct buf items;      /* all, as JSON one behind the other; */
    struct buf ends;       /* where each ends: size_t */
    struct buf out;        /* after room for its head */
    int rc;
    const char *field;
    struct err e;
};

static void listing_free(struct listing *x)
{
    buf_fini(&x->body);
    buf_fini(&x->talk);
    buf_fini(&x->items);
    buf_fini(&x->ends);
    buf_fini(&x->out);
    free(x);
}

static size_t n_items(const struct listing *x)
{
    return x->ends.n / sizeof(size_t);
}

static struct span item_at(const struct listing *x, size_t i)
{
    const size_t *ends = (const size_t *)(const void *)x->ends.p;
    size_t from = i > 0 ? ends[i - 1] : 0;
    return (struct span){x->items.p + from, ends[i] - from};
}

static void begin_item(struct listing *x, const char *prefix, const char *type)
{
    const char *own = strchr(x->id, '_');
    buf_printf(&x->items,
               "{\"id\":\"%s%s_i%zu\",\"type\":\"%s\",\"status\":\"completed\"",
               prefix, own != NULL ? own : "", n_items(x), type);
}

static void end_item(struct listing *x)
{
    buf_puts(&x->items, "}");
    size_t n = x->items.n;
    buf_put(&x->ends, &n, sizeof(n));
}

static void put_text(struct listing *x, const char *before, const char *text,
                     size_t n, const char *behind)
{
    buf_puts(&x->items, before);
    json_put_string(&x->items, text != NULL ? text : "", n);
    buf_puts(&x->items, behind);
}

static void put_member(struct listing *x, const char *before,
                       const struct json *v)
{
    const char *s = json_str(v);
    put_text(x, before, s, s != NULL ? strlen(s) : 0, "");
}

static void put_result(struct listing *x, const struct chat_message *m,
                       const struct json *fields)
{
    begin_item(x, "fco", "function_call_output");
    put_member(x, ",\"call_id\":", json_get(fields, "tool_call_id"));
    put_text(x, ",\"output\":", m->content, m->content_n, "");
    end_item(x);
}

static void put_calls(struct listing *x, const struct json *calls)
{
    for (const struct json *v = json_first(calls); v != NULL;
         v = json_next(v)) {
        const struct json *f = json_get(v, "function");
        begin_item(x, "fc", "function_call");
        put_member(x, ",\"call_id\":", json_get(v, "id"));
        put_member(x, ",\"name\":", json_get(f, "name"));
        put_member(x, ",\"arguments\":", json_get(f, "arguments"));
        end_item(x);
    }
}

/* A message of text, with what was thought before it and the calls behind it.
 */
static void put_message(struct listing *x, const struct chat_message *m,
                        const struct json *fields)
{
    bool ours = strcmp(m->role, "assistant") == 0;
    if (m->reasoning != NULL) {
        begin_item(x, "rs", "reasoning");
        put_text(x,
                 ",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\","
                 "\"text\":",
                 m->reasoning, m->reasoning_n, "}]");
        end_item(x);
    }
    if (m->content_n > 0 || m->fields.n == 0) {
        begin_item(x, "msg", "message");
        put_text(x, ",\"role\":", m->role, strlen(m->role), "");
        put_text(x,
                 ours ? ",\"content\":[{\"type\":\"output_text\","
                        "\"annotations\":[],\"logprobs\":[],\"text\":"
                      : ",\"content\":[{\"type\":\"input_text\",\"text\":",
                 m->content, m->content_n, "}]");
        end_item(x);
    }
    put_calls(x, json_get(fields, "tool_calls"));
}

/* The messages m[0..*n) without the answer's. When it went on with the last one
 * before it, that one is cut to what it was. */
static int without_answer(const struct listing *x, struct arena *a,
                          struct chat_message *m, size_t *n, struct err *e)
{
    struct span out = output_of(x->body.p, x->body.n);
    struct chat_message *answer = NULL;
    struct json *items = NULL;
    const char *field = NULL;
    size_t count = 0;
    RETERR(json_parse(out.p, out.n, &items, e));
    int rc = responses_messages(a, items, 0, &answer, &count, &field, e);
    json_free(items);
    RETERR(rc);
    if (count > *n) {
        return err_set(e, ERR_STORE, "the conversation is damaged");
    }
    *n -= count;
    if (m[*n].content_n > answer[0].content_n) {
        m[*n].content_n -= answer[0].content_n;
        m[*n].fields = (struct span){0};
        m[*n].reasoning =
            answer[0].reasoning == NULL ? m[*n].reasoning : NULL;
        ++*n;
    }
    return 0;
}

static int list_items(struct listing *x, struct arena *a)
{
    struct chat_message *m = NULL;
    size_t n = 0;
    RETERR(talk_get(a, x->talk.p, x->talk.n, 0, 0, &m, &n, &x->e));
    RETERR(without_answer(x, a, m, &n, &x->e));
    for (size_t i = 0; i < n; i++) {
        struct json *fields = NULL;
        if (m[i].fields.n > 0) {
            RETERR(json_parse(m[i].fields.p, m[i].fields.n, &fields, &x->e));
        }
        if (strcmp(m[i].role, "tool") == 0) {
            put_result(x, &m[i], fields);
        } else {
            put_message(x, &m[i], fields);
        }
        json_free(fields);
    }
    return buf_ok(&x->items) && buf_ok(&x->ends)
               ? 0
               : err_set(&x->e, ERR_TOO_BIG, "the items are over the limit");
}

static bool has_id(struct span item, const char *id)
{
    size_t at = strlen("{\"id\":\""), n = strlen(id);
    return item.n > at + n && memcmp(item.p + at, id, n) == 0 &&
           item.p[at + n] == '"';
}

/* Item k in the order that was asked for. */
static struct span item_in_order(const struct listing *x, size_t k)
{
    return item_at(x, x->newest_first ? n_items(x) - 1 - k : k);
}

/* "first_id": "last_id": */
static void put_end(struct buf *b, const char *key, struct span item)
{
    size_t at = strlen("{\"id\":");
    const char *end =
        item.n > 0 ? memchr(item.p + at + 1, '"', item.n - at - 1) : NULL;
    buf_puts(b, key);
    if (end != NULL) {
        buf_put(b, item.p + at, (size_t)(end + 1 - item.p) - at);
    } else {
        buf_puts(b, "null");
    }
}

static int write_page(struct listing *x)
{
    struct buf *b = &x->out;
    struct span first = {0}, last = {0};
    size_t k = 0, n = n_items(x);
    while (x->after[0] != '\0' && k < n &&
           !has_id(item_in_order(x, k), x->after)) {
        k++;
    }
    if (x->after[0] != '\0' && k++ == n) {
        x->field = "after";
        return err_set(&x->e, ERR_INVALID, "after: there is no such item here");
    }
    (void)buf_grow(b, HTTP_HEAD_ROOM);
    buf_puts(b, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < x->limit && k < n; i++) {
        last = item_in_order(x, k++);
        first = i == 0 ? last : first;
        buf_puts(b, i > 0 ? "," : "");
        buf_put(b, last.p, last.n);
    }
    put_end(b, "],\"first_id\":", first);
    put_end(b, ",\"last_id\":", last);
    buf_puts(b, k < n ? ",\"has_more\":true}" : ",\"has_more\":false}");
    return buf_ok(b) ? 0
                     : err_set(&x->e, ERR_TOO_BIG,
                               "limit: the items are over the limit");
}

static void run_listing(struct work *w)
{
    struct listing *x = container_of(w, struct listing, work);
    struct arena a;
    arena_init(&a, GEN_ARENA_MAX);
    x->rc = list_items(x, &a);
    if (x->rc == 0) {
        x->rc = write_page(x);
    }
    arena_fini(&a);
}

static void listing_done(struct work *w)
{
    struct listing *x = container_of(w, struct listing, work);
    if (x->r != NULL && x->rc != 0) {
        api_fail(x->r, x->rc, x->field, x->e.msg);
    } else if (x->r != NULL) {
        http_reply_take(x->r, 200, NULL, &x->out);
    }
    listing_free(x);
}

static void listing_gone(struct http_req *r, void *user)
{
    struct listing *x = user;
    (void)r;
    x->r = NULL;
    if (workq_cancel(x->queue, &x->work)) {
        listing_free(x);
    }
}

/* limit, order and after of the query. Errors: INVALID; *field is set. */
static int read_page(struct listing *x, const char **field, struct err *e)
{
    char text[16];
    char *end = NULL;
    x->limit = ITEMS_USUAL;
    x->newest_first = true;
    *field = "limit";
    if (http_query(x->r, "limit", text, sizeof(text)) != NULL) {
        long n = strtol(text, &end, 10);
        if (*end != '\0' || text[0] == '\0' || n < 1 || n > ITEMS_MAX) {
            return err_set(e, ERR_INVALID, "limit: must be 1 to %d", ITEMS_MAX);
        }
        x->limit = (uint32_t)n;
    }
    *field = "order";
    if (http_query(x->r, "order", text, sizeof(text)) != NULL) {
        x->newest_first = strcmp(text, "desc") == 0;
        if (!x->newest_first && strcmp(text, "asc") != 0) {
            return err_set(e, ERR_INVALID, "order: must be asc or desc");
        }
    }
    (void)http_query(x->r, "after", x->after, sizeof(x->after));
    return 0;
}

void responses_list_items(struct http_req *r, const struct answer *a)
{
    struct server *s = http_ctx(r);
    struct listing *x = calloc(1, sizeof(*x));
    struct err e = {0};
    const char *field = NULL;
    must(x != NULL);
    x->r = r;
    x->queue = s->text;
    x->work.run = run_listing;
    x->work.done = listing_done;
    (void)snprintf(x->id, sizeof(x->id), "%s", a->id);
    buf_init(&x->body, ANSWER_KEPT_BYTES);
    buf_init(&x->talk, ANSWER_KEPT_BYTES);
    buf_init(&x->items, 6 * ANSWER_KEPT_BYTES);
    buf_init(&x->ends, MIB(16));
    buf_init(&x->out, HTTP_REPLY_MAX - KIB(4));
    int rc = read_page(x, &field, &e);
    if (rc == 0) {
        buf_put(&x->body, a->body.p, a->body.n);
        buf_put(&x->talk, a->talk.p, a->talk.n);
        field = NULL;
        rc = workq_put(s->text, &x->work);
    }
    if (rc != 0) {
        api_fail(r, rc, field,
                 field != NULL ? e.msg : "too many texts wait to be tokenised");
        listing_free(x);
        return;
    }
    http_on_gone(r, listing_gone, x);
}

/* --- items that are named --- */

/* The id that v is a reference to; NULL: it is none. */
static const char *reference(const struct json *v)
{
    const char *type = json_str(json_get(v, "type"));
    const char *id = json_str(json_get(v, "id"));
    if (type == NULL || strcmp(type, "item_reference") != 0) {
        return NULL;
    }
    return id != NULL ? id : "";
}

bool responses_has_references(const struct json *input)
{
    for (const struct json *v = json_first(input); v != NULL;
         v = json_next(v)) {
        if (reference(v) != NULL) {
            return true;
        }
    }
    return false;
}

/* Where output items are looked up: those of one answer, read once for all that
 * stand together. */
struct lookup {
    struct call *c;
    const struct answer *a;
    struct json *output;
    size_t bytes; /* of all that were read */
};

static int read_output(struct lookup *l, const struct answer *a, struct err *e)
{
    struct span out = output_of(a->body.p, a->body.n);
    json_free(l->output);
    l->output = NULL;
    l->a = a;
    l->bytes += out.n;
    return l->bytes <= ANSWER_READ_BYTES
               ? json_parse(out.p, out.n, &l->output, e)
               : err_set(e, ERR_TOO_BIG,
                         "input: the items of its references are over the "
                         "limit of %zu bytes",
                         (size_t)ANSWER_READ_BYTES);
}

/* Item `id` is "msg_X_0": of the answer "resp_X". */
static int find_item(struct lookup *l, const char *id,
                     const struct json **ret, struct err *e)
{
    char answer[64];
    const char *own = strchr(id, '_');
    const char *end = own != NULL ? strrchr(own + 1, '_') : NULL;
    *ret = NULL;
    if (end != NULL) {
        (void)snprintf(answer, sizeof(answer), "resp%.*s", (int)(end - own),
                       own);
        const struct answer *a = answers_find(l->c->srv->answers, answer);
        if (a != NULL && a != l->a) {
            RETERR(read_output(l, a, e));
        }
        const struct json *v = a != NULL ? json_first(l->output) : NULL;
        while (v != NULL && strcmp(json_str(json_get(v, "id")), id) != 0) {
            v = json_next(v);
        }
        *ret = v;
    }
    if (*ret == NULL) {
        return err_set(e, ERR_NOT_FOUND, "Item with id '%.96s' not found.", id);
    }
    if (strcmp(answer, responses_of(l->c)->previous) == 0) {
        return err_set(e, ERR_INVALID,
                       "Duplicate item found with id %.96s: it is in "
                       "previous_response_id already.",
                       id);
    }
    return 0;
}

int responses_refer(struct call *c, const struct json *input,
                    struct json **ret, struct err *e)
{
    struct lookup l = {.c = c};
    int rc = 0;
    *ret = json_array();
    for (const struct json *v = json_first(input); v != NULL && rc == 0;
         v = json_next(v)) {
        const char *id = reference(v);
        const struct json *item = v;
        rc = id != NULL ? find_item(&l, id, &item, e) : 0;
        if (rc == 0) {
            json_add_tree(*ret, NULL, json_copy(item));
        }
    }
    json_free(l.output);
    if (rc != 0) {
        json_free(*ret);
        *ret = NULL;
    }
    return rc;
}
