/* test_warm.c - one engine's sequences to disk and back. The scheduler, the
 * cache and the loop are real; the engine is this test: it looks at the frames
 * and answers them. */
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "proto/state_file.h"
#include "serve/engines/warm.h"
#include "serve/server.h"

enum { BLOCK = 1000, N = 4 * STATE_BLOCK, SEQS = 3 };

static char fingerprint[65];
static int32_t text_a[N], text_b[N];

struct sent {
    enum frame_type type;
    uint32_t request, seq;
    uint32_t to;       /* of the last part */
    size_t n_parts;
    char path[CACHE_PATH_MAX]; /* of the first */
};

static struct {
    char dir[64], states[96];
    uv_loop_t loop;
    struct sched s;
    struct cache *cache;
    struct warm *w;
    struct sent sent[16];
    size_t n_sent;
    unsigned flushed, went_on;
} t;

static void on_send(void *ctx, enum frame_type type, uint32_t request,
                    const struct buf *b)
{
    (void)ctx;
    struct sent *f = &t.sent[t.n_sent++];
    assert_true(t.n_sent <= countof(t.sent));
    *f = (struct sent){.type = type, .request = request};
    if (type == FRAME_SEQ_CLOSE) {
        return;
    }
    struct msg_state m = {0};
    struct err e = {0};
    unit_ok(msg_state_get(b->p, b->n, &m, &e), &e);
    f->seq = m.seq;
    f->n_parts = m.n_parts;
    if (m.n_parts > 0) {
        f->to = m.parts[m.n_parts - 1].to;
        (void)snprintf(f->path, sizeof(f->path), "%s", m.parts[0].path);
    }
    msg_state_fini(&m);
}

static void on_flushed(void *ctx)
{
    (void)ctx;
    t.flushed++;
}

static void on_wait(struct warm_wait *x)
{
    (void)x;
    t.went_on++;
}

static int setup(void **state)
{
    (void)state;
    struct err e = {0};
    memset(&t, 0, sizeof(t));
    memset(fingerprint, 'f', 64);
    for (int i = 0; i < N; i++) {
        text_a[i] = i;
        text_b[i] = 100000 + i;
    }
    (void)snprintf(t.dir, sizeof(t.dir), "/tmp/aned-warm-XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    assert_true(file_join(t.states, sizeof(t.states), t.dir, "states"));
    unit_ok(file_mkdirs(t.states, 0700, &e), &e);
    assert_int_equal(uv_loop_init(&t.loop), 0);
    const struct cache_conf c = {.dir = t.states,
                                 .bytes_max = MIB(8),
                                 .write_max = MIB(8),
                                 .tokens_min = STATE_BLOCK};
    unit_ok(cache_open(&c, server_unix_ms(), &t.cache, &e), &e);
    const struct sched_conf sc = {.rows_seq = 512,
                                  .rows_step = 512,
                                  .seqs = SEQS,
                                  .running = SEQS,
                                  .queue = 4,
                                  .context = N + 64};
    sched_init(&t.s, &sc);
    const struct warm_conf wc = {.loop = &t.loop,
                                 .cache = t.cache,
                                 .fingerprint = fingerprint,
                                 .backend = "cpu",
                                 .gain_min = STATE_BLOCK,
                                 .sched = &t.s,
                                 .send = on_send,
                                 .flushed = on_flushed};
    t.w = warm_new(&wc);
    const struct msg_ready r = {
        .context = N + 64, .state_bytes = 5 * BLOCK, .arith = "3"};
    warm_up(t.w, &r);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct err e = {0};
    warm_down(t.w);
    sched_lost(&t.s);
    warm_release(t.w);
    warm_free(t.w);
    sched_fini(&t.s);
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&t.loop), 0);
    cache_free(t.cache);
    unit_ok(file_rmtree(t.dir, &e), &e);
    return 0;
}

/* n tokens of a text stand in the engine, and nobody owns them. */
static void compute(const int32_t *text, uint32_t n)
{
    struct sched_stream x = {
        .prompt = text, .n_prompt = n, .compute_only = true};
    const struct sched_plan *p = NULL;
    assert_int_equal(sched_add(&t.s, &x, server_now_us()), 0);
    while ((p = sched_next(&t.s, server_now_us())) != NULL) {
        if (p->n_rows > 0) {
            sched_done(&t.s, 1000, server_now_us());
        }
    }
    sched_remove(&t.s, &x, server_now_us());
}

/* The engine writes the file of a STATE_SAVE, as far as the cache looks at it,
 * and says so. */
static void engine_saves(const struct sent *f, const int32_t *text)
{
    struct state_array array = {1, BLOCK};
    uint64_t sums[64] = {0};
    struct err e = {0};
    struct state_file h = {.backend = "cpu",
                           .arith = "3",
                           .to = f->to,
                           .created_ms = server_unix_ms(),
                           .block_bytes = BLOCK,
                           .n_arrays = 1,
                           .tokens = (int32_t *)(uintptr_t)text,
                           .arrays = &array,
                           .sums = sums};
    assert_int_equal(f->type, FRAME_STATE_SAVE);
    memcpy(h.fingerprint, fingerprint, sizeof(fingerprint));
    struct buf b;
    buf_init(&b, MIB(1));
    state_file_put(&b, &h);
    assert_non_null(buf_grow(&b, state_blocks(&h) * (size_t)BLOCK));
    unit_ok(file_write(f->path, b.p, b.n, &e), &e);
    const struct msg_state_done m = {.n = f->to, .bytes = b.n};
    buf_fini(&b);
    warm_answer(t.w, f->request, &m);
}

static void a_flush_saves_what_is_warm(void **state)
{
    (void)state;
    assert_false(warm_flush(t.w)); /* nothing is */
    compute(text_a, N);
    compute(text_b, N);
    assert_true(warm_flush(t.w));
    assert_int_equal(t.n_sent, 2);
    assert_int_not_equal(t.sent[0].seq, t.sent[1].seq);
    assert_int_not_equal(t.sent[0].request, t.sent[1].request);
    assert_int_equal(t.sent[0].to, N); /* whole blocks */
    engine_saves(&t.sent[0], text_b);  /* the one used last goes first */
    assert_int_equal(t.flushed, 0);
    engine_saves(&t.sent[1], text_a);
    assert_int_equal(t.flushed, 1);
    assert_false(warm_flush(t.w)); /* it is all there */
    struct cache_stats c = {0};
    cache_get_stats(t.cache, &c);
    assert_int_equal(c.files, 2);
}

/* A save that fails leaves no file, and flushed() is called all the same. */
static void a_failed_save_ends_the_flush(void **state)
{
    (void)state;
    compute(text_a, N);
    assert_true(warm_flush(t.w));
    assert_int_equal(t.n_sent, 1);
    warm_answer(t.w, t.sent[0].request, NULL);
    assert_int_equal(t.flushed, 1);
    struct cache_stats c = {0};
    cache_get_stats(t.cache, &c);
    assert_int_equal(c.files, 0);
}

static void save_a(void)
{
    compute(text_a, N);
    assert_true(warm_flush(t.w));
    engine_saves(&t.sent[0], text_a);
    t.n_sent = 0;
}

/* Two prompts with one beginning: one load, and both continue. */
static void a_load_serves_all_who_wait_for_it(void **state)
{
    (void)state;
    save_a();
    struct warm_wait x = {.tokens = text_a, .n = N, .fn = on_wait};
    assert_int_equal(warm_want(t.w, &x), 0); /* a sequence has it */
    warm_down(t.w);
    sched_lost(&t.s);
    const struct msg_ready r = {
        .context = N + 64, .state_bytes = 5 * BLOCK, .arith = "3"};
    warm_up(t.w, &r);
    struct warm_wait y = {.tokens = text_a, .n = N - 1, .fn = on_wait};
    struct warm_wait z = {.tokens = text_b, .n = N, .fn = on_wait};
    assert_int_equal(warm_want(t.w, &x), 1);
    assert_int_equal(warm_want(t.w, &y), 1);
    assert_int_equal(warm_want(t.w, &z), 0); /* no file has it */
    warm_next(t.w);
    warm_next(t.w); /* one load at a time */
    assert_int_equal(t.n_sent, 1);
    assert_int_equal(t.sent[0].type, FRAME_STATE_LOAD);
    assert_int_equal(t.went_on, 0);
    const struct msg_state_done m = {.n = t.sent[0].to, .bytes = 3 * BLOCK};
    warm_answer(t.w, t.sent[0].request, &m);
    assert_int_equal(t.went_on, 2);
    assert_false(x.waits || y.waits);
    assert_int_equal(sched_warm(&t.s), 1);
    /* the last token is computed, so the last block is not loaded */
    assert_int_equal(t.sent[0].to, N - STATE_BLOCK);
}

/* A load that gives no positions, and an engine that dies during one: the
 * prompts that waited continue without it. */
static void a_failed_load_keeps_nobody(void **state)
{
    (void)state;
    save_a();
    warm_down(t.w);
    sched_lost(&t.s);
    const struct msg_ready r = {
        .context = N + 64, .state_bytes = 5 * BLOCK, .arith = "3"};
    warm_up(t.w, &r);
    struct warm_wait x = {.tokens = text_a, .n = N, .fn = on_wait};
    assert_int_equal(warm_want(t.w, &x), 1);
    warm_next(t.w);
    assert_int_equal(t.n_sent, 1);
    warm_down(t.w); /* during the load */
    sched_lost(&t.s);
    assert_true(x.waits); /* for the next engine */
    warm_up(t.w, &r);
    warm_next(t.w);
    assert_int_equal(t.n_sent, 2);
    warm_answer(t.w, t.sent[1].request, NULL);
    assert_int_equal(t.went_on, 1);
    assert_null(sched_next(&t.s, server_now_us())); /* takes the place back */
    assert_int_equal(sched_warm(&t.s), 0);
    /* no engine comes any more */
    struct warm_wait y = {.tokens = text_a, .n = N, .fn = on_wait};
    assert_int_equal(warm_want(t.w, &y), 1);
    warm_down(t.w);
    sched_lost(&t.s);
    warm_release(t.w);
    assert_int_equal(t.went_on, 2);
    assert_false(y.waits);
}

static void nothing_is_saved_of_a_discarded_model(void **state)
{
    (void)state;
    compute(text_a, N);
    warm_discard(t.w);
    assert_false(warm_flush(t.w));
    /* nor what a sequence loses */
    compute(text_b, N);
    compute(text_b + 1, N - 1);
    compute(text_b + 2, N - 2);
    assert_int_equal(t.n_sent, 0);
}

/* A sequence that loses its place is saved before the engine hears of it. */
static void what_is_about_to_go_is_saved(void **state)
{
    (void)state;
    compute(text_a, N);
    compute(text_b, N);
    compute(text_b + 1, N - 1);
    assert_int_equal(t.n_sent, 0);
    compute(text_b + 2, N - 2); /* of the three the oldest goes */
    assert_int_equal(t.n_sent, 1);
    assert_int_equal(t.sent[0].type, FRAME_STATE_SAVE);
    engine_saves(&t.sent[0], text_a);
    struct cache_stats c = {0};
    cache_get_stats(t.cache, &c);
    assert_int_equal(c.saved_files, 1);
    assert_int_equal(t.n_sent, 4); /* nothing runs: the others too */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_flush_saves_what_is_warm),
        TEST(a_failed_save_ends_the_flush),
        TEST(a_load_serves_all_who_wait_for_it),
        TEST(a_failed_load_keeps_nobody),
        TEST(nothing_is_saved_of_a_discarded_model),
        TEST(what_is_about_to_go_is_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
