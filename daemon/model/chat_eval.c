/* chat_eval.c - the tree into text.
 *
 * Names live in one stack of (name, value, frame); a loop body is a frame, an
 * if is none, so that `set` inside a loop ends with the iteration, as in
 * Jinja2. chat_eval_expr.c has the expressions. What the template refuses
 * itself, and values that do not fit, are TEMPLATE_INPUT; what this evaluator
 * lacks is TEMPLATE.
 */
#include <string.h>

#include "model/chat_impl.h"

int chat_set(struct chat_env *v, struct span name, struct val value)
{
    for (size_t i = v->n_vars; i > 0 && v->vars[i - 1].frame == v->frame; i--) {
        struct span have = v->vars[i - 1].name;
        if (have.n == name.n && memcmp(have.p, name.p, name.n) == 0) {
            v->vars[i - 1].v = value;
            return 0;
        }
    }
    if (v->n_vars == CHAT_VALUES_MAX) {
        return chat_too_big(v);
    }
    v->vars[v->n_vars].name = name;
    v->vars[v->n_vars].v = value;
    v->vars[v->n_vars].frame = v->frame;
    v->n_vars++;
    return 0;
}

struct val *chat_lookup(struct chat_env *v, struct span name)
{
    for (size_t i = v->n_vars; i > 0; i--) {
        struct span have = v->vars[i - 1].name;
        if (have.n == name.n && memcmp(have.p, name.p, name.n) == 0) {
            return &v->vars[i - 1].v;
        }
    }
    return NULL;
}

static int print(struct chat_env *v, const struct node *n)
{
    struct val a;
    struct span s;
    RETERR(chat_eval(v, n->a, &a));
    RETERR(chat_text(v, &a, &s));
    buf_put(v->out, s.p, s.n);
    return buf_ok(v->out) ? 0 : chat_too_big(v);
}

static int branch(struct chat_env *v, const struct node *n)
{
    for (size_t i = 0; i < n->n; i += 2) {
        struct val a = val_bool(true);
        int rc = n->kids[i] != NULL ? chat_eval(v, n->kids[i], &a) : 0;
        if (rc < 0) {
            return rc;
        }
        if (val_true(&a)) {
            return chat_eval_block(v, n->kids[i + 1]);
        }
    }
    return 0;
}

/* What a block writes, as a value. */
static int block_text(struct chat_env *v, const struct node *n, struct val *ret)
{
    struct buf *out = v->out;
    struct buf text;
    buf_init(&text, out->max);
    v->out = &text;
    int rc = chat_eval_block(v, n);
    v->out = out;
    if (rc == 0) {
        rc = chat_concat(v, (struct span){text.p, text.n},
                         (struct span){NULL, 0}, ret);
    }
    buf_fini(&text);
    return rc;
}

static int set(struct chat_env *v, const struct node *n)
{
    struct val a;
    RETERR(n->a != NULL ? chat_eval(v, n->a, &a)
                        : block_text(v, n->kids[0], &a));
    if (n->s2.p == NULL) {
        return chat_set(v, n->s, a);
    }
    struct val *object = chat_lookup(v, n->s);
    if (object == NULL || object->kind != V_MAP) {
        return chat_unknown(v->e, "setting an attribute of", n->s);
    }
    return val_map_put(v->arena, object->map, n->s2, a, v->e);
}

static struct span name_of(const char *z)
{
    return (struct span){z, strlen(z)};
}

/* The `loop` of iteration i over l. */
static int set_loop(struct chat_env *v, const struct val_list *l, size_t i)
{
    struct val undefined = {.kind = V_UNDEFINED};
    struct val_map *m = arena_alloc(v->arena, sizeof(*m));
    if (m == NULL) {
        return chat_too_big(v);
    }
    const struct {
        const char *name;
        struct val v;
    } rows[] = {
        {"index",     val_int((int64_t)i + 1)               },
        {"index0",    val_int((int64_t)i)                   },
        {"first",     val_bool(i == 0)                      },
        {"last",      val_bool(i + 1 == l->n)               },
        {"length",    val_int((int64_t)l->n)                },
        {"revindex",  val_int((int64_t)(l->n - i))          },
        {"revindex0", val_int((int64_t)(l->n - i - 1))      },
        {"previtem",  i > 0 ? l->v[i - 1] : undefined       },
        {"nextitem",  i + 1 < l->n ? l->v[i + 1] : undefined},
    };
    for (size_t k = 0; k < countof(rows); k++) {
        int rc =
            val_map_put(v->arena, m, name_of(rows[k].name), rows[k].v, v->e);
        if (rc < 0) {
            return rc;
        }
    }
    return chat_set(v, name_of("loop"), (struct val){.kind = V_MAP, .map = m});
}

static void pop_frame(struct chat_env *v)
{
    while (v->n_vars > 0 && v->vars[v->n_vars - 1].frame == v->frame) {
        v->n_vars--;
    }
    v->frame--;
}

/* Whether the loop's condition holds for an item. */
static int filter_item(struct chat_env *v, const struct node *n,
                       struct val item, struct val *ret)
{
    RETERR(chat_set(v, n->s, item));
    return chat_eval(v, n->b, ret);
}

/* The items the loop's condition lets through. */

static int filter_items(struct chat_env *v, const struct node *n,
                        struct val_list *l)
{
    size_t kept = 0;
    struct val *all = l->v;
    l->v = arena_array(v->arena, l->n + 1, sizeof(*l->v));
    if (l->v == NULL) {
        return chat_too_big(v);
    }
    for (size_t i = 0; i < l->n; i++) {
        struct val yes;
        v->frame++;
        int rc = filter_item(v, n, all[i], &yes);
        pop_frame(v);
        if (rc < 0) {
            return rc;
        }
        if (val_true(&yes)) {
            l->v[kept++] = all[i];
        }
    }
    l->n = kept;
    return 0;
}

static int iterate_item(struct chat_env *v, const struct node *n,
                        const struct val_list *l, size_t i)
{
    RETERR(set_loop(v, l, i));
    RETERR(chat_set(v, n->s, l->v[i]));
    return chat_eval_block(v, n->kids[0]);
}

static int iterate(struct chat_env *v, const struct node *n)
{
    struct val a;
    RETERR(chat_eval(v, n->a, &a));
    if (a.kind == V_UNDEFINED) {
        a.list = NULL; /* is empty */
    } else if (a.kind != V_LIST || n->s2.p != NULL) {
        return chat_unknown(v->e, "a loop over", name_of(val_name(&a)));
    }
    struct val_list l = {NULL, 0};
    if (a.list != NULL) {
        l = *a.list;
    }
    if (n->b != NULL) {
        RETERR(filter_items(v, n, &l));
    }
    for (size_t i = 0; i < l.n; i++) {
        v->frame++;
        int rc = iterate_item(v, n, &l, i);
        pop_frame(v);
        bool leave = v->jump == GO_BREAK;
        v->jump = GO_ON;
        if (rc < 0) {
            return rc;
        }
        if (leave) {
            break;
        }
    }
    return l.n == 0 && n->n > 1 ? chat_eval_block(v, n->kids[1]) : 0;
}

int chat_eval_block(struct chat_env *v, const struct node *n)
{
    int rc = 0;
    if (++v->depth > CHAT_DEPTH_MAX) {
        return chat_too_big(v);
    }
    for (size_t i = 0; v->jump == GO_ON && i < n->n; i++) {
        const struct node *k = n->kids[i];
        if (k->kind == N_TEXT) {
            buf_put(v->out, k->s.p, k->s.n);
            CHECK(buf_ok(v->out) ? 0 : chat_too_big(v));
        } else if (k->kind == N_PRINT) {
            CHECK(print(v, k));
        } else if (k->kind == N_IF) {
            CHECK(branch(v, k));
        } else if (k->kind == N_FOR) {
            CHECK(iterate(v, k));
        } else if (k->kind == N_SET) {
            CHECK(set(v, k));
        } else if (k->kind == N_BLOCK) {
            CHECK(chat_eval_block(v, k));
        } else {
            v->jump = k->kind == N_BREAK ? GO_BREAK : GO_CONTINUE;
        }
    }
out:
    v->depth--;
    return rc;
}
