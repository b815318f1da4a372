/* test_tails.c - tails against plain arrays of all positions (tails.h): what is
 * promised is there, what is there is right, and forks do not disturb each
 * other. */
#include "../unit.h"
#include "base/half.h"
#include "base/num.h"
#include "engine/tails.h"

#define POSITIONS 400u
#define PORTS     3u
#define WIDE      7u
#define MARKS     (ENGINE_MARKS_MAX + 1)

static const struct tail_port ports[PORTS] = {
    {.width = 5,    .len = 2},
    {.width = WIDE, .len = 1,  .wide = true},
    {.width = 1,    .len = 40},
};

/* Tails and what they must hold. */
struct twin {
    struct tails *t;
    uint32_t n; /* length of the sequence */
    float is[PORTS][POSITIONS][WIDE];
    uint32_t n_marks, marks[ENGINE_MARKS_MAX]; /* the last one first */
};

static uint32_t noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static struct twin *twin_new(void)
{
    struct twin *w = calloc(1, sizeof(*w));
    struct err e = {0};
    assert_non_null(w);
    unit_ok(tails_new(ports, PORTS, &w->t, &e), &e);
    return w;
}

static void twin_free(struct twin *w)
{
    tails_free(w->t);
    free(w);
}

/* Put n positions after `keep`, which become the sequence's when they are
 * right; the last `wrong` are left out again. */
static void put(struct twin *w, uint32_t n, uint32_t wrong, uint64_t *seed)
{
    struct err e = {0};
    n = (uint32_t)num_min(n, POSITIONS - w->n);
    wrong = (uint32_t)num_min(wrong, n);
    unit_ok(tails_reserve(w->t, w->n, n, &e), &e);
    for (size_t i = 0; i < PORTS; i++) { /* as layers run: port after port */
        for (uint32_t pos = w->n; pos < w->n + n; pos++) {
            for (uint32_t k = 0; k < ports[i].width; k++) {
                float x = (float)(noise(seed) % 20001) * 0.0013f - 13.0f;
                w->is[i][pos][k] = ports[i].wide ? x : half_round(x);
            }
            tails_put(w->t, i, pos, w->is[i][pos]);
        }
    }
    w->n += n - wrong;
}

static bool marked(const struct twin *w, uint32_t n)
{
    for (uint32_t i = 0; i < w->n_marks; i++) {
        if (w->marks[i] == n) {
            return true;
        }
    }
    return false;
}

static void forget_marks(struct twin *w)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < w->n_marks; i++) {
        if (w->marks[i] <= w->n) {
            w->marks[left++] = w->marks[i];
        }
    }
    w->n_marks = left;
}

/* What a row at n reads. */
static void check_at(const struct twin *w, uint32_t n)
{
    for (size_t i = 0; i < PORTS; i++) {
        for (uint32_t q = n > ports[i].len ? n - ports[i].len : 0; q < n; q++) {
            float got[WIDE];
            tails_get(w->t, i, q, n, got);
            assert_memory_equal(got, w->is[i][q],
                                ports[i].width * sizeof(*got));
        }
    }
}

static void check(const struct twin *w)
{
    for (uint32_t n = 0; n <= w->n; n++) {
        bool can = tails_can(w->t, n);
        if (!can && (n == w->n || n % STATE_BLOCK == 0 || marked(w, n))) {
            fail_msg("nothing at %u of %u", n, w->n);
        }
        if (can) {
            check_at(w, n);
        }
    }
}

static void mark(struct twin *w, uint32_t n)
{
    struct err e = {0};
    unit_ok(tails_mark(w->t, n, false, &e), &e);
    memmove(w->marks + 1, w->marks, (ENGINE_MARKS_MAX - 1) * sizeof(*w->marks));
    w->marks[0] = n;
    w->n_marks += w->n_marks < ENGINE_MARKS_MAX;
}

/* A place at which w can be cut, not its end if it can be helped. */
static uint32_t place(const struct twin *w, uint64_t *seed)
{
    uint32_t n = noise(seed) % (w->n + 1);
    while (!tails_can(w->t, n)) {
        n--;
    }
    return n;
}

static struct twin *fork_at(const struct twin *w, uint32_t n)
{
    struct twin *f = malloc(sizeof(*f));
    struct err e = {0};
    assert_non_null(f);
    *f = *w;
    f->n = n;
    forget_marks(f);
    unit_ok(tails_fork(w->t, n, &f->t, &e), &e);
    return f;
}

/* Through a file's blocks, as a sequence that is loaded. */
static struct twin *reload(const struct twin *w)
{
    struct twin *f = twin_new();
    struct err e = {0};
    char block[40 * sizeof(float) * WIDE];
    uint32_t blocks = w->n / STATE_BLOCK;
    for (uint32_t b = 0; b < blocks; b++) {
        for (size_t i = 0; i < PORTS; i++) {
            assert_true(tails_block_bytes(&ports[i]) <= sizeof(block));
            tails_block_get(w->t, i, b, block);
            unit_ok(tails_block_put(f->t, i, b, block, &e), &e);
        }
    }
    memcpy(f->is, w->is, sizeof(f->is));
    f->n = blocks * STATE_BLOCK;
    return f;
}

static void test_random(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= 60; s++) {
        uint64_t seed = s * 977;
        struct twin *w[3] = {twin_new(), NULL, NULL};
        for (int turn = 0; turn < 60; turn++) {
            size_t i = noise(&seed) % 3;
            struct twin **at = w[i] != NULL ? &w[i] : &w[0];
            uint32_t n = 0;
            switch (noise(&seed) % 8) {
            case 0:
            case 1: /* a prompt, or a token and drafts */
                put(*at, 1 + noise(&seed) % 100, 0, &seed);
                break;
            case 2:
            case 3:
                put(*at, 1 + noise(&seed) % (ENGINE_DRAFTS_MAX + 1),
                    noise(&seed) % ENGINE_DRAFTS_MAX, &seed);
                break;
            case 4:
                mark(*at, place(*at, &seed));
                break;
            case 5:
                n = place(*at, &seed);
                tails_cut((*at)->t, n);
                (*at)->n = n;
                forget_marks(*at);
                break;
            case 6:
                if (w[2 - i / 2] == NULL) {
                    w[2 - i / 2] = fork_at(*at, place(*at, &seed));
                }
                break;
            default:
                if (i > 0 && w[i] != NULL) {
                    twin_free(w[i]);
                    w[i] = noise(&seed) % 2 == 0 ? NULL : reload(w[0]);
                }
            }
            for (size_t k = 0; k < 3; k++) {
                if (w[k] != NULL) {
                    check(w[k]);
                }
            }
        }
        for (size_t k = 0; k < 3; k++) {
            if (w[k] != NULL) {
                twin_free(w[k]);
            }
        }
    }
}

/* A long run that fails leaves the place where it began. */
static void test_hold(void **state)
{
    (void)state;
    struct twin *w = twin_new();
    struct err e = {0};
    uint64_t seed = 3;
    put(w, 101, 0, &seed);
    for (uint32_t i = 0; i < 10; i++) { /* another replaces it */
        unit_ok(tails_mark(w->t, w->n, true, &e), &e);
        uint32_t n = w->n;
        put(w, 90, 0, &seed);
        assert_true(tails_can(w->t, n));
        w->n = n; /* it failed */
        check(w);
        put(w, 1, 0, &seed);
    }
    twin_free(w);
}

static void test_refused(void **state)
{
    (void)state;
    struct twin *w = twin_new();
    struct tails *f = NULL;
    struct err e = {0};
    uint64_t seed = 3;
    put(w, 200, 0, &seed);
    assert_false(tails_can(w->t, 100));
    assert_int_equal(tails_fork(w->t, 100, &f, &e), ERR_CONFLICT);
    assert_null(f);
    twin_free(w);
}

/* What is said of memory is what is allocated. */
static void test_bytes(void **state)
{
    (void)state;
    uint64_t each = sizeof(uint32_t) * 2 + 2 * 5 * 2 + 1 * WIDE * 4 + 40 * 2;
    assert_int_equal(tails_each_bytes(ports, PORTS), each + sizeof(void *));
    uint64_t base = tails_base_bytes(ports, PORTS);
    assert_true(base > MARKS * each && base < MARKS * each + 8192);
    assert_int_equal(tails_base_bytes(NULL, 0), 0);
    assert_int_equal(tails_each_bytes(NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_hold),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
