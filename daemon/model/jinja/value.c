/* value.c - see value.h. */
#include "model/jinja/value.h"

#include <math.h>
#include <string.h>

#include "model/jinja/eval.h"
#include "model/jinja/text.h"

struct val val_str(struct span s)
{
    return (struct val){.kind = V_STR, .s = s};
}

struct val val_strz(const char *s)
{
    return val_str(zspan(s));
}

struct val val_int(int64_t i)
{
    return (struct val){.kind = V_INT, .i = i};
}

struct val val_bool(bool b)
{
    return (struct val){.kind = V_BOOL, .b = b};
}

struct val val_float(double f)
{
    return (struct val){.kind = V_FLOAT, .f = f};
}

struct val val_undefined(struct span name)
{
    return (struct val){.kind = V_UNDEFINED, .s = name};
}

struct val val_dict_of(struct val_dict *d)
{
    return (struct val){.kind = V_DICT, .dict = d};
}

bool span_is(struct span s, const char *z)
{
    return s.n == strlen(z) && (s.n == 0 || memcmp(s.p, z, s.n) == 0);
}

bool span_equal(struct span a, struct span b)
{
    return a.n == b.n && (a.p == b.p || a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

double val_as_double(const struct val *v)
{
    int64_t i = 0;
    return val_as_int(v, &i) ? (double)i : v->f;
}

bool val_true(const struct val *v)
{
    switch (v->kind) {
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return v->b;
    case V_INT:
        return v->i != 0;
    case V_FLOAT:
        return v->f != 0;
    case V_STR:
        return v->s.n > 0;
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
        return v->list->n > 0;
    case V_DICT:
        return v->dict->n > 0;
    case V_GEN:
    case V_NS:
    case V_LOOP:
    case V_MACRO:
    case V_FUNC:
    case V_METHOD:
        break;
    }
    return true;
}

const char *val_type(const struct val *v)
{
    static const char *const names[] = {
        [V_MISSING] = "Undefined",
        [V_UNDEFINED] = "Undefined",
        [V_NONE] = "NoneType",
        [V_BOOL] = "bool",
        [V_INT] = "int",
        [V_FLOAT] = "float",
        [V_STR] = "str",
        [V_LIST] = "list",
        [V_TUPLE] = "tuple",
        [V_RANGE] = "range",
        [V_VIEW] = "view of a dict",
        [V_GEN] = "generator",
        [V_DICT] = "dict",
        [V_NS] = "Namespace",
        [V_LOOP] = "LoopContext",
        [V_MACRO] = "Macro",
        [V_FUNC] = "function",
        [V_METHOD] = "method",
    };
    return names[v->kind];
}

/* --- lists and dictionaries --- */

bool val_room(struct arena *a, void **p, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) {
        return true;
    }
    size_t more = *cap == 0 ? 4 : 2 * *cap;
    void *q = arena_array(a, more, size);
    if (q == NULL) {
        return false;
    }
    if (n > 0) {
        memcpy(q, *p, n * size);
    }
    *p = q;
    *cap = more;
    return true;
}

bool list_push(struct arena *a, struct val_list *l, struct val v)
{
    void *p = l->v;
    if (!val_room(a, &p, l->n, &l->cap, sizeof(*l->v))) {
        return false;
    }
    l->v = p;
    l->v[l->n++] = v;
    return true;
}

bool val_hashable(const struct val *v)
{
    bool ok = v->kind != V_LIST && v->kind != V_DICT && v->kind != V_VIEW;
    if (v->kind == V_TUPLE) {
        for (size_t i = 0; ok && i < v->list->n; i++) {
            ok = v->list->v[i].kind != V_TUPLE && val_hashable(&v->list->v[i]);
        }
    }
    return ok;
}

/* Equality of hashable values: 1, 1.0 and True are the same key. A tuple holds
 * no tuple here. */
static bool same_key(const struct val *a, const struct val *b)
{
    if (a->kind == V_STR || b->kind == V_STR) {
        return a->kind == b->kind && span_equal(a->s, b->s);
    }
    if (val_is_number(a) && val_is_number(b)) {
        int64_t i = 0;
        int64_t k = 0;
        return val_as_int(a, &i) && val_as_int(b, &k)
                   ? i == k
                   : val_as_double(a) == val_as_double(b);
    }
    if (a->kind != b->kind) {
        return false;
    }
    if (a->kind == V_TUPLE) {
        bool same = a->list->n == b->list->n;
        for (size_t i = 0; same && i < a->list->n; i++) {
            same = same_key(&a->list->v[i], &b->list->v[i]);
        }
        return same;
    }
    return a->kind == V_NONE || a->kind == V_UNDEFINED || a->loop == b->loop;
}

static struct val_item *find_item(const struct val_dict *d,
                                  const struct val *key)
{
    for (size_t i = 0; i < d->n; i++) {
        if (same_key(&d->item[i].key, key)) {
            return &d->item[i];
        }
    }
    return NULL;
}

bool dict_put(struct arena *a, struct val_dict *d, struct val key, struct val v)
{
    struct val_item *have = find_item(d, &key);
    void *p = d->item;
    if (have != NULL) {
        have->v = v;
        return true;
    }
    if (!val_room(a, &p, d->n, &d->cap, sizeof(*d->item))) {
        return false;
    }
    d->item = p;
    d->item[d->n++] = (struct val_item){key, v};
    return true;
}

bool dict_putz(struct arena *a, struct val_dict *d, const char *key,
               struct val v)
{
    return dict_put(a, d, val_strz(key), v);
}

const struct val *dict_get(const struct val_dict *d, const struct val *key)
{
    const struct val_item *have = find_item(d, key);
    return have != NULL ? &have->v : NULL;
}

const struct val *dict_gets(const struct val_dict *d, struct span key)
{
    struct val k = val_str(key);
    return dict_get(d, &k);
}

/* --- equality and order --- */

/* -1, 0, 1; 2 when one is not a number of IEEE 754's order (nan). */
static int order_numbers(const struct val *a, const struct val *b)
{
    int64_t i = 0;
    int64_t k = 0;
    if (val_as_int(a, &i) && val_as_int(b, &k)) {
        return (i > k) - (i < k);
    }
    /* 64 bits of mantissa: exact for both kinds */
    long double x = val_as_int(a, &i) ? (long double)i : (long double)a->f;
    long double y = val_as_int(b, &k) ? (long double)k : (long double)b->f;
    if (isnan(x) || isnan(y)) {
        return 2;
    }
    return (x > y) - (x < y);
}

static int order_spans(struct span a, struct span b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n > 0 ? memcmp(a.p, b.p, n) : 0;
    return c != 0 ? (c > 0) - (c < 0) : (a.n > b.n) - (a.n < b.n);
}

static int equal_lists(struct run *r, const struct val_list *a,
                       const struct val_list *b, bool *ret)
{
    *ret = a->n == b->n;
    for (size_t i = 0; *ret && i < a->n; i++) {
        RETERR(val_equal(r, &a->v[i], &b->v[i], ret));
    }
    return 0;
}

static int equal_dicts(struct run *r, const struct val_dict *a,
                       const struct val_dict *b, bool *ret)
{
    *ret = a->n == b->n;
    for (size_t i = 0; *ret && i < a->n; i++) {
        RETERR(run_charge(r, b->n * sizeof(*b->item)));
        const struct val *v = dict_get(b, &a->item[i].key);
        *ret = v != NULL;
        if (v != NULL) {
            RETERR(val_equal(r, &a->item[i].v, v, ret));
        }
    }
    return 0;
}

int val_equal(struct run *r, const struct val *a, const struct val *b,
              bool *ret)
{
    *ret = false;
    if (val_is_number(a) && val_is_number(b)) {
        *ret = order_numbers(a, b) == 0;
        return 0;
    }
    if (a->kind != b->kind) {
        return 0;
    }
    if (a->kind == V_STR) {
        *ret = span_equal(a->s, b->s);
        return run_charge(r, *ret ? a->s.n : 0);
    }
    if (a->kind == V_NONE || a->kind == V_UNDEFINED) {
        *ret = true;
        return 0;
    }
    if (a->kind != V_DICT && (!val_has_list(a) || a->kind == V_GEN)) {
        *ret = a->loop == b->loop; /* the same object */
        return 0;
    }
    RETERR(run_enter(r));
    int rc = a->kind == V_DICT ? equal_dicts(r, a->dict, b->dict, ret)
                               : equal_lists(r, a->list, b->list, ret);
    run_leave(r);
    return rc;
}

static int compare_lists(struct run *r, const struct val_list *a,
                         const struct val_list *b, int *ret)
{
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; i++) {
        bool same = false;
        RETERR(val_equal(r, &a->v[i], &b->v[i], &same));
        if (!same) {
            return val_compare(r, &a->v[i], &b->v[i], ret);
        }
    }
    *ret = (a->n > b->n) - (a->n < b->n);
    return 0;
}

int val_compare(struct run *r, const struct val *a, const struct val *b,
                int *ret)
{
    if (val_is_number(a) && val_is_number(b)) {
        *ret = order_numbers(a, b);
        return 0;
    }
    if (a->kind == V_STR && b->kind == V_STR) {
        *ret = order_spans(a->s, b->s);
        return run_charge(r, a->s.n < b->s.n ? a->s.n : b->s.n);
    }
    if (a->kind == b->kind && (a->kind == V_LIST || a->kind == V_TUPLE)) {
        RETERR(run_enter(r));
        int rc = compare_lists(r, a->list, b->list, ret);
        run_leave(r);
        return rc;
    }
    if (a->kind == V_UNDEFINED || b->kind == V_UNDEFINED) {
        struct span s = a->kind == V_UNDEFINED ? a->s : b->s;
        return run_error(r, "'%.*s' is undefined", (int)s.n, s.p);
    }
    return run_error(r, "no order between '%s' and '%s'", val_type(a),
                     val_type(b));
}

size_t span_find(struct span hay, struct span needle)
{
    if (needle.n == 0) {
        return 0;
    }
    const char *p = hay.n > 0 ? memmem(hay.p, hay.n, needle.p, needle.n) : NULL;
    return p != NULL ? (size_t)(p - hay.p) : hay.n + 1;
}

int val_in(struct run *r, const struct val *a, const struct val *b, bool *ret)
{
    *ret = false;
    if (b->kind == V_STR) {
        if (a->kind != V_STR) {
            return run_error(r, "'in' a str needs a str, not '%s'",
                             val_type(a));
        }
        *ret = span_find(b->s, a->s) <= b->s.n;
        return run_charge(r, b->s.n);
    }
    if (b->kind == V_DICT) {
        if (!val_hashable(a)) {
            return run_error(r, "unhashable type: '%s'", val_type(a));
        }
        *ret = dict_get(b->dict, a) != NULL;
        return run_charge(r, b->dict->n * sizeof(struct val_item));
    }
    struct val_list l;
    RETERR(run_items(r, b, &l));
    RETERR(run_charge(r, l.n * sizeof(struct val)));
    for (size_t i = 0; !*ret && i < l.n; i++) {
        RETERR(val_equal(r, a, &l.v[i], ret));
    }
    return 0;
}
