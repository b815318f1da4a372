/* impl.h - shared by the files of mil/ only. */
#pragma once

#include "base/buf.h"
#include "mil/mil.h"

#define MIL_PREFIX      "@model_path/" /* of every blob file name */
#define MIL_WEIGHT_FILE MIL_PREFIX "weights/weight.bin"

#define MIL_RUNTIME_RANK_MAX 5 /* of what is not a compressed weight */

/* --- type.c --- */

/* Exact bytes of n elements; false on overflow or for strings. */
CHECKED bool mil_dtype_bytes(enum mil_dtype t, uint64_t n, uint64_t *ret);
/* A number that MIL.proto knows and aned has a width for (or string). */
bool mil_dtype_known(int32_t number);

/* Opset of a spec version, "CoreML8" for 9; NULL outside 6..10. */
const char *mil_opset(int spec_version);

/* A name the loader takes: [A-Za-z_][A-Za-z0-9_@]*. */
bool mil_name_ok(const char *s);
/* A word of the MIL language (facts 3.7): not for values. */
bool mil_name_reserved(const char *s);

/* --- names.c: name -> value within one function --- */

struct names_entry {
    const char *name; /* NULL: free slot */
    struct mil_value *value;
    bool hidden; /* its block has ended */
};

struct names {
    struct names_entry *slots;
    size_t n;
    size_t cap; /* 0 or a power of two */
};

void names_fini(struct names *t); /* zeroed is fine */
/* NULL when absent; hidden ones are found too. */
struct names_entry *names_find(const struct names *t, const char *name);
/* A hidden name may be added again: coremltools gives the two blocks of a loop
 * the same names. False when the name is visible, memory is out, or so many
 * names collide that the file must be hostile. */
CHECKED bool names_add(struct names *t, const char *name, struct mil_value *v);

/* --- blob.c: weight.bin --- */

#define BLOB_ALIGN  64u
#define BLOB_HEADER 64u /* bytes of the file header, and of a record */

/* The record at `offset` of a mapped weight file must hold exactly a tensor of
 * type t. On success *ret_data, *ret_bytes borrow from the map.
 * Errors: MIL_BLOB. */
CHECKED int blob_find(const struct file_map *m, uint64_t offset,
                      const struct mil_type *t, const uint8_t **ret_data,
                      uint64_t *ret_bytes, struct err *e);
/* File header: version 2. Errors: MIL_BLOB. */
CHECKED int blob_check_header(const struct file_map *m, struct err *e);
void blob_put_header(uint8_t out[BLOB_HEADER], uint32_t count);
/* false when weight.bin has no number for the dtype. */
CHECKED bool blob_put_record(uint8_t out[BLOB_HEADER], const struct mil_type *t,
                             uint64_t bytes, uint64_t data_offset);

/* --- value.c, spec_read.c: protobuf -> program --- */

/* Where the reader gets weight files from: `rel` is the path after
 * "@model_path/". The map stays valid as long as the program. */
struct weights {
    int (*find)(void *ctx, const char *rel, const struct file_map **ret,
                struct err *e);
    void *ctx;
};

/* Parse a serialized Model into p, which is zeroed except for the maps that
 * `weights` keeps in it. After a failure only mil_free may be called on p.
 * Errors: PKG_PROTOBUF, PKG_UNSUPPORTED, MIL_INVALID, MIL_SHAPE, MIL_BLOB,
 * TOO_BIG, NOMEM. */
CHECKED int spec_read(struct mil_program *p, const void *bytes, size_t n,
                      struct weights weights, struct err *e);

/* --- value.c: one serialized Value, for the tests' golden vectors --- */

void value_encode(const struct mil_const *c, struct buf *out);
/* Immediate values only; the constant lives in p's arena. */
CHECKED int value_decode(struct mil_program *p, const void *bytes, size_t n,
                         const struct mil_const **ret, struct err *e);

/* --- spec_write.c --- */

/* Append the serialized Model; must() on what our builder cannot make. Errors:
 * TOO_BIG. */
CHECKED int spec_write(const struct mil_program *p, struct buf *out,
                       struct err *e);

/* --- build.c: a program under construction --- */

/* Fresh program for the builder calls of build.h. */
struct mil_program *build_program(void);
/* Frees what the builder holds beside the program, and the program. */
void build_free(struct mil_program *p); /* NULL is fine */

/* Memory of p; n == 0 is fine. A copy of s. */
void *build_take(struct mil_program *p, size_t n, size_t size);
const char *build_keep(struct mil_program *p, const char *s);
/* hint, or hint_N where it is taken or reserved; not yet taken. */
const char *build_unique(struct mil_program *p, struct mil_function *f,
                         const char *hint);
/* A value that takes its name in f. */
struct mil_value *build_value(struct mil_program *p, struct mil_function *f,
                              const char *name, const struct mil_type *t,
                              struct mil_op *def, int def_out);
/* An op with its name attribute and room for one more, appended to f. */
struct mil_op *build_op(struct mil_program *p, struct mil_function *f,
                        const char *type, const char *name);

/* --- package.c --- */

/* The path of the model that the bytes of a Manifest.json name, below the
 * folder `data`; every item must be there. Errors: PKG_MANIFEST, PKG_MISSING,
 * TOO_BIG, INVALID. */
CHECKED int manifest_model(const void *text, size_t n, const char *data,
                           char *ret, size_t room, struct err *e);

/* --- validate_description.c --- */

CHECKED int validate_description(const struct mil_program *p,
                                 const struct mil_function *f, struct err *e);
