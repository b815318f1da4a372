#include "convert/range.h"

#include <math.h>
#include <string.h>

/* The x / sqrt(d) form is taken up to this error of its factor: four units
 * in the last place of fp16, beside the rounding every value has anyway. */
#define NORM_GOOD 0x1p-9f
/* A forced form fails beyond this: the squares are noise. */
#define NORM_BAD 0.25f

static const struct {
    const char *name;
    bool layered, scaled;
} kinds[RANGE_KINDS] = {
    [RANGE_EMBEDDING] = {"embedding", false, true},
    [RANGE_EMBEDDING_NORM] = {"embedding_norm", false, true},
    [RANGE_ATTN_IN] = {"attn_in", true, false},
    [RANGE_ATTN_NORM] = {"attn_norm", true, false},
    [RANGE_Q] = {"q", true, false},
    [RANGE_K] = {"k", true, false},
    [RANGE_V] = {"v", true, false},
    [RANGE_Q_MIX] = {"q_mix", true, false},
    [RANGE_K_MIX] = {"k_mix", true, false},
    [RANGE_Q_NORM] = {"q_norm", true, false},
    [RANGE_K_NORM] = {"k_norm", true, false},
    [RANGE_V_NORM] = {"v_norm", true, false},
    [RANGE_SCORES] = {"scores", true, false},
    [RANGE_ATTN] = {"attn", true, false},
    [RANGE_CONV_IN] = {"conv_in", true, false},
    [RANGE_CONV_U] = {"conv_new", true, false},
    [RANGE_CONV] = {"conv", true, false},
    [RANGE_ATTN_OUT] = {"attn_out", true, false},
    [RANGE_POST_ATTN] = {"post_attn_norm", true, true},
    [RANGE_RESIDUAL_MID] = {"residual_mid", true, true},
    [RANGE_FFN_IN] = {"ffn_in", true, false},
    [RANGE_FFN_NORM] = {"ffn_norm", true, false},
    [RANGE_GATE] = {"gate", true, false},
    [RANGE_UP] = {"up", true, false},
    [RANGE_ACT_UP] = {"act_up", true, false},
    [RANGE_FFN_OUT] = {"ffn_out", true, false},
    [RANGE_POST_DENSE] = {"post_dense_norm", true, false},
    [RANGE_ROUTER_NORM] = {"router_norm", true, false},
    [RANGE_ROUTER_STATE] = {"router_state", true, false},
    [RANGE_ROUTER_NET] = {"router_net_norm", true, false},
    [RANGE_ROUTER_1] = {"router_1", true, false},
    [RANGE_ROUTER_2] = {"router_2", true, false},
    [RANGE_ROUTER] = {"router", true, false},
    [RANGE_EXPERT_NORM] = {"expert_norm", true, false},
    [RANGE_EXPERT_GATE] = {"expert_gate", true, false},
    [RANGE_EXPERT_UP] = {"expert_up", true, false},
    [RANGE_EXPERT_ACT] = {"expert_act", true, false},
    [RANGE_EXPERT_OUT] = {"expert_out", true, false},
    [RANGE_EXPERTS] = {"experts", true, false},
    [RANGE_POST_EXPERTS] = {"post_experts_norm", true, false},
    [RANGE_BRANCHES] = {"branches", true, false},
    [RANGE_POST_FFN] = {"post_ffn_norm", true, true},
    [RANGE_RESIDUAL] = {"residual", true, true},
    [RANGE_PLE_PROJ] = {"ple_proj", true, true},
    [RANGE_PLE_IN] = {"ple_in", true, false},
    [RANGE_PLE_GATE] = {"ple_gate", true, false},
    [RANGE_PLE] = {"ple", true, false},
    [RANGE_PLE_OUT] = {"ple_out", true, false},
    [RANGE_PLE_NORM] = {"ple_norm", true, true},
    [RANGE_RESIDUAL_PLE] = {"residual_ple", true, true},
    [RANGE_OUT_SCALE] = {"out_scale", true, true},
    [RANGE_OUT_NORM] = {"out_norm", false, false},
    [RANGE_LOGITS] = {"logits", false, false},
};

void range_fini(struct range *r)
{
    free(r->peaks);
    free(r->norms);
    *r = (struct range){0};
}

void range_add_peak(struct range *r, enum range_kind kind, uint32_t layer,
                    double peak)
{
    if (r->n_peaks == r->cap_peaks) {
        r->cap_peaks = r->cap_peaks * 2 + 64;
        r->peaks = realloc(r->peaks, r->cap_peaks * sizeof(*r->peaks));
        must(r->peaks != NULL);
    }
    r->peaks[r->n_peaks++] =
        (struct range_peak){.kind = kind, .layer = layer, .peak = peak};
}

struct range_norm *range_add_norm(struct range *r, enum range_kind kind,
                                  uint32_t layer)
{
    if (r->n_norms == r->cap_norms) {
        r->cap_norms = r->cap_norms * 2 + 64;
        r->norms = realloc(r->norms, r->cap_norms * sizeof(*r->norms));
        must(r->norms != NULL);
    }
    struct range_norm *n = &r->norms[r->n_norms++];
    *n = (struct range_norm){.kind = kind, .layer = layer};
    return n;
}

void range_name(enum range_kind kind, uint32_t layer, char out[RANGE_NAME_MAX])
{
    if (kinds[kind].layered) {
        (void)snprintf(out, RANGE_NAME_MAX, "layers.%u.%s", layer,
                       kinds[kind].name);
    } else {
        (void)snprintf(out, RANGE_NAME_MAX, "%s", kinds[kind].name);
    }
}

bool range_scaled(enum range_kind kind)
{
    return kinds[kind].scaled;
}

/* The largest value of the stream. */
static double stream_peak(const struct range *r)
{
    double m = 0;
    for (size_t i = 0; i < r->n_peaks; i++) {
        if (kinds[r->peaks[i].kind].scaled && r->peaks[i].peak > m) {
            m = r->peaks[i].peak;
        }
    }
    return m;
}

static int alpha_index(double alpha, unsigned *ret)
{
    int exponent = 0;
    if (!(alpha > 0) || frexp(alpha, &exponent) != 0.5 || exponent > 1 ||
        exponent <= 1 - (int)RANGE_ALPHAS) {
        return -1;
    }
    *ret = (unsigned)(1 - exponent);
    return 0;
}

/* First value that leaves fp16, or the least free factor of all. */
static int check_peaks(const struct range *r, double alpha,
                       struct range_choice *c, struct err *e)
{
    char name[RANGE_NAME_MAX];
    double least = (double)INFINITY;
    for (size_t i = 0; i < r->n_peaks; i++) {
        const struct range_peak *p = &r->peaks[i];
        double scale = kinds[p->kind].scaled ? alpha : 1.0;
        range_name(p->kind, p->layer, name);
        if (!(p->peak * scale <= RANGE_FP16)) { /* NaN too */
            return err_set(e, ERR_RANGE,
                           "%s reaches %.6g and is stored times %g: fp16 ends "
                           "at 65504",
                           name, p->peak, scale);
        }
        double room = RANGE_FP16 / (p->peak * scale);
        if (room < least) {
            least = room;
            (void)snprintf(c->detail, sizeof(c->detail),
                           "largest is %s, %.6g times %g; a factor of %.1f is "
                           "free",
                           name, p->peak, scale, room);
        }
    }
    c->warned = least < RANGE_FREE;
    return 0;
}

static const struct range_norm *worst_norm(const struct range *r, unsigned a)
{
    const struct range_norm *w = NULL;
    for (size_t i = 0; i < r->n_norms; i++) {
        if (w == NULL || r->norms[i].error[a] > w->error[a]) {
            w = &r->norms[i];
        }
    }
    return w;
}

static int choose_norm(const struct range *r, const struct decoder *d,
                       const char *norm, unsigned a, struct range_choice *c,
                       struct err *e)
{
    const struct range_norm *w = worst_norm(r, a);
    float error = w != NULL ? w->error[a] : 0;
    bool eps_kept = norm_epsilon(NORM_SCALE, d->norm_eps, c->alpha) > 0;
    if (norm == NULL) {
        /* without epsilon a row of zeros would be NaN: then max as well */
        bool scale = error <= NORM_GOOD && eps_kept;
        c->norm = scale ? NORM_SCALE : NORM_MAX;
    } else if (strcmp(norm, "max") == 0) {
        c->norm = NORM_MAX;
    } else if (strcmp(norm, "scale") == 0) {
        c->norm = NORM_SCALE;
        if (w != NULL && error > NORM_BAD) {
            char name[RANGE_NAME_MAX];
            range_name(w->kind, w->layer, name);
            return err_set(e, ERR_RANGE,
                           "%s: the squares of x / sqrt(d) leave the fp16 "
                           "range at residual scale %g; norm max holds them",
                           name, (double)c->alpha);
        }
        c->warned = c->warned || error > NORM_GOOD;
    } else {
        return err_set(e, ERR_INVALID, "norm '%.16s': scale or max", norm);
    }
    c->eps_omitted =
        d->norm_eps > 0 && !(norm_epsilon(c->norm, d->norm_eps, c->alpha) > 0);
    return 0;
}

int range_choose(const struct range *r, const struct decoder *d,
                 const char *norm, double alpha, struct range_choice *ret,
                 struct err *e)
{
    struct range_choice c = {0};
    unsigned a = 0;
    double peak = stream_peak(r);
    if (alpha != 0) {
        if (alpha_index(alpha, &a) < 0) {
            return err_set(e, ERR_INVALID,
                           "residual scale %g: a power of two from 2^-%u to 1",
                           alpha, RANGE_ALPHAS - 1);
        }
    } else {
        while (a + 1 < RANGE_ALPHAS &&
               ldexp(peak, -(int)a) * RANGE_FREE > RANGE_FP16) {
            a++;
        }
    }
    c.alpha = ldexpf(1.0f, -(int)a);
    c.margin = peak > 0 ? RANGE_FP16 / (peak * (double)c.alpha) : RANGE_FP16;
    RETERR(check_peaks(r, (double)c.alpha, &c, e));
    RETERR(choose_norm(r, d, norm, a, &c, e));
    *ret = c;
    return 0;
}
