/* constrain.c - the constraint of an answer: a thought, then text or calls.
 *
 *   [ open .. close ] ( answer | text | [ text ] mark calls )
 *
 * White space that is no text may stand before the first marks: some templates
 * write it.
 *
 * Text is what the parser takes for text: it has none of the form's marks, and
 * begins neither as a call that has no mark nor as a thought. With the mark the
 * calls begin, and behind them nothing comes. */
#include <string.h>

#include "model/reply/constrain_impl.h"

#define BLANK "\n{0,3}| "

/* --- text --- */

static void put_list(struct parts *p, const char *const *list, size_t n)
{
    buf_puts(p->b, "[");
    for (size_t i = 0; i < n; i++) {
        buf_puts(p->b, i > 0 ? "," : "");
        json_put_string(p->b, list[i], strlen(list[i]));
    }
    buf_puts(p->b, "]");
}

/* Text without these strings, which does not begin with those; up to `until`
 * unless that is NULL. */
static void put_text(struct parts *p, const char *until,
                     const char *const *without, size_t n,
                     const char *const *first, size_t n_first)
{
    buf_puts(p->b, p->comma ? ",{" : "{");
    if (until != NULL) {
        buf_puts(p->b, "\"until\":");
        json_put_string(p->b, until, strlen(until));
        buf_puts(p->b, ",");
    }
    buf_puts(p->b, "\"without\":");
    put_list(p, without, n);
    buf_puts(p->b, ",\"without_first\":");
    put_list(p, first, n_first);
    buf_puts(p->b, "}");
    p->comma = true;
}

/* Text of an answer; `until`: the mark that begins the calls. */
static void free_text(struct constrain *c, bool calls, const char *until)
{
    const char *without[REPLY_ROWS_MAX];
    const char *first[REPLY_ROWS_MAX];
    size_t n = 0;
    size_t n_first = 0;
    size_t n_rows = 0;
    const struct reply_row *rows = reply_rows(c->f->tools, &n_rows);
    must(n_rows < REPLY_ROWS_MAX);
    if (c->f->thoughts == REPLY_THINK) {
        first[n_first++] = c->f->open;
    }
    for (size_t i = 0; i < n_rows && calls; i++) {
        const char *mark = rows[i].mark;
        if (rows[i].at_start) {
            first[n_first++] = mark;
        } else if (until == NULL || strcmp(mark, until) != 0) {
            without[n++] = mark;
        }
    }
    put_text(&c->p, until, without, n, first, n_first);
}

/* The answer proper, where no call comes. */
static void answer(struct constrain *c)
{
    const struct reply_want *w = c->w;
    const struct reply_spelling *sp = c->f->spelling;
    if (w->tools != NULL && sp != NULL && sp->say != NULL) {
        parts_text(&c->p, sp->say);
    }
    if (w->answer != NULL) {
        parts_raw(&c->p, w->answer);
    } else {
        free_text(c, w->tools != NULL, NULL);
    }
}

/* --- text or calls --- */

static int calls(struct constrain *c, bool text)
{
    const struct reply_spelling *sp = c->f->spelling;
    parts_begin(&c->p, "seq");
    if (text && sp->mark != NULL) {
        if (sp->say != NULL) { /* the first mark may be in the prompt */
            parts_begin(&c->p, "any");
            parts_nothing(&c->p);
            parts_begin(&c->p, "seq");
            parts_text(&c->p, sp->say);
        }
        free_text(c, true, sp->mark);
        if (sp->say != NULL) {
            parts_end(&c->p);
            parts_end(&c->p);
        }
    } else if (sp->say == NULL) {
        parts_regex(&c->p, BLANK);
        parts_text(&c->p, sp->mark != NULL ? sp->mark : "");
    }
    int rc = constrain_calls(c, sp);
    parts_end(&c->p);
    return rc;
}

static int text_or_calls(struct constrain *c)
{
    int rc = 0;
    switch (c->w->kind) {
    case WANT_CALL:
        return calls(c, false);
    case WANT_AUTO:
        parts_begin(&c->p, "any");
        parts_begin(&c->p, "seq");
        answer(c);
        parts_end(&c->p);
        rc = calls(c, c->w->answer == NULL);
        parts_end(&c->p);
        return rc;
    case WANT_ANSWER:
    default:
        answer(c);
        return 0;
    }
}

/* --- thoughts --- */

static void end_thought(struct constrain *c)
{
    parts_put(&c->p, "until", c->f->close, strlen(c->f->close));
    parts_regex(&c->p, BLANK);
}

static void thought(struct constrain *c)
{
    if (c->f->thoughts != REPLY_THINK || c->w->thoughts_off) {
        return;
    }
    if (c->w->thoughts_open) {
        end_thought(c);
        return;
    }
    parts_begin(&c->p, "any");
    parts_nothing(&c->p);
    parts_begin(&c->p, "seq");
    parts_regex(&c->p, BLANK);
    parts_text(&c->p, c->f->open);
    end_thought(c);
    parts_end(&c->p);
    parts_end(&c->p);
}

int reply_constraint(const struct reply_forms *f, const struct reply_want *w,
                     struct buf *out, struct err *e)
{
    struct reply_want want = *w;
    struct constrain c = {.f = f, .w = &want, .p = {.b = out}, .e = e};
    bool no_tools = json_first(w->tools) == NULL;
    if (w->kind == WANT_AUTO && no_tools) {
        want.kind = WANT_ANSWER;
    }
    if (w->kind == WANT_CALL && no_tools) {
        return constrain_no_tool(&c);
    }
    if (want.kind != WANT_ANSWER && f->spelling == NULL &&
        f->thoughts != REPLY_CHANNEL) {
        return err_set(e, ERR_UNSUPPORTED,
                       "the model's chat template shows no form of calls");
    }
    size_t start = out->n;
    int rc = 0;
    if (f->thoughts == REPLY_CHANNEL) {
        rc = constrain_harmony(&c);
    } else {
        parts_begin(&c.p, "seq");
        thought(&c);
        rc = text_or_calls(&c);
        parts_end(&c.p);
    }
    if (rc == 0 && (!buf_ok(out) || out->n - start > GRAMMAR_TEXT_MAX)) {
        rc = err_set(e, ERR_TOO_BIG, "the constraint of the answer");
    }
    if (rc == 0 && json_check(out->p + start, out->n - start, e) != 0) {
        rc = err_prefix(e, ERR_INVALID, "the constraint of the answer");
    }
    out->n = rc == 0 ? out->n : start;
    return rc;
}
