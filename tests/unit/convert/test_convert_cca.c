/* The reference pass of a small ZAYA against one that is written out here, in
 * double, one position at a time: queries and keys that are mixed along
 * positions, values of the position before, the router network and its state,
 * one expert or none, and the affine joins. */
#include "convert/reference/reference.h"
#include "mkfamilies.h"

enum {
    N_TOKENS = 40,
    LAYERS = 3,
    HEADS = 4,
    HEAD = 8,
    GROUP = 2, /* queries of a key */
    U_WIDTH = Q + KV,
    CLASSES = ZAYA_EXPERTS + 1,
};

/* --- weights --- */

struct weights {
    float attn_norm[D], ffn_norm[D];
    float q[Q][D], k[KV][D], v[KV / 2][D], before[KV / 2][D], o[D][Q];
    float taps[U_WIDTH][ZAYA_TAPS], mix[U_WIDTH][HEAD][ZAYA_MIX];
    float bias[2][U_WIDTH], k_scale[2];
    float join[2][4][D];
    float down[ZAYA_ROUTER][D], inner[2][ZAYA_ROUTER][ZAYA_ROUTER];
    float out[CLASSES][ZAYA_ROUTER], vectors[5][ZAYA_ROUTER], balance[CLASSES];
    float gate_up[ZAYA_EXPERTS][2][ZAYA_WIDE][D];
    float expert[ZAYA_EXPERTS][D][ZAYA_WIDE];
};

static void load(const struct gguf *g, unsigned layer, const char *tail,
                 void *out, size_t bytes)
{
    struct err e = {0};
    char name[96];
    (void)snprintf(name, sizeof(name), "blk.%u.%s", layer, tail);
    const struct gguf_tensor *t = gguf_tensor(g, name);
    assert_non_null(t);
    assert_int_equal(t->rows * t->cols * sizeof(float), bytes);
    unit_ok(gguf_rows(t, 0, t->rows, out, &e), &e);
}

static void load_layer(const struct gguf *g, unsigned l, struct weights *w)
{
#define LOAD(tail, to) load(g, l, tail, to, sizeof(to))
    LOAD("attn_norm.weight", w->attn_norm);
    LOAD("ffn_norm.weight", w->ffn_norm);
    LOAD("attn_q.weight", w->q);
    LOAD("attn_k.weight", w->k);
    LOAD("attn_v.weight", w->v);
    LOAD("attn_v_before.weight", w->before);
    LOAD("attn_output.weight", w->o);
    LOAD("shortconv.conv.weight", w->taps);
    LOAD("cca_mix.weight", w->mix);
    LOAD("cca_bias.weight", w->bias);
    LOAD("cca_k_scale.weight", w->k_scale);
    LOAD("join_attn.weight", w->join[0]);
    LOAD("join_ffn.weight", w->join[1]);
    LOAD("ffn_gate_inp_down.weight", w->down);
    LOAD("ffn_gate_inp_1.weight", w->inner[0]);
    LOAD("ffn_gate_inp_2.weight", w->inner[1]);
    LOAD("ffn_gate_inp.weight", w->out);
    LOAD("ffn_gate_inp_vectors.weight", w->vectors);
    LOAD("exp_probs_b.bias", w->balance);
    LOAD("ffn_gate_up_exps.weight", w->gate_up);
    LOAD("ffn_down_exps.weight", w->expert);
#undef LOAD
}

/* --- the pass --- */

struct pass {
    double x[N_TOKENS][D];
    double h[N_TOKENS][D];
    double u[N_TOKENS][U_WIDTH];
    double k[N_TOKENS][KV], v[N_TOKENS][KV];
    double before[N_TOKENS][KV / 2];
    double router[N_TOKENS][ZAYA_ROUTER];
    double want[LAYERS][N_TOKENS][D]; /* the stream after each layer */
    unsigned chosen[CLASSES];
};

static double dot(const float *w, const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)w[i] * x[i];
    }
    return sum;
}

static void norm(const double *x, const float *w, size_t n, double *out)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    double by = 1 / sqrt(sum / (double)n + 1e-6);
    for (size_t i = 0; i < n; i++) {
        out[i] = x[i] * by * (w != NULL ? (double)w[i] : 1);
    }
}

/* The first convolution at a position, which may be before the first one. */
static double each(const struct pass *p, const struct weights *w, size_t c,
                   int t)
{
    double sum = (double)w->bias[0][c];
    for (int j = 0; j < (int)ZAYA_TAPS; j++) {
        int at = t - (int)ZAYA_TAPS + 1 + j;
        sum += at >= 0 ? (double)w->taps[c][j] * p->u[at][c] : 0;
    }
    return sum;
}

/* Element i of head `head` of [q; k] at t, with the half that heads share. */
static double mixed(const struct pass *p, const struct weights *w, size_t head,
                    size_t i, int t)
{
    const double *u = p->u[t];
    double sum = (double)w->bias[1][head * HEAD + i];
    for (size_t from = 0; from < HEAD; from++) {
        for (int j = 0; j < (int)ZAYA_MIX; j++) {
            sum += (double)w->mix[head * HEAD + i][from][j] *
                   each(p, w, head * HEAD + from, t - (int)ZAYA_MIX + 1 + j);
        }
    }
    if (head < HEADS) {
        return sum + (u[head * HEAD + i] +
                      u[Q + head / GROUP * HEAD + i]) / 2;
    }
    double mean = 0;
    for (size_t k = 0; k < GROUP; k++) {
        mean += u[((head - HEADS) * GROUP + k) * HEAD + i] / GROUP;
    }
    return sum + (u[head * HEAD + i] + mean) / 2;
}

/* A head of length sqrt(HEAD), turned: pairs (0, 2) and (1, 3). */
static void head_at(const struct pass *p, const struct weights *w, size_t head,
                    int t, double out[HEAD])
{
    double y[HEAD];
    for (size_t i = 0; i < HEAD; i++) {
        y[i] = mixed(p, w, head, i, t);
    }
    norm(y, NULL, HEAD, out);
    for (size_t i = 0; i < 2; i++) {
        double a = (double)t * pow(10000, -(double)i / 2);
        double one = out[i];
        out[i] = one * cos(a) - out[i + 2] * sin(a);
        out[i + 2] = out[i + 2] * cos(a) + one * sin(a);
    }
}

static void project(struct pass *p, const struct weights *w)
{
    for (int t = 0; t < N_TOKENS; t++) {
        norm(p->x[t], w->attn_norm, D, p->h[t]);
        for (size_t i = 0; i < Q; i++) {
            p->u[t][i] = dot(w->q[i], p->h[t], D);
        }
        for (size_t i = 0; i < KV; i++) {
            p->u[t][Q + i] = dot(w->k[i], p->h[t], D);
        }
        for (size_t i = 0; i < KV / 2; i++) {
            p->v[t][i] = dot(w->v[i], p->h[t], D);
            p->before[t][i] = dot(w->before[i], p->h[t], D);
            p->v[t][KV / 2 + i] = t > 0 ? p->before[t - 1][i] : 0;
        }
        for (size_t k = 0; k < 2; k++) {
            double y[HEAD];
            head_at(p, w, HEADS + k, t, y);
            for (size_t i = 0; i < HEAD; i++) {
                p->k[t][k * HEAD + i] = y[i] * (double)w->k_scale[k];
            }
        }
    }
}

static void attend(const struct pass *p, const struct weights *w, int t,
                   double out[D])
{
    double all[Q];
    for (size_t head = 0; head < HEADS; head++) {
        size_t kv = head / GROUP * HEAD;
        double q[HEAD];
        double sum = 0;
        double y[HEAD] = {0};
        head_at(p, w, head, t, q);
        for (int at = 0; at <= t; at++) {
            double s = 0;
            for (size_t i = 0; i < HEAD; i++) {
                s += q[i] * p->k[at][kv + i];
            }
            s = exp(s / sqrt(HEAD));
            sum += s;
            for (size_t i = 0; i < HEAD; i++) {
                y[i] += s * p->v[at][kv + i];
            }
        }
        for (size_t i = 0; i < HEAD; i++) {
            all[head * HEAD + i] = y[i] / sum;
        }
    }
    for (size_t i = 0; i < D; i++) {
        out[i] = dot(w->o[i], all, Q);
    }
}

static void join(double *x, const double *y, float by[4][D])
{
    for (size_t i = 0; i < D; i++) {
        x[i] = (y[i] + (double)by[0][i]) * (double)by[1][i] +
               (x[i] + (double)by[2][i]) * (double)by[3][i];
    }
}

/* Which class, and its share. */
static size_t route(struct pass *p, const struct weights *w, unsigned l, int t,
                    const double *h, double *ret)
{
    double r[ZAYA_ROUTER];
    double y[ZAYA_ROUTER];
    double s[CLASSES];
    double sum = 0;
    size_t best = 0;
    for (size_t i = 0; i < ZAYA_ROUTER; i++) {
        r[i] = dot(w->down[i], h, D) + (double)w->vectors[0][i];
        r[i] += l > 0 ? p->router[t][i] * (double)w->vectors[1][i] : 0;
    }
    memcpy(p->router[t], r, sizeof(r));
    norm(r, w->vectors[2], ZAYA_ROUTER, y);
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < ZAYA_ROUTER; i++) {
            double v = dot(w->inner[k][i], y, ZAYA_ROUTER) +
                       (double)w->vectors[3 + k][i];
            r[i] = v / 2 * (1 + erf(v / sqrt(2)));
        }
        memcpy(y, r, sizeof(r));
    }
    for (size_t i = 0; i < CLASSES; i++) {
        s[i] = exp(dot(w->out[i], y, ZAYA_ROUTER));
        sum += s[i];
    }
    for (size_t i = 1; i < CLASSES; i++) {
        double a = s[i] / sum + (double)w->balance[i];
        best = a > s[best] / sum + (double)w->balance[best] ? i : best;
    }
    *ret = s[best] / sum;
    return best;
}

static void feed_forward(struct pass *p, const struct weights *w, unsigned l,
                         int t, double out[D])
{
    double h[D];
    double a[ZAYA_WIDE];
    double share = 0;
    norm(p->x[t], w->ffn_norm, D, h);
    size_t e = route(p, w, l, t, h, &share);
    p->chosen[e]++;
    memset(out, 0, D * sizeof(*out));
    if (e == ZAYA_EXPERTS) {
        return;
    }
    for (size_t i = 0; i < ZAYA_WIDE; i++) {
        double g = dot(w->gate_up[e][0][i], h, D);
        a[i] = g / (1 + exp(-g)) * dot(w->gate_up[e][1][i], h, D);
    }
    for (size_t i = 0; i < D; i++) {
        out[i] = share * dot(w->expert[e][i], a, ZAYA_WIDE);
    }
}

static void run(struct pass *p, const struct gguf *g, const int32_t *tokens)
{
    static struct weights w;
    static double y[N_TOKENS][D];
    struct err e = {0};
    const struct gguf_tensor *embedding = gguf_tensor(g, "token_embd.weight");
    for (int t = 0; t < N_TOKENS; t++) {
        float row[D];
        unit_ok(gguf_rows(embedding, (uint64_t)tokens[t], 1, row, &e), &e);
        for (size_t i = 0; i < D; i++) {
            p->x[t][i] = (double)row[i];
        }
    }
    for (unsigned l = 0; l < LAYERS; l++) {
        load_layer(g, l, &w);
        project(p, &w);
        for (int t = 0; t < N_TOKENS; t++) {
            attend(p, &w, t, y[t]);
        }
        for (int t = 0; t < N_TOKENS; t++) {
            double z[D];
            join(p->x[t], y[t], w.join[0]);
            feed_forward(p, &w, l, t, z);
            join(p->x[t], z, w.join[1]);
            memcpy(p->want[l][t], p->x[t], sizeof(p->x[t]));
        }
    }
}

/* --- the comparison --- */

static void compare(void *ctx, uint32_t layer, const float *x, size_t stride)
{
    const struct pass *p = ctx;
    double largest = 0;
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        for (size_t i = 0; i < D; i++) {
            double v = fabs(p->want[layer][t][i]);
            largest = v > largest ? v : largest;
        }
    }
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        for (size_t i = 0; i < D; i++) {
            double got = (double)x[i * stride + t];
            if (!(fabs(got - p->want[layer][t][i]) < 1e-5 * largest)) {
                fail_msg("layer %u, position %u: %g, not %g", layer, t, got,
                         p->want[layer][t][i]);
            }
        }
    }
}

static void test_reference(void **state)
{
    (void)state;
    static struct pass p;
    struct mk m = models[ZAYA];
    struct gguf *g = NULL;
    struct decoder d = {0};
    struct err e = {0};
    int32_t tokens[N_TOKENS];
    m.gain = 1.7f;
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (5 + i * i * 7919) % (int32_t)VOCAB;
    }
    struct buf file = mk_gguf(&m);
    unit_ok(gguf_open_mem(file.p, file.n, &g, &e), &e);
    unit_ok(arch_read(g, &d, &e), &e);
    run(&p, g, tokens);
    unsigned kinds = 0;
    for (size_t i = 0; i < CLASSES; i++) {
        kinds += p.chosen[i] > 0;
    }
    assert_true(kinds >= 4 && p.chosen[ZAYA_EXPERTS] > 0);
    for (unsigned threads = 1; threads <= 2; threads++) {
        const struct reference_conf conf = {
            .threads = threads, .layer = compare, .ctx = &p};
        unit_ok(reference_run(&d, &conf, tokens, N_TOKENS, NULL, &e), &e);
    }
    arch_fini(&d);
    gguf_close(g);
    buf_fini(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
