/* build.h - makes an ML Program and writes it as a package.
 *
 * Weights are written to disk while the program is being built, so a package of
 * any size needs only the memory of its largest piece. The same calls give the
 * same bytes: no dates, no random identifiers (UUIDs come from a hash).
 *
 *     mil_writer_open(dir)  ->  blobs, functions, ops ...  ->  mil_writer_finish
 *
 * Files are written directly to `dir` (a new folder, X.mlpackage); the caller
 * uses a staging folder and publishes it. Calls that build the program cannot
 * fail: aned's own emitters bound its memory, and a wrong shape is must(). The
 * first I/O error is kept; mil_writer_finish returns it.
 */
#pragma once

#include "base/hash.h"
#include "mil/mil.h"

struct mil_writer;

CHECKED int mil_writer_open(const char *dir, struct mil_writer **ret,
                            struct err *e);
/* What an earlier writer of the same blobs wrote and synced: the first bytes of
 * weight.bin, up to the end of a blob. */
struct mil_kept {
    uint64_t bytes;
    char sha256[SHA256_HEX];
};

/* A writer that goes on after what was kept, in a folder that may be there:
 * the caller makes all blobs again, and up to there nothing is written. kept:
 * NULL for nothing; where the file does not have that hash it begins anew.
 * n_blobs > 0 is how many there will be: the header, which comes first, has it,
 * and so the file can be hashed while it is written. Errors: as
 * mil_writer_open; INTERNAL at the end where the blobs are not as before. */
CHECKED int mil_writer_resume(const char *dir, const struct mil_kept *kept,
                              uint32_t n_blobs, struct mil_writer **ret,
                              struct err *e);
/* A writer without files, which keeps every blob: it only counts, and its
 * program, a sketch without weights, is for looking at. mil_writer_abort frees
 * it. */
struct mil_writer *mil_writer_dry(void);
uint32_t mil_writer_blobs(const struct mil_writer *w); /* so far */
/* Sync what was put so far, between two blobs; *ret is all of it. Only of
 * mil_writer_resume's. Errors: IO, NO_SPACE, then at the end too. */
CHECKED int mil_writer_mark(struct mil_writer *w, struct mil_kept *ret,
                            struct err *e);
/* Is the next blob there already? Then mil_blob_keep makes it without data. */
bool mil_writer_keeps(const struct mil_writer *w);
const struct mil_const *mil_blob_keep(struct mil_writer *w,
                                      const struct mil_type *type);

/* Write model.mlmodel, Manifest.json and the header of weight.bin; sync.
 * Frees w in every case. Errors: IO, NO_SPACE, MIL_INVALID. */
CHECKED int mil_writer_finish(struct mil_writer *w, struct err *e);
/* Give up; files stay for the caller to remove. NULL is fine. */
void mil_writer_abort(struct mil_writer *w);

/* The program under construction, owned by w. Add functions, metadata here. */
struct mil_program *mil_writer_program(struct mil_writer *w);
uint64_t mil_writer_weight_bytes(const struct mil_writer *w);

/* --- weights --- */

/* Start a blob of `type` (all dims known); then append exactly its bytes in
 * any pieces; end gives the constant, to be bound by any number of ops and
 * functions. One blob at a time. */
void mil_blob_begin(struct mil_writer *w, const struct mil_type *type);
void mil_blob_put(struct mil_writer *w, const void *p, size_t n);
const struct mil_const *mil_blob_end(struct mil_writer *w);
/* A whole blob at once. */
const struct mil_const *mil_blob(struct mil_writer *w,
                                 const struct mil_type *type, const void *p);

/* --- functions --- */

/* All builder calls allocate in p's arena. `opset` is CoreML8, spec 9. The
 * first function added is the default; several make the package multi. */
struct mil_function *mil_add_function(struct mil_program *p, const char *name);

/* Tensor input; dims with MIL_UNKNOWN take range lo..hi and default lo in the
 * description. */
struct mil_value *mil_add_input(struct mil_program *p, struct mil_function *f,
                                const char *name, enum mil_dtype dtype,
                                int rank, const int64_t *dims, int64_t lo,
                                int64_t hi);
/* The same for known dims, with the explicit range of just these: for one that
 * stands beside ranged inputs (facts 11.2). */
struct mil_value *mil_add_fixed(struct mil_program *p, struct mil_function *f,
                                const char *name, enum mil_dtype dtype,
                                int rank, const int64_t *dims);
struct mil_value *mil_add_state(struct mil_program *p, struct mil_function *f,
                                const char *name, int rank,
                                const int64_t *dims); /* fp16 */
/* Outputs in order. */
void mil_add_output(struct mil_program *p, struct mil_function *f,
                    struct mil_value *v);
void mil_add_meta(struct mil_program *p, const char *key, const char *value);

/* --- constants --- */

/* Immediate constants, data copied. */
const struct mil_const *mil_imm(struct mil_program *p,
                                const struct mil_type *t, const void *data);
const struct mil_const *mil_imm_str(struct mil_program *p, const char *s);

/* A `const` op holding c; equal immediate constants share one op per function
 * (facts 3.6). Name hints are made unique. */
struct mil_value *mil_const_op(struct mil_program *p, struct mil_function *f,
                               const char *name, const struct mil_const *c);
/* The same, never shared. */
struct mil_value *mil_const_new(struct mil_program *p, struct mil_function *f,
                                const char *name, const struct mil_const *c);
struct mil_value *mil_i32(struct mil_program *p, struct mil_function *f,
                          int32_t v);
struct mil_value *mil_i32s(struct mil_program *p, struct mil_function *f,
                           size_t n, const int32_t *v);
struct mil_value *mil_bool(struct mil_program *p, struct mil_function *f,
                           bool v);
struct mil_value *mil_bools(struct mil_program *p, struct mil_function *f,
                            size_t n, const bool *v);
struct mil_value *mil_f16(struct mil_program *p, struct mil_function *f,
                          float v); /* scalar fp16 */
struct mil_value *mil_str(struct mil_program *p, struct mil_function *f,
                          const char *s);

/* --- operations --- */

/* Append an op. Operands follow as (name, value) pairs ended by NULL:
 *   mil_op(p, f, "add", "h", "x", x, "y", y, NULL)
 * A pair whose value is NULL is left out. Optional operands with defaults must
 * be given (facts 5.0). mil_infer (infer.c), which the validator also uses,
 * gives the output type; a mistake is must(). `out` is made unique in f; it is
 * the name of the first output, or of write_state, which has none. Returns the
 * first output, NULL for write_state. */
struct mil_value *mil_op(struct mil_program *p, struct mil_function *f,
                         const char *type, const char *out, ...)
    __attribute__((sentinel));

/* Several outputs or tuple operands: concat and split. */
struct mil_value *mil_concat(struct mil_program *p, struct mil_function *f,
                             const char *out, size_t n,
                             struct mil_value *const *v, int32_t axis);
void mil_split(struct mil_program *p, struct mil_function *f, const char *out,
               struct mil_value *x, size_t n, int32_t axis,
               struct mil_value **ret);

/* constexpr_blockwise_shift_scale(data, scale), inline operands (facts 5.1). */
struct mil_value *mil_dequant(struct mil_program *p, struct mil_function *f,
                              const char *out, const struct mil_const *data,
                              const struct mil_const *scale);

/* constexpr_lut_to_dense(indices, lut), inline operands (facts 5.1). indices:
 * uint1 to uint8, rank K; lut: fp16 [groups along each axis ..., 2^bits, 1]. */
struct mil_value *mil_look_up(struct mil_program *p, struct mil_function *f,
                              const char *out, const struct mil_const *indices,
                              const struct mil_const *lut);

/* 1x1 conv with the fixed operands (strides 1, valid, no pad, groups 1).
 * bias may be NULL (a value from mil_const_op). */
struct mil_value *mil_conv1x1(struct mil_program *p, struct mil_function *f,
                              const char *out, struct mil_value *x,
                              struct mil_value *weight,
                              struct mil_value *bias);

/* Full-range state overwrite: slice_update(x = r0, update) -> write_state ->
 * read_state, the canonical group of facts 5.6 and 11.2. r0 must be a
 * read_state of `state`. Returns the new read. */
struct mil_value *mil_state_write(struct mil_program *p,
                                  struct mil_function *f, const char *out,
                                  struct mil_value *state,
                                  struct mil_value *r0,
                                  struct mil_value *update);
struct mil_value *mil_state_read(struct mil_program *p,
                                 struct mil_function *f, const char *out,
                                 struct mil_value *state);
