/* text.h - from the tokens of one choice to its text.
 *
 * The stream holds back bytes that end in the middle of a UTF-8 sequence, and
 * bytes that may be the beginning of a stop string. So its output is valid
 * UTF-8 and never has a stop string, or a part of one, in it. Invalid bytes
 * become U+FFFD, one for each maximal part of a sequence. Of several stop
 * strings the one that is complete first counts; of those complete at the same
 * byte, the longest. So the text does not depend on how tokens cut it. The text
 * may also end before the first line that is indented less than `indent`.
 */
#pragma once

#include "base/buf.h"
#include "model/tokenizer.h"

struct text_stream {
    const struct tokenizer *tok; /* borrowed */
    bool special;                /* special tokens as text */
    struct buf pending;          /* valid text not handed out yet */
    char part[4];                /* the beginning of a character */
    size_t n_part;
    size_t n_stops;
    char *stops[STOP_STRINGS_MAX]; /* owned */
    bool stopped;    /* a stop string was found; no text follows */
    int stop_index;  /* which one, when stopped; -1: the indentation */
    uint32_t indent; /* 0: any; set it before the first token */
    uint32_t blanks; /* of the line, when on_blanks */
    bool on_blanks;  /* at the beginning of a line that is not the first */
    size_t n_marks;
    int32_t marks[TEXT_MARKS_MAX]; /* control tokens that are text */
};

/* stops are copied. Errors: TOO_BIG (count, length), INVALID (empty, not
 * UTF-8). */
CHECKED int text_stream_init(struct text_stream *s, const struct tokenizer *tok,
                             bool special, const char *const *stops,
                             size_t n_stops, struct err *e);
void text_stream_fini(struct text_stream *s); /* zeroed is fine */
/* Control tokens with one of these texts (NULL at the end, TEXT_MARKS_MAX at
 * most) are text from here on, because model/reply/reply.h has to see them;
 * other control tokens stay silent. Texts that are no control token of this
 * vocabulary are fine: their bytes are text anyway. A token that ends the
 * generation is not put here, even if it is a mark (harmony's <|call|>): the
 * text ends, and reply_end says so to the parser. */
void text_stream_marks(struct text_stream *s, const char *const *marks);
/* Feed one token; appends the text that is now certain to out. */
void text_stream_put(struct text_stream *s, int32_t id, struct buf *out);
/* The same for bytes that are not a token's. */
void text_stream_bytes(struct text_stream *s, const char *p, size_t n,
                       struct buf *out);
/* The end: appends what was held back (unless stopped). */
void text_stream_end(struct text_stream *s, struct buf *out);
