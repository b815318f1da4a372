/* openai_probs.c - log-probabilities of an answer, chat's form and the legacy
 * one of four parallel arrays.
 *
 *   probs_note -> pending --probs_confirm--> sure -> probs_put
 *                    \--probs_drop
 *
 * A token's entry leaves with the text of the token: while a stop string may
 * still take that text back the entry is pending, and what a stop string cut
 * off is never shown. */
#include <math.h>

#include "api/openai_impl.h"

#define LOGPROB_FLOOR (-9999.0) /* OpenAI's figure for "impossible" */

static double floor_of(float x)
{
    double d = (double)x;
    return isfinite(d) ? d : LOGPROB_FLOOR;
}

static struct span piece(const struct call *c, int32_t id)
{
    return tokenizer_piece(gen_tokenizer(c->gen), id, true);
}

static void put_token(struct json *o, const struct call *c, int32_t id,
                      float logprob)
{
    struct span s = piece(c, id);
    json_add_int(o, "id", id);
    json_add_strn(o, "token", s.p, s.n);
    json_add_num(o, "logprob", floor_of(logprob));
    struct json *b = json_add_array(o, "bytes");
    for (size_t i = 0; i < s.n; i++) {
        json_add_int(b, NULL, (uint8_t)s.p[i]);
    }
}

static struct json *chat_entry(const struct call *c, const struct msg_token *t)
{
    struct json *o = json_object();
    put_token(o, c, t->id, t->logprob);
    struct json *top = json_add_array(o, "top_logprobs");
    for (uint32_t i = 0; i < t->n_top; i++) {
        put_token(json_add_object(top, NULL), c, t->top[i].id,
                  t->top[i].logprob);
    }
    return o;
}

/* {"text":prob, ...}: as many as asked for, and the token itself. Two ids may
 * have one text; the likelier one, which comes first, keeps it. */
static void put_legacy_top(struct json *o, const struct call *c,
                           const struct msg_token *t)
{
    for (uint32_t i = 0; i <= t->n_top; i++) {
        int32_t id = i < t->n_top ? t->top[i].id : t->id;
        float p = i < t->n_top ? t->top[i].logprob : t->logprob;
        struct json *text = json_array(); /* the text as JSON will show it */
        struct span s = piece(c, id);
        json_add_strn(text, NULL, s.p, s.n);
        const char *key = json_str(json_first(text));
        if (json_get(o, key) == NULL) {
            json_add_num(o, key, floor_of(p));
        }
        json_free(text);
    }
}

static size_t characters(struct span s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        n += ((uint8_t)s.p[i] & 0xc0u) != 0x80u ? 1 : 0;
    }
    return n;
}

/* One token's part of the four parallel arrays, kept as an object until they
 * are written. */
static struct json *legacy_entry(const struct call *c, struct call_choice *x,
                                 const struct msg_token *t)
{
    struct span s = piece(c, t->id);
    struct json *o = json_object();
    json_add_strn(o, "token", s.p, s.n);
    json_add_num(o, "logprob", floor_of(t->logprob));
    put_legacy_top(json_add_object(o, "top"), c, t);
    json_add_int(o, "offset", (int64_t)x->offset);
    x->offset += characters(s);
    return o;
}

void probs_note(const struct call *c, struct call_choice *x,
                const struct msg_token *t)
{
    if (x->probs.pending == NULL) {
        x->probs.pending = json_array();
    }
    json_add_tree(x->probs.pending, NULL,
                  c->chat ? chat_entry(c, t) : legacy_entry(c, x, t));
}

void probs_confirm(struct probs *p)
{
    if (p->pending == NULL) {
        return;
    }
    if (p->sure == NULL) {
        p->sure = p->pending;
    } else {
        for (const struct json *v = json_first(p->pending); v != NULL;
             v = json_next(v)) {
            json_add_tree(p->sure, NULL, json_copy(v));
        }
        json_free(p->pending);
    }
    p->pending = NULL;
}

void probs_drop(struct probs *p)
{
    json_free(p->pending);
    p->pending = NULL;
}

static void add_copy(struct json *to, const char *key, const struct json *v)
{
    json_add_tree(to, key, json_copy(v));
}

void probs_put(struct json *o, const struct call *c, struct probs *p)
{
    if (!c->p.logprobs) {
        json_add_null(o, "logprobs");
        return;
    }
    struct json *l = json_add_object(o, "logprobs");
    struct json *sure = p->sure != NULL ? p->sure : json_array();
    p->sure = NULL;
    if (c->chat) {
        json_add_tree(l, "content", sure);
        return;
    }
    struct json *tokens = json_add_array(l, "tokens");
    struct json *probs = json_add_array(l, "token_logprobs");
    struct json *top = json_add_array(l, "top_logprobs");
    struct json *at = json_add_array(l, "text_offset");
    for (const struct json *v = json_first(sure); v != NULL; v = json_next(v)) {
        add_copy(tokens, NULL, json_get(v, "token"));
        add_copy(probs, NULL, json_get(v, "logprob"));
        add_copy(top, NULL, json_get(v, "top"));
        add_copy(at, NULL, json_get(v, "offset"));
    }
    json_free(sure);
}

void probs_fini(struct probs *p)
{
    json_free(p->sure);
    json_free(p->pending);
}
