/* encode_impl.h - of encode.c and its parts: a loaded encoder, and one run of its
 * programs, a window. */
#pragma once

#include "engine/encode.h"
#include "engine/impl.h"

/* One program for a T: its inputs by role, and where its result is. */
struct bound {
    struct backend_array *in[ROLE_PAST]; /* owned; NULL: not read */
    struct backend_io *io;               /* owned */
    size_t out;
};

#define ENCODE_NO_TOKEN UINT32_MAX

/* A row of a window. */
struct encode_row {
    uint32_t token;    /* its index in window.tokens; ENCODE_NO_TOKEN: zeros */
    uint32_t position; /* in its text */
    uint32_t lo, hi;   /* of whole texts: the rows that it sees */
};

struct encoder {
    const struct backend *be;
    struct bundle *b;
    struct tables tables;
    struct inputs in;
    struct cpu_conf cpu;
    struct backend_conf conf;
    size_t n; /* shards, then the head */
    struct shard *shards;
    uint32_t t; /* of `bound`; 0: nothing is bound */
    bool wide;  /* the same */
    bool packs; /* backend_info.wide_masks of all programs */
    struct bound *bound;
    uint32_t block, reach;
    struct encode_row *rows; /* of the window: ENCODER_ROWS_MAX */
    float *row;    /* scratch: d_model, or a row of the mask or of a table */
    float *logits; /* (most rows of a text or a window, bundle_outputs) */
};

/* What one run computes: T rows, as encoder.rows has them. */
struct window {
    const int32_t *tokens;
    uint32_t first, n; /* of one text: its rows [first, first + n) */
    uint32_t t;
    bool wide; /* of whole texts: a mask for each row */
};

/* A T that all programs take for n rows, not much more; 0: none is that wide. */
uint32_t encode_width(const struct encoder *g, uint32_t n);
uint32_t encode_widest(const struct encoder *g); /* the largest T */
/* Errors: INVALID, CONTEXT, as encoder_run. */
CHECKED int encode_check(const struct encoder *g, const int32_t *tokens,
                         uint32_t n, struct err *e);
/* The window's rows through all programs. Errors: CANCELLED, the backend's. */
CHECKED int encode_window(struct encoder *g, const struct window *w,
                          bool (*go)(void *ctx), void *ctx, struct err *e);
/* What the last window gives of rows [from, from + n): (n, bundle_outputs), in
 * encoder.logits until the next call. Errors: NULL, those of the backend. */
const float *encode_rows(struct encoder *g, uint32_t from, uint32_t n,
                         struct err *e);

/* encode_inputs.c: inputs of program i. Errors: the backend's. */
CHECKED int encode_inputs(struct encoder *g, size_t i, const struct window *w,
                          struct err *e);
