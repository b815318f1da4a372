/* norm.c - norms over panels, in double. For the choice between the
 * forms (range.h) it also computes the error that the form which divides by
 * sqrt(d) first has in fp16. */
#include <math.h>

#include "base/half.h"
#include "convert/norm.h"
#include "convert/reference/impl.h"

/* The x / sqrt(d) norm with fp16 after each step, beside the exact factor:
 * `exact` is 1 / rms per token. */
static float scale_error(const struct reference *r, const float *x, size_t d,
                         float alpha, const double *exact)
{
    float c = half_round(1.0f / sqrtf((float)d));
    float sum[TOKENS] = {0};
    float v[TOKENS];
    for (size_t i = 0; i < d; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            v[t] = x[i * r->stride + t] * alpha;
        }
        half_round_floats(v, r->n);
        for (uint32_t t = 0; t < r->n; t++) {
            v[t] *= c;
        }
        half_round_floats(v, r->n);
        for (uint32_t t = 0; t < r->n; t++) {
            v[t] *= v[t];
        }
        half_round_floats(v, r->n);
        for (uint32_t t = 0; t < r->n; t++) {
            sum[t] += v[t];
        }
    }
    float eps = norm_epsilon(NORM_SCALE, r->d->norm_eps, alpha);
    float worst = 0;
    for (uint32_t t = 0; t < r->n; t++) {
        float s = half_round(half_round(sum[t]) + eps);
        if (!(s > 0 && s < INFINITY)) {
            return INFINITY;
        }
        /* xs * rsqrt(s) * sqrt(d) against x * exact */
        double got = (double)(alpha * c) * sqrt((double)d) / sqrt((double)s);
        float error = (float)fabs(got / exact[t] - 1.0);
        worst = error > worst ? error : worst;
    }
    return worst;
}

/* y = x / rms(x) * weight, over `d` features. stream: x is stored times
 * alpha. kind: where its peak and error belong; probe false: already did. */
static void norm_panel(const struct reference *r, const float *x, size_t d,
                       const float *w, float *y, bool stream, double eps,
                       struct range_norm *probe)
{
    double exact[TOKENS];
    double sum[TOKENS] = {0};
    for (size_t i = 0; i < d; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            double v = (double)x[i * r->stride + t];
            sum[t] += v * v;
        }
    }
    for (uint32_t t = 0; t < r->n; t++) {
        exact[t] = 1.0 / sqrt(sum[t] / (double)d + eps);
    }
    for (unsigned a = 0; probe != NULL && a < RANGE_ALPHAS; a++) {
        float error = a == 0 || stream
                          ? scale_error(r, x, d, ldexpf(1, -(int)a), exact)
                          : probe->error[0];
        /* heads share a probe: the worst one counts, for alpha 1 only */
        probe->error[a] = error > probe->error[a] ? error : probe->error[a];
    }
    for (size_t i = 0; i < d; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            size_t at = i * r->stride + t;
            y[at] = (float)((double)x[at] * exact[t] * (double)w[i]);
        }
    }
}

/* y = x less its mean over `d` features; y may be x. */
static void centre(const struct reference *r, const float *x, size_t d,
                   float *y)
{
    double sum[TOKENS] = {0};
    for (size_t i = 0; i < d; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            sum[t] += (double)x[i * r->stride + t];
        }
    }
    for (size_t i = 0; i < d; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            size_t at = i * r->stride + t;
            y[at] = (float)((double)x[at] - sum[t] / (double)d);
        }
    }
}

static int add_bias(const struct reference *r, const struct norm *n, float *y,
                    struct err *e)
{
    float *bias = malloc(n->d * sizeof(*bias));
    int rc = bias != NULL ? arch_vector(n->bias, bias, e)
                          : err_set(e, ERR_NOMEM, "no memory for a norm");
    for (size_t i = 0; rc == 0 && i < n->d; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            y[i * r->stride + t] += bias[i];
        }
    }
    free(bias);
    return rc;
}

int reference_normalise(struct reference *r, const struct norm *n,
                        const float *x, float *y, struct err *e)
{
    float *w = malloc(n->d * sizeof(*w));
    int rc = w != NULL ? 0 : err_set(e, ERR_NOMEM, "no memory for a norm");
    for (size_t i = 0; rc == 0 && i < n->d; i++) {
        w[i] = 1;
    }
    if (rc == 0 && n->weight->t != NULL) {
        rc = arch_vector(n->weight, w, e);
        for (size_t i = 0; rc == 0 && n->plus_one && i < n->d; i++) {
            w[i] += 1;
        }
    }
    if (rc == 0) {
        struct range_norm *probe =
            r->range != NULL ? range_add_norm(r->range, n->kind, n->layer)
                             : NULL;
        for (size_t g = 0; g < n->groups; g++) {
            size_t at = g * n->d * r->stride;
            if (n->centred) {
                centre(r, x + at, n->d, y + at);
            }
            norm_panel(r, (n->centred ? y : x) + at, n->d, w, y + at, n->stream,
                       n->bare ? NORM_BARE_EPS : (double)r->d->norm_eps, probe);
        }
        if (n->bias != NULL && n->bias->t != NULL) {
            rc = add_bias(r, n, y, e);
        }
        reference_peak(r, n->kind, n->layer, y, n->groups * n->d);
    }
    free(w);
    return rc;
}
