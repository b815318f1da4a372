/* fuzz_work.c - the journal of a conversion's work: whatever the bytes, what
 * counts is whole lines and sound records; with the lines' hashes made right, so
 * that what is behind them is reached. */
#include <string.h>

#include "base/buf.h"
#include "convert/work.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static size_t take(const void *p, size_t n)
{
    struct work_records r;
    size_t whole = 0;
    size_t again = 0;
    work_records_read(p, n, KEY, &r, &whole);
    must(whole <= n && r.n <= WORK_RECORDS_MAX && (whole > 0 || r.n == 0));
    must(whole == 0 || ((const char *)p)[whole - 1] == '\n');
    for (size_t i = 0; i < r.n; i++) {
        const struct work_record *x = &r.v[i];
        must(x->path[0] != '\0' && strlen(x->path) < WORK_PATH_MAX);
        must(strlen(x->sha256) == SHA256_HEX - 1);
        must(x->note || (x->path[0] != '/' && strstr(x->path, "..") == NULL));
        must(work_records_find(&r, x->path, x->note) == x);
    }
    size_t count = r.n;
    work_records_fini(&r);
    work_records_read(p, whole, KEY, &r, &again); /* what counts alone */
    must(again == whole && r.n == count);
    work_records_fini(&r);
    return count;
}

/* Every line of the input behind a hash of it. */
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const char head[] = "aned-work 1 " KEY;
    struct buf b;
    (void)take(p, n);
    buf_init(&b, WORK_JOURNAL_MAX);
    for (size_t at = 0, first = 1; at < n || first; first = 0) {
        const uint8_t *from = first ? (const uint8_t *)head : p + at;
        const uint8_t *end = first ? NULL : memchr(from, '\n', n - at);
        size_t len = first          ? sizeof(head) - 1
                     : end != NULL ? (size_t)(end - from)
                                   : n - at;
        struct sha256 s;
        uint8_t d[SHA256_BYTES];
        char hex[SHA256_HEX];
        sha256_init(&s);
        sha256_add(&s, from, len);
        sha256_end(&s, d);
        sha256_hex(d, hex);
        buf_puts(&b, hex);
        buf_puts(&b, " ");
        buf_put(&b, from, len);
        buf_puts(&b, "\n");
        at += first ? 0 : len + 1;
    }
    if (buf_ok(&b)) {
        (void)take(b.p, b.n);
    }
    buf_fini(&b);
    return 0;
}
