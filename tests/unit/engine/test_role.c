/* test_role.c - the engine child over its socket: every frame and its answer,
 * and the exit codes. The child is a fork that runs engine_role on the fake. */
#include <sys/mman.h>

#include "engine/ahead.h"
#include "fake_rows.h"
#include "role_child.h"

/* Stands before the library's own: a LOAD finds the fake. */
const struct backend *backend_find(const char *name)
{
    return strcmp(name, "fake") == 0   ? &fake_backend
           : strcmp(name, "rows") == 0 ? &fake_rows_backend
                                       : NULL;
}

static void send_frame(enum frame_type type)
{
    child_send(type, ++child.request);
}

static struct frame receive(enum frame_type want)
{
    struct frame f;
    struct err e;
    assert_int_equal(frame_read_fd(child.fd, &child.in, &f, &e), 1);
    if (f.type != want) {
        fail_msg("frame %d, wanted %d", (int)f.type, (int)want);
    }
    assert_int_equal(f.request, child.request);
    return f;
}

static void receive_error(int code)
{
    struct frame f = receive(FRAME_ERROR);
    struct msg_error m;
    struct err e;
    unit_ok(msg_error_get(f.payload, f.n, &m, &e), &e);
    if (m.code != code) {
        fail_msg("error %s: %s, wanted %s", err_name(m.code), m.msg,
                 err_name(code));
    }
}

static void send_load(const char *backend)
{
    msg_load_put(&child.b, &(struct msg_load){.bundle = fake_dir, .backend = backend, .threads = 3});
    send_frame(FRAME_LOAD);
}

static void load(const char *backend)
{
    struct err e;
    send_load(backend);
    uint32_t warms = strcmp(backend, "fake") == 0 ? 4 * 4 : 0; /* widths */
    for (uint32_t i = 1; i <= 4 + warms; i++) {
        struct frame f = receive(FRAME_PROGRESS);
        struct msg_progress p;
        unit_ok(msg_progress_get(f.payload, f.n, &p, &e), &e);
        assert_int_equal(p.warms, i > 4);
        assert_int_equal(p.done, p.warms ? i - 4 : i);
        assert_int_equal(p.total, p.warms ? warms : 4);
    }
    struct frame f = receive(FRAME_READY);
    struct msg_ready r;
    unit_ok(msg_ready_get(f.payload, f.n, &r, &e), &e);
    assert_int_equal(r.context, FAKE_S);
    assert_int_equal(r.seqs_max, ENGINE_SEQS_MAX);
}

static void send_seq(enum frame_type type, uint32_t seq, uint32_t from,
                     uint32_t n)
{
    msg_seq_put(&child.b, &(struct msg_seq){seq, from, n});
    send_frame(type);
}

static int setup(void **state)
{
    fake.t_lo = 1;
    fake.t_hi = 4;
    fake.fail_after = -1;
    fake_rows.max = 16;
    int rc = fake_setup(state);
    fake_write_bundle(NULL, NULL, 0);
    return rc;
}

static int32_t greedy_reference(const int32_t *tokens, uint32_t n)
{
    float logits[FAKE_S * FAKE_V];
    fake_reference(tokens, n, logits);
    const float *last = logits + (size_t)(n - 1) * FAKE_V;
    int32_t best = 0;
    for (int32_t i = 1; i < FAKE_V; i++) {
        best = last[i] > last[best] ? i : best;
    }
    return best;
}

/* Two sequences and an unknown one in one step. */
static void step_on(const char *backend)
{
    static int32_t one[] = {1, 2, 3, 4, 5, 6, 7};
    static int32_t two[] = {9, 8};
    struct err e;
    child_start();
    load(backend);
    send_seq(FRAME_SEQ_OPEN, 1000, 0, 0);
    (void)receive(FRAME_OK);
    send_seq(FRAME_SEQ_OPEN, 7, 0, 0);
    (void)receive(FRAME_OK);
    struct msg_row rows[3] = {
        {.seq = 7,    .n_tokens = 7, .tokens = one, .sample = true},
        {.seq = 8,    .n_tokens = 2, .tokens = two, .sample = true},
        {.seq = 1000, .n_tokens = 2, .tokens = two, .sample = true},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        msg_sampling_init(&rows[i].sampling);
    }
    msg_step_put(&child.b, &(struct msg_step){3, rows});
    send_frame(FRAME_STEP);
    struct frame f = receive(FRAME_STEP_DONE);
    struct msg_step_done done;
    unit_ok(msg_step_done_get(f.payload, f.n, &done, &e), &e);
    assert_int_equal(done.n_rows, 3);
    assert_int_equal(done.rows[0].error, 0);
    assert_int_equal(done.rows[0].length, 7);
    assert_int_equal(done.rows[0].tokens[0].id, greedy_reference(one, 7));
    assert_int_equal(done.rows[1].error, ERR_NOT_FOUND);
    assert_int_equal(done.rows[1].seq, 8);
    assert_int_equal(done.rows[2].tokens[0].id, greedy_reference(two, 2));
    assert_true(done.us_total >= done.us_layers);
    msg_step_done_fini(&done);

    send_seq(FRAME_SEQ_FORK, 8, 7, 4);
    (void)receive(FRAME_OK);
    send_seq(FRAME_SEQ_TRUNCATE, 8, 0, 3);
    (void)receive(FRAME_OK);
    rows[1].position = 3;
    rows[1].tokens = one + 3;
    msg_step_put(&child.b, &(struct msg_step){1, rows + 1});
    send_frame(FRAME_STEP);
    f = receive(FRAME_STEP_DONE);
    unit_ok(msg_step_done_get(f.payload, f.n, &done, &e), &e);
    assert_int_equal(done.rows[0].length, 5);
    assert_int_equal(done.rows[0].tokens[0].id, greedy_reference(one, 5));
    msg_step_done_fini(&done);
    send_frame(FRAME_UNLOAD);
    assert_int_equal(child_finish(), 0);
}

static void test_step(void **state)
{
    (void)state;
    step_on("fake");
    step_on("rows");
}

enum { MANY = 40 };

/* As many as a busy daemon has, one of them twice: that row alone is refused.
 */
static void test_many(void **state)
{
    (void)state;
    static struct msg_row rows[MANY + 1];
    static int32_t tokens[MANY][3];
    struct msg_step_done done;
    struct err e;
    child_start();
    load("rows");
    for (uint32_t i = 0; i < MANY; i++) {
        send_seq(FRAME_SEQ_OPEN, i, 0, 0);
        (void)receive(FRAME_OK);
        for (uint32_t k = 0; k < 3; k++) {
            tokens[i][k] = (int32_t)((i + k * k) % FAKE_V);
        }
        rows[i] = (struct msg_row){.seq = i,
                                   .n_tokens = i % 3 + 1,
                                   .tokens = tokens[i],
                                   .sample = i != 7};
        msg_sampling_init(&rows[i].sampling);
    }
    rows[MANY] = rows[20];
    msg_step_put(&child.b, &(struct msg_step){MANY + 1, rows});
    send_frame(FRAME_STEP);
    struct frame f = receive(FRAME_STEP_DONE);
    unit_ok(msg_step_done_get(f.payload, f.n, &done, &e), &e);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(done.rows[i].seq, i);
        assert_int_equal(done.rows[i].error, 0);
        assert_int_equal(done.rows[i].length, i % 3 + 1);
        assert_int_equal(done.rows[i].n_tokens, i != 7);
        if (i != 7) {
            assert_int_equal(done.rows[i].tokens[0].id,
                             greedy_reference(tokens[i], i % 3 + 1));
        }
    }
    assert_int_equal(done.rows[MANY].error, ERR_CONFLICT);
    assert_int_equal(done.rows[MANY].seq, 20);
    assert_int_equal(done.rows[MANY].length, 3);
    msg_step_done_fini(&done);
    send_frame(FRAME_UNLOAD);
    assert_int_equal(child_finish(), 0);
}

enum { STEPS = 25, WAYS = 6 };

/* One greedy token of the sequence, after `n` that it has but for the last. */
static int32_t next_token(uint32_t seq, int32_t *tokens, uint32_t n,
                          uint32_t n_drafts)
{
    struct msg_row row = {.seq = seq,
                          .position = n - 1,
                          .n_tokens = 1,
                          .tokens = tokens + n - 1,
                          .n_drafts = n_drafts, /* wrong ones */
                          .out_index = n - 1,
                          .sample = true};
    struct msg_step_done done;
    struct err e;
    msg_sampling_init(&row.sampling);
    for (uint32_t i = 0; i < n_drafts; i++) {
        row.drafts[i] = (greedy_reference(tokens, n) + 1) % FAKE_V;
    }
    msg_step_put(&child.b, &(struct msg_step){1, &row});
    send_frame(FRAME_STEP);
    struct frame f = receive(FRAME_STEP_DONE);
    unit_ok(msg_step_done_get(f.payload, f.n, &done, &e), &e);
    assert_int_equal(done.n_rows, 1);
    assert_int_equal(done.rows[0].error, 0);
    assert_int_equal(done.rows[0].length, n);
    int32_t id = done.rows[0].tokens[0].id;
    assert_int_equal(id, greedy_reference(tokens, n));
    msg_step_done_fini(&done);
    return id;
}

/* Steps that are predicted are begun before they are sent; whatever is sent
 * instead, and whenever, is answered as ever. */
static void test_early(void **state)
{
    (void)state;
    int32_t tokens[STEPS + 1] = {3};
    atomic_uint *begun = mmap(NULL, sizeof(*begun), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(begun, MAP_FAILED);
    fake_rows.begun = begun;
    for (uint32_t way = 0; way < WAYS; way++) {
        child_start();
        load("rows");
        atomic_store(begun, 0);
        send_seq(FRAME_SEQ_OPEN, 5, 0, 0);
        (void)receive(FRAME_OK);
        uint32_t own = 0; /* steps that were sent */
        for (uint32_t n = 1; n <= STEPS; n++, own++) {
            bool odd = n % 12 == 11; /* the engine is sure again and again */
            if (odd && way == 1) {   /* serve is busy */
                for (int i = 0; i < 20 || (i < 30000 && *begun <= own); i++) {
                    (void)usleep(1000);
                }
            } else if (odd && way == 2) { /* an operation comes first */
                send_seq(FRAME_SEQ_OPEN, 100 + n, 0, 0);
                (void)receive(FRAME_OK);
            } else if (odd && way == 3) { /* it goes back, and says the same */
                send_seq(FRAME_SEQ_TRUNCATE, 5, 0, n - 3);
                (void)receive(FRAME_OK);
                n -= 2;
                (void)next_token(5, tokens, n++, 0);
                (void)next_token(5, tokens, n++, 0);
                own += 2;
            } else if (odd && way == 4) { /* it says something else */
                tokens[n - 1] = (tokens[n - 1] + 1) % FAKE_V;
            }
            tokens[n] =
                next_token(5, tokens, n, odd && way == 5 ? 3 : 0);
        }
        if (way == 0) { /* the last one is begun and never sent */
            for (int i = 0; i < 30000 && atomic_load(begun) <= own; i++) {
                (void)usleep(1000);
            }
        }
        /* what was begun in vain shows that it was begun early */
        assert_true(atomic_load(begun) >= own + (way < 2));
        send_frame(FRAME_UNLOAD);
        assert_int_equal(child_finish(), 0);
    }
    fake_rows.begun = NULL;
    (void)munmap(begun, sizeof(*begun));
}

static void test_errors(void **state)
{
    (void)state;
    child_start();
    send_seq(FRAME_SEQ_OPEN, 1, 0, 0);
    receive_error(ERR_CONFLICT); /* nothing is loaded */
    send_load("abacus");
    receive_error(ERR_UNSUPPORTED);
    load("fake");
    send_load("fake");
    receive_error(ERR_CONFLICT);
    send_seq(FRAME_SEQ_CLOSE, 1, 0, 0);
    receive_error(ERR_NOT_FOUND);
    send_seq(FRAME_SEQ_FORK, 1, 2, 0);
    receive_error(ERR_NOT_FOUND);
    struct msg_state m = {.seq = 9, .n_parts = 1, .parts = {{0, 64, "/x"}}};
    msg_state_put(&child.b, &m);
    send_frame(FRAME_STATE_SAVE);
    receive_error(ERR_NOT_FOUND);
    msg_state_put(&child.b, &m);
    send_frame(FRAME_STATE_LOAD);
    receive_error(ERR_INVALID); /* it has no tokens */
    for (uint32_t i = 0; i < ENGINE_SEQS_MAX; i++) {
        send_seq(FRAME_SEQ_OPEN, i, 0, 0);
        (void)receive(FRAME_OK);
    }
    send_seq(FRAME_SEQ_OPEN, 5, 0, 0);
    receive_error(ERR_CONFLICT);
    send_seq(FRAME_SEQ_OPEN, ENGINE_SEQS_MAX, 0, 0);
    receive_error(ERR_BUSY);
    send_seq(FRAME_SEQ_TRUNCATE, 5, 0, 1);
    receive_error(ERR_INVALID);
    send_seq(FRAME_SEQ_CLOSE, 5, 0, 0);
    (void)receive(FRAME_OK);
    send_seq(FRAME_SEQ_OPEN, ENGINE_SEQS_MAX, 0, 0);
    (void)receive(FRAME_OK);
    (void)shutdown(child.fd, SHUT_WR); /* the parent goes away */
    assert_int_equal(child_finish(), 0);
}

static void test_malformed(void **state)
{
    (void)state;
    child_start(); /* no frame at all */
    assert_int_equal(write(child.fd, "GET / HTTP/1.1\r\n", 16), 16);
    assert_int_equal(child_finish(), EXIT_BUG);
    child_start(); /* a payload that does not decode */
    buf_puts(&child.b, "x");
    send_frame(FRAME_LOAD);
    assert_int_equal(child_finish(), EXIT_BUG);
    child_start(); /* a frame for the other direction */
    send_frame(FRAME_READY);
    assert_int_equal(child_finish(), EXIT_BUG);
    child_start(); /* the channel ends inside a frame */
    assert_int_equal(write(child.fd, "ANF1", 4), 4);
    (void)shutdown(child.fd, SHUT_WR);
    assert_int_equal(child_finish(), EXIT_BUG);
}

/* The predicted step has mirostat's number as serve will send it. */
static void test_predicted_mu(void **state)
{
    (void)state;
    static const struct bundle bundle = {.context = 64};
    int32_t *token = malloc(sizeof(*token)); /* goes to the prediction */
    struct msg_row *row = calloc(1, sizeof(*row));
    struct msg_row_done done = {
        .n_tokens = 1, .tokens = {{.id = 9}}, .length = 5, .mu = -2.75F};
    struct ahead a;
    struct buf b;
    ahead_init(&a);
    buf_init(&b, KIB(1));
    *row = (struct msg_row){
        .position = 4, .n_tokens = 1, .tokens = token, .sample = true};
    *token = 8;
    msg_sampling_init(&row->sampling);
    row->sampling.mirostat = 2;
    row->sampling.mu = 10;
    struct msg_row next = *row;
    next.position = 5;
    next.tokens = &(int32_t){9};
    next.out_index = 1;
    next.sampling.mu = -2.75F;
    msg_step_put(&b, &(struct msg_step){1, &next});
    ahead_note(&a, &(struct msg_step){1, row},
               &(struct msg_step_done){.n_rows = 1, .rows = &done}, &bundle);
    assert_true(ahead_is(&a, b.p, b.n));
    buf_fini(&b);
    ahead_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_predicted_mu), cmocka_unit_test(test_step),
        cmocka_unit_test(test_many),         cmocka_unit_test(test_early),
        cmocka_unit_test(test_errors),       cmocka_unit_test(test_malformed),
    };
    return cmocka_run_group_tests(tests, setup, fake_teardown);
}
