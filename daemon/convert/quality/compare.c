/* compare.c - numbers against numbers, in double. */
#include <math.h>

#include "base/fmath.h"
#include "convert/quality/impl.h"

#define TOP     5u
#define NONE_KL 1e9 /* of numbers that are none; JSON knows no infinity */

static double cosine_of(double ab, double aa, double bb)
{
    return aa > 0 && bb > 0 ? ab / sqrt(aa) / sqrt(bb)
           : aa > 0 || bb > 0 ? 0
                              : 1;
}

void compare_layer(const struct columns_pair *p, uint32_t n,
                   struct quality_layer *ret)
{
    double square = 0;
    double worst = 0;
    double errors = 0;
    double sum = 0;
    double least = 1;
    for (uint32_t t = 0; t < n; t++) {
        double ab = 0;
        double aa = 0;
        double bb = 0;
        for (size_t r = 0; r < p->rows; r++) {
            double a = (double)p->a[r * p->lda + t];
            double b = (double)p->b[r * p->ldb + t] * (double)p->scale;
            double error = fabs(a - b);
            ab += a * b;
            aa += a * a;
            bb += b * b;
            error = error < NONE_KL ? error : NONE_KL;
            errors += error;
            worst = error <= worst ? worst : error;
        }
        double c = cosine_of(ab, aa, bb);
        c = isnan(c) ? 0 : c; /* like nothing */
        sum += c;
        least = c < least ? c : least;
        square += aa;
    }
    double all = (double)n * (double)p->rows;
    *ret = (struct quality_layer){.cosine_mean = sum / n,
                                  .cosine_min = least,
                                  .error_mean = errors / all,
                                  .error_max = worst,
                                  .rms = sqrt(square / all)};
}

/* --- logits --- */

/* log of the sum of exp. */
static double log_sum(const float *x, size_t n, double *top)
{
    double m = -(double)INFINITY;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        m = (double)x[i] > m ? (double)x[i] : m;
    }
    for (size_t i = 0; i < n; i++) {
        sum += fmath_exp((double)x[i] - m);
    }
    *top = m;
    return m + fmath_log(sum);
}

/* The TOP largest, ties to the lower id. */
static void top_of(const float *x, size_t n, size_t ids[TOP])
{
    size_t have = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = have;
        while (at > 0 && x[i] > x[ids[at - 1]]) {
            at--;
        }
        if (at >= TOP) {
            continue;
        }
        have += have < TOP ? 1 : 0;
        for (size_t k = have - 1; k > at; k--) {
            ids[k] = ids[k - 1];
        }
        ids[at] = i;
    }
    for (; have < TOP; have++) {
        ids[have] = ids[0];
    }
}

void compare_begin(struct logits_sum *s, struct quality_logits *to,
                   size_t vocab)
{
    *to = (struct quality_logits){.cosine_min = 1};
    *s = (struct logits_sum){.to = to, .vocab = vocab};
}

/* KL of want from got, cosine and errors of one position. */
static void add_numbers(struct logits_sum *s, const float *want,
                        const float *got)
{
    double top = 0;
    double zw = s->stream ? 0 : log_sum(want, s->vocab, &top);
    double zg = s->stream ? 0 : log_sum(got, s->vocab, &top);
    double kl = 0;
    double ab = 0;
    double aa = 0;
    double bb = 0;
    for (size_t i = 0; i < s->vocab; i++) {
        double a = (double)want[i];
        double b = (double)got[i];
        double error = fabs(a - b);
        kl += s->stream ? 0 : fmath_exp(a - zw) * ((a - zw) - (b - zg));
        ab += a * b;
        aa += a * a;
        bb += b * b;
        error = error < NONE_KL ? error : NONE_KL;
        s->error += error;
        s->to->error_max =
            error > s->to->error_max ? error : s->to->error_max;
    }
    double c = cosine_of(ab, aa, bb);
    kl = !(kl < NONE_KL) ? NONE_KL : kl < 0 ? 0 : kl;
    c = isnan(c) ? 0 : c;
    s->kl_sum += kl;
    s->cosine_sum += c;
    s->to->kl_max = kl > s->to->kl_max ? kl : s->to->kl_max;
    s->to->cosine_min = c < s->to->cosine_min ? c : s->to->cosine_min;
    if (s->kl != NULL) {
        s->kl[s->to->n] = (float)kl;
        s->cosine[s->to->n] = (float)c;
    }
}

void compare_logits(struct logits_sum *s, const float *want, const float *got)
{
    size_t a[TOP];
    size_t b[TOP];
    unsigned both = 0;
    add_numbers(s, want, got);
    if (s->stream) {
        s->top5++;
        s->to->n++;
        return;
    }
    top_of(want, s->vocab, a);
    top_of(got, s->vocab, b);
    for (unsigned i = 0; i < TOP; i++) {
        for (unsigned k = 0; k < TOP; k++) {
            both += a[i] == b[k] ? 1 : 0;
        }
    }
    s->top5 += both < TOP ? both / (double)TOP : 1;
    if ((double)want[a[0]] - (double)want[a[1]] >= CLEAR) {
        s->to->n_clear++;
        s->clear_same += a[0] == b[0] ? 1 : 0;
    }
    s->to->n++;
}

void compare_end(struct logits_sum *s)
{
    struct quality_logits *l = s->to;
    double n = l->n > 0 ? l->n : 1;
    l->kl_mean = s->kl_sum / n;
    l->cosine_mean = s->cosine_sum / n;
    l->top5 = s->top5 / n;
    l->argmax = l->n_clear > 0 ? s->clear_same / l->n_clear : 1;
    l->error_mean = s->error / n / (double)s->vocab;
}
