/* test_slab.c - from which slab a taker takes, and which go back (slab.h). */
#include "../unit.h"
#include "engine/cpu/slab.h"

#define BLOCK KIB(512) /* four in a slab */
#define EACH  8u       /* blocks of a taker at most */

static struct slab_heap heap;

static void begin(uint32_t first)
{
    slab_init(&heap, BLOCK, EACH, first);
    assert_int_equal(heap.per, 4);
    assert_int_equal(slab_mapped(&heap), 0);
}

static struct slab_block *take(struct slab_taker *own)
{
    bool zero = false;
    struct slab_block *b = slab_take(&heap, own, &zero);
    assert_non_null(b);
    assert_int_equal((uintptr_t)b % SLAB_ALIGN, 0);
    const char *p = (const char *)(b + 1);
    for (size_t i = 0; zero && i < BLOCK - sizeof(*b); i++) {
        assert_int_equal(p[i], 0);
    }
    memset(b + 1, 0x5a, BLOCK - sizeof(*b));
    return b;
}

/* Takers share no slab while both are there. */
static void each_fills_its_own(void **state)
{
    (void)state;
    struct slab_taker own[2] = {0};
    struct slab_block *b[2][EACH];
    begin(0);
    for (size_t i = 0; i < EACH; i++) {
        b[0][i] = take(&own[0]);
        b[1][i] = take(&own[1]);
        assert_ptr_not_equal(b[0][i]->slab, b[1][i]->slab);
        assert_ptr_equal(b[0][i]->slab, b[0][i / 4 * 4]->slab);
    }
    assert_int_equal(heap.slabs, 4);
    for (size_t i = 0; i < EACH; i++) {
        slab_give(&heap, b[0][i]);
    }
    slab_trim(&heap, true);
    assert_int_equal(heap.slabs, 2 + SLAB_SPARES);
    for (size_t i = 0; i < EACH; i++) {
        slab_give(&heap, b[1][i]);
    }
    slab_trim(&heap, true);
    assert_int_equal(heap.slabs, SLAB_SPARES);
    slab_fini(&heap);
}

/* Of slabs that are nobody's the fullest is filled first; then a spare one. */
static void the_fullest_is_next(void **state)
{
    (void)state;
    struct slab_taker own[4] = {0};
    struct slab_block *b[3][3];
    begin(0);
    for (size_t k = 0; k < 3; k++) { /* 1, 3 and 2 blocks */
        for (size_t i = 0; i < (size_t[]){1, 3, 2}[k]; i++) {
            b[k][i] = take(&own[k]);
        }
    }
    for (size_t k = 0; k < 3; k++) {
        slab_leave(&heap, &own[k]);
        assert_null(own[k].own);
    }
    struct slab_block *c[7];
    for (size_t i = 0; i < countof(c); i++) {
        c[i] = take(&own[3]);
    }
    static const size_t of[] = {1, 2, 2, 0, 0, 0};
    for (size_t i = 0; i < countof(of); i++) {
        assert_ptr_equal(c[i]->slab, b[of[i]][0]->slab);
    }
    assert_int_equal(heap.slabs, 4);
    slab_give(&heap, c[6]);
    assert_null(own[3].own); /* without a block in it it is not its own */
    slab_trim(&heap, true);
    assert_int_equal(heap.spares, 1);
    c[6] = take(&own[3]);
    assert_int_equal(heap.slabs, 4);
    for (size_t i = 0; i < countof(c); i++) {
        slab_give(&heap, c[i]);
    }
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < (size_t[]){1, 3, 2}[k]; i++) {
            slab_give(&heap, b[k][i]);
        }
    }
    slab_fini(&heap);
}

/* A full slab that gets a block back is for anybody. */
static void a_gap_is_filled(void **state)
{
    (void)state;
    struct slab_taker own[2] = {0};
    struct slab_block *b[4];
    begin(0);
    for (size_t i = 0; i < 4; i++) {
        b[i] = take(&own[0]);
    }
    assert_null(own[0].own);
    slab_give(&heap, b[1]);
    b[1] = take(&own[1]);
    assert_ptr_equal(b[1]->slab, b[0]->slab);
    assert_int_equal(heap.slabs, 1);
    for (size_t i = 0; i < 4; i++) {
        slab_give(&heap, b[i]);
    }
    slab_fini(&heap);
}

/* The first two blocks of each taker are together; the rest is its own. */
static void the_first_are_shared(void **state)
{
    (void)state;
    struct slab_taker own[4] = {0};
    struct slab_block *b[4][3];
    begin(2);
    for (size_t k = 0; k < 4; k++) {
        for (size_t i = 0; i < 3; i++) {
            b[k][i] = take(&own[k]);
        }
        assert_ptr_equal(b[k][0]->slab, b[k / 2 * 2][0]->slab);
        assert_ptr_equal(b[k][0]->slab, b[k][1]->slab);
        assert_ptr_equal(b[k][2]->slab, own[k].own);
    }
    assert_int_equal(heap.slabs, 6);
    slab_give(&heap, b[1][2]);
    b[1][2] = take(&own[1]); /* its third again */
    assert_ptr_equal(b[1][2]->slab, own[1].own);
    slab_leave(&heap, &own[0]);
    slab_leave(&heap, &own[1]);
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < 3; i++) {
            slab_give(&heap, b[k][i]);
        }
    }
    slab_trim(&heap, true); /* nothing of the other two was among them */
    assert_int_equal(heap.slabs, 3 + SLAB_SPARES);
    for (size_t k = 2; k < 4; k++) {
        for (size_t i = 0; i < 3; i++) {
            slab_give(&heap, b[k][i]);
        }
    }
    slab_fini(&heap);
    begin(5); /* more than a slab: shared by nobody */
    b[0][0] = take(&own[2]);
    assert_ptr_equal(b[0][0]->slab, own[2].own);
    slab_give(&heap, b[0][0]);
    slab_fini(&heap);
}

/* Half of all slabs may be empty, until somebody wants them back. */
static void as_many_stay(void **state)
{
    (void)state;
    struct slab_taker own[12] = {0};
    struct slab_block *b[12];
    begin(0);
    for (size_t k = 0; k < 12; k++) {
        b[k] = take(&own[k]);
    }
    for (uint32_t k = 0; k < 12; k++) {
        slab_give(&heap, b[k]);
        slab_trim(&heap, false);
        uint32_t most = k < 9 ? 12 - k - 1 : SLAB_SPARES;
        assert_int_equal(heap.spares, k + 1 < most ? k + 1 : most);
        assert_true(k >= 6 || heap.slabs == 12);
    }
    for (size_t k = 0; k < 12; k++) {
        b[k] = take(&own[k]);
    }
    for (size_t k = 0; k < 4; k++) {
        slab_give(&heap, b[k]);
    }
    slab_trim(&heap, true);
    assert_int_equal(heap.slabs, 8 + SLAB_SPARES);
    for (size_t k = 4; k < 12; k++) {
        slab_give(&heap, b[k]);
    }
    slab_fini(&heap);
}

/* What small takers pay is near what they take; large blocks are a slab. */
static void sizes(void **state)
{
    (void)state;
    struct slab_heap h;
    slab_init(&h, KIB(4), 64, 0); /* 256 KiB: an eighth, and a page */
    assert_in_range(h.slab_bytes, KIB(32), KIB(64));
    assert_in_range(slab_most(&h, 64), KIB(256), KIB(384));
    slab_init(&h, KIB(4), 1, 0);
    assert_in_range(slab_most(&h, 1), KIB(8), KIB(64));
    slab_init(&h, KIB(32) + 64, 2304, 0); /* gemma's of 4096 positions */
    assert_in_range(h.slab_bytes, SLAB_HUGE, SLAB_HUGE + KIB(64));
    assert_in_range(slab_most(&h, 2304), MIB(72), MIB(77));
    slab_init(&h, MIB(5), 3, 0);
    assert_int_equal(h.per, 1);
    assert_in_range(slab_most(&h, 3), MIB(20), MIB(21));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fills_its_own),
        cmocka_unit_test(the_fullest_is_next),
        cmocka_unit_test(a_gap_is_filled),
        cmocka_unit_test(the_first_are_shared),
        cmocka_unit_test(as_many_stay),
        cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
