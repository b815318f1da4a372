/* strings_split.c - strings apart: see strings.h. */
#include <string.h>

#include "model/jinja/strings.h"
#include "model/jinja/text.h"

bool str_begins(struct span s, struct span with)
{
    return s.n >= with.n && (with.n == 0 || memcmp(s.p, with.p, with.n) == 0);
}

size_t str_find_last(struct span hay, struct span needle)
{
    for (size_t i = hay.n + 1; i > 0 && needle.n <= hay.n; i--) {
        struct span at = {hay.p + i - 1, hay.n - (i - 1)};
        if (str_begins(at, needle)) {
            return i - 1;
        }
    }
    return hay.n + 1;
}

/* Words between white space, from the left; the last has what is left. */
static int split_blank(struct run *r, struct span s, int64_t most,
                       struct val *ret)
{
    int32_t u = 0;
    for (s = span_ltrim(s); s.n > 0; s = span_ltrim(s)) {
        size_t i = 0;
        if (most == 0) {
            return run_push(r, ret, val_str(s));
        }
        while (i < s.n) {
            size_t len = text_char(s.p + i, s.n - i, &u);
            if (char_is_space(u)) {
                break;
            }
            i += len;
        }
        RETERR(run_push(r, ret, val_str((struct span){s.p, i})));
        s.p += i;
        s.n -= i;
        most -= most > 0;
    }
    return 0;
}

static int split_at(struct run *r, struct span s, struct span sep, int64_t most,
                    struct val *ret)
{
    for (; most != 0; most -= most > 0) {
        size_t at = span_find(s, sep);
        if (at > s.n) {
            break;
        }
        RETERR(run_push(r, ret, val_str((struct span){s.p, at})));
        s.p += at + sep.n;
        s.n -= at + sep.n;
    }
    return run_push(r, ret, val_str(s));
}

/* What is apart, from the right, in the wrong order. */
static int rsplit_at(struct run *r, struct span s, struct span sep,
                     int64_t most, struct val *ret)
{
    for (; most != 0; most -= most > 0) {
        size_t at = str_find_last(s, sep);
        RETERR(run_charge(r, s.n));
        if (at > s.n) {
            break;
        }
        struct span tail = {s.p + at + sep.n, s.n - at - sep.n};
        RETERR(run_push(r, ret, val_str(tail)));
        s.n = at;
    }
    return run_push(r, ret, val_str(s));
}

static int rsplit_blank(struct run *r, struct span s, int64_t most,
                        struct val *ret)
{
    for (s = span_rtrim(s); s.n > 0; s = span_rtrim(s)) {
        size_t i = s.n;
        if (most == 0) {
            return run_push(r, ret, val_str(s));
        }
        /* a character back, as long as it is none of white space */
        while (i > 0 && span_rtrim((struct span){s.p, i}).n == i) {
            i--;
            while (i > 0 && ((unsigned char)s.p[i] & 0xC0) == 0x80) {
                i--;
            }
        }
        RETERR(run_push(r, ret, val_str((struct span){s.p + i, s.n - i})));
        s.n = i;
        most -= most > 0;
    }
    return 0;
}

static void reverse(struct val_list *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        struct val v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

int str_split(struct run *r, struct span s, struct span sep, int64_t most,
              bool right, struct val *ret)
{
    bool blank = sep.n == 0;
    int rc = 0;
    RETERR(blank ? run_charge_chars(r, s.n) : run_charge(r, s.n));
    RETERR(run_list(r, V_LIST, ret));
    if (right) {
        rc = blank ? rsplit_blank(r, s, most, ret)
                   : rsplit_at(r, s, sep, most, ret);
        reverse(ret->list);
        return rc;
    }
    return blank ? split_blank(r, s, most, ret)
                 : split_at(r, s, sep, most, ret);
}
