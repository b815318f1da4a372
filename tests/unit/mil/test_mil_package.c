/* Packages as files: the worked example byte for byte, real packages read and
 * validated, reproducibility. */
#include <dirent.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "base/hash.h"
#include "example.h"
#include "mil/impl.h"

#define MODEL   "Data/com.apple.CoreML/model.mlmodel"
#define WEIGHTS "Data/com.apple.CoreML/weights/weight.bin"

static char tmp[64];

static int make_tmp(void **state)
{
    (void)state;
    (void)snprintf(tmp, sizeof(tmp), "/tmp/aned-mil-XXXXXX");
    return mkdtemp(tmp) != NULL ? 0 : -1;
}

static int drop_tmp(void **state)
{
    (void)state;
    struct err e = {0};
    return file_rmtree(tmp, &e);
}

static void path_of(const char *name, char out[512])
{
    assert_true(file_join(out, 512, tmp, name));
}

static void write_example(const char *dir)
{
    struct mil_writer *w = NULL;
    struct err e = {0};
    unit_ok(mil_writer_open(dir, &w, &e), &e);
    example_build(w);
    unit_ok(mil_writer_finish(w, &e), &e);
}

static void assert_file(const char *dir, const char *rel, uint64_t bytes,
                        const char *sha)
{
    char path[512];
    char got[SHA256_HEX];
    uint64_t n = 0;
    struct err e = {0};
    assert_true(file_join(path, sizeof(path), dir, rel));
    unit_ok(sha256_file(path, got, &n, &e), &e);
    assert_int_equal(n, bytes);
    assert_string_equal(got, sha);
}

static void example_is_byte_exact(void **state)
{
    (void)state;
    char dir[512];
    path_of("example.mlpackage", dir);
    write_example(dir);
    assert_file(dir, WEIGHTS, 144,
                "06f34f80fb9d004627e11efe66d100bb"
                "a1fa8db8eeaf9a6e44cf7a58eac95520");
    assert_file(dir, MODEL, 2867,
                "e61ec0246fe01210b58493270c419757"
                "b43c2b182e9fd39e40b2e16f0bb4bfbd");
}

static void example_reads_back(void **state)
{
    (void)state;
    char dir[512];
    struct mil_program *p = NULL;
    struct err e = {0};
    path_of("again.mlpackage", dir);
    write_example(dir);
    unit_ok(mil_read(dir, &p, &e), &e);
    unit_ok(mil_validate(p, &e), &e);
    assert_int_equal(p->spec_version, 9);
    assert_int_equal(p->weight_bytes, 144);
    const struct mil_function *f = mil_function_find(p, NULL);
    assert_string_equal(f->name, "main");
    assert_ptr_equal(f, mil_function_find(p, "main"));
    assert_null(mil_function_find(p, "other"));
    assert_int_equal(f->n_in, 1);
    assert_int_equal(f->in[0].hi[2], 64);
    assert_int_equal(f->in[0].type.dims[2], 8);
    assert_int_equal(f->states[0].type.dims[1], 4);
    assert_int_equal(f->out[0].type.rank, 0);

    const struct mil_op *w = f->body->ops[0];
    assert_string_equal(w->type, "constexpr_blockwise_shift_scale");
    const struct mil_const *data = mil_op_const(w, "data");
    int64_t q[16];
    float s[4];
    size_t n = 0;
    assert_true(mil_const_ints(data, q, 16, &n));
    assert_int_equal(n, 16);
    assert_int_equal(q[0], -8);
    assert_int_equal(q[15], 7);
    assert_int_equal(data->blob_offset, 64);
    assert_true(mil_const_floats(mil_op_const(w, "scale"), s, 4, &n));
    assert_true(s[2] == 0.125F);

    const struct mil_op *conv = f->body->ops[6];
    assert_ptr_equal(mil_op_value(conv, "weight")->def, w);
    assert_string_equal(mil_const_str(mil_op_const(conv, "pad_type")), "valid");
    assert_null(mil_op_const(conv, "x"));
    mil_free(p);
}

/* What was read, written again, is the same specification. */
static void reading_loses_nothing(void **state)
{
    (void)state;
    char dir[512];
    char path[600];
    struct mil_program *p = NULL;
    struct buf a = {0};
    struct buf b = {0};
    struct err e = {0};
    path_of("loss.mlpackage", dir);
    write_example(dir);
    unit_ok(mil_read(dir, &p, &e), &e);
    buf_init(&b, MIB(1));
    unit_ok(spec_write(p, &b, &e), &e);
    assert_true(file_join(path, sizeof(path), dir, MODEL));
    unit_ok(file_read(path, MIB(1), &a, &e), &e);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.p, b.p, a.n);
    buf_fini(&a);
    buf_fini(&b);
    mil_free(p);
}

static void same_calls_same_bytes(void **state)
{
    (void)state;
    static const char *const files[] = {MODEL, WEIGHTS, "Manifest.json"};
    char a[512];
    char b[512];
    path_of("a.mlpackage", a);
    path_of("b.mlpackage", b);
    write_example(a);
    write_example(b);
    for (size_t i = 0; i < countof(files); i++) {
        char path[600];
        char sha[SHA256_HEX];
        uint64_t n = 0;
        struct err e = {0};
        assert_true(file_join(path, sizeof(path), a, files[i]));
        unit_ok(sha256_file(path, sha, &n, &e), &e);
        assert_file(b, files[i], n, sha);
    }
}

static void a_package_is_never_overwritten(void **state)
{
    (void)state;
    char dir[512];
    struct mil_writer *w = NULL;
    struct err e = {0};
    path_of("once.mlpackage", dir);
    write_example(dir);
    assert_int_equal(mil_writer_open(dir, &w, &e), ERR_EXISTS);
    assert_null(w);
}

static void real_packages_load_and_validate(void **state)
{
    (void)state;
    static const char *const folders[] = {"data/coreml/anebook", "data/coreml"};
    if (unit_shared() == NULL) {
        skip();
    }
    int seen = 0;
    for (size_t i = 0; i < countof(folders); i++) {
        char dir[512];
        assert_true(file_join(dir, sizeof(dir), unit_shared(), folders[i]));
        DIR *d = opendir(dir);
        assert_non_null(d);
        for (struct dirent *ent = NULL; (ent = readdir(d)) != NULL;) {
            char path[1024];
            struct mil_program *p = NULL;
            struct err e = {0};
            const char *dot = strrchr(ent->d_name, '.');
            if (dot == NULL || strcmp(dot, ".mlpackage") != 0) {
                continue;
            }
            assert_true(file_join(path, sizeof(path), dir, ent->d_name));
            unit_ok(mil_read(path, &p, &e), &e);
            unit_ok(mil_validate(p, &e), &e);
            assert_true(p->functions[0]->body->n_ops > 0);
            mil_free(p);
            seen++;
        }
        (void)closedir(d);
    }
    assert_int_equal(seen, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example_is_byte_exact),
        cmocka_unit_test(example_reads_back),
        cmocka_unit_test(reading_loses_nothing),
        cmocka_unit_test(same_calls_same_bytes),
        cmocka_unit_test(a_package_is_never_overwritten),
        cmocka_unit_test(real_packages_load_and_validate),
    };
    return cmocka_run_group_tests_name("mil_package", tests, make_tmp,
                                       drop_tmp);
}
