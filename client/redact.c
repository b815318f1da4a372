/* redact.c - see redact.h.
 *
 *     side       part            side
 *   |--------|=============|------------|
 *   first   done          end          stop       offsets in the buffer
 *
 * A span that begins in the part is taken whole, also where it ends behind it:
 * the next part begins there. One that a later request sees begin in what is
 * done already is taken from there on, so that nothing found is let through. */
#include "client/redact.h"

#include <string.h>

#include "base/num.h"
#include "base/utf8.h"
#include "proto/json.h"
#include "proto/limits.h"

struct text {
    const struct redact *r;
    char *p;          /* ROOM bytes */
    size_t n, done;   /* bytes there are; that were decided about */
    bool end;         /* there is no more to read */
    size_t checked;   /* bytes that are UTF-8 */
    uint64_t byte;    /* where p begins in the text */
    uint64_t character;
};

#define ROOM (REDACT_PART + 2 * (size_t)REDACT_SIDE)

/* --- places --- */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool begins(const char *p, size_t n, size_t at)
{
    return at == n || ((uint8_t)p[at] & 0xc0u) != 0x80u;
}

/* How good a cut before p[at] is; 0: inside a character. */
static int worth(const char *p, size_t n, size_t at)
{
    if (!begins(p, n, at)) {
        return 0;
    }
    if (p[at - 1] == '\n') {
        return at == n || !is_space(p[at]) ? 4 : 3;
    }
    return at < n && p[at] == ' ' && !is_space(p[at - 1]) ? 2 : 1;
}

size_t redact_cut(const char *p, size_t n, size_t from, size_t to)
{
    size_t best = to;
    int most = 0;
    for (size_t at = to; at > from && most < 4; at--) {
        int w = worth(p, n, at);
        best = w > most ? at : best;
        most = w > most ? w : most;
    }
    return best;
}

/* --- the text --- */

static int check(struct text *t, struct err *e)
{
    while (t->checked < t->n) {
        size_t len = 0;
        const char *p = t->p + t->checked;
        enum utf8_kind k = utf8_seq(p, t->n - t->checked, &len);
        if (k == UTF8_PART && !t->end) {
            return 0;
        }
        if (k != UTF8_OK || *p == '\0') {
            return err_set(e, ERR_INVALID,
                           "the text is not UTF-8 at byte %llu%s",
                           (unsigned long long)(t->byte + t->checked),
                           *p == '\0' ? ": a NUL" : "");
        }
        t->checked += len;
    }
    return 0;
}

/* Drop what is no context any more, and read until the buffer is full. */
static int fill(struct text *t, struct err *e)
{
    size_t first = t->done > REDACT_SIDE ? t->done - REDACT_SIDE : 0;
    while (first > 0 && !begins(t->p, t->n, first)) {
        first--;
    }
    t->byte += first;
    t->character += utf8_count(t->p, first);
    memmove(t->p, t->p + first, t->n - first);
    t->n -= first;
    t->done -= first;
    t->checked -= first;
    while (!t->end && t->n < ROOM) {
        int got = t->r->read(t->r->ctx, t->p + t->n, ROOM - t->n, e);
        if (got < 0) {
            return got;
        }
        t->end = got == 0;
        t->n += (size_t)got;
    }
    return check(t, e);
}

/* --- a request --- */

static int ask_spans(const struct text *t, size_t first, size_t stop,
                     struct json **ret, struct err *e)
{
    const struct redact *r = t->r;
    struct json *body = json_object();
    json_add_str(body, "model", r->model);
    json_add_strn(body, "input", t->p + first, stop - first);
    if (r->labels != NULL) {
        json_add_tree(body, "labels", json_copy(r->labels));
    }
    int rc = ask(r->c, "POST", "/aned/v1/classify", body, ret, e);
    json_free(body);
    return rc;
}

/* Bytes [*from, *to) of the buffer; behind the one before, at `least`. */
static int read_span(const struct json *j, size_t first, size_t stop,
                     size_t least, size_t *from, size_t *to, struct err *e)
{
    double a = json_num(json_get(j, "start_byte"));
    double b = json_num(json_get(j, "end_byte"));
    if (json_str(json_get(j, "label")) == NULL || !(a >= 0 && a < b) ||
        !(b <= (double)(stop - first)) || first + (size_t)a < least) {
        return err_set(e, ERR_HTTP, "the daemon answers something else");
    }
    *from = first + (size_t)a;
    *to = first + (size_t)b;
    return 0;
}

static int keep(const struct text *t, size_t from, size_t to, struct err *e)
{
    return from < to ? t->r->keep(t->r->ctx, t->p + from, to - from, e) : 0;
}

static int give(const struct text *t, const struct json *j, size_t from,
                size_t to, struct err *e)
{
    const struct redact_span s = {
        .label = json_str(json_get(j, "label")),
        .score = json_num(json_get(j, "score")),
        .byte = t->byte + from,
        .n = to - from,
        .character = t->character + utf8_count(t->p, from),
        .n_characters = utf8_count(t->p + from, to - from),
        .text = t->p + from,
    };
    return t->r->span(t->r->ctx, &s, e);
}

/* The spans that begin before `end`, and the text between them. */
static int take_spans(struct text *t, const struct json *spans, size_t first,
                      size_t end, size_t stop, struct err *e)
{
    size_t last = first;
    for (const struct json *j = json_first(spans); j != NULL;
         j = json_next(j)) {
        size_t from = 0;
        size_t to = 0;
        RETERR(read_span(j, first, stop, last, &from, &to, e));
        last = to;
        from = from < t->done ? t->done : from;
        if (from >= to) {
            continue; /* the part before has it */
        }
        if (from >= end) {
            break;
        }
        RETERR(keep(t, t->done, from, e));
        RETERR(give(t, j, from, to, e));
        t->done = to;
    }
    RETERR(keep(t, t->done, end, e));
    t->done = t->done < end ? end : t->done;
    return 0;
}

static int take_part(struct text *t, struct err *e)
{
    size_t n = t->checked; /* a character may have its end still to come */
    bool all = t->end && n - t->done <= REDACT_PART + REDACT_SIDE;
    size_t end = n;
    size_t stop = n;
    size_t first = 0;
    if (!all) {
        size_t most = t->done + REDACT_PART;
        end = redact_cut(t->p, n, most - REDACT_PART / 2, most);
        most = num_min(n, end + REDACT_SIDE);
        stop = redact_cut(t->p, n, end + (most - end) / 2, most);
    }
    if (t->byte > 0 && t->done / 2 > 1) { /* whole lines, if there are some */
        first = redact_cut(t->p, n, 1, t->done / 2);
    }
    struct json *j = NULL;
    RETERR(ask_spans(t, first, stop, &j, e));
    const struct json *result = json_first(json_get(j, "results"));
    const struct json *spans =
        result != NULL ? json_get(result, "spans") : NULL;
    int rc = spans != NULL && json_type(spans) == JSON_ARRAY
                 ? take_spans(t, spans, first, end, stop, e)
                 : err_set(e, ERR_HTTP, "the daemon answers something else");
    json_free(j);
    return rc;
}

int redact_run(const struct redact *r, struct err *e)
{
    struct text t = {.r = r, .p = malloc(ROOM)};
    int rc = t.p != NULL ? 0 : err_set(e, ERR_NOMEM, "a part of the text");
    while (rc == 0) {
        rc = fill(&t, e);
        if (rc == 0 && t.n == t.done) {
            break;
        }
        rc = rc == 0 ? take_part(&t, e) : rc;
    }
    free(t.p);
    return rc;
}
