/* test_recurrent.c - a small lfm2 and a small zaya with random weights: the same
 * bits in chunks of any size, after forks, cuts, marks, refused drafts, failures and files, in
 * each form of bundle and by rows and by columns. */
#include "../convert/room.h"
#include "convert/plan.h"
#include "convert/reshard.h"
#include "engine/cpu/backend_cpu.h"
#include "engine/impl.h"
#include "engine/snapshot.h"

#include "../convert/mkfamilies.h" /* its macros are short: after all else */

enum { TEXT = 200, CONTEXT = 256 };

static int32_t text[TEXT];
static float want[TEXT][VOCAB];

static const struct form {
    const char *shape, *kv, *quant, *backend;
    bool rows;
    bool cut; /* some programs have short convolutions alone */
} forms[] = {
    {"ranged",    "state", "fp16", "cpu",         true,  false},
    {"ranged",    "state", "int8", "cpu",         true,  false},
    {"functions", "state", "fp16", "cpu",         true,  false},
    {"ranged",    "host",  "fp16", "cpu",         false, false},
    {"ranged",    "state", "fp16", "interpreter", false, false},
    {"functions", "host",  "int8", "interpreter", false, false},
    {"ranged",    "state", "fp16", "cpu",         true,  true },
    {"ranged",    "state", "fp16", "interpreter", false, true },
};

/* The bundle `name`, divided; its path. */
static const char *divide(const char *name)
{
    static const struct plan plan = {
        .n_shards = 3,
        .shards = {{0, 2}, {2, 3}, {3, 4}},
        .n_heads = 1,
        .heads = {{0, VOCAB}},
    };
    struct convert_options o;
    struct convert_result r;
    struct err e = {0};
    if (!file_exists(at("cut"))) {
        convert_options_init(&o);
        o.bundle = at(name);
        o.out = at("cut");
        o.threads = 2;
        unit_ok(reshard_as(&o, &plan, &r, &e), &e);
        assert_int_equal(r.n_shards, 3);
    }
    return at("cut");
}

static struct engine *open_form(enum family family, const struct form *f)
{
    struct mk m = models[family];
    struct convert_result r;
    struct engine *g = NULL;
    struct err e = {0};
    char name[64];
    m.n_tokens = VOCAB;
    m.context = CONTEXT;
    m.gain = 1.7f;
    (void)snprintf(name, sizeof(name), "%s-%s-%s-%s", m.arch, f->shape, f->kv,
                   f->quant);
    if (!file_exists(at(name))) {
        struct convert_options o = options(write_model(&m, "m.gguf"), at(name));
        o.quant = f->quant;
        o.shape = f->shape;
        o.kv = f->kv;
        o.accept = "quality";
        unit_ok(convert_run(&o, &r, &e), &e);
    }
    const struct engine_conf conf = {.threads = 2, .backend = f->backend};
    unit_ok(engine_open(f->cut ? divide(name) : at(name), &conf, &g, &e), &e);
    assert_true(g->recurrent);
    assert_int_equal(g->rows.max > 0, f->rows);
    for (uint32_t i = 0; i < TEXT; i++) {
        text[i] = (int32_t)((5u + i * i * 7919u) % VOCAB);
    }
    return g;
}

static struct engine_seq *seq_open(struct engine *g)
{
    struct engine_seq *s = NULL;
    struct err e = {0};
    unit_ok(engine_seq_open(g, &s, &e), &e);
    return s;
}

/* Tokens up to `to`, whose logits must be those of the first run. */
static void go(struct engine_seq *s, uint32_t to, uint32_t chunk)
{
    const float *got = NULL;
    struct err e = {0};
    uint32_t from = engine_seq_length(s);
    if (from == to) {
        return;
    }
    unit_ok(engine_eval(s, text + from, to - from, chunk, 2, &got, NULL, &e),
            &e);
    for (uint32_t i = from; i < to; i++, got += VOCAB) {
        if (memcmp(got, want[i], sizeof(want[i])) != 0) {
            fail_msg("row %u of %u to %u, chunks of %u", i, from, to, chunk);
        }
    }
}

/* Tokens that are not the text's, after it. */
static void detour(struct engine_seq *s, uint32_t n)
{
    int32_t other[TEXT];
    struct err e = {0};
    for (uint32_t i = 0; i < n; i++) {
        other[i] = (int32_t)((11 + i * 13) % VOCAB);
    }
    unit_ok(engine_eval(s, other, n, 0, 0, NULL, NULL, &e), &e);
}

static void first_run(struct engine *g)
{
    const float *got = NULL;
    struct err e = {0};
    struct engine_seq *s = seq_open(g);
    for (uint32_t i = 0; i < TEXT; i++) {
        unit_ok(engine_eval(s, text + i, 1, 0, 2, &got, NULL, &e), &e);
        memcpy(want[i], got, sizeof(want[i]));
    }
    engine_seq_close(s);
}

static void check_chunks(struct engine *g)
{
    static const uint32_t chunks[] = {1, 2, 3, 7, 64, 0};
    for (size_t i = 0; i < countof(chunks); i++) {
        struct engine_seq *s = seq_open(g);
        go(s, TEXT, chunks[i]);
        engine_seq_close(s);
    }
}

/* Back to `to` after a detour from `from` on, and on; a fork as well. */
static void check_back(struct engine *g, uint32_t from, uint32_t to, bool keep)
{
    struct err e = {0};
    struct engine_seq *f = NULL;
    struct engine_seq *s = seq_open(g);
    go(s, to, 0);
    if (keep) {
        unit_ok(engine_seq_keep(s, &e), &e);
    }
    go(s, from, 5);
    detour(s, 40);
    assert_int_equal(engine_seq_cut_at(s, to), to);
    unit_ok(engine_seq_fork(s, to, &f, &e), &e);
    unit_ok(engine_seq_truncate(s, to, &e), &e);
    detour(s, 3); /* it does not disturb the fork */
    go(f, TEXT, 3);
    engine_seq_close(f);
    uint32_t at = engine_seq_cut_at(s, to);
    assert_true(g->rows.max == 0 || at == to); /* 3 are still there */
    unit_ok(engine_seq_truncate(s, at, &e), &e);
    go(s, TEXT, 0);
    engine_seq_close(s);
}

/* Where nothing was kept: by rows refused, by columns computed again. */
static void check_nowhere(struct engine *g, bool rows)
{
    struct err e = {0};
    struct engine_seq *f = NULL;
    struct engine_seq *s = seq_open(g);
    go(s, 150, 0);
    if (rows) {
        assert_int_equal(engine_seq_fork(s, 100, &f, &e), ERR_CONFLICT);
        assert_int_equal(engine_seq_truncate(s, 100, &e), ERR_CONFLICT);
        assert_int_equal(engine_seq_cut_at(s, 100), 64);
        go(s, TEXT, 7); /* it did not change */
    } else {
        unit_ok(engine_seq_fork(s, 100, &f, &e), &e);
        go(f, TEXT, 0);
        engine_seq_close(f);
        unit_ok(engine_seq_truncate(s, 100, &e), &e);
        go(s, TEXT, 0);
    }
    engine_seq_close(s);
}

/* Drafts that are refused, as many as may be, at every place of a block. */
static void check_drafts(struct engine *g)
{
    struct engine_seq *s = seq_open(g);
    struct err e = {0};
    for (uint32_t n = 50; n < 140; n += 3) {
        go(s, n, 0);
        struct msg_row_done done;
        int32_t token = text[n];
        struct msg_row row = {.position = n,
                              .n_tokens = 1,
                              .tokens = &token,
                              .n_drafts = ENGINE_DRAFTS_MAX,
                              .sample = true};
        msg_sampling_init(&row.sampling);
        for (uint32_t i = 0; i < ENGINE_DRAFTS_MAX; i++) {
            row.drafts[i] = (int32_t)((n + i * 17) % VOCAB);
        }
        unit_ok(engine_step(s, &row, &done, NULL, &e), &e);
        uint32_t length = engine_seq_length(s);
        msg_row_done_fini(&done);
        assert_int_equal(engine_seq_cut_at(s, n + 1), n + 1);
        unit_ok(engine_seq_truncate(s, n + 1, &e), &e);
        assert_true(length >= n + 1);
    }
    go(s, TEXT, 0);
    engine_seq_close(s);
}

struct failing {
    uint32_t left;
};

static int fail_later(void *ctx, uint32_t first, uint32_t n, float *logits,
                      struct err *e)
{
    struct failing *f = ctx;
    (void)first;
    (void)logits;
    f->left -= f->left < n ? f->left : n;
    return f->left > 0 ? 0 : err_set(e, ERR_CANCELLED, "enough");
}

/* A prompt that ends in the middle: the sequence goes on where it was. */
static void check_failure(struct engine *g)
{
    struct engine_seq *s = seq_open(g);
    struct err e = {0};
    struct failing f = {.left = 100};
    go(s, 37, 0);
    assert_int_equal(engine_eval_rows(s, text + 37, 150, 64, fail_later, &f,
                                      NULL, &e),
                     ERR_CANCELLED);
    assert_int_equal(engine_seq_length(s), 37);
    go(s, TEXT, 0);
    engine_seq_close(s);
}

static void run(struct snapshot *x, struct msg_state_done *done)
{
    struct err e = {0};
    int rc = 0;
    while (rc == 0) {
        rc = snapshot_run(x, 0, &e);
    }
    assert_int_equal(rc, 1);
    snapshot_done(x, done, &e);
}

static void check_file(struct engine *g)
{
    struct engine_seq *s = seq_open(g);
    struct snapshot *x = NULL;
    struct msg_state_done done;
    struct err e = {0};
    const struct msg_state_part part = {0, 128, at("state")};
    go(s, 150, 0);
    unit_ok(snapshot_save(s, &part, &x, &e), &e);
    run(x, &done);
    snapshot_free(x);
    engine_seq_close(s);
    const struct msg_state m = {
        .tokens = text, .n_tokens = TEXT, .n_parts = 1, .parts = {part}};
    unit_ok(snapshot_load(g, &m, &x, &e), &e);
    run(x, &done);
    assert_int_equal(done.n, 128);
    s = snapshot_take(x);
    snapshot_free(x);
    assert_int_equal(engine_seq_cut_at(s, 64), 64);
    go(s, TEXT, 3);
    engine_seq_close(s);
}

/* Forms of fp16 are near to the first one, which is of that type. */
static void check_near(const struct form *f)
{
    static float first[TEXT][VOCAB];
    double off = 0;
    double largest = 0;
    if (f == &forms[0]) {
        memcpy(first, want, sizeof(first));
    }
    for (uint32_t i = 0; strcmp(f->quant, "fp16") == 0 && i < TEXT; i++) {
        for (uint32_t v = 0; v < VOCAB; v++) {
            double d = fabs((double)want[i][v] - (double)first[i][v]);
            off = d > off ? d : off;
            d = fabs((double)first[i][v]);
            largest = d > largest ? d : largest;
        }
    }
    assert_true(off <= 0.01 * largest);
}

static void check_forms(enum family family)
{
    for (size_t i = 0; i < countof(forms); i++) {
        if (forms[i].cut && family != LFM2) {
            continue; /* every program of zaya has attention */
        }
        if (unit_passed_over(i, 3)) {
            continue;
        }
        struct engine *g = open_form(family, &forms[i]);
        struct msg_ready r;
        engine_ready(g, &r);
        assert_true(r.recurrent);
        assert_int_equal(r.block_bytes > 0, forms[i].rows);
        first_run(g);
        check_near(&forms[i]);
        check_chunks(g);
        check_back(g, 100, 100, false); /* its end; then a mark, a block */
        check_back(g, 150, 101, true);
        check_back(g, 150, 64, false);
        check_back(g, 150, 128, false);
        check_nowhere(g, forms[i].rows);
        check_drafts(g);
        check_failure(g);
        check_file(g);
        engine_close(g);
    }
}

static void test_convolutions(void **state)
{
    (void)state;
    check_forms(LFM2);
}

static void test_mixed_heads(void **state)
{
    (void)state;
    check_forms(ZAYA);
}

/* Memory is what READY says, and keys of a model without convolutions cost what
 * they did. */
static void check_memory(enum family family, const struct tail_port *of,
                         size_t n)
{
    struct engine *g = open_form(family, &forms[0]);
    struct msg_ready r;
    engine_ready(g, &r);
    assert_true(r.base_bytes > tails_base_bytes(of, n));
    assert_true(r.block_bytes >= tails_each_bytes(of, n));
    assert_true(r.state_bytes >= r.base_bytes);
    engine_close(g);
}

static void test_memory(void **state)
{
    (void)state;
    const struct tail_port convs[] = {
        {.width = D, .len = TAPS - 1},
        {.width = D, .len = TAPS - 1},
        {.width = D, .len = TAPS - 1}
    };
    struct tail_port mixed[6];
    for (size_t i = 0; i < 6; i += 2) {
        mixed[i] = (struct tail_port){.width = Q + KV,
                                      .len = ZAYA_TAPS + ZAYA_MIX - 2};
        mixed[i + 1] = (struct tail_port){.width = KV / 2, .len = 1};
    }
    check_memory(LFM2, convs, 3);
    check_memory(ZAYA, mixed, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_mixed_heads),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
