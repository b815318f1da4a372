/* match_store.c - the configurations and stacks of a matcher.
 *
 * Both are found by hash, so that equal ones are one. When there are too many,
 * those are marked that somebody holds or that a walk is at, with their stacks;
 * the others are freed, and rows that led to them forget it. Numbers stay. */
#include "model/grammar/match_impl.h"

#include <string.h>

/* --- stacks --- */

uint32_t stack_push(struct matcher *m, uint32_t ret, uint32_t below)
{
    uint32_t *bucket = &m->stack_table[hash_pair(ret, below) % MATCH_TABLE];
    for (uint32_t i = *bucket; i != 0; i = m->stacks[i].chain) {
        if (m->stacks[i].ret == ret && m->stacks[i].below == below) {
            return i;
        }
    }
    uint32_t depth = below == 0 ? 1 : m->stacks[below].depth + 1;
    if (depth > MATCH_STACK_MAX) {
        return 0;
    }
    uint32_t i = m->free_stack;
    if (i != 0) {
        m->free_stack = m->stacks[i].chain;
    } else {
        if (m->n_stacks >= m->cap_stacks) {
            uint32_t cap = m->cap_stacks == 0 ? 64 : m->cap_stacks * 2;
            struct stack_node *p =
                cap > MATCH_STACKS_MAX
                    ? NULL
                    : realloc(m->stacks, cap * sizeof(*m->stacks));
            if (p == NULL) {
                return 0;
            }
            m->stacks = p;
            m->cap_stacks = cap;
        }
        i = m->n_stacks++;
    }
    m->stacks[i] = (struct stack_node){.ret = ret,
                                       .below = below,
                                       .depth = depth,
                                       .chain = *bucket,
                                       .used = true};
    *bucket = i;
    m->live_stacks++;
    return i;
}

/* --- forgetting --- */

static void mark(struct matcher *m, match_t s)
{
    struct config *c = m->configs[s];
    if (s == MATCH_DEAD || c == NULL || c->mark) {
        return;
    }
    c->mark = true;
    for (uint32_t k = 0; k < c->n_heads; k++) {
        for (uint32_t i = c->heads[k].stack; i != 0 && !m->stacks[i].mark;
             i = m->stacks[i].below) {
            m->stacks[i].mark = true;
        }
    }
}

static size_t config_bytes(const struct matcher *m, uint32_t n_heads)
{
    return sizeof(struct config) + m->g->n_classes * sizeof(match_t) +
           n_heads * sizeof(struct head);
}

static void sweep_stacks(struct matcher *m)
{
    memset(m->stack_table, 0, MATCH_TABLE * sizeof(*m->stack_table));
    m->free_stack = 0;
    m->live_stacks = 0;
    for (uint32_t i = 1; i < m->n_stacks; i++) {
        struct stack_node *k = &m->stacks[i];
        k->used = k->used && k->mark;
        k->mark = false;
        uint32_t *bucket =
            k->used
                ? &m->stack_table[hash_pair(k->ret, k->below) % MATCH_TABLE]
                : &m->free_stack;
        k->chain = *bucket;
        *bucket = i;
        m->live_stacks += k->used;
    }
}

/* Of a configuration that stays: steps that led to one that goes. */
static void forget_steps(struct matcher *m, struct config *c)
{
    for (uint32_t k = 0; k < m->g->n_classes; k++) {
        match_t to = c->next[k];
        if (to != NOT_KNOWN && to != MATCH_DEAD &&
            (m->configs[to] == NULL || !m->configs[to]->mark)) {
            c->next[k] = NOT_KNOWN;
        }
    }
    if (c->loop.next != MATCH_DEAD &&
        (m->configs[c->loop.next] == NULL ||
         !m->configs[c->loop.next]->mark)) {
        c->loop_known = false;
        c->loop = (struct match_loop){0};
    }
}

static void sweep_configs(struct matcher *m)
{
    memset(m->config_table, 0, MATCH_TABLE * sizeof(*m->config_table));
    for (uint32_t i = 1; i < m->n_configs; i++) {
        if (m->configs[i] != NULL && m->configs[i]->mark) {
            forget_steps(m, m->configs[i]);
        }
    }
    for (uint32_t i = 1; i < m->n_configs; i++) {
        struct config *c = m->configs[i];
        if (c == NULL) {
            continue;
        }
        if (!c->mark) {
            m->bytes -= config_bytes(m, c->n_heads);
            m->live_configs--;
            free(c);
            m->configs[i] = NULL;
            continue;
        }
        c->mark = false;
        uint32_t *bucket = &m->config_table[c->hash % MATCH_TABLE];
        c->chain = *bucket;
        *bucket = i;
    }
}

/* Forget what nobody holds. m->heads keeps its stacks. */
static void collect(struct matcher *m, match_t keep)
{
    for (uint32_t i = 1; i < m->n_configs; i++) {
        if (m->configs[i] != NULL && m->configs[i]->held > 0) {
            mark(m, i);
        }
    }
    for (uint32_t i = 0; m->path != NULL && i < *m->path_n; i++) {
        mark(m, m->path[i]);
    }
    if (keep != MATCH_DEAD) {
        mark(m, keep);
    }
    for (uint32_t k = 0; k < m->n_heads; k++) {
        for (uint32_t i = m->heads[k].stack; i != 0 && !m->stacks[i].mark;
             i = m->stacks[i].below) {
            m->stacks[i].mark = true;
        }
    }
    sweep_stacks(m);
    sweep_configs(m);
    m->free_config = 1; /* where to look for a free place */
}

/* --- configurations --- */

static uint32_t hash_heads(const struct matcher *m)
{
    uint32_t h = m->may_end;
    for (uint32_t k = 0; k < m->n_heads; k++) {
        h = hash_pair(h ^ m->heads[k].state, m->heads[k].stack + k);
    }
    return h;
}

static uint32_t free_place(struct matcher *m)
{
    for (; m->free_config != 0 && m->free_config < m->n_configs;
         m->free_config++) {
        if (m->configs[m->free_config] == NULL) {
            return m->free_config++;
        }
    }
    if (m->n_configs >= m->cap_configs) {
        uint32_t cap = m->cap_configs == 0 ? 64 : m->cap_configs * 2;
        struct config **p = realloc(m->configs, cap * sizeof(struct config *));
        if (p == NULL) {
            return 0;
        }
        p[0] = NULL;
        m->configs = p;
        m->cap_configs = cap;
    }
    m->configs[m->n_configs] = NULL;
    return m->n_configs++;
}

match_t store_config(struct matcher *m, match_t keep)
{
    uint32_t hash = hash_heads(m);
    uint32_t *bucket = &m->config_table[hash % MATCH_TABLE];
    size_t heads = m->n_heads * sizeof(struct head);
    for (uint32_t i = *bucket; i != 0; i = m->configs[i]->chain) {
        const struct config *c = m->configs[i];
        if (c->hash == hash && c->n_heads == m->n_heads &&
            c->may_end == m->may_end &&
            (heads == 0 || memcmp(c->heads, m->heads, heads) == 0)) {
            return i;
        }
    }
    size_t bytes = config_bytes(m, m->n_heads);
    if (m->live_configs >= MATCH_CONFIGS_MAX ||
        m->bytes + bytes > MATCH_BYTES_MAX ||
        m->live_stacks > MATCH_STACKS_MAX / 2) {
        collect(m, keep);
    }
    struct config *c = m->bytes + bytes > 2 * MATCH_BYTES_MAX
                           ? NULL
                           : malloc(bytes);
    uint32_t i = c != NULL ? free_place(m) : 0;
    if (i == 0) {
        free(c);
        return MATCH_DEAD;
    }
    *c = (struct config){.serial = ++m->serial,
                         .n_heads = m->n_heads,
                         .hash = hash,
                         .may_end = m->may_end,
                         .chain = *bucket};
    for (uint32_t k = 0; k < m->g->n_classes; k++) {
        c->next[k] = NOT_KNOWN;
    }
    c->heads = (void *)(c->next + m->g->n_classes);
    if (heads > 0) {
        memcpy(c->heads, m->heads, heads);
    }
    *bucket = i;
    m->configs[i] = c;
    m->live_configs++;
    m->bytes += bytes;
    return i;
}
