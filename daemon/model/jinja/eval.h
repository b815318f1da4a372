/* eval.h - one rendering, and what its files ask of each other.
 *
 * Every function that can fail returns 0 or the error that it put in r->e. The
 * evaluator recurses along the tree and through macros: run_enter counts the
 * levels, so the stack that a rendering may take is bounded (JINJA_LEVELS_MAX);
 * run_charge bounds the time. */
#pragma once

#include "model/jinja/ast.h"

struct var {
    const char *name; /* interned */
    struct val v;
};

struct scope {
    struct scope *parent;
    struct var *vars;
    size_t n, cap;
    bool kept; /* a macro was made here: it may be looked at later */
};

struct run {
    const struct jinja *t;
    struct arena *arena;
    struct buf *out;
    size_t out_max; /* of every buffer that text is collected in */
    struct err *e;
    struct scope *scope;
    int64_t now;
    uint64_t steps, steps_max;
    int levels;
    enum { GO_ON, GO_BREAK, GO_CONTINUE } jump;
};

struct macro {
    const struct node *def;
    struct scope *scope; /* where it was made */
    bool is_caller;
};

/* The `loop` of a for statement. Items that its condition refuses are left out
 * when the loop comes to them, not before. */
struct loop {
    const struct node *of;
    struct val_list src;
    size_t at;        /* in src: the next one to look at */
    struct val *kept; /* items so far, the present one last but `ahead` */
    size_t n_kept;
    size_t index0;
    int depth0;
    struct scope *outer;
    bool has_seen;
    struct val seen; /* of loop.changed() */
};

/* Arguments of a call as they were written. */
struct kwarg {
    struct span name;
    struct val v;
};
struct args {
    struct val *v;
    size_t n, cap;
    struct kwarg *kw;
    size_t n_kw, cap_kw;
};

#define BUILTIN_ARGS 6

/* A call of a builtin: arguments in the order of its parameters, MISSING where
 * none was given. */
struct call {
    struct val self; /* what a filter, method or test applies to */
    struct val a[BUILTIN_ARGS];
    const struct args *raw; /* of those whose params are "*" */
};

/* A filter, test, method or function. */
struct builtin {
    const char *name;
    int (*fn)(struct run *r, const struct call *c, struct val *ret);
    unsigned need;      /* parameters that have to be given */
    const char *params; /* their names, with ',' between; "*": raw */
};

/* --- errors and limits (run.c) --- */

int run_error(struct run *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
int run_no_memory(struct run *r);
/* Looking through `bytes` bytes. */
CHECKED int run_charge(struct run *r, size_t bytes);
/* The same character by character, which takes about 16 times as long. */
CHECKED int run_charge_chars(struct run *r, size_t bytes);
/* One level deeper; run_leave() after success. */
CHECKED int run_enter(struct run *r);
static inline void run_leave(struct run *r)
{
    r->levels--;
}
/* A buffer for text of this rendering; buf_fini() it. */
void run_buf(struct run *r, struct buf *b);
/* Its bytes as a string of the arena. */
CHECKED int run_take(struct run *r, const struct buf *b, struct val *ret);
CHECKED int run_copy(struct run *r, struct span s, struct val *ret);
/* A new empty list or dictionary. */
CHECKED int run_list(struct run *r, enum val_kind kind, struct val *ret);
CHECKED int run_dict(struct run *r, enum val_kind kind, struct val *ret);
CHECKED int run_push(struct run *r, struct val *list, struct val v);
/* Errors: TEMPLATE_INPUT when the key is not hashable. */
CHECKED int run_put(struct run *r, struct val *dict, struct val key,
                    struct val v);
/* The items that going through v gives. A GEN is then gone through. */
CHECKED int run_items(struct run *r, const struct val *v, struct val_list *ret);

/* --- names (run.c) --- */

CHECKED int scope_push(struct run *r, const struct node *n);
CHECKED int scope_set(struct run *r, struct span name, struct val v);
const struct val *scope_find(const struct run *r, struct span name);

/* --- statements (eval.c) --- */

CHECKED int eval_block(struct run *r, const struct node *n);
/* What a block writes, as a string. */
CHECKED int eval_text(struct run *r, const struct node *n, struct val *ret);
CHECKED int eval_assign(struct run *r, const struct node *target,
                        const struct val *v);
CHECKED int loop_run(struct run *r, const struct node *n, struct val over,
                     int depth0);
/* Whether the loop has item i, and then *ret. */
CHECKED int loop_item(struct run *r, struct loop *l, size_t i, bool *has,
                      struct val *ret);
CHECKED int loop_attr(struct run *r, struct loop *l, struct span name,
                      struct val *ret);

/* --- expressions (eval_expr.c) --- */

CHECKED int eval(struct run *r, const struct node *n, struct val *ret);
CHECKED int eval_binary(struct run *r, enum op op, const struct val *a,
                        const struct val *b, struct val *ret);
CHECKED int eval_attr(struct run *r, const struct val *a, struct span name,
                      struct val *ret);
CHECKED int eval_index(struct run *r, const struct val *a, const struct val *i,
                       struct val *ret);
/* Python's arithmetic (arith.c); `a % b` of strings too. */
CHECKED int arith(struct run *r, enum op op, const struct val *a,
                  const struct val *b, struct val *ret);
/* Python's f % args (format.c). */
CHECKED int format_percent(struct run *r, struct span f, const struct val *args,
                           struct val *ret);
/* a + b of strings: escaped when the other one is markup. */
CHECKED int join_strings(struct run *r, const struct val *a,
                         const struct val *b, struct val *ret);
CHECKED int escape_html(struct run *r, struct span s, struct val *ret);

/* --- calls (call.c) --- */

CHECKED int eval_args(struct run *r, const struct node *n, struct args *ret);
/* A keyword argument more. Errors: TEMPLATE_INPUT when it is there already. */
CHECKED int args_add(struct run *r, struct args *a, struct span name,
                     struct val v);
CHECKED int call_value(struct run *r, const struct val *f, struct args *a,
                       struct val *ret);
/* The value of calling a builtin: arguments to parameters. */
CHECKED int call_builtin(struct run *r, const char *what,
                         const struct builtin *f, const struct val *self,
                         const struct args *a, struct val *ret);
CHECKED int call_filter(struct run *r, struct span name, const struct val *self,
                        const struct args *a, struct val *ret);
CHECKED int call_test(struct run *r, struct span name, const struct val *self,
                      const struct args *a, bool *ret);
CHECKED int macro_new(struct run *r, const struct node *def, bool is_caller,
                      struct val *ret);

/* --- tables: NULL when there is no such name --- */

const struct builtin *builtin_find(const struct builtin *table, size_t n,
                                   struct span name);
const struct builtin *find_filter(struct span name);
const struct builtin *find_text_filter(struct span name);
const struct builtin *find_list_filter(struct span name);
const struct builtin *find_choice_filter(struct span name);
const struct builtin *find_test(struct span name);
const struct builtin *find_function(struct span name);
/* Of a value of this kind. */
const struct builtin *find_method(const struct val *self, struct span name);
const struct builtin *find_text_method(struct span name);

/* What `attribute` ("a.b.0", a number) names in an item; MISSING or none: the
 * item itself. */
CHECKED int attribute_of(struct run *r, const struct val *attribute,
                         const struct val *item, struct val *ret);

/* --- arguments of builtins --- */

/* Each takes the value when it was given, else leaves *ret alone. */
CHECKED int arg_int(struct run *r, const struct val *v, const char *what,
                    int64_t *ret);
CHECKED int arg_str(struct run *r, const struct val *v, const char *what,
                    struct span *ret);
static inline bool arg_true(const struct val *v)
{
    return v->kind != V_MISSING && val_true(v);
}
/* Its text: what soft_str() gives. */
CHECKED int self_text(struct run *r, const struct call *c, struct span *ret);
