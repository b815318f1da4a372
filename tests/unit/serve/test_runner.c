/* A runner and the fake engine, a real child: tokens do not depend on what runs
 * beside them, on a pause or on a crash; what the engine may not say ends it.
 * One long file: all cases are a few lines on the same rig, the users above them.
 */
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "serve/engines/runner.h"

#define USERS_MAX 4
#define OUT_MAX   64

/* One choice, as gen.c is to the runner. */
struct user {
    struct run_stream x; /* first */
    struct msg_sampling sampling;
    int32_t prompt[40];
    int32_t out[OUT_MAX];
    uint32_t n, want;
    int32_t said[OUT_MAX]; /* told by on_said, or with the end */
    uint32_t n_said;
    uint32_t n_scores;      /* tokens of the prompt that were scored */
    uint32_t while_working; /* of them with the next step on its way */
    uint64_t patience_us; /* from on_up to its deadline; 0: none */
    uint32_t late_at;     /* its deadline comes with so many tokens */
    uint32_t pause_at; /* pause after so many tokens until the others ended */
    int code;          /* of on_fail */
    const char *grammar;
    bool leaves;   /* after its last token, instead of being removed there */
    bool computed, expired, over;
};

static char dir[64];

static struct {
    uv_loop_t loop;
    struct stats stats;
    struct runner *r;
    struct user user[USERS_MAX];
    size_t n_users;
    uint32_t places; /* 0: as many as users */
    uint32_t step_ms; /* 0: the usual */
    int restarts; /* how many may follow a crash */
    int flushes;
    int ups, downs, last_rc;
    struct err last;
    uint32_t paused_n; /* tokens of the paused user when the others ended */
    uint32_t seqs;
    uint64_t positions, state_bytes;
    bool turns, each_kicks; /* runner_kick: waits for the turn; for each user */
    struct list turn;
} t;

static struct user *user_of(struct run_stream *x)
{
    return container_of(x, struct user, x);
}

static void hear(struct user *u)
{
    for (uint32_t k = 0; k < u->x.n_scores; k++) { /* each once, in order */
        const struct msg_token *s = &u->x.scores[k];
        u->n_scores++;
        assert_true(u->n_scores < u->x.s.n_prompt);
        assert_int_equal(s->id, u->prompt[u->n_scores]);
        assert_true(s->logprob + (float)u->n_scores < 0.5f);
        assert_true(s->logprob + (float)u->n_scores > -0.5f);
    }
    u->x.n_scores = 0;
    for (uint32_t k = 0; k < u->x.n_said; k++) {
        assert_true(u->n_said < u->n);
        u->said[u->n_said++] = u->x.said[k].id;
    }
    u->x.n_said = 0;
}

static void on_said(struct run_stream *x)
{
    struct user *u = user_of(x);
    assert_true(x->n_said + x->n_scores > 0 && !u->over);
    u->while_working += runner_sched(t.r)->in_flight ? x->n_said : 0;
    hear(u);
}

static void leave(struct user *u)
{
    hear(u);
    u->over = true;
    runner_remove(t.r, &u->x);
    if (u->x.grammar != 0) {
        runner_grammar_release(t.r, u->x.grammar);
    }
    struct user *paused = NULL;
    for (size_t i = 0; i < t.n_users; i++) {
        if (!t.user[i].over && t.user[i].pause_at == 0) {
            return;
        }
        paused = t.user[i].over ? paused : &t.user[i];
    }
    if (paused != NULL) {
        t.paused_n = paused->n;
        runner_pause(t.r, &paused->x, false);
    } else {
        runner_stop(t.r);
    }
}

static void on_token(struct run_stream *x, const struct msg_token *token)
{
    struct user *u = user_of(x);
    assert_true(u->n < u->want);
    u->out[u->n++] = token->id;
    if (u->n == u->want && u->leaves) {
        runner_leave(t.r, x);
        return;
    }
    if (u->n == u->want) {
        hear(u);
        u->said[u->n_said++] = token->id;
        leave(u);
        return;
    }
    assert_int_equal(runner_push(t.r, x, token->id), 0);
    if (u->n == u->late_at) {
        x->s.deadline_us = 1;
    }
    if (u->n == u->pause_at) {
        runner_pause(t.r, x, true);
    }
}

/* on_said has run for all streams of this step, and the next step was sent. */
static void on_left(struct run_stream *x)
{
    bool others = false;
    assert_true(t.flushes > 0 && x->n_said == 0);
    for (size_t i = 0; i < t.n_users; i++) {
        const struct user *u = &t.user[i];
        assert_int_equal(u->n_said, u->n);
        others = others || (u->n < u->want && u->code == 0);
    }
    assert_true(runner_sched(t.r)->in_flight || !others);
    leave(user_of(x));
}

static void on_flush(void *ctx)
{
    (void)ctx;
    t.flushes++;
}

static void on_computed(struct run_stream *x)
{
    user_of(x)->computed = true;
    leave(user_of(x));
}

static void on_fail(struct run_stream *x, int code, const char *msg)
{
    assert_true(msg[0] != '\0');
    user_of(x)->code = code;
    leave(user_of(x));
}

static void on_expired(struct run_stream *x)
{
    user_of(x)->expired = true;
    leave(user_of(x));
}

static const struct run_events events = {on_token,    on_said,    on_left,
                                         on_computed, on_expired, on_fail};

static void on_up(void *ctx)
{
    (void)ctx;
    t.seqs = runner_sched(t.r)->conf.seqs;
    t.positions = runner_sched(t.r)->conf.positions;
    t.state_bytes = runner_state_bytes(t.r);
    if (t.ups++ > 0) {
        return; /* the streams are still there */
    }
    for (size_t i = 0; i < t.n_users; i++) {
        struct user *u = &t.user[i];
        u->x.s.deadline_us =
            u->patience_us > 0 ? uv_hrtime() / 1000 + u->patience_us : 0;
        if (u->grammar != NULL) {
            struct err e = {0};
            unit_ok(runner_grammar(t.r, u->grammar, strlen(u->grammar),
                                   &u->x.grammar, &e),
                    &e);
        }
        assert_int_equal(runner_add(t.r, &u->x), 0);
        if (t.each_kicks) {
            runner_kick(t.r);
        }
    }
    runner_kick(t.r);
}

static void on_down(void *ctx, int rc, const struct err *e)
{
    struct err e2 = {0};
    (void)ctx;
    t.downs++;
    t.last_rc = rc;
    t.last = *e;
    if (rc == 0) {
        return;
    }
    if (t.restarts-- > 0) {
        unit_ok(runner_start(t.r, &e2), &e2);
    } else {
        runner_fail_all(t.r, ERR_MODEL_FAILED, "gave up");
    }
}

/* A user whose prompt begins with `first`, and its n - 1 successors. */
static struct user *add_user(int32_t first, uint32_t n, uint32_t want)
{
    struct user *u = &t.user[t.n_users++];
    for (uint32_t i = 0; i < n; i++) {
        u->prompt[i] = first + (int32_t)i;
    }
    msg_sampling_init(&u->sampling);
    u->x.events = &events;
    u->x.sampling = &u->sampling;
    u->x.s.prompt = u->prompt;
    u->x.s.n_prompt = n;
    u->want = want;
    return u;
}

/* Run all users to their end on an engine told `fake`. */
static void run_drafting(const char *fake, uint32_t max_draft)
{
    char path[128], program[1024];
    struct err e = {0};
    (void)snprintf(program, sizeof(program), "%s/tests/unit/serve/fake_engine",
                   getenv("ANED_BUILD"));
    assert_true(file_join(path, sizeof(path), dir, "fake"));
    unit_ok(file_write(path, fake, strlen(fake), &e), &e);
    struct runner_conf c = {.loop = &t.loop,
                            .turn = t.turns ? &t.turn : NULL,
                            .stats = &t.stats,
                            .program = program,
                            .backend = "cpu",
                            .streams = t.places != 0 ? t.places : 8,
                            .queue = 8,
                            .sessions = 8,
                            .max_draft = max_draft,
                            .ngram_min = 2,
                            .step_ms = t.step_ms,
                            .state_bytes = 5500};
    struct runner_owner o = {.on_up = on_up, .on_down = on_down, .flush = on_flush};
    t.r = runner_new(&c, dir, &o);
    unit_ok(runner_start(t.r, &e), &e);
    assert_int_equal(runner_state(t.r), RUNNER_LOADING);
    assert_true(runner_pid(t.r) > 0);
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(runner_state(t.r), RUNNER_DOWN);
    assert_int_equal(runner_pid(t.r), 0);
    runner_free(t.r);
    for (size_t i = 0; i < t.n_users; i++) { /* each token once, in order */
        const struct user *u = &t.user[i];
        assert_int_equal(u->n_said, u->n);
        assert_memory_equal(u->said, u->out, u->n * sizeof(u->out[0]));
    }
}

static void run(const char *fake)
{
    run_drafting(fake, 0);
}

static int setup(void **state)
{
    (void)state;
    memset(&t, 0, sizeof(t));
    return uv_loop_init(&t.loop);
}

static int teardown(void **state)
{
    (void)state;
    return uv_loop_close(&t.loop); /* not 0: a handle leaked */
}

/* What the engine draws for the prompt of add_user(10, 20), alone. */
static int32_t alone[24];

static int make_bundle(void **state)
{
    char command[1200];
    (void)snprintf(dir, sizeof(dir), "/tmp/aned-runner-XXXXXX");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(command, sizeof(command),
                   "'%s/tests/unit/serve/fake_bundle' %s 512",
                   getenv("ANED_BUILD"), dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(setup(state), 0);
    struct user *u = add_user(10, 20, countof(alone));
    run("");
    assert_int_equal(u->n, countof(alone));
    assert_int_equal(u->while_working, countof(alone) - 1); /* not the end */
    memcpy(alone, u->out, sizeof(alone));
    return teardown(state);
}

static int remove_bundle(void **state)
{
    struct err e = {0};
    (void)state;
    return file_rmtree(dir, &e);
}

static void assert_as_alone(const struct user *u)
{
    assert_int_equal(u->code, 0);
    assert_int_equal(u->n, u->want);
    assert_memory_equal(u->out, alone, u->n * sizeof(u->out[0]));
}

/* --- cases --- */

static void company_changes_no_token(void **state)
{
    (void)state;
    struct user *a = add_user(10, 20, 24);
    struct user *other = add_user(100, 7, 10);
    struct user *same = add_user(10, 20, 12);
    struct user *part = add_user(10, 19, 5);
    run("batch_max 8\n"); /* prompts in pieces, between decoding rows */
    assert_as_alone(a);
    assert_as_alone(same);
    assert_int_equal(other->n, 10);
    assert_memory_not_equal(other->out, alone, sizeof(alone[0]) * 10);
    assert_int_equal(part->n, 5);
    assert_int_equal(t.ups, 1);
    assert_int_equal(t.last_rc, 0);
    assert_int_equal(t.seqs, 5); /* 5500 bytes, 1000 a sequence */
    assert_true(t.stats.steps > 0 && t.stats.step_rows > t.stats.steps);
}

/* Three grammars, two of them the same text. */
static void add_grammars(struct user **u)
{
    static const char *const texts[] = {"a", "b", "a", NULL};
    for (size_t i = 0; i < countof(texts); i++) {
        u[i] = add_user(10, 20, 24);
        u[i]->grammar = texts[i];
    }
}

static void a_grammar_is_told_to_each_engine(void **state)
{
    struct user *u[4];
    int32_t want[2][24];
    add_grammars(u);
    run("");
    assert_as_alone(u[3]);
    assert_int_equal(u[0]->x.grammar, u[2]->x.grammar);
    assert_int_not_equal(u[0]->x.grammar, u[1]->x.grammar);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(u[i]->code, 0);
        assert_memory_not_equal(u[i]->out, u[(i + 1) % 3 + (i == 2)]->out,
                                sizeof(want[0]));
    }
    assert_memory_equal(u[0]->out, u[2]->out, sizeof(want[0]));
    memcpy(want[0], u[0]->out, sizeof(want[0]));
    memcpy(want[1], u[1]->out, sizeof(want[1]));
    for (int drafts = 0; drafts < 2; drafts++) {
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
        add_grammars(u);
        t.restarts = 10;
        run_drafting(drafts ? "crash_at 9\nforced 5\ndelay_us 8000\n"
                            : "crash_at 9\n",
                     drafts ? 6 : 0);
        assert_true(t.ups > (drafts ? 0 : 2)); /* all again, each time */
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(u[i]->code, 0);
            assert_memory_equal(u[i]->out, want[i % 2], sizeof(want[0]));
        }
        assert_true((t.stats.accepted_tokens > 0) == (drafts != 0));
        assert_as_alone(u[3]);
    }
}

/* Its engine says what a block costs: more have a place than full ones would,
 * and each gets what it would get alone. */
static void sequences_that_grow_share_the_memory(void **state)
{
    (void)state;
    struct user *u[USERS_MAX];
    for (size_t i = 0; i < countof(u); i++) {
        u[i] = add_user(10, 20, 24);
    }
    run("base_bytes 100\nblock_bytes 500\n"); /* (5500 - 100) / 500 blocks */
    for (size_t i = 0; i < countof(u); i++) {
        assert_as_alone(u[i]);
    }
    assert_int_equal(t.seqs, 8); /* conf.sessions */
    assert_int_equal(t.positions, 10 * 64);
    assert_int_equal(t.state_bytes, 100 + 10 * 500);
}

static void sequences_that_fit_have_no_budget(void **state)
{
    (void)state;
    struct user *a = add_user(10, 20, 24);
    run("base_bytes 100\nblock_bytes 10\n"); /* all may be full */
    assert_as_alone(a);
    assert_int_equal(t.seqs, 8);
    assert_int_equal(t.positions, 0);
    assert_int_equal(t.state_bytes, 8 * 1000);
}

static void one_sequence_has_room_in_any_case(void **state)
{
    (void)state;
    struct user *a = add_user(10, 20, 24);
    run("base_bytes 9000\nblock_bytes 9000\n"); /* one in any case */
    assert_as_alone(a);
    assert_int_equal(t.positions, 64 + 512);
}

/* The first stream has a place; the one that waits begins with the step after
 * its last token. on_left of the first comes after all on_said. */
static void who_leaves_makes_room_before_it_ends(void **state)
{
    (void)state;
    struct user *a = add_user(10, 20, 3);
    struct user *b = add_user(100, 7, 12);
    struct user *c = add_user(10, 20, 6);
    a->leaves = true;
    c->leaves = true;
    t.places = 2;
    run("");
    assert_as_alone(a);
    assert_as_alone(c);
    assert_int_equal(t.flushes, 2); /* for those that leave, and no other */
    assert_int_equal(a->while_working, 3); /* its last one too */
    assert_int_equal(b->while_working, 11);
    assert_int_equal(c->x.s.first_turn, 4); /* a's place, at once */
    assert_int_equal(t.stats.steps, 12);
}

static void end_turn(uv_prepare_t *h)
{
    (void)h;
    runner_turn(&t.turn);
}

/* Three requests of one turn of the loop are one step. Without runner_turn each
 * runner_kick forms a step: the first goes alone. */
static void who_comes_together_starts_together(void **state)
{
    for (int turns = 0; turns < 2; turns++) {
        uv_prepare_t h;
        for (size_t i = 0; i < 3; i++) {
            (void)add_user(10, 4, 1);
        }
        t.each_kicks = true;
        t.turns = turns == 1;
        list_init(&t.turn);
        assert_int_equal(uv_prepare_init(&t.loop, &h), 0);
        assert_int_equal(uv_prepare_start(&h, end_turn), 0);
        uv_unref((uv_handle_t *)&h);
        run("");
        assert_int_equal(t.stats.step_rows, 3);
        assert_int_equal(t.stats.steps, t.turns ? 1 : 2);
        uv_close((uv_handle_t *)&h, NULL);
        assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

static void streams_live_through_a_crash(void **state)
{
    (void)state;
    struct user *a = add_user(10, 20, 24);
    struct user *b = add_user(10, 20, 15);
    t.restarts = 1;
    run("crash_once 9\n");
    assert_as_alone(a);
    assert_as_alone(b);
    assert_int_equal(t.ups, 2);
    assert_int_equal(t.downs, 2);
    assert_int_equal(t.stats.engine_starts, 2);
}

static void giving_up_fails_every_stream(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        (void)add_user(10, 20, 24);
    }
    run("crash_at 20\n"); /* prompts take the first few steps */
    for (size_t i = 0; i < t.n_users; i++) {
        assert_int_equal(t.user[i].code, ERR_MODEL_FAILED);
        assert_true(t.user[i].n > 0 && t.user[i].n < 24);
        assert_memory_equal(t.user[i].out, alone,
                            t.user[i].n * sizeof(alone[0]));
    }
    assert_int_equal(t.last_rc, ERR_ENGINE_LOST);
    assert_non_null(strstr(t.last.msg, "status 3"));
}

static void a_refused_row_is_one_streams_own(void **state)
{
    (void)state;
    struct user *a = add_user(10, 20, 24);
    struct user *b = add_user(200, 20, 24);
    run("hi 190\nrefuse 205\n");
    assert_int_equal(b->code, ERR_INVALID);
    assert_int_equal(b->n, 0);
    assert_int_equal(a->code, 0);
    assert_int_equal(a->n, 24);
    assert_int_equal(t.downs, 1);
    assert_int_equal(t.last_rc, 0);
}

static void a_paused_stream_waits(void **state)
{
    (void)state;
    struct user *a = add_user(10, 20, 24);
    struct user *b = add_user(100, 20, 20);
    a->pause_at = 3;
    run("");
    assert_int_equal(b->n, 20);
    assert_int_equal(t.paused_n, 3);
    assert_as_alone(a);
}

/* In the prompt or between tokens: the end of a step is its end, and the very
 * next step is another's. */
static void a_late_stream_makes_way(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 20; n += 19) {
        struct user *a = add_user(10, n, 24);
        struct user *b = add_user(10, 20, 3);
        t.places = 1;
        a->late_at = n == 1 ? 7 : 0;
        a->patience_us = n == 1 ? 3600000000u : 300000;
        run(n == 1 ? "" : "delay_us 100000\nt_max 4\n");
        assert_true(a->expired && a->code == 0);
        assert_int_equal(a->n, a->late_at);
        assert_as_alone(b);
        assert_int_equal(b->x.s.first_turn, t.stats.steps - (n == 1 ? 2 : 6));
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

static void a_prompt_alone_can_be_computed(void **state)
{
    (void)state;
    struct user *a = add_user(10, 20, 0);
    a->x.s.compute_only = true;
    run("t_max 4\n");
    assert_true(a->computed);
    assert_int_equal(a->n, 0);
    assert_int_equal(a->code, 0);
}

/* With and without tokens after it, beside another, in pieces; and when the
 * engine is lost on the way. */
static void a_prompt_is_scored(void **state)
{
    (void)state;
    static const char *const engines[] = {"batch_max 8\nt_max 5\n",
                                          "batch_max 8\nt_max 5\n"
                                          "crash_once 4\n"};
    for (size_t i = 0; i < countof(engines); i++) {
        if (i > 0) {
            assert_int_equal(teardown(state), 0);
            assert_int_equal(setup(state), 0);
        }
        struct user *a = add_user(10, 20, 5);
        struct user *only = add_user(10, 19, 0);
        struct user *one = add_user(10, 1, 2);
        char crashed[128];
        assert_true(file_join(crashed, sizeof(crashed), dir, "crashed"));
        (void)unlink(crashed); /* another case's */
        a->x.s.score = true;
        a->x.s.reuse = true;
        only->x.s.score = true;
        only->x.s.compute_only = true;
        one->x.s.score = true;
        t.restarts = 1;
        run(engines[i]);
        assert_as_alone(a);
        assert_int_equal(a->n_scores, 19);
        assert_true(only->computed);
        assert_int_equal(only->n_scores, 18);
        assert_int_equal(one->n, 2);
        assert_int_equal(one->n_scores, 0);
        assert_int_equal(t.ups, i + 1);
    }
}

static void a_failed_load_tells_its_reason(void **state)
{
    (void)state;
    run("fail_load 1\n");
    assert_int_equal(t.ups, 0);
    assert_int_equal(t.downs, 1);
    assert_int_equal(t.last_rc, ERR_NOMEM);
    assert_non_null(strstr(t.last.msg, "told to fail"));
}

static void an_answer_to_another_step_ends_the_engine(void **state)
{
    (void)state;
    struct user *a = add_user(10, 20, 24);
    t.restarts = 1;
    run("lie_at 5\n"); /* in each life: 4 steps are good, then 4 more */
    assert_int_equal(a->code, ERR_MODEL_FAILED);
    assert_true(a->n > 0);
    assert_memory_equal(a->out, alone, a->n * sizeof(alone[0]));
    assert_int_equal(t.downs, 2);
    assert_int_equal(t.last_rc, ERR_ENGINE_LOST);
    assert_non_null(strstr(t.last.msg, "frame.malformed"));
}

/* Text that repeats itself takes fewer steps, and is the same text: to its end,
 * over a crash, beside one that has no drafts. */
static void drafts_change_no_token(void **state)
{
    (void)state;
    struct user *a = add_user(10, 20, 24);
    /* Drafts are made while wide steps are measured to pay: steps are long
     * enough that a core taken away for a moment does not say otherwise. */
    run_drafting("period 5\ndelay_us 15000\n", 8);
    uint64_t fast = t.stats.steps;
    int32_t out[24];
    memcpy(out, a->out, sizeof(out));
    assert_int_equal(a->n, 24);
    assert_true(t.stats.accepted_tokens > 10);
    /* those after the last token that was wanted reach nobody */
    assert_in_range(a->x.n_accepted, 10, t.stats.accepted_tokens);
    assert_int_equal(t.stats.drafted_tokens, a->x.n_drafted);
    assert_int_equal(a->x.n_out, 24);
    char marker[128];
    assert_true(file_join(marker, sizeof(marker), dir, "crashed"));
    for (int i = 0; i < 2; i++) { /* slow, and with a crash in between */
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
        a = add_user(10, 20, 24);
        struct user *b = add_user(10, 20, 7);
        b->pause_at = 5;
        t.restarts = 1;
        run_drafting(i == 0 ? "period 5\ndelay_us 15000\n"
                            : "period 5\ndelay_us 15000\ncrash_once 5\n",
                     i == 0 ? 0 : 8);
        assert_int_equal(a->n, 24);
        assert_memory_equal(a->out, out, sizeof(out));
        assert_int_equal(b->n, 7);
        assert_memory_equal(b->out, out, 7 * sizeof(out[0]));
        if (i == 0) {
            assert_int_equal(t.stats.drafted_tokens, 0);
            assert_true(t.stats.steps > fast + 10);
        } else {
            assert_int_equal(t.ups, 2);
            assert_int_equal(remove(marker), 0);
        }
    }
}

static struct user *add_mirostat(uint32_t want, float mu)
{
    struct user *u = add_user(10, 20, want);
    u->sampling.mirostat = 2;
    u->x.mu = mu;
    return u;
}

/* The fake engine's tokens depend on mirostat's number, which every token
 * changes. It goes from step to step, past drafts that were wrong and over a
 * crash, and each stream has its own. */
static void mu_follows_the_tokens(void **state)
{
    int32_t out[2][24];
    char marker[128];
    assert_true(file_join(marker, sizeof(marker), dir, "crashed"));
    for (int i = 0; i < 2; i++) {
        struct user *u = add_mirostat(24, i == 0 ? 10 : 11);
        run("period 5\n");
        assert_int_equal(u->n, 24);
        memcpy(out[i], u->out, sizeof(out[i]));
        assert_true(u->x.mu != (i == 0 ? 10.0f : 11.0f));
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
    assert_memory_not_equal(out[0], out[1], sizeof(out[0]));
    struct user *u[2] = {add_mirostat(24, 10), add_mirostat(24, 11)};
    t.restarts = 1;
    run_drafting("period 5\ndelay_us 15000\ncrash_once 6\n", 8);
    assert_int_equal(t.ups, 2);
    assert_true(t.stats.accepted_tokens > 0);
    assert_true(t.stats.accepted_tokens < t.stats.drafted_tokens);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(u[i]->n, 24);
        assert_memory_equal(u[i]->out, out[i], sizeof(out[i]));
    }
    assert_int_equal(remove(marker), 0);
}

/* Other options for the next engine: only while there are no streams. */
static void the_next_engine_has_other_options(void **state)
{
    (void)state;
    char path[128], program[1024];
    struct err e = {0};
    (void)snprintf(program, sizeof(program), "%s/tests/unit/serve/fake_engine",
                   getenv("ANED_BUILD"));
    assert_true(file_join(path, sizeof(path), dir, "fake"));
    unit_ok(file_write(path, "", 0, &e), &e);
    struct runner_conf c = {.loop = &t.loop,
                            .stats = &t.stats,
                            .program = program,
                            .backend = "cpu",
                            .streams = 8,
                            .queue = 8,
                            .sessions = 8,
                            .max_draft = 4,
                            .ngram_min = 2,
                            .state_bytes = 5500};
    struct runner_owner o = {.on_up = on_up, .on_down = on_down, .flush = on_flush};
    t.r = runner_new(&c, dir, &o);
    add_user(3, 5, 20);
    unit_ok(runner_start(t.r, &e), &e);
    c.streams = 2;
    c.queue = 3;
    c.max_draft = 1;
    assert_false(runner_renew(t.r, &c)); /* not down */
    while (t.user[0].n < 3) {
        (void)uv_run(&t.loop, UV_RUN_ONCE);
    }
    assert_int_equal(runner_sched(t.r)->conf.max_draft, 4);
    runner_set_conf(t.r, &c);
    assert_int_equal(runner_sched(t.r)->conf.max_draft, 1); /* at once */
    assert_int_equal(runner_sched(t.r)->conf.running, 5);   /* state_bytes */
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    assert_true(runner_renew(t.r, &c));
    assert_int_equal(runner_ready(t.r)->context, 0);
    t.user[0] = (struct user){0};
    t.n_users = 0;
    t.ups = 0;
    add_user(3, 5, 20);
    unit_ok(runner_start(t.r, &e), &e);
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(t.user[0].n, 20);
    assert_int_equal(runner_sched(t.r)->conf.running, 2);
    assert_int_equal(runner_sched(t.r)->conf.queue, 3);
    runner_free(t.r);
}

/* From the step on in which a package went to the CPU, and no answer that was
 * over before. */
static void answers_of_another_arithmetic_say_so(void **state)
{
    (void)state;
    struct user *early = add_user(40, 5, 2);
    struct user *late = add_user(10, 20, countof(alone));
    run("notice_at 6\n");
    assert_int_equal(early->n, 2);
    assert_false(early->x.on_cpu);
    assert_int_equal(late->n, countof(alone));
    assert_true(late->x.on_cpu);
    assert_int_equal(t.stats.packages_on_cpu, 1);
    assert_int_equal(t.stats.packages_reopened, 0);
}

/* A step is not late while a width is run for the first time. */
static void warming_takes_its_time(void **state)
{
    (void)state;
    t.step_ms = 200;
    struct user *u = add_user(10, 20, countof(alone));
    run("slow_at 4\n");
    assert_int_equal(t.downs, 1); /* at the end */
    assert_int_equal(t.last_rc, 0);
    assert_int_equal(u->n, countof(alone));
    assert_memory_equal(u->out, alone, sizeof(alone));
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(company_changes_no_token),
        CASE(a_grammar_is_told_to_each_engine),
        CASE(sequences_that_grow_share_the_memory),
        CASE(sequences_that_fit_have_no_budget),
        CASE(one_sequence_has_room_in_any_case),
        CASE(who_leaves_makes_room_before_it_ends),
        CASE(drafts_change_no_token),
        CASE(mu_follows_the_tokens),
        CASE(who_comes_together_starts_together),
        CASE(streams_live_through_a_crash),
        CASE(giving_up_fails_every_stream),
        CASE(a_refused_row_is_one_streams_own),
        CASE(a_paused_stream_waits),
        CASE(a_late_stream_makes_way),
        CASE(a_prompt_alone_can_be_computed),
        CASE(a_prompt_is_scored),
        CASE(a_failed_load_tells_its_reason),
        CASE(an_answer_to_another_step_ends_the_engine),
        CASE(the_next_engine_has_other_options),
        CASE(answers_of_another_arithmetic_say_so),
        CASE(warming_takes_its_time),
    };
    return cmocka_run_group_tests_name("runner", tests, make_bundle,
                                       remove_bundle);
}
