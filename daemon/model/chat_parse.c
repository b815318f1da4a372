/* chat_parse.c - tokens into a tree, by recursive descent with Jinja2's
 * precedence: if-else, or, and, not, comparison, + -, ~, * / %, unary minus,
 * then . [] () | is, which bind tightest.
 */
#include <string.h>

#include "model/chat_impl.h"

struct parser {
    struct arena *arena;
    const struct tok *t;
    int depth;
    struct err *e;
    bool failed;
};

static struct node *fail(struct parser *p, const char *what)
{
    if (!p->failed) {
        p->failed = true;
        (void)err_set(p->e, ERR_TEMPLATE, "the chat template: %s near '%.*s'",
                      what, (int)(p->t->s.n < 40 ? p->t->s.n : 40), p->t->s.p);
    }
    return NULL;
}

static struct node *make(struct parser *p, enum node_kind kind)
{
    struct node *n = arena_alloc(p->arena, sizeof(*n));
    if (n == NULL) {
        return fail(p, "too big");
    }
    n->kind = kind;
    return n;
}

/* Append a child (NULL is a child too) with an optional name. */
static bool add(struct parser *p, struct node *n, struct node *kid,
                struct span name)
{
    if (n->n == n->cap) {
        size_t cap = n->cap == 0 ? 4 : n->cap * 2;
        struct node **kids = arena_array(p->arena, cap, sizeof(*kids));
        struct span *names = arena_array(p->arena, cap, sizeof(*names));
        if (kids == NULL || names == NULL) {
            (void)fail(p, "too big");
            return false;
        }
        if (n->n > 0) {
            memcpy(kids, n->kids, n->n * sizeof(struct node *));
            memcpy(names, n->names, n->n * sizeof(*names));
        }
        n->kids = kids;
        n->names = names;
        n->cap = cap;
    }
    n->kids[n->n] = kid;
    n->names[n->n] = name;
    n->n++;
    return true;
}

static const struct span no_name = {NULL, 0};

static bool at_op(const struct parser *p, const char *op)
{
    return p->t->kind == TK_OP && span_is(p->t->s, op);
}

static bool at_word(const struct parser *p, const char *word)
{
    return p->t->kind == TK_NAME && span_is(p->t->s, word);
}

static bool take_op(struct parser *p, const char *op)
{
    if (at_op(p, op)) {
        p->t++;
        return true;
    }
    return false;
}

static bool take_word(struct parser *p, const char *word)
{
    if (at_word(p, word)) {
        p->t++;
        return true;
    }
    return false;
}

static bool want_op(struct parser *p, const char *op)
{
    if (!take_op(p, op)) {
        (void)fail(p, op);
        return false;
    }
    return true;
}

static struct node *parse_expr(struct parser *p);
static struct node *parse_unary(struct parser *p);

static struct node *binary(struct parser *p, struct node *a, struct span op,
                           struct node *b)
{
    struct node *n = a != NULL && b != NULL ? make(p, N_BINARY) : NULL;
    if (n != NULL) {
        n->a = a;
        n->b = b;
        n->s = op;
    }
    return n;
}

static struct node *literal(struct parser *p, struct val v)
{
    struct node *n = make(p, N_LITERAL);
    if (n != NULL) {
        n->value = v;
    }
    return n;
}

/* Arguments up to `close`, behind the opening. */
static bool parse_args(struct parser *p, struct node *n, const char *close)
{
    while (!take_op(p, close)) {
        struct span name = no_name;
        if (p->t->kind == TK_NAME && p->t[1].kind == TK_OP &&
            span_is(p->t[1].s, "=")) {
            name = p->t->s;
            p->t += 2;
        }
        struct node *arg = parse_expr(p);
        if (arg == NULL || !add(p, n, arg, name)) {
            return false;
        }
        if (!at_op(p, close) && !want_op(p, ",")) {
            return false;
        }
    }
    return true;
}

static struct node *parse_dict(struct parser *p)
{
    struct node *n = make(p, N_DICT);
    while (n != NULL && !take_op(p, "}")) {
        struct node *key = parse_expr(p);
        if (key == NULL || !want_op(p, ":")) {
            return NULL;
        }
        struct node *value = parse_expr(p);
        if (value == NULL || !add(p, n, key, no_name) ||
            !add(p, n, value, no_name)) {
            return NULL;
        }
        if (!at_op(p, "}") && !want_op(p, ",")) {
            return NULL;
        }
    }
    return n;
}

/* ( ... ): grouping, or a tuple where a comma comes. */
static struct node *parse_group(struct parser *p)
{
    struct node *first = at_op(p, ")") ? NULL : parse_expr(p);
    if (first != NULL && take_op(p, ")")) {
        return first;
    }
    struct node *n = make(p, N_LIST);
    if (p->failed || n == NULL) {
        return NULL;
    }
    if (first != NULL && (!add(p, n, first, no_name) || !want_op(p, ","))) {
        return NULL;
    }
    return parse_args(p, n, ")") ? n : NULL;
}

static struct node *parse_name(struct parser *p)
{
    static const struct {
        const char *word;
        enum val_kind kind;
        bool b;
    } words[] = {
        {"true",  V_BOOL, true },
        {"True",  V_BOOL, true },
        {"false", V_BOOL, false},
        {"False", V_BOOL, false},
        {"none",  V_NONE, false},
        {"None",  V_NONE, false},
    };
    for (size_t i = 0; i < countof(words); i++) {
        if (take_word(p, words[i].word)) {
            return literal(
                p, (struct val){.kind = words[i].kind, .b = words[i].b});
        }
    }
    struct node *n = make(p, N_NAME);
    if (n != NULL) {
        n->s = p->t++->s;
    }
    return n;
}

static struct node *parse_string(struct parser *p)
{
    struct span s = p->t++->s;
    while (p->t->kind == TK_STRING) { /* 'a' 'b' is one string */
        char *both = arena_alloc(p->arena, s.n + p->t->s.n + 1);
        if (both == NULL) {
            return fail(p, "too big");
        }
        memcpy(both, s.p, s.n);
        memcpy(both + s.n, p->t->s.p, p->t->s.n);
        s = (struct span){both, s.n + p->t->s.n};
        p->t++;
    }
    return literal(p, val_str(s));
}

static struct node *parse_primary(struct parser *p)
{
    if (p->t->kind == TK_NAME) {
        return parse_name(p);
    }
    if (p->t->kind == TK_STRING) {
        return parse_string(p);
    }
    if (p->t->kind == TK_INT) {
        return literal(p, val_int(p->t++->i));
    }
    if (take_op(p, "(")) {
        return parse_group(p);
    }
    if (take_op(p, "[")) {
        struct node *n = make(p, N_LIST);
        return n != NULL && parse_args(p, n, "]") ? n : NULL;
    }
    if (take_op(p, "{")) {
        return parse_dict(p);
    }
    return fail(p, "an expression is missing");
}

/* Behind a '[': an index or a slice. */
static struct node *parse_subscript(struct parser *p, struct node *a)
{
    struct node *part[3] = {NULL, NULL, NULL};
    size_t i = 0;
    bool slice = false;
    while (!take_op(p, "]")) {
        if (take_op(p, ":")) {
            slice = true;
            if (++i > 2) {
                return fail(p, "a slice");
            }
        } else {
            part[i] = parse_expr(p);
            if (part[i] == NULL) {
                return NULL;
            }
            if (!at_op(p, ":") && !at_op(p, "]")) {
                return fail(p, "]");
            }
        }
    }
    struct node *n = make(p, slice ? N_SLICE : N_INDEX);
    if (n == NULL || (!slice && part[0] == NULL)) {
        return fail(p, "an index");
    }
    n->a = a;
    n->b = part[0];
    for (i = 0; slice && i < 3; i++) {
        if (!add(p, n, part[i], no_name)) {
            return NULL;
        }
    }
    return n;
}

/* `| name(args)` or `is [not] name [args]`. */
static struct node *parse_applied(struct parser *p, enum node_kind kind,
                                  struct node *a)
{
    struct node *n = make(p, kind);
    bool negated = kind == N_TEST && take_word(p, "not");
    if (n == NULL || p->t->kind != TK_NAME) {
        return fail(p, "a filter or test");
    }
    n->a = a;
    n->s = p->t++->s;
    if (take_op(p, "(")) {
        if (!parse_args(p, n, ")")) {
            return NULL;
        }
    } else if (kind == N_TEST &&
               (p->t->kind == TK_STRING || p->t->kind == TK_INT)) {
        struct node *arg = parse_primary(p);
        if (arg == NULL || !add(p, n, arg, no_name)) {
            return NULL;
        }
    }
    if (negated) {
        struct node *outer = make(p, N_NOT);
        if (outer != NULL) {
            outer->a = n;
        }
        return outer;
    }
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    while (n != NULL) {
        struct node *a = n;
        if (take_op(p, ".")) {
            n = make(p, N_ATTR);
            if (n == NULL || p->t->kind != TK_NAME) {
                return fail(p, "an attribute");
            }
            n->a = a;
            n->s = p->t++->s;
        } else if (take_op(p, "[")) {
            n = parse_subscript(p, a);
        } else if (take_op(p, "(")) {
            n = make(p, N_CALL);
            if (n == NULL || !parse_args(p, n, ")")) {
                return NULL;
            }
            n->a = a;
        } else if (take_op(p, "|")) {
            n = parse_applied(p, N_FILTER, a);
        } else if (take_word(p, "is")) {
            n = parse_applied(p, N_TEST, a);
        } else {
            return n;
        }
    }
    return n;
}

static struct node *parse_unary(struct parser *p)
{
    struct node *n = NULL;
    if (++p->depth > CHAT_DEPTH_MAX) {
        return fail(p, "nested too deep");
    }
    if (take_op(p, "-")) {
        n = make(p, N_MINUS);
        if (n != NULL) {
            n->a = parse_unary(p);
            n = n->a != NULL ? n : NULL;
        }
    } else {
        n = parse_postfix(p, parse_primary(p));
    }
    p->depth--;
    return n;
}

/* Left-associative levels, loosest first; the last is above unary. */
static struct node *parse_level(struct parser *p, size_t level)
{
    static const char *const ops[][4] = {
        {"+",   "-"},
        {     "~" },
        { "*", "/",   "//", "%"},
    };
    if (level == countof(ops)) {
        return parse_unary(p);
    }
    struct node *n = parse_level(p, level + 1);
    for (size_t i = 0; n != NULL && i < 4 && ops[level][i] != NULL;) {
        if (at_op(p, ops[level][i])) {
            struct span op = p->t++->s;
            n = binary(p, n, op, parse_level(p, level + 1));
            i = 0;
        } else {
            i++;
        }
    }
    return n;
}

static bool compare_op(struct parser *p, struct span *ret)
{
    static const char *const ops[] = {"==", "!=", "<", ">", "<=", ">="};
    static const struct span not_in = {"not in", 6};
    for (size_t i = 0; i < countof(ops); i++) {
        if (at_op(p, ops[i])) {
            *ret = p->t++->s;
            return true;
        }
    }
    if (at_word(p, "in")) {
        *ret = p->t++->s;
        return true;
    }
    if (at_word(p, "not") && p->t[1].kind == TK_NAME &&
        span_is(p->t[1].s, "in")) {
        p->t += 2;
        *ret = not_in;
        return true;
    }
    return false;
}

static struct node *parse_not(struct parser *p)
{
    if (at_word(p, "not")) {
        p->t++;
        if (++p->depth > CHAT_DEPTH_MAX) {
            return fail(p, "nested too deep");
        }
        struct node *n = make(p, N_NOT);
        if (n != NULL) {
            n->a = parse_not(p);
            n = n->a != NULL ? n : NULL;
        }
        p->depth--;
        return n;
    }
    struct node *n = parse_level(p, 0);
    struct span op;
    bool chained = false;
    while (n != NULL && compare_op(p, &op)) {
        if (chained) {
            return fail(p, "a chain of comparisons");
        }
        chained = true;
        n = binary(p, n, op, parse_level(p, 0));
    }
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *n = parse_not(p);
    while (n != NULL && at_word(p, "and")) {
        struct span op = p->t++->s;
        n = binary(p, n, op, parse_not(p));
    }
    return n;
}

static struct node *parse_or(struct parser *p)
{
    struct node *n = parse_and(p);
    while (n != NULL && at_word(p, "or")) {
        struct span op = p->t++->s;
        n = binary(p, n, op, parse_and(p));
    }
    return n;
}

static struct node *parse_expr(struct parser *p)
{
    if (++p->depth > CHAT_DEPTH_MAX) {
        return fail(p, "nested too deep");
    }
    struct node *n = parse_or(p);
    while (n != NULL && take_word(p, "if")) {
        struct node *pick = make(p, N_IF_ELSE);
        struct node *other = NULL;
        if (pick == NULL || (pick->a = parse_or(p)) == NULL) {
            return NULL;
        }
        if (take_word(p, "else")) {
            other = parse_expr(p);
        } else {
            other = literal(p, (struct val){.kind = V_UNDEFINED});
        }
        if (other == NULL || !add(p, pick, n, no_name) ||
            !add(p, pick, other, no_name)) {
            return NULL;
        }
        n = pick;
    }
    p->depth--;
    return n;
}

/* --- statements --- */

static struct node *parse_block(struct parser *p);

static bool close_stmt(struct parser *p)
{
    if (p->t->kind != TK_STMT_CLOSE) {
        (void)fail(p, "the end of a statement");
        return false;
    }
    p->t++;
    return true;
}

/* {% word %} where the parser stands? Takes it. */
static bool take_stmt(struct parser *p, const char *word)
{
    if (p->t->kind == TK_STMT_OPEN && p->t[1].kind == TK_NAME &&
        span_is(p->t[1].s, word)) {
        p->t += 2;
        return true;
    }
    return false;
}

static bool want_stmt(struct parser *p, const char *word)
{
    if (!take_stmt(p, word)) {
        (void)fail(p, word);
        return false;
    }
    return close_stmt(p);
}

static struct node *parse_if(struct parser *p)
{
    struct node *n = make(p, N_IF);
    bool last = false;
    if (n == NULL) {
        return NULL;
    }
    do {
        struct node *condition = last ? NULL : parse_expr(p);
        if (p->failed || !close_stmt(p)) {
            return NULL;
        }
        struct node *body = parse_block(p);
        if (body == NULL || !add(p, n, condition, no_name) ||
            !add(p, n, body, no_name)) {
            return NULL;
        }
        if (take_stmt(p, "elif")) {
            continue;
        }
        if (last || !take_stmt(p, "else")) {
            break;
        }
        last = true;
    } while (true);
    return want_stmt(p, "endif") ? n : NULL;
}

static struct node *parse_for(struct parser *p)
{
    struct node *n = make(p, N_FOR);
    if (n == NULL || p->t->kind != TK_NAME) {
        return fail(p, "a loop's name");
    }
    n->s = p->t++->s;
    if (take_op(p, ",")) {
        if (p->t->kind != TK_NAME) {
            return fail(p, "a loop's name");
        }
        n->s2 = p->t++->s;
    }
    if (!take_word(p, "in")) {
        return fail(p, "in");
    }
    n->a = parse_or(p);
    if (n->a != NULL && take_word(p, "if")) {
        n->b = parse_expr(p);
    }
    if (p->failed || !close_stmt(p)) {
        return NULL;
    }
    struct node *body = parse_block(p);
    if (body == NULL || !add(p, n, body, no_name)) {
        return NULL;
    }
    if (take_stmt(p, "else")) {
        struct node *other = close_stmt(p) ? parse_block(p) : NULL;
        if (other == NULL || !add(p, n, other, no_name)) {
            return NULL;
        }
    }
    return want_stmt(p, "endfor") ? n : NULL;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = make(p, N_SET);
    if (n == NULL || p->t->kind != TK_NAME) {
        return fail(p, "a name to set");
    }
    n->s = p->t++->s;
    if (take_op(p, ".")) {
        n->s2 = p->t++->s;
    }
    if (take_op(p, "=")) {
        n->a = parse_expr(p);
        return n->a != NULL && close_stmt(p) ? n : NULL;
    }
    struct node *body = close_stmt(p) ? parse_block(p) : NULL;
    if (body == NULL || !add(p, n, body, no_name)) {
        return NULL;
    }
    return want_stmt(p, "endset") ? n : NULL;
}

/* A macro is stepped over; who calls it meets an unknown function. */
static struct node *parse_macro(struct parser *p)
{
    while (p->t->kind != TK_STMT_CLOSE && p->t->kind != TK_END) {
        p->t++;
    }
    if (!close_stmt(p) || parse_block(p) == NULL || !want_stmt(p, "endmacro")) {
        return NULL;
    }
    return make(p, N_BLOCK);
}

/* {% generation %} marks what the model is trained on; its body is text. */
static struct node *parse_generation(struct parser *p)
{
    struct node *n = close_stmt(p) ? parse_block(p) : NULL;
    return n != NULL && want_stmt(p, "endgeneration") ? n : NULL;
}

static struct node *parse_jump(struct parser *p, enum node_kind kind)
{
    return close_stmt(p) ? make(p, kind) : NULL;
}

static struct node *parse_stmt(struct parser *p)
{
    if (take_stmt(p, "if")) {
        return parse_if(p);
    }
    if (take_stmt(p, "for")) {
        return parse_for(p);
    }
    if (take_stmt(p, "set")) {
        return parse_set(p);
    }
    if (take_stmt(p, "macro")) {
        return parse_macro(p);
    }
    if (take_stmt(p, "generation")) {
        return parse_generation(p);
    }
    if (take_stmt(p, "break")) {
        return parse_jump(p, N_BREAK);
    }
    if (take_stmt(p, "continue")) {
        return parse_jump(p, N_CONTINUE);
    }
    p->t++;
    return fail(p, "an unknown statement");
}

/* Does a statement that ends or divides a block stand here? */
static bool at_block_end(const struct parser *p)
{
    static const char *const words[] = {"elif",         "else",   "endif",
                                        "endfor",       "endset", "endmacro",
                                        "endgeneration"};
    if (p->t->kind == TK_END) {
        return true;
    }
    for (size_t i = 0; p->t->kind == TK_STMT_OPEN && i < countof(words); i++) {
        if (p->t[1].kind == TK_NAME && span_is(p->t[1].s, words[i])) {
            return true;
        }
    }
    return false;
}

static struct node *parse_piece(struct parser *p)
{
    if (p->t->kind == TK_STMT_OPEN) {
        return parse_stmt(p);
    }
    if (p->t->kind == TK_TEXT) {
        struct node *n = make(p, N_TEXT);
        if (n != NULL) {
            n->s = p->t++->s;
        }
        return n;
    }
    struct node *n = make(p, N_PRINT);
    p->t++; /* {{ */
    if (n == NULL || (n->a = parse_expr(p)) == NULL) {
        return NULL;
    }
    if (p->t->kind != TK_EXPR_CLOSE) {
        return fail(p, "the end of an expression");
    }
    p->t++;
    return n;
}

static struct node *parse_block(struct parser *p)
{
    struct node *n = make(p, N_BLOCK);
    if (++p->depth > CHAT_DEPTH_MAX) {
        return fail(p, "nested too deep");
    }
    while (n != NULL && !at_block_end(p)) {
        struct node *kid = parse_piece(p);
        if (kid == NULL || !add(p, n, kid, no_name)) {
            return NULL;
        }
    }
    p->depth--;
    return n;
}

int chat_parse(struct arena *a, const struct toks *t, struct node **ret,
               struct err *e)
{
    struct err local = {0};
    struct parser p = {.arena = a, .t = t->t, .e = e != NULL ? e : &local};
    struct node *n = parse_block(&p);
    if (n != NULL && p.t->kind != TK_END) {
        p.t++;
        n = fail(&p, "an end without its beginning");
    }
    if (n == NULL) {
        return ERR_TEMPLATE;
    }
    *ret = n;
    return 0;
}
