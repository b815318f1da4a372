/* weights.c - one streaming loop, three sinks.
 *
 *   source rows --gguf_rows--> fp32 block --permute--> --encode--> bytes
 *                 (crew: one block a piece)                 (in order) --> sink
 *
 * Blocks of a batch are encoded by the crew in any order and put in row order
 * by the caller. A row is a conv's output channel, so its scale is known when
 * the row is, and a palette's when its rows are: no second pass (int8-tensor
 * needs one for the common peak).
 */
#include "convert/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/crew.h"
#include "base/half.h"
#include "base/num.h"

/* fp32 elements of a block: 512 KiB, so a block stays in the second level
 * cache between its steps. */
#define BLOCK_FLOATS  (128u * 1024u)
#define BLOCKS_THREAD 4u /* blocks of a batch for each thread */
/* Rows of a block with feedback, at least: each block reads the whole factor.
 */
#define FEEDBACK_ROWS 48u

struct block {
    float *in;       /* rows as read */
    float *permuted; /* one head; NULL without permutation */
    uint8_t *out;
    uint16_t common; /* int8-tensor's scale */
    double error;
    int rc;
    struct err err;
};

struct stream {
    const struct gguf_tensor *t;
    struct part p;        /* that the rows are of, from row `row` of it on */
    uint64_t row;
    uint64_t first, rows; /* of t, where the part has no runs */
    const struct head_rows *perm;
    struct quant_spec spec;
    struct weights_inputs inputs;
    bool peak_only;
    float peak;       /* of the tensor, for QUANT_INT8_TENSOR */
    uint16_t *params; /* of all rows */
    double error;
    uint64_t block_rows;
    uint64_t at;    /* first row of this batch, from `first` */
    size_t row_out; /* bytes of an encoded row */
    size_t n_blocks;
    struct block *blocks;
};

static uint64_t rows_of_block(const struct stream *s, size_t i)
{
    uint64_t from = s->at + i * s->block_rows;
    return num_min(s->block_rows, s->rows - from);
}

/* Rows of each head of the block into rotate-half order, in place. */
static void permute(const struct stream *s, struct block *b, uint64_t n)
{
    const struct head_rows *p = s->perm;
    size_t cols = s->t->cols;
    for (uint64_t h = 0; h < n; h += p->d_head) {
        float *head = b->in + h * cols;
        for (uint32_t i = 0; i < p->d_head; i++) {
            memcpy(b->permuted + i * cols, head + head_row(p, i) * cols,
                   cols * sizeof(float));
        }
        memcpy(head, b->permuted, p->d_head * cols * sizeof(float));
    }
}

static void encode(struct stream *s, struct block *b, uint64_t from, uint64_t n)
{
    bool common = s->spec.kind == QUANT_INT8_TENSOR;
    struct quant_input in = {
        .spec = s->spec,
        .rows = b->in,
        .n_rows = n,
        .cols = s->t->cols,
        .first = s->first + from,
        .importance = s->inputs.importance,
        .peak = s->peak,
        .feedback = s->inputs.feedback,
    };
    struct quant_form out = {.codes = b->out, .params = &b->common};
    if (!common) {
        out.params = s->params + quant_params(s->spec, from);
    }
    b->rc = quant_encode(&in, &out, &b->err);
    b->error = out.error;
}

static void run_block(struct stream *s, size_t i)
{
    struct block *b = &s->blocks[i];
    uint64_t from = s->at + i * s->block_rows;
    uint64_t n = rows_of_block(s, i);
    size_t cols = s->t->cols;
    b->rc = arch_rows_of(&s->p, s->row + from, n, b->in, &b->err);
    if (b->rc < 0) {
        return;
    }
    if (s->peak_only) {
        float p = quant_peak(b->in, n * cols);
        memcpy(b->out, &p, sizeof(p));
        return;
    }
    if (s->perm != NULL) {
        permute(s, b, n);
    }
    encode(s, b, from, n);
}

static void on_blocks(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    for (size_t i = begin; i < end; i++) {
        run_block(ctx, i);
    }
}

static void stream_fini(struct stream *s)
{
    for (size_t i = 0; s->blocks != NULL && i < s->n_blocks; i++) {
        free(s->blocks[i].in);
        free(s->blocks[i].permuted);
        free(s->blocks[i].out);
    }
    free(s->blocks);
    free(s->params);
}

static uint64_t common_multiple(uint64_t a, uint64_t b)
{
    uint64_t x = a;
    while (x % b != 0) {
        x += a;
    }
    return x;
}

/* A block has whole heads and whole groups. Both divide `rows`, so their common
 * multiple does. */
static uint64_t choose_block(const struct stream *s)
{
    uint64_t heads = s->perm != NULL ? s->perm->d_head : 1;
    uint64_t unit = common_multiple(heads, s->spec.group);
    must(s->rows % unit == 0);
    uint64_t want = num_max(BLOCK_FLOATS / s->t->cols, 1);
    if (s->inputs.feedback != NULL) {
        want = num_max(want, FEEDBACK_ROWS);
        want -= want % FEEDBACK_ROWS;
    }
    return num_max(want / unit, 1) * unit;
}

static int stream_blocks(struct stream *s, unsigned threads, struct err *e)
{
    size_t cols = (size_t)s->t->cols;
    size_t needed = (size_t)((s->rows + s->block_rows - 1) / s->block_rows);
    s->n_blocks = num_min((size_t)threads * BLOCKS_THREAD, needed);
    size_t floats = (size_t)num_min(s->block_rows, s->rows) * cols;
    size_t params = (size_t)quant_params(s->spec, s->rows);
    s->blocks = calloc(s->n_blocks, sizeof(*s->blocks));
    s->params = calloc(params + 1, sizeof(*s->params)); /* fp16 has none */
    bool ok = s->blocks != NULL && s->params != NULL;
    for (size_t i = 0; ok && i < s->n_blocks; i++) {
        struct block *b = &s->blocks[i];
        b->in = malloc(floats * sizeof(float));
        b->out = malloc(floats * sizeof(uint16_t) + sizeof(float));
        ok = b->in != NULL && b->out != NULL;
        if (ok && s->perm != NULL) {
            b->permuted = malloc(s->perm->d_head * cols * sizeof(float));
            ok = b->permuted != NULL;
        }
    }
    if (!ok) {
        stream_fini(s);
        return err_set(e, ERR_NOMEM, "no memory for a block of rows");
    }
    return 0;
}

static int stream_init(struct stream *s, const struct weights *x,
                       const struct part *p, uint64_t first, uint64_t rows,
                       const struct head_rows *perm, struct quant_spec spec,
                       struct err *e)
{
    const struct gguf_tensor *t = p->t;
    must(first + rows <= p->rows && p->rows <= t->rows);
    *s = (struct stream){.t = t,
                         .p = *p,
                         .row = first,
                         .first = p->first + first,
                         .rows = rows,
                         .perm = perm};
    s->spec = quant_fit(spec, rows);
    if (x->inputs != NULL && spec.kind != QUANT_FP16) {
        x->inputs(x->ctx, t, &s->inputs);
    }
    s->block_rows = choose_block(s);
    s->row_out = (size_t)(t->cols * quant_bits(spec.kind) / 8);
    int rc = quant_check(s->spec, t->cols, e);
    rc = rc < 0 ? rc : stream_blocks(s, x->threads, e);
    return rc < 0 ? err_prefix(e, rc, "%s", t->name) : 0;
}

/* Run all batches; sink gets each block's bytes in row order. */
static int stream_run(struct stream *s, const struct weights *x,
                      int (*sink)(void *ctx, const void *p, size_t n,
                                  struct err *e),
                      void *ctx, struct err *e)
{
    for (s->at = 0; s->at < s->rows;) {
        uint64_t left = (s->rows - s->at + s->block_rows - 1) / s->block_rows;
        size_t n = (size_t)num_min(left, s->n_blocks);
        uint64_t rows = 0;
        crew_run(x->threads, n, 1, on_blocks, s);
        for (size_t i = 0; i < n; i++) {
            struct block *b = &s->blocks[i];
            uint64_t r = rows_of_block(s, i);
            rows += r;
            if (b->rc < 0) {
                return err_set(e, b->rc, "%s: %s", s->t->name, b->err.msg);
            }
            s->error += b->error;
            RETERR(sink(ctx, b->out,
                        s->peak_only ? sizeof(float) : (size_t)r * s->row_out,
                        e));
        }
        s->at += rows;
        if (x->progress != NULL && !s->peak_only) {
            RETERR(progress_add(x->progress, rows * s->t->row_bytes, e));
        }
    }
    return 0;
}

/* --- matrices --- */

static int sink_blob(void *ctx, const void *p, size_t n, struct err *e)
{
    (void)e; /* the writer keeps its own error until finish */
    mil_blob_put(ctx, p, n);
    return 0;
}

static int sink_peak(void *ctx, const void *p, size_t n, struct err *e)
{
    must(n == sizeof(float));
    (void)e;
    float v = 0;
    memcpy(&v, p, sizeof(v));
    float *peak = ctx;
    if (isnan(v) || v > *peak) {
        *peak = v;
    }
    return 0;
}

static struct mil_type conv_type(enum mil_dtype dtype, uint64_t rows,
                                 uint64_t cols)
{
    return (struct mil_type){
        .dtype = dtype,
        .rank = 4,
        .dims = {(int64_t)rows, (int64_t)cols, 1, 1}
    };
}

static enum mil_dtype code_type(enum quant k)
{
    switch (k) {
    case QUANT_FP16:
        return MIL_FP16;
    case QUANT_INT4:
        return MIL_INT4;
    case QUANT_LUT4:
        return MIL_UINT4;
    case QUANT_LUT6:
        return MIL_UINT6;
    case QUANT_INT8:
    case QUANT_INT8_TENSOR:
        break;
    }
    return MIL_INT8;
}

/* Scales [rows or 1, 1, 1, 1], or palettes [groups, 1, 1, 1, entries, 1] (facts
 * 5.1). */
static struct mil_type params_type(struct quant_spec spec, uint64_t rows)
{
    uint64_t n = quant_params(spec, rows);
    unsigned entries = quant_entries(spec.kind);
    struct mil_type t = conv_type(MIL_FP16, n, 1);
    if (entries > 0) {
        t.rank = 6;
        t.dims[0] = (int64_t)(n / entries);
        t.dims[4] = entries;
        t.dims[5] = 1;
    }
    return t;
}

/* A matrix that the writer has already. */
static void keep_matrix(struct mil_writer *w, const struct mil_type *type,
                        struct quant_spec spec, uint64_t rows,
                        struct weight *ret)
{
    *ret = (struct weight){.data = mil_blob_keep(w, type)};
    ret->palette = quant_entries(spec.kind) > 0;
    if (spec.kind != QUANT_FP16) {
        struct mil_type t = params_type(spec, rows);
        ret->params = mil_blob_keep(w, &t);
    }
}

int weights_encode(const struct weights *x, const struct part *p,
                   uint64_t first, uint64_t rows, const struct head_rows *perm,
                   struct quant_spec spec,
                   int (*put)(void *ctx, const void *codes, size_t n,
                              struct err *e),
                   void *ctx, uint16_t *params, double *ret_error,
                   struct err *e)
{
    must(first + rows <= p->rows);
    struct stream s = {0};
    int rc = stream_init(&s, x, p, first, rows, perm, spec, e);
    if (rc < 0) {
        return rc;
    }
    if (spec.kind == QUANT_INT8_TENSOR) { /* the common peak first */
        s.peak_only = true;
        CHECK(stream_run(&s, x, sink_peak, &s.peak, e));
        s.peak_only = false;
    }
    CHECK(stream_run(&s, x, put, ctx, e));
    if (spec.kind == QUANT_INT8_TENSOR) {
        s.params[0] = s.blocks[0].common;
    }
    if (spec.kind != QUANT_FP16) {
        memcpy(params, s.params,
               quant_params(s.spec, rows) * sizeof(*s.params));
    }
    *ret_error = s.error;
out:
    stream_fini(&s);
    return rc;
}

static int sink_none(void *ctx, const void *p, size_t n, struct err *e)
{
    (void)ctx;
    (void)p;
    (void)n;
    (void)e;
    return 0;
}

int weights_params(const struct weights *x, const struct part *p,
                   const struct head_rows *perm, struct quant_spec spec,
                   uint16_t *params, double *error, struct err *e)
{
    return weights_encode(x, p, 0, p->rows, perm, spec, sink_none, NULL, params,
                          error, e);
}

/* The blob of codes, from calibration where it made them. */
static int put_codes(const struct weights *x, struct mil_writer *w,
                     const struct part *p, uint64_t first, uint64_t rows,
                     const struct head_rows *perm, struct quant_spec spec,
                     struct weights_codes *made, uint16_t *params,
                     double *error, struct err *e)
{
    const struct gguf_tensor *t = p->t;
    if (x->codes == NULL ||
        !x->codes(x->ctx, p, first, rows, made)) {
        return weights_encode(x, p, first, rows, perm, spec, sink_blob, w,
                              params, error, e);
    }
    mil_blob_put(w, made->codes,
                 (size_t)(rows * t->cols * quant_bits(spec.kind) / 8));
    return x->progress != NULL
               ? progress_add(x->progress, rows * t->row_bytes, e)
               : 0;
}

int weights_matrix(const struct weights *x, struct mil_writer *w,
                   const struct part *p, uint64_t first, uint64_t rows,
                   const struct head_rows *perm, struct weight *ret,
                   struct err *e)
{
    const struct gguf_tensor *t = p->t;
    struct quant_spec spec =
        quant_fit(quant_choice_for(x->choice, t->name), rows);
    struct mil_type type = conv_type(code_type(spec.kind), rows, t->cols);
    struct weight r = {.palette = quant_entries(spec.kind) > 0};
    struct weights_codes made = {0};
    if (mil_writer_keeps(w)) {
        keep_matrix(w, &type, spec, rows, ret);
        return 0;
    }
    int rc = quant_check(spec, t->cols, e);
    if (rc < 0) {
        return err_prefix(e, rc, "%s", t->name);
    }
    uint16_t *params =
        malloc((quant_params(spec, rows) + 1) * sizeof(*params)); /* fp16: 0 */
    if (params == NULL) {
        return err_set(e, ERR_NOMEM, "%s: no memory", t->name);
    }
    mil_blob_begin(w, &type); /* on an error the writer is aborted with it */
    CHECK(put_codes(x, w, p, first, rows, perm, spec, &made, params, &r.error,
                    e));
    r.data = mil_blob_end(w);
    if (spec.kind != QUANT_FP16) {
        struct mil_type pt = params_type(spec, rows);
        r.params =
            mil_blob(w, &pt, made.params != NULL ? made.params : params);
    }
    *ret = r;
out:
    free(params);
    return rc;
}

struct mil_value *weights_value(struct mil_program *p, struct mil_function *f,
                                const char *name, const struct weight *w)
{
    if (w->params == NULL) {
        return mil_const_op(p, f, name, w->data);
    }
    return w->palette ? mil_look_up(p, f, name, w->data, w->params)
                      : mil_dequant(p, f, name, w->data, w->params);
}

/* --- vectors --- */

static struct mil_type vector_type(enum weights_shape shape, size_t n)
{
    struct mil_type type = {
        .dtype = MIL_FP16, .rank = 4, .dims = {1, 1, 1, 1}
    };
    if (shape == WEIGHTS_BIAS) {
        type.rank = 1;
        type.dims[0] = (int64_t)n;
    } else {
        type.dims[shape == WEIGHTS_CHANNEL ? 1 : 3] = (int64_t)n;
    }
    return type;
}

/* fp16 of a number, if it holds it. */
static int to_half(const char *name, float v, uint16_t *ret, struct err *e)
{
    *ret = half_from_float(v);
    return (*ret & 0x7c00u) != 0x7c00u
               ? 0
               : err_set(e, ERR_RANGE, "%s: %g leaves the fp16 range",
                         name, (double)v);
}

int weights_taps(struct mil_writer *w, const struct part *p, uint32_t inputs,
                 const struct mil_const **ret, struct err *e)
{
    size_t n = (size_t)(p->rows * p->cols);
    const struct mil_type type = {
        .dtype = MIL_FP16,
        .rank = 4,
        .dims = {(int64_t)p->rows, inputs, (int64_t)(p->cols / inputs), 1}
    };
    if (mil_writer_keeps(w)) {
        *ret = mil_blob_keep(w, &type);
        return 0;
    }
    float *in = malloc(n * sizeof(*in));
    uint16_t *out = malloc(n * sizeof(*out));
    int rc = 0;
    if (in == NULL || out == NULL) {
        rc = err_set(e, ERR_NOMEM, "%s: no memory", p->t->name);
        goto out;
    }
    CHECK(gguf_rows(p->t, 0, p->rows, in, e));
    for (size_t i = 0; i < n; i++) {
        CHECK(to_half(p->t->name, in[i], &out[i], e));
    }
    *ret = mil_blob(w, &type, out);
out:
    free(in);
    free(out);
    return rc;
}

int weights_floats(struct mil_writer *w, const char *name,
                   enum weights_shape shape, const float *v, size_t n,
                   const struct mil_const **ret, struct err *e)
{
    const struct mil_type type = vector_type(shape, n);
    if (mil_writer_keeps(w)) {
        *ret = mil_blob_keep(w, &type);
        return 0;
    }
    uint16_t *out = malloc(n * sizeof(*out));
    int rc = out != NULL ? 0 : err_set(e, ERR_NOMEM, "%s: no memory", name);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = to_half(name, v[i], &out[i], e);
    }
    if (rc == 0) {
        *ret = mil_blob(w, &type, out);
    }
    free(out);
    return rc;
}

int weights_table(struct mil_writer *w, const struct part *p, uint64_t first,
                  uint64_t rows, bool turned, const struct mil_const **ret,
                  struct err *e)
{
    size_t n = (size_t)(rows * p->cols);
    struct mil_type type = {
        .dtype = MIL_FP16, .rank = 1, .dims = {(int64_t)n}
    };
    if (turned) {
        type = (struct mil_type){
            .dtype = MIL_FP16,
            .rank = 4,
            .dims = {(int64_t)p->cols, (int64_t)rows, 1, 1}
        };
    }
    if (mil_writer_keeps(w)) {
        *ret = mil_blob_keep(w, &type);
        return 0;
    }
    float *in = malloc(n * sizeof(*in));
    uint16_t *out = malloc(n * sizeof(*out));
    int rc = 0;
    if (in == NULL || out == NULL) {
        rc = err_set(e, ERR_NOMEM, "%s: no memory", p->t->name);
        goto out;
    }
    CHECK(gguf_rows(p->t, p->first + first, rows, in, e));
    for (size_t i = 0; i < n; i++) {
        size_t to = turned ? i % p->cols * rows + i / p->cols : i;
        CHECK(to_half(p->t->name, in[i], &out[to], e));
    }
    *ret = mil_blob(w, &type, out);
out:
    free(in);
    free(out);
    return rc;
}

int weights_vector(struct mil_writer *w, const struct part *p,
                   enum weights_shape shape, float factor, bool plus_one,
                   const struct head_rows *perm, const struct mil_const **ret,
                   struct err *e)
{
    size_t n = (size_t)p->cols;
    float *in = malloc(n * sizeof(*in));
    uint16_t *out = malloc(n * sizeof(*out));
    struct mil_type type = vector_type(shape, n);
    int rc = 0;
    if (mil_writer_keeps(w)) {
        *ret = mil_blob_keep(w, &type);
        goto out;
    }
    if (in == NULL || out == NULL) {
        rc = err_set(e, ERR_NOMEM, "%s: no memory", p->t->name);
        goto out;
    }
    CHECK(arch_vector(p, in, e));
    for (size_t i = 0; i < n; i++) {
        size_t from = i;
        if (perm != NULL) {
            from = i - i % perm->d_head +
                   head_row(perm, (uint32_t)(i % perm->d_head));
        }
        float v = (plus_one ? 1 + in[from] : in[from]) * factor;
        CHECK(to_half(p->t->name, v, &out[i], e));
    }
    *ret = mil_blob(w, &type, out);
out:
    free(in);
    free(out);
    return rc;
}

/* --- the embedding file --- */

struct file_sink {
    int fd;
    struct weights_hash *ret;
    struct sha256 hash;
};

static int sink_fd(void *ctx, const void *p, size_t n, struct err *e)
{
    struct file_sink *s = ctx;
    sha256_add(&s->hash, p, n);
    s->ret->bytes += n;
    return file_put(s->fd, p, n, FILE_HERE, "embed.bin", e);
}

int weights_file(const struct weights *x, const struct gguf_tensor *t,
                 const char *path, struct weights_hash *ret, struct err *e)
{
    struct stream s = {0};
    uint8_t digest[SHA256_BYTES];
    *ret = (struct weights_hash){.bytes = 0};
    struct file_sink to = {.ret = ret};
    sha256_init(&to.hash);
    to.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (to.fd < 0) {
        return err_errno(e, errno, "embed.bin");
    }
    const struct part all = {.t = t, .rows = t->rows, .cols = t->cols};
    int rc = stream_init(&s, x, &all, 0, t->rows, NULL,
                         (struct quant_spec){QUANT_FP16, 1}, e);
    if (rc == 0) {
        rc = stream_run(&s, x, sink_fd, &to, e);
        stream_fini(&s);
    }
    rc = rc < 0 ? rc : file_sync(to.fd, "embed.bin", e);
    if (close(to.fd) < 0 && rc == 0) {
        rc = err_errno(e, errno, "embed.bin");
    }
    sha256_end(&to.hash, digest);
    sha256_hex(digest, ret->sha256);
    return rc;
}
