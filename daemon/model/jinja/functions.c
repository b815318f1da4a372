/* functions.c - the global functions of a template. */
#include <string.h>
#include <time.h>

#include "model/jinja/eval.h"
#include "proto/limits.h"

static int f_raise(struct run *r, const struct call *c, struct val *ret)
{
    struct span s;
    (void)ret;
    RETERR(val_text(r, &c->a[0], &s));
    return err_set(r->e, ERR_TEMPLATE_INPUT, "%.*s",
                   (int)(s.n < ERR_MSG_MAX ? s.n : ERR_MSG_MAX), s.p);
}

/* The length of a format that C's strftime does as Python's does; %f, %z and
 * %Z of a time without a zone are done here. */
static size_t put_own(struct buf *b, char c)
{
    if (c == 'f') {
        buf_puts(b, "000000");
    }
    return c == 'f' || c == 'z' || c == 'Z' ? 2 : 0;
}

static int f_strftime_now(struct run *r, const struct call *c, struct val *ret)
{
    char text[256];
    struct tm tm;
    struct span format = zspan("");
    time_t now = (time_t)r->now;
    struct buf b;
    RETERR(arg_str(r, &c->a[0], "the format", &format));
    if (localtime_r(&now, &tm) == NULL) {
        return run_error(r, "the time %lld is no date", (long long)now);
    }
    run_buf(r, &b);
    for (size_t i = 0; i < format.n;) {
        char one[4] = {format.p[i], '\0', '\0', '\0'};
        if (*one != '%' || i + 1 == format.n) {
            buf_put(&b, one, 1);
            i++;
            continue;
        }
        one[1] = format.p[i + 1];
        if (one[1] == '-' && i + 2 < format.n) {
            one[2] = format.p[i + 2];
        }
        size_t own = put_own(&b, one[1]);
        i += own > 0 ? own : strlen(one);
        if (own == 0) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            buf_put(&b, text, strftime(text, sizeof(text), one, &tm));
#pragma GCC diagnostic pop
        }
    }
    int rc = run_take(r, &b, ret);
    buf_fini(&b);
    return rc;
}

/* from, from + step, ... before to; part: from, to, step. */
static int fill_range(struct run *r, const int64_t part[3], struct val *ret)
{
    uint64_t step = (uint64_t)part[2];
    uint64_t width = (uint64_t)part[1] - (uint64_t)part[0];
    uint64_t n = 0;
    if (part[2] < 0) {
        step = 0 - step;
        width = 0 - width;
    }
    if (part[2] > 0 ? part[0] < part[1] : part[0] > part[1]) {
        n = (width - 1) / step + 1;
    }
    if (n > JINJA_RANGE_MAX) {
        return err_set(r->e, ERR_TOO_BIG,
                       "a range of over %u in the chat template",
                       JINJA_RANGE_MAX);
    }
    RETERR(run_list(r, V_RANGE, ret));
    RETERR(run_charge(r, n * sizeof(struct val)));
    ret->list->v = arena_array(r->arena, n + 1, sizeof(struct val));
    if (ret->list->v == NULL) {
        return run_no_memory(r);
    }
    for (ret->list->n = 0; ret->list->n < n; ret->list->n++) {
        int64_t i = part[0] + (int64_t)ret->list->n * part[2];
        ret->list->v[ret->list->n] = val_int(i);
    }
    return 0;
}

/* range(to), range(from, to), range(from, to, step); the sandbox's limit. */
static int f_range(struct run *r, const struct call *c, struct val *ret)
{
    const struct args *a = c->raw;
    int64_t part[3] = {0, 0, 1};
    char label[80];
    if (a->n < 1 || a->n > 3 || a->n_kw > 0) {
        return run_error(r, "range takes one to three integers");
    }
    for (size_t i = 0; i < a->n; i++) {
        RETERR(arg_int(r, &a->v[i], "an end of a range",
                       &part[a->n == 1 ? 1 : i]));
    }
    int64_t step = part[2];
    if (step == 0) {
        return run_error(r, "range's step must not be zero");
    }
    RETERR(fill_range(r, part, ret));
    (void)snprintf(label, sizeof(label),
                   step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                   (long long)part[0], (long long)part[1], (long long)step);
    struct val text;
    RETERR(run_copy(r, zspan(label), &text));
    ret->list->label = text.s;
    return 0;
}

/* Keywords, and before them a dictionary or pairs, into d. */
static int fill(struct run *r, const struct args *a, struct val *d)
{
    struct val_list l = {0};
    if (a->n > 1) {
        return run_error(r, "a dict is made of one argument and keywords");
    }
    if (a->n == 1 && a->v[0].kind == V_DICT) {
        for (size_t i = 0; i < a->v[0].dict->n; i++) {
            const struct val_item *m = &a->v[0].dict->item[i];
            RETERR(run_put(r, d, m->key, m->v));
        }
    } else if (a->n == 1) {
        RETERR(run_items(r, &a->v[0], &l));
    }
    for (size_t i = 0; i < l.n; i++) {
        struct val_list two;
        RETERR(run_items(r, &l.v[i], &two));
        if (two.n != 2) {
            return run_error(r, "a dict is made of pairs");
        }
        RETERR(run_put(r, d, two.v[0], two.v[1]));
    }
    for (size_t i = 0; i < a->n_kw; i++) {
        RETERR(run_put(r, d, val_str(a->kw[i].name), a->kw[i].v));
    }
    return 0;
}

static int f_dict(struct run *r, const struct call *c, struct val *ret)
{
    RETERR(run_dict(r, V_DICT, ret));
    return fill(r, c->raw, ret);
}

static int f_namespace(struct run *r, const struct call *c, struct val *ret)
{
    RETERR(run_dict(r, V_NS, ret));
    return fill(r, c->raw, ret);
}

/* --- joiner and cycler: namespaces that hold their own methods --- */

static int bound(struct run *r, const struct val *self,
                 const struct builtin *of, struct val *ret)
{
    struct method *m = arena_alloc(r->arena, sizeof(*m));
    if (m == NULL) {
        return run_no_memory(r);
    }
    *m = (struct method){*self, of};
    *ret = (struct val){.kind = V_METHOD, .method = m};
    return 0;
}

/* Nothing the first time, its text then. */
static int m_joiner(struct run *r, const struct call *c, struct val *ret)
{
    struct val self = c->self;
    const struct val *sep = dict_gets(self.dict, zspan("sep"));
    bool used = dict_gets(self.dict, zspan("used")) != NULL;
    *ret = used ? *sep : val_strz("");
    return run_put(r, &self, val_strz("used"), val_bool(true));
}

static int f_joiner(struct run *r, const struct call *c, struct val *ret)
{
    static const struct builtin call = {"joiner", m_joiner, 0, ""};
    struct val sep = c->a[0].kind == V_MISSING ? val_strz(", ") : c->a[0];
    struct val self;
    RETERR(run_dict(r, V_NS, &self));
    RETERR(run_put(r, &self, val_strz("sep"), sep));
    return bound(r, &self, &call, ret);
}

/* The cycler's present item becomes number i. */
static int cycle_to(struct run *r, struct val *self, size_t i)
{
    const struct val_list *l = dict_gets(self->dict, zspan("items"))->list;
    RETERR(run_put(r, self, val_strz("pos"), val_int((int64_t)i)));
    return run_put(r, self, val_strz("current"), l->v[i]);
}

static int m_next(struct run *r, const struct call *c, struct val *ret)
{
    struct val self = c->self;
    size_t n = dict_gets(self.dict, zspan("items"))->list->n;
    size_t i = (size_t)dict_gets(self.dict, zspan("pos"))->i;
    *ret = *dict_gets(self.dict, zspan("current"));
    return cycle_to(r, &self, (i + 1) % n);
}

static int m_reset(struct run *r, const struct call *c, struct val *ret)
{
    struct val self = c->self;
    (void)ret;
    return cycle_to(r, &self, 0);
}

static int f_cycler(struct run *r, const struct call *c, struct val *ret)
{
    static const struct builtin next = {"next", m_next, 0, ""};
    static const struct builtin reset = {"reset", m_reset, 0, ""};
    struct val items;
    struct val v;
    if (c->raw->n == 0 || c->raw->n_kw > 0) {
        return run_error(r, "cycler: at least one item has to be provided");
    }
    RETERR(run_list(r, V_LIST, &items));
    for (size_t i = 0; i < c->raw->n; i++) {
        RETERR(run_push(r, &items, c->raw->v[i]));
    }
    RETERR(run_dict(r, V_NS, ret));
    RETERR(run_put(r, ret, val_strz("items"), items));
    RETERR(bound(r, ret, &next, &v));
    RETERR(run_put(r, ret, val_strz("next"), v));
    RETERR(bound(r, ret, &reset, &v));
    RETERR(run_put(r, ret, val_strz("reset"), v));
    return cycle_to(r, ret, 0);
}

static const struct builtin functions[] = {
    {"range",           f_range,        0, "*"      },
    {"dict",            f_dict,         0, "*"      },
    {"namespace",       f_namespace,    0, "*"      },
    {"raise_exception", f_raise,        1, "message"},
    {"strftime_now",    f_strftime_now, 1, "format" },
    {"joiner",          f_joiner,       0, "sep"    },
    {"cycler",          f_cycler,       0, "*"      },
};

const struct builtin *find_function(struct span name)
{
    return builtin_find(functions, countof(functions), name);
}
