/* test_sampler_random.c - the random numbers of draws and the exponential that
 * weighs them, both fixed for ever; draws follow their distribution. */
#include <math.h>

#include "engine/vexp.h"
#include "sampler_kit.h"

/* Known answers of the authors' Random123 library, philox4x32 with 10 rounds.
 */
static void test_philox(void **state)
{
    (void)state;
    static const struct {
        uint32_t ctr[4], key[2], want[4];
    } t[] = {
        {{0, 0, 0, 0},
         {0, 0},
         {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < countof(t); i++) {
        uint32_t got[4];
        sampler_philox(t[i].ctr, t[i].key, got);
        assert_memory_equal(got, t[i].want, sizeof(got));
    }
}

/* What a seed means is fixed for ever: these numbers may never change. */
static void test_random_is_fixed(void **state)
{
    (void)state;
    uint64_t first = ((uint64_t)0x6627e8d5 << 32 | 0xe169c58d) >> 11;
    assert_true(sampler_random(0, 0, 0) == (double)first * 0x1p-53);
    /* counter (choice, index), key (low, high half of the seed) */
    uint32_t r[4];
    sampler_philox((uint32_t[]){3, 9, 0, 0}, (uint32_t[]){7, 5}, r);
    uint64_t bits = ((uint64_t)r[0] << 32 | r[1]) >> 11;
    assert_true(sampler_random((uint64_t)5 << 32 | 7, 3, 9) ==
                (double)bits * 0x1p-53);
    assert_true(sampler_random(1, 3, 9) != sampler_random(1, 9, 3));
}

static void test_vexp(void **state)
{
    (void)state;
    uint64_t seed = 1;
    double worst = 0;
    for (int i = 0; i < 200000; i++) {
        float x = -(float)noise(&seed) * (i % 2 == 0 ? 0x1p-22f : 0x1p-27f);
        double got = 0;
        vexp(&x, 1, 0.25, 1, &got);
        long double want = expl((long double)x - 0.25L);
        if (x < -699) {
            continue;
        }
        double error = (double)fabsl(((long double)got - want) / want);
        worst = error > worst ? error : worst;
    }
    print_message("# worst relative error %.3g\n", worst);
    assert_true(worst < 4e-16);
    /* edges */
    float x[7] = {0, -1, -2, -INFINITY, -701, -0.5f, -1e30f};
    double all[7];
    vexp(x, 7, 0, 1, all);
    assert_true(all[0] == 1 && all[3] == 0 && all[4] == 0 && all[6] == 0);
}

/* Whatever stands beside it, a number has the same result; these bits may never
 * change. */
static void test_vexp_bits(void **state)
{
    (void)state;
    enum { N = 300 };
    uint64_t seed = 7;
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, by words */
    for (size_t n = 0; n < N; n++) {
        float x[N] = {0};
        double got[N];
        double scale = 0x1p-4 * (double)(1 + n % 40);
        double sum = 0.25;
        for (size_t i = 0; i < n; i++) {
            x[i] = 3 - (float)(noise(&seed) % 100000) * 0x1p-11f;
        }
        vexp(x, n, 3, scale, got);
        for (size_t i = 0; i < n; i++) {
            double one = -1;
            uint64_t bits = 0;
            vexp(&x[i], 1, 3, scale, &one);
            assert_true(one == got[i]);
            memcpy(&bits, &one, sizeof(bits));
            hash = (hash ^ bits) * 0x100000001b3u;
            sum += one;
        }
        assert_true(vexp_sum(x, n, 3, scale, 0.25) == sum);
    }
    assert_true(hash == 0x5da6ab04380d1b4eu);
}

/* 60000 draws by consecutive output indexes follow the distribution, and the
 * same seed draws the same. Critical value: chi-square, 7 degrees, 0.001. */
static void test_chi_square(void **state)
{
    (void)state;
    enum { N = 8, DRAWS = 60000 };
    float x[N] = {0, 1, -1, 0.5f, 2, -2, 0.25f, 1.5f};
    struct sampler *s = sampler_of(N);
    struct msg_sampling p;
    struct err e;
    msg_sampling_init(&p);
    p.temperature = 0.8f;
    for (p.seed = 0; p.seed < 4; p.seed++) {
        double want[N];
        unsigned seen[N] = {0};
        uint64_t sum_ids = 0;
        memcpy(want, sampler_probs(s, x, &p, NULL, 0, 0), sizeof(want));
        for (uint32_t i = 0; i < DRAWS; i++) {
            struct msg_token t;
            unit_ok(sampler_draw(s, x, &p, NULL, 0, i, &t, &e), &e);
            seen[t.id]++;
            sum_ids += (uint64_t)t.id * i;
        }
        double chi = 0;
        for (size_t i = 0; i < N; i++) {
            double mean = want[i] * (double)DRAWS;
            double d = seen[i] - mean;
            chi += d * d / mean;
        }
        print_message("# seed %u: chi-square %.2f\n", (unsigned)p.seed, chi);
        assert_true(chi < 24.32);
        for (uint32_t i = DRAWS; i-- > 0;) { /* any order, the same tokens */
            struct msg_token t;
            unit_ok(sampler_draw(s, x, &p, NULL, 0, i, &t, &e), &e);
            sum_ids -= (uint64_t)t.id * i;
        }
        assert_true(sum_ids == 0);
    }
    sampler_free(s);
}

/* The token is the inverse CDF of its random number in id order. */
static void test_inverse_cdf(void **state)
{
    (void)state;
    float x[4] = {0, 0, 0, 0};
    struct sampler *s = sampler_of(4);
    struct msg_sampling p;
    struct err e;
    msg_sampling_init(&p);
    p.temperature = 1;
    p.seed = 11;
    for (p.choice = 0; p.choice < 3; p.choice++) {
        for (uint32_t i = 0; i < 100; i++) {
            struct msg_token t;
            unit_ok(sampler_draw(s, x, &p, NULL, 0, i, &t, &e), &e);
            assert_int_equal(t.id, (int)(sampler_random(11, p.choice, i) * 4));
        }
    }
    sampler_free(s);
}

/* The same over many blocks of candidates, against the plain sum. */
static void test_inverse_cdf_wide(void **state)
{
    (void)state;
    enum { N = 5000 };
    float x[N];
    uint64_t seed = 4;
    for (size_t i = 0; i < N; i++) {
        x[i] = (float)(noise(&seed) % 1000) * 0.004f;
    }
    x[0] = x[N - 1] = -INFINITY;
    struct sampler *s = sampler_of(N);
    struct msg_sampling p;
    struct err e;
    msg_sampling_init(&p);
    p.temperature = 0.7f;
    p.min_p = 0.05f;
    double w[N];
    memcpy(w, sampler_probs(s, x, &p, NULL, 0, 0), sizeof(w));
    int32_t low = N;
    int32_t high = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        struct msg_token t;
        unit_ok(sampler_draw(s, x, &p, NULL, 0, i, &t, &e), &e);
        double u = sampler_random(0, 0, i);
        double below = 0;
        for (int32_t k = 0; k < t.id; k++) {
            below += w[k];
        }
        assert_true(w[t.id] > 0);
        assert_true(below <= u + 1e-12 && u - 1e-12 < below + w[t.id]);
        low = t.id < low ? t.id : low;
        high = t.id > high ? t.id : high;
    }
    assert_true(low < 100 && high > N - 100);
    sampler_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_random_is_fixed),
        cmocka_unit_test(test_vexp),
        cmocka_unit_test(test_vexp_bits),
        cmocka_unit_test(test_chi_square),
        cmocka_unit_test(test_inverse_cdf),
        cmocka_unit_test(test_inverse_cdf_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
