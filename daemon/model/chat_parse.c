/* chat_parse.c - tokens into a tree: the statements of a template, by
 * recursive descent; chat_parse_expr.c has the expressions.
 *
 * Two limits keep the stack small. The parser counts how deep it is
 * (CHAT_DEPTH_MAX). A chain such as a.b.c or a + b + c is parsed by a loop and
 * yet makes a tree as deep as it is long, so the finished tree is measured
 * (CHAT_TREE_MAX): the evaluator recurses along its paths. */
#include "model/chat_parse.h"

static struct node *parse_block(struct parser *p);

static bool close_stmt(struct parser *p)
{
    if (p->t->kind != TK_STMT_CLOSE) {
        (void)chat_misparse(p, "the end of a statement");
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
        (void)chat_misparse(p, word);
        return false;
    }
    return close_stmt(p);
}

static struct node *parse_if(struct parser *p)
{
    struct node *n = chat_node(p, N_IF);
    bool last = false;
    if (n == NULL) {
        return NULL;
    }
    do {
        struct node *condition = last ? NULL : chat_expr(p);
        if (p->failed || !close_stmt(p)) {
            return NULL;
        }
        struct node *body = parse_block(p);
        if (body == NULL || !chat_node_add(p, n, condition, no_name) ||
            !chat_node_add(p, n, body, no_name)) {
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
    struct node *n = chat_node(p, N_FOR);
    if (n == NULL || p->t->kind != TK_NAME) {
        return chat_misparse(p, "a loop's name");
    }
    n->s = p->t++->s;
    if (take_op(p, ",")) {
        if (p->t->kind != TK_NAME) {
            return chat_misparse(p, "a loop's name");
        }
        n->s2 = p->t++->s;
    }
    if (!take_word(p, "in")) {
        return chat_misparse(p, "in");
    }
    n->a = chat_expr_or(p);
    if (n->a != NULL && take_word(p, "if")) {
        n->b = chat_expr(p);
    }
    if (p->failed || !close_stmt(p)) {
        return NULL;
    }
    struct node *body = parse_block(p);
    if (body == NULL || !chat_node_add(p, n, body, no_name)) {
        return NULL;
    }
    if (take_stmt(p, "else")) {
        struct node *other = close_stmt(p) ? parse_block(p) : NULL;
        if (other == NULL || !chat_node_add(p, n, other, no_name)) {
            return NULL;
        }
    }
    return want_stmt(p, "endfor") ? n : NULL;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = chat_node(p, N_SET);
    if (n == NULL || p->t->kind != TK_NAME) {
        return chat_misparse(p, "a name to set");
    }
    n->s = p->t++->s;
    if (take_op(p, ".")) {
        n->s2 = p->t++->s;
    }
    if (take_op(p, "=")) {
        n->a = chat_expr(p);
        return n->a != NULL && close_stmt(p) ? n : NULL;
    }
    struct node *body = close_stmt(p) ? parse_block(p) : NULL;
    if (body == NULL || !chat_node_add(p, n, body, no_name)) {
        return NULL;
    }
    return want_stmt(p, "endset") ? n : NULL;
}

/* A macro is skipped; a call of it is then a call of an unknown function. */
static struct node *parse_macro(struct parser *p)
{
    while (p->t->kind != TK_STMT_CLOSE && p->t->kind != TK_END) {
        p->t++;
    }
    if (!close_stmt(p) || parse_block(p) == NULL || !want_stmt(p, "endmacro")) {
        return NULL;
    }
    return chat_node(p, N_BLOCK);
}

/* {% generation %} marks what the model is trained on; its body is text. */
static struct node *parse_generation(struct parser *p)
{
    struct node *n = close_stmt(p) ? parse_block(p) : NULL;
    return n != NULL && want_stmt(p, "endgeneration") ? n : NULL;
}

static struct node *parse_jump(struct parser *p, enum node_kind kind)
{
    return close_stmt(p) ? chat_node(p, kind) : NULL;
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
    return chat_misparse(p, "an unknown statement");
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
        struct node *n = chat_node(p, N_TEXT);
        if (n != NULL) {
            n->s = p->t++->s;
        }
        return n;
    }
    struct node *n = chat_node(p, N_PRINT);
    p->t++; /* {{ */
    if (n == NULL || (n->a = chat_expr(p)) == NULL) {
        return NULL;
    }
    if (p->t->kind != TK_EXPR_CLOSE) {
        return chat_misparse(p, "the end of an expression");
    }
    p->t++;
    return n;
}

static struct node *parse_block(struct parser *p)
{
    struct node *n = chat_node(p, N_BLOCK);
    if (++p->depth > CHAT_DEPTH_MAX) {
        return chat_misparse(p, "nested too deep");
    }
    while (n != NULL && !at_block_end(p)) {
        struct node *kid = parse_piece(p);
        if (kid == NULL || !chat_node_add(p, n, kid, no_name)) {
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
    bool ok = left > 0 && fits(n->a, left - 1) && fits(n->b, left - 1);
    for (size_t i = 0; ok && i < n->n; i++) {
        ok = fits(n->kids[i], left - 1);
    }
    return ok;
}

int chat_parse(struct arena *a, const struct toks *t, struct node **ret,
               struct err *e)
{
    struct err local = {0};
    struct parser p = {.arena = a, .t = t->t, .e = e != NULL ? e : &local};
    struct node *n = parse_block(&p);
    if (n != NULL && p.t->kind != TK_END) {
        p.t++;
        n = chat_misparse(&p, "an end without its beginning");
    }
    if (n == NULL) {
        return ERR_TEMPLATE;
    }
    if (!fits(n, CHAT_TREE_MAX)) {
        return err_set(e, ERR_TEMPLATE,
                       "the chat template: a chain of operators too long, or "
                       "nested too deep (%d parts)",
                       CHAT_TREE_MAX);
    }
    *ret = n;
    return 0;
}
