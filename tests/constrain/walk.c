/* walk.c - texts of a schema's grammar, without a model, for suite.py.
 *
 * A line of JSON comes in, a line of JSON goes out:
 *
 *   {"schema": S, "whole": [text..], "begun": [text..], "walks": n, "seed": k}
 *   {"whole": [bool..], "ended": [text, true or null..], "walks": [text..]}
 *   {"error": message}      the schema is refused
 *
 * whole: whether a text matches. ended: a text that is not over, with a few
 * bytes that end it; true: they were not found; null: no text of the grammar
 * begins so. walks: random texts, each place of the grammar as likely as
 * another; after WALK_BYTES they take a short way to an end.
 */
#include <string.h>

#include "model/grammar/match.h"
#include "proto/json.h"
#include "proto/limits.h"

enum { WALK_BYTES = 120, PLACES = 12000, COSTS = 8 };

/* A place on the way to an end: behind `byte` of place `from`. */
struct place {
    match_t at;
    uint32_t from;
    uint32_t next; /* place of the same cost, 1-based; 0: none */
    uint8_t byte;
};

struct walk {
    struct matcher *m;
    struct place places[PLACES]; /* held */
    uint32_t n;
    uint32_t first[COSTS]; /* of the places of a cost, modulo COSTS; 1-based */
    bool seen[2 * MATCH_CONFIGS_MAX]; /* by match */
    uint64_t random;
};

static uint32_t draw(struct walk *w, uint32_t below)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->random >> 33) % below;
}

/* --- a set of places --- */

static void add_place(struct walk *w, match_t at, uint32_t from, unsigned byte,
                      unsigned cost)
{
    must(at < countof(w->seen));
    if (at != MATCH_DEAD && w->n < PLACES && !w->seen[at]) {
        uint32_t *first = &w->first[cost % COSTS];
        match_hold(w->m, at);
        w->seen[at] = true;
        w->places[w->n++] = (struct place){at, from, *first, (uint8_t)byte};
        *first = w->n;
    }
}

static void drop_places(struct walk *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        w->seen[w->places[i].at] = false;
        match_drop(w->m, w->places[i].at);
    }
    w->n = 0;
    memset(w->first, 0, sizeof(w->first));
}

/* --- a short end --- */

/* Append the bytes between the first place and place i. */
static void append_way(const struct walk *w, uint32_t i, struct buf *text)
{
    char way[PLACES];
    size_t n = 0;
    for (; i != 0; i = w->places[i].from) {
        way[n++] = (char)w->places[i].byte;
    }
    while (n > 0) {
        buf_put(text, &way[--n], 1);
    }
}

/* What leads to an end comes first, white space last: it takes many forms. */
static unsigned cost_of(unsigned byte)
{
    if (byte == ' ' || byte == '\n' || byte == '\t') {
        return 6;
    }
    return memchr("\"]},:", (int)byte, 5) != NULL ? 1 : 2;
}

/* Append bytes that end the text which is at `at`, and few ones. False: they
 * are not among PLACES places. */
static bool append_end(struct walk *w, match_t at, struct buf *text)
{
    bool found = false;
    unsigned empty = 0; /* costs in a row without a place */
    add_place(w, at, 0, 0, 0);
    for (unsigned cost = 0; empty < COSTS && !found;) {
        uint32_t i = w->first[cost % COSTS];
        empty = i == 0 ? empty + 1 : 0;
        if (i == 0) {
            cost++;
            continue;
        }
        struct place *p = &w->places[--i];
        w->first[cost % COSTS] = p->next;
        found = match_may_end(w->m, p->at);
        if (found) {
            append_way(w, i, text);
        }
        for (unsigned byte = 0; byte < 256 && !found; byte++) {
            add_place(w, match_byte(w->m, p->at, (uint8_t)byte), i, byte,
                      cost + cost_of(byte));
        }
    }
    drop_places(w);
    return found;
}

/* --- a random text --- */

/* Append a byte that may follow, and move on behind it. Places that follow are
 * equally likely, and so are the bytes that lead to one. */
static bool append_byte(struct walk *w, match_t *at, struct buf *text)
{
    uint8_t bytes[256];
    unsigned n = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        add_place(w, match_byte(w->m, *at, (uint8_t)byte), 0, byte, 0);
    }
    if (w->n == 0) {
        return false;
    }
    match_t next = w->places[draw(w, w->n)].at;
    for (unsigned byte = 0; byte < 256; byte++) {
        if (match_byte(w->m, *at, (uint8_t)byte) == next) {
            bytes[n++] = (uint8_t)byte;
        }
    }
    buf_put(text, &bytes[draw(w, n)], 1);
    match_drop(w->m, *at);
    match_hold(w->m, next);
    *at = next;
    drop_places(w);
    return true;
}

static void add_walk(struct walk *w, struct json *list)
{
    struct buf text;
    match_t at = match_start(w->m);
    buf_init(&text, MIB(1));
    match_hold(w->m, at);
    while (text.n < WALK_BYTES && append_byte(w, &at, &text) &&
           (!match_may_end(w->m, at) || draw(w, 4) > 0)) {
    }
    if (append_end(w, at, &text)) {
        json_add_strn(list, NULL, text.p != NULL ? text.p : "", text.n);
    }
    match_drop(w->m, at);
    buf_fini(&text);
}

/* --- given texts --- */

static void add_given(struct walk *w, const char *s, bool begun,
                      struct json *list)
{
    struct buf text;
    match_t at = match_start(w->m);
    buf_init(&text, MIB(1));
    buf_puts(&text, s);
    match_hold(w->m, at);
    bool ok = match_bytes(w->m, &at, s, strlen(s));
    if (!begun) {
        json_add_bool(list, NULL, ok && match_may_end(w->m, at));
    } else if (ok && append_end(w, at, &text)) {
        json_add_strn(list, NULL, text.p, text.n);
    } else if (ok) {
        json_add_bool(list, NULL, true);
    } else {
        json_add_null(list, NULL);
    }
    match_drop(w->m, at);
    buf_fini(&text);
}

static void answer(struct walk *w, const struct json *request,
                   struct json *reply)
{
    struct json *whole = json_add_array(reply, "whole");
    struct json *ended = json_add_array(reply, "ended");
    struct json *walks = json_add_array(reply, "walks");
    for (const struct json *x = json_first(json_get(request, "whole"));
         x != NULL; x = json_next(x)) {
        add_given(w, json_str(x), false, whole);
    }
    for (const struct json *x = json_first(json_get(request, "begun"));
         x != NULL; x = json_next(x)) {
        add_given(w, json_str(x), true, ended);
    }
    w->random = (uint64_t)json_num(json_get(request, "seed"));
    for (double i = json_num(json_get(request, "walks")); i > 0; i--) {
        add_walk(w, walks);
    }
}

static int run(struct walk *w, const struct json *request, struct json *reply,
               struct err *e)
{
    struct grammar *g = NULL;
    RETERR(grammar_from_schema(json_get(request, "schema"), &g, e));
    int rc = matcher_new(g, &w->m, e);
    if (rc == 0) {
        answer(w, request, reply);
    }
    matcher_free(w->m);
    w->m = NULL;
    grammar_free(g);
    return rc;
}

int main(void)
{
    static struct walk w;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = 0;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct err e = {0};
        struct buf out;
        struct json *request = NULL;
        struct json *reply = json_object();
        buf_init(&out, MIB(16));
        if (json_parse(line, (size_t)n, &request, &e) != 0 ||
            run(&w, request, reply, &e) != 0) {
            json_add_str(reply, "error", e.msg);
        }
        json_write(reply, false, &out);
        (void)printf("%s\n", buf_ok(&out) ? out.p : "{}");
        (void)fflush(stdout);
        buf_fini(&out);
        json_free(reply);
        json_free(request);
    }
    free(line);
    return 0;
}
