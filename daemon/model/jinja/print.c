/* print.c - values as Python writes them: str() and repr(). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "model/jinja/eval.h"
#include "model/jinja/text.h"

void put_float(struct buf *b, double f)
{
    char text[40];
    if (isnan(f) || isinf(f)) {
        buf_puts(b, isnan(f) ? "nan" : (f < 0 ? "-inf" : "inf"));
        return;
    }
    for (int n = 0; n <= 16; n++) { /* the fewest digits that read back */
        (void)snprintf(text, sizeof(text), "%.*e", n, f);
        if (strtod(text, NULL) == f) {
            break;
        }
    }
    /* [-]D[.DDD]e[+-]XX into sign, digits and exponent */
    char *e = strchr(text, 'e');
    const char *p = text;
    char digits[24];
    int n = 0;
    long exponent = strtol(e + 1, NULL, 10);
    if (*p == '-') {
        buf_puts(b, "-");
        p++;
    }
    for (; p < e; p++) {
        if (*p != '.') {
            digits[n++] = *p;
        }
    }
    if (exponent < -4 || exponent >= 16) {
        buf_put(b, digits, 1);
        if (n > 1) {
            buf_puts(b, ".");
            buf_put(b, digits + 1, (size_t)(n - 1));
        }
        buf_printf(b, "e%c%02ld", exponent < 0 ? '-' : '+', labs(exponent));
        return;
    }
    if (exponent < 0) {
        buf_puts(b, "0.");
        for (long i = -1; i > exponent; i--) {
            buf_puts(b, "0");
        }
        buf_put(b, digits, (size_t)n);
        return;
    }
    for (long i = 0; i <= exponent || i < n; i++) {
        if (i == exponent + 1) {
            buf_puts(b, ".");
        }
        buf_put(b, i < n ? &digits[i] : "0", 1);
    }
    if (n <= exponent + 1) {
        buf_puts(b, ".0");
    }
}

static void repr_char(const char *p, size_t len, int32_t c, char quote,
                      struct buf *b)
{
    if (c == quote || c == '\\') {
        buf_printf(b, "\\%c", (char)c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
        buf_puts(b, c == '\n' ? "\\n" : (c == '\r' ? "\\r" : "\\t"));
    } else if (c < 0) {
        buf_printf(b, "\\x%02x", (unsigned char)*p);
    } else if (char_is_print(c)) {
        buf_put(b, p, len);
    } else {
        char text[16];
        const uint32_t u = (uint32_t)c;
        if (c < 0x100) {
            (void)snprintf(text, sizeof(text), "\\x%02" PRIx32, u);
        } else if (c < 0x10000) {
            (void)snprintf(text, sizeof(text), "\\u%04" PRIx32, u);
        } else {
            (void)snprintf(text, sizeof(text), "\\U%08" PRIx32, u);
        }
        buf_puts(b, text);
    }
}

static void repr_str(struct span s, struct buf *b)
{
    bool single = s.n > 0 && memchr(s.p, '\'', s.n) != NULL;
    bool twice = s.n > 0 && memchr(s.p, '"', s.n) != NULL;
    char quote = single && !twice ? '"' : '\'';
    int32_t c = 0;
    size_t len = 0;
    buf_put(b, &quote, 1);
    for (size_t i = 0; i < s.n; i += len) {
        len = text_char(s.p + i, s.n - i, &c);
        repr_char(s.p + i, len, c, quote, b);
    }
    buf_put(b, &quote, 1);
}

static int repr_list(struct run *r, const struct val *v, struct buf *b)
{
    const struct val_list *l = v->list;
    bool tuple = v->kind == V_TUPLE;
    if (v->kind == V_RANGE) {
        buf_put(b, l->label.p, l->label.n);
        return 0;
    }
    if (v->kind == V_VIEW) {
        buf_put(b, l->label.p, l->label.n);
        buf_puts(b, "(");
    }
    buf_puts(b, tuple ? "(" : "[");
    for (size_t i = 0; i < l->n; i++) {
        buf_puts(b, i > 0 ? ", " : "");
        RETERR(val_repr(r, &l->v[i], b));
    }
    buf_puts(b, tuple ? (l->n == 1 ? ",)" : ")") : "]");
    buf_puts(b, v->kind == V_VIEW ? ")" : "");
    return 0;
}

static int repr_dict(struct run *r, const struct val *v, struct buf *b)
{
    buf_puts(b, v->kind == V_NS ? "<Namespace {" : "{");
    for (size_t i = 0; i < v->dict->n; i++) {
        buf_puts(b, i > 0 ? ", " : "");
        RETERR(val_repr(r, &v->dict->item[i].key, b));
        buf_puts(b, ": ");
        RETERR(val_repr(r, &v->dict->item[i].v, b));
    }
    buf_puts(b, v->kind == V_NS ? "}>" : "}");
    return 0;
}

static int repr_object(struct run *r, const struct val *v, struct buf *b)
{
    if (v->kind == V_LOOP) {
        struct val n;
        RETERR(loop_attr(r, v->loop, zspan("length"), &n));
        buf_printf(b, "<LoopContext %zu/%" PRId64 ">", v->loop->index0 + 1,
                   n.i);
        return 0;
    }
    if (v->kind == V_MACRO) {
        struct span s = v->macro->def->s;
        if (v->macro->is_caller) {
            s = zspan("caller");
        }
        buf_puts(b, "<Macro '");
        buf_put(b, s.p, s.n);
        buf_puts(b, "'>");
        return 0;
    }
    /* Python writes where it lies in memory. */
    return run_error(r, "a %s has no text", val_type(v));
}

int val_repr(struct run *r, const struct val *v, struct buf *b)
{
    int rc = 0;
    RETERR(run_charge_chars(r, v->kind == V_STR ? v->s.n : 0));
    if (!buf_ok(b)) {
        return err_set(r->e, ERR_TOO_BIG, "the text of a value");
    }
    switch (v->kind) {
    case V_MISSING:
    case V_UNDEFINED:
        buf_puts(b, "Undefined");
        return 0;
    case V_NONE:
        buf_puts(b, "None");
        return 0;
    case V_BOOL:
        buf_puts(b, v->b ? "True" : "False");
        return 0;
    case V_INT:
        buf_printf(b, "%" PRId64, v->i);
        return 0;
    case V_FLOAT:
        put_float(b, v->f);
        return 0;
    case V_STR:
        buf_puts(b, v->markup ? "Markup(" : "");
        repr_str(v->s, b);
        buf_puts(b, v->markup ? ")" : "");
        return 0;
    case V_GEN:
    case V_LOOP:
    case V_MACRO:
    case V_FUNC:
    case V_METHOD:
        return repr_object(r, v, b);
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
    case V_DICT:
    case V_NS:
        break;
    }
    RETERR(run_enter(r));
    rc = val_has_list(v) ? repr_list(r, v, b) : repr_dict(r, v, b);
    run_leave(r);
    return rc;
}

int val_text(struct run *r, const struct val *v, struct span *ret)
{
    if (v->kind == V_STR || v->kind == V_UNDEFINED || v->kind == V_MISSING) {
        *ret = v->kind == V_STR ? v->s : zspan("");
        return 0;
    }
    struct buf b;
    struct val text = val_none;
    run_buf(r, &b);
    int rc = val_repr(r, v, &b);
    if (rc == 0) {
        rc = run_take(r, &b, &text);
    }
    buf_fini(&b);
    *ret = text.s;
    return rc;
}
