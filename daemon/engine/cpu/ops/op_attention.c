/* scaled_dot_product_attention and the attention that fuse.c recognises.
 *
 * Work is cut into units: a key/value matrix and up to UNIT_COLS query rows
 * that share it (the rows of a chunk, and the heads of a group when these are
 * a batch axis). A unit computes scores against the positions any of its rows
 * sees (gemm.c's reduction), turns each row into probabilities over its own
 * stretch, and multiplies by the values (gemm.h's chain). */
#include "engine/cpu/ops/op_attention.h"

#include <math.h>
#include <string.h>

#include "base/crew.h"
#include "base/half.h"
#include "engine/cpu/kernels/products/gemm.h"
#include "engine/cpu/kernels/vmath.h"
#include "engine/cpu/ops/ops.h"

#define UNIT_COLS    8
#define PARALLEL_MIN 131072 /* multiply-adds */

enum { Q, K, V, MASK };

struct attention_params {
    const struct attention_form *form;
    size_t rows, d, s, e; /* of one q, k, v matrix */
    int rank;             /* batch axes of the result */
    size_t dims[MIL_RANK_MAX];
    size_t sq[MIL_RANK_MAX], sk[MIL_RANK_MAX], sv[MIL_RANK_MAX];
    int mask_rank; /* axes of the scores where the mask is added, without S */
    size_t mask_dims[MIL_RANK_MAX], mask_strides[MIL_RANK_MAX];
    size_t group;   /* batch entries that follow each other on one k and v */
    size_t batches; /* all of them */
};

struct unit_run {
    const struct step *s;
    const struct run *r;
    size_t chunk;  /* columns of a unit */
    size_t chunks; /* units of a group */
    size_t stride; /* scratch floats of a worker */
};

/* Strides of v's batch axes spread over the result's. */
static int spread(const struct val *v, int rank, const size_t *dims,
                  size_t *out, struct err *e)
{
    size_t stride = (size_t)(v->dims[v->rank - 1] * v->dims[v->rank - 2]);
    for (int i = rank - 1; i >= 0; i--) {
        int k = v->rank - 2 - rank + i;
        size_t d = k < 0 ? 1 : (size_t)v->dims[k];
        if (d != 1 && d != dims[i]) {
            return err_set(e, ERR_MIL_SHAPE, "the batch axes do not fit");
        }
        out[i] = d == 1 ? 0 : stride;
        stride *= d;
    }
    return 0;
}

/* The rows of the scores as they are shaped where the mask is added: the
 * result's own, or what a reshape in between declares, with at most one axis
 * that the number of rows tells. */
static int mask_space(struct attention_params *u, struct err *e)
{
    const struct mil_type *t = u->form->space;
    size_t all = u->batches * u->rows;
    if (t == NULL) {
        memcpy(u->mask_dims, u->dims, sizeof(u->mask_dims));
        u->mask_dims[u->rank] = u->rows;
        u->mask_rank = u->rank + 1;
        return 0;
    }
    int unknown = -1;
    size_t n = 1;
    u->mask_rank = t->rank - 1;
    for (int i = 0; i < u->mask_rank; i++) {
        if (t->dims[i] == MIL_UNKNOWN) {
            unknown = i;
        } else {
            u->mask_dims[i] = (size_t)t->dims[i];
            n *= (size_t)t->dims[i];
        }
    }
    if (unknown >= 0 && n > 0) {
        u->mask_dims[unknown] = all / n;
        n *= all / n;
    }
    return n == all ? 0
                    : err_set(e, ERR_MIL_SHAPE, "the scores' rows do not fit");
}

static int mask_shape(const struct step *s, struct attention_params *u,
                      struct err *e)
{
    const struct val *m = step_opt(s, MASK);
    int rc = m != NULL ? mask_space(u, e) : 0;
    if (rc < 0 || m == NULL) {
        return rc;
    }
    bool fits = (m->kind == VAL_F32 || m->kind == VAL_BOOL) && m->rank >= 1 &&
                m->rank <= u->mask_rank + 1 &&
                (size_t)m->dims[m->rank - 1] == u->s;
    size_t stride = u->s;
    for (int i = u->mask_rank - 1; fits && i >= 0; i--) {
        int k = m->rank - 1 - u->mask_rank + i;
        size_t d = k < 0 ? 1 : (size_t)m->dims[k];
        fits = d == 1 || d == u->mask_dims[i];
        u->mask_strides[i] = d == 1 ? 0 : stride;
        stride *= d;
    }
    return fits ? 0
                : err_set(e, ERR_MIL_SHAPE, "the mask does not fit the scores");
}

/* Where the mask of a row (counted over all batch entries) begins. */
static size_t mask_offset(const struct attention_params *u, size_t row)
{
    size_t at = 0;
    for (int i = u->mask_rank - 1; i >= 0; i--) {
        at += row % u->mask_dims[i] * u->mask_strides[i];
        row /= u->mask_dims[i];
    }
    return at;
}

static int shapes(struct step *s, struct attention_params *u, struct err *e)
{
    const struct val *q = step_in(s, Q);
    const struct val *k = step_in(s, K);
    const struct val *v = step_in(s, V);
    if (q->kind != VAL_F32 || q->rank < 2 || k->rank < 2 || v->rank < 2 ||
        (k->kind != VAL_F32 && k->kind != VAL_F16) ||
        (v->kind != VAL_F32 && v->kind != VAL_F16)) {
        return err_set(e, ERR_MIL_SHAPE, "query, key and value do not fit");
    }
    bool tx = u->form->tx;
    u->rows = (size_t)q->dims[q->rank - (tx ? 1 : 2)];
    u->d = (size_t)q->dims[q->rank - (tx ? 2 : 1)];
    u->s = (size_t)k->dims[k->rank - 2];
    u->e = (size_t)v->dims[v->rank - 1];
    if ((size_t)k->dims[k->rank - 1] != u->d || u->s == 0 ||
        (size_t)v->dims[v->rank - 2] != u->s) {
        return err_set(e, ERR_MIL_SHAPE, "query, key and value do not fit");
    }
    int rank = q->rank > k->rank ? q->rank : k->rank;
    u->rank = (rank > v->rank ? rank : v->rank) - 2;
    u->batches = 1;
    for (int i = 0; i < u->rank; i++) {
        const struct val *all[] = {q, k, v};
        u->dims[i] = 1;
        for (size_t j = 0; j < countof(all); j++) {
            int at = all[j]->rank - 2 - u->rank + i;
            if (at >= 0 && all[j]->dims[at] != 1) {
                u->dims[i] = (size_t)all[j]->dims[at];
            }
        }
        u->batches *= u->dims[i];
    }
    RETERR(spread(q, u->rank, u->dims, u->sq, e));
    RETERR(spread(k, u->rank, u->dims, u->sk, e));
    RETERR(spread(v, u->rank, u->dims, u->sv, e));
    return mask_shape(s, u, e);
}

static int finish_prep(struct step *s, struct attention_params *u,
                       struct err *e)
{
    int64_t dims[MIL_RANK_MAX];
    s->u = u;
    int rc = shapes(s, u, e);
    if (rc < 0) {
        return rc;
    }
    u->group = 1; /* trailing batch axes along which k and v stand still */
    for (int i = u->rank - 1; i >= 0; i--) {
        if (u->sk[i] != 0 || u->sv[i] != 0) {
            break;
        }
        u->group *= u->dims[i];
    }
    for (int i = 0; i < u->rank; i++) {
        dims[i] = (int64_t)u->dims[i];
    }
    dims[u->rank] = (int64_t)u->rows;
    dims[u->rank + 1] = (int64_t)u->e;
    size_t per = UNIT_COLS * (gemm_pad(u->d) + gemm_pad(u->s));
    s->scratch = s->plan_threads * per * sizeof(float);
    return val_set(step_out(s, 0), VAL_F32, u->rank + 2, dims, e);
}

int attention_prep(struct step *s, struct err *e)
{
    struct attention_params *u = step_alloc(s, sizeof(*u));
    u->form = s->node->fused;
    return finish_prep(s, u, e);
}

int sdpa_prep(struct step *s, struct err *e)
{
    struct attention_params *u = step_alloc(s, sizeof(*u));
    struct attention_form *f = step_alloc(s, sizeof(*f));
    const struct val *q = step_in(s, Q);
    if (q->rank < 3 || q->dims[q->rank - 1] < 1) {
        return err_set(e, ERR_MIL_SHAPE, "query has a rank below 3");
    }
    f->hidden = -INFINITY;
    f->n = step_opt(s, MASK) != NULL ? 2 : 1;
    f->ops[0].op = ATTENTION_MUL;
    f->ops[0].c = 1.0f / sqrtf((float)q->dims[q->rank - 1]);
    f->ops[1].op = ATTENTION_ADD_MASK;
    u->form = f;
    return finish_prep(s, u, e);
}

/* Offsets of a batch entry. */
static void offsets(const struct attention_params *u, size_t b, size_t *q,
                    size_t *k, size_t *v)
{
    *q = *k = *v = 0;
    for (int i = u->rank - 1; i >= 0; i--) {
        size_t c = b % u->dims[i];
        b /= u->dims[i];
        *q += c * u->sq[i];
        *k += c * u->sk[i];
        *v += c * u->sv[i];
    }
}

/* The stretch [lo, hi) that a row sees; lo is a multiple of 16 so that every
 * position keeps its lane. Everything when it sees nothing. */
static void visible(const struct attention_params *u, const struct val *mask,
                    size_t at, size_t *lo, size_t *hi)
{
    size_t n = u->s;
    *lo = 0;
    *hi = n;
    if (mask == NULL) {
        return;
    }
    float hidden = u->form->hidden;
    size_t a = 0;
    if (mask->kind == VAL_BOOL) {
        const int32_t *m = mask->i + at;
        while (n > 0 && m[n - 1] == 0) {
            n--;
        }
        while (a < n && m[a] == 0) {
            a++;
        }
    } else {
        const float *m = mask->f + at;
        while (n >= 16 && !(vmath_max(m + n - 16, 16) > hidden)) {
            n -= 16;
        }
        while (n > 0 && m[n - 1] <= hidden) {
            n--;
        }
        while (a + 16 <= n && !(vmath_max(m + a, 16) > hidden)) {
            a += 16;
        }
    }
    if (n > 0) {
        *lo = a & ~(size_t)15;
        *hi = n;
    }
}

static void add_mask(float *x, const struct val *mask, size_t at, size_t n)
{
    if (mask->kind == VAL_BOOL) {
        for (size_t i = 0; i < n; i++) {
            x[i] = mask->i[at + i] != 0 ? x[i] : -INFINITY;
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] + mask->f[at + i];
    }
}

/* Scores of one row over its stretch become probabilities. */
static void row_probs(const struct attention_form *f, bool round, float *x,
                      size_t n, const struct val *mask, size_t mask_at)
{
    if (round && f->scores_fp16) {
        half_round_floats(x, n);
    }
    for (int k = 0; k < f->n; k++) {
        float c = f->ops[k].c;
        if (f->ops[k].op == ATTENTION_MUL) {
            for (size_t i = 0; i < n; i++) {
                x[i] = x[i] * c;
            }
        } else if (f->ops[k].op == ATTENTION_DIV) {
            for (size_t i = 0; i < n; i++) {
                x[i] = x[i] / c;
            }
        } else if (f->ops[k].op == ATTENTION_TANH) {
            vmath_tanh(x, x, n);
        } else if (f->ops[k].op == ATTENTION_ADD_MASK) {
            add_mask(x, mask, mask_at, n);
        }
        if (round && f->ops[k].fp16) {
            half_round_floats(x, n);
        }
    }
    vmath_softmax(x, x, n);
    if (round && f->probs_fp16) {
        half_round_floats(x, n);
    }
}

/* Columns first .. first + n of group `g`. */
static void unit(const struct unit_run *ur, size_t g, size_t first, size_t n,
                 float *scratch)
{
    const struct step *s = ur->s;
    const struct attention_params *u = s->u;
    const struct val *q = step_in(s, Q);
    const struct val *k = step_in(s, K);
    const struct val *v = step_in(s, V);
    const struct val *mask = step_opt(s, MASK);
    size_t ldq = gemm_pad(u->d);
    size_t lds = gemm_pad(u->s);
    float *cols = scratch;
    float *scores = scratch + UNIT_COLS * ldq;
    size_t lo[UNIT_COLS];
    size_t hi[UNIT_COLS];
    size_t mask_at[UNIT_COLS];
    size_t min = u->s;
    size_t max = 0;
    size_t ak = 0;
    size_t av = 0;
    for (size_t j = 0; j < n; j++) {
        size_t aq = 0;
        size_t b = g * u->group + (first + j) / u->rows;
        size_t row = (first + j) % u->rows;
        offsets(u, b, &aq, &ak, &av);
        const float *from = q->f + aq + row * (u->form->tx ? 1 : u->d);
        gemm_pack(cols + j * ldq, from, 1, u->d, 0, u->form->tx ? u->rows : 1);
        mask_at[j] = mask_offset(u, b * u->rows + row);
        visible(u, mask, mask_at[j], &lo[j], &hi[j]);
        min = lo[j] < min ? lo[j] : min;
        max = hi[j] > max ? hi[j] : max;
    }
    struct gemm gm = {.cols = n,
                      .x = cols,
                      .y = scores + min,
                      .ldr = 1,
                      .ldc = lds,
                      .threads = 1};
    gemm_operand(&gm, k, ak / u->d + min, max - min, u->d);
    gemm_run(&gm);
    for (size_t j = 0; j < n; j++) {
        float *x = scores + j * lds + lo[j];
        size_t y_at = av + lo[j] * u->e;
        row_probs(u->form, ur->r->round, x, hi[j] - lo[j], mask,
                  mask_at[j] + lo[j]);
        size_t b = g * u->group + (first + j) / u->rows;
        struct chain c = {.x = x,
                          .k = hi[j] - lo[j],
                          .n = u->e,
                          .m = 1,
                          .half = v->kind == VAL_F16,
                          .y = v->kind == VAL_F16 ? (const void *)(v->h + y_at)
                                                  : (const void *)(v->f + y_at),
                          .o = step_out(s, 0)->f +
                               (b * u->rows + (first + j) % u->rows) * u->e};
        chain_run(&c, 1);
    }
}

static void units(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct unit_run *ur = ctx;
    const struct attention_params *u = ur->s->u;
    float *scratch = (float *)ur->r->scratch + worker * ur->stride;
    size_t cols = u->group * u->rows;
    for (size_t i = begin; i < end; i++) {
        size_t first = i % ur->chunks * ur->chunk;
        size_t n = cols - first < ur->chunk ? cols - first : ur->chunk;
        unit(ur, i / ur->chunks, first, n, scratch);
    }
}

int attention_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    const struct attention_params *u = s->u;
    size_t cols = u->group * u->rows;
    if (cols == 0 || u->batches == 0 || u->d == 0) {
        memset(step_out(s, 0)->f, 0, step_out(s, 0)->n * sizeof(float));
        return 0;
    }
    size_t groups = u->batches / u->group;
    size_t chunk = cols < UNIT_COLS ? cols : UNIT_COLS;
    if (groups < r->threads && chunk > (cols + r->threads - 1) / r->threads) {
        chunk = (cols + r->threads - 1) / r->threads;
    }
    struct unit_run ur = {.s = s,
                          .r = r,
                          .chunk = chunk,
                          .chunks = (cols + chunk - 1) / chunk,
                          .stride =
                              UNIT_COLS * (gemm_pad(u->d) + gemm_pad(u->s))};
    size_t work = u->batches * u->rows * u->s * (u->d + u->e);
    crew_run(work < PARALLEL_MIN ? 1 : r->threads, groups * ur.chunks, 1, units,
             &ur);
    return 0;
}

int sdpa_run(const struct step *s, const struct run *r, struct err *e)
{
    return attention_run(s, r, e);
}
