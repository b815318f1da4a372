/* test_steps.c - steps that several sequences share, against the same steps one
 * by one: prefill, decode and drafts in any mixture, rows that cannot run among
 * them, batches that are cut, logits in slices. */
#include <math.h>

#include "engine/impl.h"
#include "fake_rows.h"

enum { SEQS = 8, ROUNDS = 300 };

static const struct engine_conf conf = {.threads = 3};

/* An engine that runs rows; 0: columns. */
static struct engine *open_engine(uint32_t rows)
{
    struct engine *g = NULL;
    struct err e;
    memset(&fake_rows, 0, sizeof(fake_rows));
    fake_rows.max = rows;
    fake.t_lo = 1;
    fake.t_hi = 4;
    fake.fail_after = -1;
    unit_ok(engine_open_with(rows > 0 ? &fake_rows_backend : &fake_backend,
                             fake_dir, &conf, &g, &e),
            &e);
    /* The fake has no package that the norm's weight could be read from. */
    g->norm.weight = malloc(FAKE_D * sizeof(float));
    for (size_t i = 0; i < FAKE_D; i++) {
        g->norm.weight[i] = 0.5F + (float)i;
    }
    g->norm.eps = 1e-6;
    g->draw_min = 0; /* tokens of several sequences are drawn side by side */
    return g;
}

static uint32_t salt;

static uint32_t pick(uint32_t n)
{
    salt = salt * 1664525U + 1013904223U;
    return (salt >> 8) % n;
}

/* One timeline in several engines. */
struct twin {
    struct engine_seq *seq[3];
    uint32_t out_index;
    int32_t last; /* drawn, not computed yet; -1: none */
};

static void twin_open(struct twin *t, struct engine *const *g, size_t n)
{
    struct err e;
    *t = (struct twin){.last = -1};
    for (size_t i = 0; i < n; i++) {
        unit_ok(engine_seq_open(g[i], &t->seq[i], &e), &e);
    }
}

static void twin_close(struct twin *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        engine_seq_close(t->seq[i]);
    }
}

/* The context is short: cut when it fills, and now and then before; or begin
 * with what a neighbour has. */
static void twin_move(struct twin *t, const struct twin *from, size_t n)
{
    struct err e;
    uint32_t length = engine_seq_length(t->seq[0]);
    uint32_t what = pick(12);
    if (length > FAKE_S - 6 || what == 0) {
        uint32_t keep = pick(3) > 0 ? pick(length + 1) : 0;
        for (size_t i = 0; i < n; i++) {
            unit_ok(engine_seq_truncate(t->seq[i], keep, &e), &e);
        }
        t->last = -1;
    } else if (what == 1 && from != t) {
        uint32_t share = pick(engine_seq_length(from->seq[0]) + 1);
        for (size_t i = 0; i < n; i++) {
            struct engine_seq *s = NULL;
            unit_ok(engine_seq_fork(from->seq[i], share, &s, &e), &e);
            engine_seq_close(t->seq[i]);
            t->seq[i] = s;
        }
        t->last = -1;
    }
}

static int32_t tokens[SEQS][FAKE_S + 1];

static struct msg_bias no_token = {.id = FAKE_V};

/* Now and then a text's rows are pooled, from its first one on; or in its middle,
 * which cannot be. */
static void make_pool(struct msg_row *row, uint32_t length)
{
    static uint8_t kind[SEQS];
    bool begins = length == 0 && pick(2) > 0;
    kind[row->seq] = begins ? (uint8_t)(1 + pick(POOLINGS - 1)) : kind[row->seq];
    if (begins || (kind[row->seq] != 0 && pick(4) > 0)) {
        row->pool = kind[row->seq];
        row->give = pick(2) > 0;
        row->sample = false;
        row->score = false;
        row->n_drafts = 0;
    } else {
        kind[row->seq] = 0;
    }
}

/* What the sequence does next; now and then something it cannot. */
static void make_row(struct msg_row *row, const struct twin *t, uint32_t id)
{
    uint32_t length = engine_seq_length(t->seq[0]);
    uint32_t room = FAKE_S - length;
    *row = (struct msg_row){.seq = id, .position = length};
    msg_sampling_init(&row->sampling);
    row->tokens = tokens[id];
    row->n_tokens = t->last >= 0 ? 1 : 1 + pick(room < 20 ? room : 20);
    for (uint32_t i = 0; i < row->n_tokens; i++) {
        tokens[id][i] = (int32_t)pick(FAKE_V);
    }
    if (t->last >= 0) {
        tokens[id][0] = t->last;
    }
    row->sample = t->last >= 0 || pick(3) > 0;
    row->out_index = t->out_index;
    row->n_drafts = row->sample ? pick(5) : 0;
    for (uint32_t i = 0; i < row->n_drafts; i++) {
        row->drafts[i] = (int32_t)pick(FAKE_V);
    }
    row->sampling.temperature = pick(2) > 0 ? 1.5F : 0;
    row->sampling.frequency_penalty = pick(2) > 0 ? 0.3F : 0;
    row->sampling.logprobs = pick(3);
    row->sampling.seed = id;
    row->score = pick(3) == 0;
    row->after = pick(2) > 0 ? (int32_t)pick(FAKE_V) : -1;
    make_pool(row, length);
    switch (pick(40)) {
    case 0:
        row->position++;
        break;
    case 1:
        row->n_tokens = 0;
        break;
    case 2:
        tokens[id][row->n_tokens - 1] = FAKE_V;
        break;
    case 3:
        row->n_tokens = room + 1 <= FAKE_S ? room + 1 : FAKE_S + 1;
        break;
    case 4:
        row->sample = row->pool == POOL_NONE; /* fails when it is drawn */
        row->sampling.n_bias = 1;
        row->sampling.bias = &no_token;
        break;
    default:
        break;
    }
}

/* What the first draw of the row would be, so that drafts are right at times.
 */
static void lucky_drafts(struct msg_row *row, const struct twin *t)
{
    struct engine_seq *s = NULL;
    struct err e;
    for (uint32_t i = 0; i < row->n_drafts && pick(3) > 0; i++) {
        struct msg_row probe = *row;
        struct msg_row_done done;
        probe.n_drafts = i;
        probe.score = false;
        unit_ok(
            engine_seq_fork(t->seq[0], engine_seq_length(t->seq[0]), &s, &e),
            &e);
        int rc = engine_step(s, &probe, &done, NULL, &e);
        engine_seq_close(s);
        if (rc < 0 || done.n_tokens != i + 1) {
            return;
        }
        row->drafts[i] = done.tokens[i].id;
    }
}

static void check_tokens_same(const struct msg_token *a,
                              const struct msg_token *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(a[i].id, b[i].id);
        assert_memory_equal(&a[i].logprob, &b[i].logprob, sizeof(float));
        assert_int_equal(a[i].n_top, b[i].n_top);
        for (uint32_t k = 0; k < b[i].n_top; k++) {
            assert_int_equal(a[i].top[k].id, b[i].top[k].id);
            assert_memory_equal(&a[i].top[k].logprob, &b[i].top[k].logprob,
                                sizeof(float));
        }
    }
}

static void check_same(const struct engine_row *a, int rc, const struct err *e,
                       const struct msg_row_done *b)
{
    if (a->rc != rc) {
        fail_msg("seq %u: %s, alone %s", a->row->seq,
                 a->rc < 0 ? a->err.msg : "fine", rc < 0 ? e->msg : "fine");
    }
    if (rc < 0) {
        assert_string_equal(a->err.msg, e->msg);
        return;
    }
    assert_int_equal(a->done->seq, b->seq);
    assert_int_equal(a->done->error, 0);
    assert_int_equal(a->done->n_tokens, b->n_tokens);
    assert_int_equal(a->done->n_accepted, b->n_accepted);
    assert_int_equal(a->done->length, b->length);
    check_tokens_same(a->done->tokens, b->tokens, b->n_tokens);
    assert_int_equal(a->done->n_scores, msg_row_scores(a->row));
    assert_int_equal(a->done->n_scores, b->n_scores);
    check_tokens_same(a->done->scores, b->scores, b->n_scores);
    assert_int_equal(a->done->n_vector, a->row->give ? FAKE_D : 0);
    assert_int_equal(b->n_vector, a->done->n_vector);
    if (b->n_vector > 0) {
        assert_memory_equal(a->done->vector, b->vector,
                            FAKE_D * sizeof(*b->vector));
    }
}

static unsigned accepted, refused, called_off, scored, pooled;

static bool goes_on(void *ctx, bool last)
{
    uint32_t *left = ctx;
    (void)last;
    return (*left)-- > 0;
}

/* The step is begun, and not wanted: the sequences are as if it had not been. */
static void call_off(struct engine *g, struct engine_row *all, size_t k)
{
    size_t n = 0;
    uint32_t before[SEQS];
    uint32_t left = pick(2); /* between the layers, or before the heads */
    for (size_t i = 0; i < k; i++) {
        n += all[i].row->n_tokens + all[i].row->n_drafts;
        before[i] = engine_seq_length(all[i].seq);
    }
    if (n > engine_can_stop(g) || pick(3) > 0) {
        return;
    }
    engine_step_rows_if(g, all, k, goes_on, &left, NULL);
    for (size_t i = 0; i < k; i++) {
        assert_true(all[i].rc < 0);
        assert_int_equal(engine_seq_length(all[i].seq), before[i]);
        called_off += all[i].rc == ERR_CANCELLED;
        all[i].rc = 0;
    }
}

/* One round: engine 0 takes all rows in one step, the others one by one. */
static void play_round(struct engine *const *g, size_t n_g, struct twin *t,
                       size_t n)
{
    struct msg_row row[SEQS];
    struct msg_row_done done[SEQS];
    struct engine_row all[SEQS];
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        twin_move(&t[i], &t[pick((uint32_t)n)], n_g);
        if (engine_seq_length(t[i].seq[0]) < FAKE_S && pick(5) > 0) {
            make_row(&row[k], &t[i], (uint32_t)i);
            lucky_drafts(&row[k], &t[i]);
            all[k] = (struct engine_row){
                .seq = t[i].seq[0], .row = &row[k], .done = &done[k]};
            k++;
        }
    }
    seen.n = 0;
    call_off(g[0], all, k);
    engine_step_rows(g[0], all, k, NULL);
    for (size_t i = 0; i < k; i++) {
        struct twin *x = &t[row[i].seq];
        for (size_t j = 1; j < n_g; j++) {
            struct msg_row_done alone;
            struct err e;
            int rc = engine_step(x->seq[j], &row[i], &alone, NULL, &e);
            check_same(&all[i], rc, &e, &alone);
            if (rc == 0) {
                msg_row_done_fini(&alone);
            }
        }
        uint32_t length = engine_seq_length(x->seq[1]);
        assert_int_equal(engine_seq_length(x->seq[0]), length);
        assert_memory_equal(engine_seq_tokens(x->seq[0]),
                            engine_seq_tokens(x->seq[1]),
                            length * sizeof(int32_t));
        refused += all[i].rc < 0;
        if (all[i].rc == 0) {
            accepted += done[i].n_accepted;
            scored += done[i].n_scores;
            pooled += done[i].n_vector > 0;
            msg_row_done_fini(&done[i]);
            x->out_index += done[i].n_tokens;
            x->last = done[i].n_tokens > 0
                          ? done[i].tokens[done[i].n_tokens - 1].id
                          : -1;
        }
    }
}

/* 1..8 sequences; batches of any width; slices of logits from one row on; and
 * the same through columns, where engine_step_rows goes one by one itself. */
static void test_mixtures(void **state)
{
    (void)state;
    static const struct {
        uint32_t rows, slice;
    } t[] = {
        {512, 512},
        {512, 1  },
        {512, 3  },
        {17,  17 },
        {7,   2  },
        {1,   1  },
        {0,   0  },
    };
    for (size_t i = 0; i < countof(t); i++) {
        for (uint32_t n = 1; n <= SEQS; n += i == 0 ? 1 : 3) {
            struct twin twins[SEQS];
            struct engine *g[3] = {open_engine(t[i].rows), open_engine(0),
                                   open_engine(512)};
            fake_rows.max = 512; /* what predict_rows takes from here on */
            g[0]->rows.slice = t[i].slice;
            for (uint32_t s = 0; s < n; s++) {
                twin_open(&twins[s], g, countof(g));
            }
            accepted = 0;
            refused = 0;
            called_off = 0;
            scored = 0;
            pooled = 0;
            fake_rows.widest = 0;
            salt = n + 100 * (uint32_t)i;
            for (unsigned r = 0; r < ROUNDS / n; r++) {
                play_round(g, countof(g), twins, n);
            }
            assert_true(accepted > 5 && refused > 2 && scored > 20 && pooled > 2);
            assert_true(called_off > 2 || t[i].rows < 500);
            if (t[i].rows == 512 && n == SEQS) {
                assert_true(fake_rows.widest > 50);
            }
            for (uint32_t s = 0; s < n; s++) {
                twin_close(&twins[s], countof(g));
            }
            for (size_t k = 0; k < countof(g); k++) {
                engine_close(g[k]);
            }
        }
    }
}

/* --- scores --- */

enum { SCORED = 23 };

/* The scores of a prompt, in pieces of at most `piece` tokens. */
static void score_in_pieces(struct engine *g, uint32_t piece,
                            struct msg_token *ret)
{
    struct engine_seq *s = NULL;
    struct err e;
    unit_ok(engine_seq_open(g, &s, &e), &e);
    for (uint32_t at = 0; at < SCORED;) {
        uint32_t n = SCORED - at < piece ? SCORED - at : piece;
        struct msg_row_done done;
        struct msg_row row = {.position = at,
                              .n_tokens = n,
                              .tokens = tokens[0] + at,
                              .sample = at + n == SCORED,
                              .score = true,
                              .after = -1};
        msg_sampling_init(&row.sampling);
        row.sampling.logprobs = 2;
        if (at + n < SCORED) {
            row.after = tokens[0][at + n];
        }
        unit_ok(engine_step(s, &row, &done, NULL, &e), &e);
        assert_int_equal(done.n_scores, row.after < 0 ? n - 1 : n);
        assert_int_equal(done.n_tokens, row.sample);
        if (done.n_scores > 0) {
            memcpy(ret + at, done.scores, done.n_scores * sizeof(*ret));
        }
        msg_row_done_fini(&done);
        at += n;
    }
    engine_seq_close(s);
}

/* engine_rows_fn: what the scores are made of. */
static int from_logits(void *ctx, uint32_t first, uint32_t n, float *logits,
                       struct err *e)
{
    double *ret = ctx;
    (void)e;
    for (uint32_t i = 0; i < n && first + i + 1 < SCORED; i++) {
        const float *row = logits + (size_t)i * FAKE_V;
        double sum = 0;
        for (int k = 0; k < FAKE_V; k++) {
            sum += exp((double)row[k] - (double)row[0]);
        }
        ret[first + i] =
            (double)row[tokens[0][first + i + 1]] - (double)row[0] - log(sum);
    }
    return 0;
}

/* The log softmax of the logits, with the same bits in pieces of any size, in
 * batches and slices of any size, as rows and as columns. */
static void test_scores(void **state)
{
    (void)state;
    static const uint32_t rows[] = {512, 5, 1, 0};
    struct msg_token first[SCORED];
    struct msg_token again[SCORED];
    double want[SCORED];
    salt = 7;
    for (uint32_t i = 0; i < SCORED; i++) {
        tokens[0][i] = (int32_t)pick(FAKE_V);
    }
    for (size_t i = 0; i < countof(rows); i++) {
        struct engine *g = open_engine(rows[i]);
        for (uint32_t piece = 1; piece <= SCORED; piece++) {
            g->rows.slice = rows[i] > 0 ? 1 + piece % 7 : 0;
            score_in_pieces(g, piece, again);
            if (i == 0 && piece == 1) {
                memcpy(first, again, sizeof(first));
            }
            check_tokens_same(again, first, SCORED - 1);
        }
        struct engine_seq *s = NULL;
        struct err e;
        unit_ok(engine_seq_open(g, &s, &e), &e);
        unit_ok(engine_eval_rows(s, tokens[0], SCORED, 0, from_logits, want,
                                 NULL, &e),
                &e);
        for (uint32_t k = 0; k + 1 < SCORED; k++) {
            assert_int_equal(first[k].id, tokens[0][k + 1]);
            assert_true(fabs((double)first[k].logprob - want[k]) < 1e-5);
        }
        engine_seq_close(s);
        engine_close(g);
    }
}

/* --- what a step makes of its rows --- */

static struct msg_row simple(uint32_t id, uint32_t position, uint32_t n,
                             bool sample)
{
    struct msg_row r = {.seq = id,
                        .position = position,
                        .n_tokens = n,
                        .tokens = tokens[id],
                        .sample = sample};
    msg_sampling_init(&r.sampling);
    for (uint32_t i = 0; i < n; i++) {
        tokens[id][i] = (int32_t)((id + i) % FAKE_V);
    }
    return r;
}

struct five {
    struct engine *g;
    struct engine_seq *seq[5];
    struct msg_row row[5];
    struct msg_row_done done[5];
    struct engine_row all[5];
};

/* Two that decode stand after three prompts. */
static void five_open(struct five *f, uint32_t rows)
{
    struct err e;
    f->g = open_engine(rows);
    for (uint32_t i = 0; i < 5; i++) {
        unit_ok(engine_seq_open(f->g, &f->seq[i], &e), &e);
        f->row[i] = simple(i, 0, 3, false);
        if (i > 2) {
            unit_ok(engine_step(f->seq[i], &f->row[i], &f->done[i], NULL, &e),
                    &e);
        }
        f->row[i] = i > 2 ? simple(i, 3, 1, true) : simple(i, 0, 20, i > 0);
        f->all[i] = (struct engine_row){
            .seq = f->seq[i], .row = &f->row[i], .done = &f->done[i]};
    }
    fake_rows.calls = 0;
    fake_rows.rows = 0;
    fake_rows.heads = 0;
    fake_rows.widest = 0;
}

static void five_close(struct five *f)
{
    for (size_t i = 0; i < 5; i++) {
        engine_seq_close(f->seq[i]);
    }
    engine_close(f->g);
}

static int32_t greedy(const struct engine_seq *s)
{
    float logits[FAKE_S * FAKE_V];
    uint32_t n = engine_seq_length(s);
    fake_reference(engine_seq_tokens(s), n, logits);
    const float *last = logits + (size_t)(n - 1) * FAKE_V;
    int32_t best = 0;
    for (int32_t i = 1; i < FAKE_V; i++) {
        best = last[i] > last[best] ? i : best;
    }
    return best;
}

/* All rows pass through a shard in one call; heads see the wanted ones. */
static void test_batches(void **state)
{
    (void)state;
    struct five f;
    struct engine_times times = {0};
    five_open(&f, 512);
    engine_step_rows(f.g, f.all, 5, &times);
    assert_int_equal(fake_rows.calls, 2); /* shards */
    assert_int_equal(fake_rows.widest, 62);
    assert_int_equal(fake_rows.heads, 4);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(f.all[i].rc, 0);
        assert_int_equal(f.done[i].n_tokens, i > 0);
        if (i > 0) {
            assert_int_equal(f.done[i].tokens[0].id, greedy(f.seq[i]));
        }
    }
    five_close(&f);

    five_open(&f, 25); /* 20 + 5, 15 + 10, 10 + 2 */
    engine_step_rows(f.g, f.all, 5, &times);
    assert_int_equal(fake_rows.calls, 6);
    assert_int_equal(fake_rows.rows, 2 * 62);
    assert_int_equal(fake_rows.widest, 25);
    five_close(&f);
    engine_step_rows(f.g, NULL, 0, NULL);
}

static void test_twice(void **state)
{
    (void)state;
    struct five f;
    five_open(&f, 512);
    f.all[4].seq = f.seq[3];
    engine_step_rows(f.g, f.all, 5, NULL);
    assert_int_equal(f.all[3].rc, 0);
    assert_int_equal(f.all[4].rc, ERR_CONFLICT);
    assert_int_equal(engine_seq_length(f.seq[3]), 4);
    f.row[3].position = 4; /* and the next step takes it again */
    engine_step_rows(f.g, f.all + 3, 1, NULL);
    assert_int_equal(f.all[3].rc, 0);
    assert_int_equal(engine_seq_length(f.seq[3]), 5);
    five_close(&f);
}

/* A sequence whose row fails inside the backend is the only one that does. */
static void test_one_fails(void **state)
{
    (void)state;
    struct five f;
    struct five want;
    five_open(&want, 512);
    engine_step_rows(want.g, want.all, 5, NULL);
    for (size_t bad = 0; bad < 5; bad++) {
        five_open(&f, 512);
        fake_rows.fail = f.seq[bad]->states[1];
        engine_step_rows(f.g, f.all, 5, NULL);
        for (size_t i = 0; i < 5; i++) {
            uint32_t before = i > 2 ? 3 : 0;
            if (i == bad) {
                assert_int_equal(f.all[i].rc, ERR_NOMEM);
                assert_string_equal(f.all[i].err.msg, "layers_01_02.mlpackage: "
                                                      "no block is left");
                assert_int_equal(engine_seq_length(f.seq[i]), before);
            } else {
                check_same(&f.all[i], 0, NULL, &want.done[i]);
            }
        }
        fake_rows.fail = NULL; /* the row runs once there is room */
        engine_step_rows(f.g, f.all + bad, 1, NULL);
        check_same(&f.all[bad], 0, NULL, &want.done[bad]);
        five_close(&f);
    }
    five_close(&want);
}

/* Heads that fail cost those who wanted logits. */
static void test_head_fails(void **state)
{
    (void)state;
    struct five f;
    five_open(&f, 512);
    fake.fail_after = 3; /* two shards, a head */
    engine_step_rows(f.g, f.all, 5, NULL);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(f.all[i].rc, i > 0 ? ERR_MIL_OP : 0);
        assert_int_equal(engine_seq_length(f.seq[i]), i == 0  ? 20
                                                      : i > 2 ? 3
                                                              : 0);
    }
    five_close(&f);
}

static int setup(void **state)
{
    int rc = fake_setup(state);
    fake_write_bundle(NULL, NULL, 0);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixtures),  cmocka_unit_test(test_scores),
        cmocka_unit_test(test_batches),   cmocka_unit_test(test_twice),
        cmocka_unit_test(test_one_fails), cmocka_unit_test(test_head_fails),
    };
    return cmocka_run_group_tests(tests, setup, fake_teardown);
}
