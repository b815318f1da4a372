/* text.c - from the bytes of tokens to text that is certain.
 *
 * Bytes become characters first (an unfinished one waits in `part`). Characters
 * are appended to `pending` one by one, and after each its end is compared with
 * the stop strings. At the end of a token, `pending` is handed out except for
 * the longest tail that could still become a stop string.
 */
#include "model/text.h"

#include <string.h>

#include "base/utf8.h"

/* Held back text, and what one token can add: every byte a U+FFFD. */
#define PENDING_MAX (STOP_BYTES_MAX + 3 * TOKEN_BYTES_MAX)

int text_stream_init(struct text_stream *s, const struct tokenizer *tok,
                     bool special, const char *const *stops, size_t n_stops,
                     struct err *e)
{
    if (n_stops > STOP_STRINGS_MAX) {
        return err_set(e, ERR_TOO_BIG, "stop: at most %u strings",
                       STOP_STRINGS_MAX);
    }
    for (size_t i = 0; i < n_stops; i++) {
        size_t n = strlen(stops[i]);
        if (n == 0) {
            return err_set(e, ERR_INVALID, "stop: an empty string");
        }
        if (n > STOP_BYTES_MAX) {
            return err_set(e, ERR_TOO_BIG, "stop: at most %u bytes a string",
                           STOP_BYTES_MAX);
        }
        if (!utf8_valid(stops[i], n)) {
            return err_set(e, ERR_INVALID, "stop: not UTF-8");
        }
    }
    struct text_stream made = {.tok = tok, .special = special};
    made.stop_index = -1;
    buf_init(&made.pending, PENDING_MAX);
    for (size_t i = 0; i < n_stops; i++) {
        made.stops[i] = strdup(stops[i]);
        if (made.stops[i] == NULL) {
            text_stream_fini(&made);
            return err_set(e, ERR_NOMEM, "stop");
        }
        made.n_stops++;
    }
    *s = made;
    return 0;
}

void text_stream_fini(struct text_stream *s)
{
    for (size_t i = 0; i < s->n_stops; i++) {
        free(s->stops[i]);
    }
    buf_fini(&s->pending);
    memset(s, 0, sizeof(*s));
}

void text_stream_marks(struct text_stream *s, const char *const *marks)
{
    s->n_marks = 0;
    for (size_t i = 0; marks[i] != NULL; i++) {
        int32_t id = tokenizer_find(s->tok, marks[i], strlen(marks[i]));
        if (id != TOKEN_NONE && tokenizer_piece(s->tok, id, false).n == 0) {
            must(s->n_marks < TEXT_MARKS_MAX);
            s->marks[s->n_marks++] = id;
        }
    }
}

static bool is_mark(const struct text_stream *s, int32_t id)
{
    for (size_t i = 0; i < s->n_marks; i++) {
        if (s->marks[i] == id) {
            return true;
        }
    }
    return false;
}

/* Does pending end with a stop string? The longest one counts. */
static void look_for_stop(struct text_stream *s, struct buf *out)
{
    const struct buf *p = &s->pending;
    size_t longest = 0;
    for (size_t i = 0; i < s->n_stops; i++) {
        size_t n = strlen(s->stops[i]);
        if (n <= p->n && n > longest &&
            memcmp(p->p + p->n - n, s->stops[i], n) == 0) {
            longest = n;
            s->stop_index = (int)i;
        }
    }
    if (longest > 0) {
        s->stopped = true;
        buf_put(out, p->p, p->n - longest);
        buf_clear(&s->pending);
    }
}

/* Whether this character is the first of a line that is not indented enough.
 * Lines without characters do not count. */
static bool is_outside(struct text_stream *s, char c)
{
    if (c == '\n') {
        s->on_blanks = true;
        s->blanks = 0;
    } else if (s->on_blanks && (c == ' ' || c == '\t')) {
        s->blanks++;
    } else if (s->on_blanks) {
        s->on_blanks = false;
        return s->blanks < s->indent;
    }
    return false;
}

static void add_char(struct text_stream *s, const char *p, size_t n,
                     struct buf *out)
{
    if (!s->stopped && s->indent > 0 && is_outside(s, p[0])) {
        s->stopped = true;
        buf_put(out, s->pending.p, s->pending.n);
        buf_clear(&s->pending);
    }
    if (!s->stopped) {
        buf_put(&s->pending, p, n);
        look_for_stop(s, out);
    }
}

/* Bytes at the end of pending that may be the beginning of a stop string. */
static size_t held_back(const struct text_stream *s)
{
    size_t held = 0;
    for (size_t i = 0; i < s->n_stops; i++) {
        size_t n = strlen(s->stops[i]) - 1;
        if (n > s->pending.n) {
            n = s->pending.n;
        }
        for (; n > held; n--) {
            if (memcmp(s->pending.p + s->pending.n - n, s->stops[i], n) == 0) {
                held = n;
            }
        }
    }
    return held;
}

static void hand_out(struct text_stream *s, size_t held, struct buf *out)
{
    size_t n = s->pending.n - held;
    if (n > 0) {
        buf_put(out, s->pending.p, n);
        buf_shift(&s->pending, n);
    }
}

/* p[0..n) at most TOKEN_BYTES_MAX, so that pending has room. */
static void feed(struct text_stream *s, const char *p, size_t n,
                 struct buf *out)
{
    for (size_t i = 0; i < n;) {
        char seq[4];
        size_t take = n - i;
        size_t len = 0;
        if (take > sizeof(seq) - s->n_part) {
            take = sizeof(seq) - s->n_part;
        }
        memcpy(seq, s->part, s->n_part);
        memcpy(seq + s->n_part, p + i, take);
        enum utf8_kind k = utf8_seq(seq, s->n_part + take, &len);
        if (k == UTF8_PART) {
            memcpy(s->part, seq, len);
            s->n_part = len;
            return; /* fewer than four bytes: p is used up */
        }
        if (k == UTF8_OK) {
            add_char(s, seq, len, out);
        } else {
            add_char(s, UTF8_REPLACEMENT, 3, out);
        }
        /* The bytes of part were the beginning of this very sequence. */
        must(len >= s->n_part);
        i += len - s->n_part;
        s->n_part = 0;
    }
}

void text_stream_bytes(struct text_stream *s, const char *p, size_t n,
                       struct buf *out)
{
    while (n > 0 && !s->stopped) {
        size_t step = n < TOKEN_BYTES_MAX ? n : TOKEN_BYTES_MAX;
        feed(s, p, step, out);
        hand_out(s, held_back(s), out);
        p += step;
        n -= step;
    }
}

void text_stream_put(struct text_stream *s, int32_t id, struct buf *out)
{
    struct span piece =
        tokenizer_piece(s->tok, id, s->special || is_mark(s, id));
    text_stream_bytes(s, piece.p, piece.n, out);
}

void text_stream_end(struct text_stream *s, struct buf *out)
{
    if (s->n_part > 0) {
        s->n_part = 0;
        add_char(s, UTF8_REPLACEMENT, 3, out);
    }
    hand_out(s, 0, out);
}
