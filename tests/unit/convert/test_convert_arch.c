/* Families read from small GGUFs; what is not understood is refused by name. */
#include "convert/arch.h"
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
        assert_int_equal(d.d_head, m->d_head);
        assert_int_equal(d.rope_dim, m->d_head);
        assert_int_equal(d.vocab, m->vocab);
        assert_true(d.rope_base == 10000.0f && d.rope_scale == 1);
        assert_true(
            arch_head(&d) ==
            gguf_tensor(g, m->untied ? "output.weight" : "token_embd.weight"));
        bool gemma = m == &mk_gemma3;
        assert_true(d.embed_scale == (gemma ? sqrtf(48) : 1.0f));
        assert_int_equal(d.window, gemma ? 16 : 0);
        for (uint32_t l = 0; l < d.n_layers; l++) {
            assert_int_equal(arch_local(&d, l), gemma && l != 5);
        }
        assert_non_null(arch_tensor(&d, 1, SLOT_DOWN));
        assert_int_equal(arch_tensor(&d, 1, SLOT_Q_BIAS) != NULL, m->qkv_bias);
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
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(arch_rope_row(&d, i), want[i]);
    }
    arch_fini(&d);
    gguf_close(g);
    buf_fini(&b);
    unit_ok(read_mk(&mk_qwen2, &d, &g, &b, &e), &e);
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(arch_rope_row(&d, i), i);
    }
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

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(numbers_of_families),
        cmocka_unit_test(rope_rows),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
