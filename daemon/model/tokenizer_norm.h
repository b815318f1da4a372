/* tokenizer_norm.h - how a Unigram vocabulary changes a text before it is cut:
 * SentencePiece's own way, or the steps of a tokenizer.json, one by one. Of the
 * tokenizer's files; see tokenizer_impl.h.
 */
#pragma once

#include "base/buf.h"

struct gguf;

/* SentencePiece's table: texts, and what stands in their place. */
struct charsmap {
    uint32_t *units; /* a double array, owned; NULL: there is no table */
    size_t n_units;
    char *texts; /* owned; each ends in a NUL */
    size_t n_texts;
};

/* p[0..n) as the file has it. Errors: TOKENIZER (malformed), NOMEM. */
CHECKED int charsmap_open(struct charsmap *m, const void *p, size_t n,
                          struct err *e);
void charsmap_fini(struct charsmap *m); /* zeroed is fine */
/* Bytes of the shortest or the longest text of the table that p[0..n), UTF-8,
 * begins with, and what stands in its place; 0: there is none. Both are whole
 * characters, whatever the table says. */
size_t charsmap_find(const struct charsmap *m, const char *p, size_t n,
                     bool longest, struct span *ret);

enum norm_op {
    NORM_NFC,
    NORM_NFD,
    NORM_NFKC,
    NORM_NFKD,
    NORM_LOWER,
    NORM_ACCENTS, /* combining marks are dropped */
    NORM_NMT,     /* control characters are dropped, others become spaces */
    NORM_TABLE,
    NORM_LEFT, /* white space at the beginning is dropped */
    NORM_RIGHT,
    NORM_PREPEND,  /* a before a text that is not empty */
    NORM_REPLACE,  /* a by b */
    NORM_COLLAPSE, /* two spaces and more by a */
};

struct norm_step {
    enum norm_op op;
    struct span a, b;
};

#define NORM_STEPS_MAX 32u
/* What is done with a text. Nothing here is NULL or empty where is_set. */
struct norm {
    struct charsmap map;
    bool steps_given; /* else SentencePiece's own way */
    size_t n_steps;
    struct norm_step step[NORM_STEPS_MAX];
    char *text; /* owned: what the steps' spans point into */
    bool split; /* into words at white space, which is dropped */
    enum { SPACE_STAYS, SPACE_NEVER, SPACE_FIRST, SPACE_ALWAYS } space;
    bool cut; /* before every U+2581 */
    /* SentencePiece's */
    bool prefix, merge, first;
};

/* tokenizer.ggml.precompiled_charsmap and tokenizer.aned.steps: names of the
 * operations above (their arguments behind U+001F), then "split", "space never",
 * "space first", "space always", "cut". Errors: TOKENIZER, NOMEM. */
CHECKED int norm_load(const struct gguf *g, struct norm *n, struct err *e);
void norm_fini(struct norm *n);

/* Valid UTF-8 in[0..n) through a step into out. false: too long, or memory is
 * out. *moved becomes true where the beginning was dropped. */
CHECKED bool norm_step_run(const struct norm *m, const struct norm_step *s,
                           struct span in, struct buf *out, bool *moved);
/* SentencePiece's way; begins and ends: of the whole text. */
CHECKED bool norm_pieces(const struct norm *m, struct span in, bool begins,
                         bool ends, struct buf *out);

/* White space as Unicode has it. */
bool norm_is_space(uint32_t c);
