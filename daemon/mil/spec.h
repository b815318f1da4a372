/* spec.h - shared by the files of mil/ that use protobuf-c; private, as impl.h.
 */
#pragma once

#include "mil/coreml.pb-c.h"
#include "mil/impl.h"

/* What reading one Model carries around. */
struct reader {
    struct mil_program *p;
    struct arena scratch; /* protobuf-c's messages */
    ProtobufCAllocator alloc;
    struct weights weights;
    struct names names; /* of the function being read */
    uint32_t n_values;
    uint32_t n_ops;
};

/* --- value.c --- */

/* A type that is no tensor and no state gives dtype MIL_NONE.
 * Errors: MIL_INVALID, MIL_SHAPE. */
CHECKED int type_read(const Ml__ValueType *in, struct mil_type *ret,
                      struct err *e);
/* Errors: MIL_INVALID, MIL_SHAPE, MIL_BLOB, TOO_BIG. */
CHECKED int value_read(struct reader *r, const Ml__Value *in,
                       const struct mil_const **ret, struct err *e);

/* Messages in arena a, borrowing strings and data; must() on exhaustion. */
Ml__ValueType *type_write(struct arena *a, const struct mil_type *t);
Ml__Value *value_write(struct arena *a, const struct mil_const *c);

/* --- describe.c: the description --- */

CHECKED int describe_read(struct reader *r, const Ml__Description *in,
                          struct err *e);
Ml__Description *describe_write(struct arena *a, const struct mil_program *p);

/* A new empty message in arena a; an array of n; must() on exhaustion. */
void *pb_new(struct arena *a, const ProtobufCMessageDescriptor *d);
void *pb_array(struct arena *a, size_t n, size_t size);
