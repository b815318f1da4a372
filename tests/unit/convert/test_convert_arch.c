/* Families read from small GGUFs; what is not understood is refused by name. */
#include "convert/arch/arch.h"
#include "mkgguf.h"

static int read_mk(const struct mk *m, struct decoder *d, struct gguf **g,
                   struct buf *b, struct err *e)
{
    *b = mk_gguf(m);
    unit_ok(gguf_open_mem(b->p, b->n, g, e), e);
    return arch_read(*g, d, e);
}

static void numbers_of_families(void **state)
{
    (void)state;
    const struct mk *models[] = {&mk_llama, &mk_qwen2, &mk_gemma3};
    for (size_t i = 0; i < countof(models); i++) {
        const struct mk *m = models[i];
        struct decoder d;
        struct gguf *g = NULL;
        struct buf b;
        struct err e = {0};
        unit_ok(read_mk(m, &d, &g, &b, &e), &e);
        assert_string_equal(d.arch->name, m->arch);
        assert_int_equal(d.n_layers, m->layers);
        const struct arch_kind *k = &d.kinds[LAYER_GLOBAL];
        assert_int_equal(d.layers[1].d_head, m->d_head);
        assert_int_equal(k->rope_dim, m->d_head);
        assert_int_equal(d.vocab, m->vocab);
        assert_true(k->base == 10000.0f && k->scale == 1);
        assert_true(
            arch_head(&d)->t ==
            gguf_tensor(g, m->untied ? "output.weight" : "token_embd.weight"));
        bool gemma = m == &mk_gemma3;
        assert_true(d.embed_scale == (gemma ? sqrtf(48) : 1.0f));
        assert_int_equal(k->window, 0);
        assert_int_equal(d.kinds[LAYER_LOCAL].window, gemma ? 16 : 0);
        for (uint32_t l = 0; l < d.n_layers; l++) {
            assert_int_equal(d.layers[l].kind == LAYER_LOCAL, gemma && l != 5);
        }
        assert_true(arch_has(&d, 1, SLOT_DOWN));
        assert_int_equal(arch_has(&d, 1, SLOT_Q_BIAS), m->qkv_bias);
        arch_fini(&d);
        gguf_close(g);
        buf_fini(&b);
    }
}

/* Interleaved pairs become halves; what is not rotated stays; every source
 * row is used once. */
static void rope_rows(void **state)
{
    (void)state;
    struct mk m = mk_llama;
    m.rope_dim = 12;
    struct decoder d;
    struct gguf *g = NULL;
    struct buf b;
    struct err e = {0};
    unit_ok(read_mk(&m, &d, &g, &b, &e), &e);
    static const uint32_t want[16] = {0, 2, 4, 6,  8,  10, 1,  3,
                                      5, 7, 9, 11, 12, 13, 14, 15};
    struct head_rows perm;
    assert_true(arch_permutes(&d, 0, &perm));
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(head_row(&perm, i), want[i]);
    }
    arch_fini(&d);
    gguf_close(g);
    buf_fini(&b);
    unit_ok(read_mk(&mk_qwen2, &d, &g, &b, &e), &e);
    assert_false(arch_permutes(&d, 0, &perm));
    arch_fini(&d);
    gguf_close(g);
    buf_fini(&b);
}

static void refused(void **state)
{
    (void)state;
    struct mk t[12];
    int code[12];
    const char *names[12];
    size_t n = 0;
#define ROW(base, change, rc, word) \
    t[n] = base;                    \
    t[n].change;                    \
    code[n] = rc;                   \
    names[n++] = word
    ROW(mk_llama, arch = "mamba", ERR_ARCH, "mamba");
    ROW(mk_llama, extra_key = "expert_count";
        t[n].extra_value = 8, ERR_UNSUPPORTED, "llama.expert_count");
    ROW(mk_llama, extra_tensor = "blk.0.ffn_gate_inp.weight", ERR_CONVERT,
        "blk.0.ffn_gate_inp.weight");
    ROW(mk_llama, extra_tensor = "blk.99.attn_norm.weight", ERR_CONVERT,
        "blk.99");
    ROW(mk_llama, without = "blk.2.attn_k.weight", ERR_GGUF_MISSING,
        "blk.2.attn_k.weight");
    ROW(mk_llama, without = "token_embd.weight", ERR_GGUF_MISSING,
        "token_embd.weight");
    ROW(mk_qwen2, qkv_bias = false, ERR_GGUF_MISSING, "attn_q.bias");
    ROW(mk_gemma3, window = 0, ERR_GGUF_MISSING, "sliding_window");
    ROW(mk_llama, kv = 3, ERR_CONVERT, "kv heads");
    ROW(mk_llama, rope_dim = 7, ERR_CONVERT, "even");
    ROW(mk_llama, rope_dim = 17, ERR_CONVERT, "rope.dimension_count");
    ROW(mk_llama, gemma = true, ERR_CONVERT, "attn_q_norm");
#undef ROW
    for (size_t i = 0; i < n; i++) {
        struct decoder d;
        struct gguf *g = NULL;
        struct buf b;
        struct err e = {0};
        int rc = read_mk(&t[i], &d, &g, &b, &e);
        if (rc != code[i] || strstr(e.msg, names[i]) == NULL) {
            fail_msg("row %zu: %s: %s", i, err_name(rc), e.msg);
        }
        gguf_close(g);
        buf_fini(&b);
    }
}

/* arch_read of m with its extra key; the error's text in *e. */
static int read_extra(const struct mk *m, struct err *e)
{
    struct decoder d = {0};
    struct gguf *g = NULL;
    struct buf b;
    int rc = read_mk(m, &d, &g, &b, e);
    arch_fini(&d);
    gguf_close(g);
    buf_fini(&b);
    return rc;
}

/* A key under the family's own prefix is understood, harmless, neutral, or
 * refused by its name. */
static void keys_one_by_one(void **state)
{
    (void)state;
    static const struct {
        struct mk m;
        int rc;
    } t[] = {
#define U32(base, key, v)              \
    {                                  \
        .arch = base, .extra_key = key, .extra_value = v \
    }
#define STR(base, key, v)             \
    {                                 \
        .arch = base, .extra_key = key, .extra_text = v \
    }
#define F32(base, key, v)            \
    {                                \
        .arch = base, .extra_key = key, .extra_f32 = v \
    }
#define BOOL(base, key, v)                                                 \
    {                                                                      \
        .arch = base, .extra_key = key, .extra_bool = true, .extra_value = v \
    }
  /* what files of these families carry */
        {U32("llama",  "vocab_size",                           300),                    0              },
        {U32("llama",  "rope.dimension_count",                 16),                     0              },
        {F32("llama",  "rope.freq_base",                       500000),                 0              },
        {U32("llama",  "attention.key_length",                 16),                     0              },
        {U32("llama",  "attention.value_length",               16),                     0              },
        {STR("llama",  "tensor_data_layout",                   "Meta AI original pth"), 0              },
        {U32("llama",  "rope.scaling.original_context_length", 4096),                   0              },
        {BOOL("llama", "rope.scaling.finetuned",               true),                   0              },
        {STR("llama",  "rope.scaling.type",                    "linear"),               0              },
        {F32("gemma3", "rope.scaling.factor",                  8),                      0              },
        {F32("gemma3", "rope.freq_base_swa",                   10000),                  0              },
        {U32("gemma3", "attention.sliding_window_pattern",     3),                      0              },
        {U32("qwen2",  "pooling_type",                         3),                      0              },
        {BOOL("qwen2", "attention.causal",                     true),                   0              },
 /* neutral, and not */
        {U32("llama",  "expert_count",                         0),                      0              },
        {U32("llama",  "expert_count",                         8),                      ERR_UNSUPPORTED},
        {U32("llama",  "expert_used_count",                    2),                      ERR_UNSUPPORTED},
        {F32("llama",  "residual_scale",                       1),                      0              },
        {F32("llama",  "residual_scale",                       0.5f),                   ERR_UNSUPPORTED},
        {F32("gemma3", "final_logit_softcapping",              30),                     ERR_UNSUPPORTED},
        {U32("gemma3", "final_logit_softcapping",              0),                      0              },
        {F32("llama",  "attention.scale",                      0.0625f),                ERR_UNSUPPORTED},
        {STR("llama",  "attention.scale",                      "1"),                    ERR_UNSUPPORTED},
        {BOOL("llama", "attention.causal",                     false),                  ERR_UNSUPPORTED},
        {U32("llama",  "attention.causal",                     0),                      ERR_UNSUPPORTED},
        {BOOL("llama", "use_parallel_residual",                true),                   ERR_UNSUPPORTED},
        {STR("llama",  "tensor_data_layout",                   "other"),                ERR_UNSUPPORTED},
 /* of another family, and of none */
        {U32("llama",  "attention.sliding_window_pattern",     3),                      ERR_UNSUPPORTED},
        {F32("qwen2",  "rope.freq_base_swa",                   10000),                  ERR_UNSUPPORTED},
        {U32("qwen2",  "rope.dimension_sections",              4),                      ERR_UNSUPPORTED},
        {F32("llama",  "attention.temperature_scale",          0.1f),                   ERR_UNSUPPORTED},
        {F32("llama",  "made_up_scale",                        2),                      ERR_UNSUPPORTED},
        {F32("gemma3", "rope.global.freq_base",                1e6f),                   ERR_UNSUPPORTED},
        {STR("llama",  "rope.scaling.type",                    "dynamic"),              ERR_UNSUPPORTED},
#undef U32
#undef STR
#undef F32
#undef BOOL
    };
    for (size_t i = 0; i < countof(t); i++) {
        const struct mk *x = &t[i].m;
        struct mk m = strcmp(x->arch, "llama") == 0   ? mk_llama
                      : strcmp(x->arch, "qwen2") == 0 ? mk_qwen2
                                                      : mk_gemma3;
        m.extra_key = x->extra_key;
        m.extra_value = x->extra_value;
        m.extra_text = x->extra_text;
        m.extra_f32 = x->extra_f32;
        m.extra_bool = x->extra_bool;
        struct err e = {0};
        char name[128];
        (void)snprintf(name, sizeof(name), "%s.%s", m.arch, m.extra_key);
        int rc = read_extra(&m, &e);
        if (rc != t[i].rc || (rc != 0 && strstr(e.msg, name) == NULL)) {
            fail_msg("row %zu: %s: %s: %s", i, name, err_name(rc), e.msg);
        }
    }
}

/* What the list calls read is read: text in its place is refused. */
static void read_keys_are_read(void **state)
{
    (void)state;
    static const char *const tails[] = {
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.freq_base_swa",
        "rope.scaling.factor",
        "rope.scale_linear",
    };
    for (size_t i = 0; i < countof(tails); i++) {
        struct mk m = mk_gemma3;
        struct err e = {0};
        struct decoder d;
        struct gguf *g = NULL;
        struct buf b;
        m.extra_key = tails[i];
        m.extra_text = "four";
        b = mk_gguf(&m);
        int rc = gguf_open_mem(b.p, b.n, &g, &e);
        if (rc == 0) { /* the reader itself looks at block_count */
            rc = arch_read(g, &d, &e);
        }
        if (rc != ERR_GGUF_VALUE || strstr(e.msg, tails[i]) == NULL) {
            fail_msg("%s: %s: %s", tails[i], err_name(rc), e.msg);
        }
        gguf_close(g);
        buf_fini(&b);
    }
    struct mk m = mk_gemma3;
    struct err e = {0};
    m.extra_key = "rope.scaling.type";
    m.extra_value = 1;
    assert_int_equal(read_extra(&m, &e), ERR_GGUF_VALUE);
}

/* A factor without a type is linear (the exporters' default); none is none. */
static void linear_without_type(void **state)
{
    (void)state;
    static const struct {
        const char *key, *text;
        float factor, scale;
    } t[] = {
        {"rope.scaling.factor", NULL,     8, 0.125f},
        {"rope.scale_linear",   NULL,     4, 0.25f },
        {"rope.scaling.type",   "none",   0, 1     },
        {"rope.scaling.type",   "linear", 0, 1     },
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct mk m = mk_llama;
        struct decoder d;
        struct gguf *g = NULL;
        struct buf b;
        struct err e = {0};
        m.extra_key = t[i].key;
        m.extra_text = t[i].text;
        m.extra_f32 = t[i].factor;
        unit_ok(read_mk(&m, &d, &g, &b, &e), &e);
        assert_true(d.kinds[LAYER_GLOBAL].scale == t[i].scale);
        arch_fini(&d);
        gguf_close(g);
        buf_fini(&b);
    }
}

/* gemma3 of 62 layers (27B) scales scores by 1/sqrt(d_model / n_heads). */
static void scale_of_scores(void **state)
{
    (void)state;
    static const struct {
        uint32_t layers;
        float scale;
    } t[] = {
        {61, 0.17677669f},
        {62, 0.28867513f},
        {63, 0.17677669f},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct mk m = mk_gemma3; /* d 48, 4 heads of 32 */
        struct decoder d;
        struct gguf *g = NULL;
        struct buf b;
        struct err e = {0};
        m.layers = t[i].layers;
        unit_ok(read_mk(&m, &d, &g, &b, &e), &e);
        assert_true(d.layers[0].score_scale == t[i].scale);
        arch_fini(&d);
        gguf_close(g);
        buf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(numbers_of_families),
        cmocka_unit_test(rope_rows),
        cmocka_unit_test(refused),
        cmocka_unit_test(keys_one_by_one),
        cmocka_unit_test(read_keys_are_read),
        cmocka_unit_test(linear_without_type),
        cmocka_unit_test(scale_of_scores),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
