/* port.h - what a package declares of a function's inputs, as backends need it.
 * Everything is borrowed from the program. Thread: any.
 */
#pragma once

#include "engine/backend.h"

/* The description of that name; NULL: there is none. */
const struct mil_feature *port_feature(const struct mil_feature *f, size_t n,
                                       const char *name);
/* The port of an input. f: its description, or NULL. */
struct backend_port port_input(const struct mil_value *v,
                               const struct mil_feature *f);
/* The widths that all flexible inputs take. False: none is flexible; 1, 1. */
bool port_widths(const struct backend_port *in, size_t n, int64_t *t_min,
                 int64_t *t_max);
/* Whether an array of this type and shape may be given. Errors: MIL_INPUT. */
CHECKED int port_check(const struct backend_port *p,
                       const struct mil_feature *f, enum mil_dtype dtype,
                       int rank, const int64_t *dims, struct err *e);
/* Whether the input may be left out. *n: elements of its default shape,
 * f->type.dims, each f->default_value. Errors: MIL_INPUT. */
CHECKED int port_default(const struct backend_port *p,
                         const struct mil_feature *f, uint64_t *n,
                         struct err *e);
