/* Constants: golden Value messages (format facts 12.1), sub-byte packing (4.3),
 * weight.bin records good and bad, the typed getters. */
#include "../unit.h"
#include "mil/build.h"
#include "mil/impl.h"

static struct mil_program *p;

static int open_program(void **state)
{
    (void)state;
    p = build_program();
    return 0;
}

static int close_program(void **state)
{
    (void)state;
    build_free(p);
    return 0;
}

/* "12 04 0a" -> bytes */
static size_t unhex(const char *s, uint8_t *out)
{
    size_t n = 0;
    for (; *s != '\0'; s += s[2] == ' ' ? 3 : 2) {
        char two[3] = {s[0], s[1], '\0'};
        out[n++] = (uint8_t)strtoul(two, NULL, 16);
    }
    return n;
}

#define NONE (-1) /* a scalar */

static const struct mil_const *make(enum mil_dtype t, int64_t n,
                                    const void *data)
{
    struct mil_type type = {.dtype = t, .rank = n != NONE, .dims = {n}};
    return mil_imm(p, &type, data);
}

static void golden_values(void **state)
{
    (void)state;
    static const uint8_t yes = 1;
    static const uint8_t no = 0;
    static const int32_t i0 = 0;
    static const int32_t minus = -1;
    static const int32_t i4[] = {0, -1, 2, 300};
    static const uint8_t b2[] = {0, 1};
    static const uint16_t half = 0x3800;
    static const uint16_t h2[] = {0x3c00, 0xc000};
    static const float eps = 1e-5F;
    static const int8_t i8[] = {-1, 0, 1};
    static const uint8_t u8[] = {1, 255};
    static const uint16_t u16 = 3;
    static const int16_t i16[] = {-1, 5};
    static const uint32_t u32[] = {8, 64};
    const struct {
        const struct mil_const *c;
        const char *hex;
    } rows[] = {
        {mil_imm_str(p, "valid"),
         "12 04 0a 02 08 02 1a 0b 0a 09 22 07 0a 05 76 61 6c 69 64"                              },
        { make(MIL_BOOL,         NONE,    &yes),
         "12 04 0a 02 08 01 1a 07 0a 05 1a 03 0a 01 01"},
        {                                           make(MIL_BOOL,         NONE,     &no),
         "12 04 0a 02 08 01 1a 07 0a 05 1a 03 0a 01 00"},
        {                                           make(MIL_INT32,         NONE,     &i0),
         "12 04 0a 02 08 17 1a 07 0a 05 12 03 0a 01 00"},
        {                                           make(MIL_INT32,         NONE,  &minus),
         "12 04 0a 02 08 17 1a 10 0a 0e 12 0c 0a 0a ff ff ff ff ff ff ff ff "
         "ff 01"},
        {                                                                                  make(MIL_INT32,            4,      i4),
         "12 0c 0a 0a 08 17 10 01 1a 04 0a 02 08 04 1a 14 0a 12 12 10 0a 0e "
         "00 ff ff ff ff ff ff ff ff ff 01 02 ac 02"},
        {                                              make(MIL_BOOL,            2,      b2),
         "12 0c 0a 0a 08 01 10 01 1a 04 0a 02 08 02 1a 08 0a 06 1a 04 0a 02 "
         "00 01"},
        {                                                                                  make(MIL_FP16,         NONE,   &half),
         "12 04 0a 02 08 0a 1a 08 0a 06 3a 04 0a 02 00 38"},
        {                                        make(MIL_FP16,            2,      h2),
         "12 0c 0a 0a 08 0a 10 01 1a 04 0a 02 08 02 1a 0a 0a 08 3a 06 0a 04 "
         "00 3c 00 c0"},
        {                                                                            make(MIL_FP32,         NONE,    &eps),
         "12 04 0a 02 08 0b 1a 0a 0a 08 0a 06 0a 04 ac c5 27 37"},
        {                                  make(MIL_INT8,            3,      i8),
         "12 0c 0a 0a 08 15 10 01 1a 04 0a 02 08 03 1a 09 0a 07 3a 05 0a 03 "
         "ff 00 01"},
        {                                                                               make(MIL_UINT8,            2,      u8),
         "12 0c 0a 0a 08 1f 10 01 1a 04 0a 02 08 02 1a 08 0a 06 3a 04 0a 02 "
         "01 ff"},
        {                                                                                  make(MIL_UINT16,         NONE,    &u16),
         "12 04 0a 02 08 20 1a 07 0a 05 12 03 0a 01 03"},
        {                                           make(MIL_INT16,            2,     i16),
         "12 0c 0a 0a 08 16 10 01 1a 04 0a 02 08 02 1a 11 0a 0f 12 0d 0a 0b "
         "ff ff ff ff ff ff ff ff ff 01 05"},
        {                                                       make(MIL_UINT32,            2,     u32),
         "12 0c 0a 0a 08 21 10 01 1a 04 0a 02 08 02 1a 0e 0a 0c 3a 0a 0a 08 "
         "08 00 00 00 40 00 00 00"},
        {                                                                make(MIL_INT32,            0,      i4), /* empty: the member is there, and empty */
         "12 0a 0a 08 08 17 10 01 1a 02 0a 00 1a 04 0a 02 12 00"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        uint8_t want[128];
        size_t n = unhex(rows[i].hex, want);
        struct buf got = {0};
        buf_init(&got, 4096);
        value_encode(rows[i].c, &got);
        if (got.n != n || memcmp(got.p, want, n) != 0) {
            fail_msg("row %zu: other bytes, must be %s", i, rows[i].hex);
        }
        const struct mil_const *back = NULL;
        struct err e = {0};
        unit_ok(value_decode(p, got.p, got.n, &back, &e), &e);
        assert_true(mil_type_equal(&back->type, &rows[i].c->type));
        assert_int_equal(back->bytes, rows[i].c->bytes);
        assert_int_equal(back->n_strings, rows[i].c->n_strings);
        if (back->bytes > 0) {
            assert_memory_equal(back->data, rows[i].c->data, back->bytes);
        }
        buf_fini(&got);
    }
}

/* Values that say one thing and hold another. */
static void bad_values(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        const char *hex;
        int rc;
        const char *text;
    } rows[] = {
        {"int32 in bytes",
         "12 04 0a 02 08 17 1a 0a 0a 08 3a 06 0a 04 00 00 00 00",                      ERR_MIL_INVALID,  "wrong member"              },
        {"two elements in a scalar",
         "12 04 0a 02 08 17 1a 08 0a 06 12 04 0a 02 00 01",                            ERR_MIL_INVALID,
         "type int32 holds 2 elements"                                                                                               },
        {"three bytes for two halves",
         "12 0c 0a 0a 08 0a 10 01 1a 04 0a 02 08 02 1a 09 0a 07 3a 05 0a 03 00 "
         "3c 00",                                                                      ERR_MIL_INVALID,  "type fp16[2] holds 3 bytes"},
        {"70000 as uint16",
         "12 04 0a 02 08 20 1a 09 0a 07 12 05 0a 03 f0 a2 04",                         ERR_MIL_INVALID,
         "element 0"                                                                                                                 },
        {"an unknown dimension",
         "12 0a 0a 08 08 17 10 01 1a 02 12 00 1a 07 0a 05 12 03 0a 01 00",             ERR_MIL_INVALID,  "int32[?]"                  },
        {"a variadic dimension",
         "12 0c 0a 0a 08 17 10 01 1a 04 12 02 08 01 1a 07 0a 05 12 03 0a 01 00",       ERR_MIL_SHAPE,    "variadic"                  },
        {"rank 2 with one dimension",
         "12 0c 0a 0a 08 17 10 02 1a 04 0a 02 08 01 1a 07 0a 05 12 03 0a 01 00",       ERR_MIL_SHAPE,    "rank 2 with 1 dim"         },
        {"dtype 99",                   "12 04 0a 02 08 63 1a 07 0a 05 12 03 0a 01 00",
         ERR_MIL_INVALID,                                                                                "dtype number 99"           },
        {"a string of two",
         "12 04 0a 02 08 02 1a 0a 0a 08 22 06 0a 01 61 0a 01 "
         "62",                                                                         ERR_MIL_INVALID,  "2 strings"                 },
        {"cut short",                  "12 04 0a 02 08",                               ERR_PKG_PROTOBUF, "no Value"                  },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        uint8_t bytes[128];
        const struct mil_const *c = NULL;
        struct err e = {0};
        size_t n = unhex(rows[i].hex, bytes);
        int rc = value_decode(p, bytes, n, &c, &e);
        if (rc != rows[i].rc || strstr(e.msg, rows[i].text) == NULL) {
            fail_msg("%s: %s: %s", rows[i].why, err_name(rc), e.msg);
        }
        assert_null(c);
    }
}

/* Facts 4.3: bit streams, least significant bit first. */
static void sub_bytes(void **state)
{
    (void)state;
    static const struct {
        enum mil_dtype t;
        int64_t n;
        int64_t values[9];
        const char *hex;
        uint64_t padding;
    } rows[] = {
        {MIL_INT4,  3, {-8, 7, 1},                  "78 01",    4},
        {MIL_UINT4, 4, {1, 2, 15, 4},               "21 4f",    0},
        {MIL_UINT3, 5, {1, 2, 3, 4, 5},             "d1 58",    1},
        {MIL_UINT6, 3, {1, 2, 63},                  "81 f0 03", 6},
        {MIL_UINT2, 5, {0, 1, 2, 3, 1},             "e4 01",    6},
        {MIL_UINT1, 9, {1, 0, 1, 1, 0, 0, 0, 0, 1}, "0d 01",    7},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        uint8_t bytes[8];
        uint8_t record[BLOB_HEADER];
        int64_t got[9];
        uint64_t size = 0;
        uint64_t padding = 0;
        size_t count = 0;
        size_t n = unhex(rows[i].hex, bytes);
        assert_true(mil_dtype_bytes(rows[i].t, (uint64_t)rows[i].n, &size));
        assert_int_equal(size, n);
        const struct mil_const *c = make(rows[i].t, rows[i].n, bytes);
        assert_true(mil_const_ints(c, got, countof(got), &count));
        assert_int_equal(count, rows[i].n);
        assert_memory_equal(got, rows[i].values, count * sizeof(*got));
        assert_true(blob_put_record(record, &c->type, size, 128));
        memcpy(&padding, record + 24, sizeof(padding));
        assert_int_equal(padding, rows[i].padding);
    }
}

/* A weight file of one record for t at 64, then spoiled in one place. */
static void blobs(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        size_t at; /* byte to change, 0: none */
        uint8_t to;
        uint64_t offset;
        size_t bytes; /* of the file */
        int rc;
        const char *text;
    } rows[] = {
        {"sound",             0,  0,    64,              144, 0,            ""              },
        {"not on a record",   0,  0,    128,             144, ERR_MIL_BLOB, "not a"         },
        {"off the grid",      0,  0,    65,              144, ERR_MIL_BLOB, "not a"         },
        {"the file header",   0,  0,    0,               144, ERR_MIL_BLOB, "not a"         },
        {"after the end",     0,  0,    192,             144, ERR_MIL_BLOB, "not a"         },
        {"far after the end", 0,  0,    UINT64_MAX - 63, 144, ERR_MIL_BLOB,
         "not a"                                                                            },
        {"sentinel",          64, 0xee, 64,              144, ERR_MIL_BLOB, "no rec"        },
        {"dtype",             68, 3,    64,              144, ERR_MIL_BLOB, "dtype number 3"},
        {"size",              72, 17,   64,              144, ERR_MIL_BLOB, "leaves"        },
        {"smaller size",      72, 15,   64,              144, ERR_MIL_BLOB, "15 bytes"      },
        {"data place",        81, 0x10, 64,              144, ERR_MIL_BLOB, "leaves"        },
        {"data off the grid", 80, 0x81, 64,              144, ERR_MIL_BLOB, "leaves"        },
        {"truncated",         0,  0,    64,              143, ERR_MIL_BLOB, "leaves"        },
        {"half a record",     0,  0,    64,              100, ERR_MIL_BLOB, "not a"         },
    };
    static const struct mil_type t = {
        .dtype = MIL_INT8, .rank = 2, .dims = {4, 4}
    };
    for (size_t i = 0; i < countof(rows); i++) {
        uint8_t file[192] = {0};
        const uint8_t *data = NULL;
        uint64_t bytes = 0;
        struct err e = {0};
        blob_put_header(file, 1);
        assert_true(blob_put_record(file + 64, &t, 16, 128));
        if (rows[i].at > 0) {
            file[rows[i].at] = rows[i].to;
        }
        struct file_map m = {.p = file, .n = rows[i].bytes};
        unit_ok(blob_check_header(&m, &e), &e);
        int rc = blob_find(&m, rows[i].offset, &t, &data, &bytes, &e);
        if (rc != rows[i].rc || strstr(e.msg, rows[i].text) == NULL) {
            fail_msg("%s: %s: %s", rows[i].why, err_name(rc), e.msg);
        }
        if (rc == 0) {
            assert_ptr_equal(data, file + 128);
            assert_int_equal(bytes, 16);
        } else {
            assert_null(data);
        }
    }
    uint8_t old[64] = {1, 0, 0, 0, 1};
    struct file_map m = {.p = old, .n = sizeof(old)};
    struct err e = {0};
    assert_int_equal(blob_check_header(&m, &e), ERR_MIL_BLOB);
    m.n = 63;
    assert_int_equal(blob_check_header(&m, &e), ERR_MIL_BLOB);
}

static void getters(void **state)
{
    (void)state;
    static const int16_t shorts[] = {-3, 300};
    static const uint64_t big = UINT64_MAX;
    static const double d = 0.5;
    static const uint16_t bf = 0x3f80;
    int64_t ints[2] = {7, 7};
    float floats[2] = {0};
    bool flags[2] = {false};
    size_t n = 9;
    const struct mil_const *c = make(MIL_INT16, 2, shorts);
    assert_true(mil_const_ints(c, ints, 2, &n));
    assert_int_equal(ints[0], -3);
    assert_true(mil_const_floats(c, floats, 2, &n));
    assert_true(floats[1] == 300.0F);
    n = 9;
    assert_false(mil_const_ints(c, ints, 1, &n)); /* does not fit */
    assert_false(mil_const_bools(c, flags, 2, &n));
    assert_false(mil_const_ints(make(MIL_UINT64, NONE, &big), ints, 1, &n));
    assert_false(mil_const_ints(make(MIL_FP64, NONE, &d), ints, 1, &n));
    assert_false(mil_const_ints(NULL, ints, 1, &n));
    assert_int_equal(n, 9);
    assert_true(mil_const_floats(make(MIL_FP64, NONE, &d), floats, 1, &n));
    assert_true(floats[0] == 0.5F);
    assert_true(mil_const_floats(make(MIL_BF16, NONE, &bf), floats, 1, &n));
    assert_true(floats[0] == 1.0F);
    assert_null(mil_const_str(c));
    assert_int_equal(mil_dtype_parse("uint6"), MIL_UINT6);
    assert_int_equal(mil_dtype_parse("fp8"), MIL_NONE);

    struct mil_type huge = {
        .dtype = MIL_FP16, .rank = 2, .dims = {INT64_MAX, INT64_MAX}
    };
    uint64_t count = 5;
    assert_false(mil_type_count(&huge, &count));
    assert_int_equal(count, 5);
    char text[8]; /* cut, not overrun */
    mil_type_print(&huge, text, sizeof(text));
    assert_string_equal(text, "fp16[92");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_values), cmocka_unit_test(bad_values),
        cmocka_unit_test(sub_bytes),     cmocka_unit_test(blobs),
        cmocka_unit_test(getters),
    };
    return cmocka_run_group_tests_name("mil_value", tests, open_program,
                                       close_program);
}
