/* test_cache.c - the index of saved states: what covers a prompt, deltas, both
 * budgets, which file is removed first, and which files a start keeps. A
 * function that writes headers plays the engine. */
#include <sys/stat.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "proto/state_file.h"
#include "serve/engines/cache.h"

enum { BLOCK = 1000 };

static char dir[256];
static int32_t tokens[40 * STATE_BLOCK];
static char fingerprint[65];
static const struct cache_key key = {fingerprint, "cpu", "3", false};
static const int64_t START = 1700000000000;

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(dir, sizeof(dir), "%s/aned-cache-XXXXXX",
                   tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    memset(fingerprint, 'f', 64);
    for (size_t i = 0; i < countof(tokens); i++) {
        tokens[i] = (int32_t)i;
    }
    return 0;
}

static const char *budget_file(void)
{
    static char path[300];
    (void)snprintf(path, sizeof(path), "%s.budget", dir);
    return path;
}

static void forget_budget(void)
{
    assert_true(unlink(budget_file()) == 0 || !file_exists(budget_file()));
}

static int teardown(void **state)
{
    (void)state;
    struct err e;
    unit_ok(file_rmtree(dir, &e), &e);
    forget_budget();
    return 0;
}

static struct cache *open_cache(uint64_t bytes_max, uint64_t write_max,
                                int64_t now)
{
    struct cache *c = NULL;
    struct err e;
    const struct cache_conf conf = {.dir = dir,
                                    .bytes_max = bytes_max,
                                    .write_max = write_max,
                                    .tokens_min = STATE_BLOCK};
    unit_ok(cache_open(&conf, now, &c, &e), &e);
    return c;
}

/* What an engine does with a STATE_SAVE. Returns the file's bytes. */
static uint64_t engine_saves(struct cache *c, const struct cache_save *s,
                             const int32_t *t, int64_t now)
{
    struct state_array array = {1, BLOCK};
    uint64_t sums[64] = {0};
    char path[CACHE_PATH_MAX];
    struct err e;
    struct state_file f = {.backend = "cpu",
                           .arith = "3",
                           .from = s->from,
                           .to = s->to,
                           .created_ms = now,
                           .block_bytes = BLOCK,
                           .n_arrays = 1,
                           .tokens = (int32_t *)(uintptr_t)t,
                           .arrays = &array,
                           .sums = sums};
    memcpy(f.fingerprint, fingerprint, sizeof(fingerprint));
    struct buf b;
    buf_init(&b, MIB(1));
    state_file_put(&b, &f);
    assert_non_null(buf_grow(&b, state_blocks(&f) * (size_t)BLOCK));
    assert_true(cache_path(c, s->id, path));
    unit_ok(file_write(path, b.p, b.n, &e), &e);
    uint64_t n = b.n;
    buf_fini(&b);
    cache_saved(c, s->id, n);
    return n;
}

/* n tokens of t, used and saved at `now`. Positions saved; 0: none. */
static uint32_t keep(struct cache *c, const int32_t *t, uint32_t n, int64_t now)
{
    struct cache_save s;
    if (cache_plan(c, &key, t, n, BLOCK, now, now, &s) != 1) {
        return 0;
    }
    (void)engine_saves(c, &s, t, now);
    return s.to - s.from;
}

static uint32_t covers(struct cache *c, const int32_t *t, uint32_t n)
{
    struct cache_hit h;
    cache_find(c, &key, t, n, &h);
    uint32_t at = 0;
    for (uint32_t i = 0; i < h.n_parts; i++) { /* no gaps */
        char path[CACHE_PATH_MAX];
        assert_int_equal(h.parts[i].from, at);
        assert_true(cache_path(c, h.parts[i].id, path) && file_exists(path));
        at = h.parts[i].to;
    }
    assert_int_equal(h.n, at);
    return h.n;
}

static void test_deltas(void **state)
{
    (void)state;
    struct cache *c = open_cache(MIB(1), MIB(100), START);
    assert_int_equal(keep(c, tokens, 63, START), 0); /* not a block */
    assert_int_equal(keep(c, tokens, 200, START), 192);
    assert_int_equal(keep(c, tokens, 210, START), 0); /* it is there */
    assert_int_equal(covers(c, tokens, 1000), 192);
    assert_int_equal(covers(c, tokens, 191), 128);
    assert_int_equal(keep(c, tokens, 500, START), 448 - 192);
    assert_int_equal(covers(c, tokens, 1000), 448);
    /* another timeline takes part of the first file and its own end */
    int32_t fork[640];
    memcpy(fork, tokens, sizeof(fork));
    fork[130] = -1;
    assert_int_equal(covers(c, fork, 640), 128);
    assert_int_equal(keep(c, fork, 640, START), 640 - 128);
    assert_int_equal(covers(c, fork, 640), 640);
    assert_int_equal(covers(c, tokens, 640), 448);
    /* a planned file is neither found nor planned again */
    struct cache_save s;
    struct cache_save t;
    assert_int_equal(cache_plan(c, &key, tokens, 640, BLOCK, START, START, &s),
                     1);
    assert_int_equal(cache_plan(c, &key, tokens, 640, BLOCK, START, START, &t),
                     0);
    assert_int_equal(covers(c, tokens, 640), 448);
    cache_saved(c, s.id, 0); /* the engine could not */
    assert_int_equal(covers(c, tokens, 640), 448);
    assert_int_equal(keep(c, tokens, 640, START), 192);
    /* of something else */
    struct cache_hit h;
    const struct cache_key other[] = {
        {fingerprint, "cpu",         "4", false},
        {fingerprint, "interpreter", "3", false},
        {"ffff",      "cpu",         "3", false},
        {fingerprint, "cpu",         "3", true }
    };
    for (size_t i = 0; i < countof(other); i++) {
        cache_find(c, &other[i], tokens, 640, &h);
        assert_int_equal(h.n, 0);
    }
    cache_forget(c, fingerprint);
    assert_int_equal(covers(c, tokens, 640), 0);
    cache_free(c);
}

/* Many small files of one timeline become one; the small ones go. */
static void test_compaction(void **state)
{
    (void)state;
    struct cache *c = open_cache(MIB(10), MIB(100), START);
    struct cache_stats st;
    for (uint32_t i = 1; i <= CACHE_COMPACT; i++) {
        assert_int_equal(keep(c, tokens, i * STATE_BLOCK, START + i),
                         STATE_BLOCK);
    }
    uint32_t n = (CACHE_COMPACT + 1) * STATE_BLOCK;
    assert_int_equal(keep(c, tokens, n, START + 100), n);
    cache_get_stats(c, &st);
    assert_int_equal(st.files, 1);
    assert_int_equal(covers(c, tokens, n), n);
    cache_forget(c, fingerprint);
    cache_free(c);
}

static int32_t *other_text(int32_t i)
{
    static int32_t t[20][192];
    for (int32_t k = 0; k < 192; k++) {
        t[i][k] = 1000 * (i + 1) + k;
    }
    return t[i];
}

static void test_bytes(void **state)
{
    (void)state;
    const uint64_t five = (uint64_t)5 * 4200 * CACHE_SPARE / (CACHE_SPARE - 1);
    struct cache *c = open_cache(five, MIB(100), START); /* five files */
    struct cache_stats st;
    for (int32_t i = 0; i < 12; i++) {
        assert_int_equal(keep(c, other_text(i), 192, START + i), 192);
        cache_get_stats(c, &st);
        assert_true(st.bytes <= 5 * 4200);
        if (i >= 2) { /* used again and again */
            struct cache_hit h;
            cache_find(c, &key, other_text(2), 192, &h);
            cache_loaded(c, &h, h.n, 0, 1, START + i + 1);
        }
    }
    assert_int_equal(covers(c, other_text(2), 192), 192);
    assert_int_equal(covers(c, other_text(11), 192), 192);
    assert_int_equal(covers(c, other_text(7), 192), 0);
    assert_int_equal(st.evicted_files, 7);
    /* what was used before all of them does not push any out */
    struct cache_save s;
    assert_int_equal(
        cache_plan(c, &key, other_text(0), 192, BLOCK, START, START + 50, &s),
        0);
    /* and what is pinned stays longest */
    cache_pin(c, "ses_1", fingerprint, other_text(9), 192);
    for (int32_t i = 12; i < 20; i++) {
        assert_int_equal(keep(c, other_text(i), 192, START + 100 + i), 192);
    }
    assert_int_equal(covers(c, other_text(9), 192), 192);
    cache_pin(c, "ses_1", fingerprint, NULL, 0);
    assert_int_equal(keep(c, other_text(0), 192, START + 200), 192);
    assert_int_equal(covers(c, other_text(9), 192), 0);
    cache_forget(c, fingerprint);
    cache_free(c);
}

static uv_sem_t gate;

static void wait_at_gate(struct work *w)
{
    (void)w;
    uv_sem_wait(&gate);
}

static void nothing(struct work *w)
{
    (void)w;
}

static void on_closed(void *ctx)
{
    *(bool *)ctx = true;
}

/* The file thread is held up (a slow disk): what it has not removed yet takes
 * its bytes, and nobody writes into them. */
static void test_bytes_until_removed(void **state)
{
    (void)state;
    enum { FILES = 16 };
    struct work held = {.run = wait_at_gate, .done = nothing};
    struct cache_conf conf = {.dir = dir,
                              .bytes_max = (uint64_t)FILES * 4200,
                              .write_max = MIB(100),
                              .tokens_min = STATE_BLOCK};
    struct cache *c = NULL;
    struct cache_stats st;
    struct err e;
    uv_loop_t loop;
    bool closed = false;
    int32_t saved = 0;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_sem_init(&gate, 0), 0);
    conf.files = workq_new(&loop, 100);
    unit_ok(cache_open(&conf, START, &c, &e), &e);
    while (saved < 14 && keep(c, other_text(saved), 192, START + saved) > 0) {
        saved++;
    }
    assert_int_equal(saved, 14); /* seven eighths */
    cache_get_stats(c, &st);
    assert_int_equal(st.evicted_files, 0);
    assert_int_equal(workq_put(conf.files, &held), 0);
    for (int k = 0; k < 3; k++) { /* two have room while two are removed */
        uint32_t n = keep(c, other_text(saved), 192, START + saved);
        assert_int_equal(n, k < 2 ? 192 : 0);
        saved += n > 0;
        cache_get_stats(c, &st);
        assert_true(st.bytes <= conf.bytes_max);
        assert_in_range(file_tree_bytes(dir), 58000, conf.bytes_max);
    }
    uv_sem_post(&gate);
    while (workq_depth(conf.files) > 0) {
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    cache_get_stats(c, &st);
    assert_int_equal(st.bytes, file_tree_bytes(dir));
    assert_int_equal(keep(c, other_text(saved), 192, START + saved), 192);
    cache_forget(c, fingerprint);
    workq_close(conf.files, on_closed, &closed);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(closed);
    cache_get_stats(c, &st);
    assert_int_equal(st.bytes, 0);
    assert_int_equal(file_tree_bytes(dir), 0);
    cache_free(c);
    uv_sem_destroy(&gate);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* In no hour more than the budget, whenever it begins. */
static void test_writes(void **state)
{
    (void)state;
    enum { MINUTES = 240 };
    const uint64_t budget = 100000;
    uint64_t wrote[MINUTES] = {0};
    struct cache *c = open_cache(MIB(100), budget, START);
    for (int m = 0; m < MINUTES; m++) {
        int64_t now = START + (int64_t)m * 60000;
        for (int32_t k = 0; k < 3; k++) {
            struct cache_stats a;
            struct cache_stats b;
            tokens[0] = m * 3 + k;
            cache_get_stats(c, &a);
            (void)keep(c, tokens, 640, now);
            cache_get_stats(c, &b);
            wrote[m] += b.saved_bytes - a.saved_bytes;
        }
        if (m == 100) { /* a restart gives no new budget */
            cache_free(c);
            c = open_cache(MIB(100), budget, now);
        }
    }
    uint64_t all = 0;
    for (int m = 0; m + 60 <= MINUTES; m++) {
        uint64_t hour = 0;
        for (int k = 0; k < 60; k++) {
            hour += wrote[m + k];
        }
        assert_true(hour <= budget);
        all += wrote[m];
    }
    assert_true(all > budget); /* it is used, too */
    tokens[0] = 0;
    cache_forget(c, fingerprint);
    cache_free(c);
    c = open_cache(MIB(1), 0, START);
    assert_int_equal(keep(c, tokens, 640, START), 0);
    cache_free(c);
}

/* Chats that grow turn by turn, two minutes of think time each, for six hours:
 * deltas, timelines saved anew, new chats, a night, a restart. In any stretch of time
 * at most half the budget and what came in meanwhile is written; in no hour,
 * across the restart too, more than the budget. */
static void test_chats(void **state)
{
    (void)state;
    enum { CHATS = 8, HOUR = 30, TURNS = 6 * HOUR, TURN_MS = 120000 };
    const double half = 30000;
    static int32_t said[CHATS][countof(tokens)];
    uint32_t n[CHATS] = {0};
    uint64_t wrote[TURNS] = {0};
    struct cache *c = open_cache(MIB(100), 2 * (uint64_t)half, START);
    struct cache_stats st;
    double all = 0;
    double least = 0; /* written until then, less what came in */
    uint32_t seed = 1;
    int64_t day = 0; /* when it began, after START */
    for (int turn = 0; turn < TURNS; turn++) {
        day += turn == TURNS / 4 ? 12 * CACHE_WINDOW_MS : 0;
        for (int32_t k = 0; k < CHATS; k++) {
            int64_t at = day + (int64_t)turn * TURN_MS + k * (TURN_MS / CHATS);
            seed = seed * 1664525u + 1013904223u;
            uint32_t more = 40 + (seed >> 24);
            n[k] = n[k] + more > countof(tokens) ? 0 : n[k]; /* another chat */
            for (uint32_t i = 0; i < more; i++) {
                said[k][n[k] + i] = (int32_t)(seed >> 8) + k;
            }
            n[k] += more;
            cache_get_stats(c, &st);
            uint64_t before = st.saved_bytes;
            (void)keep(c, said[k], n[k], START + at);
            cache_get_stats(c, &st);
            wrote[turn] += st.saved_bytes - before;
            double came = half * (double)at / CACHE_WINDOW_MS;
            least = all - came < least ? all - came : least;
            all += (double)(st.saved_bytes - before);
            assert_true(turn > TURNS / 2 || all - came - least <= half);
        }
        if (turn == TURNS / 2) {
            assert_true(st.refused_budget > 0 && st.saved_files > 10);
            cache_free(c);
            c = open_cache(MIB(100), 2 * (uint64_t)half,
                           START + day + (int64_t)(turn + 1) * TURN_MS);
        }
    }
    for (int turn = TURNS / 4; turn + HOUR <= TURNS; turn++) { /* no night */
        uint64_t hour = 0;
        for (int i = 0; i < HOUR; i++) {
            hour += wrote[turn + i];
        }
        assert_true((double)hour <= 2 * half);
    }
    assert_true(st.refused_budget > 0);
    assert_true(all > 4 * half); /* it is used, too */
    cache_forget(c, fingerprint);
    cache_free(c);
}

/* Bytes that may be written at `now`, to a block. */
static uint64_t left(struct cache *c, int64_t now)
{
    static int32_t n = 2000000; /* no text is asked about twice */
    uint32_t most = 0;
    for (uint32_t blocks = 40; blocks > 0 && most == 0; blocks--) {
        struct cache_save s;
        tokens[0] = n++;
        if (cache_plan(c, &key, tokens, blocks * STATE_BLOCK, BLOCK, now, now,
                       &s) == 1) {
            most = blocks;
            cache_saved(c, s.id, 0); /* it is charged nevertheless */
        }
    }
    return most;
}

/* What was written counts for its hour, whether it is still there or not: it
 * was evicted, its model deleted, the folder emptied by hand; and it does not
 * count twice. */
static void test_writes_are_remembered(void **state)
{
    (void)state;
    enum { RESTARTS = 6 };
    const uint64_t half = 30000;
    const int64_t minute = CACHE_WINDOW_MS / 60;
    struct err e;
    for (int way = 0; way < 3; way++) {
        uint64_t wrote = 0;
        int64_t now = START;
        for (int i = 0; i < RESTARTS; i++, now += minute) {
            struct cache *c = open_cache(MIB(1), 2 * half, now);
            struct cache_stats st;
            for (int32_t k = 0; k < 20; k++) {
                tokens[0] = 1000 * (i + 1) + k;
                (void)keep(c, tokens, 192, now);
            }
            cache_get_stats(c, &st);
            wrote += st.saved_bytes;
            if (way == 0) {
                cache_forget(c, fingerprint);
            }
            cache_free(c);
            if (way == 1) {
                unit_ok(file_rmtree(dir, &e), &e);
                assert_int_equal(mkdir(dir, 0700), 0);
            }
        }
        assert_in_range(wrote, half * 3 / 4, half + half * RESTARTS / 60);
        /* nothing at all would be left by the files as well, when they stay */
        struct cache *c = open_cache(MIB(1), 2 * half, now);
        /* less than a text of three blocks, and what a minute adds */
        assert_true(left(c, now) <= 3);
        cache_forget(c, fingerprint);
        assert_true(left(c, now + CACHE_WINDOW_MS) > 20); /* an hour later */
        cache_free(c);
        forget_budget();
    }
}

/* A restart takes nothing either; what cannot be read is made up from files. */
static void test_budget_file(void **state)
{
    (void)state;
    const char *bad[] = {"", "aned-budget 1", "aned-budget 1 nan bytes at 1 ms",
                         ("aned-budget 1 9000000 bytes at 99999999999999 ms up "
                          "to 0000000000000000\n")};
    struct err e;
    struct stat st;
    struct cache *c = open_cache(MIB(1), 60000, START);
    assert_int_equal(keep(c, tokens, 640, START), 640);
    for (int i = 0; i < 20; i++) { /* would be charged once more each time */
        cache_free(c);
        c = open_cache(MIB(1), 60000, START + 1);
    }
    assert_int_equal(stat(budget_file(), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    int32_t *t = other_text(3);
    assert_int_equal(keep(c, t, 192, START + 1), 192);
    uint64_t n = left(c, START + 1);
    assert_in_range(n, 9, 14); /* of 30000 less two files */
    cache_free(c);
    for (size_t i = 0; i < countof(bad); i++) {
        unit_ok(file_write(budget_file(), bad[i], strlen(bad[i]), &e), &e);
        c = open_cache(MIB(1), 60000, START + 2);
        assert_in_range(left(c, START + 2), 9, 14);
        cache_free(c);
    }
    /* an older one: what was saved since then is charged by its files */
    char text[200] = {0};
    c = open_cache(MIB(1), 60000, START + 3);
    cache_forget(c, fingerprint);
    cache_free(c);
    forget_budget();
    c = open_cache(MIB(1), 60000, START + 3);
    tokens[0] = 0;
    assert_int_equal(keep(c, tokens, 640, START + 3), 640);
    FILE *f = fopen(budget_file(), "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof(text) - 1, f) > 20);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(keep(c, other_text(4), 192, START + 4), 192);
    cache_free(c);
    unit_ok(file_write(budget_file(), text, strlen(text), &e), &e);
    c = open_cache(MIB(1), 60000, START + 4);
    assert_in_range(left(c, START + 4), 1, 10);
    cache_forget(c, fingerprint);
    cache_free(c);
}

static void test_start(void **state)
{
    (void)state;
    char path[CACHE_PATH_MAX];
    struct err e;
    struct cache_hit h;
    struct cache *c = open_cache(MIB(1), MIB(100), START);
    assert_int_equal(keep(c, tokens, 320, START), 320);
    assert_int_equal(keep(c, other_text(1), 192, START), 192);
    assert_int_equal(keep(c, other_text(2), 192, START), 192);
    cache_find(c, &key, other_text(1), 192, &h);
    assert_true(cache_path(c, h.parts[0].id, path));
    cache_free(c);
    unit_ok(file_write(path, "damaged", 7, &e), &e);
    (void)snprintf(path, sizeof(path), "%s/0000000000000001.state.part", dir);
    unit_ok(file_write(path, "x", 1, &e), &e);
    c = open_cache(MIB(1), MIB(100), START + 1000);
    assert_int_equal(covers(c, tokens, 320), 320);
    assert_int_equal(covers(c, other_text(1), 192), 0);
    assert_int_equal(covers(c, other_text(2), 192), 192);
    assert_false(file_exists(path));
    /* found damaged by an engine */
    cache_find(c, &key, other_text(2), 192, &h);
    cache_loaded(c, &h, 0, 1, 0, START + 2000);
    assert_int_equal(covers(c, other_text(2), 192), 0);
    cache_free(c);
    /* a smaller bound */
    c = open_cache(100, MIB(100), START + 3000);
    assert_int_equal(covers(c, tokens, 320), 0);
    cache_free(c);
}

/* A reload: other limits, and what is there stays or goes by them. */
static void test_other_limits(void **state)
{
    (void)state;
    struct cache *c = open_cache(MIB(1), MIB(100), START);
    struct cache_stats st;
    for (int32_t i = 0; i < 8; i++) {
        assert_int_equal(keep(c, other_text(i), 192, START + i), 192);
    }
    struct cache_conf conf = {.bytes_max = (uint64_t)3 * 4200 * CACHE_SPARE /
                                           (CACHE_SPARE - 1),
                              .write_max = MIB(100),
                              .tokens_min = 256};
    cache_set_conf(c, &conf, START + 10);
    cache_get_stats(c, &st);
    assert_true(st.bytes <= (uint64_t)3 * 4200);
    assert_int_equal(st.files, 3);
    assert_int_equal(covers(c, other_text(7), 192), 192); /* the newest */
    assert_int_equal(covers(c, other_text(0), 192), 0);
    assert_int_equal(keep(c, other_text(8), 192, START + 20), 0); /* short */
    conf.tokens_min = STATE_BLOCK;
    conf.write_max = 0;
    cache_set_conf(c, &conf, START + 30);
    assert_int_equal(keep(c, other_text(8), 192, START + 40), 0);
    conf.write_max = MIB(100); /* half of the budget comes back in the hour */
    cache_set_conf(c, &conf, START + 50);
    assert_int_equal(keep(c, other_text(8), 192, START + 60), 0);
    assert_int_equal(keep(c, other_text(8), 192, START + CACHE_WINDOW_MS), 192);
    cache_forget(c, fingerprint);
    cache_free(c);
}

static int before(void **state)
{
    (void)state;
    forget_budget();
    return 0;
}

#define T(fn) cmocka_unit_test_setup(fn, before)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_deltas), T(test_compaction), T(test_bytes),
        T(test_bytes_until_removed),
        T(test_writes), T(test_chats), T(test_writes_are_remembered),
        T(test_budget_file), T(test_start), T(test_other_limits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
