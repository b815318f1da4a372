/* tags.h - from an encoder's logits to labels, and from those to spans of text.
 *
 * Labels are "O", outside, and for each class "B-", "I-", "E-" and "S-" with its
 * name: a span is one S, or a B, any number of I, and an E of the same class. The
 * path through a text is the likeliest of those that are well formed (Viterbi on
 * the log-softmax of each token).
 *
 * Thread: none of its own; struct tags is immutable.
 */
#pragma once

#include "base/err.h"
#include "proto/limits.h"

/* Added to a step of the path, by what it goes from and to. */
enum tags_bias {
    TAGS_STAY,     /* background_stay: O to O */
    TAGS_START,    /* background_to_start: O to B, S */
    TAGS_CONTINUE, /* inside_to_continue: B, I to I */
    TAGS_END,      /* inside_to_end: B, I to E */
    TAGS_LEAVE,    /* end_to_background: E, S to O */
    TAGS_RESTART,  /* end_to_start: E, S to B, S */
    TAGS_BIASES,
};
extern const char *const tags_bias_names[TAGS_BIASES];

struct tags;

/* names: n labels in the order of the logits; borrowed as long as ret. Errors:
 * UNSUPPORTED (another scheme, saying which label), NOMEM. */
CHECKED int tags_open(const char *const *names, uint32_t n, struct tags **ret,
                      struct err *e);
void tags_close(struct tags *t); /* NULL is fine */
uint32_t tags_classes(const struct tags *t);
const char *tags_class(const struct tags *t, uint32_t i); /* "private_email" */
/* UINT32_MAX: there is none of that name. */
uint32_t tags_find(const struct tags *t, const char *name);

/* --- paths --- */

struct tags_path;

/* A path of n tokens at most; takes n * labels * 6 bytes, at most TAGS_BYTES_MAX.
 * biases: TAGS_BIASES of them, or NULL for none. t is borrowed. Errors: NOMEM,
 * TOO_BIG. */
CHECKED int tags_begin(const struct tags *t, uint32_t n, const float *biases,
                       struct tags_path **ret, struct err *e);
/* The next rows' logits: (rows, labels), with those before n at most. Errors:
 * INVALID (a number that is not finite). */
CHECKED int tags_add(struct tags_path *p, const float *logits, uint32_t rows,
                     struct err *e);
/* The labels of all tokens that were added, and how likely each is by itself
 * (softmax). Both have room for them; probs may be NULL. */
void tags_end(struct tags_path *p, uint16_t *labels, float *probs);
void tags_free(struct tags_path *p); /* NULL is fine */

/* --- spans --- */

struct tags_span {
    uint32_t class;
    uint32_t first, last; /* tokens [first, last) */
    size_t from, to;      /* bytes [from, to) of the text: whole characters, and
                             no white space at either end */
    float score;          /* the mean of its tokens' probs */
};

/* The spans of n tokens. ends[i]: where token i ends in the text, ascending up
 * to text_n at most. A span that is white space alone is left out. The caller
 * frees *ret. Labels that are no well-formed path (they come from a child
 * process) are cut where they break. Errors: NOMEM. */
CHECKED int tags_spans(const struct tags *t, const uint16_t *labels,
                       const float *probs, const uint32_t *ends, uint32_t n,
                       const char *text, size_t text_n,
                       struct tags_span **ret, size_t *ret_n, struct err *e);
