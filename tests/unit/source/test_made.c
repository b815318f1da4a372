/* Sources that are made: metadata and tensors read as those of a file. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "source/made.h"

static struct span of(const char *s)
{
    return (struct span){s, strlen(s)};
}

struct twice {
    const uint8_t *data; /* halves, 3 a row */
};

static void twice_rows(const void *ctx, uint64_t row, uint64_t n, float *out)
{
    const struct twice *t = ctx;
    must(made_decode(GGML_F16, t->data + row * 6, n * 3, out));
    for (uint64_t i = 0; i < n * 3; i++) {
        out[i] *= 2;
    }
}

/* A file in a new folder, open. */
struct place {
    char dir[32];
    char path[64];
    int fd;
};

static void make_place(struct place *p, const void *bytes, size_t n)
{
    struct err e = {0};
    (void)snprintf(p->dir, sizeof(p->dir), "/tmp/aned-test-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    (void)snprintf(p->path, sizeof(p->path), "%s/f", p->dir);
    unit_ok(file_write(p->path, bytes, n, &e), &e);
    p->fd = open(p->path, O_RDONLY | O_CLOEXEC);
    assert_true(p->fd >= 0);
}

static void drop_place(struct place *p)
{
    struct err e = {0};
    (void)close(p->fd);
    unit_ok(file_rmtree(p->dir, &e), &e);
}

static const uint16_t halves[6] = {0x3c00, 0x4000, 0x4200,  /* 1 2 3 */
                                   0xbc00, 0x0000, 0x4400}; /* -1 0 4 */
static const uint64_t two_by_three[2] = {3, 2};

static struct gguf *make_source(const struct place *p)
{
    struct err e = {0};
    struct made *m = NULL;
    struct gguf *g = NULL;
    struct span whole = {0};
    const struct span words[3] = {of("a"), of(""), of("ccc")};
    const int32_t numbers[2] = {-1, 7};
    const float floats[2] = {0.5f, -2};
    const bool bools[3] = {true, false, true};
    const uint32_t counts[1] = {4000000000u};
    unit_ok(made_new(&m, &e), &e);
    unit_ok(made_str(m, "general.architecture", "llama", &e), &e);
    unit_ok(made_u32(m, "llama.block_count", 2, &e), &e);
    unit_ok(made_i32(m, "i", -5, &e), &e);
    unit_ok(made_f32(m, "f", 1.25f, &e), &e);
    unit_ok(made_bool(m, "b", true, &e), &e);
    unit_ok(made_strs(m, "tokenizer.words", words, 3, &e), &e);
    unit_ok(made_i32s(m, "is", numbers, 2, &e), &e);
    unit_ok(made_u32s(m, "us", counts, 1, &e), &e);
    unit_ok(made_f32s(m, "fs", floats, 2, &e), &e);
    unit_ok(made_bools(m, "bs", bools, 3, &e), &e);
    unit_ok(made_strs(m, "none", NULL, 0, &e), &e);
    unit_ok(made_map(m, p->fd, "f", &whole, &e), &e);
    assert_int_equal(whole.n, sizeof(halves));
    unit_ok(made_tensor(m, "plain", 2, two_by_three, GGML_F16,
                        (const uint8_t *)whole.p, sizeof(halves), &e),
            &e);
    struct twice *t = made_alloc(m, sizeof(*t));
    assert_non_null(t);
    t->data = (const uint8_t *)whole.p;
    unit_ok(made_tensor_fn(m, "a.twice", 2, two_by_three, "F16 doubled",
                           twice_rows, t, sizeof(halves), &e),
            &e);
    unit_ok(made_done(m, "safetensors", &g, &e), &e);
    return g;
}

static void reads_as_a_file(void **state)
{
    (void)state;
    struct err e = {0};
    struct place p;
    uint32_t u = 0;
    float f = 0;
    bool b = false;
    struct span s = {0};
    uint64_t at = 0;
    make_place(&p, halves, sizeof(halves));
    struct gguf *g = make_source(&p);
    assert_string_equal(gguf_format(g), "safetensors");
    assert_int_equal(gguf_version(g), 0);
    assert_int_equal(gguf_n_parts(g), 1);
    assert_int_equal(gguf_file_bytes(g), sizeof(halves));
    assert_true(gguf_get_u32(g, "llama.block_count", &u) && u == 2);
    assert_false(gguf_get_u32(g, "i", &u));
    assert_true(gguf_get_f32(g, "f", &f) && f == 1.25f);
    assert_true(gguf_get_bool(g, "b", &b) && b);
    assert_true(gguf_get_str(g, "general.architecture", &s) && s.n == 5);
    const struct gguf_kv *words =
        gguf_get_arr(g, "tokenizer.words", GGUF_STRING);
    assert_int_equal(words->count, 3);
    assert_int_equal(gguf_arr_str(words, &at).n, 1);
    assert_int_equal(gguf_arr_str(words, &at).n, 0);
    assert_int_equal(gguf_arr_str(words, &at).n, 3);
    assert_int_equal(gguf_arr_int(gguf_get_arr(g, "is", GGUF_I32), 0), -1);
    assert_int_equal(gguf_arr_int(gguf_get_arr(g, "us", GGUF_U32), 0),
                     4000000000);
    assert_true(gguf_arr_f32(gguf_get_arr(g, "fs", GGUF_F32), 1) == -2);
    assert_int_equal(gguf_arr_int(gguf_get_arr(g, "bs", GGUF_BOOL), 1), 0);
    assert_int_equal(gguf_get_arr(g, "none", GGUF_STRING)->count, 0);
    unit_ok(gguf_check_unchanged(g, &e), &e);
    gguf_close(g);
    drop_place(&p);
}

static void decodes_rows(void **state)
{
    (void)state;
    struct err e = {0};
    struct place p;
    float out[6] = {0};
    make_place(&p, halves, sizeof(halves));
    struct gguf *g = make_source(&p);
    const struct gguf_tensor *t = gguf_tensor(g, "plain");
    assert_string_equal(gguf_tensor_type(t), "F16");
    unit_ok(gguf_rows(t, 0, 2, out, &e), &e);
    assert_true(out[2] == 3 && out[3] == -1);
    t = gguf_tensor(g, "a.twice");
    assert_true(gguf_readable(t));
    assert_false(gguf_type_readable(t->type));
    assert_string_equal(gguf_tensor_type(t), "F16 doubled");
    unit_ok(gguf_rows(t, 1, 1, out, &e), &e);
    assert_true(out[0] == -2 && out[1] == 0 && out[2] == 8);
    assert_int_equal(gguf_rows(t, 1, 2, out, &e), ERR_INVALID);
    gguf_close(g);
    drop_place(&p);
}

/* A tensor's file that is cut short is an error of whoever reads it. */
static void watches_its_files(void **state)
{
    (void)state;
    struct err e = {0};
    struct place p;
    float out[6] = {0};
    make_place(&p, halves, sizeof(halves));
    struct gguf *g = make_source(&p);
    assert_int_equal(truncate(p.path, 0), 0);
    assert_int_equal(gguf_rows(gguf_tensor(g, "a.twice"), 0, 2, out, &e),
                     ERR_SOURCE_CHANGED);
    assert_int_equal(gguf_check_unchanged(g, &e), ERR_SOURCE_CHANGED);
    assert_non_null(strstr(e.msg, "f: "));
    gguf_close(g);
    drop_place(&p);
}

static void several_files_are_parts(void **state)
{
    (void)state;
    struct err e = {0};
    struct place p;
    struct made *m = NULL;
    struct gguf *g = NULL;
    struct span whole = {0};
    make_place(&p, halves, sizeof(halves));
    unit_ok(made_new(&m, &e), &e);
    for (int i = 0; i < 3; i++) {
        unit_ok(made_map(m, p.fd, "f", &whole, &e), &e);
    }
    unit_ok(made_done(m, "onnx", &g, &e), &e);
    assert_int_equal(gguf_n_parts(g), 3);
    assert_int_equal(gguf_file_bytes(g), 3 * sizeof(halves));
    for (size_t i = 0; i < 3; i++) {
        assert_true(gguf_part_fd(g, i) > 2);
    }
    unit_ok(gguf_check_unchanged(g, &e), &e);
    gguf_close(g);
    unit_ok(made_new(&m, &e), &e);
    for (size_t i = 0; i < GGUF_PARTS_MAX; i++) {
        unit_ok(made_map(m, p.fd, "f", &whole, &e), &e);
    }
    assert_int_equal(made_map(m, p.fd, "f", &whole, &e), ERR_GGUF_COUNT);
    made_free(m);
    drop_place(&p);
}

static void refuses_by_name(void **state)
{
    (void)state;
    struct err e = {0};
    struct made *m = NULL;
    struct gguf *g = NULL;
    static const uint64_t huge[4] = {UINT64_C(1) << 32, UINT64_C(1) << 32, 2,
                                     2};
    static const uint64_t zero[2] = {3, 0};
    static const uint64_t odd[2] = {33, 1};
    char name[300];
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = 0;
    unit_ok(made_new(&m, &e), &e);
    unit_ok(made_u32(m, "a", 1, &e), &e);
    assert_int_equal(made_str(m, "a", "b", &e), ERR_GGUF_KEY);
    assert_int_equal(made_u32(m, "", 1, &e), ERR_GGUF_KEY);
    assert_int_equal(made_u32(m, name, 1, &e), ERR_GGUF_KEY);
    assert_int_equal(made_u32(m, "\n", 1, &e), ERR_GGUF_KEY);
    const uint8_t *d = (const uint8_t *)halves;
    const uint64_t *two = two_by_three;
    assert_int_equal(made_tensor(m, "t", 2, two, GGML_F16, d, 11, &e),
                     ERR_GGUF_TENSOR);
    assert_int_equal(made_tensor(m, name, 2, two, GGML_F16, d, 12, &e),
                     ERR_GGUF_TENSOR);
    assert_int_equal(made_tensor(m, "t", 0, two, GGML_F16, d, 12, &e),
                     ERR_GGUF_TENSOR);
    assert_int_equal(made_tensor(m, "t", 5, huge, GGML_F16, d, 12, &e),
                     ERR_GGUF_TENSOR);
    assert_int_equal(made_tensor(m, "t", 4, huge, GGML_F16, d, 12, &e),
                     ERR_GGUF_TENSOR);
    assert_int_equal(made_tensor(m, "t", 2, zero, GGML_F16, d, 0, &e),
                     ERR_GGUF_TENSOR);
    assert_int_equal(made_tensor(m, "t", 2, odd, GGML_Q8_0, d, 34, &e),
                     ERR_GGUF_TENSOR);
    assert_int_equal(made_tensor(m, "t", 2, two, 4, d, 12, &e),
                     ERR_GGUF_TENSOR);
    unit_ok(made_tensor(m, "t", 2, two, GGML_F16, d, 12, &e), &e);
    unit_ok(made_tensor(m, "t", 2, two, GGML_F16, d, 12, &e), &e);
    assert_int_equal(made_done(m, "onnx", &g, &e), ERR_GGUF_TENSOR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_as_a_file),
        cmocka_unit_test(decodes_rows),
        cmocka_unit_test(watches_its_files),
        cmocka_unit_test(several_files_are_parts),
        cmocka_unit_test(refuses_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
