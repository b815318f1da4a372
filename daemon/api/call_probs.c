/* call_probs.c - log-probabilities of an answer, as objects and in OpenAI's
 * legacy form of four parallel arrays. They are kept as JSON text: a tree takes
 * ten times the bytes.
 *
 *   probs_note -> [ sure | pending ]  probs_confirm: all entries become sure
 *                                     probs_drop: pending entries are removed
 *                                     probs_write: sure entries are written
 *
 * A token's entry is written with the text of the token. While that text may
 * still be part of a stop string, the entry is pending; entries of text that a
 * stop string cut off are never written. Each entry of a list begins with a
 * comma. */
#include <math.h>
#include <string.h>

#include "api/call_impl.h"
#include "base/utf8.h"

#define LOGPROB_FLOOR (-9999.0f) /* OpenAI's figure for "impossible" */

/* The lists of the legacy form; the other has the first alone, of objects. */
enum { TOKENS, LOGPROBS, TOP, OFFSETS };

void probs_init(struct probs *p)
{
    for (size_t i = 0; i < PROBS_LISTS; i++) {
        buf_init(&p->list[i].text, 2 * ANSWER_BYTES_MAX);
        p->list[i].sure = 0;
    }
}

void probs_fini(struct probs *p)
{
    for (size_t i = 0; i < PROBS_LISTS; i++) {
        buf_fini(&p->list[i].text);
        p->list[i].sure = 0;
    }
}

static struct span piece(const struct call *c, int32_t id)
{
    return tokenizer_piece(gen_tokenizer(c->gen), id, true);
}

/* NAN: the prompt's first token, which nothing came before. */
static void put_logprob(struct buf *b, float x)
{
    if (isnan(x)) {
        buf_puts(b, "null");
        return;
    }
    json_put_float(b, isfinite(x) ? x : LOGPROB_FLOOR);
}

/* The members of a token's object, without its braces. */
static void put_token(struct buf *b, const struct call *c, int32_t id,
                      float logprob)
{
    struct span s = piece(c, id);
    buf_puts(b, "\"id\":");
    buf_dec(b, (uint64_t)id);
    buf_puts(b, ",\"token\":");
    json_put_string(b, s.p, s.n);
    buf_puts(b, ",\"logprob\":");
    put_logprob(b, logprob);
    buf_puts(b, ",\"bytes\":[");
    for (size_t i = 0; i < s.n; i++) {
        buf_puts(b, i > 0 ? "," : "");
        buf_dec(b, (uint8_t)s.p[i]);
    }
    buf_puts(b, "]");
}

static void object_entry(struct buf *b, const struct call *c,
                         const struct msg_token *t)
{
    buf_puts(b, ",{");
    put_token(b, c, t->id, t->logprob);
    buf_puts(b, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < t->n_top; i++) {
        buf_puts(b, i > 0 ? ",{" : "{");
        put_token(b, c, t->top[i].id, t->top[i].logprob);
        buf_puts(b, "}");
    }
    buf_puts(b, "]}");
}

/* {"text":prob, ...}: as many as the request wants, and the token itself. Two
 * ids may have the same text in JSON; the likelier one, which comes first,
 * keeps it. */
static void legacy_top(struct buf *b, const struct call *c,
                       const struct msg_token *t)
{
    struct {
        size_t at, n;
    } key[ENGINE_LOGPROBS_MAX + 1];
    size_t n_keys = 0;
    buf_puts(b, ",{");
    for (uint32_t i = 0; i <= t->n_top; i++) {
        int32_t id = i < t->n_top ? t->top[i].id : t->id;
        struct span s = piece(c, id);
        size_t from = b->n;
        buf_puts(b, n_keys > 0 ? "," : "");
        size_t at = b->n, k = 0;
        json_put_string(b, s.p, s.n);
        size_t n = b->n - at;
        while (k < n_keys && buf_ok(b) &&
               (key[k].n != n || memcmp(b->p + key[k].at, b->p + at, n) != 0)) {
            k++;
        }
        if (k < n_keys) {
            b->n = from;
            continue;
        }
        key[n_keys].at = at;
        key[n_keys++].n = n;
        buf_puts(b, ":");
        put_logprob(b, i < t->n_top ? t->top[i].logprob : t->logprob);
    }
    buf_puts(b, "}");
}

static void legacy_entry(const struct call *c, struct probs *p,
                         const struct msg_token *t, size_t offset)
{
    struct span s = piece(c, t->id);
    struct buf *tokens = &p->list[TOKENS].text;
    struct buf *logprobs = &p->list[LOGPROBS].text;
    struct buf *offsets = &p->list[OFFSETS].text;
    buf_puts(tokens, ",");
    json_put_string(tokens, s.p, s.n);
    buf_puts(logprobs, ",");
    put_logprob(logprobs, t->logprob);
    if (isnan(t->logprob)) {
        buf_puts(&p->list[TOP].text, ",null");
    } else {
        legacy_top(&p->list[TOP].text, c, t);
    }
    buf_puts(offsets, ",");
    buf_dec(offsets, offset);
}

void probs_note(const struct call *c, struct call_choice *x,
                const struct msg_token *t)
{
    if (c->d->probs == PROBS_OBJECTS) {
        object_entry(&x->probs.list[TOKENS].text, c, t);
    } else {
        legacy_entry(c, &x->probs, t, x->offset);
        struct span s = piece(c, t->id);
        x->offset += utf8_count(s.p, s.n);
    }
}

void probs_prompt(const struct call *c, struct call_gen *g,
                  const struct msg_token *t, size_t width)
{
    must(c->d->probs == PROBS_ARRAYS); /* the dialect with echo */
    legacy_entry(c, &g->prompt, t, g->offset);
    g->offset += width;
    probs_confirm(&g->prompt);
}

void probs_confirm(struct probs *p)
{
    for (size_t i = 0; i < PROBS_LISTS; i++) {
        p->list[i].sure = p->list[i].text.n;
    }
}

void probs_drop(struct probs *p)
{
    for (size_t i = 0; i < PROBS_LISTS; i++) {
        p->list[i].text.n = p->list[i].sure;
    }
}

size_t probs_bytes(const struct probs *p)
{
    size_t n = 0;
    for (size_t i = 0; i < PROBS_LISTS; i++) {
        n += p->list[i].text.n;
    }
    return n;
}

bool probs_ok(const struct probs *p)
{
    bool ok = true;
    for (size_t i = 0; i < PROBS_LISTS; i++) {
        ok = ok && buf_ok(&p->list[i].text);
    }
    return ok;
}

/* [the prompt's, entries that are sure]; those are used up. */
static void put_list(struct buf *b, struct probs *p, size_t i)
{
    struct buf *text = &p->list[i].text;
    const struct buf *before =
        p->before != NULL ? &p->before->list[i].text : NULL;
    size_t skip = 1; /* the first one's comma */
    size_t n = p->list[i].sure;
    buf_puts(b, "[");
    if (before != NULL && before->n > 0) {
        buf_put(b, before->p + 1, before->n - 1);
        skip = 0;
    }
    if (n > 0) {
        buf_put(b, text->p + skip, n - skip);
        buf_shift(text, n);
    }
    buf_puts(b, "]");
    p->list[i].sure = 0;
}

void probs_write(struct buf *b, const struct call *c, struct probs *p)
{
    static const char *const names[PROBS_LISTS] = {
        "{\"tokens\":", ",\"token_logprobs\":", ",\"top_logprobs\":",
        ",\"text_offset\":"};
    if (c->d->probs == PROBS_OBJECTS) {
        put_list(b, p, TOKENS);
        return;
    }
    for (size_t i = 0; i < PROBS_LISTS; i++) {
        buf_puts(b, names[i]);
        put_list(b, p, i);
    }
    p->before = NULL;
    buf_puts(b, "}");
}
