/* emit.c - tensors of a made source, from the graph's matrices.
 *
 * A plain matrix that lies row by row in a mapped file stays there. Everything
 * else is decoded by rows.c; bytes that are not in a mapped file are copied to
 * the source's memory, for the graph is gone when the source is read.
 */
#include <string.h>

#include "source/onnx/make.h"

static const struct {
    enum onnx_slot slot;
    const char *tail;
} names[] = {
    {ONNX_S_PRE,      "attn_norm.weight"          },
    {ONNX_S_QKV,      "attn_qkv.weight"           },
    {ONNX_S_Q,        "attn_q.weight"             },
    {ONNX_S_K,        "attn_k.weight"             },
    {ONNX_S_V,        "attn_v.weight"             },
    {ONNX_S_O,        "attn_output.weight"        },
    {ONNX_S_QKV_BIAS, "attn_qkv.bias"             },
    {ONNX_S_Q_BIAS,   "attn_q.bias"               },
    {ONNX_S_K_BIAS,   "attn_k.bias"               },
    {ONNX_S_V_BIAS,   "attn_v.bias"               },
    {ONNX_S_O_BIAS,   "attn_output.bias"          },
    {ONNX_S_Q_NORM,   "attn_q_norm.weight"        },
    {ONNX_S_K_NORM,   "attn_k_norm.weight"        },
    {ONNX_S_POST,     "post_attention_norm.weight"},
    {ONNX_S_CONV,     "shortconv.conv.weight"     },
    {ONNX_S_CONV_IN,  "shortconv.in_proj.weight"  },
    {ONNX_S_CONV_OUT, "shortconv.out_proj.weight" },
    {ONNX_S_FFN_PRE,  "ffn_norm.weight"           },
    {ONNX_S_GATE,     "ffn_gate.weight"           },
    {ONNX_S_UP,       "ffn_up.weight"             },
    {ONNX_S_DOWN,     "ffn_down.weight"           },
    {ONNX_S_FFN_POST, "post_ffw_norm.weight"      },
};

static bool is_mapped(const struct onnx *m, const struct onnx_grid *g)
{
    for (size_t i = 0; i < m->n_files; i++) {
        const uint8_t *p = (const uint8_t *)m->files[i].bytes.p;
        size_t n = m->files[i].bytes.n;
        if (p != NULL && g->p >= p && g->p + g->bytes <= p + n) {
            return true;
        }
    }
    return false;
}

/* Bytes of a grid that outlive the graph. */
static int keep(struct onnx_making *k, struct onnx_grid *g, struct err *e)
{
    if (g->p == NULL || is_mapped(k->d->m, g)) {
        return 0;
    }
    uint8_t *p = made_alloc(k->m, (size_t)g->bytes + 1);
    if (p == NULL) {
        return err_set(e, ERR_NOMEM, "%llu bytes of weights",
                       (unsigned long long)g->bytes);
    }
    memcpy(p, g->p, (size_t)g->bytes);
    g->p = p;
    return 0;
}

static int keep_rows(struct onnx_making *k, struct onnx_rows *r, struct err *e)
{
    RETERR(keep(k, &r->q, e));
    RETERR(keep(k, &r->scale, e));
    return keep(k, &r->zero, e);
}

/* The ggml type of rows that lie as ggml has them; false: they do not. */
static bool plain_type(const struct onnx_rows *r, uint32_t *ret)
{
    *ret = r->q.type == ONNX_FLOAT     ? GGML_F32
           : r->q.type == ONNX_FLOAT16 ? GGML_F16
                                       : GGML_BF16;
    return r->scale.p == NULL && r->q.col_step == 1 &&
           r->q.row_step == r->cols && r->made == ONNX_FLOAT &&
           (r->q.type == ONNX_FLOAT || r->q.type == ONNX_FLOAT16 ||
            r->q.type == ONNX_BFLOAT16) &&
           r->q.bytes ==
               r->rows * r->cols * (r->q.type == ONNX_FLOAT ? 4 : 2);
}

/* n matrices of one width, their rows one after another. */
static int add(struct onnx_making *k, const char *name,
               const struct onnx_rows *const *of, size_t n, struct err *e)
{
    uint64_t dims[2] = {of[0]->cols, 0};
    uint64_t bytes = 0;
    uint32_t type = 0;
    struct onnx_stack *s = made_alloc(k->m, sizeof(*s));
    if (s == NULL) {
        return err_set(e, ERR_NOMEM, "%s", name);
    }
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        s->of[i] = *of[i];
        RETERR(keep_rows(k, &s->of[i], e));
        dims[1] += of[i]->rows;
        bytes += of[i]->bytes;
    }
    uint32_t n_dims = dims[1] == 1 ? 1 : 2;
    return n == 1 && plain_type(&s->of[0], &type)
               ? made_tensor(k->m, name, n_dims, dims, type, s->of[0].q.p,
                             s->of[0].q.bytes, e)
               : made_tensor_fn(k->m, name, n_dims, dims, s->of[0].form,
                                onnx_stack_rows, s, bytes, e);
}

static int add_one(struct onnx_making *k, const char *name,
                   const struct onnx_rows *r, struct err *e)
{
    return add(k, name, &r, 1, e);
}

static int add_layer(struct onnx_making *k, uint32_t l, struct err *e)
{
    const struct onnx_layer *y = &k->d->layers[l];
    bool fused = strcmp(k->arch, "phi3") == 0; /* its `up` is [gate; up] */
    char name[64];
    for (size_t i = 0; i < countof(names); i++) {
        enum onnx_slot s = names[i].slot;
        const struct onnx_rows *of[2] = {&y->slots[s], NULL};
        if (of[0]->rows == 0 || (fused && s == ONNX_S_GATE)) {
            continue;
        }
        (void)snprintf(name, sizeof(name), "blk.%u.%s", l, names[i].tail);
        if (fused && s == ONNX_S_UP) {
            of[0] = &y->slots[ONNX_S_GATE];
            of[1] = &y->slots[ONNX_S_UP];
        }
        RETERR(add(k, name, of, of[1] != NULL ? 2 : 1, e));
    }
    return 0;
}

/* Divisors of frequencies as a tensor. */
static int add_factors(struct onnx_making *k, const char *name, const float *f,
                       struct err *e)
{
    uint64_t n = k->rope.dim / 2;
    if (f == NULL) {
        return 0;
    }
    float *p = made_alloc(k->m, (size_t)n * sizeof(*p));
    if (p == NULL) {
        return err_set(e, ERR_NOMEM, "%s", name);
    }
    memcpy(p, f, (size_t)n * sizeof(*p));
    return made_tensor(k->m, name, 1, &n, GGML_F32, (const uint8_t *)p,
                       n * sizeof(*p), e);
}

int onnx_make_tensors(struct onnx_making *k, struct err *e)
{
    const struct onnx_decoder *d = k->d;
    bool lfm2 = strcmp(k->arch, "lfm2") == 0;
    bool two = k->rope.longs != NULL;
    RETERR(add_one(k, "token_embd.weight", &d->embd, e));
    RETERR(add_one(k, lfm2 ? "token_embd_norm.weight" : "output_norm.weight",
                   &d->out_norm, e));
    if (!d->tied) {
        RETERR(add_one(k, "output.weight", &d->head, e));
    }
    RETERR(add_factors(k,
                       two ? "rope_factors_short.weight" : "rope_freqs.weight",
                       k->rope.shorts, e));
    RETERR(add_factors(k, "rope_factors_long.weight", k->rope.longs, e));
    for (uint32_t l = 0; l < d->n_layers; l++) {
        RETERR(add_layer(k, l, e));
    }
    return 0;
}
