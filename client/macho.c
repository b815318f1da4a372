#include "client/macho.h"

#include <string.h>

#include "base/file.h"
#include "proto/limits.h"

#define MAGIC_64        0xfeedfacfu
#define MAGIC_FAT       0xbebafecau /* its numbers are big-endian */
#define CPU_ARM64       0x0100000cu
#define SEGMENT_64      0x19u
#define LOAD_DYLIB      0xcu
#define LOAD_WEAK_DYLIB 0x80000018u
#define CODE_SIGNATURE  0x1du
#define BUILD_VERSION   0x32u
#define PLATFORM_MACOS  1u
#define SECTION_BYTES   80u
#define COMMANDS_MAX    4096u
/* of a code signature, whose numbers are big-endian */
#define SUPERBLOB 0xfade0cc0u
#define DIRECTORY 0xfade0c02u
#define BLOBS_MAX 64u
#define AD_HOC    2u /* a flag of the directory */

struct file {
    const uint8_t *p;
    size_t n;
};

/* Bytes [at, at + n) of the file, or nothing to read. */
static struct cur part(const struct file *f, uint64_t at, uint64_t n)
{
    bool in = at <= f->n && n <= f->n - at;
    return in ? cur_of(f->p + at, (size_t)n)
              : (struct cur){.p = f->p, .bad = true};
}

static uint32_t be32(struct cur *c)
{
    uint32_t v = cur_u32(c);
    return v >> 24 | (v >> 8 & 0xff00) | (v << 8 & 0xff0000) | v << 24;
}

/* A text of at most `size` bytes that ends in the part. */
static bool text_at(struct cur c, uint64_t at, char *out, size_t size)
{
    if (c.bad || at >= c.n) {
        return false;
    }
    const char *s = (const char *)c.p + at;
    const char *end = memchr(s, '\0', c.n - (size_t)at);
    if (end == NULL || (size_t)(end - s) >= size) {
        return false;
    }
    memcpy(out, s, (size_t)(end - s) + 1);
    return true;
}

/* <key>CFBundleIdentifier</key> <string>...</string> */
static void read_plist(const struct cur *c, struct macho *m)
{
    static const char key[] = "<key>CFBundleIdentifier</key>";
    struct buf b;
    buf_init(&b, KIB(64));
    buf_put(&b, c->p, c->n);
    const char *p = buf_ok(&b) && b.n > 0 ? strstr(b.p, key) : NULL;
    p = p != NULL ? strstr(p, "<string>") : NULL;
    if (p != NULL) {
        p += strlen("<string>");
        size_t n = strcspn(p, "<");
        if (n < sizeof(m->bundle)) {
            memcpy(m->bundle, p, n);
            m->bundle[n] = '\0';
        }
    }
    buf_fini(&b);
}

static bool read_segment(const struct file *f, struct cur c, struct macho *m)
{
    (void)cur_bytes(&c, 64 - 8); /* name, places, protections */
    uint32_t sections = cur_u32(&c);
    (void)cur_u32(&c);
    for (uint32_t i = 0; i < sections && !c.bad; i++) {
        const char *name = cur_bytes(&c, 16);
        const char *segment = cur_bytes(&c, 16);
        (void)cur_u64(&c);
        uint64_t size = cur_u64(&c);
        uint32_t at = cur_u32(&c);
        (void)cur_bytes(&c, SECTION_BYTES - 52);
        if (!c.bad && strncmp(segment, "__TEXT", 16) == 0 &&
            strncmp(name, "__info_plist", 16) == 0) {
            struct cur plist = part(f, at, size);
            if (plist.bad) {
                return false;
            }
            read_plist(&plist, m);
        }
    }
    return !c.bad;
}

/* The code directory: magic, length, version, flags, offset of hashes, offset
 * of the identifier. */
static bool read_directory(struct cur c, struct macho *m)
{
    struct cur whole = c;
    (void)cur_bytes(&c, 12);
    uint32_t flags = be32(&c);
    (void)be32(&c);
    uint32_t name = be32(&c);
    m->ad_hoc = (flags & AD_HOC) != 0;
    return !c.bad && text_at(whole, name, m->identifier, sizeof(m->identifier));
}

static bool read_signature(const struct file *f, uint32_t at, uint32_t size,
                           struct macho *m)
{
    struct cur all = part(f, at, size);
    struct cur c = all;
    uint32_t magic = be32(&c);
    (void)be32(&c);
    uint32_t n = be32(&c);
    if (c.bad || magic != SUPERBLOB || n > BLOBS_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)be32(&c);
        uint32_t place = be32(&c);
        if (c.bad || place > all.n || all.n - place < 8) {
            return false;
        }
        struct cur blob = cur_of(all.p + place, all.n - place);
        if (be32(&blob) == DIRECTORY) {
            m->is_signed = true;
            return read_directory(cur_of(all.p + place, all.n - place), m);
        }
    }
    return false;
}

static void version(uint32_t v, unsigned out[2])
{
    out[0] = v >> 16;
    out[1] = v >> 8 & 0xff;
}

/* c: one load command, behind its command and size. */
static bool read_command(const struct file *f, uint32_t command, struct cur all,
                         struct cur c, struct macho *m)
{
    uint32_t a = 0;
    uint32_t b = 0;
    switch (command) {
    case SEGMENT_64:
        return read_segment(f, c, m);
    case LOAD_DYLIB:
    case LOAD_WEAK_DYLIB:
        a = cur_u32(&c);
        return m->n_dylibs < MACHO_DYLIBS_MAX && !c.bad &&
               text_at(all, a, m->dylibs[m->n_dylibs++], MACHO_NAME_MAX);
    case BUILD_VERSION:
        m->macos = cur_u32(&c) == PLATFORM_MACOS;
        version(cur_u32(&c), m->minos);
        version(cur_u32(&c), m->sdk);
        return !c.bad;
    case CODE_SIGNATURE:
        a = cur_u32(&c);
        b = cur_u32(&c);
        return !c.bad && read_signature(f, a, b, m);
    default:
        return true;
    }
}

int macho_parse(const void *p, size_t n, const char *what, struct macho *ret,
                struct err *e)
{
    const struct file f = {p, n};
    struct cur c = cur_of(p, n);
    *ret = (struct macho){0};
    uint32_t magic = cur_u32(&c);
    if (magic != MAGIC_64) {
        return err_set(e, ERR_INVALID, "%s: %s", what,
                       magic == MAGIC_FAT ? "for several processors"
                                          : "no 64-bit Mach-O file");
    }
    ret->arm64 = cur_u32(&c) == CPU_ARM64;
    (void)cur_u64(&c); /* subtype, kind */
    uint32_t commands = cur_u32(&c);
    (void)cur_bytes(&c, 12); /* size, flags, reserved */
    bool ok = !c.bad && commands <= COMMANDS_MAX;
    for (uint32_t i = 0; i < commands && ok; i++) {
        struct cur at = c;
        uint32_t command = cur_u32(&c);
        uint32_t size = cur_u32(&c);
        ok = !c.bad && size >= 8 && size <= at.n - at.at;
        if (ok) {
            struct cur all = cur_of(at.p + at.at, size);
            ok = read_command(&f, command, all, cur_of(all.p + 8, size - 8),
                              ret);
            c.at = at.at + size;
        }
    }
    return ok ? 0
              : err_set(e, ERR_INVALID, "%s: not a sound Mach-O file", what);
}

int macho_read(const char *path, struct macho *ret, struct err *e)
{
    struct buf b = {0};
    RETERR(file_read(path, MACHO_BYTES_MAX, &b, e));
    int rc = macho_parse(b.n > 0 ? b.p : "", b.n, path, ret, e);
    buf_fini(&b);
    return rc;
}
