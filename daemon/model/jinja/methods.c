/* methods.c - methods of dictionaries, lists, loops; methods_text.c has those
 * of strings. A method with no function is one that the sandbox forbids,
 * because it would change its object. */
#include <string.h>

#include "model/jinja/eval.h"

/* --- dictionaries --- */

static int m_get(struct run *r, const struct call *c, struct val *ret)
{
    if (!val_hashable(&c->a[0])) {
        return run_error(r, "unhashable type: '%s'", val_type(&c->a[0]));
    }
    RETERR(run_charge(r, c->self.dict->n * sizeof(struct val_item)));
    const struct val *v = dict_get(c->self.dict, &c->a[0]);
    *ret = v != NULL ? *v : c->a[1].kind != V_MISSING ? c->a[1] : val_none;
    return 0;
}

enum view { VIEW_ITEMS, VIEW_KEYS, VIEW_VALUES };

static int view(struct run *r, const struct call *c, enum view what,
                struct val *ret)
{
    static const char *const labels[] = {"dict_items", "dict_keys",
                                         "dict_values"};
    RETERR(run_list(r, V_VIEW, ret));
    ret->list->label = zspan(labels[what]);
    for (size_t i = 0; i < c->self.dict->n; i++) {
        const struct val_item *m = &c->self.dict->item[i];
        struct val v = what == VIEW_KEYS ? m->key : m->v;
        if (what == VIEW_ITEMS) {
            RETERR(run_list(r, V_TUPLE, &v));
            RETERR(run_push(r, &v, m->key));
            RETERR(run_push(r, &v, m->v));
        }
        RETERR(run_push(r, ret, v));
    }
    return 0;
}

static int m_items(struct run *r, const struct call *c, struct val *ret)
{
    return view(r, c, VIEW_ITEMS, ret);
}

static int m_keys(struct run *r, const struct call *c, struct val *ret)
{
    return view(r, c, VIEW_KEYS, ret);
}

static int m_values(struct run *r, const struct call *c, struct val *ret)
{
    return view(r, c, VIEW_VALUES, ret);
}

/* Nothing can change a dictionary or a list, so a copy is itself. */
static int m_copy(struct run *r, const struct call *c, struct val *ret)
{
    (void)r;
    *ret = c->self;
    return 0;
}

static const struct builtin of_dict[] = {
    {"get",        m_get,    1, "key,default"},
    {"items",      m_items,  0, ""           },
    {"keys",       m_keys,   0, ""           },
    {"values",     m_values, 0, ""           },
    {"copy",       m_copy,   0, ""           },
    {"clear",      NULL,     0, ""           },
    {"pop",        NULL,     0, ""           },
    {"popitem",    NULL,     0, ""           },
    {"setdefault", NULL,     0, ""           },
    {"update",     NULL,     0, ""           },
};

/* --- lists and tuples --- */

static int m_count(struct run *r, const struct call *c, struct val *ret)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->self.list->n; i++) {
        bool same = false;
        RETERR(val_equal(r, &c->self.list->v[i], &c->a[0], &same));
        RETERR(run_charge(r, 0));
        n += same;
    }
    *ret = val_int(n);
    return 0;
}

static int m_index(struct run *r, const struct call *c, struct val *ret)
{
    for (size_t i = 0; i < c->self.list->n; i++) {
        bool same = false;
        RETERR(val_equal(r, &c->self.list->v[i], &c->a[0], &same));
        RETERR(run_charge(r, 0));
        if (same) {
            *ret = val_int((int64_t)i);
            return 0;
        }
    }
    return run_error(r, "the value is not in the list");
}

static const struct builtin of_list[] = {
    {"count",   m_count, 1, "value"},
    {"index",   m_index, 1, "value"},
    {"copy",    m_copy,  0, ""     },
    {"append",  NULL,    0, ""     },
    {"clear",   NULL,    0, ""     },
    {"extend",  NULL,    0, ""     },
    {"insert",  NULL,    0, ""     },
    {"pop",     NULL,    0, ""     },
    {"remove",  NULL,    0, ""     },
    {"reverse", NULL,    0, ""     },
    {"sort",    NULL,    0, ""     },
};

/* --- loops --- */

static int m_cycle(struct run *r, const struct call *c, struct val *ret)
{
    if (c->raw->n == 0 || c->raw->n_kw > 0) {
        return run_error(r, "no items for cycling given");
    }
    *ret = c->raw->v[c->self.loop->index0 % c->raw->n];
    return 0;
}

static int m_changed(struct run *r, const struct call *c, struct val *ret)
{
    struct loop *l = c->self.loop;
    struct val now;
    bool same = false;
    RETERR(run_list(r, V_TUPLE, &now));
    for (size_t i = 0; i < c->raw->n; i++) {
        RETERR(run_push(r, &now, c->raw->v[i]));
    }
    if (l->has_seen) {
        RETERR(val_equal(r, &l->seen, &now, &same));
    }
    l->seen = now;
    l->has_seen = true;
    *ret = val_bool(!same);
    return 0;
}

static const struct builtin of_loop[] = {
    {"cycle",   m_cycle,   0, "*"},
    {"changed", m_changed, 0, "*"},
};

static int m_is_integer(struct run *r, const struct call *c, struct val *ret)
{
    double f = c->self.f;
    (void)r;
    *ret = val_bool(f - f == 0 && f == __builtin_floor(f));
    return 0;
}

static const struct builtin of_float[] = {
    {"is_integer", m_is_integer, 0, ""},
};

const struct builtin *find_method(const struct val *self, struct span name)
{
    switch ((int)self->kind) {
    case V_STR:
        return find_text_method(name);
    case V_DICT:
        return builtin_find(of_dict, countof(of_dict), name);
    case V_LIST:
        return builtin_find(of_list, countof(of_list), name);
    case V_TUPLE:
    case V_RANGE: /* count, index */
        return builtin_find(of_list, 2, name);
    case V_LOOP:
        return builtin_find(of_loop, countof(of_loop), name);
    case V_FLOAT:
        return builtin_find(of_float, countof(of_float), name);
    default:
        return NULL;
    }
}
