/* fuzz_safetensors.c - any bytes as a safetensors file, or, after a 'd', a header
 * that is drawn (draw.h): names, every dtype, shapes, offsets that fit or do not.
 * What is accepted holds what safetensors.h promises: tensors inside the file,
 * apart from each other, of the bytes that their shapes say, and found by their
 * names. */
#include <string.h>

#include "base/buf.h"
#include "draw.h"
#include "source/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* What is read must not be optimised away. */
volatile uint8_t sink;

static void look(const uint8_t *p, size_t n)
{
    struct safetensors *s = NULL;
    struct err e = {0};
    int rc = safetensors_open(p, n, &s, &e);
    if (rc < 0) {
        must(e.code == rc && e.msg[0] != '\0');
        return;
    }
    const uint8_t *end = p;
    for (size_t i = 0; i < safetensors_count(s); i++) {
        const struct safetensors_tensor *t = safetensors_at(s, i);
        must(t->data >= end && t->data + t->bytes <= p + n);
        must(safetensors_find(s, t->name) == t);
        end = t->data + t->bytes;
        sink ^= t->bytes > 0 ? t->data[t->bytes - 1] : 0;
    }
    safetensors_close(s);
}

/* --- a header --- */

static const struct {
    const char *name;
    unsigned bytes;
} dtypes[] = {
    {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"I8", 1}, {"U8", 1},
    {"I16", 2}, {"U16", 2}, {"I32", 4}, {"U32", 4}, {"I64", 8}, {"U64", 8},
    {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"F4", 1},
    {"F6_E2M3", 1}, {"C64", 8}, {"f32", 4}, {"", 1},
};
static const char *const names[] = {
    "a", "b", "c", "w.0", "w.1", "__metadata__", "", "a\\u0000b", "\xC3\xA9",
    "\\ud800", "../x", "a.b.c.d", "\\\"", "w.0",
};
static const char *const sizes[] = {
    "-1", "1.5", "1e3", "9223372036854775807", "9223372036854775808",
    "18446744073709551616", "4294967296", "null", "\"4\"", "[]", "00", "true",
};
static const unsigned lengths[] = {1, 2, 3, 4, 0, 8, 16, 5};

static void size(struct buf *b, struct draw *d, uint64_t right)
{
    if (draw_one_in(d, 40)) {
        buf_puts(b, draw_of(d, sizes));
    } else {
        buf_dec(b, right);
    }
}

/* One tensor of *at bytes on; mostly it fits. */
static void tensor(struct buf *b, struct draw *d, uint64_t *at)
{
    size_t type = draw_below(d, (unsigned)countof(dtypes));
    uint64_t bytes = dtypes[type].bytes;
    buf_printf(b, "\"%s\":{\"dtype\":\"%s\",\"shape\":[", draw_of(d, names),
               dtypes[type].name);
    for (unsigned i = 0, n = draw_below(d, draw_one_in(d, 20) ? 40 : 4); i < n;
         i++) {
        unsigned k = draw_of(d, lengths);
        buf_puts(b, i > 0 ? "," : "");
        size(b, d, k);
        bytes = bytes * k % 100000;
    }
    uint64_t from = *at + (draw_one_in(d, 30) ? draw_below(d, 9) - 4u : 0);
    *at = from + bytes + (draw_one_in(d, 30) ? draw_below(d, 9) - 4u : 0);
    buf_puts(b, "],\"data_offsets\":[");
    size(b, d, from);
    buf_puts(b, ",");
    size(b, d, *at);
    buf_puts(b, draw_one_in(d, 40) ? ",0]" : "]");
    buf_puts(b, draw_one_in(d, 40) ? ",\"url\":\"x\"}" : "}");
}

static void header(struct buf *b, struct draw *d, uint64_t *at)
{
    buf_puts(b, "{");
    if (draw_one_in(d, 4)) {
        buf_puts(b, draw_one_in(d, 6)
                        ? "\"__metadata__\":{\"a\":[[[[{}]]]]},"
                        : "\"__metadata__\":{\"format\":\"pt\"},");
    }
    for (unsigned i = 0, n = draw_below(d, 8); i < n; i++) {
        buf_puts(b, i > 0 ? "," : "");
        tensor(b, d, at);
    }
    for (unsigned n = draw_one_in(d, 60) ? draw_count(d) : 0; n > 0; n--) {
        buf_puts(b, "[");
    }
    buf_puts(b, draw_one_in(d, 40) ? "} x" : "}");
    while (draw_one_in(d, 4)) {
        buf_puts(b, " ");
    }
}

static void drawn(struct draw *d)
{
    struct buf head;
    struct buf file;
    uint64_t at = 0;
    buf_init(&head, MIB(1));
    buf_init(&file, MIB(2));
    header(&head, d, &at);
    buf_u64(&file, draw_one_in(d, 40) ? UINT64_MAX >> draw_below(d, 64)
                                      : head.n);
    buf_put(&file, head.p, head.n);
    at = draw_one_in(d, 20) ? at - 1 : at;
    if (at < MIB(1)) {
        uint8_t *data = buf_grow(&file, (size_t)at);
        must(data != NULL);
        memset(data, 0x3C, (size_t)at);
    }
    look((const uint8_t *)file.p, file.n);
    buf_fini(&head);
    buf_fini(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n > 0 && p[0] == 'd') {
        drawn(&(struct draw){p + 1, n - 1});
    } else {
        look(p, n);
    }
    return 0;
}
