/* test_memory.c - a step allocates nothing, and a sequence costs what the
 * engine promises. Linked with --wrap, so that every allocation of ours is
 * counted; the C library's own are not. */
#include <stdatomic.h>

#include "converted.h"
#include "engine/cpu/slab.h"
#include "rss.h"

enum { PROMPT = 200 };

static atomic_uint made; /* the converter has threads */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

void *__wrap_malloc(size_t n)
{
    made++;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    made++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    made++;
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    made++;
    return __real_aligned_alloc(align, n);
}

static char dir[256];

static struct engine *open_demo(void)
{
    char out[512];
    const struct engine_conf conf = {.threads = 2};
    converted_dir(dir, "memory");
    (void)snprintf(out, sizeof(out), "%s/demo", dir);
    return converted_open(converted_demo(), out, NULL, NULL, NULL, &conf);
}

/* One step: n tokens for each of two sequences. Allocations in it. */
static unsigned step(struct engine *g, struct engine_seq *const *s, uint32_t n)
{
    static int32_t tokens[PROMPT];
    static struct msg_row row[2];
    static struct msg_row_done done[2];
    struct engine_row rows[2];
    struct engine_times times = {0};
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)(5 + i % 50);
    }
    for (uint32_t i = 0; i < 2; i++) {
        row[i] = (struct msg_row){.position = engine_seq_length(s[i]),
                                  .n_tokens = n,
                                  .tokens = tokens,
                                  .sample = true};
        msg_sampling_init(&row[i].sampling);
        row[i].sampling.temperature = (float)i;
        rows[i] =
            (struct engine_row){.seq = s[i], .row = &row[i], .done = &done[i]};
    }
    unsigned before = made;
    engine_step_rows(g, rows, 2, &times);
    unsigned after = made;
    for (uint32_t i = 0; i < 2; i++) {
        unit_ok(rows[i].rc, &rows[i].err);
        assert_int_equal(done[i].n_tokens, 1);
    }
    return after - before;
}

/* The pool of KV blocks grows as positions fill, and keeps what it has. */
static void test_a_step_allocates_nothing(void **state)
{
    (void)state;
    struct err e;
    struct engine_seq *s[2];
    struct engine *g = open_demo();
    unsigned before = made;
    for (size_t i = 0; i < 2; i++) {
        unit_ok(engine_seq_open(g, &s[i], &e), &e);
    }
    assert_true(made > before); /* counting works */
    unsigned first = step(g, s, PROMPT);
    print_message("# the first prompt: %u allocations\n", first);
    for (uint32_t n = 1; n < 20; n++) {
        assert_int_equal(step(g, s, 1), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        unit_ok(engine_seq_truncate(s[i], 0, &e), &e);
    }
    assert_int_equal(step(g, s, PROMPT), 0);
    assert_int_equal(step(g, s, 3), 0);
    for (size_t i = 0; i < 2; i++) {
        engine_seq_close(s[i]);
    }
    engine_close(g);
    unit_ok(file_rmtree(dir, &e), &e);
}

static struct engine_seq *full(struct engine *g, uint32_t n)
{
    static int32_t tokens[4096];
    struct engine_seq *s = NULL;
    struct err e;
    assert_in_range(n, 256, countof(tokens));
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)(5 + i % 50);
    }
    unit_ok(engine_seq_open(g, &s, &e), &e);
    unit_ok(engine_eval(s, tokens, n, 0, 0, NULL, NULL, &e), &e);
    return s;
}

/* Full sequences, round after round: each costs at most what READY says, and
 * nothing when it is closed. */
static void test_a_sequence_costs_what_is_promised(void **state)
{
    (void)state;
    enum { SEQS = 16, SLACK = 1 << 20 };
    if (rss_anon() == 0) {
        skip();
    }
    struct err e;
    struct engine_seq *s[SEQS];
    struct msg_ready ready;
    struct engine *g = open_demo();
    engine_ready(g, &ready);
    engine_seq_close(full(g, ready.context)); /* what a first step touches */
    uint64_t before = rss_anon();
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < SEQS; i++) {
            s[i] = full(g, ready.context);
        }
        uint64_t most = SEQS * ready.state_bytes;
        most += UNIT_SANITIZED ? most / 8 : 0; /* AddressSanitizer's shadow */
        uint64_t have = rss_anon() - before;
        print_message("# %u tokens: %llu bytes of %llu promised\n",
                      ready.context, (unsigned long long)have / SEQS,
                      (unsigned long long)ready.state_bytes);
        assert_true(have <= most + SLACK);
        assert_true(have >= most / 2); /* it is no guess */
        for (size_t i = 0; i < SEQS; i++) {
            engine_seq_close(s[i]);
        }
        engine_trim(g);
        assert_true(rss_anon() <= before + SLAB_SPARE + SLACK);
    }
    engine_close(g);
    unit_ok(file_rmtree(dir, &e), &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_allocates_nothing),
        cmocka_unit_test(test_a_sequence_costs_what_is_promised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
