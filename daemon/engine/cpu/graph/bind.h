/* bind.h - nodes and slots of a model (used by backend_cpu.c and fuse.c). */
#pragma once

#include "engine/cpu/cpu.h"

/* Fill nodes, slots and constants of m, whose function, ports and states are
 * set. Errors: MIL_OP, MIL_INVALID, NOMEM. */
CHECKED int bind_run(struct backend_model *m, struct err *e);

/* A node with no operands bound; NULL when memory is out. */
struct node *node_new(struct backend_model *m, const struct op_def *d,
                      const char *name, int n_out);

/* Drop nodes whose results are not read. */
CHECKED int bind_drop_dead(struct backend_model *m, struct err *e);
