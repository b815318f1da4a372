/* match_loop.c - where characters of a configuration lead, for walks over a
 * vocabulary.
 *
 * In the body of a string almost every character leads to the same
 * configuration. When that is known, a walk need not go through the tokens that
 * consist of such characters. It is found by trying: 'a' names the
 * configuration, the other characters are compared. Characters beyond ASCII are
 * tried by the structure of UTF-8, one byte of each class. */
#include "model/grammar/match_impl.h"

enum { CONT_CLASSES_MAX = 8 }; /* classes of continuation bytes tried */

/* Whether the rest of a character, its next byte in lo..hi and then `more`
 * others, leads to `to` whatever it is. */
static bool rest_leads(struct matcher *m, match_t s, unsigned lo, unsigned hi,
                       unsigned more, match_t to)
{
    const struct grammar *g = m->g;
    unsigned tried = 0;
    bool ok = s != MATCH_DEAD;
    match_hold(m, s);
    for (unsigned c = lo; c <= hi && ok; c++) {
        if (c > lo && g->class_of[c] == g->class_of[c - 1]) {
            continue;
        }
        match_t next = match_byte(m, s, (uint8_t)c);
        ok = ++tried <= CONT_CLASSES_MAX &&
             (more == 0 ? next == to
                        : rest_leads(m, next, 0x80, 0xBF, more - 1, to));
    }
    match_drop(m, s);
    return ok;
}

/* How characters beyond ASCII begin: the first byte, the range of the next one,
 * and how many more follow. */
static const struct {
    uint8_t first, last, lo, hi, more;
} kinds[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 0},
    {0xE0, 0xE0, 0xA0, 0xBF, 1},
    {0xE1, 0xEC, 0x80, 0xBF, 1},
    {0xED, 0xED, 0x80, 0x9F, 1},
    {0xEE, 0xEF, 0x80, 0xBF, 1},
    {0xF0, 0xF0, 0x90, 0xBF, 2},
    {0xF1, 0xF3, 0x80, 0xBF, 2},
    {0xF4, 0xF4, 0x80, 0x8F, 2},
};

static bool all_wide(struct matcher *m, match_t s, match_t to)
{
    for (size_t k = 0; k < countof(kinds); k++) {
        for (unsigned c = kinds[k].first; c <= kinds[k].last; c++) {
            if (c > kinds[k].first &&
                m->g->class_of[c] == m->g->class_of[c - 1]) {
                continue;
            }
            match_t next = match_byte(m, s, (uint8_t)c);
            if (!rest_leads(m, next, kinds[k].lo, kinds[k].hi, kinds[k].more,
                            to)) {
                return false;
            }
        }
    }
    return true;
}

const struct match_loop *match_loop(struct matcher *m, match_t s)
{
    static const struct match_loop none = {0};
    if (s == MATCH_DEAD) {
        return &none;
    }
    if (m->configs[s]->loop_known) {
        return &m->configs[s]->loop;
    }
    match_hold(m, s);
    struct match_loop loop = {.next = match_byte(m, s, 'a')};
    if (loop.next != MATCH_DEAD) {
        match_hold(m, loop.next);
        for (unsigned c = 0; c < 128; c++) {
            if (match_byte(m, s, (uint8_t)c) == loop.next) {
                loop.ascii[c / 64] |= (uint64_t)1 << c % 64;
            }
        }
        loop.wide = all_wide(m, s, loop.next);
        match_drop(m, loop.next);
    }
    match_drop(m, s);
    m->configs[s]->loop = loop;
    m->configs[s]->loop_known = true;
    return &m->configs[s]->loop;
}

/* Every character that is plain. */
static bool all_plain(const struct match_loop *l)
{
    uint64_t low = ~(uint64_t)0 << 32 & ~((uint64_t)1 << '"');
    uint64_t high = ~(uint64_t)0 & ~((uint64_t)1 << ('\\' - 64)) &
                    ~((uint64_t)1 << 63);
    return l->next != MATCH_DEAD && l->wide && (l->ascii[0] & low) == low &&
           (l->ascii[1] & high) == high;
}

uint32_t match_plain(struct matcher *m, match_t s)
{
    uint32_t n = 0;
    match_t at = s;
    if (s == MATCH_DEAD || m->configs[s]->plain >= MATCH_PLAIN_MIN) {
        return s == MATCH_DEAD ? 0 : m->configs[s]->plain;
    }
    match_hold(m, s);
    while (n < MATCH_PLAIN_MAX) {
        const struct match_loop *l = match_loop(m, at);
        if (!all_plain(l)) {
            break;
        }
        if (l->next == at) {
            n = UINT32_MAX;
            break;
        }
        n++;
        at = l->next;
    }
    /* Those on the way know it for the rest of it. */
    uint32_t left = n;
    for (at = s; left > 0 && at != MATCH_DEAD;
         at = m->configs[at]->loop.next) {
        m->configs[at]->plain = left;
        if (left == UINT32_MAX && m->configs[at]->loop.next == at) {
            break;
        }
        left -= left != UINT32_MAX;
    }
    match_drop(m, s);
    return n;
}

/* No plain character, and no beginning of one, can follow s. */
static bool none_plain(struct matcher *m, match_t s)
{
    bool none = true;
    match_hold(m, s);
    for (unsigned c = 0x20; c <= 0xF4 && none; c++) {
        bool plain = c < 0x7F ? c != '"' && c != '\\' : c >= 0xC2;
        none = !plain || match_byte(m, s, (uint8_t)c) == MATCH_DEAD;
    }
    match_drop(m, s);
    return none;
}

bool match_plain_ends(struct matcher *m, match_t s)
{
    uint32_t n = match_plain(m, s);
    match_t at = s;
    if (s == MATCH_DEAD || n >= MATCH_PLAIN_MIN) {
        return false;
    }
    for (; n > 0; n--) {
        at = match_loop(m, at)->next;
    }
    return none_plain(m, at);
}

/* --- plain characters that lead to several configurations --- */

/* Where a string is looked for, each character may follow for ever, but they do
 * not all lead to the same. */

enum { SET_MAX = 64 };

struct set {
    match_t at[SET_MAX]; /* held */
    unsigned n;
};

static bool add(struct matcher *m, struct set *set, match_t s)
{
    for (unsigned i = 0; i < set->n; i++) {
        if (set->at[i] == s) {
            return true;
        }
    }
    if (s == MATCH_DEAD || set->n == SET_MAX) {
        return false;
    }
    match_hold(m, s);
    set->at[set->n++] = s;
    return true;
}

/* add for the rest of a character, as rest_leads has it. */
static bool add_rest(struct matcher *m, struct set *set, match_t s, unsigned lo,
                     unsigned hi, unsigned more)
{
    bool ok = s != MATCH_DEAD;
    match_hold(m, s);
    for (unsigned c = lo; c <= hi && ok; c++) {
        if (c > lo && m->g->class_of[c] == m->g->class_of[c - 1]) {
            continue;
        }
        match_t next = match_byte(m, s, (uint8_t)c);
        ok = more == 0 ? add(m, set, next)
                       : add_rest(m, set, next, 0x80, 0xBF, more - 1);
    }
    match_drop(m, s);
    return ok;
}

/* Add what every plain character leads to from s; false: one leads nowhere. */
static bool add_plain(struct matcher *m, struct set *set, match_t s)
{
    bool ok = true;
    for (unsigned c = 0x20; c < 0x7F && ok; c++) {
        ok = c == '"' || c == '\\' ||
             add(m, set, match_byte(m, s, (uint8_t)c));
    }
    for (size_t k = 0; k < countof(kinds); k++) {
        for (unsigned c = kinds[k].first; c <= kinds[k].last && ok; c++) {
            if (c == kinds[k].first ||
                m->g->class_of[c] != m->g->class_of[c - 1]) {
                ok = add_rest(m, set, match_byte(m, s, (uint8_t)c),
                              kinds[k].lo, kinds[k].hi, kinds[k].more);
            }
        }
    }
    return ok;
}

bool match_plain_always(struct matcher *m, match_t s)
{
    struct set set = {.n = 0};
    bool ok = add(m, &set, s);
    for (unsigned i = 0; i < set.n && ok; i++) {
        ok = add_plain(m, &set, set.at[i]);
    }
    for (unsigned i = 0; i < set.n; i++) {
        match_drop(m, set.at[i]);
    }
    return ok;
}
