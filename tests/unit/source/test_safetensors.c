/* safetensors_open on sound and hostile files. */
#include <stdlib.h>

#include "../unit.h"
#include "base/buf.h"
#include "source/safetensors.h"

/* A file with this header and `data` bytes behind it, in memory of its exact
 * size. length: what it says the header has; 0: what it has. */
static void make(struct buf *b, const char *header, uint64_t length,
                 size_t data)
{
    size_t n = strlen(header);
    buf_init(b, MIB(32));
    buf_u64(b, length > 0 ? length : n);
    buf_put(b, header, n);
    memset(buf_grow(b, data), 7, data);
}

static int open_one(const char *header, uint64_t length, size_t data,
                    struct safetensors **ret, struct err *e)
{
    struct buf b;
    make(&b, header, length, data);
    char *exact = malloc(b.n);
    assert_non_null(exact);
    memcpy(exact, b.p, b.n);
    int rc = safetensors_open(exact, b.n, ret, e);
    if (rc == 0) {
        assert_ptr_equal((const char *)safetensors_at(*ret, 0)->data,
                         exact + 8 + strlen(header));
    }
    buf_fini(&b);
    free(exact);
    return rc;
}

#define SOUND                                                               \
    "{\"__metadata__\":{\"format\":\"pt\"},"                                \
    "\"b\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"    \
    "\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]},"   \
    "\"none\":{\"dtype\":\"F32\",\"shape\":[0,8],\"data_offsets\":[4,4]},"  \
    "\"one\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[20,28]}}  "

static void reads_a_sound_file(void **state)
{
    (void)state;
    struct err e = {0};
    struct safetensors *s = NULL;
    unit_ok(open_one(SOUND, 0, 28, &s, &e), &e);
    assert_int_equal(safetensors_count(s), 4);
    const struct safetensors_tensor *t = safetensors_find(s, "b");
    assert_int_equal(t->type, SAFETENSORS_F16);
    assert_string_equal(t->type_name, "F16");
    assert_true(t->n_dims == 2 && t->dims[0] == 2 && t->dims[1] == 3);
    assert_int_equal(t->bytes, 12);
    assert_int_equal(safetensors_find(s, "one")->type, SAFETENSORS_OTHER);
    assert_int_equal(safetensors_find(s, "one")->n_dims, 0);
    assert_null(safetensors_find(s, "__metadata__"));
    assert_null(safetensors_find(s, "c"));
    safetensors_close(s);
}

#define ONE(dtype, shape, offsets)                                     \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape               \
    ",\"data_offsets\":" offsets "}}"
#define TWO(a, b)                                                             \
    "{\"a\":{\"dtype\":\"I8\",\"shape\":[8],\"data_offsets\":" a            \
    "},\"b\":{\"dtype\":\"I8\",\"shape\":[8],\"data_offsets\":" b "}}"

static void refuses_hostile_files(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        uint64_t length;
        size_t data;
        const char *says;
    } t[] = {
        {SOUND, 1000, 28, "longer than the file"},
        {SOUND, UINT64_MAX, 28, "longer than the file"},
        {SOUND, (UINT64_C(1) << 63) + 8, 28, "longer than the file"},
        {SOUND, 100, 28, "is expected"},
        {SOUND, 1, 28, "2 to"},
        {"", 0, 0, "2 to"},
        {"[]", 0, 0, "no object"},
        {"{}x", 0, 0, "bytes after"},
        {"{\"a\":7}", 0, 0, "dtype"},
        {"{\"a\":{}}", 0, 0, "dtype"},
        {ONE("Q4", "[8]", "[0,8]"), 0, 8, "'Q4' is not known"},
        {ONE("I8", "8", "[0,8]"), 0, 8, "no shape"},
        {ONE("I8", "[-8]", "[0,8]"), 0, 8, "no count"},
        {ONE("I8", "[1.5]", "[0,8]"), 0, 8, "no count"},
        {ONE("I8", "[9223372036854775808]", "[0,8]"), 0, 8, "no count"},
        {ONE("I8", "[4503599627370496,4503599627370496]", "[0,8]"), 0, 8,
         "overflows"},
        {ONE("F32", "[4503599627370496,4096]", "[0,8]"), 0, 8, "overflows"},
        {ONE("I8", "[1,1,1,1,1,1,1,1,8]", "[0,8]"), 0, 8, "more than 8"},
        {ONE("I8", "[8]", "[0]"), 0, 8, "not two offsets"},
        {ONE("I8", "[8]", "[0,8,8]"), 0, 8, "not two offsets"},
        {ONE("I8", "[8]", "{\"0\":8}"), 0, 8, "not two offsets"},
        {ONE("I8", "[8]", "[8,0]"), 0, 8, "not two offsets"},
        {ONE("I8", "[8]", "[-8,0]"), 0, 8, "not two offsets"},
        {ONE("I8", "[8]", "[0,8]"), 0, 7, "outside the file"},
        {ONE("I8", "[8]", "[9007199254740984,9007199254740992]"), 0, 8,
         "outside the file"},
        {ONE("I8", "[8]", "[0,7]"), 0, 8, "its shape says 8"},
        {ONE("F16", "[2,2]", "[0,4]"), 0, 8, "its shape says 8"},
        {ONE("F4", "[3]", "[0,1]"), 0, 8, "overflows"},
        {TWO("[0,8]", "[4,12]"), 0, 16, "overlap"},
        {TWO("[0,8]", "[0,8]"), 0, 16, "overlap"},
        {"{\"a\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]},"
         "\"a\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         0, 0, "stands twice"},
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct err e = {0};
        struct safetensors *s = NULL;
        int rc = open_one(t[i].header, t[i].length, t[i].data, &s, &e);
        if (rc != ERR_SAFETENSORS || strstr(e.msg, t[i].says) == NULL) {
            fail_msg("case %zu: %d, %s (wanted: %s)", i, rc, e.msg,
                     t[i].says);
        }
    }
}

static void refuses_short_files(void **state)
{
    (void)state;
    struct err e = {0};
    struct safetensors *s = NULL;
    for (size_t n = 0; n < 8; n++) {
        assert_int_equal(safetensors_open("\2\0\0\0\0\0\0\0{}", n, &s, &e),
                         ERR_SAFETENSORS);
    }
    unit_ok(safetensors_open("\2\0\0\0\0\0\0\0{}", 10, &s, &e), &e);
    assert_int_equal(safetensors_count(s), 0);
    assert_null(safetensors_find(s, "a"));
    safetensors_close(s);
}

static void bounds_header_and_nesting(void **state)
{
    (void)state;
    struct err e = {0};
    struct safetensors *s = NULL;
    struct buf b;
    buf_init(&b, MIB(64));
    buf_u64(&b, SAFETENSORS_HEADER_MAX + 1);
    memset(buf_grow(&b, SAFETENSORS_HEADER_MAX + 1), ' ',
           SAFETENSORS_HEADER_MAX + 1);
    assert_int_equal(safetensors_open(b.p, b.n, &s, &e), ERR_SAFETENSORS);
    buf_clear(&b);
    buf_u64(&b, 5000);
    memset(buf_grow(&b, 5000), '[', 5000);
    assert_int_equal(safetensors_open(b.p, b.n, &s, &e), ERR_SAFETENSORS);
    assert_non_null(strstr(e.msg, "deep"));
    buf_clear(&b);
    buf_u64(&b, 0);
    buf_puts(&b, "{");
    for (unsigned i = 0; i <= GGUF_TENSORS_MAX; i++) {
        buf_printf(&b, "\"%u\":0,", i);
    }
    buf_puts(&b, "\"x\":0}");
    uint64_t n = b.n - 8;
    memcpy(b.p, &n, sizeof(n));
    assert_int_equal(safetensors_open(b.p, b.n, &s, &e), ERR_SAFETENSORS);
    assert_non_null(strstr(e.msg, "65536"));
    buf_fini(&b);
}

/* Every byte of the header changed in every bit, and every truncation. */
static void survives_every_change(void **state)
{
    (void)state;
    struct buf b;
    make(&b, SOUND, 0, 28);
    for (size_t i = 0; i < b.n - 28; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            struct err e = {0};
            struct safetensors *s = NULL;
            b.p[i] = (char)(b.p[i] ^ (1 << bit));
            if (safetensors_open(b.p, b.n, &s, &e) < 0) {
                assert_true(e.code == ERR_SAFETENSORS && e.msg[0] != 0);
            }
            safetensors_close(s);
            b.p[i] = (char)(b.p[i] ^ (1 << bit));
        }
    }
    for (size_t n = 0; n < b.n; n++) {
        struct err e = {0};
        struct safetensors *s = NULL;
        assert_int_equal(safetensors_open(b.p, n, &s, &e), ERR_SAFETENSORS);
    }
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_sound_file),
        cmocka_unit_test(refuses_hostile_files),
        cmocka_unit_test(refuses_short_files),
        cmocka_unit_test(bounds_header_and_nesting),
        cmocka_unit_test(survives_every_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
