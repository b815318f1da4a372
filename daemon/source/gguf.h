/* gguf.h - reads GGUF v2 and v3 files, which may be hostile. A split model
 * (NAME-00001-of-00003.gguf and so on) is one: its metadata is the first
 * part's, its tensors are those of all parts.
 *
 * The file is mapped read-only. Every count, offset and size is checked before
 * use. Memory in proportion to a number of the file is allocated only after a
 * check that the file is that long. Only workers and the command line read
 * GGUF: serve never maps a user's file. When a file is truncated while it is
 * mapped, reading it raises SIGBUS: gguf_open and gguf_rows turn that into
 * SOURCE_CHANGED themselves; any other read of the mapping (metadata, t->data)
 * must be inside gguf_guard().
 *
 * A special id of 0xFFFFFFFF means absent.
 *
 * Thread: read-only after open, any number of threads. A guard holds for one
 * thread: a thread that is started inside it needs its own.
 */
#pragma once

#include "base/err.h"
#include "proto/limits.h"

/* ggml_type numbers that aned reads. */
enum ggml_type {
    GGML_F32 = 0,
    GGML_F16 = 1,
    GGML_Q4_0 = 2,
    GGML_Q4_1 = 3,
    GGML_Q5_0 = 6,
    GGML_Q5_1 = 7,
    GGML_Q8_0 = 8,
    GGML_Q2_K = 10,
    GGML_Q3_K = 11,
    GGML_Q4_K = 12,
    GGML_Q5_K = 13,
    GGML_Q6_K = 14,
    GGML_IQ2_XXS = 16,
    GGML_IQ2_XS = 17,
    GGML_IQ3_XXS = 18,
    GGML_IQ1_S = 19,
    GGML_IQ4_NL = 20,
    GGML_IQ3_S = 21,
    GGML_IQ2_S = 22,
    GGML_IQ4_XS = 23,
    GGML_IQ1_M = 29,
    GGML_BF16 = 30,
    GGML_TQ1_0 = 34,
    GGML_TQ2_0 = 35,
    GGML_MXFP4 = 39,
};

enum gguf_kind {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
};

struct gguf_kv {
    struct span key;
    enum gguf_kind kind;
    enum gguf_kind item; /* of an array */
    uint64_t count;      /* of an array; 1 otherwise */
    const uint8_t *p;    /* first value in the file (a string: its bytes) */
    uint64_t bytes;      /* all of its bytes in the file */
};

/* Rows [row, row + n) of a tensor to out, (n, cols) fp32. Called inside
 * gguf_guard. */
typedef void gguf_rows_fn(const void *ctx, uint64_t row, uint64_t n,
                          float *out);
#define GGUF_TYPE_FN UINT32_MAX /* the type of a tensor with such a function */

struct gguf_tensor {
    const char *name; /* NUL terminated, owned by the file object */
    uint32_t type;    /* enum ggml_type, or another number that was skipped */
    uint32_t n_dims;
    uint64_t dims[GGUF_DIMS_MAX]; /* ggml order: dims[0] is the row length */
    uint64_t rows;                /* product of dims[1..] */
    uint64_t cols;                /* dims[0] */
    const uint8_t *data;
    uint64_t bytes;
    uint64_t row_bytes;
    /* of a source that was made (made.h), where rows do not lie as a ggml type
     * has them: then data is NULL */
    gguf_rows_fn *fn; /* NULL: none */
    const void *ctx;
    const char *type_name;
};

struct gguf;

/* path: a file, or any part of a split model; the other parts stand beside it.
 * Errors: NOT_FOUND (it, or a part of it), IO, INVALID, NOMEM, SOURCE_CHANGED,
 * GGUF_* (GGUF_SPLIT: parts that do not belong together). Tensor types aned has
 * no dequantisation for are accepted here if their size is known to ggml and
 * refused by gguf_rows; an unknown type number is GGUF_TENSOR. The vocabulary
 * is not looked at: see gguf_check_vocab. */
CHECKED int gguf_open(const char *path, struct gguf **ret, struct err *e);
/* From memory (fuzzing, tests): n_parts files, those of a split model in order.
 * They are borrowed until gguf_close. */
CHECKED int gguf_open_mem(const void *p, size_t n, struct gguf **ret,
                          struct err *e);
CHECKED int gguf_open_mems(const struct span *parts, size_t n_parts,
                           struct gguf **ret, struct err *e);
void gguf_close(struct gguf *g); /* NULL is fine */

/* The files of a model, opened by name and not read: a sandbox may be entered
 * before gguf_open_parts. */
struct gguf_parts {
    const char *path; /* borrowed; NULL: only a descriptor was given */
    size_t n;         /* files that its name speaks of; 1 when of no others */
    size_t named;     /* which one of them path is */
    int fd[GGUF_PARTS_MAX];    /* owned; -1: it could not be opened */
    int error[GGUF_PARTS_MAX]; /* then why: an errno */
};
/* fd: of path, if it is open already (dup'ed), else -1. That another part is
 * not there is told by gguf_open_parts, for only the files say whether there is
 * one. Errors: as err_errno, for path itself. */
CHECKED int gguf_parts_open(const char *path, int fd, struct gguf_parts *ret,
                            struct err *e);
void gguf_parts_close(struct gguf_parts *p);
/* As gguf_open. p may be closed afterwards. */
CHECKED int gguf_open_parts(const struct gguf_parts *p, struct gguf **ret,
                            struct err *e);
/* Whether the path ends as a part's does, -00002-of-00003.gguf, and which one,
 * from 1. */
bool gguf_part_of(const char *path, uint32_t *ret_no, uint32_t *ret_count);
/* Bytes of a file's name without .gguf, or without what gguf_part_of reads. */
size_t gguf_stem(const char *name);

size_t gguf_n_parts(const struct gguf *g); /* files; 1 when it is not split */
/* The descriptor of one, borrowed; -1 when its bytes are. */
int gguf_part_fd(const struct gguf *g, size_t i);

/* Notes on a vocabulary's odd but harmless properties, as sentences. */
#define GGUF_NOTES_MAX 8u
struct gguf_notes {
    size_t n;    /* of text */
    size_t more; /* found, but not kept */
    char text[GGUF_NOTES_MAX][128];
};
void gguf_note(struct gguf_notes *notes, const char *fmt, ...)
    PRINTF_LIKE(2, 3); /* notes may be NULL */

/* Check the vocabulary: there are tokens, scores and types have the right type
 * and are not too few, byte tokens are spelled <0xHH>, and every special id that
 * generation uses (eos, eot, eom; bos unless add_bos_token is false; a "llama"
 * kind's unknown token) is in the vocabulary or 0xFFFFFFFF. Of merges only the
 * form is checked. Other special ids outside the vocabulary count as absent,
 * tokens may be empty or of an unknown type, and more scores or types may be
 * there than tokens: each adds a note. notes may be NULL.
 * Errors: GGUF_MISSING (no vocabulary), GGUF_VOCAB. */
CHECKED int gguf_check_vocab(const struct gguf *g, struct gguf_notes *notes,
                             struct err *e);

/* Check that each file of g still has the size and time of change that it had
 * when it was opened. Call it after the last read: a truncation inside the last
 * page raises no SIGBUS, an overwrite never does. Errors: SOURCE_CHANGED. */
CHECKED int gguf_check_unchanged(const struct gguf *g, struct err *e);

/* "gguf", or what another form of model is called (made.h). */
const char *gguf_format(const struct gguf *g);
uint32_t gguf_version(const struct gguf *g); /* 0: it is no GGUF */
uint64_t gguf_file_bytes(const struct gguf *g); /* of all parts */
size_t gguf_n_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);

/* Typed scalars; integer kinds convert when in range, floats must be finite.
 * false when absent or of another kind (then *ret is untouched). */
CHECKED bool gguf_get_u32(const struct gguf *g, const char *key, uint32_t *ret);
CHECKED bool gguf_get_f32(const struct gguf *g, const char *key, float *ret);
CHECKED bool gguf_get_bool(const struct gguf *g, const char *key, bool *ret);
CHECKED bool gguf_get_str(const struct gguf *g, const char *key,
                          struct span *ret);

/* Array access. gguf_get_arr is NULL when the key is absent, no array, or one
 * of another element kind. gguf_arr_str walks: start with *at = 0, call count
 * times. gguf_arr_int takes integer and bool arrays, gguf_arr_f32 F32 and F64.
 */
const struct gguf_kv *gguf_get_arr(const struct gguf *g, const char *key,
                                   enum gguf_kind item);
struct span gguf_arr_str(const struct gguf_kv *a, uint64_t *at);
int64_t gguf_arr_int(const struct gguf_kv *a, uint64_t i);
float gguf_arr_f32(const struct gguf_kv *a, uint64_t i);

/* "Q4_K", "F16"; "type 99" style text for unknown ones. */
const char *gguf_type_name(uint32_t type);
bool gguf_type_readable(uint32_t type);
/* The same of a tensor, which may have a function of its own. */
const char *gguf_tensor_type(const struct gguf_tensor *t);
bool gguf_readable(const struct gguf_tensor *t);

/* Dequantise rows [row, row + n) of t to out: (n, t->cols) fp32, row-major.
 * Bit for bit what the `gguf` Python package computes. Guards itself: may run
 * on any thread. Errors: UNSUPPORTED (type), INVALID (rows), SOURCE_CHANGED. */
CHECKED int gguf_rows(const struct gguf_tensor *t, uint64_t row, uint64_t n,
                      float *out, struct err *e);

/* Run fn(ctx); a SIGBUS of this thread ends it with ERR_SOURCE_CHANGED. May be
 * nested. fn is left at the read that failed (longjmp): while it reads, it must
 * hold no lock, have no other thread that uses its stack, and own nothing that
 * must not leak. Child processes are not protected: exec resets the handler. */
CHECKED int gguf_guard(int (*fn)(void *ctx, struct err *e), void *ctx,
                       struct err *e);

/* Copy the vocabulary metadata (every general.*, tokenizer.* key and the
 * architecture's vocab_size and context_length) as a GGUF v3 without tensors.
 * tmpl, where not NULL, is the copy's chat template, whatever g has. */
CHECKED int gguf_write_vocab(const struct gguf *g, const char *tmpl,
                             const char *path, struct err *e);
