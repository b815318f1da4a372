/* schema_meet.c - strings of which several words say something at once: a
 * pattern, a format, bounds of the length, what a pattern must not begin with.
 *
 * Each is a grammar of its own, of JSON strings. Their matchers go over all
 * texts side by side: what they are at together is one state here, so the whole
 * is an automaton of the texts that all allow. Patterns and formats are
 * regular, so there is an end to it; GRAMMAR_MEET_MAX and GRAMMAR_MEET_HEADS
 * are it at the latest.
 *
 * Texts are compared as they are spelled. A pattern that must not begin so
 * (PART_NEVER, PART_NOT) is therefore only taken beside one that says all, from
 * ^ to $: there a character has one spelling. */
#include <string.h>

#include "model/grammar/match_impl.h"
#include "model/grammar/schema.h"

#define TABLE (4 * GRAMMAR_MEET_MAX)

struct place {
    match_t at[STRING_PARTS_MAX]; /* held */
    uint32_t state;
};

struct meet {
    struct schema *c;
    const struct string_part *parts;
    unsigned n;
    struct grammar *grammars[STRING_PARTS_MAX];
    struct matcher *matchers[STRING_PARTS_MAX];
    struct place *places; /* (GRAMMAR_MEET_MAX) */
    uint32_t n_places;
    uint64_t heads; /* of all places: what the work grows with */
    uint32_t *table; /* (TABLE) place + 1, by hash */
};

/* --- the parts --- */

/* The strings of one part, in a builder of their own. */
static int part_grammar(struct schema *c, const struct string_part *p,
                        struct grammar **ret)
{
    struct builder b;
    struct json_rules r;
    build_init(&b, c->b->e);
    json_rules(&b, &r);
    uint32_t rule = build_rule(&b, c->path.text, 0);
    uint32_t before = build_open(&b, rule);
    if (b.rc == 0) {
        uint32_t end = b.rules[rule].end;
        uint32_t body = build_text(&b, b.rules[rule].start, "\"", 1);
        uint32_t done = build_state(&b);
        if (p->pattern == NULL) {
            build_empty(
                &b, build_repeat_rule(&b, body, r.character, p->min, p->max),
                done);
        } else {
            build_regex(&b, p->pattern, p->n, true, p->kind == PART_MUST,
                        r.character, body, done);
        }
        if (p->kind == PART_NEVER) {
            build_empty(&b, done, end);
        } else {
            build_bytes(&b, done, '"', '"', end);
        }
    }
    build_close(&b, before);
    int rc = build_finish(&b, rule, ret);
    return rc != 0
               ? err_prefix(c->b->e, rc, "schema %s: %s", c->path.text, p->word)
               : 0;
}

static int open_parts(struct meet *m)
{
    struct builder *b = m->c->b;
    for (unsigned i = 0; i < m->n; i++) {
        RETERR(part_grammar(m->c, &m->parts[i], &m->grammars[i]));
        RETERR(matcher_new(m->grammars[i], &m->matchers[i], b->e));
    }
    m->places = calloc(GRAMMAR_MEET_MAX, sizeof(*m->places));
    m->table = calloc(TABLE, sizeof(*m->table));
    return m->places != NULL && m->table != NULL
               ? 0
               : err_set(b->e, ERR_NOMEM, "a schema");
}

static void close_parts(struct meet *m)
{
    for (unsigned i = 0; i < m->n; i++) {
        for (uint32_t k = 0; k < m->n_places; k++) {
            match_drop(m->matchers[i], m->places[k].at[i]);
        }
        matcher_free(m->matchers[i]);
        grammar_free(m->grammars[i]);
    }
    free(m->places);
    free(m->table);
}

/* --- places --- */

/* The state of a place, found or made; NO_STATE: there is no text from there.
 */
static uint32_t state_at(struct meet *m, const match_t *at)
{
    uint32_t h = 0;
    for (unsigned i = 0; i < m->n; i++) {
        enum part_kind kind = m->parts[i].kind;
        if (kind == PART_MUST
                ? at[i] == MATCH_DEAD
                : kind == PART_NEVER && match_may_end(m->matchers[i], at[i])) {
            return NO_STATE;
        }
        h = (h ^ at[i]) * 0x9E3779B1u;
    }
    for (h = h >> 8 & (TABLE - 1); m->table[h] != 0;
         h = (h + 1) & (TABLE - 1)) {
        struct place *p = &m->places[m->table[h] - 1];
        if (memcmp(p->at, at, m->n * sizeof(*at)) == 0) {
            return p->state;
        }
    }
    if (m->n_places == GRAMMAR_MEET_MAX || m->heads > GRAMMAR_MEET_HEADS) {
        schema_deny(m->c, ERR_UNSUPPORTED, m->parts[0].word,
                    "too large together with the other words about the string");
        return NO_STATE;
    }
    struct place *p = &m->places[m->n_places++];
    memcpy(p->at, at, m->n * sizeof(*at));
    p->state = build_state(m->c->b);
    m->table[h] = m->n_places;
    for (unsigned i = 0; i < m->n; i++) {
        match_hold(m->matchers[i], at[i]);
        m->heads += at[i] != MATCH_DEAD
                        ? m->matchers[i]->configs[at[i]]->n_heads
                        : 0;
    }
    return p->state;
}

/* Where a byte leads from a place. */
static uint32_t behind(struct meet *m, const struct place *p, unsigned byte)
{
    match_t next[STRING_PARTS_MAX];
    for (unsigned i = 0; i < m->n; i++) {
        next[i] = match_byte(m->matchers[i], p->at[i], (uint8_t)byte);
    }
    return state_at(m, next);
}

static bool may_end(const struct meet *m, const struct place *p)
{
    bool ok = true;
    for (unsigned i = 0; i < m->n; i++) {
        bool ends = match_may_end(m->matchers[i], p->at[i]);
        ok = ok && (m->parts[i].kind == PART_MUST ? ends : !ends);
    }
    return ok;
}

/* The edges of a place: one for all bytes in a row that lead to one state. */
static void leave(struct meet *m, uint32_t place, uint32_t to)
{
    struct builder *b = m->c->b;
    uint32_t from = m->places[place].state;
    uint32_t last = NO_STATE;
    unsigned first = 0;
    if (may_end(m, &m->places[place])) {
        build_empty(b, from, to);
    }
    for (unsigned byte = 0; byte <= 256 && b->rc == 0; byte++) {
        uint32_t next =
            byte < 256 ? behind(m, &m->places[place], byte) : NO_STATE;
        if (next == last) {
            continue;
        }
        if (last != NO_STATE) {
            build_bytes(b, from, first, byte - 1, last);
        }
        first = byte;
        last = next;
    }
}

static void meet(struct meet *m, uint32_t from, uint32_t to)
{
    struct builder *b = m->c->b;
    match_t start[STRING_PARTS_MAX];
    for (unsigned i = 0; i < m->n; i++) {
        start[i] = match_start(m->matchers[i]);
    }
    uint32_t first = state_at(m, start);
    if (first != NO_STATE) {
        build_empty(b, from, first);
    }
    for (uint32_t i = 0; i < m->n_places && b->rc == 0; i++) {
        leave(m, i, to);
    }
}

void schema_meet(struct schema *c, const struct string_part *parts, unsigned n,
                 uint32_t from, uint32_t to)
{
    struct meet m = {.c = c, .parts = parts, .n = n};
    if (c->b->rc == 0) {
        c->b->rc = open_parts(&m);
        if (c->b->rc == 0) {
            meet(&m, from, to);
        }
        close_parts(&m);
    }
}
