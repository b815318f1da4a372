/* call.c - calls: arguments as written, of builtins by their parameters, and
 * macros. */
#include <string.h>

#include "model/jinja/eval.h"

/* --- arguments as they are written --- */

static int add_arg(struct run *r, struct args *a, struct val v)
{
    void *p = a->v;
    if (!val_room(r->arena, &p, a->n, &a->cap, sizeof(*a->v))) {
        return run_no_memory(r);
    }
    a->v = p;
    a->v[a->n++] = v;
    return run_charge(r, 0);
}

int args_add(struct run *r, struct args *a, struct span name, struct val v)
{
    for (size_t i = 0; i < a->n_kw; i++) {
        if (span_equal(a->kw[i].name, name)) {
            return run_error(r, "keyword argument '%.*s' twice", (int)name.n,
                             name.p);
        }
    }
    void *p = a->kw;
    if (!val_room(r->arena, &p, a->n_kw, &a->cap_kw, sizeof(*a->kw))) {
        return run_no_memory(r);
    }
    a->kw = p;
    a->kw[a->n_kw++] = (struct kwarg){name, v};
    return run_charge(r, a->n_kw * sizeof(*a->kw));
}

/* *v and **v */
static int unpack(struct run *r, struct args *a, struct span how,
                  const struct val *v)
{
    struct val_list l;
    if (span_is(how, "*")) {
        RETERR(run_items(r, v, &l));
        for (size_t i = 0; i < l.n; i++) {
            RETERR(add_arg(r, a, l.v[i]));
        }
        return 0;
    }
    if (v->kind != V_DICT) {
        return run_error(r, "** needs a dict, not '%s'", val_type(v));
    }
    for (size_t i = 0; i < v->dict->n; i++) {
        const struct val_item *m = &v->dict->item[i];
        if (m->key.kind != V_STR) {
            return run_error(r, "keywords must be strings");
        }
        RETERR(args_add(r, a, m->key.s, m->v));
    }
    return 0;
}

int eval_args(struct run *r, const struct node *n, struct args *ret)
{
    *ret = (struct args){0};
    for (size_t i = 0; i < n->n; i++) {
        struct val v;
        struct span name = n->names[i];
        RETERR(eval(r, n->kids[i], &v));
        if (name.p == NULL) {
            RETERR(add_arg(r, ret, v));
        } else if (*name.p == '*') {
            RETERR(unpack(r, ret, name, &v));
        } else {
            RETERR(args_add(r, ret, name, v));
        }
    }
    return 0;
}

/* --- builtins --- */

const struct builtin *builtin_find(const struct builtin *table, size_t n,
                                   struct span name)
{
    for (size_t i = 0; i < n; i++) {
        if (span_is(name, table[i].name)) {
            return &table[i];
        }
    }
    return NULL;
}

/* Parameter i of "a,b,c"; n == 0: there is none. */
static struct span param(const char *params, size_t i)
{
    while (i > 0 && params != NULL) {
        const char *comma = strchr(params, ',');
        params = comma != NULL ? comma + 1 : NULL;
        i--;
    }
    return params != NULL ? (struct span){params, strcspn(params, ",")}
                          : zspan("");
}

static int misfit(struct run *r, const char *what, const struct builtin *f,
                  const char *why)
{
    return run_error(r, "%s '%s': %s", what, f->name, why);
}

/* Arguments into the places of their parameters. */
static int bind(struct run *r, const char *what, const struct builtin *f,
                const struct args *a, struct call *c)
{
    size_t n = 0;
    while (n < BUILTIN_ARGS && param(f->params, n).n > 0) {
        c->a[n++] = val_missing;
    }
    if (a->n > n) {
        return misfit(r, what, f, "too many arguments");
    }
    for (size_t i = 0; i < a->n; i++) {
        c->a[i] = a->v[i];
    }
    for (size_t i = 0; i < a->n_kw; i++) {
        size_t k = 0;
        while (k < n && !span_equal(param(f->params, k), a->kw[i].name)) {
            k++;
        }
        if (k == n || c->a[k].kind != V_MISSING) {
            return misfit(r, what, f, "a keyword argument that does not fit");
        }
        c->a[k] = a->kw[i].v;
    }
    for (size_t i = 0; i < f->need; i++) {
        if (c->a[i].kind == V_MISSING) {
            return misfit(r, what, f, "an argument is missing");
        }
    }
    return 0;
}

int call_builtin(struct run *r, const char *what, const struct builtin *f,
                 const struct val *self, const struct args *a, struct val *ret)
{
    struct call c = {.self = *self, .raw = a};
    RETERR(run_enter(r));
    if (strcmp(f->params, "*") != 0) {
        RETERR(bind(r, what, f, a, &c));
    }
    *ret = val_none;
    RETERR(f->fn(r, &c, ret));
    run_leave(r);
    return 0;
}

static int unknown(struct run *r, const char *what, struct span name)
{
    return err_set(r->e, ERR_TEMPLATE,
                   "the chat template uses the %s '%.*s', which aned does not "
                   "know",
                   what, (int)(name.n < 60 ? name.n : 60), name.p);
}

int call_filter(struct run *r, struct span name, const struct val *self,
                const struct args *a, struct val *ret)
{
    const struct builtin *f = find_filter(name);
    return f != NULL ? call_builtin(r, "the filter", f, self, a, ret)
                     : unknown(r, "filter", name);
}

int call_test(struct run *r, struct span name, const struct val *self,
              const struct args *a, bool *ret)
{
    const struct builtin *f = find_test(name);
    struct val v = val_none;
    if (f == NULL) {
        return unknown(r, "test", name);
    }
    RETERR(call_builtin(r, "the test", f, self, a, &v));
    *ret = val_true(&v);
    return 0;
}

int arg_int(struct run *r, const struct val *v, const char *what, int64_t *ret)
{
    return v->kind == V_MISSING || val_as_int(v, ret)
               ? 0
               : run_error(r, "%s must be an integer, not '%s'", what,
                           val_type(v));
}

int arg_str(struct run *r, const struct val *v, const char *what,
            struct span *ret)
{
    if (v->kind == V_MISSING) {
        return 0;
    }
    if (v->kind != V_STR) {
        return run_error(r, "%s must be a str, not '%s'", what, val_type(v));
    }
    *ret = v->s;
    return 0;
}

int self_text(struct run *r, const struct call *c, struct span *ret)
{
    return val_text(r, &c->self, ret);
}

/* --- macros --- */

int macro_new(struct run *r, const struct node *def, bool is_caller,
              struct val *ret)
{
    struct macro *m = arena_alloc(r->arena, sizeof(*m));
    if (m == NULL) {
        return run_no_memory(r);
    }
    *m = (struct macro){def, r->scope, is_caller};
    for (struct scope *s = r->scope; s != NULL && !s->kept; s = s->parent) {
        s->kept = true;
    }
    *ret = (struct val){.kind = V_MACRO, .macro = m};
    return run_charge(r, 0);
}

/* What is left of the arguments, for varargs, kwargs and caller. */
struct rest {
    struct val varargs, kwargs, caller;
};

static int rest_keyword(struct run *r, const struct node *def,
                        const struct kwarg *k, struct rest *rest)
{
    if (span_equal(k->name, r->t->caller) && def->uses_caller) {
        rest->caller = k->v;
        return 0;
    }
    if (!def->uses_kwargs) {
        return run_error(r, "macro '%.*s' takes no keyword argument '%.*s'",
                         (int)def->s.n, def->s.p, (int)k->name.n, k->name.p);
    }
    return run_put(r, &rest->kwargs, val_str(k->name), k->v);
}

/* The parameters of the macro into its scope, which is r->scope. */
static int set_params(struct run *r, const struct node *def,
                      const struct args *a, struct rest *rest)
{
    bool *used = arena_alloc(r->arena, a->n_kw + 1);
    if (used == NULL) {
        return run_no_memory(r);
    }
    for (size_t i = 0; i < def->n; i++) {
        struct val v = i < a->n ? a->v[i] : val_missing;
        for (size_t k = 0; k < a->n_kw; k++) {
            if (!span_equal(a->kw[k].name, def->names[i])) {
                continue;
            }
            if (v.kind != V_MISSING) {
                return run_error(r, "macro '%.*s': '%.*s' given twice",
                                 (int)def->s.n, def->s.p, (int)def->names[i].n,
                                 def->names[i].p);
            }
            v = a->kw[k].v;
            used[k] = true;
        }
        RETERR(scope_set(r, def->names[i], v));
    }
    for (size_t k = 0; k < a->n_kw; k++) {
        if (!used[k]) {
            RETERR(rest_keyword(r, def, &a->kw[k], rest));
        }
    }
    return 0;
}

/* Defaults may name parameters before them. */
static int set_defaults(struct run *r, const struct node *def)
{
    for (size_t i = 0; i < def->n; i++) {
        const struct val *have = scope_find(r, def->names[i]);
        if (have != NULL && have->kind == V_MISSING && def->kids[i] != NULL) {
            struct val v;
            RETERR(eval(r, def->kids[i], &v));
            RETERR(scope_set(r, def->names[i], v));
        }
    }
    return 0;
}

static int set_rest(struct run *r, const struct node *def, const struct args *a,
                    struct rest *rest)
{
    for (size_t i = def->n; i < a->n; i++) {
        RETERR(run_push(r, &rest->varargs, a->v[i]));
    }
    if (a->n > def->n && !def->uses_varargs) {
        return run_error(r, "macro '%.*s' takes not more than %zu argument(s)",
                         (int)def->s.n, def->s.p, def->n);
    }
    if (def->uses_caller) {
        RETERR(scope_set(r, r->t->caller, rest->caller));
    }
    if (def->uses_varargs) {
        RETERR(scope_set(r, r->t->varargs, rest->varargs));
    }
    return def->uses_kwargs ? scope_set(r, r->t->kwargs, rest->kwargs) : 0;
}

static int call_macro(struct run *r, const struct macro *m,
                      const struct args *a, struct val *ret)
{
    struct scope *outer = r->scope;
    struct rest rest = {.caller = val_undefined(r->t->caller)};
    RETERR(run_list(r, V_TUPLE, &rest.varargs));
    RETERR(run_dict(r, V_DICT, &rest.kwargs));
    r->scope = m->scope;
    RETERR(scope_push(r, m->def));
    RETERR(set_params(r, m->def, a, &rest));
    RETERR(set_rest(r, m->def, a, &rest));
    RETERR(run_enter(r)); /* its frames are many: two levels */
    RETERR(set_defaults(r, m->def));
    RETERR(eval_text(r, m->def->c, ret));
    run_leave(r);
    r->scope = outer;
    return 0;
}

/* loop(items) of a recursive loop: its text. */
static int call_loop(struct run *r, const struct loop *l, const struct args *a,
                     struct val *ret)
{
    struct scope *scope = r->scope;
    struct buf *out = r->out;
    struct buf text;
    if (!l->of->recursive || a->n != 1 || a->n_kw != 0) {
        return run_error(r, "only a recursive loop is called, with its items");
    }
    run_buf(r, &text);
    r->out = &text;
    r->scope = l->outer;
    int rc = loop_run(r, l->of, a->v[0], l->depth0 + 1);
    r->scope = scope;
    r->out = out;
    if (rc == 0) {
        rc = run_take(r, &text, ret);
    }
    buf_fini(&text);
    return rc;
}

/* What a method makes of markup is markup, also in a list. */
static int call_method(struct run *r, const struct method *m,
                       const struct args *a, struct val *ret)
{
    RETERR(call_builtin(r, "the method", m->of, &m->self, a, ret));
    if (m->self.kind != V_STR || !m->self.markup) {
        return 0;
    }
    ret->markup = ret->kind == V_STR;
    for (size_t i = 0; val_has_list(ret) && i < ret->list->n; i++) {
        ret->list->v[i].markup = ret->list->v[i].kind == V_STR;
    }
    return 0;
}

int call_value(struct run *r, const struct val *f, struct args *a,
               struct val *ret)
{
    switch ((int)f->kind) {
    case V_MACRO:
        return call_macro(r, f->macro, a, ret);
    case V_LOOP:
        return call_loop(r, f->loop, a, ret);
    case V_FUNC:
        return call_builtin(r, "the function", f->func, &val_none, a, ret);
    case V_METHOD:
        return call_method(r, f->method, a, ret);
    case V_UNDEFINED:
        return run_error(r, "'%.*s' is undefined",
                         (int)(f->s.n < 60 ? f->s.n : 60), f->s.p);
    default:
        return run_error(r, "'%s' object is not callable", val_type(f));
    }
}
