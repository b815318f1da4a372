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
    {ONNX_S_ROUTER,      "ffn_gate_inp.weight"    },
    {ONNX_S_ROUTER_BIAS, "exp_probs_b.bias"       },
    {ONNX_S_EXPERT_GATE, "ffn_gate_exps.weight"   },
    {ONNX_S_EXPERT_UP,   "ffn_up_exps.weight"     },
    {ONNX_S_EXPERT_DOWN, "ffn_down_exps.weight"   },
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

/* n parts of one width, their rows one after another; experts > 1: so many
 * matrices. */
static int add(struct onnx_making *k, const char *name, uint32_t experts,
               const struct onnx_part *of, size_t n, struct err *e)
{
    uint64_t dims[3] = {of[0].m.cols, 0, experts};
    uint64_t bytes = 0;
    uint32_t type = 0;
    struct onnx_stack *s = made_alloc(k->m, sizeof(*s));
    if (s == NULL) {
        return err_set(e, ERR_NOMEM, "%s", name);
    }
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        s->of[i] = of[i];
        RETERR(keep_rows(k, &s->of[i].m, e));
        dims[1] += of[i].rows;
        bytes += of[i].m.bytes / of[i].m.rows * of[i].rows;
    }
    const struct onnx_part *p = &s->of[0];
    bool whole = n == 1 && p->head == 0 && p->rows == p->m.rows;
    uint32_t n_dims = experts > 1 ? 3 : dims[1] == 1 ? 1 : 2;
    dims[1] /= experts > 1 ? experts : 1;
    return whole && plain_type(&p->m, &type)
               ? made_tensor(k->m, name, n_dims, dims, type, p->m.q.p,
                             p->m.q.bytes, e)
               : made_tensor_fn(k->m, name, n_dims, dims, p->m.form,
                                onnx_stack_rows, s, bytes, e);
}

static int add_one(struct onnx_making *k, const char *name,
                   const struct onnx_rows *r, struct err *e)
{
    const struct onnx_part p = {.m = *r, .rows = r->rows};
    return add(k, name, 1, &p, 1, e);
}

/* --- q, k and v where rotations turn pairs --- */

/* Elements [first, first + n) of a vector, turned into columns of one row each
 * and back, so that the order of heads is the same code. */
static int add_bias(struct onnx_making *k, const char *name,
                    const struct onnx_part *p, struct err *e)
{
    struct onnx_stack s = {.n = 1, .of = {*p}};
    float *v = made_alloc(k->m, (size_t)p->rows * sizeof(*v));
    if (v == NULL) {
        return err_set(e, ERR_NOMEM, "%s", name);
    }
    s.of[0].m.rows = p->m.cols; /* (1, n) read as (n, 1) */
    s.of[0].m.cols = s.of[0].m.col_block = 1;
    s.of[0].m.q.row_step = 1;
    onnx_stack_rows(&s, 0, p->rows, v);
    return made_tensor(k->m, name, 1, &p->rows, GGML_F32, (const uint8_t *)v,
                       p->rows * sizeof(*v), e);
}

/* The rows of q (0), k (1) or v (2), of their own matrix or of all three. */
static bool part_of(const struct onnx_layer *y, size_t which, bool bias,
                    struct onnx_part *ret)
{
    const struct onnx_rows *all =
        &y->slots[bias ? ONNX_S_QKV_BIAS : ONNX_S_QKV];
    const struct onnx_rows *own =
        &y->slots[(bias ? ONNX_S_Q_BIAS : ONNX_S_Q) + which];
    uint64_t q = (uint64_t)y->n_heads * y->d_head;
    uint64_t kv = (uint64_t)y->n_kv * y->d_head;
    *ret = (struct onnx_part){
        .m = all->rows > 0 ? *all : *own,
        .first = all->rows == 0 || which == 0 ? 0
                 : which == 1                 ? q
                                              : q + kv,
        .rows = which == 0 ? q : kv,
        .head = which < 2 ? y->d_head : 0};
    return ret->m.rows > 0;
}

static int add_pairs(struct onnx_making *k, uint32_t l, struct err *e)
{
    char name[64];
    struct onnx_part p;
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof(name), "blk.%u.attn_%c.weight", l,
                       "qkv"[i]);
        if (part_of(&k->d->layers[l], i, false, &p)) {
            RETERR(add(k, name, 1, &p, 1, e));
        }
        (void)snprintf(name, sizeof(name), "blk.%u.attn_%c.bias", l, "qkv"[i]);
        if (part_of(&k->d->layers[l], i, true, &p)) {
            RETERR(add_bias(k, name, &p, e));
        }
    }
    return 0;
}

static bool is_qkv(enum onnx_slot s)
{
    return s == ONNX_S_QKV || s == ONNX_S_QKV_BIAS ||
           (s >= ONNX_S_Q && s <= ONNX_S_V) ||
           (s >= ONNX_S_Q_BIAS && s <= ONNX_S_V_BIAS);
}

/* --- layers --- */

static int add_layer(struct onnx_making *k, uint32_t l, struct err *e)
{
    const struct onnx_layer *y = &k->d->layers[l];
    bool fused = strcmp(k->arch, "phi3") == 0; /* its `up` is [gate; up] */
    bool pairs = strcmp(k->arch, "llama") == 0;
    char name[64];
    for (size_t i = 0; i < countof(names); i++) {
        enum onnx_slot s = names[i].slot;
        const struct onnx_rows *r = &y->slots[s];
        const struct onnx_rows *gate = &y->slots[ONNX_S_GATE];
        const struct onnx_part both[2] = {{.m = *gate, .rows = gate->rows},
                                          {.m = *r, .rows = r->rows}};
        if (r->rows == 0 || (fused && s == ONNX_S_GATE) ||
            (pairs && is_qkv(s))) {
            continue;
        }
        (void)snprintf(name, sizeof(name), "blk.%u.%s", l, names[i].tail);
        const struct onnx_part one = {.m = *r, .rows = r->rows};
        bool mixed = s >= ONNX_S_EXPERT_GATE && s <= ONNX_S_EXPERT_DOWN;
        RETERR(fused && s == ONNX_S_UP
                   ? add(k, name, 1, both, 2, e)
                   : add(k, name, mixed ? y->n_experts : 1, &one, 1, e));
    }
    return pairs ? add_pairs(k, l, e) : 0;
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
    bool lfm2 = strncmp(k->arch, "lfm2", 4) == 0; /* lfm2moe too */
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
