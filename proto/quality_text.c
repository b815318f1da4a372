/* quality_text.c - see quality_text.h.
 *
 *   passed: mean KL 0.0002, argmax 1.000 of 101, least cosine of a layer 0.9999
 *   int8, 128 positions; bars: each layer's cosine >= 0.97, mean KL <= 0.05,
 *   the likeliest token >= 0.93 (ten times what a real model loses)
 *
 *   weights    passed   3 packages
 *   ...
 *   exactness  passed   128 positions: the same bits in chunks of any size
 *
 *   logits     positions  KL mean  KL max  cosine  likeliest  top 5  error  ...
 *   package                   layers  cosine  least  error  ...
 *   layer  ...
 */
#include "proto/quality_text.h"

#include <string.h>

static void put(struct buf *b, const char *s)
{
    for (; s != NULL && *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        buf_u8(b, c < ' ' || c == 0x7f ? '?' : c);
    }
}

/* In `width` columns at least, with a space after it. */
static void put_wide(struct buf *b, const char *s, size_t width)
{
    put(b, s);
    for (size_t n = strlen(s); n < width; n++) {
        buf_u8(b, ' ');
    }
    buf_u8(b, ' ');
}

static const char *text(const struct json *j, const char *key)
{
    const char *s = json_str(json_get(j, key));
    return s != NULL ? s : "";
}

static double number(const struct json *j, const char *key)
{
    return json_num(json_get(j, key));
}

static void put_result(struct buf *b, const char *name, const struct json *r)
{
    buf_puts(b, "  ");
    put_wide(b, name, 10);
    put_wide(b, text(r, "verdict"), 8);
    put(b, text(r, "detail"));
    buf_puts(b, "\n");
}

static void put_bars(struct buf *b, const struct json *r)
{
    const struct json *bars = json_get(r, "bars");
    put(b, text(r, "quant"));
    buf_printf(b,
               ", %.0f positions; bars: each layer's cosine >= %.3g, mean KL "
               "<= %.3g, the likeliest token >= %.3g",
               number(r, "positions"), number(bars, "cosine"),
               number(bars, "kl"), number(bars, "argmax"));
    if (text(bars, "reason")[0] != '\0') {
        buf_puts(b, " (");
        put(b, text(bars, "reason"));
        buf_puts(b, ")");
    }
    buf_puts(b, "\n\n");
}

static void put_logits(struct buf *b, const char *name, const struct json *l)
{
    if (number(l, "positions") < 1) {
        return; /* did not run */
    }
    buf_puts(b, "  ");
    put_wide(b, name, 10);
    buf_printf(
        b, "%9.0f  %8.3g  %8.3g  %.6f  %.6f  %9.3f  %5.3f  %8.3g  %8.3g\n",
        number(l, "positions"), number(l, "kl_mean"), number(l, "kl_max"),
        number(l, "cosine_mean"), number(l, "cosine_min"), number(l, "argmax"),
        number(l, "top5"), number(l, "error_mean"), number(l, "error_max"));
}

static void put_numbers(struct buf *b, const struct json *l)
{
    double rms = number(l, "rms");
    double worst = number(l, "error_max");
    buf_printf(b, "%.6f  %.6f  %8.3g  %8.3g  %8.3g\n", number(l, "cosine_mean"),
               number(l, "cosine_min"), number(l, "error_mean"), worst,
               rms > 0 ? worst / rms : 0);
}

#define NUMBERS "cosine    least     error mean   largest  by rms\n"

static void put_layers(struct buf *b, const struct json *r)
{
    const struct json *shards = json_get(r, "shards");
    const struct json *layers = json_get(r, "layers");
    unsigned n = 0;
    if (json_first(shards) != NULL) {
        buf_puts(b, "\n  package                    worst layer   " NUMBERS);
    }
    for (const struct json *s = json_first(shards); s != NULL;
         s = json_next(s)) {
        buf_puts(b, "  ");
        put_wide(b, text(s, "package"), 26);
        buf_printf(b, "%4.0f %.4f   ", number(s, "worst_layer"),
                   number(s, "worst_cosine"));
        put_numbers(b, s);
    }
    if (json_first(layers) != NULL) {
        buf_puts(b, "\n  layer                                    " NUMBERS);
    }
    for (const struct json *l = json_first(layers); l != NULL;
         l = json_next(l)) {
        buf_printf(b, "  %-5u                                    ", n++);
        put_numbers(b, l);
    }
}

void quality_report_text(const struct json *r, struct buf *b)
{
    put(b, text(r, "verdict"));
    buf_puts(b, ": ");
    put(b, text(r, "detail"));
    buf_puts(b, "\n");
    put_bars(b, r);
    for (const struct json *x = json_first(json_get(r, "rungs")); x != NULL;
         x = json_next(x)) {
        put_result(b, text(x, "name"), x);
    }
    put_result(b, "exactness", json_get(r, "exactness"));
    if (number(json_get(r, "logits"), "positions") > 0) {
        buf_puts(b, "\n  logits     positions   KL mean    KL max  cosine    "
                    "least     likeliest  top 5  err mean   largest\n");
    }
    put_logits(b, "program", json_get(r, "logits"));
    put_logits(b, "steps", json_get(r, "steps"));
    put_logits(b, "chunks", json_get(r, "chunks"));
    put_layers(b, r);
    if (json_bool(json_get(r, "cut"))) {
        buf_puts(b, "\n  too many layers for the kept report: `aned quality "
                    "BUNDLE SOURCE` shows them\n");
    }
}
