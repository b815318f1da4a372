/* A bundle's programs drawn anew: the same weights, divided in another way; and
 * the forms that programs have. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "convert/reshard.h"
#include "convert/shape.h"
#include "convert/stored.h"
#include "mkgguf.h"
#include "model/bundle.h"

static char room[64];

static const struct mk model = {.arch = "qwen2",
                                .layers = 5,
                                .d = 64,
                                .heads = 4,
                                .kv = 2,
                                .d_head = 16,
                                .ff = 96,
                                .vocab = 640,
                                .context = 512,
                                .qkv_bias = true,
                                .n_tokens = 640};

static const char *at(const char *name)
{
    static char path[4][256];
    static unsigned next;
    char *p = path[next++ % countof(path)];
    (void)snprintf(p, sizeof(path[0]), "%s/%s", room, name);
    return p;
}

static int setup(void **state)
{
    (void)state;
    struct err e = {0};
    (void)snprintf(room, sizeof(room), "/tmp/aned-reshard-XXXXXX");
    if (mkdtemp(room) == NULL) {
        return -1;
    }
    struct buf b = mk_gguf(&model);
    int rc = file_write(at("m.gguf"), b.p, b.n, &e);
    buf_fini(&b);
    return rc;
}

static int teardown(void **state)
{
    (void)state;
    struct err e = {0};
    return file_rmtree(room, &e);
}

static struct convert_options options(void)
{
    struct convert_options o;
    convert_options_init(&o);
    o.source = at("m.gguf");
    o.threads = 2;
    return o;
}

static void make(const char *name, const char *quant)
{
    struct convert_options o = options();
    struct convert_result r;
    struct err e = {0};
    o.out = at(name);
    o.quant = quant;
    unit_ok(convert_run(&o, &r, &e), &e);
}

static const char *verdict(const struct convert_result *r, const char *name)
{
    for (size_t i = 0; i < r->n_gates; i++) {
        if (strcmp(r->gates[i].name, name) == 0) {
            return r->gates[i].verdict;
        }
    }
    return "";
}

static struct convert_options from(const char *bundle, const char *out)
{
    struct convert_options o;
    convert_options_init(&o);
    o.bundle = at(bundle);
    o.out = at(out);
    o.threads = 2;
    return o;
}

static const struct plan cut = {
    .n_shards = 3,
    .shards = {{0, 1},  {1, 3},    {3, 5}    },
    .n_heads = 3,
    .heads = {{0, 64}, {64, 512}, {512, 640}},
};
static const struct plan whole = {
    .n_shards = 1,
    .shards = {{0, 5}},
    .n_heads = 1,
    .heads = {{0, 640}},
};

/* The hash of a bundle's file, as its manifest has it. */
static void hash_of(const char *bundle, const char *path, char out[SHA256_HEX])
{
    struct bundle *b = NULL;
    struct err e = {0};
    out[0] = '\0';
    unit_ok(bundle_open(at(bundle), &b, &e), &e);
    for (size_t i = 0; i < b->n_files; i++) {
        if (strcmp(b->files[i].path, path) == 0) {
            memcpy(out, b->files[i].sha256, SHA256_HEX);
        }
    }
    bundle_close(b);
    assert_true(out[0] != '\0');
}

#define WEIGHTS "/Data/com.apple.CoreML/weights/weight.bin"

/* To pieces and back: the weight files are those of the conversion. */
static void there_and_back(void **state)
{
    (void)state;
    static const char *const quants[] = {"int8", "lut4:4", "fp16", "lut6",
                                         "int4"};
    static const char *const files[] = {"layers_00_05.mlpackage" WEIGHTS,
                                        "head_0.mlpackage" WEIGHTS};
    for (size_t i = 0; i < countof(quants); i++) {
        if (unit_passed_over(i, 3)) {
            continue;
        }
        struct convert_result r;
        struct err e = {0};
        print_message("# %s\n", quants[i]);
        make("a", quants[i]);
        struct convert_options o = from("a", "b");
        unit_ok(reshard_as(&o, &cut, &r, &e), &e);
        assert_int_equal(r.n_shards, 3);
        assert_int_equal(r.n_heads, 3);
        assert_string_equal(verdict(&r, "structure"), "passed");
        assert_string_equal(verdict(&r, "exactness"), "passed");
        assert_true(r.shared_bytes > 0); /* the tables */
        o = from("b", "c");
        unit_ok(reshard_as(&o, &whole, &r, &e), &e);
        for (size_t k = 0; k < countof(files); k++) {
            char was[SHA256_HEX];
            char is[SHA256_HEX];
            hash_of("a", files[k], was);
            hash_of("c", files[k], is);
            assert_string_equal(was, is);
        }
        unit_ok(file_rmtree(at("a"), &e), &e);
        unit_ok(file_rmtree(at("b"), &e), &e);
        unit_ok(file_rmtree(at("c"), &e), &e);
    }
}

/* One scale for a whole slice: it can be cut, and not be put together. */
static void a_scale_of_a_slice(void **state)
{
    (void)state;
    struct convert_result r;
    struct err e = {0};
    make("a", "int8-tensor");
    struct convert_options o = from("a", "b");
    unit_ok(reshard_as(&o, &cut, &r, &e), &e);
    assert_string_equal(verdict(&r, "exactness"), "passed");
    o = from("b", "c");
    assert_int_equal(reshard_as(&o, &whole, &r, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "convert the source again"));
    assert_false(file_exists(at("c")));
    unit_ok(file_rmtree(at("a"), &e), &e);
    unit_ok(file_rmtree(at("b"), &e), &e);
}

/* Another context: weights are the same files, and outlive the first bundle. */
static void a_smaller_context(void **state)
{
    (void)state;
    struct convert_result r;
    struct err e = {0};
    struct stat a;
    struct stat b;
    struct bundle *left = NULL;
    make("a", "int8");
    struct convert_options o = from("a", "b");
    o.context = 96;
    unit_ok(reshard_run(&o, &r, &e), &e);
    assert_string_equal(verdict(&r, "exactness"), "passed");
    assert_int_equal(stat(at("a/layers_00_05.mlpackage" WEIGHTS), &a), 0);
    assert_int_equal(stat(at("b/layers_00_05.mlpackage" WEIGHTS), &b), 0);
    assert_true(a.st_ino == b.st_ino || r.shared_bytes > (uint64_t)a.st_size);
    unit_ok(file_rmtree(at("a"), &e), &e);
    unit_ok(bundle_open(at("b"), &left, &e), &e);
    assert_int_equal(left->context, 96);
    unit_ok(bundle_verify(left, NULL, NULL, &e), &e);
    bundle_close(left);
    o = from("b", "c");
    o.context = 513; /* more than the model was made for */
    assert_int_equal(reshard_run(&o, &r, &e), ERR_INVALID);
    unit_ok(file_rmtree(at("b"), &e), &e);
}

/* A weight that is not the published one is not carried on. */
static void a_changed_weight(void **state)
{
    (void)state;
    struct convert_result r;
    struct err e = {0};
    make("a", "int8");
    int fd = open(at("a/layers_00_05.mlpackage" WEIGHTS), O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, 4096), 1);
    assert_int_equal(close(fd), 0);
    struct convert_options o = from("a", "b");
    assert_int_equal(reshard_run(&o, &r, &e), ERR_BUNDLE);
    assert_non_null(strstr(e.msg, "weight.bin"));
    assert_false(file_exists(at("b")));
    unit_ok(file_rmtree(at("a"), &e), &e);
}

/* What is predicted before a conversion is what its packages say. */
/* Slices become one constant, so one with another form is no aned's. */
static void a_slice_of_another_form(void **state)
{
    (void)state;
    static const char *const quants[] = {"int8", "fp16"};
    struct convert_result r;
    struct bundle *b = NULL;
    struct stored *s = NULL;
    struct err e = {0};
    for (size_t i = 0; i < countof(quants); i++) {
        make("whole", quants[i]);
        struct convert_options o = from("whole", quants[i]);
        unit_ok(reshard_as(&o, &cut, &r, &e), &e);
        unit_ok(file_rmtree(at("whole"), &e), &e);
    }
    unit_ok(bundle_open(at("int8"), &b, &e), &e);
    unit_ok(file_rmtree(at("int8/head_1.mlpackage"), &e), &e);
    assert_int_equal(
        rename(at("fp16/head_1.mlpackage"), at("int8/head_1.mlpackage")), 0);
    assert_int_equal(stored_open(b, &s, &e), ERR_BUNDLE);
    assert_non_null(strstr(e.msg, "head_1.mlpackage: its weights have another "
                                  "form than those of head_0.mlpackage"));
    bundle_close(b);
    for (size_t i = 0; i < countof(quants); i++) {
        unit_ok(file_rmtree(at(quants[i]), &e), &e);
    }
}

static void residency_foretold(void **state)
{
    (void)state;
    static const struct {
        const char *quant, *shape, *kv, *output;
    } forms[] = {
        {"int8",        NULL,              NULL,   NULL    },
        {"lut4",        "functions:1,2,8", NULL,   NULL    },
        {"fp16",        NULL,              "host", NULL    },
        {"int8-tensor", "functions",       "host", "argmax"},
    };
    for (size_t i = 0; i < countof(forms); i++) {
        if (unit_passed_over(i, 2)) {
            continue;
        }
        struct convert_options o = options();
        struct convert_result r;
        struct convert_forecast *f = calloc(1, sizeof(*f));
        struct err e = {0};
        char line[ERR_MSG_MAX];
        assert_non_null(f);
        o.out = at("a");
        o.quant = forms[i].quant;
        o.shape = forms[i].shape;
        o.kv = forms[i].kv;
        o.output = forms[i].output;
        unit_ok(convert_forecast(&o, f, &e), &e);
        predict_line(&f->residency, line, sizeof(line));
        unit_ok(convert_run(&o, &r, &e), &e);
        assert_string_equal(verdict(&r, "residency"), f->verdict);
        for (size_t k = 0; k < r.n_gates; k++) {
            if (strcmp(r.gates[k].name, "residency") == 0) {
                assert_string_equal(r.gates[k].detail, line);
            }
        }
        assert_true(f->residency.ops > 100);
        plan_input_fini(&f->in);
        free(f);
        unit_ok(file_rmtree(at("a"), &e), &e);
    }
}

static void shapes(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "functions:",
        "functions:0",
        "functions:4,4",
        "functions:4,1",
        "functions:513",
        "functions:1,",
        "functions:,1",
        "functions:1;2",
        "functions: 1",
        "function",
        "",
        "functions:1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    struct program_shape s;
    struct program_shape heads;
    struct err e = {0};
    unit_ok(shape_parse(NULL, &s, &e), &e);
    assert_int_equal(s.n, 0);
    assert_int_equal(shape_max(&s), SHAPE_RANGE_MAX);
    unit_ok(shape_parse("functions", &s, &e), &e);
    assert_int_equal(s.n, 2);
    unit_ok(shape_parse("functions:1,2,8,64,512", &s, &e), &e);
    assert_int_equal(s.n, 5);
    assert_int_equal(shape_max(&s), 512);
    shape_of_heads(&s, &heads);
    assert_int_equal(heads.n, 3); /* no more rows than heads are asked for */
    unit_ok(shape_parse("functions:64", &s, &e), &e);
    shape_of_heads(&s, &heads);
    assert_int_equal(heads.n, 1);
    assert_int_equal(heads.t[0], 1);
    for (size_t i = 0; i < countof(wrong); i++) {
        assert_int_equal(shape_parse(wrong[i], &s, &e), ERR_INVALID);
        assert_non_null(strstr(e.msg, "functions:T,T,..."));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(a_scale_of_a_slice),
        cmocka_unit_test(a_smaller_context),
        cmocka_unit_test(a_changed_weight),
        cmocka_unit_test(a_slice_of_another_form),
        cmocka_unit_test(residency_foretold),
        cmocka_unit_test(shapes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
