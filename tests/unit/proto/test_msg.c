/* test_msg.c - msg.h: decoding gives what was encoded; other bytes are refused.
 */
#include <math.h>

#include "../unit.h"
#include "proto/frame.h"
#include "proto/msg.h"

/* Decode a prefix or a longer copy of b with get; true when it is refused. */
#define REFUSES(get, type, b, e)                                    \
    do {                                                            \
        for (size_t n_ = 0; n_ < (b)->n; n_++) {                    \
            type m_;                                                \
            uint8_t *cut_ = malloc(n_ > 0 ? n_ : 1);                \
            assert_non_null(cut_);                                  \
            memcpy(cut_, (b)->p, n_);                               \
            assert_int_equal(get(cut_, n_, &m_, (e)), ERR_FRAME);   \
            free(cut_);                                             \
        }                                                           \
        type m_;                                                    \
        buf_u8((b), 0);                                             \
        assert_int_equal(get((b)->p, (b)->n, &m_, (e)), ERR_FRAME); \
    } while (0)

static void test_load(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    struct msg_load in = {
        .bundle = "/models/a b",
        .backend = "interpreter",
        .threads = 4,
        .round_fp16 = true,
        .margin = 0.5F,
        .layers = {3, {1, 4, ENGINE_CHUNK_MAX}},
        .heads = {1, {2}},
    };
    struct msg_load out;
    buf_init(&b, KIB(4));
    msg_load_put(&b, &in);
    unit_ok(msg_load_get(b.p, b.n, &out, &e), &e);
    assert_string_equal(out.bundle, in.bundle);
    assert_string_equal(out.backend, in.backend);
    assert_int_equal(out.threads, 4);
    assert_true(out.round_fp16);
    assert_memory_equal(&out.layers, &in.layers, sizeof(in.layers));
    assert_memory_equal(&out.heads, &in.heads, sizeof(in.heads));
    msg_load_fini(&out);
    REFUSES(msg_load_get, struct msg_load, &b, &e);
    buf_fini(&b);
}

static void test_state(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    int32_t tokens[] = {5, -1, 1 << 30};
    struct msg_state in = {
        .seq = 7,
        .n_whole = 300,
        .n_tokens = 3,
        .tokens = tokens,
        .n_parts = 2,
        .parts = {{0, 64, "/a/b"}, {64, 192, "c"}},
    };
    struct msg_state out;
    buf_init(&b, KIB(64));
    msg_state_put(&b, &in);
    unit_ok(msg_state_get(b.p, b.n, &out, &e), &e);
    assert_int_equal(out.seq, 7);
    assert_int_equal(out.n_whole, 300);
    assert_int_equal(out.n_tokens, 3);
    assert_memory_equal(out.tokens, tokens, sizeof(tokens));
    assert_int_equal(out.n_parts, 2);
    assert_int_equal(out.parts[1].from, 64);
    assert_int_equal(out.parts[1].to, 192);
    assert_string_equal(out.parts[0].path, "/a/b");
    assert_string_equal(out.parts[1].path, "c");
    msg_state_fini(&out);
    REFUSES(msg_state_get, struct msg_state, &b, &e);

    static const struct msg_state_part wrong[] = {
        {0,  65,                              "c"},
        {1,  64,                              "c"},
        {64, 64,                              "c"},
        {64, 0,                               "c"},
        {0,  MODEL_CONTEXT_MAX + STATE_BLOCK, "c"},
        {0,  64,                              "" },
    };
    for (size_t i = 0; i < countof(wrong); i++) {
        in.parts[1] = wrong[i];
        buf_clear(&b);
        msg_state_put(&b, &in);
        assert_int_equal(msg_state_get(b.p, b.n, &out, &e), ERR_FRAME);
    }
    buf_clear(&b);
    for (size_t i = 0; i < 3; i++) { /* sequence, no tokens, too many parts */
        buf_u32(&b, i == 2 ? STATE_PARTS_MAX + 1 : 0);
    }
    assert_int_equal(msg_state_get(b.p, b.n, &out, &e), ERR_FRAME);

    const struct msg_state_done d = {3, 128, 2, 1ull << 40};
    struct msg_state_done d2;
    buf_clear(&b);
    msg_state_done_put(&b, &d);
    unit_ok(msg_state_done_get(b.p, b.n, &d2, &e), &e);
    assert_int_equal(d2.seq, 3);
    assert_int_equal(d2.n, 128);
    assert_int_equal(d2.bad, 2);
    assert_true(d2.bytes == 1ull << 40);
    REFUSES(msg_state_done_get, struct msg_state_done, &b, &e);
    buf_fini(&b);
}

/* One text of n tokens. */
static void put_tags(struct buf *b, uint8_t pool, uint32_t n, const float *bias,
                     const int32_t *tokens)
{
    buf_clear(b);
    for (size_t i = 0; i < MSG_TAGS_BIASES; i++) {
        buf_f32(b, bias[i]);
    }
    buf_u8(b, pool);
    buf_u32(b, 1);
    buf_u32(b, n);
    for (uint32_t i = 0; i < n && i < 3; i++) {
        buf_u32(b, (uint32_t)tokens[i]);
    }
}

static void test_tags(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    static const int32_t tokens[] = {5, -1, 1 << 30};
    struct msg_tags in = {
        .biases = {0.5F, -1, 0, 3, 1e6F, -0.0F},
        .pool = POOL_LAST,
        .n_texts = 2,
        .texts = {{tokens, 2}, {tokens + 2, 1}}};
    struct msg_tags out;
    buf_init(&b, MIB(1));
    msg_tags_put(&b, &in);
    unit_ok(msg_tags_get(b.p, b.n, &out, &e), &e);
    assert_memory_equal(out.biases, in.biases, sizeof(in.biases));
    assert_int_equal(out.pool, POOL_LAST);
    assert_int_equal(out.n_texts, 2);
    assert_int_equal(out.texts[0].n, 2);
    assert_int_equal(out.texts[1].n, 1);
    assert_ptr_equal(out.texts[0].tokens, out.own);
    assert_ptr_equal(out.texts[1].tokens, out.own + 2);
    assert_memory_equal(out.own, tokens, sizeof(tokens));
    msg_tags_fini(&out);
    REFUSES(msg_tags_get, struct msg_tags, &b, &e);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < countof(bad) * MSG_TAGS_BIASES; i++) {
        float bias[MSG_TAGS_BIASES] = {0};
        bias[i / countof(bad)] = bad[i % countof(bad)];
        put_tags(&b, POOL_NONE, 3, bias, tokens);
        assert_int_equal(msg_tags_get(b.p, b.n, &out, &e), ERR_FRAME);
    }
    put_tags(&b, POOLINGS, 3, in.biases, tokens);
    assert_int_equal(msg_tags_get(b.p, b.n, &out, &e), ERR_FRAME);
    assert_string_equal(e.msg, "tags: pool");
    static const uint32_t counts[] = {0, 2, 4, TAGS_TOKENS_MAX + 1,
                                      UINT32_MAX};
    for (size_t i = 0; i < countof(counts); i++) {
        put_tags(&b, POOL_NONE, counts[i], in.biases, tokens);
        if (counts[i] == 2 || counts[i] == 4) {
            buf_u32(&b, 1); /* one more than it says, or one less */
            b.n -= counts[i] == 4 ? 4 : 0;
        }
        assert_int_equal(msg_tags_get(b.p, b.n, &out, &e), ERR_FRAME);
    }
    /* texts: how many, of whom, and none is empty */
    static const struct {
        uint8_t pool;
        uint32_t texts, len[2];
        int rc;
    } lists[] = {
        {POOL_MEAN, 2, {1, 2}, 0        },
        {POOL_NONE, 2, {1, 2}, ERR_FRAME},
        {POOL_MEAN, 2, {3, 0}, ERR_FRAME},
        {POOL_MEAN, 2, {1, 1}, ERR_FRAME},
        {POOL_MEAN, 2, {TAGS_TOKENS_MAX, UINT32_MAX - TAGS_TOKENS_MAX + 4},
         ERR_FRAME},
        {POOL_MEAN, ENCODER_TEXTS_MAX + 1, {1, 2}, ERR_FRAME},
        {POOL_MEAN, UINT32_MAX, {1, 2}, ERR_FRAME},
    };
    for (size_t i = 0; i < countof(lists); i++) {
        put_tags(&b, lists[i].pool, 0, in.biases, tokens);
        b.n -= 8; /* its list of one text */
        buf_u32(&b, lists[i].texts);
        buf_u32(&b, lists[i].len[0]);
        buf_u32(&b, lists[i].len[1]);
        for (size_t k = 0; k < countof(tokens); k++) {
            buf_u32(&b, (uint32_t)tokens[k]);
        }
        assert_int_equal(msg_tags_get(b.p, b.n, &out, &e), lists[i].rc);
        if (lists[i].rc == 0) {
            msg_tags_fini(&out);
        }
    }
    buf_fini(&b);
}

static void test_tags_done(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    uint16_t labels[] = {0, MODEL_LABELS_MAX - 1, 7};
    float probs[] = {0, 1, 0.25F};
    struct msg_tags_done in = {.n = 3, .labels = labels, .probs = probs};
    struct msg_tags_done out;
    buf_init(&b, KIB(4));
    msg_tags_done_put(&b, &in);
    unit_ok(msg_tags_done_get(b.p, b.n, &out, &e), &e);
    assert_int_equal(out.n, 3);
    assert_memory_equal(out.labels, labels, sizeof(labels));
    assert_memory_equal(out.probs, probs, sizeof(probs));
    msg_tags_done_fini(&out);
    REFUSES(msg_tags_done_get, struct msg_tags_done, &b, &e);
    static const float bad[] = {NAN, -0.5F, 1.0001F, INFINITY};
    for (size_t i = 0; i < countof(bad); i++) {
        probs[1] = bad[i];
        buf_clear(&b);
        msg_tags_done_put(&b, &in);
        assert_int_equal(msg_tags_done_get(b.p, b.n, &out, &e), ERR_FRAME);
        assert_string_equal(e.msg, "tags_done: prob");
    }
    probs[1] = 1;
    labels[2] = MODEL_LABELS_MAX;
    buf_clear(&b);
    msg_tags_done_put(&b, &in);
    assert_int_equal(msg_tags_done_get(b.p, b.n, &out, &e), ERR_FRAME);
    assert_string_equal(e.msg, "tags_done: label");
    buf_clear(&b);
    buf_u32(&b, 0);
    buf_u32(&b, TAGS_TOKENS_MAX + 1);
    assert_int_equal(msg_tags_done_get(b.p, b.n, &out, &e), ERR_FRAME);
    buf_fini(&b);
}

static void test_tags_vector(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    float v[] = {-1, 0.5F, 1e30F};
    struct msg_tags_done in = {.n_vector = 3, .n_texts = 1, .vector = v};
    struct msg_tags_done out;
    buf_init(&b, KIB(4));
    msg_tags_done_put(&b, &in);
    unit_ok(msg_tags_done_get(b.p, b.n, &out, &e), &e);
    assert_int_equal(out.n, 0);
    assert_int_equal(out.n_vector, 3);
    assert_int_equal(out.n_texts, 1);
    assert_memory_equal(out.vector, v, sizeof(v));
    assert_null(out.labels);
    msg_tags_done_fini(&out);
    REFUSES(msg_tags_done_get, struct msg_tags_done, &b, &e);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < countof(bad); i++) {
        v[1] = bad[i];
        buf_clear(&b);
        msg_tags_done_put(&b, &in);
        assert_int_equal(msg_tags_done_get(b.p, b.n, &out, &e), ERR_FRAME);
        assert_string_equal(e.msg, "tags_done: vector");
    }
    static const uint32_t counts[][2] = {
        {1, 1}, {3, 1}, {2, 2}, {2, 0}, {1, ENCODER_TEXTS_MAX + 1},
        {EMBED_DIM_MAX + 1, 1}, {UINT32_MAX, 1}, {2, UINT32_MAX}};
    for (size_t i = 0; i < countof(counts); i++) {
        buf_clear(&b);
        buf_u32(&b, counts[i][0]);
        buf_u32(&b, counts[i][1]);
        buf_f32(&b, 1);
        buf_f32(&b, 1);
        assert_int_equal(msg_tags_done_get(b.p, b.n, &out, &e), ERR_FRAME);
        assert_string_equal(e.msg, "tags_done: n_vector");
    }
    buf_fini(&b);
}

static void test_load_refused(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    struct msg_load out;
    char path[PATH_BYTES_MAX + 1];
    memset(path, 'a', sizeof(path));
    path[PATH_BYTES_MAX] = '\0';
    struct msg_load in = {.bundle = path, .backend = "cpu", .threads = 1};
    buf_init(&b, KIB(4));
    msg_load_put(&b, &in);
    assert_int_equal(msg_load_get(b.p, b.n, &out, &e), ERR_FRAME);
    assert_string_equal(e.msg, "load: bundle");

    buf_clear(&b);
    in = (struct msg_load){
        .bundle = "b", .backend = "cpu", .threads = ENGINE_THREADS_MAX + 1};
    msg_load_put(&b, &in);
    assert_int_equal(msg_load_get(b.p, b.n, &out, &e), ERR_FRAME);
    assert_string_equal(e.msg, "load: threads");

    buf_clear(&b);
    in = (struct msg_load){.bundle = "bx", .backend = "cpu", .threads = 1};
    msg_load_put(&b, &in);
    b.p[5] = '\0'; /* a NUL inside the path */
    assert_int_equal(msg_load_get(b.p, b.n, &out, &e), ERR_FRAME);
    b.p[5] = 'x';
    b.p[b.n - 13] = 2; /* no bool */
    assert_int_equal(msg_load_get(b.p, b.n, &out, &e), ERR_FRAME);
    static const float bad[] = {-1, 101, NAN, INFINITY};
    for (size_t i = 0; i < countof(bad); i++) {
        buf_clear(&b);
        in.margin = bad[i];
        msg_load_put(&b, &in);
        assert_int_equal(msg_load_get(b.p, b.n, &out, &e), ERR_FRAME);
        assert_string_equal(e.msg, "load: margin");
    }
    buf_fini(&b);
}

/* Lists that no probe writes: the engine's arrays stand on them. */
static void test_load_widths(void **state)
{
    (void)state;
    static const struct msg_widths wrong[] = {
        {1, {0}},
        {2, {4, 4}},
        {2, {4, 1}},
        {1, {ENGINE_CHUNK_MAX + 1}},
        {ENGINE_WIDTHS_MAX + 1, {1}},
    };
    struct msg_load in = {.bundle = "b", .backend = "cpu"};
    struct msg_load out;
    struct err e;
    struct buf b;
    buf_init(&b, KIB(4));
    for (size_t i = 0; i < countof(wrong); i++) {
        assert_false(msg_widths_ok(&wrong[i]));
        buf_clear(&b);
        msg_load_put(&b, &in);
        b.n -= 4; /* the heads' count */
        buf_u32(&b, wrong[i].n);
        for (uint32_t k = 0; k < wrong[i].n; k++) {
            buf_u32(&b, k < ENGINE_WIDTHS_MAX ? wrong[i].of[k] : 9);
        }
        assert_int_equal(msg_load_get(b.p, b.n, &out, &e), ERR_FRAME);
        assert_string_equal(e.msg, "load: widths");
    }
    buf_fini(&b);
}

static void test_ready(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    struct msg_ready in = {
        .t_max = 4,
        .batch_max = 512,
        .seqs_max = 256,
        .context = 4096,
        .short_max = 96,
        .vocab = 262144,
        .weight_bytes = 1ull << 40,
        .state_bytes = 5,
        .base_bytes = 6,
        .block_bytes = 7,
        .arith = "kernels 1",
        .load_ms = 17,
    };
    struct msg_ready out = {0};
    buf_init(&b, KIB(4));
    msg_ready_put(&b, &in);
    unit_ok(msg_ready_get(b.p, b.n, &out, &e), &e);
    struct buf again;
    buf_init(&again, KIB(4));
    msg_ready_put(&again, &out); /* structs have padding, bytes have not */
    assert_int_equal(again.n, b.n);
    assert_memory_equal(again.p, b.p, b.n);
    assert_int_equal(out.load_ms, 17);
    assert_int_equal(out.base_bytes, 6);
    assert_int_equal(out.block_bytes, 7);
    buf_fini(&again);
    REFUSES(msg_ready_get, struct msg_ready, &b, &e);
    in.t_max = 0;
    buf_clear(&b);
    msg_ready_put(&b, &in);
    assert_int_equal(msg_ready_get(b.p, b.n, &out, &e), ERR_FRAME);
    assert_int_equal(out.t_max, 4); /* untouched */
    in.t_max = 4;
    for (uint32_t i = 0; i < 2; i++) { /* none, and more than the context */
        in.short_max = i * 4097;
        buf_clear(&b);
        msg_ready_put(&b, &in);
        assert_int_equal(msg_ready_get(b.p, b.n, &out, &e), ERR_FRAME);
    }
    assert_int_equal(out.short_max, 96);
    in.short_max = 96;
    uint64_t *bytes[] = {&in.state_bytes, &in.base_bytes, &in.block_bytes};
    for (size_t i = 0; i < countof(bytes); i++) {
        uint64_t was = *bytes[i];
        *bytes[i] = READY_BYTES_MAX + 1;
        buf_clear(&b);
        msg_ready_put(&b, &in);
        assert_int_equal(msg_ready_get(b.p, b.n, &out, &e), ERR_FRAME);
        *bytes[i] = was;
    }
    buf_fini(&b);
}

static void test_small(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    buf_init(&b, KIB(4));
    struct msg_seq s = {1, 2, UINT32_MAX};
    struct msg_seq s2;
    msg_seq_put(&b, &s);
    unit_ok(msg_seq_get(b.p, b.n, &s2, &e), &e);
    assert_memory_equal(&s, &s2, sizeof(s));
    REFUSES(msg_seq_get, struct msg_seq, &b, &e);

    struct msg_grammar g = {9, "{}", 2};
    struct msg_grammar g2;
    buf_clear(&b);
    msg_grammar_put(&b, &g);
    unit_ok(msg_grammar_get(b.p, b.n, &g2, &e), &e);
    assert_true(g2.id == 9 && g2.n == 2 && memcmp(g2.text, "{}", 2) == 0);
    for (size_t n = 0; n < 4; n++) {
        assert_int_equal(msg_grammar_get(b.p, n, &g2, &e), ERR_FRAME);
    }
    unit_ok(msg_grammar_get(b.p, 4, &g2, &e), &e); /* without a text */
    assert_int_equal(g2.n, 0);
    b.p[0] = 0; /* no id */
    assert_int_equal(msg_grammar_get(b.p, b.n, &g2, &e), ERR_FRAME);

    struct msg_progress p = {true, 3, 9};
    struct msg_progress p2;
    buf_clear(&b);
    msg_progress_put(&b, &p);
    unit_ok(msg_progress_get(b.p, b.n, &p2, &e), &e);
    assert_true(p2.warms && p2.done == 3 && p2.total == 9);
    REFUSES(msg_progress_get, struct msg_progress, &b, &e);

    struct msg_notice n = {.on_cpu = true,
                           .package = "head_0.mlpackage",
                           .arith = "mixed 0123",
                           .why = "the device is gone"};
    struct msg_notice n2;
    buf_clear(&b);
    msg_notice_put(&b, &n);
    unit_ok(msg_notice_get(b.p, b.n, &n2, &e), &e);
    assert_true(n2.on_cpu);
    assert_string_equal(n2.package, n.package);
    assert_string_equal(n2.arith, n.arith);
    assert_string_equal(n2.why, n.why);
    REFUSES(msg_notice_get, struct msg_notice, &b, &e);
    n.arith[0] = '\0';
    buf_clear(&b);
    msg_notice_put(&b, &n);
    assert_int_equal(msg_notice_get(b.p, b.n, &n2, &e), ERR_FRAME);

    struct err in;
    struct msg_error out;
    (void)err_set(&in, ERR_BUNDLE, "layers_00_08.mlpackage: not there");
    buf_clear(&b);
    msg_error_put(&b, &in);
    unit_ok(msg_error_get(b.p, b.n, &out, &e), &e);
    assert_int_equal(out.code, ERR_BUNDLE);
    assert_string_equal(out.msg, in.msg);
    REFUSES(msg_error_get, struct msg_error, &b, &e);
    buf_fini(&b);
}

static struct msg_row row_make(int32_t *tokens, uint32_t n)
{
    struct msg_row r = {
        .seq = 77,
        .position = 12,
        .n_tokens = n,
        .tokens = tokens,
        .n_drafts = 2,
        .drafts = {5, 6},
        .sample = true,
        .score = true,
        .after = 9,
        .out_index = 3,
        .n_prompt = 10,
        .grammar = 21,
    };
    msg_sampling_init(&r.sampling);
    assert_true(r.sampling.temperature >= 0 && r.sampling.temperature <= 0);
    r.sampling.temperature = 0.75f;
    r.sampling.top_k = 40;
    r.sampling.top_p = 0.5f;
    r.sampling.min_p = 0.25f;
    r.sampling.repeat_penalty = 1.125f;
    r.sampling.repeat_last_n = UINT32_MAX;
    r.sampling.presence_penalty = -0.5f;
    r.sampling.frequency_penalty = 0.5f;
    r.sampling.seed = 0x123456789abcdef0u;
    r.sampling.choice = 2;
    r.sampling.logprobs = ENGINE_LOGPROBS_MAX;
    r.sampling.no_logprob = true;
    static struct msg_bias bias[] = {
        {1, -INFINITY},
        {2, 100      },
    };
    r.sampling.n_bias = 2;
    r.sampling.bias = bias;
    static int32_t breaks[] = {0, 2, 5, 9, 2, 7, 8, 1, 5};
    r.sampling.n_breaks = countof(breaks);
    r.sampling.breaks = breaks;
    r.sampling.n_chain = 2;
    r.sampling.chain[0] = SAMPLER_XTC;
    r.sampling.chain[1] = SAMPLER_TOP_K;
    r.sampling.xtc_probability = 0.375f;
    r.sampling.dry_last_n = 70;
    r.sampling.mirostat = 2;
    r.sampling.mu = -1.5f;
    return r;
}

static void test_step(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    int32_t tokens[] = {1, -1, INT32_MAX};
    struct msg_row rows[2] = {row_make(tokens, 3), row_make(NULL, 0)};
    struct msg_step in = {2, rows};
    struct msg_step out;
    buf_init(&b, KIB(4));
    msg_step_put(&b, &in);
    unit_ok(msg_step_get(b.p, b.n, &out, &e), &e);
    assert_int_equal(out.n_rows, 2);
    const struct msg_row *r = &out.rows[0];
    assert_int_equal(r->seq, 77);
    assert_int_equal(r->position, 12);
    assert_int_equal(r->n_tokens, 3);
    assert_memory_equal(r->tokens, tokens, sizeof(tokens));
    assert_int_equal(r->n_drafts, 2);
    assert_int_equal(r->drafts[1], 6);
    assert_true(r->sample);
    assert_true(r->score);
    assert_int_equal(r->after, 9);
    assert_int_equal(msg_row_scores(r), 3);
    assert_int_equal(msg_row_scores(&out.rows[1]), 0);
    assert_int_equal(r->out_index, 3);
    assert_int_equal(r->n_prompt, 10);
    assert_int_equal(r->grammar, 21);
    assert_memory_equal(&r->sampling, &rows[0].sampling,
                        offsetof(struct msg_sampling, no_logprob));
    assert_true(r->sampling.no_logprob);
    assert_int_equal(r->sampling.n_bias, 2);
    assert_memory_equal(r->sampling.bias, rows[0].sampling.bias,
                        2 * sizeof(r->sampling.bias[0]));
    assert_int_equal(r->sampling.n_chain, 2);
    assert_memory_equal(r->sampling.chain, rows[0].sampling.chain,
                        sizeof(r->sampling.chain));
    assert_int_equal(r->sampling.n_breaks, 9);
    assert_memory_equal(r->sampling.breaks, rows[0].sampling.breaks,
                        9 * sizeof(r->sampling.breaks[0]));
    assert_int_equal(out.rows[1].n_tokens, 0);
    msg_step_fini(&out);
    msg_step_fini(&out); /* harmless */
    REFUSES(msg_step_get, struct msg_step, &b, &e);
    buf_fini(&b);
}

static void test_step_pools(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    int32_t tokens[] = {1, 2};
    struct msg_row row = row_make(tokens, 2);
    struct msg_step in = {1, &row};
    struct msg_step out;
    row.sample = false;
    row.score = false;
    row.n_drafts = 0;
    row.pool = POOL_CLS;
    row.give = true;
    buf_init(&b, KIB(4));
    msg_step_put(&b, &in);
    unit_ok(msg_step_get(b.p, b.n, &out, &e), &e);
    assert_int_equal(out.rows[0].pool, POOL_CLS);
    assert_true(out.rows[0].give);
    msg_step_fini(&out);
    REFUSES(msg_step_get, struct msg_step, &b, &e);
    buf_fini(&b);
}

static void step_refused(const struct msg_row *r, const char *want)
{
    struct buf b;
    struct err e;
    struct msg_row row = *r;
    struct msg_step in = {1, &row};
    struct msg_step out;
    buf_init(&b, KIB(64));
    msg_step_put(&b, &in);
    assert_int_equal(msg_step_get(b.p, b.n, &out, &e), ERR_FRAME);
    assert_string_equal(e.msg, want);
    buf_fini(&b);
}

static void test_step_refused(void **state)
{
    (void)state;
    struct msg_row r = row_make(NULL, 0);
    r.sampling.temperature = NAN;
    step_refused(&r, "step: temperature");
    r = row_make(NULL, 0);
    r.sampling.top_p = INFINITY;
    step_refused(&r, "step: top_p");
    r = row_make(NULL, 0);
    r.sampling.bias = &(struct msg_bias){1, NAN};
    r.sampling.n_bias = 1;
    step_refused(&r, "step: bias");
    r = row_make(NULL, 0);
    r.sampling.logprobs = ENGINE_LOGPROBS_MAX + 1;
    step_refused(&r, "step: logprobs");
    r = row_make(NULL, 0);
    r.sample = false;
    step_refused(&r, "step: drafts without sample");
    r = row_make(NULL, 0);
    r.pool = POOL_MEAN; /* and a token is to be drawn */
    step_refused(&r, "step: pool");
    r = row_make(NULL, 0);
    r.sample = false;
    r.score = false;
    r.n_drafts = 0;
    r.pool = POOLINGS;
    step_refused(&r, "step: pool");
    r.pool = POOL_NONE;
    r.give = true;
    step_refused(&r, "step: pool");
    r = row_make(NULL, 0);
    r.sampling.mirostat = 3;
    step_refused(&r, "step: mirostat");
    r = row_make(NULL, 0);
    r.sampling.mu = INFINITY;
    step_refused(&r, "step: mu");
    r = row_make(NULL, 0);
    r.sampling.chain[1] = SAMPLER_KINDS;
    step_refused(&r, "step: chain");
    static int32_t groups[][6] = {
        {0, 2, 5},                  /* a head is missing */
        {0, 0},                     /* none */
        {-1, 1, 5},                 /* a count */
        {0, 1, 5, 3, 1, 2},         /* a tail is cut */
        {0, 1, 5, INT32_MAX, 1, 2}, /* a count */
    };
    static const uint32_t n_groups[] = {3, 2, 3, 6, 6};
    for (size_t i = 0; i < countof(groups); i++) {
        r = row_make(NULL, 0);
        r.sampling.breaks = groups[i];
        r.sampling.n_breaks = n_groups[i];
        step_refused(&r, "step: breaks");
    }
    static int32_t many_tokens[ENGINE_SCORES_MAX + 1];
    r = row_make(many_tokens, ENGINE_SCORES_MAX + 1);
    step_refused(&r, "step: too many scores");

    /* counts that the payload cannot hold: no allocation is tried */
    static const uint8_t rows[4] = {0xff, 0xff, 0xff, 0xff};
    struct msg_step out;
    struct msg_step_done done;
    struct err e;
    assert_int_equal(msg_step_get(rows, 4, &out, &e), ERR_FRAME);
    assert_string_equal(e.msg, "step: n_rows");
    uint8_t many[28] = {[24] = 0xff};
    assert_int_equal(msg_step_done_get(many, 28, &done, &e), ERR_FRAME);
    assert_string_equal(e.msg, "step_done: n_rows");
}

/* What counts of a row: tokens and alternatives after are not cleared. */
static void assert_same_done(const struct msg_row_done *a,
                             const struct msg_row_done *b)
{
    assert_int_equal(a->seq, b->seq);
    assert_int_equal(a->error, b->error);
    assert_int_equal(a->n_accepted, b->n_accepted);
    assert_int_equal(a->length, b->length);
    assert_int_equal(a->n_scores, b->n_scores);
    for (uint32_t i = 0; i < b->n_scores; i++) {
        assert_int_equal(a->scores[i].id, b->scores[i].id);
        assert_int_equal(a->scores[i].n_top, b->scores[i].n_top);
    }
    assert_int_equal(a->n_vector, b->n_vector);
    for (uint32_t i = 0; i < b->n_vector; i++) {
        assert_true(a->vector[i] == b->vector[i]);
    }
    assert_true(a->mu == b->mu);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_int_equal(a->n_forced, b->n_forced);
    assert_memory_equal(a->forced, b->forced,
                        b->n_forced * sizeof(b->forced[0]));
    for (uint32_t i = 0; i < b->n_tokens; i++) {
        assert_int_equal(a->tokens[i].n_top, b->tokens[i].n_top);
        assert_memory_equal(&a->tokens[i], &b->tokens[i],
                            offsetof(struct msg_token, top) +
                                b->tokens[i].n_top *
                                    sizeof(b->tokens[i].top[0]));
    }
}

static void test_step_done(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    struct msg_row_done rows[2] = {
        {.seq = 1, .n_tokens = 2, .n_accepted = 1, .length = 9, .mu = 2.5f,
         .n_forced = 3, .forced = {7, 0, -1}},
        {.seq = 2,        .error = ERR_CONTEXT,              .length = 4 },
    };
    rows[0].tokens[0] = (struct msg_token){.id = 4, .logprob = -0.5f};
    rows[0].tokens[1] = (struct msg_token){
        .id = 8, .logprob = -1.5f, .n_top = 1, .top = {{9, -0.25f}}};
    assert_true(msg_row_done_room(&rows[1], 2));
    rows[1].scores[0] = rows[0].tokens[1];
    rows[1].scores[1] = rows[0].tokens[0];
    assert_true(msg_row_done_vector(&rows[1], 3));
    memcpy(rows[1].vector, ((float[]){0.25f, -1, 3e7f}), 3 * sizeof(float));
    struct msg_step_done in = {1, 2, 3, 4, 5, 6, 2, rows};
    struct msg_step_done out;
    buf_init(&b, KIB(4));
    msg_step_done_put(&b, &in);
    unit_ok(msg_step_done_get(b.p, b.n, &out, &e), &e);
    assert_int_equal(out.us_embed, 1);
    assert_int_equal(out.us_total, 6);
    assert_int_equal(out.n_rows, 2);
    assert_same_done(&out.rows[0], &rows[0]);
    assert_same_done(&out.rows[1], &rows[1]);
    msg_step_done_fini(&out);
    REFUSES(msg_step_done_get, struct msg_step_done, &b, &e);
    msg_row_done_fini(&rows[1]);
    rows[0].n_forced = 0;
    rows[1].n_forced = 1;
    buf_clear(&b);
    msg_step_done_put(&b, &in);
    b.p[b.n - 13] = ENGINE_DRAFTS_MAX + 1; /* more than there can be */
    assert_int_equal(msg_step_done_get(b.p, b.n, &out, &e), ERR_FRAME);
    rows[0].tokens[1].top[0].logprob = NAN;
    buf_clear(&b);
    msg_step_done_put(&b, &in);
    assert_int_equal(msg_step_done_get(b.p, b.n, &out, &e), ERR_FRAME);
    rows[0].tokens[1].top[0].logprob = -1;
    rows[1].n_forced = 0;
    assert_true(msg_row_done_vector(&rows[1], 2));
    rows[1].vector[0] = 1;
    rows[1].vector[1] = INFINITY;
    buf_clear(&b);
    msg_step_done_put(&b, &in);
    assert_int_equal(msg_step_done_get(b.p, b.n, &out, &e), ERR_FRAME);
    assert_string_equal(e.msg, "step_done: vector");
    b.p[b.n - 10] = 1; /* a count beyond the limit: nothing is allocated */
    assert_int_equal(msg_step_done_get(b.p, b.n, &out, &e), ERR_FRAME);
    assert_string_equal(e.msg, "step_done: n_vector");
    msg_row_done_fini(&rows[1]);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_tags_done),
        cmocka_unit_test(test_tags_vector),
        cmocka_unit_test(test_load_refused),
        cmocka_unit_test(test_load_widths),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_ready),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_step_pools),
        cmocka_unit_test(test_step_refused),
        cmocka_unit_test(test_step_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
