/* eval.c - the tree into text: statements, and loops.
 *
 * A scope is a list of names with the scope around it as its parent; loops,
 * macros, set, filter, call and with blocks make one, an `if` makes none. A
 * loop uses one scope for all its turns, unless a macro was made in it, which
 * may look at it later. */
#include "model/jinja/eval.h"

#include "proto/limits.h"

static int put(struct run *r, struct span s)
{
    buf_put(r->out, s.p, s.n);
    return buf_ok(r->out)
               ? 0
               : err_set(r->e, ERR_TOO_BIG, "the prompt, at over %zu bytes",
                         r->out->max);
}

static int print(struct run *r, const struct node *n)
{
    struct val a;
    struct span s;
    RETERR(eval(r, n->a, &a));
    RETERR(val_text(r, &a, &s));
    return put(r, s);
}

static int branch(struct run *r, const struct node *n)
{
    for (size_t i = 0; i < n->n; i += 2) {
        struct val a = val_bool(true);
        if (n->kids[i] != NULL) {
            RETERR(eval(r, n->kids[i], &a));
        }
        if (val_true(&a)) {
            return eval_block(r, n->kids[i + 1]);
        }
    }
    return 0;
}

int eval_text(struct run *r, const struct node *n, struct val *ret)
{
    struct buf *out = r->out;
    struct buf text;
    run_buf(r, &text);
    r->out = &text;
    int rc = eval_block(r, n);
    r->out = out;
    if (rc == 0) {
        rc = run_take(r, &text, ret);
    }
    buf_fini(&text);
    return rc;
}

/* The text of node n's body in a scope of its own. */
static int scoped_text(struct run *r, const struct node *n, struct val *ret)
{
    struct scope *outer = r->scope;
    RETERR(scope_push(r, n));
    RETERR(eval_text(r, n->kids[0], ret));
    r->scope = outer;
    return 0;
}

/* v through the filters of a block. */
static int through(struct run *r, const struct node *f, struct val *v)
{
    struct args args;
    if (f == NULL) {
        return 0;
    }
    RETERR(run_enter(r));
    RETERR(through(r, f->a, v));
    RETERR(eval_args(r, f, &args));
    struct val in = *v;
    int rc = call_filter(r, f->s, &in, &args, v);
    run_leave(r);
    return rc;
}

static int assign_tuple(struct run *r, const struct node *n,
                        const struct val *v)
{
    struct val_list l;
    RETERR(run_items(r, v, &l));
    if (l.n != n->n) {
        return run_error(r, "%zu values for %zu names", l.n, n->n);
    }
    for (size_t i = 0; i < n->n; i++) {
        RETERR(eval_assign(r, n->kids[i], &l.v[i]));
    }
    return 0;
}

int eval_assign(struct run *r, const struct node *target, const struct val *v)
{
    if (target->kind == N_NAME) {
        return scope_set(r, target->s, *v);
    }
    if (target->kind == N_TUPLE) {
        return assign_tuple(r, target, v);
    }
    const struct val *ns = scope_find(r, target->s);
    if (ns == NULL || ns->kind != V_NS) {
        return run_error(r,
                         "cannot assign attribute on non-namespace object "
                         "'%.*s'",
                         (int)target->s.n, target->s.p);
    }
    struct val copy = *ns;
    return run_put(r, &copy, val_str(target->s2), *v);
}

static int set(struct run *r, const struct node *n)
{
    struct val v;
    if (n->kind == N_SET) {
        RETERR(eval(r, n->a, &v));
        return eval_assign(r, n->c, &v);
    }
    RETERR(scoped_text(r, n, &v));
    if (r->jump != GO_ON) {
        return 0;
    }
    RETERR(through(r, n->b, &v));
    return eval_assign(r, n->c, &v);
}

static int filter_block(struct run *r, const struct node *n)
{
    struct val v;
    struct span s;
    RETERR(scoped_text(r, n, &v));
    if (r->jump != GO_ON) {
        return 0;
    }
    RETERR(through(r, n->b, &v));
    RETERR(val_text(r, &v, &s));
    return put(r, s);
}

static int call_block(struct run *r, const struct node *n)
{
    struct args args;
    struct val f;
    struct val caller;
    struct val v;
    struct span s;
    RETERR(eval(r, n->a->a, &f));
    RETERR(eval_args(r, n->a, &args));
    RETERR(macro_new(r, n->b, true, &caller));
    RETERR(args_add(r, &args, r->t->caller, caller));
    RETERR(call_value(r, &f, &args, &v));
    RETERR(val_text(r, &v, &s));
    return put(r, s);
}

static int with(struct run *r, const struct node *n)
{
    struct scope *outer = r->scope;
    struct val values;
    RETERR(eval(r, n->a, &values)); /* in the scope outside */
    RETERR(scope_push(r, n));
    RETERR(assign_tuple(r, n->c, &values));
    RETERR(eval_block(r, n->kids[0]));
    r->scope = outer;
    return 0;
}

static int generation(struct run *r, const struct node *n)
{
    struct scope *outer = r->scope;
    RETERR(scope_push(r, n));
    RETERR(eval_block(r, n->kids[0]));
    r->scope = outer;
    return 0;
}

static int macro(struct run *r, const struct node *n)
{
    struct val v;
    RETERR(macro_new(r, n, false, &v));
    return scope_set(r, n->s, v);
}

/* --- loops --- */

/* Whether the loop's condition lets an item through. */
static int passes(struct run *r, const struct loop *l, const struct val *item,
                  bool *ret)
{
    struct scope *inner = r->scope;
    struct val v;
    *ret = true;
    if (l->of->b == NULL) {
        return 0;
    }
    r->scope = l->outer;
    RETERR(scope_push(r, NULL));
    RETERR(eval_assign(r, l->of->c, item));
    RETERR(eval(r, l->of->b, &v));
    r->scope = inner;
    *ret = val_true(&v);
    return 0;
}

int loop_item(struct run *r, struct loop *l, size_t i, bool *has,
              struct val *ret)
{
    while (l->n_kept <= i && l->at < l->src.n) {
        const struct val item = l->src.v[l->at++];
        bool yes = false;
        RETERR(passes(r, l, &item, &yes));
        if (yes) {
            l->kept[l->n_kept++] = item;
        }
    }
    *has = i < l->n_kept;
    if (*has) {
        *ret = l->kept[i];
    }
    return 0;
}

/* A turn of the loop, in a scope that has nothing of the one before. */
static int turn(struct run *r, struct loop *l, const struct val *item)
{
    struct scope *s = r->scope;
    if (s->kept) {
        r->scope = l->outer;
        RETERR(scope_push(r, l->of));
    } else {
        s->n = 0;
        for (size_t i = 0; i < l->of->n_hidden; i++) {
            RETERR(scope_set(r, l->of->hidden[i], val_missing));
        }
    }
    RETERR(scope_set(r, r->t->loop, (struct val){.kind = V_LOOP, .loop = l}));
    RETERR(eval_assign(r, l->of->c, item));
    return eval_block(r, l->of->kids[0]);
}

static int turns(struct run *r, struct loop *l)
{
    bool has = false;
    struct val item;
    RETERR(scope_push(r, NULL));
    for (l->index0 = 0;; l->index0++) {
        RETERR(loop_item(r, l, l->index0, &has, &item));
        if (!has) {
            break;
        }
        RETERR(turn(r, l, &item));
        bool leave = r->jump == GO_BREAK;
        r->jump = GO_ON;
        if (leave) {
            break;
        }
    }
    r->scope = l->outer;
    return 0;
}

int loop_run(struct run *r, const struct node *n, struct val over, int depth0)
{
    struct loop *l = arena_alloc(r->arena, sizeof(*l));
    if (l == NULL) {
        return run_no_memory(r);
    }
    l->of = n;
    l->depth0 = depth0;
    l->outer = r->scope;
    RETERR(run_items(r, &over, &l->src));
    l->kept = l->src.v;
    if (n->b == NULL) {
        l->n_kept = l->at = l->src.n;
    } else {
        l->kept = arena_array(r->arena, l->src.n + 1, sizeof(*l->kept));
        if (l->kept == NULL) {
            return run_no_memory(r);
        }
    }
    RETERR(run_enter(r));
    RETERR(turns(r, l));
    run_leave(r);
    if (l->n_kept > 0 || n->n < 2) {
        return 0;
    }
    RETERR(scope_push(r, n->kids[1]));
    RETERR(eval_block(r, n->kids[1]));
    r->scope = l->outer;
    return 0;
}

static int iterate(struct run *r, const struct node *n)
{
    struct val over;
    RETERR(eval(r, n->a, &over));
    return loop_run(r, n, over, 0);
}

/* loop.length, and what counts from the end. */
static int loop_count(struct run *r, struct loop *l, struct span name,
                      struct val *ret)
{
    bool has = false;
    struct val item;
    RETERR(loop_item(r, l, SIZE_MAX, &has, &item));
    size_t n = l->n_kept;
    size_t left = n - l->index0;
    *ret = val_int((int64_t)(span_is(name, "length")     ? n
                             : span_is(name, "revindex") ? left
                                                         : left - 1));
    return 0;
}

int loop_attr(struct run *r, struct loop *l, struct span name, struct val *ret)
{
    bool has = false;
    if (span_is(name, "index")) {
        *ret = val_int((int64_t)l->index0 + 1);
    } else if (span_is(name, "index0")) {
        *ret = val_int((int64_t)l->index0);
    } else if (span_is(name, "first")) {
        *ret = val_bool(l->index0 == 0);
    } else if (span_is(name, "depth")) {
        *ret = val_int(l->depth0 + 1);
    } else if (span_is(name, "depth0")) {
        *ret = val_int(l->depth0);
    } else if (span_is(name, "length") || span_is(name, "revindex") ||
               span_is(name, "revindex0")) {
        return loop_count(r, l, name, ret);
    } else if (span_is(name, "previtem")) {
        *ret = l->index0 > 0 ? l->kept[l->index0 - 1] : val_undefined(name);
    } else if (span_is(name, "nextitem")) {
        *ret = val_undefined(name);
        return loop_item(r, l, l->index0 + 1, &has, ret);
    } else if (span_is(name, "last")) {
        RETERR(loop_item(r, l, l->index0 + 1, &has, ret));
        *ret = val_bool(!has);
    } else {
        *ret = val_undefined(name);
    }
    return 0;
}

/* --- statements --- */

static int statement(struct run *r, const struct node *n)
{
    switch ((int)n->kind) {
    case N_TEXT:
        return put(r, n->s);
    case N_PRINT:
        return print(r, n);
    case N_IF:
        return branch(r, n);
    case N_FOR:
        return iterate(r, n);
    case N_SET:
    case N_SET_BLOCK:
        return set(r, n);
    case N_MACRO:
        return macro(r, n);
    case N_CALL_BLOCK:
        return call_block(r, n);
    case N_FILTER_BLOCK:
        return filter_block(r, n);
    case N_WITH:
        return with(r, n);
    case N_GENERATION:
        return generation(r, n);
    case N_BREAK:
    case N_CONTINUE:
        r->jump = n->kind == N_BREAK ? GO_BREAK : GO_CONTINUE;
        return 0;
    default:
        return eval_block(r, n);
    }
}

int eval_block(struct run *r, const struct node *n)
{
    RETERR(run_enter(r));
    for (size_t i = 0; r->jump == GO_ON && i < n->n; i++) {
        RETERR(run_charge(r, 0));
        RETERR(statement(r, n->kids[i]));
    }
    run_leave(r);
    return 0;
}
