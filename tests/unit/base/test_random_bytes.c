/* Random bytes: no part of them comes twice, whatever was asked for before. */
#include <pthread.h>
#include <stdlib.h>

#include "../unit.h"
#include "base/random.h"

enum { DRAWS = 4000 };

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, 8);
}

/* Sizes of every kind: what is left of the pool is now more, now less. */
static void *draw(void *out)
{
    uint8_t *p = out;
    for (size_t i = 0; i < DRAWS; i++) {
        uint8_t t[256];
        size_t n = 8 + i * 37 % 249;
        random_bytes(t, n);
        memcpy(p + 16 * i, t, 8);
        memcpy(p + 16 * i + 8, t + n - 8, 8);
        if (n < 16) { /* they overlap: not two draws */
            random_bytes(p + 16 * i + 8, 8);
        }
    }
    return NULL;
}

static void nothing_comes_twice(void **state)
{
    (void)state;
    uint8_t *p = malloc((size_t)4 * DRAWS * 8);
    pthread_t other;
    assert_non_null(p);
    assert_int_equal(pthread_create(&other, NULL, draw, p), 0);
    (void)draw(p + (size_t)2 * DRAWS * 8);
    assert_int_equal(pthread_join(other, NULL), 0);
    qsort(p, (size_t)4 * DRAWS, 8, by_bytes);
    for (size_t i = 1; i < (size_t)4 * DRAWS; i++) {
        assert_memory_not_equal(p + 8 * i, p + 8 * (i - 1), 8);
    }
    free(p);
}

static void the_largest_is_a_whole_pool(void **state)
{
    (void)state;
    uint8_t t[2][256];
    uint8_t one = 0;
    random_bytes(&one, 1); /* 255 are left: not enough */
    random_bytes(t[0], 256);
    random_bytes(t[1], 256);
    random_bytes(t[1], 0);
    for (size_t i = 0; i + 8 <= 256; i += 8) {
        assert_memory_not_equal(t[0] + i, t[1] + i, 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_comes_twice),
        cmocka_unit_test(the_largest_is_a_whole_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
