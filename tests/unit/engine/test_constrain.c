/* test_constrain.c - answers that keep to a grammar, of the demo model: valid,
 * and the same with drafts, beside others, on several threads, in another
 * sequence, after a cut; errors are the row's own. */
#include "converted.h"
#include "model/grammar/mask.h"
#include "model/tokenizer.h"

enum { MOST = 160, N_PROMPT = 3 };

static const char schema[] =
    "{\"schema\":{\"type\":\"object\",\"properties\":{"
    "\"name\":{\"type\":\"string\",\"maxLength\":8},"
    "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":130},"
    "\"kind\":{\"enum\":[\"cat\",\"dog\",\"a long name of a kind\"]},"
    "\"list\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},"
    "\"maxItems\":3}},\"required\":[\"name\",\"age\",\"kind\",\"list\"],"
    "\"additionalProperties\":false}}";

static char dir[256];
static struct engine *g;
static struct tokenizer *tok;
static const int32_t prompt[N_PROMPT] = {70, 90, 110};

static int setup(void **state)
{
    (void)state;
    char out[512];
    struct err e;
    const struct engine_conf conf = {.threads = 2};
    converted_dir(dir, "constrain");
    (void)snprintf(out, sizeof(out), "%s/demo", dir);
    g = converted_open(converted_demo(), out, NULL, NULL, NULL, &conf);
    unit_ok(tokenizer_open(out, &tok, &e), &e);
    unit_ok(engine_grammar(g, 1, schema, strlen(schema), &e), &e);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct err e;
    tokenizer_close(tok);
    engine_close(g);
    return file_rmtree(dir, &e);
}

/* An answer while it is made. */
struct answer {
    struct engine_seq *s;
    uint32_t n; /* tokens, the one that ends it too */
    int32_t t[MOST];
    bool ended;
    uint64_t seed;
    uint32_t grammar;
    bool cool; /* likely tokens only */
    bool drafts; /* those that are forced, and wrong ones at times */
    uint32_t n_forced, n_accepted;
    int32_t forced[ENGINE_DRAFTS_MAX];
    struct msg_row row;
    struct msg_row_done done;
};

static void begin(struct answer *a, uint64_t seed, uint32_t grammar)
{
    struct err e;
    *a = (struct answer){.seed = seed, .grammar = grammar};
    unit_ok(engine_seq_open(g, &a->s, &e), &e);
}

/* The row of its next step. */
static struct engine_row row_of(struct answer *a)
{
    uint32_t have = engine_seq_length(a->s);
    struct msg_row *r = &a->row;
    *r = (struct msg_row){.position = have,
                          .sample = true,
                          .out_index = a->n,
                          .n_prompt = N_PROMPT,
                          .grammar = a->grammar};
    msg_sampling_init(&r->sampling);
    r->sampling.temperature = a->cool ? 0.5f : 1.3f;
    r->sampling.seed = a->seed;
    r->n_tokens = have == 0 ? N_PROMPT : 1;
    r->tokens = (int32_t *)(uintptr_t)(have == 0 ? prompt : &a->t[a->n - 1]);
    if (a->drafts) {
        r->n_drafts = a->n_forced;
        memcpy(r->drafts, a->forced, a->n_forced * sizeof(*r->drafts));
        if (a->n % 3 == 0 && r->n_drafts < ENGINE_DRAFTS_MAX) {
            r->drafts[r->n_drafts++] = (int32_t)(a->n * 31 % 256);
        }
    }
    return (struct engine_row){.seq = a->s, .row = r, .done = &a->done};
}

static void take(struct answer *a, const struct engine_row *r)
{
    unit_ok(r->rc, &r->err);
    assert_true(a->done.n_tokens >= 1);
    for (uint32_t i = 0; i < a->done.n_tokens && a->n < MOST; i++) {
        a->t[a->n++] = a->done.tokens[i].id;
    }
    a->n_accepted += a->done.n_accepted;
    a->n_forced = a->done.n_forced;
    memcpy(a->forced, a->done.forced, sizeof(a->forced));
    a->ended = a->n == MOST || tokenizer_is_eog(tok, a->t[a->n - 1]);
}

static void finish(struct answer *a)
{
    while (!a->ended) {
        struct engine_row r = row_of(a);
        engine_step_rows(g, &r, 1, NULL);
        take(a, &r);
    }
}

static void answer(struct answer *a, uint64_t seed, uint32_t grammar)
{
    begin(a, seed, grammar);
    finish(a);
    engine_seq_close(a->s);
}

static void same(const struct answer *a, const struct answer *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->t, b->t, a->n * sizeof(*a->t));
}

static void text_of(const struct answer *a, struct buf *b)
{
    buf_init(b, KIB(64));
    for (uint32_t i = 0; i < a->n; i++) {
        struct span p = tokenizer_piece(tok, a->t[i], false);
        buf_put(b, p.p, p.n);
    }
}

/* Whether the bytes are a whole text of the grammar. */
static bool matches(const char *grammar, const struct buf *b)
{
    struct grammar *x = NULL;
    struct matcher *m = NULL;
    struct err e;
    unit_ok(grammar_from_text(grammar, strlen(grammar), &x, &e), &e);
    unit_ok(matcher_new(x, &m, &e), &e);
    match_t s = match_start(m);
    match_hold(m, s);
    bool yes = match_bytes(m, &s, b->p, b->n) && match_may_end(m, s);
    matcher_free(m);
    grammar_free(x);
    return yes;
}

static void test_valid(void **state)
{
    (void)state;
    uint32_t whole = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct answer a;
        struct buf b;
        answer(&a, seed, 1);
        text_of(&a, &b);
        if (tokenizer_is_eog(tok, a.t[a.n - 1])) {
            assert_true(matches(schema, &b));
            whole++;
        }
        buf_fini(&b);
    }
    assert_true(whole >= 10); /* else too long for the test */
}

static void test_drafts(void **state)
{
    (void)state;
    uint32_t accepted = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct answer plain;
        struct answer a;
        answer(&plain, seed, 1);
        begin(&a, seed, 1);
        a.drafts = true;
        finish(&a);
        engine_seq_close(a.s);
        same(&plain, &a);
        accepted += a.n_accepted;
    }
    assert_true(accepted > 20); /* what is forced was drafted */
}

/* Several at once, some without a grammar. */
static void test_beside(void **state)
{
    (void)state;
    enum { N = 6 };
    static struct answer alone[N];
    static struct answer a[N];
    for (uint32_t i = 0; i < N; i++) {
        answer(&alone[i], i, i % 3 != 2);
        begin(&a[i], i, i % 3 != 2);
        a[i].drafts = i % 2 == 1;
    }
    for (bool more = true; more;) {
        struct engine_row r[N];
        uint32_t who[N];
        size_t n = 0;
        for (uint32_t i = 0; i < N; i++) {
            if (!a[i].ended) {
                who[n] = i;
                r[n++] = row_of(&a[i]);
            }
        }
        engine_step_rows(g, r, n, NULL);
        for (size_t k = 0; k < n; k++) {
            take(&a[who[k]], &r[k]);
        }
        more = n > 0;
    }
    for (uint32_t i = 0; i < N; i++) {
        engine_seq_close(a[i].s);
        same(&alone[i], &a[i]);
    }
}

/* Another sequence goes on in the middle: a fork, one that was computed anew, and
 * the same after it was cut. */
static void test_elsewhere(void **state)
{
    (void)state;
    struct answer whole;
    struct err e;
    answer(&whole, 3, 1);
    for (uint32_t half = 1; half + 1 < whole.n; half += 5) {
        struct answer a;
        struct engine_seq *fork = NULL;
        begin(&a, 3, 1);
        a.n = half;
        memcpy(a.t, whole.t, half * sizeof(*a.t));
        unit_ok(engine_eval(a.s, prompt, N_PROMPT, 0, 0, NULL, NULL, &e), &e);
        if (half > 1) {
            unit_ok(engine_eval(a.s, a.t, half - 1, 0, 0, NULL, NULL, &e), &e);
        }
        unit_ok(engine_seq_fork(a.s, engine_seq_length(a.s), &fork, &e), &e);
        finish(&a);
        same(&whole, &a);
        unit_ok(engine_seq_truncate(a.s, N_PROMPT + half - 1, &e), &e);
        for (int again = 0; again < 2; again++) {
            a.n = half;
            a.ended = false;
            finish(&a);
            same(&whole, &a);
            engine_seq_close(a.s);
            a.s = fork;
        }
    }
}

/* A grammar that allows all text changes nothing. */
static void test_any_text(void **state)
{
    (void)state;
    static const char any[] = "{\"regex\":\"[\\\\s\\\\S]*\"}";
    struct err e;
    unit_ok(engine_grammar(g, 2, any, strlen(any), &e), &e);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct answer free;
        struct answer a;
        begin(&free, seed, 0);
        begin(&a, seed, 2);
        free.cool = a.cool = true;
        finish(&free);
        finish(&a);
        engine_seq_close(free.s);
        engine_seq_close(a.s);
        uint32_t n = 0;
        bool ascii = true; /* else its bytes may be no UTF-8 */
        while (n < a.n && n < free.n && a.t[n] == free.t[n]) {
            n++;
        }
        for (uint32_t i = 0; i <= n && i < free.n; i++) {
            struct span p = tokenizer_piece(tok, free.t[i], false);
            for (size_t k = 0; k < p.n; k++) {
                ascii = ascii && (unsigned char)p.p[k] < 0x80;
            }
        }
        assert_true(n == free.n || !ascii);
        assert_true(n > 10);
    }
    engine_grammar_drop(g, 2);
}

static void test_errors(void **state)
{
    (void)state;
    struct err e;
    struct answer a[3];
    struct engine_row r[3];
    assert_int_equal(engine_grammar(g, 3, "{\"gbnf\":\"x\"}", 12, &e),
                     ERR_INVALID);
    assert_int_equal(engine_grammar(g, 1, schema, strlen(schema), &e),
                     ERR_CONFLICT);
    for (uint32_t i = 0; i < 3; i++) {
        static const uint32_t ids[] = {99, 1, 3};
        begin(&a[i], 1, ids[i]);
        r[i] = row_of(&a[i]);
    }
    engine_step_rows(g, r, 3, NULL);
    assert_int_equal(r[0].rc, ERR_NOT_FOUND);
    assert_int_equal(r[1].rc, 0);
    assert_int_equal(r[2].rc, ERR_INVALID);
    take(&a[1], &r[1]);
    /* An answer that its grammar does not have. */
    a[1].t[0] = 100;
    r[1] = row_of(&a[1]);
    engine_step_rows(g, &r[1], 1, NULL);
    assert_int_equal(r[1].rc, ERR_INVALID);
    assert_int_equal(engine_seq_length(a[1].s), N_PROMPT);
    /* Dropped while sequences remember where they were. */
    engine_grammar_drop(g, 1);
    engine_grammar_drop(g, 3);
    r[1] = row_of(&a[1]);
    engine_step_rows(g, &r[1], 1, NULL);
    assert_int_equal(r[1].rc, ERR_NOT_FOUND);
    unit_ok(engine_grammar(g, 1, schema, strlen(schema), &e), &e);
    for (uint32_t i = 0; i < 3; i++) {
        engine_seq_close(a[i].s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid),     cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_beside),    cmocka_unit_test(test_elsewhere),
        cmocka_unit_test(test_any_text),  cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
