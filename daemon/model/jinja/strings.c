/* strings.c - see strings.h. */
#include "model/jinja/strings.h"

#include <string.h>

#include "model/jinja/text.h"
#include "proto/limits.h"

static enum text_case next_case(enum str_case how, int32_t c, bool first)
{
    switch (how) {
    case STR_UPPER:
        return CASE_UPPER;
    case STR_SWAP:
        return char_is_upper(c) ? CASE_LOWER : CASE_UPPER;
    case STR_WORDS:
        return first ? CASE_UPPER : CASE_LOWER;
    case STR_CAPITALIZE:
    case STR_TITLE:
        return first ? CASE_TITLE : CASE_LOWER;
    case STR_LOWER:
        break;
    }
    return CASE_LOWER;
}

/* Whether the character behind c begins a word. */
static bool begins_word(enum str_case how, int32_t c)
{
    if (how == STR_TITLE) {
        return !char_is_cased(c);
    }
    return how == STR_WORDS &&
           (char_is_space(c) ||
            (c > 0 && c < 0x80 && strchr("-({[<", (char)c) != NULL));
}

int str_case(struct run *r, struct span s, enum str_case to, struct val *ret)
{
    struct buf b;
    bool first = true;
    RETERR(run_charge_chars(r, s.n));
    run_buf(r, &b);
    for (size_t i = 0; i < s.n;) {
        char out[TEXT_CASE_BYTES];
        int32_t c = 0;
        size_t len = text_char(s.p + i, s.n - i, &c);
        if (c < 0) {
            buf_put(&b, s.p + i, len);
        } else {
            buf_put(&b, out, text_put_case(out, c, next_case(to, c, first)));
        }
        first = begins_word(to, c);
        i += len;
    }
    int rc = run_take(r, &b, ret);
    buf_fini(&b);
    return rc;
}

int str_replace(struct run *r, struct span s, struct span from, struct span to,
                int64_t count, struct val *ret)
{
    struct buf b;
    int32_t c = 0;
    RETERR(from.n > 0 ? run_charge(r, s.n) : run_charge_chars(r, s.n));
    run_buf(r, &b);
    while (count != 0) {
        size_t at = span_find(s, from);
        size_t step = from.n;
        if (at > s.n) {
            break;
        }
        buf_put(&b, s.p, at);
        buf_put(&b, to.p, to.n);
        count -= count > 0;
        if (from.n == 0) { /* before each character, and at the end */
            if (s.n == 0) {
                break;
            }
            step = text_char(s.p, s.n, &c);
            buf_put(&b, s.p, step);
        }
        s.p += at + step;
        s.n -= at + step;
        if (!buf_ok(&b)) {
            break;
        }
    }
    buf_put(&b, s.p, s.n);
    int rc = run_take(r, &b, ret);
    buf_fini(&b);
    return rc;
}

int str_pad(struct run *r, struct span s, int64_t left, int64_t right,
            struct span fill, struct val *ret)
{
    struct buf b;
    if (text_length(fill) != 1) {
        return run_error(r, "the fill must be exactly one character");
    }
    run_buf(r, &b);
    for (int64_t i = 0; i < left && buf_ok(&b); i++) {
        buf_put(&b, fill.p, fill.n);
    }
    buf_put(&b, s.p, s.n);
    for (int64_t i = 0; i < right && buf_ok(&b); i++) {
        buf_put(&b, fill.p, fill.n);
    }
    int rc = run_take(r, &b, ret);
    buf_fini(&b);
    return rc;
}

int str_center(struct run *r, struct span s, int64_t width, struct span fill,
               struct val *ret)
{
    int64_t n = (int64_t)text_length(s);
    int64_t more = width > n ? width - n : 0;
    int64_t left = more / 2 + (more & width & 1);
    return str_pad(r, s, left, more - left, fill, ret);
}

static bool ends_line(int32_t c)
{
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
           c == 0x2028 || c == 0x2029;
}

int str_lines(struct run *r, struct span s, bool keep, struct val *ret)
{
    size_t from = 0;
    int32_t c = 0;
    RETERR(run_charge_chars(r, s.n));
    RETERR(run_list(r, V_LIST, ret));
    for (size_t i = 0; i < s.n;) {
        size_t len = text_char(s.p + i, s.n - i, &c);
        if (!ends_line(c)) {
            i += len;
            continue;
        }
        len += c == '\r' && i + 1 < s.n && s.p[i + 1] == '\n';
        struct span line = {s.p + from, i + (keep ? len : 0) - from};
        RETERR(run_push(r, ret, val_str(line)));
        i += len;
        from = i;
    }
    return from < s.n ? run_push(r, ret,
                                 val_str((struct span){s.p + from, s.n - from}))
                      : 0;
}
