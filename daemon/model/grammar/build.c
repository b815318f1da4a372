/* build.c - states, edges and rules of a grammar that is being built.
 *
 * Parsers build automata at once, without a tree between: a part has one state
 * where it begins and one where it ends, as Thompson has it, and states without
 * a byte are skipped when the grammar is compiled. Repetition with bounds would
 * copy its part; instead the part becomes a rule of its own, which is called
 * from one state a repetition: a thousand characters are a thousand states. */
#include "model/grammar/grammar_impl.h"

#include <stdarg.h>
#include <string.h>

void build_init(struct builder *b, struct err *e)
{
    *b = (struct builder){.e = e, .n_edges = 1, .rule = NO_RULE};
    arena_init(&b->arena, GRAMMAR_ARENA_MAX);
}

void build_fini(struct builder *b)
{
    free(b->states);
    free(b->edges);
    free(b->rules);
    arena_fini(&b->arena);
}

int build_fail(struct builder *b, int code, const char *fmt, ...)
{
    if (b->rc == 0) {
        char msg[ERR_MSG_MAX];
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(msg, sizeof(msg), fmt, ap);
        va_end(ap);
        b->rc = err_set(b->e, code, "%s", msg);
    }
    return b->rc;
}

/* Room for one more element in an array that doubles up to `max`. */
static bool room(struct builder *b, void **p, uint32_t n, uint32_t *cap,
                 uint32_t max, size_t size, const char *what)
{
    if (b->rc != 0) {
        return false;
    }
    if (n < *cap) {
        return true;
    }
    if (n >= max) {
        (void)build_fail(b, ERR_TOO_BIG, "the grammar has more than %u %s", max,
                         what);
        return false;
    }
    uint32_t more = *cap == 0 ? 64 : *cap * 2;
    more = more < max ? more : max;
    void *q = realloc(*p, (size_t)more * size);
    if (q == NULL) {
        (void)build_fail(b, ERR_NOMEM, "a grammar of %u %s", more, what);
        return false;
    }
    *p = q;
    *cap = more;
    return true;
}

uint32_t build_state(struct builder *b)
{
    void *p = b->states;
    if (!room(b, &p, b->n_states, &b->cap_states, GRAMMAR_STATES_MAX,
              sizeof(*b->states), "states")) {
        return 0;
    }
    b->states = p;
    b->states[b->n_states] = (struct build_state){.rule = b->rule};
    return b->n_states++;
}

static void add_edge(struct builder *b, uint32_t from, struct edge g)
{
    void *p = b->edges;
    if (!room(b, &p, b->n_edges, &b->cap_edges, GRAMMAR_EDGES_MAX,
              sizeof(*b->edges), "edges")) {
        return;
    }
    b->edges = p;
    g.next = b->states[from].edges;
    b->edges[b->n_edges] = g;
    b->states[from].edges = b->n_edges++;
}

void build_bytes(struct builder *b, uint32_t from, unsigned lo, unsigned hi,
                 uint32_t to)
{
    add_edge(b, from,
             (struct edge){.to = to,
                           .kind = EDGE_BYTES,
                           .lo = (uint8_t)lo,
                           .hi = (uint8_t)hi});
}

void build_empty(struct builder *b, uint32_t from, uint32_t to)
{
    if (from != to) {
        add_edge(b, from, (struct edge){.to = to, .kind = EDGE_EMPTY});
    }
}

void build_call(struct builder *b, uint32_t from, uint32_t rule, uint32_t to)
{
    add_edge(b, from,
             (struct edge){.to = to, .kind = EDGE_CALL, .call = rule});
}

uint32_t build_text(struct builder *b, uint32_t from, const char *p, size_t n)
{
    for (size_t i = 0; i < n && b->rc == 0; i++) {
        uint32_t to = build_state(b);
        unsigned c = (unsigned char)p[i];
        build_bytes(b, from, c, c, to);
        from = to;
    }
    return from;
}

/* --- paths --- */

void path_begin(struct json_path *p, const char *root)
{
    (void)snprintf(p->text, sizeof(p->text), "%s", root);
    p->n = strlen(p->text);
}

size_t path_enter(struct json_path *p, const char *word, const char *name)
{
    size_t n = p->n;
    int more = snprintf(p->text + n, sizeof(p->text) - n, "/%s%s%s", word,
                        name != NULL ? "/" : "", name != NULL ? name : "");
    if (more > 0) {
        size_t left = sizeof(p->text) - 1 - n;
        p->n += (size_t)more < left ? (size_t)more : left;
    }
    return n;
}

void path_leave(struct json_path *p, size_t n)
{
    p->n = n;
    p->text[n] = '\0';
}

/* --- rules --- */

static uint32_t add_rule(struct builder *b, struct build_rule r)
{
    void *p = b->rules;
    if (!room(b, &p, b->n_rules, &b->cap_rules, GRAMMAR_RULES_MAX,
              sizeof(*b->rules), "rules")) {
        return 0;
    }
    b->rules = p;
    b->rules[b->n_rules] = r;
    return b->n_rules++;
}

uint32_t build_rule(struct builder *b, const char *name, uint32_t line)
{
    char *copy = b->rc == 0 ? arena_str(&b->arena, name) : NULL;
    if (copy == NULL) {
        (void)build_fail(b, ERR_TOO_BIG, "the names of the grammar's rules");
        return 0;
    }
    return add_rule(b, (struct build_rule){.start = NO_STATE,
                                           .end = NO_STATE,
                                           .name = copy,
                                           .line = line});
}

uint32_t build_open(struct builder *b, uint32_t rule)
{
    uint32_t before = b->rule;
    b->rule = rule;
    uint32_t start = build_state(b);
    uint32_t end = build_state(b);
    if (b->rc == 0) {
        b->rules[rule].start = start;
        b->rules[rule].end = end;
    }
    return before;
}

void build_close(struct builder *b, uint32_t before)
{
    b->rule = before;
}

/* The states of f, which were made since `first`, as a rule of their own. */
static uint32_t make_rule(struct builder *b, struct frag f, uint32_t first)
{
    struct build_rule r = {.start = f.start, .end = f.end, .name = ""};
    if (b->rule != NO_RULE) {
        r.name = b->rules[b->rule].name;
        r.line = b->rules[b->rule].line;
    }
    uint32_t rule = add_rule(b, r);
    for (uint32_t s = first; s < b->n_states && b->rc == 0; s++) {
        if (b->states[s].rule == b->rule) {
            b->states[s].rule = rule;
        }
    }
    return rule;
}

uint32_t build_repeat_rule(struct builder *b, uint32_t from, uint32_t rule,
                           uint32_t min, uint32_t max)
{
    if (max != BUILD_ANY && (max > GRAMMAR_REPEAT_MAX || min > max)) {
        (void)build_fail(b, max < min ? ERR_INVALID : ERR_TOO_BIG,
                         "a repetition of %u to %u times", min, max);
        return 0;
    }
    if (min > GRAMMAR_REPEAT_MAX) {
        (void)build_fail(b, ERR_TOO_BIG, "a repetition of %u times", min);
        return 0;
    }
    uint32_t end = build_state(b);
    for (uint32_t i = 0; i < min && b->rc == 0; i++) {
        uint32_t to = build_state(b);
        build_call(b, from, rule, to);
        from = to;
    }
    if (max == BUILD_ANY) {
        uint32_t loop = build_state(b);
        build_empty(b, from, loop);
        build_call(b, loop, rule, loop);
        build_empty(b, loop, end);
        return end;
    }
    for (uint32_t i = min; i < max && b->rc == 0; i++) {
        uint32_t to = build_state(b);
        build_empty(b, from, end);
        build_call(b, from, rule, to);
        from = to;
    }
    build_empty(b, from, end);
    return end;
}

struct frag build_repeat(struct builder *b, struct frag f, uint32_t *first,
                         uint32_t min, uint32_t max)
{
    bool bounds = min > 1 || (max != BUILD_ANY && max > 1);
    if (max == 1 && min == 1) {
        return f;
    }
    uint32_t rule = bounds ? make_rule(b, f, *first) : 0;
    *first = bounds ? b->n_states : *first;
    struct frag r = {build_state(b), 0};
    if (bounds) {
        r.end = build_repeat_rule(b, r.start, rule, min, max);
        return r;
    }
    r.end = build_state(b);
    if (max == 0) {
        build_empty(b, r.start, r.end);
        return r;
    }
    uint32_t loop = build_state(b);
    build_empty(b, r.start, loop);
    build_empty(b, loop, f.start);
    build_empty(b, f.end, max == BUILD_ANY ? loop : r.end);
    build_empty(b, min == 0 ? loop : f.end, r.end);
    return r;
}
