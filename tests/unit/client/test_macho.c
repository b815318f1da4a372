/* The reader of Mach-O files, on files made here: what it reads, and that no
 * broken one leads it out of its bytes (each under the address sanitizer). */
#include <string.h>

#include "../unit.h"
#include "base/buf.h"
#include "client/macho.h"

static const char plist[] =
    "<?xml version=\"1.0\"?><plist><dict><key>CFBundleName</key>"
    "<string>aned</string><key>CFBundleIdentifier</key>\n"
    "<string>dev.aned.daemon</string></dict></plist>";

static void be32(struct buf *b, uint32_t v)
{
    buf_u8(b, (uint8_t)(v >> 24));
    buf_u8(b, (uint8_t)(v >> 16));
    buf_u8(b, (uint8_t)(v >> 8));
    buf_u8(b, (uint8_t)v);
}

static void name16(struct buf *b, const char *s)
{
    char out[17] = "";
    (void)snprintf(out, sizeof(out), "%s", s);
    buf_put(b, out, 16);
}

static void set32(struct buf *b, size_t at, uint32_t v)
{
    memcpy(b->p + at, &v, sizeof(v)); /* the tests' machines too */
}

/* A program with one segment, one library, a version, a signature. */
static void make(struct buf *b)
{
    static const char lib[] =
        "/System/Library/Frameworks/CoreML.framework/Versions/A/CoreML";
    buf_init(b, 1 << 16);
    const uint32_t head[] = {0xfeedfacf, 0x0100000c, 0, 2, 4, 0, 0, 0};
    for (size_t i = 0; i < 8; i++) {
        buf_u32(b, head[i]);
    }
    size_t seg = b->n; /* LC_SEGMENT_64 with one section */
    buf_u32(b, 0x19);
    buf_u32(b, 72 + 80);
    name16(b, "__TEXT");
    for (int i = 0; i < 4; i++) {
        buf_u64(b, 0);
    }
    buf_u64(b, 0);
    buf_u32(b, 1);
    buf_u32(b, 0);
    name16(b, "__info_plist");
    name16(b, "__TEXT");
    buf_u64(b, 0);
    buf_u64(b, sizeof(plist) - 1);
    size_t plist_at = b->n;
    buf_u32(b, 0);
    for (int i = 0; i < 7; i++) {
        buf_u32(b, 0);
    }
    assert_int_equal(b->n - seg, 72 + 80);
    buf_u32(b, 0xc); /* LC_LOAD_DYLIB */
    buf_u32(b, 24 + 64);
    buf_u32(b, 24);
    for (int i = 0; i < 3; i++) {
        buf_u32(b, 0);
    }
    char padded[64] = "";
    memcpy(padded, lib, sizeof(lib));
    buf_put(b, padded, sizeof(padded));
    buf_u32(b, 0x32); /* LC_BUILD_VERSION */
    buf_u32(b, 24);
    buf_u32(b, 1);
    buf_u32(b, 15u << 16);
    buf_u32(b, 15u << 16 | 1u << 8);
    buf_u32(b, 0);
    buf_u32(b, 0x1d); /* LC_CODE_SIGNATURE */
    buf_u32(b, 16);
    size_t sign_at = b->n;
    buf_u32(b, 0);
    buf_u32(b, 0);
    set32(b, plist_at, (uint32_t)b->n);
    buf_put(b, plist, sizeof(plist) - 1);
    size_t start = b->n;
    be32(b, 0xfade0cc0);
    be32(b, 0);
    be32(b, 1);
    be32(b, 0);
    be32(b, 20);
    be32(b, 0xfade0c02);
    be32(b, 44 + 16);
    be32(b, 0x20400);
    be32(b, 2); /* ad hoc */
    be32(b, 0);
    be32(b, 44);
    for (int i = 0; i < 5; i++) {
        be32(b, 0);
    }
    buf_put(b, "dev.aned.daemon", 16);
    set32(b, sign_at, (uint32_t)start);
    set32(b, sign_at + 4, (uint32_t)(b->n - start));
    assert_true(buf_ok(b));
}

static void reads(void **state)
{
    (void)state;
    struct buf b;
    struct macho m;
    struct err e = {0};
    make(&b);
    unit_ok(macho_parse(b.p, b.n, "x", &m, &e), &e);
    assert_true(m.arm64 && m.macos && m.is_signed && m.ad_hoc);
    assert_int_equal(m.minos[0], 15);
    assert_int_equal(m.sdk[1], 1);
    assert_int_equal(m.n_dylibs, 1);
    assert_non_null(strstr(m.dylibs[0], "CoreML.framework"));
    assert_string_equal(m.bundle, "dev.aned.daemon");
    assert_string_equal(m.identifier, "dev.aned.daemon");
    buf_fini(&b);
}

/* Cut anywhere it is refused: the signature ends the file. */
static void cut(void **state)
{
    (void)state;
    struct buf b;
    struct macho m;
    struct err e = {0};
    make(&b);
    for (size_t n = 0; n < b.n; n++) {
        char *copy = malloc(n + 1); /* of its size: for the sanitizer */
        assert_non_null(copy);
        memcpy(copy, b.p, n);
        char *tight = n > 0 ? realloc(copy, n) : copy;
        assert_int_equal(macho_parse(tight, n, "x", &m, &e), ERR_INVALID);
        free(tight);
    }
    buf_fini(&b);
}

/* Any one number replaced by a large one: an answer, whatever it is. */
static void broken(void **state)
{
    (void)state;
    static const uint32_t large[] = {0xffffffff, 0x7fffffff, 0x80000000,
                                     1 << 16};
    struct buf b;
    struct macho m;
    struct err e = {0};
    make(&b);
    for (size_t at = 0; at + 4 <= b.n; at += 4) {
        uint32_t old = 0;
        memcpy(&old, b.p + at, 4);
        for (size_t i = 0; i < countof(large); i++) {
            set32(&b, at, large[i]);
            int rc = macho_parse(b.p, b.n, "x", &m, &e);
            assert_true(rc == 0 || rc == ERR_INVALID);
        }
        set32(&b, at, old);
    }
    buf_fini(&b);
}

static void others(void **state)
{
    (void)state;
    static const uint8_t fat[64] = {0xca, 0xfe, 0xba, 0xbe};
    struct macho m;
    struct err e = {0};
    assert_int_equal(macho_parse(fat, sizeof(fat), "x", &m, &e), ERR_INVALID);
    assert_non_null(strstr(e.msg, "several processors"));
    assert_int_equal(macho_parse("\177ELF", 4, "x", &m, &e), ERR_INVALID);
    assert_int_equal(macho_read("/nonexistent", &m, &e), ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(cut),
        cmocka_unit_test(broken),
        cmocka_unit_test(others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
