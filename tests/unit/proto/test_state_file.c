/* test_state_file.c - headers of saved states: decoding gives what was encoded;
 * other bytes are refused. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "base/hash.h"
#include "proto/state_file.h"

static int32_t tokens[192];
static struct state_array arrays[] = {
    {2, 4096},
    {1, 1000}
};
static uint64_t sums[2] = {0x1234567890abcdefu, 5};

static struct state_file sample(void)
{
    struct state_file f = {
        .backend = "cpu",
        .arith = "kernels 3",
        .from = 64,
        .to = 192,
        .created_ms = 1234567890123,
        .block_bytes = 5096,
        .n_arrays = 2,
        .long_list = true,
        .tokens = tokens,
        .arrays = arrays,
        .sums = sums,
    };
    memset(f.fingerprint, 'a', 64);
    for (size_t i = 0; i < countof(tokens); i++) {
        tokens[i] = (int32_t)i * 3;
    }
    return f;
}

static void test_round(void **state)
{
    (void)state;
    struct state_file in = sample();
    struct state_file out;
    struct buf b;
    struct err e;
    uint64_t n = 0;
    buf_init(&b, STATE_HEADER_MAX);
    state_file_put(&b, &in);
    assert_int_equal(b.n, state_header_bytes(&in));
    assert_int_equal(state_file_bytes(&in), b.n + 2 * 5096);
    unit_ok(state_file_peek(b.p, STATE_HEADER_LEAST, &n, &e), &e);
    assert_int_equal(n, b.n);
    unit_ok(state_file_get(b.p, b.n, &out, &e), &e);
    assert_string_equal(out.fingerprint, in.fingerprint);
    assert_string_equal(out.backend, "cpu");
    assert_string_equal(out.arith, "kernels 3");
    assert_int_equal(out.from, 64);
    assert_int_equal(out.to, 192);
    assert_true(out.created_ms == in.created_ms);
    assert_int_equal(out.block_bytes, 5096);
    assert_true(out.long_list);
    assert_memory_equal(out.tokens, tokens, sizeof(tokens));
    assert_memory_equal(out.arrays, arrays, sizeof(arrays));
    assert_memory_equal(out.sums, sums, sizeof(sums));
    state_file_fini(&out);
    buf_fini(&b);
}

/* Every single changed bit, and every cut, is seen. */
static void test_damage(void **state)
{
    (void)state;
    struct state_file in = sample();
    struct state_file out;
    struct buf b;
    struct err e;
    buf_init(&b, STATE_HEADER_MAX);
    state_file_put(&b, &in);
    for (size_t bit = 0; bit < b.n * 8; bit++) {
        b.p[bit / 8] ^= (char)(1u << (bit % 8));
        assert_int_equal(state_file_get(b.p, b.n, &out, &e), ERR_STATE);
        b.p[bit / 8] ^= (char)(1u << (bit % 8));
    }
    for (size_t n = 0; n < b.n; n++) {
        char *cut = malloc(n + 1);
        assert_non_null(cut);
        memcpy(cut, b.p, n);
        assert_int_equal(state_file_get(cut, n, &out, &e), ERR_STATE);
        free(cut);
    }
    buf_fini(&b);
}

/* Sound in its bytes, wrong in its numbers. */
static void test_numbers(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    buf_init(&b, STATE_HEADER_MAX);
    for (unsigned i = 0; i < 5; i++) {
        struct state_file f = sample();
        struct state_file out;
        struct state_array big[] = {
            {1, (uint32_t)STATE_BLOCK_MAX},
            {1, 1                        }
        };
        f.from = i == 0 ? 192 : f.from;
        f.to = i == 1 ? 191 : f.to;
        f.n_arrays = i == 2 ? 0 : f.n_arrays;
        f.block_bytes += i == 3;
        if (i == 4) {
            f.arrays = big;
            f.block_bytes = STATE_BLOCK_MAX + 1;
        }
        buf_clear(&b);
        state_file_put(&b, &f);
        assert_int_equal(state_file_get(b.p, b.n, &out, &e), ERR_STATE);
    }
    buf_fini(&b);
}

/* A file is taken when it is regular, whole, and no longer than it says. */
static void test_open(void **state)
{
    (void)state;
    char dir[] = "/tmp/aned-state-XXXXXX";
    char path[64];
    char link[64];
    struct state_file in = sample();
    struct state_file out;
    struct buf b;
    struct err e;
    char byte = 0;
    int fd = -1;
    assert_non_null(mkdtemp(dir));
    assert_true(file_join(path, sizeof(path), dir, "f"));
    assert_true(file_join(link, sizeof(link), dir, "link"));
    assert_int_equal(symlink("f", link), 0);
    buf_init(&b, MIB(1));
    state_file_put(&b, &in);
    const off_t head = (off_t)b.n;
    const off_t whole = (off_t)state_file_bytes(&in);
    const off_t lengths[] = {whole, 0,         100,      STATE_HEADER_LEAST,
                             head,  whole - 1, whole + 1};
    for (size_t i = 0; i < countof(lengths); i++) {
        unit_ok(file_write(path, b.p, b.n, &e), &e);
        assert_int_equal(truncate(path, lengths[i]), 0);
        int rc = state_file_open(path, &out, &fd, &e);
        if (i > 0) {
            assert_int_equal(rc, ERR_STATE);
            continue;
        }
        unit_ok(rc, &e);
        assert_int_equal(out.to, 192);
        unit_ok(state_file_read(fd, &byte, 1, (uint64_t)whole - 1, &e), &e);
        assert_int_equal(state_file_read(fd, &byte, 1, (uint64_t)whole, &e),
                         ERR_STATE);
        assert_int_equal(close(fd), 0);
        state_file_fini(&out);
        assert_true(state_file_open(link, &out, &fd, &e) < 0);
    }
    assert_int_equal(state_file_open(dir, &out, &fd, &e), ERR_STATE);
    unit_ok(file_rmtree(dir, &e), &e);
    assert_int_equal(state_file_open(path, &out, &fd, &e), ERR_NOT_FOUND);
    buf_fini(&b);
}

static void test_hash(void **state)
{
    (void)state;
    uint8_t block[200];
    for (size_t i = 0; i < sizeof(block); i++) {
        block[i] = (uint8_t)(i * 7);
    }
    for (size_t n = 1; n <= sizeof(block); n++) {
        uint64_t h = hash_bulk(block, n);
        for (size_t bit = 0; bit < n * 8; bit++) {
            block[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            assert_true(hash_bulk(block, n) != h);
            block[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        }
        assert_true(hash_bulk(block, n - 1) != h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
