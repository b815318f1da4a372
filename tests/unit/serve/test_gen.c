/* Requests whose text is still being made into tokens while something happens
 * to their engine: the real models, store and text thread, and the fake engine
 * as a child. The text thread stands at a gate, so that the order of events is
 * the test's own and no clock's. */
#include <sys/wait.h>

#include "home.h"
#include "sched/shed.h"
#include "serve/engines/cache.h"
#include "serve/gen/gen.h"

#define OUT     6u   /* tokens of an answer */
#define LETTERS 200u /* of a prompt: as many tokens, and BOS */

/* The text thread waits in it. */
struct gate {
    struct work work;
    uv_sem_t open;
    bool closed;
};

struct answer {
    struct gen *gen; /* until it is over */
    int32_t out[OUT];
    uint32_t n;
    bool over;
    int rc;
    struct err e;
};

static struct {
    struct model *m;
    struct gate gate;
    struct answer first, late, again;
} t;

/* --- the server --- */

static void write_fake(const char *text)
{
    home_write("models/m/fake", text);
}

static int setup(void **state)
{
    struct err e = {0};
    memset(&t, 0, sizeof(t));
    assert_int_equal(home_up(state), 0);
    h.s.conf.cache_disk_tokens = STATE_BLOCK;
    assert_true(file_join(h.s.home.states, HOME_PATH_MAX, h.dir, "states"));
    unit_ok(file_mkdirs(h.s.home.states, 0700, &e), &e);
    const struct cache_conf c = {.dir = h.s.home.states,
                                 .bytes_max = MIB(1),
                                 .write_max = MIB(1),
                                 .tokens_min = STATE_BLOCK};
    unit_ok(cache_open(&c, server_unix_ms(), &h.s.cache, &e), &e);
    t.m = models_find(h.s.models, "m");
    assert_non_null(t.m);
    return 0;
}

/* Also of a test that failed in the middle. */
static int teardown(void **state)
{
    struct answer *all[] = {&t.first, &t.late, &t.again};
    if (t.gate.closed) {
        uv_sem_post(&t.gate.open);
    }
    for (size_t i = 0; i < countof(all); i++) {
        if (all[i]->gen != NULL) {
            gen_cancel(all[i]->gen);
        }
    }
    int rc = home_down(state);
    cache_free(h.s.cache);
    return rc;
}

/* --- the text thread --- */

static void wait_at_gate(struct work *w)
{
    uv_sem_wait(&container_of(w, struct gate, work)->open);
}

static void on_passed(struct work *w)
{
    uv_sem_destroy(&container_of(w, struct gate, work)->open);
}

/* What is asked from now on stays untokenised. */
static void close_gate(void)
{
    t.gate.work.run = wait_at_gate;
    t.gate.work.done = on_passed;
    assert_int_equal(uv_sem_init(&t.gate.open, 0), 0);
    assert_int_equal(workq_put(h.s.text, &t.gate.work), 0);
    t.gate.closed = true;
    t.m->voc->open = false; /* as at first: short texts go to the thread too */
}

/* All that waited at the gate is tokenised, and the requests heard of it. */
static void open_gate(void)
{
    t.gate.closed = false;
    uv_sem_post(&t.gate.open);
    UNTIL(workq_depth(h.s.text) == 0);
}

/* --- requests --- */

static enum gen_more on_token(void *ctx, uint32_t choice,
                              const struct msg_token *k, const char *text,
                              size_t n)
{
    struct answer *a = ctx;
    (void)choice;
    (void)text;
    (void)n;
    assert_true(a->n < OUT);
    a->out[a->n++] = k->id;
    return GEN_GO;
}

static void on_end(void *ctx, uint32_t choice, enum gen_finish why,
                   const char *text, size_t n)
{
    (void)ctx;
    (void)choice;
    (void)text;
    (void)n;
    assert_int_equal(why, GEN_LENGTH);
}

static void on_done(void *ctx, int rc, const struct err *e)
{
    struct answer *a = ctx;
    assert_false(a->over);
    a->gen = NULL;
    a->over = true;
    a->rc = rc;
    a->e = *e;
}

static const struct gen_sink sink = {
    .on_token = on_token, .on_end = on_end, .on_done = on_done};

/* A gen that is not started; its text is in its memory. */
static struct gen *make(struct answer *a)
{
    char letters[LETTERS];
    struct arena arena;
    memset(letters, 'a', sizeof(letters));
    memset(a, 0, sizeof(*a));
    arena_init(&arena, GEN_ARENA_MAX);
    char *text = arena_strn(&arena, letters, sizeof(letters));
    assert_non_null(text);
    struct gen *g = gen_new(&h.s, t.m, &sink, a, &arena);
    struct gen_req *q = gen_request(g);
    q->kind = GEN_TEXT;
    q->text = text;
    q->text_n = LETTERS;
    q->max_tokens = OUT;
    q->ignore_eos = true;
    q->sampling.temperature = 0;
    return g;
}

static void start(struct answer *a, struct gen *g)
{
    struct err e = {0};
    unit_ok(gen_start(g, &e), &e);
    a->gen = g;
}

static void ask(struct answer *a)
{
    start(a, make(a));
}

/* A request of its own from beginning to end; the model is up after it. */
static void ask_alone(struct answer *a)
{
    ask(a);
    UNTIL(a->over);
    unit_ok(a->rc, &a->e);
    assert_int_equal(a->n, OUT);
    assert_int_equal(runner_state(t.m->runner), RUNNER_UP);
}

/* The engine dies. Returns when that is known, and it was replaced or not. */
static void kill_engine(void)
{
    int pid = runner_pid(t.m->runner);
    assert_true(pid > 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    UNTIL(runner_pid(t.m->runner) != pid);
}

/* Wait until an engine with stop_load has stopped: it is not up before SIGCONT.
 * Returns its pid. */
static int await_stopped(void)
{
    int pid = runner_pid(t.m->runner);
    siginfo_t info;
    assert_true(pid > 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
    assert_int_equal(info.si_code, CLD_STOPPED);
    assert_int_equal(runner_state(t.m->runner), RUNNER_LOADING);
    return pid;
}

/* a was refused by `rc` and a message with `text`; nothing is left of the
 * request. */
static void assert_refused(const struct answer *a, int rc, const char *text)
{
    assert_true(a->over);
    assert_int_equal(a->rc, rc);
    assert_non_null(strstr(a->e.msg, text));
    assert_int_equal(a->n, 0);
    assert_int_equal(t.m->users, 0);
    assert_int_equal(t.m->admit.n, 0);
    assert_true(sched_idle(runner_sched(t.m->runner)));
}

/* --- cases --- */

/* Gens of one request: the second one's text is in the memory that the first
 * one brought, and stays there when that has gone. */
static void gens_that_share_memory(void **state)
{
    (void)state;
    ask_alone(&t.first);
    close_gate();
    struct gen *g = make(&t.again);
    struct gen *x = gen_beside(g, &t.late);
    memset(&t.late, 0, sizeof(t.late));
    start(&t.again, g);
    start(&t.late, x);
    gen_cancel(g);
    t.again.gen = NULL;
    open_gate();
    UNTIL(t.late.over);
    unit_ok(t.late.rc, &t.late.e);
    assert_false(t.again.over);
    assert_memory_equal(t.late.out, t.first.out, sizeof(t.first.out));
    assert_int_equal(t.m->users, 0);
    assert_int_equal(t.m->admit.n, 0);
}

/* A request whose text was being tokenised when the last engine died gets the
 * error too, like those whose streams were queued. */
static void a_model_that_failed_meanwhile(void **state)
{
    struct model_wait w = {.model = NULL};
    struct err e = {0};
    (void)state;
    ask_alone(&t.first);
    close_gate();
    ask(&t.late);
    for (unsigned i = 0; i < ENGINE_CRASHES_MAX; i++) {
        assert_false(t.late.over);
        kill_engine();
    }
    assert_int_equal(t.m->state, MODEL_FAILED);
    open_gate();
    assert_refused(&t.late, ERR_MODEL_FAILED, "3 crashes");
    /* a person tries again */
    assert_int_equal(model_load(t.m, true, &w, &e), 0);
    model_unwait(&w);
    ask_alone(&t.again);
    assert_memory_equal(t.again.out, t.first.out, sizeof(t.first.out));
}

static void an_engine_whose_successor_cannot_load(void **state)
{
    (void)state;
    ask_alone(&t.first);
    close_gate();
    ask(&t.late);
    write_fake("fail_load 1\n");
    kill_engine();
    UNTIL(runner_state(t.m->runner) == RUNNER_DOWN);
    assert_int_equal(t.m->state, MODEL_READY);
    open_gate();
    assert_refused(&t.late, ERR_ENGINE_LOST, "told to fail");
    write_fake("");
    ask_alone(&t.again); /* the next one starts it */
    assert_memory_equal(t.again.out, t.first.out, sizeof(t.first.out));
}

/* It cannot even be started, and no engine said why. */
static void an_engine_without_a_successor(void **state)
{
    (void)state;
    ask_alone(&t.first);
    close_gate();
    ask(&t.late);
    (void)snprintf(h.s.conf.engine_program, sizeof(h.s.conf.engine_program),
                   "%s/nothing", h.dir);
    kill_engine();
    assert_int_equal(runner_state(t.m->runner), RUNNER_DOWN);
    open_gate();
    assert_refused(&t.late, ERR_ENGINE_LOST, "its engine is gone");
}

/* The engine that replaces a dead one is waited for. */
static void an_engine_that_is_replaced(void **state)
{
    (void)state;
    ask_alone(&t.first);
    close_gate();
    ask(&t.late);
    write_fake("stop_load 1\n");
    kill_engine();
    int pid = await_stopped();
    open_gate();
    assert_false(t.late.over || sched_idle(runner_sched(t.m->runner)));
    assert_int_equal(kill(pid, SIGCONT), 0);
    UNTIL(t.late.over);
    unit_ok(t.late.rc, &t.late.e);
    assert_memory_equal(t.late.out, t.first.out, sizeof(t.first.out));
}

/* The successor came up and holds more than there is for it by now: it leaves
 * at once. */
static void an_engine_too_big_to_stay(void **state)
{
    (void)state;
    ask_alone(&t.first);
    close_gate();
    ask(&t.late);
    h.s.models->budget = 1;
    kill_engine();
    UNTIL(t.m->state == MODEL_UNLOADING);
    open_gate();
    assert_refused(&t.late, ERR_ENGINE_LOST, "more than the 0 MiB");
    UNTIL(runner_state(t.m->runner) == RUNNER_DOWN);
}

/* The same, and the request waits for what files hold of its prompt, which only
 * an engine can read. */
static void an_engine_too_big_to_stay_with_saved_states(void **state)
{
    const struct cache_key key = {t.m->bundle->fingerprint, "cpu", "1", false};
    struct cache_save what;
    int32_t tokens[LETTERS + 1] = {1}; /* BOS */
    (void)state;
    for (size_t i = 1; i < countof(tokens); i++) {
        tokens[i] = 'a' + 3;
    }
    ask_alone(&t.first);
    assert_int_equal(cache_plan(h.s.cache, &key, tokens, LETTERS, 1000,
                                server_unix_ms(), server_unix_ms(), &what),
                     1);
    cache_saved(h.s.cache, what.id, 5000);
    close_gate();
    ask(&t.late);
    h.s.models->budget = 1;
    write_fake("stop_load 1\n");
    kill_engine();
    int pid = await_stopped();
    open_gate();
    assert_false(t.late.over);
    assert_true(sched_idle(runner_sched(t.m->runner))); /* not in the queue */
    assert_int_equal(kill(pid, SIGCONT), 0);
    UNTIL(runner_state(t.m->runner) == RUNNER_DOWN);
    assert_refused(&t.late, ERR_NOMEM, "more than the 0 MiB");
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(gens_that_share_memory),
        CASE(a_model_that_failed_meanwhile),
        CASE(an_engine_whose_successor_cannot_load),
        CASE(an_engine_without_a_successor),
        CASE(an_engine_that_is_replaced),
        CASE(an_engine_too_big_to_stay),
        CASE(an_engine_too_big_to_stay_with_saved_states),
    };
    return cmocka_run_group_tests_name("gen", tests, NULL, NULL);
}
