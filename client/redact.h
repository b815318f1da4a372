/* redact.h - a text of any length without what an encoder finds in it: the
 * windows of `anectl redact`.
 *
 * The text is cut where lines end, and each part is labelled with at least half
 * of REDACT_SIDE of text on both sides: 1024 tokens, which is as far as the
 * Privacy Filter's layers reach, have about 4 KiB. A span belongs to the part
 * that it begins in.
 * Memory: REDACT_PART + 2 * REDACT_SIDE bytes of text, and an answer.
 */
#pragma once

#include "client/client.h"

#define REDACT_PART KIB(64) /* of text that a request decides about */
#define REDACT_SIDE KIB(16) /* around it, on each side */

struct redact_span {
    const char *label;     /* borrowed, valid during the call */
    double score;
    uint64_t byte, n;      /* from the text's beginning */
    uint64_t character, n_characters;
    const char *text;      /* n bytes */
};

struct redact {
    struct client *c;
    const char *model;
    const struct json *labels; /* an array; NULL: all. Borrowed */
    /* The next bytes of the text, 0 at its end, or an error. */
    int (*read)(void *ctx, char *out, size_t n, struct err *e);
    /* Text that stays; of a span that is found. Errors end the run. */
    int (*keep)(void *ctx, const char *p, size_t n, struct err *e);
    int (*span)(void *ctx, const struct redact_span *s, struct err *e);
    void *ctx;
};

/* All of the text. Errors: as ask(), those of the functions, INVALID (not
 * UTF-8, or a NUL byte: it says where), HTTP (it answers something else). */
CHECKED int redact_run(const struct redact *r, struct err *e);

/* The best place to cut p[0..n) in (from, to], to <= n, from < to: behind a
 * line end that no white space follows, behind any line end, before white
 * space, else between characters. */
size_t redact_cut(const char *p, size_t n, size_t from, size_t to);
