/* Drafts: rule 10 of sched/sched.h, and the choice of a width (width.h). */
#include "../unit.h"
#include "base/num.h"
#include "sched/sched.h"

#define CONTEXT 4096u

/* --- an engine that draws out[n] after a timeline of n tokens --- */

struct world {
    struct sched s;
    struct sched_stream x;
    int32_t text[CONTEXT + 1]; /* prompt, then what is drawn */
    uint32_t n_prompt, n;
    double row_us, draft_us; /* of a row, beside a step's 1000 */
    unsigned stalls;         /* wide steps that take ten times as long */
    unsigned steps, drafted, accepted;
};

static struct world w;

static void begin(uint32_t max_draft, uint32_t n_prompt, uint32_t max_new)
{
    struct sched_conf c = {.rows_seq = 64,
                           .rows_step = 64,
                           .seqs = 2,
                           .running = 2,
                           .context = CONTEXT,
                           .max_draft = max_draft,
                           .ngram_min = 3};
    sched_init(&w.s, &c);
    w.x = (struct sched_stream){
        .prompt = w.text, .n_prompt = n_prompt, .max_new = max_new};
    w.n_prompt = n_prompt;
    w.n = n_prompt;
    w.steps = w.drafted = w.accepted = 0;
}

/* One step; returns false when x has all it wants. */
static bool step(uint32_t want)
{
    const struct sched_plan *p = sched_next(&w.s, 0);
    assert_non_null(p);
    assert_int_equal(p->n_rows, 1);
    const struct sched_row *r = &p->rows[0];
    uint32_t at = r->position + r->n;
    uint32_t ok = 0;
    assert_true(at + r->n_drafts <= CONTEXT);
    assert_true(r->n + r->n_drafts <= w.s.conf.rows_seq);
    assert_true(r->sample || r->n_drafts == 0);
    while (ok < r->n_drafts && r->drafts[ok] == w.text[at + ok]) {
        ok++;
    }
    w.steps++;
    w.drafted += r->n_drafts;
    w.accepted += ok;
    sched_row_accepted(&w.s, 0, ok);
    bool sample = r->sample;
    double us = 1000 + w.row_us * r->n + w.draft_us * r->n_drafts;
    if (r->n_drafts > 4 && w.stalls > 0) {
        w.stalls--;
        us *= 10;
    }
    sched_done(&w.s, (uint64_t)us, 0);
    if (sample) {
        assert_int_equal(w.n, at);
    }
    for (uint32_t i = 0; sample && i <= ok; i++) {
        int32_t t = w.text[w.n++];
        if (w.n - w.n_prompt == want) {
            return false;
        }
        assert_int_equal(sched_push(&w.s, &w.x, t),
                         w.n <= CONTEXT ? 0 : ERR_CONTEXT);
    }
    return true;
}

static void run(uint32_t want)
{
    assert_int_equal(sched_add(&w.s, &w.x, 0), 0);
    while (step(want)) {
    }
    assert_int_equal(w.n - w.n_prompt, want);
    assert_int_equal(w.drafted, w.x.n_drafted);
    assert_int_equal(w.accepted, w.x.n_accepted);
    sched_remove(&w.s, &w.x, 0);
    sched_fini(&w.s);
}

static void fill(uint32_t period, uint64_t seed)
{
    for (uint32_t i = 0; i <= CONTEXT; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        w.text[i] = period > 0 ? (int32_t)(i % period)
                               : (int32_t)((seed >> 33) % 30000);
    }
}

static void repetition_takes_few_steps(void **state)
{
    (void)state;
    fill(23, 0);
    w.row_us = w.draft_us = 20;
    begin(8, 100, 900);
    run(900);
    assert_true(w.accepted > 700);
    assert_true(w.steps < 130);
    assert_in_range(w.drafted, w.accepted, w.accepted + 4);
}

static void off_is_off(void **state)
{
    (void)state;
    fill(23, 0);
    begin(0, 100, 900);
    run(900);
    assert_int_equal(w.drafted, 0);
    assert_int_equal(w.steps, 902); /* the prompt takes three */
}

/* A reload changes max_draft while a stream runs. */
static void off_and_on_again(void **state)
{
    (void)state;
    fill(23, 0);
    w.row_us = w.draft_us = 20;
    begin(8, 100, 1500);
    assert_int_equal(sched_add(&w.s, &w.x, 0), 0);
    while (w.n - w.n_prompt < 400) {
        assert_true(step(1500));
    }
    unsigned before = w.drafted;
    assert_true(before > 0);
    sched_set_drafts(&w.s, 0);
    for (unsigned i = 0; i < 100; i++) {
        assert_true(step(1500));
    }
    assert_int_equal(w.drafted, before);
    sched_set_drafts(&w.s, 1000); /* as sched_init clamps it */
    assert_int_equal(w.s.conf.max_draft, ENGINE_DRAFTS_MAX);
    while (step(1500)) {
    }
    assert_true(w.drafted > before + 100);
    sched_remove(&w.s, &w.x, 0);
    sched_fini(&w.s);
}

static void noise_has_no_drafts(void **state)
{
    (void)state;
    fill(0, 5);
    w.row_us = w.draft_us = 20;
    begin(8, 1000, 2000);
    run(2000);
    assert_true(w.drafted < 10);
}

/* Text that repeats some words but never goes on the same way: drafts are found
 * time and again and are always wrong. */
static void wrong_drafts_stop(void **state)
{
    (void)state;
    fill(0, 5);
    for (uint32_t i = 0; i < CONTEXT; i++) {
        w.text[i] = i % 10 < 3 ? (int32_t)(i % 10) : (int32_t)(100 + i);
    }
    w.row_us = w.draft_us = 100;
    begin(8, 200, 3000);
    run(3000);
    assert_true(w.drafted < 150);
    assert_true(w.steps > 2950);
}

/* A list whose entries differ in one word each: what follows it is taken up
 * again at once, without waiting for ngram_min tokens that agree. */
static void one_other_word_is_passed_over(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < CONTEXT; i++) {
        w.text[i] = i % 12 == 5 ? (int32_t)(1000 + i) : (int32_t)(i % 12);
    }
    w.row_us = w.draft_us = 20;
    begin(8, 200, 1200);
    run(1200);
    assert_true(w.accepted > 900); /* ten or eleven of twelve */
    assert_true(w.steps < 280);
}

/* Rows that cost as much as steps do not pay, however right. */
static void dear_rows_stop(void **state)
{
    (void)state;
    fill(23, 0);
    w.row_us = 1000;
    w.draft_us = 3000;
    begin(8, 100, 2000);
    run(2000);
    assert_true(w.drafted < 100);
    assert_true(w.steps > 1900);
}

/* They come back when rows are cheap again. */
static void trials_notice_a_change(void **state)
{
    (void)state;
    fill(23, 0);
    w.row_us = 1000;
    w.draft_us = 3000;
    begin(8, 100, 3900);
    assert_int_equal(sched_add(&w.s, &w.x, 0), 0);
    while (w.n < 1000) {
        (void)step(3900);
    }
    unsigned before = w.accepted;
    w.row_us = w.draft_us = 10;
    while (w.n < 3900) {
        (void)step(3900);
    }
    assert_true(w.accepted - before > 1500);
    sched_remove(&w.s, &w.x, 0);
    sched_fini(&w.s);
}

/* A wide step that was slow for another reason, the first time, is tried again:
 * else what it is thought to cost keeps it from being measured. */
static void a_stall_is_forgotten(void **state)
{
    (void)state;
    fill(23, 0);
    w.row_us = w.draft_us = 20;
    w.stalls = 1;
    begin(8, 100, 3900);
    run(3900);
    assert_true(w.stalls == 0 && w.steps < 900);
}

static void end_of_context_is_kept(void **state)
{
    (void)state;
    fill(5, 0);
    w.row_us = w.draft_us = 1;
    begin(16, 50, 0);
    assert_int_equal(sched_add(&w.s, &w.x, 0), 0);
    while (w.n <= CONTEXT) { /* the last one has no position of its own */
        (void)step(UINT32_MAX);
    }
    assert_int_equal(w.n, CONTEXT + 1);
    assert_int_equal(w.x.seq->computed, CONTEXT);
    assert_true(w.steps < CONTEXT / 8);
    sched_remove(&w.s, &w.x, 0);
    sched_fini(&w.s);
}

/* A prediction is used from the first token, and again after a difference. */
static void prediction_is_followed(void **state)
{
    (void)state;
    static int32_t predicted[300];
    fill(0, 9);
    w.row_us = w.draft_us = 20;
    memcpy(predicted, w.text + 50, sizeof(predicted));
    predicted[100] = 1; /* here the answer is another, */
    for (int i = 200; i < 299; i++) {
        predicted[i] = predicted[i + 1]; /* and here has one token more */
    }
    begin(8, 50, 300);
    w.x.prediction = predicted;
    w.x.n_prediction = 300;
    run(300);
    assert_true(w.accepted > 230);
    assert_true(w.steps < 70);
}

/* One that is wrong time and again does not hide what the text itself says: the
 * longest agreement with it always ends where it has another word. */
static void poor_prediction_is_left(void **state)
{
    (void)state;
    static int32_t predicted[900];
    fill(1, 0);
    w.row_us = w.draft_us = 20;
    for (uint32_t i = 0; i < countof(predicted); i++) {
        predicted[i] = i % 10 == 5 ? (int32_t)(1000 + i) : w.text[100 + i];
    }
    begin(8, 100, 900);
    w.x.prediction = predicted;
    w.x.n_prediction = countof(predicted);
    run(900);
    assert_true(w.accepted > 750);
    assert_true(w.steps < 130);
}

static void removed_amid_accepted(void **state)
{
    (void)state;
    fill(7, 0);
    w.row_us = w.draft_us = 10;
    begin(8, 60, 0);
    assert_int_equal(sched_add(&w.s, &w.x, 0), 0);
    for (int i = 0; i < 5; i++) {
        assert_true(step(UINT32_MAX));
    }
    const struct sched_plan *p = sched_next(&w.s, 0);
    assert_true(p != NULL && p->rows[0].n_drafts >= 4);
    sched_row_accepted(&w.s, 0, 4);
    sched_done(&w.s, 1000, 0);
    uint32_t n = w.x.seq->n;
    assert_int_equal(sched_push(&w.s, &w.x, w.text[w.n]), 0);
    sched_remove(&w.s, &w.x, 0); /* a stop string, say */
    assert_int_equal(sched_warm(&w.s), 1);
    assert_int_equal(w.s.seqs[0].n, n); /* what the engine has */
    assert_int_equal(w.s.seqs[0].computed, n);
    /* Also when the stream has left before the step is back. */
    w.x =
        (struct sched_stream){.prompt = w.text, .n_prompt = w.n, .reuse = true};
    assert_int_equal(sched_add(&w.s, &w.x, 0), 0);
    w.n_prompt = w.n;
    for (int i = 0; i < 3; i++) {
        assert_true(step(UINT32_MAX));
    }
    p = sched_next(&w.s, 0);
    assert_true(p != NULL && p->rows[0].n_drafts >= 2);
    uint32_t at = p->rows[0].position;
    sched_remove(&w.s, &w.x, 0);
    sched_row_accepted(&w.s, 0, 2);
    sched_done(&w.s, 1000, 0);
    assert_int_equal(w.s.seqs[0].n, at + 3);
    assert_int_equal(w.s.seqs[0].computed, at + 3);
    assert_int_equal(w.s.seqs[0].tokens[at + 2], w.text[at + 2]);
    sched_fini(&w.s);
}

/* --- the choice alone --- */

static void width_follows_odds_and_cost(void **state)
{
    (void)state;
    struct cost c = {0};
    struct width a[3] = {
        {.p = 0.9, .max = 8}
    };
    for (uint32_t rows = 1; rows <= 16; rows++) {
        cost_note(&c, rows, 0, 1000 + 20 * rows);
    }
    width_choose(a, 1, 1, 64, false, &c);
    assert_int_equal(a[0].n, 8);
    a[0].p = 0.3; /* two bring 0.39 tokens for 4 % of a step, the next 0.03 */
    width_choose(a, 1, 1, 64, false, &c);
    assert_in_range(a[0].n, 2, 4);
    a[0].p = 0.01;
    width_choose(a, 1, 1, 64, false, &c);
    assert_int_equal(a[0].n, 0);
    a[0].p = 0.9;
    width_choose(a, 1, 1, 3, false, &c); /* room */
    assert_int_equal(a[0].n, 3);
    /* The better odds get the rows; streams without drafts wait little. */
    a[1] = (struct width){.p = 0.5, .max = 8};
    width_choose(a, 2, 2, 64, false, &c);
    assert_true(a[0].n > a[1].n && a[1].n > 0);
    for (uint32_t rows = 1; rows <= 16; rows++) {
        c = (struct cost){0};
        cost_note(&c, 2, 0, 1000);
        cost_note(&c, 16, 0, 3800); /* 200 a row */
    }
    a[0] = (struct width){.p = 0.99, .max = 8};
    width_choose(a, 1, 2, 64, true, &c);
    assert_int_equal(a[0].n, 2);
    width_choose(a, 1, 1, 64, false, &c);
    assert_int_equal(a[0].n, 8);
}

/* A row may cost nothing up to a width and a lot at the next one. */
static void width_sees_steps_of_the_cost(void **state)
{
    (void)state;
    struct cost c = {0};
    struct width a = {.p = 0.9, .max = 8};
    for (uint32_t rows = 1; rows <= 9; rows++) {
        cost_note(&c, rows, 0, rows <= 4 ? 1000 : 5000);
    }
    width_choose(&a, 1, 1, 64, false, &c);
    assert_int_equal(a.n, 3);
}

static void odds_follow_what_happens(void **state)
{
    (void)state;
    struct odds own = {0};
    struct odds all = {0};
    double first = odds_of(&own, &all, WIDTH_SHORT);
    assert_true(first > 0.55 && first < 0.65);
    for (int i = 0; i < 50; i++) {
        odds_note(&own, WIDTH_SHORT, 4, 0, WIDTH_OWN);
    }
    assert_true(odds_of(&own, &all, WIDTH_SHORT) < 0.1);
    assert_true(odds_of(&own, &all, WIDTH_LONG) > 0.55);
    for (int i = 0; i < 10; i++) {
        odds_note(&own, WIDTH_SHORT, 4, 4, WIDTH_OWN);
    }
    assert_true(odds_of(&own, &all, WIDTH_SHORT) > 0.7);
    for (int i = 0; i < 100; i++) {
        odds_note(&all, WIDTH_LONG, 4, 0, WIDTH_ALL);
    }
    assert_true(odds_of(&own, &all, WIDTH_LONG) < 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repetition_takes_few_steps),
        cmocka_unit_test(off_is_off),
        cmocka_unit_test(off_and_on_again),
        cmocka_unit_test(noise_has_no_drafts),
        cmocka_unit_test(wrong_drafts_stop),
        cmocka_unit_test(one_other_word_is_passed_over),
        cmocka_unit_test(dear_rows_stop),
        cmocka_unit_test(trials_notice_a_change),
        cmocka_unit_test(a_stall_is_forgotten),
        cmocka_unit_test(end_of_context_is_kept),
        cmocka_unit_test(prediction_is_followed),
        cmocka_unit_test(poor_prediction_is_left),
        cmocka_unit_test(removed_amid_accepted),
        cmocka_unit_test(width_follows_odds_and_cost),
        cmocka_unit_test(width_sees_steps_of_the_cost),
        cmocka_unit_test(odds_follow_what_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
