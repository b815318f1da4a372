/* fuse.h - recognition on nodes and slots (fuse.c), and the part of it that
 * compiling for rows shares. */
#pragma once

#include "engine/cpu/cpu.h"

/* All passes of fuse.c over m's nodes. */
CHECKED int fuse_run(struct backend_model *m, struct err *e);
/* Those for programs whose positions do not run as rows, after it. several:
 * only what has more than one position. */
CHECKED int fuse_whole(struct backend_model *m, bool several, struct err *e);

/* Mixtures of experts alone, in a form that gives the bits of the operations
 * that it replaces (op_experts.h: exact). For the interpreter. */
CHECKED int fuse_chosen(struct backend_model *m, struct err *e);

struct fuse {
    struct backend_model *m;
    int *def;  /* node that makes a slot, or -1 */
    int *uses; /* readers of a slot, the function's outputs among them */
    bool several; /* see fuse_whole */
    bool exact;   /* see fuse_chosen */
};

CHECKED int fuse_open(struct fuse *f, struct backend_model *m, struct err *e);
void fuse_close(struct fuse *f);

/* state = state * (1 - sum mask) + mask new, the masked write. */
struct fuse_store {
    int state, mask, new;
    int blend;  /* slot of the blended state */
    int update; /* slot of the slice_update around it; -1 */
    bool alone; /* only the write reads them */
};

/* Whether node `at` is a masked write. */
bool fuse_match_store(const struct fuse *f, int at, struct fuse_store *r);
