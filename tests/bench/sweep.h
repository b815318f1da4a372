/* sweep.h - the same rows in every batch: what sweep.c plans and
 * sweep_cell.c runs.
 *
 * A *line* is a sequence of tokens with the reference of each position: a hash
 * of its logits' bits, made one token at a time on one thread. A *cell* is one
 * way to evaluate lines: a level of every factor, and a seed for the rest.
 */
#pragma once

#include "engine/cpu/backend_cpu.h"
#include "engine/impl.h"

#define SWEEP_LINES 8u /* that run together, at most */

enum {
    BY_ISA,
    BY_THREADS,
    BY_CHUNK,
    BY_COMPANY, /* level: how many other lines run in the same batches */
    BY_LENGTH,  /* 1: the longest line is one of them */
    BY_HISTORY,
    FACTORS,
};

enum history {
    FRESH,
    FORK_LONGER,  /* forked off a sequence that had gone on elsewhere */
    FORK_SHORTER, /* forked off at its end; it goes on elsewhere meanwhile */
    TRUNCATED,    /* had gone on elsewhere, was cut */
    DRAFTS,       /* wrong tokens after the right ones of every batch */
    STEPS,        /* drawn by engine_step_rows, with drafts right and wrong */
    HISTORIES,
};

struct line {
    uint32_t n;
    int32_t *tokens; /* n */
    uint64_t *hash;  /* n: of each position's logits */
    uint32_t prompt; /* of the steps: so many tokens, then what is drawn */
    uint32_t n_drawn;
    struct msg_token *drawn; /* n_drawn */
    uint64_t seed;           /* of its sampling */
};

struct cell {
    unsigned level[FACTORS];
    unsigned chunk; /* tokens a batch and line; 0: any number */
    uint64_t seed;
};

/* What a cell compared. */
struct tally {
    uint64_t positions, different;
};

/* The first row that differs, with what it was. */
struct difference {
    bool any;
    struct cell cell;
    unsigned line;
    uint32_t position;
    float *logits; /* vocab; NULL: a token drawn */
    struct msg_token drawn;
};

/* The sampling of a line's step that draws its i-th token. */
void line_sampling(const struct line *l, struct msg_sampling *ret);

/* Evaluate what the cell says, on lines [0, n_lines), the longest first;
 * g has the cell's threads and instruction set. */
CHECKED int cell_run(struct engine *g, const struct cell *c,
                     const struct line *lines, unsigned n_lines,
                     struct tally *tally, struct difference *first,
                     struct err *e);

/* Of n numbers' bits. One number's change always changes it. */
uint64_t bits_hash(const float *p, size_t n);
bool token_same(const struct msg_token *a, const struct msg_token *b);

/* The next number of a sequence; below n. */
uint64_t draw_bits(uint64_t *state);
uint32_t draw(uint64_t *state, uint32_t n);

/* What is swept (sweep_sets.c). */
const struct backend *sweep_backend(void);
/* The i-th set of kernels that this machine lacks the instructions for; NULL
 * after the last. */
const char *sweep_lacks(size_t i);
