/* test_device.c - what a device does that the CPU does not: bits that depend on
 * the width, a slow first prediction, failures in the middle of a text. */
#include "engine/impl.h"
#include "fake.h"

static const int32_t text[FAKE_S] = {1, 7, 3, 9, 0, 2, 2, 8, 5, 4, 6,
                                     1, 1, 3, 9, 9, 0, 7, 5, 2, 4, 8,
                                     6, 3, 1, 0, 5, 5, 7, 2, 9, 8};

/* A bundle of the fake: ranged 1..4, or functions of T = 1 and 4. */
static void set_fake(bool functions)
{
    static const char *names[] = {"t1", "t4"};
    static uint32_t ts[] = {1, 4};
    memset(&fake, 0, sizeof(fake));
    fake.t_lo = 1;
    fake.t_hi = 4;
    fake.fail_after = -1;
    fake.warms = true;
    fake.asks = 1;
    fake_write_bundle(functions ? names : NULL, ts, 2);
}

static struct engine *open_fake(void)
{
    static const struct engine_conf conf = {.threads = 3};
    struct engine *g = NULL;
    struct err e;
    unit_ok(engine_open_with(&fake_backend, fake_dir, &conf, &g, &e), &e);
    seen.n = 0;
    return g;
}

/* --- widths --- */

static void exact(const uint32_t *t, uint32_t n)
{
    memcpy(fake.exact, t, n * sizeof(*t));
    fake.n_exact = n;
}

/* Logits of the text in chunks, against the definition at width FAKE_WIDTH.
 * Returns how many rows differ. */
static uint32_t differences(struct engine *g, uint32_t chunk)
{
    struct engine_seq *s = NULL;
    struct err e;
    const float *got = NULL;
    float want[FAKE_S * FAKE_V];
    uint32_t bad = 0;
    fake_reference(text, FAKE_S, want);
    unit_ok(engine_seq_open(g, &s, &e), &e);
    unit_ok(engine_eval(s, text, FAKE_S, chunk, 2, &got, NULL, &e), &e);
    for (size_t i = 0; i < FAKE_S; i++) {
        bad += memcmp(got + i * FAKE_V, want + i * FAKE_V,
                      FAKE_V * sizeof(float)) != 0;
    }
    engine_seq_close(s);
    return bad;
}

/* All rows run at one width, however the text is cut. */
static void test_one_width(void **state)
{
    (void)state;
    for (int functions = 0; functions < 2; functions++) {
        set_fake(functions != 0);
        exact((const uint32_t[]){4}, 1);
        fake.by_width = 0.37F;
        struct engine *g = open_fake();
        for (uint32_t chunk = 0; chunk < 6; chunk++) {
            assert_int_equal(differences(g, chunk), 0);
            for (size_t i = 0; i < seen.n; i++) {
                assert_int_equal(seen.calls[i].t, 4);
            }
            seen.n = 0;
        }
        engine_close(g);
    }
    /* a backend that says nothing is taken at its word: then it shows */
    set_fake(false);
    fake.by_width = 0.37F;
    struct engine *g = open_fake();
    assert_true(differences(g, 1) > FAKE_S / 2);
    engine_close(g);
}

static int32_t draw(struct engine *g, struct engine_seq *s, const int32_t *row,
                    uint32_t n, const int32_t *drafts, uint32_t n_drafts,
                    uint32_t index, uint32_t *accepted)
{
    struct msg_row_done done;
    struct err e;
    (void)g;
    struct msg_row r = {.position = engine_seq_length(s),
                        .n_tokens = n,
                        .tokens = (int32_t *)(uintptr_t)row,
                        .n_drafts = n_drafts,
                        .sample = true,
                        .out_index = index};
    msg_sampling_init(&r.sampling);
    for (uint32_t i = 0; i < n_drafts; i++) {
        r.drafts[i] = drafts[i];
    }
    unit_ok(engine_step(s, &r, &done, NULL, &e), &e);
    *accepted = done.n_accepted;
    return done.tokens[0].id;
}

/* Drafts change no token, although the bits depend on the width. */
static void test_drafts_at_one_width(void **state)
{
    (void)state;
    enum { N = 20 };
    int32_t plain[N + 4] = {0};
    uint32_t accepted = 0;
    uint32_t all = 0;
    struct err e;
    set_fake(false);
    exact((const uint32_t[]){4}, 1);
    fake.by_width = 0.37F;
    struct engine *g = open_fake();
    struct engine_seq *s = NULL;
    unit_ok(engine_seq_open(g, &s, &e), &e);
    for (uint32_t i = 0; i < N; i++) {
        plain[i] = draw(g, s, i == 0 ? text : &plain[i - 1], i == 0 ? 5 : 1,
                        NULL, 0, i, &accepted);
    }
    engine_seq_close(s);
    unit_ok(engine_seq_open(g, &s, &e), &e);
    for (uint32_t i = 0; i < N; i += accepted + 1) {
        int32_t drafts[3] = {plain[i], plain[i + 1],
                             (plain[i + 2] + (int32_t)(i % 2)) % FAKE_V};
        int32_t id = draw(g, s, i == 0 ? text : &plain[i - 1], i == 0 ? 5 : 1,
                          drafts, i + 3 < N ? 3 : 0, i, &accepted);
        assert_int_equal(id, plain[i]);
        all += accepted;
    }
    assert_true(all > 5);
    engine_seq_close(s);
    engine_close(g);
}

/* N greedy tokens after 5 of the text, with drafts that are right, or none. */
static void greedy(struct engine *g, const int32_t *truth, int32_t *out,
                   uint32_t n)
{
    struct engine_seq *s = NULL;
    struct err e;
    uint32_t accepted = 0;
    unit_ok(engine_seq_open(g, &s, &e), &e);
    for (uint32_t i = 0; i < n; i += accepted + 1) {
        uint32_t drafts = truth != NULL && i + 3 < n ? 3 : 0;
        struct msg_row_done done;
        struct msg_row r = {.position = engine_seq_length(s),
                            .n_tokens = i == 0 ? 5 : 1,
                            .tokens = (int32_t *)(uintptr_t)text,
                            .n_drafts = drafts,
                            .sample = true,
                            .out_index = i};
        r.tokens = i == 0 ? r.tokens : &out[i - 1];
        msg_sampling_init(&r.sampling);
        for (uint32_t k = 0; k < drafts; k++) {
            r.drafts[k] = truth[i + k];
        }
        unit_ok(engine_step(s, &r, &done, NULL, &e), &e);
        assert_int_equal(done.n_tokens, done.n_accepted + 1);
        assert_int_equal(done.length, r.position + r.n_tokens + done.n_accepted);
        accepted = done.n_accepted;
        for (uint32_t k = 0; k < done.n_tokens && i + k < n; k++) {
            out[i + k] = done.tokens[k].id;
        }
    }
    engine_seq_close(s);
}

/* With a margin all widths are used and the model says that it is not exact;
 * what is closer than the margin is as without drafts. */
static void test_margin(void **state)
{
    (void)state;
    enum { N = 20 };
    int32_t plain[N] = {0};
    int32_t drafted[N] = {0};
    struct err e;
    for (int wide = 0; wide < 2; wide++) {
        const struct engine_conf conf = {
            .threads = 3, .margin = wide ? 1000 : 1e-6F};
        struct engine *g = NULL;
        set_fake(false);
        exact((const uint32_t[]){4}, 1);
        fake.by_width = 0.37F;
        unit_ok(engine_open_with(&fake_backend, fake_dir, &conf, &g, &e), &e);
        assert_false(engine_exact(g));
        assert_non_null(strstr(engine_arith(g), "widths mixed"));
        greedy(g, NULL, plain, N);
        seen.n = 0;
        greedy(g, plain, drafted, N);
        assert_int_equal(memcmp(plain, drafted, sizeof(plain)) == 0, wide);
        engine_close(g);
    }
    set_fake(false); /* not needed where all widths agree */
    const struct engine_conf conf = {.threads = 3, .margin = 1000};
    struct engine *g = NULL;
    unit_ok(engine_open_with(&fake_backend, fake_dir, &conf, &g, &e), &e);
    assert_true(engine_exact(g));
    engine_close(g);
}

/* Lists of widths that agree, and what is made of them. */
static void test_lists(void **state)
{
    (void)state;
    static const struct {
        /* T of each unit of one shard; "": ranged. First h: in host form, m:
         * which was measured. */
        const char *functions;
        uint32_t lists[2][4]; /* of each unit */
        uint32_t want[4];     /* widths that are used */
    } cases[] = {
        {"",    {{0}},                {1, 2, 3, 4}},
        {"",    {{4}},                {4}         },
        {"",    {{1}},                {1}         },
        {"",    {{2, 4}},             {2, 4}      },
        {"",    {{1, 2, 3}},          {1, 2, 3}   },
        {"14",  {{0}, {0}},           {1, 4}      },
        {"14",  {{1}, {4}},           {4}         }, /* the least from 4 on */
        {"12",  {{1}, {2}},           {2}         }, /* else the largest */
        {"48",  {{4}, {8}},           {4}         },
        {"14",  {{1, 4}, {1, 4}},     {1, 4}      },
        {"14",  {{1, 4}, {4}},        {4}         }, /* both must say so */
        {"14",  {{1}, {1}},           {4}         }, /* its own, at least */
        {"h",   {{0}},                {1}         }, /* alone */
        {"h",   {{4}},                {4}         },
        {"h48", {{4}, {8}},           {4}         },
        {"h14", {{1, 4}, {1, 4}},     {1}         },
        {"m14", {{1, 4}, {1, 4}},     {1, 4}      },
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct unit units[2] = {0};
        const char *functions = cases[i].functions;
        bool measured = functions[0] == 'm';
        struct shard s = {.units = units,
                          .n_past = functions[0] == 'h' || measured};
        functions += s.n_past;
        size_t n = strlen(functions);
        s.n_units = n > 0 ? n : 1;
        for (size_t k = 0; k < s.n_units; k++) {
            struct unit *u = &units[k];
            u->fixed = n > 0 ? (uint32_t)(functions[k] - '0') : 0;
            u->t_lo = n > 0 ? u->fixed : 1;
            u->t_hi = n > 0 ? u->t_lo : 4;
            u->info.exact_widths = cases[i].lists[k];
            while (u->info.n_exact_widths < 4 &&
                   cases[i].lists[k][u->info.n_exact_widths] > 0) {
                u->info.n_exact_widths++;
            }
        }
        const struct widths_conf conf = {.cap = 16, .measured = measured};
        bool alone = s.n_past > 0 && !measured;
        struct widths w;
        struct err e;
        unit_ok(widths_make(&w, &s, 1, &conf, &e), &e);
        for (size_t k = 0; k < 4; k++) {
            if (widths_each(&w, k) != cases[i].want[k]) {
                fail_msg("case %zu: width %zu is %u", i, k, widths_each(&w, k));
            }
        }
        assert_int_equal(w.rows, alone ? 1 : w.max);
        assert_true(w.exact);
    }
}

/* Chunks of any size are not exact where a row's place matters. */
static void test_any_width(void **state)
{
    (void)state;
    struct unit u = {.t_lo = 1, .t_hi = 4};
    for (int host = 0; host < 2; host++) {
        for (int measured = 0; measured < 2; measured++) {
            const struct shard s = {
                .units = &u, .n_units = 1, .n_past = (size_t)host};
            const struct widths_conf conf = {
                .cap = 16, .any = true, .measured = measured != 0};
            struct widths w;
            struct err e;
            unit_ok(widths_make(&w, &s, 1, &conf, &e), &e);
            assert_int_equal(w.rows, 4);
            assert_int_equal(w.exact, host == 0 || measured != 0);
        }
    }
}

/* States of one class of widths are not another's. */
static void test_class_in_arith(void **state)
{
    (void)state;
    char first[ARITH_BYTES_MAX];
    set_fake(false);
    struct engine *g = open_fake();
    assert_string_equal(engine_arith(g), "fake 7");
    engine_close(g);
    exact((const uint32_t[]){4}, 1);
    g = open_fake();
    (void)snprintf(first, sizeof(first), "%s", engine_arith(g));
    assert_string_equal(first, "fake 7, as width 4");
    engine_close(g);
    exact((const uint32_t[]){2, 3}, 2);
    g = open_fake();
    assert_string_not_equal(engine_arith(g), first);
    engine_close(g);
}

/* No more widths than there is room for, whatever a backend takes. */
static void test_few_widths(void **state)
{
    (void)state;
    struct unit u = {.t_lo = 1, .t_hi = ENGINE_CHUNK_MAX};
    struct shard s = {.units = &u, .n_units = 1};
    struct widths w;
    struct err e;
    for (uint32_t cap = 1; cap <= ENGINE_CHUNK_MAX; cap++) {
        const struct widths_conf conf = {.cap = cap};
        unit_ok(widths_make(&w, &s, 1, &conf, &e), &e);
        assert_int_equal(widths_each(&w, SHEETS_MAX), 0);
        assert_int_equal(w.max, cap);
        for (uint32_t n = 1; n <= cap; n++) {
            assert_in_range(w.of[n], n, n <= 8 ? n : 2 * n - 1);
        }
    }
    u.t_hi = 0;
    const struct widths_conf conf = {.cap = 4};
    assert_int_equal(widths_make(&w, &s, 1, &conf, &e), ERR_BUNDLE);
}

/* --- warm --- */

struct stop {
    uint32_t asked, at; /* go() says no at this question; 0: never */
    uint32_t warmed;
};

static bool go(void *ctx)
{
    struct stop *x = ctx;
    return ++x->asked != x->at;
}

static void on_progress(void *ctx, enum engine_stage stage, uint32_t done,
                        uint32_t total)
{
    struct stop *x = ctx;
    if (stage == ENGINE_WARMS) {
        assert_int_equal(done, ++x->warmed);
        assert_int_equal(total, 4 * 4); /* widths of two shards, two heads */
    }
}

/* Every width is run once before a model is ready (the fake refuses others),
 * and opening can be given up in the middle of it. */
static void test_warm(void **state)
{
    (void)state;
    struct err e;
    struct stop x = {0};
    struct engine *g = NULL;
    const struct engine_conf conf = {.threads = 3,
                                     .progress = on_progress,
                                     .ctx = &x,
                                     .watch = {go, &x}};
    set_fake(false);
    fake.asks = 3;
    unit_ok(engine_open_with(&fake_backend, fake_dir, &conf, &g, &e), &e);
    assert_int_equal(x.warmed, 16);
    assert_int_equal(x.asked, 3 * 16);
    assert_int_equal(differences(g, 1), 0);
    engine_close(g);
    for (uint32_t at = 1; at <= 48; at += 5) {
        x = (struct stop){.at = at};
        assert_int_equal(
            engine_open_with(&fake_backend, fake_dir, &conf, &g, &e),
            ERR_CANCELLED);
        assert_int_equal(x.asked, at);
    }
}

/* --- failures --- */

static bool last_event(struct engine *g, struct engine_event *ret)
{
    bool any = false;
    while (engine_event(g, ret)) {
        any = true;
    }
    return any;
}

/* Once: it is run again, and nobody is told. Twice: the package is opened
 * anew, and what it held is computed again. */
static void test_fails_in_the_middle(void **state)
{
    (void)state;
    struct engine_event x;
    for (uint32_t times = 1; times <= 2; times++) {
        for (int at = 0; at < FAKE_S; at++) { /* predictions */
            set_fake(false);
            struct engine *g = open_fake();
            uint32_t opens = fake.opens;
            fake.fail_rc = ERR_BACKEND;
            fake.fail_times = times;
            fake.fail_after = at;
            assert_int_equal(differences(g, 0), 0);
            assert_int_equal(fake.fail_after, -1); /* it did fail */
            assert_int_equal(fake.opens - opens, times - 1);
            assert_int_equal(last_event(g, &x), times == 2);
            if (times == 2) {
                assert_false(x.on_cpu);
                assert_non_null(strstr(x.why.msg, "the fake fails"));
                assert_non_null(strstr(x.package, ".mlpackage"));
            }
            engine_close(g);
        }
    }
}

/* Sequences that were not in the step lose their states too, and forks and cuts
 * of what is lost are right. */
static void test_others_lose_theirs(void **state)
{
    (void)state;
    struct err e;
    float want[FAKE_S * FAKE_V];
    const float *got = NULL;
    set_fake(false);
    struct engine *g = open_fake();
    struct engine_seq *s[3] = {0};
    fake_reference(text, FAKE_S, want);
    unit_ok(engine_seq_open(g, &s[0], &e), &e);
    unit_ok(engine_eval(s[0], text, 20, 0, 0, NULL, NULL, &e), &e);
    unit_ok(engine_seq_open(g, &s[1], &e), &e);
    fake.fail_rc = ERR_BACKEND;
    fake.fail_times = 2;
    fake.fail_after = 3;
    unit_ok(engine_eval(s[1], text, 9, 0, 0, NULL, NULL, &e), &e);
    assert_int_equal(s[0]->valid, 0);
    unit_ok(engine_seq_fork(s[0], 11, &s[2], &e), &e);
    unit_ok(engine_seq_truncate(s[0], 17, &e), &e);
    for (size_t i = 0; i < 3; i++) {
        uint32_t n = engine_seq_length(s[i]);
        unit_ok(engine_eval(s[i], text + n, 4, 0, 2, &got, NULL, &e), &e);
        assert_memory_equal(got, want + (size_t)n * FAKE_V,
                            4 * FAKE_V * sizeof(float));
        assert_int_equal(s[i]->valid, n + 4);
        engine_seq_close(s[i]);
    }
    engine_close(g);
}

/* The fake's packages are not real: the CPU cannot take over, and the model
 * says so from then on. */
static void test_nothing_helps(void **state)
{
    (void)state;
    struct err e;
    set_fake(false);
    struct engine *g = open_fake();
    struct engine_seq *s = NULL;
    unit_ok(engine_seq_open(g, &s, &e), &e);
    fake.fail_rc = ERR_BACKEND;
    fake.fail_times = 1000;
    fake.fail_after = 1;
    assert_true(engine_eval(s, text, 9, 0, 0, NULL, NULL, &e) < 0);
    assert_int_equal(engine_seq_length(s), 0);
    fake.fail_after = -1;
    assert_int_equal(engine_eval(s, text, 9, 0, 0, NULL, NULL, &e),
                     ERR_BACKEND);
    assert_non_null(strstr(e.msg, "load the model anew"));
    engine_seq_close(s);
    engine_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_width),
        cmocka_unit_test(test_drafts_at_one_width),
        cmocka_unit_test(test_margin),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_any_width),
        cmocka_unit_test(test_class_in_arith),
        cmocka_unit_test(test_few_widths),
        cmocka_unit_test(test_warm),
        cmocka_unit_test(test_fails_in_the_middle),
        cmocka_unit_test(test_others_lose_theirs),
        cmocka_unit_test(test_nothing_helps),
    };
    return cmocka_run_group_tests(tests, fake_setup, fake_teardown);
}
