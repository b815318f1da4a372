/* accept_draw.c - generations as token ids, for comparison.
 *
 * A session is begun with the prompt and continued greedily; its tokens are the
 * daemon's own record of what was drawn. Log-probabilities of the two likeliest
 * tokens come with the answer. */
#include <string.h>

#include "base/num.h"
#include "client/accept.h"

#define SESSIONS "/aned/v1/sessions"

static int bad(struct err *e, const char *what)
{
    return err_set(e, ERR_INTERNAL, "the daemon's answer has no %s", what);
}

/* An array of token ids. */
static int read_ids(const struct json *list, struct draw *d, struct err *e)
{
    d->n = 0;
    for (const struct json *c = json_first(list); c != NULL; c = json_next(c)) {
        int64_t id = 0;
        if (d->n == ACCEPT_TOKENS_MAX || !json_int(c, 0, INT32_MAX, &id)) {
            return bad(e, "list of tokens");
        }
        d->ids[d->n++] = (int32_t)id;
    }
    return d->n > 0 ? 0 : bad(e, "tokens");
}

/* {"text": logprob, ...} of the likeliest tokens, the first is the likeliest.
 * Two of one text share an entry: then the lead is not known, and counts as
 * none. */
static double lead_of(const struct json *top)
{
    const struct json *first = json_first(top);
    const struct json *second = first != NULL ? json_next(first) : NULL;
    return second != NULL ? json_num(first) - json_num(second) : 0;
}

static void read_leads(const struct json *answer, struct draw *d)
{
    const struct json *choice = json_first(json_get(answer, "choices"));
    const struct json *top =
        json_get(json_get(choice, "logprobs"), "top_logprobs");
    size_t i = 0;
    memset(d->lead, 0, sizeof(d->lead));
    for (const struct json *c = json_first(top);
         c != NULL && i < ACCEPT_TOKENS_MAX; c = json_next(c)) {
        d->lead[i++] = lead_of(c);
    }
}

static void read_usage(const struct json *answer, struct draw *d)
{
    const struct json *t = json_get(answer, "timings");
    const struct json *ms = json_get(t, "predicted_ms");
    d->cached = (uint32_t)json_num(json_get(t, "cache_n"));
    d->drafted = (uint32_t)json_num(json_get(t, "draft_n"));
    d->accepted = (uint32_t)json_num(json_get(t, "draft_n_accepted"));
    d->on_cpu = json_bool(json_get(t, "package_on_cpu"));
    d->ms = json_num(ms);
}

/* --- requests --- */

static int begin(struct accept *a, const struct draw_wish *w, char id[64],
                 uint32_t *ret_prompt, struct err *e)
{
    struct json *j = NULL;
    struct json *body = json_object();
    json_add_str(body, "model", w->model);
    json_add_str(body, "prompt", w->prompt);
    RETERR(box_ask(a, "POST", SESSIONS, body, &j, e));
    (void)snprintf(id, 64, "%s", ask_str(j, "id"));
    *ret_prompt = (uint32_t)json_num(json_get(j, "n_tokens"));
    json_free(j);
    return id[0] != '\0' ? 0 : bad(e, "session");
}

static struct json *request(const struct draw_wish *w)
{
    struct json *body = json_object();
    json_add_int(body, "max_tokens", w->n);
    json_add_num(body, "temperature", 0);
    json_add_bool(body, "ignore_eos", true);
    if (w->on_first != NULL) {
        json_add_bool(body, "stream", true);
    } else {
        json_add_int(body, "logprobs", 2);
    }
    if (w->guess != NULL) {
        struct json *o = json_add_object(body, "prediction");
        json_add_str(o, "type", "content");
        struct json *list = json_add_array(o, "content");
        for (uint32_t i = w->guess->n_prompt; i < w->guess->n; i++) {
            json_add_int(list, NULL, w->guess->ids[i]);
        }
    }
    return body;
}

struct streaming {
    const struct draw_wish *w;
    bool begun, done;
    struct err *e;
};

/* sse_fn */
static int on_event(void *user, const char *event, const char *data, size_t n,
                    struct err *e)
{
    struct streaming *s = user;
    struct json *j = NULL;
    (void)event;
    if (n == 6 && memcmp(data, "[DONE]", n) == 0) {
        s->done = true;
        return 0;
    }
    RETERR(json_parse(data, n, &j, e));
    bool failed = json_get(j, "error") != NULL;
    json_free(j);
    if (failed) {
        return ask_error(500, data, n, e);
    }
    if (!s->begun) {
        s->begun = true;
        s->w->on_first(s->w->ctx);
    } else if (s->w->on_next != NULL) {
        s->w->on_next(s->w->ctx);
    }
    return 0;
}

/* body is taken over. */
static int stream(struct accept *a, const char *path, struct json *body,
                  const struct draw_wish *w, struct err *e)
{
    struct streaming s = {.w = w};
    a->client.peer.end_s = a->end_s;
    int rc = ask_events(&a->client, "POST", path, body, on_event, &s, e);
    json_free(body);
    return rc != 0 || s.done ? rc : bad(e, "end");
}

static int generate(struct accept *a, const char *id, const struct draw_wish *w,
                    struct draw *d, struct err *e)
{
    char path[160];
    struct json *j = NULL;
    RETERR(ask_path(path, sizeof(path), SESSIONS "/", id, "/generate", e));
    if (w->on_first != NULL) {
        return stream(a, path, request(w), w, e);
    }
    RETERR(box_ask(a, "POST", path, request(w), &j, e));
    read_leads(j, d);
    read_usage(j, d);
    json_free(j);
    return 0;
}

static int read_tokens(struct accept *a, const char *id, struct draw *d,
                       struct err *e)
{
    char path[160];
    struct json *j = NULL;
    RETERR(ask_path(path, sizeof(path), SESSIONS "/", id, "", e));
    RETERR(box_ask(a, "GET", path, NULL, &j, e));
    int rc = read_ids(json_get(j, "tokens"), d, e);
    json_free(j);
    return rc;
}

static void drop(struct accept *a, const char *id)
{
    char path[160];
    struct json *j = NULL;
    struct err none = {0};
    if (ask_path(path, sizeof(path), SESSIONS "/", id, "", &none) == 0 &&
        box_ask(a, "DELETE", path, NULL, &j, &none) == 0) {
        json_free(j);
    }
}

int draw(struct accept *a, const struct draw_wish *w, struct draw *ret,
         struct err *e)
{
    char own[64] = "";
    char *id = w->session != NULL ? w->session : own;
    uint32_t before = 0;
    *ret = (struct draw){0};
    if (w->prompt != NULL) {
        RETERR(begin(a, w, id, &ret->n_prompt, e));
    } else {
        RETERR(read_tokens(a, id, ret, e));
        ret->n_prompt = ret->n;
    }
    before = ret->n_prompt;
    int rc = generate(a, id, w, ret, e);
    if (rc == 0) {
        rc = read_tokens(a, id, ret, e);
    }
    if (w->session == NULL) {
        drop(a, id);
    }
    if (rc == 0 && ret->n != before + w->n) {
        rc = err_set(e, ERR_INTERNAL, "%u tokens were drawn, not %u",
                     ret->n - before, w->n);
    }
    return rc;
}

int draw_stream(struct accept *a, const struct draw_wish *w, struct err *e)
{
    struct json *body = request(w);
    json_add_str(body, "model", w->model);
    json_add_str(body, "prompt", w->prompt);
    json_add_int(body, "n", w->choices > 0 ? w->choices : 1);
    return stream(a, "/v1/completions", body, w, e);
}

/* --- compared --- */

bool draw_same(struct accept *a, const char *what, const struct draw *want,
               const struct draw *got)
{
    size_t n = num_min(want->n, got->n);
    size_t i = 0;
    while (i < n && want->ids[i] == got->ids[i]) {
        i++;
    }
    if (i == n && want->n == got->n) {
        accept_pass(a, "%s: the same %u tokens", what, got->n - got->n_prompt);
        return true;
    }
    accept_fail(a,
                "%s: token %zu of %u is %d, not %d; before it all are the same",
                what, i, want->n, i < got->n ? got->ids[i] : -1,
                i < want->n ? want->ids[i] : -1);
    return false;
}

bool draw_expected(const struct accept *a, size_t i, const char **prompt,
                   struct draw *ret)
{
    const struct json *r = json_first(json_get(a->expected, "runs"));
    struct err none = {0};
    int64_t n_prompt = 0;
    while (r != NULL && i-- > 0) {
        r = json_next(r);
    }
    *ret = (struct draw){0};
    *prompt = json_str(json_get(r, "prompt"));
    if (*prompt == NULL || read_ids(json_get(r, "tokens"), ret, &none) < 0 ||
        !json_int(json_get(r, "n_prompt"), 1, ret->n - 1, &n_prompt)) {
        return false;
    }
    ret->n_prompt = (uint32_t)n_prompt;
    return true;
}
