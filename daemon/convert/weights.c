/* weights.c - one streaming loop, three sinks.
 *
 *   source rows --gguf_rows--> fp32 block --permute--> --encode--> bytes
 *                 (crew: one block a piece)                 (in order) --> sink
 *
 * Blocks of a batch are encoded by the crew in any order and put in row order
 * by the caller. A row is a conv's output channel, so its scale is known when
 * the row is: no second pass (int8-tensor needs one for the common peak).
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

struct block {
    float *in;       /* rows as read */
    float *permuted; /* one head; NULL without permutation */
    uint8_t *out;
    int rc;
    struct err err;
};

struct stream {
    const struct gguf_tensor *t;
    uint64_t first, rows;
    const struct head_rows *perm;
    enum quant quant;
    bool peak_only;
    float peak;       /* of the tensor, for QUANT_INT8_TENSOR */
    uint16_t *scales; /* per row */
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

static int encode_row(struct stream *s, const float *w, uint64_t row,
                      uint8_t *out, struct err *e)
{
    size_t n = s->t->cols;
    float peak = quant_peak(w, n);
    if (isnan(peak)) {
        return err_set(e, ERR_CONVERT, "%s: row %llu is not finite", s->t->name,
                       (unsigned long long)row);
    }
    int levels = s->quant == QUANT_INT4 ? 7 : 127;
    float reach = s->quant == QUANT_FP16 ? 65504.0f : 65504.0f * (float)levels;
    if (peak > reach) {
        return err_set(e, ERR_RANGE, "%s: a weight of %g leaves the fp16 range",
                       s->t->name, (double)peak);
    }
    if (s->quant == QUANT_FP16) {
        half_from_floats(w, (uint16_t *)(void *)out, n);
        return 0;
    }
    bool common = s->quant == QUANT_INT8_TENSOR;
    uint16_t scale = quant_scale(common ? s->peak : peak, levels);
    s->scales[row] = scale;
    if (s->quant == QUANT_INT4) {
        quant_int4(w, n, scale, out);
    } else {
        quant_int8(w, n, scale, (int8_t *)out);
    }
    return 0;
}

static void run_block(struct stream *s, size_t i)
{
    struct block *b = &s->blocks[i];
    uint64_t from = s->at + i * s->block_rows;
    uint64_t n = rows_of_block(s, i);
    size_t cols = s->t->cols;
    b->rc = gguf_rows(s->t, s->first + from, n, b->in, &b->err);
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
    for (uint64_t r = 0; b->rc == 0 && r < n; r++) {
        b->rc = encode_row(s, b->in + r * cols, from + r,
                           b->out + r * s->row_out, &b->err);
    }
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
    free(s->scales);
}

static int stream_init(struct stream *s, const struct weights *x,
                       const struct gguf_tensor *t, uint64_t first,
                       uint64_t rows, const struct head_rows *perm, struct err *e)
{
    must(first + rows <= t->rows);
    *s = (struct stream){
        .t = t, .first = first, .rows = rows, .perm = perm, .quant = x->quant};
    if (s->quant == QUANT_INT4 && t->cols % 2 != 0) {
        return err_set(e, ERR_UNSUPPORTED, "%s: int4 needs rows of even length",
                       t->name);
    }
    uint64_t unit = perm != NULL ? perm->d_head : 1;
    must(rows % unit == 0);
    s->block_rows = num_max(BLOCK_FLOATS / t->cols / unit, 1) * unit;
    s->row_out = (size_t)(t->cols * quant_bits(s->quant) / 8);
    s->n_blocks = (size_t)x->threads * BLOCKS_THREAD;
    size_t needed = (size_t)((rows + s->block_rows - 1) / s->block_rows);
    s->n_blocks = num_min(s->n_blocks, needed);
    size_t floats = (size_t)(s->block_rows * t->cols);
    s->blocks = calloc(s->n_blocks, sizeof(*s->blocks));
    s->scales = calloc((size_t)rows, sizeof(*s->scales));
    bool ok = s->blocks != NULL && s->scales != NULL;
    for (size_t i = 0; ok && i < s->n_blocks; i++) {
        struct block *b = &s->blocks[i];
        b->in = malloc(floats * sizeof(float));
        b->out = malloc(floats * sizeof(uint16_t) + sizeof(float));
        ok = b->in != NULL && b->out != NULL;
        if (ok && perm != NULL) {
            b->permuted = malloc(perm->d_head * t->cols * sizeof(float));
            ok = b->permuted != NULL;
        }
    }
    if (!ok) {
        stream_fini(s);
        return err_set(e, ERR_NOMEM, "%s: no memory for a block of rows",
                       t->name);
    }
    return 0;
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
                return err_set(e, b->rc, "%s", b->err.msg);
            }
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

int weights_matrix(const struct weights *x, struct mil_writer *w,
                   const struct part *p, uint64_t first, uint64_t rows,
                   const struct head_rows *perm, struct weight *ret,
                   struct err *e)
{
    const struct gguf_tensor *t = p->t;
    must(first + rows <= p->rows);
    struct stream s = {0};
    struct weight r = {0};
    enum mil_dtype dtype = x->quant == QUANT_FP16   ? MIL_FP16
                           : x->quant == QUANT_INT4 ? MIL_INT4
                                                    : MIL_INT8;
    struct mil_type type = conv_type(dtype, rows, t->cols);
    int rc = stream_init(&s, x, t, p->first + first, rows, perm, e);
    if (rc < 0) {
        return rc;
    }
    if (s.quant == QUANT_INT8_TENSOR) {
        s.peak_only = true;
        rc = stream_run(&s, x, sink_peak, &s.peak, e);
        s.peak_only = false;
    }
    if (rc < 0) {
        goto out;
    }
    mil_blob_begin(w, &type);
    rc = stream_run(&s, x, sink_blob, w, e);
    if (rc < 0) {
        goto out; /* the writer is aborted with its open blob */
    }
    r.data = mil_blob_end(w);
    if (s.quant != QUANT_FP16) {
        uint64_t n = s.quant == QUANT_INT8_TENSOR ? 1 : rows;
        struct mil_type st = conv_type(MIL_FP16, n, 1);
        r.scale = mil_blob(w, &st, s.scales);
    }
    *ret = r;
out:
    stream_fini(&s);
    return rc;
}

/* --- vectors --- */

int weights_vector(struct mil_writer *w, const struct part *p,
                   enum weights_shape shape, float factor, bool plus_one,
                   const struct head_rows *perm, const struct mil_const **ret,
                   struct err *e)
{
    size_t n = (size_t)p->cols;
    float *in = malloc(n * sizeof(*in));
    uint16_t *out = malloc(n * sizeof(*out));
    struct mil_type type = {
        .dtype = MIL_FP16, .rank = 4, .dims = {1, 1, 1, 1}
    };
    int rc = 0;
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
        out[i] = half_from_float(v);
        if ((out[i] & 0x7c00u) == 0x7c00u) {
            rc = err_set(e, ERR_RANGE, "%s: %g leaves the fp16 range",
                         p->t->name, (double)v);
            goto out;
        }
    }
    if (shape == WEIGHTS_BIAS) {
        type.rank = 1;
        type.dims[0] = (int64_t)n;
    } else {
        type.dims[shape == WEIGHTS_CHANNEL ? 1 : 3] = (int64_t)n;
    }
    *ret = mil_blob(w, &type, out);
out:
    free(in);
    free(out);
    return rc;
}

/* --- the embedding file --- */

static int sink_fd(void *ctx, const void *p, size_t n, struct err *e)
{
    return file_put(*(const int *)ctx, p, n, FILE_HERE, "embed.bin", e);
}

int weights_file(const struct weights *x, const struct gguf_tensor *t,
                 const char *path, struct err *e)
{
    struct weights half = *x;
    half.quant = QUANT_FP16;
    struct stream s = {0};
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
        return err_errno(e, errno, "embed.bin");
    }
    int rc = stream_init(&s, &half, t, 0, t->rows, NULL, e);
    if (rc == 0) {
        rc = stream_run(&s, &half, sink_fd, &fd, e);
        stream_fini(&s);
    }
    if (close(fd) < 0 && rc == 0) {
        rc = err_errno(e, errno, "embed.bin");
    }
    return rc;
}
