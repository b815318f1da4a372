/* filters_list.c - filters of sequences: ordering, joining, parts of them. */
#include <string.h>

#include "model/jinja/eval.h"

/* --- attributes of items: "a.b.0" --- */

static int one_part(struct run *r, struct span part, const struct val *item,
                    struct val *ret)
{
    int64_t n = 0;
    bool number = part.n > 0 && part.n < 18;
    for (size_t i = 0; number && i < part.n; i++) {
        number = part.p[i] >= '0' && part.p[i] <= '9';
        n = n * 10 + (part.p[i] - '0');
    }
    struct val key = number ? val_int(n) : val_str(part);
    return eval_index(r, item, &key, ret);
}

int attribute_of(struct run *r, const struct val *attribute,
                 const struct val *item, struct val *ret)
{
    struct val at = *item;
    if (attribute->kind == V_MISSING || attribute->kind == V_NONE) {
        *ret = *item;
        return 0;
    }
    if (attribute->kind != V_STR) {
        return eval_index(r, item, attribute, ret);
    }
    struct span left = attribute->s;
    for (;;) {
        const char *dot = left.n > 0 ? memchr(left.p, '.', left.n) : NULL;
        struct span part = {left.p,
                            dot != NULL ? (size_t)(dot - left.p) : left.n};
        RETERR(one_part(r, part, &at, ret));
        if (dot == NULL) {
            return 0;
        }
        at = *ret;
        left.p += part.n + 1;
        left.n -= part.n + 1;
    }
}

/* What items are ordered by. */
static int key_of(struct run *r, const struct val *attribute, bool case_counts,
                  const struct val *item, struct val *ret)
{
    struct args none = {0};
    RETERR(attribute_of(r, attribute, item, ret));
    if (ret->kind == V_STR && !case_counts) {
        struct val text = *ret;
        return call_filter(r, zspan("lower"), &text, &none, ret);
    }
    return 0;
}

/* Several attributes, with ',' between them, make a list of keys. */
static int keys_of(struct run *r, const struct val *attribute, bool case_counts,
                   const struct val *item, struct val *ret)
{
    if (attribute->kind != V_STR || attribute->s.n == 0 ||
        memchr(attribute->s.p, ',', attribute->s.n) == NULL) {
        return key_of(r, attribute, case_counts, item, ret);
    }
    struct val all;
    struct span left = attribute->s;
    RETERR(run_list(r, V_LIST, &all));
    for (bool more = true; more;) {
        const char *comma = left.n > 0 ? memchr(left.p, ',', left.n) : NULL;
        size_t n = comma != NULL ? (size_t)(comma - left.p) : left.n;
        struct val one = val_str((struct span){left.p, n});
        struct val key;
        RETERR(key_of(r, &one, case_counts, item, &key));
        RETERR(run_push(r, &all, key));
        more = comma != NULL;
        left.p += n + more;
        left.n -= n + more;
    }
    *ret = all;
    return 0;
}

/* --- sorting --- */

/* Merge the sorted halves of v[0..n) by their keys; stable. */
static int merge(struct run *r, struct val_item *v, size_t half, size_t n,
                 bool reverse, struct val_item *tmp)
{
    size_t i = 0;
    size_t k = half;
    for (size_t at = 0; at < n; at++) {
        int order = 0;
        if (i < half && k < n) {
            RETERR(val_compare(r, &v[k].key, &v[i].key, &order));
            order = reverse ? -order : order;
            RETERR(run_charge(r, 0));
        }
        bool right = i == half || (k < n && order == -1);
        tmp[at] = v[right ? k : i];
        k += right;
        i += !right;
    }
    memcpy(v, tmp, n * sizeof(*v));
    return 0;
}

static int sort_items(struct run *r, struct val_item *v, size_t n, bool reverse)
{
    struct val_item *tmp = arena_array(r->arena, n + 1, sizeof(*tmp));
    if (tmp == NULL) {
        return run_no_memory(r);
    }
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from + width < n; from += 2 * width) {
            size_t len = n - from < 2 * width ? n - from : 2 * width;
            RETERR(merge(r, v + from, width, len, reverse, tmp));
        }
    }
    return 0;
}

/* The items of v with their keys, sorted. */
static int sorted(struct run *r, const struct val *v,
                  const struct val *attribute, bool case_counts, bool reverse,
                  struct val_dict *ret)
{
    struct val_list l;
    RETERR(run_items(r, v, &l));
    ret->n = l.n;
    ret->item = arena_array(r->arena, l.n + 1, sizeof(*ret->item));
    if (ret->item == NULL) {
        return run_no_memory(r);
    }
    for (size_t i = 0; i < l.n; i++) {
        ret->item[i].v = l.v[i];
        RETERR(keys_of(r, attribute, case_counts, &l.v[i], &ret->item[i].key));
    }
    return sort_items(r, ret->item, ret->n, reverse);
}

static int f_sort(struct run *r, const struct call *c, struct val *ret)
{
    struct val_dict d;
    RETERR(sorted(r, &c->self, &c->a[2], arg_true(&c->a[1]), arg_true(&c->a[0]),
                  &d));
    RETERR(run_list(r, V_LIST, ret));
    for (size_t i = 0; i < d.n; i++) {
        RETERR(run_push(r, ret, d.item[i].v));
    }
    return 0;
}

static int pair_of(struct run *r, struct val a, struct val b, struct val *ret)
{
    RETERR(run_list(r, V_TUPLE, ret));
    RETERR(run_push(r, ret, a));
    return run_push(r, ret, b);
}

static int pairs(struct run *r, const struct val_dict *d, enum val_kind kind,
                 struct val *ret)
{
    RETERR(run_list(r, kind, ret));
    for (size_t i = 0; i < d->n; i++) {
        struct val two;
        RETERR(pair_of(r, d->item[i].key, d->item[i].v, &two));
        RETERR(run_push(r, ret, two));
    }
    return 0;
}

static int f_items(struct run *r, const struct call *c, struct val *ret)
{
    if (c->self.kind == V_UNDEFINED) {
        return run_list(r, V_GEN, ret);
    }
    if (c->self.kind != V_DICT) {
        return run_error(r, "Can only get item pairs from a mapping.");
    }
    return pairs(r, c->self.dict, V_GEN, ret);
}

static int f_dictsort(struct run *r, const struct call *c, struct val *ret)
{
    struct val_dict d;
    struct val all;
    struct span by = zspan("key");
    RETERR(arg_str(r, &c->a[1], "dictsort's by", &by));
    if (c->self.kind != V_DICT ||
        (!span_is(by, "key") && !span_is(by, "value"))) {
        return run_error(r, "dictsort: of a dict, by key or value");
    }
    RETERR(pairs(r, c->self.dict, V_LIST, &all));
    struct val at = val_int(span_is(by, "key") ? 0 : 1);
    RETERR(sorted(r, &all, &at, arg_true(&c->a[0]), arg_true(&c->a[2]), &d));
    RETERR(run_list(r, V_LIST, ret));
    for (size_t i = 0; i < d.n; i++) {
        RETERR(run_push(r, ret, d.item[i].v));
    }
    return 0;
}

/* The smallest, or the largest, that comes first. */
static int extreme(struct run *r, const struct call *c, int sign,
                   struct val *ret)
{
    struct val_list l;
    struct val best;
    RETERR(run_items(r, &c->self, &l));
    *ret = val_undefined(zspan("an item of an empty sequence"));
    for (size_t i = 0; i < l.n; i++) {
        struct val key;
        int order = sign;
        RETERR(key_of(r, &c->a[1], arg_true(&c->a[0]), &l.v[i], &key));
        if (i > 0) {
            RETERR(val_compare(r, &key, &best, &order));
        }
        if (order == sign) {
            best = key;
            *ret = l.v[i];
        }
    }
    return 0;
}

static int f_min(struct run *r, const struct call *c, struct val *ret)
{
    return extreme(r, c, -1, ret);
}

static int f_max(struct run *r, const struct call *c, struct val *ret)
{
    return extreme(r, c, 1, ret);
}

static int f_unique(struct run *r, const struct call *c, struct val *ret)
{
    struct val_list l;
    struct val seen;
    RETERR(run_items(r, &c->self, &l));
    RETERR(run_dict(r, V_DICT, &seen));
    RETERR(run_list(r, V_GEN, ret));
    for (size_t i = 0; i < l.n; i++) {
        struct val key;
        size_t before = seen.dict->n;
        RETERR(key_of(r, &c->a[1], arg_true(&c->a[0]), &l.v[i], &key));
        RETERR(run_put(r, &seen, key, val_none));
        if (seen.dict->n > before) {
            RETERR(run_push(r, ret, l.v[i]));
        }
    }
    return 0;
}

static int f_groupby(struct run *r, const struct call *c, struct val *ret)
{
    struct val_dict d;
    struct val list = val_none;
    bool case_counts = arg_true(&c->a[2]);
    RETERR(sorted(r, &c->self, &c->a[0], case_counts, false, &d));
    RETERR(run_list(r, V_LIST, ret));
    for (size_t i = 0; i < d.n; i++) {
        bool same = false;
        if (i > 0) {
            RETERR(val_equal(r, &d.item[i].key, &d.item[i - 1].key, &same));
        }
        if (!same) {
            struct val group;
            struct val two;
            RETERR(attribute_of(r, &c->a[0], &d.item[i].v, &group));
            RETERR(run_list(r, V_LIST, &list));
            RETERR(pair_of(r, group, list, &two));
            two.list->label = zspan("group");
            RETERR(run_push(r, ret, two));
        }
        RETERR(run_push(r, &list, d.item[i].v));
    }
    return 0;
}

/* --- ends --- */

static int f_first(struct run *r, const struct call *c, struct val *ret)
{
    struct val v = c->self;
    struct val_list l;
    *ret = val_undefined(zspan("the first item of an empty sequence"));
    if (v.kind == V_GEN) {
        if (v.list->at < v.list->n) {
            *ret = v.list->v[v.list->at++];
        }
        return 0;
    }
    RETERR(run_items(r, &v, &l));
    if (l.n > 0) {
        *ret = l.v[0];
    }
    return 0;
}

static int f_last(struct run *r, const struct call *c, struct val *ret)
{
    struct val_list l;
    *ret = val_undefined(zspan("the last item of an empty sequence"));
    if (c->self.kind == V_GEN) {
        return run_error(r, "'generator' object is not reversible");
    }
    RETERR(run_items(r, &c->self, &l));
    if (l.n > 0) {
        *ret = l.v[l.n - 1];
    }
    return 0;
}

static int f_list(struct run *r, const struct call *c, struct val *ret)
{
    struct val_list l;
    RETERR(run_items(r, &c->self, &l));
    RETERR(run_list(r, V_LIST, ret));
    for (size_t i = 0; i < l.n; i++) {
        RETERR(run_push(r, ret, l.v[i]));
    }
    return 0;
}

static int f_reverse(struct run *r, const struct call *c, struct val *ret)
{
    struct val_list l;
    struct buf b;
    bool text = c->self.kind == V_STR;
    RETERR(run_items(r, &c->self, &l));
    RETERR(run_list(r, V_GEN, ret));
    run_buf(r, &b);
    for (size_t i = l.n; i > 0; i--) {
        if (text) {
            buf_put(&b, l.v[i - 1].s.p, l.v[i - 1].s.n);
        } else if (run_push(r, ret, l.v[i - 1]) < 0) {
            buf_fini(&b);
            return r->e->code;
        }
    }
    int rc = text ? run_take(r, &b, ret) : 0;
    buf_fini(&b);
    return rc;
}

static int f_join(struct run *r, const struct call *c, struct val *ret)
{
    struct val_list l;
    struct span d = zspan("");
    struct buf b;
    int rc = 0;
    if (c->a[0].kind != V_MISSING) {
        RETERR(val_text(r, &c->a[0], &d));
    }
    RETERR(run_items(r, &c->self, &l));
    run_buf(r, &b);
    for (size_t i = 0; i < l.n; i++) {
        struct val v;
        struct span s;
        CHECK(attribute_of(r, &c->a[1], &l.v[i], &v));
        CHECK(val_text(r, &v, &s));
        buf_put(&b, d.p, i > 0 ? d.n : 0);
        buf_put(&b, s.p, s.n);
    }
    rc = run_take(r, &b, ret);
out:
    buf_fini(&b);
    return rc;
}

static int f_sum(struct run *r, const struct call *c, struct val *ret)
{
    struct val_list l;
    RETERR(run_items(r, &c->self, &l));
    *ret = c->a[1].kind == V_MISSING ? val_int(0) : c->a[1];
    if (ret->kind == V_STR) {
        return run_error(r, "sum() can't sum strings");
    }
    for (size_t i = 0; i < l.n; i++) {
        struct val v;
        struct val before = *ret;
        RETERR(attribute_of(r, &c->a[0], &l.v[i], &v));
        RETERR(arith(r, OP_ADD, &before, &v, ret));
    }
    return 0;
}

/* --- parts --- */

/* l[from..to), with `fill` behind it up to `want` items. */
static int part(struct run *r, const struct val_list *l, size_t from, size_t to,
                size_t want, const struct val *fill, struct val *into)
{
    struct val one;
    RETERR(run_list(r, V_LIST, &one));
    for (size_t i = from; i < to; i++) {
        RETERR(run_push(r, &one, l->v[i]));
    }
    while (fill->kind != V_MISSING && fill->kind != V_NONE &&
           one.list->n < want) {
        RETERR(run_push(r, &one, *fill));
    }
    return run_push(r, into, one);
}

static int f_batch(struct run *r, const struct call *c, struct val *ret)
{
    struct val_list l;
    int64_t n = 0;
    RETERR(arg_int(r, &c->a[0], "batch's size", &n));
    RETERR(run_items(r, &c->self, &l));
    RETERR(run_list(r, V_GEN, ret));
    if (n < 1) {
        return run_error(r, "batch: a size of %lld", (long long)n);
    }
    size_t size = (size_t)n;
    for (size_t i = 0; i < l.n; i += size) {
        size_t to = l.n - i < size ? l.n : i + size;
        RETERR(part(r, &l, i, to, size, &c->a[1], ret));
    }
    return 0;
}

static int f_slice(struct run *r, const struct call *c, struct val *ret)
{
    struct val_list l;
    int64_t n = 0;
    RETERR(arg_int(r, &c->a[0], "slice's number", &n));
    RETERR(run_items(r, &c->self, &l));
    RETERR(run_list(r, V_GEN, ret));
    if (n < 1) {
        return run_error(r, "slice: %lld slices", (long long)n);
    }
    size_t each = l.n / (size_t)n;
    size_t more = l.n % (size_t)n;
    size_t at = 0;
    for (size_t i = 0; i < (size_t)n; i++) {
        size_t to = at + each + (i < more);
        RETERR(part(r, &l, at, to, i < more ? 0 : each + 1, &c->a[1], ret));
        at = to;
    }
    return 0;
}

static const struct builtin filters[] = {
    {"batch",    f_batch,    1, "linecount,fill_with"             },
    {"dictsort", f_dictsort, 0, "case_sensitive,by,reverse"       },
    {"first",    f_first,    0, ""                                },
    {"groupby",  f_groupby,  1, "attribute,default,case_sensitive"},
    {"items",    f_items,    0, ""                                },
    {"join",     f_join,     0, "d,attribute"                     },
    {"last",     f_last,     0, ""                                },
    {"list",     f_list,     0, ""                                },
    {"max",      f_max,      0, "case_sensitive,attribute"        },
    {"min",      f_min,      0, "case_sensitive,attribute"        },
    {"reverse",  f_reverse,  0, ""                                },
    {"slice",    f_slice,    1, "slices,fill_with"                },
    {"sort",     f_sort,     0, "reverse,case_sensitive,attribute"},
    {"sum",      f_sum,      0, "attribute,start"                 },
    {"unique",   f_unique,   0, "case_sensitive,attribute"        },
};

const struct builtin *find_list_filter(struct span name)
{
    const struct builtin *f = builtin_find(filters, countof(filters), name);
    return f != NULL ? f : find_choice_filter(name);
}
