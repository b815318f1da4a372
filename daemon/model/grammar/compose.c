/* compose.c - constraints as JSON text: grammars of any kind, put together.
 *
 * A constraint is an object with one word of a table, its form. Each form is
 * built between two states of one builder; nothing enters the first and nothing
 * leaves the second, so forms may share both. Only repetition makes a rule. */
#include <string.h>

#include "model/grammar/schema.h"

struct composer {
    struct builder b;
    struct json_rules json;
    bool json_made;
    unsigned n_forms; /* with strings that are looked for */
    int depth;
    struct json_path path; /* of the form that is built */
};

struct form {
    const char *word;
    enum json_type type; /* of its value; JSON_NULL: it looks itself */
    /* c is the constraint, v the word's value. */
    void (*build)(struct composer *m, const struct json *c,
                  const struct json *v, uint32_t from, uint32_t to);
    const char *beside[3]; /* other members that it may have */
};

static void deny(struct composer *m, int code, const char *word,
                 const char *what)
{
    (void)build_fail(&m->b, code, "constraint %s: %s%s%s", m->path.text, word,
                     *word != '\0' ? ": " : "", what);
}

/* One more form or string to look for. */
static void count_form(struct composer *m)
{
    if (++m->n_forms > GRAMMAR_FORMS_MAX) {
        deny(m, ERR_TOO_BIG, "", "the constraint has too many forms");
    }
}

static void constraint(struct composer *m, const struct json *c, uint32_t from,
                       uint32_t to);

/* --- one language --- */

static const struct json_rules *rules(struct composer *m)
{
    if (!m->json_made) {
        m->json_made = true;
        json_rules(&m->b, &m->json);
    }
    return &m->json;
}

static void of_schema(struct composer *m, const struct json *c,
                      const struct json *v, uint32_t from, uint32_t to)
{
    (void)c;
    const struct json_rules *r = rules(m);
    build_schema(&m->b, r, v, from, to);
}

static void of_object(struct composer *m, const struct json *c,
                      const struct json *v, uint32_t from, uint32_t to)
{
    (void)c;
    if (!json_bool(v)) {
        deny(m, ERR_INVALID, "object", "is not true");
        return;
    }
    build_call(&m->b, from, rules(m)->object, to);
}

static void of_gbnf(struct composer *m, const struct json *c,
                    const struct json *v, uint32_t from, uint32_t to)
{
    (void)c;
    uint32_t root = build_gbnf(&m->b, json_str(v), strlen(json_str(v)));
    build_call(&m->b, from, root, to);
}

static void of_regex(struct composer *m, const struct json *c,
                     const struct json *v, uint32_t from, uint32_t to)
{
    (void)c;
    build_regex(&m->b, json_str(v), strlen(json_str(v)), false, false, NO_RULE,
                from, to);
}

static void of_text(struct composer *m, const struct json *c,
                    const struct json *v, uint32_t from, uint32_t to)
{
    (void)c;
    const char *p = json_str(v);
    build_empty(&m->b, build_text(&m->b, from, p, strlen(p)), to);
}

/* --- strings that are looked for --- */

struct searched {
    struct search_string *list; /* (n), in the builder's arena */
    size_t n;
};

static void add_searched(struct composer *m, struct searched *s,
                         const char *word, const struct json *x, bool ends,
                         bool first)
{
    const char *p = json_str(x);
    count_form(m);
    if (p == NULL || *p == '\0') {
        deny(m, ERR_INVALID, word,
             p == NULL ? "is no list of strings" : "an empty string");
        return;
    }
    s->list[s->n++] = (struct search_string){
        .s = {p, strlen(p)},
          .ends = ends, .first = first
    };
}

/* Room for `more` strings and those of c's lists, then these. False after an
 * error. */
static bool read_lists(struct composer *m, const struct json *c, size_t more,
                       struct searched *s)
{
    static const char *const words[] = {"without", "without_first"};
    size_t room = more + 1;
    for (size_t i = 0; i < countof(words); i++) {
        room += json_count(json_get(c, words[i]));
    }
    s->list = arena_array(&m->b.arena, room, sizeof(*s->list));
    if (s->list == NULL) {
        deny(m, ERR_TOO_BIG, "", "strings to look for");
        return false;
    }
    for (size_t i = 0; i < countof(words); i++) {
        const struct json *all = json_get(c, words[i]);
        if (all != NULL && json_type(all) != JSON_ARRAY) {
            deny(m, ERR_INVALID, words[i], "is no list of strings");
        }
        for (const struct json *x = json_first(all); x != NULL && m->b.rc == 0;
             x = json_next(x)) {
            add_searched(m, s, words[i], x, false, i == 1);
        }
    }
    return m->b.rc == 0;
}

/* White space at the beginning is passed over, so it can begin no string. */
static bool check_first(struct composer *m, const struct searched *s)
{
    bool first = false;
    bool blank = false;
    for (size_t i = 0; i < s->n; i++) {
        first |= s->list[i].first;
        blank |= strchr(" \t\r\n", *s->list[i].s.p) != NULL;
    }
    if (first && blank) {
        deny(m, ERR_INVALID, "without_first",
             "together with strings that begin with white space");
    }
    return m->b.rc == 0;
}

static void of_until(struct composer *m, const struct json *c,
                     const struct json *v, uint32_t from, uint32_t to)
{
    struct searched s = {NULL, 0};
    if (!read_lists(m, c, 1, &s)) {
        return;
    }
    add_searched(m, &s, "until", v, true, false);
    if (m->b.rc == 0 && check_first(m, &s)) {
        build_search(&m->b, s.list, s.n, from, to, NO_STATE);
    }
}

static void of_without(struct composer *m, const struct json *c,
                       const struct json *v, uint32_t from, uint32_t to)
{
    (void)v;
    struct searched s = {NULL, 0};
    if (read_lists(m, c, 0, &s) && check_first(m, &s)) {
        build_search(&m->b, s.list, s.n, from, NO_STATE, to);
    }
}

/* --- several --- */

/* A member of a list, or a single one, at its own path. */
static void inner(struct composer *m, const char *word, unsigned i, bool list,
                  const struct json *c, uint32_t from, uint32_t to)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "%u", i);
    size_t n = path_enter(&m->path, word, list ? name : NULL);
    constraint(m, c, from, to);
    path_leave(&m->path, n);
}

static void of_seq(struct composer *m, const struct json *c,
                   const struct json *v, uint32_t from, uint32_t to)
{
    (void)c;
    unsigned i = 0;
    for (const struct json *x = json_first(v); x != NULL && m->b.rc == 0;
         x = json_next(x), i++) {
        uint32_t next = build_state(&m->b);
        inner(m, "seq", i, true, x, from, next);
        from = next;
    }
    build_empty(&m->b, from, to);
}

static void of_any(struct composer *m, const struct json *c,
                   const struct json *v, uint32_t from, uint32_t to)
{
    (void)c;
    unsigned i = 0;
    if (json_first(v) == NULL) {
        deny(m, ERR_INVALID, "any", "an empty list");
    }
    for (const struct json *x = json_first(v); x != NULL && m->b.rc == 0;
         x = json_next(x), i++) {
        inner(m, "any", i, true, x, from, to);
    }
}

/* --- repetition --- */

static uint32_t bound(struct composer *m, const struct json *c,
                      const char *word, uint32_t absent)
{
    const struct json *w = json_get(c, word);
    int64_t n = absent;
    bool none = w == NULL || json_type(w) == JSON_NULL;
    if (!none && !json_int(w, 0, GRAMMAR_REPEAT_MAX, &n)) {
        deny(m, ERR_INVALID, word, "is no count within the limit");
    }
    return (uint32_t)n;
}

/* Begin a rule of a repetition; *to is where it ends. */
static uint32_t open_rule(struct composer *m, const char *name, uint32_t *from,
                          uint32_t *to, uint32_t *before)
{
    uint32_t rule = build_rule(&m->b, name, 0);
    *before = build_open(&m->b, rule);
    *from = m->b.rc == 0 ? m->b.rules[rule].start : 0;
    *to = m->b.rc == 0 ? m->b.rules[rule].end : 0;
    return rule;
}

/* `item` with what stands before it when it is not the first. */
static uint32_t with_between(struct composer *m, const struct json *between,
                             uint32_t item)
{
    uint32_t from = 0;
    uint32_t to = 0;
    uint32_t before = 0;
    uint32_t rule = open_rule(m, "between", &from, &to, &before);
    uint32_t at = build_state(&m->b);
    inner(m, "between", 0, false, between, from, at);
    build_call(&m->b, at, item, to);
    build_close(&m->b, before);
    return rule;
}

static void of_repeat(struct composer *m, const struct json *c,
                      const struct json *v, uint32_t from, uint32_t to)
{
    struct builder *b = &m->b;
    const struct json *between = json_get(c, "between");
    uint32_t min = bound(m, c, "min", 0);
    uint32_t max = bound(m, c, "max", BUILD_ANY);
    uint32_t start = 0;
    uint32_t end = 0;
    uint32_t before = 0;
    if (min > max) {
        deny(m, ERR_INVALID, "min", "is more than max");
        return;
    }
    uint32_t item = open_rule(m, "repeat", &start, &end, &before);
    inner(m, "repeat", 0, false, v, start, end);
    build_close(b, before);
    if (between == NULL || json_type(between) == JSON_NULL) {
        build_empty(b, build_repeat_rule(b, from, item, min, max), to);
        return;
    }
    uint32_t more = with_between(m, between, item);
    if (min == 0) {
        build_empty(b, from, to);
    }
    if (max > 0) {
        uint32_t one = build_state(b);
        build_call(b, from, item, one);
        one = build_repeat_rule(b, one, more, min > 0 ? min - 1 : 0,
                                max == BUILD_ANY ? max : max - 1);
        build_empty(b, one, to);
    }
}

/* --- forms --- */

/* The first word that a constraint has is its form. */
static const struct form forms[] = {
    {"schema",  JSON_NULL,   of_schema,  {NULL}                      },
    {"object",  JSON_BOOL,   of_object,  {NULL}                      },
    {"gbnf",    JSON_STRING, of_gbnf,    {NULL}                      },
    {"regex",   JSON_STRING, of_regex,   {NULL}                      },
    {"text",    JSON_STRING, of_text,    {NULL}                      },
    {"until",   JSON_STRING, of_until,   {"without", "without_first"}},
    {"without", JSON_ARRAY,  of_without, {"without_first"}           },
    {"seq",     JSON_ARRAY,  of_seq,     {NULL}                      },
    {"any",     JSON_ARRAY,  of_any,     {NULL}                      },
    {"repeat",  JSON_NULL,   of_repeat,  {"min", "max", "between"}   },
};

static bool may_have(const struct form *f, const char *word)
{
    bool ok = strcmp(f->word, word) == 0;
    for (size_t i = 0; i < countof(f->beside) && f->beside[i] != NULL; i++) {
        ok |= strcmp(f->beside[i], word) == 0;
    }
    return ok;
}

/* The form of c; NULL after an error. */
static const struct form *form_of(struct composer *m, const struct json *c)
{
    const struct form *f = NULL;
    for (size_t i = 0; i < countof(forms) && f == NULL; i++) {
        f = json_get(c, forms[i].word) != NULL ? &forms[i] : NULL;
    }
    for (const struct json *w = json_first(c); w != NULL; w = json_next(w)) {
        if (f == NULL || !may_have(f, json_key(w))) {
            deny(m, ERR_INVALID, json_key(w), "this word is not known here");
            return NULL;
        }
    }
    if (f == NULL) {
        deny(m, ERR_INVALID, "", "no form");
    }
    return f;
}

static void constraint(struct composer *m, const struct json *c, uint32_t from,
                       uint32_t to)
{
    if (m->b.rc != 0) {
        return;
    }
    if (json_type(c) != JSON_OBJECT) {
        deny(m, ERR_INVALID, "", "is no object");
        return;
    }
    const struct form *f = form_of(m, c);
    if (f == NULL) {
        return;
    }
    const struct json *v = json_get(c, f->word);
    if (f->type != JSON_NULL && json_type(v) != f->type) {
        char what[64];
        (void)snprintf(what, sizeof(what), "is not %s",
                       json_type_name(f->type));
        deny(m, ERR_INVALID, f->word, what);
        return;
    }
    count_form(m);
    if (++m->depth > GRAMMAR_FORMS_DEPTH_MAX) {
        deny(m, ERR_TOO_BIG, "", "forms are nested too deep");
    }
    f->build(m, c, v, from, to);
    m->depth--;
}

int grammar_from_text(const char *text, size_t n, struct grammar **ret,
                      struct err *e)
{
    struct json *j = NULL;
    if (n > GRAMMAR_TEXT_MAX) {
        return err_set(e, ERR_TOO_BIG, "a constraint of more than %zu bytes",
                       GRAMMAR_TEXT_MAX);
    }
    int rc = json_parse(text, n, &j, e);
    if (rc != 0) {
        return err_prefix(e, rc, "constraint");
    }
    struct composer *m = calloc(1, sizeof(*m));
    must(m != NULL);
    build_init(&m->b, e);
    path_begin(&m->path, "#");
    uint32_t from = 0;
    uint32_t to = 0;
    uint32_t before = 0;
    uint32_t root = open_rule(m, "constraint", &from, &to, &before);
    constraint(m, j, from, to);
    build_close(&m->b, before);
    rc = build_finish(&m->b, root, ret);
    free(m);
    json_free(j);
    return rc;
}
