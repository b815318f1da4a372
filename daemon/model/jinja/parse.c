/* parse.c - tokens into a tree: the statements of a template, by recursive
 * descent; parse_expr.c has the expressions.
 *
 * Two limits keep the stack small. The parser counts how deep it is
 * (JINJA_DEPTH_MAX). A chain such as a.b.c or a + b + c is parsed by a loop and
 * yet makes a tree as deep as it is long, so the finished tree is measured
 * (JINJA_TREE_MAX): names.c and the evaluator recurse along its paths. */
#include "model/jinja/parse.h"

#include "proto/limits.h"

static struct node *parse_block(struct parser *p);

static bool close_stmt(struct parser *p)
{
    (void)take_op(p, ":"); /* as in Python */
    if (p->at->kind != TK_STMT_CLOSE) {
        (void)misparse(p, "expected the end of a statement");
        return false;
    }
    p->at++;
    return true;
}

/* {% word %} where the parser stands? */
static bool at_stmt(const struct parser *p, const char *word)
{
    return p->at->kind == TK_STMT_OPEN && p->at[1].kind == TK_NAME &&
           span_is(p->at[1].s, word);
}

static bool take_stmt(struct parser *p, const char *word)
{
    if (at_stmt(p, word)) {
        p->at += 2;
        return true;
    }
    return false;
}

static bool want_stmt(struct parser *p, const char *word)
{
    if (!take_stmt(p, word)) {
        (void)misparse(p, "expected the end of a block");
        if (p->failed && p->at->kind == TK_END) {
            (void)err_prefix(p->e, ERR_TEMPLATE, "{%% %s %%}", word);
        }
        return false;
    }
    return close_stmt(p);
}

/* The body of a statement as its next child, up to {% end %}. */
static struct node *with_body(struct parser *p, struct node *n, const char *end)
{
    struct node *body = n != NULL && close_stmt(p) ? parse_block(p) : NULL;
    if (body == NULL || !ast_add(p, n, body, no_name)) {
        return NULL;
    }
    return want_stmt(p, end) ? n : NULL;
}

static struct node *parse_if(struct parser *p)
{
    struct node *n = ast_new(p, N_IF);
    bool last = false;
    if (n == NULL) {
        return NULL;
    }
    do {
        struct node *condition = last ? NULL : parse_tuple(p, false);
        if (p->failed || !close_stmt(p)) {
            return NULL;
        }
        struct node *body = parse_block(p);
        if (body == NULL || !ast_add(p, n, condition, no_name) ||
            !ast_add(p, n, body, no_name)) {
            return NULL;
        }
        if (!last && take_stmt(p, "elif")) {
            continue;
        }
        if (last || !take_stmt(p, "else")) {
            break;
        }
        last = true;
    } while (true);
    return want_stmt(p, "endif") ? n : NULL;
}

struct node *parse_target(struct parser *p, bool with_ns)
{
    struct node *all = NULL;
    struct node *n = NULL;
    do {
        bool brackets = all != NULL && (at_op(p, "=") || at_word(p, "in"));
        if (brackets) {
            break; /* a, = ... */
        }
        if (at_op(p, "(")) {
            p->at++;
            n = parse_enter(p) ? parse_target(p, with_ns) : NULL;
            p->depth--;
            if (n != NULL && !take_op(p, ")")) {
                return misparse(p, "expected ')'");
            }
        } else if (p->at->kind == TK_NAME) {
            n = ast_new(p, N_NAME);
            if (n != NULL) {
                n->s = p->at++->s;
            }
        } else {
            return misparse(p, "expected a name to set");
        }
        if (n != NULL && n->kind == N_NAME && with_ns && take_op(p, ".")) {
            if (p->at->kind != TK_NAME) {
                return misparse(p, "expected a name behind '.'");
            }
            n->kind = N_NSREF;
            n->s2 = p->at++->s;
        }
        if (n == NULL || (all != NULL && !ast_add(p, all, n, no_name))) {
            return NULL;
        }
        if (all == NULL && at_op(p, ",") &&
            ((all = ast_new(p, N_TUPLE)) == NULL ||
             !ast_add(p, all, n, no_name))) {
            return NULL;
        }
    } while (take_op(p, ","));
    return all != NULL ? all : n;
}

static struct node *parse_for(struct parser *p)
{
    struct node *n = ast_new(p, N_FOR);
    if (n == NULL || (n->c = parse_target(p, false)) == NULL ||
        !take_word(p, "in")) {
        return misparse(p, "expected a loop's name and in");
    }
    n->a = parse_tuple(p, false);
    if (n->a != NULL && take_word(p, "if")) {
        n->b = parse_expr(p);
    }
    n->recursive = !p->failed && take_word(p, "recursive");
    if (p->failed || !close_stmt(p)) {
        return NULL;
    }
    p->loops++;
    struct node *body = parse_block(p);
    p->loops--;
    if (body == NULL || !ast_add(p, n, body, no_name)) {
        return NULL;
    }
    if (take_stmt(p, "else")) {
        struct node *other = close_stmt(p) ? parse_block(p) : NULL;
        if (other == NULL || !ast_add(p, n, other, no_name)) {
            return NULL;
        }
    }
    return want_stmt(p, "endfor") ? n : NULL;
}

static struct node *parse_set(struct parser *p)
{
    struct node *target = parse_target(p, true);
    if (target == NULL) {
        return NULL;
    }
    bool block = !take_op(p, "=");
    struct node *n = ast_new(p, block ? N_SET_BLOCK : N_SET);
    if (n == NULL) {
        return NULL;
    }
    n->c = target;
    if (block) {
        n->b = parse_filters(p, NULL, false);
        return p->failed ? NULL : with_body(p, n, "endset");
    }
    n->a = parse_tuple(p, true);
    return n->a != NULL && close_stmt(p) ? n : NULL;
}

/* (a, b=1): names, and defaults or NULL. */
static bool parse_signature(struct parser *p, struct node *n)
{
    bool defaults = false;
    while (!take_op(p, ")")) {
        struct node *v = NULL;
        if (n->n > 0 && !take_op(p, ",")) {
            (void)misparse(p, "expected ',' between parameters");
            return false;
        }
        if (p->at->kind != TK_NAME) {
            (void)misparse(p, "expected the name of a parameter");
            return false;
        }
        struct span name = p->at++->s;
        if (take_op(p, "=")) {
            v = parse_expr(p);
            defaults = true;
        } else if (defaults) {
            (void)misparse(p, "a parameter without a default behind one with "
                              "it");
        }
        if (p->failed || !ast_add(p, n, v, name)) {
            return false;
        }
    }
    return true;
}

/* The body of a macro or of a call block: a scope of its own, in which no loop
 * outside can be left. */
static struct node *macro_body(struct parser *p, struct node *n,
                               const char *end)
{
    int loops = p->loops;
    p->loops = 0;
    n->c = close_stmt(p) ? parse_block(p) : NULL;
    p->loops = loops;
    return n->c != NULL && want_stmt(p, end) ? n : NULL;
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = ast_new(p, N_MACRO);
    if (n == NULL || p->at->kind != TK_NAME) {
        return misparse(p, "expected the name of a macro");
    }
    n->s = p->at++->s;
    if (!take_op(p, "(")) {
        return misparse(p, "expected '(' behind the name of a macro");
    }
    return parse_signature(p, n) ? macro_body(p, n, "endmacro") : NULL;
}

static struct node *parse_call_block(struct parser *p)
{
    struct node *n = ast_new(p, N_CALL_BLOCK);
    if (n == NULL || (n->b = ast_new(p, N_MACRO)) == NULL ||
        (take_op(p, "(") && !parse_signature(p, n->b))) {
        return NULL;
    }
    n->a = parse_expr(p);
    if (n->a != NULL && n->a->kind != N_CALL) {
        return misparse(p, "expected a call");
    }
    return n->a != NULL && macro_body(p, n->b, "endcall") != NULL ? n : NULL;
}

static struct node *parse_filter_block(struct parser *p)
{
    struct node *n = ast_new(p, N_FILTER_BLOCK);
    if (n == NULL || (n->b = parse_filters(p, NULL, true)) == NULL) {
        return NULL;
    }
    return with_body(p, n, "endfilter");
}

static struct node *parse_with(struct parser *p)
{
    struct node *n = ast_new(p, N_WITH);
    if (n == NULL || (n->a = ast_new(p, N_TUPLE)) == NULL ||
        (n->c = ast_new(p, N_TUPLE)) == NULL) {
        return NULL;
    }
    while (p->at->kind != TK_STMT_CLOSE) {
        if (n->c->n > 0 && !take_op(p, ",")) {
            return misparse(p, "expected ',' in with");
        }
        struct node *name = p->at->kind == TK_NAME ? ast_new(p, N_NAME) : NULL;
        if (name == NULL) {
            return misparse(p, "expected a name in with");
        }
        name->s = p->at++->s;
        struct node *v = take_op(p, "=") ? parse_expr(p) : NULL;
        if (v == NULL || !ast_add(p, n->c, name, no_name) ||
            !ast_add(p, n->a, v, no_name)) {
            return misparse(p, "expected '=' in with");
        }
    }
    return with_body(p, n, "endwith");
}

/* {% generation %} marks what the model is trained on; its body is text. */
static struct node *parse_generation(struct parser *p)
{
    int loops = p->loops;
    p->loops = 0; /* it is a call block in transformers */
    struct node *n = with_body(p, ast_new(p, N_GENERATION), "endgeneration");
    p->loops = loops;
    return n;
}

/* {{ a }}, or {{ a, b }}, which prints a tuple. */
static struct node *parse_print(struct parser *p)
{
    struct node *n = ast_new(p, N_PRINT);
    p->at++;
    if (n == NULL || (n->a = parse_tuple(p, true)) == NULL) {
        return NULL;
    }
    if (p->at->kind != TK_EXPR_CLOSE) {
        return misparse(p, "expected the end of an expression");
    }
    p->at++;
    return n;
}

static struct node *parse_jump(struct parser *p, enum node_kind kind)
{
    if (p->loops == 0) {
        return misparse(p, "break and continue stand in loops");
    }
    return close_stmt(p) ? ast_new(p, kind) : NULL;
}

static struct node *parse_stmt(struct parser *p)
{
    static const struct {
        const char *word;
        struct node *(*parse)(struct parser *p);
    } stmts[] = {
        {"if",         parse_if          },
        {"for",        parse_for         },
        {"set",        parse_set         },
        {"macro",      parse_macro       },
        {"call",       parse_call_block  },
        {"filter",     parse_filter_block},
        {"with",       parse_with        },
        {"generation", parse_generation  },
    };
    for (size_t i = 0; i < countof(stmts); i++) {
        if (take_stmt(p, stmts[i].word)) {
            return stmts[i].parse(p);
        }
    }
    if (take_stmt(p, "break")) {
        return parse_jump(p, N_BREAK);
    }
    if (take_stmt(p, "continue")) {
        return parse_jump(p, N_CONTINUE);
    }
    p->at++;
    return misparse(p, "a statement aned does not know");
}

/* Does a statement that ends or divides a block stand here? */
static bool at_block_end(const struct parser *p)
{
    static const char *const words[] = {
        "elif",     "else",    "endif",     "endfor",  "endset",
        "endmacro", "endcall", "endfilter", "endwith", "endgeneration"};
    for (size_t i = 0; i < countof(words); i++) {
        if (at_stmt(p, words[i])) {
            return true;
        }
    }
    return p->at->kind == TK_END;
}

static struct node *parse_piece(struct parser *p)
{
    if (p->at->kind == TK_STMT_OPEN) {
        return parse_stmt(p);
    }
    if (p->at->kind != TK_TEXT) {
        return parse_print(p);
    }
    struct node *n = ast_new(p, N_TEXT);
    if (n != NULL) {
        n->s = p->at++->s;
    }
    return n;
}

static struct node *parse_block(struct parser *p)
{
    struct node *n = parse_enter(p) ? ast_new(p, N_BLOCK) : NULL;
    while (n != NULL && !at_block_end(p)) {
        struct node *kid = parse_piece(p);
        if (kid == NULL || !ast_add(p, n, kid, no_name)) {
            return NULL;
        }
    }
    p->depth--;
    return n;
}

/* Has no path from n down more than `left` nodes? */
static bool fits(const struct node *n, unsigned left)
{
    if (n == NULL) {
        return true;
    }
    bool ok = left > 0 && fits(n->a, left - 1) && fits(n->b, left - 1) &&
              fits(n->c, left - 1);
    for (size_t i = 0; ok && i < n->n; i++) {
        ok = fits(n->kids[i], left - 1);
    }
    return ok;
}

int jinja_parse(struct jinja *t, const struct toks *toks, struct err *e)
{
    struct parser p = {
        .t = t, .arena = &t->arena, .toks = toks, .at = toks->t, .e = e};
    struct node *n = parse_block(&p);
    if (n != NULL && p.at->kind != TK_END) {
        p.at++;
        n = misparse(&p, "an end without its beginning");
    }
    if (n == NULL) {
        return ERR_TEMPLATE;
    }
    if (!fits(n, JINJA_TREE_MAX)) {
        return err_set(e, ERR_TEMPLATE,
                       "the chat template: a chain of operators too long, or "
                       "nested too deep (%d parts)",
                       JINJA_TREE_MAX);
    }
    t->root = n;
    return 0;
}
