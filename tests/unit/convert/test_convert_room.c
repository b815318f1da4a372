/* What a conversion will be, told before it is made: programs, sizes, and room
 * on the disk. The file system's answer is this program's own. */
#include <dirent.h>
#include <errno.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "convert/convert.h"
#include "mkgguf.h"
#include "model/bundle.h"

static struct statvfs answer;
static int answer_error; /* errno; 0: the answer */

int fstatvfs(int fd, struct statvfs *ret)
{
    (void)fd;
    errno = answer_error;
    *ret = answer;
    return answer_error != 0 ? -1 : 0;
}

static void free_bytes(uint64_t n)
{
    answer_error = 0;
    answer = (struct statvfs){.f_bsize = 4096,
                              .f_frsize = 1,
                              .f_blocks = 1u << 30,
                              .f_bfree = 1u << 30, /* root's too */
                              .f_bavail = (fsblkcnt_t)n};
}

static char room[64];
static char source[128], out[128];

static const struct mk model = {.arch = "qwen2",
                                .layers = 5,
                                .d = 64,
                                .heads = 4,
                                .kv = 2,
                                .d_head = 16,
                                .ff = 96,
                                .vocab = 8192, /* embeddings of a megabyte */
                                .context = 512,
                                .qkv_bias = true,
                                .n_tokens = 640};

static int setup(void **state)
{
    (void)state;
    struct err e = {0};
    (void)snprintf(room, sizeof(room), "/tmp/aned-room-XXXXXX");
    if (mkdtemp(room) == NULL) {
        return -1;
    }
    (void)snprintf(source, sizeof(source), "%s/m.gguf", room);
    (void)snprintf(out, sizeof(out), "%s/bundle", room);
    struct buf b = mk_gguf(&model);
    int rc = file_write(source, b.p, b.n, &e);
    buf_fini(&b);
    return rc;
}

static int teardown(void **state)
{
    (void)state;
    struct err e = {0};
    return file_rmtree(room, &e);
}

static struct convert_options options(const char *to)
{
    struct convert_options o;
    convert_options_init(&o);
    o.source = source;
    o.out = to;
    o.threads = 2;
    return o;
}

static unsigned entries(void)
{
    unsigned n = 0;
    DIR *d = opendir(room);
    assert_non_null(d);
    for (struct dirent *x = readdir(d); x != NULL; x = readdir(d)) {
        n += x->d_name[0] != '.';
    }
    (void)closedir(d);
    return n;
}

static uint64_t forecast_bytes(const struct convert_options *o)
{
    struct convert_forecast *f = calloc(1, sizeof(*f));
    struct err e = {0};
    assert_non_null(f);
    unit_ok(convert_forecast(o, f, &e), &e);
    assert_string_equal(f->architecture, "qwen2");
    assert_true(f->seconds > 0);
    uint64_t n = f->bundle_bytes;
    plan_input_fini(&f->in);
    free(f);
    return n;
}

static void a_disk_with_too_little_room(void **state)
{
    (void)state;
    struct convert_options o = options(out);
    struct convert_result r;
    struct err e = {0};
    char amount[32];
    free_bytes(UINT32_MAX);
    uint64_t need = forecast_bytes(&o);
    free_bytes(need - 1);
    assert_int_equal(convert_run(&o, &r, &e), ERR_NO_SPACE);
    (void)snprintf(amount, sizeof(amount), "needs %.1f MB", (double)need / 1e6);
    assert_non_null(strstr(e.msg, amount));
    assert_non_null(strstr(e.msg, room)); /* and where */
    assert_int_equal(entries(), 1);       /* the source: no staging folder */
    struct convert_forecast f;
    assert_int_equal(convert_forecast(&o, &f, &e), ERR_NO_SPACE);
    struct convert_options asked = options(NULL); /* no folder, no question */
    (void)forecast_bytes(&asked);
}

static void just_enough(void **state)
{
    (void)state;
    struct convert_options o = options(out);
    struct convert_result r;
    struct err e = {0};
    free_bytes(UINT32_MAX);
    uint64_t need = forecast_bytes(&o);
    assert_int_equal(entries(), 1); /* it makes nothing */
    free_bytes(need);
    unit_ok(convert_run(&o, &r, &e), &e);
    unit_ok(file_rmtree(out, &e), &e);
}

/* Network file systems may not know, or not say. */
static void a_disk_that_does_not_tell(void **state)
{
    (void)state;
    struct convert_options o = options(out);
    struct convert_result r;
    struct err e = {0};
    for (int i = 0; i < 2; i++) {
        answer = (struct statvfs){0};
        answer_error = i == 0 ? ENOSYS : 0;
        unit_ok(convert_run(&o, &r, &e), &e);
        unit_ok(file_rmtree(out, &e), &e);
    }
}

/* The forecast is not less than the bundle, and not much more; what it says of
 * a program is what weight.bin holds. */
static void the_forecast_is_what_comes(void **state)
{
    (void)state;
    static const char *const quants[] = {"int8", "fp16", "int8-tensor", "int4"};
    struct convert_result r;
    struct err e = {0};
    free_bytes(UINT32_MAX);
    for (size_t i = 0; i < 2 * countof(quants); i++) {
        if (unit_passed_over(i, 3)) {
            continue;
        }
        struct convert_options o = options(out);
        struct convert_forecast *f = calloc(1, sizeof(*f));
        struct bundle *b = NULL;
        assert_non_null(f);
        o.quant = quants[i / 2];
        o.shape = i % 2 == 0 ? "ranged" : "functions";
        o.context = 256;
        unit_ok(convert_forecast(&o, f, &e), &e);
        unit_ok(convert_run(&o, &r, &e), &e);
        unit_ok(bundle_open(out, &b, &e), &e);
        assert_int_equal(f->plan.n_shards, b->n_shards);
        assert_int_equal(f->plan.n_heads, b->n_heads_shards);
        for (size_t k = 0; k < b->n_shards; k++) {
            uint64_t said = plan_shard_bytes(&f->in, f->plan.shards[k]);
            assert_int_equal(f->plan.shards[k].last, b->shards[k].last);
            assert_in_range(b->shards[k].weight_bytes, said, said + 64);
        }
        for (size_t k = 0; k < b->n_heads_shards; k++) {
            uint64_t said = plan_head_bytes(&f->in, f->plan.heads[k]);
            uint64_t scales = 2 * (uint64_t)model.vocab; /* of int8-tensor */
            assert_in_range(b->heads[k].weight_bytes, said - 256 - scales,
                            said + 64);
        }
        uint64_t real = file_tree_bytes(out);
        assert_in_range(f->bundle_bytes, real, real + 400000);
        bundle_close(b);
        unit_ok(file_rmtree(out, &e), &e);
        plan_input_fini(&f->in);
        free(f);
    }
}

/* Without the option: what the profile, the memory and the model allow. */
static void the_default_context(void **state)
{
    (void)state;
    struct mk long_one = model;
    long_one.context = 40000;
    struct buf b = mk_gguf(&long_one);
    struct err e = {0};
    char path[sizeof(room) + 32];
    (void)snprintf(path, sizeof(path), "%s/long.gguf", room);
    unit_ok(file_write(path, b.p, b.n, &e), &e);
    buf_fini(&b);
    uint64_t each = (uint64_t)model.layers * 2 * model.kv * model.d_head * 2;
    const struct {
        const char *profile;
        uint32_t asked;
        uint64_t memory;
        uint32_t context;
        const char *by;
    } t[] = {
        {NULL,  0,    UINT64_C(1) << 40,                   4096,  "default"},
        {"m4",  0,    UINT64_C(1) << 40,                   4096,  "default"},
        {"cpu", 0,    UINT64_C(1) << 40,                   32768, "default"},
        {"cpu", 0,    each * 4 * 32768,                    32768, "default"},
        {"cpu", 0,    each * 4 * 32767,                    32736, "memory" },
        {"cpu", 0,    each * 4 * 9999,                     9984,  "memory" },
        {"cpu", 0,    each * 4 * 4095,                     4096,  "default"},
        {"cpu", 0,    0,                                   4096,  "default"},
        {"cpu", 5000, UINT64_C(1) << 40,                   5024,  "asked"  },
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct convert_forecast *f = calloc(1, sizeof(*f));
        struct convert_options o = options(NULL);
        assert_non_null(f);
        o.source = path;
        o.profile = t[i].profile;
        o.context = t[i].asked;
        o.memory_bytes = t[i].memory;
        unit_ok(convert_forecast(&o, f, &e), &e);
        assert_int_equal(f->in.context, t[i].context);
        assert_string_equal(f->in.context_by, t[i].by);
        plan_input_fini(&f->in);
        free(f);
    }
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(a_disk_with_too_little_room),
        cmocka_unit_test(just_enough),
        cmocka_unit_test(a_disk_that_does_not_tell),
        cmocka_unit_test(the_forecast_is_what_comes),
        cmocka_unit_test(the_default_context),
    };
    return cmocka_run_group_tests(t, setup, teardown);
}
