/* test_engine.c - the step loop on a backend that checks all it is given:
 * masks, rope rows, positions, padding, chunking, fork, truncate, drafts. */
#include "fake_rows.h"

static const int32_t text[FAKE_S] = {1, 7, 3, 9, 0, 2, 2, 8, 5, 4, 6,
                                     1, 1, 3, 9, 9, 0, 7, 5, 2, 4, 8,
                                     6, 3, 1, 0, 5, 5, 7, 2, 9, 8};

/* Where keys and values are; MEASURED: inputs, and widths that agree are known. */
enum kv { STATE, HOST, MEASURED };

/* The ways a bundle may take rows. */
static const struct variant {
    const char *name;
    int64_t lo, hi;
    uint32_t ts[2]; /* functions; 0: ranged */
    enum kv kv;
    uint32_t rows; /* rows_max of the fake that runs rows; 0: columns */
} variants[] = {
    {"ranged 1..4",              1, 4,   {0, 0}, STATE,    0  },
    {"ranged 1..512",            1, 512, {0, 0}, STATE,    0  },
    {"ranged 2..4",              2, 4,   {0, 0}, STATE,    0  },
    {"functions 1, 4",           0, 0,   {1, 4}, STATE,    0  },
    {"function 4 only",          0, 0,   {4, 0}, STATE,    0  },
    {"ranged 1..4, host",        1, 4,   {0, 0}, HOST,     0  },
    {"functions 3, 8, host",     0, 0,   {3, 8}, HOST,     0  },
    {"ranged, rows",             1, 4,   {0, 0}, STATE,    512},
    {"ranged, 1 row",            1, 4,   {0, 0}, STATE,    1  },
    {"ranged, 3 rows",           2, 4,   {0, 0}, STATE,    3  },
    {"functions, 5 rows",        0, 0,   {1, 4}, STATE,    5  },
    {"functions 4, no rows",     0, 0,   {4, 0}, STATE,    8  },
    {"host, no rows",            1, 4,   {0, 0}, HOST,     8  },
    {"ranged, host, measured",   1, 4,   {0, 0}, MEASURED, 0  },
    {"functions, host, measured", 0, 0,  {3, 8}, MEASURED, 0  },
};

static uint32_t progress_seen, warms_seen;

static void on_progress(void *ctx, enum engine_stage stage, uint32_t done,
                        uint32_t total)
{
    (void)ctx;
    if (stage == ENGINE_LOADS) {
        assert_int_equal(total, 4);
        assert_int_equal(done, ++progress_seen);
    } else {
        assert_true(done == ++warms_seen && done <= total);
    }
}

static const struct engine_conf conf = {.threads = 3, .progress = on_progress};

static void set_variant(const struct variant *v)
{
    static const char *const names[9] = {"t0", "t1", "t2", "t3", "t4",
                                         "t5", "t6", "t7", "t8"};
    size_t n = v->ts[0] == 0 ? 0 : v->ts[1] == 0 ? 1 : 2;
    const char *functions[2] = {names[v->ts[0]], names[v->ts[1]]};
    uint32_t ts[2] = {v->ts[0], v->ts[1]};
    fake.t_lo = v->lo;
    fake.t_hi = v->hi;
    fake.host = v->kv != STATE;
    fake.wrong = NULL;
    fake.fail_after = -1;
    fake.fail_times = 0;
    fake.fail_rc = 0;
    fake_rows.max = v->rows;
    fake_rows.columns = v->ts[0] > 1;
    fake_rows.wrong = NULL;
    fake_rows.fail = NULL;
    fake.by_width = 0;
    fake.n_exact = 0;
    fake.warms = v->rows == 0;
    fake.asks = 1;
    progress_seen = 0;
    warms_seen = 0;
    fake_write_bundle(n > 0 ? functions : NULL, ts, n);
    if (n > 0) {
        fake.t_lo = 1; /* heads stay ranged */
        fake.t_hi = 4;
    }
}

static struct engine *open_variant(const struct variant *v)
{
    struct engine *g = NULL;
    struct err e;
    set_variant(v);
    const struct backend *be = v->rows > 0 ? &fake_rows_backend : &fake_backend;
    struct engine_conf c = conf;
    if (v->kv == MEASURED) {
        c.layers = v->ts[0] > 0 ? (struct msg_widths){2, {3, 8}}
                                : (struct msg_widths){4, {1, 2, 3, 4}};
    }
    unit_ok(engine_open_with(be, fake_dir, &c, &g, &e), &e);
    assert_int_equal(progress_seen, 4);
    seen.n = 0;
    return g;
}

static struct engine_seq *new_seq(struct engine *g)
{
    struct engine_seq *s = NULL;
    struct err e;
    unit_ok(engine_seq_open(g, &s, &e), &e);
    return s;
}

static void check_logits(const float *got, const int32_t *tokens, uint32_t n,
                         uint32_t first, uint32_t rows)
{
    float want[FAKE_S * FAKE_V];
    fake_reference(tokens, n, want);
    for (uint32_t i = 0; i < rows * FAKE_V; i++) {
        float w = want[first * FAKE_V + i];
        if (memcmp(&got[i], &w, sizeof(w)) != 0) {
            fail_msg("row %u id %u: %g, wanted %g", first + i / FAKE_V,
                     i % FAKE_V, (double)got[i], (double)w);
        }
    }
}

/* Feed text[s's length .. to) and compare all rows. */
static void feed(struct engine_seq *s, const int32_t *tokens, uint32_t to,
                 uint32_t chunk)
{
    struct err e;
    const float *logits = NULL;
    uint32_t from = engine_seq_length(s);
    unit_ok(
        engine_eval(s, tokens + from, to - from, chunk, 2, &logits, NULL, &e),
        &e);
    assert_int_equal(engine_seq_length(s), to);
    assert_memory_equal(engine_seq_tokens(s), tokens, to * sizeof(*tokens));
    check_logits(logits, tokens, to, from, to - from);
}

/* Every variant, every chunk size, the whole context: bit-equal logits. */
static void test_chunks(void **state)
{
    (void)state;
    for (size_t v = 0; v < countof(variants); v++) {
        print_message("# %s\n", variants[v].name);
        struct engine *g = open_variant(&variants[v]);
        for (uint32_t chunk = 0; chunk < 12; chunk++) {
            struct engine_seq *s = new_seq(g);
            feed(s, text, FAKE_S, chunk);
            engine_seq_close(s);
            s = new_seq(g); /* in two calls, then one by one */
            feed(s, text, 9, chunk);
            feed(s, text, 20, 0);
            for (uint32_t n = 21; n <= FAKE_S; n++) {
                feed(s, text, n, chunk);
            }
            engine_seq_close(s);
            seen.n = 0;
        }
        engine_close(g);
    }
}

static void expect_call(size_t i, char kind, uint32_t pos, uint32_t rows,
                        uint32_t t)
{
    assert_true(i < seen.n);
    if (seen.calls[i].kind != kind || seen.calls[i].pos != pos ||
        seen.calls[i].rows != rows || seen.calls[i].t != t) {
        fail_msg("call %zu is %c pos %u rows %u t %u", i, seen.calls[i].kind,
                 seen.calls[i].pos, seen.calls[i].rows, seen.calls[i].t);
    }
}

/* Which predictions an evaluation makes. */
static void test_calls(void **state)
{
    (void)state;
    struct err e;
    const float *logits = NULL;
    struct engine *g = open_variant(&variants[0]);
    struct engine_seq *s = new_seq(g);
    unit_ok(engine_eval(s, text, 6, 0, 1, &logits, NULL, &e), &e);
    assert_int_equal(seen.n, 6);
    expect_call(0, 'a', 0, 4, 4);
    expect_call(1, 'b', 0, 4, 4);
    expect_call(2, 'a', 4, 2, 2);
    expect_call(3, 'b', 4, 2, 2);
    expect_call(4, 'h', 0, 1, 1); /* one row, two slices */
    expect_call(5, 'h', 0, 1, 1);
    check_logits(logits, text, 6, 5, 1);
    seen.n = 0;
    unit_ok(engine_eval(s, text + 6, 1, 0, 0, &logits, NULL, &e), &e);
    assert_null(logits);
    assert_int_equal(seen.n, 2);
    engine_seq_close(s);
    engine_close(g);

    g = open_variant(&variants[2]); /* 2..4: one row is padded to two */
    s = new_seq(g);
    unit_ok(engine_eval(s, text, 3, 0, 0, NULL, NULL, &e), &e);
    unit_ok(engine_seq_truncate(s, 0, &e), &e);
    seen.n = 0;
    /* the third row, then the first: padding is a copy, not what lies there */
    struct msg_row row = {
        .n_tokens = 2,
        .tokens = (int32_t[]){4, 7},
        .sample = true,
        .n_drafts = 1
    };
    struct msg_row_done done;
    msg_sampling_init(&row.sampling);
    unit_ok(engine_step(s, &row, &done, NULL, &e), &e);
    expect_call(2, 'h', 0, 2, 2);
    assert_false(seen.calls[2].same);
    unit_ok(engine_eval(s, text, 4, 0, 1, NULL, NULL, &e), &e);
    expect_call(seen.n - 1, 'h', 0, 2, 2);
    assert_true(seen.calls[seen.n - 1].same);
    assert_true(seen.calls[seen.n - 1].t == 2);
    engine_seq_close(s);
    engine_close(g);

    g = open_variant(&variants[3]); /* functions 1 and 4 */
    s = new_seq(g);
    unit_ok(engine_eval(s, text, 7, 0, 0, NULL, NULL, &e), &e);
    assert_int_equal(seen.n, 4);
    expect_call(0, 'a', 0, 4, 4);
    expect_call(2, 'a', 4, 3, 4); /* padded */
    unit_ok(engine_eval(s, text + 7, 1, 0, 0, NULL, NULL, &e), &e);
    expect_call(4, 'a', 7, 1, 1);
    engine_seq_close(s);
    engine_close(g);

    g = open_variant(&variants[7]); /* rows: all at once, or a chunk */
    s = new_seq(g);
    fake_rows.calls = 0;
    unit_ok(engine_eval(s, text, 9, 0, 0, NULL, NULL, &e), &e);
    assert_int_equal(fake_rows.calls, 2);
    fake_rows.widest = 0;
    unit_ok(engine_eval(s, text, 9, 4, 0, NULL, NULL, &e), &e);
    assert_int_equal(fake_rows.calls, 8);
    assert_int_equal(fake_rows.widest, 4);
    engine_seq_close(s);
    engine_close(g);
}

static int32_t other[FAKE_S];

/* Sequences that take turns, forks and cuts: masks and states go back and
 * forth, and each stays its own. */
static void test_sequences(void **state)
{
    (void)state;
    struct err e;
    for (size_t i = 0; i < FAKE_S; i++) {
        other[i] = i < 6 ? text[i] : (int32_t)(9 - text[i]);
    }
    for (size_t v = 0; v < countof(variants); v++) {
        struct engine *g = open_variant(&variants[v]);
        struct engine_seq *a = new_seq(g);
        struct engine_seq *b = NULL;
        feed(a, text, 17, 0);
        assert_int_equal(engine_seq_fork(a, 18, &b, &e), ERR_INVALID);
        unit_ok(engine_seq_fork(a, 6, &b, &e), &e);
        assert_int_equal(engine_seq_length(b), 6);
        feed(b, other, 8, 0);
        feed(a, text, 18, 0);
        feed(b, other, 25, 3);
        feed(a, text, 30, 0);
        assert_int_equal(engine_seq_truncate(b, 26, &e), ERR_INVALID);
        unit_ok(engine_seq_truncate(b, 6, &e), &e);
        feed(b, text, 7, 0); /* over what was there */
        feed(b, text, FAKE_S, 0);
        unit_ok(engine_seq_truncate(a, 0, &e), &e);
        feed(a, other, 11, 0);
        engine_seq_close(a);
        engine_seq_close(b);
        unit_ok(engine_seq_open(g, &a, &e), &e);
        unit_ok(engine_seq_fork(a, 0, &b, &e), &e);
        feed(b, other, 5, 0);
        engine_seq_close(a);
        engine_seq_close(b);
        engine_close(g);
    }
}

/* A sequence of at most `original` tokens turns by the first list, and a longer
 * one by the second from its first token on. The fake checks each row. */
static void check_lists(struct engine *g, uint32_t original)
{
    struct err e;
    struct engine_seq *b = NULL;
    struct engine_seq *s = new_seq(g);
    fake.long_list = false;
    feed(s, text, original, 3);
    assert_int_equal(engine_eval(s, text, 1, 0, 1, NULL, NULL, &e),
                     ERR_CONFLICT);
    assert_int_equal(engine_seq_length(s), original);
    assert_int_equal(engine_seq_expect(s, original + 1, &e), ERR_CONFLICT);
    unit_ok(engine_seq_expect(s, original, &e), &e);
    unit_ok(engine_seq_truncate(s, 0, &e), &e);
    assert_int_equal(engine_seq_expect(s, FAKE_S + 1, &e), ERR_CONTEXT);
    unit_ok(engine_seq_expect(s, original + 1, &e), &e);
    fake.long_list = true;
    feed(s, text, original + 1, 3);
    unit_ok(engine_seq_fork(s, 6, &b, &e), &e);
    feed(b, text, FAKE_S, 0);
    unit_ok(engine_seq_truncate(s, 4, &e), &e);
    feed(s, text, FAKE_S, 0);
    engine_seq_close(b);
    b = new_seq(g); /* beside them a short one */
    fake.long_list = false;
    feed(b, text, original, 0);
    engine_seq_close(b);
    engine_seq_close(s);
}

/* Drafts end where the list does, and a token is drawn by the list that its
 * text is for. */
static void check_list_of_token(struct engine *g, uint32_t original)
{
    struct err e;
    int32_t drafts[FAKE_S];
    struct msg_row_done done;
    struct msg_row row = {.tokens = drafts, .sample = true};
    struct engine_seq *s = new_seq(g);
    memcpy(drafts, text, sizeof(drafts));
    msg_sampling_init(&row.sampling);
    fake.long_list = false;
    row.n_tokens = original - 1;
    row.n_drafts = 4;
    for (uint32_t i = 0; i < row.n_drafts; i++) {
        row.drafts[i] = text[original - 1 + i];
    }
    unit_ok(engine_step(s, &row, &done, NULL, &e), &e);
    assert_true(done.length <= original && done.n_tokens <= 2);
    unit_ok(engine_seq_truncate(s, 0, &e), &e);
    unit_ok(engine_seq_expect(s, original + 1, &e), &e);
    row.n_drafts = 0;
    row.n_tokens = original;
    assert_int_equal(engine_step(s, &row, &done, NULL, &e), ERR_CONFLICT);
    assert_int_equal(engine_seq_length(s), 0);
    fake.long_list = true;
    row.n_tokens = original + 1;
    unit_ok(engine_step(s, &row, &done, NULL, &e), &e);
    assert_int_equal(done.length, original + 1);
    engine_seq_close(s);
    fake.long_list = false;
}

static void test_two_lists(void **state)
{
    (void)state;
    for (size_t v = 0; v < countof(variants); v++) {
        struct msg_ready ready;
        fake.original = 20;
        struct engine *g = open_variant(&variants[v]);
        engine_ready(g, &ready);
        assert_int_equal(ready.short_max, 20);
        check_lists(g, 20);
        check_list_of_token(g, 20);
        engine_close(g);
        fake.original = FAKE_S; /* the second list is never needed */
        g = open_variant(&variants[v]);
        engine_ready(g, &ready);
        assert_int_equal(ready.short_max, FAKE_S);
        struct engine_seq *s = new_seq(g);
        feed(s, text, FAKE_S, 0);
        engine_seq_close(s);
        engine_close(g);
        fake.original = 0;
        seen.n = 0;
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct err e;
    struct engine *g = open_variant(&variants[0]);
    struct engine_seq *s = new_seq(g);
    const int32_t bad[2][3] = {
        {1, 2,  FAKE_V},
        {1, -1, 2     }
    };
    feed(s, text, 5, 0);
    for (size_t i = 0; i < countof(bad); i++) {
        assert_int_equal(engine_eval(s, bad[i], 3, 0, 0, NULL, NULL, &e),
                         ERR_INVALID);
    }
    assert_int_equal(engine_eval(s, text, 0, 0, 1, NULL, NULL, &e),
                     ERR_INVALID);
    assert_int_equal(engine_eval(s, text, FAKE_S - 4, 0, 0, NULL, NULL, &e),
                     ERR_CONTEXT);
    assert_int_equal(engine_seq_length(s), 5);
    /* a prediction fails in the middle of the third chunk */
    fake.fail_after = 5;
    assert_int_equal(engine_eval(s, other, 20, 0, 0, NULL, NULL, &e),
                     ERR_MIL_OP);
    assert_string_equal(e.msg, "layers_01_02.mlpackage: the fake fails");
    fake.fail_after = -1;
    assert_int_equal(engine_seq_length(s), 5);
    feed(s, text, FAKE_S, 0); /* as if it had not been */
    engine_seq_close(s);
    engine_close(g);
}

static int on_rows(void *ctx, uint32_t first, uint32_t n, float *logits,
                   struct err *e)
{
    uint32_t *next = ctx;
    (void)e;
    assert_int_equal(first, *next);
    check_logits(logits, text, FAKE_S, first, n);
    *next += n;
    return *next >= 20 ? ERR_CANCELLED : 0;
}

static void test_rows(void **state)
{
    (void)state;
    struct err e;
    struct engine *g = open_variant(&variants[1]);
    struct engine_seq *s = new_seq(g);
    uint32_t next = 0;
    unit_ok(engine_eval_rows(s, text, 19, 7, on_rows, &next, NULL, &e), &e);
    assert_int_equal(next, 19);
    assert_int_equal(engine_seq_length(s), 19);
    unit_ok(engine_seq_truncate(s, 0, &e), &e);
    next = 0;
    assert_int_equal(
        engine_eval_rows(s, text, FAKE_S, 7, on_rows, &next, NULL, &e),
        ERR_CANCELLED);
    assert_int_equal(engine_seq_length(s), 0);
    engine_seq_close(s);
    engine_close(g);
}

/* --- steps --- */

/* n tokens after the prompt, one a step without drafts. */
static void generate(struct engine *g, const struct msg_sampling *p,
                     uint32_t n_prompt, uint32_t n, struct msg_token *out)
{
    struct engine_seq *s = new_seq(g);
    int32_t tokens[2 * FAKE_S];
    memcpy(tokens, text, sizeof(text));
    struct msg_row row = {.seq = 5, .sample = true, .sampling = *p};
    for (uint32_t i = 0; i < n; i++) {
        struct msg_row_done done;
        struct err e;
        row.position = engine_seq_length(s);
        row.n_tokens = i == 0 ? n_prompt : 1;
        row.tokens = tokens + row.position;
        row.out_index = i;
        unit_ok(engine_step(s, &row, &done, NULL, &e), &e);
        assert_int_equal(done.seq, 5);
        assert_int_equal(done.n_tokens, 1);
        assert_int_equal(done.n_accepted, 0);
        assert_int_equal(done.length, n_prompt + i);
        out[i] = done.tokens[0];
        tokens[n_prompt + i] = out[i].id;
        assert_int_equal(p->mirostat != 0, row.sampling.mu != done.mu);
        row.sampling.mu = done.mu;
    }
    engine_seq_close(s);
}

/* The same with drafts: each right with some chance. */
static void speculate(struct engine *g, const struct msg_sampling *p,
                      uint32_t n_prompt, uint32_t n,
                      const struct msg_token *want, unsigned luck)
{
    struct engine_seq *s = new_seq(g);
    int32_t tokens[2 * FAKE_S];
    memcpy(tokens, text, sizeof(text));
    struct msg_row row = {.sample = true, .sampling = *p};
    uint32_t got = 0;
    uint32_t salt = 1;
    while (got < n) {
        struct msg_row_done done;
        struct err e;
        uint32_t right = 0;
        row.position = engine_seq_length(s);
        row.n_tokens = got == 0 ? n_prompt : 1;
        row.tokens = tokens + row.position;
        row.out_index = got;
        row.n_drafts = 4;
        bool hit = true;
        for (uint32_t d = 0; d < row.n_drafts; d++) {
            int32_t truth = got + d < n ? want[got + d].id : 0;
            salt = salt * 1103515245u + 12345u;
            bool good = salt >> 16 & luck || luck == 255;
            row.drafts[d] = good ? truth : (truth + 1) % FAKE_V;
            hit = hit && good;
            right += hit && got + d < n;
        }
        unit_ok(engine_step(s, &row, &done, NULL, &e), &e);
        assert_int_equal(done.n_tokens, done.n_accepted + 1);
        row.sampling.mu = done.mu;
        if (done.length + 1 < FAKE_S && got + 5 < n) {
            assert_int_equal(done.n_accepted, right);
        }
        for (uint32_t i = 0; i < done.n_tokens && got < n; i++, got++) {
            assert_int_equal(done.tokens[i].id, want[got].id);
            assert_memory_equal(&done.tokens[i].logprob, &want[got].logprob,
                                sizeof(float));
            tokens[n_prompt + got] = want[got].id;
        }
        assert_int_equal(done.length, engine_seq_length(s));
    }
    engine_seq_close(s);
}

static void test_drafts_change_nothing(void **state)
{
    (void)state;
    for (size_t v = 0; v < countof(variants); v++) {
        struct engine *g = open_variant(&variants[v]);
        for (int mode = 0; mode < 6; mode++) {
            struct msg_sampling p;
            struct msg_token want[FAKE_S];
            msg_sampling_init(&p);
            p.temperature = mode > 0 ? 2.5f : 0;
            p.top_k = mode > 1 ? 7 : 0;
            p.frequency_penalty = mode > 1 ? 0.7f : 0;
            p.seed = 12;
            p.mirostat = mode > 3 ? (uint32_t)mode - 3 : 0;
            p.mirostat_tau = 2;
            p.mirostat_eta = 0.8f;
            p.mu = msg_sampling_mu(&p);
            p.xtc_probability = mode == 3 ? 0.5f : 0;
            p.dry_multiplier = mode == 3 ? 2 : 0;
            p.dry_last_n = UINT32_MAX;
            /* up to the context's last position */
            generate(g, &p, 5, FAKE_S - 4, want);
            speculate(g, &p, 5, FAKE_S - 4, want, 0);
            speculate(g, &p, 5, FAKE_S - 4, want, 1);
            speculate(g, &p, 5, FAKE_S - 4, want, 3);
            speculate(g, &p, 5, FAKE_S - 4, want, 255);
            seen.n = 0;
        }
        engine_close(g);
    }
}

static void test_step_refused(void **state)
{
    (void)state;
    struct err e;
    struct engine *g = open_variant(&variants[0]);
    struct engine_seq *s = new_seq(g);
    int32_t tokens[FAKE_S + 1] = {0};
    struct msg_row_done done = {.seq = 99};
    struct msg_row row = {.tokens = tokens, .n_tokens = 3, .sample = true};
    msg_sampling_init(&row.sampling);
    row.position = 1;
    assert_int_equal(engine_step(s, &row, &done, NULL, &e), ERR_CONFLICT);
    row.position = 0;
    row.n_tokens = 0;
    assert_int_equal(engine_step(s, &row, &done, NULL, &e), ERR_INVALID);
    row.n_tokens = FAKE_S + 1;
    assert_int_equal(engine_step(s, &row, &done, NULL, &e), ERR_CONTEXT);
    row.n_tokens = 3;
    struct msg_bias no_token = {.id = FAKE_V};
    row.sampling.n_bias = 1; /* fails when drawing: the rows are undone */
    row.sampling.bias = &no_token;
    assert_int_equal(engine_step(s, &row, &done, NULL, &e), ERR_INVALID);
    assert_int_equal(engine_seq_length(s), 0);
    assert_int_equal(done.seq, 99);
    /* prefill draws nothing and runs no head */
    row.sample = false;
    seen.n = 0;
    unit_ok(engine_step(s, &row, &done, NULL, &e), &e);
    assert_int_equal(done.n_tokens, 0);
    assert_int_equal(done.length, 3);
    assert_int_equal(seen.n, 2);
    engine_seq_close(s);
    engine_close(g);
}

/* Packages that break the contract are named when they are opened. */
static void test_wrong_packages(void **state)
{
    (void)state;
    static const struct {
        const char *wrong, *msg;
    } t[] = {
        {"shape",  "layers_01_02.mlpackage: attn_mask"            },
        {"input",  "layers_00_01.mlpackage: input rope_tan"       },
        {"x",      "layers_00_01.mlpackage: no input x"           },
        {"hidden", "layers_01_02.mlpackage: no output hidden"     },
        {"logits", "head_0.mlpackage: output logits"              },
        {"new",    "layers_00_01.mlpackage: no output layers_0_k_"},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct engine *g = NULL;
        struct err e;
        set_variant(&variants[5]);
        fake.wrong = t[i].wrong;
        int rc = engine_open_with(&fake_backend, fake_dir, &conf, &g, &e);
        assert_int_equal(rc, ERR_BUNDLE);
        assert_null(g);
        if (strncmp(e.msg, t[i].msg, strlen(t[i].msg)) != 0) {
            fail_msg("%s: %s", t[i].wrong, e.msg);
        }
    }
    fake.wrong = NULL;
    struct engine_conf unknown = conf;
    struct engine *g = NULL;
    struct err e;
    unknown.backend = "abacus";
    assert_int_equal(engine_open(fake_dir, &unknown, &g, &e), ERR_UNSUPPORTED);
}

/* What a backend says of its rows is held against the bundle, too. */
static void test_wrong_rows(void **state)
{
    (void)state;
    static const struct {
        const char *wrong, *msg;
    } t[] = {
        {"width", "layers_01_02.mlpackage: rope_cos: a row of 3 numbers"},
        {"out",   "layers_00_01.mlpackage: hidden: a row of 4 numbers"  },
    };
    struct engine *g = NULL;
    struct msg_ready r;
    struct err e;
    for (size_t i = 0; i < countof(t); i++) {
        set_variant(&variants[7]);
        fake_rows.wrong = t[i].wrong;
        int rc = engine_open_with(&fake_rows_backend, fake_dir, &conf, &g, &e);
        assert_int_equal(rc, ERR_BUNDLE);
        if (strncmp(e.msg, t[i].msg, strlen(t[i].msg)) != 0) {
            fail_msg("%s: %s", t[i].wrong, e.msg);
        }
    }
    /* a mask that is used in some other way: columns */
    set_variant(&variants[7]);
    fake_rows.wrong = "use";
    unit_ok(engine_open_with(&fake_rows_backend, fake_dir, &conf, &g, &e), &e);
    engine_ready(g, &r);
    assert_int_equal(r.t_max, 4);
    struct engine_seq *s = new_seq(g);
    fake_rows.calls = 0;
    feed(s, text, 9, 0);
    assert_int_equal(fake_rows.calls, 0);
    engine_seq_close(s);
    engine_close(g);
}

static void test_ready(void **state)
{
    (void)state;
    struct msg_ready r;
    struct engine *g = open_variant(&variants[0]);
    engine_ready(g, &r);
    assert_int_equal(r.t_max, 4);
    assert_int_equal(r.context, FAKE_S);
    assert_int_equal(r.vocab, FAKE_V);
    assert_int_equal(r.weight_bytes, 4000 + FAKE_V * FAKE_D * 2);
    assert_int_equal(r.state_bytes, 2 * FAKE_S * 2 + FAKE_S * 4);
    assert_string_equal(r.arith, "fake 7");
    engine_close(g);
    g = open_variant(&variants[6]);
    engine_ready(g, &r);
    assert_int_equal(r.t_max, 1); /* each row runs alone */
    assert_true(r.exact);
    assert_int_equal(r.state_bytes, 2 * 2 * FAKE_S * 2 + FAKE_S * 4);
    engine_close(g);
    g = open_variant(&variants[7]);
    engine_ready(g, &r);
    assert_int_equal(r.t_max, 512);
    assert_int_equal(r.batch_max, 512);
    assert_int_equal(r.state_bytes, 2 * FAKE_S * 2 + FAKE_S * 4);
    engine_close(g);
    g = open_variant(&variants[9]);
    engine_ready(g, &r);
    assert_int_equal(r.t_max, 3);
    engine_close(g);
    engine_close(NULL);
    engine_seq_close(NULL);
}

/* What a probe has measured: each package hears of the widths that are its
 * own, and a function of another width is not even opened. */
static struct {
    unsigned layers, heads; /* opened */
} told;

static int told_open(const char *pkg, const char *function,
                     const struct backend_conf *c, struct backend_model **ret,
                     struct err *e)
{
    bool head = strstr(pkg, "head_") != NULL;
    told.layers += !head;
    told.heads += head;
    assert_int_equal(c->n_exact_widths, head ? 2 : 1);
    assert_int_equal(c->exact_widths[0], head ? 1 : 4);
    assert_true(head || strcmp(function, "t4") == 0);
    return fake_open(pkg, function, c, ret, e);
}

static void test_measured_widths(void **state)
{
    (void)state;
    struct backend be = fake_backend;
    struct engine_conf measured = conf;
    struct engine *g = NULL;
    struct err e = {0};
    be.open = told_open;
    set_variant(&variants[3]); /* functions 1, 4 */
    measured.layers = (struct msg_widths){.n = 1, .of = {4}};
    measured.heads = (struct msg_widths){.n = 2, .of = {1, 2}};
    unit_ok(engine_open_with(&be, fake_dir, &measured, &g, &e), &e);
    assert_int_equal(told.layers, 2);
    assert_int_equal(told.heads, 2);
    seen.n = 0;
    struct engine_seq *s = new_seq(g);
    feed(s, text, 6, 0);
    for (size_t i = 0; i < seen.n; i++) { /* one row alone too */
        assert_true(seen.calls[i].kind == 'h' || seen.calls[i].t == 4);
    }
    engine_seq_close(s);
    engine_close(g);
    measured.layers = (struct msg_widths){.n = 1, .of = {3}};
    be.open = fake_open;
    progress_seen = 0;
    assert_int_equal(engine_open_with(&be, fake_dir, &measured, &g, &e),
                     ERR_BUNDLE);
    assert_non_null(strstr(e.msg, "no function has a width"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_two_lists),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_drafts_change_nothing),
        cmocka_unit_test(test_step_refused),
        cmocka_unit_test(test_wrong_packages),
        cmocka_unit_test(test_wrong_rows),
        cmocka_unit_test(test_ready),
        cmocka_unit_test(test_measured_widths),
    };
    return cmocka_run_group_tests(tests, fake_setup, fake_teardown);
}
