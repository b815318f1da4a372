/* run.c - a rendering: its limits, its names, its containers; compiling. */
#include <stdarg.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "model/jinja/eval.h"
#include "model/jinja/text.h"
#include "proto/limits.h"

/* --- compiling --- */

static int compile(struct jinja *t, const char *text, size_t n, struct err *e)
{
    static const char *const names[] = {"loop", "caller", "varargs", "kwargs"};
    struct span *const into[] = {&t->loop, &t->caller, &t->varargs, &t->kwargs};
    struct arena tmp;
    struct toks toks;
    for (size_t i = 0; i < countof(names); i++) {
        *into[i] = intern_put(&t->arena, &t->names, zspan(names[i]));
        if (into[i]->p == NULL) {
            return err_set(e, ERR_NOMEM, "the chat template");
        }
    }
    arena_init(&tmp, JINJA_TREE_BYTES);
    int rc = jinja_lex(&tmp, &t->arena, &t->names, text, n, &toks, e);
    if (rc == 0 && t->names.n > JINJA_NAMES_MAX) {
        rc = err_set(e, ERR_TOO_BIG, "%zu names in the chat template",
                     t->names.n);
    }
    if (rc == 0) {
        rc = jinja_parse(t, &toks, e);
    }
    arena_fini(&tmp);
    return rc == 0 ? jinja_scopes(t, e) : rc;
}

int jinja_compile(const char *text, size_t n, struct jinja **ret, struct err *e)
{
    struct err local = {0};
    if (n > JINJA_TEXT_MAX) {
        return err_set(e, ERR_TEMPLATE, "a chat template of %zu bytes", n);
    }
    if (!utf8_valid(text, n)) {
        return err_set(e, ERR_TEMPLATE, "a chat template that is not UTF-8");
    }
    struct jinja *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return err_set(e, ERR_NOMEM, "the chat template");
    }
    arena_init(&t->arena, JINJA_TREE_BYTES);
    int rc = compile(t, text, n, e != NULL ? e : &local);
    if (rc < 0) {
        jinja_free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

void jinja_free(struct jinja *t)
{
    if (t != NULL) {
        arena_fini(&t->arena);
        free(t);
    }
}

/* --- rendering --- */

/* The variables that the template names, in a scope of their own. */
static int set_vars(struct run *r, const struct val_dict *vars)
{
    RETERR(scope_push(r, NULL));
    for (size_t i = 0; i < vars->n; i++) {
        struct span name = intern_find(&r->t->names, vars->item[i].key.s);
        if (name.p != NULL) {
            RETERR(scope_set(r, name, vars->item[i].v));
        }
    }
    return 0;
}

int jinja_render(const struct jinja *t, struct arena *a,
                 const struct val_dict *vars, int64_t now, uint32_t steps,
                 struct buf *out, struct err *e)
{
    struct err local = {0};
    size_t before = out->n;
    struct run r = {.t = t,
                    .arena = a,
                    .out = out,
                    .out_max = out->max,
                    .e = e != NULL ? e : &local,
                    .steps_max = steps != 0 ? steps : JINJA_STEPS_MAX,
                    .now = now};
    int rc = set_vars(&r, vars);
    if (rc == 0) {
        rc = scope_push(&r, t->root);
    }
    if (rc == 0) {
        rc = eval_block(&r, t->root);
    }
    if (rc < 0 && out->p != NULL) {
        out->n = before; /* untouched on failure */
        out->p[before] = '\0';
    }
    return rc;
}

/* --- errors and limits --- */

int run_error(struct run *r, const char *fmt, ...)
{
    char text[ERR_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_set(r->e, ERR_TEMPLATE_INPUT, "the chat template: %s", text);
}

int run_no_memory(struct run *r)
{
    return err_set(r->e, ERR_TOO_BIG, "the values of a chat template");
}

int run_charge(struct run *r, size_t bytes)
{
    r->steps += 1 + bytes / JINJA_STEP_BYTES;
    return r->steps > r->steps_max
               ? err_set(r->e, ERR_TOO_BIG, "the chat template runs too long")
               : 0;
}

int run_charge_chars(struct run *r, size_t bytes)
{
    return run_charge(r, bytes < SIZE_MAX / 16 ? 16 * bytes : SIZE_MAX);
}

int run_enter(struct run *r)
{
    return ++r->levels > JINJA_LEVELS_MAX
               ? err_set(r->e, ERR_TOO_BIG, "the chat template goes too deep")
               : 0;
}

void run_buf(struct run *r, struct buf *b)
{
    buf_init(b, r->out_max);
}

int run_take(struct run *r, const struct buf *b, struct val *ret)
{
    if (!buf_ok(b)) {
        return err_set(r->e, ERR_TOO_BIG, "a text in a chat template");
    }
    return run_copy(r, (struct span){b->p, b->n}, ret);
}

int run_copy(struct run *r, struct span s, struct val *ret)
{
    char *p = arena_strn(r->arena, s.p, s.n);
    *ret = val_str((struct span){p, s.n});
    RETERR(run_charge(r, s.n));
    return p != NULL ? 0 : run_no_memory(r);
}

/* --- containers --- */

int run_list(struct run *r, enum val_kind kind, struct val *ret)
{
    *ret = (struct val){.kind = kind};
    ret->list = arena_alloc(r->arena, sizeof(*ret->list));
    return ret->list != NULL ? run_charge(r, 0) : run_no_memory(r);
}

int run_dict(struct run *r, enum val_kind kind, struct val *ret)
{
    *ret = (struct val){.kind = kind};
    ret->dict = arena_alloc(r->arena, sizeof(*ret->dict));
    return ret->dict != NULL ? run_charge(r, 0) : run_no_memory(r);
}

int run_push(struct run *r, struct val *list, struct val v)
{
    RETERR(run_charge(r, 0));
    return list_push(r->arena, list->list, v) ? 0 : run_no_memory(r);
}

int run_put(struct run *r, struct val *dict, struct val key, struct val v)
{
    if (!val_hashable(&key)) {
        return run_error(r, "unhashable type: '%s'", val_type(&key));
    }
    RETERR(run_charge(r, dict->dict->n * sizeof(struct val_item)));
    return dict_put(r->arena, dict->dict, key, v) ? 0 : run_no_memory(r);
}

static int characters(struct run *r, struct span s, struct val_list *ret)
{
    int32_t c = 0;
    RETERR(run_charge(r, s.n * sizeof(struct val)));
    ret->n = 0;
    ret->v = arena_array(r->arena, text_length(s) + 1, sizeof(*ret->v));
    if (ret->v == NULL) {
        return run_no_memory(r);
    }
    while (s.n > 0) {
        size_t len = text_char(s.p, s.n, &c);
        ret->v[ret->n++] = val_str((struct span){s.p, len});
        s.p += len;
        s.n -= len;
    }
    return 0;
}

static int keys(struct run *r, const struct val_dict *d, struct val_list *ret)
{
    RETERR(run_charge(r, d->n * sizeof(struct val)));
    ret->v = arena_array(r->arena, d->n + 1, sizeof(*ret->v));
    ret->n = d->n;
    if (ret->v == NULL) {
        return run_no_memory(r);
    }
    for (size_t i = 0; i < d->n; i++) {
        ret->v[i] = d->item[i].key;
    }
    return 0;
}

int run_items(struct run *r, const struct val *v, struct val_list *ret)
{
    *ret = (struct val_list){0};
    if (v->kind == V_UNDEFINED) {
        return 0;
    }
    if (v->kind == V_STR) {
        return characters(r, v->s, ret);
    }
    if (v->kind == V_DICT) {
        return keys(r, v->dict, ret);
    }
    if (!val_has_list(v)) {
        return run_error(r, "'%s' object is not iterable", val_type(v));
    }
    *ret = *v->list;
    if (v->kind == V_GEN && v->list->at > 0) {
        ret->v += v->list->at;
        ret->n -= v->list->at;
    }
    v->list->at = v->list->n; /* a GEN is gone through */
    return 0;
}

/* --- names --- */

int scope_push(struct run *r, const struct node *n)
{
    struct scope *s = arena_alloc(r->arena, sizeof(*s));
    if (s == NULL) {
        return run_no_memory(r);
    }
    s->parent = r->scope;
    r->scope = s;
    for (size_t i = 0; n != NULL && i < n->n_hidden; i++) {
        RETERR(scope_set(r, n->hidden[i], val_missing));
    }
    return 0;
}

int scope_set(struct run *r, struct span name, struct val v)
{
    struct scope *s = r->scope;
    for (size_t i = 0; i < s->n; i++) {
        if (s->vars[i].name == name.p) {
            s->vars[i].v = v;
            return 0;
        }
    }
    void *p = s->vars;
    if (!val_room(r->arena, &p, s->n, &s->cap, sizeof(*s->vars))) {
        return run_no_memory(r);
    }
    s->vars = p;
    s->vars[s->n++] = (struct var){name.p, v};
    return run_charge(r, s->n * sizeof(*s->vars));
}

const struct val *scope_find(const struct run *r, struct span name)
{
    for (const struct scope *s = r->scope; s != NULL; s = s->parent) {
        for (size_t i = 0; i < s->n; i++) {
            if (s->vars[i].name == name.p) {
                return &s->vars[i].v;
            }
        }
    }
    return NULL;
}
