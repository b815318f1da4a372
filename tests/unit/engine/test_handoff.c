/* test_handoff.c - sequences of models whose programs hand on keys and values,
 * or what a router had:
 * forks, cuts, states on disk, many in a step, a device that fails in the
 * middle of it, and what a probe makes of such packages. The bits themselves:
 * tests/unit/convert/test_convert_handoff.c. */
#include <math.h>

#include "engine/impl.h"
#include "engine/probe/probe.h"
#include "engine/snapshot.h"

#include "../convert/handoff_rig.h"

/* --- sequences --- */

enum { BEFORE = 64, MORE = 8 }; /* tokens: a whole block, and then some */

static int all_of(struct snapshot *x, struct err *e)
{
    int rc = 0;
    while (rc == 0) {
        rc = snapshot_run(x, 0, e);
    }
    return rc;
}

static struct engine_seq *saved_and_loaded(struct engine *g,
                                           const struct engine_seq *s)
{
    struct snapshot *x = NULL;
    struct msg_state_done done;
    struct err e = {0};
    uint32_t n = engine_seq_length(s);
    int32_t text[BEFORE];
    memcpy(text, engine_seq_tokens(s), n * sizeof(*text));
    const struct msg_state_part part = {0, n, at("states")};
    const struct msg_state m = {.tokens = text,
                                .n_tokens = n,
                                .n_parts = 1,
                                .parts = {part}};
    unit_ok(snapshot_save(s, &part, &x, &e), &e);
    assert_int_equal(all_of(x, &e), 1);
    snapshot_free(x);
    unit_ok(snapshot_load(g, &m, &x, &e), &e);
    assert_int_equal(all_of(x, &e), 1);
    snapshot_done(x, &done, &e);
    assert_int_equal(done.n, n);
    struct engine_seq *back = snapshot_take(x);
    snapshot_free(x);
    return back;
}

/* A sequence that was extended wrongly and cut, forked, saved
 * and loaded goes on as one that nothing happened to. */
static void check_sequences(struct engine *g)
{
    struct engine_seq *s[4] = {NULL};
    struct err e = {0};
    int32_t text[BEFORE + MORE];
    float want[MORE * VOCAB];
    const float *got = NULL;
    for (uint32_t i = 0; i < countof(text); i++) {
        text[i] = tokens[i % TEXT];
    }
    unit_ok(engine_seq_open(g, &s[0], &e), &e);
    unit_ok(engine_eval(s[0], text, BEFORE, 1, 0, NULL, NULL, &e), &e);
    unit_ok(engine_eval(s[0], text + BEFORE, MORE, 1, 2, &got, NULL, &e), &e);
    memcpy(want, got, sizeof(want));
    unit_ok(engine_seq_truncate(s[0], BEFORE, &e), &e);
    unit_ok(engine_eval(s[0], text + 1, MORE, 0, 0, NULL, NULL, &e), &e);
    unit_ok(engine_seq_fork(s[0], BEFORE, &s[1], &e), &e);
    unit_ok(engine_seq_truncate(s[0], BEFORE, &e), &e);
    s[2] = saved_and_loaded(g, s[1]);
    unit_ok(engine_seq_fork(s[2], BEFORE, &s[3], &e), &e);
    for (size_t i = 0; i < countof(s); i++) {
        unit_ok(engine_eval(s[i], text + BEFORE, MORE, 1, 2, &got, NULL, &e),
                &e);
        assert_memory_equal(got, want, sizeof(want));
        engine_seq_close(s[i]);
    }
}

static void sequences(void **state)
{
    (void)state;
    for (size_t f = 0; f < countof(forms); f++) {
        if (unit_passed_over(f, 3)) {
            continue;
        }
        make(forms[f].shape, forms[f].kv, NULL);
        cut("whole", "cut", 0x2a);
        for (size_t b = 0; b < n_backends(); b++) {
            struct engine *g = open_as("cut", backends[b]);
            bool rows = b == 0 && strcmp(forms[f].kv, "state") == 0;
            assert_true((g->rows.max > 0) == rows); /* no form is lost */
            check_sequences(g);
            engine_close(g);
            same_bits(forms[f].kv, backends[b], 3);
        }
    }
}

#define SEQS 3u

/* The tokens that SEQS sequences draw in TEXT steps of all of them. */
static void draw_together(const char *bundle, int32_t drawn[SEQS][TEXT])
{
    struct engine *g = open_as(bundle, NULL);
    struct engine_row rows[SEQS];
    struct msg_row row[SEQS];
    struct msg_row_done done[SEQS];
    struct err e = {0};
    for (uint32_t i = 0; i < SEQS; i++) {
        rows[i] = (struct engine_row){.row = &row[i], .done = &done[i]};
        row[i] = (struct msg_row){.n_tokens = 1, .sample = true};
        msg_sampling_init(&row[i].sampling);
        row[i].sampling.no_logprob = true;
        unit_ok(engine_seq_open(g, &rows[i].seq, &e), &e);
    }
    for (uint32_t n = 0; n < TEXT; n++) {
        for (uint32_t i = 0; i < SEQS; i++) {
            row[i].position = n;
            row[i].tokens = &tokens[(n + 3 * i) % TEXT];
        }
        engine_step_rows(g, rows, SEQS, NULL);
        for (uint32_t i = 0; i < SEQS; i++) {
            unit_ok(rows[i].rc, &rows[i].err);
            drawn[i][n] = done[i].tokens[0].id;
        }
    }
    for (uint32_t i = 0; i < SEQS; i++) {
        engine_seq_close(rows[i].seq);
    }
    engine_close(g);
}

/* Several sequences in a step, each with its own keys. */
static void sequences_in_one_step(void **state)
{
    (void)state;
    int32_t want[SEQS][TEXT];
    int32_t got[SEQS][TEXT];
    make(NULL, NULL, NULL);
    cut("whole", "cut", 0x3e);
    draw_together("whole", want);
    draw_together("cut", got);
    assert_memory_equal(want, got, sizeof(want));
}

/* --- a package whose device fails --- */

/* The interpreter, of which one package fails from one prediction on. */
static struct {
    const struct engine *g;
    size_t shard;
    int after; /* < 0: never */
} device;

static int device_predict(struct backend_io *io, struct backend_state *s,
                          struct err *e)
{
    bool concerned = device.after >= 0 &&
                     io->m == device.g->shards[device.shard].units[0].m;
    if (concerned && device.after == 0) {
        return err_set(e, ERR_BACKEND, "the device is gone");
    }
    device.after -= concerned ? 1 : 0;
    return backend_interpreter.predict(io, s, e);
}

/* The CPU rounds otherwise. */
static void check_near(const float *got, const float *want)
{
    for (uint32_t i = 0; i < TEXT * VOCAB; i += VOCAB) {
        double ab = 0;
        double aa = 0;
        double bb = 0;
        for (uint32_t k = i; k < i + VOCAB; k++) {
            ab += (double)got[k] * (double)want[k];
            aa += (double)got[k] * (double)got[k];
            bb += (double)want[k] * (double)want[k];
        }
        assert_true(ab / sqrt(aa * bb) > 0.9999);
    }
}

/* One that gives, and one that takes, goes on on the CPU in the middle of a
 * text: keys and values go from memory to memory. */
static void on_the_cpu(void **state)
{
    (void)state;
    static struct backend be;
    be = backend_interpreter;
    be.predict = device_predict;
    be.rows = NULL;
    be.name = "device";
    for (size_t f = 0; f < 2; f++) {
        make(NULL, forms[f].kv, NULL);
        cut("whole", "cut", 0x28);
        float *want = logits_of("whole", "interpreter", 0);
        for (size_t shard = 0; shard < 3; shard++) {
            const struct engine_conf conf = {.threads = 1};
            struct engine *g = NULL;
            struct engine_seq *s = NULL;
            struct engine_event x = {.on_cpu = false};
            struct err e = {0};
            float got[TEXT * VOCAB];
            device.after = -1;
            unit_ok(engine_open_with(&be, at("cut"), &conf, &g, &e), &e);
            device.g = g;
            device.shard = shard;
            device.after = 3;
            unit_ok(engine_seq_open(g, &s, &e), &e);
            eval(s, 4, got);
            check_near(got, want);
            while (engine_event(g, &x) && !x.on_cpu) {
            }
            assert_true(x.on_cpu);
            engine_seq_close(s);
            engine_close(g);
        }
        free(want);
    }
}

/* --- a probe --- */

struct probed {
    unsigned widths, failed, steady;
    double least; /* cosine */
};

static int on_probed(void *ctx, struct json *j)
{
    struct probed *p = ctx;
    const struct json *list = json_get(json_get(j, "function"), "widths");
    for (const struct json *w = json_first(list); w != NULL; w = json_next(w)) {
        double c = json_num(json_get(w, "cosine"));
        p->widths++;
        p->failed += json_type(json_get(w, "error")) != JSON_NULL;
        p->steady += json_bool(json_get(w, "steady"));
        p->least = c < p->least ? c : p->least;
    }
    json_free(j);
    return 0;
}

static int go_on(void *ctx, const struct probe_place *p, size_t done,
                 size_t all)
{
    (void)ctx;
    (void)p;
    (void)done;
    (void)all;
    return 0;
}

/* It fills what a package takes, and looks at what it gives. */
static void check_probed(void)
{
    for (size_t f = 0; f < countof(forms); f++) {
        if (unit_passed_over(f, 3)) {
            continue;
        }
        struct probed p = {.least = 2};
        const struct probe_conf conf = {.be = &backend_interpreter,
                                        .reference = &backend_cpu,
                                        .conf = {.threads = 1},
                                        .at = go_on,
                                        .result = on_probed,
                                        .ctx = &p};
        const char *known = NULL;
        struct err e = {0};
        make(forms[f].shape, forms[f].kv, NULL);
        cut("whole", "cut", 0x28);
        unit_ok(probe_run(at("cut"), &conf, &known, &e), &e);
        assert_true(p.widths >= 8 && p.failed == 0 && p.least > 0.9999);
        /* with host, a chunk's own keys are not yet halves (NOTES 55) */
        assert_true(p.steady == p.widths || strcmp(forms[f].kv, "host") == 0);
    }
}

static void probed(void **state)
{
    (void)state;
    check_probed();
    rig_family = ZAYA;
    check_probed();
    rig_family = GEMMA4;
}

/* A router's state goes with the rows, through cuts, forks and company. */
static void routers(void **state)
{
    rig_family = ZAYA;
    sequences(state);
    sequences_in_one_step(state);
    on_the_cpu(state);
    rig_family = GEMMA4;
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(sequences),
        cmocka_unit_test(sequences_in_one_step),
        cmocka_unit_test(on_the_cpu),
        cmocka_unit_test(probed),
        cmocka_unit_test(routers),
    };
    fill_tokens();
    return cmocka_run_group_tests(t, setup, teardown);
}
