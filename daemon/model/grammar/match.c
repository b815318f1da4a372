/* match.c - steps of a matcher: a configuration behind a byte.
 *
 * A step takes the heads of a configuration that have an edge for the byte, and
 * follows from their targets what needs no byte: empty edges, calls (the stack
 * grows), ends of rules (it shrinks). What remains are heads that wait for a
 * byte, sorted: equal sets are the same configuration. Left recursion was
 * refused, so this ends. */
#include "model/grammar/match_impl.h"

#include <string.h>

/* --- following without a byte --- */

static void visit(struct matcher *m, uint32_t state, uint32_t stack)
{
    uint32_t i = hash_pair(state, stack);
    for (;; i++) {
        uint32_t at = m->seen[i % MATCH_SEEN];
        if (at == 0) {
            break;
        }
        const struct head *h = &m->work[at - 1];
        if (h->state == state && h->stack == stack) {
            return;
        }
    }
    if (m->n_work == MATCH_HEADS_MAX) {
        m->over = true;
        return;
    }
    m->work[m->n_work++] = (struct head){state, stack};
    m->seen[i % MATCH_SEEN] = m->n_work;
}

static void clear_seen(struct matcher *m)
{
    if (m->n_work > MATCH_SEEN / 16) {
        memset(m->seen, 0, MATCH_SEEN * sizeof(*m->seen));
    } else {
        for (uint32_t k = 0; k < m->n_work; k++) {
            uint32_t i = hash_pair(m->work[k].state, m->work[k].stack);
            /* A place of an earlier head may be empty again: look on. */
            while (m->seen[i % MATCH_SEEN] != k + 1) {
                i++;
            }
            m->seen[i % MATCH_SEEN] = 0;
        }
    }
    m->n_work = 0;
}

static void follow(struct matcher *m, struct head h)
{
    const struct grammar *g = m->g;
    const struct gram_state *s = &g->states[h.state];
    if (s[1].bytes > s->bytes) {
        m->heads[m->n_heads++] = h;
    }
    if (g->ends[h.state]) {
        if (h.stack == 0) {
            m->may_end = true;
        } else {
            const struct stack_node *k = &m->stacks[h.stack];
            visit(m, k->ret, k->below);
        }
    }
    for (uint32_t i = s->moves; i < s[1].moves; i++) {
        const struct move *v = &g->moves[i];
        if (v->call == NO_STATE) {
            visit(m, v->to, h.stack);
        } else if (v->to == NO_STATE) {
            visit(m, v->call, h.stack);
        } else {
            uint32_t stack = stack_push(m, v->to, h.stack);
            if (stack == 0) {
                m->over = true;
                return;
            }
            visit(m, v->call, stack);
        }
    }
}

static int by_head(const void *a, const void *b)
{
    const struct head *x = a;
    const struct head *y = b;
    if (x->state != y->state) {
        return x->state < y->state ? -1 : 1;
    }
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/* The configuration of what was visited. */
static match_t settle(struct matcher *m, match_t keep)
{
    m->n_heads = 0;
    m->may_end = false;
    for (uint32_t i = 0; i < m->n_work && !m->over; i++) {
        follow(m, m->work[i]);
    }
    clear_seen(m);
    if (m->over || (m->n_heads == 0 && !m->may_end)) {
        return MATCH_DEAD;
    }
    if (m->n_heads > 1) {
        qsort(m->heads, m->n_heads, sizeof(*m->heads), by_head);
    }
    return store_config(m, keep);
}

static match_t step(struct matcher *m, match_t at, uint8_t byte)
{
    const struct grammar *g = m->g;
    const struct config *c = m->configs[at];
    m->over = false;
    for (uint32_t k = 0; k < c->n_heads; k++) {
        const struct gram_state *s = &g->states[c->heads[k].state];
        for (uint32_t i = s->bytes; i < s[1].bytes; i++) {
            if (byte >= g->bytes[i].lo && byte <= g->bytes[i].hi) {
                visit(m, g->bytes[i].to, c->heads[k].stack);
            }
        }
    }
    return m->n_work == 0 ? MATCH_DEAD : settle(m, at);
}

/* --- the interface --- */

match_t match_byte(struct matcher *m, match_t s, uint8_t byte)
{
    if (s == MATCH_DEAD) {
        return MATCH_DEAD;
    }
    uint32_t class = m->g->class_of[byte];
    match_t to = m->configs[s]->next[class];
    if (to == NOT_KNOWN) {
        to = step(m, s, byte);
        m->configs[s]->next[class] = to;
    }
    return to;
}

bool match_bytes(struct matcher *m, match_t *s, const void *p, size_t n)
{
    const uint8_t *bytes = p;
    match_t at = *s;
    for (size_t i = 0; i < n && at != MATCH_DEAD; i++) {
        at = match_byte(m, at, bytes[i]);
    }
    if (at == MATCH_DEAD) {
        return false;
    }
    match_hold(m, at);
    match_drop(m, *s);
    *s = at;
    return true;
}

bool match_may_end(const struct matcher *m, match_t s)
{
    return s != MATCH_DEAD && m->configs[s]->may_end;
}

int match_only_byte(struct matcher *m, match_t s)
{
    int only = -1;
    if (s == MATCH_DEAD || match_may_end(m, s)) {
        return -1;
    }
    for (uint32_t k = 0; k < m->g->n_classes; k++) {
        uint8_t byte = m->g->byte_of[k];
        if (match_byte(m, s, byte) == MATCH_DEAD) {
            continue;
        }
        if (only >= 0 || m->g->class_size[k] > 1) {
            return -1;
        }
        only = byte;
    }
    return only;
}

match_t match_start(const struct matcher *m)
{
    return m->start;
}

void match_hold(struct matcher *m, match_t s)
{
    if (s != MATCH_DEAD) {
        m->configs[s]->held++;
    }
}

void match_drop(struct matcher *m, match_t s)
{
    if (s != MATCH_DEAD) {
        must(m->configs[s]->held > 0);
        m->configs[s]->held--;
    }
}

uint64_t match_serial(const struct matcher *m, match_t s)
{
    return s == MATCH_DEAD ? 0 : m->configs[s]->serial;
}

void match_path(struct matcher *m, const match_t *path, const uint32_t *n)
{
    m->path = path;
    m->path_n = n;
}

static bool make(struct matcher *m)
{
    m->n_configs = 1;
    m->n_stacks = 1;
    m->config_table = calloc(MATCH_TABLE, sizeof(*m->config_table));
    m->stack_table = calloc(MATCH_TABLE, sizeof(*m->stack_table));
    m->heads = calloc(MATCH_HEADS_MAX, sizeof(*m->heads));
    m->work = calloc(MATCH_HEADS_MAX, sizeof(*m->work));
    m->seen = calloc(MATCH_SEEN, sizeof(*m->seen));
    return m->config_table != NULL && m->stack_table != NULL &&
           m->heads != NULL && m->work != NULL && m->seen != NULL;
}

int matcher_new(const struct grammar *g, struct matcher **ret, struct err *e)
{
    struct matcher *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        return err_set(e, ERR_NOMEM, "a matcher");
    }
    m->g = g;
    if (!make(m)) {
        matcher_free(m);
        return err_set(e, ERR_NOMEM, "a matcher");
    }
    visit(m, g->start, 0);
    m->start = settle(m, MATCH_DEAD);
    if (m->start == MATCH_DEAD) {
        matcher_free(m);
        return err_set(e, ERR_TOO_BIG,
                       "the grammar may begin in too many ways (more than %u, "
                       "or %u rules in each other)",
                       MATCH_HEADS_MAX, MATCH_STACK_MAX);
    }
    match_hold(m, m->start);
    *ret = m;
    return 0;
}

void matcher_free(struct matcher *m)
{
    if (m == NULL) {
        return;
    }
    for (uint32_t i = 1; i < m->n_configs && m->configs != NULL; i++) {
        free(m->configs[i]);
    }
    free(m->configs);
    free(m->config_table);
    free(m->stacks);
    free(m->stack_table);
    free(m->heads);
    free(m->work);
    free(m->seen);
    free(m);
}
