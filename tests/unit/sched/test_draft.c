/* The index of drafts against a search through the whole text. */
#include "../unit.h"
#include "base/num.h"
#include "sched/draft.h"

#define TEXT_MAX 4096u

static uint32_t rnd(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

/* The longest match of the end of t[0, n) among positions in [low, n): one of
 * the long n-gram, else one of `min` tokens; the latest among equals. */
static uint32_t brute(const int32_t *t, uint32_t n, uint32_t low, uint32_t min,
                      uint32_t *ret_at)
{
    const uint32_t grams[] = {DRAFT_LONG, min};
    for (size_t g = 0; g < countof(grams); g++) {
        uint32_t best = 0;
        for (uint32_t p = n - 1; p >= grams[g] && p >= low && p > 0; p--) {
            uint32_t k = 0;
            while (k < p && k < DRAFT_MATCH && t[p - 1 - k] == t[n - 1 - k]) {
                k++;
            }
            if (k >= grams[g] && k > best) {
                best = k;
                *ret_at = p;
            }
        }
        if (best > 0) {
            return best;
        }
    }
    return 0;
}

static void check(struct draft *d, const int32_t *t, uint32_t n, uint32_t min)
{
    uint32_t at = 0;
    uint32_t want_at = 0;
    uint32_t got = draft_find(d, t, t, n, &at);
    uint32_t want = n == 0 ? 0 : brute(t, n, d->low, min, &want_at);
    assert_int_equal(got, want);
    if (want > 0) {
        assert_int_equal(at, want_at);
    }
}

/* Texts that grow, and now and then are cut or begin anew elsewhere. */
static void rule_1_equals_brute_force(void **state)
{
    (void)state;
    static int32_t t[600];
    static int32_t moved[600];
    unsigned found = 0;
    for (uint64_t s = 1; s <= 400; s++) {
        uint64_t seed = s;
        uint32_t letters = 1 + rnd(&seed, 6);
        uint32_t min = 1 + rnd(&seed, DRAFT_LONG);
        uint32_t n = 0;
        struct draft d;
        draft_init(&d, min);
        d.tries = UINT32_MAX;
        for (int i = 0; i < 300; i++) {
            if (rnd(&seed, 40) == 0) {
                n = rnd(&seed, n + 1);
                draft_truncate(&d, t, n);
            } else if (rnd(&seed, 10) == 0 && n > 0) { /* repeat a piece */
                uint32_t at = rnd(&seed, n);
                uint32_t k = 1 + rnd(&seed, 30);
                for (; k > 0 && n < 600; k--) {
                    t[n++] = t[at++];
                }
            } else if (n < 600) {
                t[n++] = (int32_t)rnd(&seed, letters);
            }
            draft_extend(&d, t, n, UINT32_MAX);
            assert_int_equal(d.n, n);
            check(&d, t, n, min);
            uint32_t at = 0;
            memcpy(moved, t, sizeof(moved)); /* the text may have moved */
            found += draft_find(&d, moved, moved, n, &at) > 0;
        }
        draft_fini(&d);
    }
    assert_true(found > 10000);
}

/* Another text's end is looked up just the same. */
static void rule_1_tail_of_another_text(void **state)
{
    (void)state;
    static const int32_t text[] = {5, 6, 7, 8, 9, 5, 6, 1, 2};
    static const int32_t tail[] = {3, 5, 6, 7};
    static const int32_t other[] = {4, 4, 4};
    struct draft d;
    uint32_t at = 0;
    int32_t out[4];
    draft_init(&d, 2);
    draft_extend(&d, text, countof(text), UINT32_MAX);
    assert_int_equal(draft_find(&d, text, tail, countof(tail), &at), 3);
    assert_int_equal(at, 3);
    assert_int_equal(draft_copy(text, countof(text), at, 2, out), 2);
    assert_int_equal(out[0], 8);
    assert_int_equal(out[1], 9);
    assert_int_equal(draft_find(&d, text, other, countof(other), &at), 0);
    assert_int_equal(draft_find(&d, text, tail, 1, &at), 0);
    draft_fini(&d);
}

/* Of too many candidates the latest count. */
static void rule_1_tries_are_bounded(void **state)
{
    (void)state;
    static int32_t t[TEXT_MAX];
    struct draft d;
    uint32_t at = 0;
    draft_init(&d, 2);
    for (uint32_t i = 0; i < TEXT_MAX; i++) { /* 1 2 and a number, over and
                                                 over; the long match is old */
        t[i] = i % 3 == 0 ? 1 : i % 3 == 1 ? 2 : (int32_t)(1000 + i);
    }
    t[0] = 77;
    t[TEXT_MAX - 3] = 77;
    t[TEXT_MAX - 2] = 1;
    t[TEXT_MAX - 1] = 2;
    t[1] = 1;
    t[2] = 2;
    draft_extend(&d, t, TEXT_MAX, UINT32_MAX);
    uint64_t before = d.ops;
    assert_int_equal(draft_find(&d, t, t, TEXT_MAX, &at), 2);
    assert_true(at > TEXT_MAX - 3 * (DRAFT_TRIES + 2));
    assert_true(d.ops - before <= DRAFT_TRIES * (1 + DRAFT_MATCH));
    d.tries = UINT32_MAX;
    assert_int_equal(draft_find(&d, t, t, TEXT_MAX, &at), 3);
    assert_int_equal(at, 3);
    draft_fini(&d);
}

/* Counted, not timed: tables that double cost at most two steps a token more.
 */
static void rule_2_constant_cost(void **state)
{
    (void)state;
    const uint32_t n = 3 * DRAFT_WINDOW;
    int32_t *t = malloc(n * sizeof(*t));
    assert_non_null(t);
    for (int kind = 0; kind < 3; kind++) {
        uint64_t seed = 7;
        for (uint32_t i = 0; i < n; i++) {
            t[i] = kind == 0   ? 1
                   : kind == 1 ? (int32_t)(i % 7)
                               : (int32_t)rnd(&seed, 50000);
        }
        struct draft d;
        uint64_t worst = 0;
        draft_init(&d, 2);
        for (uint32_t i = 0; i < n; i++) {
            draft_extend(&d, t, i + 1, 1);
            uint64_t before = d.ops;
            uint32_t at = 0;
            (void)draft_find(&d, t, t, i + 1, &at);
            worst = d.ops - before > worst ? d.ops - before : worst;
            d.ops = before;
        }
        assert_true(d.ops <= 3u * n);
        assert_true(worst <= 2 * DRAFT_TRIES * (1 + DRAFT_MATCH));
        uint64_t before = d.ops;
        draft_truncate(&d, t, n - 1000);
        assert_true(d.ops - before <= 1000);
        draft_fini(&d);
    }
    free(t);
}

static void rule_2_in_slices(void **state)
{
    (void)state;
    int32_t t[100];
    struct draft d;
    for (int i = 0; i < 100; i++) {
        t[i] = i % 10;
    }
    draft_init(&d, 3);
    draft_extend(&d, t, 100, 30);
    assert_int_equal(d.n, 30);
    draft_extend(&d, t, 100, 0);
    assert_int_equal(d.n, 30);
    draft_extend(&d, t, 100, 1000);
    assert_int_equal(d.n, 100);
    check(&d, t, 100, 3);
    draft_fini(&d);
}

static void rule_3_old_positions_are_forgotten(void **state)
{
    (void)state;
    const uint32_t n = DRAFT_WINDOW + 5000;
    int32_t *t = malloc(n * sizeof(*t));
    assert_non_null(t);
    for (uint32_t i = 0; i < n; i++) {
        t[i] = (int32_t)i;
    }
    for (uint32_t i = 0; i < 20; i++) { /* the end repeats the beginning */
        t[n - 20 + i] = t[100 + i];
    }
    struct draft d;
    uint32_t at = 0;
    draft_init(&d, 3);
    draft_extend(&d, t, n, UINT32_MAX);
    assert_int_equal(d.cap, DRAFT_WINDOW);
    assert_true(d.low > 0 && d.n - d.low <= DRAFT_WINDOW);
    assert_int_equal(draft_find(&d, t, t, n, &at), 0);
    /* Cut, and on with another end: what is still remembered is found. */
    draft_truncate(&d, t, n - 100);
    for (uint32_t i = 0; i < 10; i++) {
        t[n - 100 + i] = t[n - 3000 + i];
    }
    draft_extend(&d, t, n - 90, UINT32_MAX);
    assert_int_equal(draft_find(&d, t, t, n - 90, &at), 10);
    assert_int_equal(at, n - 3000 + 10);
    /* To before all that is remembered: it is indexed again. */
    draft_truncate(&d, t, 2000);
    for (uint32_t i = 0; i < 10; i++) {
        t[2000 + i] = t[500 + i];
    }
    draft_extend(&d, t, 2010, UINT32_MAX);
    assert_int_equal(d.n, 2010);
    assert_int_equal(draft_find(&d, t, t, 2010, &at), 10);
    assert_int_equal(at, 510);
    draft_fini(&d);
    free(t);
}

static void a_repetition_goes_on(void **state)
{
    (void)state;
    static const int32_t t[] = {9, 1, 2, 3, 1, 2, 3};
    int32_t out[8];
    assert_int_equal(draft_copy(t, countof(t), 4, 8, out), 8);
    static const int32_t want[] = {1, 2, 3, 1, 2, 3, 1, 2};
    assert_memory_equal(out, want, sizeof(want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule_1_equals_brute_force),
        cmocka_unit_test(rule_1_tail_of_another_text),
        cmocka_unit_test(rule_1_tries_are_bounded),
        cmocka_unit_test(rule_2_constant_cost),
        cmocka_unit_test(rule_2_in_slices),
        cmocka_unit_test(rule_3_old_positions_are_forgotten),
        cmocka_unit_test(a_repetition_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
