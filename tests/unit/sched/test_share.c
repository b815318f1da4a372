/* Texts kept for a peer's next streams, against a search through all of them;
 * and streams that draft from them: rule 11 of sched/sched.h. */
#include "../unit.h"
#include "base/num.h"
#include "sched/sched.h"
#include "sched/shed.h"

static uint32_t rnd(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

/* --- the store --- */

/* Every peer's text has words of its own, so that a draft shows from which
 * peer's text it is. */
static void fill(int32_t *t, uint32_t n, uint32_t peer, uint64_t *seed)
{
    for (uint32_t i = 0; i < n; i++) {
        t[i] = (int32_t)(1000 * peer + rnd(seed, 12));
    }
}

/* The longest match that a peer's halves have for the end of `tail`, counted as
 * the index does, by looking everywhere. */
static uint32_t longest(const struct share_peer *p, const int32_t *tail,
                        uint32_t n_tail, uint32_t gram)
{
    uint32_t best = 0;
    for (size_t i = 0; i < countof(p->half); i++) {
        const struct share_half *h = &p->half[i];
        for (uint32_t at = 1; at < h->n; at++) {
            uint32_t k = 0;
            while (k < at && k < n_tail && k < DRAFT_MATCH &&
                   h->text[at - 1 - k] == tail[n_tail - 1 - k]) {
                k++;
            }
            best = h->text[at] >= 0 && k > best ? k : best;
        }
    }
    return best >= gram ? best : 0;
}

static void finds_what_only_its_peer_said(void **state)
{
    (void)state;
    enum { ROOM = 600, PEERS = DRAFT_PEERS_MAX };
    uint64_t seed = 7;
    unsigned found = 0;
    struct share s;
    share_init(&s, ROOM, 3);
    for (int round = 0; round < 3000; round++) {
        int32_t t[200];
        int32_t got[8];
        uint32_t match = 0;
        uint32_t peer = 1 + rnd(&seed, PEERS);
        uint32_t n = 1 + rnd(&seed, countof(t));
        fill(t, n, peer, &seed);
        share_put(&s, peer, t, rnd(&seed, n), n);
        (void)share_index(&s, UINT32_MAX);
        for (size_t i = 0; i < countof(s.peers); i++) {
            struct share_peer *p = &s.peers[i];
            for (size_t k = 0; p->id != 0 && k < 2; k++) {
                assert_true(p->half[k].n <= ROOM / 2);
                p->half[k].index.tries = UINT32_MAX;
            }
        }
        peer = 1 + rnd(&seed, PEERS);
        fill(t, 40, peer, &seed);
        uint32_t k = share_find(&s, peer, t, 40, countof(got), got, &match);
        const struct share_peer *p = NULL;
        for (size_t i = 0; i < countof(s.peers); i++) {
            p = s.peers[i].id == peer ? &s.peers[i] : p;
        }
        assert_int_equal(match, p != NULL ? longest(p, t, 40, 3) : 0);
        assert_true((k > 0) == (match > 0) && k <= countof(got));
        for (uint32_t i = 0; i < k; i++) {
            assert_int_equal(got[i] / 1000, peer);
        }
        found += k > 0;
        /* the same words are nothing to another, nor to nobody */
        uint32_t other = peer % PEERS + 1;
        assert_int_equal(share_find(&s, other, t, 40, 8, got, &match), 0);
        assert_int_equal(share_find(&s, 0, t, 40, 8, got, &match), 0);
    }
    assert_true(found > 500);
    share_fini(&s);
}

/* The latest half at least is there, a border ends what is drafted, and of a
 * text that continues what is kept already only the new part is put. */
static void keeps_the_latest(void **state)
{
    (void)state;
    int32_t t[2000];
    int32_t got[16];
    uint32_t match = 0;
    struct share s;
    for (int32_t i = 0; i < 2000; i++) {
        t[i] = i;
    }
    share_init(&s, 400, 2);
    share_put(&s, 5, t, 0, 100);
    share_put(&s, 5, t, 100, 150);
    assert_int_equal(share_find(&s, 5, t, 99, 16, got, &match), 0);
    assert_int_equal(share_index(&s, 40), 40);
    assert_int_equal(share_index(&s, UINT32_MAX), 100 + 1 + 50 + 8 + 1 - 40);
    assert_int_equal(share_find(&s, 5, t, 90, 16, got, &match), 10);
    assert_int_equal(match, DRAFT_MATCH);
    assert_int_equal(got[9], 99);
    /* after the end of the first text the second goes on */
    assert_int_equal(share_find(&s, 5, t, 100, 16, got, &match), 16);
    assert_int_equal(match, 8);
    assert_int_equal(got[0], 100);
    assert_int_equal(share_find(&s, 5, t, 150, 16, got, &match), 0);
    /* no room: the other half, then the first one anew */
    share_put(&s, 5, t, 1000, 1150);
    (void)share_index(&s, UINT32_MAX);
    assert_int_equal(share_find(&s, 5, t, 90, 16, got, &match), 10);
    assert_int_equal(share_find(&s, 5, t, 1100, 16, got, &match), 16);
    share_put(&s, 5, t, 0, 2000); /* of which the last 199 have room */
    (void)share_index(&s, UINT32_MAX);
    assert_int_equal(share_find(&s, 5, t, 90, 16, got, &match), 0);
    assert_int_equal(share_find(&s, 5, t, 1100, 16, got, &match), 16);
    assert_int_equal(share_find(&s, 5, t, 1990, 16, got, &match), 10);
    assert_int_equal(share_find(&s, 5, t, 1805, 16, got, &match), 16);
    assert_int_equal(match, 1805 - 1801);
    share_forget(&s);
    assert_int_equal(share_find(&s, 5, t, 1990, 16, got, &match), 0);
    share_fini(&s);
    share_init(&s, 0, 2);
    share_put(&s, 5, t, 0, 100);
    assert_int_equal(share_index(&s, UINT32_MAX), 0);
    share_fini(&s);
}

static void the_peer_used_least_recently_goes(void **state)
{
    (void)state;
    int32_t t[64];
    int32_t got[4];
    uint32_t match = 0;
    uint64_t seed = 3;
    struct share s;
    fill(t, countof(t), 1, &seed);
    share_init(&s, 1000, 3);
    for (uint64_t peer = 1; peer <= DRAFT_PEERS_MAX; peer++) {
        share_put(&s, peer, t, 0, countof(t));
    }
    (void)share_index(&s, UINT32_MAX);
    assert_int_equal(share_find(&s, 1, t, 60, 4, got, &match), 4);
    share_put(&s, 100, t, 0, countof(t));
    (void)share_index(&s, UINT32_MAX);
    assert_int_equal(share_find(&s, 2, t, 60, 4, got, &match), 0);
    assert_int_equal(share_find(&s, 1, t, 60, 4, got, &match), 4);
    assert_int_equal(share_find(&s, 100, t, 60, 4, got, &match), 4);
    share_fini(&s);
}

/* What a token costs, whatever is kept. */
static void a_token_costs_a_constant(void **state)
{
    (void)state;
    uint64_t seed = 9;
    int32_t t[500];
    uint64_t ops = 0;
    uint32_t tokens = 0;
    struct share s;
    share_init(&s, 4000, 3);
    for (int round = 0; round < 400; round++) {
        fill(t, countof(t), 1, &seed);
        share_put(&s, 1, t, 0, countof(t));
        const struct share_peer *p = &s.peers[0];
        uint64_t was = p->half[0].index.ops + p->half[1].index.ops;
        tokens += share_index(&s, UINT32_MAX);
        ops += p->half[0].index.ops + p->half[1].index.ops - was;
    }
    assert_in_range(ops, tokens, 4 * tokens);
    share_fini(&s);
}

/* --- streams --- */

enum { PROMPT = 40, ANSWER = 400 };

struct world {
    struct sched s;
    struct sched_stream x;
    uint32_t steps, drafted, accepted;
};

static struct world w;

static void begin(uint32_t share_tokens)
{
    struct sched_conf c = {.rows_seq = 64,
                           .rows_step = 64,
                           .seqs = 4,
                           .running = 2,
                           .context = 2048,
                           .max_draft = 8,
                           .ngram_min = 3,
                           .share_tokens = share_tokens};
    sched_init(&w.s, &c);
}

/* A stream whose timeline is to be text[0, n), beginning with n_prompt. */
static void run(uint64_t share, const int32_t *text, uint32_t n_prompt,
                uint32_t n)
{
    w.x = (struct sched_stream){
        .prompt = text, .n_prompt = n_prompt, .reuse = true, .share = share};
    w.steps = w.drafted = w.accepted = 0;
    assert_int_equal(sched_add(&w.s, &w.x, 0), 0);
    for (uint32_t at = n_prompt; at < n;) {
        const struct sched_plan *p = sched_next(&w.s, 0);
        assert_true(p != NULL && p->n_rows == 1);
        const struct sched_row *r = &p->rows[0];
        uint32_t ok = 0;
        bool sample = r->sample;
        while (ok < r->n_drafts && at + ok < n &&
               r->drafts[ok] == text[at + ok]) {
            ok++;
        }
        w.steps++;
        w.drafted += r->n_drafts;
        w.accepted += ok;
        sched_row_accepted(&w.s, 0, ok);
        sched_done(&w.s, 1000 + 20 * (r->n_drafts + r->n), 0);
        for (uint32_t i = 0; sample && i <= ok && at < n; i++) {
            assert_int_equal(sched_push(&w.s, &w.x, text[at++]), 0);
        }
    }
    sched_remove(&w.s, &w.x, 0);
}

/* A text without repetitions. */
static void noise(int32_t *t, uint32_t n, uint64_t seed)
{
    for (uint32_t i = 0; i < n; i++) {
        t[i] = (int32_t)rnd(&seed, 100000);
    }
}

static void one_drafts_what_another_said(void **state)
{
    (void)state;
    int32_t first[PROMPT + ANSWER];
    int32_t again[PROMPT + ANSWER];
    noise(first, countof(first), 1);
    memcpy(again, first, sizeof(again));
    noise(again, PROMPT, 2); /* another question, the same answer */
    begin(10000);
    run(7, first, PROMPT, countof(first));
    assert_int_equal(w.drafted, 0);
    run(8, again, PROMPT, countof(again)); /* somebody else */
    assert_int_equal(w.drafted, 0);
    run(0, again, PROMPT, countof(again)); /* nobody */
    assert_int_equal(w.drafted, 0);
    again[0] = 5;
    run(7, again, PROMPT, countof(again));
    assert_true(w.accepted > ANSWER * 3 / 4);
    assert_true(w.steps < ANSWER / 3);
    assert_true(w.drafted - w.accepted < ANSWER / 10);
    /* also what a prompt said, by one that ended long before */
    int32_t quote[PROMPT + ANSWER];
    noise(quote, countof(quote), 3);
    run(7, quote, PROMPT + ANSWER - 1, countof(quote));
    memmove(quote + 1, quote, sizeof(quote) - sizeof(quote[0]));
    quote[0] = 6;
    run(7, quote, PROMPT, countof(quote) - 1);
    assert_true(w.accepted > ANSWER * 3 / 4);
    /* memory is short: nothing is left */
    (void)sched_shed(&w.s);
    (void)sched_next(&w.s, 0);
    quote[0] = 7;
    run(7, quote, PROMPT, countof(quote) - 1);
    assert_int_equal(w.drafted, 0);
    sched_fini(&w.s);
    begin(0);
    run(7, first, PROMPT, countof(first));
    run(7, again, PROMPT, countof(again));
    assert_int_equal(w.drafted, 0);
    sched_fini(&w.s);
}

/* A conversation's turns continue each other: a token is kept once, however
 * often its sequence is taken up again or copied, and once more for another. */
static void a_conversation_is_kept_once(void **state)
{
    (void)state;
    int32_t t[900];
    noise(t, countof(t), 4);
    begin(20000);
    const struct share_half *h = w.s.share.peers[0].half;
    for (uint32_t n = 100; n <= 900; n += 100) {
        run(7, t, n - 10, n);
        /* a border, and before what is new an n-gram and the token that had not
         * been computed when the turn before ended */
        assert_int_equal(h->n, n + 1 + (n / 100 - 1) * (1 + DRAFT_LONG + 1));
    }
    uint32_t was = h->n;
    t[450] = -7 - t[450]; /* as a fork: too much would be lost in place */
    for (uint32_t i = 450; i < 900; i++) {
        t[i] = t[i] < 0 ? 1 : t[i] + 1;
    }
    run(7, t, 490, 500);
    assert_int_equal(w.x.cached, 450);
    assert_int_equal(h->n, was + 1 + DRAFT_LONG + 50);
    run(9, t, 490, 520); /* another peer has it from the start */
    assert_true(w.x.cached > 480);
    assert_int_equal(w.s.share.peers[1].id, 9);
    assert_int_equal(w.s.share.peers[1].half[0].n, 1 + 520);
    assert_int_equal(h->n, was + 1 + DRAFT_LONG + 50);
    sched_fini(&w.s);
}

/* Its own text comes first, and so does a prediction. */
static void its_own_text_comes_first(void **state)
{
    (void)state;
    int32_t old[200];
    int32_t t[200];
    noise(old, countof(old), 5);
    noise(t, countof(t), 6);
    memcpy(old + 50, t + 50, 10 * sizeof(*t)); /* then it goes on otherwise */
    memcpy(t + 100, t + 50, 40 * sizeof(*t));
    begin(10000);
    run(7, old, 40, countof(old));
    w.x = (struct sched_stream){
        .prompt = t, .n_prompt = 110, .share = 7, .max_new = 50};
    assert_int_equal(sched_add(&w.s, &w.x, 0), 0);
    const struct sched_plan *p = NULL;
    int32_t out[20];
    for (uint32_t at = 110; at < 114;) {
        p = sched_next(&w.s, 0);
        assert_non_null(p);
        if (p->rows[0].sample && p->rows[0].n_drafts > 0) {
            break;
        }
        bool sample = p->rows[0].sample;
        sched_done(&w.s, 1000, 0);
        if (sample) {
            assert_int_equal(sched_push(&w.s, &w.x, t[at++]), 0);
        }
    }
    assert_true(p->rows[0].n_drafts > 0);
    uint32_t at = p->rows[0].position + 1;
    assert_int_equal(p->rows[0].drafts[0], t[at]);
    uint32_t match = 0; /* though the other has something to say */
    assert_true(share_find(&w.s.share, 7, t, 110, 8, out, &match) > 0);
    assert_int_equal(match, 10);
    assert_int_not_equal(out[0], t[110]);
    sched_done(&w.s, 1000, 0);
    sched_remove(&w.s, &w.x, 0);
    sched_fini(&w.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_only_its_peer_said),
        cmocka_unit_test(keeps_the_latest),
        cmocka_unit_test(the_peer_used_least_recently_goes),
        cmocka_unit_test(a_token_costs_a_constant),
        cmocka_unit_test(one_drafts_what_another_said),
        cmocka_unit_test(a_conversation_is_kept_once),
        cmocka_unit_test(its_own_text_comes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
