/* value.h - the values of a template: Python's, as far as templates see them.
 *
 * A value is 24 bytes and borrows what it points to; all of that lies in the
 * arena of one rendering. Lists and dictionaries do not change once a template
 * can see them (the sandbox forbids their methods that would), so copies share
 * them; only a namespace changes.
 */
#pragma once

#include "base/arena.h"
#include "base/buf.h"

enum val_kind {
    V_MISSING, /* an argument that was not given; a name set only later */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_RANGE,
    V_VIEW, /* dict.items(), keys(), values() */
    V_GEN,  /* what map, select, items make: it can be gone through once */
    V_DICT,
    V_NS,    /* namespace(...) */
    V_LOOP,  /* the `loop` of a for */
    V_MACRO, /* also a `caller` */
    V_FUNC,  /* a global function */
    V_METHOD /* of a string, a list, a dictionary; not yet called */
};

struct builtin;
struct loop;
struct macro;

struct val {
    enum val_kind kind;
    bool markup; /* of a string: |safe; + escapes what is joined to it */
    union {
        bool b;
        int64_t i;
        double f;
        struct span s;         /* STR; UNDEFINED: its name, for the message */
        struct val_list *list; /* LIST, TUPLE, RANGE, VIEW, GEN */
        struct val_dict *dict; /* DICT, NS */
        struct loop *loop;
        struct macro *macro;
        const struct builtin *func;
        struct method *method;
    };
};

struct val_list {
    struct val *v;
    size_t n, cap;
    size_t at;         /* GEN: gone through so far */
    size_t *used;      /* of v, by all lists that share it; NULL: v is only
                          this one's (arith.c) */
    struct span label; /* VIEW: "dict_items"; RANGE: "range(0, 3)"; a TUPLE of
                          groupby: "group" */
};

struct val_item {
    struct val key, v;
};

/* In order of insertion. */
struct val_dict {
    struct val_item *item;
    size_t n, cap;
};

struct method {
    struct val self;
    const struct builtin *of;
};

struct run; /* a rendering: eval.h */

static const struct val val_none = {.kind = V_NONE};
static const struct val val_missing = {.kind = V_MISSING};

struct val val_str(struct span s);
struct val val_strz(const char *s); /* borrows */
struct val val_int(int64_t i);
struct val val_bool(bool b);
struct val val_float(double f);
struct val val_undefined(struct span name);
struct val val_dict_of(struct val_dict *d);

static inline struct span zspan(const char *z)
{
    return (struct span){z, z != NULL ? __builtin_strlen(z) : 0};
}

bool span_is(struct span s, const char *z);
bool span_equal(struct span a, struct span b);

/* LIST, TUPLE, RANGE, VIEW or GEN: what has a list. */
static inline bool val_has_list(const struct val *v)
{
    return v->kind >= V_LIST && v->kind <= V_GEN;
}

/* BOOL, INT or FLOAT: Python's booleans are numbers. */
static inline bool val_is_number(const struct val *v)
{
    return v->kind >= V_BOOL && v->kind <= V_FLOAT;
}

/* BOOL or INT, as a number. */
static inline bool val_as_int(const struct val *v, int64_t *ret)
{
    if (v->kind != V_INT && v->kind != V_BOOL) {
        return false;
    }
    *ret = v->kind == V_INT ? v->i : v->b;
    return true;
}

double val_as_double(const struct val *v); /* of a number */
bool val_true(const struct val *v);
const char *val_type(const struct val *v); /* Python's name: "str", "dict" */

/* Room for one more element of `size` bytes behind n in *p; what *p was stays
 * in the arena. false, as below: out of memory, or over the arena's limit. */
CHECKED bool val_room(struct arena *a, void **p, size_t n, size_t *cap,
                      size_t size);
CHECKED bool list_push(struct arena *a, struct val_list *l, struct val v);
/* The key must be hashable (val_hashable). */
CHECKED bool dict_put(struct arena *a, struct val_dict *d, struct val key,
                      struct val v);
CHECKED bool dict_putz(struct arena *a, struct val_dict *d, const char *key,
                       struct val v);
const struct val *dict_get(const struct val_dict *d, const struct val *key);
const struct val *dict_gets(const struct val_dict *d, struct span key);
bool val_hashable(const struct val *v);

/* Python's == and <; they charge the rendering for what they look through.
 * Errors: TEMPLATE_INPUT (no order between these types), TOO_BIG. */
CHECKED int val_equal(struct run *r, const struct val *a, const struct val *b,
                      bool *ret);
CHECKED int val_compare(struct run *r, const struct val *a, const struct val *b,
                        int *ret);
/* `a in b`. */
CHECKED int val_in(struct run *r, const struct val *a, const struct val *b,
                   bool *ret);
/* Whether str `needle` stands in `hay`: where, or hay.n + 1. */
size_t span_find(struct span hay, struct span needle);

/* --- text (print.c) --- */

/* str(v): what printing it gives. A string is not copied. */
CHECKED int val_text(struct run *r, const struct val *v, struct span *ret);
/* Append repr(v). */
CHECKED int val_repr(struct run *r, const struct val *v, struct buf *b);
/* Append a number as Python's repr(float): the fewest digits that read back. */
void put_float(struct buf *b, double f);

/* --- JSON --- */

/* The value of JSON text. Numbers without fraction and exponent are integers,
 * as Python reads them. Errors: JSON (also for an integer beyond 64 bits),
 * TOO_BIG (the arena's limit). */
CHECKED int val_from_json(struct arena *a, const char *p, size_t n,
                          struct val *ret, struct err *e);

struct json_style { /* as json.dumps takes them */
    bool ascii, sort;
    bool lines; /* indent is given */
    struct span indent, comma, colon;
};
CHECKED int val_to_json(struct run *r, const struct val *v,
                        const struct json_style *s, struct buf *b);
