/* made.h - a source under construction: another form of model file becomes a
 * struct gguf, metadata and tensors under GGUF's names, so that nothing after
 * source/ knows which form a model came in.
 *
 * Metadata lives in memory. Tensors lie in files that made_map maps, or in
 * memory of made_alloc. The source that made_done gives holds both, and
 * gguf_check_unchanged watches the files.
 *
 * Reading a mapping may raise SIGBUS (source/gguf.h): who reads one to make a
 * source does so inside gguf_guard, and owns nothing there.
 *
 * Thread: one. The source: as gguf.h says.
 */
#pragma once

#include "source/gguf.h"

struct made;

CHECKED int made_new(struct made **ret, struct err *e);
void made_free(struct made *m); /* NULL is fine; what was not given away */

/* Metadata; keys and values are copied. Errors: NOMEM, GGUF_KEY (empty, too
 * long, not plain ASCII, there already), GGUF_COUNT (too many keys, or a list
 * longer than GGUF_ARRAY_MAX), GGUF_VALUE (a string that is too long). */
CHECKED int made_str(struct made *m, const char *key, const char *v,
                     struct err *e);
CHECKED int made_span(struct made *m, const char *key, struct span v,
                      struct err *e);
CHECKED int made_u32(struct made *m, const char *key, uint32_t v,
                     struct err *e);
CHECKED int made_i32(struct made *m, const char *key, int32_t v,
                     struct err *e);
CHECKED int made_f32(struct made *m, const char *key, float v, struct err *e);
CHECKED int made_bool(struct made *m, const char *key, bool v, struct err *e);
CHECKED int made_strs(struct made *m, const char *key, const struct span *v,
                      size_t n, struct err *e);
CHECKED int made_u8s(struct made *m, const char *key, const uint8_t *v,
                     size_t n, struct err *e);
CHECKED int made_u32s(struct made *m, const char *key, const uint32_t *v,
                      size_t n, struct err *e);
CHECKED int made_i32s(struct made *m, const char *key, const int32_t *v,
                      size_t n, struct err *e);
CHECKED int made_f32s(struct made *m, const char *key, const float *v,
                      size_t n, struct err *e);
CHECKED int made_bools(struct made *m, const char *key, const bool *v,
                       size_t n, struct err *e);

/* How rows of a tensor are decoded where they are no ggml type that lies row by
 * row: rows [row, row + n) to out, (n, cols) fp32. Called inside gguf_guard on
 * any thread: it takes no lock and owns no memory. */
typedef gguf_rows_fn made_rows_fn;

/* dims in ggml order: dims[0] is the row length. Rows of a ggml type, one after
 * another at data, which is memory of made_alloc or of made_map; `bytes` must be
 * what the shape says. name is copied. Errors: NOMEM, GGUF_TENSOR (name, shape,
 * type, bytes), GGUF_COUNT. A name that is there twice is found by made_done. */
CHECKED int made_tensor(struct made *m, const char *name, uint32_t n_dims,
                        const uint64_t *dims, uint32_t type,
                        const uint8_t *data, uint64_t bytes, struct err *e);
/* Rows by a function. ctx is memory of made_alloc; type_name, a string that
 * outlives the source, is what inspect shows; bytes is what the tensor takes in
 * its file, for reports. Errors: as above. */
CHECKED int made_tensor_fn(struct made *m, const char *name, uint32_t n_dims,
                           const uint64_t *dims, const char *type_name,
                           made_rows_fn *fn, const void *ctx, uint64_t bytes,
                           struct err *e);

/* n zeroed bytes that live as long as the source. NULL: no memory. */
void *made_alloc(struct made *m, size_t n);

/* A file of the model: mapped here, fd dup'ed, name copied (for messages). Held
 * and watched as long as the source. Every file that says something about the
 * model is given, in a fixed order: the digest of a source is over its files'
 * bytes. *ret has p NULL where the file is empty. Errors: as err_errno, INVALID
 * (no regular file), NOMEM, GGUF_COUNT (more than GGUF_PARTS_MAX). */
CHECKED int made_map(struct made *m, int fd, const char *name,
                     struct span *ret, struct err *e);

/* Consumes m, whatever it returns. format: a string that outlives the source,
 * "safetensors", "onnx". Errors: GGUF_TENSOR (a name twice), NOMEM. */
CHECKED int made_done(struct made *m, const char *format, struct gguf **ret,
                      struct err *e);

/* For functions of rows: blocks of a ggml type at p to floats. false: aned
 * cannot read the type. Inside gguf_guard, like them. */
CHECKED bool made_decode(uint32_t type, const uint8_t *p, uint64_t blocks,
                         float *out);
