/* tails.h - the last positions of what recurrent layers read.
 *
 * A row at position p of such a layer reads values of the `len` positions
 * before it and adds one of its own (model/layer.h: a short convolution). Keys
 * and values of all positions stay, so a sequence can be cut anywhere; of these
 * only some do:
 *
 *   recent   the last positions: as many as may be cut off again (drafts)
 *   blocks   the last `len` positions of each whole block of STATE_BLOCK
 *   marks    the `len` positions before a place that somebody asked to keep
 *
 * So a sequence can be cut at its end, at multiples of STATE_BLOCK and at
 * marks (tails_can). Blocks and marks are shared by forks.
 *
 * A port is one such layer's; all have the same positions.
 * Thread: the tails of one model belong to one thread at a time, but different
 * ports may be read and put by several.
 */
#pragma once

#include "base/err.h"
#include "proto/limits.h"

struct tail_port {
    uint32_t width; /* numbers of a position */
    uint32_t len;   /* positions that a row reads: 1 .. MODEL_CONV_MAX - 1 */
    bool wide;      /* kept as fp32, not as fp16 */
};

struct tails;

/* ports: n of them, borrowed as long as the tails and their forks live.
 * Errors: NOMEM. */
CHECKED int tails_new(const struct tail_port *ports, size_t n,
                      struct tails **ret, struct err *e);
void tails_free(struct tails *t); /* NULL is fine */
/* Whether what a row at position n reads is there; n: at most the length of the
 * sequence. */
bool tails_can(const struct tails *t, uint32_t n);
/* The first n positions. Errors: CONFLICT (tails_can is false), NOMEM. */
CHECKED int tails_fork(const struct tails *t, uint32_t n, struct tails **ret,
                       struct err *e);
/* Forget positions n and later. tails_can(t, n) holds. */
void tails_cut(struct tails *t, uint32_t n);

/* Before positions [first, first + n) are put, or put again. Errors: NOMEM. */
CHECKED int tails_reserve(struct tails *t, uint32_t first, uint32_t n,
                          struct err *e);
/* Position `pos` of a port, `width` numbers; those before it come first. */
void tails_put(struct tails *t, size_t port, uint32_t pos, const float *x);
/* Position pos of a port as a row at position p > pos reads it: `width` numbers.
 * It is there (tails_can of the first row after a cut, else always). */
void tails_get(const struct tails *t, size_t port, uint32_t pos, uint32_t p,
               float *out);

/* Keep what a row at n reads, which is there; n at most the sequence's length.
 * The last ENGINE_MARKS_MAX marks stay; `hold` is another one, beside them, that
 * stays until the next: for a run that may fail. Errors: NOMEM. */
CHECKED int tails_mark(struct tails *t, uint32_t n, bool hold, struct err *e);

/* Block b of a port as files have it; it is whole. put: as if its positions had
 * been put. Errors: NOMEM. */
size_t tails_block_bytes(const struct tail_port *p);
void tails_block_get(const struct tails *t, size_t port, uint32_t b, void *out);
CHECKED int tails_block_put(struct tails *t, size_t port, uint32_t b,
                            const void *in, struct err *e);

/* Bytes that tails cost at most: base + blocks * block, of n ports. */
uint64_t tails_base_bytes(const struct tail_port *ports, size_t n);
uint64_t tails_each_bytes(const struct tail_port *ports, size_t n);
