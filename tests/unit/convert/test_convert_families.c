/* Each family's row of the table, read from small GGUFs: which rows of which
 * tensor are what, what layers are like, which multipliers there are; and that
 * what is missing, of a wrong length or unknown is refused by name.
 * What the logits are is asked elsewhere (tests/oracle/test_families.py). */
#include "read_family.h"

static void must_read(const struct mk *m, struct read *r)
{
    int rc = try_read(m, r);
    if (rc != 0) {
        fail_msg("%s: %s: %s", m->arch, err_name(rc), r->e.msg);
    }
}

static void is_part(const struct read *r, uint32_t layer, enum arch_slot slot,
                    const char *name, uint64_t first, uint64_t rows,
                    uint64_t cols)
{
    const struct part *p = arch_part(&r->d, layer, slot);
    assert_non_null(p->t);
    assert_ptr_equal(p->t, gguf_tensor(r->g, name));
    assert_int_equal(p->first, first);
    assert_int_equal(p->rows, rows);
    assert_int_equal(p->cols, cols);
}

/* --- the table --- */

/* None is cut: errors, and the usage of `aned convert`, name them all. */
static void every_name(void **state)
{
    (void)state;
    char names[ARCH_NAMES_MAX];
    char few[16];
    size_t at = 0;
    arch_names(names, sizeof(names));
    for (size_t i = 0; i < arch_n_rows; i++) {
        size_t n = strlen(arch_rows[i].name);
        assert_memory_equal(names + at, arch_rows[i].name, n);
        at += n;
        assert_string_equal(i + 1 < arch_n_rows ? "" : names + at, "");
        at += 2; /* ", " */
    }
    arch_names(few, sizeof(few));
    assert_int_equal(strlen(few), sizeof(few) - 1);
    assert_memory_equal(few, names, sizeof(few) - 1);
}

/* --- what each family is --- */

static void plain_layers(void **state)
{
    (void)state;
    for (unsigned f = 0; f < N; f++) {
        struct read r;
        must_read(&models[f], &r);
        assert_string_equal(r.d.arch->name, models[f].arch);
        for (uint32_t l = 0; l < r.d.n_layers; l++) {
            const struct layer *y = &r.d.layers[l];
            bool gemma = f == GEMMA2 || f == GEMMA4;
            if (f == LFM2 && (CONVS >> l & 1) != 0) {
                assert_int_equal(y->mixer, MIXER_CONV);
                assert_int_equal(y->conv_len, TAPS);
                assert_true(y->n_heads == 0 && y->n_kv == 0 && !y->rotates);
                continue;
            }
            assert_int_equal(y->mixer, MIXER_ATTENTION);
            assert_int_equal(y->n_heads, 4);
            assert_int_equal(y->pre_norm, f != OLMO2);
            assert_int_equal(y->post_norm, gemma || f == OLMO2);
            assert_int_equal(y->act, gemma ? ACT_GELU_TANH : ACT_SILU);
            assert_true(y->gated && !y->gain_plus_one);
            assert_int_equal(y->qk_norm_last, f == HUNYUAN);
            assert_int_equal(y->qk_norm,
                             f == OLMO2 ? QK_NORM_FULL
                             : f == QWEN3 || f == HUNYUAN || f == GEMMA4 ||
                                     f == LFM2
                                 ? QK_NORM_HEAD
                                 : QK_NORM_NONE);
            assert_int_equal(y->rotates, f != SMOLLM3 || (l + 1) % 4 != 0);
            assert_int_equal(y->v_norm, f == GEMMA4);
            struct head_rows perm;
            assert_int_equal(arch_permutes(&r.d, l, &perm),
                             f == GRANITE || (f == SMOLLM3 && y->rotates));
        }
        assert_ptr_equal(arch_head(&r.d)->t,
                         gguf_tensor(r.g, "token_embd.weight"));
        end(&r);
    }
}

static void fused_rows(void **state)
{
    (void)state;
    struct read r;
    must_read(&models[PHI3], &r);
    for (uint32_t l = 0; l < 2; l++) {
        const char *qkv =
            l == 0 ? "blk.0.attn_qkv.weight" : "blk.1.attn_qkv.weight";
        const char *up = l == 0 ? "blk.0.ffn_up.weight" : "blk.1.ffn_up.weight";
        is_part(&r, l, SLOT_Q, qkv, 0, Q, D);
        is_part(&r, l, SLOT_K, qkv, Q, KV, D);
        is_part(&r, l, SLOT_V, qkv, Q + KV, KV, D);
        is_part(&r, l, SLOT_GATE, up, 0, FF, D);
        is_part(&r, l, SLOT_UP, up, FF, FF, D);
    }
    end(&r);
    /* other families may have the first, never the second */
    struct mk_row rows[countof(plain_rows)];
    struct mk m = models[SMOLLM3];
    m.rows = rows;
    m.layers = 1;
    memcpy(rows, plain_rows, sizeof(rows));
    rows[2] = (struct mk_row)LAYER("attn_qkv.weight", D, Q + 2 * KV);
    rows[3].layers = rows[4].layers = 0;
    must_read(&m, &r);
    is_part(&r, 0, SLOT_V, "blk.0.attn_qkv.weight", Q + KV, KV, D);
    end(&r);
    rows[3].layers = ALL; /* and attn_k too */
    must_refuse(&m, ERR_CONVERT, "blk.0.attn_k.weight");
    memcpy(rows, plain_rows, sizeof(rows));
    rows[6].layers = 0;
    rows[7].rows = 2 * FF;
    must_refuse(&m, ERR_CONVERT, "blk.0.ffn_up.weight");
}

static void longrope(void **state)
{
    (void)state;
    struct read r;
    must_read(&models[PHI3], &r);
    const struct arch_kind *k = &r.d.kinds[LAYER_GLOBAL];
    assert_int_equal(k->rope_dim, 6);
    assert_int_equal(k->n_factors, 3);
    assert_int_equal(k->original, 4096);
    assert_int_equal(k->window, 262144);
    assert_true(k->magnitude == 1.19f && k->scale == 1);
    float want[3];
    unit_ok(gguf_rows(gguf_tensor(r.g, "rope_factors_short.weight"), 0, 1, want,
                      &r.e),
            &r.e);
    assert_memory_equal(k->factors, want, sizeof(want));
    unit_ok(gguf_rows(gguf_tensor(r.g, "rope_factors_long.weight"), 0, 1, want,
                      &r.e),
            &r.e);
    assert_memory_equal(k->long_factors, want, sizeof(want));
    end(&r);
    struct mk m = models[PHI3];
    m.without = "rope_factors_long.weight";
    must_refuse(&m, ERR_GGUF_MISSING, m.without);
    m.without = "rope_factors_short.weight";
    must_refuse(&m, ERR_GGUF_MISSING, m.without);
}

static void soft_caps_and_pattern(void **state)
{
    (void)state;
    struct read r;
    must_read(&models[GEMMA2], &r);
    for (uint32_t l = 0; l < 4; l++) {
        assert_int_equal(r.d.layers[l].kind,
                         l % 2 == 0 ? LAYER_LOCAL : LAYER_GLOBAL);
        assert_true(r.d.layers[l].score_cap == 4);
        assert_true(r.d.layers[l].score_scale == 1 / sqrtf(8));
    }
    assert_true(r.d.logit_cap == 30);
    assert_true(r.d.embed_scale == sqrtf(D));
    assert_int_equal(r.d.kinds[LAYER_LOCAL].window, 24);
    assert_int_equal(r.d.kinds[LAYER_GLOBAL].window, 0);
    assert_true(r.d.kinds[LAYER_LOCAL].base == 10000);
    end(&r);
    /* 27B: 46 layers, scaled by the width of a head's share */
    for (uint32_t n = 45; n <= 47; n++) {
        struct mk m = models[GEMMA2];
        m.layers = n;
        must_read(&m, &r);
        assert_true(r.d.layers[n - 1].score_scale ==
                    1 / sqrtf(n == 46 ? D / 4.0f : 8));
        end(&r);
    }
}

static void multipliers(void **state)
{
    (void)state;
    struct read r;
    must_read(&models[GRANITE], &r);
    assert_true(r.d.embed_scale == 6);
    assert_true(r.d.logit_scale == 0.125f);
    assert_true(r.d.layers[1].residual_scale == 0.5f);
    assert_true(r.d.layers[1].score_scale == 0.25f);
    is_part(&r, 1, SLOT_DOWN_BIAS, "blk.1.ffn_down.bias", 0, 1, D);
    end(&r);
    struct mk m = models[GRANITE]; /* without them, and without biases */
    m.n_items = 0;
    m.n_rows = countof(plain_rows);
    must_read(&m, &r);
    assert_true(r.d.embed_scale == 1 && r.d.logit_scale == 1);
    assert_true(r.d.layers[1].residual_scale == 1);
    assert_true(r.d.layers[1].score_scale == 1 / sqrtf(8));
    assert_false(arch_has(&r.d, 1, SLOT_DOWN_BIAS));
    end(&r);
}

static void per_layer_numbers(void **state)
{
    (void)state;
    static const uint32_t from[] = {0, 1, 2, 1, 1, 2};
    struct read r;
    must_read(&models[GEMMA4], &r);
    for (uint32_t l = 0; l < 6; l++) {
        const struct layer *y = &r.d.layers[l];
        bool global = gemma4_local[l] == 0;
        assert_int_equal(y->kind, global ? LAYER_GLOBAL : LAYER_LOCAL);
        assert_int_equal(y->d_head, global ? 16 : 8);
        assert_int_equal(y->n_kv, gemma4_kv[l]);
        assert_int_equal(y->d_ff, gemma4_ff[l]);
        assert_int_equal(y->kv_from, from[l]);
        assert_int_equal(y->v_is_k, l == 2);
        assert_int_equal(y->d_ple, PLE);
        assert_true(y->score_scale == 1);
        assert_int_equal(arch_has(&r.d, l, SLOT_K), l < 3);
        assert_int_equal(arch_has(&r.d, l, SLOT_V), l < 2);
        is_part(&r, l, SLOT_PLE_PROJ, "per_layer_model_proj.weight",
                (uint64_t)l * PLE, PLE, D);
        float scale = 0;
        unit_ok(arch_vector(arch_part(&r.d, l, SLOT_OUT_SCALE), &scale, &r.e),
                &r.e);
        assert_true(y->out_scale == scale && scale >= 0.5f);
    }
    const struct arch_kind *k = r.d.kinds;
    assert_int_equal(k[LAYER_GLOBAL].rope_dim, 16);
    assert_int_equal(k[LAYER_GLOBAL].n_factors, 8);
    assert_int_equal(k[LAYER_LOCAL].rope_dim, 8);
    assert_int_equal(k[LAYER_LOCAL].n_factors, 0);
    assert_int_equal(k[LAYER_LOCAL].window, 24);
    assert_true(k[LAYER_GLOBAL].base == 1e6f && k[LAYER_LOCAL].base == 5000);
    assert_true(r.d.logit_cap == 12 && r.d.embed_scale == sqrtf(D));
    end(&r);
}

/* --- zaya --- */

static void mixed_heads(void **state)
{
    (void)state;
    struct read r;
    must_read(&models[ZAYA], &r);
    for (uint32_t l = 0; l < 3; l++) {
        const struct layer *y = &r.d.layers[l];
        assert_int_equal(y->mixer, MIXER_CCA);
        assert_int_equal(y->conv_len, ZAYA_TAPS);
        assert_int_equal(y->mix_len, ZAYA_MIX);
        assert_int_equal(layer_tail_len(y), ZAYA_TAPS + ZAYA_MIX - 2);
        assert_int_equal(y->router, ROUTER_NETWORK);
        assert_int_equal(y->n_experts, ZAYA_EXPERTS);
        assert_int_equal(arch_classes(y), ZAYA_EXPERTS + 1);
        assert_int_equal(y->d_ff, 0);
        assert_true(y->affine_join && !y->expert_branch);
        is_part(&r, l, SLOT_V,
                (const char *[]){"blk.0.attn_v.weight", "blk.1.attn_v.weight",
                                 "blk.2.attn_v.weight"}[l],
                0, KV / 2, D);
        /* a router reads that of the layer before */
        assert_int_equal(layer_port_read_by(r.d.layers, PORT_ROUTER, l, 0, 3),
                         l < 2);
        assert_false(layer_port_read_by(r.d.layers, PORT_ROUTER, l, 0, l + 1));
        assert_false(layer_port_read_by(r.d.layers, PORT_ROUTER, l, l + 2, 3));
        /* tables of vectors and taps are no matrices of a form */
        assert_null(arch_matrix(&r.d, l, SLOT_MIX));
        assert_null(arch_matrix(&r.d, l, SLOT_JOIN_ATTN));
        assert_null(arch_matrix(&r.d, l, SLOT_ROUTER_VECTORS));
        assert_non_null(arch_matrix(&r.d, l, SLOT_V_BEFORE));
        assert_non_null(arch_matrix(&r.d, l, SLOT_ROUTER_1));
    }
    assert_ptr_equal(arch_head(&r.d)->t, gguf_tensor(r.g, "output.weight"));
    end(&r);
}

static void mixed_heads_refused(void **state)
{
    (void)state;
    static const struct {
        const char *tail;
        uint32_t value;
        int rc;
        const char *tells;
    } t[] = {
        {"cca.time0",               1,                 ERR_CONVERT,     "cca.time0"    },
        {"cca.time0",               MODEL_CONV_MAX,    ERR_CONVERT,     "cca.time0"    },
        {"cca.time1",               0,                 ERR_CONVERT,     "cca.time1"    },
        {"cca.time1",               ZAYA_MIX + 1,      ERR_CONVERT,     "cca_mix"      },
        {"router_length",           0,                 ERR_CONVERT,     "router_length"},
        {"router_length",           ZAYA_ROUTER + 1,   ERR_CONVERT,     "ffn_gate_inp" },
        {"expert_count",            0,                 ERR_UNSUPPORTED, "of 0 experts" },
        {"expert_count",            ZAYA_EXPERTS + 1,  ERR_CONVERT,     "is "          },
        {"expert_used_count",       2,                 ERR_UNSUPPORTED, "2 of 5"       },
        {"attention.head_count_kv", 1,                 ERR_UNSUPPORTED, "1 key heads"  },
        {"rope.dimension_count",    9,                 ERR_CONVERT,     "takes 2 to 8" },
        {"expert_gating_func",      2,                 ERR_UNSUPPORTED, "gating"       },
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct mk m = models[ZAYA];
        m.extra_key = t[i].tail;
        m.extra_value = t[i].value;
        must_refuse(&m, t[i].rc, t[i].tells);
    }
    for (size_t i = 0; i < models[ZAYA].n_rows; i++) {
        const struct mk_row *row = &models[ZAYA].rows[i];
        const char *tail = row->layers != 0 ? row->name + 7 : row->name;
        bool both = strcmp(tail, "ffn_gate_up_exps.weight") == 0;
        char name[96];
        struct mk m = models[ZAYA];
        (void)snprintf(name, sizeof(name), "blk.1.%s", tail);
        m.without = row->layers != 0 ? name : tail;
        must_refuse(&m, ERR_GGUF_MISSING, both ? "ffn_gate_exps" : tail);
    }
}

/* --- what is refused --- */

/* Leaving a tensor out names it; one that is part of a fused one by the part.
 */
static void missing_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *tail, *named;
    } other[] = {
        {"attn_qkv.weight", "attn_q.weight"  },
        {"ffn_up.weight",   "ffn_gate.weight"},
    };
    for (unsigned f = 0; f < N; f++) {
        for (size_t i = 0; i < models[f].n_rows; i++) {
            const struct mk_row *row = &models[f].rows[i];
            bool layered = row->layers != 0;
            const char *tail = layered ? row->name + 7 : row->name;
            char name[96];
            struct mk m = models[f];
            /* biases, scales and factors may be absent; gemma4's values too */
            if (strstr(tail, ".bias") != NULL ||
                strstr(tail, "output_scale") != NULL ||
                strstr(tail, "rope_") != NULL ||
                (f == GEMMA4 && strcmp(tail, "attn_v.weight") == 0)) {
                continue;
            }
            uint32_t l = row->layers == 0x24 || row->layers == 0x4 ? 2
                         : row->layers == 0x38                     ? 3
                                                                   : 1;
            (void)snprintf(name, sizeof(name), "blk.%u.%s", l, tail);
            m.without = layered ? name : tail;
            for (size_t k = 0; f == PHI3 && k < countof(other); k++) {
                tail = strcmp(tail, other[k].tail) == 0 ? other[k].named : tail;
            }
            must_refuse(&m, ERR_GGUF_MISSING, tail);
        }
    }
}

/* An unknown key, and one that another family understands. */
static void unknown_keys(void **state)
{
    (void)state;
    static const struct {
        enum family family;
        const char *tail;
    } foreign[] = {
        {QWEN3,   "logit_scale"                     },
        {QWEN3,   "attn_logit_softcapping"          },
        {QWEN3,   "attention.sliding_window_pattern"},
        {QWEN3,   "rope.scaling.attn_factor"        },
        {PHI3,    "final_logit_softcapping"         },
        {PHI3,    "embedding_scale"                 },
        {HUNYUAN, "rope.scaling.attn_factor"        },
        {HUNYUAN, "rope.scaling.alpha"              },
        {GEMMA2,  "embedding_scale"                 },
        {GEMMA2,  "attention.shared_kv_layers"      },
        {GEMMA2,  "attention.key_length_swa"        },
        {GEMMA4,  "attn_logit_softcapping"          },
        {GEMMA4,  "expert_shared_count"             },
        {GRANITE, "final_logit_softcapping"         },
        {GRANITE, "expert_count"                    },
        {OLMO2,   "attention.clamp_kqv"             },
        {OLMO2,   "attention.scale"                 },
        {SMOLLM3, "residual_scale"                  },
        {SMOLLM3, "attention.no_rope_layers"        },
    };
    for (unsigned f = 0; f < N; f++) {
        struct mk m = models[f];
        char name[96];
        m.extra_key = "made_up";
        m.extra_value = 2;
        (void)snprintf(name, sizeof(name), "%s.made_up", m.arch);
        must_refuse(&m, ERR_UNSUPPORTED, name);
    }
    for (size_t i = 0; i < countof(foreign); i++) {
        struct mk m = models[foreign[i].family];
        char name[96];
        m.extra_key = foreign[i].tail;
        m.extra_value = 2;
        (void)snprintf(name, sizeof(name), "%s.%s", m.arch, m.extra_key);
        must_refuse(&m, ERR_UNSUPPORTED, name);
    }
}

/* gemma4 with another value of one key is refused. */
static void refuse_item(struct mk_item item, int rc, const char *word)
{
    struct mk m = models[GEMMA4];
    struct mk_item items[countof(gemma4_items)];
    bool found = false;
    memcpy(items, gemma4_items, sizeof(items));
    for (size_t k = 0; k < countof(items); k++) {
        if (strcmp(items[k].tail, item.tail) == 0) {
            items[k] = item;
            found = true;
        }
    }
    assert_true(found);
    m.items = items;
    must_refuse(&m, rc, word);
}

/* A number a layer means as many as there are layers, of the right kind, in
 * range; and sharing needs a layer to share with. */
static void wrong_arrays(void **state)
{
    (void)state;
    static const uint32_t seven[] = {2, 2, 1, 2, 2, 1, 1};
    static const uint32_t zero[] = {2, 2, 0, 2, 2, 1};
    static const uint32_t big[] = {FF, FF, FF, FF, FF, UINT32_MAX};
    static const uint32_t unlike[] = {2, 2, 1, 1, 2, 1};
    static const uint32_t locals[] = {1, 1, 1, 1, 1, 0};
#define REFUSE(item, rc, word) refuse_item((struct mk_item)item, rc, word)
#define KV_HEADS               "attention.head_count_kv"
#define PATTERN                "attention.sliding_window_pattern"
    REFUSE(US(KV_HEADS, 7, seven), ERR_CONVERT, "7 entries for 6 layers");
    REFUSE(US(KV_HEADS, 5, seven), ERR_CONVERT, "head_count_kv has 5");
    REFUSE(US(KV_HEADS, 6, zero), ERR_CONVERT, "head_count_kv is 0");
    REFUSE(BS(KV_HEADS, 6, gemma4_local), ERR_GGUF_VALUE, "head_count_kv");
    REFUSE(US(KV_HEADS, 6, unlike), ERR_CONVERT, "layer 3");
    REFUSE(US("feed_forward_length", 1, gemma4_ff), ERR_CONVERT,
           "feed_forward_length has 1");
    REFUSE(US("feed_forward_length", 6, big), ERR_CONVERT,
           "feed_forward_length is");
    REFUSE(T("feed_forward_length", "56"), ERR_GGUF_VALUE,
           "feed_forward_length");
    REFUSE(BS(PATTERN, 3, gemma4_local), ERR_CONVERT,
           "sliding_window_pattern has 3");
    REFUSE(US(PATTERN, 6, gemma4_local), ERR_GGUF_VALUE,
           "sliding_window_pattern");
    REFUSE(BS(PATTERN, 6, locals), ERR_CONVERT, "layer 5");
    REFUSE(U("attention.shared_kv_layers", 6), ERR_CONVERT, "shared_kv_layers");
    REFUSE(U("rope.dimension_count_swa", 16), ERR_CONVERT,
           "dimension_count_swa");
    REFUSE(U("attention.value_length_swa", 16), ERR_UNSUPPORTED,
           "values of 16");
#undef REFUSE
#undef KV_HEADS
#undef PATTERN
}

/* --- YaRN --- */

/* The divisors, made by this Python (the formula of the transformers library,
 * modeling_rope_utils.py, written anew):
 *
 *   c = lambda r: dim * log(L / (r * 2 * pi)) / (2 * log(base))
 *   lo, hi = max(floor(c(fast)), 0), min(ceil(c(slow)), dim - 1)
 *   for i in range(dim // 2):
 *       th = base ** (-2 * i / dim)
 *       ramp = min(max((i - lo) / (hi - lo), 0), 1)
 *       print('%.7g' % (th / (th / s * ramp + th * (1 - ramp))))
 *
 * and the magnitude: 0.1 * log(s) + 1 */
static void yarn(void **state)
{
    (void)state;
    static const float first[] = {
        1, 1, 1.12f, 1.272727f, 1.473684f, 1.75f, 2.153846f, 2.8f,
        4, 4, 4,     4,         4,         4,     4,         4};
    static const float second[] = {1, 1, 1, 1, 1.777778f, 8, 8, 8};
    static const float third[] = {
        1,         1,     1,         1,         1,  1,  1.160622f, 1.382716f,
        1.709924f, 2.24f, 3.246377f, 5.894737f, 32, 32, 32,        32};
    static const float fourth[] = {1, 1.333333f, 2, 4, 4, 4, 4, 4};
    static const struct {
        uint32_t dim;
        float base, factor, fast, slow; /* fast 0: no key */
        uint32_t original;
        float magnitude; /* also said by a key where fast is given */
        const float *want;
    } t[] = {
        {32, 1e4f, 4,  0,  0, 512,   1.138629436f, first },
        {16, 1e6f, 8,  16, 2, 32768, 1.207944154f, second},
        {32, 1e4f, 32, 32, 1, 4096,  1.346573590f, third },
        {16, 1e4f, 4,  0,  0, 64,    1.138629436f, fourth},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct mk_item items[] = {
            T("rope.scaling.type", "yarn"),
            F("rope.scaling.factor", t[i].factor),
            U("rope.scaling.original_context_length", t[i].original),
            F("rope.freq_base", t[i].base),
            F("rope.scaling.yarn_attn_factor", t[i].magnitude),
            F("rope.scaling.yarn_beta_fast", t[i].fast),
            F("rope.scaling.yarn_beta_slow", t[i].slow),
        };
        struct mk m = mk_llama;
        struct read r;
        m.d_head = t[i].dim;
        m.items = items;
        m.n_items = t[i].fast > 0 ? 7 : 4;
        must_read(&m, &r);
        const struct arch_kind *k = &r.d.kinds[LAYER_GLOBAL];
        assert_int_equal(k->n_factors, t[i].dim / 2);
        assert_true(k->scale == 1); /* the factor stands in the divisors */
        for (uint32_t j = 0; j < k->n_factors; j++) {
            float off = fabsf(k->factors[j] / t[i].want[j] - 1);
            if (!(off < 1e-6f)) {
                fail_msg("row %zu: factor %u is %.7g, not %.7g", i, j,
                         (double)k->factors[j], (double)t[i].want[j]);
            }
        }
        assert_true(fabsf(k->magnitude / t[i].magnitude - 1) < 1e-6f);
        end(&r);
        items[4] =
            (struct mk_item)F("rope.scaling.yarn_attn_factor", 1.5f);
        m.n_items = 5;
        must_refuse(&m, ERR_UNSUPPORTED, "yarn_attn_factor");
        m.n_items = 2; /* the original context is not known */
        must_refuse(&m, ERR_GGUF_MISSING, "original_context_length");
    }
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(every_name),
        cmocka_unit_test(plain_layers),
        cmocka_unit_test(fused_rows),
        cmocka_unit_test(longrope),
        cmocka_unit_test(soft_caps_and_pattern),
        cmocka_unit_test(multipliers),
        cmocka_unit_test(per_layer_numbers),
        cmocka_unit_test(mixed_heads),
        cmocka_unit_test(mixed_heads_refused),
        cmocka_unit_test(missing_tensors),
        cmocka_unit_test(unknown_keys),
        cmocka_unit_test(wrong_arrays),
        cmocka_unit_test(yarn),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
