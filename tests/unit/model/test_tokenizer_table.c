/* test_tokenizer_table.c - a file whose texts, merges or special tokens were
 * chosen to fall together costs no more than any other: no run of full slots
 * grows with it. Against a hash without a key such files are made in a second.
 */
#include "model/tokenizer_impl.h"
#include "tests/unit/unit.h"

#define RUN_MAX 256u /* at most half full, random: some 60 */
#define N       8192u

/* A hash that has no key: what an adversary has read in the source. */
static uint32_t plain_text_hash(const char *p, size_t n)
{
    uint64_t h = 14695981039346656037U;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char)p[i]) * 1099511628211U;
    }
    return (uint32_t)(h ^ (h >> 32));
}

static uint64_t plain_key_hash(uint64_t k)
{
    k = (k ^ (k >> 30)) * 0xBF58476D1CE4E5B9U;
    k = (k ^ (k >> 27)) * 0x94D049BB133111EBU;
    return k ^ (k >> 31);
}

/* The longest run of full slots; full(ctx, i) tells. */
static size_t longest_run(size_t slots, bool (*full)(const void *ctx, size_t i),
                          const void *ctx)
{
    size_t best = 0;
    size_t run = 0;
    for (size_t i = 0; i < 2 * slots; i++) { /* twice: runs wrap around */
        run = full(ctx, i % slots) ? run + 1 : 0;
        best = run > best ? run : best;
    }
    return best;
}

static bool text_full(const void *ctx, size_t i)
{
    return ((const struct text_map *)ctx)->slots[i].id != TOKEN_NONE;
}

static void put_text(struct tokenizer *t, const char *text, size_t n)
{
    int32_t id = t->n_tokens++;
    t->tokens[id] =
        (struct token){.text_at = (uint32_t)t->blob.n, .text_n = (uint16_t)n};
    buf_put(&t->blob, text, n);
    assert_true(text_map_put(t, id));
}

static void colliding_texts(void **state)
{
    (void)state;
    struct tokenizer t = {.n_vocab = (int32_t)N};
    t.tokens = calloc(N, sizeof(*t.tokens));
    buf_init(&t.blob, 1 << 20);
    /* eight letters that all fall on the first slots of any table up to 2^14 */
    for (uint64_t x = 0; t.n_tokens < (int32_t)N; x++) {
        char text[8];
        for (unsigned k = 0; k < 8; k++) {
            text[k] = (char)('A' + (x >> (4 * k) & 15));
        }
        if ((plain_text_hash(text, 8) & 0x3FFF) == 0) {
            put_text(&t, text, 8);
        }
    }
    assert_int_equal(t.texts.n, N);
    size_t run = longest_run(t.texts.mask + 1, text_full, &t.texts);
    if (run > RUN_MAX) {
        fail_msg("%zu of %u texts stand in one run", run, N);
    }
    for (int32_t id = 0; id < (int32_t)N; id++) {
        struct span s = token_text(&t, id);
        assert_int_equal(text_map_get(&t, s.p, s.n), id);
    }
    assert_int_equal(text_map_get(&t, "absent", 6), TOKEN_NONE);
    free(t.texts.slots);
    free(t.tokens);
    buf_fini(&t.blob);
}

static bool merge_full(const void *ctx, size_t i)
{
    return ((const struct merge_map *)ctx)->slots[i].key != UINT64_MAX;
}

static void colliding_merges(void **state)
{
    (void)state;
    struct merge_map m = {0};
    uint32_t n = 0;
    assert_true(merge_map_reserve(&m, N));
    uint32_t(*pair)[2] = calloc(N, sizeof(*pair));
    for (uint64_t x = 0; n < N; x++) {
        uint32_t left = (uint32_t)(x >> 14);
        uint32_t right = (uint32_t)(x & 0x3FFF);
        if ((plain_key_hash((uint64_t)left << 32 | right) & m.mask) == 7) {
            pair[n][0] = left;
            pair[n][1] = right;
            merge_map_put(&m, (int32_t)left, (int32_t)right, n, (int32_t)n);
            n++;
        }
    }
    size_t run = longest_run(m.mask + 1, merge_full, &m);
    if (run > RUN_MAX) {
        fail_msg("%zu of %u merges stand in one run", run, N);
    }
    for (uint32_t i = 0; i < N; i++) {
        const struct merge_slot *s =
            merge_map_get(&m, (int32_t)pair[i][0], (int32_t)pair[i][1]);
        assert_non_null(s);
        assert_int_equal(s->id, i);
    }
    free(pair);
    free(m.slots);
}

static bool trie_full(const void *ctx, size_t i)
{
    return ((const struct trie *)ctx)->slots[i].key != UINT64_MAX;
}

/* Texts that each add one node to the tree, over an edge that falls on the
 * first slots: node n is the text that was put n-th. */
static void colliding_specials(void **state)
{
    (void)state;
    struct path {
        uint8_t n;
        char text[64];
    } *path = calloc(N + 1, sizeof(*path));
    struct trie r = {0};
    uint32_t n = 0;
    for (uint32_t parent = 0; parent <= n && n < N; parent++) {
        for (uint32_t byte = 0; byte < 256 && n < N; byte++) {
            uint64_t key = (uint64_t)parent << 8 | byte;
            if (path[parent].n == 63 || (plain_key_hash(key) & 0x3FFF) > 511) {
                continue;
            }
            n++;
            path[n] = path[parent];
            path[n].text[path[n].n++] = (char)byte;
            struct span s = {path[n].text, path[n].n};
            assert_true(trie_put(&r, s, (int32_t)n));
        }
    }
    assert_int_equal(n, N);
    assert_int_equal(r.n, N);
    size_t run = longest_run(r.mask + 1, trie_full, &r);
    if (run > RUN_MAX) {
        fail_msg("%zu of %u edges stand in one run", run, N);
    }
    struct tokenizer t = {.n_tokens = (int32_t)N + 1, .special = r};
    t.tokens = calloc(N + 1, sizeof(*t.tokens));
    for (uint32_t i = 1; i <= N; i++) {
        assert_int_equal(special_at(&t, path[i].text, path[i].n, true), i);
    }
    free(t.tokens);
    trie_fini(&r);
    free(path);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(colliding_texts),
        cmocka_unit_test(colliding_merges),
        cmocka_unit_test(colliding_specials),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
