/* tags_out.c - the answer of /aned/v1/classify and /aned/v1/redact. */
#include <string.h>

#include "api/tags_impl.h"

/* Code points of s. */
static size_t characters(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ((uint8_t)s[i] & 0xc0u) != 0x80u;
    }
    return count;
}

static bool wanted(const struct tag_call *c, const char *class)
{
    size_t i = 0;
    while (i < c->n_labels && strcmp(c->labels[i], class) != 0) {
        i++;
    }
    return c->n_labels == 0 || i < c->n_labels;
}

static void put_span(struct buf *b, const struct tags *t,
                     const struct tags_span *s, const char *text, size_t start,
                     size_t length)
{
    buf_puts(b, "{\"label\":");
    json_put_string(b, tags_class(t, s->class), strlen(tags_class(t, s->class)));
    buf_printf(b, ",\"score\":%.6f", (double)s->score);
    buf_printf(b, ",\"start\":%zu,\"end\":%zu", start, start + length);
    buf_printf(b, ",\"start_byte\":%zu,\"end_byte\":%zu,\"text\":", s->from,
               s->to);
    json_put_string(b, text + s->from, s->to - s->from);
    buf_puts(b, "}");
}

/* "[PRIVATE_EMAIL]" */
static void put_placeholder(struct buf *b, const char *class)
{
    buf_puts(b, "[");
    for (const char *p = class; *p != '\0'; p++) {
        char upper = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
        buf_put(b, &upper, 1);
    }
    buf_puts(b, "]");
}

/* The text with placeholders, as JSON. */
static int put_redacted(struct tag_call *c, const struct tags *t,
                        const struct span text, const struct tags_span *all,
                        size_t n, struct err *e)
{
    struct buf plain;
    size_t at = 0;
    buf_init(&plain, HTTP_REPLY_MAX);
    for (size_t i = 0; i < n; i++) {
        if (wanted(c, tags_class(t, all[i].class))) {
            buf_put(&plain, text.p + at, all[i].from - at);
            put_placeholder(&plain, tags_class(t, all[i].class));
            at = all[i].to;
        }
    }
    buf_put(&plain, text.p + at, text.n - at);
    int rc = buf_ok(&plain) ? 0
                            : err_set(e, ERR_TOO_BIG,
                                      "the answer is over the limit");
    if (rc == 0) {
        buf_puts(&c->out, "\"text\":");
        json_put_string(&c->out, plain.n > 0 ? plain.p : "", plain.n);
        buf_puts(&c->out, ",");
    }
    buf_fini(&plain);
    return rc;
}

/* Where each token ends. The tokens' bytes are the text's, or there are no
 * places to tell. */
static int token_ends(const struct tag_call *c, const struct tag_text *x,
                      uint32_t *ends, struct err *e)
{
    size_t at = 0;
    bool same = true;
    for (size_t i = 0; i < x->n && same; i++) {
        struct span s =
            tokenizer_piece(c->work.voc->tok, x->tokens[i], true);
        same = s.n <= x->text.n - at && memcmp(s.p, x->text.p + at, s.n) == 0;
        at += s.n;
        ends[i] = (uint32_t)at;
    }
    return same && at == x->text.n
               ? 0
               : err_set(e, ERR_UNSUPPORTED,
                         "this vocabulary changes texts, so there are no places "
                         "of spans in them");
}

/* "spans":[..]: places are bytes and characters from the text's beginning. */
static void put_spans(struct tag_call *c, const struct tags *t,
                      const struct span text, const struct tags_span *all,
                      size_t n)
{
    size_t bytes = 0;
    size_t chars = 0;
    bool any = false;
    buf_puts(&c->out, "\"spans\":[");
    for (size_t i = 0; i < n; i++) {
        const struct tags_span *s = &all[i];
        if (!wanted(c, tags_class(t, s->class))) {
            continue;
        }
        chars += characters(text.p + bytes, s->from - bytes);
        bytes = s->from;
        buf_puts(&c->out, any ? "," : "");
        put_span(&c->out, t, s, text.p, chars,
                 characters(text.p + s->from, s->to - s->from));
        any = true;
    }
    buf_puts(&c->out, "]");
}

static int put_text(struct tag_call *c, const struct tags *t,
                    const struct tag_text *x, struct err *e)
{
    struct tags_span *all = NULL;
    size_t n = 0;
    uint32_t *ends = calloc(x->n + 1, sizeof(*ends));
    if (ends == NULL) {
        return err_set(e, ERR_NOMEM, "%zu tokens", x->n);
    }
    int rc = 0;
    CHECK(token_ends(c, x, ends, e));
    CHECK(tags_spans(t, x->labels, x->probs, ends, (uint32_t)x->n, x->text.p,
                     x->text.n, &all, &n, e));
    buf_puts(&c->out, "{");
    if (c->redacts) {
        CHECK(put_redacted(c, t, x->text, all, n, e));
    }
    put_spans(c, t, x->text, all, n);
    buf_printf(&c->out, ",\"n_tokens\":%zu}", x->n);
out:
    free(ends);
    free(all);
    return rc;
}

int tags_put_answer(struct tag_call *c, struct err *e)
{
    const struct bundle *b = c->m->bundle;
    struct tags *t = NULL;
    size_t tokens = 0;
    int rc = 0;
    (void)buf_grow(&c->out, HTTP_HEAD_ROOM);
    CHECK(tags_open(b->labels, b->n_labels, &t, e));
    buf_puts(&c->out, "{\"model\":");
    json_put_string(&c->out, c->m->name, strlen(c->m->name));
    buf_puts(&c->out, ",\"results\":[");
    for (size_t i = 0; i < c->n_texts; i++) {
        buf_puts(&c->out, i > 0 ? "," : "");
        CHECK(put_text(c, t, &c->texts[i], e));
        tokens += c->texts[i].n;
    }
    buf_printf(&c->out, "],\"usage\":{\"prompt_tokens\":%zu,"
                        "\"total_tokens\":%zu}}",
               tokens, tokens);
out:
    tags_close(t);
    return rc;
}
