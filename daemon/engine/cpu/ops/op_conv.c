/* conv, general. The receptive fields of the output positions become the
 * columns of gemm.c, [positions][channels in * kernel], and the weights its
 * rows, read where they are. A 1x1 conv over [1, C, T, 1] is the same with the
 * field a single position: a transposition of the activations.
 *
 * Positions are taken in blocks, so that memory stays bounded. */
#include <string.h>

#include "engine/cpu/kernels/products/gemm.h"
#include "engine/cpu/ops/ops.h"

#define SPATIAL_MAX 3
#define FIELD_BYTES (4u << 20) /* of columns packed at a time */

enum { X, WEIGHT, BIAS, STRIDES, PAD_TYPE, PAD, DILATIONS, GROUPS };

struct conv_params {
    int n;                           /* spatial axes */
    size_t batch, groups, cin, cout; /* channels of one group */
    size_t kernel;                   /* elements */
    size_t in[SPATIAL_MAX], out[SPATIAL_MAX], k[SPATIAL_MAX];
    int64_t stride[SPATIAL_MAX], pad[SPATIAL_MAX], dil[SPATIAL_MAX];
    size_t in_n, out_n; /* spatial elements */
    size_t block;       /* positions packed at a time */
    bool pointwise;
};

static int conv_ints(struct step *s, struct conv_params *u, int64_t *pads,
                     struct err *e)
{
    const struct {
        int arg;
        size_t n;
        int64_t *to;
    } want[] = {
        {STRIDES,   (size_t)u->n,     u->stride},
        {DILATIONS, (size_t)u->n,     u->dil   },
        {PAD,       2 * (size_t)u->n, pads     }
    };
    for (size_t i = 0; i < countof(want); i++) {
        size_t n = want[i].n;
        int rc = step_ints(s, want[i].arg, want[i].n, want[i].to, &n, e);
        if (rc < 0) {
            return rc;
        }
        if (n != want[i].n) {
            return err_set(e, ERR_MIL_SHAPE, "strides, dilations or pad");
        }
    }
    for (int i = 0; i < u->n; i++) {
        if (u->stride[i] < 1 || u->dil[i] < 1 || pads[2 * i] < 0 ||
            pads[2 * i + 1] < 0 || u->stride[i] > INT32_MAX ||
            u->dil[i] > INT32_MAX || pads[2 * i] > INT32_MAX ||
            pads[2 * i + 1] > INT32_MAX) {
            return err_set(e, ERR_MIL_SHAPE, "strides, dilations or pad");
        }
    }
    return 0;
}

/* Output size and padding in front along spatial axis i. */
static int conv_axis(struct conv_params *u, int i, const char *type,
                     const int64_t *pads, int64_t *ret, struct err *e)
{
    int64_t in = (int64_t)u->in[i];
    int64_t reach = ((int64_t)u->k[i] - 1) * u->dil[i] + 1;
    int64_t st = u->stride[i];
    int64_t before = 0;
    int64_t total = 0;
    bool lower = strcmp(type, "same_lower") == 0;
    if (strcmp(type, "custom") == 0) {
        before = pads[2 * i];
        total = before + pads[2 * i + 1];
    } else if (lower || strcmp(type, "same") == 0) {
        int64_t out = (in + st - 1) / st;
        total = (out - 1) * st + reach - in;
        total = total > 0 ? total : 0;
        before = lower ? (total + 1) / 2 : total / 2;
    } else if (type[0] != '\0' && strcmp(type, "valid") != 0) {
        return err_set(e, ERR_MIL_OP, "pad_type %s", type);
    }
    int64_t span = in + total - reach;
    if (span < 0) {
        return err_set(e, ERR_MIL_SHAPE, "x is smaller than the kernel");
    }
    u->pad[i] = before;
    *ret = span / st + 1;
    return 0;
}

static int conv_shapes(struct step *s, struct conv_params *u, struct err *e)
{
    const struct val *x = step_in(s, X);
    const struct val *w = step_in(s, WEIGHT);
    const struct val *b = step_opt(s, BIAS);
    int64_t groups = 1;
    int rc = step_int(s, GROUPS, &groups, e);
    if (rc < 0) {
        return rc;
    }
    u->n = x->rank - 2;
    if (x->kind != VAL_F32 || u->n < 1 || u->n > SPATIAL_MAX ||
        w->rank != x->rank || groups < 1 || w->dims[0] % groups != 0 ||
        x->dims[1] != w->dims[1] * groups ||
        (b != NULL && (b->kind != VAL_F32 || b->n != (size_t)w->dims[0]))) {
        return err_set(e, ERR_MIL_SHAPE, "x, weight and bias do not fit");
    }
    u->batch = (size_t)x->dims[0];
    u->groups = (size_t)groups;
    u->cin = (size_t)w->dims[1];
    u->cout = (size_t)(w->dims[0] / groups);
    u->kernel = u->in_n = 1;
    for (int i = 0; i < u->n; i++) {
        u->in[i] = (size_t)x->dims[2 + i];
        u->k[i] = (size_t)w->dims[2 + i];
        u->stride[i] = u->dil[i] = 1;
        u->in_n *= u->in[i];
        u->kernel *= u->k[i];
    }
    return 0;
}

int conv_prep(struct step *s, struct err *e)
{
    struct conv_params *u = step_alloc(s, sizeof(*u));
    int64_t pads[2 * SPATIAL_MAX] = {0};
    int64_t dims[MIL_RANK_MAX];
    s->u = u;
    RETERR(conv_shapes(s, u, e));
    RETERR(conv_ints(s, u, pads, e));
    dims[0] = (int64_t)u->batch;
    dims[1] = (int64_t)(u->cout * u->groups);
    u->out_n = 1;
    u->pointwise = u->kernel == 1;
    for (int i = 0; i < u->n; i++) {
        RETERR(conv_axis(u, i, step_str(s, PAD_TYPE), pads, &dims[2 + i], e));
        u->out[i] = (size_t)dims[2 + i];
        u->out_n *= u->out[i];
        u->pointwise = u->pointwise && u->out[i] == u->in[i] &&
                       u->stride[i] == 1 && u->pad[i] == 0;
    }
    size_t ld = gemm_pad(u->cin * u->kernel) * sizeof(float);
    u->block = ld > 0 ? FIELD_BYTES / ld : 0;
    u->block = u->block > u->out_n ? u->out_n : u->block;
    u->block = u->block > 0 ? u->block : 1;
    s->scratch = (u->block + (size_t)GEMM_DECODED * s->plan_threads) * ld;
    return val_set(step_out(s, 0), VAL_F32, 2 + u->n, dims, e);
}

/* The receptive field of output position `at`, one input channel after the
 * other; outside the input it is zero. x: the group's first channel. */
static void field(const struct conv_params *u, const float *x, size_t at,
                  float *out)
{
    int64_t first[SPATIAL_MAX] = {0};
    for (int i = u->n - 1; i >= 0; i--) {
        first[i] = (int64_t)(at % u->out[i]) * u->stride[i] - u->pad[i];
        at /= u->out[i];
    }
    for (size_t k = 0; k < u->kernel; k++) {
        size_t rest = k;
        int64_t from = 0;
        int64_t stride = 1;
        bool inside = true;
        for (int i = u->n - 1; i >= 0; i--) {
            int64_t c = first[i] + (int64_t)(rest % u->k[i]) * u->dil[i];
            rest /= u->k[i];
            inside = inside && c >= 0 && c < (int64_t)u->in[i];
            from += c * stride;
            stride *= (int64_t)u->in[i];
        }
        for (size_t c = 0; c < u->cin; c++) {
            out[c * u->kernel + k] =
                inside ? x[(int64_t)(c * u->in_n) + from] : 0.0f;
        }
    }
    for (size_t i = u->cin * u->kernel; i < gemm_pad(u->cin * u->kernel); i++) {
        out[i] = 0.0f;
    }
}

/* One group of one batch entry. */
static void conv_group(const struct step *s, const struct run *r, size_t batch,
                       size_t group)
{
    const struct conv_params *u = s->u;
    const struct val *b = step_opt(s, BIAS);
    size_t k = u->cin * u->kernel;
    size_t ld = gemm_pad(k);
    float *cols = r->scratch;
    const float *x =
        step_in(s, X)->f + (batch * u->groups + group) * u->cin * u->in_n;
    float *y =
        step_out(s, 0)->f + (batch * u->groups + group) * u->cout * u->out_n;
    for (size_t p = 0; p < u->out_n; p += u->block) {
        size_t n = u->out_n - p < u->block ? u->out_n - p : u->block;
        if (u->pointwise) {
            gemm_pack(cols, x + p, n, k, 1, u->in_n);
        } else {
            for (size_t i = 0; i < n; i++) {
                field(u, x, p + i, cols + i * ld);
            }
        }
        struct gemm g = {.rowbuf = cols + u->block * ld,
                         .buf_rows = GEMM_DECODED,
                         .cols = n,
                         .x = cols,
                         .bias = b != NULL ? b->f + group * u->cout : NULL,
                         .y = y + p,
                         .ldr = u->out_n,
                         .ldc = 1,
                         .threads = r->threads};
        gemm_operand(&g, step_in(s, WEIGHT), group * u->cout, u->cout, k);
        gemm_run(&g);
    }
}

int conv_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    const struct conv_params *u = s->u;
    for (size_t n = 0; n < u->batch; n++) {
        for (size_t g = 0; g < u->groups; g++) {
            conv_group(s, r, n, g);
        }
    }
    return 0;
}
