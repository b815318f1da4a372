/* filters_choose.c - filters that call filters and tests for each item. */
#include "model/jinja/eval.h"

/* What is false, such as none, has no items here. */
static int chosen_from(struct run *r, const struct val *v, struct val_list *ret)
{
    *ret = (struct val_list){0};
    return val_true(v) ? run_items(r, v, ret) : 0;
}

/* The arguments from `from` on. */
static struct args rest_of(const struct args *a, size_t from)
{
    struct args rest = *a;
    rest.v += from;
    rest.n -= from;
    rest.cap = rest.n;
    return rest;
}

static int map_attribute(struct run *r, const struct call *c,
                         const struct val_list *l, struct val *ret)
{
    struct val attribute = val_missing;
    struct val other = val_none;
    for (size_t i = 0; i < c->raw->n_kw; i++) {
        if (span_is(c->raw->kw[i].name, "attribute")) {
            attribute = c->raw->kw[i].v;
        } else if (span_is(c->raw->kw[i].name, "default")) {
            other = c->raw->kw[i].v;
        } else {
            return run_error(r, "map: a keyword argument that does not fit");
        }
    }
    if (attribute.kind == V_MISSING) {
        return run_error(r, "map requires a filter argument");
    }
    for (size_t i = 0; i < l->n; i++) {
        struct val v;
        RETERR(attribute_of(r, &attribute, &l->v[i], &v));
        bool use = v.kind == V_UNDEFINED && other.kind != V_NONE;
        RETERR(run_push(r, ret, use ? other : v));
    }
    return 0;
}

static int f_map(struct run *r, const struct call *c, struct val *ret)
{
    struct val_list l;
    struct span name = zspan("");
    RETERR(chosen_from(r, &c->self, &l));
    RETERR(run_list(r, V_GEN, ret));
    if (c->raw->n == 0) {
        return map_attribute(r, c, &l, ret);
    }
    RETERR(arg_str(r, &c->raw->v[0], "map's filter", &name));
    struct args rest = rest_of(c->raw, 1);
    for (size_t i = 0; i < l.n; i++) {
        struct val v;
        RETERR(call_filter(r, name, &l.v[i], &rest, &v));
        RETERR(run_push(r, ret, v));
    }
    return 0;
}

/* The items, of which an attribute is looked at or they themselves, whose test
 * says `wanted`. */
static int choose(struct run *r, const struct call *c, bool by_attribute,
                  bool wanted, struct val *ret)
{
    struct val_list l;
    struct span name = zspan("");
    size_t off = by_attribute ? 1 : 0;
    RETERR(chosen_from(r, &c->self, &l));
    RETERR(run_list(r, V_GEN, ret));
    if (c->raw->n < off) {
        return run_error(r, "Missing parameter for attribute name");
    }
    bool test = c->raw->n > off;
    struct args rest = rest_of(c->raw, off + test);
    if (test) {
        RETERR(arg_str(r, &c->raw->v[off], "the test", &name));
    }
    for (size_t i = 0; i < l.n; i++) {
        struct val v;
        bool yes = false;
        RETERR(attribute_of(r, by_attribute ? &c->raw->v[0] : &val_missing,
                            &l.v[i], &v));
        yes = val_true(&v);
        if (test) {
            RETERR(call_test(r, name, &v, &rest, &yes));
        }
        if (yes == wanted) {
            RETERR(run_push(r, ret, l.v[i]));
        }
    }
    return 0;
}

static int f_select(struct run *r, const struct call *c, struct val *ret)
{
    return choose(r, c, false, true, ret);
}

static int f_reject(struct run *r, const struct call *c, struct val *ret)
{
    return choose(r, c, false, false, ret);
}

static int f_selectattr(struct run *r, const struct call *c, struct val *ret)
{
    return choose(r, c, true, true, ret);
}

static int f_rejectattr(struct run *r, const struct call *c, struct val *ret)
{
    return choose(r, c, true, false, ret);
}

static const struct builtin filters[] = {
    {"map",        f_map,        0, "*"},
    {"reject",     f_reject,     0, "*"},
    {"rejectattr", f_rejectattr, 0, "*"},
    {"select",     f_select,     0, "*"},
    {"selectattr", f_selectattr, 0, "*"},
};

const struct builtin *find_choice_filter(struct span name)
{
    return builtin_find(filters, countof(filters), name);
}
