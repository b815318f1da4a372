/* names.c - which names of a scope begin undefined.
 *
 * Jinja2 binds names when it compiles: a name that a scope sets, and that
 * neither the scope nor one around it mentions before, is undefined in that
 * scope and in those inside it until it is set, even when there is a variable
 * of that name. What is first mentioned in a branch of an `if` is not. This
 * file finds those names (node.hidden); all else follows from looking names up
 * scope by scope while rendering. It also finds which of caller, varargs and
 * kwargs a macro's body mentions.
 *
 * A scope is walked twice: first its own statements, then the scopes inside,
 * which have to know all names of those around them. */
#include <string.h>

#include "model/jinja/ast.h"
#include "proto/limits.h"

struct level {
    const struct level *parent;
    struct span *name; /* mentioned so far */
    size_t n, cap;
    struct node *of; /* whose scope it is: gets `hidden` */
    int branches;    /* around the present statement */
};

struct walk {
    struct jinja *t;
    struct arena *tmp; /* levels */
    struct err *e;
};

static int too_big(struct walk *w)
{
    return err_set(w->e, ERR_TOO_BIG, "the names of the chat template");
}

static bool has(const struct level *l, struct span s)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->name[i].p == s.p) {
            return true;
        }
    }
    return false;
}

static bool known(const struct level *l, struct span s)
{
    while (l != NULL && !has(l, s)) {
        l = l->parent;
    }
    return l != NULL;
}

/* Append s to an array in the arena. */
static bool append(struct arena *a, struct span **v, size_t *n, size_t cap,
                   struct span s)
{
    if (*n == cap) {
        struct span *more = arena_array(a, cap == 0 ? 8 : 2 * cap, sizeof(s));
        if (more == NULL) {
            return false;
        }
        if (*n > 0) {
            memcpy(more, *v, *n * sizeof(s));
        }
        *v = more;
    }
    (*v)[(*n)++] = s;
    return true;
}

static int mention(struct walk *w, struct level *l, struct span s)
{
    if (!append(w->tmp, &l->name, &l->n, l->cap, s)) {
        return too_big(w);
    }
    l->cap = l->n > l->cap ? (l->cap == 0 ? 8 : 2 * l->cap) : l->cap;
    return 0;
}

static int load(struct walk *w, struct level *l, struct span s)
{
    return known(l, s) ? 0 : mention(w, l, s);
}

static int store(struct walk *w, struct level *l, struct span s)
{
    if (has(l, s)) {
        return 0;
    }
    if (l->branches == 0 && !known(l, s)) {
        struct node *n = l->of;
        size_t cap = 8;
        while (cap < n->n_hidden) {
            cap *= 2;
        }
        if (!append(&w->t->arena, &n->hidden, &n->n_hidden,
                    n->n_hidden == 0 ? 0 : cap, s)) {
            return too_big(w);
        }
    }
    return mention(w, l, s);
}

static int store_target(struct walk *w, struct level *l, const struct node *n)
{
    if (n->kind == N_NAME) {
        return store(w, l, n->s);
    }
    if (n->kind == N_NSREF) {
        return load(w, l, n->s);
    }
    for (size_t i = 0; i < n->n; i++) {
        RETERR(store_target(w, l, n->kids[i]));
    }
    return 0;
}

/* Parameters are names of the scope from its beginning. */
static int declare(struct walk *w, struct level *l, const struct node *n)
{
    if (n->kind == N_NAME) {
        return has(l, n->s) ? 0 : mention(w, l, n->s);
    }
    for (size_t i = 0; i < n->n; i++) {
        RETERR(declare(w, l, n->kids[i]));
    }
    return 0;
}

/* All names of an expression. */
static int expression(struct walk *w, struct level *l, const struct node *n)
{
    if (n == NULL) {
        return 0;
    }
    if (n->kind == N_NAME) {
        return load(w, l, n->s);
    }
    RETERR(expression(w, l, n->a));
    RETERR(expression(w, l, n->b));
    for (size_t i = 0; i < n->n; i++) {
        RETERR(expression(w, l, n->kids[i]));
    }
    return 0;
}

static int statement(struct walk *w, struct level *l, struct node *n);

static int branches(struct walk *w, struct level *l, struct node *n)
{
    RETERR(expression(w, l, n->kids[0]));
    l->branches++;
    for (size_t i = 1; i < n->n; i++) {
        RETERR(i % 2 == 0 ? expression(w, l, n->kids[i])
                          : statement(w, l, n->kids[i]));
    }
    l->branches--;
    return 0;
}

/* What a statement says in the scope in which it stands. */
static int statement(struct walk *w, struct level *l, struct node *n)
{
    switch ((int)n->kind) {
    case N_PRINT:
    case N_FOR:
    case N_CALL_BLOCK:
    case N_WITH:
        return expression(w, l, n->a);
    case N_FILTER_BLOCK:
        return expression(w, l, n->b);
    case N_IF:
        return branches(w, l, n);
    case N_SET:
        RETERR(expression(w, l, n->a));
        return store_target(w, l, n->c);
    case N_SET_BLOCK:
        return store_target(w, l, n->c);
    case N_MACRO:
        return store(w, l, n->s);
    case N_BLOCK:
        for (size_t i = 0; i < n->n; i++) {
            RETERR(statement(w, l, n->kids[i]));
        }
        return 0;
    default:
        return 0;
    }
}

static int scopes_inside(struct walk *w, const struct level *l,
                         const struct node *n);

/* The scope `body` of node n; `target`: names it begins with, or NULL. */
static int scope(struct walk *w, const struct level *outer, struct node *n,
                 const struct node *target, struct node *body)
{
    struct level l = {.parent = outer, .of = n};
    if (body == NULL) {
        return 0;
    }
    if (target != NULL) {
        RETERR(declare(w, &l, target));
    }
    if (n->kind == N_FOR) {
        RETERR(mention(w, &l, w->t->loop));
    }
    if (n->kind == N_MACRO) {
        for (size_t i = 0; i < n->n; i++) {
            RETERR(mention(w, &l, n->names[i]));
        }
        for (size_t i = 0; i < n->n; i++) {
            RETERR(expression(w, &l, n->kids[i]));
        }
    }
    RETERR(statement(w, &l, body));
    return scopes_inside(w, &l, body);
}

/* Does n mention this name anywhere? */
static bool mentions(const struct node *n, struct span s)
{
    if (n == NULL) {
        return false;
    }
    bool yes = (n->kind == N_NAME && n->s.p == s.p) || mentions(n->a, s) ||
               mentions(n->b, s) || (n->kind != N_SET && mentions(n->c, s));
    for (size_t i = 0; !yes && i < n->n; i++) {
        yes = mentions(n->kids[i], s);
    }
    return yes;
}

static int macro(struct walk *w, const struct level *l, struct node *n)
{
    n->uses_caller = mentions(n->c, w->t->caller);
    n->uses_varargs = mentions(n->c, w->t->varargs);
    n->uses_kwargs = mentions(n->c, w->t->kwargs);
    return scope(w, l, n, NULL, n->c);
}

/* The scopes that statement n makes, or one inside it. */
static int inner(struct walk *w, const struct level *l, struct node *n)
{
    switch ((int)n->kind) {
    case N_FOR:
        RETERR(scope(w, l, n, n->c, n->kids[0]));
        return n->n > 1 ? scope(w, l, n->kids[1], NULL, n->kids[1]) : 0;
    case N_MACRO:
        return macro(w, l, n);
    case N_CALL_BLOCK:
        return macro(w, l, n->b);
    case N_WITH:
        return scope(w, l, n, n->c, n->kids[0]);
    case N_SET_BLOCK:
    case N_FILTER_BLOCK:
    case N_GENERATION:
        return scope(w, l, n, NULL, n->kids[0]);
    case N_IF:
        for (size_t i = 1; i < n->n; i += 2) {
            RETERR(scopes_inside(w, l, n->kids[i]));
        }
        return 0;
    default:
        return 0;
    }
}

static int scopes_inside(struct walk *w, const struct level *l,
                         const struct node *n)
{
    for (size_t i = 0; i < n->n; i++) {
        RETERR(inner(w, l, n->kids[i]));
    }
    return 0;
}

int jinja_scopes(struct jinja *t, struct err *e)
{
    struct arena tmp;
    struct walk w = {.t = t, .tmp = &tmp, .e = e};
    arena_init(&tmp, JINJA_TREE_BYTES);
    int rc = scope(&w, NULL, t->root, NULL, t->root);
    arena_fini(&tmp);
    return rc;
}
