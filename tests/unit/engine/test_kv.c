/* test_kv.c - blocks of keys and values against plain arrays (kv.h). */
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>

#include "../unit.h"
#include "base/half.h"
#include "base/num.h"
#include "engine/cpu/kv.h"
#include "engine/cpu/slab.h"
#include "proto/limits.h"
#include "rss.h"

/* The pool's slabs come from here, so that memory can run out. */
static long slabs_left = -1; /* < 0: plenty */

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (slabs_left == 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    slabs_left -= slabs_left > 0 ? 1 : 0;
    if (real == NULL) { /* what POSIX gives for it */
        *(void **)(&real) = dlsym(RTLD_NEXT, "mmap");
    }
    return real(at, n, prot, flags, fd, offset);
}

static uint32_t noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static const struct kv_shape shapes[] = {
    {.heads = 2,   .dim = 16, .positions = 200, .key = true},
    {.heads = 2,            .dim = 16,            .positions = 200       },
    {.heads = 1,            .dim = 5,            .positions = 200,  .key = true},
    {.heads = 3, .dim = 21,          .positions = 200               },
};
#define STATES    4
#define POSITIONS 200u
#define FLAT_MAX  (3 * 200 * 21)

static size_t flat(size_t state)
{
    return (size_t)shapes[state].heads * shapes[state].dim * POSITIONS;
}

/* A table and what it must hold. */
struct twin {
    struct kv_table *t;
    uint16_t *is[STATES];
};

static struct kv_pool *pool_of(void)
{
    struct kv_pool *p = NULL;
    struct err e = {0};
    unit_ok(kv_pool_new(STATES, shapes, &p, &e), &e);
    return p;
}

static void twin_new(struct twin *w, struct kv_pool *p)
{
    struct err e = {0};
    unit_ok(kv_table_new(p, &w->t, &e), &e);
    for (size_t i = 0; i < STATES; i++) {
        w->is[i] = calloc(flat(i), sizeof(uint16_t));
        assert_non_null(w->is[i]);
    }
}

static void twin_free(struct twin *w)
{
    kv_table_free(w->t);
    for (size_t i = 0; i < STATES; i++) {
        free(w->is[i]);
    }
    memset(w, 0, sizeof(*w));
}

static void twin_check(const struct twin *w)
{
    static uint16_t got[FLAT_MAX];
    for (size_t i = 0; i < STATES; i++) {
        memset(got, 0xaa, sizeof(got));
        kv_flatten(w->t, i, got);
        assert_memory_equal(got, w->is[i], flat(i) * sizeof(got[0]));
    }
}

/* Forget positions >= n. */
static void twin_cut(struct twin *w, uint32_t n)
{
    for (size_t i = 0; i < STATES; i++) {
        size_t dim = shapes[i].dim;
        for (size_t h = 0; h < shapes[i].heads && n < POSITIONS; h++) {
            memset(w->is[i] + (h * POSITIONS + n) * dim, 0,
                   (POSITIONS - n) * dim * sizeof(uint16_t));
        }
    }
}

static void twin_write(struct twin *w, uint32_t first, uint32_t n,
                       uint64_t *seed)
{
    struct err e = {0};
    unit_ok(kv_reserve(w->t, first, n, &e), &e);
    for (uint32_t pos = first; pos < first + n; pos++) {
        for (size_t i = 0; i < STATES; i++) {
            float x[64];
            size_t dim = shapes[i].dim;
            for (size_t k = 0; k < shapes[i].heads * dim; k++) {
                x[k] = (float)(noise(seed) % 20001) * 0.0013f - 13.0f;
                w->is[i][(k / dim * POSITIONS + pos) * dim + k % dim] =
                    half_from_float(x[k]);
            }
            kv_store(w->t, i, pos, x);
        }
    }
}

static void twin_fork(struct twin *to, const struct twin *from, uint32_t n)
{
    struct err e = {0};
    unit_ok(kv_fork(from->t, n, &to->t, &e), &e);
    for (size_t i = 0; i < STATES; i++) {
        to->is[i] = malloc(flat(i) * sizeof(uint16_t));
        assert_non_null(to->is[i]);
        memcpy(to->is[i], from->is[i], flat(i) * sizeof(uint16_t));
    }
    twin_cut(to, n);
}

/* Bytes that may stay mapped without a block in them. */
static uint64_t all_spares(void)
{
    return STATES * SLAB_SPARE;
}

/* Any order of everything, on eight tables that share blocks. */
static void test_random(void **state)
{
    (void)state;
    enum { TABLES = 8, TURNS = 3000 };
    struct kv_pool *p = pool_of();
    struct twin w[TABLES] = {0};
    uint64_t seed = 1;
    for (int turn = 0; turn < TURNS; turn++) {
        struct twin *a = &w[noise(&seed) % TABLES];
        struct twin *b = &w[noise(&seed) % TABLES];
        uint32_t pos = noise(&seed) % POSITIONS;
        uint32_t n = 1 + noise(&seed) % 70;
        n = n < POSITIONS - pos ? n : POSITIONS - pos;
        if (a->t == NULL) {
            twin_new(a, p);
        }
        switch (noise(&seed) % 8) {
        case 0:
            twin_free(a);
            break;
        case 1:
            kv_truncate(a->t, pos);
            twin_cut(a, pos);
            kv_pool_trim(p, true);
            break;
        case 2:
        case 3:
            if (b->t == NULL) {
                twin_fork(b, a, noise(&seed) % (POSITIONS + 20));
            }
            break;
        default:
            twin_write(a, pos, n, &seed);
            break;
        }
        assert_true(kv_pool_used(p) <= kv_pool_mapped(p));
        assert_true(kv_pool_mapped(p) <= TABLES * kv_table_most(p));
        for (int i = 0; i < TABLES; i++) {
            if (w[i].t != NULL && (turn % 16 == 0 || &w[i] == a)) {
                twin_check(&w[i]);
            }
        }
    }
    for (int i = 0; i < TABLES; i++) {
        twin_free(&w[i]);
    }
    assert_int_equal(kv_pool_used(p), 0);
    kv_pool_trim(p, true);
    assert_true(kv_pool_mapped(p) <= all_spares());
    kv_pool_free(p);
}

/* Bytes of a block of every state, without what a block costs itself. */
static uint64_t column_bytes(void)
{
    uint64_t n = 0;
    for (size_t i = 0; i < STATES; i++) {
        size_t wide = shapes[i].key ? shapes[i].dim : kv_pad(shapes[i].dim);
        n += shapes[i].heads * wide * KV_BLOCK * 2;
    }
    return n;
}

/* What costs a block and what does not. */
static void test_bytes(void **state)
{
    (void)state;
    struct kv_pool *p = pool_of();
    struct twin a = {0};
    struct twin b = {0};
    uint64_t seed = 2;
    assert_int_equal(kv_pool_used(p), 0);
    twin_new(&a, p);
    twin_write(&a, 0, 64, &seed);
    uint64_t one = kv_pool_used(p);
    assert_in_range(one, column_bytes(), column_bytes() + STATES * 64);
    twin_write(&a, 64, 66, &seed);
    assert_int_equal(kv_pool_used(p), 3 * one);

    kv_truncate(a.t, 64);
    twin_cut(&a, 64);
    assert_int_equal(kv_pool_used(p), one);
    twin_write(&a, 64, 128, &seed);
    assert_int_equal(kv_pool_used(p), 3 * one);

    twin_fork(&b, &a, 100); /* shares two, then copies the second */
    assert_int_equal(kv_pool_used(p), 3 * one);
    twin_write(&b, 100, 1, &seed);
    assert_int_equal(kv_pool_used(p), 4 * one);
    twin_write(&a, 100, 1, &seed); /* which is a's own again */
    assert_int_equal(kv_pool_used(p), 4 * one);
    twin_check(&a);
    twin_check(&b);

    twin_free(&b);
    twin_write(&a, 192, 8, &seed);
    assert_int_equal(kv_pool_used(p), 4 * one);
    kv_pool_trim(p, true);
    assert_true(kv_pool_mapped(p) >= 4 * one);
    assert_true(kv_pool_mapped(p) <= kv_table_most(p) + all_spares());
    twin_free(&a);
    assert_int_equal(kv_pool_used(p), 0);
    kv_pool_free(p);
}

/* A reserve that fails half way, at each block it could fail at. */
static void test_no_memory(void **state)
{
    (void)state;
    struct err e = {0};
    struct kv_pool *p = pool_of();
    struct twin a = {0};
    struct twin b = {0};
    uint64_t seed = 3;
    twin_new(&a, p);
    twin_write(&a, 0, 70, &seed);
    twin_fork(&b, &a, 66);
    /* Copies of the second blocks and then third ones: a slab more each round,
     * the rest out of the pool. */
    int rounds = 0;
    for (int rc = -1; rc != 0; rounds++) {
        slabs_left = 1;
        rc = kv_reserve(b.t, 66, 100, &e);
        slabs_left = -1;
        assert_true(rc == 0 || rc == ERR_NOMEM);
        twin_check(&a);
        if (rc < 0) {
            twin_check(&b);
        }
    }
    assert_true(rounds >= STATES);
    twin_write(&b, 66, 100, &seed);
    twin_check(&a);
    twin_check(&b);

    int refused = 0; /* a slab that is there may have room for some */
    for (size_t i = 0; i < STATES; i++) {
        static uint16_t in[FLAT_MAX];
        memset(in, 0x11, sizeof(in));
        slabs_left = 0;
        int rc = kv_unflatten(b.t, i, in, &e);
        slabs_left = -1;
        assert_true(rc == 0 || rc == ERR_NOMEM);
        refused += rc != 0;
        if (rc == 0) {
            memcpy(b.is[i], in, flat(i) * sizeof(in[0]));
        }
    }
    assert_true(refused > 0);
    twin_check(&b);
    twin_free(&a);
    twin_free(&b);
    kv_pool_free(p);
}

static void test_limits(void **state)
{
    (void)state;
    struct err e = {0};
    struct kv_pool *p = pool_of();
    struct twin a = {0};
    uint64_t seed = 4;
    twin_new(&a, p);
    twin_write(&a, 190, 10, &seed);
    assert_int_equal(kv_reserve(a.t, 200, 1, &e), ERR_CONTEXT);
    assert_int_equal(kv_reserve(a.t, 150, 51, &e), ERR_CONTEXT);
    assert_int_equal(kv_reserve(a.t, UINT32_MAX, 2, &e), ERR_CONTEXT);
    assert_int_equal(kv_reserve(a.t, 1, UINT32_MAX, &e), ERR_CONTEXT);
    unit_ok(kv_reserve(a.t, 200, 0, &e), &e);
    kv_truncate(a.t, 5000);
    twin_check(&a);
    twin_free(&a);
    kv_pool_free(p);

    static const struct kv_shape bad[] = {
        {.heads = 0,     .dim = 4,          .positions = 4         },
        {.heads = 1,     .dim = 0,          .positions = 4         },
        {.heads = 1,     .dim = 4,          .positions = 0         },
        {.heads = 1,     .dim = 4,          .positions = UINT32_MAX},
        {.heads = 1,     .dim = UINT32_MAX, .positions = 4         },
        {.heads = 65536, .dim = 65536,      .positions = 4         },
    };
    for (size_t i = 0; i < countof(bad); i++) {
        assert_int_equal(kv_pool_new(1, &bad[i], &p, &e), ERR_INVALID);
    }
    kv_table_free(NULL);
    kv_pool_free(NULL);
}

/* Every bit pattern comes back, and zeros cost nothing. */
static void test_flat(void **state)
{
    (void)state;
    struct err e = {0};
    struct kv_pool *p = pool_of();
    struct twin a = {0};
    uint64_t seed = 5;
    twin_new(&a, p);
    for (size_t i = 0; i < STATES; i++) {
        for (size_t k = 0; k < flat(i); k++) {
            size_t pos = k / shapes[i].dim % POSITIONS;
            bool in = pos >= 64 && pos < 130 + i;
            a.is[i][k] = in ? (uint16_t)noise(&seed) : 0;
        }
        unit_ok(kv_unflatten(a.t, i, a.is[i], &e), &e);
    }
    twin_check(&a);
    uint64_t bytes = kv_pool_used(p);
    for (size_t i = 0; i < STATES; i++) {
        memset(a.is[i], 0, flat(i) * sizeof(uint16_t));
        a.is[i][POSITIONS * shapes[i].dim - 1] = 0x8000; /* -0 is something */
        unit_ok(kv_unflatten(a.t, i, a.is[i], &e), &e);
    }
    twin_check(&a);
    /* Two blocks each and, while the second is built, one more. */
    assert_true(bytes >= 2 * column_bytes() &&
                kv_pool_used(p) <= 4 * (column_bytes() + STATES * 64));
    twin_write(&a, 3, 1, &seed);
    twin_check(&a);
    twin_free(&a);
    kv_pool_free(p);
}

/* States of a model of some size: a table of them takes 64 MiB. */
static const struct kv_shape large[] = {
    {.heads = 8, .dim = 128, .positions = 16384, .key = true},
    {.heads = 8,            .dim = 128,            .positions = 16384      },
};

#define LARGE_MAX 16384u

static struct kv_pool *large_pool(void)
{
    struct kv_pool *p = NULL;
    struct err e = {0};
    unit_ok(kv_pool_new(countof(large), large, &p, &e), &e);
    return p;
}

static void large_write(struct kv_table *t, uint32_t first, uint32_t n)
{
    struct err e = {0};
    float x[8 * 128];
    for (size_t i = 0; i < countof(x); i++) {
        x[i] = (float)i;
    }
    unit_ok(kv_reserve(t, first, n, &e), &e);
    for (uint32_t pos = first; pos < first + n; pos++) {
        for (size_t i = 0; i < countof(large); i++) {
            kv_store(t, i, pos, x);
        }
    }
}

/* What the last table held goes back to the system. */
static void test_memory_comes_back(void **state)
{
    (void)state;
    struct kv_pool *p = large_pool();
    struct err e = {0};
    struct kv_table *t = NULL;
    for (int turn = 0; turn < 2; turn++) {
        uint64_t before = rss_anon();
        unit_ok(kv_table_new(p, &t, &e), &e);
        for (uint32_t pos = 0; pos < LARGE_MAX; pos += 100) {
            uint32_t left = LARGE_MAX - pos;
            large_write(t, pos, left < 100 ? left : 100);
        }
        assert_int_equal(kv_pool_used(p) >> 20, 64);
        assert_true(kv_pool_mapped(p) <= kv_table_most(p));
        assert_true(rss_anon() == 0 || rss_anon() >= before + MIB(60));
        kv_truncate(t, LARGE_MAX / 2);
        kv_pool_trim(p, true);
        assert_true(kv_pool_mapped(p) <= MIB(33) + 2 * SLAB_HUGE + SLAB_SPARE);
        kv_table_free(t);
        kv_pool_trim(p, true);
        assert_true(kv_pool_mapped(p) <= SLAB_SPARE);
        assert_true(rss_anon() <= before + SLAB_SPARE + MIB(1));
    }
    kv_pool_free(p);
}

/* Sequences that grow side by side leave one by one, each with what it had. */
static void test_each_leaves_with_its_own(void **state)
{
    (void)state;
    enum { TABLES = 8, EACH = 1000 };
    struct kv_pool *p = large_pool();
    struct kv_table *t[TABLES];
    struct err e = {0};
    uint64_t seed = 7;
    for (int i = 0; i < TABLES; i++) {
        unit_ok(kv_table_new(p, &t[i], &e), &e);
    }
    for (uint32_t pos = 0; pos < EACH; pos += 10) {
        for (int i = 0; i < TABLES; i++) {
            unit_ok(kv_reserve(t[i], pos, 10, &e), &e);
        }
    }
    uint64_t one = kv_pool_used(p) / TABLES; /* 4 MiB */
    for (uint64_t left = TABLES; left > 0; left--) {
        size_t i = noise(&seed) % left;
        kv_table_free(t[i]);
        t[i] = t[left - 1];
        kv_pool_trim(p, true);
        assert_true(kv_pool_mapped(p) <=
                    (left - 1) * (one + SLAB_HUGE) + SLAB_SPARE);
    }
    kv_pool_free(p);
}

/* What tables that end there cost at most. */
static uint64_t costs(const struct kv_pool *p, struct kv_table *const *t,
                      const uint32_t *end, size_t n)
{
    uint64_t sum = kv_table_base(p);
    for (size_t i = 0; i < n; i++) {
        uint64_t columns = (end[i] + KV_BLOCK - 1) / KV_BLOCK;
        sum += t[i] != NULL ? kv_table_base(p) + columns * kv_column_most(p) : 0;
    }
    return sum;
}

/* Short tables cost little: many fit into what one full table may cost. */
static void test_short_tables(void **state)
{
    (void)state;
    enum { TABLES = 12 };
    struct kv_pool *p = large_pool();
    struct kv_table *t[TABLES];
    uint32_t end[TABLES];
    struct err e = {0};
    for (size_t i = 0; i < TABLES; i++) {
        unit_ok(kv_table_new(p, &t[i], &e), &e);
        end[i] = 100 + (uint32_t)i * 10;
        unit_ok(kv_reserve(t[i], 0, end[i], &e), &e);
        assert_true(kv_pool_mapped(p) <= costs(p, t, end, i + 1));
    }
    assert_true(costs(p, t, end, TABLES) <= kv_table_most(p));
    for (size_t i = 0; i < TABLES; i++) {
        kv_table_free(t[i]);
    }
    kv_pool_free(p);
}

/* Any order of taking, sharing and giving back stays below what is promised
 * for so many tables, and ends with nothing. */
static void test_promise(void **state)
{
    (void)state;
    enum { TABLES = 6, TURNS = 4000, POS = 1024 };
    static const struct kv_shape two[] = {
        {.heads = 4, .dim = 128, .positions = POS, .key = true},
        {.heads = 4,            .dim = 120,            .positions = POS      },
    };
    struct kv_pool *p = NULL;
    struct kv_table *t[TABLES] = {0};
    struct err e = {0};
    uint64_t seed = 8;
    uint64_t most = 0;
    uint64_t promised = 0;      /* by what was held, the most so far */
    uint32_t end[TABLES] = {0}; /* where each table ends */
    unit_ok(kv_pool_new(countof(two), two, &p, &e), &e);
    for (int turn = 0; turn < TURNS; turn++) {
        size_t i = noise(&seed) % TABLES;
        size_t k = noise(&seed) % TABLES;
        uint32_t pos = noise(&seed) % POS;
        uint32_t n = noise(&seed) % (POS - pos) + 1;
        uint32_t what = noise(&seed) % 8;
        if (t[i] == NULL && t[k] != NULL && what < 6) {
            unit_ok(kv_fork(t[k], pos, &t[i], &e), &e);
            end[i] = (uint32_t)num_min(pos, end[k]);
        } else if (t[i] == NULL) {
            unit_ok(kv_table_new(p, &t[i], &e), &e);
        } else if (what == 0) {
            kv_table_free(t[i]);
            t[i] = NULL;
            end[i] = 0;
        } else if (what < 3) {
            kv_truncate(t[i], pos);
            end[i] = (uint32_t)num_min(pos, end[i]);
        } else if (what == 3) {
            kv_pool_trim(p, turn % 2 == 0);
        } else {
            unit_ok(kv_reserve(t[i], pos, n, &e), &e);
            end[i] = (uint32_t)num_max(end[i], pos + n);
        }
        promised = num_max(promised, costs(p, t, end, TABLES));
        assert_true(kv_pool_mapped(p) <= promised);
        most = num_max(most, kv_pool_mapped(p));
        assert_true(kv_pool_used(p) <= kv_pool_mapped(p));
        assert_true(kv_pool_mapped(p) <= TABLES * kv_table_most(p));
    }
    assert_true(most > 2 * kv_table_most(p)); /* it was tried */
    for (size_t i = 0; i < TABLES; i++) {
        kv_table_free(t[i]);
    }
    assert_int_equal(kv_pool_used(p), 0);
    kv_pool_trim(p, true);
    assert_true(kv_pool_mapped(p) <= countof(two) * SLAB_SPARE);
    kv_pool_free(p);
}

/* A step that gives up what the next one takes again asks nobody for it. */
static void test_to_and_fro(void **state)
{
    (void)state;
    struct kv_pool *p = large_pool();
    struct kv_table *t = NULL;
    struct err e = {0};
    unit_ok(kv_table_new(p, &t, &e), &e);
    unit_ok(kv_reserve(t, 0, 480, &e), &e); /* a slab is 7 or 8 blocks */
    kv_truncate(t, 440);
    unit_ok(kv_reserve(t, 440, 100, &e), &e);
    slabs_left = 0;
    for (int i = 0; i < 100; i++) {
        kv_truncate(t, 440);
        kv_pool_trim(p, true);
        unit_ok(kv_reserve(t, 440, 100, &e), &e);
    }
    kv_table_free(t); /* and one sequence that makes room for another */
    unit_ok(kv_table_new(p, &t, &e), &e);
    unit_ok(kv_reserve(t, 0, 540, &e), &e);
    slabs_left = -1;
    kv_table_free(t);
    kv_pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_memory_comes_back),
        cmocka_unit_test(test_each_leaves_with_its_own),
        cmocka_unit_test(test_short_tables),
        cmocka_unit_test(test_promise),
        cmocka_unit_test(test_to_and_fro),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
