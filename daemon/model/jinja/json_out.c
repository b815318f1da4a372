/* json_out.c - values as json.dumps of Python writes them. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "model/jinja/eval.h"
#include "model/jinja/text.h"

struct writer {
    struct run *r;
    const struct json_style *style;
    struct buf *b;
    size_t depth;
};

static int write_value(struct writer *w, const struct val *v);

static void write_unit(struct buf *b, uint32_t u)
{
    buf_printf(b, "\\u%04" PRIx32, u);
}

static void write_char(struct writer *w, const char *p, size_t len, int32_t c)
{
    static const char from[] = "\"\\\n\r\t\b\f";
    static const char to[] = "\"\\nrtbf";
    const char *known = c > 0 && c < 0x80 ? strchr(from, (char)c) : NULL;
    if (known != NULL) {
        buf_puts(w->b, "\\");
        buf_put(w->b, &to[known - from], 1);
    } else if (c >= 0 && c < 0x20) {
        write_unit(w->b, (uint32_t)c);
    } else if (c < 0x7F || !w->style->ascii) { /* 0x7F too is escaped */
        buf_put(w->b, p, len);
    } else if (c >= 0x10000) {
        uint32_t u = (uint32_t)c - 0x10000;
        write_unit(w->b, 0xD800 + (u >> 10));
        write_unit(w->b, 0xDC00 + (u & 0x3FF));
    } else {
        write_unit(w->b, (uint32_t)c);
    }
}

static int write_string(struct writer *w, struct span s)
{
    size_t len = 0;
    int32_t c = 0;
    buf_puts(w->b, "\"");
    for (size_t i = 0; i < s.n; i += len) {
        len = text_char(s.p + i, s.n - i, &c);
        write_char(w, s.p + i, len, c);
    }
    buf_puts(w->b, "\"");
    return run_charge_chars(w->r, s.n);
}

static int write_float(struct writer *w, double f)
{
    if (isnan(f) || isinf(f)) {
        buf_puts(w->b, isnan(f) ? "NaN" : (f < 0 ? "-Infinity" : "Infinity"));
    } else {
        put_float(w->b, f);
    }
    return 0;
}

static void new_line(struct writer *w)
{
    if (w->style->lines) {
        buf_puts(w->b, "\n");
        for (size_t i = 0; i < w->depth && buf_ok(w->b); i++) {
            buf_put(w->b, w->style->indent.p, w->style->indent.n);
        }
    }
}

static void between(struct writer *w, size_t i)
{
    if (i > 0) {
        buf_put(w->b, w->style->comma.p, w->style->comma.n);
    }
    new_line(w);
}

static int write_list(struct writer *w, const struct val_list *l)
{
    if (l->n == 0) {
        buf_puts(w->b, "[]");
        return 0;
    }
    buf_puts(w->b, "[");
    w->depth++;
    for (size_t i = 0; i < l->n; i++) {
        between(w, i);
        RETERR(write_value(w, &l->v[i]));
    }
    w->depth--;
    new_line(w);
    buf_puts(w->b, "]");
    return 0;
}

/* JSON's keys are strings: numbers, booleans and None are written as such. */
static int write_key(struct writer *w, const struct val *key)
{
    if (key->kind == V_STR) {
        return write_string(w, key->s);
    }
    if (!val_is_number(key) && key->kind != V_NONE) {
        return run_error(w->r, "a JSON key cannot be a '%s'", val_type(key));
    }
    buf_puts(w->b, "\"");
    RETERR(write_value(w, key));
    buf_puts(w->b, "\"");
    return 0;
}

/* The members in the order of their keys: an insertion sort of places. */
static int sorted(struct run *r, const struct val_dict *d, struct val_dict *ret)
{
    ret->item = arena_array(r->arena, d->n, sizeof(*ret->item));
    ret->n = 0;
    if (ret->item == NULL) {
        return run_no_memory(r);
    }
    for (size_t i = 0; i < d->n; i++) {
        size_t at = ret->n;
        while (at > 0) {
            int order = 0;
            RETERR(val_compare(r, &d->item[i].key, &ret->item[at - 1].key,
                               &order));
            RETERR(run_charge(r, 0));
            if (order >= 0) {
                break;
            }
            ret->item[at] = ret->item[at - 1];
            at--;
        }
        ret->item[at] = d->item[i];
        ret->n++;
    }
    return 0;
}

static int write_dict(struct writer *w, const struct val_dict *d)
{
    struct val_dict in_order = *d;
    if (d->n == 0) {
        buf_puts(w->b, "{}");
        return 0;
    }
    if (w->style->sort) {
        RETERR(sorted(w->r, d, &in_order));
    }
    buf_puts(w->b, "{");
    w->depth++;
    for (size_t i = 0; i < in_order.n; i++) {
        between(w, i);
        RETERR(write_key(w, &in_order.item[i].key));
        buf_put(w->b, w->style->colon.p, w->style->colon.n);
        RETERR(write_value(w, &in_order.item[i].v));
    }
    w->depth--;
    new_line(w);
    buf_puts(w->b, "}");
    return 0;
}

static int write_value(struct writer *w, const struct val *v)
{
    int rc = 0;
    RETERR(run_charge(w->r, 0));
    if (!buf_ok(w->b)) {
        return err_set(w->r->e, ERR_TOO_BIG, "the JSON of a value");
    }
    switch ((int)v->kind) {
    case V_NONE:
        buf_puts(w->b, "null");
        return 0;
    case V_BOOL:
        buf_puts(w->b, v->b ? "true" : "false");
        return 0;
    case V_INT:
        buf_printf(w->b, "%" PRId64, v->i);
        return 0;
    case V_FLOAT:
        return write_float(w, v->f);
    case V_STR:
        return write_string(w, v->s);
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
        RETERR(run_enter(w->r));
        rc =
            v->kind == V_DICT ? write_dict(w, v->dict) : write_list(w, v->list);
        run_leave(w->r);
        return rc;
    default:
        return run_error(w->r, "Object of type %s is not JSON serializable",
                         val_type(v));
    }
}

int val_to_json(struct run *r, const struct val *v, const struct json_style *s,
                struct buf *b)
{
    struct writer w = {.r = r, .style = s, .b = b};
    return write_value(&w, v);
}
